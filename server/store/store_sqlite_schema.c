/* SPDX-License-Identifier: Apache-2.0
 *
 * The SQLite store's tables, and their versions.
 *
 *   1  records, writes, nodes
 *   2  sinks
 *   3  the index of finished records, by age
 *
 * Runs on the loop's thread while the file is opened, in one transaction: a crash leaves the file
 * as it was. A file of a newer version is refused; an older one is brought up to date, after which
 * an older chxad refuses it.
 */
#include "store/store_sqlite.h"

#include "proto/errors.h"

#include <stdint.h>
#include <string.h>

#define SCHEMA_VERSION 3
#define APPLICATION_ID 0x63687861 /* "chxa" */

/* An entry's text is store_sink.h's. */
#define SQLITE_SCHEMA_SINKS                                                                        \
    "CREATE TABLE sinks (sink TEXT PRIMARY KEY NOT NULL, entry TEXT NOT NULL);"

/* Asked by the retention alone; the expression, so that no process can forget to keep it. */
#define SQLITE_SCHEMA_FINISHED                                                                     \
    "CREATE INDEX txns_finished ON txns (" SQLITE_CHANGED_MS ", xid) WHERE NOT unfinished;"

static const char sqlite_schema[] =
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE nodes (name TEXT PRIMARY KEY, url TEXT NOT NULL, epoch INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE txns (xid TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL,"
    " unfinished INTEGER NOT NULL, owner TEXT NOT NULL, record TEXT NOT NULL);"
    "CREATE INDEX txns_open ON txns (owner, xid) WHERE unfinished;"
    "CREATE INDEX txns_open_all ON txns (xid) WHERE unfinished;"
    "CREATE TABLE writes (xid TEXT NOT NULL, seq INTEGER NOT NULL, body TEXT NOT NULL,"
    " UNIQUE (xid, seq));" SQLITE_SCHEMA_SINKS SQLITE_SCHEMA_FINISHED;

/* What each version needs to become the next one; [0] is never used. */
static const char *const sqlite_steps[SCHEMA_VERSION] = {
    [1] = SQLITE_SCHEMA_SINKS,
    [2] = SQLITE_SCHEMA_FINISHED,
};

static int sqlite_int(sqlite3 *db, const char *sql, int64_t *ret_value)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW)
        *ret_value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int fail_sql(sqlite3 *db, const char *path, struct error *error)
{
    return error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s: %s", path, sqlite3_errmsg(db));
}

/* Inside BEGIN IMMEDIATE, so that two processes that start together make it once. */
static int schema_create(sqlite3 *db, const char *path, const char *cluster, struct error *error)
{
    int64_t n_tables = 0;
    if (sqlite_int(db, "SELECT count(*) FROM sqlite_master", &n_tables) != SQLITE_OK)
        return fail_sql(db, path, error);
    if (n_tables > 0)
        return error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s is another program's database", path);
    char *sql = sqlite3_mprintf("%sINSERT INTO meta VALUES ('cluster', %Q);"
                                "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                                sqlite_schema, cluster, APPLICATION_ID, SCHEMA_VERSION);
    int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc == SQLITE_OK ? 0 : fail_sql(db, path, error);
}

/* Inside the same transaction. */
static int schema_upgrade(sqlite3 *db, const char *path, int64_t version, struct error *error)
{
    for (; version < SCHEMA_VERSION; version++)
        if (sqlite3_exec(db, sqlite_steps[version], NULL, NULL, NULL) != SQLITE_OK)
            return fail_sql(db, path, error);
    char *sql = sqlite3_mprintf("PRAGMA user_version = %d", SCHEMA_VERSION);
    int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
    return rc == SQLITE_OK ? 0 : fail_sql(db, path, error);
}

static int schema_check_cluster(sqlite3 *db, const char *path, const char *cluster,
                                struct error *error)
{
    sqlite3_stmt *stmt = NULL;
    int code = 0;
    if (sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE name = 'cluster'", -1, &stmt, NULL) !=
            SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW)
        code = fail_sql(db, path, error);
    else if (strcmp((const char *)sqlite3_column_text(stmt, 0), cluster) != 0)
        code = error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s belongs to cluster %s, not to %s",
                         path, (const char *)sqlite3_column_text(stmt, 0), cluster);
    sqlite3_finalize(stmt);
    return code;
}

int sqlite_schema_prepare(sqlite3 *db, const char *path, const char *cluster, struct error *error)
{
    int64_t version = 0, application = 0;
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite_int(db, "PRAGMA user_version", &version) != SQLITE_OK ||
        sqlite_int(db, "PRAGMA application_id", &application) != SQLITE_OK)
        return fail_sql(db, path, error);
    int code = 0;
    if (version == 0 && application == 0)
        code = schema_create(db, path, cluster, error);
    else if (application != APPLICATION_ID)
        code = error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s is another program's database", path);
    else if (version > SCHEMA_VERSION)
        code = error_set(error, CHXA_E_STORE_UNAVAILABLE,
                         "%s has schema version %lld; this chxad knows versions up to %d", path,
                         (long long)version, SCHEMA_VERSION);
    else if (version < 1)
        code = error_set(error, CHXA_E_STORE_UNAVAILABLE, "%s has no schema version", path);
    else if (version < SCHEMA_VERSION)
        code = schema_upgrade(db, path, version, error);
    if (code == 0)
        code = schema_check_cluster(db, path, cluster, error);
    if (code == 0 && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        code = fail_sql(db, path, error);
    return code;
}
