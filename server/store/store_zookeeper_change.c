/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes in ZooKeeper: create, cas, abandon, add_write, remove, sink_raise. Each is decided by one multi,
 * whose operation 0 checks our epoch. A multi that was refused tells which operation failed; what
 * that means is in the _sent functions. A refusal for the index's sake (it is kept as the multi
 * goes, and the record's former state is not known here) is answered by the same multi with another
 * index operation.
 */
#include "store/store_zookeeper.h"

#include "base/buf.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REMOVE_MAX 500u /* children that one multi deletes */
#define OP_EPOCH   0    /* the first operation of every multi */
#define OP_RECORD  1
#define OP_INDEX   2

/* ---- shared ---- */

/* A version that a znode cannot have never matches; -1 would match any. */
static int32_t version_of(int64_t version)
{
    return version < 0 || version > INT32_MAX ? INT32_MAX : (int32_t)version;
}

static struct zk_multi *multi_new(struct zk_run *run)
{
    struct zk_multi *multi = zk_multi_new();
    struct zk_store *zk = run->zk;
    zk_multi_check(multi, zk_path(zk, "epochs", zk->base.node),
                   version_of((int64_t)zk->lock_epoch));
    return multi;
}

static void multi_add_index(struct zk_run *run, struct zk_multi *multi, const char *owner)
{
    char *path = zk_path_open(run->zk, owner, run->op->xid);
    switch (run->index) {
    case ZK_INDEX_CHECK:
        zk_multi_check(multi, path, -1);
        break;
    case ZK_INDEX_CREATE:
        zk_multi_create(multi, path, "", 0, ZOO_PERSISTENT);
        break;
    case ZK_INDEX_DELETE:
        zk_multi_delete(multi, path, -1);
        break;
    default:
        free(path);
    }
}

static void multi_send(struct zk_run *run, struct zk_multi *multi,
                       void (*done)(struct zk_call *call))
{
    zk_change_send(zk_call_new(run->zk, run, done), multi, true);
}

/* The same, with the operation on the change's sink; zk_sink_ready was true. */
static void multi_send_with_sink(struct zk_run *run, struct zk_multi *multi,
                                 void (*done)(struct zk_call *call))
{
    struct zk_call *call = zk_call_new(run->zk, run, done);
    zk_sink_add(run, call, multi);
    zk_change_send(call, multi, true);
}

/* True when that ended the run: lost, never sent, or fenced; or when it goes on because its sink
 * has moved. Otherwise the answer is known. */
static bool multi_ended(struct zk_run *run, const struct zk_call *call)
{
    run->sent = false;
    if (call->unsent)
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    else if (zk_rc_unknown(call->rc))
        zk_run_finish(run, CHXA_E_STORE_UNKNOWN);
    else if (call->rc != ZOK && call->failed == OP_EPOCH)
        zk_run_finish(run, CHXA_E_STORE_CONFLICT);
    else
        return zk_sink_refused(run, call);
    if (!call->unsent && call->rc != ZOK && call->failed == OP_EPOCH && !zk_rc_unknown(call->rc))
        zk_fenced(run->zk, run->generation);
    return true;
}

/* What a refused check or set of the record means. */
static int record_code(int rc)
{
    switch (rc) {
    case ZNONODE:
        return CHXA_E_TXN_NOT_FOUND;
    case ZBADVERSION:
        return CHXA_E_STORE_CONFLICT;
    default:
        return CHXA_E_STORE_UNAVAILABLE; /* refused by the server: not done */
    }
}

/* ---- the owner's folder of the index ---- */

static void owner_folder_made(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (call->rc != ZOK && call->rc != ZNODEEXISTS)
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    else if (run->op->kind == STORE_OP_CREATE)
        zk_create(run);
    else
        zk_cas(run);
}

static void owner_folder_make(struct zk_run *run)
{
    if (zk_run_gives_up(run))
        return;
    char *path = zk_path(run->zk, "open", run->op->owner);
    zk_call_create(zk_call_new(run->zk, run, owner_folder_made), path, "");
    free(path);
}

/* ---- create ---- */

static void create_again(struct zk_run *run)
{
    if (!zk_run_gives_up(run))
        zk_create(run);
}

