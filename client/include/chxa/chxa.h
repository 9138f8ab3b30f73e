/* SPDX-License-Identifier: Apache-2.0
 *
 * libchxa: transactions over stock ClickHouse, for sinks.
 *
 * A client speaks to one or several chxad nodes. A transaction is started at one of them, its owner, and stays
 * there; rows written in it are seen by nobody until it is committed. The rules behind every call are in
 * proto/PROTOCOL.md of the sources; the names are those of X/Open XA where it has one.
 *
 * Threads.   A struct chxa_client may be used by any number of threads at once; it has its own lock, which is never
 *            held during a request. A struct chxa_txn, chxa_stream or chxa_sink belongs to one thread at a time
 *            (hand it over if you like, with a barrier); different ones are independent. No call installs a signal
 *            handler; no call changes the locale. SIGPIPE is not raised by this library's own sends.
 * Fork.      Nothing opened before a fork may be used in the child.
 * Text.      Strings are NUL-terminated UTF-8. A `const char *` or `const void *` given to a call is read during the
 *            call only, unless it says otherwise.
 * Ownership. What a call returns through a ret_ parameter is the caller's, to be freed by the function it names. On
 *            failure a ret_ parameter is untouched, unless it says otherwise.
 * Times.     Every duration is in milliseconds and is counted on a monotonic clock. Every *_ms point in time is Unix
 *            milliseconds by the clock of the node that wrote it.
 * Results.   Calls that return int return CHXA_OK (0) or one of the negative codes of enum chxa_error_code. The last
 *            parameter, `struct chxa_error *error`, may be NULL; otherwise every call fills it, also on success. Whether
 *            the operation happened is in error->outcome, whatever the code: see enum chxa_outcome.
 * Retries.   A call repeats its request by itself where that is harmless and may help: the answer says `retryable`, no
 *            node could be reached, or the answer was lost. It waits in between (from 100 ms, doubling to 10 s, with a
 *            random share, and at least as long as a Retry-After says) and never longer in all than its deadline. What
 *            it returns is the last answer; error->outcome says whether the operation may have happened all the same.
 * Errors.    Where a call names its errors, the general ones may come besides: INVALID_XID, INVALID_REQUEST and NO_MEMORY
 *            (of this library's: nothing was sent); UNREACHABLE, LOST, BAD_ANSWER, REDIRECTS, CREDENTIALS, UNKNOWN_CODE;
 *            ROUTE_NOT_FOUND and METHOD_NOT_ALLOWED of an older node; and what a node says of its own health: NOT_READY,
 *            BUSY, STORE_..., CLICKHOUSE_UNAVAILABLE, CLICKHOUSE_UNKNOWN, IO_FAILED, CANCELLED, INVALID_RECORD, INTERNAL.
 *            PROTOCOL.md, "Errors" and "When the answer is lost", is behind all of them.
 * Network.   HTTP/1.1 over http and https only. The environment has no part in it: no proxy, no .netrc.
 * Versions.  Option structs begin with `size`, set by their _init function; a program built against this header runs
 *            with every later library of the same soname. Symbols are versioned CHXA_1.
 */
#ifndef CHXA_CHXA_H
#define CHXA_CHXA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CHXA_API        __attribute__((visibility("default")))
#define CHXA_MUST_CHECK __attribute__((warn_unused_result))
#else
#define CHXA_API
#define CHXA_MUST_CHECK
#endif

/* The library's version, "major.minor.patch"; static storage. */
CHXA_API const char *chxa_version(void);

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/*
 * Codes 1-99 come from a node: proto/errors.def has the list, PROTOCOL.md what to do about each. Codes from 100
 * on are the library's own. Numbers never change their meaning. A node's code that this library is too old to know
 * is CHXA_ERR_UNKNOWN_CODE; its name is in the message.
 */
