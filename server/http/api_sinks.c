/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/sinks: what a sink committed last and has open, and its recovery in one request.
 */
#include "base/mem.h"
#include "http/api_private.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_MAX           1000u /* open transactions in one answer */
#define RECOVER_BODY_MAX   (4u << 20)
#define RECOVER_COMMIT_MAX 10000u

/* ---- as JSON ---- */

static json_t *checkpoint_json(const struct store_checkpoint *last)
{
    if (last->xid == NULL)
        return json_null();
    json_t *meta = last->meta ? json_loads(last->meta, JSON_DECODE_ANY, NULL) : NULL;
    return json_pack("{s:s,s:I,s:I,s:I,s:o}", "xid", last->xid, "epoch", (json_int_t)last->epoch,
                     "created_ms", (json_int_t)last->created_ms, "committed_ms",
                     (json_int_t)last->committed_ms, "meta", meta ? meta : json_null());
}

json_t *api_sink_json(const char *name, const struct store_sink *sink)
{
    return json_pack("{s:s,s:I,s:o}", "sink", name, "epoch", (json_int_t)sink->epoch, "checkpoint",
                     checkpoint_json(&sink->checkpoint));
}

/* ---- get ---- */

struct sink_get {
    struct api_call *call;
    json_t *answer, *open;
    bool more;
};

static void sink_list(struct sink_get *get, const char *after);

static void sink_get_end(struct sink_get *get, int code)
{
    struct api_call *call = get->call;
    if (code) {
        api_answer_error(call, code, "%s", chxa_error_text(code));
        json_decref(get->answer);
        json_decref(get->open);
    } else {
        json_object_set_new(get->answer, "open", get->open);
        json_object_set_new(get->answer, "more", json_boolean(get->more));
        api_answer_json(call, 200, get->answer);
    }
    free(get);
}

static int add_open(struct sink_get *get, const struct chxa_record *record)
{
    char *text = NULL;
    int code = chxa_record_to_api_json(record, false, false, &text);
    if (code == 0)
        json_array_append_new(get->open, json_loads(text, 0, NULL));
    free(text);
    return code;
}

static void sink_listed(void *arg, const struct store_list_result *result)
{
    struct sink_get *get = arg;
    int code = result->code;
    for (size_t i = 0; code == 0 && i < result->n_records; i++) {
        get->more = json_array_size(get->open) == OPEN_MAX;
        if (!get->more)
            code = add_open(get, &result->records[i]);
    }
    if (code == 0 && result->next && !get->more)
        sink_list(get, result->next);
    else
        sink_get_end(get, code);
}

static void sink_list(struct sink_get *get, const char *after)
{
    struct store_filter filter = {
        .sink = get->call->xid, .unfinished = true, .after = after, .limit = OPEN_MAX};
    store_list(coord_store(get->call->api->coord), &filter, sink_listed, get);
}

static void sink_read(void *arg, const struct store_sink_result *result)
{
    struct sink_get *get = arg;
    if (result->code) {
        sink_get_end(get, result->code);
        return;
    }
    get->answer = api_sink_json(get->call->xid, result->sink);
    sink_list(get, NULL);
}

void api_sink(struct api_call *call)
{
    static const char *const known[] = {NULL};
    if (!api_params_known(call, known))
        return;
    struct sink_get *get = mem_alloc(sizeof *get);
    get->call = call;
    get->open = json_array();
    store_sink_get(coord_store(call->api->coord), call->xid, sink_read, get);
}

/* ---- recover ---- */

static const char *action_name(enum txn_event event)
{
    return event == TXN_COMMIT ? "commit" : event == TXN_ROLLBACK ? "rollback" : "none";
}

static json_t *txn_json(const struct coord_sink_txn *txn)
{
    json_t *value = json_object();
    if (txn->error) { /* {"error": {…}} */
        json_decref(value);
        value = api_error_json(txn->error, NULL);
    }
    json_object_set_new(value, "xid", json_string(txn->xid));
    json_object_set_new(value, "action", json_string(action_name(txn->event)));
    json_object_set_new(value, "pending", json_boolean(txn->pending));
    if (txn->owner) {
        json_object_set_new(value, "state", json_string(chxa_state_name(txn->state)));
        json_object_set_new(value, "owner", json_string(txn->owner));
        json_object_set_new(value, "owner_url", json_string(txn->owner_url));
    }
    return value;
}

