/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to ClickHouse against a fake server in the same loop, which produces the faults that a
 * real one does not produce on demand. The real servers are in tests/contract/ch.
 */
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http.h"
#include "fake_clickhouse.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

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

static struct budget budget;

static void start_with(const struct fake_step *steps, size_t n_steps, size_t connections_max,
                       size_t queue_max)
{
    budget = (struct budget){.bytes_max = SIZE_MAX};
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
    config.budget = &budget;
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
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || results[i].calls);
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
    fake_stop(&fake);
    ck_assert_uint_eq(budget.bytes, 0);
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

/* One query against one answer; every fault below is a row here. */
struct case_ {
    struct fake_step step;
    int code, http_status, ch_code;
    const char *text; /* of the message, or of the body when code is 0 */
};

#define EXCEPTION_26 "Code: 60. DB::Exception: Table default.t does not exist. (UNKNOWN_TABLE)"
#define CHUNKED(status, head, size, text)                                                          \
    "HTTP/1.1 " status "\r\nTransfer-Encoding: chunked\r\n" head "\r\n" size "\r\n" text           \
    "\r\n0\r\n\r\n"

static const struct case_ cases[] = {
    /* Good answers. */
    {{OK_ANSWER("1\n", 2), KEEP, 0, false}, 0, 200, 0, "1\n"},
    {{CHUNKED("200 OK", "", "3", "abc"), KEEP, 0, false}, 0, 200, 0, "abc"},
    {{"HTTP/1.1 100 Continue\r\n\r\n" OK_ANSWER("", 0), KEEP, 0, false}, 0, 200, 0, ""},
    {{CHUNKED("200 OK", "X-ClickHouse-Exception-Code: \r\n", "1", "a"), KEEP, 0, false},
     0,
     200,
     0,
     "a"},
    {{OK_ANSWER("x Code: 60. DB::Exception: no", 29), KEEP, 0, false},
     0,
     200,
     0,
     "x Code: 60. DB::Exception: no"},
    {{OK_ANSWER("Code: 60 is what I like", 23), KEEP, 0, false},
     0,
     200,
     0,
     "Code: 60 is what I like"},
    {{OK_ANSWER("__exception__\nis a word here\n", 29), KEEP, 0, false},
     0,
     200,
     0,
     "__exception__\nis a word here\n"},
    /* Exceptions. */
    {{"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 45\r\n\r\n"
      "Poco::Exception. Code: 1000, e.code() = 2, no",
      KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     500,
     1000,
     "Poco::Exception. Code: 1000, e.code() = 2, no"},
    {{"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 39\r\n\r\n"
      "std::exception. Code: 1001, type: x, no",
      KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     500,
     1001,
     "std::exception. Code: 1001, type: x, no"},
    {{ERROR_ANSWER, CLOSE, 0, false}, CHXA_E_CLICKHOUSE_REJECTED, 500, 62, ERROR_TEXT},
    {{CHUNKED("404 Not Found", "X-ClickHouse-Exception-Code: 60\r\n", "48", EXCEPTION_26), KEEP, 0,
      false},
     CHXA_E_CLICKHOUSE_REJECTED,
     404,
     60,
     EXCEPTION_26},
    {{OK_ANSWER(EXCEPTION_26, 72), KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     200,
     60,
     EXCEPTION_26},
    {{OK_ANSWER(ERROR_TEXT, 81), KEEP, 0, false}, CHXA_E_CLICKHOUSE_REJECTED, 200, 62, ERROR_TEXT},
    {{CHUNKED("200 OK", "X-ClickHouse-Exception-Code: 241\r\n", "1", "x"), KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     200,
     241,
     "x"},
    {{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx-clickhouse-exception-code: 241\r\n\r\n", KEEP, 0,
      false},
     CHXA_E_CLICKHOUSE_REJECTED,
     200,
     241,
     "exception 241 and no text"},
    {{CHUNKED("200 OK", "", "5d", "1\n2\r\n__exception__\r\n" EXCEPTION_26 "\r\n"), KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     200,
     60,
     EXCEPTION_26},
    {{CHUNKED("200 OK", "", "64", "1\n__exception__\r\nabcdefgh\r\n" EXCEPTION_26 "\r\n"), KEEP, 0,
      false},
     CHXA_E_CLICKHOUSE_REJECTED,
     200,
     60,
     EXCEPTION_26},
    /* An exception that is cut short is one nevertheless. */
    {{"HTTP/1.1 500 Oops\r\nContent-Length: 9999\r\n\r\n" ERROR_TEXT, CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     500,
     62,
     ERROR_TEXT},
    /* Not from ClickHouse. */
    {{"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", KEEP, 0,
      false},
     CHXA_E_CLICKHOUSE_REJECTED,
     302,
     0,
     "HTTP 302"},
    {{"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nnope", KEEP, 0, false},
     CHXA_E_CLICKHOUSE_REJECTED,
     403,
     0,
     "nope"},
    {{"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nnope", KEEP, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     502,
     0,
     "HTTP 502: nope"},
    {{"HTTP/1.1 204 No Content\r\n\r\n", KEEP, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     204,
     0,
     "HTTP 204"},
    /* Lost or cut short. */
    {{"", CLOSE, 0, false}, CHXA_E_CLICKHOUSE_UNKNOWN, 0, 0, "lost"},
    {{"", RESET, 0, false}, CHXA_E_CLICKHOUSE_UNKNOWN, 0, 0, "lost"},
    {{"HTTP/1.1 200 OK\r\nContent-Le", CLOSE, 0, false}, CHXA_E_CLICKHOUSE_UNKNOWN, 200, 0, "lost"},
    {{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     200,
     0,
     "cut short"},
    {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     200,
     0,
     "cut short"},
    {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     200,
     0,
     "cut short"},
    {{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     200,
     0,
     "cut short"},
    {{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it?", CLOSE, 0, false},
     CHXA_E_CLICKHOUSE_UNKNOWN,
     200,
     0,
     "no length"},
    {{"garbage\r\n\r\n", CLOSE, 0, false}, CHXA_E_CLICKHOUSE_UNKNOWN, 0, 0, "lost"},
};

static void check_case(const struct case_ *expected, const struct result *result)
{
    ck_assert_int_eq(result->code, expected->code);
    ck_assert_int_eq(result->http_status, expected->http_status);
    ck_assert_int_eq(result->ch_code, expected->ch_code);
    if (expected->code == 0)
        ck_assert_str_eq(result->body, expected->text);
    else
        ck_assert_msg(strstr(result->message, expected->text) != NULL, "%s", result->message);
}

START_TEST(query_is_classified)
{
    start_with(&cases[_i].step, 1, 4, 100);
    query(0, "SELECT 1", 3000);
    run_until(0);
    check_case(&cases[_i], &results[0]);
    ck_assert_uint_eq(fake.n_requests, 1);
    finish(1);
}
END_TEST

/* The same answers to an upload: at its end, and in its middle while it waits for more rows. */
START_TEST(upload_is_classified)
{
    start_with(&cases[_i].step, 1, 4, 100);
    struct ch_request *request = upload(0);
    ch_upload_write(request, "1\n", 2);
    ch_upload_end(request);
    run_until(0);
    check_case(&cases[_i], &results[0]);
    ck_assert_uint_eq(fake.n_requests, 1);
    ck_assert_uint_eq(fake.n_connections, 1);
    finish(1);
}
END_TEST

START_TEST(paused_upload_is_classified)
{
    struct fake_step step = cases[_i].step;
    step.after = 400; /* head and row: no end of the body in sight */
    start_with(&step, 1, 4, 100);
    struct ch_request *request = upload(0);
    char row[300];
    memset(row, 'x', sizeof row);
    ch_upload_write(request, row, sizeof row);
    if (cases[_i].code == 0 || (cases[_i].http_status == 204 || step.end == KEEP)) {
        /* Such an answer does not end an upload by itself. */
        run_ms(50);
        if (results[0].calls == 0)
            ch_upload_end(request);
        if (results[0].calls == 0 && cases[_i].http_status < 300 && !cases[_i].ch_code)
            ch_request_cancel(request);
        run_until(0);
    } else {
        run_until(0);
        ck_assert_int_eq(results[0].code, cases[_i].code);
        ck_assert_int_eq(results[0].ch_code, cases[_i].ch_code);
    }
    ck_assert_uint_eq(fake.n_connections, 1);
    finish(1);
}
END_TEST

START_TEST(refused_connection_is_known)
{
    START({"", CLOSE, 0, false});
    /* A port where nobody listens any more. */
    uv_close((uv_handle_t *)&fake.listener, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    query(0, "SELECT 1", 3000);
    struct ch_request *request = upload(1);
    ch_upload_write(request, "1\n", 2);
    run_until(0);
    run_until(1);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    ck_assert_int_eq(results[1].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    ck_assert_int_eq(results[0].http_status, 0);
    ck_assert_msg(strstr(results[0].message, "127.0.0.1") != NULL, "%s", results[0].message);
    uv_tcp_init(&loop, &fake.listener);
    finish(2);
}
END_TEST

START_TEST(unresolvable_host_is_known)
{
    START({"", CLOSE, 0, false});
    struct ch_client *other;
    struct error error = {0};
    struct ch_client_config config = config_for("http://no-such-host.invalid:8123");
    ck_assert_int_eq(ch_client_new(&loop, &config, &other, &error), 0);
    struct ch_statement statement = {.sql = "SELECT 1", .timeout_ms = 4000};
    ch_query(other, &statement, on_answer, &results[0]);
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    /* Closing does not wait for a resolver that is still at it. */
    ch_query(other, &statement, on_answer, &results[1]);
    run_ms(1);
    uint64_t begin = uv_hrtime();
    ch_client_close(other, on_closed, NULL);
    while (!client_closed)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_lt(uv_hrtime() - begin, 1000000000u);
    client_closed = false;
    finish(2);
}
END_TEST

START_TEST(urls)
{
    static const char *const good[] = {"http://localhost:8123", "https://a-b.example/",
                                       "http://[::1]:8123", "http://10.0.0.1"};
    static const char *const bad[] = {"",
                                      "localhost:8123",
                                      "ftp://localhost",
                                      "http://",
                                      "http://user:password@host:8123",
                                      "http://host:8123/path",
                                      "http://host:8123?a=b",
                                      "http://host:8123/#x",
                                      "http://host:",
                                      "http://host:123456",
                                      "http://ho st:8123",
                                      "http://[::1:8123",
                                      "http://host:8123\r\nX: y"};
    uv_loop_init(&loop);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ch_client_config config = config_for(good[i]);
        struct error error = {0};
        ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
        ch_client_close(client, on_closed, NULL);
        ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ch_client_config config = config_for(bad[i]);
        struct error error = {0};
        ck_assert_msg(ch_client_new(&loop, &config, &client, &error) == CHXA_E_INVALID_REQUEST,
                      "%s", bad[i]);
        error_clear(&error);
    }
    struct ch_client_config config = config_for("http://localhost");
    struct error error = {0};
    config.password = "x\r\nX-Evil: 1";
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), CHXA_E_INVALID_REQUEST);
    error_clear(&error);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(proxy_of_the_environment_is_ignored)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    START({OK_ANSWER("", 0), KEEP, 0, false});
    query(0, "SELECT 1", 3000);
    run_until(0);
    ck_assert_int_eq(results[0].code, 0);
    finish(1);
}
END_TEST

/* ---- kept-alive connections that die ---- */

START_TEST(idle_connection_that_was_closed_is_not_used)
{
    enum fake_end end = _i % 2 ? RESET : CLOSE;
    const struct fake_step steps[] = {{OK_ANSWER("", 0), end, 0, false},
                                      {OK_ANSWER("", 0), KEEP, 0, false}};
    start_with(steps, 2, 4, 100);
    query(0, "SELECT 1", 3000);
    run_until(0);
    run_ms(10);
    if (_i < 2) {
        query(1, "SELECT 1", 3000);
    } else {
        struct ch_request *request = upload(1);
        ch_upload_write(request, "1\n", 2);
        ch_upload_end(request);
    }
    run_until(1);
    ck_assert_msg(results[1].code == 0, "%s", results[1].message);
    ck_assert_uint_eq(fake.n_requests, 2);
    ck_assert_uint_eq(fake.n_connections, 2);
    finish(2);
}
END_TEST

static void check_sent_once(enum fake_end end, bool as_upload, const char *row)
{
    const struct fake_step steps[] = {{OK_ANSWER("", 0), KEEP, 0, false},
                                      {"", end, as_upload && row ? 200 : 0, false},
                                      {OK_ANSWER("", 0), KEEP, 0, false}};
    start_with(steps, 3, 4, 100);
    query(0, "SELECT 1", 3000);
    run_until(0);
    /* The server closes the kept-alive connection in answer to this: was it executed? */
    if (as_upload) {
        struct ch_request *request = upload(1);
        if (row)
            ch_upload_write(request, row, strlen(row));
        else
            ch_upload_end(request);
    } else {
        query(1, "INSERT INTO t SELECT 1", 3000);
    }
    run_until(1);
    ck_assert_int_eq(results[1].code, CHXA_E_CLICKHOUSE_UNKNOWN);
    run_ms(20);
    ck_assert_uint_eq(fake.n_requests, 2);
    ck_assert_uint_eq(count(buf_str(&fake.received), as_upload ? "query=INSERT" : "INSERT INTO"),
                      1);
    query(2, "SELECT 1", 3000);
    run_until(2);
    ck_assert_int_eq(results[2].code, 0);
    /* One that curl opened for a second try, and that we did not use. */
    ck_assert_uint_le(fake.n_connections, 3);
    finish(3);
}

START_TEST(statement_is_never_sent_twice)
{
    check_sent_once(_i ? RESET : CLOSE, false, NULL);
}
END_TEST

START_TEST(upload_is_never_sent_twice)
{
    check_sent_once(_i ? RESET : CLOSE, true,
                    "0123456789012345678901234567890123456789012345678901234567890123456789\n");
}
END_TEST

START_TEST(upload_without_rows_is_never_sent_twice)
{
    check_sent_once(_i ? RESET : CLOSE, true, NULL);
}
END_TEST

/* ---- memory for uploads ---- */

START_TEST(uploads_wait_for_memory_and_hold_none)
{
    static const struct fake_step step = {OK_ANSWER("", 0)};
    start_with(&step, 1, 16, 100);
    size_t each = ch_upload_memory(client);
    budget.bytes_max = 4 * each; /* a quarter is not for uploads */
    struct ch_request *requests[6];
    for (int i = 0; i < 6; i++) {
        requests[i] = upload(i);
        ck_assert_int_eq(ch_upload_takes(requests[i]), i < 3);
    }
    ck_assert_uint_eq(budget.bytes, 3 * each);
    ck_assert_double_eq(metrics_value(METRIC_body_memory_short_total, "waited", NULL), 1);
    run_ms(50);
    ck_assert_int_eq(results[3].drains, 0);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(results[i].drains, i >= 3); /* told once that it may go on */
        ck_assert(ch_upload_takes(requests[i]));
        ck_assert(ch_upload_write(requests[i], "row\n", 4));
        ch_upload_end(requests[i]);
        run_until(i);
        ck_assert_int_eq(results[i].code, 0);
        run_ms(20); /* the next one starts */
    }
    metrics_clear();
    finish(6);
}
END_TEST

START_TEST(one_upload_runs_whatever_others_hold)
{
    START({OK_ANSWER("", 0)});
    budget.bytes_max = 100;
    budget_take_anyway(&budget, 90);
    struct ch_request *request = upload(0);
    ck_assert(ch_upload_takes(request));
    struct ch_request *other = upload(1);
    ck_assert(!ch_upload_takes(other));
    ck_assert(!ch_upload_write(other, "row\n", 4)); /* taken, though it has to wait */
    ch_upload_end(other);
    ch_upload_write(request, "row\n", 4);
    ch_upload_end(request);
    run_until(1);
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_int_eq(results[1].code, 0);
    ck_assert_uint_eq(results[1].sent_bytes, 4);
    budget_give(&budget, 90);
    metrics_clear();
    finish(2);
}
END_TEST

/* Somebody else's memory, given back, starts it; time ends it when none comes. */
START_TEST(an_upload_waits_for_memory_of_others)
{
    START({OK_ANSWER("", 0)});
    size_t each = ch_upload_memory(client);
    budget.bytes_max = 8 * each;
    budget_take_anyway(&budget, 5 * each);
    struct ch_request *request = upload(0);
    struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 100};
    ch_upload(client, &statement, NULL, on_drain, on_answer, &results[1]);
    struct ch_request *third = upload(2);
    run_until(1);
    ck_assert_int_eq(results[1].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    ck_assert_int_eq(results[1].drains, 0);
    budget_give(&budget, 5 * each);
    run_ms(20);
    ck_assert_int_eq(results[2].drains, 1);
    ch_request_cancel(request);
    ch_request_cancel(third);
    run_until(2);
    metrics_clear();
    finish(3);
}
END_TEST

/* ---- queue, time, cancel, close ---- */

START_TEST(queue_is_bounded_and_in_order)
{
    static const struct fake_step step = {OK_ANSWER("", 0), KEEP, 0, false};
    start_with(&step, 1, 1, 2);
    for (int i = 0; i < 4; i++) {
        char sql[20];
        snprintf(sql, sizeof sql, "SELECT %d", i);
        query(i, sql, 3000);
        ck_assert_int_eq(results[i].calls, 0);
    }
    run_until(3);
    ck_assert_int_eq(results[3].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    run_until(2);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(results[i].code, 0);
    const char *sent = buf_str(&fake.received);
    ck_assert(strstr(sent, "SELECT 0") < strstr(sent, "SELECT 1"));
    ck_assert(strstr(sent, "SELECT 1") < strstr(sent, "SELECT 2"));
    ck_assert_ptr_null(strstr(sent, "SELECT 3"));
    ck_assert_uint_eq(fake.n_connections, 1);
    finish(4);
}
END_TEST

START_TEST(uploads_leave_room_for_queries)
{
    START({OK_ANSWER("", 0), KEEP, 0, false});
    struct ch_request *requests[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = upload(i);
        ch_upload_write(requests[i], "1\n", 2);
    }
    query(4, "SELECT 1", 3000);
    run_until(4);
    ck_assert_int_eq(results[4].code, 0);
    ck_assert_uint_eq(fake.n_connections, 4);
    for (int i = 0; i < 4; i++)
        ch_upload_end(requests[i]);
    for (int i = 0; i < 4; i++) {
        run_until(i);
        ck_assert_int_eq(results[i].code, 0);
    }
    finish(5);
}
END_TEST

START_TEST(time_runs_out)
{
    static const struct fake_step step = {"", KEEP, 0, false};
    start_with(&step, 1, 1, 10);
    query(0, "SELECT 1", 100);
    query(1, "SELECT 2", 50); /* never leaves the queue */
    run_until(1);
    ck_assert_int_eq(results[0].calls, 0);
    ck_assert_int_eq(results[1].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNKNOWN);
    ck_assert_msg(strstr(results[0].message, "100 ms") != NULL, "%s", results[0].message);
    finish(2);
}
END_TEST

START_TEST(upload_time_counts_from_its_end)
{
    START({"", KEEP, 0, false});
    struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 100};
    struct ch_request *request =
        ch_upload(client, &statement, "gzip", NULL, on_answer, &results[0]);
    run_ms(250);
    ck_assert_int_eq(results[0].calls, 0);
    ch_upload_end(request);
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(buf_str(&fake.received), "\r\nContent-Encoding: gzip\r\n"));
    finish(1);
}
END_TEST

START_TEST(cancelled_upload_has_no_end)
{
    START({OK_ANSWER("", 0), KEEP, 0, false});
    struct ch_request *request = upload(0);
    ch_upload_write(request, "1\n", 2);
    run_ms(20);
    ch_request_cancel(request);
    ck_assert_int_eq(results[0].calls, 0);
    run_until(0);
    run_ms(20);
    ck_assert_int_eq(results[0].code, CHXA_E_CANCELLED);
    const char *sent = buf_str(&fake.received);
    ck_assert_ptr_nonnull(strstr(sent, "\r\n2\r\n1\n\r\n"));
    ck_assert_ptr_null(strstr(sent, "0\r\n\r\n"));
    ck_assert_uint_eq(fake.n_requests, 0);
    finish(1);
}
END_TEST

START_TEST(cancelled_query)
{
    static const struct fake_step step = {"", KEEP, 0, false};
    start_with(&step, 1, 1, 10);
    struct ch_request *running = query(0, "SELECT 1", 3000);
    struct ch_request *queued = query(1, "SELECT 2", 3000);
    run_ms(20);
    ch_request_cancel(running);
    ch_request_cancel(running);
    ch_request_cancel(queued);
    run_until(1);
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CANCELLED);
    ck_assert_int_eq(results[1].code, CHXA_E_CANCELLED);
    ck_assert_ptr_null(strstr(buf_str(&fake.received), "SELECT 2"));
    finish(2);
}
END_TEST

static void query_again(void *arg, const struct ch_answer *answer)
{
    on_answer(arg, answer);
    query(2, "SELECT 3", 0);
}

START_TEST(close_cancels_what_runs_and_waits)
{
    static const struct fake_step step = {"", KEEP, 0, false};
    start_with(&step, 1, 1, 10);
    struct ch_statement statement = {.sql = "SELECT 1"};
    ch_query(client, &statement, query_again, &results[0]);
    struct ch_request *request = upload(1);
    ch_upload_write(request, "1\n", 2);
    run_ms(20);
    finish(3);
    ck_assert_int_eq(results[0].code, CHXA_E_CANCELLED);
    ck_assert_int_eq(results[1].code, CHXA_E_CANCELLED);
    ck_assert_int_eq(results[2].code, CHXA_E_CLICKHOUSE_UNAVAILABLE);
}
END_TEST

static void close_in_answer(void *arg, const struct ch_answer *answer)
{
    on_answer(arg, answer);
    ch_client_close(client, on_closed, NULL);
}

START_TEST(close_from_a_callback)
{
    START({OK_ANSWER("", 0), KEEP, 0, false});
    struct ch_statement statement = {.sql = "SELECT 1"};
    ch_query(client, &statement, close_in_answer, &results[0]);
    query(1, "SELECT 2", 0);
    while (!client_closed)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(results[0].calls, 1);
    ck_assert_int_eq(results[1].calls, 1);
    struct ch_client_config config = config_for("http://127.0.0.1:1");
    struct error error = {0};
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    client_closed = false;
    finish(2);
}
END_TEST

START_TEST(answer_over_its_limit)
{
    static char big[3000], error_text[3000];
    int n = snprintf(big, sizeof big, "HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n");
    memset(big + n, 'a', 2000);
    n = snprintf(error_text, sizeof error_text,
                 "HTTP/1.1 500 Oops\r\nContent-Length: 2000\r\n\r\n" EXCEPTION_26);
    memset(error_text + n, 'b', 2000 - strlen(EXCEPTION_26));
    const struct fake_step steps[] = {{big, KEEP, 0, false}, {error_text, KEEP, 0, false}};
    start_with(steps, 2, 4, 100);
    query(0, "SELECT 1", 3000);
    run_until(0);
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNKNOWN);
    ck_assert_msg(strstr(results[0].message, "longer than 1000 bytes") != NULL, "%s",
                  results[0].message);
    query(1, "SELECT 1", 3000);
    run_until(1);
    ck_assert_int_eq(results[1].code, CHXA_E_CLICKHOUSE_REJECTED);
    ck_assert_uint_eq(strlen(results[1].message), 1000);
    finish(2);
}
END_TEST

/* ---- uploads ---- */

/* The error comes while rows flow, on a connection that is closed with rows unread: the send fails,
 * but the answer must be found. Repeated, since it is a race. */
START_TEST(early_error_in_upload_is_delivered)
{
    static const size_t after[] = {300, 1000, 70000, 300000, 1000000};
    const struct fake_step step = {ERROR_ANSWER, _i % 2 ? RESET : CLOSE, after[(size_t)_i / 2 % 5],
                                   true};
    start_with(&step, 1, 4, 100);
    for (int k = 0; k < 20; k++) {
        struct ch_request *request = upload(k);
        char rows[30000];
        memset(rows, 'x', sizeof rows);
        size_t written = 0;
        while (!results[k].calls) {
            if (ch_upload_write(request, rows, sizeof rows)) {
                written += sizeof rows;
                ck_assert_uint_lt(written, 100000000);
                uv_run(&loop, UV_RUN_NOWAIT);
            } else {
                uv_run(&loop, UV_RUN_ONCE);
            }
        }
        /* A reset may drop the answer on its way; a close may not. */
        if (step.end == CLOSE || results[k].code == CHXA_E_CLICKHOUSE_REJECTED) {
            ck_assert_msg(results[k].code == CHXA_E_CLICKHOUSE_REJECTED, "%s", results[k].message);
            ck_assert_int_eq(results[k].ch_code, 62);
            ck_assert_str_eq(results[k].message, ERROR_TEXT);
        } else {
            ck_assert_int_eq(results[k].code, CHXA_E_CLICKHOUSE_UNKNOWN);
        }
    }
    finish(20);
}
END_TEST

/* libcurl sends through this. */
static void (*before_send)(void);

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    void (*hook)(void) = before_send;
    before_send = NULL;
    if (hook)
        hook();
    return sendto(fd, data, len, flags, NULL, 0);
}

static void answer_and_close(void)
{
    struct fake_connection *connection = TAILQ_FIRST(&fake.connections);
    uv_buf_t out = uv_buf_init((char *)(uintptr_t)ERROR_ANSWER, sizeof ERROR_ANSWER - 1);
    ck_assert_int_eq(uv_try_write((uv_stream_t *)&connection->tcp, &out, 1), (int)out.len);
    fake_close(connection, false);
}

/* The server answers and closes, with rows unread, between curl's look at the socket and its next
 * send: the send fails while the answer lies in the socket. */
START_TEST(answer_is_found_behind_a_failed_send)
{
    START({"", KEEP, 300, true});
    struct ch_request *request = upload(0);
    char rows[1000];
    memset(rows, 'x', sizeof rows);
    for (int i = 0; i < 10; i++) {
        ch_upload_write(request, rows, sizeof rows);
        run_ms(2);
    }
    ck_assert_uint_eq(fake.n_requests, 1);
    before_send = answer_and_close;
    ch_upload_write(request, rows, sizeof rows);
    run_until(0);
    ck_assert_ptr_null(before_send);
    ck_assert_msg(results[0].code == CHXA_E_CLICKHOUSE_REJECTED, "%s", results[0].message);
    ck_assert_int_eq(results[0].http_status, 500);
    ck_assert_int_eq(results[0].ch_code, 62);
    ck_assert_str_eq(results[0].message, ERROR_TEXT);
    finish(1);
}
END_TEST

START_TEST(answer_without_end_does_not_hold_an_upload)
{
    START({"HTTP/1.1 500 Oops\r\nContent-Length: 2000\r\n\r\n" ERROR_TEXT, KEEP, 300, true});
    struct ch_request *request = upload(0);
    char rows[30000];
    memset(rows, 'x', sizeof rows);
    while (!results[0].calls) {
        ch_upload_write(request, rows, sizeof rows);
        uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_REJECTED);
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

/* Takes the chunks apart. */
static void dechunk(const struct buf *raw, struct buf *out)
{
    const char *at = strstr(buf_str(raw), "\r\n\r\n") + 4;
    for (;;) {
        char *end;
        size_t len = strtoul(at, &end, 16);
        ck_assert(end > at && memcmp(end, "\r\n", 2) == 0);
        if (len == 0)
            break;
        buf_append(out, end + 2, len);
        ck_assert_int_eq(memcmp(end + 2 + len, "\r\n", 2), 0);
        at = end + 2 + len + 2;
    }
}

START_TEST(upload_arrives_whole_and_is_held_back)
{
    START({OK_ANSWER("", 0), KEEP, 0, false});
    struct ch_request *request = upload(0);
    struct buf sent = {0};
    struct buf got = {0};
    unsigned seed = 1;
    int refusals = 0;

    while (sent.len < 8000000) {
        char rows[70000];
        size_t len = (size_t)rand_r(&seed) % sizeof rows;
        for (size_t i = 0; i < len; i++)
            rows[i] = (char)rand_r(&seed);
        buf_append(&sent, rows, len);
        int drains = results[0].drains;
        if (!ch_upload_write(request, rows, len)) {
            refusals++;
            while (results[0].drains == drains)
                ck_assert_int_ne(uv_run(&loop, UV_RUN_ONCE), 0);
        }
    }
    ck_assert_int_gt(refusals, 10);
    ck_assert_int_eq(results[0].drains, refusals);
    ch_upload_end(request);
    run_until(0);
    ck_assert_int_eq(results[0].code, 0);
    ck_assert_uint_eq(results[0].sent_bytes, sent.len);
    dechunk(&fake.received, &got);
    ck_assert_uint_eq(got.len, sent.len);
    ck_assert_int_eq(memcmp(got.data, sent.data, sent.len), 0);
    buf_clear(&sent);
    buf_clear(&got);
    finish(1);
}
END_TEST

int main(void)
{
    const int n_cases = (int)(sizeof cases / sizeof *cases);
    Suite *suite = suite_create("ch_http");
    TCase *queries = tcase_create("queries");
    tcase_add_test(queries, query_is_sent_and_answered);
    tcase_add_test(queries, connection_is_reused);
    tcase_add_loop_test(queries, query_is_classified, 0, n_cases);
    tcase_add_test(queries, refused_connection_is_known);
    tcase_add_test(queries, unresolvable_host_is_known);
    tcase_add_test(queries, urls);
    tcase_add_test(queries, proxy_of_the_environment_is_ignored);
    tcase_add_loop_test(queries, idle_connection_that_was_closed_is_not_used, 0, 4);
    tcase_add_loop_test(queries, statement_is_never_sent_twice, 0, 2);
    tcase_add_test(queries, queue_is_bounded_and_in_order);
    tcase_add_test(queries, uploads_wait_for_memory_and_hold_none);
    tcase_add_test(queries, one_upload_runs_whatever_others_hold);
    tcase_add_test(queries, an_upload_waits_for_memory_of_others);
    tcase_add_test(queries, time_runs_out);
    tcase_add_test(queries, cancelled_query);
    tcase_add_test(queries, close_cancels_what_runs_and_waits);
    tcase_add_test(queries, close_from_a_callback);
    tcase_add_test(queries, answer_over_its_limit);
    tcase_set_timeout(queries, 20);
    suite_add_tcase(suite, queries);
    TCase *uploads = tcase_create("uploads");
    tcase_add_loop_test(uploads, upload_is_classified, 0, n_cases);
    tcase_add_loop_test(uploads, paused_upload_is_classified, 0, n_cases);
    tcase_add_loop_test(uploads, upload_is_never_sent_twice, 0, 2);
    tcase_add_loop_test(uploads, upload_without_rows_is_never_sent_twice, 0, 2);
    tcase_add_loop_test(uploads, early_error_in_upload_is_delivered, 0, 10);
    tcase_add_test(uploads, answer_is_found_behind_a_failed_send);
    tcase_add_test(uploads, answer_without_end_does_not_hold_an_upload);
    tcase_add_test(uploads, upload_is_chunked_and_ends);
    tcase_add_test(uploads, upload_arrives_whole_and_is_held_back);
    tcase_add_test(uploads, uploads_leave_room_for_queries);
    tcase_add_test(uploads, upload_time_counts_from_its_end);
    tcase_add_test(uploads, cancelled_upload_has_no_end);
    tcase_set_timeout(uploads, 20);
    suite_add_tcase(suite, uploads);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
