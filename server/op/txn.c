/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of transactions in memory, and the one place where a request meets the state table.
 *
 * A request becomes a waiter on its transaction. txn_pump puts the transaction on the coordinator's
 * list; on the next turn its waiters are looked at in order (answer_waiter): answered, made to
 * start an operation, or left to wait. So no callback runs inside the call that started it, and
 * order of arrival is kept.
 */
#include "op/txn.h"
#include "op/gather.h"
#include "store/store_settle.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "core/txn_time.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

const char *txn_xid(const struct txn *txn)
{
    return txn->record.xid;
}

bool txn_is_ours(const struct txn *txn)
{
    return txn->record.owner && strcmp(txn->record.owner, txn->coord->config.node) == 0;
}

static int by_xid(const void *a, const void *b)
{
    return strcmp(((const struct txn *)a)->record.xid, ((const struct txn *)b)->record.xid);
}

struct txn *txn_find(struct coord *coord, const char *xid)
{
    struct txn probe = {.record = {.xid = (char *)(uintptr_t)xid}};
    void *node = tfind(&probe, &coord->by_xid, by_xid);
    return node ? *(struct txn **)node : NULL;
}

struct txn *txn_ensure(struct coord *coord, const char *xid)
{
    struct txn *txn = txn_find(coord, xid);
    if (txn)
        return txn;
    txn = mem_alloc(sizeof *txn);
    txn->coord = coord;
    txn->record.xid = mem_strdup(xid);
    txn->touched_ms = clock_monotonic_ms();
    TAILQ_INIT(&txn->waiters);
    TAILQ_INIT(&txn->targets);
    TAILQ_INIT(&txn->writes);
    TAILQ_INIT(&txn->gathers);
    if (tsearch(txn, &coord->by_xid, by_xid) == NULL)
        abort();
    TAILQ_INSERT_TAIL(&coord->txns, txn, link);
    coord->n_txns++;
    return txn;
}

static void targets_clear(struct txn *txn)
{
    struct txn_target *target;
    while ((target = TAILQ_FIRST(&txn->targets)) != NULL) {
        TAILQ_REMOVE(&txn->targets, target, link);
        ch_table_clear(&target->table);
        free(target);
    }
}

void txn_free(struct txn *txn)
{
    struct coord *coord = txn->coord;
    if (txn->pumping)
        TAILQ_REMOVE(&coord->pumps, txn, pump_link);
    tdelete(txn, &coord->by_xid, by_xid);
    TAILQ_REMOVE(&coord->txns, txn, link);
    coord->n_txns--;
    targets_clear(txn);
    gather_clear(txn);
    error_clear(&txn->load_error);
    chxa_record_clear(&txn->record);
    free(txn->note);
    free(txn->new_meta);
    free(txn->given_reason);
    free(txn);
}

bool txn_is_open(const struct txn *txn)
{
    enum chxa_state_kind kind = chxa_state_kind(txn->record.state);
    return kind == CHXA_KIND_ACTIVE || kind == CHXA_KIND_IN_DOUBT;
}

/* Open transactions of ours stay in memory; all others go when nobody needs them. */
static void txn_drop_if_idle(struct txn *txn)
{
    if (txn->op || txn->convert || txn->loading || txn->writes_in_flight ||
        !TAILQ_EMPTY(&txn->waiters))
        return;
    if (txn_is_open(txn) && txn_is_ours(txn))
        return;
    struct coord *coord = txn->coord;
    bool ended_elsewhere = txn->ended_elsewhere;
    txn_free(txn);
    if (ended_elsewhere)
        recover_again(coord);
}

static void pump_fired(uv_timer_t *timer);

void txn_pump(struct txn *txn)
{
    if (txn->pumping)
        return;
    struct coord *coord = txn->coord;
    txn->pumping = true;
    TAILQ_INSERT_TAIL(&coord->pumps, txn, pump_link);
    if (!uv_is_active((uv_handle_t *)&coord->pump_timer))
        uv_timer_start(&coord->pump_timer, pump_fired, 0, 0);
}

void txn_set_state(struct txn *txn, enum chxa_state state)
{
    assert(txn_edge_exists(txn->record.state, state));
    log_info("transaction", "xid=%s from=%s to=%s writes=%zu rows=%llu%s%s%s", txn_xid(txn),
             chxa_state_name(txn->record.state), chxa_state_name(state), txn->record.n_writes,
             (unsigned long long)chxa_record_rows(&txn->record),
             txn->record.reason ? " reason=\"" : "", txn->record.reason ? txn->record.reason : "",
             txn->record.reason ? "\"" : "");
    txn->record.state = state;
    metrics_transition(state);
}

