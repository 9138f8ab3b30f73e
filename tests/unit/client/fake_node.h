/* SPDX-License-Identifier: Apache-2.0
 *
 * A node for test_xa.c, made of the functions of chxa.h, which stand in for the library's own: transactions with a state, answers that are
 * lost or refused, requests that are held up. For one including file only.
 */
#ifndef CHXA_TESTS_UNIT_CLIENT_FAKE_NODE_H
#define CHXA_TESTS_UNIT_CLIENT_FAKE_NODE_H

#include "client/include/chxa/chxa.h"
#include "client/src/internal.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the node --------------------------------------------------------------------------------------------------- */

struct fake {
    char id[CHXA_XID_BYTES_MAX + 1];
    enum chxa_txn_state state;
    char meta[128];
    const char *reason, *heuristic, *given_reason;
    uint64_t writes;
    struct fake *next; /* older, in the same bucket */
};

#define FAKES_MAX 70000
static pthread_mutex_t node_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake *fakes, *buckets[4096];
static size_t n_fakes;
static unsigned long requests;

/* The next request of that name answers so; done: and yet it happened. */
static struct {
    const char *name;
    int code, xa_code;
    bool unknown, done;
} trouble;
/* A request of that name waits for `release`. */
static const char *hold;
static bool held, release;
static pthread_cond_t node_changed = PTHREAD_COND_INITIALIZER;

static struct fake **bucket(const char *id)
{
    unsigned hash = 0;
    while (*id)
        hash = hash * 31 + (unsigned char)*id++;
    return &buckets[hash % 4096];
}

static struct fake *fake_find(const char *id)
{
    struct fake *fake = *bucket(id);
    while (fake && (fake->state == CHXA_STATE_UNKNOWN || strcmp(fake->id, id) != 0))
        fake = fake->next;
    return fake;
}

static struct fake *fake_add(const char *id, enum chxa_txn_state state)
{
    if (!fakes)
        fakes = calloc(FAKES_MAX, sizeof *fakes);
    ck_assert(fakes && n_fakes < FAKES_MAX);
    struct fake *fake = &fakes[n_fakes++];
    memset(fake, 0, sizeof *fake);
    snprintf(fake->id, sizeof fake->id, "%s", id);
    fake->state = state;
    fake->next = *bucket(id);
    *bucket(id) = fake;
    return fake;
}

static void fakes_clear(void)
{
    free(fakes);
    fakes = NULL;
    n_fakes = 0;
    memset(buckets, 0, sizeof buckets);
}

static int answer(struct chxa_error *error, int code, int xa_code, enum chxa_txn_state state,
                  int status)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = code;
        error->xa_code = xa_code;
        error->state = state;
        error->http_status = status;
        error->attempts = 1;
    }
    return code;
}

static int not_found(struct chxa_error *error)
{
    return answer(error, CHXA_ERR_TXN_NOT_FOUND, XAER_NOTA, CHXA_STATE_UNKNOWN, 404);
}

static int wrong_state(struct chxa_error *error, enum chxa_txn_state state)
{
    return answer(error, CHXA_ERR_WRONG_STATE, XAER_PROTO, state, 409);
}

/* With node_lock afterwards. True: the request fails (*ret_code), and *ret_done says whether it happens. */
static bool node_enter(const char *name, struct chxa_error *error, int *ret_code, bool *ret_done)
{
    pthread_mutex_lock(&node_lock);
    requests++;
    while (hold && strcmp(hold, name) == 0 && !release) {
        held = true;
        pthread_cond_broadcast(&node_changed);
        pthread_cond_wait(&node_changed, &node_lock);
    }
    *ret_done = true;
    if (!trouble.name || strcmp(trouble.name, name) != 0)
        return false;
    *ret_done = trouble.done;
    *ret_code = answer(error, trouble.code, trouble.xa_code, CHXA_STATE_UNKNOWN, 0);
    if (error && trouble.unknown)
        error->outcome = CHXA_OUTCOME_UNKNOWN;
    trouble.name = NULL;
    return true;
}

static int node_leave(int code)
{
    pthread_mutex_unlock(&node_lock);
    return code;
}