enum chxa_error_code {
    CHXA_OK = 0,
    CHXA_ERR_INVALID_REQUEST = -1, /* the request, or an argument of the call, is malformed */
    CHXA_ERR_INVALID_XID = -2,     /* an id is not 1-280 of A-Z a-z 0-9 . _ : - (nor "." or "..") */
    CHXA_ERR_INVALID_QUERY = -3,   /* the statement is not an INSERT that can be staged */
    CHXA_ERR_SETTING_REFUSED = -4, /* the statement has a setting that would break atomicity */
    CHXA_ERR_BODY_TRUNCATED = -5,  /* the body did not arrive whole; nothing of it was kept */
    /* unknown: never begun, or finished and forgotten. Not "rolled back" */
    CHXA_ERR_TXN_NOT_FOUND = -6,
    CHXA_ERR_ROUTE_NOT_FOUND = -7,    /* the URL is not a chxad's, or its version lacks this */
    CHXA_ERR_METHOD_NOT_ALLOWED = -8, /* likewise */
    CHXA_ERR_REQUEST_TIMEOUT = -9,    /* the node waited too long for the request */
    /* the transaction's state does not allow this; error->state has it */
    CHXA_ERR_WRONG_STATE = -10,
    CHXA_ERR_WRITE_ID_REUSED = -11, /* this write_id was used with another statement or body */
    CHXA_ERR_SCHEMA_CHANGED = -12, /* the table was altered after the rows were staged: roll back */
    /* more parts than may be attached: roll back, write in larger writes */
    CHXA_ERR_TOO_MANY_PARTS = -13,
    CHXA_ERR_FENCED = -14,    /* a newer epoch of this sink has taken over: stop */
    CHXA_ERR_NOT_OWNER = -15, /* another node owns this transaction; error->owner_url has it */
    CHXA_ERR_LENGTH_REQUIRED = -16,    /* not seen through this library */
    CHXA_ERR_BODY_TOO_LARGE = -17,     /* one write is over the node's limit */
    CHXA_ERR_URI_TOO_LONG = -18,       /* the statement is over the node's limit */
    CHXA_ERR_HEADERS_TOO_LARGE = -19,  /* not seen through this library */
    CHXA_ERR_TARGET_NOT_FOUND = -20,   /* the table does not exist */
    CHXA_ERR_TARGET_UNSUPPORTED = -21, /* rows for this kind of table cannot be staged */
    /* the table has materialized views, and views=skip was not said */
    CHXA_ERR_TARGET_HAS_VIEWS = -22,
    /* ClickHouse refused the rows; its own text is in the message */
    CHXA_ERR_CLICKHOUSE_REJECTED = -23,
    CHXA_ERR_CLICKHOUSE_UNAVAILABLE = -24, /* the node's ClickHouse cannot be reached */
    CHXA_ERR_CLICKHOUSE_UNKNOWN = -25,     /* ClickHouse's answer was lost */
    /* the coordination store cannot be reached; nothing was changed */
    CHXA_ERR_STORE_UNAVAILABLE = -26,
    CHXA_ERR_STORE_UNKNOWN = -27, /* the coordination store's answer was lost */
    CHXA_ERR_BUSY = -28,          /* a limit of the node is reached */
    CHXA_ERR_NOT_READY = -29,     /* the node is starting, stopping or without its store */
    /* the commit is decided and cannot be finished now; it goes on by itself */
    CHXA_ERR_BLOCKED = -30,
    CHXA_ERR_IO_FAILED = -31,            /* a file operation of the node failed */
    CHXA_ERR_INTERNAL = -32,             /* a fault inside chxad */
    CHXA_ERR_NO_MEMORY = -33,            /* out of memory, here or at the node */
    CHXA_ERR_INVALID_RECORD = -34,       /* the node cannot understand a stored record */
    CHXA_ERR_CANCELLED = -35,            /* cancelled before it had an effect */
    CHXA_ERR_STORE_CONFLICT = -36,       /* somebody else changed the record first */
    CHXA_ERR_EXPECTATION_FAILED = -37,   /* not seen through this library */
    CHXA_ERR_UNSUPPORTED_ENCODING = -38, /* the body's Content-Encoding is not supported */
    CHXA_ERR_PARTS_LOST = -39, /* staged rows are gone from the node's disk: roll back and replay */
    CHXA_ERR_OWNER_ALIVE = -40, /* only for abandon: the owner lives, end the transaction there */
    /* rows of gathered writes that were answered are lost: roll back and replay */
    CHXA_ERR_ROLLBACK_ONLY = -41,

    /* no connection to any node that could serve this; nothing was sent */
    CHXA_ERR_UNREACHABLE = -100,
    CHXA_ERR_LOST = -101,       /* sent, and no whole answer came before the deadline */
    CHXA_ERR_PENDING = -102,    /* the node is still at it (202): ask again, or get */
    CHXA_ERR_BAD_ANSWER = -103, /* the answer is not a chxad's (a proxy? a wrong port?) */
    CHXA_ERR_REDIRECTS = -104,  /* more redirects than redirects_max */
    CHXA_ERR_MISUSE = -105, /* calls in the wrong order; the message says which. Nothing was sent */
    /* sink state bytes of an unknown version, another sink, or damaged */
    CHXA_ERR_STATE_REFUSED = -106,
    /* it was prepared, must be committed, and was rolled back: a person must look */
    CHXA_ERR_ROLLED_BACK = -107,
    /* committed, but an operator gave (some of) its rows up: chxa show says which */
    CHXA_ERR_HEURISTIC = -108,
    /* this handle failed before and cannot go on; the message repeats why */
    CHXA_ERR_FAILED_BEFORE = -109,
    CHXA_ERR_UNKNOWN_CODE = -110, /* the node reports an error that this library does not know */
    /* 401 or 403: the node, or a proxy before it, refuses our credentials */
    CHXA_ERR_CREDENTIALS = -111,
};

