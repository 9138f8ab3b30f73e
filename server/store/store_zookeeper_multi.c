/* SPDX-License-Identifier: Apache-2.0
 *
 * Multis: building one, and changes of several runs that travel in one.
 *
 * A change is the multi that one request needs (check of our epoch, record, index, sink), and an
 * answer of its own. While fewer than ZK_MULTIS_OUT are out it is sent at once; what comes while
 * that many are out waits, and goes in one multi as soon as one of them is answered: the check of
 * the epoch once, then each change's other operations in their order. So a busy node costs
 * ZooKeeper a proposal, and itself a round trip, for many changes; an idle one waits for nothing.
 *
 * Outcomes
 *   done            of all: the multi is atomic
 *   refused         none was done. The one whose operation it was is answered so; the others are
 *                   sent again, unless they were answered meanwhile (deadline): those before it
 *                   together, nothing was wrong with them, and those behind it together
 *   epoch refused   of all
 *   unknown         of all, as if each had been out alone
 *
 * A change that was answered while it waited is not sent: what is told to be not done never is. One
 * that was answered UNKNOWN is not sent again, so who reads back behind it sees the end of it.
 *
 * Invariants
 *   - A waiting change's run is not `sent`; one that is to be sent again is not any more.
 *   - A change is in zk->changes, or in the batch of one call, or was posted as unsent.
 *   - Those in one multi began on that multi's handle, with the same epoch.
 */
#include "store/store_zookeeper.h"

#include "base/mem.h"
#include "base/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OP_BYTES        64u           /* of an operation besides path and data, generously */
#define BATCH_BYTES_MAX (256u * 1024) /* far below the 1 MiB that a stock server takes */
#define BATCH_MAX       64u           /* changes in one multi */

/* ---- multis ---- */

struct zk_multi *zk_multi_new(void)
{
    return mem_alloc(sizeof(struct zk_multi));
}

void zk_multi_free(struct zk_multi *multi)
{
    if (multi == NULL)
        return;
    for (int i = 0; i < multi->n_ops; i++)
        free(multi->paths[i]);
    free(multi->paths);
    free(multi->ops);
    free(multi->sink_text);
    free(multi);
}

static zoo_op_t *multi_add(struct zk_multi *multi, char *path, size_t data_bytes)
{
    assert(multi->n_ops < ZK_MULTI_MAX);
    if (multi->n_ops == multi->cap) {
        multi->cap = multi->cap ? multi->cap * 4 : 4; /* a change has three or four */
        multi->ops = mem_realloc(multi->ops, (size_t)multi->cap * sizeof *multi->ops);
        multi->paths = mem_realloc(multi->paths, (size_t)multi->cap * sizeof *multi->paths);
    }
    multi->bytes += OP_BYTES + strlen(path) + data_bytes;
    multi->paths[multi->n_ops] = path;
    return &multi->ops[multi->n_ops++];
}

void zk_multi_create(struct zk_multi *multi, char *path, const char *data, size_t data_bytes,
                     int flags)
{
    zoo_create_op_init(multi_add(multi, path, data_bytes), path, data, (int)data_bytes,
                       &ZOO_OPEN_ACL_UNSAFE, flags, NULL, 0);
}

void zk_multi_set(struct zk_multi *multi, char *path, const char *data, size_t data_bytes,
                  int32_t version)
{
    zoo_set_op_init(multi_add(multi, path, data_bytes), path, data, (int)data_bytes, version, NULL);
}

void zk_multi_delete(struct zk_multi *multi, char *path, int32_t version)
{
    zoo_delete_op_init(multi_add(multi, path, 0), path, version);
}

void zk_multi_check(struct zk_multi *multi, char *path, int32_t version)
{
    zoo_check_op_init(multi_add(multi, path, 0), path, version);
}

/* ---- the session's own ---- */

void zk_call_multi(struct zk_call *call, struct zk_multi *multi)
{
    zk_call_ops(call, multi->ops, multi->n_ops);
    zk_multi_free(multi);
}

/* ---- changes that share one ---- */

struct zk_batch {
    size_t n_changes;
    struct zk_call *changes[BATCH_MAX];
};

/* Not any more: it was answered, or its session is not this one. */
static bool may_be_sent(const struct zk_call *change)
{
    const struct zk_handle *handle = change->zk->handle;
    return change->run->op && handle && handle->connected &&
           change->run->generation == handle->generation;
}