/* The wall clock is asked this once: it may be set while the transaction runs. */
static uint64_t txn_deadline_ms(const struct coord *coord, const struct chxa_record *record)
{
    uint64_t total_ms = txn_time_total_ms(record->timeout_ms, coord->config.transaction_timeout_ms);
    return clock_monotonic_ms() + txn_time_left_ms(record->created_ms, clock_wall_ms(), total_ms);
}

void txn_take_record(struct txn *txn, struct chxa_record *record)
{
    assert(strcmp(record->xid, txn->record.xid) == 0);
    /* Recovery leaves alone what memory takes for open, so it may have passed over this one's parts. */
    if (txn->loaded && txn_is_open(txn) && txn_is_ours(txn) &&
        (record->state == CHXA_UNKNOWN || record->abandoned_by))
        txn->ended_elsewhere = true;
    /* The tree is ordered by the xid string's content, so the string may be replaced while it is in
     * the tree. */
    chxa_record_clear(&txn->record);
    txn->record = *record;
    *record = (struct chxa_record){0};
    txn->loaded = true;
    txn->stale = false;
    txn->read_epoch = store_epoch(txn->coord->store);
    const struct chxa_record *now = &txn->record;
    if (txn->expires_ms == 0 && now->state != CHXA_UNKNOWN)
        txn->expires_ms = txn_deadline_ms(txn->coord, now);
    if (now->n_writes && now->writes[now->n_writes - 1].seq > txn->last_seq)
        txn->last_seq = now->writes[now->n_writes - 1].seq;
    struct txn_target *target;
    TAILQ_FOREACH (target, &txn->targets, link)
        target->recorded = false;
}

void txn_note(struct txn *txn, const char *format, ...)
{
    free(txn->note);
    txn->note = NULL;
    if (format == NULL)
        return;
    va_list args;
    va_start(args, format);
    txn->note = mem_vprintf(format, args);
    va_end(args);
}

/* ---- loading ---- */

static void txn_loaded(void *arg, const struct store_result *result)
{
    struct txn *txn = arg;
    txn->loading = false;
    error_clear(&txn->load_error);
    if (result->code == 0) {
        txn_take_record(txn, result->record);
    } else if (result->code == CHXA_E_TXN_NOT_FOUND) {
        struct chxa_record none = {.xid = mem_strdup(txn_xid(txn)), .state = CHXA_UNKNOWN};
        txn_take_record(txn, &none);
    } else {
        int code = result->code == CHXA_E_STORE_UNKNOWN ? CHXA_E_STORE_UNAVAILABLE : result->code;
        error_set(&txn->load_error, code, "%s", chxa_error_text(code));
    }
    txn_pump(txn);
}

static void txn_load(struct txn *txn)
{
    txn->loading = true;
    store_get(txn->coord->store, txn_xid(txn), txn_loaded, txn);
}

struct refresh {
    struct txn *txn;
    txn_refreshed_cb *done;
    void *arg;
};

static void refreshed(void *arg, const struct store_result *result)
{
    struct refresh *refresh = arg;
    txn_loaded(refresh->txn, result);
    refresh->done(refresh->arg, refresh->txn, refresh->txn->load_error.code);
    free(refresh);
}

bool txn_refresh(struct txn *txn, txn_refreshed_cb *done, void *arg)
{
    if (txn->op || txn->writes_in_flight || txn->loading)
        return false;
    struct refresh *refresh = mem_alloc(sizeof *refresh);
    *refresh = (struct refresh){txn, done, arg};
    txn->loading = true;
    store_get_ours(txn->coord->store, txn_xid(txn), refreshed, refresh);
    return true;
}

/* ---- waiters ---- */

static void waiter_closed(uv_handle_t *handle)
{
    struct waiter *waiter = handle->data;
    free(waiter->sink);
    free(waiter->meta);
    free(waiter->given_reason);
    free(waiter);
}

static void waiter_answer(struct waiter *waiter, struct coord_reply *reply)
{
    TAILQ_REMOVE(&waiter->txn->waiters, waiter, link);
    if (reply->code)
        metrics_error(reply->code);
    if (!waiter->told)
        waiter->done(waiter->arg, reply);
    uv_close((uv_handle_t *)&waiter->timer, waiter_closed);
}

