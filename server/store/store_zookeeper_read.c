/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads in ZooKeeper: get, list, nodes.
 *
 * A server may lag behind the leader, so every read is preceded by a sync in the same session: what
 * was answered to anybody before the request is seen. The sync's own answer is not waited for; the
 * session keeps the order. Only our own unfinished records need none: nobody else changes them while
 * we hold the lock, and the server has seen the multi that took it, which every change before it
 * came before.
 */
#include "store/store_zookeeper.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 4096u

static void sync_first(struct zk_run *run)
{
    zk_call_sync(zk_call_new(run->zk, run, NULL), run->zk->base_path);
}

static void get_path(struct zk_call *call, char *path)
{
    zk_call_get(call, path);
    free(path);
}

/* ---- get ----
 * The record and the names of its children at once, then the writes in windows, then the pieces of
 * large ones, one after the other. A child that vanishes in between was removed: look again. */

struct zk_get {
    int code;    /* the answer when the record is there */
    bool synced; /* or it is only taken if it is ours and unfinished */
    void (*gone)(struct zk_run *run);
    struct chxa_record record;
    char **names; /* children; the w- ones from first on */
    size_t n_names;
    size_t n_done;
    size_t n_started;
    size_t n_flying;
    struct chxa_write *writes;
    char **heads; /* per write: "pieces:…" while it is in pieces */
    size_t n_writes;
    /* The one being put together. */
    size_t large;
    char nonce[17];
    size_t n_pieces;
    size_t text_bytes;
    struct buf *pieces;
    int failed; /* first error of the window */
};

static void get_fetch(struct zk_run *run);

void zk_get_free(struct zk_get *get)
{
    if (get == NULL)
        return;
    chxa_record_clear(&get->record);
    zk_names_free(get->names, get->n_names);
    for (size_t i = 0; i < get->n_writes; i++) {
        chxa_write_clear(&get->writes[i]);
        free(get->heads[i]);
    }
    free(get->writes);
    free(get->heads);
    for (size_t i = 0; get->pieces && i < get->n_pieces; i++)
        buf_clear(&get->pieces[i]);
    free(get->pieces);
    free(get);
}

static void get_again(struct zk_run *run)
{
    int code = run->get->code;
    void (*gone)(struct zk_run *) = run->get->gone;
    if (!zk_run_gives_up(run))
        zk_get_for(run, code, gone);
}

/* A read that failed: the record was gone, or the server. */
static int read_code(const struct zk_call *call)
{
    return call->rc == ZNONODE ? CHXA_E_TXN_NOT_FOUND : CHXA_E_STORE_UNAVAILABLE;
}

