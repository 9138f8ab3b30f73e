/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit's last steps on disk, before Committed is recorded and after it. See commit.c for the
 * steps around these.
 */
#include "op/commit_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CLEAR_TRIES    3u
#define CLEAR_RETRY_MS 20u

/* ---- sync ---- */

/* A folder that is gone was dropped with its table, after the parts were seen in it. */
static int sync_if_there(const char *path, struct error *error)
{
    struct stat status;
    if (stat(path, &status) != 0 && errno == ENOENT)
        return 0;
    return dir_sync(path, error);
}

static void sync_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    for (size_t i = 0; op->work_code == 0 && i < commit->n_sync_paths; i++) {
        char *detached = mem_printf("%s/detached", commit->sync_paths[i]);
        op->work_code = sync_if_there(commit->sync_paths[i], &op->work_error);
        if (op->work_code == 0)
            op->work_code = sync_if_there(detached, &op->work_error);
        free(detached);
    }
}

/* Behind the last target there is none to go back to: only the sync is tried again. */
static void commit_synced(struct op *op)
{
    if (op->work_code == 0) {
        txn_note(op->txn, NULL);
        op_next(op);
        return;
    }
    txn_note(op->txn, "making the tables' folders durable: %s", error_message(&op->work_error));
    commit_wait_and_retry((struct commit *)op, NULL);
}

void commit_sync(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (commit->obey) {
        op_goto(op, "clear");
        return;
    }
    if (commit->n_sync_paths == 0 || !op->coord->config.fsync) {
        op_next(op);
        return;
    }
    op_blocking(op, sync_work, commit_synced);
    op_sent(op);
}

/* ---- clear ---- */

static void clear_work(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    op->work_code =
        commit->obey || commit->n_lost || op->txn->record.n_discarded
            ? commit_set_aside(commit, &op->work_error)
            : held_remove(commit->xid, commit->roots, commit->n_roots, false, &op->work_error);
}

/* Without hurry: what stays is removed when the node starts again. */
static void commit_cleared(struct op *op)
{
    if (op->work_code && op->tries < CLEAR_TRIES) {
        op_retry(op, NULL, CLEAR_RETRY_MS);
        return;
    }
    if (op->work_code)
        log_warn("the folder of a committed transaction could not be removed",
                 "xid=%s error=\"%s\"", txn_xid(op->txn), error_message(&op->work_error));
    op_next(op);
}

void commit_clear(struct op *op)
{
    struct commit *commit = (struct commit *)op;
    if (commit->roots == NULL)
        commit->roots = txn_roots(op->txn, false, &commit->n_roots);
    if (commit->n_roots == 0) {
        op_next(op);
        return;
    }
    op_blocking(op, clear_work, commit_cleared);
    op_sent(op);
}
