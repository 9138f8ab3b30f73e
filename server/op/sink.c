/* SPDX-License-Identifier: Apache-2.0
 *
 * Recovery of a sink, for a writer that comes back: fence the one before it, commit what it had
 * prepared and knows to be decided, roll back what is left of it. Read the table from top to
 * bottom.
 *
 * Nothing of this is recorded: "raise" is one change of the sink's entry, and every end is an
 * ordinary commit or rollback. So a crash leaves some of them done, and the same request again does
 * the rest.
 *
 * Only what began under an older epoch is rolled back: a request that is sent again, or arrives
 * late, must not touch what the same writer has begun since. Another node's transactions are left
 * to it: they are answered NOT_OWNER, with where their owner is now.
 */
#include "op/txn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/store_settle.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 500u

/* One transaction to end. */
struct sink_end {
    struct sink_recover *recover;
    struct coord_sink_txn txn;
    struct error error; /* the reply's points to it */
};

struct sink_recover {
    struct op op;
    coord_sink_cb *done;
    void *arg;
    char *sink;
    uint64_t epoch, deadline_ms;
    struct sink_end *ends; /* those to commit in the order given, then the others */
    size_t n_ends, n_commit, ends_max;
    const char **sorted; /* ids to commit, to look others up in */
    size_t in_flight;
    char *after; /* page token */
    struct store_sink state;
};

static void sink_recover_raise(struct op *op);
static void sink_recover_list(struct op *op);
static void sink_recover_end(struct op *op);
static void sink_recover_owners(struct op *op);
static void sink_recover_read(struct op *op);

static const struct op_step sink_recover_steps[] = {
    {"raise", sink_recover_raise},   /* fence: from here on no older writer begins or promises */
    {"list", sink_recover_list},     /* the sink's unfinished transactions, in the whole cluster */
    {"end", sink_recover_end},       /* commit or roll back each of ours, wait for all */
    {"owners", sink_recover_owners}, /* where the owners of the others are now */
    {"read", sink_recover_read},     /* the last committed checkpoint, as it is then */
};

static void sink_recover_finished(struct op *op, int code);
static void sink_recover_release(struct op *op);

static const struct op_kind sink_recover_kind = {
    "sink_recover",
    sink_recover_steps,
    sizeof sink_recover_steps / sizeof sink_recover_steps[0],
    sink_recover_finished,
    sink_recover_release,
};

