/* SPDX-License-Identifier: Apache-2.0
 *
 * fsck: compares what the store says of this node with what is on its disks, and changes nothing.
 * Read the table from top to bottom.
 *
 * Transactions go on meanwhile, so what was read is old when it is compared: a finding about a
 * transaction is told only if its record has not changed when all is done, and nothing is said of
 * commits and rollbacks that are under way. ClickHouse away is a finding itself; the rest is
 * compared all the same. One at a time.
 */
#include "op/fsck_private.h"

#include "base/log.h"
#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

#define PAGE         500u
#define GETS_AT_ONCE 32u
#define TABLES_MAX   50000u
#define FOLDERS_MAX  100000u
#define DETACHED_MAX 10000u

static void fsck_list(struct op *op);
static void fsck_load(struct op *op);
static void fsck_tables(struct op *op);
static void fsck_look(struct op *op);
static void fsck_judge(struct op *op);
static void fsck_recheck(struct op *op);

static const struct op_step fsck_steps[] = {
    {"list", fsck_list},       /* ids of this node's unfinished transactions */
    {"load", fsck_load},       /* their records, with writes */
    {"tables", fsck_tables},   /* where ClickHouse's tables are; scratch tables */
    {"look", fsck_look},       /* held areas, detached/: compare */
    {"judge", fsck_judge},     /* what the store says of folders that no open transaction has */
    {"recheck", fsck_recheck}, /* drop what has changed meanwhile */
};

static void fsck_finished(struct op *op, int code);
static void fsck_release(struct op *op);

static const struct op_kind fsck_kind = {
    "fsck", fsck_steps, sizeof fsck_steps / sizeof fsck_steps[0], fsck_finished, fsck_release,
};

void coord_fsck(struct coord *coord, size_t findings_max, coord_fsck_cb *done, void *arg)
{
    struct fsck *fsck = mem_alloc(sizeof *fsck);
    fsck->done = done;
    fsck->arg = arg;
    fsck->findings_max = findings_max;
    fsck->survey.folders_max = FOLDERS_MAX;
    op_start(&fsck->op, &fsck_kind, coord, NULL, NULL);
}

static void fail_with(struct op *op, int code)
{
    op_fail(op, code == CHXA_E_STORE_UNKNOWN ? CHXA_E_STORE_UNAVAILABLE : code, "%s",
            chxa_error_text(code));
}

/* ---- list, load ---- */

static void page_listed(void *arg, const struct store_list_result *result)
{
    struct fsck *fsck = arg;
    struct op *op = &fsck->op;
    if (result->code) {
        fail_with(op, result->code);
        return;
    }
    fsck->xids =
        mem_realloc(fsck->xids, (fsck->n_xids + result->n_records + 1) * sizeof *fsck->xids);
    for (size_t i = 0; i < result->n_records; i++)
        fsck->xids[fsck->n_xids++] = mem_strdup(result->records[i].xid);
    mem_replace(&fsck->after, result->next);
    if (fsck->after)
        op_goto(op, "list");
    else
        op_next(op);
}

static void fsck_list(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    if (op->coord->fsck && op->coord->fsck != op) {
        op_fail(op, CHXA_E_BUSY, "another fsck runs on this node");
        return;
    }
    op->coord->fsck = op;
    struct store_filter filter = {
        .owner = op->coord->config.node,
        .unfinished = true,
        .xids_only = true,
        .after = fsck->after,
        .limit = PAGE,
    };
    store_list(op->coord->store, &filter, page_listed, fsck);
}

static void load_more(struct fsck *fsck);

struct fsck_get {
    struct fsck *fsck;
    const char *xid;
};

static void one_loaded(void *arg, const struct store_result *result)
{
    struct fsck_get *get = arg;
    struct fsck *fsck = get->fsck;
    if (result->code == 0) {
        fsck->records[fsck->n_records] = *result->record;
        fsck->records[fsck->n_records++].version = result->version;
        *result->record = (struct chxa_record){0};
    } else if (result->code == CHXA_E_INVALID_RECORD) {
        fsck_unreadable(fsck, get->xid);
    } else if (result->code != CHXA_E_TXN_NOT_FOUND) {
        fsck->gets_code = result->code;
    }
    free(get);
    fsck->gets--;
    load_more(fsck);
}

static void load_more(struct fsck *fsck)
{
    while (fsck->gets_code == 0 && fsck->next_xid < fsck->n_xids && fsck->gets < GETS_AT_ONCE) {
        struct fsck_get *get = mem_alloc(sizeof *get);
        *get = (struct fsck_get){fsck, fsck->xids[fsck->next_xid++]};
        fsck->gets++;
        store_get(fsck->op.coord->store, get->xid, one_loaded, get);
    }
    if (fsck->gets)
        return;
    if (fsck->gets_code)
        fail_with(&fsck->op, fsck->gets_code);
    else
        op_next(&fsck->op);
}

