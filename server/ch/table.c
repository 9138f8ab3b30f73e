/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading a target table: one request, whose answer is a list of [kind, [text, …]] rows, so that
 * names with any characters arrive whole and nothing is parsed but JSON; then a look at its
 * directories from a worker thread. See table.h.
 *
 * Threads: the loop's; check_disks alone runs on a worker, while nothing else touches its struct
 * loading.
 */
#include "ch/table.h"

#include "base/hash.h"
#include "base/mem.h"
#include "ch/sql.h"
#include "ch/table_engine.h"
#include "ch/table_schema.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define FAMILY "MergeTree"

/* Settings that make no sense, or harm, in a second table. */
static const char *const settings_dropped[] = {"table_disk", NULL};

struct loading {
    struct ch_client *client;
    struct ch_caps caps;
    ch_table_cb *done;
    void *arg;
    uv_work_t work;
    struct ch_table table;
    int code;
    struct error error;
};

void ch_table_clear(struct ch_table *table)
{
    free(table->database);
    free(table->table);
    free(table->engine);
    free(table->engine_full);
    free(table->schema);
    free(table->shape);
    for (size_t i = 0; i < table->n_disks; i++) {
        free(table->disks[i].table_path);
        free(table->disks[i].root);
    }
    free(table->disks);
    for (size_t i = 0; i < table->n_views; i++)
        free(table->views[i]);
    free(table->views);
    free(table->definition);
    *table = (struct ch_table){0};
}

void ch_table_copy(const struct ch_table *from, struct ch_table *ret)
{
    struct ch_table copy = *from;
    copy.database = mem_strdup(from->database);
    copy.table = mem_strdup(from->table);
    copy.engine = mem_strdup(from->engine);
    copy.engine_full = mem_strdup(from->engine_full);
    copy.schema = mem_strdup(from->schema);
    copy.shape = mem_strdup(from->shape);
    copy.definition = mem_strdup(from->definition);
    copy.disks = mem_array(from->n_disks, sizeof *copy.disks);
    for (size_t i = 0; i < from->n_disks; i++)
        copy.disks[i] = (struct ch_disk){mem_strdup(from->disks[i].table_path),
                                         mem_strdup(from->disks[i].root)};
    copy.views = mem_array(from->n_views, sizeof *copy.views);
    for (size_t i = 0; i < from->n_views; i++)
        copy.views[i] = mem_strdup(from->views[i]);
    *ret = copy;
}

/* ---- the question ---- */

static void append_where(struct buf *sql, const char *table_column, const char *database,
                         const char *table)
{
    buf_puts(sql, " WHERE database = ");
    sql_string(sql, database);
    buf_printf(sql, " AND %s = ", table_column);
    sql_string(sql, table);
}

static void append_views(struct buf *sql, const char *database, const char *table)
{
    buf_puts(sql, "SELECT 'views' AS kind, arrayMap((d, t) -> concat(d, '.', t),"
                  " dependencies_database, dependencies_table) AS texts FROM system.tables");
    append_where(sql, "name", database, table);
}

static char *load_sql(const struct ch_caps *caps, const struct ch_table *table)
{
    const char *database = table->database, *name = table->table;
    struct buf sql = {0};
    buf_printf(&sql,
               "SELECT 'table' AS kind, [engine, engine_full, %s, partition_key, sorting_key,"
               " primary_key, sampling_key, create_table_query, %s] AS texts FROM system.tables",
               caps->has_uuid ? "toString(uuid)" : "''",
               caps->has_unique_key ? "unique_key" : "''");
    append_where(&sql, "name", database, name);
    buf_printf(&sql, " UNION ALL SELECT 'paths', %s FROM system.tables",
               caps->has_data_paths ? "data_paths" : "[data_path]");
    append_where(&sql, "name", database, name);
    buf_puts(&sql, " UNION ALL ");
    append_views(&sql, database, name);
    buf_puts(&sql, " UNION ALL SELECT 'column', [name, type, default_kind] FROM system.columns");
    append_where(&sql, "table", database, name);
    if (caps->has_disks)
        buf_printf(&sql, " UNION ALL SELECT 'disk', [path, type, %s, %s, name] FROM system.disks",
                   caps->has_disk_encrypted ? "toString(is_encrypted)" : "'0'",
                   caps->has_disk_cache ? "cache_path" : "''");
    if (caps->has_mutations) {
        buf_puts(&sql, " UNION ALL SELECT 'alter', [concat(command, ', ', mutation_id)]"
                       " FROM system.mutations");
        append_where(&sql, "table", database, name);
        buf_puts(&sql, " AND match(command, '^[(]?(DROP|RENAME|MODIFY) COLUMN ')");
    }
    buf_puts(&sql, " FORMAT JSONCompact");
    return buf_take(&sql);
}