static void create_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    if (call->rc == ZOK) {
        run->op->ret_version = 0;
        zk_run_finish(run, 0);
    } else if (call->failed == OP_RECORD && call->rc == ZNODEEXISTS) {
        zk_get_for(run, CHXA_E_STORE_CONFLICT, create_again);
    } else if (call->failed == OP_INDEX && call->rc == ZNONODE) {
        owner_folder_make(run);
    } else if (call->failed == OP_INDEX && call->rc == ZNODEEXISTS) {
        run->index = ZK_INDEX_CHECK; /* left over; it becomes ours */
        create_again(run);
    } else {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    }
}

void zk_create(struct zk_run *run)
{
    struct store_op *op = run->op;
    if (!zk_sink_ready(run, zk_create))
        return;
    if (run->index == ZK_INDEX_NONE && store_state_unfinished(op->state))
        run->index = ZK_INDEX_CREATE;
    struct zk_multi *multi = multi_new(run);
    zk_multi_create(multi, zk_path_txn(run->zk, op->xid), op->text, op->text_bytes, ZOO_PERSISTENT);
    multi_add_index(run, multi, op->owner);
    multi_send_with_sink(run, multi, create_sent);
}

/* ---- cas ---- */

static void cas_again(struct zk_run *run, enum zk_index index)
{
    run->index = index;
    if (!zk_run_gives_up(run))
        zk_cas(run);
}

static void cas_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    if (call->rc == ZOK) {
        run->op->ret_version = run->op->version + 1;
        zk_run_finish(run, 0);
    } else if (call->failed != OP_INDEX) {
        zk_run_finish(run, record_code(call->rc));
    } else if (run->index == ZK_INDEX_DELETE && call->rc == ZNONODE) {
        cas_again(run, ZK_INDEX_NONE); /* finished before and after */
    } else if (run->index == ZK_INDEX_CHECK && call->rc == ZNONODE) {
        cas_again(run, ZK_INDEX_CREATE);
    } else if (run->index == ZK_INDEX_CREATE && call->rc == ZNONODE) {
        owner_folder_make(run);
    } else if (run->index == ZK_INDEX_CREATE && call->rc == ZNODEEXISTS) {
        cas_again(run, ZK_INDEX_CHECK);
    } else {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    }
}

void zk_cas(struct zk_run *run)
{
    struct store_op *op = run->op;
    if (!zk_sink_ready(run, zk_cas))
        return;
    if (run->index == ZK_INDEX_NONE && run->n_tries == 0)
        run->index = store_state_unfinished(op->state) ? ZK_INDEX_CHECK : ZK_INDEX_DELETE;
    struct zk_multi *multi = multi_new(run);
    zk_multi_set(multi, zk_path_txn(run->zk, op->xid), op->text, op->text_bytes,
                 version_of(op->version));
    multi_add_index(run, multi, op->owner);
    multi_send_with_sink(run, multi, cas_sent);
}

/* ---- abandon ----
 * A cas that besides makes the owner's lock and removes it again, which proves that nobody holds
 * it, and sets the owner's epoch entry, which raises its epoch. */

#define OP_LOCK          2
#define OP_OWNER_EPOCH   4
#define OP_ABANDON_INDEX 5

static void abandon_again(struct zk_run *run)
{
    if (!zk_run_gives_up(run))
        zk_abandon(run);
}

static void abandon_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    if (call->rc == ZOK) {
        run->op->ret_version = run->op->version + 1;
        zk_run_finish(run, 0);
    } else if (call->failed == OP_LOCK && call->rc == ZNODEEXISTS) {
        zk_run_finish(run, CHXA_E_OWNER_ALIVE);
    } else if (call->failed == OP_OWNER_EPOCH) {
        abandon_again(run); /* it moved since it was read */
    } else if (call->failed == OP_ABANDON_INDEX && run->index == ZK_INDEX_DELETE &&
               call->rc == ZNONODE) {
        run->index = ZK_INDEX_CHECK; /* stands for: there is none */
        abandon_again(run);
    } else {
        zk_run_finish(run, record_code(call->rc));
    }
}

static void abandon_send(struct zk_run *run)
{
    struct store_op *op = run->op;
    struct zk_store *zk = run->zk;
    if (!zk_sink_ready(run, abandon_send))
        return;
    struct zk_multi *multi = multi_new(run);
    zk_multi_set(multi, zk_path_txn(zk, op->xid), op->text, op->text_bytes,
                 version_of(op->version));
    zk_multi_create(multi, zk_path(zk, "nodes", op->owner), "{}", 2, ZOO_EPHEMERAL);
    zk_multi_delete(multi, zk_path(zk, "nodes", op->owner), -1);
    char *epoch = zk_path(zk, "epochs", op->owner);
    if (run->owner_epoch < 0)
        zk_multi_create(multi, epoch, "", 0, ZOO_PERSISTENT);
    else
        zk_multi_set(multi, epoch, run->owner_url, strlen(run->owner_url), run->owner_epoch);
    if (run->index == ZK_INDEX_DELETE)
        multi_add_index(run, multi, op->owner);
    multi_send_with_sink(run, multi, abandon_sent);
}

