/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the SQLite store share. Only store_sqlite*.c include this, and only they know
 * SQLite.
 *
 *   store_sqlite.c         the store: requests, the writer thread, lock and epoch
 *   store_sqlite_schema.c  the tables, and what an older file needs to have them
 */
#ifndef CHXA_STORE_STORE_SQLITE_H
#define CHXA_STORE_STORE_SQLITE_H

#include "base/error.h"

#include <sqlite3.h>

/* Makes the tables in a new file, brings an older one up to date, and checks that the file is ours
 * and the cluster's. path: for the messages. CHXA_E_STORE_UNAVAILABLE. */
int sqlite_schema_prepare(sqlite3 *db, const char *path, const char *cluster, struct error *error);

#endif
