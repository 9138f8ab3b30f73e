/* SPDX-License-Identifier: Apache-2.0
 *
 * A request as its handler sees it; see http.h for the rules and http_private.h for lifetimes.
 */
#include "base/mem.h"
#include "http/http_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct http_request *request_new(struct http_conn *conn, struct http_head *head)
{
    struct http_request *request = mem_alloc(sizeof *request);
    request->conn = conn;
    request->loop = conn->server->loop;
    request->head = *head;
    *head = (struct http_head){0};
    return request;
}

void request_free(struct http_request *request)
{
    assert(request->replied && !request->deferred);
    if (request->closed)
        request->closed(request, request->closed_arg);
    http_head_clear(&request->head);
    buf_clear(&request->collected);
    free(request);
}

/* ---- turns of an orphan: nobody else calls it back ---- */

static void orphan_turn(struct http_request *request)
{
    bool body_owed = request->reading && !request->replied && !request->body_over;
    if (body_owed && !request->body_whole)
        request_body_abort(request, CHXA_E_BODY_TRUNCATED);
    else if (body_owed && !request->paused)
        request_body_end(request);
    if (!request->replied && request->gone) {
        void (*gone)(struct http_request *, void *) = request->gone;
        request->gone = NULL;
        gone(request, request->gone_arg);
    }
}

static void request_deferred(uv_handle_t *handle)
{
    struct http_request *request = handle->data;
    request->deferred = false;
    orphan_turn(request);
    if (request->replied && !request->deferred)
        request_free(request);
}

/* A close callback is libuv's way to be called on a later turn; it needs no handle that outlives
 * the server. */
static void request_defer(struct http_request *request)
{
    if (request->deferred)
        return;
    request->deferred = true;
    uv_idle_init(request->loop, &request->turn);
    request->turn.data = request;
    uv_close((uv_handle_t *)&request->turn, request_deferred);
}

void request_orphan(struct http_request *request, bool body_whole)
{
    request->conn = NULL;
    request->body_whole = body_whole;
    request_defer(request);
}

/* ---- head ---- */

const char *http_request_method(const struct http_request *request)
{
    return request->head.method;
}

const char *http_request_path(const struct http_request *request)
{
    return request->head.path;
}

const char *http_request_target(const struct http_request *request)
{
    return request->head.target;
}

const char *http_request_param(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->head.n_params; i++)
        if (strcmp(request->head.params[i].name, name) == 0)
            return request->head.params[i].value;
    return NULL;
}

bool http_request_param_at(const struct http_request *request, size_t index, const char **ret_name,
                           const char **ret_value)
{
    if (index >= request->head.n_params)
        return false;
    *ret_name = request->head.params[index].name;
    *ret_value = request->head.params[index].value;
    return true;
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    return http_head_header(&request->head, name);
}

bool http_request_header_at(const struct http_request *request, size_t index, const char **ret_name,
                            const char **ret_value)
{
    if (index >= request->head.n_headers)
        return false;
    *ret_name = request->head.headers[index].name;
    *ret_value = request->head.headers[index].value;
    return true;
}

int64_t http_request_body_bytes(const struct http_request *request)
{
    if (request->head.framing == HTTP_FRAMING_CHUNKED)
        return -1;
    return (int64_t)request->head.content_length;
}

/* ---- body ---- */

void request_deliver(struct http_request *request, const char *data, size_t len)
{
    request->received_bytes += len;
    if (request->reader.on_data)
        request->reader.on_data(request, request->reader_arg, data, len);
}

void request_body_end(struct http_request *request)
{
    assert(!request->body_over);
    request->body_over = true;
    if (request->reader.on_end)
        request->reader.on_end(request, request->reader_arg);
}

void request_body_abort(struct http_request *request, int code)
{
    assert(!request->body_over && code);
    request->body_over = true;
    if (request->reader.on_abort)
        request->reader.on_abort(request, request->reader_arg, code);
}

