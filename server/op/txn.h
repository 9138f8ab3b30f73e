/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction in the coordinator's memory, and what the operations share. Private to server/op.
 *
 * Life of a struct txn: made by the first request that names its xid (or by recovery), loaded from
 * the store, kept while it is open and ours; otherwise dropped when nobody waits on it and nothing
 * runs.
 */
#ifndef CHXA_OP_TXN_H
#define CHXA_OP_TXN_H

#include "ch/held_lock.h"
#include "ch/table_cache.h"
#include "core/part_plan.h"
#include "op/coord.h"
#include "op/step.h"

#include <sys/queue.h>

/* Numbers begin at 10^15, where no table's own block numbers are; each epoch has 2^32 of them, so
 * that none is used twice on a node although no counter is stored. */
#define PART_NUMBER_FIRST      1000000000000000u
#define PART_NUMBERS_PER_EPOCH (UINT64_C(1) << 32)

/* A request that waits for the transaction: freshly come, or joined to what runs. */
struct waiter {
    TAILQ_ENTRY(waiter) link;
    struct txn *txn;
    enum txn_event event;
    bool read_only; /* a GET or forget: answered as soon as the record is loaded */
    bool forget;
    enum coord_resolve resolve; /* event is TXN_COMMIT: what an operator wants of it */
    bool started;               /* it started the operation: its answer is no replay */
    bool joined;                /* it waits for the end of what somebody else started */
    bool told;    /* answered 202 while still in line: it keeps its turn, without another answer */
    bool overdue; /* wait_ms was over before the record was read: answered when it is */
    coord_cb *done;
    void *arg;
    uv_timer_t timer;
    char *meta; /* begin, prepare, commit; or NULL */
    /* begin */
    int64_t timeout_ms;
    uint64_t sink_epoch;
    char *sink;
    bool gather;
    char *given_reason; /* commit, rollback; or NULL */
};

/* A target as first seen by this transaction in this process. */
struct txn_target {
    TAILQ_ENTRY(txn_target) link;
    struct ch_table table;
    bool recorded; /* a recorded write carries its schema */
    bool no_views; /* a write without views=skip relies on there being none */
};

struct txn {
    TAILQ_ENTRY(txn) link;
    struct coord *coord;
    struct chxa_record record; /* .xid always; .state UNKNOWN until loaded, or when there is none */
    bool loaded, loading;
    bool stale; /* a change of ours has an unknown outcome: read it again before the next request */
    bool pumping;       /* on the coordinator's list of those to look at */
    bool discard_asked; /* Committing: by an operator, and not in the record yet */
    /* Ended through another node while this one was away, */
    bool obey; /* as Committed: its commit sets aside what is held, and attaches nothing */
    bool
        ended_elsewhere; /* noticed while in memory: once it is idle, recovery sees to its folder */
    struct error load_error;
    struct op *op;      /* the exclusive operation, or NULL */
    struct op *convert; /* beside a commit, which waits for it; or NULL */
    size_t writes_in_flight;
    /* Gathering, see gather.h */
    int64_t begun_ms; /* created_ms of the record that this process created, or 0 */
    char *lost;       /* why answered writes are lost, or NULL */
    void *gathered;   /* tsearch tree of struct gather_known */
    size_t n_gathered;
    uint64_t last_gather;
    TAILQ_HEAD(gather_list, gather) gathers; /* in the order of their first write */
    char *note;          /* what the running operation waits for; shown as the reason, not stored */
    char *given_reason;  /* of the request that the running operation began with: recorded with its
                            decision */
    uint64_t read_epoch; /* the store's when the record was read last */
    char *new_meta; /* likewise; recorded when it leaves Initialized for Prepared or Committing */
    uint64_t last_seq;   /* of a write */
    uint64_t touched_ms; /* monotonic: last request or end of a write */
    uint64_t expires_ms; /* monotonic: end of the total time-out, once the record is known; see
                            core/txn_time.h */
    TAILQ_HEAD(, waiter) waiters;
    TAILQ_HEAD(, txn_target) targets;
    TAILQ_HEAD(, coord_write) writes;
    TAILQ_ENTRY(txn) pump_link;
};

