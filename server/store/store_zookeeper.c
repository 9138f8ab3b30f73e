/* SPDX-License-Identifier: Apache-2.0
 *
 * The ZooKeeper store's session, its node lock and epoch, and its end. See store_zookeeper.h for
 * the layout and the other files.
 *
 *   open a handle (thread) ─> connected ─> make folders ─> read epoch ─> lock and bump ─> READY
 *        ^                      │ ^                            ^             │ held by another:
 *        │ expired, fenced,     │ │ same session: READY again  └─── retry ───┘ wait or REFUSED
 *        └ or too long without ─┴─┘ (LOST in between)
 *
 * The lock and the new epoch are one multi: an ephemeral znode is created and the epoch's znode is
 * set. Every change checks the epoch (store_zookeeper_change.c). When the answer to that multi was
 * lost, the lock is recognised as ours by its session.
 *
 * A lock of another session may be what a process that just died left behind (the same URL): it is
 * waited for as long as that session can still live, and only then called REFUSED.
 *
 * Threads: names are resolved and handles are opened and closed by short-lived threads, because
 * both can block; one at a time opens, and none closes what another uses: a handle leaves
 * zk->handle before its closing thread starts.
 */
#include "store/store_zookeeper.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define RETRY_MS            250u
#define REOPEN_MS           1000u
#define CLOSE_WAIT_MS       500u
#define ENTRY_BYTES_CEILING (960u * 1024) /* with its paths below a stock server's 1 MiB */

static void session_open(struct zk_store *zk);
static void session_drop(struct zk_store *zk, uint64_t reopen_ms);
static void lock_begin(struct zk_store *zk);
static void lock_read_epoch(struct zk_store *zk);
static void retry_fired(uv_timer_t *timer);

/* ---- events ---- */

/* Says it once, until something else is said. */
static void tell(struct zk_store *zk, enum store_event event, const char *detail)
{
    if (zk->said && zk->said_event == event)
        return;
    zk->said = true;
    zk->said_event = event;
    store_emit(&zk->base, event, zk->lock_epoch, detail);
}

static void lost(struct zk_store *zk, const char *detail)
{
    tell(zk, STORE_LOST, detail);
}

static void ready(struct zk_store *zk)
{
    char *detail =
        mem_printf("zookeeper %s%s: node %s, epoch %" PRIu64 ", session %" PRIx64, zk->hosts,
                   zk->base_path, zk->base.node, zk->lock_epoch, (uint64_t)zk->lock_session);
    tell(zk, STORE_READY, detail);
    free(detail);
}

static void retry_in(struct zk_store *zk, uint64_t ms)
{
    if (!zk->base.closing)
        uv_timer_start(&zk->retry_timer, retry_fired, ms, 0);
}

/* ---- opening and closing handles (threads) ---- */

struct zk_job {
    struct store_mail mail;
    struct zk_store *zk;
    struct zk_handle *handle;
    uv_thread_t thread;
    char *hosts;
    int timeout_ms;
    zhandle_t *zh;
    char *problem;
};

static void job_start(struct zk_job *job, void (*body)(void *),
                      void (*finished)(struct store_mail *))
{
    job->mail.run = finished;
    job->zk->n_jobs++;
    int rc = uv_thread_create(&job->thread, body, job);
    assert(rc == 0);
}

static void job_end(struct zk_job *job)
{
    uv_thread_join(&job->thread); /* posting the mail was its last act */
    assert(job->zk->n_jobs > 0);
    job->zk->n_jobs--;
    free(job->hosts);
    free(job->problem);
    free(job);
}

static void library_log(const char *message)
{
    log_debug("zookeeper client", "text=\"%s\"", message);
}

struct zk_event {
    struct store_mail mail;
    struct zk_handle *handle;
    int state;
    int64_t session_id;
};

static void handle_event(struct store_mail *mail);

/* The library's thread. */
static void handle_watch(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    (void)path;
    if (type != ZOO_SESSION_EVENT)
        return;
    struct zk_event *event = mem_alloc(sizeof *event);
    event->mail.run = handle_event;
    event->handle = context;
    event->state = state;
    if (state == ZOO_CONNECTED_STATE)
        event->session_id = zoo_client_id(zh)->client_id;
    store_post(&event->handle->zk->base, &event->mail);
}

static bool server_resolves(const char *server)
{
    const char *colon = strrchr(server, ':');
    const char *host = server;
    size_t len = (size_t)(colon - server);
    if (server[0] == '[') {
        host++;
        len -= 2;
    }
    char *name = mem_strndup(host, len);
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(name, NULL, &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found);
    free(name);
    if (rc == 0)
        freeaddrinfo(found);
    return rc == 0;
}

