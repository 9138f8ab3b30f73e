/* SPDX-License-Identifier: Apache-2.0
 *
 * The embedded store: one SQLite file in WAL mode, synchronous=FULL.
 *
 * Threads: the loop's thread only queues; one writer thread owns the connection, takes what waits
 * (up to BATCH_MAX requests and BATCH_BYTES_MAX of text), runs it inside one transaction (group
 * commit: one fsync for all of it), and posts the results after COMMIT. Reads run in the same order on the same thread, so a request sees what
 * was answered before it; only lists, which may take long, have a thread of their own
 * (store_sqlite_list.c).
 *
 * Outcomes: a change is known to be done or not, except when COMMIT itself fails (UNKNOWN: the
 * log's last frame may or may not have reached the disk). A request that waited past its deadline
 * is answered UNAVAILABLE and not run. Where SQLite fails at one request, nothing of its batch is
 * done, and each is run again in a transaction of its own.
 *
 * Lock: an open-file-description lock on `<file>.<node>.lock`; the kernel releases it with the
 * process. Unlike flock(2) it can be queried without being taken (store_nodes). The epoch in the
 * table `nodes` is bumped with every lock taken and checked inside every transaction, so that a
 * writer whose lock file was deleted and taken by another cannot change anything.
 */
#include "store/store_sqlite.h"

#include "base/clock.h"
#include "base/mem.h"
#include "store/store_sink.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_RETRY_MS   250u
#define BATCH_MAX       1000u
#define BATCH_BYTES_MAX (1024u * 1024) /* one that is larger goes alone */

enum sqlite_stmt_id {
    STMT_BEGIN_READ,
    STMT_BEGIN_WRITE,
    STMT_COMMIT,
    STMT_ROLLBACK,
    STMT_EPOCH,
    STMT_EPOCH_BUMP,
    STMT_EPOCH_RAISE,
    STMT_RECORD,
    STMT_WRITES,
    STMT_CREATE,
    STMT_CAS,
    STMT_VERSION,
    STMT_ADD_WRITE,
    STMT_REMOVE_WRITES,
    STMT_REMOVE,
    STMT_NODES,
    STMT_SINK,
    STMT_SINK_PUT,
    STMT_COUNT
};

