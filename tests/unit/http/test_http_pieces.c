/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in pieces: framing, back-pressure, ends that are not whole, clients that vanish.
 *
 * The handler here answers `n` pieces of `bytes` bytes ("0" … "9" in turn), one per turn of the
 * loop while the server takes them; length= says Content-Length, cut=1 ends it not whole.
 */
#include "http_client.h"
#include "lib/suite.h"

static struct test_server server;
static atomic_int full;       /* http_reply_data said false */
static atomic_llong produced; /* bytes given */

struct pieces {
    struct http_request *request;
    uv_timer_t timer;
    unsigned long long n, bytes, at;
    bool cut, waiting, gone;
};

static void pieces_free(uv_handle_t *handle)
{
    free(handle->data);
}

static void pieces_closed(struct http_request *request, void *arg)
{
    struct pieces *pieces = arg;
    (void)request;
    atomic_fetch_add(&server.closed, 1);
    uv_close((uv_handle_t *)&pieces->timer, pieces_free);
}

static void pieces_gone(struct http_request *request, void *arg)
{
    struct pieces *pieces = arg;
    (void)request;
    pieces->gone = true;
    atomic_fetch_add(&server.gone, 1);
}

static void pieces_next(uv_timer_t *timer)
{
    struct pieces *pieces = timer->data;
    if (pieces->at == pieces->n || pieces->gone) {
        uv_timer_stop(timer);
        http_reply_end(pieces->request, !pieces->cut);
        return;
    }
    char *piece = mem_alloc(pieces->bytes + 1);
    memset(piece, '0' + (int)(pieces->at % 10), pieces->bytes);
    pieces->at++;
    atomic_fetch_add(&produced, (long long)pieces->bytes);
    bool more = http_reply_data(pieces->request, piece, pieces->bytes);
    free(piece);
    if (!more) {
        atomic_fetch_add(&full, 1);
        pieces->waiting = true;
        uv_timer_stop(timer);
    }
}

static void pieces_drained(struct http_request *request, void *arg)
{
    struct pieces *pieces = arg;
    ck_assert(pieces->waiting && request == pieces->request);
    pieces->waiting = false;
    uv_timer_start(&pieces->timer, pieces_next, 0, 1);
}

static void pieces_handle(struct http_request *request, void *arg)
{
    (void)arg;
    struct pieces *pieces = mem_alloc(sizeof *pieces);
    const struct http_header header = {"X-Piece", "yes"};
    const char *length = http_request_param(request, "length");
    pieces->request = request;
    pieces->n = test_param(request, "n");
    pieces->bytes = test_param(request, "bytes");
    pieces->cut = test_param(request, "cut");
    pieces->timer.data = pieces;
    atomic_fetch_add(&server.requests, 1);
    uv_timer_init(&server.loop, &pieces->timer);
    http_request_on_close(request, pieces_closed, pieces);
    http_request_on_gone(request, pieces_gone, pieces);
    http_reply_start(request, 200, &header, 1, length ? (int64_t)strtoll(length, NULL, 10) : -1,
                     pieces_drained, pieces);
    uv_timer_start(&pieces->timer, pieces_next, 0, 1);
}

/* ---- an answer that begins while the body still comes ---- */

static void echo_data(struct http_request *request, void *arg, const char *data, size_t len)
{
    bool *begun = arg;
    if (!*begun) {
        *begun = true;
        http_request_read_on(request);
        http_reply_start(request, 200, NULL, 0, -1, NULL, NULL);
    }
    http_reply_data(request, data, len);
    if (len == 1 && *data == '.') /* enough of it */
        http_reply_end(request, true);
}

static void echo_end(struct http_request *request, void *arg)
{
    (void)arg;
    http_reply_end(request, true);
}

static void echo_abort(struct http_request *request, void *arg, int code)
{
    (void)arg, (void)code;
    http_reply_end(request, false);
}

static void echo_closed(struct http_request *request, void *arg)
{
    (void)request;
    free(arg);
    atomic_fetch_add(&server.closed, 1);
}

static void echo_handle(struct http_request *request)
{
    static const struct http_body_handler handler = {echo_data, echo_end, echo_abort};
    bool *begun = mem_alloc(sizeof *begun);
    atomic_fetch_add(&server.requests, 1);
    http_request_on_close(request, echo_closed, begun);
    http_request_read(request, &handler, 0, begun);
}

