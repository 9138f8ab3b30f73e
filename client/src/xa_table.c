/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables. Read a row as: "in this state, these calls …". A cell is the state that follows, or the code.
 */
#include "client/src/xa_table.h"

#include <assert.h>

/* clang-format off */
#define PROTO {XAER_PROTO, 0}
#define NOTA  {XAER_NOTA, 0}
#define DUPID {XAER_DUPID, 0}
#define ROLLS {XA_RBROLLBACK, XA_BRANCH_DOOMED}
#define T(next) {XA_OK, XA_##next}
#define S(next) {XA_OK, XA_BRANCH_##next}

struct cell {
    int code;
    int next;
};

#define ASSOCIATION_EVENTS (XA_EVENT_FAIL + 1)

/* Table 6-2. Nothing here speaks of another branch: see cx_xa_table_associate. */
static const struct cell association_table[XA_ASSOCIATION_COUNT][ASSOCIATION_EVENTS] = {
    /*                     start            join             resume           suspend       migrate       success            fail */
    [XA_NOT_ASSOCIATED] = {T(ASSOCIATED),   T(ASSOCIATED),   PROTO,           PROTO,        PROTO,        PROTO,             PROTO},
    [XA_MIGRATING]      = {DUPID,           T(ASSOCIATED),   T(ASSOCIATED),   PROTO,        PROTO,        T(NOT_ASSOCIATED), T(NOT_ASSOCIATED)},
    [XA_ASSOCIATED]     = {PROTO,           PROTO,           PROTO,           T(SUSPENDED), T(MIGRATING), T(NOT_ASSOCIATED), T(NOT_ASSOCIATED)},
    [XA_SUSPENDED]      = {DUPID,           PROTO,           T(ASSOCIATED),   PROTO,        PROTO,        T(NOT_ASSOCIATED), T(NOT_ASSOCIATED)},
};

/*
 * Table 6-4. Success and fail lead to Idle and to Rollback Only when the last association ends, to Active and Doomed while
 * others remain: see cx_xa_table_branch. A rollback of what this process knows to be Active would take the ground from under a
 * thread that still writes, so it has to wait for xa_end, as the standard says. A commit of what is Idle here is let through to the
 * node, which refuses it unless another process has prepared the branch meanwhile.
 */
static const struct cell branch_table[XA_BRANCH_COUNT][XA_EVENT_COUNT] = {
    /*                            start      join       resume     suspend    migrate    success    fail    prepare       commit        one phase     rollback      forget */
    [XA_BRANCH_ELSEWHERE]     = {S(ACTIVE), S(ACTIVE), NOTA,      NOTA,      NOTA,      NOTA,      NOTA,  S(PREPARED),  S(ELSEWHERE), S(ELSEWHERE), S(ELSEWHERE), S(ELSEWHERE)},
    [XA_BRANCH_ACTIVE]        = {DUPID,     S(ACTIVE), S(ACTIVE), S(ACTIVE), S(ACTIVE), S(ACTIVE), ROLLS, PROTO,        PROTO,        PROTO,        PROTO,        PROTO},
    [XA_BRANCH_IDLE]          = {DUPID,     S(ACTIVE), PROTO,     PROTO,     PROTO,     PROTO,     PROTO, S(PREPARED),  S(ELSEWHERE), S(ELSEWHERE), S(ELSEWHERE), PROTO},
    [XA_BRANCH_PREPARED]      = {DUPID,     PROTO,     PROTO,     PROTO,     PROTO,     PROTO,     PROTO, PROTO,        S(ELSEWHERE), PROTO,        S(ELSEWHERE), PROTO},
    [XA_BRANCH_DOOMED]        = {DUPID,     {XA_RBROLLBACK, XA_BRANCH_DOOMED}, {XA_RBROLLBACK, XA_BRANCH_DOOMED}, ROLLS, ROLLS, ROLLS, ROLLS, PROTO, PROTO, PROTO, PROTO, PROTO},
    [XA_BRANCH_ROLLBACK_ONLY] = {DUPID,     {XA_RBROLLBACK, XA_BRANCH_ROLLBACK_ONLY}, PROTO, PROTO, PROTO, PROTO, PROTO, PROTO, PROTO, PROTO, S(ELSEWHERE), PROTO},
};

#define HEUR  (-100) /* by what the operator did */
#define RB    (-101) /* XA_RBTIMEOUT or XA_RBROLLBACK */
#define NEVER (-102) /* not refused in that state */

/* Table 6-4 once more, from the node's side. */
static const int answer_table[CHXA_STATE_ABORTED + 1][XA_EVENT_COUNT] = {
    /*                           start       join                    four of xa_end               prepare     commit       one phase    rollback     forget */
    [CHXA_STATE_UNKNOWN]     = {NEVER,      XAER_NOTA,  NEVER, NEVER, NEVER, NEVER, NEVER, XAER_NOTA,  XAER_NOTA,   XAER_NOTA,   XA_OK,       XAER_NOTA},
    [CHXA_STATE_INITIALIZED] = {XAER_DUPID, NEVER,      NEVER, NEVER, NEVER, NEVER, NEVER, NEVER,      XAER_PROTO,  NEVER,       NEVER,       XAER_PROTO},
    [CHXA_STATE_PREPARED]    = {XAER_DUPID, XAER_PROTO, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER,      NEVER,       XAER_PROTO,  NEVER,       XAER_PROTO},
    [CHXA_STATE_COMMITTING]  = {XAER_DUPID, XAER_PROTO, NEVER, NEVER, NEVER, NEVER, NEVER, XAER_PROTO, XAER_RMFAIL, XAER_RMFAIL, XAER_RMFAIL, XAER_PROTO},
    [CHXA_STATE_COMMITTED]   = {XAER_DUPID, XAER_PROTO, NEVER, NEVER, NEVER, NEVER, NEVER, XAER_PROTO, HEUR,        HEUR,        HEUR,        XA_OK},
    [CHXA_STATE_ABORTING]    = {XAER_DUPID, RB,         NEVER, NEVER, NEVER, NEVER, NEVER, RB,         XA_HEURRB,   RB,          XAER_RMFAIL, XAER_RMFAIL},
    [CHXA_STATE_ABORTED]     = {XAER_DUPID, RB,         NEVER, NEVER, NEVER, NEVER, NEVER, RB,         XA_HEURRB,   RB,          XA_OK,       XA_OK},
};
/* clang-format on */

