/* SPDX-License-Identifier: Apache-2.0
 *
 * See step.h.
 */
#include "op/step.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "op/txn.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void run_steps(struct op *op);
static void step_done(struct op *op, const char *next);

/* A wait is over: of op_retry, or one that a fault put before the step or behind it. */
static void timer_fired(uv_timer_t *timer)
{
    struct op *op = timer->data;
    if (op->coord->halted)
        return;
    if (op->held == OP_HELD_BEHIND)
        step_done(op, op->held_next);
    else
        run_steps(op);
}

static void timer_closed(uv_handle_t *handle)
{
    struct op *op = handle->data;
    error_clear(&op->error);
    error_clear(&op->work_error);
    op->kind->release(op);
}

static size_t step_index(const struct op *op, const char *name)
{
    for (size_t i = 0; i < op->kind->n_steps; i++)
        if (strcmp(op->kind->steps[i].name, name) == 0)
            return i;
    assert(!"no such step");
    abort();
}

void op_start(struct op *op, const struct op_kind *kind, struct coord *coord, struct txn *txn,
              const char *first)
{
    op->kind = kind;
    op->coord = coord;
    op->txn = txn;
    op->at = first ? step_index(op, first) : 0;
    op->started_us = clock_monotonic_us();
    uv_timer_init(coord_loop(coord), &op->timer);
    op->timer.data = op;
    op->request.data = op;
    uv_timer_start(&op->timer, timer_fired, 0, 0);
}

static uint64_t visit(const struct op *op, enum fault_place place)
{
    return fault_visit(op->kind->name, op->kind->steps[op->at].name, place);
}

/* Visits the place before a step or behind it, once; true: a fault holds the operation there, and
 * the timer goes on with it. */
static bool held_at(struct op *op, enum op_held held)
{
    if (op->held == held) {
        op->held = OP_NOT_HELD;
        return false;
    }
    uint64_t delay_ms = visit(op, held == OP_HELD_BEFORE ? FAULT_BEFORE : FAULT_AFTER);
    if (delay_ms == 0)
        return false;
    op->held = held;
    uv_timer_start(&op->timer, timer_fired, delay_ms, 0);
    return true;
}

static void step_ended(struct op *op, const char *how)
{
    uint64_t spent_us = clock_monotonic_us() - op->step_us;
    metrics_step(op->kind->name, op->kind->steps[op->at].name, spent_us);
    log_debug("step", "xid=%s op=%s step=%s try=%u end=%s us=%llu",
              op->txn ? txn_xid(op->txn) : "-", op->kind->name, op->kind->steps[op->at].name,
              op->tries, how, (unsigned long long)spent_us);
}

static void end_now(struct op *op, int code)
{
    assert(!op->over);
    op->over = true;
    op->kind->finished(op, code);
    uv_close((uv_handle_t *)&op->timer, timer_closed);
}

/* Runs steps for as long as they end at once. */
static void run_steps(struct op *op)
{
    assert(!op->in_run && !op->over);
    if (op->coord->halted)
        return;
    op->in_run = true;
    do {
        op->moved = false;
        if (held_at(op, OP_HELD_BEFORE))
            break;
        op->tries++;
        op->step_us = clock_monotonic_us();
        fault_step(op->kind->name, op->kind->steps[op->at].name);
        op->kind->steps[op->at].run(op);
        fault_step(NULL, NULL);
    } while (op->moved && !op->over);
    op->in_run = false;
}

static void move_to(struct op *op, size_t step)
{
    assert(!op->over && !op->moved);
    op->at = step;
    op->tries = 0;
    op->moved = true;
    if (!op->in_run)
        run_steps(op);
}

/* next: a step's name, or NULL for the one behind this. */
static void step_done(struct op *op, const char *next)
{
    if (held_at(op, OP_HELD_BEHIND)) {
        op->held_next = next;
        return;
    }
    step_ended(op, next ? next : "done");
    if (next)
        move_to(op, step_index(op, next));
    else if (op->at + 1 == op->kind->n_steps)
        end_now(op, 0);
    else
        move_to(op, op->at + 1);
}

void op_next(struct op *op)
{
    step_done(op, NULL);
}

void op_goto(struct op *op, const char *step)
{
    step_done(op, step);
}

void op_retry(struct op *op, const char *step, uint64_t delay_ms)
{
    assert(!op->over && !op->moved);
    step_ended(op, "retry");
    size_t index = step ? step_index(op, step) : op->at;
    if (index != op->at) {
        op->at = index;
        op->tries = 0;
    }
    uv_timer_start(&op->timer, timer_fired, delay_ms, 0);
}

bool op_sleeps(const struct op *op)
{
    return uv_is_active((const uv_handle_t *)&op->timer) && op->held == OP_NOT_HELD;
}

void op_wake(struct op *op)
{
    if (op_sleeps(op))
        uv_timer_start(&op->timer, timer_fired, 0, 0);
}

void op_end(struct op *op, int code)
{
    assert(code == 0 || op->error.code != 0);
    step_ended(op, code ? chxa_error_name(code) : "end");
    end_now(op, code);
}

void op_fail(struct op *op, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    error_set(&op->error, code, "%s", message);
    free(message);
    op_end(op, code);
}

void op_sent(struct op *op)
{
    visit(op, FAULT_SENT);
}

static void work_on_thread(uv_work_t *request)
{
    struct op *op = request->data;
    if (!fault_prevents(op->end))
        op->work(op);
    if (op->end == FAULT_SLOW)
        usleep((useconds_t)(1000 * op->slow_ms));
    else if (op->end != FAULT_NONE && op->work_code == 0)
        op->work_code = error_set(&op->work_error, CHXA_E_IO_FAILED, "%s", FAULT_TEXT);
}

static void work_done(uv_work_t *request, int status)
{
    struct op *op = request->data;
    (void)status; /* never cancelled: op_blocking's owner waits for it */
    op->worked(op);
}

void op_blocking(struct op *op, void (*work)(struct op *op), void (*worked)(struct op *op))
{
    error_clear(&op->work_error);
    op->work_code = 0;
    op->work = work;
    op->worked = worked;
    op->end = fault_effect_starts(FAULT_FILES);
    op->slow_ms = fault_slow_ms();
    int queued = uv_queue_work(coord_loop(op->coord), &op->request, work_on_thread, work_done);
    assert(queued == 0);
    (void)queued;
}

uint64_t op_backoff_ms(unsigned tries, uint64_t first_ms, uint64_t max_ms)
{
    uint64_t delay = first_ms ? first_ms : 1;
    for (unsigned i = 1; i < tries && delay < max_ms; i++)
        delay *= 2;
    if (delay > max_ms)
        delay = max_ms;
    uint64_t quarter = delay / 4;
    return delay - quarter + (uint64_t)random() % (2 * quarter + 1);
}
