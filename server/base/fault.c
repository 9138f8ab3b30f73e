/* SPDX-License-Identifier: Apache-2.0
 *
 * See fault.h. Threads: the loop's only.
 */
#include "base/fault.h"

#ifdef CHXA_FAULTS

#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULTS_MAX       16u
#define FILE_BYTES_MAX   4096u
#define FAULT_SEPARATORS ",\n"

enum kind { KIND_CRASH, KIND_ERROR, KIND_LOST, KIND_DELAY };

struct fault {
    char *text;
    char *step; /* "commit.attach" */
    enum fault_place place;
    enum kind kind;
    uint64_t delay_ms;
    unsigned long nth, visits;
};

static struct fault faults[FAULTS_MAX];
static size_t n_faults;
static char *faults_text; /* what they were read from */
static char *running;     /* the step that runs, until its first effect starts */
static uint64_t slow_ms;

static const char *const place_names[] = {"before", "sent", "after"};

/* A fault that is misspelt must not pass for a run without one. */
static void refuse(const char *text)
{
    fprintf(stderr, "CHXA_FAULT: \"%s\" is not understood\n", text);
    abort();
}

static bool place_takes(enum fault_place place, enum kind kind)
{
    return kind != KIND_ERROR || place != FAULT_AFTER;
}

static void parse_kind(struct fault *fault, const char *word)
{
    static const char delay[] = "delay=";
    if (strcmp(word, "crash") == 0)
        fault->kind = KIND_CRASH;
    else if (strcmp(word, "error") == 0)
        fault->kind = KIND_ERROR;
    else if (strcmp(word, "lost") == 0)
        fault->kind = KIND_LOST;
    else if (strncmp(word, delay, sizeof delay - 1) == 0)
        fault->kind = KIND_DELAY;
    else
        refuse(fault->text);
    if (fault->kind == KIND_DELAY)
        fault->delay_ms = strtoull(word + sizeof delay - 1, NULL, 10);
    if (!place_takes(fault->place, fault->kind) || (fault->kind == KIND_DELAY && !fault->delay_ms))
        refuse(fault->text);
}

/* The next word of *at, which it moves on and cuts off; NULL at the end. */
static char *next_word(char **at, const char *separators)
{
    char *word = *at + strspn(*at, separators);
    if (*word == '\0')
        return NULL;
    *at = word + strcspn(word, separators);
    if (**at != '\0')
        *(*at)++ = '\0';
    return word;
}

static void parse_one(const char *text)
{
    if (n_faults == FAULTS_MAX)
        refuse(text);
    struct fault *fault = &faults[n_faults++];
    *fault = (struct fault){.text = mem_strdup(text), .nth = 1};
    char *words = mem_strdup(text), *rest = words;
    fault->step = mem_strdup(next_word(&rest, ":"));
    const char *place = next_word(&rest, ":");
    const char *kind = next_word(&rest, ":");
    bool no_kind = kind == NULL || kind[strspn(kind, "0123456789")] == '\0';
    const char *nth = no_kind ? kind : next_word(&rest, ":");
    size_t i = 0;
    while (place && i < 3 && strcmp(place_names[i], place) != 0)
        i++;
    if (place == NULL || i == 3)
        refuse(text);
    fault->place = (enum fault_place)i;
    parse_kind(fault, no_kind ? "crash" : kind);
    if (nth)
        fault->nth = strtoul(nth, NULL, 10);
    if (fault->nth == 0)
        refuse(text);
    free(words);
}

static void parse_all(const char *text)
{
    for (size_t i = 0; i < n_faults; i++) {
        free(faults[i].text);
        free(faults[i].step);
    }
    n_faults = 0;
    mem_replace(&faults_text, text);
    char *copy = mem_strdup(text), *rest = copy, *one;
    while ((one = next_word(&rest, FAULT_SEPARATORS)) != NULL)
        parse_one(one);
    free(copy);
}

static void read_faults(void)
{
    char buffer[FILE_BYTES_MAX] = "";
    const char *text = getenv("CHXA_FAULT");
    if (text && text[0] == '@') {
        int fd = open(text + 1, O_RDONLY | O_CLOEXEC);
        ssize_t bytes = fd < 0 ? 0 : read(fd, buffer, sizeof buffer - 1);
        if (fd >= 0)
            close(fd);
        buffer[bytes > 0 ? bytes : 0] = '\0';
        text = buffer;
    }
    if (text == NULL)
        text = "";
    if (faults_text == NULL || strcmp(faults_text, text) != 0)
        parse_all(text);
}

static void trace(const char *first, const char *second)
{
    const char *path = getenv("CHXA_FAULT_TRACE");
    if (path == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    char *line = mem_printf("%s:%s\n", first, second);
    ssize_t written = write(fd, line, strlen(line));
    (void)written;
    free(line);
    close(fd);
}

/* A visit of that kind there; true at the one that the fault waits for. */
static bool fires(struct fault *fault, const char *step, enum fault_place place, enum kind kind)
{
    if (fault->kind != kind || fault->place != place || strcmp(fault->step, step) != 0)
        return false;
    if (++fault->visits != fault->nth)
        return false;
    trace("fired", fault->text);
    return true;
}

uint64_t fault_visit(const char *operation, const char *step, enum fault_place place)
{
    uint64_t delay_ms = 0;
    char *name = mem_printf("%s.%s", operation, step);
    trace(name, place_names[place]);
    read_faults();
    for (size_t i = 0; i < n_faults; i++) {
        if (fires(&faults[i], name, place, KIND_CRASH))
            raise(SIGKILL);
        if (place != FAULT_SENT && fires(&faults[i], name, place, KIND_DELAY))
            delay_ms = faults[i].delay_ms;
    }
    free(name);
    return delay_ms;
}

void fault_step(const char *operation, const char *step)
{
    free(running);
    running = operation ? mem_printf("%s.%s", operation, step) : NULL;
}

char *fault_step_take(void)
{
    char *taken = running;
    running = NULL;
    return taken;
}

void fault_step_resume(char *taken)
{
    free(running);
    running = taken;
}

enum fault_end fault_effect_starts(enum fault_effect effect)
{
    static const char *const effects[] = {"files", "clickhouse", "store"};
    bool files = effect == FAULT_FILES;
    enum fault_end end = FAULT_NONE;
    if (running == NULL)
        return end;
    trace(running, effects[effect]);
    for (size_t i = 0; i < n_faults; i++) {
        if (fires(&faults[i], running, FAULT_BEFORE, KIND_ERROR))
            end = FAULT_ERROR;
        if (fires(&faults[i], running, FAULT_BEFORE, KIND_LOST))
            end = FAULT_REQUEST_LOST;
        if (fires(&faults[i], running, FAULT_AFTER, KIND_LOST))
            end = FAULT_ANSWER_LOST;
        if (fires(&faults[i], running, FAULT_SENT, KIND_ERROR))
            end = files ? FAULT_ERROR : FAULT_REFUSED;
        if (fires(&faults[i], running, FAULT_SENT, KIND_LOST))
            end = files ? FAULT_ANSWER_LOST : FAULT_OVERTAKEN;
        if (fires(&faults[i], running, FAULT_SENT, KIND_DELAY)) {
            end = FAULT_SLOW;
            slow_ms = faults[i].delay_ms;
        }
    }
    fault_step(NULL, NULL);
    return end;
}

uint64_t fault_slow_ms(void)
{
    return slow_ms;
}

#else

/* ISO C wants something in a translation unit. */
typedef int fault_points_are_compiled_out;

#endif
