/* SPDX-License-Identifier: Apache-2.0
 *
 * Settling lost answers; see store_settle.h.
 *
 *   attempt ──done, or known not done──────────────> deliver
 *      │ ^
 *      │ └── known: our change is not there ──┐
 *      └──UNKNOWN or CONFLICT──> read back ───┴── recognised, or somebody else's ──> deliver
 *
 * `sent` says whether a change of ours may be in the store without our knowing: it decides between
 * UNAVAILABLE and UNKNOWN at the deadline. Every wait is one timer; a settling change counts as one
 * of the store's (n_settles), so the store outlives it.
 *
 * A read back that does not find our change proves that it did not and will not happen: the read
 * follows it in the order of one session, and after a session was lost the epoch fences it off.
 */
#include "store/store_settle.h"
#include "store/store_impl.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS_FIRST 20u
#define WAIT_MS_MAX   500u

struct store_settle {
    struct store_settle *next; /* in store->settles */
    struct store *store;
    enum store_op_kind kind;
    char *xid;
    int64_t version;
    struct chxa_record record; /* create, cas, abandon */
    struct chxa_write write;   /* add_write */
    char *sink;                /* cas, add_write: fenced by it, or NULL; sink_raise */
    uint64_t sink_epoch;
    uint64_t deadline_ms;
    uint64_t wait_ms;
    bool sent;
    bool waiting;
    bool delivered;
    enum fault_end end;
    void (*then)(struct store_settle *settle); /* after the wait */
    uv_timer_t timer;
    store_result_cb *done;
    store_sink_cb *sink_done; /* sink_raise */
    void *arg;
};

static void attempt(struct store_settle *settle);
static void read_back(struct store_settle *settle);

/* ---- ends ---- */

static void settle_closed(uv_handle_t *timer)
{
    struct store_settle *settle = timer->data;
    struct store *store = settle->store;
    free(settle->xid);
    chxa_record_clear(&settle->record);
    chxa_write_clear(&settle->write);
    free(settle->sink);
    free(settle);
    assert(store->n_settles > 0);
    store->n_settles--;
    store_check_closed(store);
}

static void leave(struct store_settle *settle)
{
    assert(!settle->delivered);
    settle->delivered = true;
    struct store_settle **link = &settle->store->settles;
    while (*link != settle)
        link = &(*link)->next;
    *link = settle->next;
}

static void deliver(struct store_settle *settle, int code, const struct store_result *from)
{
    leave(settle);
    if (fault_loses(settle->end)) {
        code = CHXA_E_STORE_UNKNOWN;
        from = NULL;
    }
    struct store_result result = {code, from ? from->version : 0, NULL};
    if (code == CHXA_E_STORE_CONFLICT && settle->kind == STORE_OP_CREATE && from)
        result.record = from->record;
    settle->done(settle->arg, &result);
    uv_close((uv_handle_t *)&settle->timer, settle_closed);
}

static void deliver_sink(struct store_settle *settle, int code, struct store_sink *sink)
{
    leave(settle);
    if (fault_loses(settle->end))
        code = CHXA_E_STORE_UNKNOWN;
    struct store_sink_result result = {code, code ? NULL : sink};
    settle->sink_done(settle->arg, &result);
    uv_close((uv_handle_t *)&settle->timer, settle_closed);
}

static void deliver_late(struct store_settle *settle)
{
    int code = settle->sent ? CHXA_E_STORE_UNKNOWN : CHXA_E_STORE_UNAVAILABLE;
    if (settle->sink_done)
        deliver_sink(settle, code, NULL);
    else
        deliver(settle, code, NULL);
}

/* ---- waiting ---- */

static void wait_ended(uv_timer_t *timer)
{
    struct store_settle *settle = timer->data;
    settle->waiting = false;
    bool late = clock_monotonic_ms() >= settle->deadline_ms;
    if (settle->store->closing || late)
        deliver_late(settle);
    else
        settle->then(settle);
}

static void wait_then(struct store_settle *settle, void (*then)(struct store_settle *settle))
{
    uint64_t now_ms = clock_monotonic_ms();
    if (settle->store->closing || now_ms >= settle->deadline_ms) {
        deliver_late(settle);
        return;
    }
    uint64_t left_ms = settle->deadline_ms - now_ms;
    uint64_t wait_ms = settle->wait_ms < left_ms ? settle->wait_ms : left_ms;
    settle->wait_ms = settle->wait_ms * 2 < WAIT_MS_MAX ? settle->wait_ms * 2 : WAIT_MS_MAX;
    settle->then = then;
    settle->waiting = true;
    uv_timer_start(&settle->timer, wait_ended, wait_ms, 0);
}

void store_settle_cancel_all(struct store *store)
{
    for (struct store_settle *settle = store->settles; settle; settle = settle->next)
        if (settle->waiting)
            uv_timer_start(&settle->timer, wait_ended, 0, 0);
}

/* ---- reading back ---- */

