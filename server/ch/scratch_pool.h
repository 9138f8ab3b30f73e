/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch pool's inside, shared by scratch.c (who asks, who waits, start and close) and
 * scratch_life.c (the life of one table). Nobody else includes this. Threads: the loop's.
 */
#ifndef CHXA_CH_SCRATCH_POOL_H
#define CHXA_CH_SCRATCH_POOL_H

#include "ch/scratch.h"

enum entry_state {
    ENTRY_CREATING,
    ENTRY_PREPARING,
    ENTRY_IDLE,
    ENTRY_LENT,
    ENTRY_RETIRED,
    ENTRY_DROPPING
};

struct entry {
    struct scratch lent; /* first: what the borrower holds */
    struct scratch_pool *pool;
    struct group *group;
    struct entry *next;
    enum entry_state state;
    uint64_t since_ms;    /* of the state */
    bool fresh;           /* never lent yet: a failure is told to who waits */
    bool database_made;   /* while creating */
    bool truncated;       /* in this round of preparing */
    size_t parts_floor;   /* parts that a TRUNCATE leaves on disk for a while */
    char *query_id;       /* retired: not to be dropped while this runs; or NULL */
    uint64_t retry_at_ms; /* retired */
    uint64_t retry_ms;
    struct ch_request *request; /* the statement that runs */
    uv_work_t work;
    int work_code;
    struct error work_error;
    struct part_list listed;
};

struct waiter {
    struct waiter *next;
    scratch_cb *done;
    void *arg;
    uint64_t turn; /* first come, first served, over all groups */
    uint64_t deadline_ms;
};

/* The tables of one target structure. Lives as long as an entry or a waiter needs it. */
struct group {
    struct group *next;
    struct ch_table target;
    struct waiter *waiters; /* first come, first served */
};

/* An answer on its way to who asked: callbacks come on a later turn. */
struct delivery {
    struct delivery *next;
    scratch_cb *done;
    void *arg;
    int code;
    struct error error;
    struct scratch *scratch;
};

struct scratch_pool {
    uv_loop_t *loop;
    struct ch_client *client;
    struct scratch_config config; /* .database is owned */
    char *database;
    struct ch_caps caps;
    bool ready;
    struct starting *starting;
    struct entry *entries;
    struct group *groups;
    size_t n_entries, n_waiting;
    uint64_t name_token, name_number, turns;
    struct delivery *deliveries;
    uv_timer_t tick;     /* reaping, deadlines */
    uv_timer_t delivery; /* of zero: the next turn */
    unsigned handles_open;
    bool closing, deadline_passed;
    uint64_t close_deadline_ms;
    void (*on_closed)(void *arg);
    void *closed_arg;
    uint64_t created, truncated, dropped;
};

/* ---- scratch.c ---- */

/* Serves who can be served: lends idle tables, starts new ones, makes room. */
void scratch_pump(struct scratch_pool *pool);
/* Tells the group's first waiter, if there is one, that its table could not be had. Moves *error.
 */
void scratch_fail_waiter(struct group *group, struct scratch_pool *pool, struct error *error);
/* The group's waiters wait for tables like `now` instead. */
void scratch_move_waiters(struct scratch_pool *pool, struct group *from,
                          const struct ch_table *now);
/* Frees the pool when it is closing and nothing is left to wait for. */
void scratch_try_close(struct scratch_pool *pool);
/* Drops the group unless an entry or a waiter needs it. */
void scratch_group_release(struct scratch_pool *pool, struct group *group);

/* ---- scratch_life.c ---- */

/* A new table for the group, on its way to ENTRY_IDLE. */
void entry_create(struct scratch_pool *pool, struct group *group);
void entry_set_state(struct entry *entry, enum entry_state state);
/* Lists its parts (NULL: they are not known; else moved), truncates when needed, then ENTRY_IDLE. */
void entry_prepare(struct entry *entry, struct part_list *now);
/* Never lent again; dropped when query_id (or NULL) is gone. */
void entry_retire(struct entry *entry, const char *query_id);
/* DROP TABLE now. */
void entry_drop(struct entry *entry);
/* One look at a retired entry whose time has come. */
void entry_reap(struct entry *entry);
/* Forgets a table without a statement. */
void entry_free(struct entry *entry);
/* Parameters of DROP and TRUNCATE; ret_params has room for 3. */
size_t scratch_drop_params(const struct ch_caps *caps, struct ch_param *ret_params);
#define SCRATCH_DROP_PARAMS_MAX 3u

#endif
