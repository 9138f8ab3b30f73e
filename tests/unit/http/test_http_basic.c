/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that are well: bodies, keep-alive, pipelining, every split of the bytes, parameters.
 */
#include "http_client.h"
#include "lib/suite.h"

static struct test_server server;

static void setup(void)
{
    test_server_init(&server);
    test_server_start(&server);
}

static void teardown(void)
{
    test_server_stop(&server, 1000);
}

START_TEST(answers_and_keeps_the_connection)
{
    int fd = client_connect(&server);
    for (int i = 0; i < 3; i++) {
        client_puts(fd, "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
        char *answer = client_read_answer(fd, false);
        ck_assert_int_eq(answer_status(answer), 200);
        ck_assert_str_eq(answer_body(answer), "ok");
        ck_assert_ptr_nonnull(strstr(answer, "Connection: keep-alive\r\n"));
        ck_assert_ptr_nonnull(strstr(answer, "Keep-Alive: timeout=5\r\n"));
        ck_assert_ptr_nonnull(strstr(answer, "Content-Length: 2\r\n"));
        ck_assert_ptr_nonnull(strstr(answer, "Content-Type: text/plain\r\n"));
        ck_assert_ptr_nonnull(strstr(answer, " GMT\r\n"));
        free(answer);
    }
    close(fd);
}
END_TEST

static const char *const echoes[] = {
    "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "PUT /echo HTTP/1.1\r\nHost: a\r\ncontent-length:5  \r\n\r\nhello",
    "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n"
    "1\r\nh\r\n0004;a=b;c=\"d\"\r\nello\r\n000\r\nX-Trailer: 1\r\nY: 2\r\n\r\n",
    "\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST http://host:1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
};

/* Every request, cut at every place, and byte by byte, and all of it twice in one packet. */
START_TEST(any_split_gives_the_same_answer)
{
    const char *request = echoes[_i];
    size_t len = strlen(request);
    int fd = client_connect(&server);
    for (size_t cut = 1; cut < len; cut++) {
        client_send(fd, request, cut);
        sleep_ms(1);
        client_send(fd, request + cut, len - cut);
        expect_answer(fd, 200, "\r\n\r\nhello");
    }
    for (size_t i = 0; i < len; i++) {
        client_send(fd, request + i, 1);
        sleep_ms(1);
    }
    expect_answer(fd, 200, "\r\n\r\nhello");
    char *twice = mem_printf("%s%s", request, request);
    client_puts(fd, twice);
    expect_answer(fd, 200, "\r\n\r\nhello");
    expect_answer(fd, 200, "\r\n\r\nhello");
    free(twice);
    close(fd);
}
END_TEST

START_TEST(ten_thousand_pipelined_requests)
{
    enum { COUNT = 10000 };
    struct buf all = {0};
    for (int i = 0; i < COUNT; i++)
        buf_printf(&all, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n%06d", i);
    int fd = client_connect(&server);
    size_t sent = 0;
    struct buf got = {0};
    int answered = 0;
    while (answered < COUNT) {
        /* Write what is taken and read what comes: neither side may have to buffer it all. */
        struct pollfd poll_fd = {fd, (short)(POLLIN | (sent < all.len ? POLLOUT : 0)), 0};
        ck_assert_int_gt(poll(&poll_fd, 1, CLIENT_PATIENCE_MS), 0);
        if (poll_fd.revents & POLLOUT) {
            ssize_t n = send(fd, all.data + sent, all.len - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (n > 0)
                sent += (size_t)n;
        }
        if (poll_fd.revents & POLLIN)
            ck_assert(client_read_some(fd, &got));
        char *end;
        while (got.len && (end = strstr(got.data, "\r\n\r\n")) && strlen(end) >= 10) {
            char expected[8];
            snprintf(expected, sizeof expected, "%06d", answered);
            ck_assert_int_eq(strncmp(end + 4, expected, 6), 0);
            answered++;
            buf_consume(&got, (size_t)(end + 10 - got.data));
        }
    }
    ck_assert_int_eq(atomic_load(&server.requests), COUNT);
    buf_clear(&all);
    buf_clear(&got);
    close(fd);
}
END_TEST

START_TEST(a_pipelined_request_waits_for_the_answer_before)
{
    int fd = client_connect(&server);
    client_puts(fd,
                "GET /late?ms=80 HTTP/1.1\r\nHost: a\r\n\r\nGET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
    sleep_ms(30);
    ck_assert_int_eq(atomic_load(&server.requests), 1);
    expect_answer(fd, 200, "late");
    expect_answer(fd, 200, "ok");
    close(fd);
}
END_TEST

START_TEST(head_has_no_body)
{
    int fd = client_connect(&server);
    client_puts(fd, "HEAD /ok HTTP/1.1\r\nHost: a\r\n\r\n");
    char *answer = client_read_answer(fd, true);
    ck_assert_int_eq(answer_status(answer), 200);
    ck_assert_ptr_nonnull(strstr(answer, "Content-Length: 2\r\n"));
    free(answer);
    client_puts(fd, "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_answer(fd, 200, "\r\n\r\nok");
    close(fd);
}
END_TEST

static const struct {
    const char *request;
    bool keeps;
} versions[] = {
    {"GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n", false},
    {"GET /ok HTTP/1.0\r\n\r\n", false},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
     "HTTP2-Settings: AAMAAABk\r\n\r\n",
     true},
    {"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", true},
};

START_TEST(keeps_alive_as_asked)
{
    int fd = client_connect(&server);
    client_puts(fd, versions[_i].request);
    expect_answer(fd, 200, versions[_i].keeps ? "Connection: keep-alive" : "Connection: close");
    ck_assert_int_eq(client_sees_close(fd, versions[_i].keeps ? 50 : 1000), !versions[_i].keeps);
    close(fd);
}
END_TEST

static const struct {
    const char *target;
    const char *shown;
} targets[] = {
    {"/v1/a%20b+c", "GET /v1/a b+c"},
    {"/?query=INSERT+INTO%20t%0A&a=%2B&empty=&bare&&x=1=2",
     "GET / [query]=[INSERT INTO t\n] [a]=[+] [empty]=[] [bare]=[] [x]=[1=2]"},
    {"/x?%61%3D=%26%3D", "GET /x [a=]=[&=]"},
    {"/x?a=1&a=2", "GET /x [a]=[1] [a]=[2]"},
    {"http://host/p?q=1", "GET /p [q]=[1]"},
    {"http://host?q=1", "GET / [q]=[1]"},
    {"/x?u=http://a/%2F", "GET /x [u]=[http://a//]"},
    {"/\xc3\xa4?\xc3\xb6=%c3%BC", "GET /\xc3\xa4 [\xc3\xb6]=[\xc3\xbc]"},
    {"*", "GET *"},
};

START_TEST(targets_are_decoded)
{
    int fd = client_connect(&server);
    char *request = mem_printf("GET %s HTTP/1.1\r\nHost: a\r\n\r\n", targets[_i].target);
    client_puts(fd, request);
    char *answer = client_read_answer(fd, false);
    ck_assert_int_eq(answer_status(answer), 200);
    ck_assert_str_eq(answer_body(answer), targets[_i].shown);
    free(request);
    free(answer);
    close(fd);
}
END_TEST

START_TEST(headers_are_given_as_sent)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /show HTTP/1.1\r\nHost: a\r\nX-A: 1 \t\r\nx-b:\r\nX-C:  \r\nX-D:a b\tc\r\n"
                    "X-A: 2\r\nX-E: \xff\r\n\r\n");
    char *answer = client_read_answer(fd, false);
    ck_assert_str_eq(answer_body(answer),
                     "GET /show {X-A}={1} {x-b}={} {X-C}={} {X-D}={a b\tc} {X-A}={2} {X-E}={\xff}");
    free(answer);
    close(fd);
}
END_TEST

START_TEST(a_bad_header_of_the_answer_is_500)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /badheader HTTP/1.1\r\nHost: a\r\n\r\n");
    char *answer = client_read_answer(fd, false);
    ck_assert_int_eq(answer_status(answer), 500);
    ck_assert_ptr_null(strstr(answer, "Injected"));
    free(answer);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_basic");
    TCase *tcase = tcase_create("basic");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, answers_and_keeps_the_connection);
    tcase_add_loop_test(tcase, any_split_gives_the_same_answer, 0, sizeof echoes / sizeof *echoes);
    tcase_add_test(tcase, ten_thousand_pipelined_requests);
    tcase_add_test(tcase, a_pipelined_request_waits_for_the_answer_before);
    tcase_add_test(tcase, head_has_no_body);
    tcase_add_loop_test(tcase, keeps_alive_as_asked, 0, sizeof versions / sizeof *versions);
    tcase_add_loop_test(tcase, targets_are_decoded, 0, sizeof targets / sizeof *targets);
    tcase_add_test(tcase, headers_are_given_as_sent);
    tcase_add_test(tcase, a_bad_header_of_the_answer_is_500);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