static void abandon_epoch_read(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (call->rc != ZOK && call->rc != ZNONODE) {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    run->owner_epoch = call->rc == ZOK ? call->version : -1;
    mem_replace(&run->owner_url, call->rc == ZOK ? call->data : NULL);
    abandon_send(run);
}

void zk_abandon(struct zk_run *run)
{
    if (run->index == ZK_INDEX_NONE)
        run->index = ZK_INDEX_DELETE;
    char *path = zk_path(run->zk, "epochs", run->op->owner);
    zk_call_get(zk_call_new(run->zk, run, abandon_epoch_read), path);
    free(path);
}

/* ---- add_write ----
 * One that fits becomes one child. A larger one is put into pieces first, a multi each, because a
 * request to a stock ZooKeeper must stay below 1 MiB; they mean nothing until the last multi
 * creates the child that names them, which decides. Pieces of a try that ended before it go with
 * the record. */

static void write_send_head(struct zk_run *run);
static void write_send_piece(struct zk_run *run);

static void write_head_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    if (call->rc == ZOK)
        run->op->ret_version = run->op->version;
    if (call->rc == ZOK)
        zk_run_finish(run, 0);
    else if (call->failed > OP_RECORD && call->rc == ZNODEEXISTS)
        zk_run_finish(run, CHXA_E_STORE_CONFLICT); /* this seq is there */
    else
        zk_run_finish(run, record_code(call->rc));
}

static struct zk_multi *write_multi(struct zk_run *run)
{
    struct zk_multi *multi = multi_new(run);
    zk_multi_check(multi, zk_path_txn(run->zk, run->op->xid), version_of(run->op->version));
    return multi;
}

static void write_send_head(struct zk_run *run)
{
    struct store_op *op = run->op;
    if (!zk_sink_ready(run, write_send_head))
        return;
    char name[64];
    snprintf(name, sizeof name, "w-%0*" PRIu64, ZK_SEQ_PADDING, op->seq);
    const char *data = op->text;
    size_t data_bytes = op->text_bytes;
    if (run->n_pieces) {
        int len = snprintf(run->pieces, sizeof run->pieces, "pieces:%zu:%s:%zu", run->n_pieces,
                           run->nonce, op->text_bytes);
        data = run->pieces;
        data_bytes = (size_t)len;
    }
    struct zk_multi *multi = write_multi(run);
    zk_multi_create(multi, zk_path_child(run->zk, op->xid, name), data, data_bytes, ZOO_PERSISTENT);
    multi_send_with_sink(run, multi, write_head_sent);
}

static void write_piece_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    bool lost = !call->unsent && zk_rc_unknown(call->rc);
    if (lost) { /* a piece alone means nothing: known not done */
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    if (multi_ended(run, call))
        return;
    if (call->rc != ZOK) {
        zk_run_finish(run, record_code(call->rc));
    } else if (++run->piece < run->n_pieces) {
        write_send_piece(run);
    } else {
        write_send_head(run);
    }
}

static void write_send_piece(struct zk_run *run)
{
    struct store_op *op = run->op;
    size_t start = run->piece * run->zk->base.entry_bytes_max;
    size_t len = op->text_bytes - start;
    if (len > run->zk->base.entry_bytes_max)
        len = run->zk->base.entry_bytes_max;
    char name[128];
    snprintf(name, sizeof name, "p-%0*" PRIu64 "-%s-%zu", ZK_SEQ_PADDING, op->seq, run->nonce,
             run->piece);
    struct zk_multi *multi = write_multi(run);
    zk_multi_create(multi, zk_path_child(run->zk, op->xid, name), op->text + start, len,
                    ZOO_PERSISTENT);
    zk_change_send(zk_call_new(run->zk, run, write_piece_sent), multi, false);
}

