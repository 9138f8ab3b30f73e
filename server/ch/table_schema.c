/* SPDX-License-Identifier: Apache-2.0
 *
 * See table_schema.h, and table_schema_compatible in table.h.
 *
 * ClickHouse attaches a part of another structure without a word; afterwards the table can be
 * unreadable, or a column silently holds its default. So whatever a part's files rest on is in the
 * fingerprint: the columns that are stored, the keys, the engine with its arguments. A column that
 * was dropped and added again under its name looks the same here; the server's list of finished
 * ALTERs tells (newer servers; 18.16 keeps none).
 */
#include "ch/table_schema.h"

#include "base/buf.h"
#include "base/mem.h"
#include "ch/sql.h"
#include "ch/table.h"
#include "ch/table_engine.h"

#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int column_compare(const void *left, const void *right)
{
    return strcmp(((const struct table_schema_column *)left)->name,
                  ((const struct table_schema_column *)right)->name);
}

static bool is_stored(const char *default_kind)
{
    return strcmp(default_kind, "ALIAS") != 0 && strcmp(default_kind, "EPHEMERAL") != 0;
}

/* Bytes that are no UTF-8 are kept apart from each other well enough as their escapes. */
static json_t *text_json(const char *text)
{
    json_t *value = json_string(text);
    if (value)
        return value;
    size_t len = strlen(text);
    char *escaped = mem_alloc(4 * len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        static const char digits[] = "0123456789ABCDEF";
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x80) {
            escaped[n++] = (char)byte;
        } else {
            escaped[n++] = '\\';
            escaped[n++] = 'x';
            escaped[n++] = digits[byte >> 4];
            escaped[n++] = digits[byte & 15];
        }
    }
    value = json_string(escaped);
    free(escaped);
    return value;
}

char *table_schema_encode(struct table_schema *schema)
{
    char *engine, *arguments;
    if (!table_engine_split(schema->engine, &engine, &arguments))
        return NULL;
    json_t *root = json_object();
    json_object_set_new(root, "uuid", text_json(schema->uuid));
    json_object_set_new(root, "engine", text_json(engine));
    json_object_set_new(root, "arguments", text_json(arguments));
    json_object_set_new(root, "partition_key", text_json(schema->partition_key));
    json_object_set_new(root, "sorting_key", text_json(schema->sorting_key));
    json_object_set_new(root, "primary_key", text_json(schema->primary_key));
    json_object_set_new(root, "sampling_key", text_json(schema->sampling_key));
    free(engine);
    free(arguments);
    if (schema->n_columns > 1)
        qsort(schema->columns, schema->n_columns, sizeof *schema->columns, column_compare);
    json_t *columns = json_array();
    for (size_t i = 0; i < schema->n_columns; i++) {
        const struct table_schema_column *column = &schema->columns[i];
        json_t *row = json_array();
        json_array_append_new(row, text_json(column->name));
        json_array_append_new(row, text_json(column->type));
        json_array_append_new(row, json_boolean(is_stored(column->default_kind)));
        json_array_append_new(columns, row);
    }
    json_object_set_new(root, "columns", columns);
    json_t *alters = json_array();
    for (size_t i = 0; i < schema->n_alters; i++)
        json_array_append_new(alters, text_json(schema->alters[i]));
    json_object_set_new(root, "alters", alters);
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    return text;
}

/* In the text as it was encoded: a column is ["name",… */
bool table_schema_may_name(const char *schema, const char *name, size_t len)
{
    static const char head[] = "[\"", tail[] = "\",";
    if (memchr(name, '"', len) || memchr(name, '\\', len))
        return true; /* encoded otherwise */
    for (const char *at = strstr(schema, head); at; at = strstr(at, head)) {
        at += sizeof head - 1;
        if (strncasecmp(at, name, len) == 0 && strncmp(at + len, tail, sizeof tail - 1) == 0)
            return true;
    }
    return false;
}

/* ---- comparing ---- */

static const char *text_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text ? text : "";
}

static const char *cell_of(const json_t *row, size_t i)
{
    const char *text = json_string_value(json_array_get(row, i));
    return text ? text : "";
}

