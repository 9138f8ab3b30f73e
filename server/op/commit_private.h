/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit operation's state, shared by commit.c (its steps) and commit_confirm.c (those that find
 * out what a replica made of an ATTACH). Internal to them.
 */
#ifndef CHXA_OP_COMMIT_PRIVATE_H
#define CHXA_OP_COMMIT_PRIVATE_H

#include "op/txn.h"

#include "core/part_plan.h"

struct commit {
    struct op op;
    char *xid;
    bool recovering; /* entered at "quiet": look before anything else */
    bool replicated; /* the target at `at`: it may destroy what it is given, so it gets clones */
    bool unsure;     /* an ALTER of ours may still run, or ClickHouse may have restarted */
    bool rejected;   /* ClickHouse refused the last ATTACH: op.error says why */
    char *rejection; /* … and what it said, to find the part that it names */
    bool refused;    /* the table does not suit the parts: op.error says why; move them back */
    bool no_dedup;   /* an ATTACH was swallowed by deduplication: switch it off */
    unsigned blocks; /* in a row */
    char *block;     /* what blocks it, as last told */
    const struct chxa_target **targets;
    size_t n_targets, at;
    struct chxa_part *parts;   /* of the target at `at`; shallow, in write order */
    enum part_todo *todo;      /* for each */
    struct part_place *places; /* for each */
    bool *sure;                /* for each: attached, as an answer to ATTACH or ZooKeeper says */
    bool *redo; /* for each: not attached, and its clone is lost: to be cloned anew */
    size_t n_parts;
    size_t *batch; /* indexes into parts: of the ALTER under way */
    size_t n_batch;
    const char *settled; /* the step behind "settle"; NULL: wait, and look again */
    char **table_paths;  /* by root */
    size_t n_paths;
    char **sync_paths; /* directories of the tables that got parts */
    size_t n_sync_paths;
    char **roots; /* disks that held parts */
    size_t n_roots;
};

/* The steps of commit_confirm.c. */
void commit_confirm(struct op *op);
void commit_settle(struct op *op);

/* Of commit.c, for them. */
void commit_wait_and_retry(struct commit *commit, const char *step);
void commit_wait_for_clickhouse(struct commit *commit, const struct error *error);
bool commit_work_failed(struct op *op);

#endif