static void lose(const char *name, bool done)
{
    trouble.name = name;
    trouble.code = CHXA_ERR_LOST;
    trouble.xa_code = XAER_RMFAIL;
    trouble.unknown = true;
    trouble.done = done;
}

static void refuse(const char *name, int code, int xa_code)
{
    lose(name, false);
    trouble.code = code;
    trouble.xa_code = xa_code;
    trouble.unknown = false;
}

/* ---- the library's functions ------------------------------------------------------------------------------------ */

static char client_storage;
static unsigned clients_open, txns_open;

void chxa_client_options_init(struct chxa_client_options *options)
{
    *options = (struct chxa_client_options){.size = sizeof *options, .deadline_ms = 120000};
}

int chxa_client_open(const struct chxa_client_options *options, struct chxa_client **ret_client,
                     struct chxa_error *error)
{
    if (strncmp(options->urls[0], "http", 4) != 0)
        return answer(error, CHXA_ERR_INVALID_REQUEST, XAER_INVAL, CHXA_STATE_UNKNOWN, 0);
    clients_open++;
    *ret_client = (struct chxa_client *)&client_storage;
    return answer(error, CHXA_OK, XA_OK, CHXA_STATE_UNKNOWN, 0);
}

void chxa_client_close(struct chxa_client *client)
{
    ck_assert_ptr_nonnull(client);
    ck_assert_uint_gt(clients_open, 0);
    clients_open--;
}

void chxa_start_options_init(struct chxa_start_options *options)
{
    *options = (struct chxa_start_options){.size = sizeof *options};
}

static int txn_new(const char *id, struct chxa_txn **ret_txn)
{
    struct chxa_txn *txn = calloc(1, sizeof *txn);
    ck_assert_ptr_nonnull(txn);
    snprintf(txn->xid, sizeof txn->xid, "%s", id);
    snprintf(txn->owner_url, sizeof txn->owner_url, "http://owner:1");
    txns_open++;
    *ret_txn = txn;
    return CHXA_OK;
}

int chxa_start(struct chxa_client *client, const char *xid,
               const struct chxa_start_options *options, struct chxa_txn **ret_txn,
               struct chxa_error *error)
{
    int code;
    bool done;
    (void)client;
    bool fails = node_enter("start", error, &code, &done);
    struct fake *fake = fake_find(xid);
    bool there = fake != NULL;
    if (done && !there) {
        fake = fake_add(xid, CHXA_STATE_INITIALIZED);
        snprintf(fake->meta, sizeof fake->meta, "%s", options->meta);
    }
    if (fails)
        return node_leave(code);
    if (fake->state != CHXA_STATE_INITIALIZED)
        return node_leave(wrong_state(error, fake->state));
    txn_new(xid, ret_txn);
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, there ? 200 : 201));
}

