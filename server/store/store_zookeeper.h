/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the ZooKeeper store share. Only store_zookeeper*.c include this, and only they
 * know ZooKeeper.
 *
 *   store_zookeeper.c         session, node lock and epoch, close
 *   store_zookeeper_call.c    one asynchronous call of the library, and runs (a request of ours)
 *   store_zookeeper_multi.c   multis, and changes of several runs that share one
 *   store_zookeeper_change.c  create, cas, abandon, add_write, remove
 *   store_zookeeper_read.c    get, list, nodes
 *   store_zookeeper_sink.c    a change's sink, sink_get
 *
 * Layout, below <chroot>/<cluster> (zk->base_path):
 *   nodes/<node>             ephemeral: {"url", "epoch", "instance", "session_timeout_ms"}
 *   epochs/<node>            persistent: the URL last published; its data version is the epoch
 *   txns/<00..ff>/<xid>      the record; bucket: first two hex digits of SHA-256 of the xid
 *   txns/…/<xid>/w-<seq>     a write, or "pieces:<n>:<nonce>:<bytes>"
 *   txns/…/<xid>/p-<seq>-<nonce>-<i>  a piece of a large write; means nothing without its w-
 *   open/<owner>/<xid>       index of unfinished records; empty
 *   sinks/<sink>             epoch and last committed checkpoint (store_sink.h)
 *
 * Threads: everything runs on the loop's thread, except the library's completions and watcher
 * (store_zookeeper_call.c, handle_watch): they copy what they were given and post it.
 */
#ifndef CHXA_STORE_STORE_ZOOKEEPER_H
#define CHXA_STORE_STORE_ZOOKEEPER_H

#include "store/store_sink.h"

#include <stdatomic.h>
#include <sys/queue.h>
#include <zookeeper/zookeeper.h>

#define ZK_MULTI_MAX   512   /* operations in one multi */
#define ZK_MULTIS_OUT  4u    /* of changes; more wait, and share the next ones */
#define ZK_TRIES_MAX   6u    /* of a request whose premises keep moving */
#define ZK_WINDOW      32u   /* reads of one request in flight */
#define ZK_LIST_SCAN   2000u /* records that one page looks at */
#define ZK_SEQ_PADDING 20    /* digits of a write's name, so that names sort like numbers */

struct zk_store;
struct zk_run;
struct zk_sink;
struct zk_batch;

/* One connection to the ensemble: a handle of the library and what its watcher last said. */
struct zk_handle {
    struct zk_store *zk;
    zhandle_t *zh; /* NULL until opened */
    uint64_t generation;
    bool connected;
    bool dead; /* expired or refused: to be closed */
    int64_t session_id;
    atomic_uint n_out; /* calls that the library has not completed; its thread counts down */
    unsigned n_multis; /* of changes, sent and not answered */
};

struct zk_store {
    struct store base;
    char *hosts;
    char *chroot;
    char *base_path;
    char instance[17]; /* this process's, in the lock */

    struct zk_handle *handle; /* the current one, or NULL */
    uint64_t generation;
    unsigned n_jobs;      /* threads that open or close a handle */
    uint64_t attempt;     /* numbers the tries to lock; older steps are ignored */
    int64_t lock_session; /* the session that holds the lock; 0: none */
    uint64_t lock_epoch;
    int64_t wait_session; /* whose lock we wait for, and since when */
    uint64_t wait_since_ms;
    bool said; /* an event was delivered; the last one: */
    enum store_event said_event;
    uint64_t lost_since_ms;
    unsigned n_steps; /* of the lock's pipelined creates */

    uv_timer_t retry_timer; /* open or lock again */
    uv_timer_t run_timer;   /* the first run's deadline */
    unsigned n_timers;
    struct zk_call *calls;    /* not delivered yet */
    struct zk_run *runs_head; /* by deadline */
    struct zk_run *runs_tail;
    void *sinks_by_name; /* tsearch tree of struct zk_sink */
    TAILQ_HEAD(, zk_sink) sinks;
    size_t n_sinks;

    TAILQ_HEAD(zk_changes, zk_call) changes; /* wait to be sent */
    bool gathering;                          /* they are sent when the answer is dealt with */
    uint64_t n_groups;                       /* of those that are sent again */
};