static int compare_writes(const void *left, const void *right)
{
    const struct chxa_write *a = left, *b = right;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

static void get_finish(struct zk_run *run)
{
    struct zk_get *get = run->get;
    struct store_op *op = run->op;
    op->ret_has_record = true;
    op->ret_version = get->record.version;
    op->ret_record = get->record;
    get->record = (struct chxa_record){0};
    op->ret_record.writes = get->writes;
    op->ret_record.n_writes = get->n_writes;
    if (get->n_writes)
        qsort(get->writes, get->n_writes, sizeof *get->writes, compare_writes);
    for (size_t i = 0; i < get->n_writes; i++)
        free(get->heads[i]);
    get->writes = NULL;
    get->n_writes = 0;
    zk_run_finish(run, get->code);
}

/* ---- writes in pieces ---- */

static void get_join(struct zk_run *run)
{
    struct zk_get *get = run->get;
    struct buf text = {0};
    for (size_t i = 0; i < get->n_pieces; i++) {
        buf_append(&text, buf_str(&get->pieces[i]), get->pieces[i].len);
        buf_clear(&get->pieces[i]);
    }
    free(get->pieces);
    get->pieces = NULL;
    int code = text.len == get->text_bytes
                   ? chxa_write_decode(buf_str(&text), text.len, &get->writes[get->large])
                   : CHXA_E_INVALID_RECORD;
    buf_clear(&text);
    free(get->heads[get->large]);
    get->heads[get->large] = NULL;
    if (code)
        zk_run_finish(run, code);
    else
        get_fetch(run);
}

static void piece_got(struct zk_call *call)
{
    struct zk_get *get = call->run->get;
    if (call->rc == ZOK)
        buf_append(&get->pieces[call->index], call->data, call->data_bytes);
    else if (get->failed == ZOK)
        get->failed = call->rc;
    if (--get->n_flying)
        return;
    if (get->failed == ZNONODE)
        get_again(call->run);
    else if (get->failed != ZOK)
        zk_run_finish(call->run, CHXA_E_STORE_UNAVAILABLE);
    else
        get_join(call->run);
}

static void get_pieces(struct zk_run *run, size_t large)
{
    struct zk_get *get = run->get;
    get->large = large;
    int used = 0;
    /* The width keeps the nonce inside its 17 bytes. */
    if (sscanf(get->heads[large], "pieces:%zu:%16[0-9a-f]:%zu%n", &get->n_pieces, get->nonce,
               &get->text_bytes, &used) != 3 ||
        get->heads[large][used] != '\0' || get->n_pieces == 0 || get->n_pieces > PIECES_MAX ||
        get->text_bytes > STORE_WRITE_BYTES_MAX) {
        get->n_pieces = 0;
        zk_run_finish(run, CHXA_E_INVALID_RECORD);
        return;
    }
    get->pieces = mem_array(get->n_pieces, sizeof *get->pieces);
    get->n_flying = get->n_pieces;
    for (size_t i = 0; i < get->n_pieces; i++) {
        struct zk_call *call = zk_call_new(run->zk, run, piece_got);
        call->index = i;
        char name[128];
        /* Behind "w-" stands the padded seq. */
        snprintf(name, sizeof name, "p-%.*s-%s-%zu", ZK_SEQ_PADDING, get->names[large] + 2,
                 get->nonce, i);
        get_path(call, zk_path_child(run->zk, run->op->xid, name));
    }
}

/* ---- writes ---- */

static void write_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_get *get = run->get;
    if (call->rc == ZOK && call->decoded == 0) {
        get->writes[call->index] = call->write;
        call->write = (struct chxa_write){0};
        get->heads[call->index] = call->data;
        call->data = NULL;
    } else if (get->failed == ZOK) {
        get->failed = call->rc == ZOK ? ZMARSHALLINGERROR : call->rc;
    }
    get->n_flying--;
    if (get->failed == ZOK) {
        get_fetch(run);
    } else if (get->n_flying == 0) {
        if (get->failed == ZNONODE)
            get_again(run);
        else
            zk_run_finish(run, get->failed == ZMARSHALLINGERROR ? CHXA_E_INVALID_RECORD
                                                                : CHXA_E_STORE_UNAVAILABLE);
    }
}

/* Keeps a window of reads in flight; when all came back, what is in pieces; then the answer. */
static void get_fetch(struct zk_run *run)
{
    struct zk_get *get = run->get;
    while (get->n_started < get->n_writes && get->n_flying < ZK_WINDOW) {
        size_t i = get->n_started++;
        get->n_flying++;
        struct zk_call *call = zk_call_new(run->zk, run, write_got);
        call->want = ZK_WANT_WRITE;
        call->index = i;
        get_path(call, zk_path_child(run->zk, run->op->xid, get->names[i]));
    }
    if (get->n_flying)
        return;
    for (size_t i = 0; i < get->n_writes; i++)
        if (get->heads[i]) {
            get_pieces(run, i);
            return;
        }
    get_finish(run);
}

static void children_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_get *get = run->get;
    if (call->rc != ZOK && call->rc != ZNONODE) {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    if (call->rc == ZNONODE) { /* removed since the record was read */
        get_again(run);
        return;
    }
    get->names = mem_array(call->n_names, sizeof *get->names);
    for (size_t i = 0; i < call->n_names; i++)
        if (strncmp(call->names[i], "w-", 2) == 0 && strlen(call->names[i]) == 2 + ZK_SEQ_PADDING) {
            get->names[get->n_names++] = call->names[i];
            call->names[i] = NULL;
        }
    get->n_writes = get->n_names;
    get->writes = mem_array(get->n_writes, sizeof *get->writes);
    get->heads = mem_array(get->n_writes, sizeof *get->heads);
    get_fetch(run);
}

static bool is_ours_and_open(const struct zk_call *call)
{
    return call->rc == ZOK && call->decoded == 0 && store_state_unfinished(call->record.state) &&
           strcmp(call->record.owner, call->zk->base.node) == 0;
}

