/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's front: checks and encodes each request, dispatches it to the implementation, and
 * delivers results on the loop's thread (the mailbox). See store_impl.h for a request's life.
 */
#include "store/store_impl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SESSION_TIMEOUT_MS_DEFAULT   10000u
#define OPERATION_TIMEOUT_MS_DEFAULT 5000u
#define QUEUE_DEFAULT                10000u
#define ENTRY_BYTES_DEFAULT          (512u * 1024)
#define ENTRY_BYTES_MIN              1024u

/* ---- opening ---- */

bool store_name_valid(const char *name)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > STORE_NAME_BYTES_MAX)
        return false;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false; /* would be a path's own step */
    for (const char *c = name; *c != '\0'; c++) {
        bool letter = (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z');
        if (!letter && !(*c >= '0' && *c <= '9') && *c != '_' && *c != '.' && *c != '-')
            return false;
    }
    return true;
}

static int config_check(const struct store_config *config, struct error *error)
{
    if (!store_name_valid(config->cluster))
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "cluster must be 1-64 characters of A-Z a-z 0-9 _ . -, not \"%s\"",
                         config->cluster ? config->cluster : "");
    if (!store_name_valid(config->node))
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "node must be 1-64 characters of A-Z a-z 0-9 _ . -, not \"%s\"",
                         config->node ? config->node : "");
    if (config->url == NULL || config->uri == NULL)
        return error_set(error, CHXA_E_INVALID_REQUEST, "the store needs a URI and the node's URL");
    return 0;
}

/* What stands behind the scheme, or NULL when uri has another one. */
static const char *uri_location(const char *uri, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(uri, scheme, len) == 0 ? uri + len : NULL;
}

int store_open(uv_loop_t *loop, const struct store_config *config, store_event_cb *on_event,
               void *arg, struct store **ret_store, struct error *error)
{
    int code = config_check(config, error);
    if (code)
        return code;
    const char *location = uri_location(config->uri, "sqlite:");
    if (location)
        return store_sqlite_open(loop, config, location, on_event, arg, ret_store, error);
    location = uri_location(config->uri, "zookeeper:");
    if (location)
        return store_zookeeper_open(loop, config, location, on_event, arg, ret_store, error);
    return error_set(error, CHXA_E_INVALID_REQUEST,
                     "store must be sqlite:/path/file.db or zookeeper:host:port,host:port/chroot, "
                     "not \"%s\"",
                     config->uri);
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value ? value : fallback;
}

static void mail_arrived(uv_async_t *wake);

void store_base_init(struct store *store, const struct store_impl *impl, uv_loop_t *loop,
                     const struct store_config *config, store_event_cb *on_event, void *arg)
{
    store->impl = impl;
    store->loop = loop;
    store->on_event = on_event;
    store->event_arg = arg;
    store->cluster = mem_strdup(config->cluster);
    store->node = mem_strdup(config->node);
    store->url = mem_strdup(config->url);
    store->session_timeout_ms = or_default(config->session_timeout_ms, SESSION_TIMEOUT_MS_DEFAULT);
    store->operation_timeout_ms =
        or_default(config->operation_timeout_ms, OPERATION_TIMEOUT_MS_DEFAULT);
    store->queue_max = (size_t)or_default(config->queue_max, QUEUE_DEFAULT);
    store->entry_bytes_max = (size_t)or_default(config->entry_bytes_max, ENTRY_BYTES_DEFAULT);
    if (store->entry_bytes_max < ENTRY_BYTES_MIN)
        store->entry_bytes_max = ENTRY_BYTES_MIN;
    store->fsync = config->fsync;
    int rc = uv_mutex_init(&store->mail_mutex);
    assert(rc == 0);
    rc = uv_async_init(loop, &store->wake, mail_arrived);
    assert(rc == 0);
    store->wake.data = store;
}

void store_base_clear(struct store *store)
{
    assert(store->mail_head == NULL && store->n_ops == 0 && store->n_settles == 0);
    uv_mutex_destroy(&store->mail_mutex);
    free(store->cluster);
    free(store->node);
    free(store->url);
}

/* ---- mailbox ---- */

void store_post(struct store *store, struct store_mail *mail)
{
    mail->next = NULL;
    uv_mutex_lock(&store->mail_mutex);
    if (store->mail_tail)
        store->mail_tail->next = mail;
    else
        store->mail_head = mail;
    store->mail_tail = mail;
    /* Inside the lock: the handle is closed only when this mail has been taken out. */
    uv_async_send(&store->wake);
    uv_mutex_unlock(&store->mail_mutex);
}

