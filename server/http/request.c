/* SPDX-License-Identifier: Apache-2.0
 *
 * A request as its handler sees it; see http.h for the rules and http_private.h for lifetimes.
 */
#include "base/mem.h"
#include "base/metrics.h"
#include "http/http_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct http_request *request_new(struct http_conn *conn, struct http_head *head)
{
    struct http_request *request = mem_alloc(sizeof *request);
    request->conn = conn;
    request->loop = conn->server->loop;
    request->budget = conn->server->config.budget;
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
    budget_give(request->budget, request->held);
    free(request);
}

/* ---- turns of an orphan: nobody else calls it back ---- */

static void orphan_turn(struct http_request *request)
{
    if (request->drain_owed) {
        request->drain_owed = false;
        if (request->drain)
            request->drain(request, request->drain_arg);
    }
    bool body_owed = request->reading && !request->replied && !request->body_over;
    if (body_owed && !request->body_whole)
        request_body_abort(request, CHXA_E_BODY_TRUNCATED);
    else if (body_owed && !request->paused)
        request_body_end(request);
    if ((!request->replied || request->piecewise) && request->gone) {
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
    if (request->replied && !request->piecewise && !request->deferred)
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

void http_request_read_on(struct http_request *request)
{
    assert(!request->replied);
    request->reads_on = request->reading && !request->body_over;
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
    size_t before = request->collected.cap;
    buf_append(&request->collected, data, len);
    size_t more = request->collected.cap > HTTP_FREE_BYTES ? request->collected.cap - before : 0;
    if (!budget_hold(request->budget, &request->held, request->held + more)) {
        metrics_count(METRIC_body_memory_short_total, 1, "refused", NULL);
        request->no_memory = true;
    }
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

/* The head, and what becomes of the connection. */
static void reply_head(struct http_request *request, struct http_reply *reply, struct buf *out)
{
    struct http_conn *conn = request->conn;
    /* 411: what follows may be the body that the client meant; it must not be read as requests. */
    if (!conn_keeps_alive(conn) || reply->status == 411)
        conn->close_after = true;
    reply->keep_alive = !conn->close_after;
    reply->keep_alive_ms = conn->server->config.keep_alive_ms;
    http_reply_head(out, reply);
}

static bool reply_has_body(const struct http_request *request, int status)
{
    return http_reply_has_body(status) && strcmp(request->head.method, "HEAD") != 0;
}

static bool reply_refuse_headers(struct http_request *request, const struct http_header *headers,
                                 size_t n_headers)
{
    if (http_reply_headers_valid(headers, n_headers))
        return false;
    struct error error = {0};
    error_set(&error, CHXA_E_INTERNAL, "a header of the answer holds a control character");
    http_request_reply_error(request, &error);
    error_clear(&error);
    return true;
}

void http_request_reply(struct http_request *request, int status, const struct http_header *headers,
                        size_t n_headers, const char *content_type, const void *body, size_t len)
{
    assert(!request->replied);
    if (reply_refuse_headers(request, headers, n_headers))
        return;
    request->replied = true;
    struct http_conn *conn = request->conn;
    if (conn == NULL) {
        request_defer(request);
        return;
    }
    struct http_reply reply = {
        .status = status,
        .headers = headers,
        .n_headers = n_headers,
        .content_type = content_type,
        .body_bytes = (int64_t)len,
    };
    struct buf head = {0};
    reply_head(request, &reply, &head);
    conn_write(conn, head.data, head.len, body, reply_has_body(request, status) ? len : 0);
    buf_clear(&head);
    conn_replied(conn);
}

/* ---- an answer in pieces ---- */

void http_reply_start(struct http_request *request, int status, const struct http_header *headers,
                      size_t n_headers, int64_t body_bytes,
                      void (*drain)(struct http_request *request, void *arg), void *arg)
{
    assert(!request->replied && http_reply_headers_valid(headers, n_headers));
    request->replied = request->piecewise = true;
    request->drain = drain;
    request->drain_arg = arg;
    request->reply_bodiless = !reply_has_body(request, status);
    request->reply_bytes_left = body_bytes > 0 ? (uint64_t)body_bytes : 0;
    request->reply_chunked = body_bytes < 0;
    struct http_conn *conn = request->conn;
    if (conn == NULL)
        return;
    bool old = request->head.minor == 0; /* HTTP/1.0 knows no chunks */
    if (request->reply_chunked && old)
        conn->close_after = true;
    struct http_reply reply = {
        .status = status,
        .headers = headers,
        .n_headers = n_headers,
        .body_bytes = body_bytes < 0 ? -1 : body_bytes,
        .chunked = request->reply_chunked && !old,
    };
    struct buf head = {0};
    reply_head(request, &reply, &head);
    conn_write(conn, head.data, head.len, NULL, 0);
    buf_clear(&head);
    conn_replied(conn);
}

static void write_chunk(struct http_request *request, const void *data, size_t len)
{
    static const char line_end[] = "\r\n";
    struct buf chunk = {0};
    if (request->head.minor == 0) {
        conn_write(request->conn, data, len, NULL, 0);
        return;
    }
    buf_printf(&chunk, "%zx\r\n", len);
    buf_append(&chunk, data, len);
    conn_write(request->conn, chunk.data, chunk.len, line_end, sizeof line_end - 1);
    buf_clear(&chunk);
}

bool http_reply_data(struct http_request *request, const void *data, size_t len)
{
    assert(request->piecewise);
    struct http_conn *conn = request->conn;
    if (conn == NULL || len == 0 || request->reply_bodiless)
        return true;
    if (request->reply_chunked) {
        write_chunk(request, data, len);
    } else {
        if (len > request->reply_bytes_left)
            len = (size_t)request->reply_bytes_left; /* more would be read as the next answer */
        request->reply_bytes_left -= len;
        if (len)
            conn_write(conn, data, len, NULL, 0);
    }
    request->drain_owed = conn->write_bytes > HTTP_REPLY_BYTES;
    return !request->drain_owed;
}

void request_drained(struct http_request *request)
{
    if (!request->drain_owed || request->conn->write_bytes > HTTP_REPLY_BYTES / 2)
        return;
    request->drain_owed = false;
    if (request->drain)
        request->drain(request, request->drain_arg);
}

void http_reply_end(struct http_request *request, bool whole)
{
    assert(request->piecewise);
    struct http_conn *conn = request->conn;
    request->piecewise = request->drain_owed = request->reads_on = false;
    if (conn == NULL) {
        request_defer(request);
        return;
    }
    conn_replied(conn);
    if (!request->reply_bodiless && request->reply_bytes_left > 0)
        whole = false;
    if (whole && request->reply_chunked && !request->reply_bodiless && request->head.minor > 0)
        conn_write(conn, "0\r\n\r\n", 5, NULL, 0);
    conn_reply_over(conn, whole);
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
