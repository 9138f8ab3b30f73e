/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator does to a decided commit that cannot go on, as steps of the commit (commit.c):
 * give up the parts that cannot be attached; and what the commit does when it finds that an operator
 * ended it elsewhere while this node was away (abandon.c).
 *
 * Invariants
 *   - Committing goes only forward: it ends as Committed, and the record says which parts are not in
 *     their table (discarded) and what that makes of the whole (heuristic).
 *   - What is given up was looked at first, and is attached nowhere as far as can be known; its rows
 *     are set aside in <root>/chxa/lost, not removed.
 *   - The wish is in the record (discarding) before anything is given up; which parts they are is
 *     found out by trying, so that a crash in between changes nothing.
 *   - Nothing is marked, moved or attached while the store's lock is not held, or with a record that
 *     was read before it was taken anew, or when this process was asleep for longer than a moment.
 */
#include "op/commit_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define FOLLOW_WAIT_MS 10000u
#define ASLEEP_MS      1000u /* without a turn of the loop; well below any session's time-out */

/* ---- whether to go on ---- */

void commit_restart(struct commit *commit)
{
    struct op *op = &commit->op;
    const struct chxa_record *record = &op->txn->record;
    commit_forget_targets(commit);
    commit->epoch = store_epoch(op->coord->store);
    commit->unsure = true;
    commit->obey = record->state == CHXA_COMMITTED && record->abandoned_by;
    if (commit->obey)
        log_warn("ended by an operator while this node was away", "xid=%s through=%s reason=\"%s\"",
                 txn_xid(op->txn), record->abandoned_by,
                 record->given_reason ? record->given_reason : "");
    op_goto(op, record->state == CHXA_COMMITTED && !commit->obey ? "clear" : "target");
}

static void may_act_reloaded(struct op *op, int code)
{
    struct commit *commit = (struct commit *)op;
    if (code == 0) {
        commit_restart(commit);
    } else if (code == CHXA_E_TXN_NOT_FOUND) {
        op_end(op, code); /* ended by an operator, and forgotten */
    } else {
        commit_forget_targets(commit);
        commit->unsure = true;
        commit_wait_and_retry(commit, "target");
    }
}

bool commit_may_act(struct commit *commit)
{
    struct op *op = &commit->op;
    struct coord *coord = op->coord;
    if (!coord->store_ready) {
        txn_note(op->txn, "waiting for the store");
        commit->unsure = true;
        commit_wait_and_retry(commit, "quiet");
        return false;
    }
    bool asleep = clock_monotonic_ms() > coord->swept_ms + ASLEEP_MS;
    if (store_epoch(coord->store) == commit->epoch && !asleep && !op->txn->stale)
        return true;
    txn_reload(op, may_act_reloaded);
    return false;
}

/* ---- resolve: the wish becomes part of the record ---- */

static void resolve_amend(struct op *op, struct chxa_record *record)
{
    record->discarding = true;
    if (op->txn->given_reason)
        mem_replace(&record->given_reason, op->txn->given_reason);
}

static void resolve_reloaded(struct op *op, int code)
{
    if (code == 0)
        commit_restart((struct commit *)op);
    else
        commit_wait_and_retry((struct commit *)op, "resolve");
}

static void resolve_stored(struct op *op, int code)
{
    if (code == 0) {
        log_warn("what cannot be attached is given up", "xid=%s reason=\"%s\"", txn_xid(op->txn),
                 op->txn->record.given_reason ? op->txn->record.given_reason : "");
        op->txn->discard_asked = false;
        op_goto(op, "quiet");
    } else if (code == CHXA_E_STORE_CONFLICT || code == CHXA_E_STORE_UNKNOWN) {
        txn_reload(op, resolve_reloaded);
    } else {
        commit_wait_and_retry((struct commit *)op, "resolve");
    }
}

void commit_resolve(struct op *op)
{
    const struct chxa_record *record = &op->txn->record;
    if (record->discarding) {
        op->txn->discard_asked = false;
        op_goto(op, "quiet");
        return;
    }
    txn_store_amended(op, CHXA_COMMITTING, record->reason, record->blocked, resolve_amend,
                      resolve_stored);
}

/* ---- converted ---- */

static void lose(struct commit *commit, size_t i)
{
    commit->given_up[i] = true;
    commit->lost = mem_realloc(commit->lost, (commit->n_lost + 1) * sizeof *commit->lost);
    commit->lost[commit->n_lost++] = commit->parts[i].number;
}

bool commit_take_converted(struct commit *commit)
{
    const struct chxa_record *record = &commit->op.txn->record;
    size_t n = 0;
    for (size_t i = 0; record->converted_to && i < commit->n_parts; i++) {
        if (!chxa_record_discards(record, commit->parts[i].number))
            continue;
        lose(commit, i);
        n++;
    }
    return n == commit->n_parts;
}