void http_request_read(struct http_request *request, const struct http_body_handler *handler,
                       uint64_t bytes_max, void *arg)
{
    assert(!request->reading && !request->replied);
    request->reading = true;
    request->reader = *handler;
    request->reader_arg = arg;
    request->bytes_max = bytes_max;
    struct http_conn *conn = request->conn;
    if (conn == NULL) {
        request_defer(request);
        return;
    }
    bool too_large = bytes_max && request->head.content_length > bytes_max;
    if (request->head.expect_continue && !too_large) {
        static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
        request->continue_sent = true;
        conn_write(conn, text, sizeof text - 1, NULL, 0);
    }
    conn_kick(conn);
}

void http_request_pause(struct http_request *request)
{
    request->paused = true;
    if (request->conn)
        conn_update(request->conn);
}

void http_request_resume(struct http_request *request)
{
    if (!request->paused)
        return;
    request->paused = false;
    if (request->conn)
        conn_kick(request->conn);
    else
        request_defer(request);
}

static void collect_finish(struct http_request *request, int code)
{
    request->collect_done(request, request->collect_arg, code, buf_str(&request->collected),
                          request->collected.len);
    buf_clear(&request->collected);
}

static void collect_data(struct http_request *request, void *arg, const char *data, size_t len)
{
    (void)arg;
    buf_append(&request->collected, data, len);
}

static void collect_end(struct http_request *request, void *arg)
{
    (void)arg;
    collect_finish(request, 0);
}

static void collect_abort(struct http_request *request, void *arg, int code)
{
    (void)arg;
    collect_finish(request, code);
}

void http_request_collect(struct http_request *request, size_t bytes_max,
                          void (*done)(struct http_request *request, void *arg, int code,
                                       const char *body, size_t len),
                          void *arg)
{
    static const struct http_body_handler collector = {collect_data, collect_end, collect_abort};
    request->collect_done = done;
    request->collect_arg = arg;
    http_request_read(request, &collector, bytes_max, NULL);
}

/* ---- answer ---- */

static void reply_write(struct http_request *request, const struct http_reply *reply,
                        const void *body, size_t len)
{
    struct http_conn *conn = request->conn;
    struct buf head = {0};
    http_reply_head(&head, reply);
    bool with_body =
        http_reply_has_body(reply->status) && strcmp(request->head.method, "HEAD") != 0;
    conn_write(conn, head.data, head.len, body, with_body ? len : 0);
    buf_clear(&head);
}

void http_request_reply(struct http_request *request, int status, const struct http_header *headers,
                        size_t n_headers, const char *content_type, const void *body, size_t len)
{
    assert(!request->replied);
    if (!http_reply_headers_valid(headers, n_headers)) {
        struct error error = {0};
        error_set(&error, CHXA_E_INTERNAL, "a header of the answer holds a control character");
        http_request_reply_error(request, &error);
        error_clear(&error);
        return;
    }
    request->replied = true;
    struct http_conn *conn = request->conn;
    if (conn == NULL) {
        request_defer(request);
        return;
    }
    /* 411: what follows may be the body that the client meant; it must not be read as requests. */
    if (!conn_keeps_alive(conn) || status == 411)
        conn->close_after = true;
    struct http_reply reply = {
        .status = status,
        .headers = headers,
        .n_headers = n_headers,
        .content_type = content_type,
        .body_bytes = (int64_t)len,
        .keep_alive = !conn->close_after,
        .keep_alive_ms = conn->server->config.keep_alive_ms,
    };
    reply_write(request, &reply, body, len);
    conn_replied(conn);
}

void http_request_reply_error(struct http_request *request, const struct error *error)
{
    static const struct http_header retry = {"Retry-After", "1"};
    struct buf json = {0};
    http_reply_error_json(&json, error);
    http_request_reply(request, chxa_error_http(error->code), &retry,
                       chxa_error_retryable(error->code) ? 1 : 0, "application/json", json.data,
                       json.len);
    buf_clear(&json);
}

void http_request_on_gone(struct http_request *request,
                          void (*gone)(struct http_request *request, void *arg), void *arg)
{
    request->gone = gone;
    request->gone_arg = arg;
    if (request->conn == NULL)
        request_defer(request);
}

void http_request_on_close(struct http_request *request,
                           void (*closed)(struct http_request *request, void *arg), void *arg)
{
    request->closed = closed;
    request->closed_arg = arg;
}
