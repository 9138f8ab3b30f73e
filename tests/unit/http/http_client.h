/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of server/http: a server on a loop of its own thread, with a handler that does what
 * the path says (see test_handle), and a raw blocking client on the test's thread that sends bytes
 * as scripted. All inline, so that each test program stays one file.
 */
#ifndef CHXA_TESTS_HTTP_CLIENT_H
#define CHXA_TESTS_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENT_PATIENCE_MS 20000

struct test_server {
    struct http_config config; /* may be changed before test_server_start */
    http_handler *handler;
    char address[64];
    int port;
    uint64_t stop_deadline_ms;
    /* what the handler saw */
    atomic_int requests;
    atomic_int ends;
    atomic_int aborts;
    atomic_int abort_code;
    atomic_int gone;
    atomic_int closed;
    atomic_llong received;
    atomic_llong largest;
    atomic_int stopped;
    /* commands for the loop's thread */
    atomic_int release; /* answer what is held */
    atomic_int stop;
    atomic_int quit;
    uv_async_t command;
    uv_thread_t thread;
    uv_loop_t loop;
    uv_sem_t started;
    struct http_server *server;
    struct test_request *held;
};

/* What the handler keeps for a request. */
struct test_request {
    struct test_server *server;
    struct http_request *request;
    struct test_request *next; /* in held */
    uv_timer_t timer;
    uint64_t sum;
    uint64_t bytes;
    uint64_t pause_ms;
    bool ended;
    bool paused;
    bool mid; /* answers at the first piece */
};

static inline void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- the handler: callbacks on the loop's thread ---- */

static inline void test_closed(struct http_request *request, void *arg)
{
    struct test_request *test = arg;
    (void)request;
    atomic_fetch_add(&test->server->closed, 1);
    free(test);
}

static inline void test_gone(struct http_request *request, void *arg)
{
    struct test_request *test = arg;
    (void)request;
    atomic_fetch_add(&test->server->gone, 1);
}

static inline void test_reply(struct test_request *test, int status, const char *text)
{
    http_request_reply(test->request, status, NULL, 0, "text/plain", text, strlen(text));
}

static inline void test_reply_code(struct test_request *test, int code)
{
    struct error error = {code, NULL};
    http_request_reply_error(test->request, &error);
}

static inline void test_collected(struct http_request *request, void *arg, int code,
                                  const char *body, size_t len)
{
    struct test_request *test = arg;
    if (code) {
        atomic_fetch_add(&test->server->aborts, 1);
        atomic_store(&test->server->abort_code, code);
        test_reply_code(test, code);
        return;
    }
    atomic_fetch_add(&test->server->ends, 1);
    ck_assert_uint_eq(strnlen(body, len + 1), len); /* the tests send no NUL */
    http_request_reply(request, 200, NULL, 0, "text/plain", body, len);
}

static inline void test_resume(uv_timer_t *timer)
{
    struct test_request *test = timer->data;
    test->paused = false;
    http_request_resume(test->request);
}

static inline void test_timer_gone(uv_handle_t *handle)
{
    struct test_request *test = handle->data;
    char text[64];
    snprintf(text, sizeof text, "%llu %llu", (unsigned long long)test->bytes,
             (unsigned long long)test->sum);
    test_reply(test, 200, text);
}

static inline void test_data(struct http_request *request, void *arg, const char *data, size_t len)
{
    struct test_request *test = arg;
    atomic_fetch_add(&test->server->received, (long long)len);
    if ((long long)len > atomic_load(&test->server->largest))
        atomic_store(&test->server->largest, (long long)len);
    test->bytes += len;
    for (size_t i = 0; i < len; i++)
        test->sum = test->sum * 31 + (unsigned char)data[i];
    ck_assert(len > 0 && !test->ended && !test->paused);
    if (test->mid) {
        test->ended = true;
        uv_close((uv_handle_t *)&test->timer, test_timer_gone);
        http_request_pause(request);
    } else if (test->pause_ms) {
        test->paused = true;
        http_request_pause(request);
        uv_timer_start(&test->timer, test_resume, test->pause_ms, 0);
    }
}

static inline void test_end(struct http_request *request, void *arg)
{
    struct test_request *test = arg;
    (void)request;
    atomic_fetch_add(&test->server->ends, 1);
    ck_assert(!test->ended && !test->paused);
    test->ended = true;
    uv_close((uv_handle_t *)&test->timer, test_timer_gone);
}

