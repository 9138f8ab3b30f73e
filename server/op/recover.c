/* SPDX-License-Identifier: Apache-2.0
 *
 * Recovery: on start, and again whenever the store comes back. Read the table from top to bottom.
 *
 * It finds out what ClickHouse is and where its disks are, takes the held areas, empties the
 * scratch pool, reads the node's unfinished transactions, removes held folders that nobody names,
 * and lets the ordinary operations finish what was decided (txn.c: resume_decided). A crash during
 * recovery is an ordinary crash: every step only looks, or removes what has no value.
 *
 * ClickHouse or the store away: the step waits and tries again for ever; requests meanwhile get
 * NOT_READY with the reason.
 */
#include "op/txn.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ch/disks.h"
#include "ch/held_lock.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

#define PAGE         1000u
#define GETS_AT_ONCE 64u
#define RETRY_MIN_MS 100u
#define RETRY_MAX_MS 2000u

struct folder { /* in a held area, of no open transaction */
    char *root, *name;
    char *xid; /* NULL: it does not say */
    bool remove;
    bool set_aside; /* no record, but the store may have lost it */
    bool given_up;  /* an operator gave up what is in it: set aside */
    bool committed;
    uint64_t *named; /* numbers of a committed transaction's parts: none of them may be in it */
    size_t n_named;
};

struct recover {
    struct op op;
    char *identity;
    uint64_t epoch;
    char *after; /* page token */
    char **xids; /* unfinished transactions to read */
    size_t n_xids, next_xid, gets;
    size_t n_listed; /* of them; behind them those that only memory takes for unfinished */
    bool memory_added;
    int gets_code;
    struct folder *folders;
    size_t n_folders, next_folder;
};

static void folder_clear(struct folder *folder)
{
    free(folder->root);
    free(folder->name);
    free(folder->xid);
    free(folder->named);
}

static void recover_probe(struct op *op);
static void recover_disks(struct op *op);
static void recover_lock(struct op *op);
static void recover_pool(struct op *op);
static void recover_history(struct op *op);
static void recover_list(struct op *op);
static void recover_load(struct op *op);
static void recover_folders(struct op *op);
static void recover_judge(struct op *op);
static void recover_clean(struct op *op);
static void recover_resume(struct op *op);

static const struct op_step recover_steps[] = {
    {"probe", recover_probe},     /* what this ClickHouse can do, its default database */
    {"disks", recover_disks},     /* where its disks are */
    {"lock", recover_lock},       /* the held areas are ours */
    {"pool", recover_pool},       /* drop left-over scratch tables */
    {"history", recover_history}, /* a new store's begins now */
    {"list", recover_list},       /* ids of our unfinished transactions */
    {"load", recover_load},       /* their records, with writes */
    {"folders", recover_folders}, /* held folders that belong to none of them */
    {"judge", recover_judge},     /* what the store says of each */
    {"clean", recover_clean},     /* remove those without value */
    {"resume", recover_resume},   /* abort what a power cut has damaged; finish what was decided */
};

static void recover_finished(struct op *op, int code);
static void recover_release(struct op *op);

static const struct op_kind recover_kind = {
    "recover",        recover_steps,   sizeof recover_steps / sizeof recover_steps[0],
    recover_finished, recover_release,
};

void recover_start(struct coord *coord)
{
    struct recover *recover = mem_alloc(sizeof *recover);
    recover->identity = mem_printf("%s/%s", coord->config.cluster, coord->config.node);
    recover->epoch = store_epoch(coord->store);
    coord->recovery = &recover->op;
    coord->recovered = false;
    coord_set_not_ready(coord, "recovering");
    /* What we learned of ClickHouse and its disks holds; only the store was away. */
    op_start(&recover->op, &recover_kind, coord, NULL, coord->n_roots ? "history" : "probe");
}

void recover_again(struct coord *coord)
{
    coord->recover_again = coord->recovery != NULL;
    if (coord->recovery == NULL && coord->store_ready && !coord->stopping)
        recover_start(coord);
}

