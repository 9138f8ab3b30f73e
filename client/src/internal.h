/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libchxa share. Nothing here is exported: names begin with cx_, so that they also collide with
 * nobody's in a statically linked program.
 *
 * Memory: every allocation of the library's own goes through cx_alloc, which tests let fail; NULL is handled everywhere
 * and becomes CHXA_ERR_NO_MEMORY. What a caller frees with chxa_free is plain malloc memory.
 * Time:   cx_now_ms() is monotonic. A `deadline` is such a point in time; a `…_ms` is a duration.
 */
#ifndef CX_INTERNAL_H
#define CX_INTERNAL_H

#include "client/include/chxa/chxa.h"

#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#define CX_URLS_MAX         64u
#define CX_ANSWER_BYTES_MAX ((size_t)64 << 20)
#define CX_NEVER            UINT64_MAX /* a deadline without end */

/* ---- mem.c: memory, text, time, chance ---- */

/* For tests: called before each allocation; false makes it fail. */
extern bool (*cx_alloc_hook)(size_t bytes);

void *cx_alloc(size_t bytes); /* zeroed; NULL: none left */
void *cx_realloc(void *memory, size_t bytes);
char *cx_strdup(const char *text); /* NULL for NULL too */
void cx_wipe(void *memory, size_t bytes);

/* Text that grows. After a failed allocation it stays as it is and `failed` is set: check once, at the end. */
struct cx_buf {
    char *data; /* NUL-terminated once anything was put */
    size_t len, room;
    bool failed;
};
void cx_buf_put(struct cx_buf *buf, const void *data, size_t len);
void cx_buf_puts(struct cx_buf *buf, const char *text);
void cx_buf_printf(struct cx_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cx_buf_uri(struct cx_buf *buf, const char *text);  /* percent-encoded */
void cx_buf_json(struct cx_buf *buf, const char *text); /* a JSON string, with its quotes */
void cx_buf_clear(struct cx_buf *buf);

uint64_t cx_now_ms(void);
int64_t cx_wall_ms(void);
uint64_t cx_deadline(uint64_t from, uint64_t duration_ms); /* saturates */
void cx_sleep_until(uint64_t when);
void cx_random(void *ret_bytes, size_t n);
/* 32 hex digits. */
void cx_random_id(char *ret_id, size_t room);
/* A condition variable on the monotonic clock. 0, or NO_MEMORY. */
int cx_cond_init(pthread_cond_t *cond);
/* False: the deadline passed. */
bool cx_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);

bool cx_id_valid(const char *id);
/* Bytes of the character at text, 0 if it is none: RFC 3629, so no overlong forms and no surrogates. */
size_t cx_utf8_step(const char *text);
bool cx_utf8_valid(const char *text);

/* ---- error.c ---- */

