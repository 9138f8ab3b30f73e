/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's own request, passed through to ClickHouse: method, target, headers and body as they
 * came, the answer as it comes, both streamed with back-pressure. Nothing is added, least of all the
 * node's own account.
 *
 * Left out of both directions are the headers of one hop (RFC 9110 section 7.6.1), those that
 * Connection names among them, and those of the framing; the body keeps its bytes, not its chunks.
 * Host is ClickHouse's. The body goes on while the answer comes, until that ends.
 *
 * Each request has a connection of its own, because curl would send one silently again when a kept
 * connection turns out to be dead, and an INSERT must not be sent twice.
 *
 * Threads: the loop's. on_head and on_data are called inside curl: they must not call anything of
 * this header. on_drain and on_done come from the loop. on_done comes exactly once, last, never inside
 * ch_pass_start; then the request is gone.
 */
#ifndef CHXA_CH_CH_HTTP_PASS_H
#define CHXA_CH_CH_HTTP_PASS_H

#include "base/budget.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ch_passer;
struct ch_pass;

struct ch_passer_config {
    const char *url; /* of ClickHouse, as ch_client_config's */
    uint64_t connect_timeout_ms;
    size_t requests_max; /* at once; more are BUSY */
    size_t buffer_bytes; /* of a body that ClickHouse does not take: high-water mark */
    struct budget
        *budget; /* of what requests hold, or NULL. One with a body that does not fit is BUSY */
};

struct ch_pass_field {
    const char *name;
    const char *value;
};

struct ch_pass_handler {
    /* The answer's head, once. body_bytes -1: not said. */
    void (*on_head)(void *arg, int status, const struct ch_pass_field *fields, size_t n_fields,
                    int64_t body_bytes);
    /* Some of its body. False: no more, until ch_pass_resume. */
    bool (*on_data)(void *arg, const void *data, size_t len);
    /* The body may go on after a ch_pass_write that returned false. */
    void (*on_drain)(void *arg);
    /* The end. 0: the answer is whole. Else, if there was no head: CLICKHOUSE_UNAVAILABLE (nothing was
     * sent), CLICKHOUSE_UNKNOWN, BUSY, CANCELLED; after it: it was cut short. */
    void (*on_done)(void *arg, int code, const struct error *error);
};

struct ch_pass_request {
    const char *method; /* GET, HEAD, POST, PUT, DELETE, OPTIONS … */
    const char *target; /* "/?query=…" */
    const struct ch_pass_field *fields;
    size_t n_fields;
    int64_t body_bytes; /* 0: none, -1: not known */
};

/* INVALID_REQUEST: the URL. */
int ch_passer_new(uv_loop_t *loop, const struct ch_passer_config *config,
                  struct ch_passer **ret_passer, struct error *error);
/* Cancels what runs, frees, then calls on_closed on a later turn. NULL: on_closed is called at once. */
void ch_passer_close(struct ch_passer *passer, void (*on_closed)(void *arg), void *arg);

/* All of the request is copied. Never NULL. */
struct ch_pass *ch_pass_start(struct ch_passer *passer, const struct ch_pass_request *request,
                              const struct ch_pass_handler *handler, void *arg);
/* Takes all (copies). False: wait for on_drain. */
bool ch_pass_write(struct ch_pass *pass, const void *data, size_t len);
/* The body is whole. Needed only with one. */
void ch_pass_end(struct ch_pass *pass);
void ch_pass_resume(struct ch_pass *pass);
/* Closes the connection to ClickHouse. on_done comes with CANCELLED, on a later turn. */
void ch_pass_cancel(struct ch_pass *pass);

#endif