/* ---- reading the answer ---- */

/* The texts of the only row of a kind, or NULL. */
static const json_t *row_of(const json_t *rows, const char *kind)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_array_get(row, 0));
        if (name && strcmp(name, kind) == 0)
            return json_array_get(row, 1);
    }
    return NULL;
}

static size_t count_of(const json_t *rows, const char *kind)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *name = json_string_value(json_array_get(json_array_get(rows, i), 0));
        n += name && strcmp(name, kind) == 0;
    }
    return n;
}

static const char *text_at(const json_t *texts, size_t i)
{
    const char *text = json_string_value(json_array_get(texts, i));
    return text ? text : "";
}

enum table_text { /* of the row 'table', in the order of load_sql */
                  TABLE_ENGINE,
                  TABLE_ENGINE_FULL,
                  TABLE_UUID,
                  TABLE_PARTITION_KEY,
                  TABLE_SORTING_KEY,
                  TABLE_PRIMARY_KEY,
                  TABLE_SAMPLING_KEY,
                  TABLE_CREATE_QUERY,
                  TABLE_UNIQUE_KEY,
};

enum disk_text {
    DISK_PATH,
    DISK_TYPE,
    DISK_ENCRYPTED,
    DISK_CACHE,
    DISK_NAME
}; /* of a row 'disk' */

static const struct {
    const char *engine, *advice;
} engine_advices[] = {
    {"View", "insert into the table that the view reads from"},
    {"MaterializedView", "insert into the view's source, or into its target table"},
    {"LiveView", "insert into the table that the view reads from"},
    {"WindowView", "insert into the table that the view reads from"},
    {"Distributed",
     "insert into the local MergeTree table behind it, through the chxad of the node "
     "that has it"},
    {"Buffer", "insert into the MergeTree table behind the buffer"},
    {"Merge", "insert into one of the tables that it merges"},
    {"Kafka", "insert into the MergeTree table that its rows go to"},
    {"Memory", "use a MergeTree table"},
    {"Log", "use a MergeTree table"},
    {"TinyLog", "use a MergeTree table"},
    {"StripeLog", "use a MergeTree table"},
    {"SharedMergeTree", "its parts are in object storage; use a MergeTree table on a local disk"},
};

static int refuse_engine(const struct loading *loading, const char *engine, struct error *error)
{
    const char *advice = "only tables of the MergeTree family can be staged: use one of them";
    for (size_t i = 0; i < sizeof engine_advices / sizeof engine_advices[0]; i++)
        if (strcmp(engine, engine_advices[i].engine) == 0)
            advice = engine_advices[i].advice;
    return error_set(error, CHXA_E_TARGET_UNSUPPORTED,
                     "rows for %s.%s cannot be staged, its engine is %s: %s",
                     loading->table.database, loading->table.table, engine, advice);
}

static bool is_family(const char *engine)
{
    size_t len = strlen(engine), family = strlen(FAMILY);
    return len >= family && strcmp(engine + len - family, FAMILY) == 0 &&
           strncmp(engine, "Shared", strlen("Shared")) != 0;
}

static int read_engine(struct loading *loading, const json_t *texts)
{
    struct ch_table *table = &loading->table;
    const char *full = text_at(texts, TABLE_ENGINE_FULL);
    const char *engine = text_at(texts, TABLE_ENGINE);
    if (!is_family(engine))
        return refuse_engine(loading, engine, &loading->error);
    if (*text_at(texts, TABLE_UNIQUE_KEY))
        return error_set(&loading->error, CHXA_E_TARGET_UNSUPPORTED,
                         "rows for %s.%s cannot be staged, it has a UNIQUE KEY, which ATTACH would "
                         "not enforce: use a table without one",
                         table->database, table->table);
    char *plain = table_engine_plain(full);
    char *arguments = NULL;
    if (plain == NULL || !table_engine_split(plain, &table->engine, &arguments)) {
        free(plain);
        return error_set(&loading->error, CHXA_E_TARGET_UNSUPPORTED,
                         "the engine clause of %s.%s cannot be understood: %s", table->database,
                         table->table, full);
    }
    free(arguments);
    table->replicated = strncmp(engine, "Replicated", strlen("Replicated")) == 0;
    table->old_syntax = table_engine_is_old_syntax(plain);
    table->engine_full =
        table_engine_with_settings(plain, loading->caps.scratch_settings, settings_dropped);
    free(plain);
    return 0;
}