/* The hosts that have an address now; the library would ask for the others all the time. */
static char *hosts_that_resolve(const char *hosts)
{
    struct buf good = {0};
    char *copy = mem_strdup(hosts), *rest = copy, *server;
    while ((server = strsep(&rest, ",")) != NULL)
        if (server_resolves(server))
            buf_printf(&good, "%s%s", good.len ? "," : "", server);
    free(copy);
    char *text = good.len ? buf_take(&good) : NULL;
    buf_clear(&good);
    return text;
}

static void open_body(void *arg)
{
    struct zk_job *job = arg;
    char *hosts = hosts_that_resolve(job->hosts);
    if (hosts == NULL) {
        job->problem = mem_printf("no host of %s can be resolved", job->hosts);
    } else {
        job->zh = zookeeper_init2(hosts, handle_watch, job->timeout_ms, NULL, job->handle, 0,
                                  library_log);
        if (job->zh == NULL)
            job->problem = mem_printf("cannot connect to %s", hosts);
        else
            zoo_set_servers_resolution_delay(job->zh, -1);
        free(hosts);
    }
    store_post(&job->zk->base, &job->mail);
}

static void close_body(void *arg)
{
    struct zk_job *job = arg;
    /* What is still out is mostly answered at once; zookeeper_close would forget it, and leak. */
    for (unsigned ms = 0; ms < CLOSE_WAIT_MS && atomic_load(&job->handle->n_out); ms += 5)
        usleep(5000);
    zookeeper_close(job->zh); /* completes every call that is left; may take seconds */
    store_post(&job->zk->base, &job->mail);
}

static void close_finished(struct store_mail *mail)
{
    struct zk_job *job = (struct zk_job *)mail;
    struct zk_store *zk = job->zk;
    /* Its events and completions were posted before this, so nothing refers to it any more. */
    zk_calls_abandoned(zk, job->handle);
    free(job->handle);
    job_end(job);
    zk_check_closed(zk);
}

static void handle_close(struct zk_handle *handle)
{
    struct zk_job *job = mem_alloc(sizeof *job);
    job->zk = handle->zk;
    job->handle = handle;
    job->zh = handle->zh;
    job_start(job, close_body, close_finished);
}

/* ---- the session ---- */

static void session_connected(struct zk_store *zk)
{
    struct zk_handle *handle = zk->handle;
    if (handle == NULL || handle->zh == NULL || !handle->connected || zk->base.closing)
        return;
    uv_timer_stop(&zk->retry_timer);
    if (zk->lock_session == handle->session_id)
        ready(zk); /* the same session: the lock is still ours */
    else
        lock_begin(zk);
}

static void session_disconnected(struct zk_store *zk)
{
    zk->attempt++; /* steps on their way are void */
    if (zk->lost_since_ms == 0)
        zk->lost_since_ms = clock_monotonic_ms();
    lost(zk, "the connection to ZooKeeper is lost");
    retry_in(zk, REOPEN_MS);
}

static void handle_event(struct store_mail *mail)
{
    struct zk_event *event = (struct zk_event *)mail;
    struct zk_handle *handle = event->handle;
    struct zk_store *zk = handle->zk;
    bool was_connected = handle->connected;
    int state = event->state;
    handle->connected = state == ZOO_CONNECTED_STATE;
    if (handle->connected)
        handle->session_id = event->session_id;
    free(event);
    bool current = handle == zk->handle && !zk->base.closing;
    if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE)
        handle->dead = true;
    if (!current)
        return;
    if (handle->dead && handle->zh) {
        lost(zk, "the ZooKeeper session has expired");
        session_drop(zk, 0);
    } else if (handle->connected) {
        zk->lost_since_ms = 0;
        session_connected(zk);
    } else if (was_connected) {
        session_disconnected(zk);
    }
}

/* The current handle is closed in its thread, another one is opened after a while. */
static void session_drop(struct zk_store *zk, uint64_t reopen_ms)
{
    struct zk_handle *handle = zk->handle;
    zk->handle = NULL;
    zk->attempt++;
    zk->lock_session = 0;
    zk->base.ready = false;
    zk_sinks_forget(zk);
    zk_changes_flush(zk);
    handle_close(handle);
    retry_in(zk, reopen_ms);
}

