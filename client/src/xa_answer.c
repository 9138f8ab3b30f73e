/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers to codes.
 */
#include "client/src/xa_answer.h"

#include <assert.h>

/* The branch's state, if that is what the answer is about. */
static bool about_state(const struct chxa_error *error, enum chxa_txn_state *ret_state)
{
    switch (error->code) {
    case CHXA_ERR_TXN_NOT_FOUND:
        *ret_state = CHXA_STATE_UNKNOWN;
        return true;
    case CHXA_ERR_ROLLED_BACK:
        *ret_state = CHXA_STATE_ABORTED;
        return true;
    case CHXA_ERR_WRONG_STATE:
        *ret_state = error->state;
        return error->state != CHXA_STATE_UNKNOWN;
    default:
        return false;
    }
}

bool cx_xa_answer_wants_record(enum xa_event event, const struct chxa_error *error)
{
    enum chxa_txn_state state;
    if (!about_state(error, &state))
        return false;
    return (event == XA_EVENT_ROLLBACK && state == CHXA_STATE_COMMITTED) ||
           ((event == XA_EVENT_JOIN || event == XA_EVENT_PREPARE || event == XA_EVENT_COMMIT_ONE) &&
            state == CHXA_STATE_ABORTED);
}

static bool is_rollback_code(int code)
{
    return code >= XA_RBBASE && code <= XA_RBEND;
}

static bool is_heuristic_code(int code)
{
    return code >= XA_HEURMIX && code <= XA_HEURHAZ;
}

int cx_xa_answer_code(enum xa_event event, const struct chxa_error *error,
                      enum xa_heuristic heuristic, bool timed_out, bool nowait)
{
    assert(event <= XA_EVENT_JOIN || event >= XA_EVENT_PREPARE);
    enum chxa_txn_state state;
    if (error->code == CHXA_OK)
        return XA_OK;
    if (error->code == CHXA_ERR_HEURISTIC) /* at commit; the code says which */
        return is_heuristic_code(error->xa_code) ? error->xa_code : XA_HEURHAZ;
    if (about_state(error, &state))
        return cx_xa_table_answer(state, event, heuristic, timed_out);
    bool blocked = error->code == CHXA_ERR_PENDING || error->code == CHXA_ERR_BLOCKED ||
                   error->code == CHXA_ERR_BUSY;
    if (blocked && nowait && (event <= XA_EVENT_JOIN || event == XA_EVENT_COMMIT))
        return XA_RETRY;
    if (error->outcome != CHXA_OUTCOME_KNOWN || error->xa_code == XAER_RMFAIL)
        return XAER_RMFAIL;
    if (is_rollback_code(error->xa_code) &&
        (event <= XA_EVENT_JOIN || event == XA_EVENT_PREPARE || event == XA_EVENT_COMMIT_ONE))
        return error->xa_code;
    /* Refused, and nothing was done. Who starts or prepares may take that for final, and rolls back. */
    if (event <= XA_EVENT_JOIN || event == XA_EVENT_PREPARE)
        return XAER_RMERR;
    return XAER_RMFAIL;
}
