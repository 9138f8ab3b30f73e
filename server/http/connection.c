/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: bytes in, states (the diagram is in http_private.h), back-pressure, time-outs,
 * bytes out.
 *
 * Invariants:
 *   - conn_set_state is the only writer of state.
 *   - A handler's callback never runs inside a call of the handler: calls leave a kick, and while
 *     one is owed nothing more is parsed.
 *   - The socket is read only when somebody wants the bytes (conn_wants_bytes), so that what a
 *     connection holds is bounded: a head (head_bytes_max), a rest (one read), an answer.
 *   - conn_close is called only from turns of the loop (read, write, timer, kick), never by a
 *     function that handlers call.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "http/http_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void conn_advance(struct http_conn *conn);
static void conn_next(struct http_conn *conn);

/* ---- deadlines ---- */

static void conn_timer_fired(uv_timer_t *timer);

/* The timer runs for the nearer deadline. One that is due too early is left running and looks
 * again when it fires, so that moving a deadline with every byte costs nothing. */
static void conn_timer_update(struct http_conn *conn)
{
    uint64_t due = conn->input_deadline_ms;
    if (conn->write_deadline_ms && (due == 0 || conn->write_deadline_ms < due))
        due = conn->write_deadline_ms;
    if (due == 0 || conn->state == CONN_CLOSED || (conn->timer_due_ms && conn->timer_due_ms <= due))
        return;
    uint64_t now = clock_monotonic_ms();
    conn->timer_due_ms = due;
    uv_timer_start(&conn->timer, conn_timer_fired, due > now ? due - now : 0, 0);
}

static void conn_input_within(struct http_conn *conn, uint64_t timeout_ms)
{
    conn->input_deadline_ms = timeout_ms ? clock_monotonic_ms() + timeout_ms : 0;
    conn_timer_update(conn);
}

/* ---- states ---- */

static const char *state_name(enum conn_state state)
{
    static const char *const names[] = {"head", "body", "wait", "drain", "linger", "closed"};
    return names[state];
}

static void conn_set_state(struct http_conn *conn, enum conn_state state)
{
    const struct http_config *config = &conn->server->config;
    assert(conn->state != CONN_CLOSED);
    log_debug("connection state", "conn=%p from=%s to=%s", (void *)conn, state_name(conn->state),
              state_name(state));
    conn->state = state;
    switch (state) {
    case CONN_HEAD:
        conn->scan = (struct http_head_scan){0};
        conn_input_within(conn, config->keep_alive_ms);
        break;
    case CONN_DRAIN:
        conn_input_within(conn, config->body_idle_timeout_ms);
        break;
    case CONN_LINGER:
        conn_input_within(conn, HTTP_LINGER_MS);
        break;
    case CONN_BODY: /* conn_update sets it whenever the handler wants bytes */
    case CONN_WAIT:
    case CONN_CLOSED:
        conn_input_within(conn, 0);
        break;
    }
}

static void conn_free(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        server->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    buf_clear(&conn->head);
    buf_clear(&conn->rest);
    budget_give(server->config.budget, conn->held);
    free(conn);
    server_conn_closed(server);
}

static void conn_handle_closed(uv_handle_t *handle)
{
    struct http_conn *conn = handle->data;
    if (--conn->handles == 0)
        conn_free(conn);
}

void conn_close(struct http_conn *conn)
{
    if (conn->state == CONN_CLOSED)
        return;
    bool body_whole = conn->body.done;
    conn_set_state(conn, CONN_CLOSED);
    conn->write_deadline_ms = 0;
    if (!conn->reset || uv_tcp_close_reset(&conn->tcp, conn_handle_closed) < 0)
        uv_close((uv_handle_t *)&conn->tcp, conn_handle_closed);
    uv_close((uv_handle_t *)&conn->timer, conn_handle_closed);
    struct http_request *request = conn->request;
    conn->request = NULL;
    if (request)
        request_orphan(request, body_whole);
}

