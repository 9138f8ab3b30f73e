/* SPDX-License-Identifier: Apache-2.0
 *
 * The transaction state machine: one pure table, state × event → what to do (design: "State
 * machine").
 *
 * No I/O, no clock, no allocation; any thread. Live requests, timers and recovery all ask the same
 * table.
 */
#ifndef CHXA_CORE_TXN_STATE_H
#define CHXA_CORE_TXN_STATE_H

#include "proto/record.h"

enum txn_event {
    TXN_BEGIN,
    TXN_WRITE,
    TXN_PREPARE,
    TXN_COMMIT,
    TXN_ROLLBACK,
    TXN_EXPIRE, /* a timer of the owner: idle or total time-out */
    TXN_FINISH, /* the steps of a decided transaction are done */
    TXN_EVENT_COUNT
};

enum txn_verdict {
    TXN_GO,     /* do it; the transaction moves to `next` (or stays, for a write) */
    TXN_REPLAY, /* it was done before: the same answer again */
    TXN_JOIN,   /* it is being done: wait for its end */
    TXN_REFUSE, /* `error` says why */
};

struct txn_cell {
    enum txn_verdict verdict;
    enum chxa_state next;
    int error;
};

struct txn_cell txn_next(enum chxa_state state, enum txn_event event);
/* What an operator makes of a transaction whose owner is lost (not in the table, which is the
 * owner's): what is not decided, or decided against, is Aborted. A decided commit is never undone:
 * it ends as Committed, with all that may be missing of it said. A finished one stays. */
enum chxa_state txn_abandoned(enum chxa_state state);
/* "begin", "write", … */
const char *txn_event_name(enum txn_event event);
/* True when the table has an edge from → to for any event. The setter of a record's state asserts
 * it. */
bool txn_edge_exists(enum chxa_state from, enum chxa_state to);

#endif
