/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit into a replicated table: what became of an ATTACH that was not answered with success. See
 * commit.c for the steps around these.
 *
 * A replica that loses ZooKeeper within an ATTACH may have any of these (18.16, all seen):
 *   attached       ZooKeeper has the part; only the answer was lost, or the session behind it;
 *   stray          the part stands in this replica, to be seen by queries, but ZooKeeper never had it
 *                  (319): no other replica will. ClickHouse sets it aside when it loads the table
 *                  anew (ignored_…), where the next look finds it;
 *   rolled back    (244) the part was taken out of the table, and is DELETED within half a minute.
 * So a replica is only ever given a clone; the held directory is let go when the clone is attached
 * for sure: ATTACH was answered with success, or ZooKeeper has the part under the name it got.
 *
 * ZooKeeper forgets a part some time (old_parts_lifetime) after it was merged into another. Its
 * absence is a proof only before that, or when nothing covers the part; else it is a hazard: the
 * rows are still held, and the operator must say whether they are in the table.
 */
#include "op/commit_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ch/replica.h"

#include <stdlib.h>
#include <string.h>

static bool is_in_doubt(const struct commit *commit, size_t i)
{
    return commit->places[i].kept && !commit->places[i].out && !commit->sure[i] &&
           !commit->given_up[i];
}

enum clone_fate { CLONE_ATTACHED, CLONE_STRAY, CLONE_LOST, CLONE_UNKNOWN };

static enum clone_fate clone_fate(const struct commit *commit, size_t i,
                                  const struct replica_parts *known)
{
    const struct part_place *place = &commit->places[i];
    const char *name = place->active ? place->active : place->seen;
    int64_t age_ms = clock_wall_ms() - place->cloned_ms;
    bool early = age_ms >= 0 && (uint64_t)age_ms < known->old_parts_lifetime_ms / 2;
    if (name && replica_has(&known->registered, name))
        return CLONE_ATTACHED;
    if (name && replica_has(&known->active, name))
        return CLONE_STRAY;
    if (early || (name && !replica_covers(&known->registered, name)))
        return CLONE_LOST;
    return CLONE_UNKNOWN;
}

static void tell_strays(struct commit *commit, size_t n)
{
    const struct chxa_target *target = commit->targets[commit->at];
    txn_note(commit->op.txn,
             "%zu of the parts stand in this replica of %s.%s, but not in ZooKeeper: waiting until "
             "ClickHouse sets them aside, as SYSTEM RESTART REPLICA or a restart makes it do",
             n, target->database, target->table);
    log_warn("parts not in ZooKeeper", "xid=%s table=\"%s.%s\" parts=%zu", commit->xid,
             target->database, target->table, n);
}

static void block_unknown(struct commit *commit, size_t n, size_t first)
{
    const struct chxa_target *target = commit->targets[commit->at];
    const struct chxa_part *part = &commit->parts[first];
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(commit->xid, name);
    error_set(
        &commit->op.error, CHXA_E_BLOCKED,
        "hazard: whether %zu parts of %s.%s were attached cannot be known any more, the first "
        "is %s (%llu rows). Their rows are held in %s/chxa/%s: if the table has them, remove "
        "the folder %llu there, if not, the file %llu.moved",
        n, target->database, target->table, part->name, (unsigned long long)part->rows,
        target->roots[part->disk], name, (unsigned long long)part->number,
        (unsigned long long)part->number);
    commit->settled = commit->op.txn->record.discarding ? "discard" : "block";
}

