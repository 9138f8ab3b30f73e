/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollback: Initialized or Prepared → Aborting → Aborted. Read the table from top to bottom.
 *
 * What recovery sees after a crash
 *   before "decide" was stored: the transaction is as it was;
 *   after it: Aborting, and the same table is run from "clear", which removes what is still there.
 */
#include "op/gather.h"
#include "op/txn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct rollback {
    struct op op;
    char *reason;
    char *xid;
    char **roots; /* of every disk where the transaction may hold parts */
    size_t n_roots;
};

static void rollback_drain(struct op *op);
static void rollback_decide(struct op *op);
static void rollback_clear(struct op *op);
static void rollback_record(struct op *op);

static const struct op_step rollback_steps[] = {
    {"drain", rollback_drain},   /* cancel the writes in flight, wait until they have ended */
    {"decide", rollback_decide}, /* record Aborting: from here on it goes only to Aborted */
    {"clear", rollback_clear},   /* remove the held folder */
    {"record", rollback_record}, /* record Aborted */
};

static void rollback_finished(struct op *op, int code);
static void rollback_release(struct op *op);

static const struct op_kind rollback_kind = {
    "rollback",        rollback_steps,   sizeof rollback_steps / sizeof rollback_steps[0],
    rollback_finished, rollback_release,
};

/* The reason, and what has made the transaction rollback-only; malloc'd, or NULL. To be asked before the drain, which ends
 * what gathers, and is not why. */
static char *whole_reason(const struct txn *txn, const char *reason)
{
    struct error lost = {0};
    if (txn->record.state != CHXA_INITIALIZED || gather_check(txn, &lost) == 0)
        return mem_strdup(reason);
    char *whole = mem_printf("%s%s%s", reason ? reason : "",
                             reason ? "; it was lost already: " : "", error_message(&lost));
    error_clear(&lost);
    return whole;
}

void rollback_start(struct txn *txn, const char *reason)
{
    struct rollback *rollback = mem_alloc(sizeof *rollback);
    rollback->reason = whole_reason(txn, reason);
    rollback->xid = mem_strdup(txn_xid(txn));
    txn->op = &rollback->op;
    op_start(&rollback->op, &rollback_kind, txn->coord, txn,
             txn->record.state == CHXA_ABORTING ? "clear" : "drain");
}

/* The last write wakes it. */
#define DRAIN_POLL_MS 50u

static void rollback_drain(struct op *op)
{
    if (op->tries == 1)
        write_cancel_all(op->txn);
    if (op->txn->writes_in_flight)
        op_retry(op, NULL, DRAIN_POLL_MS);
    else
        op_next(op);
}

static void rollback_decided(struct op *op, int code)
{
    if (code)
        op_end(op, code);
    else
        op_next(op);
}

static void rollback_decide(struct op *op)
{
    if (op->txn->stale) {
        op_fail(op, CHXA_E_STORE_UNKNOWN, "a write's record has an unknown outcome; try again");
        return;
    }
    txn_store_state(op, CHXA_ABORTING, ((struct rollback *)op)->reason, false, rollback_decided);
}

static void clear_work(struct op *op)
{
    struct rollback *rollback = (struct rollback *)op;
    op->work_code =
        held_remove(rollback->xid, rollback->roots, rollback->n_roots, false, &op->work_error);
}

static void rollback_cleared(struct op *op)
{
    if (op->work_code == 0) {
        txn_note(op->txn, NULL);
        op_next(op);
        return;
    }
    txn_note(op->txn, "removing held parts: %s", error_message(&op->work_error));
    op_retry(op, NULL, op_backoff_ms(op->tries, op->coord->config.commit_retry_ms, 60000));
}

static void rollback_clear(struct op *op)
{
    struct rollback *rollback = (struct rollback *)op;
    if (rollback->roots == NULL)
        rollback->roots = txn_roots(op->txn, true, &rollback->n_roots);
    op_blocking(op, clear_work, rollback_cleared);
    op_sent(op);
}

static void rollback_reloaded(struct op *op, int code)
{
    if (code == 0 && op->txn->record.state == CHXA_ABORTED)
        op_next(op);
    else
        op_retry(op, NULL, op_backoff_ms(op->tries, op->coord->config.commit_retry_ms, 60000));
}

static void rollback_recorded(struct op *op, int code)
{
    if (code == 0) {
        op_next(op);
        return;
    }
    txn_note(op->txn, "recording Aborted: %s", chxa_error_text(code));
    if (code == CHXA_E_STORE_CONFLICT || code == CHXA_E_STORE_UNKNOWN)
        txn_reload(op, rollback_reloaded);
    else
        op_retry(op, NULL, op_backoff_ms(op->tries, op->coord->config.commit_retry_ms, 60000));
}

static void rollback_record(struct op *op)
{
    txn_store_state(op, CHXA_ABORTED, op->txn->record.reason, false, rollback_recorded);
}

static void rollback_finished(struct op *op, int code)
{
    txn_op_finished(op->txn, op, TXN_ROLLBACK, code);
}

static void rollback_release(struct op *op)
{
    struct rollback *rollback = (struct rollback *)op;
    for (size_t i = 0; i < rollback->n_roots; i++)
        free(rollback->roots[i]);
    free(rollback->roots);
    free(rollback->reason);
    free(rollback->xid);
    free(rollback);
}
