/* SPDX-License-Identifier: Apache-2.0
 *
 * What nodes know of transactions: one, or all that a filter lets through; and any other request.
 *
 * Lists are read page by page, each page a call of its own, under one deadline.
 */
#include "client/src/internal.h"

#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX 1000000u
#define PAGE_LIMIT  1000u

/* ---- records ---- */

static void record_clear(struct chxa_txn_record *record)
{
    char *const texts[] = {record->xid,  record->owner, record->owner_url,
                           record->sink, record->meta,  record->reason};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
}

void chxa_record_free(struct chxa_txn_record *record)
{
    if (record)
        record_clear(record);
    free(record);
}

void chxa_records_free(struct chxa_txn_record *records, size_t n)
{
    for (size_t i = 0; records && i < n; i++)
        record_clear(&records[i]);
    free(records);
}

static char *copy_text(const json_t *json, const char *key, bool *failed)
{
    const char *text = cx_json_text(json, key);
    char *copy = cx_strdup(text);
    if (text && copy == NULL)
        *failed = true;
    return copy;
}

/* False: out of memory; *ret_record is to be cleared in either case. */
static bool read_record(const json_t *json, struct chxa_txn_record *ret_record)
{
    bool failed = false;
    *ret_record = (struct chxa_txn_record){
        .xid = copy_text(json, "xid", &failed),
        .state = cx_state_from_name(cx_json_text(json, "state")),
        .owner = copy_text(json, "owner", &failed),
        .owner_url = copy_text(json, "owner_url", &failed),
        .sink = copy_text(json, "sink", &failed),
        .epoch = cx_json_number(json, "epoch"),
        .meta = cx_json_dump(json_object_get(json, "meta"), &failed),
        .reason = copy_text(json, "reason", &failed),
        .blocked = json_is_true(json_object_get(json, "blocked")),
        .heuristic = json_is_string(json_object_get(json, "heuristic")),
        .created_ms = (int64_t)cx_json_number(json, "created_ms"),
        .changed_ms = (int64_t)cx_json_number(json, "changed_ms"),
        .writes = json_array_size(json_object_get(json, "writes")),
    };
    const json_t *writes = json_object_get(json, "writes");
    for (size_t i = 0; i < json_array_size(writes); i++)
        ret_record->rows += cx_json_number(json_array_get(writes, i), "rows");
    return !failed;
}

/* Every one has these, whatever the version. */
static bool record_whole(const json_t *json)
{
    return cx_json_text(json, "xid") && cx_json_text(json, "owner") &&
           cx_state_from_name(cx_json_text(json, "state")) != CHXA_STATE_UNKNOWN;
}

/* ---- get ---- */

int chxa_get(struct chxa_client *client, const char *xid, struct chxa_txn_record **ret_record,
             struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code)
        return code;
    struct cx_call call;
    code = cx_call_get_txn(client, xid, &call, error);
    struct chxa_txn_record *record = code ? NULL : cx_alloc(sizeof *record);
    if (code == 0 && !record_whole(call.json)) {
        code = cx_fail(error, CHXA_ERR_BAD_ANSWER, "the record lacks its id, owner or state");
    } else if (code == 0 && (record == NULL || !read_record(call.json, record))) {
        code = cx_no_memory(error);
    }
    if (code == 0)
        *ret_record = record;
    else
        chxa_record_free(record);
    cx_call_clear(&call);
    return code;
}

/* ---- recover ---- */

void chxa_filter_init(struct chxa_filter *filter)
{
    *filter = (struct chxa_filter){.size = sizeof *filter};
}

struct listing {
    struct chxa_client *client;
    const struct chxa_filter *filter; /* or NULL */
    uint64_t deadline;
    int64_t now_ms;
    struct chxa_txn_record *records;
    size_t n, room;
};

static bool lets_through(const struct listing *listing, const json_t *json)
{
    const struct chxa_filter *filter = listing->filter;
    if (filter == NULL)
        return true;
    const char *xid = cx_json_text(json, "xid");
    int64_t changed_ms = (int64_t)cx_json_number(json, "changed_ms");
    if (filter->xid_prefix && strncmp(xid, filter->xid_prefix, strlen(filter->xid_prefix)) != 0)
        return false;
    return filter->older_than_ms == 0 ||
           (listing->now_ms > changed_ms &&
            (uint64_t)(listing->now_ms - changed_ms) >= filter->older_than_ms);
}

static bool grow(struct listing *listing)
{
    if (listing->n < listing->room)
        return true;
    size_t room = listing->room ? 2 * listing->room : 64;
    void *grown = cx_realloc(listing->records, room * sizeof *listing->records);
    if (grown == NULL)
        return false;
    listing->records = grown;
    listing->room = room;
    return true;
}

static int add_page(struct listing *listing, const json_t *page, struct chxa_error *error)
{
    const json_t *list = json_object_get(page, "transactions");
    if (!json_is_array(list))
        return cx_fail(error, CHXA_ERR_BAD_ANSWER, "the answer is no list of transactions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (!record_whole(one))
            return cx_fail(error, CHXA_ERR_BAD_ANSWER, "a record lacks its id, owner or state");
        if (!lets_through(listing, one))
            continue;
        if (listing->n == RECORDS_MAX)
            return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                           "more than %u transactions: filter them", RECORDS_MAX);
        if (!grow(listing) || !read_record(one, &listing->records[listing->n++]))
            return cx_no_memory(error);
    }
    return 0;
}

