/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles: start, join, write, end. A handle knows its owner; nothing else is remembered, for the node is what remembers.
 *
 * A write always has a write_id, so that repeating it is harmless. Where the body cannot be sent again, a lost answer is
 * cleared up by looking for that write_id in the record.
 */
#include "client/src/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_BYTES_MAX ((size_t)1 << 20)

int cx_check_id(const char *what, const char *id, struct chxa_error *error)
{
    if (cx_id_valid(id))
        return 0;
    return cx_fail(error, CHXA_ERR_INVALID_XID, "%s is not 1-280 of A-Z a-z 0-9 . _ : -", what);
}

/* ---- start, join ---- */

void chxa_start_options_init(struct chxa_start_options *options)
{
    *options = (struct chxa_start_options){.size = sizeof *options};
}

static int make_begin(const struct chxa_start_options *options, struct cx_buf *body,
                      struct chxa_error *error)
{
    cx_buf_puts(body, "{");
    const char *comma = "";
    if (options && options->timeout_ms) {
        cx_buf_printf(body, "\"timeout_ms\":%llu", (unsigned long long)options->timeout_ms);
        comma = ",";
    }
    if (options && options->sink) {
        cx_buf_printf(body, "%s\"sink\":\"%s\",\"epoch\":%llu", comma, options->sink,
                      (unsigned long long)options->epoch);
        comma = ",";
    }
    if (options && options->meta) {
        cx_buf_printf(body, "%s\"meta\":", comma);
        cx_buf_puts(body, options->meta);
        comma = ",";
    }
    if (options && options->gather)
        cx_buf_printf(body, "%s\"gather\":true", comma);
    cx_buf_puts(body, "}");
    return body->failed ? cx_no_memory(error) : 0;
}

static int check_start(const char *xid, const struct chxa_start_options *options,
                       struct chxa_error *error)
{
    int code = 0;
    if (options && options->size < sizeof *options)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                       "options must come from chxa_start_options_init");
    if (xid)
        code = cx_check_id("the transaction's id", xid, error);
    if (code == 0 && options && options->sink)
        code = cx_check_id("the sink's name", options->sink, error);
    if (code == 0 && options && (options->epoch > INT64_MAX || options->timeout_ms > INT64_MAX))
        code = cx_fail(error, CHXA_ERR_INVALID_REQUEST, "epoch and timeout_ms end at 2^63-1");
    if (code == 0 && options && options->meta)
        code = cx_json_check("meta", options->meta, error);
    return code;
}

static struct chxa_txn *txn_new(struct chxa_client *client, const char *xid)
{
    struct chxa_txn *txn = cx_alloc(sizeof *txn);
    if (txn == NULL)
        return NULL;
    txn->client = client;
    if (xid)
        snprintf(txn->xid, sizeof txn->xid, "%s", xid);
    else
        cx_random_id(txn->xid, sizeof txn->xid);
    return txn;
}

static void pin(struct chxa_txn *txn, const struct cx_call *call, const struct chxa_error *error)
{
    /* A node behind TLS that gives out its own plain address is spoken to where it answered. */
    const char *owner = error->owner_url;
    if (owner[0] == '\0' || (txn->client->only_https && !cx_url_is_https(owner)))
        owner = call->answered_by;
    snprintf(txn->owner_url, sizeof txn->owner_url, "%s", owner);
}

/* Gives a new handle out when the call for it went well (code), and frees it when not. */
static int give_txn(struct chxa_txn *txn, int code, const struct cx_call *call,
                    struct chxa_txn **ret_txn, struct chxa_error *error)
{
    if (code == 0 && error->state != CHXA_STATE_INITIALIZED)
        code = cx_fail(error, CHXA_ERR_WRONG_STATE, "the transaction is %s",
                       chxa_state_name(error->state));
    if (code) {
        free(txn);
        return code;
    }
    pin(txn, call, error);
    *ret_txn = txn;
    return cx_done(error);
}