/* Whether the operation happened, as far as anybody can tell from the answers. */
enum chxa_outcome {
    /* on success it happened; on failure it did not. Only HEURISTIC says of a commit that it happened otherwise */
    CHXA_OUTCOME_KNOWN = 0,
    CHXA_OUTCOME_UNKNOWN = 1 /* it may have happened: ask or repeat, never assume */
};

/* A transaction's state: proto/states.def. In doubt: PREPARED, COMMITTING, ABORTING. Final: COMMITTED, ABORTED. */
enum chxa_txn_state {
    CHXA_STATE_UNKNOWN = 0,     /* no such transaction, or not told */
    CHXA_STATE_INITIALIZED = 1, /* open for writes; a time-out aborts it */
    CHXA_STATE_PREPARED = 2,    /* rows are durable and wait for the decision; no time-out */
    CHXA_STATE_COMMITTING = 3,  /* decided: commit; goes only forward */
    CHXA_STATE_COMMITTED = 4,   /* every row is in its table */
    CHXA_STATE_ABORTING = 5,    /* decided: rollback */
    CHXA_STATE_ABORTED = 6      /* no row was published */
};

#define CHXA_XID_BYTES_MAX     280u /* longest transaction id, sink name or write id, without the NUL */
#define CHXA_URL_BYTES_MAX     1024u /* longest URL of a node, without the NUL */
#define CHXA_MESSAGE_BYTES_MAX 4095u /* a longer message is cut, at a character's end */

/* What a call has to say. Plain data: copy it, or let it go. */
struct chxa_error {
    int code;                  /* what the call returned */
    enum chxa_outcome outcome; /* did it happen? */
    bool retryable;            /* the same call may succeed later */
    int http_status;           /* of the last answer; 0: there was none */
    int xa_code;               /* what an xa_ function returns for it: XA_OK, XAER_..., XA_RB... */
    enum chxa_txn_state state; /* of the transaction, when the answer says; else UNKNOWN */
    unsigned attempts;         /* requests made, redirects not counted */
    char owner_url[CHXA_URL_BYTES_MAX + 1]; /* the owner, when the answer says; else "" */
    /* for people: a node's own words whole, or which node failed how; where several were tried, each of them */
    char message[CHXA_MESSAGE_BYTES_MAX + 1];
};

/* Never fail; static storage; an unlisted code is "UNKNOWN_CODE". The name is as in the JSON: "NOT_OWNER". */
CHXA_API const char *chxa_error_name(int code);
/* One sentence in English. */
CHXA_API const char *chxa_error_text(int code);
/* "Prepared"; "Unknown" for anything unlisted. */
CHXA_API const char *chxa_state_name(enum chxa_txn_state state);

/* ---- client ----------------------------------------------------------------------------------------------------- */

struct chxa_client;

/* Which node starts the next transaction. There is no load balancer in between: the client spreads them itself. */
enum chxa_write_mode {
    CHXA_WRITE_RANDOM = 0,      /* any node, evenly */
    CHXA_WRITE_ROUND_ROBIN = 1, /* one after the other, from a random first one */
    CHXA_WRITE_FIRST = 2 /* the first in the list; the others only when it cannot be reached */
};

/* Zeroed by chxa_client_options_init, except for size and the defaults given here. Times are from 1 ms to a day. */
struct chxa_client_options {
    size_t size;             /* set by the _init function; leave it */
    const char *const *urls; /* nodes: "http://10.0.0.1:8124" or https, no path; at least one */
    size_t n_urls;           /* at most 64 */
    enum chxa_write_mode write_mode;
    unsigned connect_timeout_ms; /* 3000; of one attempt */
    /* 60000; of one attempt that uploads nothing, from request to whole answer */
    unsigned request_timeout_ms;
    unsigned stall_timeout_ms; /* 60000; of an upload: no byte moved for so long */
    /* 120000; of a call, with all its retries, where the call itself is not told another one. An upload that moves is
     * not cut by it: for chxa_write_from and streams it begins anew at the end of the first upload */
    unsigned deadline_ms;
    unsigned redirects_max; /* 3, at most 50; per attempt */
    /* 64, 1 to 10000; open at once, idle ones included; a call waits for one, within its deadline */
    unsigned connections_max;
    const char *user;     /* HTTP basic authentication; or NULL. No colon in it */
    const char *password; /* or NULL; kept in memory only, and wiped when the client is closed */
    const char *bearer_token; /* "Authorization: Bearer …" instead; or NULL */
    /* PEM, instead of the system's; or NULL. Certificates are always verified */
    const char *ca_file;
    const char *cert_file;  /* client certificate, PEM; or NULL */
    const char *key_file;   /* its key, PEM; or NULL */
    const char *user_agent; /* put before "libchxa/…"; or NULL */
};

CHXA_API void chxa_client_options_init(struct chxa_client_options *options);

