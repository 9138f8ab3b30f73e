/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit: Prepared (or Initialized, checked by prepare.c) → Committing → Committed. Read the table
 * from top to bottom: it is the commit, and the recovery plan too.
 *
 * Invariants
 *   - Committing goes only forward. Nothing here has an edge to Aborting.
 *   - A part is attached at most once: before each ATTACH we know that no ALTER of ours runs, and
 *     where every part is (core/part_plan.h). The directory's inode is the part's identity.
 *   - Committed is recorded only when every part was seen in its table, or left it by a merge after
 *     its marker said that ClickHouse was asked to attach it.
 *
 * What recovery sees after a crash, by the step that was under way:
 *   decide        the transaction as it was, or Committing with all parts held: this table from
 *                 "target"
 *   mark, move    Committing; parts held, held with a marker, or in detached/ with one (after a power
 *                 cut perhaps without): move what is left, attach
 *   send          … with a marker that says that the ALTER goes out: absence is no hazard from here on
 *   attach        … and parts in the table, or in detached/attaching_N, ignored_N: rename those
 *                 back, attach
 *   sync, record  Committing with every part in its table (or merged away, its marker tells): record
 *   resolve       Committing, with or without `discarding`: without, the operator asks again
 *   discard       Committing with `discarding`: what cannot be attached now is found again
 *   clear         Committed with a folder of markers: recover.c removes it, or sets it aside
 */
#include "op/commit_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ch/sql.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void commit_decide(struct op *op);
static void commit_target(struct op *op);
static void commit_quiet(struct op *op);
static void commit_check(struct op *op);
static void commit_look(struct op *op);
static void commit_mend(struct op *op);
static void commit_verify(struct op *op);
static void commit_retreat(struct op *op);
static void commit_block(struct op *op);
static void commit_record(struct op *op);

static const struct op_step commit_steps[] = {
    {"decide", commit_decide}, /* record Committing: the decision */
    {"target", commit_target}, /* the next table that has parts; none: on to "sync" */
    {"quiet", commit_quiet},   /* if unsure: until no ALTER of ours runs and it is writable */
    {"check", commit_check},   /* the table is there, its structure suits the parts */
    {"look", commit_look},     /* where each part is, hence what to do; unless verify saw it */
    {"mend", commit_mend},     /* rename attaching_N and ignored_N back to N in detached/ */
    {"mark", commit_mark},     /* leave a marker for the held parts of the batch */
    {"move", commit_move},     /* rename them from the held area into detached/ */
    {"send", commit_send},     /* say in the marker that the ALTER goes out, durably */
    {"attach", commit_attach}, /* ALTER TABLE … ATTACH PART …, ATTACH PART … */
    {"verify", commit_verify}, /* see each in the table; then settle; the next batch, or confirm */
    {"confirm", commit_confirm}, /* replicated: what became of clones nobody is sure of */
    {"settle", commit_settle},   /* let go of what is attached; clone what is lost anew */
    {"retreat", commit_retreat}, /* blocked: what is not attached goes back into the held area */
    {"block", commit_block},     /* record the reason, tell those who wait, try again later */
    {"resolve", commit_resolve}, /* asked for: record that what cannot be attached is given up */
    {"discard", commit_discard}, /* give up what was found to be that; go on with the rest */
    {"sync", commit_sync},       /* fsync the tables' directories */
    {"follow", commit_follow},   /* converted: commit the transaction that stands for those parts */
    {"record", commit_record},   /* record Committed */
    {"clear", commit_clear}, /* remove the folder with the markers; given up parts: set it aside */
};

static void commit_finished(struct op *op, int code);
static void commit_release(struct op *op);

static const struct op_kind commit_kind = {
    "commit",        commit_steps,   sizeof commit_steps / sizeof commit_steps[0],
    commit_finished, commit_release,
};