static void mail_arrived(uv_async_t *wake)
{
    struct store *store = wake->data;
    uv_mutex_lock(&store->mail_mutex);
    struct store_mail *mail = store->mail_head;
    store->mail_head = store->mail_tail = NULL;
    uv_mutex_unlock(&store->mail_mutex);
    while (mail) {
        struct store_mail *next = mail->next;
        mail->run(mail);
        mail = next;
    }
    store_check_closed(store);
}

/* ---- events and closing ---- */

void store_emit(struct store *store, enum store_event event, uint64_t epoch, const char *detail)
{
    store->ready = event == STORE_READY;
    if (event == STORE_READY) {
        assert(epoch >= store->epoch && epoch > 0);
        store->epoch = epoch;
    }
    if (!store->closing)
        store->on_event(store->event_arg, event, detail);
}

static void base_closed(uv_handle_t *wake)
{
    struct store *store = wake->data;
    void (*on_closed)(void *) = store->on_closed;
    void *arg = store->closed_arg;
    store->impl->destroy(store);
    if (on_closed)
        on_closed(arg);
}

void store_check_closed(struct store *store)
{
    if (!store->closing || !store->impl_closed || store->wake_closing)
        return;
    if (store->n_ops || store->n_settles)
        return;
    uv_mutex_lock(&store->mail_mutex);
    bool empty = store->mail_head == NULL;
    uv_mutex_unlock(&store->mail_mutex);
    if (!empty)
        return;
    store->wake_closing = true;
    uv_close((uv_handle_t *)&store->wake, base_closed);
}

void store_impl_closed(struct store *store)
{
    assert(store->closing && !store->impl_closed);
    store->impl_closed = true;
    uv_async_send(&store->wake); /* store_check_closed in a turn of its own */
}

void store_close(struct store *store, void (*on_closed)(void *arg), void *arg)
{
    assert(!store->closing);
    store->closing = true;
    store->ready = false;
    store->on_closed = on_closed;
    store->closed_arg = arg;
    store_settle_cancel_all(store);
    store->impl->close(store);
}

uint64_t store_epoch(const struct store *store)
{
    return store->epoch;
}

bool store_is_ready(const struct store *store)
{
    return store->ready;
}

const char *store_kind(const struct store *store)
{
    return store->impl->kind;
}

/* ---- one request ---- */

void store_op_clear_results(struct store_op *op)
{
    chxa_record_clear(&op->ret_record);
    op->ret_has_record = false;
    for (size_t i = 0; i < op->n_records; i++)
        chxa_record_clear(&op->ret_records[i]);
    free(op->ret_records);
    op->ret_records = NULL;
    op->n_records = 0;
    free(op->ret_next);
    op->ret_next = NULL;
    for (size_t i = 0; i < op->n_nodes; i++) {
        free(op->ret_nodes[i].name);
        free(op->ret_nodes[i].url);
    }
    free(op->ret_nodes);
    op->ret_nodes = NULL;
    op->n_nodes = 0;
    store_sink_clear(&op->ret_sink);
}

static void op_free(struct store_op *op)
{
    store_op_clear_results(op);
    free(op->xid);
    free(op->text);
    free(op->owner);
    free(op->sink);
    free(op->checkpoint.xid);
    free(op->checkpoint.meta);
    free(op->after);
    free(op);
}

static void op_deliver(struct store_mail *mail)
{
    static const char *const kinds[] = {
        [STORE_OP_CREATE] = "create",         [STORE_OP_CAS] = "cas",
        [STORE_OP_ADD_WRITE] = "add_write",   [STORE_OP_GET] = "get",
        [STORE_OP_REMOVE] = "remove",         [STORE_OP_LIST] = "list",
        [STORE_OP_NODES] = "nodes",           [STORE_OP_SINK_GET] = "sink_get",
        [STORE_OP_SINK_RAISE] = "sink_raise", [STORE_OP_ABANDON] = "abandon",
    };
    struct store_op *op = (struct store_op *)mail;
    assert(op->store->n_ops > 0);
    if (fault_loses(op->end)) {
        op->code = CHXA_E_STORE_UNKNOWN;
        store_op_clear_results(op);
    }
    metrics_store(kinds[op->kind], op->code, clock_monotonic_us() - op->started_us);
    if (op->commits)
        metrics_count(METRIC_store_commits_total, 1, NULL, NULL);
    if (op->list_done) {
        struct store_list_result result = {op->code, op->ret_records, op->n_records, op->ret_next};
        op->list_done(op->arg, &result);
    } else if (op->nodes_done) {
        struct store_nodes_result result = {op->code, op->ret_nodes, op->n_nodes};
        op->nodes_done(op->arg, &result);
    } else if (op->sink_done) {
        struct store_sink_result result = {op->code, op->code ? NULL : &op->ret_sink};
        op->sink_done(op->arg, &result);
    } else if (op->kind == STORE_OP_SINK_GET || op->kind == STORE_OP_SINK_RAISE) {
        bool later = op->code == CHXA_E_FENCED; /* than what it was to be raised to */
        struct store_result result = {later ? 0 : op->code, (int64_t)op->ret_sink.epoch, NULL};
        op->done(op->arg, &result);
    } else {
        struct store_result result = {op->code, op->ret_version, NULL};
        if (op->ret_has_record) {
            op->ret_record.version = op->ret_version;
            result.record = &op->ret_record;
        }
        op->done(op->arg, &result);
    }
    op->store->n_ops--;
    op_free(op);
}