static const char *zero_uuid_is_none(const char *uuid)
{
    return strspn(uuid, "0-") == strlen(uuid) ? "" : uuid;
}

static void read_schema(struct loading *loading, const json_t *rows, const json_t *texts)
{
    char *plain = table_engine_plain(text_at(texts, TABLE_ENGINE_FULL));
    struct table_schema schema = {
        .uuid = zero_uuid_is_none(text_at(texts, TABLE_UUID)),
        .engine = plain,
        .partition_key = text_at(texts, TABLE_PARTITION_KEY),
        .sorting_key = text_at(texts, TABLE_SORTING_KEY),
        .primary_key = text_at(texts, TABLE_PRIMARY_KEY),
        .sampling_key = text_at(texts, TABLE_SAMPLING_KEY),
    };
    schema.columns = mem_array(count_of(rows, "column"), sizeof *schema.columns);
    schema.alters = mem_array(count_of(rows, "alter"), sizeof *schema.alters);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *kind = text_at(row, 0);
        const json_t *cells = json_array_get(row, 1);
        if (strcmp(kind, "column") == 0)
            schema.columns[schema.n_columns++] = (struct table_schema_column){
                text_at(cells, 0), text_at(cells, 1), text_at(cells, 2)};
        else if (strcmp(kind, "alter") == 0)
            schema.alters[schema.n_alters++] = text_at(cells, 0);
    }
    loading->table.schema = table_schema_encode(&schema);
    assert(loading->table.schema); /* read_engine understood the same text */
    free(schema.columns);
    free(schema.alters);
    free(plain);
    struct hash *hash = hash_new();
    const char *create = text_at(texts, TABLE_CREATE_QUERY);
    hash_update(hash, create, strlen(create) + 1);
    hash_update(hash, loading->table.engine_full, strlen(loading->table.engine_full) + 1);
    hash_update(hash, loading->table.schema, strlen(loading->table.schema));
    loading->table.shape = mem_alloc(HASH_HEX_BYTES + 1);
    hash_final(hash, loading->table.shape);
}

static void read_views(struct ch_table *table, const json_t *rows)
{
    const json_t *views = row_of(rows, "views");
    size_t n = json_array_size(views);
    table->views = mem_array(n, sizeof *table->views);
    for (size_t i = 0; i < n; i++)
        table->views[table->n_views++] = mem_strdup(text_at(views, i));
}

/* ---- disks ---- */

/* Without a slash at the end, and without doubled ones: 18.16 shows <root>//data/… once a table was
 * renamed. */
static char *clean_path(const char *path)
{
    char *clean = mem_strdup(path);
    size_t len = 0;
    for (const char *c = path; *c; c++)
        if (*c != '/' || len == 0 || clean[len - 1] != '/')
            clean[len++] = *c;
    if (len > 1 && clean[len - 1] == '/')
        len--;
    clean[len] = '\0';
    return clean;
}

/* <root>/data/<database>/<table> or <root>/store/<3 digits>/<uuid> → <root>; NULL otherwise. */
static char *root_of_path(const char *table_path)
{
    char *root = mem_strdup(table_path);
    for (size_t i = 0; i < 3; i++) {
        char *slash = strrchr(root, '/');
        if (slash == NULL || slash == root)
            goto no_root;
        if (i == 2 && strcmp(slash, "/data") != 0 && strcmp(slash, "/store") != 0)
            goto no_root;
        *slash = '\0';
    }
    return root;
no_root:
    free(root);
    return NULL;
}

/* The disk whose path is the longest beginning of the table's. */
static const json_t *disk_of_path(const json_t *rows, const char *table_path)
{
    const json_t *found = NULL;
    size_t found_len = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(text_at(row, 0), "disk") != 0)
            continue;
        const json_t *disk = json_array_get(row, 1);
        char *path = clean_path(text_at(disk, DISK_PATH));
        size_t len = strlen(path);
        if (len > found_len && strncmp(table_path, path, len) == 0 &&
            (table_path[len] == '/' || len == 1)) {
            found = disk;
            found_len = len;
        }
        free(path);
    }
    return found;
}

static int refuse_disk(struct loading *loading, const char *path, const char *what)
{
    return error_set(&loading->error, CHXA_E_TARGET_UNSUPPORTED,
                     "rows for %s.%s cannot be staged: %s (%s); use a storage policy whose disks "
                     "are all plain local directories",
                     loading->table.database, loading->table.table, what, path);
}