#define CONVERT_POLL_MS 100u
#define QUIET_POLL_MS   50u
#define RETRY_MAX_MS    60000u
#define ALTER_BYTES_MAX 100000u /* of one ALTER's text, well below max_query_size */

void commit_start(struct txn *txn, bool recovering)
{
    struct commit *commit = mem_alloc(sizeof *commit);
    commit->xid = mem_strdup(txn_xid(txn));
    commit->recovering = commit->unsure = recovering;
    commit->obey = txn->record.state == CHXA_COMMITTED;
    commit->epoch = store_epoch(txn->coord->store);
    txn->op = &commit->op;
    op_start(&commit->op, &commit_kind, txn->coord, txn, recovering ? "target" : "decide");
}

static void target_done(struct commit *commit)
{
    for (size_t i = 0; commit->places && i < commit->n_parts; i++)
        part_place_clear(&commit->places[i]);
    for (size_t i = 0; commit->table_paths && i < commit->n_paths; i++)
        free(commit->table_paths[i]);
    free(commit->places);
    free(commit->todo);
    free(commit->sure);
    free(commit->redo);
    free(commit->given_up);
    free(commit->batch);
    free(commit->parts);
    free(commit->table_paths);
    commit->places = NULL;
    commit->todo = NULL;
    commit->sure = NULL;
    commit->redo = NULL;
    commit->given_up = NULL;
    commit->batch = NULL;
    commit->parts = NULL;
    commit->table_paths = NULL;
    commit->n_parts = commit->n_batch = commit->n_paths = 0;
    commit->seen = false;
}

/* The record was read again: pointers into it are void. */
void commit_forget_targets(struct commit *commit)
{
    target_done(commit);
    free(commit->targets);
    commit->targets = NULL;
    commit->n_lost = 0;
}

/* ---- waiting for what is not in our hands ---- */

void commit_wait_and_retry(struct commit *commit, const char *step)
{
    struct op *op = &commit->op;
    commit->blocks++;
    op_retry(op, step,
             op_backoff_ms(commit->blocks, op->coord->config.commit_retry_ms, RETRY_MAX_MS));
}

/* ClickHouse does not answer: nothing is known to be wrong with the transaction. */
void commit_wait_for_clickhouse(struct commit *commit, const struct error *error)
{
    commit->unsure = true;
    txn_note(commit->op.txn, "waiting for ClickHouse: %s", error_message(error));
    commit_wait_and_retry(commit, "quiet");
}

/* ---- decide ---- */

static void commit_decided(struct op *op, int code)
{
    if (code)
        op_end(op, code);
    else
        op_next(op);
}

static void commit_decide(struct op *op)
{
    txn_store_state(op, CHXA_COMMITTING, NULL, false, commit_decided);
}

/* ---- target ---- */

static void remember_sync_paths(struct commit *commit)
{
    commit->sync_paths = mem_realloc(commit->sync_paths, (commit->n_sync_paths + commit->n_paths) *
                                                             sizeof *commit->sync_paths);
    for (size_t i = 0; i < commit->n_paths; i++) {
        if (commit->table_paths[i])
            commit->sync_paths[commit->n_sync_paths++] = commit->table_paths[i];
        commit->table_paths[i] = NULL;
    }
}

static void commit_target(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (commit->targets == NULL) {
        commit->targets = txn_targets(op->txn, &commit->n_targets);
        commit->at = 0;
    } else {
        remember_sync_paths(commit);
        target_done(commit);
        commit->at++;
    }
    for (; commit->at < commit->n_targets; commit->at++) {
        commit->parts = txn_target_parts(op->txn, commit->targets[commit->at], &commit->n_parts);
        if (commit->n_parts)
            break;
        free(commit->parts);
        commit->parts = NULL;
    }
    if (commit->at == commit->n_targets) {
        op_goto(op, "sync");
        return;
    }
    commit->todo = mem_array(commit->n_parts, sizeof *commit->todo);
    commit->places = mem_array(commit->n_parts, sizeof *commit->places);
    commit->sure = mem_array(commit->n_parts, sizeof *commit->sure);
    commit->redo = mem_array(commit->n_parts, sizeof *commit->redo);
    commit->given_up = mem_array(commit->n_parts, sizeof *commit->given_up);
    commit->batch = mem_array(commit->n_parts, sizeof *commit->batch);
    if (commit_take_converted(commit))
        op_goto(op, "target");
    else
        op_next(op);
}