static char *list_target(const struct chxa_filter *filter, const char *page)
{
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/transactions?limit=%u", PAGE_LIMIT);
    if (filter && filter->prepared_only)
        cx_buf_puts(&target, "&state=Prepared");
    else if (filter && filter->in_doubt_only)
        cx_buf_puts(&target, "&state=Prepared,Committing,Aborting");
    if (filter && filter->sink)
        cx_buf_printf(&target, "&sink=%s", filter->sink);
    if (filter && filter->owner)
        cx_buf_printf(&target, "&owner=%s", filter->owner);
    if (page) {
        cx_buf_puts(&target, "&page=");
        cx_buf_uri(&target, page);
    }
    if (target.failed)
        cx_buf_clear(&target);
    return target.data;
}

/* One page; the next one's token in *page, which is freed and set. */
static int read_page(struct listing *listing, char **page, struct chxa_error *error)
{
    char *target = list_target(listing->filter, *page);
    struct cx_call call = {.client = listing->client,
                           .method = "GET",
                           .target = target,
                           .deadline = listing->deadline};
    int code = target ? cx_call_run(&call, error) : cx_no_memory(error);
    if (code == 0)
        code = add_page(listing, call.json, error);
    const char *next = cx_json_text(call.json, "next");
    if (code == 0 && next && *page && strcmp(next, *page) == 0)
        code = cx_fail(error, CHXA_ERR_BAD_ANSWER, "the list has no end");
    free(*page);
    *page = code ? NULL : cx_strdup(next);
    if (code == 0 && next && *page == NULL)
        code = cx_no_memory(error);
    cx_call_clear(&call);
    free(target);
    return code;
}

static int by_age(const void *a, const void *b)
{
    const struct chxa_txn_record *left = a, *right = b;
    if (left->created_ms != right->created_ms)
        return left->created_ms < right->created_ms ? -1 : 1;
    return strcmp(left->xid, right->xid);
}

static int check_filter(const struct chxa_filter *filter, struct chxa_error *error)
{
    if (filter == NULL)
        return 0;
    if (filter->size < sizeof *filter)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "filter must come from chxa_filter_init");
    int code = filter->sink ? cx_check_id("the sink's name", filter->sink, error) : 0;
    if (code == 0 && filter->owner)
        code = cx_check_id("the owner's name", filter->owner, error);
    return code;
}

int chxa_recover(struct chxa_client *client, const struct chxa_filter *filter,
                 struct chxa_txn_record **ret_records, size_t *ret_n, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = check_filter(filter, error);
    if (code)
        return code;
    struct listing listing = {.client = client,
                              .filter = filter,
                              .deadline = cx_client_deadline(client, 0),
                              .now_ms = cx_wall_ms()};
    char *page = NULL;
    do {
        code = read_page(&listing, &page, error);
    } while (code == 0 && page);
    if (code) {
        chxa_records_free(listing.records, listing.n);
        return code;
    }
    if (listing.n)
        qsort(listing.records, listing.n, sizeof *listing.records, by_age);
    *ret_records = listing.records;
    *ret_n = listing.n;
    return cx_done(error);
}

/* ---- any request ---- */

static bool method_valid(const char *method)
{
    static const char *const known[] = {"GET", "PUT", "POST", "DELETE", NULL};
    for (const char *const *one = known; method && *one; one++)
        if (strcmp(*one, method) == 0)
            return true;
    return false;
}

static bool path_valid(const char *path)
{
    if (path == NULL || *path != '/')
        return false;
    for (; *path; path++)
        if ((unsigned char)*path <= 0x20 || (unsigned char)*path >= 0x7f || *path == '#')
            return false;
    return true;
}

int chxa_request(struct chxa_client *client, const char *base_url, const char *method,
                 const char *path, const char *body, char **ret_body, size_t *ret_body_bytes,
                 struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    *ret_body = NULL;
    if (ret_body_bytes)
        *ret_body_bytes = 0;
    if (!method_valid(method) || !path_valid(path))
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                       "method must be GET, PUT, POST or DELETE, and path as it goes on the wire");
    struct cx_call call = {.client = client,
                           .method = method,
                           .target = path,
                           .origin = base_url,
                           .deadline = cx_client_deadline(client, 0),
                           .only_here = base_url != NULL,
                           .raw = strncmp(path, "/v1/", 4) != 0};
    if (body)
        call.body =
            (struct cx_body){.data = body, .len = strlen(body), .json = true, .there = true};
    int code = cx_call_run(&call, error);
    if (error->http_status && call.text.data == NULL)
        cx_buf_put(&call.text, "", 0);
    if (error->http_status && !call.text.failed) {
        *ret_body = call.text.data;
        if (ret_body_bytes)
            *ret_body_bytes = call.text.len;
        call.text = (struct cx_buf){0};
    }
    cx_call_clear(&call);
    return code;
}