/* ---- store_zookeeper_call.c ---- */

enum zk_want { ZK_WANT_TEXT, ZK_WANT_RECORD, ZK_WANT_WRITE };

/* One call of the library. Results are valid in done; what done moves out is its own. */
struct zk_call {
    struct store_mail mail;
    struct zk_call *next; /* in zk->calls */
    struct zk_call *prev;
    struct zk_store *zk;
    struct zk_handle *handle; /* it was made on; NULL: not made */
    struct zk_run *run;       /* NULL: the session's own */
    uint64_t attempt;
    void (*done)(struct zk_call *call);
    enum zk_want want;
    size_t index;         /* the caller's */
    struct zk_sink *sink; /* it reads that sink, or its multi has an operation on it */
    bool sets_sink;
    /* A change: its operations, until it is answered. It travels in another call's batch. */
    struct zk_multi *multi;
    bool decides;   /* its run is `sent` with it */
    uint64_t group; /* was refused for the sake of another one: shares multis with these only */
    TAILQ_ENTRY(zk_call) change_link; /* in zk->changes */
    struct zk_batch *batch;           /* whose changes this call carries */

    int rc;
    bool unsent; /* rc was known before anything was sent */
    char *data;  /* NUL-terminated; NULL after a wanted decoding that worked */
    size_t data_bytes;
    int32_t version;
    int64_t ephemeral_owner;
    bool has_children; /* get */
    char **names;
    size_t n_names;
    int decoded; /* want: 0 or the codec's error */
    struct chxa_record record;
    struct chxa_write write;
    int failed; /* multi: the operation that rc belongs to; a change: of its own ones */
    int n_results;
    zoo_op_result_t *results;
};

/* Operations of one multi, with the strings they point to. Every change begins with the check of
 * our epoch, as operation 0. */
struct zk_multi {
    zoo_op_t *ops;
    char **paths;
    int n_ops;
    int cap;
    size_t bytes;    /* of the request, about */
    char *sink_text; /* or NULL */
};

struct zk_call *zk_call_new(struct zk_store *zk, struct zk_run *run,
                            void (*done)(struct zk_call *call));
void zk_call_get(struct zk_call *call, const char *path);
void zk_call_children(struct zk_call *call, const char *path);
void zk_call_create(struct zk_call *call, const char *path, const char *data);
void zk_call_sync(struct zk_call *call, const char *path);
/* These operations, of which the caller keeps all but the results. */
void zk_call_ops(struct zk_call *call, const zoo_op_t *ops, int n_ops);
/* It could not be made: done comes, on a later turn, with unsent set. */
void zk_call_unsent(struct zk_call *call);
/* Its answer is there: runs done and frees it. */
void zk_call_arrived(struct zk_call *call);
/* Delivers what the library left behind when that handle was closed. */
void zk_calls_abandoned(struct zk_store *zk, const struct zk_handle *handle);

/* ---- store_zookeeper_multi.c ---- */

struct zk_multi *zk_multi_new(void);
void zk_multi_free(struct zk_multi *multi);
/* The session's own. Frees multi. */
void zk_call_multi(struct zk_call *call, struct zk_multi *multi);
/*
 * A change of a run. It is sent at once, or with others in one multi when ZK_MULTIS_OUT are out.
 * Takes multi; what its operations point to must live as long as the run has its op.
 */
void zk_change_send(struct zk_call *call, struct zk_multi *multi, bool decides);
/* Sends those that wait, as far as they may be; without a connection they all come back unsent. */
void zk_changes_flush(struct zk_store *zk);

/* path is taken over; data must live until the multi is sent. */
void zk_multi_create(struct zk_multi *multi, char *path, const char *data, size_t data_bytes,
                     int flags);
void zk_multi_set(struct zk_multi *multi, char *path, const char *data, size_t data_bytes,
                  int32_t version);
void zk_multi_delete(struct zk_multi *multi, char *path, int32_t version);
void zk_multi_check(struct zk_multi *multi, char *path, int32_t version);