/* ---- quiet ---- */

static void quiet_answered(void *arg, const struct ch_answer *answer)
{
    struct commit *commit = arg;
    struct op *op = &commit->op;
    if (answer->code) {
        commit_wait_for_clickhouse(commit, answer->error);
    } else if (strcmp(answer->body, "0\t0\n") != 0) {
        txn_note(op->txn, "waiting for an ATTACH of ours that still runs, or a read-only replica");
        op_retry(op, NULL, QUIET_POLL_MS);
    } else {
        commit->unsure = false;
        txn_note(op->txn, NULL);
        op_next(op);
    }
}

static void commit_quiet(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (op->txn->convert) {
        commit->unsure = true;
        op_retry(op, NULL, CONVERT_POLL_MS);
        return;
    }
    if (!commit_may_act(commit))
        return;
    if (op->txn->discard_asked) {
        op_goto(op, "resolve");
        return;
    }
    commit->doubted = commit->unsure;
    commit->seen = false;
    if (!commit->unsure) {
        op_next(op);
        return;
    }
    const struct chxa_target *target = commit->targets[commit->at];
    char *prefix = coord_query_prefix(commit->xid, "attach");
    struct buf sql = {0};
    buf_puts(&sql, "SELECT (SELECT count() FROM system.processes WHERE position(query_id, ");
    sql_string(&sql, prefix);
    buf_puts(&sql,
             ") = 1), (SELECT count() FROM system.replicas WHERE is_readonly AND database = ");
    sql_string(&sql, target->database);
    buf_puts(&sql, " AND table = ");
    sql_string(&sql, target->table);
    buf_puts(&sql, ") FORMAT TabSeparated");
    struct ch_statement statement = {
        .sql = buf_str(&sql),
        .timeout_ms = op->coord->config.clickhouse_timeout_ms,
    };
    ch_query(op->coord->client, &statement, quiet_answered, commit);
    buf_clear(&sql);
    free(prefix);
}

/* ---- check ---- */

static void block_because(struct commit *commit, const struct error *error)
{
    error_set(&commit->op.error, CHXA_E_BLOCKED, "%s", error_message(error));
    op_goto(&commit->op, "block");
}

/* The table is gone, or is none that these parts could be in. */
static void target_lost(struct commit *commit, const struct error *error)
{
    struct op *op = &commit->op;
    commit->refused = true;
    if (commit->obey) {
        op_goto(op, "target");
    } else if (op->txn->record.discarding) {
        error_set(&op->error, CHXA_E_BLOCKED, "%s", error_message(error));
        op_goto(op, "discard");
    } else {
        block_because(commit, error);
    }
}

/* The root of a disk that holds parts but none of the table any more; NULL: there is none. */
static const char *lost_disk(const struct commit *commit)
{
    for (size_t i = 0; i < commit->n_parts; i++)
        if (commit->table_paths[commit->parts[i].disk] == NULL)
            return commit->targets[commit->at]->roots[commit->parts[i].disk];
    return NULL;
}

