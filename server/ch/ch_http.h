/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the node's own ClickHouse over HTTP (libcurl multi on the libuv loop; the only file
 * that knows curl is ch_http.c).
 *
 * Threads: loop's thread only. A request's done callback comes exactly once, never inside the call
 * that started it, also on cancel. After it the request is gone.
 *
 * Success is more than a 200: a non-empty X-ClickHouse-Exception-Code header, `Code: N,
 * e.displayText()` (18.16) or `Code: N. DB::Exception` at the start of a text body, or
 * `__exception__` at the end of one are failures. Always sent: wait_end_of_query=1,
 * send_progress_in_http_headers=0.
 *
 * An answer without a length (neither Content-Length nor chunked) counts as cut short.
 *
 * A statement is sent at most once: curl's silent second try on another connection is refused once
 * a byte of the request has left. Redirects and the proxies of the environment are ignored. The
 * process must ignore SIGPIPE when the URL is https.
 *
 * Seen on real servers: an INSERT begins, and is in system.processes, only when 256 KiB of body
 * (max_query_size) or its end, broken or not, have arrived; 26.7 gives up on a body that is silent
 * for 30 s (exception 209; its profile's http_receive_timeout, which a URL cannot change).
 *
 * Errors delivered:
 *   CHXA_E_CLICKHOUSE_REJECTED     known: ClickHouse answered with an exception; its text whole in
 *       error.message (up to answer_bytes_max), its number in ch_code (0: none told). Also any 3xx
 *       and 4xx. For an INSERT some blocks may have been written (into the scratch table).
 *   CHXA_E_CLICKHOUSE_UNAVAILABLE  known: nothing was sent (connection refused, DNS, queue full,
 *       time over in the queue, where a streaming request waits for memory too; client closing)
 *   CHXA_E_CLICKHOUSE_UNKNOWN      UNKNOWN: sent, and the answer was lost, timed out, was cut short
 *       or is longer than answer_bytes_max; a 5xx that is no exception of ClickHouse's
 *   CHXA_E_CANCELLED               UNKNOWN for the statement: ch_request_cancel or ch_client_close
 *       came after it was sent
 */
#ifndef CHXA_CH_CH_HTTP_H
#define CHXA_CH_CH_HTTP_H

#include "base/budget.h"
#include "base/buf.h"
#include "base/error.h"

#include <stdint.h>
#include <uv.h>

struct ch_client;
struct ch_request;

struct ch_client_config {
    const char *url;  /* http://host:port or https://… */
    const char *user; /* service account or NULL: sent as X-ClickHouse-User / X-ClickHouse-Key */
    const char *password; /* or NULL */
    uint64_t connect_timeout_ms;
    size_t connections_max;     /* concurrent requests; more wait in a queue. A quarter of them is
                                   kept for ch_query, so that statements that finish a transaction
                                   do not wait behind the bodies of slow clients */
    size_t queue_max;           /* waiting requests; more are UNAVAILABLE */
    size_t answer_bytes_max;    /* of a response body kept in memory; a longer exception is cut, any
                                   other longer answer is UNKNOWN */
    size_t upload_buffer_bytes; /* per streaming request, high-water mark; default 256 KiB */
    struct budget
        *budget; /* of what streaming requests hold, or NULL; its on_room becomes the client's */
};

int ch_client_new(uv_loop_t *loop, const struct ch_client_config *config,
                  struct ch_client **ret_client, struct error *error);
/* The loop that it runs on. */
uv_loop_t *ch_client_loop(const struct ch_client *client);
/* Cancels what runs (callbacks come first), then frees and calls on_closed. */
void ch_client_close(struct ch_client *client, void (*on_closed)(void *arg), void *arg);

/* One URL parameter; value is percent-encoded here. */
struct ch_param {
    const char *name;
    const char *value;
};

struct ch_answer {
    int code;         /* 0 or an error above */
    int http_status;  /* 0 when there was no response */
    int ch_code;      /* ClickHouse's exception number, 0: none */
    const char *body; /* NUL-terminated; valid during the callback */
    size_t body_bytes;
    const char *summary;  /* X-ClickHouse-Summary or "" */
    const char *query_id; /* X-ClickHouse-Query-Id or "" */
    struct error *error;  /* set when code is; may be moved out */
    uint64_t sent_bytes;  /* of the streamed body, handed to curl */
};
typedef void ch_answer_cb(void *arg, const struct ch_answer *answer);

struct ch_statement {
    const char *sql; /* for a streaming request it goes into the URL, unless it is long; copied */
    const char *query_id;          /* or NULL */
    const struct ch_param *params; /* copied */
    size_t n_params;
    uint64_t timeout_ms; /* whole request, waiting in the queue included; 0: none (streaming: once
                            in the queue, and again as ch_upload says) */
};

/* Runs a statement without a streamed body. Never NULL. */
struct ch_request *ch_query(struct ch_client *client, const struct ch_statement *statement,
                            ch_answer_cb *done, void *arg);

/*
 * Runs a statement whose body is streamed: `INSERT INTO … FORMAT X` in the URL (a long one at the head
 * of the body), the data chunked behind it. on_drain (may be NULL) is called when buffered data has fallen below half of
 * upload_buffer_bytes after a ch_upload_write that returned false. content_encoding (or NULL) is
 * passed on as a header, e.g. "gzip". timeout_ms counts from ch_upload_end, and from when a full buffer was touched last.
 */
struct ch_request *ch_upload(struct ch_client *client, const struct ch_statement *statement,
                             const char *content_encoding, void (*on_drain)(void *arg),
                             ch_answer_cb *done, void *arg);
/* False: it waits for a connection, or for memory; on_drain comes when that is there. Data is better
 * kept back until then: whoever waits should hold nothing. */
bool ch_upload_takes(const struct ch_request *request);
/* What a running one may hold, its user's last read included, and what it takes of the budget. */
size_t ch_upload_memory(const struct ch_client *client);
/* Takes all the data (copies it). False: the buffer is above its high-water mark, or the request has
 * not started: wait for on_drain. After done was called, must not be called; after the server answered early (error in
 * the middle), data is discarded. */
bool ch_upload_write(struct ch_request *request, const void *data, size_t len);
/* The body is whole: finish the request. Without this call the statement is never completed: the
 * terminating chunk is not sent. */
void ch_upload_end(struct ch_request *request);
/* Ends the request without its end (the connection is closed, so ClickHouse sees a broken body;
 * note that 18.16 inserts a truncated body nevertheless: the caller must retire what it wrote
 * into). done comes with CANCELLED. */
void ch_request_cancel(struct ch_request *request);

#endif
