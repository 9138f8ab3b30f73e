/* SPDX-License-Identifier: Apache-2.0
 *
 * The state tables, cell by cell, written down once more: tables 6-2 and 6-4 of the XA specification, the codes for their blank
 * cells, the flags of each call, and what each state of a record is to each call.
 */
#include "client/src/xa_answer.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *code_name(int code)
{
    static const struct {
        int code;
        const char *name;
    } names[] = {
        {XA_OK, "OK"},           {XAER_PROTO, "PROTO"},       {XAER_NOTA, "NOTA"},
        {XAER_DUPID, "DUPID"},   {XAER_INVAL, "INVAL"},       {XAER_ASYNC, "ASYNC"},
        {XAER_RMERR, "RMERR"},   {XAER_RMFAIL, "RMFAIL"},     {XA_RETRY, "RETRY"},
        {XA_RBROLLBACK, "RB"},   {XA_RBTIMEOUT, "RBTIMEOUT"}, {XA_RBINTEGRITY, "RBINTEGRITY"},
        {XA_HEURCOM, "HEURCOM"}, {XA_HEURRB, "HEURRB"},       {XA_HEURMIX, "HEURMIX"},
        {XA_HEURHAZ, "HEURHAZ"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].code == code)
            return names[i].name;
    }
    return "?";
}

static const char *const event_names[XA_EVENT_COUNT] = {
    "start", "join",    "resume", "suspend",    "migrate",  "success",
    "fail",  "prepare", "commit", "commit one", "rollback", "forget"};

/* ---- flags ---- */

static const long all_flags[] = {TMASYNC,    TMONEPHASE, TMFAIL,    TMNOWAIT,
                                 TMRESUME,   TMSUCCESS,  TMSUSPEND, TMSTARTRSCAN,
                                 TMENDRSCAN, TMMULTIPLE, TMJOIN,    TMMIGRATE};
#define N_FLAGS (sizeof all_flags / sizeof all_flags[0])

/* Every combination that is allowed, without TMASYNC, and what it is. */
static const struct {
    enum xa_event call;
    long flags;
    enum xa_event event;
} allowed[] = {
    {XA_EVENT_START, TMNOFLAGS, XA_EVENT_START},
    {XA_EVENT_START, TMNOWAIT, XA_EVENT_START},
    {XA_EVENT_START, TMJOIN, XA_EVENT_JOIN},
    {XA_EVENT_START, TMJOIN | TMNOWAIT, XA_EVENT_JOIN},
    {XA_EVENT_START, TMRESUME, XA_EVENT_RESUME},
    {XA_EVENT_START, TMRESUME | TMNOWAIT, XA_EVENT_RESUME},
    {XA_EVENT_SUSPEND, TMSUSPEND, XA_EVENT_SUSPEND},
    {XA_EVENT_SUSPEND, TMSUSPEND | TMMIGRATE, XA_EVENT_MIGRATE},
    {XA_EVENT_SUSPEND, TMSUCCESS, XA_EVENT_SUCCESS},
    {XA_EVENT_SUSPEND, TMFAIL, XA_EVENT_FAIL},
    {XA_EVENT_PREPARE, TMNOFLAGS, XA_EVENT_PREPARE},
    {XA_EVENT_COMMIT, TMNOFLAGS, XA_EVENT_COMMIT},
    {XA_EVENT_COMMIT, TMNOWAIT, XA_EVENT_COMMIT},
    {XA_EVENT_COMMIT, TMONEPHASE, XA_EVENT_COMMIT_ONE},
    {XA_EVENT_COMMIT, TMONEPHASE | TMNOWAIT, XA_EVENT_COMMIT_ONE},
    {XA_EVENT_ROLLBACK, TMNOFLAGS, XA_EVENT_ROLLBACK},
    {XA_EVENT_FORGET, TMNOFLAGS, XA_EVENT_FORGET},
};

