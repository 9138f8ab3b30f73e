/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing and answering; see api.h.
 */
#include "http/api.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "http/api_private.h"
#include "proto/record_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ID_RULE "1-280 characters of A-Z a-z 0-9 . _ : -"

enum serves { READY, ALWAYS };

struct route {
    const char *method;
    const char *pattern;
    api_handler *handler;
    enum serves serves;
};

static const struct route routes[] = {
#define HTTP_ROUTE(method, pattern, handler, serves) {#method, pattern, handler, serves},
#include "http/routes.def"
#undef HTTP_ROUTE
};

#define N_ROUTES (sizeof routes / sizeof routes[0])

/* Does the path fit the pattern? The {…} segment is copied out, cut at the longest valid length
 * + 1. */
static bool route_fits(const char *pattern, const char *path, char ret_xid[CHXA_XID_BYTES_MAX + 2])
{
    const char *hole = strchr(pattern, '{');
    ret_xid[0] = '\0';
    if (hole == NULL)
        return strcmp(pattern, path) == 0;
    size_t before = (size_t)(hole - pattern);
    if (strncmp(pattern, path, before) != 0)
        return false;
    const char *segment = path + before;
    size_t len = strcspn(segment, "/");
    if (len == 0 || strcmp(segment + len, strchr(hole, '}') + 1) != 0)
        return false;
    if (len > CHXA_XID_BYTES_MAX + 1)
        len = CHXA_XID_BYTES_MAX + 1;
    memcpy(ret_xid, segment, len);
    ret_xid[len] = '\0';
    return true;
}

