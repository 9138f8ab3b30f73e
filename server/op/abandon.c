/* SPDX-License-Identifier: Apache-2.0
 *
 * Abandon: an operator ends a transaction of another node that is gone for good. Read the table from
 * top to bottom.
 *
 * One change of the store does it all (store_abandon): it proves that nobody holds the owner's lock,
 * raises the owner's epoch, so that one that only slept changes nothing when it wakes, and replaces
 * the record. So a crash leaves it done or not, and the same request again tells which.
 *
 * What was not decided for commit is Aborted. A decided commit is never undone: it becomes Committed
 * with the mark `hazard`, all its parts discarded: which of them the owner attached before it was
 * lost cannot be known from here. If the owner comes back, it obeys (recover.c, resolve.c): what it
 * still holds is set aside, and nothing of it attached any more.
 */
#include "op/txn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "store/store_settle.h"

#include <stdlib.h>
#include <string.h>

#define CONFLICTS_MAX 5u

struct abandon {
    struct op op;
    coord_cb *done;
    void *arg;
    char *xid, *reason;
    struct chxa_record record; /* as read; .xid NULL: it was not */
    struct chxa_record next;   /* as it is to be */
    unsigned conflicts;
    bool replay;
};

static void abandon_read(struct op *op);
static void abandon_record(struct op *op);

static const struct op_step abandon_steps[] = {
    {"read", abandon_read},     /* the record as it is: may it be abandoned? */
    {"record", abandon_record}, /* one change: the owner is gone, is fenced, and this is the end */
};

static void abandon_finished(struct op *op, int code);
static void abandon_release(struct op *op);

static const struct op_kind abandon_kind = {
    "abandon",        abandon_steps,   sizeof abandon_steps / sizeof abandon_steps[0],
    abandon_finished, abandon_release,
};

void coord_abandon(struct coord *coord, const char *xid, const char *reason, coord_cb *done,
                   void *arg)
{
    struct abandon *abandon = mem_alloc(sizeof *abandon);
    abandon->done = done;
    abandon->arg = arg;
    abandon->xid = mem_strdup(xid);
    abandon->reason = mem_strdup(reason);
    op_start(&abandon->op, &abandon_kind, coord, NULL, NULL);
}

/* ---- read ---- */

static void was_read(void *arg, const struct store_result *result)
{
    struct abandon *abandon = arg;
    struct op *op = &abandon->op;
    if (result->code == CHXA_E_TXN_NOT_FOUND) {
        op_fail(op, result->code, "transaction %s does not exist", abandon->xid);
        return;
    }
    if (result->code) {
        op_fail(op, result->code == CHXA_E_STORE_UNKNOWN ? CHXA_E_STORE_UNAVAILABLE : result->code,
                "%s", chxa_error_text(result->code));
        return;
    }
    chxa_record_clear(&abandon->record);
    abandon->record = *result->record;
    *result->record = (struct chxa_record){0};
    const struct chxa_record *record = &abandon->record;
    bool finished = chxa_state_kind(record->state) == CHXA_KIND_FINAL;
    abandon->replay = finished && record->abandoned_by;
    if (abandon->replay)
        op_end(op, 0);
    else if (finished)
        op_fail(op, CHXA_E_WRONG_STATE, "only an open transaction can be abandoned: %s is %s",
                abandon->xid, chxa_state_name(record->state));
    else if (strcmp(record->owner, op->coord->config.node) == 0)
        op_fail(op, CHXA_E_OWNER_ALIVE,
                "this node owns transaction %s: roll it back, commit or resolve it here",
                abandon->xid);
    else
        op_next(op);
}

static void abandon_read(struct op *op)
{
    struct abandon *abandon = (struct abandon *)op;
    store_get(op->coord->store, abandon->xid, was_read, abandon);
}

/* ---- record ---- */

static void discard_all(const struct chxa_record *record, struct chxa_record *next)
{
    size_t n = 0;
    uint64_t *numbers = mem_array(chxa_record_parts(record), sizeof *numbers);
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            numbers[n++] = record->writes[i].parts[j].number;
    struct chxa_record whole = *next;
    whole.writes = record->writes;
    whole.n_writes = record->n_writes;
    if (chxa_record_set_discarded(&whole, numbers, n) != 0)
        abort();
    next->discarded = whole.discarded;
    next->n_discarded = whole.n_discarded;
    if (n)
        next->heuristic = CHXA_HEURISTIC_HAZARD;
    free(numbers);
}

static void make_next(struct abandon *abandon)
{
    const struct chxa_record *record = &abandon->record;
    struct chxa_record *next = &abandon->next;
    chxa_record_clear(next);
    if (chxa_record_copy(record, next) != 0)
        abort();
    next->version = record->version;
    next->state = txn_abandoned(record->state);
    next->changed_ms = clock_wall_ms();
    next->blocked = next->discarding = false;
    mem_replace(&next->reason, NULL);
    mem_replace(&next->given_reason, abandon->reason);
    mem_replace(&next->abandoned_by, abandon->op.coord->config.node);
    free(next->op_id);
    next->op_id = coord_op_id(abandon->op.coord);
    if (next->state == CHXA_COMMITTED)
        discard_all(record, next);
}

static void was_recorded(void *arg, const struct store_result *result)
{
    struct abandon *abandon = arg;
    struct op *op = &abandon->op;
    const struct chxa_record *record = &abandon->record;
    if (result->code == 0) {
        log_warn("transaction abandoned", "xid=%s owner=%s from=%s to=%s reason=\"%s\"",
                 abandon->xid, record->owner, chxa_state_name(record->state),
                 chxa_state_name(abandon->next.state), abandon->reason);
        metrics_transition(abandon->next.state);
        op_next(op);
    } else if (result->code == CHXA_E_STORE_CONFLICT && ++abandon->conflicts < CONFLICTS_MAX) {
        op_goto(op, "read"); /* another operator, or the owner before it was lost */
    } else if (result->code == CHXA_E_OWNER_ALIVE) {
        op_fail(op, result->code,
                "node %s at %s holds its lock: end transaction %s there, or stop that node first",
                record->owner, record->owner_url, abandon->xid);
    } else {
        op_fail(op, result->code, "recording %s: %s", chxa_state_name(abandon->next.state),
                chxa_error_text(result->code));
    }
}

static void abandon_record(struct op *op)
{
    struct abandon *abandon = (struct abandon *)op;
    make_next(abandon);
    store_settle_abandon(op->coord->store, &abandon->next,
                         clock_monotonic_ms() + op->coord->config.store_timeout_ms, was_recorded,
                         abandon);
    op_sent(op);
}

/* ---- the answer ---- */

static void abandon_finished(struct op *op, int code)
{
    struct abandon *abandon = (struct abandon *)op;
    struct chxa_record shown = abandon->replay || code ? abandon->record : abandon->next;
    shown.writes = abandon->record.writes;
    shown.n_writes = abandon->record.n_writes;
    struct coord_reply reply = {
        .code = code,
        .error = &op->error,
        .record = shown.xid ? &shown : NULL,
        .replay = abandon->replay,
    };
    if (code)
        metrics_error(code);
    abandon->done(abandon->arg, &reply);
}

static void abandon_release(struct op *op)
{
    struct abandon *abandon = (struct abandon *)op;
    chxa_record_clear(&abandon->record);
    chxa_record_clear(&abandon->next);
    free(abandon->xid);
    free(abandon->reason);
    free(abandon);
}
