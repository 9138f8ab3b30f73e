/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the SQLite store: a thread and a connection of their own, so that a page that looks at
 * thousands of records holds up no change (in WAL mode a reader sees the last commit, and neither
 * waits for the writer nor makes it wait). A request sees what was answered before it: that was
 * committed before.
 *
 * A page's token is the xid that was looked at last; of a list by age (finished_before_ms), the
 * time behind which its index goes on, a colon, and the xid.
 *
 * Threads: sqlite_lister_open on the loop's; _start and _stop from any; the rest is the thread's.
 */
#include "store/store_impl.h"
#include "store/store_sqlite.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum list_stmt_id { LIST_ALL, LIST_OPEN, LIST_OPEN_OWNER, LIST_FINISHED, LIST_STMTS };

/* The last two columns: the record, and its age in the index by age. */
static const char *const list_sql[LIST_STMTS] = {
    [LIST_ALL] = "SELECT xid, version, record, 0 FROM txns WHERE xid > ?1 ORDER BY xid",
    [LIST_OPEN] =
        "SELECT xid, version, record, 0 FROM txns WHERE xid > ?1 AND unfinished ORDER BY xid",
    [LIST_OPEN_OWNER] = "SELECT xid, version, record, 0 FROM txns "
                        "WHERE unfinished AND owner = ?2 AND xid > ?1 ORDER BY xid",
    [LIST_FINISHED] = "SELECT xid, version, record, " SQLITE_CHANGED_MS " FROM txns "
                      "WHERE NOT unfinished AND " SQLITE_CHANGED_MS " >= ?1 "
                      "AND " SQLITE_CHANGED_MS " < ?2 ORDER BY " SQLITE_CHANGED_MS ", xid",
};

struct sqlite_lister {
    uv_thread_t thread;
    uv_mutex_t mutex;
    uv_cond_t cond;
    struct store_op *head; /* under mutex */
    struct store_op *tail; /* under mutex */
    bool stop;             /* under mutex */

    sqlite3 *db;
    sqlite3_stmt *stmts[LIST_STMTS];
};

/* ---- a page ---- */

/* "<ms>:<xid>". False: it is none. */
static bool token_read(const char *token, int64_t *ret_ms, const char **ret_xid)
{
    char *end;
    errno = 0;
    *ret_ms = strtoll(token, &end, 10);
    *ret_xid = end + 1;
    return errno == 0 && end != token && *end == ':' && chxa_xid_valid(*ret_xid);
}

static void bind_text(sqlite3_stmt *stmt, int index, const char *text)
{
    int rc = sqlite3_bind_text64(stmt, index, text ? text : "", text ? strlen(text) : 0,
                                 SQLITE_STATIC, SQLITE_UTF8);
    assert(rc == SQLITE_OK);
}

/* Ready to step, or NULL: the token is none. after_xid: rows up to it, of the token's own
 * millisecond, were seen. */
static sqlite3_stmt *list_stmt(struct sqlite_lister *lister, const struct store_op *op,
                               int64_t *ret_after_ms, const char **ret_after_xid)
{
    const struct store_filter *filter = &op->filter;
    enum list_stmt_id id = filter->finished_before_ms ? LIST_FINISHED
                           : !filter->unfinished      ? LIST_ALL
                           : filter->owner            ? LIST_OPEN_OWNER
                                                      : LIST_OPEN;
    sqlite3_stmt *stmt = lister->stmts[id];
    if (id == LIST_FINISHED) {
        *ret_after_ms = INT64_MIN;
        if (filter->after && !token_read(filter->after, ret_after_ms, ret_after_xid))
            return NULL;
        sqlite3_bind_int64(stmt, 1, *ret_after_ms);
        sqlite3_bind_int64(stmt, 2, filter->finished_before_ms);
        return stmt;
    }
    bind_text(stmt, 1, filter->after);
    if (id == LIST_OPEN_OWNER)
        bind_text(stmt, 2, filter->owner);
    return stmt;
}

/* Past a record that cannot be decoded. */
static bool list_goes_on(const struct store_op *op, int code)
{
    return code == CHXA_E_INVALID_RECORD && (op->filter.xids_only || op->filter.skip_unreadable);
}

/* Adds the row's record if it is wanted. */
static int row_take(struct store_op *op, sqlite3_stmt *stmt)
{
    const char *text = (const char *)sqlite3_column_text(stmt, 2);
    struct chxa_record record = {0};
    int code = chxa_record_decode(text ? text : "", (size_t)sqlite3_column_bytes(stmt, 2), &record);
    if (code && !list_goes_on(op, code))
        return code;
    if (code)
        record.xid =
            op->filter.xids_only ? mem_strdup((const char *)sqlite3_column_text(stmt, 0)) : NULL;
    record.version = sqlite3_column_int64(stmt, 1);
    bool id_only = record.owner == NULL; /* only its id is wanted */
    if (record.xid && (id_only || store_filter_matches(&op->filter, &record)))
        store_op_add_record(op, &record);
    chxa_record_clear(&record);
    return 0;
}