void store_op_finish(struct store_op *op, int code)
{
    assert(op->mail.run == NULL); /* exactly once */
    op->code = code;
    if (code != 0 && code != CHXA_E_STORE_CONFLICT)
        store_op_clear_results(op);
    op->mail.run = op_deliver;
    store_post(op->store, &op->mail);
}

/* code: what the checks said; a request that failed them is delivered like any other. */
static void op_start(struct store_op *op, int code)
{
    struct store *store = op->store;
    store->n_ops++;
    if (code == 0 && (store->closing || !store->ready || store->n_ops > store->queue_max))
        code = CHXA_E_STORE_UNAVAILABLE;
    op->end = fault_effect_starts(FAULT_STORE);
    if (fault_prevents(op->end) || op->end == FAULT_REFUSED)
        code = CHXA_E_STORE_UNAVAILABLE;
    if (code)
        store_op_finish(op, code);
    else
        store->impl->start(store, op);
}

static struct store_op *op_new(struct store *store, enum store_op_kind kind, void *arg)
{
    struct store_op *op = mem_alloc(sizeof *op);
    op->store = store;
    op->kind = kind;
    op->arg = arg;
    op->started_us = clock_monotonic_us();
    op->deadline_ms = clock_monotonic_ms() + store->operation_timeout_ms;
    return op;
}

static struct store_op *op_new_for(struct store *store, enum store_op_kind kind, const char *xid,
                                   store_result_cb *done, void *arg, int *ret_code)
{
    struct store_op *op = op_new(store, kind, arg);
    op->done = done;
    op->xid = mem_strdup(xid);
    *ret_code = xid && chxa_xid_valid(xid) ? 0 : CHXA_E_INVALID_XID;
    return op;
}

static int op_take_record(struct store_op *op, const struct chxa_record *record)
{
    if (!store_name_valid(record->owner))
        return CHXA_E_INVALID_RECORD; /* it names a folder of the index */
    int code = chxa_record_encode(record, &op->text);
    if (code)
        return code;
    op->text_bytes = strlen(op->text);
    if (op->text_bytes > STORE_RECORD_BYTES_MAX)
        return CHXA_E_INVALID_RECORD;
    op->state = record->state;
    op->owner = mem_strdup(record->owner);
    return 0;
}

static int op_take_fence(struct store_op *op, const struct store_fence *fence)
{
    if (fence == NULL)
        return 0;
    if (!chxa_xid_valid(fence->sink) || fence->epoch > INT64_MAX)
        return CHXA_E_INVALID_REQUEST;
    mem_replace(&op->sink, fence->sink);
    op->sink_epoch = fence->epoch;
    op->sink_fence = true;
    return 0;
}

/* A Committed record becomes its sink's last checkpoint. */
static void op_take_checkpoint(struct store_op *op, const struct chxa_record *record)
{
    if (record->sink == NULL || record->state != CHXA_COMMITTED)
        return;
    mem_replace(&op->sink, record->sink);
    op->sink_epoch = record->sink_epoch;
    op->checkpoint = (struct store_checkpoint){.xid = mem_strdup(record->xid),
                                               .meta = mem_strdup(record->meta),
                                               .epoch = record->sink_epoch,
                                               .created_ms = record->created_ms,
                                               .committed_ms = record->changed_ms};
}

void store_create(struct store *store, const struct chxa_record *record, store_result_cb *done,
                  void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_CREATE, record->xid, done, arg, &code);
    struct store_fence fence = {record->sink, record->sink_epoch};
    if (code == 0)
        code = op_take_record(op, record);
    if (code == 0)
        code = op_take_fence(op, record->sink ? &fence : NULL);
    op_start(op, code);
}

void store_cas(struct store *store, const struct chxa_record *record,
               const struct store_fence *fence, store_result_cb *done, void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_CAS, record->xid, done, arg, &code);
    op->version = record->version;
    if (code == 0)
        code = op_take_record(op, record);
    op_take_checkpoint(op, record);
    if (code == 0)
        code = op_take_fence(op, fence);
    op_start(op, code);
}

