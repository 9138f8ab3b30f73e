/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit: the ALTER that attaches a batch, and what goes before it: markers and moves. See commit.c for
 * the steps around these.
 *
 * A part that is nowhere was attached and then merged into another, or somebody deleted it. The
 * marker tells which: while it only says "moved", ClickHouse was never asked for the part, and it
 * is lost. So the marker of a batch says "sent", durably, before the ALTER goes out. What is deleted from
 * detached/ within the ALTER itself ClickHouse complains of (find_stolen), unless it dies in it.
 *
 * A batch has one marker on each disk, whose name tells the numbers from its first part to its last
 * (core/part_run.h): as a rule they are those of this transaction without a gap. Where the record
 * has another part between them, which is not in the batch, the marker ends before it and another begins
 * behind it, so that it never says "sent" of a part that ClickHouse was not asked for.
 */
#include "op/commit_private.h"

#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

/* ---- runs ---- */

/* Numbers (sorted) of some of the batch's parts on one disk, in as few runs as the other parts of the record
 * leave. */
struct runs {
    struct part_run *runs;
    size_t n_runs;
};

static void break_runs(const struct chxa_record *record, const char *root, const uint64_t *numbers,
                       size_t n, bool *breaks)
{
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_write *write = &record->writes[i];
        for (size_t j = 0; j < write->n_parts; j++) {
            size_t at;
            if (part_run_parted(numbers, n, write->parts[j].number, &at) &&
                strcmp(write->target.roots[write->parts[j].disk], root) == 0)
                breaks[at] = true;
        }
    }
}

/* all: of the whole batch, not only of the parts to be moved. On a worker thread. */
static struct runs batch_runs(const struct commit *commit, uint32_t disk, bool all)
{
    uint64_t *numbers = mem_array(commit->n_batch, sizeof *numbers);
    size_t n = 0;
    for (size_t i = 0; i < commit->n_batch; i++) {
        size_t at = commit->batch[i];
        if (commit->parts[at].disk == disk && (all || commit->todo[at] == PART_MOVE))
            numbers[n++] = commit->parts[at].number;
    }
    struct runs runs = {0};
    if (n) {
        bool *breaks = mem_array(n, sizeof *breaks);
        part_run_sort(numbers, n);
        break_runs(&commit->op.txn->record, commit->targets[commit->at]->roots[disk], numbers, n,
                   breaks);
        runs.runs = mem_array(n, sizeof *runs.runs);
        runs.n_runs = part_run_make(numbers, n, breaks, runs.runs);
        free(breaks);
    }
    free(numbers);
    return runs;
}

/* ---- mark, move ---- */

/* Shallow copies of the batch's parts to be moved that are on that disk. */
static size_t parts_to_move(const struct commit *commit, size_t disk, struct chxa_part *ret_parts)
{
    size_t n = 0;
    for (size_t i = 0; i < commit->n_batch; i++) {
        const struct chxa_part *part = &commit->parts[commit->batch[i]];
        if (part->disk == disk && commit->todo[commit->batch[i]] == PART_MOVE)
            ret_parts[n++] = *part;
    }
    return n;
}

static int mark_disk(const struct commit *commit, uint32_t disk, struct error *error)
{
    struct runs runs = batch_runs(commit, disk, false);
    int code = held_mark(commit->targets[commit->at]->roots[disk], commit->xid, runs.runs,
                         runs.n_runs, commit->op.coord->config.fsync, error);
    free(runs.runs);
    return code;
}

static void mark_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    struct chxa_part *parts = mem_array(commit->n_batch, sizeof *parts);
    for (size_t disk = 0; op->work_code == 0 && disk < target->n_roots; disk++) {
        const char *root = target->roots[disk];
        size_t n = parts_to_move(commit, disk, parts);
        if (n && commit->replicated)
            op->work_code =
                held_clone(root, commit->xid, parts, n, op->coord->config.fsync, &op->work_error);
        else if (n)
            op->work_code = mark_disk(commit, (uint32_t)disk, &op->work_error);
    }
    free(parts);
}

