/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the ClickHouse-compatible endpoint share. Private to server/http/api_clickhouse*.c.
 *
 * A request to "/" is ClickHouse's own HTTP interface. An INSERT that names a transaction (or, with
 * implicit_transactions, any INSERT) is staged; all else is passed through. Which it is, the beginning
 * of the statement tells, which may stand in the URL or at the head of a compressed body:
 *
 *   SNIFFING ──an INSERT──> WRITING ──> answered as ClickHouse would
 *      └──anything else──> PASSING ──> ClickHouse's own answer
 */
#ifndef CHXA_HTTP_API_CLICKHOUSE_H
#define CHXA_HTTP_API_CLICKHOUSE_H

#include "base/buf.h"
#include "ch/body_decode.h"
#include "ch/insert_head.h"
#include "http/api_private.h"

enum front_state { FRONT_SNIFFING, FRONT_WRITING, FRONT_PASSING };

struct front {
    struct api_call *call;
    struct http_request *request; /* call's */
    enum front_state state;
    bool reading;   /* http_request_read was called */
    bool body_over; /* on_end came */

    /* what the request says */
    char xid[CHXA_XID_BYTES_MAX + 1]; /* "": none was named */
    bool implicit;                    /* … and it gets one of its own */
    bool reads_only;                  /* passed on with readonly=2 */
    char write_id[CHXA_XID_BYTES_MAX + 1];
    char *query_id; /* what the answer says; owned */

    /* SNIFFING and WRITING: the body in clear */
    struct body_decoder *decoder;
    bool clear; /* the body is not packed: once its statement is known, the decoder is passed by */
    struct buf raw;   /* as it came, while it may have to be passed on */
    struct buf text;  /* the URL's query and the body's beginning */
    size_t body_at;   /* where in text the body begins */
    size_t try_again; /* text is looked at again when it is so long */

    struct budget *budget; /* the API's */
    size_t held;           /* of it, for all of these */

    /* WRITING */
    char *statement; /* up to the rows; owned */
    struct buf rows; /* those that came with it */
    size_t rows_at;
    struct coord_write *write;
    bool wanted; /* the coordinator takes rows */
    bool ended;  /* it was told the end */

    /* PASSING */
    struct ch_pass *pass;
    bool head_told, gone;
    int answer_status;
};

/* ---- api_clickhouse.c ---- */

/* Frees it, and the call unless it was answered. */
void front_free(struct front *front);
/* Reads the body, or goes on reading it. */
void front_read(struct front *front);

/* Counts anew what it holds, when that has become less. */
void front_count(struct front *front);
/* Up to room bytes of the body in clear; *ret_len 0: it has to come first. BUSY when that takes more memory
 * than is left, UNSUPPORTED_ENCODING when it is more than there can be. */
int front_decode(struct front *front, char *to, size_t room, size_t *ret_len, struct error *error);

/* ---- api_clickhouse_write.c ---- */

/* The statement is an INSERT of a transaction: front->statement and rows are set. */
void front_write(struct front *front);
/* The write takes what is there: rows that came with the statement, then the decoder's. */
void front_feed(struct front *front);

/* ---- api_clickhouse_pass.c ---- */

/* Is the body multipart/form-data? ClickHouse takes parameters from it, the statement too. */
bool front_has_form(const struct http_request *request);
/* Passes the request on; front->raw goes first. */
void front_pass(struct front *front);

/* ---- api_clickhouse_answer.c ---- */

/* An empty 200 with Query-Id and Summary. Frees the front. */
void front_answer_written(struct front *front, uint64_t rows, uint64_t bytes, bool replay);
/* The same for a write that was gathered: what it left is not known yet. */
void front_answer_gathered(struct front *front, bool replay);
/* As ClickHouse says it: "Code: N. DB::Exception: …". Frees the front. */
void front_answer_error(struct front *front, int code, const char *message);

#endif