/*
 * Makes a client. Nothing is sent. Every option is checked; strings are copied; the files of TLS are read at each
 * connection, and what is wrong with them is UNREACHABLE there, and not retryable.
 * Errors: INVALID_REQUEST (which option, in the message), NO_MEMORY; no others. Credentials are only ever sent to the URLs given
 * here and to the owners that these nodes or the caller name; no request goes from https down to http.
 */
CHXA_API CHXA_MUST_CHECK int chxa_client_open(const struct chxa_client_options *options,
                                              struct chxa_client **ret_client,
                                              struct chxa_error *error);

/* Frees it. Every transaction, stream and sink made from it must be freed before. NULL is allowed. Keeps errno. */
CHXA_API void chxa_client_close(struct chxa_client *client);

/* ---- transactions ----------------------------------------------------------------------------------------------- */

/* The association of one thread with one open transaction: what XA calls a transaction branch that was started. */
struct chxa_txn;

/* Zeroed by chxa_start_options_init, except for size. */
struct chxa_start_options {
    size_t size; /* set by the _init function; leave it */
    /* total time while Initialized; 0: the node's setting, which is also the maximum */
    uint64_t timeout_ms;
    const char *sink; /* the writer this belongs to (PROTOCOL.md, Sinks); or NULL */
    uint64_t epoch;   /* of this start of the sink; must grow at each */
    const char *meta; /* JSON text kept in the record, such as source offsets; or NULL */
    /* false; the node joins small writes into INSERTs, and answers each when it has its rows: much faster, and a row that
     * ClickHouse refuses, a crash of the node or of ClickHouse before the prepare end the transaction: ROLLBACK_ONLY at a
     * write, the prepare or a one-phase commit. What is prepared is as safe as ever (PROTOCOL.md, Gathering) */
    bool gather;
};

CHXA_API void chxa_start_options_init(struct chxa_start_options *options);

/*
 * Begins a transaction at a node chosen by write_mode, and pins the handle to it. options may be NULL. If the answer
 * is lost, the same begin is repeated at the same node; if no node was reached, the next is tried. An id must never
 * be used for two transactions. xid NULL: the library makes one from a random 128-bit number.
 * Errors: FENCED (the sink has a newer epoch), WRONG_STATE (the id exists in another state, or is another writer's), and
 * the general ones; with outcome KNOWN nothing was begun. LOST leaves the outcome unknown; it is then a transaction
 * without rows, which its time-out ends. Free with chxa_txn_free. (PROTOCOL.md, States; Sinks.)
 */
CHXA_API CHXA_MUST_CHECK int chxa_start(struct chxa_client *client, const char *xid,
                                        const struct chxa_start_options *options,
                                        struct chxa_txn **ret_txn, struct chxa_error *error);

/*
 * Goes on with an Initialized transaction that somebody began (XA: TMJOIN, TMRESUME); a GET, which changes nothing. Errors:
 * TXN_NOT_FOUND, WRONG_STATE (error->state has it), and the general ones. Free with chxa_txn_free.
 */
CHXA_API CHXA_MUST_CHECK int chxa_join(struct chxa_client *client, const char *xid,
                                       struct chxa_txn **ret_txn, struct chxa_error *error);

/* Valid as long as the handle. A write that finds the owner at another URL puts that in the same place. */
CHXA_API const char *chxa_txn_xid(const struct chxa_txn *txn);
CHXA_API const char *chxa_txn_owner_url(const struct chxa_txn *txn);

/* What one write staged. */
struct chxa_written {
    uint64_t seq; /* order within the transaction, from 1 */
    uint64_t
        rows; /* in the parts: an engine that sums or replaces rows may make fewer of those that were sent */
    uint64_t bytes; /* of the parts, on disk */
    uint64_t parts;
    bool replay; /* this write_id was there already, with the same body */
    /* the node has the body, and nothing is staged yet: the numbers are 0 (chxa_start_options.gather) */
    bool gathered;
};

/*
 * One write: all of it, or nothing. query is the head of an INSERT ("INSERT INTO db.t FORMAT TSV"); data are the rows
 * in that format. write_id NULL: the library makes one, so that its own retries are harmless; give one to make yours
 * so. Pass views_skip to write to a table with materialized views, which will not see these rows. ret_written may be NULL.
 * Errors: MISUSE (the handle was ended); INVALID_QUERY, SETTING_REFUSED, URI_TOO_LONG (the statement); TARGET_NOT_FOUND,
 * TARGET_UNSUPPORTED, TARGET_HAS_VIEWS (the table); CLICKHOUSE_REJECTED (the rows), BODY_TOO_LARGE, BODY_TRUNCATED,
 * WRITE_ID_REUSED; FENCED, WRONG_STATE, TXN_NOT_FOUND, ROLLBACK_ONLY (the transaction: nothing more can be written in it); and the
 * general ones. A failure with outcome KNOWN leaves the transaction as it was: go on, or roll back. With outcome UNKNOWN (LOST after
 * the deadline, and asking did not help either) roll back. Where writes are gathered, CHXA_OK says that the node has the body, and
 * the rows may still be refused, by ROLLBACK_ONLY at a later call. (PROTOCOL.md, Writing; Gathering.)
 */