void store_abandon(struct store *store, const struct chxa_record *record, store_result_cb *done,
                   void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_ABANDON, record->xid, done, arg, &code);
    op->version = record->version;
    if (code == 0)
        code = op_take_record(op, record);
    op_take_checkpoint(op, record);
    if (code == 0 && store_state_unfinished(op->state))
        code = CHXA_E_INVALID_RECORD;
    op_start(op, code);
}

void store_add_write(struct store *store, const char *xid, int64_t version,
                     const struct store_fence *fence, const struct chxa_write *write,
                     store_result_cb *done, void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_ADD_WRITE, xid, done, arg, &code);
    op->version = version;
    op->seq = write->seq;
    if (code == 0)
        code = chxa_write_encode(write, &op->text);
    if (code == 0) {
        op->text_bytes = strlen(op->text);
        if (op->text_bytes > STORE_WRITE_BYTES_MAX || op->seq == 0 || op->seq > INT64_MAX)
            code = CHXA_E_INVALID_RECORD;
    }
    if (code == 0)
        code = op_take_fence(op, fence);
    op_start(op, code);
}

void store_get(struct store *store, const char *xid, store_result_cb *done, void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_GET, xid, done, arg, &code);
    op_start(op, code);
}

void store_get_ours(struct store *store, const char *xid, store_result_cb *done, void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_GET, xid, done, arg, &code);
    op->ours = true;
    op_start(op, code);
}

void store_remove(struct store *store, const char *xid, int64_t version, store_result_cb *done,
                  void *arg)
{
    int code;
    struct store_op *op = op_new_for(store, STORE_OP_REMOVE, xid, done, arg, &code);
    op->version = version;
    op_start(op, code);
}

void store_sink_get(struct store *store, const char *sink, store_sink_cb *done, void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_SINK_GET, arg);
    op->sink_done = done;
    op->sink = mem_strdup(sink);
    op_start(op, chxa_xid_valid(sink) ? 0 : CHXA_E_INVALID_REQUEST);
}

void store_sink_raise(struct store *store, const char *sink, uint64_t epoch, store_sink_cb *done,
                      void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_SINK_RAISE, arg);
    op->sink_done = done;
    op_start(op, op_take_fence(op, &(struct store_fence){sink, epoch}));
}

/* ---- history ---- */

#define HISTORY_SINK "~history" /* no name of a sink, see chxa_xid_valid */

void store_history_get(struct store *store, store_result_cb *done, void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_SINK_GET, arg);
    op->done = done;
    op->sink = mem_strdup(HISTORY_SINK);
    op_start(op, 0);
}

void store_history_raise(struct store *store, int64_t starts_ms, store_result_cb *done, void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_SINK_RAISE, arg);
    op->done = done;
    op->sink = mem_strdup(HISTORY_SINK);
    op->sink_epoch = starts_ms > 0 ? (uint64_t)starts_ms : 0;
    op->sink_fence = true;
    op_start(op, 0);
}

void store_list(struct store *store, const struct store_filter *filter, store_list_cb *done,
                void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_LIST, arg);
    op->list_done = done;
    op->filter = *filter;
    op->filter.owner = op->owner = mem_strdup(filter->owner);
    op->filter.sink = op->sink = mem_strdup(filter->sink);
    op->filter.after = op->after = mem_strdup(filter->after);
    if (op->filter.limit == 0)
        op->filter.limit = 1;
    if (op->filter.limit > 1000)
        op->filter.limit = 1000;
    bool owner_ok = filter->owner == NULL || store_name_valid(filter->owner);
    op_start(op, owner_ok ? 0 : CHXA_E_INVALID_REQUEST);
}

void store_nodes(struct store *store, store_nodes_cb *done, void *arg)
{
    struct store_op *op = op_new(store, STORE_OP_NODES, arg);
    op->nodes_done = done;
    op_start(op, 0);
}

/* ---- for the implementations ---- */

bool store_filter_matches(const struct store_filter *filter, const struct chxa_record *record)
{
    if (filter->states && !(filter->states & (1u << record->state)))
        return false;
    if (filter->owner && strcmp(filter->owner, record->owner) != 0)
        return false;
    if (filter->sink && (record->sink == NULL || strcmp(filter->sink, record->sink) != 0))
        return false;
    if (filter->blocked && !record->blocked)
        return false;
    if (filter->created_before_ms && record->created_ms >= filter->created_before_ms)
        return false;
    if (filter->finished_before_ms &&
        (store_state_unfinished(record->state) || record->changed_ms >= filter->finished_before_ms))
        return false;
    return !filter->unfinished || store_state_unfinished(record->state);
}

void store_op_add_record(struct store_op *op, struct chxa_record *record)
{
    assert(op->n_records < op->filter.limit);
    if (op->ret_records == NULL)
        op->ret_records = mem_array(op->filter.limit, sizeof *op->ret_records);
    op->ret_records[op->n_records++] = *record;
    *record = (struct chxa_record){0};
}