static inline void test_abort_gone(uv_handle_t *handle)
{
    struct test_request *test = handle->data;
    test_reply_code(test, atomic_load(&test->server->abort_code));
}

static inline void test_abort(struct http_request *request, void *arg, int code)
{
    struct test_request *test = arg;
    (void)request;
    ck_assert(!test->ended);
    test->ended = true;
    atomic_fetch_add(&test->server->aborts, 1);
    atomic_store(&test->server->abort_code, code);
    uv_close((uv_handle_t *)&test->timer, test_abort_gone);
}

static inline void test_late(uv_handle_t *handle)
{
    test_reply(handle->data, 200, "late");
}

static inline void test_late_fired(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, test_late);
}

static inline void test_start_reading(struct test_request *test, uint64_t bytes_max)
{
    static const struct http_body_handler reader = {test_data, test_end, test_abort};
    http_request_read(test->request, &reader, bytes_max, test);
}

static inline void test_now_data(struct http_request *request, void *arg, const char *data,
                                 size_t len)
{
    struct test_request *test = arg;
    (void)request;
    (void)data;
    (void)len;
    ck_assert(!test->ended);
    test->ended = true;
    test_reply(test, 200, "now");
}

static inline void test_never(struct http_request *request, void *arg)
{
    (void)request;
    (void)arg;
    ck_abort_msg("a callback behind the reply");
}

static inline void test_never_abort(struct http_request *request, void *arg, int code)
{
    (void)code;
    test_never(request, arg);
}

static inline void test_read_later(uv_timer_t *timer)
{
    test_start_reading(timer->data, 0);
}

static inline uint64_t test_param(struct http_request *request, const char *name)
{
    const char *value = http_request_param(request, name);
    return value ? strtoull(value, NULL, 10) : 0;
}

static inline void test_describe(struct test_request *test)
{
    struct buf text = {0};
    const char *name;
    const char *value;
    buf_printf(&text, "%s %s", http_request_method(test->request),
               http_request_path(test->request));
    for (size_t i = 0; http_request_param_at(test->request, i, &name, &value); i++)
        buf_printf(&text, " [%s]=[%s]", name, value);
    for (size_t i = 0; http_request_header_at(test->request, i, &name, &value); i++)
        if (strncasecmp(name, "X-", 2) == 0)
            buf_printf(&text, " {%s}={%s}", name, value);
    http_request_reply(test->request, 200, NULL, 0, NULL, text.data, text.len);
    buf_clear(&text);
}

static inline void test_big(struct test_request *test, size_t bytes)
{
    char *body = mem_alloc(bytes + 1);
    memset(body, 'b', bytes);
    http_request_reply(test->request, 200, NULL, 0, "text/plain", body, bytes);
    free(body);
}

/* By the end of the path:
 *   ok        answers at once, reads nothing          echo   collects (n=: at most), answers it
 *   count     streams (n=: at most, pause=: ms after each piece), answers bytes and checksum
 *   later     starts to stream after ms= milliseconds  late  answers after ms= milliseconds
 *   now       answers inside the first on_data         mid   pauses there, answers on another turn
 *   hold      answers when told, reads nothing
 *   big       answers n= bytes                         show  answers what was parsed
 *   length    answers LENGTH_REQUIRED
 *   badheader answers with a header that must not be   */