static char *token_of(const struct store_op *op, const char *xid, int64_t ms)
{
    return op->filter.finished_before_ms ? mem_printf("%" PRId64 ":%s", ms, xid) : mem_strdup(xid);
}

static int list_page(struct sqlite_lister *lister, struct store_op *op)
{
    int64_t after_ms = 0, last_ms = 0;
    const char *after_xid = NULL;
    sqlite3_stmt *stmt = list_stmt(lister, op, &after_ms, &after_xid);
    if (stmt == NULL)
        return CHXA_E_INVALID_REQUEST;
    char *last = NULL; /* xid of the last row that was looked at */
    int code = 0, rc;
    size_t n_seen = 0;
    while (code == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *xid = (const char *)sqlite3_column_text(stmt, 0);
        int64_t ms = sqlite3_column_int64(stmt, 3);
        if (after_xid && ms == after_ms && strcmp(xid, after_xid) <= 0)
            continue;
        if (op->n_records == op->filter.limit || n_seen == STORE_LIST_SCAN_MAX) {
            op->ret_next = token_of(op, last, last_ms);
            break;
        }
        n_seen++;
        mem_replace(&last, xid);
        last_ms = ms;
        code = row_take(op, stmt);
    }
    free(last);
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    if (code == 0 && rc != SQLITE_DONE && rc != SQLITE_ROW)
        code = CHXA_E_STORE_UNAVAILABLE;
    return code;
}

/* ---- the thread ---- */

static struct store_op *next_op(struct sqlite_lister *lister)
{
    uv_mutex_lock(&lister->mutex);
    while (lister->head == NULL && !lister->stop)
        uv_cond_wait(&lister->cond, &lister->mutex);
    struct store_op *op = lister->head;
    if (op)
        lister->head = op->next;
    if (lister->head == NULL)
        lister->tail = NULL;
    uv_mutex_unlock(&lister->mutex);
    return op;
}

static bool is_stopped(struct sqlite_lister *lister)
{
    uv_mutex_lock(&lister->mutex);
    bool stop = lister->stop;
    uv_mutex_unlock(&lister->mutex);
    return stop;
}

static void lister_main(void *arg)
{
    struct sqlite_lister *lister = arg;
    struct store_op *op;
    while ((op = next_op(lister)) != NULL) {
        bool late = is_stopped(lister) || clock_monotonic_ms() > op->deadline_ms;
        store_op_finish(op, late ? CHXA_E_STORE_UNAVAILABLE : list_page(lister, op));
    }
}

void sqlite_lister_start(struct sqlite_lister *lister, struct store_op *op)
{
    uv_mutex_lock(&lister->mutex);
    op->next = NULL;
    if (lister->tail)
        lister->tail->next = op;
    else
        lister->head = op;
    lister->tail = op;
    uv_cond_signal(&lister->cond);
    uv_mutex_unlock(&lister->mutex);
}

static void db_close(struct sqlite_lister *lister)
{
    for (int i = 0; i < LIST_STMTS; i++)
        sqlite3_finalize(lister->stmts[i]);
    sqlite3_close(lister->db);
}

void sqlite_lister_stop(struct sqlite_lister *lister)
{
    if (lister == NULL)
        return;
    uv_mutex_lock(&lister->mutex);
    lister->stop = true;
    uv_cond_signal(&lister->cond);
    uv_mutex_unlock(&lister->mutex);
    uv_thread_join(&lister->thread);
    db_close(lister);
    uv_mutex_destroy(&lister->mutex);
    uv_cond_destroy(&lister->cond);
    free(lister);
}

int sqlite_lister_open(const char *path, uint64_t busy_ms, struct sqlite_lister **ret_lister,
                       struct error *error)
{
    struct sqlite_lister *lister = mem_alloc(sizeof *lister);
    int rc = sqlite3_open_v2(path, &lister->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_busy_timeout(lister->db, busy_ms > INT32_MAX ? INT32_MAX : (int)busy_ms);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(lister->db, "PRAGMA query_only = ON", NULL, NULL, NULL);
    for (int i = 0; rc == SQLITE_OK && i < LIST_STMTS; i++)
        rc = sqlite3_prepare_v3(lister->db, list_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                &lister->stmts[i], NULL);
    if (rc != SQLITE_OK) {
        int code =
            error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s: %s", path, sqlite3_errmsg(lister->db));
        db_close(lister);
        free(lister);
        return code;
    }
    rc = uv_mutex_init(&lister->mutex);
    assert(rc == 0);
    rc = uv_cond_init(&lister->cond);
    assert(rc == 0);
    rc = uv_thread_create(&lister->thread, lister_main, lister);
    assert(rc == 0);
    *ret_lister = lister;
    return 0;
}
