/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files behind http.h share: server.c (listening, stopping), connection.c (bytes in and
 * out, states, time-outs), request.c (what handlers call). Nobody else includes this.
 *
 * Lifetimes. A connection is freed in the close callback of its last handle. A request belongs to
 * its connection while that lives (request->conn set); then it is an orphan until the handler has
 * replied. It is freed on a turn of its own: when its answer is written, or, as an orphan, in
 * request_deferred. So no function that a handler calls ever frees what the handler or a caller on
 * the stack still holds.
 */
#ifndef CHXA_HTTP_HTTP_PRIVATE_H
#define CHXA_HTTP_HTTP_PRIVATE_H

#include "base/buf.h"
#include "http/body.h"
#include "http/head.h"
#include "http/http.h"
#include "http/reply.h"

/* One read, into the loop's shared buffer. Heads are read in small steps, because what follows a
 * head (pipelined requests, the start of a body) is kept per connection. */
#define HTTP_READ_BYTES      (256u * 1024u)
#define HTTP_READ_HEAD_BYTES (16u * 1024u)
#define HTTP_READ_CHUNK_BYTES                                                                      \
    (128u * 1024u) /* chunked: a pause may leave this much behind, kept per connection */
#define HTTP_FREE_BYTES                                                                            \
    (32u * 1024u) /* of a head or a collected body: not counted against the budget */
#define HTTP_LINGER_MS 2000u
#define HTTP_REPLY_BYTES                                                                           \
    (256u * 1024u)            /* of a reply in pieces, waiting to be sent: high-water mark */
#define HTTP_REFUSALS_MAX 64u /* connections above connections_max that are told BUSY */

struct http_conn;

struct http_server {
    uv_loop_t *loop;
    struct http_config config;
    struct http_head_limits limits;
    http_handler *handler;
    void *arg;
    uv_tcp_t listener;
    uv_timer_t stop_timer;
    char *address;           /* owned */
    char *read_buffer;       /* owned, HTTP_READ_BYTES; used only between alloc and read callback */
    struct http_conn *conns; /* all of them, linked */
    size_t n_conns;
    unsigned handles; /* listener and timer not closed yet */
    bool stopping;
    bool finished; /* the last handle is closing */
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/*
 *          HEAD <───────────────────────────────┐
 *            │ head complete: handler called    │ answer written, body over
 *            ├─────────────no body──────> WAIT ─┤
 *            v                             ^    │ the same, but to be closed
 *          BODY ──body over or broken──────┤    v
 *            │                             │  LINGER ──client closed, limit──> CLOSED
 *            └──replied early──> DRAIN ────┘
 *                                   └──over a limit──> LINGER
 *
 * Any state goes to CLOSED when the connection breaks, the client does not take its answer, or the
 * server's stop deadline passes.
 */
enum conn_state {
    CONN_HEAD,   /* between requests, or in the middle of a head */
    CONN_BODY,   /* the handler was called and its body is not over */
    CONN_WAIT,   /* nothing to parse until the answer is written */
    CONN_DRAIN,  /* answered; what is left of the body is thrown away */
    CONN_LINGER, /* our side is shut; bytes are thrown away until the client closes */
    CONN_CLOSED, /* handles are closing */
};

struct http_conn {
    uv_tcp_t
        tcp; /* TLS would sit between these bytes and conn_input / conn_write (a later issue) */
    uv_timer_t timer;
    uv_idle_t kick; /* open only while a turn of conn_advance is owed */
    struct http_server *server;
    struct http_conn *prev;
    struct http_conn *next;
    enum conn_state state;
    struct http_head_scan scan;
    struct buf head; /* of a head that is not complete */
    size_t held;     /* of the budget, for it */
    struct http_body body;
    struct buf rest; /* bytes read and not parsed yet, from rest_at on */
    size_t rest_at;
    struct http_request *request; /* until its answer is written */
    size_t drained_bytes;
    uint64_t input_deadline_ms; /* loop's time; 0: none */
    uint64_t write_deadline_ms;
    uint64_t timer_due_ms; /* 0: not running */
    size_t write_left;     /* seen in the write queue when write_deadline_ms was set */
    unsigned writes;       /* not finished yet */
    size_t write_bytes;    /* of them: also what is sent, until libuv says so on a later turn */
    unsigned handles;      /* not closed yet */
    bool reading;          /* uv_read_start is on */
    bool eof;              /* the client has shut its side */
    bool failed;           /* a write failed: to be closed on the next turn */
    bool reset;            /* … in a way that cannot be taken for the end of an answer */
    bool kicked;
    bool close_after; /* no further request on this connection */
};

struct http_request {
    struct http_conn *conn; /* NULL: an orphan */
    uv_loop_t *loop;
    struct http_head head;
    uint64_t received_bytes;
    uint64_t bytes_max;
    struct http_body_handler reader;
    void *reader_arg;
    void (*gone)(struct http_request *request, void *arg);
    void *gone_arg;
    void (*closed)(struct http_request *request, void *arg);
    void *closed_arg;
    struct budget *budget; /* the server's, which a request may outlive */
    size_t held;           /* of it, for the head and what is collected */
    bool no_memory;
    struct buf collected;
    void (*collect_done)(struct http_request *request, void *arg, int code, const char *body,
                         size_t len);
    void *collect_arg;
    uv_idle_t turn; /* open only while request_deferred is owed */
    bool deferred;
    bool reading; /* http_request_read was called */
    bool paused;
    bool reads_on;   /* the body is told behind the beginning of the reply too */
    bool body_over;  /* on_end or on_abort was called, or will never be */
    bool body_whole; /* an orphan's: all of it had arrived */
    bool continue_sent;
    bool replied;   /* the reply has begun */
    bool piecewise; /* … and is not given whole yet */
    /* of a piecewise reply */
    void (*drain)(struct http_request *request, void *arg);
    void *drain_arg;
    bool drain_owed;
    bool reply_chunked;
    bool reply_bodiless;       /* HEAD, 204, 304: data is dropped */
    uint64_t reply_bytes_left; /* when not chunked */
};

/* ---- connection.c ---- */

void conn_accept(struct http_server *server);
/* Closes for good; the request, if any, is told and becomes an orphan. */
void conn_close(struct http_conn *conn);
/* Has conn_advance called on a turn of its own. */
void conn_kick(struct http_conn *conn);
/* Closes what is idle; has the rest close when its answer is written. */
void conn_retire(struct http_conn *conn);
/* Stops or starts reading from the socket, as state and request ask for. */
void conn_update(struct http_conn *conn);
/* Copies and sends. A failure closes the connection on a later turn. */
void conn_write(struct http_conn *conn, const void *data, size_t len, const void *more,
                size_t more_len);
/* The handler has answered, or begins to: what becomes of the body. */
void conn_replied(struct http_conn *conn);
/* A piecewise reply is over. Not whole: closes the connection on a later turn. */
void conn_reply_over(struct http_conn *conn, bool whole);
/* Will there be a next request on this connection, as far as is known now? */
bool conn_keeps_alive(const struct http_conn *conn);

/* ---- request.c ---- */

struct http_request *request_new(struct http_conn *conn, struct http_head *head);
/* Frees; closed was called by it. Only from a turn of the loop, never under a handler. */
void request_free(struct http_request *request);
void request_orphan(struct http_request *request, bool body_whole);
/* Some of the reply was sent. */
void request_drained(struct http_request *request);
void request_deliver(struct http_request *request, const char *data, size_t len);
void request_body_end(struct http_request *request);
void request_body_abort(struct http_request *request, int code);

/* ---- server.c ---- */

void server_conn_closed(struct http_server *server);

#endif