CHXA_API CHXA_MUST_CHECK int chxa_write(struct chxa_txn *txn, const char *query, const void *data,
                                        size_t data_bytes, const char *write_id, bool views_skip,
                                        struct chxa_written *ret_written, struct chxa_error *error);

/*
 * Gives up to `room` bytes of a body: the number put into `buffer`, 0 at the end, -1 to give up (the write fails with
 * CANCELLED and leaves nothing). It may take its time. Called on the thread that called chxa_write_from; must not call this library with
 * the same handle.
 */
typedef ptrdiff_t chxa_read_function(void *context, void *buffer, size_t room);
/* Goes back to the first byte; 0, or -1 when it cannot. */
typedef int chxa_rewind_function(void *context);

/*
 * chxa_write with a body of any length, never held in memory. content_encoding is what the bytes are compressed with
 * ("gzip", "zstd", … as ClickHouse knows it), or NULL. Without `rewind` (NULL) the write is tried once; a lost answer
 * is still cleared up by asking for the write_id, unless the write was gathered: the record does not list that, and LOST with
 * outcome UNKNOWN is what is left. `context` is given to both functions, and is not kept after the call.
 * Errors as chxa_write; CANCELLED, with nothing left behind, when `read` gave up.
 */
CHXA_API CHXA_MUST_CHECK int chxa_write_from(struct chxa_txn *txn, const char *query,
                                             chxa_read_function *read, chxa_rewind_function *rewind,
                                             void *context, const char *content_encoding,
                                             const char *write_id, bool views_skip,
                                             struct chxa_written *ret_written,
                                             struct chxa_error *error);

/*
 * No more writes through this handle; open streams must have been closed (else MISUSE). Sends nothing: to a node,
 * prepare is what ends the writing. After it the handle is good for its xid, its owner_url and chxa_txn_free; a
 * write, a stream or another end is MISUSE.
 */
CHXA_API CHXA_MUST_CHECK int chxa_end(struct chxa_txn *txn, struct chxa_error *error);

/* Frees the handle and leaves the transaction as it is. NULL is allowed. */
CHXA_API void chxa_txn_free(struct chxa_txn *txn);

/*
 * The following take an id, because who commits after a restart has nothing else. owner_url is where the owner was
 * last seen (chxa_txn_owner_url), or NULL to ask the nodes in turn; a redirect is followed in either case. All of
 * them may be repeated without harm, by any thread, in any process. deadline_ms 0: the client's setting.
 * (PROTOCOL.md, Committing; Waiting; Which node.)
 */

/*
 * The promise: after CHXA_OK the rows survive crashes and a power cut, and wait for the decision without a time-out.
 * Repeated until it is known or the deadline has passed. meta (JSON text, such as the source offsets behind the last
 * row) takes the place of the one given at start, in the same atomic step; NULL keeps that.
 * Errors: SCHEMA_CHANGED, TOO_MANY_PARTS, PARTS_LOST, ROLLBACK_ONLY, FENCED (roll back); WRONG_STATE; TXN_NOT_FOUND; PENDING (the node
 * is still at it: repeat). With outcome UNKNOWN it may be Prepared: repeat it, or roll back.
 */
CHXA_API CHXA_MUST_CHECK int chxa_prepare(struct chxa_client *client, const char *xid,
                                          const char *owner_url, const char *meta,
                                          uint64_t deadline_ms, struct chxa_error *error);

/*
 * Commits a Prepared transaction, or an Initialized one in one phase if one_phase is said (else WRONG_STATE, and
 * nothing is done; without one_phase a GET is sent first, to see). CHXA_OK: every row is in its table. One phase fails as
 * prepare does.
 * BLOCKED and PENDING: decided, not finished; the node goes on by itself; repeat to hear the end. LOST, UNREACHABLE,
 * and whatever is retryable: repeat, without end; never take it for failed. TXN_NOT_FOUND: finished and forgotten, or
 * never begun; what the sink committed last tells (PROTOCOL.md, "Not found is not rolled back"). ROLLED_BACK: it was
 * rolled back, and no row of it is there. HEURISTIC: it is committed for good, without the rows that an operator gave up.
 * In both a person must look; error->xa_code is then XA_HEURRB, XA_HEURMIX or XA_HEURHAZ.
 */
CHXA_API CHXA_MUST_CHECK int chxa_commit(struct chxa_client *client, const char *xid,
                                         const char *owner_url, bool one_phase,
                                         uint64_t deadline_ms, struct chxa_error *error);

/*
 * Rolls back. Of a transaction that nobody knows there is nothing to roll back: CHXA_OK with error->state UNKNOWN (it was
 * never begun, or has ended, one way or the other, and was forgotten). WRONG_STATE when it is Committing or Committed.
 * PENDING, LOST: repeat. reason (an operator's, 1-1024 bytes in one line, kept in the record) may be NULL.
 */