static void open_finished(struct store_mail *mail)
{
    struct zk_job *job = (struct zk_job *)mail;
    struct zk_store *zk = job->zk;
    struct zk_handle *handle = job->handle;
    handle->zh = job->zh;
    assert(zk->handle == handle);
    if (handle->zh == NULL) {
        zk->handle = NULL;
        free(handle);
        if (!zk->base.closing)
            lost(zk, job->problem);
        retry_in(zk, REOPEN_MS);
    } else if (handle->dead || zk->base.closing) {
        session_drop(zk, REOPEN_MS);
    } else {
        if (!handle->connected)
            retry_in(zk, REOPEN_MS);
        session_connected(zk);
    }
    job_end(job);
    zk_check_closed(zk);
}

static void session_open(struct zk_store *zk)
{
    assert(zk->handle == NULL);
    struct zk_handle *handle = zk->handle = mem_alloc(sizeof *handle);
    handle->zk = zk;
    handle->generation = ++zk->generation;
    zk->lost_since_ms = clock_monotonic_ms();
    struct zk_job *job = mem_alloc(sizeof *job);
    job->zk = zk;
    job->handle = handle;
    job->hosts = mem_strdup(zk->hosts);
    job->timeout_ms =
        zk->base.session_timeout_ms > INT32_MAX ? INT32_MAX : (int)zk->base.session_timeout_ms;
    job_start(job, open_body, open_finished);
}

/* Without a connection for so long, the session is gone and the addresses may have changed. */
static bool session_is_stale(const struct zk_store *zk)
{
    uint64_t limit_ms = zk->base.session_timeout_ms * 2;
    if (limit_ms < 10000)
        limit_ms = 10000;
    return clock_monotonic_ms() - zk->lost_since_ms > limit_ms;
}

static void retry_fired(uv_timer_t *timer)
{
    struct zk_store *zk = timer->data;
    struct zk_handle *handle = zk->handle;
    if (handle == NULL) {
        session_open(zk);
    } else if (handle->zh == NULL) {
        return; /* being opened */
    } else if (handle->connected) {
        if (!zk->base.ready)
            lock_begin(zk);
    } else if (session_is_stale(zk)) {
        session_drop(zk, 0);
    } else {
        lost(zk, "ZooKeeper does not answer");
        retry_in(zk, REOPEN_MS);
    }
}

void zk_fenced(struct zk_store *zk, uint64_t generation)
{
    if (zk->handle == NULL || zk->handle->generation != generation || zk->base.closing)
        return;
    /* Answers come in order and epochs only grow: what is still out will be refused as well. */
    zk_runs_cancel(zk, CHXA_E_STORE_CONFLICT);
    lost(zk, "another process has taken this node's lock and epoch");
    session_drop(zk, REOPEN_MS);
}

/* ---- taking the lock: folders, buckets, epoch, lock ---- */

static struct zk_call *step(struct zk_store *zk, void (*done)(struct zk_call *call))
{
    return zk_call_new(zk, NULL, done);
}

static void step_failed(struct zk_call *call, const char *what)
{
    struct zk_store *zk = call->zk;
    log_debug("zookeeper lock", "step=%s rc=%d error=\"%s\"", what, call->rc, zerror(call->rc));
    if (call->rc == ZNOAUTH || call->rc == ZBADARGUMENTS) {
        char *detail = mem_printf("ZooKeeper refuses to %s: %s", what, zerror(call->rc));
        lost(zk, detail);
        free(detail);
    }
    retry_in(zk, RETRY_MS);
}

static void lock_held(struct zk_store *zk, uint64_t epoch)
{
    zk->lock_session = zk->handle->session_id;
    zk->lock_epoch = epoch;
    zk->wait_session = 0;
    ready(zk);
}

/* ---- the lock is there: whose? ---- */

/* What stands in a lock; missing fields read as "", 0. The strings live as long as the json. */
struct lock_text {
    json_t *json;
    const char *url;
    const char *instance;
    uint64_t epoch;
    uint64_t session_timeout_ms;
};

static struct lock_text lock_text_read(const char *data, size_t data_bytes)
{
    struct lock_text lock = {json_loadb(data, data_bytes, 0, NULL), "", "", 0, 0};
    const char *url = json_string_value(json_object_get(lock.json, "url"));
    const char *instance = json_string_value(json_object_get(lock.json, "instance"));
    if (url)
        lock.url = url;
    if (instance)
        lock.instance = instance;
    lock.epoch = (uint64_t)json_integer_value(json_object_get(lock.json, "epoch"));
    lock.session_timeout_ms =
        (uint64_t)json_integer_value(json_object_get(lock.json, "session_timeout_ms"));
    return lock;
}