static const char *const sqlite_sql[STMT_COUNT] = {
    [STMT_BEGIN_READ] = "BEGIN",
    [STMT_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [STMT_COMMIT] = "COMMIT",
    [STMT_ROLLBACK] = "ROLLBACK",
    [STMT_EPOCH] = "SELECT epoch FROM nodes WHERE name = ?1",
    [STMT_EPOCH_BUMP] = "INSERT INTO nodes (name, url, epoch) VALUES (?1, ?2, 1) "
                        "ON CONFLICT (name) DO UPDATE SET url = ?2, epoch = epoch + 1",
    [STMT_EPOCH_RAISE] = "UPDATE nodes SET epoch = epoch + 1 WHERE name = ?1",
    [STMT_RECORD] = "SELECT version, record FROM txns WHERE xid = ?1",
    [STMT_WRITES] = "SELECT body FROM writes WHERE xid = ?1 ORDER BY seq",
    [STMT_CREATE] = "INSERT INTO txns (xid, version, unfinished, owner, record) "
                    "VALUES (?1, 0, ?2, ?3, ?4)",
    [STMT_CAS] = "UPDATE txns SET version = version + 1, unfinished = ?2, owner = ?3, record = ?4 "
                 "WHERE xid = ?1 AND version = ?5",
    [STMT_VERSION] = "SELECT version FROM txns WHERE xid = ?1",
    [STMT_ADD_WRITE] = "INSERT OR IGNORE INTO writes (xid, seq, body) VALUES (?1, ?2, ?3)",
    [STMT_REMOVE_WRITES] = "DELETE FROM writes WHERE xid = ?1",
    [STMT_REMOVE] = "DELETE FROM txns WHERE xid = ?1",
    [STMT_NODES] = "SELECT name, url, epoch FROM nodes ORDER BY name",
    [STMT_SINK] = "SELECT entry FROM sinks WHERE sink = ?1",
    [STMT_SINK_PUT] = "INSERT INTO sinks (sink, entry) VALUES (?1, ?2) "
                      "ON CONFLICT (sink) DO UPDATE SET entry = ?2",
};

struct sqlite_event {
    struct store_mail mail;
    struct sqlite_store *store;
    enum store_event event;
    uint64_t epoch;
    char *detail;
};

struct sqlite_store {
    struct store base;
    char *path;
    struct sqlite_lister *lister;
    uv_thread_t thread;
    struct store_mail exited; /* the thread's last word */

    uv_mutex_t mutex;
    uv_cond_t cond;
    struct store_op *head; /* under mutex */
    struct store_op *tail; /* under mutex */
    bool stop;             /* under mutex */

    /* The writer thread's, once it runs. */
    sqlite3 *db;
    sqlite3_stmt *stmts[STMT_COUNT];
    char *lock_path;
    int lock_fd;    /* -1: not held */
    uint64_t epoch; /* the one taken with the lock */
    bool said;      /* an event was posted; the last one: */
    enum store_event said_event;
};

/* ---- statements ---- */

static sqlite3_stmt *stmt_use(struct sqlite_store *store, enum sqlite_stmt_id id)
{
    sqlite3_stmt *stmt = store->stmts[id];
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    return stmt;
}

/* Runs a statement that returns no rows. */
static int stmt_run(sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    sqlite3_reset(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* The text stays the caller's until the statement is reset. */
static void bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    int rc = sqlite3_bind_text64(stmt, index, text ? text : "", text ? strlen(text) : 0,
                                 SQLITE_STATIC, SQLITE_UTF8);
    assert(rc == SQLITE_OK);
}

static int run_simple(struct sqlite_store *store, enum sqlite_stmt_id id)
{
    return stmt_run(stmt_use(store, id));
}

/* ---- requests; each returns an error code, or SQL_FAILED and the whole batch is undone ---- */

#define SQL_FAILED 1 /* no chxa code is positive */

static int version_of(struct sqlite_store *store, const char *xid, int64_t *ret_version)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_VERSION);
    bind_text(stmt, 1, xid);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret_version = sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    if (rc == SQLITE_ROW)
        return 0;
    return rc == SQLITE_DONE ? CHXA_E_TXN_NOT_FOUND : SQL_FAILED;
}

static int version_check(struct sqlite_store *store, const struct store_op *op)
{
    int64_t version = 0;
    int code = version_of(store, op->xid, &version);
    if (code == 0 && version != op->version)
        code = CHXA_E_STORE_CONFLICT;
    return code;
}

static int read_writes(struct sqlite_store *store, struct store_op *op)
{
    struct chxa_record *record = &op->ret_record;
    size_t cap = 0;
    sqlite3_stmt *stmt = stmt_use(store, STMT_WRITES);
    bind_text(stmt, 1, op->xid);
    int rc;
    int code = 0;
    while (code == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (record->n_writes == cap) {
            cap = cap ? cap * 2 : 8;
            record->writes = mem_realloc(record->writes, cap * sizeof *record->writes);
        }
        struct chxa_write write = {0};
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        code = chxa_write_decode(text ? text : "", (size_t)sqlite3_column_bytes(stmt, 0), &write);
        if (code == 0)
            record->writes[record->n_writes++] = write;
    }
    sqlite3_reset(stmt);
    if (code)
        return code;
    return rc == SQLITE_DONE ? 0 : SQL_FAILED;
}

static int apply_get(struct sqlite_store *store, struct store_op *op)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_RECORD);
    bind_text(stmt, 1, op->xid);
    int rc = sqlite3_step(stmt);
    int code = rc == SQLITE_DONE ? CHXA_E_TXN_NOT_FOUND : SQL_FAILED;
    if (rc == SQLITE_ROW) {
        op->ret_version = sqlite3_column_int64(stmt, 0);
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        code = chxa_record_decode(text ? text : "", (size_t)sqlite3_column_bytes(stmt, 1),
                                  &op->ret_record);
    }
    sqlite3_reset(stmt);
    if (code)
        return code;
    op->ret_has_record = true;
    return read_writes(store, op);
}

/* ---- the sink of a change: read before it, written after it ---- */