CHXA_API CHXA_MUST_CHECK int chxa_rollback(struct chxa_client *client, const char *xid,
                                           const char *owner_url, const char *reason,
                                           uint64_t deadline_ms, struct chxa_error *error);

/*
 * Removes the record of a finished transaction, heuristic or not: a late retry then learns nothing any more. WRONG_STATE
 * while it is not finished; an unknown one is CHXA_OK. LOST: repeat.
 */
CHXA_API CHXA_MUST_CHECK int chxa_forget(struct chxa_client *client, const char *xid,
                                         struct chxa_error *error);

/* What a node knows of a transaction. */
struct chxa_txn_record {
    char *xid;
    enum chxa_txn_state state;
    char *owner; /* node name */
    char *owner_url;
    char *sink;     /* or NULL */
    uint64_t epoch; /* of the sink */
    char *meta;     /* JSON text, or NULL */
    /* why it is in this state, what blocks it, or (Initialized; not in lists) why it can only be rolled back; or NULL */
    char *reason;
    bool blocked;   /* Committing, and an operator must look */
    bool heuristic; /* Committed, and an operator gave rows up, or nobody knows of some */
    int64_t created_ms;
    int64_t changed_ms; /* when state last changed */
    uint64_t writes;    /* 0 in lists; of gathered ones, their INSERTs that have ended */
    uint64_t rows;      /* likewise */
};

/*
 * From any node that answers. TXN_NOT_FOUND: never begun, or finished and forgotten. Free with chxa_record_free, which takes
 * NULL too.
 */
CHXA_API CHXA_MUST_CHECK int chxa_get(struct chxa_client *client, const char *xid,
                                      struct chxa_txn_record **ret_record,
                                      struct chxa_error *error);
CHXA_API void chxa_record_free(struct chxa_txn_record *record);

/* Which transactions: all fields optional (NULL, 0). */
struct chxa_filter {
    size_t size; /* set by chxa_filter_init; leave it */
    const char *sink;
    const char *owner;
    const char *xid_prefix; /* compared here, not by the node */
    bool prepared_only;     /* what xa_recover wants: Prepared and nothing else */
    bool in_doubt_only;     /* Prepared, Committing, Aborting */
    uint64_t older_than_ms; /* in its state for at least so long, by this machine's clock */
};
CHXA_API void chxa_filter_init(struct chxa_filter *filter);

/*
 * Every transaction of the cluster that the filter (or NULL) lets through, all pages within the client's deadline_ms, oldest
 * first; at most 1 000 000, else INVALID_REQUEST. Begins and ends in between may or may not be in it. None: *ret_records may
 * be NULL, *ret_n is 0. Changes nothing. Free with chxa_records_free, which takes NULL and 0 too.
 */
CHXA_API CHXA_MUST_CHECK int chxa_recover(struct chxa_client *client,
                                          const struct chxa_filter *filter,
                                          struct chxa_txn_record **ret_records, size_t *ret_n,
                                          struct chxa_error *error);
CHXA_API void chxa_records_free(struct chxa_txn_record *records, size_t n);

/*
 * Any request of the REST interface, with this library's choice of node, redirects, credentials and retries; for
 * tools. method is GET, PUT, POST or DELETE. path begins with '/', may have a query, and is encoded as it goes on the
 * wire. base_url NULL: any node. body may be NULL; it is JSON. The answer's status is in error->http_status, its body
 * (also of an error answer) in *ret_body, NUL-terminated, to be freed with chxa_free; on failure without an answer
 * *ret_body is NULL (it is always set). ret_body_bytes may be NULL. Returns the error's code, or CHXA_OK for 2xx (202 too);
 * a 2xx of a path under /v1/ that is no JSON object is BAD_ANSWER. BLOCKED is not repeated.
 */
CHXA_API CHXA_MUST_CHECK int chxa_request(struct chxa_client *client, const char *base_url,
                                          const char *method, const char *path, const char *body,
                                          char **ret_body, size_t *ret_body_bytes,
                                          struct chxa_error *error);
/* Frees what this library says is freed by it. NULL is allowed. */
CHXA_API void chxa_free(void *memory);

/* ---- streaming write -------------------------------------------------------------------------------------------- */

/*
 * Many small batches, few INSERTs: a stream keeps one chunked upload open and appends batches to it. When a limit is
 * reached the upload ends and is one write, all or nothing; the next append begins the next. A timer thread ends a
 * silent upload.
 */
struct chxa_stream;