static void fsck_load(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    fsck->records = mem_array(fsck->n_xids, sizeof *fsck->records);
    load_more(fsck);
}

/* ---- tables ---- */

/* The next field of a line, unescaped in place; *at moves behind it. */
static char *field(char **at, char end)
{
    char *text = *at, *stop = strchr(text, end);
    if (stop == NULL)
        return NULL;
    *stop = '\0';
    *at = stop + 1;
    sql_tsv_unescape(text);
    return text;
}

static void add_table(struct fsck *fsck, const char *database, const char *table, char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    if (strcmp(database, fsck->op.coord->config.database) == 0) {
        fsck->scratch = mem_realloc(fsck->scratch, (fsck->n_scratch + 1) * sizeof *fsck->scratch);
        fsck->scratch[fsck->n_scratch++] = mem_strdup(table);
        return;
    }
    fsck->tables = mem_realloc(fsck->tables, (fsck->n_tables + 1) * sizeof *fsck->tables);
    fsck->tables[fsck->n_tables++] =
        (struct fsck_table){mem_strdup(database), mem_strdup(table), mem_strdup(path)};
}

static void tables_known(void *arg, const struct ch_answer *answer)
{
    struct fsck *fsck = arg;
    if (answer->code) {
        fsck->clickhouse_away = mem_strdup(error_message(answer->error));
    } else {
        char *text = mem_strdup(answer->body), *at = text;
        while (*at) {
            char *database = field(&at, '\t');
            char *table = database ? field(&at, '\t') : NULL;
            char *path = table ? field(&at, '\n') : NULL;
            if (path == NULL)
                break;
            add_table(fsck, database, table, path);
        }
        free(text);
        fsck_scratch(fsck);
    }
    op_next(&fsck->op);
}

static void fsck_tables(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    char *sql = mem_printf("SELECT database, name, %s FROM system.tables WHERE engine LIKE "
                           "'%%MergeTree' AND database != 'system' LIMIT %u FORMAT TabSeparated",
                           op->coord->caps.has_data_paths ? "arrayJoin(data_paths)" : "data_path",
                           TABLES_MAX);
    struct ch_statement statement = {
        .sql = sql,
        .timeout_ms = op->coord->config.clickhouse_timeout_ms,
    };
    ch_query(op->coord->client, &statement, tables_known, fsck);
    free(sql);
}

/* ---- look ---- */

struct in_detached {
    struct fsck *fsck;
    size_t table;
};

static void found_detached(void *arg, const char *name, uint64_t number)
{
    const struct in_detached *in = arg;
    struct fsck *fsck = in->fsck;
    if (fsck->n_detached == DETACHED_MAX) {
        fsck->truncated = true;
        return;
    }
    fsck->detached = mem_realloc(fsck->detached, (fsck->n_detached + 1) * sizeof *fsck->detached);
    fsck->detached[fsck->n_detached++] =
        (struct fsck_detached){in->table, mem_strdup(name), number};
}

/* Touches nothing that the loop does: the operation waits, and has its own copies. */
static void look_work(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    for (size_t i = 0; op->work_code == 0 && i < op->coord->n_roots; i++)
        op->work_code = held_survey_read(&fsck->survey, op->coord->roots[i], &op->work_error);
    for (size_t i = 0; i < fsck->n_tables; i++) {
        struct in_detached in = {fsck, i};
        struct error ignored = {0}; /* dropped meanwhile, or a disk that is not ours to read */
        held_survey_detached(fsck->tables[i].path, PART_NUMBER_FIRST, found_detached, &in,
                             &ignored);
        error_clear(&ignored);
    }
    if (op->work_code == 0)
        fsck_find_work(fsck);
}

static void looked(struct op *op)
{
    if (op->work_code) {
        error_move(&op->error, &op->work_error);
        op_end(op, op->work_code);
        return;
    }
    op_next(op);
}

static void fsck_look(struct op *op)
{
    op_blocking(op, look_work, looked);
}

/* ---- judge ---- */

static void folder_judged(void *arg, const struct store_result *result)
{
    struct fsck *fsck = arg;
    struct op *op = &fsck->op;
    bool known = result->code == 0 || result->code == CHXA_E_TXN_NOT_FOUND ||
                 result->code == CHXA_E_INVALID_RECORD;
    if (!known) {
        fail_with(op, result->code);
        return;
    }
    fsck_judge_folder(fsck, &fsck->survey.folders[fsck->next_folder++], result);
    op_goto(op, "judge");
}

static void fsck_judge(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    for (; fsck->next_folder < fsck->survey.n_folders; fsck->next_folder++) {
        const struct held_folder *folder = &fsck->survey.folders[fsck->next_folder];
        if (folder->kind != HELD_FOLDER || fsck_record_of_folder(fsck, folder->name))
            continue;
        if (chxa_xid_valid(folder->name + 2)) {
            store_get(op->coord->store, folder->name + 2, folder_judged, fsck);
            return;
        }
        fsck_unknown_folder(fsck, folder);
    }
    op_next(op);
}