/* Fills *error from the lists and returns code. attempts, http_status, state and owner_url stay as they are. */
int cx_fail(struct chxa_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int cx_no_memory(struct chxa_error *error);
/* Success; keeps what cx_fail keeps. */
int cx_done(struct chxa_error *error);
/* The caller's struct or the local one, emptied. */
struct chxa_error *cx_error_start(struct chxa_error *given, struct chxa_error *local);
/* Cut at a character's end; what is no UTF-8 becomes '?'. */
void cx_error_message(struct chxa_error *error, const char *text);
int cx_error_from_name(const char *name); /* 0: none */
enum chxa_txn_state cx_state_from_name(const char *name);

/* ---- client.c ---- */

struct cx_easy; /* a curl handle with what it last spoke to */

struct chxa_client {
    struct chxa_client_options options; /* pointers to copies of our own */
    char *urls[CX_URLS_MAX];            /* origins, normalized */
    bool only_https;                    /* every URL is: nothing is ever sent in clear */
    char *agent;
    pthread_mutex_t lock; /* everything below */
    pthread_cond_t freed;
    unsigned next_url;
    struct cx_easy *idle;
    unsigned n_easy;
};

/* Normalizes "HTTP://Host:80/" to "http://host"; false: not an http(s) origin without user, path and query. */
bool cx_url_origin(const char *url, char *ret_origin, size_t room);
/* The origin of any absolute URL. */
bool cx_url_cut(const char *url, char *ret_origin, size_t room);
bool cx_url_is_https(const char *origin);
/* The order in which the nodes are tried, by write_mode; only a begin takes its turn in a round robin. */
void cx_client_order(struct chxa_client *client, bool begins, unsigned order[CX_URLS_MAX]);
/* The default for 0. */
uint64_t cx_client_deadline(const struct chxa_client *client, uint64_t deadline_ms);

/* ---- http.c: one request, one answer ---- */

struct cx_body {
    const void *data; /* or: */
    size_t len;
    chxa_read_function *read; /* a body of unknown length */
    chxa_rewind_function *rewind;
    void *context;
    const char *content_encoding;
    bool json;
    bool there;   /* false: a request without a body */
    bool touched; /* some of it was read: only a rewind makes it whole again */
};

enum cx_end {
    CX_ANSWERED,    /* a whole HTTP answer */
    CX_UNREACHABLE, /* nothing was sent */
    CX_UNTRUSTED,   /* likewise: TLS; trying again does not help */
    CX_LOST,        /* sent, or partly; no whole answer */
    CX_GARBAGE,     /* what came is not HTTP, or too long */
    CX_CANCELLED,   /* by the body's reader */
    CX_NO_MEMORY,
    CX_EXHAUSTED, /* no connection was free before the deadline */
};

struct cx_answer {
    enum cx_end end;
    long status;
    uint64_t retry_after_ms;
    char location[CHXA_URL_BYTES_MAX + 1]; /* origin of a redirect; "": none that can be used */
    struct cx_buf text;                    /* NUL-terminated if any */
    bool body_ended;                       /* the last byte of the request's body was handed over */
    char why[256];                         /* for people */
};

struct cx_request {
    struct chxa_client *client;
    const char *method, *origin, *target; /* target: path and query */
    struct cx_body *body;
    uint64_t deadline;
    const atomic_bool *cancel; /* or NULL; breaks it off within a second */
};

void cx_http_perform(const struct cx_request *request, struct cx_answer *ret_answer);
void cx_http_free_easies(struct chxa_client *client);
void cx_answer_clear(struct cx_answer *answer);

/* ---- call.c: a request until it is answered for good ---- */

struct cx_call {
    struct chxa_client *client;
    const char *method;
    const char *target; /* path and query; wait_ms is added to it if `waits` */
    const char *origin; /* the first to ask, or NULL */
    struct cx_body body;
    uint64_t deadline; /* with a body from a reader it counts from the end of the first upload */
    const atomic_bool *cancel;
    bool waits;     /* takes wait_ms */
    bool to_end;    /* 202 is asked again until the deadline */
    bool only_here; /* at origin and nowhere else (421 may name another) */
    bool begins;    /* once it may have happened at a node, at no other */
    bool raw;       /* a 2xx need not be a JSON object */

    /* results */
    char answered_by[CHXA_URL_BYTES_MAX + 1];
    struct cx_buf text; /* the last answer's body */
    json_t *json;       /* of a 2xx: an object; else NULL */
    bool body_ended;    /* of the last attempt */
};

/*
 * Returns 0 for a 2xx with a JSON object, else a code; *error is filled, also with state and owner_url of the answer.
 * call->text and call->json are the caller's to clear in every case.
 */
int cx_call_run(struct cx_call *call, struct chxa_error *error);
void cx_call_clear(struct cx_call *call);
/* GET of a transaction's record, in the time that a call has; else as cx_call_run. *ret_call is filled in every case. */
int cx_call_get_txn(struct chxa_client *client, const char *xid, struct cx_call *ret_call,
                    struct chxa_error *error);

/* ---- json.c: reading it; 0 or NULL: not there, or of another kind ---- */

const char *cx_json_text(const json_t *object, const char *key);
uint64_t cx_json_number(const json_t *object, const char *key);
/* Text of any JSON value, malloc'ed; NULL for null and when memory is short (*failed). */
char *cx_json_dump(const json_t *value, bool *failed);
/* 0; NO_MEMORY, or BAD_ANSWER for what is no JSON, with *ret_value NULL. */
int cx_json_parse(const char *text, json_t **ret_value, json_error_t *where);
/* INVALID_REQUEST unless it is JSON. */
int cx_json_check(const char *what, const char *text, struct chxa_error *error);

/* ---- txn.c ---- */

struct chxa_txn {
    struct chxa_client *client;
    char xid[CHXA_XID_BYTES_MAX + 1];
    char owner_url[CHXA_URL_BYTES_MAX + 1];
    bool ended;
    unsigned streams; /* open */
};

/* chxa_start at that node and no other; origin NULL: chosen by write_mode. error must be there, and emptied. */
int cx_start(struct chxa_client *client, const char *origin, const char *xid,
             const struct chxa_start_options *options, struct chxa_txn **ret_txn,
             struct chxa_error *error);

struct cx_write {
    struct chxa_client *client;
    const char *xid, *query, *write_id;
    char *
        owner_url; /* of CHXA_URL_BYTES_MAX + 1; another one is put there when the owner has moved */
    struct cx_body body;
    bool views_skip;
    uint64_t deadline;
    const atomic_bool *cancel;
};

/* One write, repeated as far as its body can be; nothing is checked here, and write_id must be given. */
int cx_write_run(struct cx_write *write, struct chxa_written *ret_written,
                 struct chxa_error *error);
/* INVALID_XID for a wrong id. */
int cx_check_id(const char *what, const char *id, struct chxa_error *error);

#endif