static int sink_read(struct sqlite_store *store, const char *name, struct store_sink *ret_sink)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_SINK);
    bind_text(stmt, 1, name);
    int rc = sqlite3_step(stmt);
    int code = rc == SQLITE_DONE ? 0 : SQL_FAILED;
    if (rc == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        code = store_sink_decode(text ? text : "", (size_t)sqlite3_column_bytes(stmt, 0), ret_sink);
    }
    sqlite3_reset(stmt);
    return code;
}

static int sink_write(struct sqlite_store *store, const char *name, const struct store_sink *sink)
{
    char *text = store_sink_encode(sink);
    sqlite3_stmt *stmt = stmt_use(store, STMT_SINK_PUT);
    bind_text(stmt, 1, name);
    bind_text(stmt, 2, text);
    int rc = stmt_run(stmt);
    free(text);
    return rc == SQLITE_OK ? 0 : SQL_FAILED;
}

static int with_sink(struct sqlite_store *store, struct store_op *op,
                     int (*change)(struct sqlite_store *, struct store_op *))
{
    if (!store_op_has_sink(op))
        return change(store, op);
    struct store_sink sink = {0};
    bool changed = false;
    int code = sink_read(store, op->sink, &sink);
    if (code == 0)
        code = store_sink_apply(op, &sink, &changed);
    if (code == 0)
        code = change(store, op);
    if (code == 0 && changed)
        code = sink_write(store, op->sink, &sink);
    store_sink_clear(&sink);
    return code;
}

static int apply_sink_get(struct sqlite_store *store, struct store_op *op)
{
    return sink_read(store, op->sink, &op->ret_sink);
}

/* with_sink raises it; the answer is what it will be then. */
static int change_sink(struct sqlite_store *store, struct store_op *op)
{
    bool changed;
    int code = sink_read(store, op->sink, &op->ret_sink);
    return code ? code : store_sink_apply(op, &op->ret_sink, &changed);
}

static int apply_sink_raise(struct sqlite_store *store, struct store_op *op)
{
    return with_sink(store, op, change_sink);
}

/* ---- changes ---- */

static int change_create(struct sqlite_store *store, struct store_op *op)
{
    int code = apply_get(store, op);
    if (code == 0)
        return CHXA_E_STORE_CONFLICT;
    if (code != CHXA_E_TXN_NOT_FOUND)
        return code;
    sqlite3_stmt *stmt = stmt_use(store, STMT_CREATE);
    bind_text(stmt, 1, op->xid);
    sqlite3_bind_int(stmt, 2, store_state_unfinished(op->state));
    bind_text(stmt, 3, op->owner);
    bind_text(stmt, 4, op->text);
    op->ret_version = 0;
    return stmt_run(stmt) == SQLITE_OK ? 0 : SQL_FAILED;
}

static int change_cas(struct sqlite_store *store, struct store_op *op)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_CAS);
    bind_text(stmt, 1, op->xid);
    sqlite3_bind_int(stmt, 2, store_state_unfinished(op->state));
    bind_text(stmt, 3, op->owner);
    bind_text(stmt, 4, op->text);
    sqlite3_bind_int64(stmt, 5, op->version);
    if (stmt_run(stmt) != SQLITE_OK)
        return SQL_FAILED;
    if (sqlite3_changes(store->db) == 1) {
        op->ret_version = op->version + 1;
        return 0;
    }
    int code = version_check(store, op);
    assert(code != 0);
    return code;
}

static int change_add_write(struct sqlite_store *store, struct store_op *op)
{
    int code = version_check(store, op);
    if (code)
        return code;
    sqlite3_stmt *stmt = stmt_use(store, STMT_ADD_WRITE);
    bind_text(stmt, 1, op->xid);
    sqlite3_bind_int64(stmt, 2, (int64_t)op->seq);
    bind_text(stmt, 3, op->text);
    if (stmt_run(stmt) != SQLITE_OK)
        return SQL_FAILED;
    op->ret_version = op->version;
    return sqlite3_changes(store->db) == 1 ? 0 : CHXA_E_STORE_CONFLICT;
}

static int apply_create(struct sqlite_store *store, struct store_op *op)
{
    return with_sink(store, op, change_create);
}

static int apply_cas(struct sqlite_store *store, struct store_op *op)
{
    return with_sink(store, op, change_cas);
}

static int apply_add_write(struct sqlite_store *store, struct store_op *op)
{
    return with_sink(store, op, change_add_write);
}

