/* SPDX-License-Identifier: Apache-2.0
 *
 * Begin: Unknown → Initialized. One step: create the record. A crash before it leaves nothing,
 * after it an Initialized transaction without writes, which its time-out ends.
 */
#include "op/gather.h"
#include "op/txn.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "core/txn_time.h"
#include "store/store_settle.h"

#include <stdlib.h>
#include <string.h>

struct begin {
    struct op op;
    struct chxa_record record; /* as it will be */
};

static void begin_record(struct op *op);

static const struct op_step begin_steps[] = {
    {"record", begin_record},
};

static void begin_finished(struct op *op, int code);
static void begin_release(struct op *op);

static const struct op_kind begin_kind = {
    "begin", begin_steps, sizeof begin_steps / sizeof begin_steps[0], begin_finished, begin_release,
};

#define BEGIN_AHEAD_MS 1000

/* A sink's last committed checkpoint is the one that began last: two of its begins in one
 * millisecond, or a clock that is set back a little, must not turn their order round. */
static int64_t begin_time_ms(struct coord *coord, const char *sink)
{
    int64_t now_ms = clock_wall_ms(), last_ms = coord->last_begin_ms;
    bool same = sink && coord->last_begin_sink && strcmp(sink, coord->last_begin_sink) == 0;
    if (same && now_ms <= last_ms && last_ms - now_ms < BEGIN_AHEAD_MS)
        now_ms = last_ms + 1;
    if (sink && !same)
        mem_replace(&coord->last_begin_sink, sink);
    if (sink)
        coord->last_begin_ms = now_ms;
    return now_ms;
}

void begin_start(struct txn *txn, const struct waiter *waiter)
{
    struct coord *coord = txn->coord;
    struct begin *begin = mem_alloc(sizeof *begin);
    struct chxa_record *record = &begin->record;
    record->xid = mem_strdup(txn_xid(txn));
    record->state = CHXA_INITIALIZED;
    record->owner = mem_strdup(coord->config.node);
    record->owner_url = mem_strdup(coord->config.url);
    record->node_epoch = store_epoch(coord->store);
    record->op_id = coord_op_id(coord);
    record->created_ms = record->changed_ms = begin_time_ms(coord, waiter->sink);
    if (waiter->timeout_ms)
        record->timeout_ms =
            (int64_t)txn_time_total_ms(waiter->timeout_ms, coord->config.transaction_timeout_ms);
    record->sink = mem_strdup(waiter->sink);
    record->sink_epoch = waiter->sink_epoch;
    record->meta = mem_strdup(waiter->meta);
    record->gather = waiter->gather;
    txn->op = &begin->op;
    op_start(&begin->op, &begin_kind, coord, txn, NULL);
}

static void begin_recorded(void *arg, const struct store_result *result)
{
    struct begin *begin = arg;
    struct op *op = &begin->op;
    struct txn *txn = op->txn;
    if (result->code == 0) {
        begin->record.version = result->version;
        txn_take_record(txn, &begin->record);
        gather_begin(txn);
        metrics_transition(CHXA_INITIALIZED);
        op_next(op);
    } else if (result->code == CHXA_E_STORE_CONFLICT && result->record != NULL) {
        /* The id exists: put the request to the state table again, with what exists. */
        txn_take_record(txn, result->record);
        struct waiter *waiter;
        TAILQ_FOREACH (waiter, &txn->waiters, link)
            waiter->started = waiter->started && waiter->read_only;
        op_next(op);
    } else {
        txn->loaded = false; /* what the store has, nobody has read */
        op_fail(op, result->code, "recording the transaction: %s", chxa_error_text(result->code));
    }
}

static void begin_record(struct op *op)
{
    struct begin *begin = (struct begin *)op;
    struct coord *coord = op->coord;
    store_settle_create(coord->store, &begin->record,
                        clock_monotonic_ms() + coord->config.store_timeout_ms, begin_recorded,
                        begin);
    op_sent(op);
}

static void begin_finished(struct op *op, int code)
{
    txn_op_finished(op->txn, op, TXN_BEGIN, code);
}

static void begin_release(struct op *op)
{
    struct begin *begin = (struct begin *)op;
    chxa_record_clear(&begin->record);
    free(begin);
}