static void conn_kicked(uv_handle_t *handle)
{
    struct http_conn *conn = handle->data;
    conn->kicked = false;
    if (conn->state == CONN_CLOSED)
        conn_handle_closed(handle);
    else {
        conn->handles--;
        conn_advance(conn);
    }
}

/* A close callback is libuv's cheapest "on the next turn". */
void conn_kick(struct http_conn *conn)
{
    if (conn->kicked || conn->state == CONN_CLOSED)
        return;
    conn->kicked = true;
    conn->handles++;
    uv_idle_init(conn->server->loop, &conn->kick);
    conn->kick.data = conn;
    uv_close((uv_handle_t *)&conn->kick, conn_kicked);
}

/* ---- out ---- */

struct conn_out {
    uv_write_t req;
    struct http_conn *conn;
    size_t len;
    char data[];
};

static void conn_write_progress(struct http_conn *conn)
{
    conn->write_left = uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp);
    conn->write_deadline_ms =
        conn->writes ? clock_monotonic_ms() + conn->server->config.write_timeout_ms : 0;
    conn_timer_update(conn);
}

/* True (and the request is gone) when the answer is given whole and written. */
static bool conn_answered(struct http_conn *conn)
{
    struct http_request *request = conn->request;
    if (conn->writes || (request && (!request->replied || request->piecewise)))
        return false;
    conn->request = NULL;
    if (request)
        request_free(request);
    if (conn->state == CONN_WAIT || conn->close_after)
        conn_next(conn);
    return true;
}

static void conn_written(uv_write_t *req, int status)
{
    struct conn_out *out = (struct conn_out *)req->data;
    struct http_conn *conn = out->conn;
    conn->writes--;
    conn->write_bytes -= out->len;
    free(out);
    if (conn->state == CONN_CLOSED)
        return;
    if (status < 0) {
        conn_close(conn);
        return;
    }
    conn_write_progress(conn);
    if (conn->request && conn->request->piecewise)
        request_drained(conn->request);
    if (conn_answered(conn) && conn->state != CONN_CLOSED)
        conn_advance(conn);
}

void conn_write(struct http_conn *conn, const void *data, size_t len, const void *more,
                size_t more_len)
{
    if (conn->state == CONN_CLOSED || conn->failed)
        return;
    struct conn_out *out = mem_alloc(sizeof *out + len + more_len);
    out->conn = conn;
    out->len = len + more_len;
    out->req.data = out;
    memcpy(out->data, data, len);
    if (more_len)
        memcpy(out->data + len, more, more_len);
    uv_buf_t buf = uv_buf_init(out->data, (unsigned)(len + more_len));
    if (uv_write(&out->req, (uv_stream_t *)&conn->tcp, &buf, 1, conn_written) < 0) {
        free(out);
        conn->failed = true;
        conn_kick(conn);
        return;
    }
    conn->write_bytes += out->len;
    if (conn->writes++ == 0)
        conn_write_progress(conn);
}

/* Answers what never became a request, then closes. */
static void conn_refuse(struct http_conn *conn, const struct error *error)
{
    struct buf json = {0};
    struct buf head = {0};
    http_reply_error_json(&json, error);
    static const struct http_header retry = {"Retry-After", "1"};
    struct http_reply reply = {
        .status = chxa_error_http(error->code),
        .headers = &retry,
        .n_headers = chxa_error_retryable(error->code) ? 1 : 0,
        .content_type = "application/json",
        .body_bytes = (int64_t)json.len,
    };
    http_reply_head(&head, &reply);
    conn->close_after = true;
    conn_set_state(conn, CONN_WAIT);
    conn_write(conn, head.data, head.len, json.data, json.len);
    buf_clear(&head);
    buf_clear(&json);
}

bool conn_keeps_alive(const struct http_conn *conn)
{
    const struct http_request *request = conn->request;
    if (conn->close_after || conn->server->stopping || !request->head.keep_alive)
        return false;
    if (conn->eof && conn->rest.len == conn->rest_at)
        return false;
    if (conn->body.done)
        return true;
    /* A client that was not told to continue may send its body or not: no way to know. */
    if (request->head.expect_continue && !request->continue_sent)
        return false;
    return request->reads_on || conn->body.framing != HTTP_FRAMING_LENGTH ||
           conn->body.remaining <= conn->server->config.drain_bytes_max;
}