void zk_add_write(struct zk_run *run)
{
    size_t entry_bytes = run->zk->base.entry_bytes_max;
    if (run->op->text_bytes <= entry_bytes) {
        write_send_head(run);
        return;
    }
    uint64_t nonce = 0;
    ssize_t n = getrandom(&nonce, sizeof nonce, 0);
    assert(n == sizeof nonce);
    snprintf(run->nonce, sizeof run->nonce, "%016" PRIx64, nonce);
    run->n_pieces = (run->op->text_bytes + entry_bytes - 1) / entry_bytes;
    write_send_piece(run);
}

/* ---- remove ----
 * Look at the record, list its children, delete. Up to REMOVE_MAX children go in one multi with the
 * record; more go in multis of that size first, each checking the record's version, and a removal
 * that was cut short is simply done again. An unfinished record must not lose writes that way, so
 * a large one is not removed until it is finished. */

static void remove_again(struct zk_run *run)
{
    if (!zk_run_gives_up(run))
        zk_remove(run);
}

static void remove_rest_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    int last = call->multi->n_ops - 1;
    bool index_failed = run->index == ZK_INDEX_DELETE && call->failed == last;
    if (call->rc == ZOK) {
        run->op->ret_version = run->op->version;
        zk_run_finish(run, 0);
    } else if (call->failed == OP_RECORD) {
        zk_run_finish(run, record_code(call->rc));
    } else if (index_failed && call->rc == ZNONODE) {
        run->index = ZK_INDEX_CHECK; /* stands for: there is none */
        remove_again(run);
    } else if (call->rc == ZNONODE || call->rc == ZNOTEMPTY || call->rc == ZBADVERSION) {
        remove_again(run); /* it moved between look and delete */
    } else {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    }
}

static void remove_some_sent(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (multi_ended(run, call))
        return;
    if (call->rc == ZOK)
        zk_remove(run); /* not a try: it got nearer */
    else if (call->failed == OP_RECORD)
        zk_run_finish(run, record_code(call->rc));
    else if (call->rc == ZNONODE)
        remove_again(run);
    else
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
}

static void remove_listed(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct store_op *op = run->op;
    if (call->rc != ZOK) {
        zk_run_finish(run, call->rc == ZNONODE ? CHXA_E_TXN_NOT_FOUND : CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    bool all = call->n_names <= REMOVE_MAX;
    if (!all && store_state_unfinished(op->state)) {
        zk_run_finish(run, CHXA_E_WRONG_STATE);
        return;
    }
    struct zk_multi *multi = write_multi(run);
    size_t n = all ? call->n_names : REMOVE_MAX;
    /* From the end: heads (w-) before their pieces (p-), so that what is left can be read. */
    for (size_t i = 0; i < n; i++)
        zk_multi_delete(multi, zk_path_child(run->zk, op->xid, call->names[call->n_names - 1 - i]),
                        -1);
    if (all) {
        zk_multi_delete(multi, zk_path_txn(run->zk, op->xid), version_of(op->version));
        if (run->index == ZK_INDEX_DELETE)
            multi_add_index(run, multi, op->owner);
    }
    multi_send(run, multi, all ? remove_rest_sent : remove_some_sent);
}

static void remove_looked(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct store_op *op = run->op;
    if (call->rc != ZOK) {
        zk_run_finish(run, call->rc == ZNONODE ? CHXA_E_TXN_NOT_FOUND : CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    int code = call->version != version_of(op->version) ? CHXA_E_STORE_CONFLICT : call->decoded;
    if (code) {
        zk_run_finish(run, code);
        return;
    }
    op->state = call->record.state;
    mem_replace(&op->owner, call->record.owner);
    if (run->index == ZK_INDEX_NONE && store_state_unfinished(op->state))
        run->index = ZK_INDEX_DELETE;
    char *path = zk_path_txn(run->zk, op->xid);
    zk_call_children(zk_call_new(run->zk, run, remove_listed), path);
    free(path);
}

void zk_remove(struct zk_run *run)
{
    struct zk_call *call = zk_call_new(run->zk, run, remove_looked);
    call->want = ZK_WANT_RECORD;
    char *path = zk_path_txn(run->zk, run->op->xid);
    zk_call_get(call, path);
    free(path);
}

/* ---- sink_raise ---- */

static void sink_raise_sent(struct zk_call *call)
{
    if (!multi_ended(call->run, call))
        zk_run_finish(call->run, call->rc == ZOK ? 0 : CHXA_E_STORE_UNAVAILABLE);
}

void zk_sink_raise(struct zk_run *run)
{
    if (zk_sink_ready(run, zk_sink_raise))
        multi_send_with_sink(run, multi_new(run), sink_raise_sent);
}
