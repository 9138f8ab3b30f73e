/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepare: Initialized → Prepared; and the same checks for a one-phase commit. Read the tables from
 * top to bottom.
 *
 * What recovery sees after a crash: before "record" was stored the transaction is Initialized as it
 * was (making files durable twice is harmless; one that gathers can only be rolled back then, see gather.h), after it Prepared. After the answer the rows
 * survive a crash of any process and a power cut. Where the disk refused to keep parts they are thrown
 * away (throw_away), and the next prepare finds them gone; after a crash between the refusal and that
 * it finds the note of a sync that was begun, and believes no second fsync of the same files (held_sync).
 */
#include "op/gather.h"
#include "op/txn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct prepare {
    struct op op;
    bool one_phase;
    uint64_t drain_until_ms;
    const struct chxa_target **targets;
    size_t n_targets, at;
    struct chxa_part *parts; /* of the target at `at`; shallow */
    size_t n_parts;
    char **table_paths; /* by root */
    size_t n_paths;
    char *xid;
};

static void prepare_drain(struct op *op);
static void prepare_limits(struct op *op);
static void prepare_check(struct op *op);
static void prepare_sync(struct op *op);
static void prepare_record(struct op *op);

static const struct op_step prepare_steps[] = {
    {"drain",
     prepare_drain}, /* further writes are refused; end what gathers; wait, bounded, for those in flight */
    {"limits", prepare_limits}, /* number of parts in all and per partition */
    {"check", prepare_check},   /* per target: its structure still suits the staged rows */
    {"sync", prepare_sync}, /* per target: every held part is there, and durable; back to check */
    {"record", prepare_record}, /* record Prepared (a one-phase commit decides next instead) */
};

static void prepare_finished(struct op *op, int code);
static void prepare_release(struct op *op);

static const struct op_kind prepare_kind = {
    "prepare",        prepare_steps,   sizeof prepare_steps / sizeof prepare_steps[0],
    prepare_finished, prepare_release,
};

/* The last write wakes it. */
#define DRAIN_POLL_MS 50u

void prepare_start(struct txn *txn, bool one_phase)
{
    struct prepare *prepare = mem_alloc(sizeof *prepare);
    prepare->one_phase = one_phase;
    prepare->xid = mem_strdup(txn_xid(txn));
    prepare->drain_until_ms = clock_monotonic_ms() + txn->coord->config.drain_timeout_ms;
    txn->op = &prepare->op;
    op_start(&prepare->op, &prepare_kind, txn->coord, txn, NULL);
}

bool prepare_runs(const struct txn *txn)
{
    return txn->op && txn->op->kind == &prepare_kind;
}

