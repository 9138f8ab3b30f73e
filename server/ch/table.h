/* SPDX-License-Identifier: Apache-2.0
 *
 * What the node must know of a target table, asked of ClickHouse: kind, paths, structure, views;
 * the scratch table's DDL; and the comparison of two structures.
 *
 * Nothing here goes by the server's version: ch_caps are found by asking (system.columns of
 * system.tables, system.settings, …).
 */
#ifndef CHXA_CH_TABLE_H
#define CHXA_CH_TABLE_H

#include "ch/ch_http.h"
#include "ch/table_stamp.h"

struct ch_caps {
    char *version;               /* for the log and the answers only */
    bool has_data_paths;         /* system.tables.data_paths (else data_path) */
    bool has_uuid;               /* system.tables.uuid */
    bool has_unique_key;         /* system.tables.unique_key */
    bool has_disks;              /* system.disks, with a type */
    bool has_disk_encrypted;     /* system.disks.is_encrypted */
    bool has_disk_cache;         /* system.disks.cache_path */
    bool has_mutations;          /* system.mutations */
    bool has_insert_settings;    /* the setting async_insert, and with it INSERT … SETTINGS */
    bool has_drop_sync;          /* database_atomic_wait_for_drop_and_detach_synchronously */
    bool has_drop_limits;        /* max_table_size_to_drop can be set for one statement */
    bool has_insert_deduplicate; /* the setting insert_deduplicate */
    char *scratch_settings; /* `name = value, …`: those of ours for scratch tables that the server
                               knows, "" for none */
    struct ch_param *create_params; /* for a scratch table's CREATE: no check may refuse what the
                                       target has; the strings are constants */
    size_t n_create_params;
};

struct ch_disk {      /* where held parts of tables on this disk live */
    char *table_path; /* absolute path of the table's directory on the disk, no trailing slash */
    char *root;       /* absolute path of the disk's root, no trailing slash */
};

struct ch_table {
    char *database;
    char *table;
    char *engine;      /* without Replicated */
    char *engine_full; /* of the scratch table: without replication, with merges off when settings
                          can be carried */
    bool replicated;
    bool old_syntax; /* MergeTree(date, key, granularity): part names carry dates */
    char *schema;    /* canonical JSON of what table_schema_compatible reads */
    char *shape;     /* SHA-256 of the whole definition: what makes rows into parts (defaults,
                        codecs, indexes, TTL, settings too); differs whenever a scratch table
                        must */
    struct ch_disk *disks;
    size_t n_disks;
    char **views; /* db.name of each materialized view that reads from it */
    size_t n_views;
    char *definition; /* absolute path of the file that ClickHouse keeps its definition in; NULL:
                         not known */
    struct table_stamp stamp; /* … and of what stood there after ClickHouse had answered */
};

void ch_caps_clear(struct ch_caps *caps);
void ch_caps_copy(const struct ch_caps *from, struct ch_caps *ret);
void ch_table_clear(struct ch_table *table);
void ch_table_copy(const struct ch_table *from, struct ch_table *ret);

/* Asks the server. Errors as in ch_http.h. ret caps valid during the callback, may be moved out. */
typedef void ch_caps_cb(void *arg, int code, struct error *error, struct ch_caps *caps);
void ch_caps_probe(struct ch_client *client, uint64_t timeout_ms, ch_caps_cb *done, void *arg);

/*
 * Loads a table in one request. CHXA_E_TARGET_NOT_FOUND; CHXA_E_TARGET_UNSUPPORTED (a view, a
 * Distributed, Buffer, Memory… table, a disk that is not local or not on one filesystem with its
 * root), with a sentence that tells the user what to do instead; or as in ch_http.h. Views are
 * listed, not refused (the caller decides). The table is valid during the callback and may be moved
 * out.
 */
typedef void ch_table_cb(void *arg, int code, struct error *error, struct ch_table *table);
void ch_table_load(struct ch_client *client, const struct ch_caps *caps, const char *database,
                   const char *table, uint64_t timeout_ms, ch_table_cb *done, void *arg);

/*
 * Which materialized views read from the table, and nothing else: one small request. ret_views (valid
 * during the callback): db.name of each. CHXA_E_TARGET_NOT_FOUND, or as in ch_http.h.
 */
typedef void ch_views_cb(void *arg, int code, struct error *error, char **views, size_t n_views);
void ch_table_views_load(struct ch_client *client, const char *database, const char *table,
                         uint64_t timeout_ms, ch_views_cb *done, void *arg);

/* DDL of an empty scratch table like `table`. Appends to out. Run it with caps->create_params. */
void ch_table_scratch_ddl(const struct ch_table *table, const struct ch_caps *caps,
                          const char *database, const char *name, struct buf *out);

/*
 * Pure. True when parts of structure `staged` may be attached to a table of structure `now` (same
 * UUID where there is one, same engine and arguments, keys, and every staged column still there
 * with its type; added columns, indexes, projections, TTL, settings, a longer sorting key are
 * harmless). False: *ret_why (malloc'd, for the caller) says what differs.
 */
bool table_schema_compatible(const char *staged, const char *now, char **ret_why);

/* Pure. False: no column of that structure has the name, in whatever case. */
bool table_schema_may_name(const char *schema, const char *name, size_t len);

/* Pure. engine_full as system.tables gives it → the same without Replicated and its two string
 * arguments. Returns malloc'd text, or NULL when it cannot be understood. */
char *table_engine_plain(const char *engine_full);

#endif
