/* SPDX-License-Identifier: Apache-2.0
 *
 * Lives and deaths: slow heads, idle connections, clients that vanish in each phase, half-closes,
 * clients that do not take their answer, stopping the server, thousands of idle connections.
 */
#include "http_client.h"
#include "lib/suite.h"

#include <malloc.h>
#include <sys/resource.h>

static struct test_server server;
static bool stopped;

static void setup(void)
{
    test_server_init(&server);
    test_server_start(&server);
}

static void setup_hasty(void)
{
    test_server_init(&server);
    server.config.head_timeout_ms = 300;
    server.config.keep_alive_ms = 400;
    server.config.write_timeout_ms = 700;
    test_server_start(&server);
}

static void teardown(void)
{
    if (!stopped)
        test_server_stop(&server, 1000);
}

#define OK   "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"

static uint64_t ms_since(uint64_t start)
{
    return clock_monotonic_ms() - start;
}

/* ---- time-outs ---- */

START_TEST(a_slow_head_is_408)
{
    uint64_t start = clock_monotonic_ms();
    int fd = client_connect(&server);
    if (_i == 1) { /* the second request of a connection */
        client_puts(fd, OK);
        expect_answer(fd, 200, "ok");
    }
    client_puts(fd, "GET /ok HTTP/1.1\r\n");
    char *all = client_read_all(fd);
    ck_assert_msg(answer_status(all) == 408, "%s", all);
    ck_assert_ptr_nonnull(strstr(all, "REQUEST_TIMEOUT"));
    ck_assert_uint_ge(ms_since(start), 290);
    ck_assert_uint_lt(ms_since(start), 3000);
    free(all);
    close(fd);
}
END_TEST

START_TEST(a_dribbling_head_is_408)
{
    uint64_t start = clock_monotonic_ms();
    int fd = client_connect(&server);
    client_puts(fd, "GET /ok HTTP/1.1\r\nX:");
    while (!client_readable(fd, 20) && ms_since(start) < 5000)
        client_puts(fd, "x");
    char *all = client_read_all(fd);
    ck_assert_int_eq(answer_status(all), 408);
    ck_assert_uint_lt(ms_since(start), 3000);
    free(all);
    close(fd);
}
END_TEST

/* Nothing, or empty lines only: closed without a word. */
START_TEST(an_idle_connection_is_closed)
{
    uint64_t start = clock_monotonic_ms();
    int fd = client_connect(&server);
    if (_i == 1) {
        client_puts(fd, OK);
        expect_answer(fd, 200, "ok");
    }
    if (_i == 2)
        client_puts(fd, "\r\n\r\n");
    char *all = client_read_all(fd);
    ck_assert_str_eq(all, "");
    ck_assert_uint_ge(ms_since(start), 390);
    ck_assert_uint_lt(ms_since(start), 3000);
    free(all);
    close(fd);
}
END_TEST

START_TEST(a_long_answer_is_no_idleness)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /late?ms=900 HTTP/1.1\r\nHost: a\r\n\r\n");
    expect_answer(fd, 200, "late");
    client_puts(fd, OK);
    expect_answer(fd, 200, "ok");
    close(fd);
}
END_TEST

START_TEST(an_answer_that_is_not_taken)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /big?n=50000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&server.requests, 1);
    wait_for(&server.closed, 1); /* given up */
    ck_assert(client_sees_close(fd, 5000));
    close(fd);
}
END_TEST

START_TEST(an_answer_that_is_taken_slowly)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /big?n=20000000 HTTP/1.1\r\nHost: a\r\n\r\n" OK);
    char bytes[65536];
    size_t got = 0;
    for (int round = 0; round < 10; round++) { /* a second in all */
        for (int i = 0; i < 16; i++) {
            ssize_t n = recv(fd, bytes, sizeof bytes, 0);
            ck_assert_int_gt(n, 0);
            got += (size_t)n;
        }
        sleep_ms(100);
    }
    while (got < 20000000) {
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        ck_assert_int_gt(n, 0);
        got += (size_t)n;
    }
    close(fd);
}
END_TEST

/* ---- clients that vanish ---- */

static const char *const phases[] = {
    "",
    "GET /ok HT",
    "GET /ok HTTP/1.1\r\nHost: a\r\n",
    "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
    "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /later?ms=50 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /count?pause=50 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /mid HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    "POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    HOLD,
    HOLD HOLD OK,
    "GET /late?ms=50 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /big?n=30000000 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET\n",
};

/* Twenty clients each, reset or closed, at once or a moment later; the server serves on, and every
 * request ends (test_server_stop counts). */