static int apply_remove(struct sqlite_store *store, struct store_op *op)
{
    int code = version_check(store, op);
    if (code)
        return code;
    static const enum sqlite_stmt_id steps[] = {STMT_REMOVE_WRITES, STMT_REMOVE};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        sqlite3_stmt *stmt = stmt_use(store, steps[i]);
        bind_text(stmt, 1, op->xid);
        if (stmt_run(stmt) != SQLITE_OK)
            return SQL_FAILED;
    }
    op->ret_version = op->version;
    return 0;
}

/* Whether some process, this one included, holds that node's lock now. */
static bool node_is_live(struct sqlite_store *store, const char *name)
{
    if (strcmp(name, store->base.node) == 0)
        return store->lock_fd >= 0;
    char *path = mem_printf("%s.%s.lock", store->path, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    free(path);
    if (fd < 0)
        return false;
    struct flock query = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool live = fcntl(fd, F_OFD_GETLK, &query) == 0 && query.l_type != F_UNLCK;
    close(fd);
    return live;
}

static int apply_nodes(struct sqlite_store *store, struct store_op *op)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_NODES);
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        op->ret_nodes = mem_realloc(op->ret_nodes, (op->n_nodes + 1) * sizeof *op->ret_nodes);
        struct store_node *node = &op->ret_nodes[op->n_nodes++];
        node->name = mem_strdup((const char *)sqlite3_column_text(stmt, 0));
        node->url = mem_strdup((const char *)sqlite3_column_text(stmt, 1));
        node->epoch = (uint64_t)sqlite3_column_int64(stmt, 2);
        node->live = node_is_live(store, node->name);
    }
    sqlite3_reset(stmt);
    return rc == SQLITE_DONE ? 0 : SQL_FAILED;
}

/* An owner that starts meanwhile takes its epoch behind this transaction, and reads what it left. */
static int change_abandon(struct sqlite_store *store, struct store_op *op)
{
    if (node_is_live(store, op->owner))
        return CHXA_E_OWNER_ALIVE;
    int code = change_cas(store, op);
    if (code)
        return code;
    sqlite3_stmt *stmt = stmt_use(store, STMT_EPOCH_RAISE);
    bind_text(stmt, 1, op->owner);
    return stmt_run(stmt) == SQLITE_OK ? 0 : SQL_FAILED;
}

static int apply_abandon(struct sqlite_store *store, struct store_op *op)
{
    return with_sink(store, op, change_abandon);
}

static int (*const apply_table[])(struct sqlite_store *, struct store_op *) = {
    [STORE_OP_CREATE] = apply_create,       [STORE_OP_CAS] = apply_cas,
    [STORE_OP_ADD_WRITE] = apply_add_write, [STORE_OP_GET] = apply_get,
    [STORE_OP_REMOVE] = apply_remove,       [STORE_OP_NODES] = apply_nodes,
    [STORE_OP_SINK_GET] = apply_sink_get,   [STORE_OP_SINK_RAISE] = apply_sink_raise,
    [STORE_OP_ABANDON] = apply_abandon,
};

static bool op_is_change(const struct store_op *op)
{
    return op->kind == STORE_OP_CREATE || op->kind == STORE_OP_CAS ||
           op->kind == STORE_OP_ADD_WRITE || op->kind == STORE_OP_REMOVE ||
           op->kind == STORE_OP_SINK_RAISE || op->kind == STORE_OP_ABANDON;
}

/* ---- the node's lock and epoch (writer thread) ---- */

static void event_run(struct store_mail *mail)
{
    struct sqlite_event *event = (struct sqlite_event *)mail;
    store_emit(&event->store->base, event->event, event->epoch, event->detail);
    free(event->detail);
    free(event);
}

/* Takes detail. Says it once, until something else is said. */
static void event_post(struct sqlite_store *store, enum store_event what, char *detail)
{
    if (store->said && store->said_event == what) {
        free(detail);
        return;
    }
    store->said = true;
    store->said_event = what;
    struct sqlite_event *event = mem_alloc(sizeof *event);
    event->mail.run = event_run;
    event->store = store;
    event->event = what;
    event->epoch = store->epoch;
    event->detail = detail;
    store_post(&store->base, &event->mail);
}

