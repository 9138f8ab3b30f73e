/* SPDX-License-Identifier: Apache-2.0
 *
 * See replica.h. Two questions: system.zookeeper (18.16) takes its path as a literal only, so it is
 * asked of system.replicas first. Loop thread.
 */
#include "ch/replica.h"

#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

struct replica_load {
    struct ch_client *client;
    char *database, *table;
    uint64_t timeout_ms;
    replica_parts_cb *done;
    void *arg;
};

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

bool replica_has_part(const struct replica_parts *parts, const char *name)
{
    return parts->n_names &&
           bsearch(&name, parts->names, parts->n_names, sizeof name, name_compare);
}

static void load_done(struct replica_load *load, int code, struct error *error,
                      const struct replica_parts *parts)
{
    load->done(load->arg, code, error, parts);
    free(load->database);
    free(load->table);
    free(load);
}

/* Cuts the answer into its lines; the names point into it. */
static void split_lines(char *text, struct replica_parts *parts)
{
    size_t n_lines = 0;
    for (const char *p = text; *p; p++)
        n_lines += *p == '\n';
    parts->names = mem_array(n_lines, sizeof *parts->names);
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        sql_tsv_unescape(line);
        parts->names[parts->n_names++] = line;
    }
    if (parts->n_names > 1)
        qsort(parts->names, parts->n_names, sizeof *parts->names, name_compare);
}

static void parts_listed(void *arg, const struct ch_answer *answer)
{
    struct replica_load *load = arg;
    if (answer->code) {
        load_done(load, answer->code, answer->error, NULL);
        return;
    }
    char *text = mem_strdup(answer->body);
    struct replica_parts parts = {0};
    split_lines(text, &parts);
    load_done(load, 0, NULL, &parts);
    free(parts.names);
    free(text);
}

static void path_known(void *arg, const struct ch_answer *answer)
{
    struct replica_load *load = arg;
    if (answer->code) {
        load_done(load, answer->code, answer->error, NULL);
        return;
    }
    char *path = mem_strdup(answer->body);
    path[strcspn(path, "\n")] = '\0';
    sql_tsv_unescape(path);
    if (path[0] == '\0') {
        struct error error = {0};
        error_set(&error, CHXA_E_BLOCKED, "system.replicas does not have %s.%s", load->database,
                  load->table);
        load_done(load, error.code, &error, NULL);
        error_clear(&error);
    } else {
        char *parts_path = mem_printf("%s/parts", path);
        struct buf sql = {0};
        buf_puts(&sql, "SELECT name FROM system.zookeeper WHERE path = ");
        sql_string(&sql, parts_path);
        buf_puts(&sql, " FORMAT TabSeparated");
        struct ch_statement statement = {.sql = buf_str(&sql), .timeout_ms = load->timeout_ms};
        ch_query(load->client, &statement, parts_listed, load);
        buf_clear(&sql);
        free(parts_path);
    }
    free(path);
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
    buf_puts(&sql, "SELECT replica_path FROM system.replicas WHERE database = ");
    sql_string(&sql, database);
    buf_puts(&sql, " AND table = ");
    sql_string(&sql, table);
    buf_puts(&sql, " FORMAT TabSeparated");
    struct ch_statement statement = {.sql = buf_str(&sql), .timeout_ms = timeout_ms};
    ch_query(client, &statement, path_known, load);
    buf_clear(&sql);
}
