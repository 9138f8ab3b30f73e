/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies: streaming, back-pressure, framing that is broken, limits, Expect, early answers, idling.
 */
#include "http_client.h"
#include "lib/suite.h"

static struct test_server server;

static void setup(void)
{
    test_server_init(&server);
    test_server_start(&server);
}

static void setup_hasty(void)
{
    test_server_init(&server);
    server.config.body_idle_timeout_ms = 600;
    test_server_start(&server);
}

static void teardown(void)
{
    test_server_stop(&server, 1000);
}

#define POST(path)    "POST " path " HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED(path) POST(path) "Transfer-Encoding: chunked\r\n\r\n"
#define OK            "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n"

/* What the handler "count" answers for these bytes. */
static void sum_add(struct buf *expected, const char *data, size_t len)
{
    static uint64_t sum;
    static uint64_t bytes;
    if (expected) {
        buf_printf(expected, "%llu %llu", (unsigned long long)bytes, (unsigned long long)sum);
        sum = bytes = 0;
        return;
    }
    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + (unsigned char)data[i];
    bytes += len;
}

static void fill(char *data, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (char)((i * 131 + seed) >> 3);
}

START_TEST(streams_in_large_pieces)
{
    enum { PIECE = 1 << 20, PIECES = 32 };
    bool chunked = _i & 1;
    char *data = mem_alloc(PIECE);
    int fd = client_connect(&server);
    if (chunked) {
        client_puts(fd, CHUNKED("/count"));
    } else {
        char *head = mem_printf(POST("/count") "Content-Length: %d\r\n\r\n", PIECE * PIECES);
        client_puts(fd, head);
        free(head);
    }
    for (unsigned i = 0; i < PIECES; i++) {
        fill(data, PIECE, i);
        sum_add(NULL, data, PIECE);
        if (chunked)
            client_puts(fd, "100000\r\n");
        client_send(fd, data, PIECE);
        if (chunked)
            client_puts(fd, "\r\n");
    }
    if (chunked)
        client_puts(fd, "0\r\n\r\n");
    struct buf expected = {0};
    sum_add(&expected, NULL, 0);
    expect_answer(fd, 200, buf_str(&expected));
    ck_assert_int_ge(atomic_load(&server.largest), 65536);
    client_puts(fd, OK);
    expect_answer(fd, 200, "ok");
    buf_clear(&expected);
    free(data);
    close(fd);
}
END_TEST

START_TEST(many_small_chunks)
{
    struct buf body = {0};
    char data[512];
    for (unsigned i = 1; i < 2000; i++) {
        size_t len = i % sizeof data + 1;
        fill(data, len, i);
        sum_add(NULL, data, len);
        buf_printf(&body, i % 2 ? "%zx\r\n" : "%zX;n=v\r\n", len);
        buf_append(&body, data, len);
        buf_puts(&body, "\r\n");
    }
    buf_puts(&body, "0\r\nA: b\r\n\r\n" OK);
    int fd = client_connect(&server);
    client_puts(fd, _i ? CHUNKED("/count?pause=1") : CHUNKED("/count"));
    client_send(fd, body.data, body.len);
    struct buf expected = {0};
    sum_add(&expected, NULL, 0);
    expect_answer(fd, 200, buf_str(&expected));
    expect_answer(fd, 200, "ok");
    buf_clear(&expected);
    buf_clear(&body);
    close(fd);
}
END_TEST

/* ---- framing ---- */

static const char *const broken[] = {
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r\n0\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhelloXX0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\rX0\r\n\r\n",
    "5\rXhello\r\n0\r\n\r\n",
    "g\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "\r\nhello\r\n0\r\n\r\n",
    ";a\r\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5;a\rb\r\nhello\r\n0\r\n\r\n",
    "5;a\x01\r\nhello\r\n0\r\n\r\n",
    "ffffffffffffffff\r\nhello",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "0000000000000005\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nA: b\n\r\n",
    "5\r\nhello\r\n0\r\nA: b\r\n c\r\n\r\n",
    "5\r\nhello\r\n0\r\n: b\r\n\r\n",
    "5\r\nhello\r\n0\r\nA: \x01\r\n\r\n",
    "5\r\nhello\r\n0\r\n\rX",
    "5\r\nhello\r\nGET /ok HTTP/1.1\r\nHost: a\r\n\r\n",
};