/* True when fd is still the file at path: not deleted and made anew since it was opened. */
static bool lock_file_is_current(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

/* The locked descriptor, or -1 and *ret_errno (EAGAIN: somebody else has it). */
static int lock_file_take(const char *path, int *ret_errno)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        *ret_errno = errno;
        return -1;
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0)
        *ret_errno = errno == EACCES ? EAGAIN : errno;
    else if (!lock_file_is_current(fd, path))
        *ret_errno = EAGAIN;
    else
        return fd;
    close(fd);
    return -1;
}

static int epoch_read(struct sqlite_store *store, uint64_t *ret_epoch)
{
    sqlite3_stmt *stmt = stmt_use(store, STMT_EPOCH);
    bind_text(stmt, 1, store->base.node);
    int rc = sqlite3_step(stmt);
    *ret_epoch = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(stmt, 0) : 0;
    sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int epoch_bump(struct sqlite_store *store)
{
    int rc = run_simple(store, STMT_BEGIN_WRITE);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_stmt *stmt = stmt_use(store, STMT_EPOCH_BUMP);
    bind_text(stmt, 1, store->base.node);
    bind_text(stmt, 2, store->base.url);
    rc = stmt_run(stmt);
    uint64_t epoch = 0;
    if (rc == SQLITE_OK)
        rc = epoch_read(store, &epoch);
    if (rc == SQLITE_OK)
        rc = run_simple(store, STMT_COMMIT);
    if (rc == SQLITE_OK)
        store->epoch = epoch;
    else if (!sqlite3_get_autocommit(store->db))
        run_simple(store, STMT_ROLLBACK);
    return rc;
}

static void lock_release(struct sqlite_store *store)
{
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    store->lock_fd = -1;
}

static void lock_try(struct sqlite_store *store)
{
    int error = 0;
    store->lock_fd = lock_file_take(store->lock_path, &error);
    if (store->lock_fd < 0 && error == EAGAIN) {
        event_post(store, STORE_REFUSED,
                   mem_printf("another process holds the lock of node %s (%s)", store->base.node,
                              store->lock_path));
        return;
    }
    if (store->lock_fd < 0) {
        event_post(store, STORE_LOST, mem_printf("%s: %s", store->lock_path, strerror(error)));
        return;
    }
    if (epoch_bump(store) != SQLITE_OK) {
        event_post(
            store, STORE_LOST,
            mem_printf("%s: cannot take a new epoch: %s", store->path, sqlite3_errmsg(store->db)));
        lock_release(store);
        return;
    }
    event_post(store, STORE_READY,
               mem_printf("%s: node %s, epoch %llu", store->path, store->base.node,
                          (unsigned long long)store->epoch));
}

/* ---- the writer thread ---- */

static void finish_all(struct store_op *batch, int change_code, int read_code)
{
    while (batch) {
        struct store_op *next = batch->next;
        store_op_finish(batch, op_is_change(batch) ? change_code : read_code);
        batch = next;
    }
}

static void batch_undo(struct sqlite_store *store, struct store_op *batch, int change_code,
                       int read_code)
{
    if (!sqlite3_get_autocommit(store->db))
        run_simple(store, STMT_ROLLBACK);
    finish_all(batch, change_code, read_code);
}

static bool batch_has_change(const struct store_op *batch)
{
    for (; batch; batch = batch->next)
        if (op_is_change(batch))
            return true;
    return false;
}

static void batch_fenced(struct sqlite_store *store, struct store_op *batch, uint64_t epoch)
{
    batch_undo(store, batch, CHXA_E_STORE_CONFLICT, CHXA_E_STORE_UNAVAILABLE);
    lock_release(store);
    event_post(store, STORE_LOST,
               mem_printf("node %s was taken over: epoch %llu, ours was %llu", store->base.node,
                          (unsigned long long)epoch, (unsigned long long)store->epoch));
}

/* False: SQLite failed at one of them. */
static bool batch_apply(struct sqlite_store *store, struct store_op *batch)
{
    uint64_t now_ms = clock_monotonic_ms();
    for (struct store_op *op = batch; op; op = op->next) {
        bool late = now_ms > op->deadline_ms;
        op->code = late ? CHXA_E_STORE_UNAVAILABLE : apply_table[op->kind](store, op);
        if (op->code == SQL_FAILED)
            return false;
    }
    return true;
}

static void batch_run(struct sqlite_store *store, struct store_op *batch);

/* One of them cannot be run, which must not be the others' loss. */
static void batch_run_singly(struct sqlite_store *store, struct store_op *batch)
{
    if (!sqlite3_get_autocommit(store->db))
        run_simple(store, STMT_ROLLBACK);
    while (batch) {
        struct store_op *next = batch->next;
        batch->next = NULL;
        store_op_clear_results(batch);
        batch_run(store, batch);
        batch = next;
    }
}

static void batch_run(struct sqlite_store *store, struct store_op *batch)
{
    const int unavailable = CHXA_E_STORE_UNAVAILABLE;
    bool change = batch_has_change(batch);
    uint64_t epoch = store->epoch;
    if (store->lock_fd < 0 ||
        run_simple(store, change ? STMT_BEGIN_WRITE : STMT_BEGIN_READ) != SQLITE_OK ||
        (change && epoch_read(store, &epoch) != SQLITE_OK)) {
        batch_undo(store, batch, unavailable, unavailable);
        return;
    }
    if (epoch != store->epoch) {
        batch_fenced(store, batch, epoch);
        return;
    }
    if (!batch_apply(store, batch)) {
        if (batch->next)
            batch_run_singly(store, batch);
        else
            batch_undo(store, batch, unavailable, unavailable);
        return;
    }
    if (run_simple(store, STMT_COMMIT) != SQLITE_OK) {
        batch_undo(store, batch, CHXA_E_STORE_UNKNOWN, unavailable);
        return;
    }
    batch->commits = change;
    while (batch) {
        struct store_op *next = batch->next;
        store_op_finish(batch, batch->code);
        batch = next;
    }
}

/* Under the mutex: what waits, as much as one transaction takes; all: all of it. */
static struct store_op *batch_take(struct sqlite_store *store, bool all)
{
    struct store_op *batch = store->head, *last = NULL;
    size_t n = 0, bytes = 0;
    for (struct store_op *op = batch; op; op = op->next) {
        bytes += op->text_bytes;
        if (!all && n > 0 && (n == BATCH_MAX || bytes > BATCH_BYTES_MAX))
            break;
        last = op;
        n++;
    }
    store->head = last ? last->next : NULL;
    if (last)
        last->next = NULL;
    if (store->head == NULL)
        store->tail = NULL;
    return batch;
}

/* What waits, or NULL at a stop or when it is time to try the lock again. */
static struct store_op *batch_wait(struct sqlite_store *store, bool *ret_stop)
{
    uv_mutex_lock(&store->mutex);
    while (store->head == NULL && !store->stop) {
        if (store->lock_fd >= 0) {
            uv_cond_wait(&store->cond, &store->mutex);
        } else {
            uv_cond_timedwait(&store->cond, &store->mutex, LOCK_RETRY_MS * 1000000ull);
            break;
        }
    }
    struct store_op *batch = batch_take(store, store->stop);
    *ret_stop = store->stop;
    uv_mutex_unlock(&store->mutex);
    return batch;
}

static void sqlite_close_db(struct sqlite_store *store)
{
    for (int i = 0; i < STMT_COUNT; i++)
        sqlite3_finalize(store->stmts[i]);
    sqlite3_close(store->db);
    store->db = NULL;
    lock_release(store);
}

static void writer_main(void *arg)
{
    struct sqlite_store *store = arg;
    for (;;) {
        if (store->lock_fd < 0)
            lock_try(store);
        bool stop = false;
        struct store_op *batch = batch_wait(store, &stop);
        if (stop) {
            finish_all(batch, CHXA_E_STORE_UNAVAILABLE, CHXA_E_STORE_UNAVAILABLE);
            break;
        }
        if (batch)
            batch_run(store, batch);
    }
    sqlite_lister_stop(store->lister);
    sqlite_close_db(store);
    store_post(&store->base, &store->exited);
}

/* ---- the loop's side ---- */

static void sqlite_start(struct store *base, struct store_op *op)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    if (op->kind == STORE_OP_LIST) {
        sqlite_lister_start(store->lister, op);
        return;
    }
    uv_mutex_lock(&store->mutex);
    op->next = NULL;
    if (store->tail)
        store->tail->next = op;
    else
        store->head = op;
    store->tail = op;
    uv_cond_signal(&store->cond);
    uv_mutex_unlock(&store->mutex);
}

