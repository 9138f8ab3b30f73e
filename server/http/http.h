/* SPDX-License-Identifier: Apache-2.0
 *
 * An HTTP/1.1 server on libuv and llhttp: connections, limits, time-outs, streaming bodies with
 * back-pressure, one request at a time per connection (a pipelined one waits until the answer
 * before it is sent).
 *
 * Threads: the loop's. A handler runs when the head is complete; nothing of the body has been read
 * then.
 *
 * Rules (wire facts, "HTTP"): both lengths, duplicate or malformed Content-Length, bare LF in a
 * head, obs-fold, a Transfer-Encoding other than chunked, HTTP/0.9 and 2: 400 and close. Oversized:
 * 414, 431, 413, and close. POST or PUT with neither length has an empty body (RFC 9112, 6.3); a
 * handler that needs one answers LENGTH_REQUIRED (411, then close). Slow head: 408 and close. Idle
 * body: the handler's on_abort with REQUEST_TIMEOUT. Expect: 100-continue is answered when the
 * handler starts to read the body, or by its final 4xx (then close). The rest of a body that no one
 * read is drained up to drain_bytes_max, then the connection is closed. A client that half-closes
 * after a complete request still gets its answer. Errors found here are answered as {"error":{…}}
 * like all others.
 */
#ifndef CHXA_HTTP_HTTP_H
#define CHXA_HTTP_HTTP_H

#include "base/budget.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct http_server;
/* The handler's from its call until it calls http_request_reply, then http's; its memory goes when
 * the answer was written or lost: http_request_on_close tells. A client that vanished changes
 * nothing in this. */
struct http_request;

struct http_config {
    size_t connections_max; /* more are answered 503 BUSY and closed */
    size_t head_bytes_max;  /* request line and headers together */
    size_t url_bytes_max;
    size_t headers_max; /* number of header fields */
    uint64_t head_timeout_ms;
    uint64_t
        body_idle_timeout_ms;  /* no byte of the body for so long, while the handler wants bytes */
    uint64_t keep_alive_ms;    /* idle between requests; announced in Keep-Alive; at least 3000 */
    uint64_t write_timeout_ms; /* client does not take its answer */
    size_t drain_bytes_max;
    struct budget
        *budget; /* of what is kept of long heads and collected bodies, or NULL; past it: BUSY */
};

typedef void http_handler(struct http_request *request, void *arg);

/* Binds (port 0: the kernel chooses) and listens. CHXA_E_INVALID_REQUEST for an address that is
 * none ("host:port", "[v6]:port"), CHXA_E_IO_FAILED when it cannot be bound. */
int http_server_start(uv_loop_t *loop, const char *listen, const struct http_config *config,
                      http_handler *handler, void *arg, struct http_server **ret_server,
                      struct error *error);
/* "127.0.0.1:8124": what was bound. */
const char *http_server_address(const struct http_server *server);
/* Open client connections, for the gauge. */
size_t http_server_connections(const struct http_server *server);
/* Stops accepting, closes what is idle, lets requests under way finish for at most deadline_ms from
 * now, then closes all, frees and calls on_closed (on a later turn). A request that is not answered
 * even then stays valid for its handler, which still owes (and may make) its reply; the loop must
 * run for that. */
void http_server_stop(struct http_server *server, uint64_t deadline_ms,
                      void (*on_closed)(void *arg), void *arg);

/* ---- the request; strings live as long as it ---- */

const char *http_request_method(const struct http_request *request);
/* Percent-decoded path, e.g. "/v1/transactions/a". A path with an encoded NUL or '/' is refused
 * before the handler (400). */
const char *http_request_path(const struct http_request *request);
/* Raw request target as sent. */
const char *http_request_target(const struct http_request *request);
/* First value of a URL parameter, form-decoded; NULL when absent. */
const char *http_request_param(const struct http_request *request, const char *name);
/* Parameters in order: false when index is past the end. */
bool http_request_param_at(const struct http_request *request, size_t index, const char **ret_name,
                           const char **ret_value);
/* First value of a header, name case-insensitive; NULL when absent. */
const char *http_request_header(const struct http_request *request, const char *name);
/* Headers in order, as sent: false when index is past the end. */
bool http_request_header_at(const struct http_request *request, size_t index, const char **ret_name,
                            const char **ret_value);