int cx_start(struct chxa_client *client, const char *origin, const char *xid,
             const struct chxa_start_options *options, struct chxa_txn **ret_txn,
             struct chxa_error *error)
{
    int code = check_start(xid, options, error);
    if (code)
        return code;
    struct chxa_txn *txn = txn_new(client, xid);
    if (txn == NULL)
        return cx_no_memory(error);
    struct cx_buf target = {0}, body = {0};
    code = make_begin(options, &body, error);
    cx_buf_printf(&target, "/v1/transactions/%s", txn->xid);
    if (code == 0 && target.failed)
        code = cx_no_memory(error);
    struct cx_call call = {
        .client = client,
        .method = "PUT",
        .target = target.data,
        .origin = origin,
        .only_here = origin != NULL,
        .body = {.data = body.data, .len = body.len, .json = true, .there = true},
        .deadline = cx_client_deadline(client, 0),
        .begins = true};
    if (code == 0)
        code = cx_call_run(&call, error);
    code = give_txn(txn, code, &call, ret_txn, error);
    cx_call_clear(&call);
    cx_buf_clear(&target);
    cx_buf_clear(&body);
    return code;
}

int chxa_start(struct chxa_client *client, const char *xid,
               const struct chxa_start_options *options, struct chxa_txn **ret_txn,
               struct chxa_error *error)
{
    struct chxa_error local;
    return cx_start(client, NULL, xid, options, ret_txn, cx_error_start(error, &local));
}

int chxa_join(struct chxa_client *client, const char *xid, struct chxa_txn **ret_txn,
              struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code)
        return code;
    struct chxa_txn *txn = txn_new(client, xid);
    if (txn == NULL)
        return cx_no_memory(error);
    struct cx_call call;
    code = cx_call_get_txn(client, xid, &call, error);
    code = give_txn(txn, code, &call, ret_txn, error);
    cx_call_clear(&call);
    return code;
}

const char *chxa_txn_xid(const struct chxa_txn *txn)
{
    return txn->xid;
}

const char *chxa_txn_owner_url(const struct chxa_txn *txn)
{
    return txn->owner_url;
}

void chxa_txn_free(struct chxa_txn *txn)
{
    free(txn);
}

int chxa_end(struct chxa_txn *txn, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (txn->streams)
        return cx_fail(error, CHXA_ERR_MISUSE, "%u streams of this transaction are open",
                       txn->streams);
    if (txn->ended)
        return cx_fail(error, CHXA_ERR_MISUSE, "the handle was ended before");
    txn->ended = true;
    return cx_done(error);
}

/* ---- write ---- */

static void read_written(const json_t *json, struct chxa_written *ret_written)
{
    const json_t *parts = json_object_get(json, "parts");
    if (ret_written)
        *ret_written = (struct chxa_written){
            .seq = cx_json_number(json, "seq"),
            .rows = cx_json_number(json, "rows"),
            .bytes = cx_json_number(json, "bytes"),
            .parts = json_is_array(parts) ? json_array_size(parts) : cx_json_number(json, "parts"),
            .replay = json_is_true(json_object_get(json, "replay")),
            .gathered = json_is_true(json_object_get(json, "gathered"))};
}

/* Looks for the write in the record. 0: it is there; 1: it is not; else an error. */
static int look_for(const struct cx_write *write, struct chxa_written *ret_written)
{
    struct chxa_error error = {0};
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/transactions/%s", write->xid);
    struct cx_call call = {.client = write->client,
                           .method = "GET",
                           .target = target.data,
                           .origin = write->owner_url,
                           .deadline = write->deadline};
    int code = target.failed ? CHXA_ERR_NO_MEMORY : cx_call_run(&call, &error);
    const json_t *writes = json_object_get(call.json, "writes");
    code = code == 0 ? 1 : code;
    for (size_t i = 0; code == 1 && i < json_array_size(writes); i++) {
        const char *id = cx_json_text(json_array_get(writes, i), "write_id");
        if (id && strcmp(id, write->write_id) == 0) {
            read_written(json_array_get(writes, i), ret_written);
            code = 0;
        }
    }
    cx_call_clear(&call);
    cx_buf_clear(&target);
    return code;
}