static void sqlite_close(struct store *base)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    uv_mutex_lock(&store->mutex);
    store->stop = true;
    uv_cond_signal(&store->cond);
    uv_mutex_unlock(&store->mutex);
}

static void writer_exited(struct store_mail *mail)
{
    struct sqlite_store *store =
        (struct sqlite_store *)((char *)mail - offsetof(struct sqlite_store, exited));
    uv_thread_join(&store->thread); /* it has nothing left to do */
    store_impl_closed(&store->base);
}

static void sqlite_free(struct sqlite_store *store)
{
    free(store->path);
    free(store->lock_path);
    free(store);
}

static void sqlite_destroy(struct store *base)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    uv_mutex_destroy(&store->mutex);
    uv_cond_destroy(&store->cond);
    store_base_clear(base);
    sqlite_free(store);
}

static const struct store_impl sqlite_impl = {"sqlite", sqlite_start, sqlite_close, sqlite_destroy};

/* ---- opening (the loop's thread, before the writer exists) ---- */

static int fail_sql(struct sqlite_store *store, struct error *error)
{
    return error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s: %s", store->path,
                     sqlite3_errmsg(store->db));
}

/* Switching a new file to WAL needs it alone for a moment, and does not use the busy handler. */
static int set_wal(sqlite3 *db)
{
    int rc = SQLITE_BUSY;
    for (int i = 0; i < 100 && (rc & 0xff) == SQLITE_BUSY; i++) {
        if (i)
            usleep(10000);
        rc = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    }
    return rc;
}