START_TEST(vanishes)
{
    const char *bytes = phases[_i / 4];
    for (int i = 0; i < 20; i++) {
        int fd = client_connect(&server);
        client_puts(fd, bytes);
        if (_i & 2)
            sleep_ms(5);
        if (_i & 1)
            client_reset(fd);
        else
            close(fd);
    }
    test_server_release(&server);
    sleep_ms(20);
    test_server_release(&server);
    int fd = client_connect(&server);
    client_puts(fd, OK);
    expect_answer(fd, 200, "ok");
    close(fd);
}
END_TEST

START_TEST(a_reset_is_told_and_the_late_answer_is_harmless)
{
    int fd = client_connect(&server);
    client_puts(fd, HOLD);
    wait_for(&server.requests, 1);
    client_reset(fd);
    wait_for(&server.gone, 1);
    ck_assert_int_eq(atomic_load(&server.closed), 0);
    test_server_release(&server);
    wait_for(&server.closed, 1);
    ck_assert_int_eq(atomic_load(&server.gone), 1);
}
END_TEST

/* ---- half-close ---- */

START_TEST(a_half_closed_client_gets_its_answers)
{
    static const char *const requests[] = {
        HOLD,
        "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        HOLD OK,
    };
    int fd = client_connect(&server);
    client_puts(fd, requests[_i]);
    shutdown(fd, SHUT_WR);
    wait_for(&server.requests, 1);
    sleep_ms(30);
    ck_assert_int_eq(atomic_load(&server.gone), 0);
    test_server_release(&server);
    expect_answer(fd, 200, "released");
    if (_i == 2)
        expect_answer(fd, 200, "\r\n\r\nok");
    ck_assert(client_sees_close(fd, 1000));
    close(fd);
}
END_TEST

START_TEST(a_half_closed_head_is_closed)
{
    int fd = client_connect(&server);
    client_puts(fd, "GET /ok HTTP/1.1\r\nHost");
    shutdown(fd, SHUT_WR);
    ck_assert(client_sees_close(fd, 1000));
    close(fd);
}
END_TEST

/* ---- all of it at random ---- */

static const char *const pieces[] = {
    OK,
    OK OK OK,
    "GET /late?ms=3 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /big?n=300000 HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /echo?n=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /count?pause=2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /later?ms=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "POST /ok HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    "POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
    HOLD,
    "HEAD /ok HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "BROKEN\r\n\r\n",
};

static void random_end(int fd, unsigned choice)
{
    if (choice == 0) {
        client_reset(fd);
        return;
    }
    if (choice == 1) { /* hold is answered, so that there is an end */
        shutdown(fd, SHUT_WR);
        for (int i = 0; i < 2000 && !client_sees_close(fd, 5); i++)
            test_server_release(&server);
    }
    close(fd);
}

static void random_client(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    for (int i = 0; i < 150; i++) {
        int fd = client_connect(&server);
        struct buf bytes = {0};
        for (int n = rand_r(&seed) % 5; n >= 0; n--)
            buf_puts(&bytes, pieces[(size_t)rand_r(&seed) % (sizeof pieces / sizeof *pieces)]);
        if (rand_r(&seed) % 3 == 0)
            bytes.len -= (size_t)rand_r(&seed) % 40 + 1;
        for (size_t at = 0, step; at < bytes.len; at += step) {
            step = (size_t)rand_r(&seed) % (bytes.len - at) + 1;
            client_send(fd, bytes.data + at, step);
            if (rand_r(&seed) % 4 == 0)
                sleep_ms(1);
        }
        random_end(fd, (unsigned)rand_r(&seed) % 3);
        buf_clear(&bytes);
    }
}

/* Nothing breaks, every request ends (test_server_stop counts them), and the server serves on. */
START_TEST(random_clients)
{
    enum { CLIENTS = 4 };
    uv_thread_t threads[CLIENTS];
    unsigned seeds[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++) {
        seeds[i] = 1000 + i;
        uv_thread_create(&threads[i], random_client, &seeds[i]);
    }
    for (int i = 0; i < CLIENTS; i++)
        uv_thread_join(&threads[i]);
    int fd = client_connect(&server);
    client_puts(fd, OK);
    expect_answer(fd, 200, "ok");
    close(fd);
}
END_TEST

/* ---- stopping ---- */