static bool method_fits(const char *route_method, const char *method)
{
    return strcmp(route_method, method) == 0 ||
           (strcmp(route_method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* ---- answering ---- */

void api_answer(struct api_call *call, int status, const struct http_header *headers,
                size_t n_headers, const char *content_type, const char *body, size_t len)
{
    metrics_http(call->route, status, clock_monotonic_us() - call->started_us);
    http_request_reply(call->request, status, headers, n_headers, content_type, body, len);
    free(call);
}

/* Ends in a newline, for who reads it in a terminal. */
static void answer_line(struct api_call *call, int status, const struct http_header *headers,
                        size_t n_headers, const char *json)
{
    struct buf body = {0};
    buf_puts(&body, json);
    buf_puts(&body, "\n");
    api_answer(call, status, headers, n_headers, "application/json", body.data, body.len);
    buf_clear(&body);
}

static void answer_json_with(struct api_call *call, int status, const struct http_header *headers,
                             size_t n_headers, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text == NULL) {
        static const char none[] =
            "{\"error\":{\"code\":\"NO_MEMORY\",\"message\":\"out of memory\","
            "\"retryable\":true,\"outcome\":\"unknown\"}}\n";
        api_answer(call, 500, NULL, 0, "application/json", none, sizeof none - 1);
        return;
    }
    answer_line(call, status, headers, n_headers, text);
    free(text);
}

void api_answer_json(struct api_call *call, int status, json_t *value)
{
    answer_json_with(call, status, NULL, 0, value);
}

void api_answer_text(struct api_call *call, int status, int code, char *text)
{
    if (code)
        api_answer_error(call, code, "%s", chxa_error_text(code));
    else
        answer_line(call, status, NULL, 0, text);
    free(text);
}

json_t *api_error_json(const struct error *error, const struct chxa_record *record)
{
    json_t *what = json_object();
    json_object_set_new(what, "code", json_string(chxa_error_name(error->code)));
    char *message = NULL; /* ClickHouse may quote bytes that are no UTF-8 */
    if (chxa_text_repair(error_message(error), SIZE_MAX, &message) == 0)
        json_object_set_new(what, "message", json_string(message));
    free(message);
    json_object_set_new(what, "retryable", json_boolean(chxa_error_retryable(error->code)));
    json_object_set_new(what, "outcome",
                        json_string(chxa_error_outcome_known(error->code) ? "known" : "unknown"));
    json_t *answer = json_pack("{s:o}", "error", what);
    if (record && record->owner) {
        json_object_set_new(answer, "xid", json_string(record->xid));
        json_object_set_new(answer, "state", json_string(chxa_state_name(record->state)));
        json_object_set_new(answer, "owner", json_string(record->owner));
        json_object_set_new(answer, "owner_url", json_string(record->owner_url));
    }
    return answer;
}

static void answer_error_with(struct api_call *call, int status, const struct error *error,
                              const struct chxa_record *record, const char *location)
{
    struct http_header headers[2];
    size_t n = 0;
    if (location)
        headers[n++] = (struct http_header){"Location", location};
    if (chxa_error_retryable(error->code))
        headers[n++] = (struct http_header){"Retry-After", "1"};
    answer_json_with(call, status, headers, n, api_error_json(error, record));
}

void api_answer_error(struct api_call *call, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct error error = {code, mem_vprintf(format, args)};
    va_end(args);
    metrics_error(code);
    answer_error_with(call, chxa_error_http(code), &error, NULL, NULL);
    error_clear(&error);
}

/* ---- another node's transaction ---- */

/* An answer that names the owner, while we ask where the owner is now: its address may have changed
 * since the record. */
struct owner_answer {
    struct api_call *call;
    struct chxa_record record;
    bool redirect;
};

static void owner_known(void *arg, const struct store_nodes_result *result)
{
    struct owner_answer *answer = arg;
    struct api_call *call = answer->call;
    struct chxa_record *record = &answer->record;
    bool live = false;
    for (size_t i = 0; result->code == 0 && i < result->n_nodes; i++) {
        const struct store_node *node = &result->nodes[i];
        if (strcmp(node->name, record->owner) != 0)
            continue;
        live = node->live;
        if (node->live && node->url && *node->url)
            mem_replace(&record->owner_url, node->url);
    }
    struct error error = {0};
    error_set(&error, CHXA_E_NOT_OWNER, "transaction %s is owned by node %s at %s%s%s", record->xid,
              record->owner, record->owner_url, answer->redirect ? "" : ": write there",
              live || result->code ? "" : " (which is not running now)");
    char *location = answer->redirect
                         ? mem_printf("%s%s", record->owner_url, http_request_target(call->request))
                         : NULL;
    answer_error_with(call, location ? 307 : chxa_error_http(error.code), &error, record, location);
    free(location);
    error_clear(&error);
    chxa_record_clear(record);
    free(answer);
}

static void answer_owner(struct api_call *call, const struct chxa_record *record, bool redirect)
{
    struct owner_answer *answer = mem_alloc(sizeof *answer);
    answer->call = call;
    answer->redirect = redirect;
    if (chxa_record_copy(record, &answer->record) != 0)
        abort();
    store_nodes(coord_store(call->api->coord), owner_known, answer);
}

/* ---- a transaction that is not known ---- */

/* It may never have been begun, or may have been finished and forgotten. The answer says how far
 * back the records go and, when it was asked for, what its sink committed last, so that nobody
 * takes it for "rolled back". */
struct unknown_answer {
    struct api_call *call;
    struct error error;
    int64_t history_starts_ms;
};

static void unknown_done(struct unknown_answer *answer, int code, json_t *sink)
{
    struct api_call *call = answer->call;
    if (code) {
        api_answer_error(call, code, "%s", chxa_error_text(code));
    } else {
        json_t *value = api_error_json(&answer->error, NULL);
        json_object_set_new(value, "history_starts_ms", json_integer(answer->history_starts_ms));
        if (sink)
            json_object_set_new(value, "sink", sink);
        answer_json_with(call, chxa_error_http(answer->error.code), NULL, 0, value);
    }
    error_clear(&answer->error);
    free(answer);
}

static void unknown_sink_read(void *arg, const struct store_sink_result *result)
{
    struct unknown_answer *answer = arg;
    const char *sink = http_request_param(answer->call->request, "sink");
    unknown_done(answer, result->code, result->code ? NULL : api_sink_json(sink, result->sink));
}

static void unknown_history_read(void *arg, const struct store_result *result)
{
    struct unknown_answer *answer = arg;
    struct api_call *call = answer->call;
    const char *sink = http_request_param(call->request, "sink");
    answer->history_starts_ms = result->version;
    if (result->code || sink == NULL)
        unknown_done(answer, result->code, NULL);
    else
        store_sink_get(coord_store(call->api->coord), sink, unknown_sink_read, answer);
}

/* The history is read behind the record that was not found, for it is raised before a record goes. */
static void answer_not_found(struct api_call *call, const struct error *error)
{
    struct unknown_answer *answer = mem_alloc(sizeof *answer);
    answer->call = call;
    error_set(&answer->error, error->code, "%s", error_message(error));
    store_history_get(coord_store(call->api->coord), unknown_history_read, answer);
}

void api_answer_reply(struct api_call *call, const struct coord_reply *reply, bool redirect)
{
    if (reply->code == CHXA_E_TXN_NOT_FOUND) {
        answer_not_found(call, reply->error);
        return;
    }
    if (reply->code == CHXA_E_NOT_OWNER && reply->record) {
        answer_owner(call, reply->record, redirect);
        return;
    }
    if (reply->code) {
        answer_error_with(call, chxa_error_http(reply->code), reply->error, reply->record, NULL);
        return;
    }
    char *text = NULL;
    int code = chxa_record_to_answer_json(reply->record, reply->replay, &text);
    int status = reply->pending ? 202 : call->status ? call->status : 200;
    api_answer_text(call, status, code, text);
}

/* ---- parameters ---- */

static bool parse_number(const char *text, uint64_t *ret)
{
    size_t len = strlen(text);
    if (len == 0 || len > 19 || strspn(text, "0123456789") != len)
        return false;
    *ret = strtoull(text, NULL, 10);
    return true;
}

bool api_param_number(struct api_call *call, const char *name, uint64_t min, uint64_t max,
                      uint64_t *ret)
{
    const char *text = http_request_param(call->request, name);
    uint64_t value = 0;
    if (text == NULL)
        return true;
    if (!parse_number(text, &value) || value < min || value > max) {
        api_answer_error(call, CHXA_E_INVALID_REQUEST,
                         "%s must be a whole number from %llu to %llu", name,
                         (unsigned long long)min, (unsigned long long)max);
        return false;
    }
    *ret = value;
    return true;
}

bool api_param_sink(struct api_call *call)
{
    const char *sink = http_request_param(call->request, "sink");
    if (sink == NULL || chxa_xid_valid(sink))
        return true;
    api_answer_error(call, CHXA_E_INVALID_REQUEST, "sink must be " ID_RULE);
    return false;
}

json_t *api_body_read(struct api_call *call, int code, const char *text, size_t len)
{
    if (code) {
        api_answer_error(call, code, "%s", chxa_error_text(code));
        return NULL;
    }
    json_error_t where = {0};
    json_t *body = len ? json_loadb(text, len, JSON_REJECT_DUPLICATES, &where) : json_object();
    if (json_is_object(body))
        return body;
    json_decref(body);
    api_answer_error(call, CHXA_E_INVALID_REQUEST, "the body must be a JSON object: %s",
                     where.text);
    return NULL;
}

bool api_params_known(struct api_call *call, const char *const *names)
{
    const char *name, *value;
    for (size_t i = 0; http_request_param_at(call->request, i, &name, &value); i++) {
        size_t j = 0;
        while (names[j] && strcmp(names[j], name) != 0)
            j++;
        if (names[j] == NULL) {
            api_answer_error(call, CHXA_E_INVALID_REQUEST, "unknown parameter %s", name);
            return false;
        }
    }
    return true;
}

/* ---- routing ---- */

static void answer_no_route(struct api_call *call, const char *path, const char *method,
                            const char *allowed)
{
    if (*allowed == '\0') {
        api_answer_error(call, CHXA_E_ROUTE_NOT_FOUND, "no such resource: %s", path);
        return;
    }
    struct error error = {0};
    error_set(&error, CHXA_E_METHOD_NOT_ALLOWED, "%s is not allowed here, only %s", method,
              allowed);
    metrics_error(error.code);
    struct http_header header = {"Allow", allowed};
    answer_json_with(call, chxa_error_http(error.code), &header, 1, api_error_json(&error, NULL));
    error_clear(&error);
}

static void dispatch(struct api_call *call, const struct route *route)
{
    const char *why = coord_not_ready(call->api->coord);
    call->route = route->pattern;
    bool named = strchr(route->pattern, '{') != NULL;
    if (named && !chxa_xid_valid(call->xid) && strstr(route->pattern, "{sink}"))
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "a sink's name is " ID_RULE);
    else if (named && !chxa_xid_valid(call->xid))
        api_answer_error(call, CHXA_E_INVALID_XID, "%s", chxa_error_text(CHXA_E_INVALID_XID));
    else if (route->serves == READY && why)
        api_answer_error(call, CHXA_E_NOT_READY, "%s", why);
    else
        route->handler(call);
}

/* /v1/…, /v2/…: this API's, now or later. */
static bool is_versioned(const char *path)
{
    return path[0] == '/' && path[1] == 'v' && path[2] >= '0' && path[2] <= '9';
}

void api_handle(struct http_request *request, void *arg)
{
    struct api_call *call = mem_alloc(sizeof *call);
    call->api = arg;
    call->request = request;
    call->route = "other";
    call->started_us = clock_monotonic_us();
    const char *path = http_request_path(request), *method = http_request_method(request);
    struct buf allowed = {0};
    char xid[CHXA_XID_BYTES_MAX + 2];
    const struct route *found = NULL;
    for (size_t i = 0; i < N_ROUTES && !found; i++) {
        if (!route_fits(routes[i].pattern, path, xid))
            continue;
        if (method_fits(routes[i].method, method))
            found = &routes[i];
        else
            buf_printf(&allowed, "%s%s", allowed.len ? ", " : "", routes[i].method);
    }
    if (found) {
        /* one character too many keeps it invalid */
        memcpy(call->xid, xid, strlen(xid) <= CHXA_XID_BYTES_MAX ? strlen(xid) + 1 : 0);
        dispatch(call, found);
    } else if (allowed.len == 0 && !is_versioned(path)) {
        call->route = "/"; /* ClickHouse's own pages */
        api_clickhouse(call);
    } else {
        answer_no_route(call, path, method, buf_str(&allowed));
    }
    buf_clear(&allowed);
}