static bool write_is_ours(const struct store_settle *settle, const struct chxa_record *record,
                          bool *ret_seq_used)
{
    for (size_t i = 0; i < record->n_writes; i++)
        if (record->writes[i].seq == settle->write.seq) {
            *ret_seq_used = true;
            return strcmp(record->writes[i].write_id, settle->write.write_id) == 0;
        }
    return false;
}

/* The record exists: is our change in it? */
static void compare(struct store_settle *settle, const struct store_result *result)
{
    const struct chxa_record *record = result->record;
    bool op_is_ours = settle->record.op_id && strcmp(record->op_id, settle->record.op_id) == 0;
    bool moved = result->version != settle->version;
    bool seq_used = false;
    switch (settle->kind) {
    case STORE_OP_CREATE:
        deliver(settle, op_is_ours ? 0 : CHXA_E_STORE_CONFLICT, result);
        return;
    case STORE_OP_CAS:
    case STORE_OP_ABANDON:
        if (op_is_ours)
            deliver(settle, 0, result);
        else if (moved && settle->sent && result->version > settle->version + 1)
            deliver(settle, CHXA_E_STORE_UNKNOWN, NULL); /* ours may have been one of several */
        else if (moved)
            deliver(settle, CHXA_E_STORE_CONFLICT, NULL);
        else
            break;
        return;
    case STORE_OP_ADD_WRITE:
        if (write_is_ours(settle, record, &seq_used))
            deliver(settle, 0, &(struct store_result){0, settle->version, NULL});
        else if (seq_used || moved)
            deliver(settle, CHXA_E_STORE_CONFLICT, NULL);
        else
            break;
        return;
    default:
        if (moved)
            deliver(settle, CHXA_E_STORE_CONFLICT, NULL);
        else
            break;
        return;
    }
    /* Not there, and nobody else was: again. */
    settle->sent = false;
    wait_then(settle, attempt);
}

static void read_back_done(void *arg, const struct store_result *result)
{
    struct store_settle *settle = arg;
    if (result->code == 0) {
        compare(settle, result);
    } else if (result->code == CHXA_E_TXN_NOT_FOUND && settle->kind == STORE_OP_CREATE) {
        settle->sent = false;
        wait_then(settle, attempt);
    } else if (result->code == CHXA_E_TXN_NOT_FOUND) {
        deliver(settle, settle->kind == STORE_OP_REMOVE ? 0 : result->code, result);
    } else if (chxa_error_retryable(result->code)) {
        wait_then(settle, read_back);
    } else {
        deliver(settle, settle->sent ? CHXA_E_STORE_UNKNOWN : result->code, NULL);
    }
}

static void read_back(struct store_settle *settle)
{
    store_get(settle->store, settle->xid, read_back_done, settle);
}

/* ---- the change itself ---- */

static void attempt_done(void *arg, const struct store_result *result)
{
    struct store_settle *settle = arg;
    bool conflict = result->code == CHXA_E_STORE_CONFLICT;
    if (result->code == CHXA_E_STORE_UNKNOWN) {
        settle->sent = true;
        settle->wait_ms = WAIT_MS_FIRST;
        wait_then(settle, read_back);
    } else if (result->code == CHXA_E_STORE_UNAVAILABLE) {
        wait_then(settle, attempt);
    } else if (conflict && settle->kind == STORE_OP_CREATE && result->record) {
        compare(settle, result);
    } else if (conflict && settle->kind == STORE_OP_REMOVE) {
        deliver(settle, result->code, result);
    } else if (conflict && !settle->store->closing) {
        wait_then(settle, read_back); /* somebody's, or an earlier attempt of ours */
    } else {
        deliver(settle, result->code, result);
    }
}

static void raise_done(void *arg, const struct store_sink_result *result)
{
    struct store_settle *settle = arg;
    if (result->code == CHXA_E_STORE_UNKNOWN || result->code == CHXA_E_STORE_UNAVAILABLE) {
        settle->sent |= result->code == CHXA_E_STORE_UNKNOWN;
        wait_then(settle, attempt);
    } else {
        deliver_sink(settle, result->code, result->sink);
    }
}

/* A test's fault has it otherwise than the store would. */
static bool faulty(struct store_settle *settle)
{
    enum fault_end end = settle->end;
    if (fault_prevents(end)) {
        settle->wait_ms = end == FAULT_OVERTAKEN ? 0 : settle->wait_ms;
        wait_then(settle, deliver_late);
    } else if (end == FAULT_REFUSED) { /* a conflict */
        settle->end = FAULT_NONE;
        wait_then(settle, settle->sink_done ? attempt : read_back);
    } else if (end == FAULT_SLOW) {
        settle->end = FAULT_NONE;
        settle->wait_ms = fault_slow_ms();
        wait_then(settle, attempt);
    } else {
        return false;
    }
    return true;
}