/* Content-Length; -1 when chunked; 0 when there is no body. */
int64_t http_request_body_bytes(const struct http_request *request);

/* ---- the body ---- */

struct http_body_handler {
    /* Some bytes, valid during the call. */
    void (*on_data)(struct http_request *request, void *arg, const char *data, size_t len);
    /* The body arrived whole. Exactly one of on_end and on_abort comes, unless the handler replies
     * first: after its reply nothing of the body is told any more. */
    void (*on_end)(struct http_request *request, void *arg);
    /* It will not: BODY_TRUNCATED (client gone or framing broken), REQUEST_TIMEOUT, BODY_TOO_LARGE;
     * BUSY, of a body that is collected.
     * When the connection still works the handler's reply is sent; replying is always allowed, and
     * needed. */
    void (*on_abort)(struct http_request *request, void *arg, int code);
};
/* Starts reading (sends 100 Continue if asked for). bytes_max 0: no limit. Callbacks on later
 * turns. */
void http_request_read(struct http_request *request, const struct http_body_handler *handler,
                       uint64_t bytes_max, void *arg);
/* Before http_reply_start: the body goes on being told behind it, until http_reply_end. */
void http_request_read_on(struct http_request *request);
/* Back-pressure: stop and go on. Between them no callback of the body comes (on_end neither;
 * on_abort only when the server's stop closes the connection) and nothing is read from the socket;
 * while paused the idle time-out does not run, and a client that goes away is not noticed. Resume's
 * callbacks come on a later turn. */
void http_request_pause(struct http_request *request);
void http_request_resume(struct http_request *request);
/* Collects a small body whole, then calls done: code 0 or as on_abort; body NUL-terminated, valid
 * during the call. */
void http_request_collect(struct http_request *request, size_t bytes_max,
                          void (*done)(struct http_request *request, void *arg, int code,
                                       const char *body, size_t len),
                          void *arg);

/* ---- the answer ---- */

struct http_header {
    const char *name;
    const char *value; /* must hold no control character: checked, answered as 500 */
};
/* Sends status, headers (Content-Length, Date, Connection and Keep-Alive are added, and left out of
 * headers if they are there), body; all copied. Exactly once per request; also when the client is
 * gone (then it goes nowhere). HEAD gets no body. The handler must not use the request afterwards,
 * except in on_close. */
void http_request_reply(struct http_request *request, int status, const struct http_header *headers,
                        size_t n_headers, const char *content_type, const void *body, size_t len);
/*
 * The same in pieces, for a body that is not in memory. body_bytes: its length, or -1: in chunks (to
 * HTTP/1.0, until the connection is closed). Then any number of http_reply_data, then http_reply_end,
 * all of which are still allowed when the client is gone (on_gone tells; the bytes go nowhere).
 * Nothing of the request's body is told after the start, unless http_request_read_on asked for it. drain (may be NULL) is called on a later turn
 * when data may go on after a http_reply_data that returned false. Not whole: the connection is closed
 * without the body's end, so that the client sees that it was cut short; as it does when fewer bytes
 * than body_bytes were given.
 */
void http_reply_start(struct http_request *request, int status, const struct http_header *headers,
                      size_t n_headers, int64_t body_bytes,
                      void (*drain)(struct http_request *request, void *arg), void *arg);
/* Copies. False: enough for now, wait for drain. */
bool http_reply_data(struct http_request *request, const void *data, size_t len);
/* The handler must not use the request afterwards, except in on_close. */
void http_reply_end(struct http_request *request, bool whole);
/* {"error":{"code","message","retryable","outcome"}} with the code's status, and Retry-After where
 * it is retryable. */
void http_request_reply_error(struct http_request *request, const struct error *error);
/* Told once when the connection is gone before the reply was given whole (it is still owed): reset,
 * or the server's stop deadline. A mere half-close is not "gone". NULL removes it. */
void http_request_on_gone(struct http_request *request,
                          void (*gone)(struct http_request *request, void *arg), void *arg);
/* Told once, last, on a later turn than the reply: the answer is written or lost, and the request's
 * memory goes with the return of the callback. For what a handler wants to free only then. NULL
 * removes it. */
void http_request_on_close(struct http_request *request,
                           void (*closed)(struct http_request *request, void *arg), void *arg);

#endif