/* Waits and runs the step again; the reason is told to those who ask. */
static void try_again(struct op *op, const char *what, const struct error *error)
{
    if (op->coord->stopping) {
        op_fail(op, CHXA_E_CANCELLED, "stopping");
        return;
    }
    char *why = mem_printf("%s: %s", what, error_message(error));
    if (coord_not_ready(op->coord) == NULL || strcmp(coord_not_ready(op->coord), why) != 0)
        log_warn("recovery waits", "step=%s reason=\"%s\"", op->kind->steps[op->at].name, why);
    coord_set_not_ready(op->coord, why);
    free(why);
    op_retry(op, NULL, op_backoff_ms(op->tries, RETRY_MIN_MS, RETRY_MAX_MS));
}

static void store_away(struct op *op, int code)
{
    struct error error = {0};
    error_set(&error, code, "%s", chxa_error_text(code));
    try_again(op, "the store", &error);
    error_clear(&error);
}

/* ---- probe ---- */

static void default_database_known(void *arg, const struct ch_answer *answer)
{
    struct op *op = arg;
    if (answer->code) {
        try_again(op, "ClickHouse", answer->error);
        return;
    }
    char *name = mem_strdup(answer->body);
    name[strcspn(name, "\n")] = '\0';
    sql_tsv_unescape(name);
    free(op->coord->default_database);
    op->coord->default_database = name;
    op_next(op);
}

static void caps_known(void *arg, int code, struct error *error, struct ch_caps *caps)
{
    struct op *op = arg;
    if (code) {
        try_again(op, "ClickHouse", error);
        return;
    }
    ch_caps_clear(&op->coord->caps);
    op->coord->caps = *caps;
    *caps = (struct ch_caps){0};
    log_info("ClickHouse found", "version=%s", op->coord->caps.version);
    struct ch_statement statement = {
        .sql = "SELECT currentDatabase() FORMAT TabSeparated",
        .timeout_ms = op->coord->config.clickhouse_timeout_ms,
    };
    ch_query(op->coord->client, &statement, default_database_known, op);
}

static void recover_probe(struct op *op)
{
    ch_caps_probe(op->coord->client, op->coord->config.clickhouse_timeout_ms, caps_known, op);
}

/* ---- disks, lock ---- */

static void disks_known(void *arg, int code, struct error *error, char **roots, size_t n_roots)
{
    struct op *op = arg;
    if (code) {
        try_again(op, "ClickHouse's disks", error);
        return;
    }
    struct coord *coord = op->coord;
    coord->roots = mem_array(n_roots, sizeof *coord->roots);
    for (size_t i = 0; i < n_roots; i++)
        coord->roots[i] = mem_strdup(roots[i]);
    coord->n_roots = n_roots;
    op_next(op);
}

static void recover_disks(struct op *op)
{
    if (op->coord->n_roots)
        op_next(op);
    else
        ch_disks_load(op->coord->client, &op->coord->caps, op->coord->config.clickhouse_timeout_ms,
                      disks_known, op);
}

/* Sets the coordinator's locks and history: recovery alone uses them, and waits for this. */
static void lock_work(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    struct coord *coord = op->coord;
    for (; coord->n_locks < coord->n_roots; coord->n_locks++) {
        op->work_code = held_lock(coord->roots[coord->n_locks], recover->identity, recover->epoch,
                                  &coord->locks[coord->n_locks], &coord->history, &op->work_error);
        if (op->work_code)
            return;
    }
}

static void locked(struct op *op)
{
    if (op->work_code) {
        try_again(op, "the held area", &op->work_error);
        return;
    }
    op_next(op);
}

static void recover_lock(struct op *op)
{
    struct coord *coord = op->coord;
    if (coord->locks == NULL)
        coord->locks = mem_array(coord->n_roots, sizeof *coord->locks);
    op_blocking(op, lock_work, locked);
}

/* ---- pool ---- */

static void pool_started(void *arg, int code, struct error *error)
{
    struct op *op = arg;
    if (code)
        try_again(op, "scratch tables", error);
    else
        op_next(op);
}

static void recover_pool(struct op *op)
{
    if (op->coord->stopping) /* the pool is closing */
        op_fail(op, CHXA_E_CANCELLED, "stopping");
    else
        scratch_pool_start(op->coord->pool, &op->coord->caps, pool_started, op);
}

/* ---- history ---- */

static void history_known(void *arg, const struct store_result *result)
{
    struct op *op = arg;
    if (result->code) {
        store_away(op, result->code);
        return;
    }
    op_next(op);
}

