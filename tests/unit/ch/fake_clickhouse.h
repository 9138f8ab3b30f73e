/* SPDX-License-Identifier: Apache-2.0
 *
 * A fake ClickHouse on the test's own loop, for the tests of what talks to one: it answers as its steps say, and keeps all
 * that it was sent. One translation unit includes this.
 */
#ifndef CHXA_TESTS_UNIT_CH_FAKE_CLICKHOUSE_H
#define CHXA_TESTS_UNIT_CH_FAKE_CLICKHOUSE_H

#include "base/buf.h"
#include "base/mem.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

enum fake_end { KEEP, CLOSE, RESET };

/* What it does with one request: when it has `after` bytes of it (0: when it has all of it) it
 * sends `answer` and then keeps, closes or resets the connection. */
struct fake_step {
    const char *answer;
    enum fake_end end;
    size_t after;
    bool stop_reading; /* from the answer on; a close then becomes a reset by itself */
};

struct fake {
    uv_loop_t *loop;
    uv_tcp_t listener;
    int port;
    const struct fake_step *steps; /* one per request; the last is repeated */
    size_t n_steps;
    size_t n_connections, n_requests;
    struct buf received; /* all bytes of all requests */
    TAILQ_HEAD(, fake_connection) connections;
};

struct fake_connection {
    TAILQ_ENTRY(fake_connection) link;
    struct fake *fake;
    uv_tcp_t tcp;
    struct buf request;
    bool answered;
};

static void fake_freed(uv_handle_t *handle)
{
    struct fake_connection *connection = handle->data;
    buf_clear(&connection->request);
    free(connection);
}

static void fake_close(struct fake_connection *connection, bool reset)
{
    if (uv_is_closing((uv_handle_t *)&connection->tcp))
        return;
    TAILQ_REMOVE(&connection->fake->connections, connection, link);
    if (reset)
        uv_tcp_close_reset(&connection->tcp, fake_freed);
    else
        uv_close((uv_handle_t *)&connection->tcp, fake_freed);
}

/* Bytes of the request when it is complete, else 0. */
static size_t fake_request_complete(const struct buf *request)
{
    const char *text = buf_str(request);
    const char *end = strstr(text, "\r\n\r\n");
    if (!end)
        return 0;
    size_t head = (size_t)(end + 4 - text);
    const char *length = strcasestr(text, "\r\nContent-Length:");
    if (length && length < end) {
        size_t total = head + strtoul(length + 17, NULL, 10);
        return request->len >= total ? total : 0;
    }
    const char *chunked = strcasestr(text, "\r\nTransfer-Encoding: chunked");
    if (chunked && chunked < end) {
        const char *terminator = strncmp(end + 4, "0\r\n\r\n", 5) == 0
                                     ? end + 4
                                     : memmem(end + 4, request->len - head, "\r\n0\r\n\r\n", 7);
        return terminator ? request->len : 0;
    }
    return head;
}

static void fake_serve(struct fake_connection *connection)
{
    struct fake *fake = connection->fake;
    size_t index = fake->n_requests < fake->n_steps ? fake->n_requests : fake->n_steps - 1;
    const struct fake_step *step = &fake->steps[index];
    size_t complete = fake_request_complete(&connection->request);
    bool due = step->after ? connection->request.len >= step->after : complete > 0;

    if (!due || connection->answered)
        return;
    fake->n_requests++;
    if (step->answer && *step->answer) {
        uv_buf_t out = uv_buf_init((char *)(uintptr_t)step->answer, (unsigned)strlen(step->answer));
        ck_assert_int_eq(uv_try_write((uv_stream_t *)&connection->tcp, &out, 1), (int)out.len);
    }
    if (step->stop_reading)
        uv_read_stop((uv_stream_t *)&connection->tcp);
    if (step->end != KEEP)
        fake_close(connection, step->end == RESET);
    else if (complete)
        buf_consume(&connection->request, complete);
    else
        connection->answered = true;
}

static void fake_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    (void)handle, (void)hint;
    static char space[65536];
    *buf = uv_buf_init(space, sizeof space);
}

static void fake_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *data)
{
    struct fake_connection *connection = stream->data;
    if (got < 0) {
        fake_close(connection, false);
        return;
    }
    buf_append(&connection->request, data->base, (size_t)got);
    buf_append(&connection->fake->received, data->base, (size_t)got);
    fake_serve(connection);
}

static void fake_accept(uv_stream_t *listener, int status)
{
    struct fake *fake = listener->data;
    ck_assert_int_eq(status, 0);
    struct fake_connection *connection = mem_alloc(sizeof *connection);
    connection->fake = fake;
    uv_tcp_init(fake->loop, &connection->tcp);
    connection->tcp.data = connection;
    ck_assert_int_eq(uv_accept(listener, (uv_stream_t *)&connection->tcp), 0);
    uv_read_start((uv_stream_t *)&connection->tcp, fake_alloc, fake_read);
    fake->n_connections++;
    TAILQ_INSERT_TAIL(&fake->connections, connection, link);
}

static void fake_start(struct fake *fake, uv_loop_t *loop)
{
    struct sockaddr_in address;
    int length = sizeof address;
    fake->loop = loop;
    TAILQ_INIT(&fake->connections);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &fake->listener);
    fake->listener.data = fake;
    uv_tcp_bind(&fake->listener, (struct sockaddr *)&address, 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&fake->listener, 16, fake_accept), 0);
    uv_tcp_getsockname(&fake->listener, (struct sockaddr *)&address, &length);
    fake->port = ntohs(address.sin_port);
}

/* Closes its connections and stops listening; the loop has yet to run. */
static void fake_stop(struct fake *fake)
{
    while (!TAILQ_EMPTY(&fake->connections))
        fake_close(TAILQ_FIRST(&fake->connections), false);
    uv_close((uv_handle_t *)&fake->listener, NULL);
}

#endif