void conn_replied(struct http_conn *conn)
{
    if (conn->state == CONN_BODY && !conn->request->reads_on) {
        conn_set_state(conn, conn->body.done || conn->close_after ? CONN_WAIT : CONN_DRAIN);
        conn_kick(conn);
    }
}

void conn_reply_over(struct http_conn *conn, bool whole)
{
    if (!whole) {
        conn->failed = true;
        /* Of an answer that only the connection's end ends, the client must not take this for it. */
        conn->reset = conn->request->reply_chunked && conn->request->head.minor == 0;
    }
    conn_kick(conn);
}

/* ---- the end of a connection ---- */

static void conn_shut(uv_shutdown_t *req, int status)
{
    (void)status;
    free(req);
}

/* RFC 9112 section 9.6: closing with bytes unread would reset the connection and may take the
 * answer from the client. So: shut our side, read what still comes (bounded), then close. */
static void conn_linger(struct http_conn *conn)
{
    uv_shutdown_t *shut = mem_alloc(sizeof *shut);
    if (conn->eof || uv_shutdown(shut, (uv_stream_t *)&conn->tcp, conn_shut) < 0) {
        free(shut);
        conn_close(conn);
        return;
    }
    conn_set_state(conn, CONN_LINGER);
}

/* The answer is written and the body is over, or will not be waited for. */
static void conn_next(struct http_conn *conn)
{
    assert(conn->request == NULL && conn->writes == 0);
    if (conn->close_after || conn->server->stopping)
        conn_linger(conn);
    else
        conn_set_state(conn, CONN_HEAD);
}

/* Nothing more will be parsed on this connection. */
static void conn_give_up_input(struct http_conn *conn)
{
    conn->close_after = true;
    if (conn->request == NULL && conn->writes == 0)
        conn_linger(conn);
    else
        conn_set_state(conn, CONN_WAIT);
}

void conn_retire(struct http_conn *conn)
{
    conn->close_after = true;
    if (conn->state == CONN_HEAD)
        conn_close(conn);
    else if (conn->state == CONN_DRAIN) /* answered: there is nothing to wait for */
        conn_give_up_input(conn);
    conn_update(conn);
}

static void conn_abort_body(struct http_conn *conn, int code)
{
    conn->close_after = true;
    conn_set_state(conn, CONN_WAIT);
    request_body_abort(conn->request, code);
}

/* ---- in ---- */

static void conn_dispatch(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct http_head head;
    struct error error = {0};
    size_t len = conn->head.len;
    if (http_head_parse(buf_take(&conn->head), len, &head, &error)) {
        conn_refuse(conn, &error);
        error_clear(&error);
        return;
    }
    http_body_init(&conn->body, head.framing, head.content_length);
    conn->drained_bytes = 0;
    conn->request = request_new(conn, &head);
    conn->request->held = conn->held;
    conn->held = 0;
    conn_set_state(conn, conn->body.done ? CONN_WAIT : CONN_BODY);
    server->handler(conn->request, server->arg);
}

static size_t conn_input_head(struct http_conn *conn, const char *data, size_t len)
{
    size_t used;
    size_t skip;
    struct error error = {0};
    bool started = conn->head.len > 0;
    if (http_head_scan(&conn->scan, &conn->server->limits, data, len, &used, &skip, &error)) {
        conn_refuse(conn, &error);
        error_clear(&error);
        return len;
    }
    buf_append(&conn->head, data + skip, used - skip);
    size_t held = conn->head.cap > HTTP_FREE_BYTES ? conn->head.cap : 0;
    if (!budget_hold(conn->server->config.budget, &conn->held, held)) {
        metrics_count(METRIC_body_memory_short_total, 1, "refused", NULL);
        buf_clear(&conn->head);
        error_set(&error, CHXA_E_BUSY,
                  "requests under way hold all the memory that they may (body_memory_bytes_max)");
        conn_refuse(conn, &error);
        error_clear(&error);
        return len;
    }
    if (conn->scan.state == HTTP_SCAN_DONE)
        conn_dispatch(conn);
    else if (!started && conn->head.len)
        conn_input_within(conn, conn->server->config.head_timeout_ms);
    return used;
}