static void attempt(struct store_settle *settle)
{
    if (faulty(settle))
        return;
    struct store *store = settle->store;
    struct store_fence fence = {settle->sink, settle->sink_epoch};
    const struct store_fence *fenced = settle->sink ? &fence : NULL;
    switch (settle->kind) {
    case STORE_OP_CREATE:
        store_create(store, &settle->record, attempt_done, settle);
        break;
    case STORE_OP_CAS:
        store_cas(store, &settle->record, fenced, attempt_done, settle);
        break;
    case STORE_OP_ABANDON:
        store_abandon(store, &settle->record, attempt_done, settle);
        break;
    case STORE_OP_ADD_WRITE:
        store_add_write(store, settle->xid, settle->version, fenced, &settle->write, attempt_done,
                        settle);
        break;
    case STORE_OP_SINK_RAISE:
        store_sink_raise(store, settle->sink, settle->sink_epoch, raise_done, settle);
        break;
    default:
        assert(settle->kind == STORE_OP_REMOVE);
        store_remove(store, settle->xid, settle->version, attempt_done, settle);
    }
}

/* ---- starting ---- */

static struct store_settle *settle_new(struct store *store, enum store_op_kind kind,
                                       const char *xid, int64_t version, uint64_t deadline_ms,
                                       store_result_cb *done, void *arg)
{
    struct store_settle *settle = mem_alloc(sizeof *settle);
    settle->store = store;
    settle->kind = kind;
    settle->xid = mem_strdup(xid);
    settle->version = version;
    settle->deadline_ms = deadline_ms;
    settle->wait_ms = WAIT_MS_FIRST;
    settle->done = done;
    settle->arg = arg;
    uv_timer_init(store->loop, &settle->timer);
    settle->timer.data = settle;
    settle->next = store->settles;
    store->settles = settle;
    store->n_settles++;
    settle->end = fault_effect_starts(FAULT_STORE);
    return settle;
}

static void nobody(void *arg, const struct store_result *result)
{
    (void)arg;
    (void)result;
}

static void nobody_of_sink(void *arg, const struct store_sink_result *result)
{
    (void)arg;
    (void)result;
}

static void take_fence(struct store_settle *settle, const struct store_fence *fence)
{
    if (fence == NULL)
        return;
    settle->sink = mem_strdup(fence->sink);
    settle->sink_epoch = fence->epoch;
}

static void settle_record(struct store *store, enum store_op_kind kind,
                          const struct chxa_record *record, const struct store_fence *fence,
                          uint64_t deadline_ms, store_result_cb *done, void *arg)
{
    struct store_settle *settle =
        settle_new(store, kind, record->xid, record->version, deadline_ms, done, arg);
    int code = chxa_record_copy(record, &settle->record);
    assert(code == 0); /* only memory can be short; see base/mem.h */
    settle->record.version = record->version;
    take_fence(settle, fence);
    if (settle->end == FAULT_OVERTAKEN)
        settle_record(store, kind, record, fence, deadline_ms, nobody, NULL);
    attempt(settle);
}

void store_settle_create(struct store *store, const struct chxa_record *record,
                         uint64_t deadline_ms, store_result_cb *done, void *arg)
{
    settle_record(store, STORE_OP_CREATE, record, NULL, deadline_ms, done, arg);
}

void store_settle_cas(struct store *store, const struct chxa_record *record,
                      const struct store_fence *fence, uint64_t deadline_ms, store_result_cb *done,
                      void *arg)
{
    settle_record(store, STORE_OP_CAS, record, fence, deadline_ms, done, arg);
}

void store_settle_abandon(struct store *store, const struct chxa_record *record,
                          uint64_t deadline_ms, store_result_cb *done, void *arg)
{
    settle_record(store, STORE_OP_ABANDON, record, NULL, deadline_ms, done, arg);
}

void store_settle_add_write(struct store *store, const char *xid, int64_t version,
                            const struct store_fence *fence, const struct chxa_write *write,
                            uint64_t deadline_ms, store_result_cb *done, void *arg)
{
    struct store_settle *settle =
        settle_new(store, STORE_OP_ADD_WRITE, xid, version, deadline_ms, done, arg);
    int code = chxa_write_copy(write, &settle->write);
    assert(code == 0);
    take_fence(settle, fence);
    if (settle->end == FAULT_OVERTAKEN)
        store_settle_add_write(store, xid, version, fence, write, deadline_ms, nobody, NULL);
    attempt(settle);
}

void store_settle_remove(struct store *store, const char *xid, int64_t version,
                         uint64_t deadline_ms, store_result_cb *done, void *arg)
{
    struct store_settle *settle =
        settle_new(store, STORE_OP_REMOVE, xid, version, deadline_ms, done, arg);
    if (settle->end == FAULT_OVERTAKEN)
        store_settle_remove(store, xid, version, deadline_ms, nobody, NULL);
    attempt(settle);
}

void store_settle_sink_raise(struct store *store, const char *sink, uint64_t epoch,
                             uint64_t deadline_ms, store_sink_cb *done, void *arg)
{
    struct store_settle *settle =
        settle_new(store, STORE_OP_SINK_RAISE, NULL, 0, deadline_ms, NULL, arg);
    settle->sink_done = done;
    settle->sink = mem_strdup(sink);
    settle->sink_epoch = epoch;
    if (settle->end == FAULT_OVERTAKEN)
        store_settle_sink_raise(store, sink, epoch, deadline_ms, nobody_of_sink, NULL);
    attempt(settle);
}