/* Before anything is served: of what happened before this store was made, a 404 tells nothing. */
static void history_read(void *arg, const struct store_result *result)
{
    struct op *op = arg;
    if (result->code || result->version > 0)
        history_known(op, result);
    else
        store_history_raise(op->coord->store, clock_wall_ms(), history_known, op);
}

static void recover_history(struct op *op)
{
    store_history_get(op->coord->store, history_read, op);
}

/* ---- list, load ---- */

static void page_listed(void *arg, const struct store_list_result *result)
{
    struct recover *recover = arg;
    struct op *op = &recover->op;
    if (result->code) {
        store_away(op, result->code);
        return;
    }
    recover->xids =
        mem_realloc(recover->xids, (recover->n_xids + result->n_records) * sizeof *recover->xids);
    for (size_t i = 0; i < result->n_records; i++)
        recover->xids[recover->n_xids++] = mem_strdup(result->records[i].xid);
    mem_replace(&recover->after, result->next);
    if (recover->after)
        op_goto(op, "list");
    else
        op_next(op);
}

static void recover_list(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    struct store_filter filter = {
        .owner = op->coord->config.node,
        .unfinished = true,
        .xids_only = true,
        .after = recover->after,
        .limit = PAGE,
    };
    store_list(op->coord->store, &filter, page_listed, recover);
}

static void load_more(struct recover *recover);

static void one_loaded(void *arg, struct txn *txn, int code)
{
    struct recover *recover = arg;
    recover->gets--;
    txn->ended_elsewhere = false; /* the folders are looked at after this */
    if (code == 0)
        txn->touched_ms = clock_monotonic_ms();
    else if (code == CHXA_E_INVALID_RECORD)
        log_error("a record cannot be understood", "xid=%s", txn_xid(txn));
    else
        recover->gets_code = code;
    load_more(recover);
}

/* What was ended elsewhere while this node was away is in no list of unfinished ones. */
static void add_those_in_memory(struct recover *recover)
{
    struct coord *coord = recover->op.coord;
    recover->memory_added = true;
    recover->n_listed = recover->n_xids;
    const struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link) {
        if (!txn->loaded || !txn_is_ours(txn) || !txn_is_open(txn) ||
            txn->read_epoch == recover->epoch)
            continue;
        recover->xids = mem_realloc(recover->xids, (recover->n_xids + 1) * sizeof *recover->xids);
        recover->xids[recover->n_xids++] = mem_strdup(txn_xid(txn));
    }
}

static void load_more(struct recover *recover)
{
    struct op *op = &recover->op;
    while (recover->gets_code == 0 && recover->next_xid < recover->n_xids &&
           recover->gets < GETS_AT_ONCE) {
        const char *xid = recover->xids[recover->next_xid++];
        if (txn_refresh(txn_ensure(op->coord, xid), one_loaded, recover))
            recover->gets++;
    }
    if (recover->gets)
        return;
    if (recover->gets_code) {
        int code = recover->gets_code;
        recover->gets_code = 0;
        recover->next_xid = 0;
        store_away(op, code);
    } else if (!recover->memory_added) {
        add_those_in_memory(recover);
        load_more(recover);
    } else {
        op_next(op);
    }
}

static void recover_load(struct op *op)
{
    load_more((struct recover *)op);
}

/* ---- folders, judge, clean ---- */

static void folders_work(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    struct coord *coord = op->coord;
    for (size_t i = 0; op->work_code == 0 && i < coord->n_roots; i++) {
        char **names = NULL;
        size_t n = 0;
        op->work_code = held_list(coord->roots[i], &names, &n, &op->work_error);
        if (op->work_code)
            return;
        recover->folders =
            mem_realloc(recover->folders, (recover->n_folders + n) * sizeof *recover->folders);
        for (size_t j = 0; j < n; j++)
            recover->folders[recover->n_folders++] =
                (struct folder){.root = mem_strdup(coord->roots[i]),
                                .name = names[j],
                                .xid = held_folder_xid(coord->roots[i], names[j])};
        free(names);
    }
}