/* Zeroed by chxa_stream_options_init, except for size and the defaults given here. 0 switches a limit off. */
struct chxa_stream_options {
    size_t size; /* set by the _init function; leave it */
    /* head of an INSERT; the format must allow batches to be put one behind the other (TSV, CSV, JSONEachRow,
     * RowBinary, Native; not JSON, Parquet, nor a *WithNames) */
    const char *query;
    uint64_t bytes_max; /* 256 MiB: ends the write after the batch that reaches it */
    uint64_t rows_max;  /* 0 */
    /* 1000; must be below the 30 s after which ClickHouse 26 gives a silent body up */
    unsigned idle_ms;
    unsigned age_ms; /* 0; since the write's first batch */
    /* 16 MiB: a write that is not longer is kept in memory and repeated if it fails in a retryable way; a longer
     * one is not, and its failure ends the stream (FAILED_BEFORE) */
    uint64_t replay_bytes;
    bool views_skip;
};

CHXA_API void chxa_stream_options_init(struct chxa_stream_options *options);

/*
 * Nothing is sent before the first append, which also starts the stream's own thread: it sends, and is the timer. A
 * handle may have several streams, of one table or several; each that sends needs a connection of its own
 * (connections_max).
 * Errors: INVALID_REQUEST, INVALID_QUERY (a format whose batches cannot be joined), MISUSE (the handle was ended).
 */
CHXA_API CHXA_MUST_CHECK int chxa_stream_open(struct chxa_txn *txn,
                                              const struct chxa_stream_options *options,
                                              struct chxa_stream **ret_stream,
                                              struct chxa_error *error);

/*
 * Takes a batch: whole rows, `rows` of them (for rows_max and the caller's own count; 0 is allowed). Blocks while the
 * node is slower than the caller. The data are sent or copied before it returns. A batch that was taken is
 * acknowledged only by the flush, close or append that returns after its write ended; an error of a write that the
 * timer ended comes with the next call, and is never lost. After an error that is not retryable, or that the stream
 * could not repeat, the stream has failed: FAILED_BEFORE from then on. The rows of the failed write are not staged;
 * roll the transaction back and replay.
 */
CHXA_API CHXA_MUST_CHECK int chxa_stream_append(struct chxa_stream *stream, const void *batch,
                                                size_t batch_bytes, uint64_t rows,
                                                struct chxa_error *error);

/* Ends the write under way and waits for its answer: after CHXA_OK everything appended is staged. In a transaction that
 * gathers (which gains a stream nothing) a short write is gathered as chxa_write's is: the node has it, no more. */
CHXA_API CHXA_MUST_CHECK int chxa_stream_flush(struct chxa_stream *stream,
                                               struct chxa_error *error);

/* Totals of the writes that have ended well. */
struct chxa_stream_totals {
    uint64_t writes;
    uint64_t rows; /* as told to append */
    uint64_t bytes;
    uint64_t retries;
};
CHXA_API void chxa_stream_totals(const struct chxa_stream *stream,
                                 struct chxa_stream_totals *ret_totals);

/* Flushes and frees. The stream is gone, whatever is returned. NULL is CHXA_OK. */
CHXA_API CHXA_MUST_CHECK int chxa_stream_close(struct chxa_stream *stream,
                                               struct chxa_error *error);

/* Breaks the write under way off, which then leaves nothing, and frees, within some two seconds. NULL is allowed. */
CHXA_API void chxa_stream_abort(struct chxa_stream *stream);

/* ---- sink ------------------------------------------------------------------------------------------------------- */

/*
 * A checkpointing operator's five stages: open (restore), write, snapshot, notify, close. At every moment one
 * transaction is open for writing, and any number are prepared and wait for their checkpoint to complete.
 *
 * Exactly once, if the caller keeps to this: rows are replayed from the source position of the checkpoint that is
 * restored; the state bytes are stored with that checkpoint, and given back to open; notify is called for completed
 * checkpoints only.
 */
struct chxa_sink;

/* Zeroed by chxa_sink_options_init, except for size and the defaults given here. */
struct chxa_sink_options {
    size_t size;      /* set by the _init function; leave it */
    const char *name; /* this writer: job and subtask, "orders.3". 1-200 characters of an id */
    uint64_t epoch;   /* of this start; 0: one more than the cluster has seen */
    struct chxa_stream_options stream; /* the statement, and when a write is cut */
    /* of the open transaction; 0: the node's. Longer than a checkpoint ever takes */
    uint64_t timeout_ms;
    /* 1000, at most 10000; prepared transactions, above which snapshot is refused with BUSY */
    unsigned pending_max;
    uint64_t commit_deadline_ms; /* 120000; of one notify, or of the commits in open */
};

CHXA_API void chxa_sink_options_init(struct chxa_sink_options *options);