static size_t conn_input_body(struct http_conn *conn, const char *data, size_t len)
{
    struct http_request *request = conn->request;
    if (!request->reading || request->paused)
        return 0;
    size_t used;
    const char *content;
    size_t content_len;
    const char *reason;
    if (!http_body_next(&conn->body, data, len, &used, &content, &content_len, &reason)) {
        log_debug("request body broken", "conn=%p reason=\"%s\"", (void *)conn, reason);
        conn_abort_body(conn, CHXA_E_BODY_TRUNCATED);
        return len;
    }
    if (request->bytes_max && content_len > request->bytes_max - request->received_bytes) {
        conn_abort_body(conn, CHXA_E_BODY_TOO_LARGE);
        return len;
    }
    if (content_len)
        request_deliver(request, content, content_len);
    if (request->no_memory) {
        conn_abort_body(conn, CHXA_E_BUSY);
        return len;
    }
    if (conn->body.done && conn->state == CONN_BODY)
        conn_set_state(conn, CONN_WAIT);
    return used;
}

static size_t conn_input_drain(struct http_conn *conn, const char *data, size_t len)
{
    size_t used;
    const char *content;
    size_t content_len;
    const char *reason;
    bool sound = http_body_next(&conn->body, data, len, &used, &content, &content_len, &reason);
    if (sound)
        conn->drained_bytes += used;
    if (!sound || conn->drained_bytes > conn->server->config.drain_bytes_max) {
        conn_give_up_input(conn);
        return len;
    }
    if (conn->body.done) {
        conn_set_state(conn, CONN_WAIT);
        if (conn->request == NULL && conn->writes == 0)
            conn_next(conn);
    }
    return used;
}

static size_t conn_input_linger(struct http_conn *conn, size_t len)
{
    conn->drained_bytes += len;
    if (conn->drained_bytes > conn->server->config.drain_bytes_max)
        conn_close(conn);
    return len;
}

/* Gives bytes to whoever the state says, until a turn is owed or nobody wants them. Returns how
 * many were used. */
static size_t conn_input(struct http_conn *conn, const char *data, size_t len)
{
    size_t used = 0;
    while (used < len && !conn->kicked) {
        size_t step = 0;
        switch (conn->state) {
        case CONN_HEAD:
            step = conn_input_head(conn, data + used, len - used);
            break;
        case CONN_BODY:
            step = conn_input_body(conn, data + used, len - used);
            break;
        case CONN_DRAIN:
            step = conn_input_drain(conn, data + used, len - used);
            break;
        case CONN_LINGER:
            step = conn_input_linger(conn, len - used);
            break;
        case CONN_WAIT:
        case CONN_CLOSED:
            break;
        }
        if (step == 0)
            break;
        used += step;
    }
    return used;
}

/* Tells the handler the end of its body when nothing is left to deliver. */
static void conn_body_progress(struct http_conn *conn)
{
    struct http_request *request = conn->request;
    if (request == NULL || conn->kicked || !request->reading || request->body_over ||
        (request->replied && !request->reads_on))
        return;
    if (request->bytes_max && request->head.content_length > request->bytes_max)
        conn_abort_body(conn, CHXA_E_BODY_TOO_LARGE);
    else if (conn->body.done && !request->paused)
        request_body_end(request);
}