START_TEST(every_combination_of_flags)
{
    static const enum xa_event calls[] = {XA_EVENT_START,  XA_EVENT_SUSPEND,  XA_EVENT_PREPARE,
                                          XA_EVENT_COMMIT, XA_EVENT_ROLLBACK, XA_EVENT_FORGET};
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (unsigned bits = 0; bits < 1u << N_FLAGS; bits++) {
            long flags = 0;
            for (size_t i = 0; i < N_FLAGS; i++)
                flags |= bits & 1u << i ? all_flags[i] : 0;
            int want = XAER_INVAL;
            enum xa_event want_event = XA_EVENT_COUNT, event = XA_EVENT_COUNT;
            for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
                if (allowed[i].call == calls[c] && allowed[i].flags == (flags & ~TMASYNC)) {
                    want = flags & TMASYNC ? XAER_ASYNC : XA_OK;
                    want_event = allowed[i].event;
                }
            }
            int got = cx_xa_table_event(calls[c], flags, &event);
            if (got != want || (got == XA_OK && event != want_event))
                ck_abort_msg("%s with %lx: %s, not %s", event_names[calls[c]], (unsigned long)flags,
                             code_name(got), code_name(want));
        }
        enum xa_event event;
        ck_assert_int_eq(cx_xa_table_event(calls[c], 1, &event), XAER_INVAL); /* TMREGISTER */
    }
    ck_assert_int_eq(cx_xa_table_flags(TMNOFLAGS, TMNOFLAGS), XA_OK);
    ck_assert_int_eq(cx_xa_table_flags(TMASYNC, TMNOFLAGS), XAER_ASYNC);
    ck_assert_int_eq(cx_xa_table_flags(TMJOIN, TMNOFLAGS), XAER_INVAL);
    ck_assert_int_eq(cx_xa_table_flags(TMJOIN | TMASYNC, TMNOFLAGS), XAER_INVAL);
}
END_TEST

/* ---- associations ---- */

/* clang-format off */
/* ">T1": goes there. Then the same beside an active association with another branch. */
static const char *const associations[XA_ASSOCIATION_COUNT][7] = {
    /*   start    join    resume   suspend  migrate  success  fail */
    {">T1", ">T1", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO"},
    {"DUPID", ">T1", ">T1", "PROTO", "PROTO", ">T0", ">T0"},
    {"PROTO", "PROTO", "PROTO", ">T2", ">TM", ">T0", ">T0"},
    {"DUPID", "PROTO", ">T1", "PROTO", "PROTO", ">T0", ">T0"},
};
static const char *const associations_beside[XA_ASSOCIATION_COUNT][7] = {
    {"PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO"},
    {"PROTO", "PROTO", "PROTO", "PROTO", "PROTO", ">T0", ">T0"},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL}, /* one active association per thread */
    {"PROTO", "PROTO", "PROTO", "PROTO", "PROTO", ">T0", ">T0"},
};

/* clang-format on */

START_TEST(every_cell_of_associations)
{
    static const char *const names[XA_ASSOCIATION_COUNT] = {">T0", ">TM", ">T1", ">T2"};
    for (int now = 0; now < XA_ASSOCIATION_COUNT; now++) {
        for (int event = 0; event < XA_EVENT_COUNT; event++) {
            for (int beside = 0; beside < 2; beside++) {
                const char *want = event > XA_EVENT_FAIL ? names[now]
                                   : beside              ? associations_beside[now][event]
                                                         : associations[now][event];
                enum xa_association next = XA_ASSOCIATION_COUNT;
                if (!want)
                    continue;
                int code = cx_xa_table_associate((enum xa_association)now, beside,
                                                 (enum xa_event)event, &next);
                const char *got = code ? code_name(code) : names[next];
                ck_assert_msg(strcmp(got, want) == 0, "%s %s%s: %s, not %s", names[now] + 1,
                              event_names[event], beside ? " beside another" : "", got, want);
                ck_assert(code == XA_OK || next == XA_ASSOCIATION_COUNT);
            }
        }
    }
}
END_TEST

/* ---- branches ---- */