/*
 * Starts a writer. state is what the last successful snapshot returned (restored by the caller from its checkpoint),
 * or NULL and 0 for a first start. Fences the writer's older self; commits what the state lists as prepared; rolls
 * back whatever else this sink has open, at any node; begins the next transaction, at a node chosen by write_mode
 * where all transactions of this start will be.
 * Errors: STATE_REFUSED (also when the state is older than what the sink committed last: rows would come twice);
 * FENCED (somebody started with a newer epoch, or at the same time); ROLLED_BACK (a listed transaction was aborted),
 * TXN_NOT_FOUND (nobody knows it, and it was not committed): its rows are lost to this state; BLOCKED, PENDING, LOST,
 * UNREACHABLE: not all is committed yet; call again with the same state. INVALID_REQUEST: an option, or an epoch that
 * is not above the state's. Nothing is half-opened.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_open(struct chxa_client *client,
                                            const struct chxa_sink_options *options,
                                            const void *state, size_t state_bytes,
                                            struct chxa_sink **ret_sink, struct chxa_error *error);

/*
 * A batch of whole rows; chxa_stream_append for the open transaction, with its errors. MISUSE: the last snapshot failed, and
 * is to be repeated first; the sink is as it was. Any other failure is the sink's end (FAILED_BEFORE from then on; commits go
 * on): restart from the last checkpoint.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_write(struct chxa_sink *sink, const void *batch,
                                             size_t batch_bytes, uint64_t rows,
                                             struct chxa_error *error);

/*
 * The checkpoint's barrier: ends the write, prepares the transaction with `meta` (as chxa_prepare; or NULL), begins
 * the next one, and returns the state to store with the checkpoint: versioned, the same on every machine, some 60
 * bytes and an id per pending transaction. checkpoint must grow (else INVALID_REQUEST). Without any row since the last
 * snapshot nothing is prepared, so meta is kept nowhere, and the state is still returned. Free *ret_state with chxa_free.
 * Errors as chxa_stream_flush, chxa_prepare and chxa_start; BUSY: pending_max checkpoints wait, notify first.
 * After a failure the sink is where it was (a repeated snapshot of the same checkpoint is right), or has failed
 * (FAILED_BEFORE): restart.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_snapshot(struct chxa_sink *sink, uint64_t checkpoint,
                                                const char *meta, void **ret_state,
                                                size_t *ret_state_bytes, struct chxa_error *error);

/*
 * The checkpoint is complete: commits its transaction and every earlier one that still waits (subsumed checkpoints),
 * in order. Unknown or already committed checkpoints are CHXA_OK. Errors as chxa_commit; what could not be committed
 * stays pending and is tried again by the next notify, but for HEURISTIC, which is said once, with the later ones committed.
 * Works also after the sink has failed.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_notify_complete(struct chxa_sink *sink, uint64_t checkpoint,
                                                       struct chxa_error *error);

/* The checkpoint was given up: nothing is ended (its transaction waits for a later one that completes), CHXA_OK. */
CHXA_API CHXA_MUST_CHECK int chxa_sink_notify_aborted(struct chxa_sink *sink, uint64_t checkpoint,
                                                      struct chxa_error *error);

/* The number of prepared transactions that wait. */
CHXA_API size_t chxa_sink_pending(const struct chxa_sink *sink);
CHXA_API uint64_t chxa_sink_epoch(const struct chxa_sink *sink);

/*
 * Rolls back the open transaction, which never reached a snapshot, within some ten seconds; leaves prepared ones to the next
 * open. Frees the sink, whatever is returned. An error only says that the open transaction is left to its time-out. NULL is CHXA_OK.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_close(struct chxa_sink *sink, struct chxa_error *error);

/* What a sink committed last (GET /v1/sinks/{sink}): for sources whose offsets are in the transaction's meta. */
struct chxa_checkpoint {
    char xid[CHXA_XID_BYTES_MAX + 1]; /* "" : nothing committed yet */
    uint64_t epoch;                   /* the sink's newest; 0: unknown sink */
    char *meta;                       /* JSON text, or NULL; free with chxa_free */
};
/* Asks any node; changes nothing. The general errors; a sink that nobody has used is CHXA_OK with epoch 0. */
CHXA_API CHXA_MUST_CHECK int chxa_sink_last_committed(struct chxa_client *client, const char *name,
                                                      struct chxa_checkpoint *ret_checkpoint,
                                                      struct chxa_error *error);

/*
 * Fences older epochs of `name`, commits the n listed transactions (at most 10 000) and rolls back what else older epochs
 * have open, at every node that owns some (POST /v1/sinks/{sink}/recover, repeated until complete or the deadline has
 * passed). What chxa_sink_open does first. May be repeated without harm.
 * Errors: FENCED (a newer epoch is there already: nothing was done; or a listed transaction was never prepared), ROLLED_BACK
 * (a listed one was rolled back), TXN_NOT_FOUND (nobody knows a listed one: PROTOCOL.md, Sinks, says when it is committed),
 * INVALID_REQUEST (a listed one is another sink's). After these the others may have ended, or not. PENDING, LOST, UNREACHABLE
 * and what is retryable: not all have ended; repeat.
 */
CHXA_API CHXA_MUST_CHECK int chxa_sink_recover(struct chxa_client *client, const char *name,
                                               uint64_t epoch, const char *const *xids, size_t n,
                                               uint64_t deadline_ms, struct chxa_error *error);

#ifdef __cplusplus
}
#endif

#endif