/* Goes on as far as there are bytes and takers. */
static void conn_advance(struct http_conn *conn)
{
    if (conn->failed) {
        conn_close(conn);
        return;
    }
    /* a piecewise reply whose last piece had been written before its end was said */
    if (conn->request && conn->request->replied)
        conn_answered(conn);
    if (conn->state == CONN_CLOSED)
        return;
    conn_body_progress(conn);
    while (conn->rest.len > conn->rest_at && !conn->kicked) {
        size_t used =
            conn_input(conn, conn->rest.data + conn->rest_at, conn->rest.len - conn->rest_at);
        conn->rest_at += used;
        conn_body_progress(conn);
        if (used == 0)
            break;
    }
    if (conn->state == CONN_CLOSED)
        return;
    if (conn->rest_at == conn->rest.len || (conn->state == CONN_WAIT && conn->close_after)) {
        buf_clear(&conn->rest);
        conn->rest_at = 0;
    }
    if (conn->state == CONN_HEAD && conn->eof && conn->rest.len == 0) {
        conn_close(conn);
        return;
    }
    conn_update(conn);
}

/* ---- reading from the socket ---- */

static bool conn_wants_bytes(const struct http_conn *conn)
{
    const struct http_request *request = conn->request;
    size_t rest = conn->rest.len - conn->rest_at;
    if (conn->eof || conn->failed)
        return false;
    switch (conn->state) {
    case CONN_HEAD:
    case CONN_DRAIN:
    case CONN_LINGER:
        return rest == 0;
    case CONN_BODY:
        return rest == 0 && request->reading && !request->paused;
    case CONN_WAIT: /* for the next request, and to see that the client went away */
        return rest < HTTP_READ_HEAD_BYTES && !conn->close_after;
    case CONN_CLOSED:
        break;
    }
    return false;
}

static size_t conn_read_bytes(const struct http_conn *conn)
{
    switch (conn->state) {
    case CONN_BODY:
    case CONN_DRAIN: /* never behind the end of a body whose length is known */
        if (conn->body.framing != HTTP_FRAMING_LENGTH)
            return HTTP_READ_CHUNK_BYTES;
        return conn->body.remaining < HTTP_READ_BYTES ? (size_t)conn->body.remaining
                                                      : HTTP_READ_BYTES;
    case CONN_LINGER:
        return HTTP_READ_BYTES;
    case CONN_HEAD:
    case CONN_WAIT:
    case CONN_CLOSED:
        break;
    }
    return HTTP_READ_HEAD_BYTES;
}

/* The buffer is the server's: libuv reads into it and calls conn_read at once. */
static void conn_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    struct http_conn *conn = handle->data;
    (void)suggested;
    *ret_buf = uv_buf_init(conn->server->read_buffer, (unsigned)conn_read_bytes(conn));
}

static void conn_read_end(struct http_conn *conn)
{
    conn->eof = true;
    switch (conn->state) {
    case CONN_BODY:
        conn_abort_body(conn, CHXA_E_BODY_TRUNCATED);
        break;
    case CONN_DRAIN:
        conn_give_up_input(conn);
        break;
    case CONN_LINGER:
        conn_close(conn);
        break;
    case CONN_HEAD:
    case CONN_WAIT: /* a half-close: the answer still goes out */
    case CONN_CLOSED:
        break;
    }
    if (conn->state != CONN_CLOSED)
        conn_advance(conn);
}

static void conn_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct http_conn *conn = stream->data;
    if (n == 0 || conn->state == CONN_CLOSED)
        return;
    if (n == UV_EOF) {
        conn_read_end(conn);
        return;
    }
    if (n < 0) {
        conn_close(conn);
        return;
    }
    size_t len = (size_t)n;
    size_t used = conn->rest.len == conn->rest_at ? conn_input(conn, buf->base, len) : 0;
    if (conn->state == CONN_CLOSED)
        return;
    if (used < len) {
        buf_consume(&conn->rest, conn->rest_at);
        conn->rest_at = 0;
        buf_append(&conn->rest, buf->base + used, len - used);
    }
    if (conn->state == CONN_BODY)
        conn->input_deadline_ms = 0; /* conn_update begins to count again */
    conn_advance(conn);
}