static void commit_checked(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct commit *commit = arg;
    struct op *op = &commit->op;
    const struct chxa_target *target = commit->targets[commit->at];
    if (code == CHXA_E_CLICKHOUSE_UNAVAILABLE || code == CHXA_E_CLICKHOUSE_UNKNOWN) {
        commit_wait_for_clickhouse(commit, error);
        return;
    }
    if (code == CHXA_E_TARGET_NOT_FOUND || code == CHXA_E_TARGET_UNSUPPORTED) {
        target_lost(commit, error);
        return;
    }
    if (code) {
        block_because(commit, error);
        return;
    }
    for (size_t i = 0; commit->table_paths && i < commit->n_paths; i++)
        free(commit->table_paths[i]);
    free(commit->table_paths);
    commit->table_paths = table_paths_by_root(table, target);
    commit->n_paths = target->n_roots;
    commit->replicated = table->replicated;
    const char *lost = lost_disk(commit);
    if (lost) {
        error_set(error, CHXA_E_BLOCKED, "%s.%s is no longer on the disk at %s", target->database,
                  target->table, lost);
        target_lost(commit, error);
        return;
    }
    commit->refused = txn_check_schema(op->txn, target, table, &op->error) != 0;
    op_next(op);
}

static void commit_check(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    table_cache_load(op->coord->tables, &op->coord->caps,
                     commit->doubted ? TABLE_ANEW : TABLE_KNOWN, target->database, target->table,
                     op->coord->config.clickhouse_timeout_ms, commit_checked, commit);
}

/* ---- look ---- */

struct part_facts txn_part_facts(const struct part_place *place)
{
    return (struct part_facts){
        .held = place->held,
        .marker = place->marker,
        .sent = place->sent,
        .detached = place->detached,
        .displaced = place->attaching || place->ignored,
        .active = place->active != NULL,
        .handed = place->kept && !place->out,
    };
}

/* The name under which a clone stands in the table is what ZooKeeper can be asked for, also when
 * the clone is gone. Best effort. */
static void note_seen(struct commit *commit, size_t i, struct error *error)
{
    const struct chxa_part *part = &commit->parts[i];
    const struct part_place *place = &commit->places[i];
    if (!place->kept || commit->sure[i] || place->active == NULL ||
        (place->seen && strcmp(place->seen, place->active) == 0))
        return;
    held_note_seen(commit->targets[commit->at]->roots[part->disk], commit->xid, part, place->active,
                   error);
}

static void plan_part(struct commit *commit, size_t i)
{
    commit->todo[i] =
        commit->given_up[i] ? PART_DONE : part_plan(txn_part_facts(&commit->places[i]));
}

/* On a worker thread, like every *_work here: the record's writes do not change any more, and this
 * operation waits. */
static void look_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    for (size_t i = 0; i < commit->n_parts; i++)
        part_place_clear(&commit->places[i]);
    op->work_code =
        part_places_read(commit->xid, commit->parts, commit->n_parts, commit->table_paths,
                         target->roots, target->n_roots, commit->places, &op->work_error);
    for (size_t i = 0; op->work_code == 0 && i < commit->n_parts; i++) {
        plan_part(commit, i);
        if (commit->rejected || op->kind->steps[op->at].run == commit_look)
            note_seen(commit, i, &op->work_error);
    }
}

/* The next parts to attach, in write order, as many as one ALTER takes. Returns the first vanished
 * part's index, or n_parts when none has. */
static size_t choose_batch(struct commit *commit)
{
    size_t bytes = 0;
    commit->n_batch = 0;
    for (size_t i = 0; i < commit->n_parts; i++) {
        if (commit->todo[i] == PART_VANISHED)
            return i;
        if (commit->todo[i] == PART_DONE || commit->todo[i] == PART_DOUBTED)
            continue;
        bytes += strlen(commit->parts[i].name) + sizeof "ATTACH PART '', ";
        size_t most = commit->one_by_one ? 1 : commit->op.coord->config.attach_parts_max;
        if (commit->n_batch == most || bytes > ALTER_BYTES_MAX)
            continue; /* later parts may still have vanished: look at all */
        commit->batch[commit->n_batch++] = i;
    }
    return commit->n_parts;
}

