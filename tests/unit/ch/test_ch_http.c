/* SPDX-License-Identifier: Apache-2.0
 *
 * What each answer, and each end of a connection, means for a statement and for an upload; against a fake server in the same
 * loop, which produces the faults that a real one does not produce on demand. The real servers are in tests/contract/ch.
 */
#include "lib/suite.h"
#include "unit/ch/ch_http_lab.h"

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

int main(void)
{
    const int n_cases = (int)(sizeof cases / sizeof *cases);
    Suite *suite = suite_create("ch_http");
    TCase *tests = tcase_create("ch_http");
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, query_is_sent_and_answered);
    tcase_add_test(tests, connection_is_reused);
    tcase_add_loop_test(tests, query_is_classified, 0, n_cases);
    tcase_add_loop_test(tests, upload_is_classified, 0, n_cases);
    tcase_add_loop_test(tests, paused_upload_is_classified, 0, n_cases);
    tcase_add_test(tests, refused_connection_is_known);
    tcase_add_test(tests, unresolvable_host_is_known);
    tcase_add_test(tests, urls);
    tcase_add_test(tests, proxy_of_the_environment_is_ignored);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
