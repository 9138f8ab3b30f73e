/* SPDX-License-Identifier: Apache-2.0
 *
 * See disks.h. Where there is no system.disks (18.16), the one disk's root is what stands before
 * data/<database>/ in the paths of system.databases.
 */
#include "ch/disks.h"

#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

struct disks {
    ch_disks_cb *done;
    void *arg;
    bool by_database;
    char **roots;
    size_t n_roots;
};

/* Cuts the path down to its disk's root, in place. False: it does not look like one. */
static bool cut_to_root(char *path, bool by_database)
{
    size_t len = strlen(path);
    if (by_database) {
        char *data = NULL;
        for (char *at = strstr(path, "/data/"); at; at = strstr(at + 1, "/data/"))
            data = at;
        if (data == NULL)
            return false;
        *data = '\0';
        len = strlen(path);
    }
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    return path[0] == '/';
}

static void add_root(struct disks *disks, const char *path)
{
    for (size_t i = 0; i < disks->n_roots; i++)
        if (strcmp(disks->roots[i], path) == 0)
            return;
    disks->roots = mem_realloc(disks->roots, (disks->n_roots + 1) * sizeof *disks->roots);
    disks->roots[disks->n_roots++] = mem_strdup(path);
}

static void read_lines(struct disks *disks, const char *body)
{
    while (*body) {
        size_t len = strcspn(body, "\n");
        char *path = mem_strndup(body, len);
        sql_tsv_unescape(path);
        if (cut_to_root(path, disks->by_database))
            add_root(disks, path);
        free(path);
        body += len + (body[len] == '\n');
    }
}

static void answered(void *arg, const struct ch_answer *answer)
{
    struct disks *disks = arg;
    struct error error = {0};
    int code = answer->code;
    if (code)
        error_move(&error, answer->error);
    else
        read_lines(disks, answer->body);
    if (code == 0 && disks->n_roots == 0)
        code = error_set(&error, CHXA_E_TARGET_UNSUPPORTED, "ClickHouse names no local disk");
    disks->done(disks->arg, code, &error, disks->roots, disks->n_roots);
    for (size_t i = 0; i < disks->n_roots; i++)
        free(disks->roots[i]);
    free(disks->roots);
    free(disks);
    error_clear(&error);
}

void ch_disks_load(struct ch_client *client, const struct ch_caps *caps, uint64_t timeout_ms,
                   ch_disks_cb *done, void *arg)
{
    struct disks *disks = mem_alloc(sizeof *disks);
    disks->done = done;
    disks->arg = arg;
    disks->by_database = !caps->has_disks;
    struct ch_statement statement = {
        .sql =
            caps->has_disks
                ? "SELECT path FROM system.disks WHERE lower(toString(type)) = 'local' ORDER BY "
                  "path "
                  "FORMAT TabSeparated"
                : "SELECT data_path FROM system.databases WHERE data_path != '' ORDER BY data_path "
                  "FORMAT TabSeparated",
        .timeout_ms = timeout_ms,
    };
    ch_query(client, &statement, answered, disks);
}