/* Ready, but for where the history begins. */
struct recovered_answer {
    struct api_call *call;
    json_t *json;
    bool pending;
};

static void recovered_history_read(void *arg, const struct store_result *result)
{
    struct recovered_answer *answer = arg;
    struct api_call *call = answer->call;
    if (result->code) {
        json_decref(answer->json);
        api_answer_error(call, result->code, "%s", chxa_error_text(result->code));
    } else {
        json_object_set_new(answer->json, "history_starts_ms", json_integer(result->version));
        api_answer_json(call, answer->pending ? 202 : 200, answer->json);
    }
    free(answer);
}

static void sink_recovered(void *arg, const struct coord_sink_reply *reply)
{
    struct api_call *call = arg;
    if (reply->code) {
        api_answer_error(call, reply->code, "%s", error_message(reply->error));
        return;
    }
    json_t *answer = api_sink_json(call->xid, reply->sink), *txns = json_array();
    bool pending = false;
    for (size_t i = 0; i < reply->n_txns; i++) {
        json_array_append_new(txns, txn_json(&reply->txns[i]));
        pending |= reply->txns[i].pending;
    }
    json_object_set_new(answer, "complete", json_boolean(reply->complete));
    json_object_set_new(answer, "transactions", txns);
    struct recovered_answer *recovered = mem_alloc(sizeof *recovered);
    *recovered = (struct recovered_answer){call, answer, pending};
    store_history_get(coord_store(call->api->coord), recovered_history_read, recovered);
}

/* The ids point into the JSON value. */
static void read_commit(const json_t *list, struct coord_sink_recover *params, const char **ids,
                        struct error *error)
{
    if (!json_is_array(list) || json_array_size(list) > RECOVER_COMMIT_MAX) {
        error_set(error, CHXA_E_INVALID_REQUEST, "commit must be a list of at most %u ids",
                  RECOVER_COMMIT_MAX);
        return;
    }
    json_t *seen = json_object();
    for (size_t i = 0; i < json_array_size(list) && error->code == 0; i++) {
        const char *xid = json_string_value(json_array_get(list, i));
        if (xid == NULL || !chxa_xid_valid(xid)) {
            error_set(error, CHXA_E_INVALID_XID, "%s", chxa_error_text(CHXA_E_INVALID_XID));
        } else if (json_object_get(seen, xid) == NULL) {
            json_object_set_new(seen, xid, json_true());
            ids[params->n_commit++] = xid;
        }
    }
    json_decref(seen);
}

static void read_recover(const json_t *body, struct coord_sink_recover *params, const char **ids,
                         struct error *error)
{
    const json_t *epoch = json_object_get(body, "epoch"), *commit = json_object_get(body, "commit");
    if (!json_is_integer(epoch) || json_integer_value(epoch) < 0)
        error_set(error, CHXA_E_INVALID_REQUEST, "epoch must be a whole number");
    else if (json_object_size(body) != 1u + (commit != NULL))
        error_set(error, CHXA_E_INVALID_REQUEST, "only the fields epoch and commit are known");
    else if (commit)
        read_commit(commit, params, ids, error);
    params->epoch = (uint64_t)json_integer_value(epoch);
}

static void recover_body_read(struct http_request *request, void *arg, int code, const char *text,
                              size_t len)
{
    struct api_call *call = arg;
    (void)request;
    uint64_t wait_ms = call->api->wait_ms_default;
    json_t *body = NULL;
    if (!api_param_number(call, "wait_ms", 0, call->api->wait_ms_max, &wait_ms) ||
        (body = api_body_read(call, code, text, len)) == NULL)
        return;
    const char **ids = mem_array(RECOVER_COMMIT_MAX, sizeof *ids);
    struct coord_sink_recover params = {.sink = call->xid, .commit = ids, .wait_ms = wait_ms};
    struct error error = {0};
    read_recover(body, &params, ids, &error);
    if (error.code)
        api_answer_error(call, error.code, "%s", error_message(&error));
    else
        coord_sink_recover(call->api->coord, &params, sink_recovered, call);
    free(ids);
    error_clear(&error);
    json_decref(body);
}

void api_sink_recover(struct api_call *call)
{
    static const char *const known[] = {"wait_ms", NULL};
    if (api_params_known(call, known))
        http_request_collect(call->request, RECOVER_BODY_MAX, recover_body_read, call);
}
