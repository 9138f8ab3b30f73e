/* SPDX-License-Identifier: Apache-2.0
 *
 * What the load generator's files share: the options, a writer's clock marks, and the kinds of load.
 *
 * A kind is three functions, each called once by every writer on its own thread: open (connections, and whatever is not
 * timed), work (timed: all writers begin it together), close. Errors end the program: a load that was not served whole is
 * no measurement.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    const char *url;   /* of ClickHouse for the direct kinds, else of chxad */
    const char *query; /* head of the INSERT */
    const char *file;  /* the kind `statements`: one a line */
    const char *name;  /* makes the ids of this run unlike those of others */
    unsigned writers;
    uint64_t transactions; /* of each writer */
    uint64_t batches;      /* of each transaction */
    uint64_t rows;         /* of each batch */
    uint64_t bytes;        /* of the body; `stream`: of one write, 0: no limit */
    uint64_t interval_ms;  /* the kind `sink`: between two checkpoints */
    uint64_t
        replay_bytes; /* the kinds `stream` and `sink`: SIZE_DEFAULT leaves the library's own */
};
#define SIZE_DEFAULT UINT64_MAX

/* A batch of rows, made once and sent by everybody. */
struct batch {
    char *data;
    size_t bytes;
};

/* Durations of one kind of call, in milliseconds. */
struct samples {
    double *ms;
    size_t n, room;
};

enum step { STEP_BEGIN, STEP_WRITE, STEP_PREPARE, STEP_COMMIT, STEP_STATEMENT, STEPS };

struct writer {
    const struct options *options;
    const struct batch *batch;
    unsigned number;
    void *state; /* of the kind */
    struct samples samples[STEPS];
};

struct kind {
    const char *name;
    void (*open)(struct writer *);
    void (*work)(struct writer *);
    void (*close)(struct writer *);
};

extern const struct kind direct_kinds[]; /* end with a NULL name, as do the next */
extern const struct kind chxa_kinds[];

double now_ms(void);
/* Adds the time since `since`, and returns now. */
double mark(struct writer *writer, enum step step, double since);
_Noreturn void die(const char *what, const char *why);
void *must_alloc(size_t bytes);

/* Fills `room` with rows of the big body, of which `left` bytes are to come: sixteen constant numbers in RowBinary. */
#define BODY_ROW_BYTES 128u
void body_copy(char *room, size_t bytes, uint64_t left);

#endif
