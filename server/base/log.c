/* SPDX-License-Identifier: Apache-2.0
 *
 * See log.h.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/mem.h"
#include "proto/record_check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int threshold = LOG_LEVEL_INFO;

static const char *const names[] = {"debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
    threshold = (int)level;
}

bool log_enabled(enum log_level level)
{
    return (int)level >= threshold;
}

/* Control characters become blanks, bytes that are no UTF-8 question marks: what others sent must
 * not forge a line or break the reader. */
static void make_printable(char *line, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t step = chxa_utf8_step(line + i);
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = ' ';
        else if (step == 0)
            line[i] = '?';
        i += step ? step : 1;
    }
}

void log_write(enum log_level level, const char *msg, const char *fields, ...)
{
    if (!log_enabled(level))
        return;
    int64_t now_ms = clock_wall_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);

    va_list args;
    va_start(args, fields);
    char *rest = mem_vprintf(fields, args);
    va_end(args);
    char *line = mem_printf("time=%s.%03dZ level=%s msg=\"%s\"%s%s\n", stamp, (int)(now_ms % 1000),
                            names[level], msg, *rest ? " " : "", rest);
    size_t len = strlen(line);
    make_printable(line, len - 1);
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* nowhere left to complain */
    free(line);
    free(rest);
}
