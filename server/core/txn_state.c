/* SPDX-License-Identifier: Apache-2.0
 *
 * The state table. Read a row as: "in this state, these events …".
 */
#include "core/txn_state.h"

#include "proto/errors.h"

#include <assert.h>

#define GO(state)                                                                                  \
    {                                                                                              \
        TXN_GO, CHXA_##state, 0                                                                    \
    }
#define REPLAY(same)                                                                               \
    {                                                                                              \
        TXN_REPLAY, CHXA_##same, 0                                                                 \
    }
#define JOIN(same)                                                                                 \
    {                                                                                              \
        TXN_JOIN, CHXA_##same, 0                                                                   \
    }
#define NONE                                                                                       \
    {                                                                                              \
        TXN_REFUSE, CHXA_UNKNOWN, CHXA_E_TXN_NOT_FOUND                                             \
    }
#define NO(same)                                                                                   \
    {                                                                                              \
        TXN_REFUSE, CHXA_##same, CHXA_E_WRONG_STATE                                                \
    }

/* clang-format off */
static const struct txn_cell table[CHXA_STATE_COUNT][TXN_EVENT_COUNT] = {
    /*                      begin                write             prepare              commit               rollback            expire            finish */
    [CHXA_UNKNOWN]     = {GO(INITIALIZED),     NONE,             NONE,                NONE,                NONE,               NONE,             NONE},
    [CHXA_INITIALIZED] = {REPLAY(INITIALIZED), GO(INITIALIZED),  GO(PREPARED),        GO(COMMITTING),      GO(ABORTING),       GO(ABORTING),     NO(INITIALIZED)},
    [CHXA_PREPARED]    = {NO(PREPARED),        NO(PREPARED),     REPLAY(PREPARED),    GO(COMMITTING),      GO(ABORTING),       NO(PREPARED),     NO(PREPARED)},
    [CHXA_COMMITTING]  = {NO(COMMITTING),      NO(COMMITTING),   NO(COMMITTING),      JOIN(COMMITTING),    NO(COMMITTING),     NO(COMMITTING),   GO(COMMITTED)},
    [CHXA_COMMITTED]   = {NO(COMMITTED),       NO(COMMITTED),    NO(COMMITTED),       REPLAY(COMMITTED),   NO(COMMITTED),      NO(COMMITTED),    NO(COMMITTED)},
    [CHXA_ABORTING]    = {NO(ABORTING),        NO(ABORTING),     NO(ABORTING),        NO(ABORTING),        JOIN(ABORTING),     NO(ABORTING),     GO(ABORTED)},
    [CHXA_ABORTED]     = {NO(ABORTED),         NO(ABORTED),      NO(ABORTED),         NO(ABORTED),         REPLAY(ABORTED),    NO(ABORTED),      NO(ABORTED)},
};
/* clang-format on */

struct txn_cell txn_next(enum chxa_state state, enum txn_event event)
{
    assert((int)state >= 0 && state < CHXA_STATE_COUNT);
    assert((int)event >= 0 && event < TXN_EVENT_COUNT);
    return table[state][event];
}

enum chxa_state txn_abandoned(enum chxa_state state)
{
    switch (state) {
    case CHXA_INITIALIZED:
    case CHXA_PREPARED:
    case CHXA_ABORTING:
        return CHXA_ABORTED;
    case CHXA_COMMITTING:
        return CHXA_COMMITTED;
    default:
        return state;
    }
}

const char *txn_event_name(enum txn_event event)
{
    static const char *const names[TXN_EVENT_COUNT] = {"begin",    "write",  "prepare", "commit",
                                                       "rollback", "expire", "finish"};
    assert((int)event >= 0 && event < TXN_EVENT_COUNT);
    return names[event];
}

bool txn_edge_exists(enum chxa_state from, enum chxa_state to)
{
    for (int event = 0; event < TXN_EVENT_COUNT; event++) {
        struct txn_cell cell = txn_next(from, (enum txn_event)event);
        if (cell.verdict == TXN_GO && cell.next == to)
            return true;
    }
    return false;
}