static int compare_ids(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void add_end(struct sink_recover *recover, const char *xid, enum txn_event event)
{
    if (recover->n_ends == recover->ends_max) {
        recover->ends_max = recover->ends_max ? recover->ends_max * 2 : 16;
        recover->ends = mem_realloc(recover->ends, recover->ends_max * sizeof(struct sink_end));
    }
    struct sink_end *end = &recover->ends[recover->n_ends++];
    *end = (struct sink_end){.recover = recover};
    end->txn.xid = mem_strdup(xid);
    end->txn.event = event;
}

static void take_commits(struct sink_recover *recover, const char *const *xids, size_t n_xids)
{
    recover->sorted = mem_array(n_xids, sizeof *recover->sorted);
    for (size_t i = 0; i < n_xids; i++)
        recover->sorted[i] = xids[i];
    for (size_t i = 0; i < n_xids; i++)
        add_end(recover, xids[i], TXN_COMMIT);
    recover->n_commit = n_xids;
    for (size_t i = 0; i < n_xids; i++)
        recover->sorted[i] = recover->ends[i].txn.xid;
    if (n_xids)
        qsort(recover->sorted, n_xids, sizeof *recover->sorted, compare_ids);
}

void coord_sink_recover(struct coord *coord, const struct coord_sink_recover *params,
                        coord_sink_cb *done, void *arg)
{
    struct sink_recover *recover = mem_alloc(sizeof *recover);
    recover->done = done;
    recover->arg = arg;
    recover->sink = mem_strdup(params->sink);
    recover->epoch = params->epoch;
    recover->deadline_ms = clock_monotonic_ms() + params->wait_ms;
    take_commits(recover, params->commit, params->n_commit);
    op_start(&recover->op, &sink_recover_kind, coord, NULL, NULL);
}

/* ---- raise ---- */

static void raised(void *arg, const struct store_sink_result *result)
{
    struct sink_recover *recover = arg;
    if (result->code == CHXA_E_FENCED)
        op_fail(&recover->op, result->code, "sink %s has a newer epoch than %llu", recover->sink,
                (unsigned long long)recover->epoch);
    else if (result->code)
        op_fail(&recover->op, result->code, "raising the epoch of sink %s: %s", recover->sink,
                chxa_error_text(result->code));
    else
        op_next(&recover->op);
}

static void sink_recover_raise(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    store_settle_sink_raise(op->coord->store, recover->sink, recover->epoch,
                            clock_monotonic_ms() + op->coord->config.store_timeout_ms, raised,
                            recover);
    op_sent(op);
}

/* ---- list ---- */

/* What an unfinished transaction that nobody asked to commit comes to. */
static enum txn_event other_event(const struct sink_recover *recover,
                                  const struct chxa_record *record)
{
    if (record->sink_epoch >= recover->epoch)
        return TXN_EVENT_COUNT; /* this writer's own */
    if (record->state == CHXA_COMMITTING)
        return TXN_COMMIT; /* was decided: goes only forward */
    return TXN_ROLLBACK;
}

static void take_other(struct sink_recover *recover, const struct chxa_record *record)
{
    const char *xid = record->xid;
    if (recover->n_commit &&
        bsearch(&xid, recover->sorted, recover->n_commit, sizeof *recover->sorted, compare_ids))
        return;
    add_end(recover, xid, other_event(recover, record));
    struct coord_sink_txn *txn = &recover->ends[recover->n_ends - 1].txn;
    txn->state = record->state;
    txn->owner = mem_strdup(record->owner);
    txn->owner_url = mem_strdup(record->owner_url);
}

static void listed(void *arg, const struct store_list_result *result)
{
    struct sink_recover *recover = arg;
    struct op *op = &recover->op;
    if (result->code) {
        op_fail(op, result->code == CHXA_E_STORE_UNKNOWN ? CHXA_E_STORE_UNAVAILABLE : result->code,
                "listing the transactions of sink %s: %s", recover->sink,
                chxa_error_text(result->code));
        return;
    }
    for (size_t i = 0; i < result->n_records; i++)
        take_other(recover, &result->records[i]);
    mem_replace(&recover->after, result->next);
    if (recover->after)
        op_goto(op, "list");
    else
        op_next(op);
}

static void sink_recover_list(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    struct store_filter filter = {
        .sink = recover->sink, .unfinished = true, .after = recover->after, .limit = PAGE};
    store_list(op->coord->store, &filter, listed, recover);
}

/* ---- end ---- */

static void take_record(struct coord_sink_txn *txn, const struct chxa_record *record)
{
    if (record == NULL)
        return;
    txn->state = record->state;
    mem_replace(&txn->owner, record->owner);
    mem_replace(&txn->owner_url, record->owner_url);
}

static void one_ended(struct sink_recover *recover)
{
    if (--recover->in_flight == 0)
        op_next(&recover->op);
}

static void ended(void *arg, const struct coord_reply *reply)
{
    struct sink_end *end = arg;
    take_record(&end->txn, reply->record);
    end->txn.pending = reply->pending;
    if (reply->code)
        error_set(&end->error, reply->code, "%s", error_message(reply->error));
    one_ended(end->recover);
}

static void finish_one(struct sink_end *end)
{
    struct sink_recover *recover = end->recover;
    uint64_t now_ms = clock_monotonic_ms();
    coord_finish(recover->op.coord, end->txn.xid, end->txn.event, NULL,
                 recover->deadline_ms > now_ms ? recover->deadline_ms - now_ms : 0, ended, end);
}

/* One to commit: is it this sink's? */
static void looked(void *arg, const struct coord_reply *reply)
{
    struct sink_end *end = arg;
    const struct chxa_record *record = reply->record;
    take_record(&end->txn, record);
    if (reply->code) {
        error_set(&end->error, reply->code, "%s", error_message(reply->error));
        one_ended(end->recover);
    } else if (record->sink == NULL || strcmp(record->sink, end->recover->sink) != 0) {
        error_set(&end->error, CHXA_E_INVALID_REQUEST, "transaction %s is not of sink %s",
                  end->txn.xid, end->recover->sink);
        one_ended(end->recover);
    } else {
        finish_one(end);
    }
}

static void sink_recover_end(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    recover->in_flight = 1; /* until all are started */
    for (size_t i = 0; i < recover->n_ends; i++) {
        struct sink_end *end = &recover->ends[i];
        if (end->txn.event == TXN_EVENT_COUNT)
            continue;
        recover->in_flight++;
        if (i < recover->n_commit)
            coord_get(op->coord, end->txn.xid, looked, end);
        else
            finish_one(end);
    }
    op_sent(op);
    one_ended(recover);
}

/* ---- owners ---- */

static void owners_known(void *arg, const struct store_nodes_result *result)
{
    struct sink_recover *recover = arg;
    for (size_t i = 0; result->code == 0 && i < result->n_nodes; i++) {
        const struct store_node *node = &result->nodes[i];
        for (size_t j = 0; node->live && node->url && *node->url && j < recover->n_ends; j++) {
            struct coord_sink_txn *txn = &recover->ends[j].txn;
            if (txn->owner && strcmp(txn->owner, node->name) == 0)
                mem_replace(&txn->owner_url, node->url);
        }
    }
    op_next(&recover->op); /* without an answer: as the records say */
}

static void sink_recover_owners(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    for (size_t i = 0; i < recover->n_ends; i++)
        if (recover->ends[i].error.code == CHXA_E_NOT_OWNER) {
            store_nodes(op->coord->store, owners_known, recover);
            return;
        }
    op_next(op);
}

/* ---- read, and the answer ---- */

static void state_read(void *arg, const struct store_sink_result *result)
{
    struct sink_recover *recover = arg;
    if (result->code) {
        op_fail(&recover->op,
                result->code == CHXA_E_STORE_UNKNOWN ? CHXA_E_STORE_UNAVAILABLE : result->code,
                "reading sink %s: %s", recover->sink, chxa_error_text(result->code));
        return;
    }
    recover->state = *result->sink;
    *result->sink = (struct store_sink){0};
    op_next(&recover->op);
}

static void sink_recover_read(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    store_sink_get(op->coord->store, recover->sink, state_read, recover);
}

static void log_outcome(const struct sink_recover *recover, const struct coord_sink_reply *reply)
{
    size_t failed = 0, pending = 0;
    for (size_t i = 0; i < reply->n_txns; i++) {
        failed += reply->txns[i].error != NULL;
        pending += reply->txns[i].pending;
    }
    if (reply->code)
        log_warn("sink not recovered", "sink=%s epoch=%llu code=%s error=\"%s\"", recover->sink,
                 (unsigned long long)recover->epoch, chxa_error_name(reply->code),
                 error_message(reply->error));
    else
        log_info("sink recovered",
                 "sink=%s epoch=%llu commit=%zu others=%zu failed=%zu pending=%zu", recover->sink,
                 (unsigned long long)recover->epoch, recover->n_commit,
                 recover->n_ends - recover->n_commit, failed, pending);
}

static void sink_recover_finished(struct op *op, int code)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    struct coord_sink_reply reply = {.code = code, .error = &op->error, .complete = true};
    struct coord_sink_txn *txns = mem_array(recover->n_ends, sizeof *txns);
    if (code == 0) {
        reply.sink = &recover->state;
        reply.txns = txns;
        reply.n_txns = recover->n_ends;
    }
    for (size_t i = 0; i < reply.n_txns; i++) {
        struct sink_end *end = &recover->ends[i];
        txns[i] = end->txn;
        txns[i].error = end->error.code ? &end->error : NULL;
        if (end->txn.pending || end->error.code)
            reply.complete = false;
    }
    log_outcome(recover, &reply);
    recover->done(recover->arg, &reply);
    free(txns);
}

static void sink_recover_release(struct op *op)
{
    struct sink_recover *recover = (struct sink_recover *)op;
    for (size_t i = 0; i < recover->n_ends; i++) {
        struct sink_end *end = &recover->ends[i];
        free(end->txn.xid);
        free(end->txn.owner);
        free(end->txn.owner_url);
        error_clear(&end->error);
    }
    free(recover->ends);
    free(recover->sorted);
    free(recover->after);
    free(recover->sink);
    store_sink_clear(&recover->state);
    free(recover);
}
