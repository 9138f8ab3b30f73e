/* SPDX-License-Identifier: Apache-2.0
 *
 * What a store is made of: the table of functions that each kind fills in, one request on its way
 * (struct store_op), and the mailbox through which other threads hand results to the loop.
 * Included by the files of this folder only.
 *
 * Life of a request: store.c checks and encodes it, counts it, and gives it to impl->start. The
 * implementation ends it with store_op_finish, from any thread, exactly once. The op then travels
 * through the mailbox and its callback runs on the loop's thread in a later turn.
 *
 * Closing: store_close calls impl->close, which ends every op it still has and then calls
 * store_impl_closed. The store is freed when that has happened, no op and no settling change
 * (store_settle.c) is left, and the mailbox's handle is closed. Requests that callbacks start while
 * closing are answered UNAVAILABLE.
 */
#ifndef CHXA_STORE_STORE_IMPL_H
#define CHXA_STORE_STORE_IMPL_H

#include "store/store.h"

#include "base/fault.h"

#define STORE_NAME_BYTES_MAX   64u
#define STORE_RECORD_BYTES_MAX (960u * 1024) /* with its paths below ZooKeeper's 1 MiB */
#define STORE_WRITE_BYTES_MAX  (64u * 1024 * 1024)
/* A page of a list looks at no more records than this, so that it cannot hold up the others. */
#define STORE_LIST_SCAN_MAX 5000u

/* Something to be done on the loop's thread. Embedded; belongs to the store until run. */
struct store_mail {
    struct store_mail *next;
    void (*run)(struct store_mail *mail);
};

enum store_op_kind {
    STORE_OP_CREATE,
    STORE_OP_CAS,
    STORE_OP_ADD_WRITE,
    STORE_OP_GET,
    STORE_OP_REMOVE,
    STORE_OP_LIST,
    STORE_OP_NODES,
    STORE_OP_SINK_GET,
    STORE_OP_SINK_RAISE,
    STORE_OP_ABANDON,
};

/* One request. An implementation may use next; it fills the ret_ fields before store_op_finish. */
struct store_op {
    struct store_mail mail;
    struct store_op *next;
    struct store *store;
    enum store_op_kind kind;
    uint64_t started_us, deadline_ms;

    char *xid;
    int64_t version;
    uint64_t seq;
    char *text; /* the encoded record or write */
    size_t text_bytes;
    /* The record's fields that are indexed (create, cas). */
    enum chxa_state state;
    char *owner;
    char *sink; /* list: the filter's; sink_*: which; changes: see store_sink.h */
    uint64_t sink_epoch;
    bool sink_fence;
    bool ours;                          /* get: see store_get_ours */
    struct store_checkpoint checkpoint; /* xid: the change makes it the sink's last, if it is */
    struct store_filter filter;         /* list; owner and sink point to the fields above */
    char *after;

    int64_t ret_version;
    bool ret_has_record;
    struct chxa_record ret_record;
    struct chxa_record *ret_records;
    size_t n_records;
    char *ret_next;
    struct store_node *ret_nodes;
    size_t n_nodes;
    struct store_sink ret_sink;

    bool commits; /* it stands for the commit that it shared with others */
    enum fault_end end;
    int code;
    store_result_cb *done;
    store_list_cb *list_done;
    store_nodes_cb *nodes_done;
    store_sink_cb *sink_done;
    void *arg;
};

struct store_impl {
    const char *kind;
    /* Only while ready; ends the op by store_op_finish. */
    void (*start)(struct store *store, struct store_op *op);
    /* Ends every op, then calls store_impl_closed. */
    void (*close)(struct store *store);
    /* Frees the implementation and the struct itself, after store_base_clear. */
    void (*destroy)(struct store *store);
};

/* The part that all implementations have; they embed it as their first member. */
struct store {
    const struct store_impl *impl;
    uv_loop_t *loop;
    store_event_cb *on_event;
    void *event_arg;
    char *cluster;
    char *node;
    char *url;
    uint64_t session_timeout_ms;
    uint64_t operation_timeout_ms;
    size_t queue_max;
    size_t entry_bytes_max;
    bool fsync;

    /* Loop's thread only. */
    bool ready;
    bool closing;
    bool impl_closed;
    bool wake_closing;
    uint64_t epoch;
    size_t n_ops;
    size_t n_settles;
    struct store_settle *settles;
    void (*on_closed)(void *arg);
    void *closed_arg;

    uv_async_t wake;
    uv_mutex_t mail_mutex;
    struct store_mail *mail_head; /* under mail_mutex */
    struct store_mail *mail_tail; /* under mail_mutex */
};

/* Fills the common part from a checked config. On the loop's thread. */
void store_base_init(struct store *store, const struct store_impl *impl, uv_loop_t *loop,
                     const struct store_config *config, store_event_cb *on_event, void *arg);
void store_base_clear(struct store *store);

/* Any thread. */
void store_post(struct store *store, struct store_mail *mail);
void store_op_finish(struct store_op *op, int code);
/* Forgets what was found for it, so that it can be run again. */
void store_op_clear_results(struct store_op *op);

/* Loop's thread. The setter of `ready`. */
void store_emit(struct store *store, enum store_event event, uint64_t epoch, const char *detail);
void store_impl_closed(struct store *store);
/* Frees the store if it is closing and nothing is left. Call it last. */
void store_check_closed(struct store *store);

/* Helpers shared by the implementations; any thread. */
bool store_name_valid(const char *name);
bool store_filter_matches(const struct store_filter *filter, const struct chxa_record *record);
void store_op_add_record(struct store_op *op, struct chxa_record *record);
static inline bool store_state_unfinished(enum chxa_state state)
{
    return chxa_state_kind(state) != CHXA_KIND_FINAL;
}

/* Wakes every settling change so that it ends (store_settle.c). */
void store_settle_cancel_all(struct store *store);

/* "host:port,…" (ports filled in) and the chroot: "" for the root, "/chxa" when there is none.
 * For the caller to free. CHXA_E_INVALID_REQUEST. */
int store_uri_zookeeper(const char *location, char **ret_hosts, char **ret_chroot,
                        struct error *error);

/* location: what stands behind "sqlite:" or "zookeeper:". */
int store_sqlite_open(uv_loop_t *loop, const struct store_config *config, const char *location,
                      store_event_cb *on_event, void *arg, struct store **ret_store,
                      struct error *error);
int store_zookeeper_open(uv_loop_t *loop, const struct store_config *config, const char *location,
                         store_event_cb *on_event, void *arg, struct store **ret_store,
                         struct error *error);

#endif