static void record_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_get *get = run->get;
    if (!get->synced && !is_ours_and_open(call)) {
        run->op->ours = false;
        zk_get(run);
    } else if (call->rc == ZNONODE && get->gone) {
        get->gone(run);
    } else if (call->rc != ZOK) {
        zk_run_finish(run, read_code(call));
    } else if (call->decoded) {
        zk_run_finish(run, call->decoded);
    } else {
        get->record = call->record;
        call->record = (struct chxa_record){0};
        if (!call->has_children) { /* it has no writes */
            get_fetch(run);
            return;
        }
        char *path = zk_path_txn(run->zk, run->op->xid);
        zk_call_children(zk_call_new(run->zk, run, children_got), path);
        free(path);
    }
}

void zk_get_for(struct zk_run *run, int code, void (*gone)(struct zk_run *run))
{
    zk_get_free(run->get);
    run->get = mem_alloc(sizeof *run->get);
    run->get->code = code;
    run->get->gone = gone;
    run->get->synced = !run->op->ours;
    if (run->get->synced)
        sync_first(run);
    struct zk_call *call = zk_call_new(run->zk, run, record_got);
    call->want = ZK_WANT_RECORD;
    get_path(call, zk_path_txn(run->zk, run->op->xid));
}

void zk_get(struct zk_run *run)
{
    zk_get_for(run, 0, NULL);
}

/* ---- list ----
 * Folders are walked in order: one owner's index, every owner's index, or the 256 buckets. A
 * folder's names are loaded (candidates), then their records, a window at a time, in order; as long
 * as folders turn out to hold little, twice as many are loaded the next time. The page token is
 * "<folder>:<xid>", the last candidate looked at. */

#define FOLDERS_AT_ONCE 16u

struct zk_candidate {
    const char *folder;
    char *xid;
};

struct zk_list {
    bool index; /* folders are below open/, not txns/ */
    char **folders;
    size_t n_folders;
    size_t next_folder;
    size_t at_once;     /* folders to load the next time */
    char *after_folder; /* from the page token, or NULL */
    char *after_xid;

    size_t n_flying;
    int failed;
    char **names[FOLDERS_AT_ONCE]; /* of the folders being loaded */
    size_t n_names[FOLDERS_AT_ONCE];
    size_t first_loading;

    struct zk_candidate *candidates;
    size_t n_candidates;
    size_t next; /* the first candidate that was not looked at */
    size_t n_seen;

    size_t n_window;
    bool there[ZK_WINDOW];
    struct chxa_record records[ZK_WINDOW];
};

static void list_step(struct zk_run *run);

static void candidates_clear(struct zk_list *list)
{
    for (size_t i = 0; i < list->n_candidates; i++)
        free(list->candidates[i].xid);
    free(list->candidates);
    list->candidates = NULL;
    list->n_candidates = list->next = 0;
}

void zk_list_free(struct zk_list *list)
{
    if (list == NULL)
        return;
    candidates_clear(list);
    zk_names_free(list->folders, list->n_folders);
    for (size_t i = 0; i < FOLDERS_AT_ONCE; i++)
        zk_names_free(list->names[i], list->n_names[i]);
    for (size_t i = 0; i < ZK_WINDOW; i++)
        chxa_record_clear(&list->records[i]);
    free(list->after_folder);
    free(list->after_xid);
    free(list);
}

/* ---- a window of records ---- */

static void window_done(struct zk_run *run)
{
    struct zk_list *list = run->list;
    struct store_op *op = run->op;
    for (size_t i = 0; i < list->n_window && op->n_records < op->filter.limit; i++) {
        const struct zk_candidate *seen = &list->candidates[list->next++];
        list->n_seen++;
        free(list->after_folder);
        list->after_folder = mem_strdup(seen->folder);
        mem_replace(&list->after_xid, seen->xid);
        if (list->there[i] &&
            (op->filter.xids_only || store_filter_matches(&op->filter, &list->records[i])))
            store_op_add_record(op, &list->records[i]);
    }
    for (size_t i = 0; i < list->n_window; i++)
        chxa_record_clear(&list->records[i]);
    list->n_window = 0;
    list_step(run);
}

static void list_record_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_list *list = run->list;
    if (call->rc == ZOK && call->decoded == 0) {
        list->there[call->index] = true;
        list->records[call->index] = call->record;
        call->record = (struct chxa_record){0};
    } else if (call->rc == ZOK && call->decoded == CHXA_E_INVALID_RECORD &&
               run->op->filter.skip_unreadable) {
        list->there[call->index] = false;
    } else if (call->rc != ZNONODE && list->failed == 0) { /* gone since it was listed is fine */
        list->failed = call->rc == ZOK ? call->decoded : CHXA_E_STORE_UNAVAILABLE;
    }
    if (--list->n_flying)
        return;
    if (list->failed)
        zk_run_finish(run, list->failed);
    else
        window_done(run);
}

