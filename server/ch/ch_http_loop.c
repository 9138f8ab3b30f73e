/* SPDX-License-Identifier: Apache-2.0
 *
 * See ch_http_loop.h.
 */
#include "ch/ch_http_loop.h"

#include "base/mem.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct ch_http_loop {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer; /* curl's own */
    uv_timer_t kick;
    struct ch_http_loop_user user;
    size_t n_handles; /* open libuv handles */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* A socket that curl wants watched. */
struct watch {
    struct ch_http_loop *loop;
    uv_poll_t poll;
    curl_socket_t socket;
    int events;
    bool closed;
};

static void handle_gone(struct ch_http_loop *loop)
{
    if (--loop->n_handles > 0 || !loop->closing)
        return;
    void (*on_closed)(void *arg) = loop->on_closed;
    void *arg = loop->on_closed_arg;
    free(loop);
    on_closed(arg);
}

static void watch_free(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    struct ch_http_loop *loop = watch->loop;
    free(watch);
    handle_gone(loop);
}

static void on_socket_ready(uv_poll_t *poll, int status, int events);

static void watch_start(struct watch *watch)
{
    int error = uv_poll_start(&watch->poll, watch->events, on_socket_ready);
    assert(error == 0);
}

static void on_socket_ready(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = poll->data;
    struct ch_http_loop *loop = watch->loop;
    int ready = 0;
    int running;

    /* With an error pending libuv stops the watch and tells nothing more: let curl read first, then
     * find the error itself. */
    if (status < 0)
        events = watch->events;
    if (events & (UV_READABLE | UV_DISCONNECT))
        ready |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        ready |= CURL_CSELECT_OUT;
    curl_multi_socket_action(loop->multi, watch->socket, ready, &running);
    if (status < 0 && !watch->closed && !uv_is_active((uv_handle_t *)poll))
        watch_start(watch);
    loop->user.progress(loop->user.arg);
}

static int curl_watch_socket(CURL *easy, curl_socket_t socket, int what, void *arg,
                             void *socket_arg)
{
    struct ch_http_loop *loop = arg;
    struct watch *watch = socket_arg;

    if (loop->user.watching)
        loop->user.watching(loop->user.arg, easy, socket, what);
    if (what == CURL_POLL_REMOVE) {
        if (watch) {
            watch->closed = true;
            uv_close((uv_handle_t *)&watch->poll, watch_free);
            curl_multi_assign(loop->multi, socket, NULL);
        }
        return 0;
    }
    if (!watch) {
        watch = mem_alloc(sizeof *watch);
        watch->loop = loop;
        watch->socket = socket;
        watch->poll.data = watch;
        if (uv_poll_init_socket(loop->loop, &watch->poll, socket) != 0)
            abort(); /* out of memory, as in base/mem.h */
        loop->n_handles++;
        curl_multi_assign(loop->multi, socket, watch);
    }
    watch->events =
        (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    watch_start(watch);
    return 0;
}

static void on_curl_timer(uv_timer_t *timer)
{
    struct ch_http_loop *loop = timer->data;
    int running;
    curl_multi_socket_action(loop->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    loop->user.progress(loop->user.arg);
}

static int curl_set_timer(CURLM *multi, long timeout_ms, void *arg)
{
    (void)multi;
    struct ch_http_loop *loop = arg;
    if (timeout_ms < 0)
        uv_timer_stop(&loop->timer);
    else if (!uv_is_closing((uv_handle_t *)&loop->timer))
        uv_timer_start(&loop->timer, on_curl_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void on_kick(uv_timer_t *timer)
{
    struct ch_http_loop *loop = timer->data;
    loop->user.progress(loop->user.arg);
}

/* ---- interface ---- */

struct ch_http_loop *ch_http_loop_new(uv_loop_t *uv_loop, size_t connections_max,
                                      const struct ch_http_loop_user *user)
{
    struct ch_http_loop *loop = mem_alloc(sizeof *loop);
    loop->loop = uv_loop;
    loop->user = *user;
    uv_timer_init(uv_loop, &loop->timer);
    uv_timer_init(uv_loop, &loop->kick);
    loop->timer.data = loop->kick.data = loop;
    loop->n_handles = 2;
    loop->multi = curl_multi_init();
    if (!loop->multi)
        abort(); /* out of memory, as in base/mem.h */
    curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, curl_watch_socket);
    curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
    curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, curl_set_timer);
    curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
    curl_multi_setopt(loop->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(loop->multi, CURLMOPT_MAXCONNECTS, (long)connections_max);
    return loop;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
    }
    return false;
}

/* The congestion control of a machine may be one that paces what is sent (BBR). On the way to a server of the same
 * machine that only costs timers and latency: half of the processor time of a large body, both ways taken together.
 * Every Linux has Reno, and lets everybody use it. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)arg, (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && is_loopback(&address->addr))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

void ch_http_loop_set_up(CURL *easy)
{
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1l);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1l); /* never join a resolver thread here */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0l);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1l);
}

CURLM *ch_http_loop_multi(struct ch_http_loop *loop)
{
    return loop->multi;
}

void ch_http_loop_kick(struct ch_http_loop *loop)
{
    if (!uv_is_closing((uv_handle_t *)&loop->kick))
        uv_timer_start(&loop->kick, on_kick, 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    handle_gone(handle->data);
}

void ch_http_loop_close(struct ch_http_loop *loop, void (*on_closed)(void *arg), void *arg)
{
    CURLM *multi = loop->multi;
    assert(!loop->closing);
    loop->closing = true;
    loop->on_closed = on_closed;
    loop->on_closed_arg = arg;
    curl_multi_cleanup(multi); /* closes the kept connections: their watches go */
    uv_close((uv_handle_t *)&loop->timer, on_timer_closed);
    uv_close((uv_handle_t *)&loop->kick, on_timer_closed);
}