static int sqlite_open_db(struct sqlite_store *store, const struct store_config *config,
                          struct error *error)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(store->path, &store->db, flags, NULL) != SQLITE_OK) {
        int reason = sqlite3_system_errno(store->db);
        return error_set(error, CHXA_E_STORE_UNAVAILABLE,
                         "%s: %s: %s (its folder must exist, and chxad's user must own it)",
                         store->path, sqlite3_errmsg(store->db), strerror(reason));
    }
    sqlite3_extended_result_codes(store->db, 1);
    uint64_t busy_ms = config->operation_timeout_ms ? config->operation_timeout_ms : 5000;
    sqlite3_busy_timeout(store->db, busy_ms > INT32_MAX ? INT32_MAX : (int)busy_ms);
    if (set_wal(store->db) != SQLITE_OK ||
        sqlite3_exec(store->db,
                     config->fsync ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = OFF", NULL,
                     NULL, NULL) != SQLITE_OK)
        return fail_sql(store, error);
    int code = sqlite_schema_prepare(store->db, store->path, config->cluster, error);
    for (int i = 0; code == 0 && i < STMT_COUNT; i++)
        if (sqlite3_prepare_v3(store->db, sqlite_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &store->stmts[i], NULL) != SQLITE_OK)
            code = fail_sql(store, error);
    return code ? code : sqlite_lister_open(store->path, busy_ms, &store->lister, error);
}

int store_sqlite_open(uv_loop_t *loop, const struct store_config *config, const char *location,
                      store_event_cb *on_event, void *arg, struct store **ret_store,
                      struct error *error)
{
    if (location[0] == '\0' || location[0] == ':' || strncmp(location, "file:", 5) == 0)
        return error_set(error, CHXA_E_INVALID_REQUEST, "sqlite: needs the path of a file");
    struct sqlite_store *store = mem_alloc(sizeof *store);
    store->path = mem_strdup(location);
    store->lock_path = mem_printf("%s.%s.lock", location, config->node);
    store->lock_fd = -1;
    int code = sqlite_open_db(store, config, error);
    if (code) {
        sqlite_close_db(store);
        sqlite_free(store);
        return code;
    }
    store->exited.run = writer_exited;
    int rc = uv_mutex_init(&store->mutex);
    assert(rc == 0);
    rc = uv_cond_init(&store->cond);
    assert(rc == 0);
    store_base_init(&store->base, &sqlite_impl, loop, config, on_event, arg);
    rc = uv_thread_create(&store->thread, writer_main, store);
    assert(rc == 0);
    *ret_store = &store->base;
    return 0;
}