struct coord {
    uv_loop_t *loop;
    struct coord_config config;
    struct store *store;
    struct ch_client *client;
    struct scratch_pool *pool;
    struct table_cache *tables;
    struct ch_caps caps;
    char *default_database;
    char **roots; /* every disk's root that the node knows of */
    size_t n_roots;
    int *locks; /* of the held area on each root, see ch/held_lock.h */
    size_t n_locks;
    struct held_history history;

    void *by_xid; /* tsearch tree of struct txn */
    TAILQ_HEAD(, txn) txns;
    size_t n_txns;
    TAILQ_HEAD(, txn) pumps;
    TAILQ_HEAD(, gather) gathers; /* open ones; the one used longest ago first */
    size_t n_gathers;
    uv_timer_t gather_timer; /* runs while there are any */
    uv_timer_t pump_timer;   /* fires on the next turn when `pumps` is not empty */
    uv_timer_t sweep_timer;  /* time-outs of Initialized transactions */
    uint64_t swept_ms;       /* when it fired last: long ago, and this process was asleep */

    _Atomic uint64_t next_number; /* of held parts; taken on worker threads too */
    uint64_t op_counter;
    char *last_begin_sink; /* see begin.c; NULL: none yet */
    int64_t last_begin_ms;
    uint64_t random_id; /* of this process, in operation ids */

    bool store_ready, recovered, stopping;
    bool halted; /* the store and the client are going: no step runs, no waiter is looked at */
    struct op *recovery; /* running, or NULL */
    bool recover_again;  /* once it has ended: what it began with has changed */
    struct op *fsck;     /* likewise */
    char *not_ready;
    void (*on_ready)(void *arg);
    void (*on_replaced)(void *arg);
    void *on_ready_arg;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
    uv_timer_t stop_timer;
    uint64_t stop_deadline_ms;
};

uv_loop_t *coord_loop(struct coord *coord);
const char *txn_xid(const struct txn *txn);

/* ---- the transaction table (coord.c) ---- */

struct txn *txn_find(struct coord *coord, const char *xid);
/* Finds or makes. */
struct txn *txn_ensure(struct coord *coord, const char *xid);
/* Frees it, whatever it was doing (nothing may call back any more). */
void txn_free(struct txn *txn);
/* Looks at the waiters on the next turn. */
void txn_pump(struct txn *txn);
/* The one setter of a record's state in memory: asserts the edge, traces it. */
void txn_set_state(struct txn *txn, enum chxa_state state);
/* Replaces the record (moved) with what the store has. */
void txn_take_record(struct txn *txn, struct chxa_record *record);
/*
 * Reads the record again for recovery. While that lasts nothing begins on the transaction and it stays in memory, so
 * the answer cannot be older than what memory has. False, and done is not called: an operation, a write or another
 * read of it is under way, and that knows better. done: 0 also when there is no record any more.
 */