static void commit_confirmed(void *arg, int code, struct error *error,
                             const struct replica_parts *known)
{
    struct commit *commit = arg;
    struct op *op = &commit->op;
    if (code) {
        commit_wait_for_clickhouse(commit, error);
        return;
    }
    size_t n[CLONE_UNKNOWN + 1] = {0}, first_unknown = 0;
    for (size_t i = 0; i < commit->n_parts; i++) {
        if (!is_in_doubt(commit, i))
            continue;
        enum clone_fate fate = clone_fate(commit, i, known);
        if (fate == CLONE_UNKNOWN && n[fate] == 0)
            first_unknown = i;
        n[fate]++;
        commit->sure[i] = fate == CLONE_ATTACHED;
        commit->redo[i] = fate == CLONE_LOST;
        if (fate == CLONE_UNKNOWN)
            commit->todo[i] = PART_VANISHED;
    }
    commit->settled = "target";
    if (n[CLONE_LOST]) {
        log_warn("ClickHouse threw parts away within an ATTACH; they are attached anew",
                 "xid=%s parts=%zu", commit->xid, n[CLONE_LOST]);
        commit->unsure = true;
        commit->settled = "quiet";
    }
    if (n[CLONE_STRAY]) {
        tell_strays(commit, n[CLONE_STRAY]);
        commit->settled = NULL;
    }
    if (n[CLONE_UNKNOWN])
        block_unknown(commit, n[CLONE_UNKNOWN], first_unknown);
    op_next(op);
}

void commit_confirm(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    size_t i = 0;
    while (i < commit->n_parts && !is_in_doubt(commit, i))
        i++;
    if (i < commit->n_parts) {
        replica_parts_load(op->coord->client, target->database, target->table,
                           op->coord->config.clickhouse_timeout_ms, commit_confirmed, commit);
        return;
    }
    commit->settled = "target"; /* an earlier try may have ended before it let go of all */
    op_goto(op, "settle");
}

/* ---- settle ---- */

/* A stray that ClickHouse has set aside since the look is not lost: it stands in detached/, where the
 * next look finds it as long as the marker names it. */
static int keep_set_aside(struct commit *commit, struct error *error)
{
    const struct chxa_target *target = commit->targets[commit->at];
    struct part_place *now = mem_array(commit->n_parts, sizeof *now);
    int code = part_places_read(commit->xid, commit->parts, commit->n_parts, commit->table_paths,
                                target->roots, target->n_roots, now, error);
    for (size_t i = 0; code == 0 && i < commit->n_parts; i++) {
        if (now[i].detached || now[i].attaching || now[i].ignored)
            commit->redo[i] = false;
        part_place_clear(&now[i]);
    }
    free(now);
    return code;
}

static bool any_redo(const struct commit *commit)
{
    for (size_t i = 0; i < commit->n_parts; i++)
        if (commit->redo[i])
            return true;
    return false;
}

/* On a worker thread. */
static void settle_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    if (any_redo(commit))
        op->work_code = keep_set_aside(commit, &op->work_error);
    for (size_t i = 0; op->work_code == 0 && i < commit->n_parts; i++) {
        const struct chxa_part *part = &commit->parts[i];
        const char *root = target->roots[part->disk];
        if (commit->redo[i])
            op->work_code =
                held_unmark(root, commit->xid, part, op->coord->config.fsync, &op->work_error);
        else if (commit->sure[i] && commit->places[i].kept)
            op->work_code = held_let_go(root, commit->xid, part, &op->work_error);
    }
}

static void settle_go_on(struct commit *commit)
{
    for (size_t i = 0; i < commit->n_parts; i++) {
        if (commit->sure[i])
            commit->places[i].kept = false;
        commit->redo[i] = false;
    }
    if (commit->settled) {
        op_goto(&commit->op, commit->settled);
        return;
    }
    commit->unsure = true;
    commit_wait_and_retry(commit, "quiet");
}

static void commit_settled(struct op *op)
{
    if (!commit_work_failed(op))
        settle_go_on((struct commit *)op);
}

void commit_settle(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    bool any = false;
    for (size_t i = 0; i < commit->n_parts; i++)
        any = any || commit->redo[i] || (commit->sure[i] && commit->places[i].kept);
    if (!any) {
        settle_go_on(commit);
        return;
    }
    op_blocking(op, settle_work, commit_settled);
    op_sent(op);
}
