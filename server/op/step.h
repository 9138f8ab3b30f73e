/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of multi-step operations: an operation is a table of named steps, and this runs them.
 *
 * Rules for a step:
 *   - one external effect; it looks before it acts, so that running it again is harmless;
 *   - it ends by calling exactly one of op_next, op_goto, op_retry or op_end, in the call or in a
 *     later callback;
 *   - what blocks goes through op_blocking to a worker thread.
 * The driver counts tries, times each step, traces it and visits its fault points (base/fault.h):
 * "<operation>.<step>" × before (nothing done yet), sent (the step called op_sent: the effect is
 * under way), after (op_next, op_goto).
 *
 * Threads: the loop's, but for the `work` of op_blocking. The operation ends (kind->finished) on a
 * later turn than op_start, exactly once; op_start itself runs nothing.
 */
#ifndef CHXA_OP_STEP_H
#define CHXA_OP_STEP_H

#include "base/error.h"
#include "base/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct op;
struct coord;
struct txn;

struct op_step {
    const char *name;
    void (*run)(struct op *op);
};

struct op_kind {
    const char *name;
    const struct op_step *steps;
    size_t n_steps;
    /* The operation is over: code 0, or an error (op->error). The op is still whole; release is
     * called after it, on a later turn. */
    void (*finished)(struct op *op, int code);
    /* Frees the object that embeds the op. */
    void (*release)(struct op *op);
};

enum op_held { OP_NOT_HELD, OP_HELD_BEFORE, OP_HELD_BEHIND };

struct op {
    const struct op_kind *kind;
    struct coord *coord;
    struct txn *txn;
    size_t at;               /* index of the current step */
    unsigned tries;          /* of the current step, 1 at first */
    uint64_t started_us;     /* of the operation */
    uint64_t step_us;        /* start of the current step */
    struct error error;      /* of the last failure; kept over retries */
    struct error work_error; /* what `work` left */
    int work_code;
    /* private to step.c */
    bool in_run, moved, over;
    enum op_held held;     /* by a fault */
    const char *held_next; /* held behind a step: see step_done */
    enum fault_end end;    /* of `work` */
    uint64_t slow_ms;
    uv_timer_t timer;
    uv_work_t request;
    void (*work)(struct op *op);
    void (*worked)(struct op *op);
};

/* Begins at the step `first` (NULL: the table's first) on a later turn. The op must be zeroed. */
void op_start(struct op *op, const struct op_kind *kind, struct coord *coord, struct txn *txn,
              const char *first);

/* This step is done: the next one, or the end (code 0) behind the last. */
void op_next(struct op *op);
/* … the step of that name. */
void op_goto(struct op *op, const char *step);
/* Runs the step of that name after a delay (NULL: this one again). */
void op_retry(struct op *op, const char *step, uint64_t delay_ms);
/* Ends the operation. code != 0: op->error must be set. */
void op_end(struct op *op, int code);
/* Sets op->error and ends with it. */
void op_fail(struct op *op, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The step's effect is on its way (a fault point). */
void op_sent(struct op *op);
/* True between op_retry and the step's next run. */
bool op_sleeps(const struct op *op);
/* Wakes an op that sleeps in op_retry: its step runs on the next turn. */
void op_wake(struct op *op);

/*
 * Runs work(op) on a worker thread, then worked(op) on the loop. work may read what the step's
 * author knows to be still, and writes op->work_code, op->work_error and the operation's own fields
 * only.
 */
void op_blocking(struct op *op, void (*work)(struct op *op), void (*worked)(struct op *op));

/* Delay before try number `tries` + 1: doubling from first_ms up to max_ms, with ±25 % jitter. */
uint64_t op_backoff_ms(unsigned tries, uint64_t first_ms, uint64_t max_ms);

#endif