static void block_vanished(struct commit *commit, size_t first)
{
    const struct chxa_target *target = commit->targets[commit->at];
    size_t n = 0;
    for (size_t i = first; i < commit->n_parts; i++)
        n += commit->todo[i] == PART_VANISHED;
    error_set(&commit->op.error, CHXA_E_BLOCKED,
              "hazard: %zu parts for %s.%s are neither held nor detached nor attached, the first "
              "is %s (%llu "
              "rows)",
              n, target->database, target->table, commit->parts[first].name,
              (unsigned long long)commit->parts[first].rows);
    op_goto(&commit->op, "retreat");
}

bool commit_work_failed(struct op *op)
{
    if (op->work_code == 0)
        return false;
    block_because((struct commit *)op, &op->work_error);
    return true;
}

static bool all_active(const struct commit *commit)
{
    for (size_t i = 0; i < commit->n_parts; i++)
        if (commit->places[i].active == NULL && !commit->given_up[i])
            return false;
    return true;
}

static void commit_looked(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (commit_work_failed(op))
        return;
    if (commit->obey || (commit->refused && !all_active(commit))) {
        /* It may not even be the table that the parts were moved to: absence proves nothing here. */
        op_goto(op, "retreat");
        return;
    }
    size_t vanished = choose_batch(commit);
    if (vanished < commit->n_parts)
        block_vanished(commit, vanished);
    else if (commit->n_batch == 0)
        op_goto(op, "confirm");
    else
        op_next(op);
}

static void commit_look(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    bool seen = commit->seen && !commit->refused && !commit->obey;
    commit->seen = false;
    if (seen) {
        choose_batch(commit); /* none has vanished: commit_verified */
        op_goto(op, commit->n_batch ? "mend" : "confirm");
    } else {
        op_blocking(op, look_work, commit_looked);
    }
}

/* ---- mend ---- */

static void mend_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    for (size_t i = 0; op->work_code == 0 && i < commit->n_batch; i++) {
        const struct chxa_part *part = &commit->parts[commit->batch[i]];
        const struct part_place *place = &commit->places[commit->batch[i]];
        if (commit->todo[commit->batch[i]] != PART_RENAME)
            continue;
        char *attaching = mem_printf("attaching_%s", part->name);
        struct chxa_part moved = *part;
        moved.inode = place->inode;
        op->work_code =
            detached_rename(commit->table_paths[part->disk],
                            place->attaching ? attaching : place->ignored, &moved, &op->work_error);
        free(attaching);
    }
}

void commit_worked(struct op *op)
{
    if (!commit_work_failed(op))
        op_next(op);
}

bool commit_batch_has(const struct commit *commit, enum part_todo todo)
{
    for (size_t i = 0; i < commit->n_batch; i++)
        if (commit->todo[commit->batch[i]] == todo)
            return true;
    return false;
}

static void commit_mend(struct op *op)
{
    if (!commit_batch_has((struct commit *)op, PART_RENAME)) {
        op_next(op);
        return;
    }
    op_blocking(op, mend_work, commit_worked);
    op_sent(op);
}

/* ---- verify ---- */

static bool is_nowhere(const struct part_place *place)
{
    return !place->active && !place->detached && !place->attaching && !place->ignored &&
           !place->held;
}

/*
 * ClickHouse attaches in the order of the ALTER and ends it at the first part that it cannot
 * attach. All of the batch were in detached/ before it, so what is nowhere now, from the refused
 * part on, was taken away there and is not attached, though its marker would say so: `retreat`
 * removes the marker. Without a name in the refusal, the refused part is behind the last attached.
 */
static void find_stolen(struct commit *commit)
{
    size_t refused = 0;
    for (size_t i = 0; i < commit->n_batch; i++)
        if (commit->places[commit->batch[i]].active)
            refused = i + 1;
    for (size_t i = 0; i < commit->n_batch; i++)
        if (strstr(commit->rejection, commit->parts[commit->batch[i]].name))
            refused = i;
    for (size_t i = refused; i < commit->n_batch; i++)
        if (is_nowhere(&commit->places[commit->batch[i]]))
            commit->todo[commit->batch[i]] = PART_VANISHED;
}