START_TEST(stop_closes_idle_ones_and_waits_for_answers)
{
    int idle = client_connect(&server);
    int kept = client_connect(&server);
    client_puts(kept, OK);
    expect_answer(kept, 200, "ok");
    int answered = client_connect(&server); /* and still sending its body */
    client_puts(answered, "POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nhe");
    expect_answer(answered, 200, "ok");
    int busy = client_connect(&server);
    client_puts(busy, "GET /late?ms=300 HTTP/1.1\r\nHost: a\r\n\r\n" OK);
    wait_for(&server.requests, 3);
    uint64_t start = clock_monotonic_ms();
    server.stop_deadline_ms = 5000;
    atomic_store(&server.stop, 1);
    uv_async_send(&server.command);
    ck_assert(client_sees_close(idle, 1000));
    ck_assert(client_sees_close(kept, 1000));
    ck_assert(client_sees_close(answered, 1000));
    close(answered);
    int refused = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ne(connect(refused, (struct sockaddr *)&address, sizeof address), 0);
    expect_answer(busy, 200, "Connection: close");
    ck_assert(client_sees_close(busy, 1000));
    close(busy);
    wait_for(&server.stopped, 1);
    ck_assert_uint_lt(ms_since(start), 3000);
    ck_assert_int_eq(atomic_load(&server.requests), 3);
    close(idle);
    close(kept);
    close(refused);
    atomic_store(&server.quit, 1);
    uv_async_send(&server.command);
    uv_thread_join(&server.thread);
    stopped = true;
}
END_TEST

/* Handlers that have not answered at the deadline: told, and their late answers go nowhere. */
START_TEST(stop_ends_at_the_deadline)
{
    static const char *const requests[] = {
        HOLD,
        "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
        "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
        "POST /count?pause=500 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
        "POST /ok HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
        "GET /big?n=50000000 HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    int fd = client_connect(&server);
    client_puts(fd, requests[_i]);
    wait_for(&server.requests, 1);
    sleep_ms(20);
    uint64_t start = clock_monotonic_ms();
    test_server_stop(&server, 100); /* releases behind the stop */
    stopped = true;
    if (_i <= 3) {
        ck_assert_int_eq(atomic_load(&server.aborts), _i >= 2);
        ck_assert_int_eq(atomic_load(&server.gone), 1);
    }
    ck_assert_uint_lt(ms_since(start), 3000);
    ck_assert(client_sees_close(fd, 1000));
    close(fd);
}
END_TEST

/* ---- many ---- */

static void setup_many(void)
{
    test_server_init(&server);
    server.config.connections_max = 6000;
    server.config.keep_alive_ms = 60000;
    test_server_start(&server);
}

START_TEST(thousands_of_idle_connections)
{
    enum { COUNT = 5000, BYTES_MAX = 8192 };
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > 2 * COUNT + 100
                    ? COUNT
                    : (int)(limit.rlim_max - 100) / 2;
    int *fds = mem_array((size_t)count, sizeof *fds);
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < count; i++) {
        fds[i] = client_connect(&server);
        client_puts(fds[i], OK);
        expect_answer(fds[i], 200, "ok");
    }
    struct mallinfo2 after = mallinfo2();
    size_t each = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / (size_t)count;
    ck_assert_msg(each <= BYTES_MAX, "%zu bytes per idle connection", each);
    for (int i = 0; i < count; i += 7) {
        client_puts(fds[i], OK);
        expect_answer(fds[i], 200, "ok");
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
    free(fds);
}
END_TEST

#define ROWS(array) (int)(sizeof(array) / sizeof *(array))

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
    Suite *suite = suite_create("http_life");
    TCase *tcase = tcase_with(suite, "hasty", setup_hasty);
    tcase_add_loop_test(tcase, a_slow_head_is_408, 0, 2);
    tcase_add_test(tcase, a_dribbling_head_is_408);
    tcase_add_loop_test(tcase, an_idle_connection_is_closed, 0, 3);
    tcase_add_test(tcase, a_long_answer_is_no_idleness);
    tcase_add_test(tcase, an_answer_that_is_not_taken);
    tcase_add_test(tcase, an_answer_that_is_taken_slowly);
    tcase = tcase_with(suite, "life", setup);
    tcase_add_loop_test(tcase, vanishes, 0, 4 * ROWS(phases));
    tcase_add_test(tcase, a_reset_is_told_and_the_late_answer_is_harmless);
    tcase_add_loop_test(tcase, a_half_closed_client_gets_its_answers, 0, 3);
    tcase_add_test(tcase, a_half_closed_head_is_closed);
    tcase_add_test(tcase, random_clients);
    tcase_add_test(tcase, stop_closes_idle_ones_and_waits_for_answers);
    tcase_add_loop_test(tcase, stop_ends_at_the_deadline, 0, 6);
    tcase_add_test(tcase_with(suite, "many", setup_many), thousands_of_idle_connections);
    return suite_run(suite);
}