static char *lock_text_make(const struct zk_store *zk, uint64_t epoch)
{
    json_t *json = json_pack("{s:s, s:I, s:s, s:I}", "url", zk->base.url, "epoch",
                             (json_int_t)epoch, "instance", zk->instance, "session_timeout_ms",
                             (json_int_t)zk->base.session_timeout_ms);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text ? text : mem_strdup("{}"); /* a URL that is no UTF-8 */
}

static void lock_is_foreign(struct zk_store *zk, const struct lock_text *lock, int64_t session)
{
    uint64_t now_ms = clock_monotonic_ms();
    if (zk->wait_session != session) {
        zk->wait_session = session;
        zk->wait_since_ms = now_ms;
    }
    bool ours_before = strcmp(lock->instance, zk->instance) == 0; /* an earlier session */
    bool maybe_dead = strcmp(lock->url, zk->base.url) == 0 && lock->session_timeout_ms > 0;
    uint64_t may_live_ms = lock->session_timeout_ms + lock->session_timeout_ms / 4 + 1000;
    if (!ours_before && (!maybe_dead || now_ms - zk->wait_since_ms > may_live_ms)) {
        char *detail = mem_printf("another process holds the lock of node %s: %s, session %" PRIx64,
                                  zk->base.node, lock->url, (uint64_t)session);
        tell(zk, STORE_REFUSED, detail);
        free(detail);
    }
    retry_in(zk, RETRY_MS);
}

static void lock_looked(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    if (call->rc == ZNONODE) {
        lock_read_epoch(zk);
        return;
    }
    if (call->rc != ZOK) {
        step_failed(call, "read the node lock");
        return;
    }
    struct lock_text lock = lock_text_read(call->data, call->data_bytes);
    if (call->ephemeral_owner == zk->handle->session_id && lock.epoch > 0)
        lock_held(zk, lock.epoch); /* our multi went through, its answer was lost */
    else
        lock_is_foreign(zk, &lock, call->ephemeral_owner);
    json_decref(lock.json);
}

static void lock_look(struct zk_store *zk)
{
    char *path = zk_path(zk, "nodes", zk->base.node);
    zk_call_get(step(zk, lock_looked), path);
    free(path);
}

/* ---- lock and epoch ---- */

static void lock_taken(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    if (call->rc == ZOK)
        lock_held(zk, call->index);
    else if (call->rc == ZNODEEXISTS)
        lock_look(zk);
    else
        step_failed(call, "take the node lock");
}

static void lock_take(struct zk_store *zk, int32_t epoch_version)
{
    uint64_t epoch = (uint64_t)epoch_version + 1;
    char *text = lock_text_make(zk, epoch);
    struct zk_multi *multi = zk_multi_new();
    zk_multi_create(multi, zk_path(zk, "nodes", zk->base.node), text, strlen(text), ZOO_EPHEMERAL);
    zk_multi_set(multi, zk_path(zk, "epochs", zk->base.node), zk->base.url, strlen(zk->base.url),
                 epoch_version);
    struct zk_call *call = step(zk, lock_taken);
    call->index = epoch;
    zk_call_multi(call, multi);
    free(text);
}

static void epoch_made(struct zk_call *call)
{
    if (call->rc == ZOK || call->rc == ZNODEEXISTS)
        lock_read_epoch(call->zk);
    else
        step_failed(call, "make the node's epoch");
}

static void epoch_read(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    if (call->rc == ZOK) {
        lock_take(zk, call->version);
    } else if (call->rc == ZNONODE) {
        char *path = zk_path(zk, "epochs", zk->base.node);
        zk_call_create(step(zk, epoch_made), path, zk->base.url);
        free(path);
    } else {
        step_failed(call, "read the node's epoch");
    }
}

static void lock_read_epoch(struct zk_store *zk)
{
    char *path = zk_path(zk, "epochs", zk->base.node);
    zk_call_get(step(zk, epoch_read), path);
    free(path);
}

/* ---- folders and buckets ---- */

static void buckets_made(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    if (call->rc == ZOK)
        lock_read_epoch(zk);
    else
        step_failed(call, "make the buckets"); /* ZNODEEXISTS: another node was quicker */
}

static void buckets_listed(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    if (call->rc != ZOK) {
        step_failed(call, "list the buckets");
        return;
    }
    struct zk_multi *multi = zk_multi_new();
    size_t k = 0; /* names are sorted */
    for (unsigned i = 0; i < 256; i++) {
        char bucket[3];
        snprintf(bucket, sizeof bucket, "%02x", i);
        while (k < call->n_names && strcmp(call->names[k], bucket) < 0)
            k++;
        if (k == call->n_names || strcmp(call->names[k], bucket) != 0)
            zk_multi_create(multi, zk_path(zk, "txns", bucket), "", 0, ZOO_PERSISTENT);
    }
    if (multi->n_ops) {
        zk_call_multi(step(zk, buckets_made), multi);
    } else {
        zk_multi_free(multi);
        lock_read_epoch(zk);
    }
}