/* ClickHouse says that it attached all of the batch. What lies in detached/ all the same was
 * swallowed by deduplication. */
static void trust_answer(struct commit *commit)
{
    for (size_t i = 0; i < commit->n_batch; i++) {
        size_t at = commit->batch[i];
        if (commit->todo[at] == PART_DOUBTED)
            commit->todo[at] = PART_DONE;
        commit->sure[at] = commit->todo[at] == PART_DONE;
    }
}

static void commit_verified(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (commit_work_failed(op))
        return;
    if (commit->rejected)
        find_stolen(commit);
    else
        trust_answer(commit);
    size_t left = 0;
    for (size_t i = 0; i < commit->n_batch; i++)
        left += commit->todo[commit->batch[i]] != PART_DONE;
    size_t vanished = choose_batch(commit); /* what the next ALTER would take */
    if (vanished < commit->n_parts) {
        block_vanished(commit, vanished);
    } else if (left == 0) {
        commit->blocks = 0;
        commit->seen = !commit->replicated;
        commit->settled = commit->n_batch ? "check" : "confirm";
        op_goto(op, "settle");
    } else if (!commit->rejected && !commit->no_dedup && op->coord->caps.has_insert_deduplicate) {
        log_warn("ATTACH was swallowed by deduplication", "xid=%s parts=%zu", commit->xid, left);
        commit->no_dedup = true;
        op_goto(op, "look");
    } else {
        if (!commit->rejected)
            error_set(&op->error, CHXA_E_BLOCKED,
                      "ClickHouse accepted the ATTACH, but %zu parts stayed in detached/", left);
        op_goto(op, "retreat");
    }
}

/* The parts that were asked for. The others stand where the look found them: nobody but this operation and its
 * ALTER moves them, and the next batch is moved only from where it is expected. */
static void verify_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    struct chxa_part *parts = mem_array(commit->n_batch, sizeof *parts);
    struct part_place *places = mem_array(commit->n_batch, sizeof *places);
    for (size_t i = 0; i < commit->n_batch; i++)
        parts[i] = commit->parts[commit->batch[i]];
    op->work_code = part_places_read(commit->xid, parts, commit->n_batch, commit->table_paths,
                                     target->roots, target->n_roots, places, &op->work_error);
    for (size_t i = 0; op->work_code == 0 && i < commit->n_batch; i++) {
        size_t at = commit->batch[i];
        part_place_clear(&commit->places[at]);
        commit->places[at] = places[i];
        plan_part(commit, at);
    }
    free(places);
    free(parts);
}

/* After a refusal all is looked at anew; and so is all of a replica, which may have moved more. */
static void commit_verify(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    bool all = commit->rejected || commit->replicated;
    op_blocking(op, all ? look_work : verify_work, commit_verified);
}

/* ---- retreat, block ---- */

/* Best effort: what cannot be moved back stays in detached/, where the next look finds it. */
static void retreat_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    for (size_t i = 0; i < commit->n_parts; i++) {
        const struct chxa_part *part = &commit->parts[i];
        const struct part_place *place = &commit->places[i];
        char *attaching = mem_printf("attaching_%s", part->name);
        const char *from = place->detached    ? part->name
                           : place->attaching ? attaching
                                              : place->ignored;
        if (commit->todo[i] == PART_VANISHED && place->sent)
            op->work_code = held_unmark(target->roots[part->disk], commit->xid, part,
                                        op->coord->config.fsync, &op->work_error);
        if (from != NULL)
            op->work_code = held_move_back(target->roots[part->disk], commit->xid, part,
                                           commit->table_paths[part->disk], from, &op->work_error);
        free(attaching);
    }
}

static void commit_retreated(struct op *op)
{
    if (op->work_code)
        log_warn("a blocked part could not be moved back", "xid=%s error=\"%s\"", txn_xid(op->txn),
                 error_message(&op->work_error));
    if (((struct commit *)op)->obey)
        op_goto(op, "target");
    else if (op->work_code == 0 && op->txn->record.discarding)
        op_goto(op, "discard");
    else
        op_next(op);
}