static void window_fetch(struct zk_run *run)
{
    struct zk_list *list = run->list;
    size_t n = list->n_candidates - list->next;
    list->n_window = n < ZK_WINDOW ? n : ZK_WINDOW;
    list->n_flying = list->n_window;
    memset(list->there, 0, sizeof list->there);
    if (run->op->filter.xids_only) {
        for (size_t i = 0; i < list->n_window; i++) {
            list->there[i] = true;
            list->records[i].xid = mem_strdup(list->candidates[list->next + i].xid);
        }
        list->n_flying = 0;
        window_done(run);
        return;
    }
    for (size_t i = 0; i < list->n_window; i++) {
        struct zk_call *call = zk_call_new(run->zk, run, list_record_got);
        call->want = ZK_WANT_RECORD;
        call->index = i;
        get_path(call, zk_path_txn(run->zk, list->candidates[list->next + i].xid));
    }
}

/* ---- the names of some folders ---- */

static void folders_done(struct zk_run *run)
{
    struct zk_list *list = run->list;
    size_t n = 0;
    for (size_t i = 0; i < FOLDERS_AT_ONCE; i++)
        n += list->n_names[i];
    list->at_once = n < ZK_WINDOW ? list->at_once * 2 : 1;
    if (list->at_once > FOLDERS_AT_ONCE)
        list->at_once = FOLDERS_AT_ONCE;
    list->candidates = mem_array(n, sizeof *list->candidates);
    for (size_t i = 0; i < FOLDERS_AT_ONCE; i++) {
        const char *folder =
            i < list->n_folders - list->first_loading ? list->folders[list->first_loading + i] : "";
        bool first = list->after_folder && strcmp(folder, list->after_folder) == 0;
        for (size_t k = 0; k < list->n_names[i]; k++) {
            char *name = list->names[i][k];
            if ((first && strcmp(name, list->after_xid) <= 0) || !chxa_xid_valid(name))
                continue;
            list->candidates[list->n_candidates++] = (struct zk_candidate){folder, name};
            list->names[i][k] = NULL;
        }
        zk_names_free(list->names[i], list->n_names[i]);
        list->names[i] = NULL;
        list->n_names[i] = 0;
    }
    list_step(run);
}

static void folder_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_list *list = run->list;
    if (call->rc == ZOK) {
        list->names[call->index] = call->names;
        list->n_names[call->index] = call->n_names;
        call->names = NULL;
        call->n_names = 0;
    } else if (call->rc != ZNONODE) {
        list->failed = CHXA_E_STORE_UNAVAILABLE;
    }
    if (--list->n_flying)
        return;
    if (list->failed)
        zk_run_finish(run, list->failed);
    else
        folders_done(run);
}

static void folders_load(struct zk_run *run)
{
    struct zk_list *list = run->list;
    candidates_clear(list);
    list->first_loading = list->next_folder;
    size_t n = list->n_folders - list->next_folder;
    if (n > list->at_once)
        n = list->at_once;
    list->next_folder += n;
    list->n_flying = n;
    for (size_t i = 0; i < n; i++) {
        struct zk_call *call = zk_call_new(run->zk, run, folder_got);
        call->index = i;
        char *path =
            zk_path(run->zk, list->index ? "open" : "txns", list->folders[list->first_loading + i]);
        zk_call_children(call, path);
        free(path);
    }
}

/* ---- the walk ---- */

/* A page that costs too much ends early: it may be short, though more follow. */
static bool list_page_full(const struct zk_run *run)
{
    const struct store_op *op = run->op;
    uint64_t slack_ms = run->zk->base.operation_timeout_ms / 2;
    return op->n_records == op->filter.limit || run->list->n_seen >= ZK_LIST_SCAN ||
           (run->list->n_seen > 0 && clock_monotonic_ms() + slack_ms > op->deadline_ms);
}

static void list_step(struct zk_run *run)
{
    struct zk_list *list = run->list;
    bool left = list->next < list->n_candidates;
    if (!left && list->next_folder == list->n_folders) {
        zk_run_finish(run, 0);
    } else if (list_page_full(run)) {
        run->op->ret_next = mem_printf("%s:%s", list->after_folder, list->after_xid);
        zk_run_finish(run, 0);
    } else if (left) {
        window_fetch(run);
    } else {
        folders_load(run);
    }
}

