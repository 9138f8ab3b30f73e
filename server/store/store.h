/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordination store: one interface, implemented by ZooKeeper and by SQLite, held to one
 * contract suite (tests/contract).
 *
 * Threads: every function is called on the loop's thread; every callback comes on the loop's
 * thread, exactly once, never inside the call that started it, also when the store is closed
 * (CHXA_E_STORE_UNAVAILABLE if the request had not been sent, CHXA_E_STORE_UNKNOWN if it had).
 *
 * Errors delivered to callbacks, and whether the outcome is then known:
 *
 *   0                        done
 *   CHXA_E_STORE_CONFLICT    known, not done: the id exists, or the version or our epoch has moved
 *   CHXA_E_TXN_NOT_FOUND     known, not done: no such record
 *   CHXA_E_FENCED            known, not done: the sink has a newer epoch. When a change fails for
 *                            two reasons, either may be told
 *   CHXA_E_OWNER_ALIVE       known, not done: the owner's lock is held (abandon)
 *   CHXA_E_STORE_UNAVAILABLE known, not done: not connected, the node lock is not held, or the
 *                            queue is full
 *   CHXA_E_STORE_UNKNOWN     UNKNOWN: connection loss or time-out between request and answer. Never
 *                            means failed: read back (or use store_settle.h, which does)
 *   CHXA_E_INVALID_RECORD    what is stored cannot be decoded, or what was given not encoded
 *   CHXA_E_INVALID_XID, CHXA_E_INVALID_REQUEST   known, not done: a bad id, owner or page token
 *
 * Fencing of nodes: every change also checks that the epoch this process took with the node's lock
 * is still the newest, so a process that lost its lock and was replaced cannot change anything.
 *
 * Fencing of writers: a sink has an entry with its epoch. A fenced change checks in the same atomic
 * step that the entry's epoch is not newer than the writer's, and raises it where it is older or
 * there is no entry yet; otherwise FENCED. An epoch never goes down, and an entry is never removed.
 */
#ifndef CHXA_STORE_STORE_H
#define CHXA_STORE_STORE_H

#include "base/error.h"
#include "proto/record.h"

#include <uv.h>

struct store;

/* A number that is 0 stands for the default. */
struct store_config {
    const char *uri;     /* sqlite:/path/chxa.db or zookeeper:host:port,host:port/chroot */
    const char *cluster; /* [A-Za-z0-9_.-], 1-64; a SQLite file belongs to one cluster */
    const char *node;    /* likewise */
    const char *url;     /* where this node is reached; published with its lock */
    /* ZooKeeper's session; default 10 s. */
    uint64_t session_timeout_ms;
    /* Our own deadline for one request; past it UNKNOWN or UNAVAILABLE; default 5 s. */
    uint64_t operation_timeout_ms;
    /* Requests waiting or in flight; more answer UNAVAILABLE; default 10 000. */
    size_t queue_max;
    /* ZooKeeper: a larger encoded write is split over several entries; default 512 KB. */
    size_t entry_bytes_max;
    /* SQLite: synchronous=FULL; false only in tests. */
    bool fsync;
};

enum store_event {
    /* The node lock is held, store_epoch is valid, requests are served. */
    STORE_READY,
    /* Connection or lock lost: requests answer UNAVAILABLE until the next READY. */
    STORE_LOST,
    /* Another live process holds this node's lock; keeps trying until it is released. */
    STORE_REFUSED,
};

/* detail is a sentence for the log, valid during the call. */
typedef void store_event_cb(void *arg, enum store_event event, const char *detail);

/*
 * Opens the store and starts to take the node's lock (bumping its persistent epoch); the outcome
 * arrives as an event. An ephemeral lock that outlives a quick restart of ours is waited for.
 * Copies what config points to. Immediate errors: CHXA_E_INVALID_REQUEST (bad URI or name),
 * CHXA_E_STORE_UNAVAILABLE (the SQLite file cannot be opened or created); *error says why. On
 * success *ret_store is for store_close.
 */
int store_open(uv_loop_t *loop, const struct store_config *config, store_event_cb *on_event,
               void *arg, struct store **ret_store, struct error *error);

/* Releases the lock, cancels what waits (callbacks run), frees the store, then calls on_closed.
 * Never blocks the loop. No event is delivered after this call. */
void store_close(struct store *store, void (*on_closed)(void *arg), void *arg);

/* The epoch taken with the lock; 0 before the first READY. Grows by at least 1 at each start. */
uint64_t store_epoch(const struct store *store);
bool store_is_ready(const struct store *store);
/* "sqlite" or "zookeeper". */
const char *store_kind(const struct store *store);

/*
 * record: on success of create, cas and add_write NULL (the new version is in `version`). On get:
 * the record with its writes. On create's CONFLICT because the id exists: what exists, with its
 * writes. Owned by the store and valid during the callback; a callback that wants to keep it moves
 * the struct out (`mine = *record; *record = (struct chxa_record){0};`).
 */
struct store_result {
    int code;
    int64_t version;
    struct chxa_record *record;
};
typedef void store_result_cb(void *arg, const struct store_result *result);

/* The writer that a change is made for; the strings are copied. */
struct store_fence {
    const char *sink;
    uint64_t epoch;
};

/* Adds a record without writes. Encoded before the call returns; record->version is ignored. Fenced
 * by the record's own sink and sink_epoch when it has a sink. */
