/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress bar of a load.
 */
#include "progress.h"

#include "text.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define DRAW_MS   100
#define BAR_MAX   40u
#define BAR_MIN   8u
#define LINE_ROOM 400u

int64_t progress_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* "  63%  1.2 GB  84 MB/s  12s left" */
static void put_figures(uint64_t done, uint64_t total, int64_t elapsed_ms, char *ret_text,
                        size_t room)
{
    char amount[24], rate_text[24], left[32];
    double seconds = elapsed_ms > 0 ? (double)elapsed_ms / 1000 : 0.001;
    double rate = (double)done / seconds;
    text_bytes(done, amount, sizeof amount);
    text_bytes((uint64_t)rate, rate_text, sizeof rate_text);
    if (total == 0) {
        snprintf(ret_text, room, "  %s  %s/s", amount, rate_text);
        return;
    }
    uint64_t rest = done < total ? total - done : 0;
    /* At first the rate says nothing. */
    if (elapsed_ms < 1000 || rate < 1)
        snprintf(left, sizeof left, "%s", "");
    else {
        char time_left[24];
        text_duration((int64_t)((double)rest / rate * 1000), time_left, sizeof time_left);
        snprintf(left, sizeof left, "  %s left", time_left);
    }
    double share = (double)(done < total ? done : total) / (double)total * 100;
    snprintf(ret_text, room, "  %3.0f%%  %s  %s/s%s", share, amount, rate_text, left);
}

void progress_line(const char *label, uint64_t done, uint64_t total, int64_t elapsed_ms,
                   unsigned width, char *ret_line, size_t room)
{
    char figures[120], bar[BAR_MAX + 3] = "";
    put_figures(done, total, elapsed_ms, figures, sizeof figures);
    size_t taken = strlen(figures) + 1, label_bytes = strlen(label),
           label_width = text_width(label);
    size_t spare = width > taken ? width - taken : 0;
    if (label_width > spare / 2) {
        label_bytes = text_fit(label, spare / 2);
        label_width = spare / 2;
    }
    spare -= label_width;
    if (total > 0 && spare >= BAR_MIN + 4) {
        size_t cells = spare - 4 < BAR_MAX ? spare - 4 : BAR_MAX;
        double share = (double)(done < total ? done : total) / (double)total;
        size_t full = (size_t)(share * (double)cells);
        bar[0] = '[';
        memset(bar + 1, '#', full);
        memset(bar + 1 + full, '.', cells - full);
        bar[cells + 1] = ']';
        bar[cells + 2] = '\0';
    }
    snprintf(ret_line, room, "%.*s %s%s", (int)label_bytes, label, bar, figures);
}

static void draw(struct progress *progress, const char *line)
{
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    progress->drawn_ms = progress_clock_ms();
}

static unsigned width_of_terminal(void)
{
    struct winsize size = {0};
    bool good = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return good ? size.ws_col : 80;
}

void progress_start(struct progress *progress, const char *label, uint64_t total)
{
    progress->label = label;
    progress->total = total;
    progress->done = 0;
    progress->started_ms = progress_clock_ms();
    progress->drawn_ms = 0;
}

void progress_set(struct progress *progress, uint64_t done)
{
    int64_t now = progress_clock_ms();
    progress->done = done;
    if (!progress->shown || now - progress->drawn_ms < DRAW_MS)
        return;
    char line[LINE_ROOM];
    progress_line(progress->label, done, progress->total, now - progress->started_ms,
                  width_of_terminal(), line, sizeof line);
    draw(progress, line);
}

void progress_say(struct progress *progress, const char *word)
{
    char line[LINE_ROOM];
    if (!progress->shown)
        return;
    snprintf(line, sizeof line, "%.200s: %s", progress->label, word);
    draw(progress, line);
}

void progress_end(struct progress *progress)
{
    if (progress->shown && progress->drawn_ms != 0)
        fputs("\r\033[K", stderr);
    progress->drawn_ms = 0;
}