static inline void test_handle(struct http_request *request, void *arg)
{
    struct test_server *server = arg;
    struct test_request *test = mem_alloc(sizeof *test);
    const char *path = strrchr(http_request_path(request), '/');
    const char *name = path ? path + 1 : "show";
    test->server = server;
    test->request = request;
    test->pause_ms = test_param(request, "pause");
    test->timer.data = test;
    atomic_fetch_add(&server->requests, 1);
    http_request_on_close(request, test_closed, test);
    http_request_on_gone(request, test_gone, test);
    if (strcmp(name, "ok") == 0) {
        test_reply(test, 200, "ok");
    } else if (strcmp(name, "echo") == 0) {
        uint64_t max = test_param(request, "n");
        http_request_collect(request, max ? max : 1 << 20, test_collected, test);
    } else if (strcmp(name, "count") == 0) {
        uv_timer_init(&server->loop, &test->timer);
        test_start_reading(test, test_param(request, "n"));
    } else if (strcmp(name, "mid") == 0) {
        test->mid = true;
        uv_timer_init(&server->loop, &test->timer);
        test_start_reading(test, 0);
    } else if (strcmp(name, "now") == 0) {
        static const struct http_body_handler reader = {test_now_data, test_never,
                                                        test_never_abort};
        http_request_read(request, &reader, 0, test);
    } else if (strcmp(name, "later") == 0) {
        uv_timer_init(&server->loop, &test->timer);
        uv_timer_start(&test->timer, test_read_later, test_param(request, "ms"), 0);
    } else if (strcmp(name, "late") == 0) {
        uv_timer_init(&server->loop, &test->timer);
        uv_timer_start(&test->timer, test_late_fired, test_param(request, "ms"), 0);
    } else if (strcmp(name, "hold") == 0) {
        test->next = server->held;
        server->held = test;
    } else if (strcmp(name, "big") == 0) {
        test_big(test, test_param(request, "n"));
    } else if (strcmp(name, "length") == 0) {
        test_reply_code(test, CHXA_E_LENGTH_REQUIRED);
    } else if (strcmp(name, "badheader") == 0) {
        struct http_header bad = {"X-Bad", "a\r\nX-Injected: b"};
        http_request_reply(request, 200, &bad, 1, NULL, "x", 1);
    } else {
        test_describe(test);
    }
}

/* ---- the server's thread ---- */

static inline void test_stopped(void *arg)
{
    struct test_server *server = arg;
    atomic_store(&server->stopped, 1);
}

static inline void test_command(uv_async_t *async)
{
    struct test_server *server = async->data;
    if (atomic_exchange(&server->release, 0)) {
        struct test_request *held = server->held;
        server->held = NULL;
        for (struct test_request *next; held; held = next) {
            next = held->next;
            test_reply(held, 200, "released");
        }
    }
    if (atomic_exchange(&server->stop, 0))
        http_server_stop(server->server, server->stop_deadline_ms, test_stopped, server);
    if (atomic_exchange(&server->quit, 0))
        uv_close((uv_handle_t *)async, NULL);
}

static inline void test_run(void *arg)
{
    struct test_server *server = arg;
    struct error error = {0};
    uv_loop_init(&server->loop);
    uv_async_init(&server->loop, &server->command, test_command);
    server->command.data = server;
    int code = http_server_start(&server->loop, "127.0.0.1:0", &server->config, server->handler,
                                 server, &server->server, &error);
    ck_assert_msg(code == 0, "%s", error_message(&error));
    snprintf(server->address, sizeof server->address, "%s", http_server_address(server->server));
    uv_sem_post(&server->started);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&server->loop), 0);
}

static inline void test_server_init(struct test_server *server)
{
    memset(server, 0, sizeof *server);
    server->handler = test_handle;
    server->config = (struct http_config){
        .connections_max = 100,
        .head_bytes_max = 8192,
        .url_bytes_max = 4096,
        .headers_max = 50,
        .head_timeout_ms = 5000,
        .body_idle_timeout_ms = 5000,
        .keep_alive_ms = 5000,
        .write_timeout_ms = 5000,
        .drain_bytes_max = 65536,
    };
}

static inline void test_server_start(struct test_server *server)
{
    uv_sem_init(&server->started, 0);
    ck_assert_int_eq(uv_thread_create(&server->thread, test_run, server), 0);
    uv_sem_wait(&server->started);
    server->port = (int)strtol(strrchr(server->address, ':') + 1, NULL, 10);
}

static inline void wait_for(atomic_int *value, int at_least)
{
    for (int i = 0; atomic_load(value) < at_least; i++) {
        ck_assert_msg(i < CLIENT_PATIENCE_MS / 2, "waited too long for %d, is %d", at_least,
                      atomic_load(value));
        sleep_ms(2);
    }
}

static inline void test_server_release(struct test_server *server)
{
    atomic_store(&server->release, 1);
    uv_async_send(&server->command);
}

/* Stops, answers what is held, ends the loop; every request must have been closed by then. */
static inline void test_server_stop(struct test_server *server, uint64_t deadline_ms)
{
    server->stop_deadline_ms = deadline_ms;
    atomic_store(&server->stop, 1);
    uv_async_send(&server->command);
    wait_for(&server->stopped, 1);
    atomic_store(&server->release, 1);
    atomic_store(&server->quit, 1);
    uv_async_send(&server->command);
    uv_thread_join(&server->thread);
    uv_sem_destroy(&server->started);
    ck_assert_int_eq(atomic_load(&server->closed), atomic_load(&server->requests));
}