static bool is_of_open_transaction(struct coord *coord, const struct folder *folder)
{
    const struct txn *txn;
    char open_name[HELD_DIR_BYTES_MAX + 1];
    if (folder->xid) {
        txn = txn_find(coord, folder->xid);
        return txn && (txn_is_open(txn) || !txn->loaded);
    }
    TAILQ_FOREACH (txn, &coord->txns, link) {
        held_dir_name(txn->record.xid, open_name);
        if (strcmp(open_name, folder->name) == 0)
            return true;
    }
    return false;
}

static void folders_listed(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    if (op->work_code) {
        try_again(op, "the held area", &op->work_error);
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < recover->n_folders; i++) {
        struct folder folder = recover->folders[i];
        if (!is_of_open_transaction(op->coord, &folder)) {
            recover->folders[kept++] = folder;
            continue;
        }
        folder_clear(&folder);
    }
    recover->n_folders = kept;
    op_next(op);
}

static void recover_folders(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    for (size_t i = 0; i < recover->n_folders; i++) {
        folder_clear(&recover->folders[i]);
    }
    recover->n_folders = recover->next_folder = 0;
    op_blocking(op, folders_work, folders_listed);
}

static void name_parts(struct folder *folder, const struct chxa_record *record)
{
    folder->committed = true;
    folder->named = mem_array(chxa_record_parts(record), sizeof *folder->named);
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            folder->named[folder->n_named++] = record->writes[i].parts[j].number;
}

/* Ended through another node while this one was lost: a commit may have left parts in detached/,
 * which the transaction's own operation looks for (resolve.c) before it sets the folder aside. */
static bool must_obey(struct recover *recover, struct chxa_record *record)
{
    if (record->abandoned_by == NULL || record->state != CHXA_COMMITTED || record->n_writes == 0)
        return false;
    struct txn *txn = txn_ensure(recover->op.coord, record->xid);
    if (txn->op || txn->loading)
        return true; /* it finds out itself */
    txn_take_record(txn, record);
    txn->obey = true; /* begins at `resume` */
    txn_pump(txn);
    return true;
}

/* No record, or Aborted: garbage. Committed: its parts were seen in their tables before that was
 * recorded, so markers can be left, and parts that no write names; one that a write names is a
 * hazard, and `clean` refuses to remove it. */
static void folder_judged(void *arg, const struct store_result *result)
{
    struct recover *recover = arg;
    struct op *op = &recover->op;
    struct folder *folder = &recover->folders[recover->next_folder];
    if (result->code == CHXA_E_TXN_NOT_FOUND)
        folder->remove = folder->set_aside = true;
    else if (result->code == 0)
        folder->remove = chxa_state_kind(result->record->state) == CHXA_KIND_FINAL;
    else if (result->code == CHXA_E_INVALID_RECORD)
        log_error("held folder of a record that cannot be understood left alone", "folder=\"%s\"",
                  folder->name);
    else {
        store_away(op, result->code);
        return;
    }
    if (result->code == 0 && result->record->state == CHXA_COMMITTED)
        name_parts(folder, result->record);
    if (result->code == 0 && folder->remove)
        folder->given_up = result->record->abandoned_by || result->record->n_discarded;
    if (result->code == 0 && must_obey(recover, result->record))
        folder->remove = false;
    recover->next_folder++;
    op_goto(op, "judge");
}

static void recover_judge(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    if (recover->next_folder == recover->n_folders) {
        op_next(op);
        return;
    }
    const struct folder *folder = &recover->folders[recover->next_folder];
    if (folder->xid == NULL) {
        /* An open transaction's would have been recognised. */
        log_warn("held folder of an unknown transaction left alone", "folder=\"%s\"", folder->name);
        recover->next_folder++;
        op_goto(op, "judge");
        return;
    }
    store_get(op->coord->store, folder->xid, folder_judged, recover);
}

static int clean_folder(const struct folder *folder, bool set_aside, struct error *error)
{
    if (set_aside)
        return held_set_aside(folder->root, folder->name, error);
    if (!folder->committed)
        return held_remove_folder(folder->root, folder->name, error);
    int code =
        held_remove_unnamed(folder->xid, folder->root, folder->named, folder->n_named, error);
    return code ? code : held_remove(folder->xid, &folder->root, 1, true, error);
}

