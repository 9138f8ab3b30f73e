/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a table's definition is still what it was, seen on disk: ClickHouse keeps it in a file of
 * the table's name and puts a new file in its place at every ALTER that changes it, at RENAME, DROP
 * and CREATE. A stamp says which file stood there.
 *
 * Invariant: two equal stamps of the same path, the first of them settled, mean that the file was
 * not replaced in between. What a stamp does not show is what other tables do: a materialized view
 * that reads from this one.
 *
 * Threads: any worker (reading blocks); the rest is pure.
 */
#ifndef CHXA_CH_TABLE_STAMP_H
#define CHXA_CH_TABLE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

struct table_stamp {
    uint64_t disk, inode, bytes;
    int64_t modified_ns, changed_ns;
    uint64_t folder_disk, folder_inode; /* of the table's directory */
};

/* Where a server at `server_path` keeps the definition of a table: <path>/metadata/<db>/<table>.sql,
 * with names escaped as ClickHouse does. Under the database's name, so that another database that
 * takes the name shows. malloc'd. Pure. */
char *table_definition_path(const char *server_path, const char *database, const char *table);

/* False (and *ret_stamp all zero) when there is nothing to be seen, or path is NULL. */
bool table_stamp_read(const char *path, const char *table_path, struct table_stamp *ret_stamp);

/* True when both are of the same file; never for zero ones. Pure. */
bool table_stamp_equal(const struct table_stamp *a, const struct table_stamp *b);

/* The file is so old that one put in its place now would bear another time, even on a filesystem
 * that counts in ticks and gives the inode's number away again. Pure. */
bool table_stamp_settled(const struct table_stamp *stamp, int64_t now_ms);

#endif