typedef void txn_refreshed_cb(void *arg, struct txn *txn, int code);
bool txn_refresh(struct txn *txn, txn_refreshed_cb *done, void *arg);
bool txn_is_ours(const struct txn *txn);
/* Initialized or in doubt. */
bool txn_is_open(const struct txn *txn);
/* Sets (or with NULL clears) what the running operation waits for. */
void txn_note(struct txn *txn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Answers every waiter for that event with the error, and keeps the operation running. */
void txn_answer_error(struct txn *txn, enum txn_event event, const struct error *error);
/* Those that wait for a conversion, which has failed; while txn->convert is set. */
void txn_answer_not_converted(struct txn *txn, const struct error *error);
/* For `finished` of an exclusive operation. */
void txn_op_finished(struct txn *txn, struct op *op, enum txn_event event, int code);

/* Why requests are refused; NULL: they are served. */
void coord_set_not_ready(struct coord *coord, const char *why);

uint64_t coord_number(struct coord *coord);
/* Query ids of this transaction's statements of that kind ("write", "attach"), malloc'd. The prefix is no other
 * transaction's: the length of the xid stands before it ("job" and "job:1"). */
char *coord_query_prefix(const char *xid, const char *kind);
char *coord_query_id(struct coord *coord, const char *xid, const char *kind);

/*
 * Stores the transaction's record as it would be in `state` (with op id, owner, epoch and time set)
 * and on success sets it in memory too. done: code as store_settle.h. On UNKNOWN the transaction is
 * marked stale. From Initialized to Prepared or Committing it is fenced by the transaction's sink.
 */
typedef void txn_stored_cb(struct op *op, int code);
void txn_store_state(struct op *op, enum chxa_state state, const char *reason, bool blocked,
                     txn_stored_cb *done);
/* The same, with what `amend` changes in the record besides (an operator's doing: given_reason,
 * discarding, heuristic, discarded). */
typedef void txn_amend(struct op *op, struct chxa_record *record);
void txn_store_amended(struct op *op, enum chxa_state state, const char *reason, bool blocked,
                       txn_amend *amend, txn_stored_cb *done);

/* Its sink, for a change that a replaced writer must not make; NULL when it has none. */
const struct store_fence *txn_fence(const struct txn *txn, struct store_fence *fence);

/* Reads the transaction again (after CONFLICT or UNKNOWN) and takes what the store has. All
 * pointers into the old record are void. */
void txn_reload(struct op *op, txn_stored_cb *done);

/* ---- operations ---- */

void begin_start(struct txn *txn, const struct waiter *waiter);
/* one_phase: check and make durable, without recording Prepared; then commit. */
void prepare_start(struct txn *txn, bool one_phase);
/* One runs: it waits for the writes in flight. */
bool prepare_runs(const struct txn *txn);
/* recovering: the record says Committing already; look at the disk first. Or it says Committed, by
 * an operator who gave up this node: attach nothing, set aside what is left. */
void commit_start(struct txn *txn, bool recovering);
/* reason: or NULL. What has made the transaction rollback-only, if something has, is recorded with it. */
void rollback_start(struct txn *txn, const char *reason);
/* Of a blocked commit, which waits; its waiters hear when it fails. reason: or NULL. */
void convert_start(struct txn *txn, const char *reason);
void recover_start(struct coord *coord);
/* Now, or once the one that runs has ended. */
void recover_again(struct coord *coord);
/* Appends a recorded write (moved) in its place by seq. */
void txn_add_write(struct txn *txn, struct chxa_write *write);
/* As seen by this transaction in this process, or NULL. */
struct txn_target *txn_find_target(struct txn *txn, const struct chxa_target *named);
/* Cancels every write of the transaction (a rollback does not wait for bodies). */
void write_cancel_all(struct txn *txn);

/* What a part's place says of how far its commit got. */
struct part_facts txn_part_facts(const struct part_place *place);
/* Distinct targets of a transaction's writes in order of first use; array of pointers into the
 * record, freed by the caller with free(). */
const struct chxa_target **txn_targets(const struct txn *txn, size_t *ret_n);
/* Roots of the disks that the writes name (with_node: and of all that the node knows of), each
 * once; the caller frees strings and array. */
char **txn_roots(const struct txn *txn, bool with_node, size_t *ret_n);
/* Shallow copies of the target's parts in write order, freed by the caller with free(). */
struct chxa_part *txn_target_parts(const struct txn *txn, const struct chxa_target *target,
                                   size_t *ret_n);
int txn_check_schema(const struct txn *txn, const struct chxa_target *target,
                     const struct ch_table *now, struct error *error);
char **table_paths_by_root(const struct ch_table *table, const struct chxa_target *target);
bool target_equal(const struct chxa_target *a, const struct chxa_target *b);

#endif