/* clang-format off */
/* "S1"…: goes there; "S4/S4a": as the last association, and while others remain; "RB:S4a": XA_RBROLLBACK, and there. */
static const char *const branches[XA_BRANCH_COUNT][XA_EVENT_COUNT] = {
    /* start  join  resume  suspend  migrate  success  fail  prepare  commit  one phase  rollback  forget */
    {"S1", "S1", "NOTA", "NOTA", "NOTA", "NOTA", "NOTA", "S3", "S0", "S0", "S0", "S0"},
    {"DUPID", "S1", "S1", "S1", "S1", "S2/S1", "RB:S4/RB:S4a", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO"},
    {"DUPID", "S1", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "S3", "S0", "S0", "S0", "PROTO"},
    {"DUPID", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "S0", "PROTO", "S0", "PROTO"},
    {"DUPID", "RB:S4a", "RB:S4/RB:S4a", "RB:S4/RB:S4a", "RB:S4/RB:S4a", "RB:S4/RB:S4a", "RB:S4/RB:S4a", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO"},
    {"DUPID", "RB:S4", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "PROTO", "S0", "PROTO"},
};

/* clang-format on */

START_TEST(every_cell_of_branches)
{
    static const char *const names[XA_BRANCH_COUNT] = {"S0", "S1", "S2", "S3", "S4a", "S4"};
    for (int now = 0; now < XA_BRANCH_COUNT; now++) {
        for (int event = 0; event < XA_EVENT_COUNT; event++) {
            for (int others = 0; others < 2; others++) {
                const char *cell = branches[now][event], *slash = strchr(cell, '/');
                char want[32], got[32];
                if (slash && others)
                    snprintf(want, sizeof want, "%s", slash + 1);
                else
                    snprintf(want, sizeof want, "%.*s", (int)(slash ? slash - cell : 31), cell);
                enum xa_branch next = XA_BRANCH_COUNT;
                int code =
                    cx_xa_table_branch((enum xa_branch)now, others, (enum xa_event)event, &next);
                if (code == XA_OK)
                    snprintf(got, sizeof got, "%s", names[next]);
                else if (code == XA_RBROLLBACK)
                    snprintf(got, sizeof got, "RB:%s", names[next]);
                else
                    snprintf(got, sizeof got, "%s", code_name(code));
                ck_assert_msg(strcmp(got, want) == 0, "%s %s%s: %s, not %s", names[now],
                              event_names[event], others ? " with others" : "", got, want);
            }
        }
    }
}
END_TEST

/* ---- answers ---- */

static const enum xa_event asked[] = {XA_EVENT_START,  XA_EVENT_JOIN,       XA_EVENT_PREPARE,
                                      XA_EVENT_COMMIT, XA_EVENT_COMMIT_ONE, XA_EVENT_ROLLBACK,
                                      XA_EVENT_FORGET};
#define N_ASKED (sizeof asked / sizeof asked[0])

/* clang-format off */
/* "-" is an answer that contradicts itself: XAER_RMFAIL, so that the TM asks again. */
static const struct {
    enum chxa_txn_state state;
    enum xa_heuristic heuristic;
    bool timed_out;
    const char *codes[N_ASKED];
} answers[] = {
    /*                                                   start    join    prepare   commit    one phase  rollback  forget */
    {CHXA_STATE_UNKNOWN, XA_HEURISTIC_NONE, false, {"-", "NOTA", "NOTA", "NOTA", "NOTA", "OK", "NOTA"}},
    {CHXA_STATE_INITIALIZED, XA_HEURISTIC_NONE, false, {"DUPID", "-", "-", "PROTO", "-", "-", "PROTO"}},
    {CHXA_STATE_PREPARED, XA_HEURISTIC_NONE, false, {"DUPID", "PROTO", "-", "-", "PROTO", "-", "PROTO"}},
    {CHXA_STATE_COMMITTING, XA_HEURISTIC_NONE, false, {"DUPID", "PROTO", "PROTO", "RMFAIL", "RMFAIL", "RMFAIL", "PROTO"}},
    {CHXA_STATE_COMMITTED, XA_HEURISTIC_NONE, false, {"DUPID", "PROTO", "PROTO", "OK", "OK", "HEURCOM", "OK"}},
    {CHXA_STATE_COMMITTED, XA_HEURISTIC_ROLLED_BACK, false, {"DUPID", "PROTO", "PROTO", "HEURRB", "HEURRB", "HEURRB", "OK"}},
    {CHXA_STATE_COMMITTED, XA_HEURISTIC_MIXED, false, {"DUPID", "PROTO", "PROTO", "HEURMIX", "HEURMIX", "HEURMIX", "OK"}},
    {CHXA_STATE_COMMITTED, XA_HEURISTIC_HAZARD, false, {"DUPID", "PROTO", "PROTO", "HEURHAZ", "HEURHAZ", "HEURHAZ", "OK"}},
    {CHXA_STATE_ABORTING, XA_HEURISTIC_NONE, false, {"DUPID", "RB", "RB", "HEURRB", "RB", "RMFAIL", "RMFAIL"}},
    {CHXA_STATE_ABORTED, XA_HEURISTIC_NONE, false, {"DUPID", "RB", "RB", "HEURRB", "RB", "OK", "OK"}},
    {CHXA_STATE_ABORTED, XA_HEURISTIC_NONE, true, {"DUPID", "RBTIMEOUT", "RBTIMEOUT", "HEURRB", "RBTIMEOUT", "OK", "OK"}},
};

/* clang-format on */

START_TEST(every_state_of_a_record_to_every_call)
{
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        for (size_t e = 0; e < N_ASKED; e++) {
            const char *want = answers[i].codes[e];
            if (strcmp(want, "-") == 0)
                want = "RMFAIL";
            const char *got = code_name(cx_xa_table_answer(
                answers[i].state, asked[e], answers[i].heuristic, answers[i].timed_out));
            ck_assert_msg(strcmp(got, want) == 0, "%s %s: %s, not %s",
                          chxa_state_name(answers[i].state), event_names[asked[e]], got, want);
        }
    }
}
END_TEST

/* clang-format off */
/* name, its code, XA code, outcome known?; then each call; the last is commit with TMNOWAIT */
static const struct {
    int code, xa_code;
    bool known;
    const char *codes[N_ASKED];
    const char *nowait;
} errors[] = {
    {CHXA_ERR_STORE_UNAVAILABLE, XAER_RMFAIL, true, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_UNREACHABLE, XAER_RMFAIL, true, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_LOST, XAER_RMFAIL, false, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_PENDING, XAER_RMFAIL, false, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RETRY"},
    {CHXA_ERR_BLOCKED, XAER_RMFAIL, false, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RETRY"},
    {CHXA_ERR_BUSY, XAER_RMFAIL, true, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RETRY"},
    /* a fault in the node: commit must not say that the rows are gone */
    {CHXA_ERR_INTERNAL, XAER_RMERR, false, {"RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_INVALID_RECORD, XAER_RMERR, true, {"RMERR", "RMERR", "RMERR", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_INVALID_REQUEST, XAER_INVAL, true, {"RMERR", "RMERR", "RMERR", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_CREDENTIALS, XAER_RMERR, true, {"RMERR", "RMERR", "RMERR", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_SCHEMA_CHANGED, XA_RBINTEGRITY, true, {"RBINTEGRITY", "RBINTEGRITY", "RBINTEGRITY", "RMFAIL", "RBINTEGRITY", "RMFAIL", "RMFAIL"}, "RMFAIL"},
    {CHXA_ERR_TXN_NOT_FOUND, XAER_NOTA, true, {"RMFAIL", "NOTA", "NOTA", "NOTA", "NOTA", "OK", "NOTA"}, "NOTA"},
    {CHXA_ERR_ROLLED_BACK, XA_HEURRB, true, {"DUPID", "RB", "RB", "HEURRB", "RB", "OK", "OK"}, "HEURRB"},
    {CHXA_ERR_HEURISTIC, XA_HEURMIX, true, {"HEURMIX", "HEURMIX", "HEURMIX", "HEURMIX", "HEURMIX", "HEURMIX", "HEURMIX"}, "HEURMIX"},
    {CHXA_ERR_HEURISTIC, 0, true, {"HEURHAZ", "HEURHAZ", "HEURHAZ", "HEURHAZ", "HEURHAZ", "HEURHAZ", "HEURHAZ"}, "HEURHAZ"},
    {CHXA_OK, 0, true, {"OK", "OK", "OK", "OK", "OK", "OK", "OK"}, "OK"},
    /* a 409 from which the state is missing says nothing */
    {CHXA_ERR_WRONG_STATE, XAER_PROTO, true, {"RMERR", "RMERR", "RMERR", "RMFAIL", "RMFAIL", "RMFAIL", "RMFAIL"}, "RMFAIL"},
};

/* clang-format on */

START_TEST(every_kind_of_error_to_every_call)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct chxa_error error = {.code = errors[i].code,
                                   .xa_code = errors[i].xa_code,
                                   .outcome =
                                       errors[i].known ? CHXA_OUTCOME_KNOWN : CHXA_OUTCOME_UNKNOWN};
        for (size_t e = 0; e < N_ASKED; e++) {
            const char *got =
                code_name(cx_xa_answer_code(asked[e], &error, XA_HEURISTIC_NONE, false, false));
            ck_assert_msg(strcmp(got, errors[i].codes[e]) == 0, "%s at %s: %s, not %s",
                          chxa_error_name(error.code), event_names[asked[e]], got,
                          errors[i].codes[e]);
        }
        const char *got =
            code_name(cx_xa_answer_code(XA_EVENT_COMMIT, &error, XA_HEURISTIC_NONE, false, true));
        ck_assert_msg(strcmp(got, errors[i].nowait) == 0, "%s at commit with TMNOWAIT: %s, not %s",
                      chxa_error_name(error.code), got, errors[i].nowait);
    }
}
END_TEST

/* The standard allows XA_RETRY of xa_commit in two phases and of xa_start only; rollback codes never of a two-phase commit;
 * and XAER_RMERR of xa_commit would say that the rows are gone. Over all errors there are. */
START_TEST(no_code_where_the_standard_has_none)
{
    for (int number = 0; number < 120; number++) {
        for (int xa = -9; xa <= XA_RBEND; xa++) {
            for (int bits = 0; bits < 4 * 7; bits++) {
                struct chxa_error error = {.code = -number,
                                           .xa_code = xa,
                                           .outcome =
                                               bits & 1 ? CHXA_OUTCOME_UNKNOWN : CHXA_OUTCOME_KNOWN,
                                           .state = (enum chxa_txn_state)(bits / 4)};
                bool nowait = bits & 2;
                int commit = cx_xa_answer_code(XA_EVENT_COMMIT, &error, 0, false, nowait);
                int one = cx_xa_answer_code(XA_EVENT_COMMIT_ONE, &error, 0, false, nowait);
                int rollback = cx_xa_answer_code(XA_EVENT_ROLLBACK, &error, 0, false, nowait);
                int prepare = cx_xa_answer_code(XA_EVENT_PREPARE, &error, 0, false, nowait);
                if (commit == XAER_RMERR || one == XAER_RMERR || commit >= XA_RBBASE ||
                    one == XA_RETRY || rollback == XA_RETRY || prepare == XA_RETRY ||
                    rollback == XAER_NOTA || (!nowait && commit == XA_RETRY))
                    ck_abort_msg("error %d, XA code %d, state %d", number, xa, bits / 4);
                if (number == 0)
                    break;
                if ((commit == XA_OK || prepare == XA_OK || one == XA_OK) &&
                    -number != CHXA_ERR_WRONG_STATE && -number != CHXA_ERR_ROLLED_BACK)
                    ck_abort_msg("a failure %d that is XA_OK", number);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xa_table");
    TCase *tcase = tcase_create("xa_table");
    tcase_add_test(tcase, every_combination_of_flags);
    tcase_add_test(tcase, every_cell_of_associations);
    tcase_add_test(tcase, every_cell_of_branches);
    tcase_add_test(tcase, every_state_of_a_record_to_every_call);
    tcase_add_test(tcase, every_kind_of_error_to_every_call);
    tcase_add_test(tcase, no_code_where_the_standard_has_none);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
