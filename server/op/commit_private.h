/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit operation's state, shared by commit.c (its steps), commit_attach.c (the ALTER and those before
 * it), commit_confirm.c (those that find out what a replica made of an ATTACH), commit_end.c (its
 * last ones) and resolve.c (those that an operator asks for). Internal to
 * them.
 */
#ifndef CHXA_OP_COMMIT_PRIVATE_H
#define CHXA_OP_COMMIT_PRIVATE_H

#include "op/txn.h"

#include "core/part_plan.h"

struct commit {
    struct op op;
    char *xid;
    bool recovering; /* entered at "quiet": look before anything else */
    bool obey;       /* an operator ended it while this node was away: attach nothing, set aside */
    uint64_t epoch; /* the store's when the record was read: another one, and it may have changed */
    bool replicated; /* the target at `at`: it may destroy what it is given, so it gets clones */
    bool unsure;     /* an ALTER of ours may still run, or ClickHouse may have restarted */
    bool doubted;    /* it was unsure at "quiet": of the table, too, nothing is believed */
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
    bool *redo;      /* for each: not attached, and its clone is lost: to be cloned anew */
    bool one_by_one; /* discarding, and a refusal did not say which part it is */
    size_t tried;    /* … then: the one that the last ALTER tried */
    bool *given_up;  /* for each: an operator gave up what cannot be attached, and it is that */
    size_t n_parts;
    bool seen;     /* todo and places are those of the last `verify`: nothing happened since */
    size_t *batch; /* indexes into parts: of the ALTER under way */
    size_t n_batch;
    const char *settled; /* the step behind "settle"; NULL: wait, and look again */
    char **table_paths;  /* by root */
    size_t n_paths;
    char **sync_paths; /* directories of the tables that got parts */
    size_t n_sync_paths;
    bool unfollowed; /* what they were converted to was rolled back: they are lost after all */
    uint64_t *lost;  /* numbers of the parts given up, of all targets */
    size_t n_lost;
    char **roots; /* disks that held parts */
    size_t n_roots;
};

/* The steps of commit_attach.c. */
void commit_mark(struct op *op);
void commit_move(struct op *op);
void commit_send(struct op *op);
void commit_attach(struct op *op);
/* The steps of commit_confirm.c. */
void commit_confirm(struct op *op);
void commit_settle(struct op *op);

/* The steps of commit_end.c. */
void commit_sync(struct op *op);
void commit_clear(struct op *op);

/* The steps of resolve.c. */
void commit_resolve(struct op *op);
void commit_discard(struct op *op);
void commit_follow(struct op *op);

/* Of resolve.c. False, and the step has ended: the store's lock is not held, or this process may
 * have been replaced since the record was read. Before whatever changes a disk or a table. */
bool commit_may_act(struct commit *commit);
/* With the record as it was read again: all from the beginning. */
void commit_restart(struct commit *commit);
/* Gives up those of the target's parts that were converted; true: all of them. */
bool commit_take_converted(struct commit *commit);
/* What has ended, where not all of it went as decided. */
txn_amend commit_outcome;
/* On a worker thread. */
int commit_set_aside(struct commit *commit, struct error *error);

/* Of commit.c, for them. */
void commit_forget_targets(struct commit *commit);
void commit_wait_and_retry(struct commit *commit, const char *step);
void commit_wait_for_clickhouse(struct commit *commit, const struct error *error);
bool commit_work_failed(struct op *op);
/* Of op_blocking: on with the next step, or blocked. */
void commit_worked(struct op *op);
bool commit_batch_has(const struct commit *commit, enum part_todo todo);

#endif
