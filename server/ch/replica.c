/* SPDX-License-Identifier: Apache-2.0
 *
 * See replica.h. Three questions: system.zookeeper (18.16) takes its path as a literal only, so it is
 * asked of system.replicas first. Loop thread.
 */
#include "ch/replica.h"

#include "base/mem.h"
#include "ch/part_files.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

struct replica_load {
    struct ch_client *client;
    char *database, *table;
    uint64_t timeout_ms;
    char *registered, *active; /* the answers; the names point into them */
    struct replica_parts parts;
    replica_parts_cb *done;
    void *arg;
};

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

bool replica_has(const struct replica_names *names, const char *name)
{
    return names->n_names &&
           bsearch(&name, names->names, names->n_names, sizeof name, name_compare) != NULL;
}

bool replica_covers(const struct replica_names *names, const char *name)
{
    for (int old_syntax = 0; old_syntax < 2; old_syntax++) {
        struct part_name inner, outer;
        if (!part_name_parse(name, old_syntax, &inner))
            continue;
        for (size_t i = 0; i < names->n_names; i++)
            if (part_name_parse(names->names[i], old_syntax, &outer) &&
                (old_syntax || strcmp(outer.partition_id, inner.partition_id) == 0) &&
                outer.min_block <= inner.min_block && outer.max_block >= inner.max_block)
                return true;
    }
    return false;
}

static void load_done(struct replica_load *load, int code, struct error *error)
{
    load->done(load->arg, code, error, code ? NULL : &load->parts);
    free(load->parts.registered.names);
    free(load->parts.active.names);
    free(load->registered);
    free(load->active);
    free(load->database);
    free(load->table);
    free(load);
}

/* Cuts an answer into its lines. */
static void split_lines(char *text, struct replica_names *names)
{
    size_t n_lines = 0;
    for (const char *p = text; *p; p++)
        n_lines += *p == '\n';
    names->names = mem_array(n_lines, sizeof *names->names);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        sql_tsv_unescape(line);
        names->names[names->n_names++] = line;
    }
    if (names->n_names > 1)
        qsort(names->names, names->n_names, sizeof *names->names, name_compare);
}

static void load_ask(struct replica_load *load, const char *sql, ch_answer_cb *answered)
{
    struct ch_statement statement = {.sql = sql, .timeout_ms = load->timeout_ms};
    ch_query(load->client, &statement, answered, load);
}

static void where_table(const struct replica_load *load, struct buf *sql)
{
    buf_puts(sql, " database = ");
    sql_string(sql, load->database);
    buf_puts(sql, " AND table = ");
    sql_string(sql, load->table);
    buf_puts(sql, " FORMAT TabSeparated");
}

static void active_known(void *arg, const struct ch_answer *answer)
{
    struct replica_load *load = arg;
    if (answer->code == 0) {
        load->active = mem_strdup(answer->body);
        split_lines(load->active, &load->parts.active);
    }
    load_done(load, answer->code, answer->error);
}

static void registered_known(void *arg, const struct ch_answer *answer)
{
    struct replica_load *load = arg;
    if (answer->code) {
        load_done(load, answer->code, answer->error);
        return;
    }
    load->registered = mem_strdup(answer->body);
    split_lines(load->registered, &load->parts.registered);
    struct buf sql = {0};
    buf_puts(&sql, "SELECT name FROM system.parts WHERE active AND");
    where_table(load, &sql);
    load_ask(load, buf_str(&sql), active_known);
    buf_clear(&sql);
}

static void path_known(void *arg, const struct ch_answer *answer)
{
    struct replica_load *load = arg;
    if (answer->code) {
        load_done(load, answer->code, answer->error);
        return;
    }
    char *line = mem_strdup(answer->body);
    char *path = strchr(line, '\t');
    if (path == NULL) {
        struct error error = {0};
        error_set(&error, CHXA_E_BLOCKED, "system.replicas does not have %s.%s", load->database,
                  load->table);
        load_done(load, error.code, &error);
        error_clear(&error);
    } else {
        load->parts.old_parts_lifetime_ms = strtoull(line, NULL, 10) * 1000;
        path++;
        path[strcspn(path, "\n")] = '\0';
        sql_tsv_unescape(path);
        char *parts_path = mem_printf("%s/parts", path);
        struct buf sql = {0};
        buf_puts(&sql, "SELECT name FROM system.zookeeper WHERE path = ");
        sql_string(&sql, parts_path);
        buf_puts(&sql, " FORMAT TabSeparated");
        load_ask(load, buf_str(&sql), registered_known);
        buf_clear(&sql);
        free(parts_path);
    }
    free(line);
}

void replica_parts_load(struct ch_client *client, const char *database, const char *table,
                        uint64_t timeout_ms, replica_parts_cb *done, void *arg)
{
    struct replica_load *load = mem_alloc(sizeof *load);
    load->client = client;
    load->database = mem_strdup(database);
    load->table = mem_strdup(table);
    load->timeout_ms = timeout_ms;
    load->done = done;
    load->arg = arg;
    struct buf sql = {0};
    /* A table with a setting of its own counts as one that keeps nothing. */
    buf_puts(&sql,
             "SELECT (SELECT any(toUInt64OrZero(value)) FROM system.merge_tree_settings WHERE "
             "name = 'old_parts_lifetime') * (SELECT any(position(engine_full, "
             "'old_parts_lifetime') = 0) FROM system.tables WHERE database = ");
    sql_string(&sql, database);
    buf_puts(&sql, " AND name = ");
    sql_string(&sql, table);
    buf_puts(&sql, "), replica_path FROM system.replicas WHERE");
    where_table(load, &sql);
    load_ask(load, buf_str(&sql), path_known);
    buf_clear(&sql);
}
