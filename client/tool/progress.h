/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress bar of a load: one line on standard error, redrawn a few times a second, wiped at the end.
 */
#ifndef CHXA_TOOL_PROGRESS_H
#define CHXA_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
    bool shown;         /* standard error is a terminal, and it is wanted */
    const char *label;  /* the file's name, harmless; the caller's */
    uint64_t total;     /* bytes; 0: not known */
    uint64_t done;      /* bytes */
    int64_t started_ms; /* monotonic */
    int64_t drawn_ms;
};

/* The line, at most width columns. total 0: no bar and no time left. Pure. */
void progress_line(const char *label, uint64_t done, uint64_t total, int64_t elapsed_ms,
                   unsigned width, char *ret_line, size_t room);

int64_t progress_clock_ms(void);
void progress_start(struct progress *progress, const char *label, uint64_t total);
/* done bytes in all; draws when it is time. */
void progress_set(struct progress *progress, uint64_t done);
/* A word in place of the bar, for what cannot be measured ("preparing"). */
void progress_say(struct progress *progress, const char *word);
/* Wipes the line. */
void progress_end(struct progress *progress);

#endif