/* The other one was prepared before the record named it: only an operator can have ended it. */
static void followed(void *arg, const struct coord_reply *reply)
{
    struct commit *commit = arg;
    struct op *op = &commit->op;
    commit->unfollowed = reply->code == CHXA_E_TXN_NOT_FOUND || reply->code == CHXA_E_WRONG_STATE;
    if (commit->unfollowed)
        log_error("hazard: what the parts were converted to was rolled back", "xid=%s other=%s",
                  commit->xid, op->txn->record.converted_to);
    if (commit->unfollowed || (reply->code == 0 && !reply->pending)) {
        txn_note(op->txn, NULL);
        op_next(op);
        return;
    }
    txn_note(op->txn, "waiting for the converted rows, transaction %s: %s",
             op->txn->record.converted_to,
             reply->code ? error_message(reply->error) : "it is being committed");
    commit_wait_and_retry(commit, NULL);
}

void commit_follow(struct op *op)
{
    const struct chxa_record *record = &op->txn->record;
    if (record->converted_to == NULL) {
        op_next(op);
        return;
    }
    coord_finish(op->coord, record->converted_to, TXN_COMMIT, "it stands for converted parts",
                 FOLLOW_WAIT_MS, followed, op);
    op_sent(op);
}

/* ---- discard ---- */

static bool is_attached(const struct commit *commit, size_t i)
{
    return commit->places[i].active != NULL || commit->sure[i];
}

/* The part that ClickHouse refused: the only one of the ALTER, or the one that it named. n_parts:
 * none is known. (`verify` has chosen the next batch since, which begins with what was refused.) */
static size_t refused_part(const struct commit *commit)
{
    if (commit->one_by_one)
        return is_attached(commit, commit->tried) ? commit->n_parts : commit->tried;
    for (size_t i = 0; commit->rejection && i < commit->n_batch; i++)
        if (strstr(commit->rejection, commit->parts[commit->batch[i]].name))
            return commit->batch[i];
    return commit->n_parts;
}

static bool any_vanished(const struct commit *commit)
{
    for (size_t i = 0; i < commit->n_parts; i++)
        if (commit->todo[i] == PART_VANISHED)
            return true;
    return false;
}

/* Is the part one of those that the last try found to be hopeless? */
static bool is_hopeless(const struct commit *commit, size_t i, bool vanished, size_t refused)
{
    if (commit->given_up[i] || is_attached(commit, i))
        return false;
    if (commit->refused) /* the table itself: nothing of it was ever looked at, or none suits */
        return true;
    if (vanished)
        return commit->todo[i] == PART_VANISHED;
    /* Or ClickHouse accepted the ATTACH, and left it in detached/ all the same. */
    return commit->rejected ? i == refused : commit->todo[i] != PART_DONE;
}

void commit_discard(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    bool vanished = any_vanished(commit);
    size_t refused = refused_part(commit), n = 0;
    if (commit->rejected && !commit->refused && !vanished && refused == commit->n_parts) {
        commit->one_by_one = true; /* then the next refusal tells */
        commit->rejected = false;
        op_goto(op, "quiet");
        return;
    }
    for (size_t i = 0; i < commit->n_parts; i++) {
        if (!is_hopeless(commit, i, vanished, refused))
            continue;
        lose(commit, i);
        n++;
    }
    log_warn("parts given up", "xid=%s table=\"%s.%s\" parts=%zu because=\"%s\"", txn_xid(op->txn),
             target->database, target->table, n, error_message(&op->error));
    commit->rejected = false;
    commit->unsure = true;
    op_goto(op, commit->refused || n == 0 ? "target" : "quiet");
    commit->refused = false;
}

/* ---- the end ---- */

static size_t count_discarded(const struct chxa_record *record)
{
    size_t n = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            n += chxa_record_discards(record, record->writes[i].parts[j].number);
    return n;
}

void commit_outcome(struct op *op, struct chxa_record *record)
{
    const struct commit *commit = (const struct commit *)op;
    const struct chxa_record *now = &op->txn->record;
    record->discarding = false;
    if (commit->n_lost == 0)
        return;
    bool converted = record->converted_to && !commit->unfollowed;
    if (!converted || commit->n_lost > count_discarded(now))
        record->heuristic = !converted && commit->n_lost == chxa_record_parts(now)
                                ? CHXA_HEURISTIC_ROLLED_BACK
                                : CHXA_HEURISTIC_MIXED;
    /* The copy has no writes; the ranges are made with the record's own. */
    struct chxa_record whole = *record;
    whole.writes = now->writes;
    whole.n_writes = now->n_writes;
    if (chxa_record_set_discarded(&whole, commit->lost, commit->n_lost) != 0)
        abort();
    record->discarded = whole.discarded;
    record->n_discarded = whole.n_discarded;
}

int commit_set_aside(struct commit *commit, struct error *error)
{
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(commit->xid, name);
    for (size_t i = 0; i < commit->n_roots; i++) {
        int code = held_set_aside(commit->roots[i], name, error);
        if (code)
            return code;
    }
    return 0;
}
