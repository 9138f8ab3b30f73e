/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator: what the HTTP layer calls. It keeps the node's open transactions in memory, asks
 * the state table, and starts the operations (begin.c, write.c, prepare.c, commit.c, rollback.c,
 * recover.c).
 *
 * Invariants
 *   - The store is the truth; memory is a copy that only this process changes while it holds the
 *     node's lock.
 *   - One exclusive operation (begin, prepare, commit, rollback) per transaction at a time; requests
 *     that come meanwhile wait in order and are then put to the state table again, which makes them
 *     replays, joins or refusals.
 *   - A client that goes away stops nothing that was decided.
 *
 * Threads: the loop's only. Every callback comes exactly once, on a later turn.
 */
#ifndef CHXA_OP_COORD_H
#define CHXA_OP_COORD_H

#include "base/error.h"
#include "ch/scratch.h"
#include "core/txn_state.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct coord;

/* Limits and time-outs; each comes from the config key of the same name. */
struct coord_config {
    const char *cluster;
    const char *node;
    const char *url;      /* advertised */
    const char *database; /* of the scratch tables */
    uint64_t idle_timeout_ms, transaction_timeout_ms;
    size_t transactions_max, writes_per_transaction_max, parts_per_transaction_max;
    size_t parts_per_partition_max, attach_parts_max, sync_files_max;
    uint64_t commit_retry_ms, store_timeout_ms, clickhouse_timeout_ms, drain_timeout_ms;
    size_t scratch_tables_max, scratch_parts_max;
    uint64_t scratch_idle_ms;
    size_t gathers_max, gather_body_bytes_max;
    uint64_t gather_idle_ms, gather_age_ms;
    struct budget *memory; /* of request bodies under way; or NULL */
    bool fsync;
};

/* client and store stay the caller's and must outlive the coordinator. Config strings are copied.
 */
void coord_new(uv_loop_t *loop, const struct coord_config *config, struct ch_client *client,
               struct coord **ret_coord);
/* Between coord_new and anything else (the store wants coord_store_event as its callback). */
void coord_set_store(struct coord *coord, struct store *store);
/* Give this to store_open, with the coord as its arg: READY starts recovery, LOST stops all change.
 */
void coord_store_event(void *coord, enum store_event event, const char *detail);
/* Refuses new requests; running operations finish or stay resumable; after the deadline the rest is
 * dropped. */
void coord_stop(struct coord *coord, uint64_t deadline_ms, void (*on_stopped)(void *arg),
                void *arg);
/* After on_stopped, right before the store is closed: nothing new is started any more, so that
 * neither the store nor the client is asked after its end. */
void coord_halt(struct coord *coord);
/* After the store and the client are closed, and the loop has stopped. What a worker thread may
 * still look at stays, for the process to end with. */
void coord_free(struct coord *coord);

/* ClickHouse is back after it was away: what waits for it, with ever longer pauses, looks now. */
void coord_clickhouse_back(void *coord);

/* NULL when requests are served; else a sentence on what is missing (store, ClickHouse, recovery).
 */
const char *coord_not_ready(const struct coord *coord);
/* ready: called once, when the first recovery is done. replaced: another live process has taken the
 * node's lock in the store while this one holds the held areas; each would wait for the other for
 * ever, so this one should end at once. */
void coord_on_ready(struct coord *coord, void (*ready)(void *arg), void (*replaced)(void *arg),
                    void *arg);

struct coord_reply {
    int code;                         /* 0 or an error */
    const struct error *error;        /* when code is set */
    const struct chxa_record *record; /* what is known of the transaction, or NULL */
    const struct chxa_write *write;   /* of a write that succeeded; NULL when it was gathered */
    const char *gathered; /* or its write_id; it is staged by the prepare at the latest */
    uint64_t body_bytes;  /* of that */
    bool replay;          /* done before, answered again */
    bool pending;         /* wait_ms is over and the end is not reached: ask again */
};
/* The reply and what it points to are valid during the call. */
typedef void coord_cb(void *arg, const struct coord_reply *reply);

struct coord_begin {
    int64_t timeout_ms; /* 0: the node's setting */
    const char *sink;   /* or NULL */
    uint64_t epoch;
    const char *meta; /* JSON text or NULL */
    bool gather;      /* small writes are joined, see gather.h */
};
void coord_begin(struct coord *coord, const char *xid, const struct coord_begin *params,
                 coord_cb *done, void *arg);
/* event: TXN_PREPARE, TXN_COMMIT or TXN_ROLLBACK. reason: kept in the record when this request is
 * what decides a commit or a rollback; or NULL. NOT_OWNER: reply->record names the owner. */
void coord_finish(struct coord *coord, const char *xid, enum txn_event event, const char *reason,
                  uint64_t wait_ms, coord_cb *done, void *arg);
/* What an operator wants of a commit that is decided and blocked. */
enum coord_resolve {
    COORD_RESOLVE_NONE,
    COORD_RESOLVE_RETRY,   /* look again now */
    COORD_RESOLVE_DISCARD, /* give up the parts that cannot be attached; the outcome is heuristic */
    COORD_RESOLVE_CONVERT  /* write the rows that an ALTER keeps out anew, as the table is now */
};
/* Waits for Committed, like a commit. WRONG_STATE: not Committing, or not blocked, for other than retry. */
void coord_resolve(struct coord *coord, const char *xid, enum coord_resolve action,
                   const char *reason, uint64_t wait_ms, coord_cb *done, void *arg);