static void prepare_drain(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    struct txn *txn = op->txn;
    int lost = gather_check(txn, &op->error);
    gather_end(txn);
    if (lost)
        op_end(op, lost);
    else if (txn->writes_in_flight == 0 && txn->stale)
        op_fail(op, CHXA_E_STORE_UNKNOWN, "a write's record has an unknown outcome; try again");
    else if (txn->writes_in_flight == 0)
        op_next(op);
    else if (clock_monotonic_ms() >= prepare->drain_until_ms)
        op_fail(op, CHXA_E_BUSY, "%zu writes are still in flight", txn->writes_in_flight);
    else
        op_retry(op, NULL, DRAIN_POLL_MS);
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The largest number of the target's parts in one partition; *ret_id names it. */
static size_t fullest_partition(const struct chxa_part *parts, size_t n_parts, const char **ret_id)
{
    char **ids = mem_array(n_parts, sizeof *ids);
    for (size_t i = 0; i < n_parts; i++)
        ids[i] = parts[i].partition_id;
    qsort(ids, n_parts, sizeof *ids, compare_ids);
    size_t most = 0, run = 0;
    for (size_t i = 0; i < n_parts; i++) {
        run = i && strcmp(ids[i], ids[i - 1]) == 0 ? run + 1 : 1;
        if (run > most) {
            most = run;
            *ret_id = ids[i];
        }
    }
    free(ids);
    return most;
}

static void prepare_limits(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    const struct coord_config *config = &op->coord->config;
    prepare->targets = txn_targets(op->txn, &prepare->n_targets);
    for (size_t i = 0; i < prepare->n_targets; i++) {
        size_t n_parts;
        const char *id = "";
        struct chxa_part *parts = txn_target_parts(op->txn, prepare->targets[i], &n_parts);
        size_t most = fullest_partition(parts, n_parts, &id);
        free(parts);
        if (most > config->parts_per_partition_max) {
            op_fail(
                op, CHXA_E_TOO_MANY_PARTS,
                "%zu parts in partition %s of %s.%s, at most %zu (parts_per_partition_max): write "
                "larger batches",
                most, id, prepare->targets[i]->database, prepare->targets[i]->table,
                config->parts_per_partition_max);
            return;
        }
    }
    if (prepare->n_targets == 0)
        op_goto(op, "record");
    else
        op_next(op);
}

static void target_done(struct prepare *prepare)
{
    for (size_t i = 0; prepare->table_paths && i < prepare->n_paths; i++)
        free(prepare->table_paths[i]);
    free(prepare->table_paths);
    free(prepare->parts);
    prepare->table_paths = NULL;
    prepare->parts = NULL;
}

/* A materialized view that was made since the rows were staged would silently go without them. (Only this process
 * knows which writes said views=skip.) */
static int check_views(const struct prepare *prepare, const struct ch_table *now,
                       struct error *error)
{
    const struct txn_target *seen = txn_find_target(prepare->op.txn, prepare->targets[prepare->at]);
    if (seen == NULL || !seen->no_views || now->n_views == 0)
        return 0;
    return error_set(error, CHXA_E_SCHEMA_CHANGED,
                     "%s.%s has got a materialized view (%s) after rows were staged, which a "
                     "commit would not fire",
                     now->database, now->table, now->views[0]);
}

static void prepare_checked(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct prepare *prepare = arg;
    struct op *op = &prepare->op;
    const struct chxa_target *target = prepare->targets[prepare->at];
    if (code == 0) {
        code = txn_check_schema(op->txn, target, table, &op->error);
        code = code ? code : check_views(prepare, table, &op->error);
    } else if (code == CHXA_E_TARGET_NOT_FOUND) {
        error_set(&op->error, code = CHXA_E_SCHEMA_CHANGED, "%s.%s no longer exists",
                  target->database, target->table);
    } else if (code == CHXA_E_CLICKHOUSE_UNKNOWN) { /* a question has no effect: ask again */
        error_set(&op->error, code = CHXA_E_CLICKHOUSE_UNAVAILABLE, "%s", error_message(error));
    } else {
        error_move(&op->error, error);
    }
    if (code) {
        op_end(op, code);
        return;
    }
    prepare->table_paths = table_paths_by_root(table, target);
    prepare->n_paths = target->n_roots;
    op_next(op);
}

static void prepare_check(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    const struct chxa_target *target = prepare->targets[prepare->at];
    prepare->parts = txn_target_parts(op->txn, target, &prepare->n_parts);
    const struct txn_target *seen = txn_find_target(op->txn, target);
    table_cache_load(op->coord->tables, &op->coord->caps,
                     seen && seen->no_views ? TABLE_VIEWS : TABLE_KNOWN, target->database,
                     target->table, op->coord->config.clickhouse_timeout_ms, prepare_checked,
                     prepare);
}

/* What a disk refused to keep is thrown away: the next prepare, after a restart too, must find it gone
 * rather than believe a second fsync. The transaction is Initialized: nothing was promised. */
static void throw_away(struct prepare *prepare, const struct chxa_target *target)
{
    struct error error = {0};
    if (held_remove(prepare->xid, target->roots, target->n_roots, false, &error) != 0)
        log_error("held parts that are not durable cannot be removed", "xid=%s error=\"%s\"",
                  prepare->xid, error_message(&error));
    error_clear(&error);
}

/* On a worker thread: the record's writes are still, for further writes are refused. */
static void sync_work(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    const struct chxa_target *target = prepare->targets[prepare->at];
    const struct coord_config *config = &op->coord->config;
    if (prepare->n_parts == 0)
        return;
    struct part_place *places = mem_array(prepare->n_parts, sizeof *places);
    op->work_code =
        part_places_read(prepare->xid, prepare->parts, prepare->n_parts, prepare->table_paths,
                         target->roots, target->n_roots, places, &op->work_error);
    for (size_t i = 0; op->work_code == 0 && i < prepare->n_parts; i++)
        if (!places[i].held)
            op->work_code = error_set(
                &op->work_error, CHXA_E_PARTS_LOST,
                "held part %llu of %s.%s is gone from disk; roll back and replay",
                (unsigned long long)prepare->parts[i].number, target->database, target->table);
    if (op->work_code == 0 && config->fsync) {
        op->work_code = held_sync(prepare->xid, target->roots, target->n_roots, prepare->parts,
                                  prepare->n_parts, config->sync_files_max, &op->work_error);
        if (op->work_code == CHXA_E_PARTS_LOST)
            throw_away(prepare, target);
    }
    for (size_t i = 0; i < prepare->n_parts; i++)
        part_place_clear(&places[i]);
    free(places);
}

static void prepare_synced(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    if (op->work_code) {
        error_move(&op->error, &op->work_error);
        op_end(op, op->work_code);
        return;
    }
    target_done(prepare);
    if (++prepare->at < prepare->n_targets)
        op_goto(op, "check");
    else
        op_next(op);
}

static void prepare_sync(struct op *op)
{
    op_blocking(op, sync_work, prepare_synced);
    op_sent(op);
}

static void prepare_recorded(struct op *op, int code)
{
    if (code)
        op_end(op, code);
    else
        op_next(op);
}

static void prepare_record(struct op *op)
{
    if (((struct prepare *)op)->one_phase)
        op_next(op);
    else
        txn_store_state(op, CHXA_PREPARED, NULL, false, prepare_recorded);
}

static void prepare_finished(struct op *op, int code)
{
    struct prepare *prepare = (struct prepare *)op;
    if (code == 0 && prepare->one_phase)
        commit_start(op->txn, false);
    else
        txn_op_finished(op->txn, op, prepare->one_phase ? TXN_COMMIT : TXN_PREPARE, code);
}

static void prepare_release(struct op *op)
{
    struct prepare *prepare = (struct prepare *)op;
    target_done(prepare);
    free(prepare->targets);
    free(prepare->xid);
    free(prepare);
}