static void list_skip_folders(struct zk_list *list)
{
    while (list->after_folder && list->next_folder < list->n_folders &&
           strcmp(list->folders[list->next_folder], list->after_folder) < 0)
        list->next_folder++;
}

static void owners_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct zk_list *list = run->list;
    if (call->rc != ZOK) {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    list->folders = call->names;
    list->n_folders = call->n_names;
    call->names = NULL;
    call->n_names = 0;
    list_skip_folders(list);
    list_step(run);
}

static bool token_parse(struct zk_list *list, const char *token)
{
    const char *colon = strchr(token, ':');
    if (colon == NULL || !chxa_xid_valid(colon + 1))
        return false;
    list->after_folder = mem_strndup(token, (size_t)(colon - token));
    list->after_xid = mem_strdup(colon + 1);
    return store_name_valid(list->after_folder);
}

void zk_list(struct zk_run *run)
{
    struct zk_list *list = run->list = mem_alloc(sizeof *list);
    const struct store_filter *filter = &run->op->filter;
    if (filter->after && !token_parse(list, filter->after)) {
        zk_run_finish(run, CHXA_E_INVALID_REQUEST);
        return;
    }
    list->index = filter->unfinished;
    list->at_once = 1;
    sync_first(run);
    if (filter->unfinished && filter->owner == NULL) {
        char *path = mem_printf("%s/open", run->zk->base_path);
        zk_call_children(zk_call_new(run->zk, run, owners_got), path);
        free(path);
        return;
    }
    list->n_folders = filter->unfinished ? 1 : 256;
    list->folders = mem_array(list->n_folders, sizeof *list->folders);
    if (filter->unfinished)
        list->folders[0] = mem_strdup(filter->owner);
    else
        for (unsigned i = 0; i < 256; i++)
            list->folders[i] = mem_printf("%02x", i);
    list_skip_folders(list);
    list_step(run);
}

/* ---- nodes ---- */

static void node_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct store_op *op = run->op;
    struct store_node *node = &op->ret_nodes[call->index];
    if (call->rc == ZOK) {
        node->epoch = (uint64_t)call->version;
        node->url = mem_strdup(call->data);
    }
    if (node->url == NULL)
        node->url = mem_strdup("");
    run->piece++;
    if (call->rc != ZOK && call->rc != ZNONODE)
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    else if (run->piece == op->n_nodes)
        zk_run_finish(run, 0);
}

static void epochs_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct store_op *op = run->op;
    if (call->rc != ZOK || call->n_names == 0) {
        zk_run_finish(run, call->rc == ZOK ? 0 : CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    /* live_got left the live ones there. */
    struct store_node *live = op->ret_nodes;
    size_t n_live = op->n_nodes;
    op->ret_nodes = mem_array(call->n_names, sizeof *op->ret_nodes);
    op->n_nodes = call->n_names;
    for (size_t i = 0; i < call->n_names; i++) {
        op->ret_nodes[i].name = mem_strdup(call->names[i]);
        for (size_t k = 0; k < n_live; k++)
            op->ret_nodes[i].live |= strcmp(live[k].name, call->names[i]) == 0;
        struct zk_call *get = zk_call_new(run->zk, run, node_got);
        get->index = i;
        get_path(get, zk_path(run->zk, "epochs", call->names[i]));
    }
    for (size_t k = 0; k < n_live; k++)
        free(live[k].name);
    free(live);
}

static void live_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    struct store_op *op = run->op;
    if (call->rc != ZOK) {
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
        return;
    }
    op->ret_nodes = mem_array(call->n_names, sizeof *op->ret_nodes);
    op->n_nodes = call->n_names;
    for (size_t i = 0; i < call->n_names; i++) {
        op->ret_nodes[i].name = call->names[i];
        call->names[i] = NULL;
    }
    char *path = mem_printf("%s/epochs", run->zk->base_path);
    zk_call_children(zk_call_new(run->zk, run, epochs_got), path);
    free(path);
}

void zk_nodes(struct zk_run *run)
{
    sync_first(run);
    char *path = mem_printf("%s/nodes", run->zk->base_path);
    zk_call_children(zk_call_new(run->zk, run, live_got), path);
    free(path);
}
