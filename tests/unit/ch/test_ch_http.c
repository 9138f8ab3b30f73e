/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to ClickHouse against a fake server in the same loop, which produces the faults that a
 * real one does not produce on demand. The real servers are in tests/contract/ch.
 */
#include "base/mem.h"
#include "ch/ch_http.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- the fake server ---- */

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
    struct fake_connection *last;
};

struct fake_connection {
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
    if (connection->fake->last == connection)
        connection->fake->last = NULL;
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
    fake->last = connection;
}

static void fake_start(struct fake *fake, uv_loop_t *loop)
{
    struct sockaddr_in address;
    int length = sizeof address;
    fake->loop = loop;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &fake->listener);
    fake->listener.data = fake;
    uv_tcp_bind(&fake->listener, (struct sockaddr *)&address, 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&fake->listener, 16, fake_accept), 0);
    uv_tcp_getsockname(&fake->listener, (struct sockaddr *)&address, &length);
    fake->port = ntohs(address.sin_port);
}

/* ---- one client, and what its requests got ---- */

struct result {
    int calls;
    int code;
    int http_status;
    int ch_code;
    char *body;
    char *message;
    char *summary;
    char *query_id;
    uint64_t sent_bytes;
    int drains;
};

static uv_loop_t loop;
static struct fake fake;
static struct ch_client *client;
static struct result results[200];
static bool client_closed;

#define OK_ANSWER(text, n)                                                                         \
    "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\nX-ClickHouse-Summary: "                          \
    "{\"written_rows\":\"3\"}\r\nX-ClickHouse-Query-Id: abc\r\n\r\n" text
#define ERROR_TEXT                                                                                 \
    "Code: 62, e.displayText() = DB::Exception: Syntax error, e.what() = DB::Exception"
#define ERROR_ANSWER                                                                               \
    "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nTransfer-Encoding: "               \
    "chunked\r\n\r\n51\r\n" ERROR_TEXT "\r\n0\r\n\r\n"

static void on_answer(void *arg, const struct ch_answer *answer)
{
    struct result *result = arg;
    result->calls++;
    result->code = answer->code;
    result->http_status = answer->http_status;
    result->ch_code = answer->ch_code;
    result->body = mem_strdup(answer->body);
    result->message = answer->code ? mem_strdup(error_message(answer->error)) : NULL;
    result->summary = mem_strdup(answer->summary);
    result->query_id = mem_strdup(answer->query_id);
    result->sent_bytes = answer->sent_bytes;
    ck_assert_int_eq(answer->code, answer->error->code);
}

static struct ch_client_config config_for(const char *url)
{
    return (struct ch_client_config){
        .url = url,
        .connect_timeout_ms = 2000,
        .connections_max = 4,
        .queue_max = 100,
        .answer_bytes_max = 1000,
        .upload_buffer_bytes = 65536,
    };
}

static void start_with(const struct fake_step *steps, size_t n_steps, size_t connections_max,
                       size_t queue_max)
{
    char url[64];
    struct error error = {0};
    uv_loop_init(&loop);
    fake = (struct fake){.steps = steps, .n_steps = n_steps};
    fake_start(&fake, &loop);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", fake.port);
    struct ch_client_config config = config_for(url);
    config.user = "us er";
    config.password = "pass";
    config.connections_max = connections_max;
    config.queue_max = queue_max;
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    memset(results, 0, sizeof results);
    client_closed = false;
}

#define START(...)                                                                                 \
    static const struct fake_step steps_[] = {__VA_ARGS__};                                        \
    start_with(steps_, sizeof steps_ / sizeof *steps_, 4, 100)

static struct ch_request *query(int i, const char *sql, uint64_t timeout_ms)
{
    struct ch_statement statement = {.sql = sql, .query_id = "id-1", .timeout_ms = timeout_ms};
    return ch_query(client, &statement, on_answer, &results[i]);
}

static void on_drain(void *arg)
{
    struct result *result = arg;
    result->drains++;
}

static struct ch_request *upload(int i)
{
    struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 3000};
    return ch_upload(client, &statement, NULL, on_drain, on_answer, &results[i]);
}

