/* SPDX-License-Identifier: Apache-2.0
 *
 * What a body costs on its way to ClickHouse, in system calls: a count that no machine changes much, so that a path that
 * begins to send in crumbs, or to wait for each of them, is seen; and that nothing paces it. The calls of curl and libuv on the loop's thread are
 * counted by taking their place here.
 */
#include "base/mem.h"
#include "ch/ch_http.h"
#include "lib/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB        ((size_t)1024 * 1024)
#define BODY_BYTES (64 * MIB)
/* As the HTTP side reads them. */
#define PIECE_BYTES ((size_t)256 * 1024)

static _Thread_local struct {
    size_t sends, controls, waits;
} calls;

static char congestion[16]; /* that of the socket of the last send */

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    socklen_t room = sizeof congestion;
    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, &room), 0);
    calls.sends++;
    return (ssize_t)syscall(SYS_sendto, fd, data, len, flags, NULL, 0);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    calls.controls++;
    return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

int epoll_wait(int epfd, struct epoll_event *events, int n, int timeout)
{
    calls.waits++;
    return (int)syscall(SYS_epoll_pwait, epfd, events, n, timeout, NULL, (size_t)8);
}

int epoll_pwait(int epfd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    calls.waits++;
    return (int)syscall(SYS_epoll_pwait, epfd, events, n, timeout, mask, (size_t)8);
}

/* ---- a server that takes one body, as fast as it can ---- */

static void *serve(void *arg)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    int listener = *(int *)arg;
    int fd = accept(listener, NULL, NULL);
    /* The last bytes that came stand in front of the next: the end may come in two pieces. */
    static const char end[7] = "\r\n0\r\n\r\n";
    char *space = mem_alloc(sizeof end + MIB);
    size_t all = 0;
    ssize_t got;
    while (memcmp(space, end, sizeof end) != 0 && (got = read(fd, space + sizeof end, MIB)) > 0) {
        all += (size_t)got;
        memmove(space, space + got, sizeof end);
    }
    ck_assert_uint_ge(all, BODY_BYTES);
    ck_assert_int_eq(write(fd, answer, sizeof answer - 1), sizeof answer - 1);
    free(space);
    close(fd);
    return NULL;
}

/* ---- one upload ---- */

static struct upload {
    struct ch_request *request;
    char *piece;
    size_t left;
    bool done;
} upload;

static void feed(void *arg)
{
    (void)arg;
    bool more = true;
    while (upload.left && more) {
        more = ch_upload_write(upload.request, upload.piece, PIECE_BYTES);
        upload.left -= PIECE_BYTES;
    }
    if (upload.left == 0 && upload.piece) {
        ch_upload_end(upload.request);
        free(upload.piece);
        upload.piece = NULL;
    }
}

static void done(void *arg, const struct ch_answer *answer)
{
    (void)arg;
    ck_assert_msg(answer->code == 0, "%s", answer->code ? error_message(answer->error) : "");
    ck_assert_uint_eq(answer->sent_bytes, BODY_BYTES);
    upload.done = true;
}

static void closed(void *arg)
{
    *(bool *)arg = true;
}

START_TEST(a_body_is_sent_in_large_pieces)
{
    uv_loop_t loop;
    pthread_t server;
    struct ch_client *client;
    struct error error = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    ck_assert_int_eq(pthread_create(&server, NULL, serve, &listener), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    const struct ch_client_config config = {.url = url,
                                            .connect_timeout_ms = 2000,
                                            .connections_max = 4,
                                            .queue_max = 10,
                                            .answer_bytes_max = 1000};
    uv_loop_init(&loop);
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    const struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 60000};
    upload = (struct upload){.piece = mem_alloc(PIECE_BYTES), .left = BODY_BYTES};
    upload.request = ch_upload(client, &statement, NULL, feed, done, NULL);
    feed(NULL);
    while (!upload.done)
        uv_run(&loop, UV_RUN_ONCE);
    double each = (double)(BODY_BYTES / MIB);
    double sends = (double)calls.sends / each, controls = (double)calls.controls / each,
           waits = (double)calls.waits / each;
    fprintf(stderr, "per MiB: %.1f sends, %.1f epoll_ctl, %.1f epoll_wait\n", sends, controls,
            waits);
    ck_assert_uint_gt(calls.sends, 0);
    ck_assert_str_eq(congestion, "reno");
    ck_assert_uint_gt(calls.waits, 0);
    ck_assert_double_lt(sends, 20);
    ck_assert_double_lt(controls, 8);
    ck_assert_double_lt(waits, 32);
    bool gone = false;
    ch_client_close(client, closed, &gone);
    while (!gone)
        uv_run(&loop, UV_RUN_ONCE);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pthread_join(server, NULL);
    close(listener);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ch_cost");
    TCase *tcase = tcase_create("body");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_body_is_sent_in_large_pieces);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