static void commit_retreat(struct op *op)
{
    op_blocking(op, retreat_work, commit_retreated);
    op_sent(op);
}

static void blocked_told(struct commit *commit)
{
    struct error blocked = {0};
    error_set(&blocked, CHXA_E_BLOCKED, "the commit is decided but blocked: %s", commit->block);
    txn_answer_error(commit->op.txn, TXN_COMMIT, &blocked);
    error_clear(&blocked);
    commit->unsure = true;
    if (commit->op.txn->discard_asked) /* while this try was under way */
        op_retry(&commit->op, commit->targets ? "quiet" : "target", 0);
    else
        commit_wait_and_retry(commit, commit->targets ? "quiet" : "target");
}

static void block_reloaded(struct op *op, int code)
{
    struct commit *commit = (struct commit *)op;
    if (code == 0 && op->txn->record.state == CHXA_COMMITTED) {
        commit_restart(commit);
        return;
    }
    if (code == 0)
        commit_forget_targets(commit);
    blocked_told(commit);
}

/* A reason that could not be stored is told, and stored at the next try. */
static void commit_blocked(struct op *op, int code)
{
    if (code == CHXA_E_STORE_CONFLICT || code == CHXA_E_STORE_UNKNOWN)
        txn_reload(op, block_reloaded);
    else
        blocked_told((struct commit *)op);
}

static void commit_block(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_record *record = &op->txn->record;
    const char *reason = error_message(&op->error);
    if (commit->obey) {
        log_warn("what an operator gave up cannot be set aside yet", "xid=%s reason=\"%s\"",
                 txn_xid(op->txn), reason);
        commit_wait_and_retry(commit, "quiet");
        return;
    }
    bool news = commit->block == NULL || strcmp(commit->block, reason) != 0;
    mem_replace(&commit->block, reason);
    if (record->blocked && record->reason && strcmp(record->reason, reason) == 0) {
        blocked_told(commit);
        return;
    }
    if (news)
        log_error("commit blocked", "xid=%s reason=\"%s\"", txn_xid(op->txn), reason);
    txn_store_state(op, CHXA_COMMITTING, commit->block, true, commit_blocked);
}

/* ---- record ---- */

static void commit_reloaded(struct op *op, int code)
{
    struct commit *commit = (struct commit *)op;
    if (code == 0) {
        commit_restart(commit);
        return;
    }
    /* What was given up is forgotten with the targets: not "record", which would not tell it. */
    commit_forget_targets(commit);
    commit->unsure = true;
    commit_wait_and_retry(commit, "target");
}

static void commit_recorded(struct op *op, int code)
{
    if (code == 0) {
        op_next(op);
        return;
    }
    txn_note(op->txn, "recording Committed: %s", chxa_error_text(code));
    if (code == CHXA_E_STORE_CONFLICT || code == CHXA_E_STORE_UNKNOWN)
        txn_reload(op, commit_reloaded);
    else
        commit_wait_and_retry((struct commit *)op, "record");
}

static void commit_record(struct op *op)
{
    txn_store_amended(op, CHXA_COMMITTED, NULL, false, commit_outcome, commit_recorded);
}

static void commit_finished(struct op *op, int code)
{
    txn_op_finished(op->txn, op, TXN_COMMIT, code);
}

static void commit_release(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    target_done(commit);
    for (size_t i = 0; i < commit->n_sync_paths; i++)
        free(commit->sync_paths[i]);
    for (size_t i = 0; i < commit->n_roots; i++)
        free(commit->roots[i]);
    free(commit->sync_paths);
    free(commit->lost);
    free(commit->roots);
    free(commit->targets);
    free(commit->rejection);
    free(commit->xid);
    free(commit->block);
    free(commit);
}
