/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/transactions/{xid}/writes: one INSERT, its body streamed through to ClickHouse.
 *
 * The call lives until the coordinator's reply; the HTTP body is read when the coordinator wants it
 * (flow).
 */
#include "base/mem.h"
#include "ch/insert_head.h"
#include "http/api_private.h"

#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 100u

struct api_write {
    struct api_call *call;
    struct coord_write *write;
    bool reading;
};

static void body_data(struct http_request *request, void *arg, const char *data, size_t len)
{
    struct api_write *api = arg;
    (void)request;
    coord_write_data(api->write, data, len);
}

static void body_end(struct http_request *request, void *arg)
{
    struct api_write *api = arg;
    (void)request;
    coord_write_end(api->write);
}

static void body_abort(struct http_request *request, void *arg, int code)
{
    struct api_write *api = arg;
    (void)request;
    coord_write_abort(api->write, code);
}

static void client_gone(struct http_request *request, void *arg)
{
    body_abort(request, arg, CHXA_E_BODY_TRUNCATED);
}

static void flow(void *arg, bool want)
{
    static const struct http_body_handler handler = {body_data, body_end, body_abort};
    struct api_write *api = arg;
    struct http_request *request = api->call->request;
    if (!want) {
        http_request_pause(request);
    } else if (api->reading) {
        http_request_resume(request);
    } else {
        api->reading = true;
        http_request_read(request, &handler, api->call->api->body_bytes_max, api);
    }
}

static void written(void *arg, const struct coord_reply *reply)
{
    struct api_write *api = arg;
    struct api_call *call = api->call;
    http_request_on_gone(call->request, NULL, NULL);
    free(api);
    if (reply->code) {
        api_answer_reply(call, reply, false);
        return;
    }
    char *text = NULL;
    int code = reply->gathered
                   ? chxa_gathered_to_answer_json(call->xid, reply->gathered, reply->body_bytes,
                                                  reply->replay, &text)
                   : chxa_write_to_answer_json(call->xid, reply->write, reply->replay, &text);
    api_answer_text(call, 200, code, text);
}

/* Parameters of ClickHouse's HTTP interface that are no settings: the node speaks for itself, in
 * its own session. */
static bool is_http_parameter(const char *name)
{
    static const char *const names[] = {"user",
                                        "password",
                                        "quota_key",
                                        "role",
                                        "session_id",
                                        "session_timeout",
                                        "session_check",
                                        "query_id",
                                        "default_format",
                                        "compress",
                                        "decompress",
                                        "stacktrace",
                                        "close_session",
                                        "client_protocol_version",
                                        NULL};
    for (const char *const *known = names; *known; known++)
        if (strcmp(name, *known) == 0)
            return true;
    return false;
}

/* ClickHouse settings are lower-case words; anything else is a typing error or an attack. */
static bool setting_name_valid(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < 100 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

static bool is_ours(const char *name)
{
    return strcmp(name, "query") == 0 || strcmp(name, "write_id") == 0 ||
           strcmp(name, "views") == 0 || strcmp(name, "database") == 0 || strcmp(name, "sink") == 0;
}

/* What is not ours goes to ClickHouse as a setting. False: answered. */
static bool read_settings(struct api_call *call, struct ch_param *settings, size_t *ret_n)
{
    const char *name, *value;
    size_t n = 0;
    for (size_t i = 0; http_request_param_at(call->request, i, &name, &value); i++) {
        if (is_ours(name))
            continue;
        if (!setting_name_valid(name) || is_http_parameter(name) || n == SETTINGS_MAX) {
            api_answer_error(call, CHXA_E_INVALID_REQUEST,
                             "%.100s is no setting that a write can have", name);
            return false;
        }
        if (insert_setting_refused(name))
            continue; /* overridden: this INSERT is staged on our terms */
        settings[n++] = (struct ch_param){name, value};
    }
    *ret_n = n;
    return true;
}

static bool needs_body(const char *query)
{
    struct insert_head head = {0};
    struct error ignored = {0};
    int code = insert_head_parse(query, strlen(query), &head, &ignored);
    bool needs = code == 0 && head.source == INSERT_FORMAT;
    insert_head_clear(&head);
    error_clear(&ignored);
    return needs;
}

void api_write(struct api_call *call)
{
    struct http_request *request = call->request;
    struct ch_param settings[SETTINGS_MAX];
    const char *views = http_request_param(request, "views");
    const char *length = http_request_header(request, "Content-Length");
    struct coord_write_params params = {
        .xid = call->xid,
        .query = http_request_param(request, "query"),
        .write_id = http_request_param(request, "write_id"),
        .database = http_request_param(request, "database"),
        .skip_views = views && strcmp(views, "skip") == 0,
        .content_encoding = http_request_header(request, "Content-Encoding"),
        .body_bytes = length ? strtoull(length, NULL, 10) : 0, /* http_head.c has checked it */
        .settings = settings,
        .flow = flow,
    };
    if (params.query == NULL) {
        api_answer_error(call, CHXA_E_INVALID_REQUEST,
                         "the parameter query, with the INSERT, is missing");
        return;
    }
    if (needs_body(params.query) && length == NULL &&
        http_request_header(request, "Transfer-Encoding") == NULL) {
        /* Without a length nobody can tell a whole body from a truncated one. */
        api_answer_error(call, CHXA_E_LENGTH_REQUIRED, "%s",
                         chxa_error_text(CHXA_E_LENGTH_REQUIRED));
        return;
    }
    if (params.write_id && !chxa_xid_valid(params.write_id)) {
        api_answer_error(call, CHXA_E_INVALID_REQUEST,
                         "write_id must be 1-280 characters of A-Z a-z 0-9 . _ : -");
        return;
    }
    if (views && !params.skip_views) {
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "views may only be skip");
        return;
    }
    if (!api_param_sink(call) || !read_settings(call, settings, &params.n_settings))
        return;
    struct api_write *api = mem_alloc(sizeof *api);
    api->call = call;
    http_request_on_gone(request, client_gone, api);
    api->write = coord_write_start(call->api->coord, &params, written, api);
}