/* The answer to a body that cannot be sent again was lost: it may still be on its way into the record. */
static int clear_up(const struct cx_write *write, struct chxa_written *ret_written,
                    struct chxa_error *error)
{
    uint64_t pause = 50;
    for (;;) {
        int found = look_for(write, ret_written);
        uint64_t now = cx_now_ms();
        if (found == 0)
            return cx_done(error);
        if (found < 0 || now + pause >= write->deadline)
            return error->code; /* as it was: lost, outcome unknown */
        cx_sleep_until(now + pause);
        pause = pause < 2000 ? pause * 2 : pause;
    }
}

static char *write_target(const struct cx_write *write)
{
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/transactions/%s/writes?write_id=%s%s&query=", write->xid,
                  write->write_id, write->views_skip ? "&views=skip" : "");
    cx_buf_uri(&target, write->query);
    if (target.failed)
        cx_buf_clear(&target);
    return target.data;
}

int cx_write_run(struct cx_write *write, struct chxa_written *ret_written, struct chxa_error *error)
{
    char *target = write_target(write), owner[CHXA_URL_BYTES_MAX + 1];
    if (target == NULL)
        return cx_no_memory(error);
    snprintf(owner, sizeof owner, "%s", write->owner_url);
    struct cx_call call = {.client = write->client,
                           .method = "POST",
                           .target = target,
                           .origin = owner,
                           .body = write->body,
                           .deadline = write->deadline,
                           .cancel = write->cancel,
                           .only_here = true};
    int code = cx_call_run(&call, error);
    write->deadline = call.deadline;
    if (code == 0) {
        read_written(call.json, ret_written);
        snprintf(write->owner_url, sizeof owner, "%s", call.answered_by);
    } else if (error->outcome == CHXA_OUTCOME_UNKNOWN && write->body.read) {
        code = clear_up(write, ret_written, error);
    }
    cx_call_clear(&call);
    free(target);
    return code;
}

static int write_checked(struct chxa_txn *txn, struct cx_write *write,
                         struct chxa_written *ret_written, struct chxa_error *error)
{
    char made[40];
    int code = 0;
    if (txn->ended)
        return cx_fail(error, CHXA_ERR_MISUSE, "the handle was ended: no more writes");
    if (write->query == NULL || strlen(write->query) > QUERY_BYTES_MAX)
        return cx_fail(error, CHXA_ERR_INVALID_QUERY, "no statement, or one over 1 MiB");
    if (write->write_id)
        code = cx_check_id("write_id", write->write_id, error);
    if (code)
        return code;
    if (write->write_id == NULL) {
        cx_random_id(made, sizeof made);
        write->write_id = made;
    }
    write->client = txn->client;
    write->xid = txn->xid;
    write->owner_url = txn->owner_url;
    write->deadline = cx_client_deadline(txn->client, 0);
    write->body.there = true;
    code = cx_write_run(write, ret_written, error);
    write->write_id = NULL;
    return code;
}

int chxa_write(struct chxa_txn *txn, const char *query, const void *data, size_t data_bytes,
               const char *write_id, bool views_skip, struct chxa_written *ret_written,
               struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    struct cx_write write = {.query = query,
                             .write_id = write_id,
                             .views_skip = views_skip,
                             .body = {.data = data, .len = data_bytes}};
    return write_checked(txn, &write, ret_written, error);
}

int chxa_write_from(struct chxa_txn *txn, const char *query, chxa_read_function *read,
                    chxa_rewind_function *rewind, void *context, const char *content_encoding,
                    const char *write_id, bool views_skip, struct chxa_written *ret_written,
                    struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (read == NULL)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "no function to read the body with");
    if (content_encoding && !cx_id_valid(content_encoding))
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "content_encoding is not a word");
    struct cx_write write = {.query = query,
                             .write_id = write_id,
                             .views_skip = views_skip,
                             .body = {.read = read,
                                      .rewind = rewind,
                                      .context = context,
                                      .content_encoding = content_encoding}};
    return write_checked(txn, &write, ret_written, error);
}