static int read_disk(struct loading *loading, const json_t *rows, const char *data_path)
{
    if (*data_path != '/')
        return refuse_disk(loading, data_path, "its data is not at an absolute path");
    struct ch_disk *disk = &loading->table.disks[loading->table.n_disks++];
    disk->table_path = clean_path(data_path);
    if (!loading->caps.has_disks) {
        disk->root = root_of_path(disk->table_path);
        return disk->root ? 0 : refuse_disk(loading, data_path, "its disk's root is not known");
    }
    const json_t *found = disk_of_path(rows, disk->table_path);
    if (found == NULL)
        return refuse_disk(loading, data_path, "its path is on none of ClickHouse's disks");
    if (strcasecmp(text_at(found, DISK_TYPE), "local") != 0)
        return refuse_disk(loading, data_path, "its disk is not a local one");
    if (strcmp(text_at(found, DISK_ENCRYPTED), "0") != 0)
        return refuse_disk(loading, data_path, "its disk is encrypted");
    if (*text_at(found, DISK_CACHE))
        return refuse_disk(loading, data_path, "its disk is a cache");
    disk->root = clean_path(text_at(found, DISK_PATH));
    return 0;
}

static int read_disks(struct loading *loading, const json_t *rows)
{
    const json_t *paths = row_of(rows, "paths");
    size_t n = json_array_size(paths);
    if (n == 0)
        return refuse_disk(loading, "", "ClickHouse names no path of it");
    loading->table.disks = mem_array(n, sizeof *loading->table.disks);
    for (size_t i = 0; i < n; i++) {
        int code = read_disk(loading, rows, text_at(paths, i));
        if (code != 0)
            return code;
    }
    return 0;
}

/* ClickHouse's own path: where the disk that it calls default is, whatever disks the table is on. */
static char *server_path(const struct loading *loading, const json_t *rows)
{
    if (!loading->caps.has_disks)
        return mem_strdup(loading->table.disks[0].root);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *disk = json_array_get(row, 1);
        if (strcmp(text_at(row, 0), "disk") == 0 &&
            strcmp(text_at(disk, DISK_NAME), "default") == 0)
            return clean_path(text_at(disk, DISK_PATH));
    }
    return NULL;
}

static void read_definition(struct loading *loading, const json_t *rows)
{
    struct ch_table *table = &loading->table;
    char *path = server_path(loading, rows);
    if (path)
        table->definition = table_definition_path(path, table->database, table->table);
    free(path);
}

static int refuse_missing(struct loading *loading)
{
    return error_set(&loading->error, CHXA_E_TARGET_NOT_FOUND, "the table %s.%s does not exist",
                     loading->table.database, loading->table.table);
}

static int read_rows(struct loading *loading, const json_t *rows)
{
    struct ch_table *table = &loading->table;
    const json_t *texts = row_of(rows, "table");
    if (texts == NULL)
        return refuse_missing(loading);
    int code = read_engine(loading, texts);
    if (code != 0)
        return code;
    /* One answer, but of several looks: a table that goes away meanwhile is a row without columns
     * or without paths (other engines never have paths). */
    if (count_of(rows, "column") == 0 || json_array_size(row_of(rows, "paths")) == 0)
        return refuse_missing(loading);
    read_schema(loading, rows, texts);
    read_views(table, rows);
    code = read_disks(loading, rows);
    if (code == 0)
        read_definition(loading, rows);
    return code;
}

/* ---- the way there ---- */

/* On a worker: rename() between a table's directory and its disk's root must be possible. */
static void check_disks(uv_work_t *work)
{
    struct loading *loading = work->data;
    struct ch_table *table = &loading->table;
    for (size_t i = 0; i < table->n_disks; i++) {
        const char *paths[] = {table->disks[i].table_path, table->disks[i].root};
        struct stat status[2];
        for (size_t k = 0; k < 2; k++) {
            if (stat(paths[k], &status[k]) == 0)
                continue;
            loading->code = error_set(&loading->error, CHXA_E_IO_FAILED,
                                      "cannot look at %s: %s (chxad runs on ClickHouse's machine, "
                                      "as its operating-system user)",
                                      paths[k], strerror(errno));
            return;
        }
        if (status[0].st_dev != status[1].st_dev) {
            loading->code = refuse_disk(loading, table->disks[i].table_path,
                                        "it is not on the same filesystem as its disk's root");
            return;
        }
        if (i == 0) {
            char *schema = table_schema_add_folder(table->schema, status[0].st_ino);
            free(table->schema);
            table->schema = schema;
        }
    }
    table_stamp_read(table->definition, table->disks[0].table_path, &table->stamp);
}

