/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit: the ALTER that attaches a batch, and the note before it. See commit.c for the steps around
 * these.
 *
 * A part that is nowhere was attached and then merged into another, or somebody deleted it. The
 * marker tells which: while it only says "moved", ClickHouse was never asked for the part, and it
 * is lost. So the markers of a batch say "sent", durably (one fsync for all of it), before the
 * ALTER goes out. What is deleted from detached/ within the ALTER itself ClickHouse complains of
 * (find_stolen), unless it dies in it.
 */
#include "op/commit_private.h"

#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>

/* ---- send ---- */

static int send_disk(struct commit *commit, uint32_t disk, uint64_t *numbers, struct error *error)
{
    size_t n = 0;
    for (size_t i = 0; i < commit->n_batch; i++)
        if (commit->parts[commit->batch[i]].disk == disk)
            numbers[n++] = commit->parts[commit->batch[i]].number;
    if (n == 0)
        return 0;
    return held_note_sent(commit->targets[commit->at]->roots[disk], commit->xid, numbers, n,
                          commit->op.coord->config.fsync, error);
}

/* On a worker thread. */
static void send_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    size_t n_disks = commit->targets[commit->at]->n_roots;
    uint64_t *numbers = mem_array(commit->n_batch, sizeof *numbers);
    for (size_t disk = 0; op->work_code == 0 && disk < n_disks; disk++)
        op->work_code = send_disk(commit, (uint32_t)disk, numbers, &op->work_error);
    free(numbers);
}

static void commit_noted(struct op *op)
{
    if (!commit_work_failed(op))
        op_next(op);
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
    op_blocking(op, send_work, commit_noted);
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
