/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of scratch tables: empty copies of targets in the coordinator's own database, exclusive
 * to one write at a time.
 *
 * Invariants: a table is lent to one write at a time. It goes back into the pool only when its
 * INSERT got a definite answer; otherwise it is retired, and dropped once system.processes no
 * longer shows that write's query id. No name is ever used again, so an INSERT that comes late
 * finds no table. Nothing in a scratch table has value; at start the whole database is emptied of
 * scratch tables (names begin with "s_"). Tables are shared by all transactions; the pool key is
 * database, table and the target's shape. After each loan the parts are known from the borrower, or
 * listed again, so that lending an idle table asks ClickHouse nothing. A table with more than
 * parts_max is dropped, or where that costs more truncated; an old-syntax table, whose merges cannot
 * be switched off, is always truncated. Limits: tables_max
 * in all (an acquire past it waits for a release, at most timeout_ms, then BUSY); a table idle for
 * idle_ms is dropped, and so is the longest idle one when another target needs room.
 *
 * Threads: the loop's. Callbacks on a later turn, exactly once.
 */
#ifndef CHXA_CH_SCRATCH_H
#define CHXA_CH_SCRATCH_H

#include "ch/part_files.h"
#include "ch/table.h"

struct scratch_pool;

struct scratch_config {
    const char *database; /* e.g. "chxa"; created when missing */
    size_t tables_max;
    uint64_t idle_ms;
    size_t parts_max;
    uint64_t timeout_ms; /* of each statement */
};

/* One scratch table on loan. The write inserts into `database`.`name`. */
struct scratch {
    char *database;
    char *name;
    char **paths; /* its directory per disk, index = the target's disk index */
    size_t n_paths;
    bool old_syntax;
    struct part_list before; /* its parts when it was lent: read by the pool off the loop */
};

int scratch_pool_new(uv_loop_t *loop, struct ch_client *client, const struct scratch_config *config,
                     struct scratch_pool **ret_pool);
/* Cancels waiting acquires (CANCELLED), drops what it can within deadline_ms, frees, then calls
 * on_closed. That comes only when every lent table was given back and every statement has ended (at
 * most timeout_ms past the deadline). Close the pool before its client. */
void scratch_pool_close(struct scratch_pool *pool, uint64_t deadline_ms,
                        void (*on_closed)(void *arg), void *arg);

/* Creates the database if missing and drops every left-over scratch table. Must succeed before the
 * first acquire (NOT_READY); may be called again, for tables that the pool does not know (BUSY
 * while it runs). Tables that cannot be dropped are left. Errors: CLICKHOUSE_*, CANCELLED. */
typedef void scratch_done_cb(void *arg, int code, struct error *error);
void scratch_pool_start(struct scratch_pool *pool, const struct ch_caps *caps,
                        scratch_done_cb *done, void *arg);

/* Errors: BUSY; CLICKHOUSE_*; TARGET_UNSUPPORTED (the CREATE was refused for a reason that lies in
 * the table); TARGET_NOT_FOUND; SCHEMA_CHANGED (the table is no longer what `target` says, and
 * parts of what it is now would not go with it; a column that was added meanwhile is fine, the copy
 * has it); IO_FAILED; CANCELLED; NOT_READY. */
typedef void scratch_cb(void *arg, int code, struct error *error, struct scratch *scratch);
void scratch_acquire(struct scratch_pool *pool, const struct ch_table *target, scratch_cb *done,
                     void *arg);

/* The INSERT got a definite answer, good or bad. now: the table's parts as they were listed after that
 * answer (moved), or NULL: the pool lists them before it lends the table again. */
void scratch_release(struct scratch_pool *pool, struct scratch *scratch, struct part_list *now);
/* The INSERT's outcome is unknown (or it was cancelled, or found no such table): never lent again,
 * dropped when query_id is gone (NULL: nothing of ours runs in it). */
void scratch_retire(struct scratch_pool *pool, struct scratch *scratch, const char *query_id);

/* A name that no table has had, for a table of the caller's own beside the scratch tables: dropped
 * at start like them. malloc'd. */
char *scratch_pool_name(struct scratch_pool *pool);
/* True when this pool made a table of that name, whatever became of it. */
bool scratch_pool_made(const struct scratch_pool *pool, const char *name);

struct scratch_stats {
    size_t idle, lent, retired, creating, waiting;
    uint64_t created, truncated, dropped;
};
void scratch_pool_stats(const struct scratch_pool *pool, struct scratch_stats *ret_stats);

#endif