static bool fits(const struct zk_batch *batch, const struct zk_multi *all,
                 const struct zk_call *change)
{
    if (batch->n_changes == 0)
        return true;
    const struct zk_call *first = batch->changes[0];
    return batch->n_changes < BATCH_MAX && first->group == change->group &&
           all->n_ops + change->multi->n_ops <= ZK_MULTI_MAX &&
           all->bytes + change->multi->bytes <= BATCH_BYTES_MAX &&
           change->multi->ops[0].check_op.version == all->ops[0].check_op.version;
}

/* Its operations behind the others'; paths and data stay the change's. */
static void take(struct zk_batch *batch, struct zk_multi *all, struct zk_call *change)
{
    const struct zk_multi *multi = change->multi;
    int first = batch->n_changes ? 1 : 0; /* the epoch is checked once */
    int n = multi->n_ops - first;
    if (all->n_ops + n > all->cap) {
        all->cap = (all->n_ops + n) * 2;
        all->ops = mem_realloc(all->ops, (size_t)all->cap * sizeof *all->ops);
    }
    memcpy(&all->ops[all->n_ops], &multi->ops[first], (size_t)n * sizeof *all->ops);
    all->n_ops += n;
    all->bytes += multi->bytes;
    batch->changes[batch->n_changes++] = change;
    if (change->decides)
        change->run->sent = true;
}

static void batch_answered(struct zk_call *call);

static void batch_send(struct zk_store *zk)
{
    struct zk_batch *batch = mem_alloc(sizeof *batch);
    struct zk_multi all = {0};
    struct zk_call *change;
    while ((change = TAILQ_FIRST(&zk->changes)) != NULL) {
        bool good = may_be_sent(change);
        if (good && !fits(batch, &all, change))
            break;
        TAILQ_REMOVE(&zk->changes, change, change_link);
        if (good)
            take(batch, &all, change);
        else
            zk_call_unsent(change);
    }
    if (batch->n_changes == 0) {
        free(batch);
        return;
    }
    struct zk_call *call = zk_call_new(zk, NULL, batch_answered);
    call->batch = batch;
    zk_call_ops(call, all.ops, all.n_ops);
    if (!call->unsent) {
        call->handle->n_multis++;
        metrics_count(METRIC_store_commits_total, 1, NULL, NULL);
    }
    free(all.ops);
}

void zk_changes_flush(struct zk_store *zk)
{
    while (!zk->gathering && !TAILQ_EMPTY(&zk->changes) &&
           (zk->handle == NULL || zk->handle->n_multis < ZK_MULTIS_OUT))
        batch_send(zk);
}

void zk_change_send(struct zk_call *call, struct zk_multi *multi, bool decides)
{
    call->multi = multi;
    call->decides = decides;
    TAILQ_INSERT_TAIL(&call->zk->changes, call, change_link);
    zk_changes_flush(call->zk);
}

/* ---- the answer ---- */

/* Refused with a multi in which it was not to blame: nothing of it was done. */
static void change_again(struct zk_call *change, uint64_t group, struct zk_changes *ret_again)
{
    change->group = group;
    change->run->sent = false;
    TAILQ_INSERT_TAIL(ret_again, change, change_link);
}

static void change_answered(struct zk_call *change, const struct zk_call *call, int failed)
{
    change->rc = call->rc;
    change->unsent = call->unsent;
    change->handle = call->handle;
    change->failed = call->rc == ZOK ? -1 : failed;
    zk_call_arrived(change);
}

static void batch_answered(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    struct zk_batch *batch = call->batch;
    struct zk_changes again = TAILQ_HEAD_INITIALIZER(again);
    bool refused = call->rc != ZOK && !call->unsent && !zk_rc_unknown(call->rc);
    bool to_one = refused && batch->n_changes > 1 && call->failed != 0;
    uint64_t group = zk->n_groups + 1; /* the first new one; where none is to blame, one for each */
    if (!call->unsent)
        call->handle->n_multis--;
    zk->gathering = true;
    zk->n_groups += batch->n_changes + 1;
    int at = 1; /* where the next change's own operations begin */
    for (size_t i = 0; i < batch->n_changes; i++) {
        struct zk_call *change = batch->changes[i];
        int n = change->multi->n_ops - 1;
        bool blamed = call->failed >= at && call->failed < at + n;
        if (to_one && !blamed)
            change_again(change, group + (call->failed < 0 ? i : (size_t)(at > call->failed)),
                         &again);
        else
            change_answered(change, call, blamed ? call->failed - at + 1 : call->failed);
        at += n;
    }
    TAILQ_CONCAT(&again, &zk->changes, change_link); /* before those that came later */
    TAILQ_CONCAT(&zk->changes, &again, change_link);
    zk->gathering = false;
    free(batch);
    zk_changes_flush(zk);
}