static void folder_made(struct zk_call *call)
{
    struct zk_store *zk = call->zk;
    /* ZNOAUTH: the server may refuse to make a parent that exists; then the rest will show. */
    if (call->rc != ZOK && call->rc != ZNODEEXISTS && call->rc != ZNOAUTH) {
        zk->attempt++;
        step_failed(call, "make the folders");
        return;
    }
    if (--zk->n_steps)
        return;
    char *path = mem_printf("%s/txns", zk->base_path);
    zk_call_children(step(zk, buckets_listed), path);
    free(path);
}

static void folder_make(struct zk_store *zk, const char *path)
{
    zk->n_steps++;
    zk_call_create(step(zk, folder_made), path, "");
}

static void lock_begin(struct zk_store *zk)
{
    zk->attempt++;
    zk->n_steps = 0;
    /* Each step of the base path (the chroot's and the cluster's), then what is below. */
    char *path = mem_strdup(zk->base_path);
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            folder_make(zk, path);
            *at = '/';
        }
    folder_make(zk, path);
    free(path);
    static const char *const folders[] = {"nodes", "epochs", "txns", "open", "sinks"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        path = mem_printf("%s/%s", zk->base_path, folders[i]);
        folder_make(zk, path);
        free(path);
    }
    path = zk_path(zk, "open", zk->base.node);
    folder_make(zk, path);
    free(path);
}

/* ---- the store's front ---- */

static void zk_start(struct store *base, struct store_op *op)
{
    zk_run_start((struct zk_store *)base, op);
}

static void timer_closed(uv_handle_t *timer)
{
    struct zk_store *zk = timer->data;
    zk->n_timers--;
    zk_check_closed(zk);
}

void zk_check_closed(struct zk_store *zk)
{
    if (!zk->base.closing || zk->base.impl_closed)
        return;
    if (zk->handle || zk->n_jobs || zk->n_timers || zk->calls)
        return;
    store_impl_closed(&zk->base);
}

static void zk_close(struct store *base)
{
    struct zk_store *zk = (struct zk_store *)base;
    zk_runs_cancel(zk, CHXA_E_STORE_UNKNOWN);
    uv_close((uv_handle_t *)&zk->retry_timer, timer_closed);
    uv_close((uv_handle_t *)&zk->run_timer, timer_closed);
    if (zk->handle && zk->handle->zh) /* one that is being opened is closed by open_finished */
        session_drop(zk, 0);
}

static void zk_destroy(struct store *base)
{
    struct zk_store *zk = (struct zk_store *)base;
    store_base_clear(base);
    zk_sinks_free(zk);
    free(zk->hosts);
    free(zk->chroot);
    free(zk->base_path);
    free(zk);
}

static const struct store_impl zk_impl = {"zookeeper", zk_start, zk_close, zk_destroy};

int store_zookeeper_open(uv_loop_t *loop, const struct store_config *config, const char *location,
                         store_event_cb *on_event, void *arg, struct store **ret_store,
                         struct error *error)
{
    if (config->entry_bytes_max > ENTRY_BYTES_CEILING)
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "an entry of more than %u bytes does not fit into a request to ZooKeeper",
                         ENTRY_BYTES_CEILING);
    char *hosts, *chroot;
    int code = store_uri_zookeeper(location, &hosts, &chroot, error);
    if (code)
        return code;
    struct zk_store *zk = mem_alloc(sizeof *zk);
    zk->hosts = hosts;
    zk->chroot = chroot;
    TAILQ_INIT(&zk->sinks);
    TAILQ_INIT(&zk->changes);
    zk->base_path = mem_printf("%s/%s", chroot, config->cluster);
    uint64_t instance = 0;
    ssize_t n = getrandom(&instance, sizeof instance, 0);
    assert(n == sizeof instance);
    snprintf(zk->instance, sizeof zk->instance, "%016" PRIx64, instance);
    store_base_init(&zk->base, &zk_impl, loop, config, on_event, arg);
    uv_timer_t *timers[] = {&zk->retry_timer, &zk->run_timer};
    for (size_t i = 0; i < 2; i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = zk;
        zk->n_timers++;
    }
    zoo_set_debug_level(log_enabled(LOG_LEVEL_DEBUG) ? ZOO_LOG_LEVEL_INFO : ZOO_LOG_LEVEL_ERROR);
    session_open(zk);
    *ret_store = &zk->base;
    return 0;
}