/* ---- recheck ---- */

static void rechecked(void *arg, const struct store_result *result)
{
    struct fsck *fsck = arg;
    struct fsck_finding *finding = &fsck->findings[fsck->next_recheck++];
    if (result->code == CHXA_E_TXN_NOT_FOUND ||
        (result->code == 0 && result->version != finding->version))
        finding->shown.kind = NULL; /* it was on its way: nothing to tell */
    op_goto(&fsck->op, "recheck");
}

static void fsck_recheck(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    while (fsck->next_recheck < fsck->n_findings && !fsck->findings[fsck->next_recheck].recheck)
        fsck->next_recheck++;
    if (fsck->next_recheck < fsck->n_findings)
        store_get(op->coord->store, fsck->findings[fsck->next_recheck].shown.xid, rechecked, fsck);
    else
        op_next(op);
}

/* ---- the answer ---- */

static void fsck_finished(struct op *op, int code)
{
    struct fsck *fsck = (struct fsck *)op;
    if (op->coord->fsck == op)
        op->coord->fsck = NULL;
    struct coord_finding *shown = mem_array(fsck->n_findings, sizeof *shown);
    struct coord_fsck_reply reply = {
        .code = code,
        .error = &op->error,
        .findings = shown,
        .truncated = fsck->truncated || fsck->survey.truncated,
        .n_transactions = fsck->n_records,
        .n_folders = fsck->survey.n_folders,
        .n_tables = fsck->n_tables,
    };
    for (size_t i = 0; code == 0 && i < fsck->n_findings; i++)
        if (fsck->findings[i].shown.kind)
            shown[reply.n_findings++] = fsck->findings[i].shown;
    fsck->done(fsck->arg, &reply);
    free(shown);
}

static void fsck_release(struct op *op)
{
    struct fsck *fsck = (struct fsck *)op;
    for (size_t i = 0; i < fsck->n_xids; i++)
        free(fsck->xids[i]);
    for (size_t i = 0; i < fsck->n_records; i++) {
        chxa_record_clear(&fsck->records[i]);
        if (fsck->folders_of)
            free(fsck->folders_of[i].name);
    }
    for (size_t i = 0; i < fsck->n_tables; i++) {
        free(fsck->tables[i].database);
        free(fsck->tables[i].table);
        free(fsck->tables[i].path);
    }
    for (size_t i = 0; i < fsck->n_scratch; i++)
        free(fsck->scratch[i]);
    for (size_t i = 0; i < fsck->n_detached; i++)
        free(fsck->detached[i].name);
    held_survey_clear(&fsck->survey);
    fsck_findings_clear(fsck);
    free(fsck->xids);
    free(fsck->records);
    free(fsck->folders_of);
    free(fsck->numbers_of);
    free(fsck->tables);
    free(fsck->scratch);
    free(fsck->detached);
    free(fsck->after);
    free(fsck->clickhouse_away);
    free(fsck);
}

/* ---- clear lost ---- */

struct clear_lost {
    uv_work_t work;
    coord_clear_lost_cb *done;
    void *arg;
    char *name;
    char **roots;
    size_t n_roots, n_removed;
    struct error error;
};

static void clear_lost_work(uv_work_t *work)
{
    struct clear_lost *clear = work->data;
    for (size_t i = 0; i < clear->n_roots && clear->error.code == 0; i++) {
        bool was_there = false;
        held_remove_set_aside(clear->roots[i], clear->name, &was_there, &clear->error);
        clear->n_removed += was_there;
    }
}

static void clear_lost_done(uv_work_t *work, int status)
{
    struct clear_lost *clear = work->data;
    (void)status;
    if (clear->n_removed)
        log_warn("set-aside folder removed by an operator", "folder=\"lost/%s\" disks=%zu",
                 clear->name, clear->n_removed);
    clear->done(clear->arg, clear->error.code, &clear->error, clear->n_removed);
    for (size_t i = 0; i < clear->n_roots; i++)
        free(clear->roots[i]);
    free(clear->roots);
    free(clear->name);
    error_clear(&clear->error);
    free(clear);
}

void coord_clear_lost(struct coord *coord, const char *name, coord_clear_lost_cb *done, void *arg)
{
    struct clear_lost *clear = mem_alloc(sizeof *clear);
    clear->work.data = clear;
    clear->done = done;
    clear->arg = arg;
    clear->name = mem_strdup(name);
    clear->n_roots = coord->n_roots;
    clear->roots = mem_array(coord->n_roots, sizeof *clear->roots);
    for (size_t i = 0; i < coord->n_roots; i++)
        clear->roots[i] = mem_strdup(coord->roots[i]);
    if (uv_queue_work(coord->loop, &clear->work, clear_lost_work, clear_lost_done) != 0)
        abort();
}