static void waiter_answer_error(struct waiter *waiter, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void waiter_answer_error(struct waiter *waiter, int code, const char *format, ...)
{
    struct txn *txn = waiter->txn;
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    struct error error = {code, message};
    struct coord_reply reply = {
        .code = code,
        .error = &error,
        .record = txn->loaded && txn->record.state != CHXA_UNKNOWN ? &txn->record : NULL,
    };
    waiter_answer(waiter, &reply);
    error_clear(&error);
}

static void waiter_answer_record(struct waiter *waiter, bool replay, bool pending)
{
    struct txn *txn = waiter->txn;
    struct coord_reply reply = {.record = &txn->record, .replay = replay, .pending = pending};
    char *stored = txn->record.reason;
    struct error lost = {0};
    if (txn->note) /* shown, not stored; likewise the other */
        txn->record.reason = txn->note;
    else if (txn_is_ours(txn) && txn->record.state == CHXA_INITIALIZED && gather_check(txn, &lost))
        txn->record.reason = lost.message;
    if (pending && !waiter->started && !waiter->joined) {
        /* It waits behind another operation, and what it asked for was promised: it stays in line. */
        waiter->done(waiter->arg, &reply);
        waiter->told = true;
    } else {
        waiter_answer(waiter, &reply);
    }
    txn->record.reason = stored;
    error_clear(&lost);
}

static void answer_error_to(struct txn *txn, enum txn_event event, bool converts,
                            const struct error *error)
{
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(&txn->waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        bool wants_convert = txn->convert && waiter->resolve == COORD_RESOLVE_CONVERT;
        bool comes_later = txn->discard_asked && waiter->resolve == COORD_RESOLVE_DISCARD;
        if (waiter->event == event && !waiter->read_only && wants_convert == converts &&
            !comes_later)
            waiter_answer_error(waiter, error->code, "%s", error_message(error));
    }
}

void txn_answer_error(struct txn *txn, enum txn_event event, const struct error *error)
{
    answer_error_to(txn, event, false, error);
}

void txn_answer_not_converted(struct txn *txn, const struct error *error)
{
    answer_error_to(txn, TXN_COMMIT, true, error);
}

static void refuse(struct waiter *waiter, struct txn_cell cell)
{
    struct txn *txn = waiter->txn;
    if (cell.error == CHXA_E_TXN_NOT_FOUND)
        waiter_answer_error(waiter, cell.error, "transaction %s does not exist", txn_xid(txn));
    else
        waiter_answer_error(waiter, cell.error, "%s is not possible: transaction %s is %s",
                            txn_event_name(waiter->event), txn_xid(txn),
                            chxa_state_name(txn->record.state));
}

/* Known before anything is begun, so a request that does not wait hears of it too. */
static bool refuse_lost(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    struct error lost = {0};
    bool promises = waiter->event == TXN_PREPARE || waiter->event == TXN_COMMIT;
    if (!promises || txn->record.state != CHXA_INITIALIZED || gather_check(txn, &lost) == 0)
        return false;
    waiter_answer_error(waiter, lost.code, "%s", error_message(&lost));
    error_clear(&lost);
    return true;
}

static void start_operation(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    waiter->started = true;
    mem_replace(&txn->given_reason, waiter->given_reason);
    if (waiter->event != TXN_BEGIN)
        mem_replace(&txn->new_meta, waiter->meta);
    switch (waiter->event) {
    case TXN_BEGIN:
        if (txn->coord->n_txns > txn->coord->config.transactions_max) {
            waiter_answer_error(waiter, CHXA_E_BUSY,
                                "the node has %zu open transactions (transactions_max)",
                                txn->coord->n_txns - 1);
            txn->loaded = false; /* a begin does not ask the store; who waits behind it must */
            txn_pump(txn);
        } else {
            begin_start(txn, waiter);
        }
        break;
    case TXN_PREPARE:
        prepare_start(txn, false);
        break;
    case TXN_COMMIT:
        if (txn->record.state == CHXA_INITIALIZED)
            prepare_start(txn, true);
        else
            commit_start(txn, false);
        break;
    case TXN_ROLLBACK:
        rollback_start(txn, NULL);
        break;
    default:
        abort();
    }
}

/* Another node's transaction: finished ones are answered here, for they do not change any more. */
static bool answer_foreign(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    if (txn->record.state == CHXA_UNKNOWN || txn_is_ours(txn) || waiter->event == TXN_BEGIN ||
        chxa_state_kind(txn->record.state) == CHXA_KIND_FINAL)
        return false;
    waiter_answer_error(waiter, CHXA_E_NOT_OWNER, "transaction %s is owned by node %s at %s",
                        txn_xid(txn), txn->record.owner, txn->record.owner_url);
    return true;
}

static void forgotten(void *arg, const struct store_result *result)
{
    struct waiter *waiter = arg;
    struct txn *txn = waiter->txn;
    if (result->code == 0) {
        log_info("transaction forgotten", "xid=%s", txn_xid(txn));
        waiter_answer_record(waiter, false, false);
    } else {
        waiter_answer_error(waiter, result->code, "%s", chxa_error_text(result->code));
    }
    txn->stale = true;
    txn_pump(txn);
}

static void answer_forget(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    if (chxa_state_kind(txn->record.state) != CHXA_KIND_FINAL) {
        waiter_answer_error(waiter, CHXA_E_WRONG_STATE,
                            "only a finished transaction can be forgotten: %s is %s", txn_xid(txn),
                            chxa_state_name(txn->record.state));
        return;
    }
    waiter->started = true;
    store_settle_remove(txn->coord->store, txn_xid(txn), txn->record.version,
                        clock_monotonic_ms() + txn->coord->config.store_timeout_ms, forgotten,
                        waiter);
}

/* The store has its removal: `forgotten`, and nobody else, will answer it. */
static bool is_being_forgotten(const struct waiter *waiter)
{
    return waiter->forget && waiter->started;
}

static void answer_read(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    if (is_being_forgotten(waiter))
        return;
    if (txn->record.state == CHXA_UNKNOWN)
        waiter_answer_error(waiter, CHXA_E_TXN_NOT_FOUND, "transaction %s does not exist",
                            txn_xid(txn));
    else if (waiter->forget)
        answer_forget(waiter);
    else
        waiter_answer_record(waiter, false, false);
}

/* A begin of what another writer has begun is no replay. */
static bool refuse_other_writer(struct waiter *waiter)
{
    const struct txn *txn = waiter->txn;
    const struct chxa_record *record = &txn->record;
    const char *asked = waiter->sink ? waiter->sink : "", *has = record->sink ? record->sink : "";
    bool same_sink = strcmp(asked, has) == 0;
    if (same_sink && (record->sink == NULL || waiter->sink_epoch == record->sink_epoch))
        return false;
    if (same_sink && waiter->sink_epoch < record->sink_epoch)
        waiter_answer_error(waiter, CHXA_E_FENCED,
                            "transaction %s was begun by epoch %llu of sink %s", txn_xid(txn),
                            (unsigned long long)record->sink_epoch, has);
    else
        waiter_answer_error(waiter, CHXA_E_WRONG_STATE,
                            "begin is not possible: transaction %s was begun by %s%s, epoch %llu",
                            txn_xid(txn), record->sink ? "sink " : "a writer without a sink", has,
                            (unsigned long long)record->sink_epoch);
    return true;
}

/* A commit that is under way, and what an operator wants of it. */
static void answer_resolve(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    const struct chxa_record *record = &txn->record;
    bool discards = waiter->resolve == COORD_RESOLVE_DISCARD;
    bool converts = waiter->resolve == COORD_RESOLVE_CONVERT && record->converted_to == NULL;
    if (record->state == CHXA_UNKNOWN) {
        waiter_answer_error(waiter, CHXA_E_TXN_NOT_FOUND, "transaction %s does not exist",
                            txn_xid(txn));
    } else if (record->state == CHXA_COMMITTED) {
        waiter_answer_record(waiter, true, false);
    } else if (record->state != CHXA_COMMITTING) {
        waiter_answer_error(waiter, CHXA_E_WRONG_STATE,
                            "only a decided commit is resolved: transaction %s is %s", txn_xid(txn),
                            chxa_state_name(record->state));
    } else if ((converts || discards) && !record->blocked && !record->discarding) {
        waiter_answer_error(waiter, CHXA_E_WRONG_STATE,
                            "transaction %s is not blocked: there is nothing to %s", txn_xid(txn),
                            discards ? "give up" : "convert");
    } else if (converts && record->discarding) {
        waiter_answer_error(waiter, CHXA_E_WRONG_STATE,
                            "what cannot be attached of transaction %s is being given up",
                            txn_xid(txn));
    } else {
        if (discards && !record->discarding) {
            txn->discard_asked = true;
            mem_replace(&txn->given_reason, waiter->given_reason);
        }
        waiter->joined = true;
        if (converts && txn->convert == NULL && !txn->coord->stopping)
            convert_start(txn, waiter->given_reason);
        else if (txn->op)
            op_wake(txn->op);
    }
}

/* True when the waiters behind it may be looked at. */
static bool answer_waiter(struct waiter *waiter)
{
    struct txn *txn = waiter->txn;
    if (waiter->read_only) {
        if (txn->op && txn->record.state == CHXA_UNKNOWN)
            return false; /* a begin has not yet learned what the store has */
        answer_read(waiter);
        return true;
    }
    if (waiter->joined && txn->op)
        return true;
    if (txn->op) {
        enum chxa_state_kind kind = chxa_state_kind(txn->record.state);
        bool decided = kind == CHXA_KIND_IN_DOUBT && txn->record.state != CHXA_PREPARED;
        if (!decided || waiter->started)
            return decided;
    }
    if (answer_foreign(waiter))
        return true;
    if (waiter->resolve && !waiter->joined) {
        answer_resolve(waiter);
        return true;
    }
    struct txn_cell cell = txn_next(txn->record.state, waiter->event);
    if (waiter->event == TXN_BEGIN && cell.verdict == TXN_REPLAY && !waiter->started &&
        refuse_other_writer(waiter))
        return true;
    switch (cell.verdict) {
    case TXN_GO:
        if (refuse_lost(waiter))
            return true;
        start_operation(waiter);
        return txn->op == NULL && txn->loaded;
    case TXN_REPLAY:
        waiter_answer_record(waiter, !waiter->started, false);
        return true;
    case TXN_JOIN:
        waiter->joined = true;
        if (txn->op) /* none while the node stops */
            op_wake(txn->op);
        return true;
    case TXN_REFUSE:
        refuse(waiter, cell);
        return true;
    }
    abort();
}

static void answer_waiters(struct txn *txn)
{
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(&txn->waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (!answer_waiter(waiter))
            return;
    }
}

static void answer_overdue(struct txn *txn)
{
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(&txn->waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (waiter->overdue && !waiter->told && txn->record.state != CHXA_UNKNOWN)
            waiter_answer_record(waiter, false, true);
    }
}

static void fail_waiters(struct txn *txn)
{
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(&txn->waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (!is_being_forgotten(waiter))
            waiter_answer_error(waiter, txn->load_error.code, "%s",
                                error_message(&txn->load_error));
    }
}

/* A decision whose record was in doubt, or that recovery found, is carried out whoever asks. */
static void resume_decided(struct txn *txn)
{
    if (txn->op || !txn_is_ours(txn) || txn->coord->stopping)
        return;
    bool obeys = txn->obey && txn->record.state == CHXA_COMMITTED;
    txn->obey = false;
    if (txn->record.state == CHXA_COMMITTING || obeys)
        commit_start(txn, true);
    else if (txn->record.state == CHXA_ABORTING)
        rollback_start(txn, NULL);
}

static void pump_one(struct txn *txn)
{
    if (txn->load_error.code) {
        fail_waiters(txn);
        error_clear(&txn->load_error);
        txn_drop_if_idle(txn);
        return;
    }
    bool fresh = txn->loaded && !(txn->stale && txn->op == NULL && txn->writes_in_flight == 0);
    if (txn->loading)
        return;
    if (!fresh) {
        if (!TAILQ_EMPTY(&txn->waiters) || (txn_is_open(txn) && txn_is_ours(txn)))
            txn_load(txn);
        else
            txn_drop_if_idle(txn);
        return;
    }
    resume_decided(txn);
    answer_waiters(txn);
    answer_overdue(txn);
    txn_drop_if_idle(txn);
}

static void pump_fired(uv_timer_t *timer)
{
    struct coord *coord = timer->data;
    if (coord->halted)
        return;
    TAILQ_HEAD(, txn) now;
    TAILQ_INIT(&now);
    TAILQ_CONCAT(&now, &coord->pumps, pump_link);
    struct txn *txn;
    while ((txn = TAILQ_FIRST(&now)) != NULL) {
        TAILQ_REMOVE(&now, txn, pump_link);
        txn->pumping = false;
        pump_one(txn);
    }
}

/* wait_ms is over. It is the operation that is not waited for: reading the record has a deadline of
 * its own, and without the record there is nothing true to say. */
static void waiter_timed_out(uv_timer_t *timer)
{
    struct waiter *waiter = timer->data;
    struct txn *txn = waiter->txn;
    if (txn->loading || !txn->loaded)
        waiter->overdue = true;
    else if (txn->record.state != CHXA_UNKNOWN)
        waiter_answer_record(waiter, false, true);
    else
        waiter_answer_error(waiter, CHXA_E_STORE_UNAVAILABLE,
                            "the store did not answer within wait_ms");
    txn_pump(txn);
}

static struct waiter *waiter_add(struct coord *coord, const char *xid, enum txn_event event,
                                 coord_cb *done, void *arg)
{
    struct txn *txn = txn_ensure(coord, xid);
    struct waiter *waiter = mem_alloc(sizeof *waiter);
    waiter->txn = txn;
    waiter->event = event;
    waiter->done = done;
    waiter->arg = arg;
    uv_timer_init(coord->loop, &waiter->timer);
    waiter->timer.data = waiter;
    TAILQ_INSERT_TAIL(&txn->waiters, waiter, link);
    txn_pump(txn);
    return waiter;
}

void coord_begin(struct coord *coord, const char *xid, const struct coord_begin *params,
                 coord_cb *done, void *arg)
{
    struct waiter *waiter = waiter_add(coord, xid, TXN_BEGIN, done, arg);
    waiter->txn->touched_ms = clock_monotonic_ms(); /* looking (coord_get) does not keep it alive */
    waiter->timeout_ms = params->timeout_ms;
    waiter->sink = mem_strdup(params->sink);
    waiter->sink_epoch = params->epoch;
    waiter->meta = mem_strdup(params->meta);
    waiter->gather = params->gather;
    /* A begin does not ask the store first: create answers with what exists. */
    struct txn *txn = waiter->txn;
    if (!txn->loaded && !txn->loading && TAILQ_FIRST(&txn->waiters) == waiter)
        txn->loaded = true;
}

void coord_finish_meta(struct coord *coord, const char *xid, enum txn_event event,
                       const char *reason, const char *meta, uint64_t wait_ms, coord_cb *done,
                       void *arg)
{
    struct waiter *waiter = waiter_add(coord, xid, event, done, arg);
    waiter->given_reason = mem_strdup(reason);
    waiter->meta = mem_strdup(meta);
    waiter->txn->touched_ms = clock_monotonic_ms();
    uv_timer_start(&waiter->timer, waiter_timed_out, wait_ms, 0);
}

void coord_finish(struct coord *coord, const char *xid, enum txn_event event, const char *reason,
                  uint64_t wait_ms, coord_cb *done, void *arg)
{
    coord_finish_meta(coord, xid, event, reason, NULL, wait_ms, done, arg);
}

void coord_resolve(struct coord *coord, const char *xid, enum coord_resolve action,
                   const char *reason, uint64_t wait_ms, coord_cb *done, void *arg)
{
    struct waiter *waiter = waiter_add(coord, xid, TXN_COMMIT, done, arg);
    waiter->resolve = action;
    waiter->given_reason = mem_strdup(reason);
    uv_timer_start(&waiter->timer, waiter_timed_out, wait_ms, 0);
}

void coord_get(struct coord *coord, const char *xid, coord_cb *done, void *arg)
{
    waiter_add(coord, xid, TXN_BEGIN, done, arg)->read_only = true;
}

void coord_forget(struct coord *coord, const char *xid, coord_cb *done, void *arg)
{
    struct waiter *waiter = waiter_add(coord, xid, TXN_BEGIN, done, arg);
    waiter->read_only = waiter->forget = true;
}

/* ---- the end of an operation ---- */

void txn_op_finished(struct txn *txn, struct op *op, enum txn_event event, int code)
{
    assert(txn->op == op);
    txn->op = NULL;
    txn->touched_ms = clock_monotonic_ms();
    txn_note(txn, NULL);
    mem_replace(&txn->new_meta, NULL);
    mem_replace(&txn->given_reason, NULL);
    txn->discard_asked = false;
    if (code) {
        log_warn("operation failed", "xid=%s op=%s step=%s state=%s code=%s error=\"%s\"",
                 txn_xid(txn), op->kind->name, op->kind->steps[op->at].name,
                 chxa_state_name(txn->record.state), chxa_error_name(code),
                 error_message(&op->error));
        txn_answer_error(txn, event, &op->error);
    }
    txn_pump(txn);
}