int chxa_join(struct chxa_client *client, const char *xid, struct chxa_txn **ret_txn,
              struct chxa_error *error)
{
    int code;
    bool done;
    (void)client;
    if (node_enter("join", error, &code, &done))
        return node_leave(code);
    struct fake *fake = fake_find(xid);
    if (!fake)
        return node_leave(not_found(error));
    if (fake->state != CHXA_STATE_INITIALIZED)
        return node_leave(wrong_state(error, fake->state));
    txn_new(xid, ret_txn);
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

const char *chxa_txn_owner_url(const struct chxa_txn *txn)
{
    return txn->owner_url;
}

int chxa_end(struct chxa_txn *txn, struct chxa_error *error)
{
    if (txn->streams)
        return answer(error, CHXA_ERR_MISUSE, XAER_PROTO, CHXA_STATE_UNKNOWN, 0);
    ck_assert(!txn->ended);
    txn->ended = true;
    return answer(error, CHXA_OK, XA_OK, CHXA_STATE_UNKNOWN, 0);
}

void chxa_txn_free(struct chxa_txn *txn)
{
    if (txn) {
        pthread_mutex_lock(&node_lock);
        ck_assert_uint_gt(txns_open, 0);
        txns_open--;
        pthread_mutex_unlock(&node_lock);
    }
    free(txn);
}

int chxa_prepare(struct chxa_client *client, const char *xid, const char *owner_url,
                 const char *meta, uint64_t deadline_ms, struct chxa_error *error)
{
    int code;
    bool done;
    (void)client, (void)owner_url, (void)meta, (void)deadline_ms;
    bool fails = node_enter("prepare", error, &code, &done);
    struct fake *fake = fake_find(xid);
    if (done && fake && fake->state == CHXA_STATE_INITIALIZED)
        fake->state = CHXA_STATE_PREPARED;
    if (fails)
        return node_leave(code);
    if (!fake)
        return node_leave(not_found(error));
    if (fake->state != CHXA_STATE_PREPARED)
        return node_leave(wrong_state(error, fake->state));
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

int chxa_commit(struct chxa_client *client, const char *xid, const char *owner_url, bool one_phase,
                uint64_t deadline_ms, struct chxa_error *error)
{
    int code;
    bool done;
    (void)client, (void)owner_url, (void)deadline_ms;
    bool fails = node_enter("commit", error, &code, &done);
    struct fake *fake = fake_find(xid);
    bool may = fake && (fake->state == CHXA_STATE_PREPARED ||
                        (fake->state == CHXA_STATE_INITIALIZED && one_phase));
    if (done && may)
        fake->state = CHXA_STATE_COMMITTED;
    if (fails)
        return node_leave(code);
    if (!fake)
        return node_leave(not_found(error));
    if (fake->state == CHXA_STATE_ABORTED || fake->state == CHXA_STATE_ABORTING)
        return node_leave(answer(error, CHXA_ERR_ROLLED_BACK, XA_HEURRB, fake->state, 409));
    if (fake->state != CHXA_STATE_COMMITTED)
        return node_leave(wrong_state(error, fake->state));
    if (fake->heuristic)
        return node_leave(answer(error, CHXA_ERR_HEURISTIC,
                                 strcmp(fake->heuristic, "mixed") == 0 ? XA_HEURMIX : XA_HEURRB,
                                 fake->state, 200));
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

int chxa_rollback(struct chxa_client *client, const char *xid, const char *owner_url,
                  const char *reason, uint64_t deadline_ms, struct chxa_error *error)
{
    int code;
    bool done;
    (void)client, (void)owner_url, (void)reason, (void)deadline_ms;
    bool fails = node_enter("rollback", error, &code, &done);
    struct fake *fake = fake_find(xid);
    if (done && fake &&
        (fake->state == CHXA_STATE_INITIALIZED || fake->state == CHXA_STATE_PREPARED))
        fake->state = CHXA_STATE_ABORTED;
    if (fails)
        return node_leave(code);
    if (!fake)
        return node_leave(answer(error, CHXA_OK, XA_OK, CHXA_STATE_UNKNOWN, 404));
    if (fake->state != CHXA_STATE_ABORTED)
        return node_leave(wrong_state(error, fake->state));
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

int chxa_forget(struct chxa_client *client, const char *xid, struct chxa_error *error)
{
    int code;
    bool done;
    (void)client;
    bool fails = node_enter("forget", error, &code, &done);
    struct fake *fake = fake_find(xid);
    enum chxa_txn_state state = fake ? fake->state : CHXA_STATE_UNKNOWN;
    bool may = state == CHXA_STATE_COMMITTED || state == CHXA_STATE_ABORTED;
    if (done && may)
        fake->state = CHXA_STATE_UNKNOWN;
    if (fails)
        return node_leave(code);
    if (!fake)
        return node_leave(answer(error, CHXA_OK, XA_OK, state, 404));
    return node_leave(may ? answer(error, CHXA_OK, XA_OK, state, 200) : wrong_state(error, state));
}

int chxa_get(struct chxa_client *client, const char *xid, struct chxa_txn_record **ret_record,
             struct chxa_error *error)
{
    int code;
    bool done;
    (void)client;
    if (node_enter("get", error, &code, &done))
        return node_leave(code);
    struct fake *fake = fake_find(xid);
    if (!fake)
        return node_leave(not_found(error));
    struct chxa_txn_record *record = calloc(1, sizeof *record);
    ck_assert_ptr_nonnull(record);
    record->state = fake->state;
    record->meta = fake->meta[0] ? strdup(fake->meta) : NULL;
    record->writes = fake->writes;
    *ret_record = record;
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

void chxa_record_free(struct chxa_txn_record *record)
{
    if (record) {
        free(record->xid);
        free(record->meta);
    }
    free(record);
}

void chxa_filter_init(struct chxa_filter *filter)
{
    *filter = (struct chxa_filter){.size = sizeof *filter};
}

int chxa_recover(struct chxa_client *client, const struct chxa_filter *filter,
                 struct chxa_txn_record **ret_records, size_t *ret_n, struct chxa_error *error)
{
    int code;
    bool done;
    (void)client;
    ck_assert(filter->in_doubt_only);
    if (node_enter("recover", error, &code, &done))
        return node_leave(code);
    struct chxa_txn_record *records = calloc(n_fakes + 1, sizeof *records);
    ck_assert_ptr_nonnull(records);
    size_t n = 0;
    for (size_t i = 0; i < n_fakes; i++) {
        bool in_doubt = fakes[i].state == CHXA_STATE_PREPARED ||
                        fakes[i].state == CHXA_STATE_COMMITTING ||
                        fakes[i].state == CHXA_STATE_ABORTING;
        if (in_doubt && strncmp(fakes[i].id, filter->xid_prefix, strlen(filter->xid_prefix)) == 0)
            records[n++].xid = strdup(fakes[i].id);
    }
    *ret_records = records;
    *ret_n = n;
    return node_leave(answer(error, CHXA_OK, XA_OK, CHXA_STATE_UNKNOWN, 200));
}

void chxa_records_free(struct chxa_txn_record *records, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(records[i].xid);
    free(records);
}

/* A page of two: what is finished. */
static int list_finished(const char *page, char **ret_body, size_t *ret_body_bytes,
                         struct chxa_error *error)
{
    FILE *text = open_memstream(ret_body, ret_body_bytes);
    size_t at = page ? strtoul(page + strlen("&page="), NULL, 10) : 0, listed = 0;
    fprintf(text, "{\"transactions\": [");
    for (; at < n_fakes && listed < 2; at++) {
        if (fakes[at].state != CHXA_STATE_COMMITTED && fakes[at].state != CHXA_STATE_ABORTED)
            continue;
        const char *heuristic = fakes[at].heuristic, *reason = fakes[at].given_reason;
        fprintf(text, "%s{\"xid\": \"%s\", \"heuristic\": %s%s%s, \"given_reason\": %s%s%s}",
                listed++ ? ", " : "", fakes[at].id, heuristic ? "\"" : "",
                heuristic ? heuristic : "null", heuristic ? "\"" : "", reason ? "\"" : "",
                reason ? reason : "null", reason ? "\"" : "");
    }
    if (at < n_fakes)
        fprintf(text, "], \"next\": \"%zu\"}", at);
    else
        fprintf(text, "], \"next\": null}");
    fclose(text);
    return answer(error, CHXA_OK, XA_OK, CHXA_STATE_UNKNOWN, 200);
}

int chxa_request(struct chxa_client *client, const char *base_url, const char *method,
                 const char *path, const char *body, char **ret_body, size_t *ret_body_bytes,
                 struct chxa_error *error)
{
    int code;
    bool done;
    (void)client, (void)base_url, (void)body;
    ck_assert_str_eq(method, "GET");
    *ret_body = NULL;
    if (node_enter("request", error, &code, &done))
        return node_leave(code);
    if (strncmp(path, "/v1/transactions?state=Committed,Aborted&", 41) == 0)
        return node_leave(list_finished(strstr(path, "&page="), ret_body, ret_body_bytes, error));
    ck_assert(strncmp(path, "/v1/transactions/", 17) == 0);
    struct fake *fake = fake_find(path + 17);
    if (!fake)
        return node_leave(not_found(error));
    char text[512];
    snprintf(text, sizeof text, "{\"heuristic\": %s%s%s, \"reason\": %s%s%s}",
             fake->heuristic ? "\"" : "", fake->heuristic ? fake->heuristic : "null",
             fake->heuristic ? "\"" : "", fake->reason ? "\"" : "",
             fake->reason ? fake->reason : "null", fake->reason ? "\"" : "");
    *ret_body = strdup(text);
    *ret_body_bytes = strlen(text);
    return node_leave(answer(error, CHXA_OK, XA_OK, fake->state, 200));
}

#endif