static void run_until(int i)
{
    while (results[i].calls == 0)
        ck_assert_int_ne(uv_run(&loop, UV_RUN_ONCE), 0);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void run_ms(uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_tick, ms, 0);
    while (uv_is_active((uv_handle_t *)&timer))
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void on_closed(void *arg)
{
    (void)arg;
    client_closed = true;
}

/* Ends everything; every request must have had exactly one callback. */
static void finish(int n_requests)
{
    ch_client_close(client, on_closed, NULL);
    ck_assert(!client_closed);
    while (!client_closed)
        uv_run(&loop, UV_RUN_ONCE);
    if (fake.last)
        fake_close(fake.last, false);
    uv_close((uv_handle_t *)&fake.listener, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    buf_clear(&fake.received);
    for (int i = 0; i < n_requests; i++) {
        ck_assert_int_eq(results[i].calls, 1);
        free(results[i].body);
        free(results[i].message);
        free(results[i].summary);
        free(results[i].query_id);
    }
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* ---- queries ---- */

START_TEST(query_is_sent_and_answered)
{
    START({OK_ANSWER("1\n", 2)});
    struct ch_param params[] = {{"a b", "ü&="}};
    struct ch_statement statement = {
        .sql = "SELECT 'x y'", .query_id = "q/1", .params = params, .n_params = 1};
    ch_query(client, &statement, on_answer, &results[0]);
    ck_assert_int_eq(results[0].calls, 0);
    run_until(0);
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_int_eq(results[0].http_status, 200);
    ck_assert_str_eq(results[0].body, "1\n");
    ck_assert_str_eq(results[0].summary, "{\"written_rows\":\"3\"}");
    ck_assert_str_eq(results[0].query_id, "abc");
    const char *sent = buf_str(&fake.received);
    ck_assert_ptr_nonnull(strstr(sent, "POST /?wait_end_of_query=1&send_progress_in_http_headers=0&"
                                       "query_id=q%2F1&a%20b=%C3%BC%26%3D HTTP/1.1\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "\r\nX-ClickHouse-User: us er\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "\r\nX-ClickHouse-Key: pass\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "\r\n\r\nSELECT 'x y'"));
    ck_assert_ptr_null(strcasestr(sent, "expect"));
    finish(1);
}
END_TEST

START_TEST(connection_is_reused)
{
    START({OK_ANSWER("1\n", 2)});
    for (int i = 0; i < 5; i++) {
        query(i, "SELECT 1", 0);
        run_until(i);
        ck_assert_int_eq(results[i].code, 0);
    }
    ck_assert_uint_eq(fake.n_connections, 1);
    ck_assert_uint_eq(fake.n_requests, 5);
    finish(5);
}
END_TEST

START_TEST(early_error_in_upload_is_delivered)
{
    START({ERROR_ANSWER, CLOSE, 1000, true});
    struct ch_request *request = upload(0);
    char rows[8192];
    memset(rows, 'x', sizeof rows);
    for (int i = 0; i < 100 && !results[0].calls; i++) {
        ch_upload_write(request, rows, sizeof rows);
        uv_run(&loop, UV_RUN_ONCE);
    }
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_REJECTED);
    ck_assert_int_eq(results[0].ch_code, 62);
    ck_assert_str_eq(results[0].message, ERROR_TEXT);
    finish(1);
}
END_TEST

START_TEST(upload_is_chunked_and_ends)
{
    START({OK_ANSWER("", 0)});
    struct ch_request *request = upload(0);
    ck_assert(ch_upload_write(request, "1\t2\n", 4));
    run_ms(20);
    ck_assert(ch_upload_write(request, "3\t4\n", 4));
    run_ms(20);
    ck_assert_int_eq(results[0].calls, 0);
    ch_upload_end(request);
    run_until(0);
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_uint_eq(results[0].sent_bytes, 8);
    const char *sent = buf_str(&fake.received);
    ck_assert_ptr_nonnull(strstr(sent, "&query=INSERT%20INTO%20t%20FORMAT%20TSV HTTP/1.1\r\n"));
    ck_assert_ptr_nonnull(strstr(sent, "\r\n\r\n4\r\n1\t2\n\r\n4\r\n3\t4\n\r\n0\r\n\r\n"));
    finish(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ch_http");
    TCase *queries = tcase_create("queries");
    tcase_add_test(queries, query_is_sent_and_answered);
    tcase_add_test(queries, connection_is_reused);
    suite_add_tcase(suite, queries);
    TCase *uploads = tcase_create("uploads");
    tcase_add_test(uploads, early_error_in_upload_is_delivered);
    tcase_add_test(uploads, upload_is_chunked_and_ends);
    suite_add_tcase(suite, uploads);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    (void)count;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
