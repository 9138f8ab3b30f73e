/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to ClickHouse over time: kept connections that die, the queue, memory, deadlines, cancel and close.
 */
#include "lib/suite.h"
#include "unit/ch/ch_http_lab.h"

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

int main(void)
{
    Suite *suite = suite_create("ch_http_life");
    TCase *tests = tcase_create("ch_http_life");
    tcase_set_timeout(tests, 20);
    tcase_add_loop_test(tests, idle_connection_that_was_closed_is_not_used, 0, 4);
    tcase_add_loop_test(tests, statement_is_never_sent_twice, 0, 2);
    tcase_add_loop_test(tests, upload_is_never_sent_twice, 0, 2);
    tcase_add_loop_test(tests, upload_without_rows_is_never_sent_twice, 0, 2);
    tcase_add_test(tests, uploads_wait_for_memory_and_hold_none);
    tcase_add_test(tests, one_upload_runs_whatever_others_hold);
    tcase_add_test(tests, an_upload_waits_for_memory_of_others);
    tcase_add_test(tests, queue_is_bounded_and_in_order);
    tcase_add_test(tests, uploads_leave_room_for_queries);
    tcase_add_test(tests, time_runs_out);
    tcase_add_test(tests, upload_time_counts_from_its_end);
    tcase_add_test(tests, cancelled_upload_has_no_end);
    tcase_add_test(tests, cancelled_query);
    tcase_add_test(tests, close_cancels_what_runs_and_waits);
    tcase_add_test(tests, close_from_a_callback);
    tcase_add_test(tests, answer_over_its_limit);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
