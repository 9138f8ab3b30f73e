/* SPDX-License-Identifier: Apache-2.0
 *
 * The state table: every cell against the table of the protocol, and every sequence of events up to
 * length 6 against the promises that the table exists for.
 */
#include "core/txn_state.h"

#include "lib/suite.h"
#include "proto/errors.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* As PROTOCOL.md prints it. ">X" goes to X; "=" stays and is done; "replay"; "join"; a number is
 * the refusal's HTTP status. */
static const char *const expected[CHXA_STATE_COUNT][TXN_EVENT_COUNT] = {
    /*                     begin           write  prepare      commit         rollback      expire
       finish */
    [CHXA_UNKNOWN] = {">Initialized", "404", "404", "404", "404", "404", "404"},
    [CHXA_INITIALIZED] = {"replay", "=", ">Prepared", ">Committing", ">Aborting", ">Aborting",
                          "409"},
    [CHXA_PREPARED] = {"409", "409", "replay", ">Committing", ">Aborting", "409", "409"},
    [CHXA_COMMITTING] = {"409", "409", "409", "join", "409", "409", ">Committed"},
    [CHXA_COMMITTED] = {"409", "409", "409", "replay", "409", "409", "409"},
    [CHXA_ABORTING] = {"409", "409", "409", "409", "join", "409", ">Aborted"},
    [CHXA_ABORTED] = {"409", "409", "409", "409", "replay", "409", "409"},
};

START_TEST(every_cell_is_the_protocols)
{
    for (int state = 0; state < CHXA_STATE_COUNT; state++) {
        for (int event = 0; event < TXN_EVENT_COUNT; event++) {
            const char *want = expected[state][event];
            struct txn_cell cell = txn_next((enum chxa_state)state, (enum txn_event)event);
            if (want[0] == '>') {
                ck_assert_int_eq(cell.verdict, TXN_GO);
                ck_assert_str_eq(chxa_state_name(cell.next), want + 1);
            } else if (strcmp(want, "=") == 0) {
                ck_assert_int_eq(cell.verdict, TXN_GO);
                ck_assert_int_eq((int)cell.next, state);
            } else if (strcmp(want, "replay") == 0 || strcmp(want, "join") == 0) {
                ck_assert_int_eq(cell.verdict, *want == 'r' ? TXN_REPLAY : TXN_JOIN);
                ck_assert_int_eq((int)cell.next, state);
            } else {
                ck_assert_int_eq(cell.verdict, TXN_REFUSE);
                ck_assert_int_eq(chxa_error_http(cell.error), (int)strtol(want, NULL, 10));
                ck_assert_int_eq((int)cell.next, state);
            }
        }
    }
}
END_TEST

/* What a client has been told, and must hold for ever after. */
struct promise {
    bool prepared, commit_decided, rollback_decided, committed, aborted;
};

static unsigned long sequences;

/* ck_assert tells its runner of each success, which costs more than the whole walk. */
#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ck_abort_msg("broken: %s", #condition);                                                \
    } while (0)

static void check_step(enum chxa_state from, enum txn_event event, struct txn_cell cell,
                       struct promise *promise)
{
    enum chxa_state to = cell.verdict == TXN_GO ? cell.next : from;
    require(!(promise->commit_decided && (to == CHXA_ABORTING || to == CHXA_ABORTED)));
    require(!(promise->rollback_decided && (to == CHXA_COMMITTING || to == CHXA_COMMITTED)));
    require(!(promise->prepared && event == TXN_EXPIRE && to != from));
    require(!(promise->committed && to != CHXA_COMMITTED));
    require(!(promise->aborted && to != CHXA_ABORTED));
    require(!(from != CHXA_UNKNOWN && to == CHXA_UNKNOWN));
    if (cell.verdict == TXN_GO && event != TXN_WRITE && event != TXN_EXPIRE &&
        event != TXN_FINISH) {
        /* the same request again: the same answer, or it joins */
        enum txn_verdict again = txn_next(to, event).verdict;
        require(again == TXN_REPLAY || again == TXN_JOIN);
    }
    promise->prepared |= to == CHXA_PREPARED;
    promise->commit_decided |= to == CHXA_COMMITTING;
    promise->rollback_decided |= to == CHXA_ABORTING;
    promise->committed |= to == CHXA_COMMITTED;
    promise->aborted |= to == CHXA_ABORTED;
}

static void walk(enum chxa_state state, struct promise promise, int depth)
{
    sequences++;
    if (depth == 0)
        return;
    for (int event = 0; event < TXN_EVENT_COUNT; event++) {
        struct promise next = promise;
        struct txn_cell cell = txn_next(state, (enum txn_event)event);
        check_step(state, (enum txn_event)event, cell, &next);
        walk(cell.verdict == TXN_GO ? cell.next : state, next, depth - 1);
    }
}

START_TEST(every_sequence_of_six_events_keeps_its_promises)
{
    for (int state = 0; state < CHXA_STATE_COUNT; state++) {
        struct promise promise = {
            .prepared = state == CHXA_PREPARED,
            .commit_decided = state == CHXA_COMMITTING || state == CHXA_COMMITTED,
            .rollback_decided = state == CHXA_ABORTING || state == CHXA_ABORTED,
            .committed = state == CHXA_COMMITTED,
            .aborted = state == CHXA_ABORTED,
        };
        walk((enum chxa_state)state, promise, 6);
    }
    /* 7 states × (1 + 7 + 7² + … + 7⁶) */
    ck_assert_uint_eq(sequences, 7u * 137257u);
}
END_TEST

START_TEST(edges_are_those_of_the_table)
{
    ck_assert(txn_edge_exists(CHXA_UNKNOWN, CHXA_INITIALIZED));
    ck_assert(txn_edge_exists(CHXA_INITIALIZED, CHXA_COMMITTING));
    ck_assert(txn_edge_exists(CHXA_COMMITTING, CHXA_COMMITTED));
    ck_assert(!txn_edge_exists(CHXA_COMMITTING, CHXA_ABORTING));
    ck_assert(!txn_edge_exists(CHXA_PREPARED, CHXA_INITIALIZED));
    ck_assert(!txn_edge_exists(CHXA_COMMITTED, CHXA_ABORTED));
    ck_assert(!txn_edge_exists(CHXA_INITIALIZED, CHXA_COMMITTED));
}
END_TEST

START_TEST(every_open_state_can_be_ended)
{
    for (int state = CHXA_INITIALIZED; state < CHXA_STATE_COUNT; state++) {
        if (chxa_state_kind((enum chxa_state)state) == CHXA_KIND_FINAL)
            continue;
        bool ends = false;
        for (int event = 0; event < TXN_EVENT_COUNT; event++)
            ends |= txn_next((enum chxa_state)state, (enum txn_event)event).verdict == TXN_GO &&
                    (int)txn_next((enum chxa_state)state, (enum txn_event)event).next != state;
        ck_assert_msg(ends, "no way out of %s", chxa_state_name((enum chxa_state)state));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("txn_state");
    TCase *tests = tcase_create("table");
    tcase_add_test(tests, every_cell_is_the_protocols);
    tcase_add_test(tests, every_sequence_of_six_events_keeps_its_promises);
    tcase_add_test(tests, edges_are_those_of_the_table);
    tcase_add_test(tests, every_open_state_can_be_ended);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