void conn_update(struct http_conn *conn)
{
    if (conn->state == CONN_CLOSED)
        return;
    bool wants = conn_wants_bytes(conn);
    if (wants && !conn->reading) {
        if (uv_read_start((uv_stream_t *)&conn->tcp, conn_allocate, conn_read) < 0) {
            conn->failed = true;
            conn_kick(conn);
            return;
        }
    } else if (!wants && conn->reading) {
        uv_read_stop((uv_stream_t *)&conn->tcp);
    }
    conn->reading = wants;
    if (conn->state == CONN_BODY && (!wants || conn->input_deadline_ms == 0))
        conn_input_within(conn, wants ? conn->server->config.body_idle_timeout_ms : 0);
}

/* ---- time-outs ---- */

static void conn_input_expired(struct http_conn *conn)
{
    struct error error = {0};
    conn->input_deadline_ms = 0;
    switch (conn->state) {
    case CONN_HEAD:
        if (conn->head.len == 0) {
            conn_close(conn);
            return;
        }
        error_set(&error, CHXA_E_REQUEST_TIMEOUT,
                  "the request head was not complete within %llu ms",
                  (unsigned long long)conn->server->config.head_timeout_ms);
        conn_refuse(conn, &error);
        error_clear(&error);
        break;
    case CONN_BODY:
        conn_abort_body(conn, CHXA_E_REQUEST_TIMEOUT);
        break;
    case CONN_DRAIN:
        conn_give_up_input(conn);
        break;
    case CONN_LINGER:
        conn_close(conn);
        return;
    case CONN_WAIT:
    case CONN_CLOSED:
        return;
    }
    if (conn->state != CONN_CLOSED)
        conn_advance(conn);
}

static void conn_timer_fired(uv_timer_t *timer)
{
    struct http_conn *conn = timer->data;
    uint64_t now = clock_monotonic_ms();
    conn->timer_due_ms = 0;
    if (conn->write_deadline_ms && now >= conn->write_deadline_ms) {
        if (uv_stream_get_write_queue_size((uv_stream_t *)&conn->tcp) >= conn->write_left) {
            log_debug("client does not take its answer", "conn=%p", (void *)conn);
            conn_close(conn);
            return;
        }
        conn_write_progress(conn);
    }
    if (conn->input_deadline_ms && now >= conn->input_deadline_ms)
        conn_input_expired(conn);
    conn_timer_update(conn);
}

/* ---- the beginning ---- */

static void overflow_closed(uv_handle_t *handle)
{
    free(handle);
}

/* So many that not even a refusal is sent. */
static void conn_overflow(struct http_server *server)
{
    uv_tcp_t *tcp = mem_alloc(sizeof *tcp);
    uv_tcp_init(server->loop, tcp);
    uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)tcp);
    uv_close((uv_handle_t *)tcp, overflow_closed);
}

void conn_accept(struct http_server *server)
{
    if (server->n_conns >= server->config.connections_max + HTTP_REFUSALS_MAX) {
        conn_overflow(server);
        return;
    }
    struct http_conn *conn = mem_alloc(sizeof *conn);
    conn->server = server;
    conn->tcp.data = conn->timer.data = conn;
    uv_tcp_init(server->loop, &conn->tcp);
    uv_timer_init(server->loop, &conn->timer);
    conn->handles = 2;
    conn->next = server->conns;
    if (conn->next)
        conn->next->prev = conn;
    server->conns = conn;
    server->n_conns++;
    if (uv_accept((uv_stream_t *)&server->listener, (uv_stream_t *)&conn->tcp) < 0) {
        conn_close(conn);
        return;
    }
    uv_tcp_nodelay(&conn->tcp, 1);
    conn_set_state(conn, CONN_HEAD);
    if (server->n_conns > server->config.connections_max) {
        struct error error = {0};
        error_set(&error, CHXA_E_BUSY, "%zu connections are open, the configured limit",
                  server->config.connections_max);
        conn_refuse(conn, &error);
        error_clear(&error);
    }
    conn_update(conn);
}