static void handle(struct http_request *request, void *arg)
{
    if (http_request_param(request, "echo"))
        echo_handle(request);
    else
        pieces_handle(request, arg);
}

static void setup(void)
{
    atomic_store(&full, 0);
    atomic_store(&produced, 0);
    test_server_init(&server);
    server.handler = handle;
    server.config.write_timeout_ms = 1000;
    test_server_start(&server);
}

static void teardown(void)
{
    test_server_stop(&server, 1000);
}

/* One request on a connection of its own; everything until the server closes. */
static char *ask(const char *method, const char *query, const char *version)
{
    int fd = client_connect(&server);
    char text[256];
    snprintf(text, sizeof text, "%s /?%s HTTP/1.%s\r\nHost: a\r\nConnection: close\r\n\r\n", method,
             query, version);
    client_puts(fd, text);
    char *all = client_read_all(fd);
    close(fd);
    return all;
}

#define ENDS(text, end)                                                                            \
    (strlen(text) >= strlen(end) && strcmp((text) + strlen(text) - strlen(end), end) == 0)

static const struct {
    const char *method, *query, *version, *has, *end;
} framings[] = {
    {"GET", "n=3&bytes=2", "1", "\r\nTransfer-Encoding: chunked\r\n",
     "\r\n\r\n2\r\n00\r\n2\r\n11\r\n2\r\n22\r\n0\r\n\r\n"},
    {"GET", "n=0&bytes=2", "1", "\r\nTransfer-Encoding: chunked\r\n", "\r\n\r\n0\r\n\r\n"},
    {"GET", "n=3&bytes=2&length=6", "1", "\r\nContent-Length: 6\r\n", "\r\n\r\n001122"},
    {"GET", "n=0&bytes=1&length=0", "1", "\r\nContent-Length: 0\r\n", "\r\n\r\n"},
    {"GET", "n=3&bytes=2", "0", "\r\nConnection: close\r\n", "\r\n\r\n001122"},
    {"GET", "n=3&bytes=2&length=4", "1", "\r\nContent-Length: 4\r\n", "\r\n\r\n0011"},
    {"GET", "n=1&bytes=2&length=4", "1", "\r\nContent-Length: 4\r\n", "\r\n\r\n00"},
    {"GET", "n=1&bytes=2&cut=1", "1", "\r\nTransfer-Encoding: chunked\r\n", "\r\n\r\n2\r\n00\r\n"},
    {"HEAD", "n=3&bytes=2&length=6", "1", "\r\nContent-Length: 6\r\n", "\r\n\r\n"},
    {"HEAD", "n=3&bytes=2", "1", "\r\nX-Piece: yes\r\n", "\r\n\r\n"},
};

START_TEST(is_framed)
{
    char *all = ask(framings[_i].method, framings[_i].query, framings[_i].version);
    ck_assert_msg(strstr(all, framings[_i].has) != NULL, "%s", all);
    /* a connection that is closed before the body's end may lose what was not sent yet */
    if (!strstr(framings[_i].query, "cut=1"))
        ck_assert_msg(ENDS(all, framings[_i].end), "%s", all);
    else
        ck_assert_msg(!ENDS(all, "0\r\n\r\n"), "%s", all);
    free(all);
}
END_TEST

START_TEST(the_connection_goes_on)
{
    int fd = client_connect(&server);
    for (int i = 0; i < 20; i++) {
        client_puts(fd, i % 2 ? "GET /?n=2&bytes=1&length=2 HTTP/1.1\r\nHost: a\r\n\r\n"
                              : "GET /?n=1&bytes=2&length=2 HTTP/1.1\r\nHost: a\r\n\r\n");
        expect_answer(fd, 200, i % 2 ? "01" : "00");
    }
    close(fd);
}
END_TEST

/* A body that nobody reads is drained before the next request. */
START_TEST(a_body_that_is_not_read)
{
    int fd = client_connect(&server);
    client_puts(
        fd, "POST /?n=1&bytes=2&length=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde");
    expect_answer(fd, 200, "00");
    client_puts(fd, "GET /?n=1&bytes=1&length=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_answer(fd, 200, "0");
    close(fd);
}
END_TEST

static void expect_text(int fd, const char *text)
{
    char got[256];
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        ssize_t n = recv(fd, got + at, len - at, 0);
        ck_assert_int_gt(n, 0);
        at += (size_t)n;
    }
    ck_assert_msg(memcmp(got, text, len) == 0, "%.*s instead of %s", (int)len, got, text);
}

