/* SPDX-License-Identifier: Apache-2.0
 *
 * The structure fingerprint's making; table_schema_compatible, its reader, is in table.h. Pure; any
 * thread. Internal to the table files.
 */
#ifndef CHXA_CH_TABLE_SCHEMA_H
#define CHXA_CH_TABLE_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_schema_column {
    const char *name;
    const char *type;
    const char *default_kind; /* "", DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL */
};

/* All borrowed for the call. */
struct table_schema {
    const char *uuid;   /* "": none */
    const char *engine; /* engine_full without replication */
    const char *partition_key, *sorting_key, *primary_key, *sampling_key;
    struct table_schema_column *columns; /* is sorted by name */
    size_t n_columns;
    const char *
        *alters; /* ALTERs that the server lists as mutations: a column dropped, renamed … */
    size_t n_alters;
};

/* Canonical JSON text, malloc'd; NULL when the engine cannot be understood. */
char *table_schema_encode(struct table_schema *schema);
/*
 * The same text with the inode of the table's folder, malloc'd. Where tables have no UUID it is what tells a table from
 * another one made, or renamed, to its name (a rename keeps the folder's inode: tried on 18.16.1).
 */
char *table_schema_add_folder(const char *schema, uint64_t inode);

struct buf;
struct ch_table;

/*
 * DDL of an empty table of the structure `staged`, on the disks and with the settings of the table
 * that it was staged for, as that is now; appended to ret_sql. *ret_columns (malloc'd): the list of
 * the columns that an INSERT INTO that table SELECT FROM the old one carries over. False: *ret_why
 * (malloc'd) says what cannot be told.
 */
bool table_schema_old_table(const char *staged, const struct ch_table *now, const char *database,
                            const char *name, struct buf *ret_sql, char **ret_columns,
                            char **ret_why);

#endif
