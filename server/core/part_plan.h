/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left to do for one part of a committing transaction, told from where its directory is
 * (design: "Where a part is, tells how far its commit got"). Pure; live commits and recovery share
 * it.
 *
 * Precondition: no ALTER of ours is running, and the target is loaded (and not read-only when it is
 * replicated); only then is a part's absence a proof.
 */
#ifndef CHXA_CORE_PART_PLAN_H
#define CHXA_CORE_PART_PLAN_H

#include <stdbool.h>

struct part_facts {
    bool held;      /* in the held area, with the recorded inode */
    bool marker;    /* its marker is there: the move out was about to begin */
    bool sent;      /* … and an ALTER that attaches it was about to be sent */
    bool detached;  /* in detached/ under its own name */
    bool displaced; /* in detached/ under another name (attaching_…, ignored_…) */
    bool active;    /* in the table itself */
    bool handed;    /* held, but a clone of it was handed out (all of the above but `held` and
                       `marker` are the clone's) */
};

enum part_todo {
    PART_DONE,     /* attached */
    PART_MOVE,     /* mark it, move it out, attach it */
    PART_ATTACH,   /* it waits in detached/ */
    PART_RENAME,   /* rename it back to its own name in detached/, then attach it */
    PART_DOUBTED,  /* its clone is gone: attached and merged away, or destroyed; ask ZooKeeper */
    PART_VANISHED, /* stop: a hazard for the operator; never reported as Committed */
};

enum part_todo part_plan(struct part_facts facts);

#endif