int cx_xa_table_flags(long flags, long allowed)
{
    if (flags & ~(allowed | TMASYNC))
        return XAER_INVAL;
    return flags & TMASYNC ? XAER_ASYNC : XA_OK;
}

static int start_event(long flags, enum xa_event *ret_event)
{
    if ((flags & TMJOIN) && (flags & TMRESUME))
        return XAER_INVAL;
    *ret_event = flags & TMJOIN     ? XA_EVENT_JOIN
                 : flags & TMRESUME ? XA_EVENT_RESUME
                                    : XA_EVENT_START;
    return cx_xa_table_flags(flags, TMJOIN | TMRESUME | TMNOWAIT);
}

static int end_event(long flags, enum xa_event *ret_event)
{
    switch (flags & ~TMASYNC) {
    case TMSUSPEND:
        *ret_event = XA_EVENT_SUSPEND;
        break;
    case TMSUSPEND | TMMIGRATE:
        *ret_event = XA_EVENT_MIGRATE;
        break;
    case TMSUCCESS:
        *ret_event = XA_EVENT_SUCCESS;
        break;
    case TMFAIL:
        *ret_event = XA_EVENT_FAIL;
        break;
    default:
        return XAER_INVAL;
    }
    return flags & TMASYNC ? XAER_ASYNC : XA_OK;
}

int cx_xa_table_event(enum xa_event call, long flags, enum xa_event *ret_event)
{
    switch (call) {
    case XA_EVENT_START:
        return start_event(flags, ret_event);
    case XA_EVENT_SUSPEND:
        return end_event(flags, ret_event);
    case XA_EVENT_COMMIT:
        *ret_event = flags & TMONEPHASE ? XA_EVENT_COMMIT_ONE : XA_EVENT_COMMIT;
        return cx_xa_table_flags(flags, TMONEPHASE | TMNOWAIT);
    default:
        assert(call == XA_EVENT_PREPARE || call == XA_EVENT_ROLLBACK || call == XA_EVENT_FORGET);
        *ret_event = call;
        return cx_xa_table_flags(flags, TMNOFLAGS);
    }
}

int cx_xa_table_associate(enum xa_association now, bool other_active, enum xa_event event,
                          enum xa_association *ret_next)
{
    assert((int)now >= 0 && now < XA_ASSOCIATION_COUNT);
    assert((int)event >= 0 && event < XA_EVENT_COUNT);
    if (event >= ASSOCIATION_EVENTS) {
        *ret_next = now;
        return XA_OK;
    }
    /* One active association per thread and rmid. Ending a suspended one beside it is allowed. */
    bool starts = event <= XA_EVENT_RESUME;
    if (starts && other_active)
        return XAER_PROTO;
    struct cell cell = association_table[now][event];
    if (cell.code == XA_OK)
        *ret_next = (enum xa_association)cell.next;
    return cell.code;
}

int cx_xa_table_branch(enum xa_branch now, bool others, enum xa_event event,
                       enum xa_branch *ret_next)
{
    assert((int)now >= 0 && now < XA_BRANCH_COUNT);
    assert((int)event >= 0 && event < XA_EVENT_COUNT);
    struct cell cell = branch_table[now][event];
    if (cell.code == XA_OK || cell.code == XA_RBROLLBACK)
        *ret_next = (enum xa_branch)cell.next;
    bool ends =
        event == XA_EVENT_SUCCESS || event == XA_EVENT_FAIL ||
        (now == XA_BRANCH_DOOMED &&
         (event == XA_EVENT_SUSPEND || event == XA_EVENT_MIGRATE || event == XA_EVENT_RESUME));
    if (ends && !others && cell.code == XA_OK)
        *ret_next = XA_BRANCH_IDLE;
    else if (ends && !others && cell.code == XA_RBROLLBACK)
        *ret_next = XA_BRANCH_ROLLBACK_ONLY;
    return cell.code;
}

/* An operator ended it. Committed without a word of rows given up: as the TM's commit wanted, or against its rollback. */
static int heuristic_code(enum xa_event event, enum xa_heuristic heuristic)
{
    switch (heuristic) {
    case XA_HEURISTIC_ROLLED_BACK:
        return XA_HEURRB;
    case XA_HEURISTIC_MIXED:
        return XA_HEURMIX;
    case XA_HEURISTIC_HAZARD:
        return XA_HEURHAZ;
    default:
        return event == XA_EVENT_ROLLBACK ? XA_HEURCOM : XA_OK;
    }
}

int cx_xa_table_answer(enum chxa_txn_state state, enum xa_event event, enum xa_heuristic heuristic,
                       bool timed_out)
{
    assert((int)state >= 0 && state <= CHXA_STATE_ABORTED);
    assert((int)event >= 0 && event < XA_EVENT_COUNT);
    int code = answer_table[state][event];
    switch (code) {
    case HEUR:
        return heuristic_code(event, heuristic);
    case RB:
        return timed_out ? XA_RBTIMEOUT : XA_RBROLLBACK;
    case NEVER: /* the answer contradicts itself: nothing is known */
        return XAER_RMFAIL;
    default:
        return code;
    }
}
