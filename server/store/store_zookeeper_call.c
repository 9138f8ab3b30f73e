/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of libzookeeper and the runs they belong to; see store_zookeeper.h.
 *
 * A call: made on the loop's thread; the library completes it on a thread of its own, at most once
 * (zookeeper_close forgets some: zk_calls_abandoned delivers them); the completion copies the
 * result, decodes records and writes there, and posts the call; `done` runs on the loop. A call
 * that could not be made is posted at once with unsent set, so that done is never run inside the
 * call. When the run was answered meanwhile, done is not run and the call only freed.
 */
#include "store/store_zookeeper.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- delivery on the loop ---- */

void zk_run_release(struct zk_run *run)
{
    if (run->op || run->n_calls)
        return;
    zk_get_free(run->get);
    zk_list_free(run->list);
    free(run->owner_url);
    free(run);
}

void zk_names_free(char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

void zk_call_arrived(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    struct zk_run *run = call->run;
    for (int i = 0; i < call->n_results && call->failed < 0; i++)
        if (call->rc != ZOK && call->results[i].err == call->rc)
            call->failed = i;
    if (call->sink)
        zk_sink_arrived(call);
    bool wanted = run           ? run->op != NULL
                  : call->batch ? true
                                : call->attempt == zk->attempt && !zk->base.closing;
    if (wanted && call->done)
        call->done(call);
    if (call->prev)
        call->prev->next = call->next;
    else
        zk->calls = call->next;
    if (call->next)
        call->next->prev = call->prev;
    if (run) {
        assert(run->n_calls > 0);
        run->n_calls--;
        zk_run_release(run);
    }
    free(call->data);
    zk_names_free(call->names, call->n_names);
    chxa_record_clear(&call->record);
    chxa_write_clear(&call->write);
    free(call->results);
    zk_multi_free(call->multi);
    free(call);
    zk_check_closed(zk);
}

static void call_mail(struct store_mail *mail)
{
    zk_call_arrived((struct zk_call *)mail);
}

struct zk_call *zk_call_new(struct zk_store *zk, struct zk_run *run,
                            void (*done)(struct zk_call *call))
{
    struct zk_call *call = mem_alloc(sizeof *call);
    call->mail.run = call_mail;
    call->zk = zk;
    call->run = run;
    call->attempt = zk->attempt;
    call->done = done;
    call->failed = -1;
    call->next = zk->calls;
    if (zk->calls)
        zk->calls->prev = call;
    zk->calls = call;
    if (run)
        run->n_calls++;
    return call;
}

/* Run when zookeeper_close has returned: what was completed was posted before and has arrived, what
 * was not never will be. */
void zk_calls_abandoned(struct zk_store *zk, const struct zk_handle *handle)
{
    for (struct zk_call *call = zk->calls; call;) {
        if (call->handle != handle) {
            call = call->next;
            continue;
        }
        call->rc = ZCLOSING;
        zk_call_arrived(call);
        call = zk->calls; /* others may have gone with it */
    }
}

/* ---- completions (the library's thread) ---- */

static void call_post(struct zk_call *call, int rc)
{
    call->rc = rc;
    atomic_fetch_sub(&call->handle->n_out, 1);
    store_post(&call->zk->base, &call->mail);
}

static void call_stat(struct zk_call *call, const struct Stat *stat)
{
    if (stat) {
        call->version = stat->version;
        call->ephemeral_owner = stat->ephemeralOwner;
        call->has_children = stat->numChildren > 0;
    }
}

static void completed_void(int rc, const void *data)
{
    call_post((struct zk_call *)data, rc);
}

static void completed_string(int rc, const char *value, const void *data)
{
    (void)value;
    call_post((struct zk_call *)data, rc);
}

static void call_decode(struct zk_call *call)
{
    if (call->want == ZK_WANT_RECORD) {
        call->decoded = chxa_record_decode(call->data, call->data_bytes, &call->record);
        call->record.version = call->version;
    } else if (call->want == ZK_WANT_WRITE && call->data[0] == '{') {
        call->decoded = chxa_write_decode(call->data, call->data_bytes, &call->write);
    } else {
        return; /* text, or the head of a write in pieces */
    }
    free(call->data);
    call->data = NULL;
}

static void completed_data(int rc, const char *value, int value_bytes, const struct Stat *stat,
                           const void *data)
{
    struct zk_call *call = (struct zk_call *)data;
    call_stat(call, stat);
    if (rc == ZOK) {
        call->data_bytes = value && value_bytes > 0 ? (size_t)value_bytes : 0;
        call->data = mem_alloc(call->data_bytes + 1);
        if (call->data_bytes)
            memcpy(call->data, value, call->data_bytes);
        call_decode(call);
    }
    call_post(call, rc);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void completed_strings(int rc, const struct String_vector *strings, const struct Stat *stat,
                              const void *data)
{
    struct zk_call *call = (struct zk_call *)data;
    call_stat(call, stat);
    if (rc == ZOK && strings && strings->count > 0) {
        call->names = mem_array((size_t)strings->count, sizeof *call->names);
        for (int i = 0; i < strings->count; i++)
            call->names[call->n_names++] = mem_strdup(strings->data[i]);
        qsort(call->names, call->n_names, sizeof *call->names, compare_names);
    }
    call_post(call, rc);
}

/* ---- making calls ---- */

/* The handle to use, or NULL: the connection is not there, or not the one that the run began on. */
static zhandle_t *call_handle(struct zk_call *call)
{
    struct zk_handle *handle = call->zk->handle;
    if (handle == NULL || !handle->connected || call->zk->base.closing)
        return NULL;
    if (call->run && call->run->generation != handle->generation)
        return NULL;
    call->handle = handle;
    atomic_fetch_add(&handle->n_out, 1);
    return handle->zh;
}

/* On a failure nothing was sent, and the library does not complete it. */
static void call_made(struct zk_call *call, int rc)
{
    if (rc == ZOK)
        return;
    if (call->handle)
        atomic_fetch_sub(&call->handle->n_out, 1);
    call->handle = NULL;
    call->unsent = true;
    call->rc = rc;
    store_post(&call->zk->base, &call->mail);
}

void zk_call_get(struct zk_call *call, const char *path)
{
    zhandle_t *zh = call_handle(call);
    call_made(call, zh ? zoo_aget(zh, path, 0, completed_data, call) : ZINVALIDSTATE);
}

void zk_call_children(struct zk_call *call, const char *path)
{
    zhandle_t *zh = call_handle(call);
    call_made(call, zh ? zoo_aget_children2(zh, path, 0, completed_strings, call) : ZINVALIDSTATE);
}

void zk_call_create(struct zk_call *call, const char *path, const char *data)
{
    zhandle_t *zh = call_handle(call);
    call_made(call, zh ? zoo_acreate(zh, path, data, (int)strlen(data), &ZOO_OPEN_ACL_UNSAFE,
                                     ZOO_PERSISTENT, completed_string, call)
                       : ZINVALIDSTATE);
}

void zk_call_sync(struct zk_call *call, const char *path)
{
    zhandle_t *zh = call_handle(call);
    call_made(call, zh ? zoo_async(zh, path, completed_string, call) : ZINVALIDSTATE);
}

void zk_call_ops(struct zk_call *call, const zoo_op_t *ops, int n_ops)
{
    zhandle_t *zh = call_handle(call);
    call->n_results = n_ops;
    call->results = mem_array((size_t)n_ops, sizeof *call->results);
    /* The library serializes the operations before it returns. In a session that has expired, which
     * its own thread may know before us, zoo_amulti (3.8) frees paths twice: it must not be asked. */
    bool usable = zh && is_unrecoverable(zh) == ZOK;
    call_made(call, usable ? zoo_amulti(zh, n_ops, ops, call->results, completed_void, call)
                           : ZINVALIDSTATE);
}

void zk_call_unsent(struct zk_call *call)
{
    call_made(call, ZINVALIDSTATE);
}

/* ---- what the server answers ---- */

bool zk_rc_unknown(int rc)
{
    switch (rc) {
    case ZOK:
    case ZNONODE:
    case ZNOAUTH:
    case ZBADVERSION:
    case ZNOCHILDRENFOREPHEMERALS:
    case ZNODEEXISTS:
    case ZNOTEMPTY:
    case ZINVALIDACL:
    case ZBADARGUMENTS:
    case ZINVALIDSTATE:
    case ZUNIMPLEMENTED:
        return false;
    default:
        return true;
    }
}

/* ---- paths ---- */

char *zk_path(const struct zk_store *zk, const char *folder, const char *name)
{
    return mem_printf("%s/%s/%s", zk->base_path, folder, name);
}

void zk_bucket_of(const char *xid, char ret_bucket[3])
{
    char hex[HASH_HEX_BYTES + 1];
    hash_of(xid, strlen(xid), hex);
    memcpy(ret_bucket, hex, 2);
    ret_bucket[2] = '\0';
}

char *zk_path_txn(const struct zk_store *zk, const char *xid)
{
    char bucket[3];
    zk_bucket_of(xid, bucket);
    return mem_printf("%s/txns/%s/%s", zk->base_path, bucket, xid);
}

char *zk_path_child(const struct zk_store *zk, const char *xid, const char *child)
{
    char bucket[3];
    zk_bucket_of(xid, bucket);
    return mem_printf("%s/txns/%s/%s/%s", zk->base_path, bucket, xid, child);
}

char *zk_path_open(const struct zk_store *zk, const char *owner, const char *xid)
{
    return mem_printf("%s/open/%s/%s", zk->base_path, owner, xid);
}

/* ---- runs ---- */

static void runs_watch(struct zk_store *zk);

static void runs_expire(uv_timer_t *timer)
{
    struct zk_store *zk = timer->data;
    uint64_t now_ms = clock_monotonic_ms();
    while (zk->runs_head && zk->runs_head->op->deadline_ms <= now_ms) {
        struct zk_run *run = zk->runs_head;
        zk_run_finish(run, run->sent ? CHXA_E_STORE_UNKNOWN : CHXA_E_STORE_UNAVAILABLE);
        zk_run_release(run);
    }
    runs_watch(zk);
}

static void runs_watch(struct zk_store *zk)
{
    if (zk->runs_head == NULL || uv_is_active((uv_handle_t *)&zk->run_timer))
        return;
    uint64_t now_ms = clock_monotonic_ms(), deadline_ms = zk->runs_head->op->deadline_ms;
    uv_timer_start(&zk->run_timer, runs_expire, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

void zk_runs_cancel(struct zk_store *zk, int sent_code)
{
    while (zk->runs_head) {
        struct zk_run *run = zk->runs_head;
        zk_run_finish(run, run->sent ? sent_code : CHXA_E_STORE_UNAVAILABLE);
        zk_run_release(run);
    }
}

static void (*const run_table[])(struct zk_run *) = {
    [STORE_OP_CREATE] = zk_create,         [STORE_OP_CAS] = zk_cas,
    [STORE_OP_ADD_WRITE] = zk_add_write,   [STORE_OP_GET] = zk_get,
    [STORE_OP_REMOVE] = zk_remove,         [STORE_OP_LIST] = zk_list,
    [STORE_OP_NODES] = zk_nodes,           [STORE_OP_SINK_GET] = zk_sink_get,
    [STORE_OP_SINK_RAISE] = zk_sink_raise, [STORE_OP_ABANDON] = zk_abandon,
};

void zk_run_start(struct zk_store *zk, struct store_op *op)
{
    struct zk_run *run = mem_alloc(sizeof *run);
    run->zk = zk;
    run->generation = zk->generation;
    run->op = op;
    run->prev = zk->runs_tail;
    if (zk->runs_tail)
        zk->runs_tail->next = run;
    else
        zk->runs_head = run;
    zk->runs_tail = run;
    run->n_calls++; /* not freed while it starts */
    run_table[op->kind](run);
    run->n_calls--;
    zk_run_release(run);
    runs_watch(zk);
}

void zk_run_finish(struct zk_run *run, int code)
{
    struct store_op *op = run->op;
    assert(op != NULL);
    run->op = NULL;
    if (run->prev)
        run->prev->next = run->next;
    else
        run->zk->runs_head = run->next;
    if (run->next)
        run->next->prev = run->prev;
    else
        run->zk->runs_tail = run->prev;
    store_op_finish(op, code);
}

bool zk_run_gives_up(struct zk_run *run)
{
    if (++run->n_tries < ZK_TRIES_MAX)
        return false;
    zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    return true;
}
