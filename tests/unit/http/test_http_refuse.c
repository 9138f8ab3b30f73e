/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that must be refused: malformed heads, smuggling, limits (exactly N passes, N + 1 does
 * not), too many connections. Each row is its own connection; the answer must have the status,
 * announce the close, and nothing of the second request that some rows carry may reach the handler.
 */
#include "http_client.h"
#include "lib/suite.h"

#include <sched.h>

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

#define HOST     "Host: a\r\n"
#define SMUGGLED "GET /ok HTTP/1.1\r\n" HOST "\r\n"

static const struct {
    const char *bytes;
    int status;
} refused[] = {
    /* both lengths, duplicate and malformed Content-Length */
    {"POST /echo HTTP/1.1\r\n" HOST
     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400},
    {"POST /echo HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
     400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\ncontent-length: 6\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5 5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5a\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 9223372036854775808\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551621\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Content-Length\t: 5\r\n\r\nhello", 400},
    {"POST /echo HTTP/1.1\r\n" HOST " Content-Length: 5\r\n\r\nhello", 400},
    /* other codings */
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding:\x0b"
     "chunked\r\n\r\n0\r\n\r\n",
     400},
    {"POST /echo HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     400},
    {"POST /echo HTTP/1.1\r\n" HOST
     "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
     400},
    {"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
    /* bare LF, bare CR, controls, folding */
    {"GET /ok HTTP/1.1\nHost: a\n\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\n\n", 400},
    {"GET /ok HTTP/1.1\nHost: a\r\n\r\n", 400},
    {"\nGET /ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\rHost: a\r\r", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n" SMUGGLED, 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX: a\r\n\tb\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\n Host: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n", 400},
    {"GET /o\x01k HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    /* names that are no tokens */
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX Y: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nXY\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX(: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nX\xc3\xa4: a\r\n\r\n", 400},
    /* Host */
    {"GET /ok HTTP/1.1\r\n\r\n", 400},
    {"GET /ok HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    /* request line, versions */
    {"GET /ok\r\n\r\n", 400},
    {"GET  /ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /ok  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
    {"GET /o k HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET\t/ok\tHTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {" GET /ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"get /ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"BREW /ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/0.9\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/2.0\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/1.2\r\nHost: a\r\n\r\n", 400},
    {"GET /ok HTTP/11\r\nHost: a\r\n\r\n", 400},
    {"GET /ok http/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /ok FTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
    {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400}, /* a TLS hello, up to its NUL */
    {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    /* targets */
    {"GET ok HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a?x=%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a?%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a% HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a?q=100% HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a?q=%4&b=1 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    /* lengths, expectations */
    {"POST /ok HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 1\r\n\r\na", 417},
    {"POST /ok HTTP/1.1\r\nHost: a\r\nExpect:\r\nContent-Length: 1\r\n\r\na", 417},
};

START_TEST(is_refused)
{
    expect_refused(&server, refused[_i].bytes, refused[_i].status);
    ck_assert_int_eq(atomic_load(&server.requests), 0);
}
END_TEST

/* The same, one byte at a time. */
START_TEST(is_refused_dribbled)
{
    int fd = client_connect(&server);
    for (const char *c = refused[_i].bytes; *c && client_send(fd, c, 1); c++)
        if (c - refused[_i].bytes > 12) /* most of the time one packet per byte */
            sched_yield();
    char *all = client_read_all(fd);
    ck_assert_int_eq(answer_status(all), refused[_i].status);
    ck_assert_int_eq(atomic_load(&server.requests), 0);
    free(all);
    close(fd);
}
END_TEST

START_TEST(nul_bytes_are_refused)
{
    static const char bytes[] = "GET /ok HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n";
    static const char line[] = "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n";
    for (int i = 0; i < 2; i++) {
        int fd = client_connect(&server);
        client_send(fd, i ? line : bytes, i ? sizeof line - 1 : sizeof bytes - 1);
        char *all = client_read_all(fd);
        ck_assert_int_eq(answer_status(all), 400);
        free(all);
        close(fd);
    }
}
END_TEST

START_TEST(an_error_is_an_error_object)
{
    int fd = client_connect(&server);
    client_puts(fd, "POST /ok HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\na");
    char *all = client_read_all(fd);
    ck_assert_ptr_nonnull(strstr(all, "HTTP/1.1 417 Expectation Failed\r\n"));
    ck_assert_ptr_nonnull(strstr(all, "Content-Type: application/json\r\n"));
    ck_assert_ptr_nonnull(
        strstr(all, "\r\n\r\n{\"error\":{\"code\":\"EXPECTATION_FAILED\",\"message\":\""));
    ck_assert_ptr_nonnull(strstr(all, "\"retryable\":false,\"outcome\":\"known\"}}"));
    free(all);
    close(fd);
}
END_TEST

/* ---- limits ---- */

static int status_of(const char *request)
{
    int fd = client_connect(&server);
    client_puts(fd, request);
    shutdown(fd, SHUT_WR);
    char *all = client_read_all(fd);
    int status = answer_status(all);
    free(all);
    close(fd);
    return status;
}

static char *letters(size_t n)
{
    char *text = mem_alloc(n + 1);
    memset(text, 'x', n);
    return text;
}

START_TEST(url_limit_is_exact)
{
    for (int more = 0; more < 2; more++) {
        char *path = letters(server.config.url_bytes_max - 1 + (size_t)more);
        char *request = mem_printf("GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", path);
        ck_assert_int_eq(status_of(request), more ? 414 : 200);
        free(request);
        free(path);
    }
}
END_TEST

START_TEST(head_limit_is_exact)
{
    static const char before[] = "GET /show HTTP/1.1\r\nHost: a\r\nX-Y: ";
    for (int more = 0; more < 2; more++) {
        char *value =
            letters(server.config.head_bytes_max - (sizeof before - 1) - 4 + (size_t)more);
        char *request = mem_printf("%s%s\r\n\r\n", before, value);
        ck_assert_int_eq(status_of(request), more ? 431 : 200);
        free(request);
        free(value);
    }
}
END_TEST

START_TEST(header_count_limit_is_exact)
{
    for (int more = 0; more < 2; more++) {
        struct buf request = {0};
        buf_puts(&request, "GET /ok HTTP/1.1\r\nHost: a\r\n");
        for (size_t i = 1; i < server.config.headers_max + (size_t)more; i++)
            buf_printf(&request, "X%zu: 1\r\n", i);
        buf_puts(&request, "\r\n");
        ck_assert_int_eq(status_of(buf_str(&request)), more ? 431 : 200);
        buf_clear(&request);
    }
}
END_TEST

START_TEST(parameter_count_limit)
{
    struct buf request = {0};
    buf_puts(&request, "GET /ok?a");
    for (int i = 1; i < 1024; i++)
        buf_puts(&request, "&a");
    size_t cut = request.len;
    buf_puts(&request, " HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(status_of(buf_str(&request)), 200);
    request.len = cut;
    buf_puts(&request, "&a HTTP/1.1\r\nHost: a\r\n\r\n");
    ck_assert_int_eq(status_of(buf_str(&request)), 400);
    buf_clear(&request);
}
END_TEST

START_TEST(endless_empty_lines_are_refused)
{
    struct buf request = {0};
    for (size_t i = 0; i <= server.config.head_bytes_max / 2; i++)
        buf_puts(&request, "\r\n");
    ck_assert_int_eq(status_of(buf_str(&request)), 431);
    buf_clear(&request);
}
END_TEST

/* A client that goes on sending after the refusal still gets it, and an orderly end: a reset could
 * take the answer from it. */
START_TEST(the_refusal_survives_what_is_still_sent)
{
    int fd = client_connect(&server);
    char *path = letters(60000);
    client_puts(fd, "GET /");
    client_puts(fd, path);
    sleep_ms(20);
    ck_assert(client_puts(fd, " HTTP/1.1\r\n\r\n")); /* a reset would be told here */
    expect_answer(fd, 414, NULL);
    char byte;
    ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
    free(path);
    close(fd);
}
END_TEST

static void setup_large(void)
{
    test_server_init(&server);
    server.config.url_bytes_max = 1 << 20;
    server.config.head_bytes_max = (1 << 20) + 65536;
    test_server_start(&server);
}

START_TEST(a_url_of_one_mebibyte)
{
    enum { URL = 1 << 20 };
    char *value = letters(URL - strlen("/x?q="));
    int fd = client_connect(&server);
    char *request = mem_printf("GET /x?q=%s HTTP/1.1\r\nHost: a\r\n\r\n", value);
    client_puts(fd, request);
    char *answer = client_read_answer(fd, false);
    ck_assert_int_eq(answer_status(answer), 200);
    ck_assert_uint_eq(strlen(answer_body(answer)), strlen("GET /x [q]=[]") + strlen(value));
    free(answer);
    free(request);
    request = mem_printf("GET /x?q=%sy HTTP/1.1\r\nHost: a\r\n\r\n", value);
    client_puts(fd, request);
    expect_answer(fd, 414, "URI_TOO_LONG");
    free(request);
    free(value);
    close(fd);
}
END_TEST

/* ---- memory ---- */

static struct budget budget;

static void setup_short(void)
{
    test_server_init(&server);
    budget = (struct budget){.bytes_max = (size_t)600 * 1024};
    server.config.budget = &budget;
    server.config.head_bytes_max = server.config.url_bytes_max = (size_t)1 << 20;
    test_server_start(&server);
}

static void teardown_short(void)
{
    test_server_stop(&server, 1000);
    ck_assert_uint_eq(budget.bytes, 0);
}

/* Heads that do not end, of 150 KB each: two fit. */
START_TEST(long_heads_share_one_memory)
{
    int fds[3];
    char *text = mem_alloc(150001);
    memset(text, 'a', 150000);
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(&server);
        client_puts(fds[i], "GET /ok?");
        client_puts(fds[i], text);
        sleep_ms(100);
    }
    char *all = client_read_all(fds[2]);
    ck_assert_int_eq(answer_status(all), 503);
    ck_assert_ptr_nonnull(strstr(all, "body_memory_bytes_max"));
    ck_assert_ptr_nonnull(strstr(all, "Retry-After: 1\r\n"));
    free(all);
    for (int i = 0; i < 2; i++) {
        client_puts(fds[i], " HTTP/1.1\r\nHost: a\r\n\r\n");
        expect_answer(fds[i], 200, "ok");
    }
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    free(text);
}
END_TEST

/* Bodies that are collected, likewise; small ones are not counted. */
START_TEST(collected_bodies_share_one_memory)
{
    int fds[3];
    char *text = mem_alloc(150001);
    memset(text, 'a', 150000);
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(&server);
        client_puts(fds[i], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 150001\r\n\r\n");
        client_puts(fds[i], text);
        sleep_ms(100);
    }
    char *all = client_read_all(fds[2]);
    ck_assert_int_eq(answer_status(all), 503);
    free(all);
    int small = client_connect(&server);
    client_puts(small, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    expect_answer(small, 200, "hello");
    close(small);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    free(text);
}
END_TEST

static void setup_few(void)
{
    test_server_init(&server);
    server.config.connections_max = 3;
    test_server_start(&server);
}

START_TEST(too_many_connections_are_told)
{
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(&server);
        client_puts(fds[i], "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
        expect_answer(fds[i], 200, "ok");
    }
    for (int i = 0; i < 5; i++) {
        int fd = client_connect(&server);
        client_puts(fd, "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
        char *all = client_read_all(fd);
        ck_assert_int_eq(answer_status(all), 503);
        ck_assert_ptr_nonnull(strstr(all, "Retry-After: 1\r\n"));
        ck_assert_ptr_nonnull(strstr(all, "\"BUSY\""));
        ck_assert_ptr_nonnull(strstr(all, "\"retryable\":true"));
        free(all);
        close(fd);
    }
    close(fds[0]);
    sleep_ms(50);
    int fd = client_connect(&server);
    client_puts(fd, "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_answer(fd, 200, "ok");
    close(fd);
    close(fds[1]);
    close(fds[2]);
}
END_TEST

START_TEST(bad_addresses)
{
    static const char *const bad[] = {"",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:x",
                                      ":1",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:-1",
                                      "::1:0",
                                      "[::1]",
                                      "[127.0.0.1]:0",
                                      "a.example:1",
                                      "[]:1",
                                      "127.0.0.1:000001"};
    uv_loop_t loop;
    struct http_server *started = NULL;
    struct error error = {0};
    uv_loop_init(&loop);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(http_server_start(&loop, bad[i], &server.config, test_handle, NULL, &started,
                                        &error) == CHXA_E_INVALID_REQUEST,
                      "%s", bad[i]);
    ck_assert_int_eq(http_server_start(&loop, server.address, &server.config, test_handle, NULL,
                                       &started, &error),
                     CHXA_E_IO_FAILED); /* taken */
    ck_assert_ptr_null(started);
    error_clear(&error);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

static TCase *tcase_with(Suite *suite, const char *name, SFun start)
{
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, teardown);
    suite_add_tcase(suite, tcase);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("http_refuse");
    int rows = sizeof refused / sizeof *refused;
    TCase *tcase = tcase_with(suite, "refuse", setup);
    tcase_add_loop_test(tcase, is_refused, 0, rows);
    tcase_add_loop_test(tcase, is_refused_dribbled, 0, rows);
    tcase_add_test(tcase, nul_bytes_are_refused);
    tcase_add_test(tcase, an_error_is_an_error_object);
    tcase_add_test(tcase, url_limit_is_exact);
    tcase_add_test(tcase, head_limit_is_exact);
    tcase_add_test(tcase, header_count_limit_is_exact);
    tcase_add_test(tcase, parameter_count_limit);
    tcase_add_test(tcase, endless_empty_lines_are_refused);
    tcase_add_test(tcase, the_refusal_survives_what_is_still_sent);
    tcase_add_test(tcase, bad_addresses);
    tcase_add_test(tcase_with(suite, "large", setup_large), a_url_of_one_mebibyte);
    tcase_add_test(tcase_with(suite, "few", setup_few), too_many_connections_are_told);
    TCase *memory = tcase_create("memory");
    tcase_set_timeout(memory, 60);
    tcase_add_checked_fixture(memory, setup_short, teardown_short);
    tcase_add_test(memory, long_heads_share_one_memory);
    tcase_add_test(memory, collected_bodies_share_one_memory);
    suite_add_tcase(suite, memory);
    return suite_run(suite);
}
