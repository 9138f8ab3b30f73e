/* SPDX-License-Identifier: Apache-2.0
 *
 * /v1/transactions/{xid}: begin, get, prepare, commit, rollback, forget.
 */
#include "base/mem.h"
#include "http/api_private.h"

#include <stdlib.h>
#include <string.h>

#define BODY_EXTRA 4096u /* of a begin's or a prepare's body, besides meta */

static void answered(void *arg, const struct coord_reply *reply)
{
    api_answer_reply(arg, reply, true);
}

/* ---- begin ---- */

static void begun(void *arg, const struct coord_reply *reply)
{
    struct api_call *call = arg;
    call->status = reply->replay ? 200 : 201;
    api_answer_reply(call, reply, false);
}

/* The value as JSON text, malloc'd, in place of *meta. Too long: *error says so. */
static void read_meta(const struct api *api, const json_t *value, char **meta, struct error *error)
{
    free(*meta);
    *meta = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!*meta || strlen(*meta) > api->meta_bytes_max)
        error_set(error, CHXA_E_INVALID_REQUEST, "meta is longer than %zu bytes",
                  api->meta_bytes_max);
}

struct begin_body {
    struct coord_begin params;
    char *meta;
};

/* False: *error says what is wrong. Text members point into the JSON value. */
static bool read_begin(const struct api *api, json_t *body, struct begin_body *ret,
                       struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach (body, key, value) {
        if (strcmp(key, "timeout_ms") == 0) {
            ret->params.timeout_ms = json_integer_value(value);
            if (!json_is_integer(value) || ret->params.timeout_ms < 1)
                error_set(error, CHXA_E_INVALID_REQUEST,
                          "timeout_ms must be a whole number above 0");
        } else if (strcmp(key, "sink") == 0) {
            ret->params.sink = json_string_value(value);
            if (!ret->params.sink || !chxa_xid_valid(ret->params.sink))
                error_set(error, CHXA_E_INVALID_REQUEST,
                          "sink must be 1-280 characters of A-Z a-z 0-9 . _ : -");
        } else if (strcmp(key, "epoch") == 0) {
            ret->params.epoch = (uint64_t)json_integer_value(value);
            if (!json_is_integer(value) || json_integer_value(value) < 0)
                error_set(error, CHXA_E_INVALID_REQUEST, "epoch must be a whole number");
        } else if (strcmp(key, "gather") == 0) {
            ret->params.gather = json_is_true(value);
            if (!json_is_boolean(value))
                error_set(error, CHXA_E_INVALID_REQUEST, "gather must be true or false");
        } else if (strcmp(key, "meta") == 0) {
            read_meta(api, value, &ret->meta, error);
            ret->params.meta = ret->meta;
        } else {
            error_set(error, CHXA_E_INVALID_REQUEST, "unknown field \"%.100s\"", key);
        }
    }
    return error->code == 0;
}

static void begin_body_read(struct http_request *request, void *arg, int code, const char *text,
                            size_t len)
{
    struct api_call *call = arg;
    (void)request;
    json_t *body = api_body_read(call, code, text, len);
    if (body == NULL)
        return;
    struct begin_body begin = {0};
    struct error error = {0};
    if (!read_begin(call->api, body, &begin, &error))
        api_answer_error(call, error.code, "%s", error_message(&error));
    else
        coord_begin(call->api->coord, call->xid, &begin.params, begun, call);
    free(begin.meta);
    error_clear(&error);
    json_decref(body);
}

void api_begin(struct api_call *call)
{
    static const char *const known[] = {NULL};
    if (api_params_known(call, known))
        http_request_collect(call->request, call->api->meta_bytes_max + BODY_EXTRA, begin_body_read,
                             call);
}

/* ---- prepare, commit, rollback ---- */

static void finish(struct api_call *call, enum txn_event event, const char *reason,
                   const char *meta)
{
    static const char *const known[] = {"wait_ms", "sink", "reason", NULL};
    static const char *const of_prepare[] = {"wait_ms", "sink", NULL};
    uint64_t wait_ms = call->api->wait_ms_default;
    if (!api_params_known(call, event == TXN_PREPARE ? of_prepare : known) ||
        !api_param_sink(call) ||
        !api_param_number(call, "wait_ms", 0, call->api->wait_ms_max, &wait_ms))
        return;
    coord_finish_meta(call->api->coord, call->xid, event, reason, meta, wait_ms, answered, call);
}

static void prepare_body_read(struct http_request *request, void *arg, int code, const char *text,
                              size_t len)
{
    struct api_call *call = arg;
    (void)request;
    json_t *body = api_body_read(call, code, text, len);
    if (body == NULL)
        return;
    const json_t *value = json_object_get(body, "meta");
    char *meta = NULL;
    struct error error = {0};
    if (json_object_size(body) != (value != NULL))
        error_set(&error, CHXA_E_INVALID_REQUEST, "only the field meta is known");
    else if (value)
        read_meta(call->api, value, &meta, &error);
    if (error.code)
        api_answer_error(call, error.code, "%s", error_message(&error));
    else
        finish(call, TXN_PREPARE, NULL, meta);
    free(meta);
    error_clear(&error);
    json_decref(body);
}

void api_prepare(struct api_call *call)
{
    http_request_collect(call->request, call->api->meta_bytes_max + BODY_EXTRA, prepare_body_read,
                         call);
}

static void commit_body_read(struct http_request *request, void *arg, int code, const char *text,
                             size_t len)
{
    struct api_call *call = arg;
    struct api_order order;
    struct error error = {0};
    char *meta = NULL;
    (void)request;
    if (!api_order_read_meta(call, code, text, len, &order))
        return;
    if (order.meta)
        read_meta(call->api, order.meta, &meta, &error);
    if (error.code)
        api_answer_error(call, error.code, "%s", error_message(&error));
    else
        finish(call, TXN_COMMIT, order.reason, meta);
    free(meta);
    error_clear(&error);
    api_order_clear(&order);
}

void api_commit(struct api_call *call)
{
    http_request_collect(call->request, call->api->meta_bytes_max + API_ORDER_BODY_MAX,
                         commit_body_read, call);
}

static void rollback_body_read(struct http_request *request, void *arg, int code, const char *text,
                               size_t len)
{
    struct api_call *call = arg;
    struct api_order order;
    (void)request;
    if (!api_order_read(call, code, text, len, NULL, &order))
        return;
    finish(call, TXN_ROLLBACK, order.reason, NULL);
    api_order_clear(&order);
}

void api_rollback(struct api_call *call)
{
    http_request_collect(call->request, API_ORDER_BODY_MAX, rollback_body_read, call);
}

/* ---- get, forget ---- */

static void got(void *arg, const struct coord_reply *reply)
{
    struct api_call *call = arg;
    char *text = NULL;
    if (reply->code) {
        api_answer_reply(call, reply, false);
        return;
    }
    int code = api_record_text(reply->record, true, &text);
    api_answer_text(call, 200, code, text);
}

void api_get(struct api_call *call)
{
    static const char *const known[] = {"sink", NULL};
    if (api_params_known(call, known) && api_param_sink(call))
        coord_get(call->api->coord, call->xid, got, call);
}

void api_forget(struct api_call *call)
{
    static const char *const known[] = {"sink", NULL};
    if (api_params_known(call, known) && api_param_sink(call))
        coord_forget(call->api->coord, call->xid, answered, call);
}