/* Sorting keys may grow at their end: parts in the longer order are in the shorter one too, and
 * ClickHouse allows only new columns there. */
static bool key_extends(const char *staged, const char *now)
{
    size_t len = strlen(staged);
    return strcmp(staged, now) == 0 ||
           (len > 0 && strncmp(staged, now, len) == 0 && strncmp(now + len, ", ", 2) == 0);
}

static char *compare_texts(const json_t *staged, const json_t *now)
{
    static const struct {
        const char *key, *what;
    } texts[] = {{"engine", "engine"},
                 {"arguments", "engine's arguments"},
                 {"partition_key", "partition key"},
                 {"primary_key", "primary key"},
                 {"sampling_key", "sampling key"}};
    const char *uuid = text_of(staged, "uuid");
    if (*uuid && strcmp(uuid, text_of(now, "uuid")) != 0)
        return mem_printf("the table was dropped and created again (its UUID was %s and is %s)",
                          uuid, text_of(now, "uuid"));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *before = text_of(staged, texts[i].key), *after = text_of(now, texts[i].key);
        if (strcmp(before, after) != 0)
            return mem_printf("the %s was \"%s\" and is \"%s\"", texts[i].what, before, after);
    }
    const char *before = text_of(staged, "sorting_key"), *after = text_of(now, "sorting_key");
    if (!key_extends(before, after))
        return mem_printf("the sorting key was \"%s\" and is \"%s\"", before, after);
    return NULL;
}

/* Both lists are sorted by name: one walk through both. */
static char *compare_columns(const json_t *staged, const json_t *now)
{
    const json_t *before = json_object_get(staged, "columns");
    const json_t *after = json_object_get(now, "columns");
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(before); i++) {
        const json_t *column = json_array_get(before, i);
        const char *name = cell_of(column, 0);
        if (!json_is_true(json_array_get(column, 2)))
            continue; /* nothing of it is in the parts */
        while (at < json_array_size(after) &&
               strcmp(cell_of(json_array_get(after, at), 0), name) < 0)
            at++;
        const json_t *twin = json_array_get(after, at);
        if (twin == NULL || strcmp(cell_of(twin, 0), name) != 0)
            return mem_printf("the column %s is gone", name);
        if (strcmp(cell_of(twin, 1), cell_of(column, 1)) != 0)
            return mem_printf("the column %s was %s and is %s", name, cell_of(column, 1),
                              cell_of(twin, 1));
        if (!json_is_true(json_array_get(twin, 2)))
            return mem_printf("the column %s is no longer stored", name);
    }
    return NULL;
}

static bool list_has_text(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(cell_of(list, i), text) == 0)
            return true;
    return false;
}

static char *compare_alters(const json_t *staged, const json_t *now)
{
    const json_t *before = json_object_get(staged, "alters");
    const json_t *after = json_object_get(now, "alters");
    for (size_t i = 0; i < json_array_size(after); i++)
        if (!list_has_text(before, cell_of(after, i)))
            return mem_printf("the table was altered: %s", cell_of(after, i));
    return NULL;
}

char *table_schema_add_folder(const char *schema, uint64_t inode)
{
    json_t *root = json_loads(schema, 0, NULL);
    assert(json_is_object(root));
    json_object_set_new(root, "folder", json_integer((json_int_t)inode));
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (text == NULL)
        abort();
    return text;
}

/* Only where there is no UUID: there it says the same, less directly. */
static char *compare_folders(const json_t *staged, const json_t *now)
{
    json_int_t before = json_integer_value(json_object_get(staged, "folder"));
    json_int_t after = json_integer_value(json_object_get(now, "folder"));
    if (before == after || *text_of(staged, "uuid"))
        return NULL;
    return mem_strdup("another table stands under its name (its folder is another one)");
}

bool table_schema_compatible(const char *staged, const char *now, char **ret_why)
{
    if (strcmp(staged, now) == 0)
        return true;
    json_t *before = json_loads(staged, 0, NULL);
    json_t *after = json_loads(now, 0, NULL);
    char *why = NULL;
    if (!json_is_object(before) || !json_is_object(after))
        why = mem_strdup("the recorded structure cannot be read");
    if (why == NULL)
        why = compare_texts(before, after);
    if (why == NULL)
        why = compare_columns(before, after);
    if (why == NULL)
        why = compare_alters(before, after);
    if (why == NULL)
        why = compare_folders(before, after);
    json_decref(before);
    json_decref(after);
    if (why == NULL)
        return true;
    *ret_why = why;
    return false;
}