START_TEST(broken_chunks)
{
    int fd = client_connect(&server);
    client_puts(fd, CHUNKED("/count"));
    client_puts(fd, broken[_i]);
    char *all = client_read_all(fd);
    ck_assert_msg(answer_status(all) == 400, "%s", all);
    ck_assert_ptr_nonnull(strstr(all, "BODY_TRUNCATED"));
    ck_assert_ptr_nonnull(strstr(all, "Connection: close"));
    ck_assert_int_eq(atomic_load(&server.requests), 1);
    ck_assert_int_eq(atomic_load(&server.ends), 0);
    ck_assert_int_eq(atomic_load(&server.aborts), 1);
    free(all);
    close(fd);
}
END_TEST

static const char *const cut[] = {
    POST("/count") "Content-Length: 5\r\n\r\nhell",
    POST("/count") "Content-Length: 5\r\n\r\n",
    CHUNKED("/count"),
    CHUNKED("/count") "5",
    CHUNKED("/count") "5\r\nhel",
    CHUNKED("/count") "5\r\nhello",
    CHUNKED("/count") "5\r\nhello\r\n",
    CHUNKED("/count") "5\r\nhello\r\n0\r\n",
    CHUNKED("/count") "5\r\nhello\r\n0\r\n\r",
    CHUNKED("/echo") "5\r\nhello\r\n0\r\nA: b\r\n",
    CHUNKED("/later?ms=30") "5\r\nhello\r\n",
};

/* The client shuts its side before the body is whole: told, and answered. */
START_TEST(cut_bodies)
{
    int fd = client_connect(&server);
    client_puts(fd, cut[_i]);
    shutdown(fd, SHUT_WR);
    char *all = client_read_all(fd);
    ck_assert_msg(answer_status(all) == 400, "%s", all);
    ck_assert_ptr_nonnull(strstr(all, "BODY_TRUNCATED"));
    ck_assert_int_eq(atomic_load(&server.ends), 0);
    ck_assert_int_eq(atomic_load(&server.aborts), 1);
    ck_assert_int_eq(atomic_load(&server.abort_code), CHXA_E_BODY_TRUNCATED);
    free(all);
    close(fd);
}
END_TEST

START_TEST(reset_bodies)
{
    int fd = client_connect(&server);
    client_puts(fd, cut[_i]);
    wait_for(&server.requests, 1);
    client_reset(fd);
    wait_for(&server.aborts, 1);
    ck_assert_int_eq(atomic_load(&server.abort_code), CHXA_E_BODY_TRUNCATED);
    wait_for(&server.closed, 1);
    ck_assert_int_eq(atomic_load(&server.ends), 0);
}
END_TEST

/* n bytes of extension (or trailer), split into lines of at most 4000. */
static int status_with_extras(size_t extension, size_t trailer)
{
    struct buf body = {0};
    buf_puts(&body, CHUNKED("/echo"));
    for (size_t left = extension; left;) {
        size_t line = left < 4000 ? left : 4000;
        buf_puts(&body, "1;");
        for (size_t i = 0; i < line; i++)
            buf_puts(&body, "e");
        buf_puts(&body, "\r\nx\r\n");
        left -= line;
    }
    buf_puts(&body, "0\r\n");
    for (size_t left = trailer; left;) {
        size_t line = left < 4000 ? left : 4000; /* with its CR; the LF is not counted */
        for (size_t i = 0; i < line - 1; i++)
            buf_puts(&body, "t");
        buf_puts(&body, "\r\n");
        left -= line;
    }
    buf_puts(&body, "\r\n");
    int fd = client_connect(&server);
    client_send(fd, body.data, body.len);
    char *answer = client_read_answer(fd, false);
    int status = answer_status(answer);
    free(answer);
    buf_clear(&body);
    close(fd);
    return status;
}

START_TEST(extensions_and_trailers_are_bounded)
{
    ck_assert_int_eq(status_with_extras(100, 100), 200);
    ck_assert_int_eq(status_with_extras(65536, 0), 200);
    ck_assert_int_eq(status_with_extras(65537, 0), 400);
    ck_assert_int_eq(status_with_extras(0, 16383), 200); /* and the CR of the last line */
    ck_assert_int_eq(status_with_extras(0, 16384), 400);
}
END_TEST

