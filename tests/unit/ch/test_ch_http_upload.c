/* SPDX-License-Identifier: Apache-2.0
 *
 * Uploads to ClickHouse: in pieces, held back, refused while they run.
 */
#include "lib/suite.h"
#include "unit/ch/ch_http_lab.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* A server that is stopped: its kernel takes what it has room for, and nobody reads it. */
START_TEST(upload_that_nobody_reads)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &address_len), 0);
    char url[64];
    struct error error = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    START({"", KEEP, 0, false});
    struct ch_client *other;
    struct ch_client_config config = config_for(url);
    ck_assert_int_eq(ch_client_new(&loop, &config, &other, &error), 0);
    struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 200};
    struct ch_request *request =
        ch_upload(other, &statement, NULL, on_drain, on_answer, &results[0]);
    static const char rows[65536];
    while (results[0].calls == 0) {
        int drains = results[0].drains;
        if (!ch_upload_write(request, rows, sizeof rows))
            while (results[0].drains == drains && results[0].calls == 0)
                ck_assert_int_ne(uv_run(&loop, UV_RUN_ONCE), 0);
    }
    ck_assert_int_eq(results[0].code, CHXA_E_CLICKHOUSE_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(results[0].message, "200 ms"));
    ch_client_close(other, on_closed, NULL);
    while (!client_closed)
        uv_run(&loop, UV_RUN_ONCE);
    client_closed = false;
    close(listener);
    finish(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ch_http_upload");
    TCase *tests = tcase_create("ch_http_upload");
    tcase_set_timeout(tests, 20);
    tcase_add_loop_test(tests, early_error_in_upload_is_delivered, 0, 10);
    tcase_add_test(tests, answer_is_found_behind_a_failed_send);
    tcase_add_test(tests, answer_without_end_does_not_hold_an_upload);
    tcase_add_test(tests, upload_is_chunked_and_ends);
    tcase_add_test(tests, upload_arrives_whole_and_is_held_back);
    tcase_add_test(tests, upload_that_nobody_reads);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