static void loading_end(struct loading *loading)
{
    loading->done(loading->arg, loading->code, &loading->error, &loading->table);
    ch_table_clear(&loading->table);
    error_clear(&loading->error);
    ch_caps_clear(&loading->caps);
    free(loading);
}

static void disks_checked(uv_work_t *work, int status)
{
    struct loading *loading = work->data;
    if (status != 0)
        loading->code = error_set(&loading->error, CHXA_E_CANCELLED, "stopping");
    loading_end(loading);
}

static void table_answered(void *arg, const struct ch_answer *answer)
{
    struct loading *loading = arg;
    loading->code = answer->code;
    if (answer->code != 0) {
        error_move(&loading->error, answer->error);
        loading_end(loading);
        return;
    }
    json_t *root = json_loadb(answer->body, answer->body_bytes, JSON_ALLOW_NUL, NULL);
    const json_t *rows = json_object_get(root, "data");
    if (json_is_array(rows))
        loading->code = read_rows(loading, rows);
    else
        loading->code = error_set(&loading->error, CHXA_E_CLICKHOUSE_UNKNOWN,
                                  "ClickHouse's answer about %s.%s is not the JSON asked for",
                                  loading->table.database, loading->table.table);
    json_decref(root);
    if (loading->code != 0) {
        loading_end(loading);
        return;
    }
    loading->work.data = loading;
    int queued =
        uv_queue_work(ch_client_loop(loading->client), &loading->work, check_disks, disks_checked);
    assert(queued == 0);
    (void)queued;
}

void ch_table_load(struct ch_client *client, const struct ch_caps *caps, const char *database,
                   const char *table, uint64_t timeout_ms, ch_table_cb *done, void *arg)
{
    struct loading *loading = mem_alloc(sizeof *loading);
    loading->client = client;
    ch_caps_copy(caps, &loading->caps);
    loading->done = done;
    loading->arg = arg;
    loading->table.database = mem_strdup(database);
    loading->table.table = mem_strdup(table);
    char *sql = load_sql(caps, &loading->table);
    struct ch_statement statement = {.sql = sql, .timeout_ms = timeout_ms};
    ch_query(client, &statement, table_answered, loading);
    free(sql);
}

/* ---- views alone ---- */

struct views_loading {
    ch_views_cb *done;
    void *arg;
    char *named; /* database.table, for the error */
};

static void views_answered(void *arg, const struct ch_answer *answer)
{
    struct views_loading *loading = arg;
    struct ch_table table = {0};
    struct error error = {0};
    int code = answer->code;
    json_t *root = NULL;
    if (code != 0)
        error_move(&error, answer->error);
    else
        root = json_loadb(answer->body, answer->body_bytes, JSON_ALLOW_NUL, NULL);
    const json_t *rows = json_object_get(root, "data");
    if (code == 0 && !json_is_array(rows))
        code = error_set(&error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "ClickHouse's answer about the views of %s is not the JSON asked for",
                         loading->named);
    else if (code == 0 && json_array_size(rows) == 0)
        code = error_set(&error, CHXA_E_TARGET_NOT_FOUND, "the table %s does not exist",
                         loading->named);
    else if (code == 0)
        read_views(&table, rows);
    loading->done(loading->arg, code, &error, table.views, table.n_views);
    json_decref(root);
    ch_table_clear(&table);
    error_clear(&error);
    free(loading->named);
    free(loading);
}

void ch_table_views_load(struct ch_client *client, const char *database, const char *table,
                         uint64_t timeout_ms, ch_views_cb *done, void *arg)
{
    struct views_loading *loading = mem_alloc(sizeof *loading);
    *loading = (struct views_loading){done, arg, mem_printf("%s.%s", database, table)};
    struct buf sql = {0};
    append_views(&sql, database, table);
    buf_puts(&sql, " FORMAT JSONCompact");
    struct ch_statement statement = {.sql = buf_str(&sql), .timeout_ms = timeout_ms};
    ch_query(client, &statement, views_answered, loading);
    buf_clear(&sql);
}

void ch_table_scratch_ddl(const struct ch_table *table, const struct ch_caps *caps,
                          const char *database, const char *name, struct buf *out)
{
    (void)caps; /* our settings are in engine_full already */
    buf_puts(out, "CREATE TABLE ");
    sql_table(out, database, name);
    buf_puts(out, " AS ");
    sql_table(out, table->database, table->table);
    buf_puts(out, " ENGINE = ");
    buf_puts(out, table->engine_full);
}