START_TEST(one_extension_is_bounded)
{
    char ext[5000];
    for (int more = 0; more < 2; more++) {
        size_t len = 4096 - strlen("1;") - strlen("\r") + (size_t)more;
        memset(ext, 'e', len);
        ext[len] = '\0';
        int fd = client_connect(&server);
        char *body = mem_printf(CHUNKED("/echo") "1;%s\r\nx\r\n0\r\n\r\n", ext);
        client_puts(fd, body);
        expect_answer(fd, more ? 400 : 200, NULL);
        free(body);
        close(fd);
    }
}
END_TEST

/* ---- limits ---- */

static const struct {
    const char *request;
    int status;
} limits[] = {
    {POST("/echo?n=5") "Content-Length: 5\r\n\r\nhello", 200},
    {POST("/echo?n=5") "Content-Length: 6\r\n\r\nhello!", 413},
    {CHUNKED("/echo?n=5") "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", 200},
    {CHUNKED("/echo?n=5") "2\r\nhe\r\n4\r\nllo!\r\n0\r\n\r\n", 413},
    {CHUNKED("/echo?n=5") "6\r\nhello!\r\n0\r\n\r\n", 413},
    {POST("/count?n=5") "Content-Length: 5\r\n\r\nhello", 200},
    {POST("/count?n=5") "Content-Length: 6\r\n\r\nhello!", 413},
    {POST("/echo?n=5") "Content-Length: 0\r\n\r\n", 200},
    {"GET /echo?n=5 HTTP/1.1\r\nHost: a\r\n\r\n", 200},
    {"GET /echo?n=5 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 200},
};

START_TEST(body_limit_is_exact)
{
    int fd = client_connect(&server);
    client_puts(fd, limits[_i].request);
    client_puts(fd, OK);
    expect_answer(fd, limits[_i].status, NULL);
    if (limits[_i].status == 200)
        expect_answer(fd, 200, "ok");
    else
        ck_assert(client_sees_close(fd, 1000));
    close(fd);
}
END_TEST

/* A handler's 411: what follows is no request. */
START_TEST(a_missing_length_ends_the_connection)
{
    expect_refused(&server, POST("/length") "\r\n" OK, 411);
    ck_assert_int_eq(atomic_load(&server.requests), 1);
}
END_TEST

/* ---- Expect: 100-continue ---- */

START_TEST(continue_comes_when_the_handler_reads)
{
    int fd = client_connect(&server);
    for (int i = 0; i < 2; i++) {
        client_puts(fd, POST("/later?ms=50") "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
        ck_assert(!client_readable(fd, 20));
        char *answer = client_read_answer(fd, true);
        ck_assert_str_eq(answer, "HTTP/1.1 100 Continue\r\n\r\n");
        free(answer);
        client_puts(fd, "hello");
        expect_answer(fd, 200, "\r\n\r\n5 ");
    }
    close(fd);
}
END_TEST

/* A client that does not wait. */
START_TEST(continue_for_a_body_that_is_there)
{
    int fd = client_connect(&server);
    for (int i = 0; i < 20; i++) {
        client_puts(fd, POST("/echo") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello" OK);
        free(client_read_answer(fd, true));
        expect_answer(fd, 200, "\r\n\r\nhello");
        expect_answer(fd, 200, "\r\n\r\nok");
    }
    close(fd);
}
END_TEST

static const struct {
    const char *request;
    int status;
} unexpected[] = {
    /* answered without a look at the body, or too large: no 100, and close */
    {POST("/ok") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", 200},
    {POST("/ok") "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n", 200},
    {POST("/echo?n=4") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", 413},
    {POST("/show") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", 200},
};

START_TEST(a_final_answer_instead_of_continue)
{
    expect_refused(&server, unexpected[_i].request, unexpected[_i].status);
}
END_TEST

START_TEST(no_continue_without_need)
{
    static const char *const requests[] = {
        POST("/echo") "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
        "POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n"
        "Content-Length: 0\r\n\r\n",
    };
    int fd = client_connect(&server);
    client_puts(fd, requests[_i]);
    expect_answer(fd, 200, "Connection: keep-alive");
    close(fd);
}
END_TEST

/* ---- answers before the end of the body ---- */

/* Less than drain_bytes_max is left: drained, and the connection goes on. */
static const char *const early_paths[] = {"/ok", "/now", "/mid"};

START_TEST(an_early_answer_then_the_next_request)
{
    bool chunked = _i >= 3;
    char *data = mem_alloc(20001);
    memset(data, 'd', 20000);
    int fd = client_connect(&server);
    for (int round = 0; round < 3; round++) {
        char *head = mem_printf("POST %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n", early_paths[_i % 3],
                                chunked ? "Transfer-Encoding: chunked" : "Content-Length: 40000");
        client_puts(fd, head);
        client_puts(fd, chunked ? "9c40\r\n" : "");
        client_puts(fd, data);
        expect_answer(fd, 200, "Connection: keep-alive");
        client_puts(fd, data);
        client_puts(fd, chunked ? "\r\n0\r\n\r\n" OK : OK);
        expect_answer(fd, 200, "ok");
        free(head);
    }
    free(data);
    close(fd);
}
END_TEST

START_TEST(an_early_answer_and_too_much_to_drain)
{
    static const char *const requests[] = {
        POST("/ok") "Content-Length: 1000000000\r\n\r\n",
        CHUNKED("/ok") "3b9aca00\r\n",
        POST("/now") "Content-Length: 1000000000\r\n\r\nabc",
    };
    char data[8192] = {0};
    int fd = client_connect(&server);
    client_puts(fd, requests[_i]);
    char *answer = client_read_answer(fd, false);
    ck_assert_int_eq(answer_status(answer), 200);
    if (_i != 1)
        ck_assert_ptr_nonnull(strstr(answer, "Connection: close"));
    free(answer);
    size_t taken = 0;
    while (taken < 100000000 && client_send(fd, data, sizeof data))
        taken += sizeof data;
    ck_assert_uint_lt(taken, 50000000);
    close(fd);
}
END_TEST

START_TEST(draining_takes_no_longer_than_allowed)
{
    int fd = client_connect(&server);
    client_puts(fd, POST("/ok") "Content-Length: 1000\r\n\r\n");
    expect_answer(fd, 200, "ok");
    uint64_t start = clock_monotonic_ms();
    while (clock_monotonic_ms() - start < 5000 && client_puts(fd, "x"))
        sleep_ms(20); /* never idle */
    ck_assert_uint_lt(clock_monotonic_ms() - start, 4000);
    close(fd);
}
END_TEST

/* ---- time ---- */

static const char *const idlers[] = {
    POST("/count") "Content-Length: 5\r\n\r\nhe",
    POST("/count") "Content-Length: 5\r\n\r\n",
    CHUNKED("/count") "5\r\nhe",
    CHUNKED("/count") "5\r\nhello\r\n0\r\n",
    POST("/echo") "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
};

START_TEST(an_idle_body_is_ended)
{
    int fd = client_connect(&server);
    uint64_t start = clock_monotonic_ms();
    client_puts(fd, idlers[_i]);
    char *all = client_read_all(fd);
    char *answer = strncmp(all, "HTTP/1.1 100", 12) ? all : strstr(all, "\r\n\r\n") + 4;
    ck_assert_msg(answer_status(answer) == 408, "%s", all);
    ck_assert_ptr_nonnull(strstr(answer, "Connection: close"));
    ck_assert_uint_ge(clock_monotonic_ms() - start, 590);
    ck_assert_int_eq(atomic_load(&server.abort_code), CHXA_E_REQUEST_TIMEOUT);
    free(all);
    close(fd);
}
END_TEST

START_TEST(a_slow_body_is_not_idle)
{
    int fd = client_connect(&server);
    client_puts(fd, POST("/count") "Content-Length: 10\r\n\r\n");
    for (int i = 0; i < 10; i++) {
        sleep_ms(100);
        client_puts(fd, "x");
    }
    expect_answer(fd, 200, "\r\n\r\n10 ");
    close(fd);
}
END_TEST

START_TEST(a_slow_handler_is_not_the_clients_fault)
{
    int fd = client_connect(&server);
    client_puts(fd, _i ? POST("/later?ms=900") "Content-Length: 5\r\n\r\nhello"
                       : CHUNKED("/count?pause=900") "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    expect_answer(fd, 200, "\r\n\r\n5 ");
    close(fd);
}
END_TEST

/* ---- back-pressure ---- */

/* A handler that does not read, or pauses: the client cannot send more than the kernel's buffers
 * and one read. */
START_TEST(a_client_cannot_fill_memory)
{
    static const char *const requests[] = {
        POST("/hold") "Content-Length: 1000000000\r\n\r\n",
        POST("/count?pause=3000") "Content-Length: 1000000000\r\n\r\n",
        CHUNKED("/count?pause=3000") "3b9aca00\r\n",
        "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    enum { PIECE = 65536 };
    char *data = mem_alloc(PIECE);
    int fd = client_connect(&server);
    client_puts(fd, requests[_i]);
    wait_for(&server.requests, 1);
    size_t sent = 0;
    for (int stalls = 0; stalls < 20 && sent < 200000000;) {
        ssize_t n = send(fd, data, PIECE, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            sent += (size_t)n;
        } else {
            ck_assert_int_eq(errno, EAGAIN);
            stalls++;
            sleep_ms(10);
        }
    }
    ck_assert_uint_lt(sent, 20000000);
    ck_assert_int_le(atomic_load(&server.received), 256 * 1024);
    client_reset(fd);
    free(data);
    test_server_release(&server);
}
END_TEST

START_TEST(a_body_that_came_before_the_handler_reads)
{
    static const char *const requests[] = {
        POST("/later?ms=50") "Content-Length: 5\r\n\r\nhello",
        CHUNKED("/later?ms=50") "5\r\nhello\r\n0\r\n\r\n",
        POST("/later?ms=50") "Content-Length: 0\r\n\r\n",
        "GET /later?ms=50 HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (int half_closed = 0; half_closed < 2; half_closed++) {
        int fd = client_connect(&server);
        client_puts(fd, requests[_i]);
        if (half_closed)
            shutdown(fd, SHUT_WR);
        expect_answer(fd, 200, _i < 2 ? "\r\n\r\n5 " : "\r\n\r\n0 ");
        close(fd);
    }
}
END_TEST

#define ROWS(array) (int)(sizeof(array) / sizeof *(array))

int main(void)
{
    Suite *suite = suite_create("http_body");
    TCase *tcase = tcase_create("body");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, streams_in_large_pieces, 0, 2);
    tcase_add_loop_test(tcase, many_small_chunks, 0, 2);
    tcase_add_loop_test(tcase, broken_chunks, 0, ROWS(broken));
    tcase_add_loop_test(tcase, cut_bodies, 0, ROWS(cut));
    tcase_add_loop_test(tcase, reset_bodies, 0, ROWS(cut));
    tcase_add_test(tcase, extensions_and_trailers_are_bounded);
    tcase_add_test(tcase, one_extension_is_bounded);
    tcase_add_loop_test(tcase, body_limit_is_exact, 0, ROWS(limits));
    tcase_add_test(tcase, a_missing_length_ends_the_connection);
    tcase_add_test(tcase, continue_comes_when_the_handler_reads);
    tcase_add_test(tcase, continue_for_a_body_that_is_there);
    tcase_add_loop_test(tcase, a_final_answer_instead_of_continue, 0, ROWS(unexpected));
    tcase_add_loop_test(tcase, no_continue_without_need, 0, 3);
    tcase_add_loop_test(tcase, an_early_answer_then_the_next_request, 0, 6);
    tcase_add_loop_test(tcase, an_early_answer_and_too_much_to_drain, 0, 3);
    tcase_add_loop_test(tcase, a_client_cannot_fill_memory, 0, 4);
    tcase_add_loop_test(tcase, a_body_that_came_before_the_handler_reads, 0, 4);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("hasty");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup_hasty, teardown);
    tcase_add_test(tcase, draining_takes_no_longer_than_allowed);
    tcase_add_loop_test(tcase, an_idle_body_is_ended, 0, ROWS(idlers));
    tcase_add_test(tcase, a_slow_body_is_not_idle);
    tcase_add_loop_test(tcase, a_slow_handler_is_not_the_clients_fault, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