/* ---- the client ---- */

static inline int client_connect(const struct test_server *server)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)server->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* False when the server does not take it any more. */
static inline bool client_send(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool client_puts(int fd, const char *text)
{
    return client_send(fd, text, strlen(text));
}

static inline bool client_readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms) > 0;
}

/* Appends what arrives; false at the end of the connection (or when patience is). */
static inline bool client_read_some(int fd, struct buf *into)
{
    char bytes[16384];
    if (!client_readable(fd, CLIENT_PATIENCE_MS))
        ck_abort_msg("no answer in %d ms; so far: %.200s", CLIENT_PATIENCE_MS, buf_str(into));
    ssize_t n = recv(fd, bytes, sizeof bytes, 0);
    if (n <= 0)
        return false;
    buf_append(into, bytes, (size_t)n);
    return true;
}

/* Everything until the server closes. To be freed. */
static inline char *client_read_all(int fd)
{
    struct buf all = {0};
    while (client_read_some(fd, &all))
        ;
    return buf_take(&all);
}

/* The next answer, head and body, read byte by byte up to its end so that nothing of the following
 * one is taken; NULL when there is none. no_body: of HEAD, or 100. To be freed. */
static inline char *client_read_answer(int fd, bool no_body)
{
    struct buf answer = {0};
    size_t want = 0;
    while (want == 0 || answer.len < want) {
        char bytes[8192];
        size_t step = want ? want - answer.len : 1;
        if (!client_readable(fd, CLIENT_PATIENCE_MS))
            ck_abort_msg("no answer in %d ms; so far: %.200s", CLIENT_PATIENCE_MS,
                         buf_str(&answer));
        ssize_t n = recv(fd, bytes, step < sizeof bytes ? step : sizeof bytes, 0);
        if (n <= 0) {
            buf_clear(&answer);
            return NULL;
        }
        buf_append(&answer, bytes, (size_t)n);
        if (want == 0 && strstr(buf_str(&answer), "\r\n\r\n")) {
            const char *length = strcasestr(answer.data, "\r\nContent-Length: ");
            want = answer.len;
            if (length && !no_body)
                want += strtoull(length + 18, NULL, 10);
        }
    }
    return buf_take(&answer);
}

static inline int answer_status(const char *answer)
{
    if (answer == NULL || strncmp(answer, "HTTP/1.1 ", 9) != 0)
        return 0;
    return (int)strtol(answer + 9, NULL, 10);
}

static inline const char *answer_body(const char *answer)
{
    const char *end = answer ? strstr(answer, "\r\n\r\n") : NULL;
    return end ? end + 4 : "";
}

/* Reads an answer and checks its status and (unless NULL) that it holds a text. */
static inline void expect_answer(int fd, int status, const char *text)
{
    char *answer = client_read_answer(fd, false);
    ck_assert_msg(answer_status(answer) == status && (!text || strstr(answer, text)),
                  "expected %d with \"%s\", got: %s", status, text ? text : "", answer);
    free(answer);
}

/* True when the server closes (orderly or not) within the time; what comes before is dropped. */
static inline bool client_sees_close(int fd, int timeout_ms)
{
    char bytes[4096];
    uint64_t until = clock_monotonic_ms() + (uint64_t)timeout_ms;
    for (uint64_t now; (now = clock_monotonic_ms()) < until;)
        if (client_readable(fd, (int)(until - now)) && recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

/* Closes with a reset. */
static inline void client_reset(int fd)
{
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

/* Sends bytes on a connection of their own: the first answer must have this status (0: none), and
 * the connection must be closed then. */
static inline void expect_refused(const struct test_server *server, const char *bytes, int status)
{
    int fd = client_connect(server);
    client_puts(fd, bytes);
    char *all = client_read_all(fd);
    ck_assert_msg(answer_status(all) == status, "expected %d for:\n%.200s\ngot:\n%.400s", status,
                  bytes, all);
    if (status)
        ck_assert_msg(strstr(all, "Connection: close"), "no close announced: %s", all);
    free(all);
    close(fd);
}

#endif