/* ---- a table of an old structure ---- */

static bool has_column(const json_t *columns, const char *name)
{
    for (size_t i = 0; i < json_array_size(columns); i++) {
        const json_t *column = json_array_get(columns, i);
        if (json_is_true(json_array_get(column, 2)) && strcmp(cell_of(column, 0), name) == 0)
            return true;
    }
    return false;
}

/* A stored column of `from` that `in` does not have, or NULL. */
static const char *missing_column(const json_t *from, const json_t *in)
{
    for (size_t i = 0; i < json_array_size(from); i++) {
        const json_t *column = json_array_get(from, i);
        if (json_is_true(json_array_get(column, 2)) && !has_column(in, cell_of(column, 0)))
            return cell_of(column, 0);
    }
    return NULL;
}

static void put_key(struct buf *sql, const char *clause, const char *key)
{
    if (*key)
        buf_printf(sql, " %s (%s)", clause, key);
}

static void put_engine(struct buf *sql, const json_t *before, const struct ch_table *now)
{
    const char *arguments = text_of(before, "arguments"), *sorting = text_of(before, "sorting_key");
    buf_printf(sql, " ENGINE = %s", text_of(before, "engine"));
    if (*arguments)
        buf_printf(sql, "(%s)", arguments);
    if (!now->old_syntax) { /* there the keys are arguments */
        put_key(sql, "PARTITION BY", text_of(before, "partition_key"));
        if (strcmp(text_of(before, "primary_key"), sorting) != 0)
            put_key(sql, "PRIMARY KEY", text_of(before, "primary_key"));
        put_key(sql, "ORDER BY", *sorting ? sorting : "tuple()");
        put_key(sql, "SAMPLE BY", text_of(before, "sampling_key"));
    }
    /* Those cannot change what parts are, but a part cannot be read without some of them. */
    const char *settings = strstr(now->engine_full, " SETTINGS ");
    if (settings)
        buf_puts(sql, settings);
}

static void put_columns(struct buf *sql, struct buf *carried, const json_t *before,
                        const json_t *after)
{
    bool first = true;
    for (size_t i = 0; i < json_array_size(before); i++) {
        const json_t *column = json_array_get(before, i);
        const char *name = cell_of(column, 0);
        if (!json_is_true(json_array_get(column, 2)))
            continue;
        buf_puts(sql, first ? "" : ", ");
        sql_identifier(sql, name);
        buf_printf(sql, " %s", cell_of(column, 1));
        first = false;
        if (!has_column(after, name))
            continue;
        buf_puts(carried, carried->len ? ", " : "");
        sql_identifier(carried, name);
    }
}

bool table_schema_old_table(const char *staged, const struct ch_table *now, const char *database,
                            const char *name, struct buf *ret_sql, char **ret_columns,
                            char **ret_why)
{
    json_t *before = json_loads(staged, 0, NULL), *after = json_loads(now->schema, 0, NULL);
    const json_t *old = json_object_get(before, "columns"),
                 *new = json_object_get(after, "columns");
    const char *gone = missing_column(old, new), *added = missing_column(new, old);
    if (gone && added) {
        *ret_why =
            mem_printf("the column %s is gone and %s is new: whether it was renamed cannot be "
                       "told",
                       gone, added);
    } else {
        struct buf carried = {0};
        buf_puts(ret_sql, "CREATE TABLE ");
        sql_table(ret_sql, database, name);
        buf_puts(ret_sql, " (");
        put_columns(ret_sql, &carried, old, new);
        buf_puts(ret_sql, ")");
        put_engine(ret_sql, before, now);
        if (carried.len)
            *ret_columns = mem_strdup(buf_str(&carried));
        else
            *ret_why = mem_strdup("no column of the old structure is left");
        buf_clear(&carried);
    }
    json_decref(before);
    json_decref(after);
    return *ret_why == NULL;
}
