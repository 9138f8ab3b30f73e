/* SPDX-License-Identifier: Apache-2.0
 *
 * The state tables of the XA specification (chapter 6), and the codes for what they leave blank.
 *
 * Pure: no I/O, no state, any thread.
 *
 * Two things have states: the association of a thread with a branch (T0, T1, T2), and the branch (S0-S5). A call must be
 * legal for both. What a process cannot know, because another one may have begun, prepared or ended the branch, the
 * node decides: XA_BRANCH_ELSEWHERE lets the call through, and cx_xa_table_answer says what the state that the node names means.
 */
#ifndef CHXA_CLIENT_XA_TABLE_H
#define CHXA_CLIENT_XA_TABLE_H

#include "client/include/chxa/xa_switch.h"

/* Calls, with those flags that change what they do. */
enum xa_event {
    XA_EVENT_START,   /* xa_start */
    XA_EVENT_JOIN,    /* xa_start(TMJOIN) */
    XA_EVENT_RESUME,  /* xa_start(TMRESUME) */
    XA_EVENT_SUSPEND, /* xa_end(TMSUSPEND) */
    XA_EVENT_MIGRATE, /* xa_end(TMSUSPEND | TMMIGRATE) */
    XA_EVENT_SUCCESS, /* xa_end(TMSUCCESS) */
    XA_EVENT_FAIL,    /* xa_end(TMFAIL) */
    XA_EVENT_PREPARE,
    XA_EVENT_COMMIT,
    XA_EVENT_COMMIT_ONE, /* xa_commit(TMONEPHASE) */
    XA_EVENT_ROLLBACK,
    XA_EVENT_FORGET,
    XA_EVENT_COUNT
};

/* Of one thread with one branch at one rmid. */
enum xa_association {
    XA_NOT_ASSOCIATED, /* T0 */
    XA_MIGRATING,  /* T0, and an association suspended with TMMIGRATE waits for whichever thread */
    XA_ASSOCIATED, /* T1 */
    XA_SUSPENDED,  /* T2 */
    XA_ASSOCIATION_COUNT
};

/* Of a branch, as far as this process has to do with it. */
enum xa_branch {
    XA_BRANCH_ELSEWHERE,     /* nothing is known here: S0, or another process's: the node decides */
    XA_BRANCH_ACTIVE,        /* S1: some thread is associated, or has suspended its association */
    XA_BRANCH_IDLE,          /* S2 */
    XA_BRANCH_PREPARED,      /* S3 */
    XA_BRANCH_DOOMED,        /* S4, and some thread is still associated */
    XA_BRANCH_ROLLBACK_ONLY, /* S4 */
    XA_BRANCH_COUNT
};

/*
 * What a call with these flags is. XA_OK, XAER_INVAL (a flag that the call has not, or a combination that is not allowed), or XAER_ASYNC (TMASYNC).
 * The first for xa_start, xa_end, xa_prepare, xa_commit, xa_rollback and xa_forget, told by the first event of each (XA_EVENT_START, XA_EVENT_SUSPEND,
 * XA_EVENT_PREPARE …); the other for calls without a branch: `allowed` are their flags besides TMASYNC.
 */
int cx_xa_table_event(enum xa_event call, long flags, enum xa_event *ret_event);
int cx_xa_table_flags(long flags, long allowed);

/*
 * May the thread, associated with the branch like this and, if other_active, with another branch of the same rmid, do that?
 * XA_OK, XAER_PROTO or XAER_NOTA, and the association after success. Events from XA_EVENT_PREPARE on leave associations alone.
 */
int cx_xa_table_associate(enum xa_association now, bool other_active, enum xa_event event,
                          enum xa_association *ret_next);

/*
 * May that be done with the branch? XA_OK, or the code to return. *ret_next is the state after success, told `others`: some other
 * association, active or suspended, remains. XA_BRANCH_ELSEWHERE as next: forget the branch here. Set also when the code is
 * XA_RBROLLBACK, which xa_end answers when it has ended the association of a branch that cannot be committed any more.
 */
int cx_xa_table_branch(enum xa_branch now, bool others, enum xa_event event,
                       enum xa_branch *ret_next);

/* What an operator's decision left behind, by the record's "heuristic". */
enum xa_heuristic {
    XA_HEURISTIC_NONE,
    XA_HEURISTIC_ROLLED_BACK, /* nothing of it is in its tables */
    XA_HEURISTIC_MIXED,       /* some is */
    XA_HEURISTIC_HAZARD,      /* nobody knows */
    XA_HEURISTIC_COUNT
};

/*
 * The code for an event (START, JOIN, or from PREPARE on) that met the branch in this state at its node: refused for it, or found done already.
 * timed_out: it was aborted by a time-out. heuristic: of a Committed one.
 */
int cx_xa_table_answer(enum chxa_txn_state state, enum xa_event event, enum xa_heuristic heuristic,
                       bool timed_out);

#endif
