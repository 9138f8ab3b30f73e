/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening and stopping; see http.h. The server is freed on the turn in which its last handle and
 * its last connection are closed, and on_closed is told then; requests whose handlers have not
 * answered by that time live on as orphans and need no server.
 */
#include "base/mem.h"
#include "http/http_private.h"

#include <arpa/inet.h>
#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_BACKLOG 511

static bool port_parse(const char *text, int *ret_port)
{
    int port = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0')
        return false;
    for (; *text; text++)
        port = port * 10 + (*text - '0');
    if (port > 65535)
        return false;
    *ret_port = port;
    return true;
}

static bool address_parse(const char *listen, struct sockaddr_storage *ret_address)
{
    const char *colon = strrchr(listen, ':');
    int port;
    if (colon == NULL || !port_parse(colon + 1, &port))
        return false;
    size_t len = (size_t)(colon - listen);
    char host[INET6_ADDRSTRLEN + 1];
    bool bracketed = len >= 2 && listen[0] == '[' && listen[len - 1] == ']';
    if (bracketed) {
        listen++;
        len -= 2;
    }
    if (len == 0 || len >= sizeof host)
        return false;
    memcpy(host, listen, len);
    host[len] = '\0';
    if (bracketed)
        return uv_ip6_addr(host, port, (struct sockaddr_in6 *)ret_address) == 0;
    return uv_ip4_addr(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port,
                       (struct sockaddr_in *)ret_address) == 0;
}

static char *address_text(uv_tcp_t *tcp)
{
    struct sockaddr_storage address;
    int len = sizeof address;
    char host[INET6_ADDRSTRLEN];
    if (uv_tcp_getsockname(tcp, (struct sockaddr *)&address, &len) < 0)
        return mem_strdup("");
    if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address;
        uv_ip6_name(six, host, sizeof host);
        return mem_printf("[%s]:%d", host, ntohs(six->sin6_port));
    }
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address;
    uv_ip4_name(four, host, sizeof host);
    return mem_printf("%s:%d", host, ntohs(four->sin_port));
}

/* Writing to a client that went away must be an error and not a signal. */
static void ignore_sigpipe(void)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL) {
        action.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &action, NULL);
    }
}

static void server_free(struct http_server *server)
{
    void (*on_closed)(void *) = server->on_closed;
    void *arg = server->on_closed_arg;
    free(server->address);
    free(server->read_buffer);
    free(server);
    if (on_closed)
        on_closed(arg);
}

static void server_handle_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;
    if (--server->handles == 0)
        server_free(server);
}

/* The stop timer is the last handle: it is closed when nobody is left to be timed. */
static void server_close_timer(struct http_server *server)
{
    if (server->stopping && server->n_conns == 0 && !server->finished) {
        server->finished = true;
        uv_close((uv_handle_t *)&server->stop_timer, server_handle_closed);
    }
}

void server_conn_closed(struct http_server *server)
{
    server->n_conns--;
    server_close_timer(server);
}

static void server_connected(uv_stream_t *listener, int status)
{
    if (status == 0)
        conn_accept(listener->data);
}

int http_server_start(uv_loop_t *loop, const char *listen, const struct http_config *config,
                      http_handler *handler, void *arg, struct http_server **ret_server,
                      struct error *error)
{
    struct sockaddr_storage address = {0};
    if (!address_parse(listen, &address))
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "%s is not an address to listen on (host:port or [v6]:port)", listen);
    ignore_sigpipe();
    struct http_server *server = mem_alloc(sizeof *server);
    server->loop = loop;
    server->config = *config;
    server->limits = (struct http_head_limits){config->head_bytes_max, config->url_bytes_max,
                                               config->headers_max};
    server->handler = handler;
    server->arg = arg;
    server->read_buffer = mem_alloc(HTTP_READ_BYTES);
    server->listener.data = server->stop_timer.data = server;
    uv_tcp_init(loop, &server->listener);
    uv_timer_init(loop, &server->stop_timer);
    server->handles = 2;
    int code = uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0);
    if (code == 0)
        code = uv_listen((uv_stream_t *)&server->listener, LISTEN_BACKLOG, server_connected);
    if (code < 0) {
        error_set(error, CHXA_E_IO_FAILED, "cannot listen on %s: %s", listen, uv_strerror(code));
        http_server_stop(server, 0, NULL, NULL);
        return CHXA_E_IO_FAILED;
    }
    server->address = address_text(&server->listener);
    *ret_server = server;
    return 0;
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

size_t http_server_connections(const struct http_server *server)
{
    return server->n_conns;
}

static void server_stop_expired(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    for (struct http_conn *conn = server->conns, *next; conn; conn = next) {
        next = conn->next; /* closing frees nothing before a later turn */
        conn_close(conn);
    }
}

void http_server_stop(struct http_server *server, uint64_t deadline_ms,
                      void (*on_closed)(void *arg), void *arg)
{
    assert(!server->stopping);
    server->stopping = true;
    server->on_closed = on_closed;
    server->on_closed_arg = arg;
    uv_close((uv_handle_t *)&server->listener, server_handle_closed);
    uv_timer_start(&server->stop_timer, server_stop_expired, deadline_ms, 0);
    for (struct http_conn *conn = server->conns, *next; conn; conn = next) {
        next = conn->next;
        conn_retire(conn);
    }
    server_close_timer(server);
}