/* Ends a transaction of another node that is gone: OWNER_ALIVE when it is not, or is this one. */
void coord_abandon(struct coord *coord, const char *xid, const char *reason, coord_cb *done,
                   void *arg);
/* Likewise, of a prepare or a commit; meta: JSON text that takes the place of the record's in the change to Prepared, or in
 * the decision of a commit in one phase; or NULL. A replay, and the commit of what was prepared, keep what was recorded. */
void coord_finish_meta(struct coord *coord, const char *xid, enum txn_event event,
                       const char *reason, const char *meta, uint64_t wait_ms, coord_cb *done,
                       void *arg);
/* From any node. */
void coord_get(struct coord *coord, const char *xid, coord_cb *done, void *arg);
/* Removes a finished record; WRONG_STATE for others. */
void coord_forget(struct coord *coord, const char *xid, coord_cb *done, void *arg);
struct store *coord_store(struct coord *coord);
/* A new operation id, "<node>-<epoch>-<process>-<n>", for the caller to free. */
char *coord_op_id(struct coord *coord);
/* This node's name. */
const char *coord_node(const struct coord *coord);

/* ---- fsck ---- */

struct coord_finding {
    const char *kind;        /* one of PROTOCOL.md's */
    const char *meaning;     /* what it means */
    char *message;           /* what it is */
    char *mend;              /* what mends it */
    char *xid, *path, *part; /* or NULL */
    int64_t bytes, age_ms;   /* -1: not known, or of no use */
};
struct coord_fsck_reply {
    int code;
    const struct error *error;
    const struct coord_finding *findings;
    size_t n_findings;
    bool truncated;                             /* not all was looked at, or told */
    size_t n_transactions, n_folders, n_tables; /* looked at */
};
/* Valid during the call. */
typedef void coord_fsck_cb(void *arg, const struct coord_fsck_reply *reply);
/* Compares this node's disks with the store; changes nothing. One at a time (BUSY). */
void coord_fsck(struct coord *coord, size_t findings_max, coord_fsck_cb *done, void *arg);
/* Removes a set-aside folder, lost/<name>, of every disk. n: how many there were. */
typedef void coord_clear_lost_cb(void *arg, int code, const struct error *error, size_t n);
void coord_clear_lost(struct coord *coord, const char *name, coord_clear_lost_cb *done, void *arg);

/* ---- sinks ---- */

struct coord_sink_recover {
    const char *sink;
    uint64_t epoch;
    const char *const *commit; /* ids, each once */
    size_t n_commit;
    uint64_t wait_ms;
};
struct coord_sink_txn {
    char *xid;
    enum txn_event event;  /* TXN_COMMIT, TXN_ROLLBACK, or TXN_EVENT_COUNT: left alone */
    enum chxa_state state; /* UNKNOWN: there is no record */
    char *owner, *owner_url;
    const struct error *error; /* why it is not ended, or NULL. NOT_OWNER: its owner can */
    bool pending;              /* under way, and not ended within wait_ms */
};
struct coord_sink_reply {
    int code; /* of the whole: FENCED, the store's */
    const struct error *error;
    const struct store_sink *sink;
    const struct coord_sink_txn
        *txns; /* those to commit as given, then the sink's other open ones */
    size_t n_txns;
    bool complete; /* each has ended as it should */
};
/* The reply and what it points to are valid during the call. */
typedef void coord_sink_cb(void *arg, const struct coord_sink_reply *reply);
/* Raises the sink's epoch; commits those, rolls back what else is open of an older epoch; waits. */
void coord_sink_recover(struct coord *coord, const struct coord_sink_recover *params,
                        coord_sink_cb *done, void *arg);

/* ---- writing ---- */

struct coord_write; /* lives from coord_write_start until its done callback */

struct coord_write_params {
    const char *xid;
    const char *query;               /* the INSERT */
    const char *write_id;            /* or NULL: made here */
    const char *database;            /* the client's default database, or NULL */
    bool skip_views;                 /* views=skip */
    const char *content_encoding;    /* or NULL; passed on to ClickHouse */
    uint64_t body_bytes;             /* as the client said, or 0: it did not */
    const struct ch_param *settings; /* of the client; checked here */
    size_t n_settings;
    bool gathers; /* set by gather.c only: this is the INSERT that others are put into */
    /* true: give me the body (or more of it); false: hold it back. */
    void (*flow)(void *arg, bool want);
};
/* Never NULL. Without a flow(true) before done the body is of no interest. */
struct coord_write *coord_write_start(struct coord *coord, const struct coord_write_params *params,
                                      coord_cb *done, void *arg);
void coord_write_data(struct coord_write *write, const void *data, size_t len);
/* The body arrived whole. */
void coord_write_end(struct coord_write *write);
/* It will not (BODY_TRUNCATED, REQUEST_TIMEOUT, BODY_TOO_LARGE, …): the write fails with that code.
 */
void coord_write_abort(struct coord_write *write, int code);
/* The same, in other words. */
void coord_write_fail(struct coord_write *write, int code, const char *message);

struct coord_stats {
    size_t by_state[CHXA_STATE_COUNT]; /* of the transactions in memory */
    size_t blocked;
    int64_t oldest_ms[CHXA_STATE_COUNT]; /* time in its state of the oldest; 0: none */
    uint64_t held_parts, held_bytes;     /* of open transactions */
    size_t writes_in_flight;
    struct scratch_stats scratch;
};
void coord_stats(struct coord *coord, struct coord_stats *ret_stats);

#endif