/* False for the codes that tell that the request was answered. */
bool zk_rc_unknown(int rc);
void zk_names_free(char **names, size_t n_names);

char *zk_path(const struct zk_store *zk, const char *folder, const char *name);
char *zk_path_txn(const struct zk_store *zk, const char *xid);
char *zk_path_child(const struct zk_store *zk, const char *xid, const char *child);
char *zk_path_open(const struct zk_store *zk, const char *owner, const char *xid);
void zk_bucket_of(const char *xid, char ret_bucket[3]);

/* ---- runs: one request (struct store_op) on its way through several calls ---- */

enum zk_index { ZK_INDEX_NONE, ZK_INDEX_CHECK, ZK_INDEX_CREATE, ZK_INDEX_DELETE };

struct zk_get;
struct zk_list;

struct zk_run {
    struct zk_run *next;
    struct zk_run *prev;
    struct zk_store *zk;
    uint64_t generation; /* of the handle it began on; it does not outlive that */
    struct store_op *op; /* NULL once it was answered (deadline, close); calls may be left */
    size_t n_calls;
    bool sent; /* the change that decides is out */
    unsigned n_tries;
    enum zk_index index;

    char nonce[17]; /* a large write's pieces */
    size_t piece;
    size_t n_pieces;
    char pieces[128]; /* what the child says that names them */

    char *owner_url;     /* abandon: what stands in the owner's epoch entry, and its version */
    int32_t owner_epoch; /* … -1: there is none */

    int sink_op; /* the sink's operation in the multi; 0: none */
    void (*sink_then)(struct zk_run *run);
    TAILQ_ENTRY(zk_run) sink_link; /* while it waits for a sink */

    struct zk_get *get;
    struct zk_list *list;
};

void zk_run_start(struct zk_store *zk, struct store_op *op);
/* Answers the op; the run is freed when its last call has come back. */
void zk_run_finish(struct zk_run *run, int code);
/* Answers every op: with sent_code where a change is out, else UNAVAILABLE. */
void zk_runs_cancel(struct zk_store *zk, int sent_code);
/* True (and answered) when the request was tried too often. */
bool zk_run_gives_up(struct zk_run *run);
/* Frees it when it was answered and no call is left. */
void zk_run_release(struct zk_run *run);

/* ---- store_zookeeper_change.c, store_zookeeper_read.c: start a run ---- */

void zk_create(struct zk_run *run);
void zk_cas(struct zk_run *run);
void zk_abandon(struct zk_run *run);
void zk_add_write(struct zk_run *run);
void zk_remove(struct zk_run *run);
void zk_get(struct zk_run *run);
/* The same; answers with code when the record is there, and retries `gone` when it is not. */
void zk_get_for(struct zk_run *run, int code, void (*gone)(struct zk_run *run));
void zk_list(struct zk_run *run);
void zk_nodes(struct zk_run *run);
void zk_sink_raise(struct zk_run *run);
void zk_sink_get(struct zk_run *run);
void zk_get_free(struct zk_get *get);
void zk_list_free(struct zk_list *list);

/* ---- store_zookeeper_sink.c ---- */

/* True: what the change's sink is, is known, and does not fence it (or it has none): make the multi
 * now. False: it is being read, `then` is called behind that; or the run was answered FENCED. */
bool zk_sink_ready(struct zk_run *run, void (*then)(struct zk_run *run));
/* Adds the sink's operation, last, to the multi that call will send; right behind zk_sink_ready. */
void zk_sink_add(struct zk_run *run, struct zk_call *call, struct zk_multi *multi);
/* True (and seen to) when the multi was refused for the sink's sake. */
bool zk_sink_refused(struct zk_run *run, const struct zk_call *call);
void zk_sink_arrived(struct zk_call *call);
/* Another session: all must be read again. */
void zk_sinks_forget(struct zk_store *zk);
void zk_sinks_free(struct zk_store *zk);

/* ---- store_zookeeper.c ---- */

/* A change of a run that began on that handle found that our epoch is not the newest. */
void zk_fenced(struct zk_store *zk, uint64_t generation);
/* Tells the front when a closing store has nothing left. */
void zk_check_closed(struct zk_store *zk);

#endif