void store_create(struct store *store, const struct chxa_record *record, store_result_cb *done,
                  void *arg);

/* Replaces the record whose stored version is record->version; keeps the index of unfinished
 * transactions in the same atomic step. Writes are not touched. The owner must stay the same: the
 * index is kept by owner. fence: NULL, or who must not have been replaced. A Committed record with
 * a sink becomes the sink's last committed checkpoint in the same atomic step, unless one of a
 * newer epoch, or of the same and begun later, is there. */
void store_cas(struct store *store, const struct chxa_record *record,
               const struct store_fence *fence, store_result_cb *done, void *arg);

/* Ends a transaction of a node that is gone: replaces the record, like store_cas, by a finished one;
 * in the same atomic step it proves that nobody holds the owner's lock, and raises the owner's
 * epoch, so that an owner that only slept changes nothing when it wakes. OWNER_ALIVE, also when the
 * owner is this node itself. */
void store_abandon(struct store *store, const struct chxa_record *record, store_result_cb *done,
                   void *arg);

/* Appends one write (keyed by write->seq) if the record's version still is `version`; the version
 * stays. CONFLICT when that seq exists already or the version moved. A large one becomes several
 * entries in the same atomic step. fence: as for store_cas. */
void store_add_write(struct store *store, const char *xid, int64_t version,
                     const struct store_fence *fence, const struct chxa_write *write,
                     store_result_cb *done, void *arg);

void store_get(struct store *store, const char *xid, store_result_cb *done, void *arg);
/* The same, cheaper, for a record that was ours and unfinished when it was listed: nobody but us
 * changes it while we hold the lock. What is neither is read again as by store_get. */
void store_get_ours(struct store *store, const char *xid, store_result_cb *done, void *arg);

/* Removes a record of that version with all its writes and index entries. ZooKeeper removes a
 * record of more than 500 writes in several steps, which may be resumed by the same call; therefore
 * such a record must be finished (CHXA_E_WRONG_STATE). */
void store_remove(struct store *store, const char *xid, int64_t version, store_result_cb *done,
                  void *arg);

/* ---- sinks ---- */

/* The transaction that a sink committed last. */
struct store_checkpoint {
    char *xid;  /* NULL: none yet */
    char *meta; /* JSON text, or NULL */
    uint64_t epoch;
    int64_t created_ms;
    int64_t committed_ms;
};
struct store_sink {
    uint64_t epoch;
    struct store_checkpoint checkpoint;
};
void store_sink_clear(struct store_sink *sink);

/* sink: with code 0; owned by the store, valid during the callback, may be moved out. */
struct store_sink_result {
    int code;
    struct store_sink *sink;
};
typedef void store_sink_cb(void *arg, const struct store_sink_result *result);

/* A sink that nobody used: epoch 0 and no checkpoint. */
void store_sink_get(struct store *store, const char *sink, store_sink_cb *done, void *arg);
/* Raises the epoch to this one; the same again is done. FENCED when it is newer already. The answer
 * is the sink as it is then. */
void store_sink_raise(struct store *store, const char *sink, uint64_t epoch, store_sink_cb *done,
                      void *arg);

/* ---- history ---- */

/*
 * Where the history of finished transactions begins: a wall time of the whole cluster; a record that was changed before
 * it may have been removed. 0: nobody has said it yet. It never goes down. (Kept as the epoch of a
 * sink whose name no sink can have.) Raise it before the records are removed.
 */
/* done: `version` is the time. */
void store_history_get(struct store *store, store_result_cb *done, void *arg);
/* One that is later already is done as well. */
void store_history_raise(struct store *store, int64_t starts_ms, store_result_cb *done, void *arg);

struct store_filter {
    unsigned states;           /* bit per enum chxa_state; 0: all */
    const char *owner;         /* NULL: any */
    const char *sink;          /* NULL: any */
    int64_t created_before_ms; /* 0: any */
    /* 0: any. Only finished ones that were changed before; with SQLite they come oldest first, and
     * the others cost nothing. */
    int64_t finished_before_ms;
    bool blocked;         /* only those that an operator must look at */
    bool unfinished;      /* only those in the index of unfinished ones (fast) */
    bool skip_unreadable; /* else a record that cannot be decoded is INVALID_RECORD */
    bool xids_only;       /* the caller needs no more; with `unfinished` and an owner alone */
    const char *after;    /* page token of the previous answer, NULL: first page */
    size_t limit;         /* 1-1000 */
};

/* Records without writes, ordered by xid within a page order that is stable while nothing changes;
 * next is NULL on the last page. A page looks at a bounded number of records, so one with a narrow
 * filter may hold fewer than limit, even none, though next is not NULL. The array is owned by the
 * store, valid during the callback; elements may be moved out. */
struct store_list_result {
    int code;
    struct chxa_record *records;
    size_t n_records;
    const char *next;
};
typedef void store_list_cb(void *arg, const struct store_list_result *result);
void store_list(struct store *store, const struct store_filter *filter, store_list_cb *done,
                void *arg);

struct store_node {
    char *name;
    char *url; /* last published */
    uint64_t epoch;
    bool live; /* its lock is held now */
};
/* Every node the cluster has seen. */
struct store_nodes_result {
    int code;
    struct store_node *nodes;
    size_t n_nodes;
};
typedef void store_nodes_cb(void *arg, const struct store_nodes_result *result);
void store_nodes(struct store *store, store_nodes_cb *done, void *arg);

#endif
