/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault points: every step of every operation is a place where a test can make things go wrong. The
 * step driver (op/step.c) visits them, and the three ways to an effect (a worker thread, a request
 * to ClickHouse, a request to the store) ask here how theirs is to end; no operation knows of them.
 * Compiled in with -DCHXA_FAULTS=ON only; a release has none.
 *
 * CHXA_FAULT in the environment: faults with commas between them, or "@FILE": FILE's content, read
 * again when it changes. A fault is "<operation>.<step>:<place>[:<kind>][:<n>]"; it is a crash unless
 * it says otherwise, and happens at the n-th visit (the first unless it says otherwise):
 *
 *   before, sent, after : crash      the process ends as by kill -9
 *   before, after       : delay=MS   the step begins, or its end is acted upon, MS later
 *   before              : error      its effect does not happen, and is known not to: IO_FAILED,
 *                                    CLICKHOUSE_UNAVAILABLE, STORE_UNAVAILABLE
 *   before              : lost       its effect does not happen, and nobody knows: CLICKHOUSE_UNKNOWN,
 *                                    STORE_UNKNOWN; files: as error
 *   after               : lost       its effect happens, and nobody knows; files: IO_FAILED
 *   sent                : delay=MS   its effect is under way for MS longer
 *   sent                : error      who got it refuses it: ClickHouse with an exception, the store with
 *                                    a conflict that is none; files: as before:error
 *   sent                : lost       nobody knows, at once, and it happens behind the operation's back;
 *                                    files, and an INSERT's body: as after:lost
 *
 * A step that starts no effect this time is no visit for error and lost. Of several effects of one
 * run of a step the first is meant.
 *
 * CHXA_FAULT_TRACE=FILE: the name of each place visited is appended to FILE, so that a test can hold
 * them against the tables of steps; "<operation>.<step>:files" (clickhouse, store) for each effect,
 * and "fired:<fault>" for each fault that happened.
 */
#ifndef CHXA_BASE_FAULT_H
#define CHXA_BASE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_place { FAULT_BEFORE, FAULT_SENT, FAULT_AFTER };
enum fault_effect { FAULT_FILES, FAULT_CLICKHOUSE, FAULT_STORE };
enum fault_end {
    FAULT_NONE,
    FAULT_ERROR,        /* not to happen: failed, known */
    FAULT_REQUEST_LOST, /* not to happen: unknown */
    FAULT_ANSWER_LOST,  /* to happen: unknown */
    FAULT_SLOW,         /* to happen, fault_slow_ms later */
    FAULT_REFUSED,      /* to be refused by who gets it: known */
    FAULT_OVERTAKEN,    /* to happen for nobody, and unknown at once */
};
static inline bool fault_prevents(enum fault_end end)
{
    return end == FAULT_ERROR || end == FAULT_REQUEST_LOST || end == FAULT_OVERTAKEN;
}
static inline bool fault_loses(enum fault_end end)
{
    return end == FAULT_REQUEST_LOST || end == FAULT_ANSWER_LOST || end == FAULT_OVERTAKEN;
}

#ifdef CHXA_FAULTS
#define FAULT_TEXT    "a fault that the test asked for"
#define FAULT_SETTING "a_setting_that_a_test_made_up"
/* How many ms to wait there; 0: none. */
uint64_t fault_visit(const char *operation, const char *step, enum fault_place place);
/* Effects started from here on belong to this step; NULL, NULL: to none. */
void fault_step(const char *operation, const char *step);
/* For a step whose effect starts on a later turn: which it is, malloc'd (NULL: none), and effects
 * belong to none; then to that one again (moved). */
char *fault_step_take(void);
void fault_step_resume(char *taken);
/* An effect starts: how will it end? */
enum fault_end fault_effect_starts(enum fault_effect effect);
/* By how much the effect that started last is slow. */
uint64_t fault_slow_ms(void);
#else
#define FAULT_TEXT    ""
#define FAULT_SETTING ""
static inline uint64_t fault_visit(const char *operation, const char *step, enum fault_place place)
{
    (void)operation;
    (void)step;
    (void)place;
    return 0;
}
static inline void fault_step(const char *operation, const char *step)
{
    (void)operation;
    (void)step;
}
static inline char *fault_step_take(void)
{
    return NULL;
}
static inline void fault_step_resume(char *taken)
{
    (void)taken;
}
static inline enum fault_end fault_effect_starts(enum fault_effect effect)
{
    (void)effect;
    return FAULT_NONE;
}
static inline uint64_t fault_slow_ms(void)
{
    return 0;
}
#endif

#endif