static void expect_head(int fd)
{
    char got[1024] = "";
    for (size_t at = 0; strstr(got, "\r\n\r\n") == NULL; at++)
        ck_assert_int_eq(recv(fd, got + at, 1, 0), 1);
    ck_assert_ptr_nonnull(strstr(got, "HTTP/1.1 200 "));
}

static const char *const echo_heads[] = {
    "POST /?echo=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    "POST /?echo=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"};

/* The rest of the body, the next request, and one whose answer ends before its body. */
START_TEST(a_body_that_is_read_behind_the_answers_beginning)
{
    int fd = client_connect(&server);
    for (int round = 0; round < 2; round++) {
        client_puts(fd, echo_heads[_i]);
        client_puts(fd, _i ? "3\r\nabc\r\n" : "abc");
        expect_head(fd);
        expect_text(fd, "3\r\nabc\r\n");
        client_puts(fd, _i ? "3\r\ndef\r\n" : "def");
        expect_text(fd, "3\r\ndef\r\n");
        client_puts(fd, _i ? "3\r\nghi\r\n0\r\n\r\n" : "ghi");
        expect_text(fd, "3\r\nghi\r\n0\r\n\r\n");
    }
    client_puts(fd, echo_heads[_i]);
    client_puts(fd, _i ? "1\r\n.\r\n" : ".");
    expect_head(fd);
    expect_text(fd, "1\r\n.\r\n0\r\n\r\n");
    client_puts(fd, _i ? "8\r\nabcdefgh\r\n0\r\n\r\n" : "abcdefgh");
    client_puts(fd, "GET /?n=1&bytes=1&length=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_answer(fd, 200, "0");
    close(fd);
}
END_TEST

START_TEST(a_body_that_breaks_off_behind_the_answers_beginning)
{
    int fd = client_connect(&server);
    client_puts(fd, echo_heads[_i]);
    client_puts(fd, _i ? "3\r\nabc\r\n" : "abc");
    expect_head(fd);
    expect_text(fd, "3\r\nabc\r\n");
    shutdown(fd, SHUT_WR);
    char *rest = client_read_all(fd);
    ck_assert_str_eq(rest, ""); /* not its last chunk */
    free(rest);
    wait_for(&server.closed, 1);
    close(fd);
}
END_TEST

START_TEST(a_slow_client_holds_the_producer)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /?n=2000&bytes=65536&length=131072000 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&full, 1);
    sleep_ms(100);
    /* the kernel's buffers and ours; not the whole of it */
    ck_assert_int_lt(atomic_load(&produced), 32 << 20);
    char bytes[65536];
    size_t got = 0;
    ssize_t n;
    while (got < 131072000 && (n = recv(fd, bytes, sizeof bytes, 0)) > 0)
        got += (size_t)n;
    ck_assert_uint_ge(got, 131072000);
    ck_assert_int_eq(atomic_load(&produced), 131072000);
    close(fd);
}
END_TEST

START_TEST(a_client_that_vanishes_is_told)
{
    int fd = client_connect(&server);
    client_puts(fd, _i ? "GET /?n=2000&bytes=65536 HTTP/1.1\r\nHost: a\r\n\r\n"
                       : "GET /?n=2000&bytes=65536&length=131072000 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&full, 1);
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
    wait_for(&server.gone, 1);
    wait_for(&server.closed, 1);
}
END_TEST

START_TEST(a_client_that_takes_nothing_is_cut_off)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /?n=2000&bytes=65536 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&server.gone, 1);
    wait_for(&server.closed, 1);
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_pieces");
    TCase *tcase = tcase_create("pieces");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, is_framed, 0, (int)(sizeof framings / sizeof *framings));
    tcase_add_test(tcase, the_connection_goes_on);
    tcase_add_test(tcase, a_body_that_is_not_read);
    tcase_add_loop_test(tcase, a_body_that_is_read_behind_the_answers_beginning, 0, 2);
    tcase_add_loop_test(tcase, a_body_that_breaks_off_behind_the_answers_beginning, 0, 2);
    tcase_add_test(tcase, a_slow_client_holds_the_producer);
    tcase_add_loop_test(tcase, a_client_that_vanishes_is_told, 0, 2);
    tcase_add_test(tcase, a_client_that_takes_nothing_is_cut_off);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