static void clean_work(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    for (size_t i = 0; i < recover->n_folders; i++) {
        const struct folder *folder = &recover->folders[i];
        if (!folder->remove)
            continue;
        bool set_aside = folder->set_aside && op->coord->history.store_behind;
        struct error error = {0};
        if (clean_folder(folder, set_aside || folder->given_up, &error) != 0)
            log_error("hazard: held folder not removed", "folder=\"%s/chxa/%s\" error=\"%s\"",
                      folder->root, folder->name, error_message(&error));
        else if (set_aside)
            log_error(
                "hazard: the store has lost its history, or is another one: held folder without "
                "a record set aside",
                "folder=\"%s/chxa/lost/%s\"", folder->root, folder->name);
        else if (folder->given_up)
            log_warn("held folder set aside: an operator gave it up", "folder=\"%s/chxa/lost/%s\"",
                     folder->root, folder->name);
        else
            log_info("held folder removed", "folder=\"%s/chxa/%s\"", folder->root, folder->name);
        error_clear(&error);
    }
}

static void cleaned(struct op *op)
{
    if (op->work_code)
        op_retry(op, "folders", RETRY_MIN_MS); /* what is still there, and what is known of it */
    else
        op_next(op);
}

static void recover_clean(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    if (recover->n_folders == 0)
        op_next(op);
    else
        op_blocking(op, clean_work, cleaned);
}

/* ---- resume ---- */

static void reboot_work(struct op *op)
{
    struct coord *coord = op->coord;
    for (size_t i = 0; op->work_code == 0 && i < coord->n_locks; i++)
        op->work_code = held_lock_booted(coord->locks[i], &op->work_error);
}

static void resume(struct op *op)
{
    struct coord *coord = op->coord;
    coord->recovered = true;
    struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link)
        txn_pump(txn);
    op_next(op);
}

static void reboot_noted(struct op *op)
{
    if (op->work_code) {
        try_again(op, "the held area", &op->work_error);
        return;
    }
    op->coord->history.rebooted = false;
    resume(op);
}

/* Written, not prepared, and the machine has restarted since: it was never made durable, and may be
 * damaged without a trace. How many there are; each is being rolled back. */
static size_t abort_damaged(struct coord *coord)
{
    size_t n = 0;
    struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link) {
        if (!txn->loaded || !txn_is_ours(txn) || txn->record.state != CHXA_INITIALIZED ||
            txn->record.n_writes == 0)
            continue;
        n++;
        if (txn->stale)
            txn_pump(txn);
        else if (txn->op == NULL)
            rollback_start(txn, "the machine has restarted before this was prepared");
    }
    return n;
}

/* The rollbacks are recorded before the restart counts as seen to. */
static void recover_resume(struct op *op)
{
    struct coord *coord = op->coord;
    if (!coord->history.rebooted)
        resume(op);
    else if (coord->stopping)
        op_fail(op, CHXA_E_CANCELLED, "stopping");
    else if (abort_damaged(coord))
        op_retry(op, NULL, RETRY_MIN_MS);
    else
        op_blocking(op, reboot_work, reboot_noted);
}

static void recover_finished(struct op *op, int code)
{
    struct recover *recover = (struct recover *)op;
    struct coord *coord = op->coord;
    coord->recovery = NULL;
    if (code || coord->stopping)
        return;
    log_info("recovered", "unfinished=%zu ms=%llu", recover->n_listed,
             (unsigned long long)((clock_monotonic_us() - op->started_us) / 1000));
    if (!coord->store_ready) {
        coord->recovered = false; /* lost again meanwhile: its return starts over */
        return;
    }
    if (coord->recover_again) {
        recover_again(coord);
        return;
    }
    coord_set_not_ready(coord, NULL);
    if (coord->on_ready) {
        void (*on_ready)(void *) = coord->on_ready;
        coord->on_ready = NULL;
        on_ready(coord->on_ready_arg);
    }
}

static void recover_release(struct op *op)
{
    struct recover *recover = (struct recover *)op;
    for (size_t i = 0; i < recover->n_xids; i++)
        free(recover->xids[i]);
    for (size_t i = 0; i < recover->n_folders; i++) {
        folder_clear(&recover->folders[i]);
    }
    free(recover->xids);
    free(recover->folders);
    free(recover->after);
    free(recover->identity);
    free(recover);
}
