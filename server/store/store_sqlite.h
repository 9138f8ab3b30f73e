/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the SQLite store share. Only store_sqlite*.c include this, and only they know
 * SQLite.
 *
 *   store_sqlite.c         the store: requests, the writer thread, lock and epoch
 *   store_sqlite_list.c    lists, on a thread and a connection of their own
 *   store_sqlite_schema.c  the tables, and what an older file needs to have them
 */
#ifndef CHXA_STORE_STORE_SQLITE_H
#define CHXA_STORE_STORE_SQLITE_H

#include "base/error.h"

#include <sqlite3.h>
#include <stdint.h>

/* When a record was last changed, as the index of finished ones has it: NULL where that cannot be
 * read. The index serves a query that says the same in the same words. */
#define SQLITE_CHANGED_MS                                                                          \
    "(CASE WHEN json_valid(record) THEN json_extract(record, '$.changed_ms') END)"

/* Makes the tables in a new file, brings an older one up to date, and checks that the file is ours
 * and the cluster's. path: for the messages. CHXA_E_STORE_UNAVAILABLE. */
int sqlite_schema_prepare(sqlite3 *db, const char *path, const char *cluster, struct error *error);

struct store_op;
struct sqlite_lister;

/* Opens the file, which is there, a second time. CHXA_E_STORE_UNAVAILABLE. */
int sqlite_lister_open(const char *path, uint64_t busy_ms, struct sqlite_lister **ret_lister,
                       struct error *error);
/* Takes a list; ends it with store_op_finish. */
void sqlite_lister_start(struct sqlite_lister *lister, struct store_op *op);
/* Ends what waits (UNAVAILABLE) and the thread; blocks for a page at the most. NULL is fine. */
void sqlite_lister_stop(struct sqlite_lister *lister);

#endif