void commit_mark(struct op *op)
{
    if (!commit_may_act((struct commit *)op))
        return;
    if (!commit_batch_has((struct commit *)op, PART_MOVE)) {
        op_goto(op, "send");
        return;
    }
    op_blocking(op, mark_work, commit_worked);
    op_sent(op);
}

static void move_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    const struct chxa_target *target = commit->targets[commit->at];
    struct chxa_part *parts = mem_array(commit->n_batch, sizeof *parts);
    for (size_t disk = 0; op->work_code == 0 && disk < target->n_roots; disk++) {
        size_t n = parts_to_move(commit, disk, parts);
        if (n)
            op->work_code = held_move_out(target->roots[disk], commit->xid, parts, n,
                                          commit->table_paths[disk], &op->work_error);
    }
    free(parts);
}

void commit_move(struct op *op)
{
    if (!commit_may_act((struct commit *)op))
        return;
    op_blocking(op, move_work, commit_worked);
    op_sent(op);
}

/* ---- send ---- */

static int send_disk(const struct commit *commit, uint32_t disk, struct error *error)
{
    struct runs runs = batch_runs(commit, disk, true);
    if (runs.n_runs == 0)
        return 0;
    int code = held_note_sent(commit->targets[commit->at]->roots[disk], commit->xid, runs.runs,
                              runs.n_runs, commit->op.coord->config.fsync, error);
    free(runs.runs);
    return code;
}

/* On a worker thread. */
static void send_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    size_t n_disks = commit->targets[commit->at]->n_roots;
    for (size_t disk = 0; op->work_code == 0 && disk < n_disks; disk++)
        op->work_code = send_disk(commit, (uint32_t)disk, &op->work_error);
}

/* A replica gets clones, whose rows are held until ZooKeeper has them. */
void commit_send(struct op *op)
{
    if (!commit_may_act((struct commit *)op))
        return;
    if (((struct commit *)op)->replicated) {
        op_next(op);
        return;
    }
    op_blocking(op, send_work, commit_worked);
    op_sent(op);
}

/* ---- attach ---- */

static void commit_attached(void *arg, const struct ch_answer *answer)
{
    struct commit *commit = arg;
    struct op *op = &commit->op;
    commit->rejected = answer->code == CHXA_E_CLICKHOUSE_REJECTED;
    if (answer->code == 0) {
        op_next(op);
    } else if (commit->rejected) {
        mem_replace(&commit->rejection, error_message(answer->error));
        error_move(&op->error, answer->error);
        op_next(op);
    } else {
        commit_wait_for_clickhouse(commit, answer->error);
    }
}

void commit_attach(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (!commit_may_act(commit))
        return;
    const struct chxa_target *target = commit->targets[commit->at];
    struct buf sql = {0};
    commit->tried = commit->batch[0];
    buf_puts(&sql, "ALTER TABLE ");
    sql_table(&sql, target->database, target->table);
    for (size_t i = 0; i < commit->n_batch; i++) {
        buf_puts(&sql, i ? ", ATTACH PART " : " ATTACH PART ");
        sql_string(&sql, commit->parts[commit->batch[i]].name);
    }
    char *query_id = coord_query_id(op->coord, commit->xid, "attach");
    struct ch_param no_dedup = {"insert_deduplicate", "0"};
    struct ch_statement statement = {
        .sql = buf_str(&sql),
        .query_id = query_id,
        .params = &no_dedup,
        .n_params = commit->no_dedup && op->coord->caps.has_insert_deduplicate ? 1 : 0,
        .timeout_ms = op->coord->config.clickhouse_timeout_ms,
    };
    ch_query(op->coord->client, &statement, commit_attached, commit);
    op_sent(op);
    free(query_id);
    buf_clear(&sql);
}
