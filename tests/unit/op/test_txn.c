/* SPDX-License-Identifier: Apache-2.0
 *
 * The waiters of a transaction, over a scripted store that answers when the test says so: each
 * request is answered once, whatever order the answers come in.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "lib/suite.h"
#include "op/txn.h"
#include "store/store_impl.h"

#include <check.h>
#include <stdlib.h>

#define HELD_MAX 8
#define IDLE_MS  600000
#define TOTAL_MS 3600000
#define YEAR_MS  (365LL * 24 * 3600 * 1000)

struct script {
    struct store base;
    struct store_op *held[HELD_MAX]; /* requests that wait for the test's answer, oldest first */
    size_t n_held;
};

static uv_loop_t loop;
static struct script script;
static struct ch_client *client;
static struct coord *coord;
static bool closed;

static void script_start(struct store *base, struct store_op *op)
{
    (void)base;
    ck_assert(script.n_held < HELD_MAX);
    script.held[script.n_held++] = op;
}

static void script_close(struct store *base)
{
    store_impl_closed(base);
}

static void script_destroy(struct store *base)
{
    store_base_clear(base);
}

static const struct store_impl script_impl = {"script", script_start, script_close, script_destroy};

static void set_closed(void *arg)
{
    (void)arg;
    closed = true;
}

static void run_until_closed(void)
{
    closed = false;
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Lets the loop turn until the store holds n requests. What goes through a worker thread may take its time. */
static void run_until_held(size_t n)
{
    for (int turns = 0; script.n_held < n; turns++) {
        ck_assert_msg(turns < 3000, "%zu requests reached the store, not %zu", script.n_held, n);
        uv_run(&loop, UV_RUN_NOWAIT);
        if (turns > 100)
            uv_sleep(1);
    }
    ck_assert_uint_eq(script.n_held, n);
}

static void turn(void)
{
    for (int turns = 0; turns < 20; turns++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

/* Answers the oldest request that waits, which must be of that kind. */
static void answer(enum store_op_kind kind, int code)
{
    ck_assert(script.n_held > 0);
    struct store_op *op = script.held[0];
    ck_assert_int_eq(op->kind, kind);
    for (size_t i = 1; i < script.n_held; i++)
        script.held[i - 1] = script.held[i];
    script.n_held--;
    if (kind == STORE_OP_GET && code == 0) {
        op->ret_has_record = true;
        op->ret_record.xid = mem_strdup(op->xid);
        op->ret_record.owner = mem_strdup("n1");
        op->ret_record.owner_url = mem_strdup("http://n1");
        op->ret_record.state = CHXA_COMMITTED;
        op->ret_version = 3;
    }
    store_op_finish(op, code);
}

static void no_event(void *arg, enum store_event event, const char *detail)
{
    (void)arg, (void)event, (void)detail;
}

static void setup(void)
{
    uv_loop_init(&loop);
    struct ch_client_config ch = {
        .url = "http://127.0.0.1:9", /* never asked */
        .connections_max = 1,
        .queue_max = 1,
        .answer_bytes_max = 65536,
    };
    struct error error = {0};
    ck_assert_int_eq(ch_client_new(&loop, &ch, &client, &error), 0);
    struct coord_config config = {
        .cluster = "main",
        .node = "n1",
        .url = "http://n1",
        .database = "chxa",
        .store_timeout_ms = 10000,
        .transactions_max = 10,
        .idle_timeout_ms = IDLE_MS,
        .transaction_timeout_ms = TOTAL_MS,
        .scratch_tables_max = 1,
        .clickhouse_timeout_ms = 1000,
    };
    coord_new(&loop, &config, client, &coord);
    struct store_config store = {.cluster = "main", .node = "n1", .url = "http://n1"};
    script = (struct script){0};
    store_base_init(&script.base, &script_impl, &loop, &store, no_event, NULL);
    script.base.ready = true;
    coord_set_store(coord, &script.base);
}

static void teardown(void)
{
    clock_shift(0, 0);
    ck_assert_uint_eq(script.n_held, 0);
    coord_stop(coord, 0, set_closed, NULL);
    run_until_closed();
    coord_halt(coord);
    store_close(&script.base, set_closed, NULL);
    run_until_closed();
    ch_client_close(client, set_closed, NULL);
    run_until_closed();
    coord_free(coord);
}

struct asked {
    int answers, code;
    bool pending;
};

static void answered(void *arg, const struct coord_reply *reply)
{
    struct asked *asked = arg;
    asked->answers++;
    asked->code = reply->code;
    asked->pending = reply->pending;
}

static void ck_answered(const struct asked *asked, int code)
{
    ck_assert_int_eq(asked->answers, 1);
    ck_assert_int_eq(asked->code, code);
}

/* Two clients forget the same transaction; the second removal is answered after the record was read
 * again and not found. */
START_TEST(forgotten_twice)
{
    struct asked first = {0}, second = {0};
    coord_forget(coord, "x", answered, &first);
    coord_forget(coord, "x", answered, &second);
    ck_assert_int_eq(first.answers, 0);
    run_until_held(1);
    answer(STORE_OP_GET, 0);
    run_until_held(2);
    answer(STORE_OP_REMOVE, 0);
    run_until_held(2);
    ck_answered(&first, 0);
    struct store_op *removal = script.held[0];
    script.held[0] = script.held[1];
    script.held[1] = removal;
    answer(STORE_OP_GET, CHXA_E_TXN_NOT_FOUND);
    turn();
    answer(STORE_OP_REMOVE, CHXA_E_TXN_NOT_FOUND);
    turn();
    ck_answered(&second, CHXA_E_TXN_NOT_FOUND);
}
END_TEST

/* … or after reading it again has failed. */
START_TEST(forgotten_twice_and_unreadable)
{
    struct asked first = {0}, second = {0};
    coord_forget(coord, "x", answered, &first);
    coord_forget(coord, "x", answered, &second);
    run_until_held(1);
    answer(STORE_OP_GET, 0);
    run_until_held(2);
    answer(STORE_OP_REMOVE, 0);
    run_until_held(2);
    struct store_op *removal = script.held[0];
    script.held[0] = script.held[1];
    script.held[1] = removal;
    answer(STORE_OP_GET, CHXA_E_STORE_UNAVAILABLE);
    turn();
    answer(STORE_OP_REMOVE, CHXA_E_TXN_NOT_FOUND);
    turn();
    ck_answered(&first, 0);
    ck_answered(&second, CHXA_E_TXN_NOT_FOUND);
}
END_TEST

/* Every waiting reader hears of a store that cannot be read, once, and on a later turn. */
START_TEST(unreadable)
{
    struct asked first = {0}, second = {0};
    coord_get(coord, "x", answered, &first);
    coord_get(coord, "x", answered, &second);
    run_until_held(1);
    answer(STORE_OP_GET, CHXA_E_STORE_UNKNOWN);
    ck_assert_int_eq(first.answers, 0);
    turn();
    ck_answered(&first, CHXA_E_STORE_UNAVAILABLE);
    ck_answered(&second, CHXA_E_STORE_UNAVAILABLE);
}
END_TEST

/* The store's oldest request is a change to a record with that meta. */
static void ck_stores_meta(const char *meta)
{
    struct chxa_record record;
    const struct store_op *op = script.held[0];
    ck_assert_int_eq(op->kind, STORE_OP_CAS);
    ck_assert_int_eq(chxa_record_decode(op->text, op->text_bytes, &record), 0);
    ck_assert_int_eq(record.state, CHXA_PREPARED);
    ck_assert_str_eq(record.meta, meta);
    chxa_record_clear(&record);
}

/* A prepare's meta is in the change to Prepared; one that failed leaves nothing to the next. */
START_TEST(meta_at_prepare)
{
    struct asked begun = {0}, failed = {0}, prepared = {0}, again = {0};
    coord_begin(coord, "x", &(struct coord_begin){.meta = "1"}, answered, &begun);
    run_until_held(1);
    answer(STORE_OP_CREATE, 0);
    turn();
    coord_finish_meta(coord, "x", TXN_PREPARE, NULL, "2", 60000, answered, &failed);
    run_until_held(1);
    ck_stores_meta("2");
    answer(STORE_OP_CAS, CHXA_E_FENCED);
    turn();
    ck_answered(&failed, CHXA_E_FENCED);
    coord_finish(coord, "x", TXN_PREPARE, NULL, 60000, answered, &prepared);
    coord_finish_meta(coord, "x", TXN_PREPARE, NULL, "3", 60000, answered, &again);
    run_until_held(1);
    ck_stores_meta("1");
    answer(STORE_OP_CAS, 0);
    turn();
    ck_answered(&prepared, 0);
    ck_answered(&again, 0);
}
END_TEST

/* A commit that does not wait, while a prepare runs: 202 at once, and it is carried out in its turn. */
START_TEST(not_waited_for_but_done)
{
    struct asked begun = {0}, prepared = {0}, committed = {0};
    coord_begin(coord, "x", &(struct coord_begin){0}, answered, &begun);
    run_until_held(1);
    answer(STORE_OP_CREATE, 0);
    turn();
    ck_answered(&begun, 0);
    coord_finish(coord, "x", TXN_PREPARE, NULL, 60000, answered, &prepared);
    run_until_held(1);
    coord_finish(coord, "x", TXN_COMMIT, NULL, 0, answered, &committed);
    turn();
    ck_answered(&committed, 0);
    ck_assert(committed.pending);
    answer(STORE_OP_CAS, 0); /* Prepared */
    run_until_held(1);
    ck_answered(&prepared, 0);
    answer(STORE_OP_CAS, 0); /* Committing */
    run_until_held(1);
    answer(STORE_OP_CAS, 0); /* Committed */
    turn();
    ck_answered(&committed, 0);
}
END_TEST

static void refreshed(void *arg, struct txn *txn, int code)
{
    struct asked *asked = arg;
    ck_assert_str_eq(txn_xid(txn), "x");
    asked->answers++;
    asked->code = code;
}

static void begin_x(void)
{
    struct asked begun = {0};
    coord_begin(coord, "x", &(struct coord_begin){0}, answered, &begun);
    run_until_held(1);
    answer(STORE_OP_CREATE, 0);
    turn();
    ck_answered(&begun, 0);
}

/* The store has the record already: of what was gathered in it another process knows. */
static void conflict_with_gathered(void)
{
    struct store_op *op = script.held[0];
    op->ret_has_record = true;
    op->ret_record = (struct chxa_record){
        .xid = mem_strdup("x"),
        .owner = mem_strdup("n1"),
        .owner_url = mem_strdup("http://n1"),
        .op_id = mem_strdup("n1-1-0-1"),
        .state = CHXA_INITIALIZED,
        .created_ms = clock_wall_ms(),
        .gather = true,
    };
    op->ret_version = 3;
    answer(STORE_OP_CREATE, CHXA_E_STORE_CONFLICT);
}

/* What another process began can only be rolled back here, and whoever does not wait hears of it too; what this one
 * begins under the same id afterwards is another matter. */
START_TEST(gathered_elsewhere)
{
    struct asked begun = {0}, prepared = {0}, committed = {0}, rolled_back = {0}, again = {0};
    coord_begin(coord, "x", &(struct coord_begin){.gather = true}, answered, &begun);
    run_until_held(1);
    conflict_with_gathered();
    turn();
    ck_answered(&begun, 0);
    coord_finish(coord, "x", TXN_PREPARE, NULL, 60000, answered, &prepared);
    coord_finish(coord, "x", TXN_COMMIT, NULL, 0, answered, &committed);
    turn();
    ck_answered(&prepared, CHXA_E_ROLLBACK_ONLY);
    ck_answered(&committed, CHXA_E_ROLLBACK_ONLY);
    coord_finish(coord, "x", TXN_ROLLBACK, NULL, 60000, answered, &rolled_back);
    run_until_held(1);
    answer(STORE_OP_CAS, 0); /* Aborting */
    run_until_held(1);
    answer(STORE_OP_CAS, 0); /* Aborted */
    turn();
    ck_answered(&rolled_back, 0);
    ck_assert_ptr_null(txn_find(coord, "x"));
    coord_begin(coord, "x", &(struct coord_begin){.gather = true}, answered, &again);
    run_until_held(1);
    answer(STORE_OP_CREATE, 0);
    turn();
    ck_answered(&again, 0);
    struct asked promised = {0};
    coord_finish(coord, "x", TXN_PREPARE, NULL, 60000, answered, &promised);
    run_until_held(1);
    answer(STORE_OP_CAS, 0); /* Prepared */
    turn();
    ck_answered(&promised, 0);
}
END_TEST

/* Recovery reads a record beside what runs: an operation that ends meanwhile must not be undone in memory. */
START_TEST(not_refreshed_beside_an_operation)
{
    begin_x();
    struct asked committed = {0}, read = {0};
    coord_finish(coord, "x", TXN_COMMIT, NULL, 60000, answered, &committed);
    run_until_held(1);
    ck_assert(!txn_refresh(txn_find(coord, "x"), refreshed, &read));
    answer(STORE_OP_CAS, 0); /* Committing */
    run_until_held(1);
    ck_assert(!txn_refresh(txn_find(coord, "x"), refreshed, &read));
    answer(STORE_OP_CAS, 0); /* Committed */
    turn();
    ck_answered(&committed, 0);
    ck_assert_int_eq(read.answers, 0);
    ck_assert_ptr_null(txn_find(coord, "x"));
}
END_TEST

/* … and nothing begins while recovery reads: the request waits for the record, then goes by it. */
START_TEST(nothing_begins_while_refreshed)
{
    begin_x();
    struct asked committed = {0}, read = {0};
    ck_assert(txn_refresh(txn_find(coord, "x"), refreshed, &read));
    coord_finish(coord, "x", TXN_COMMIT, NULL, 60000, answered, &committed);
    run_until_held(1);
    turn();
    ck_assert(!txn_refresh(txn_find(coord, "x"), refreshed, &read));
    ck_assert_int_eq(committed.answers, 0);
    answer(STORE_OP_GET, 0); /* Committed, by somebody else */
    turn();
    ck_answered(&read, 0);
    ck_answered(&committed, 0);
}
END_TEST

START_TEST(refreshed_without_an_answer_or_a_record)
{
    struct asked read = {0}, again = {0};
    ck_assert(txn_refresh(txn_ensure(coord, "x"), refreshed, &read));
    run_until_held(1);
    answer(STORE_OP_GET, CHXA_E_STORE_UNKNOWN);
    turn();
    ck_answered(&read, CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_null(txn_find(coord, "x"));
    ck_assert(txn_refresh(txn_ensure(coord, "x"), refreshed, &again));
    run_until_held(1);
    answer(STORE_OP_GET, CHXA_E_TXN_NOT_FOUND);
    turn();
    ck_answered(&again, 0);
    ck_assert_ptr_null(txn_find(coord, "x"));
}
END_TEST

/* A begin whose record could not be made says nothing of the transaction: who waits behind it asks
 * the store. */
START_TEST(behind_a_begin_that_failed)
{
    struct asked begun = {0}, committed = {0};
    coord_begin(coord, "x", &(struct coord_begin){0}, answered, &begun);
    coord_finish(coord, "x", TXN_COMMIT, NULL, 60000, answered, &committed);
    run_until_held(1);
    answer(STORE_OP_CREATE, CHXA_E_FENCED);
    run_until_held(1);
    ck_answered(&begun, CHXA_E_FENCED);
    ck_assert_int_eq(committed.answers, 0);
    answer(STORE_OP_GET, 0); /* Committed */
    turn();
    ck_answered(&committed, 0);
}
END_TEST

START_TEST(behind_a_begin_that_was_too_many)
{
    struct asked begun = {0}, committed = {0};
    coord->config.transactions_max = 0;
    coord_begin(coord, "x", &(struct coord_begin){0}, answered, &begun);
    coord_finish(coord, "x", TXN_COMMIT, NULL, 60000, answered, &committed);
    run_until_held(1);
    ck_answered(&begun, CHXA_E_BUSY);
    ck_assert_int_eq(committed.answers, 0);
    answer(STORE_OP_GET, 0);
    turn();
    ck_answered(&committed, 0);
}
END_TEST

/* ---- time-outs ---- */

/* Long enough for the sweep to have come by. */
static void sweep(void)
{
    uint64_t until_us = clock_monotonic_us() + 600000;
    while (clock_monotonic_us() < until_us)
        uv_run(&loop, UV_RUN_ONCE);
}

static void begin(int64_t timeout_ms)
{
    struct asked begun = {0};
    coord->recovered = coord->store_ready = true;
    coord_begin(coord, "x", &(struct coord_begin){.timeout_ms = timeout_ms}, answered, &begun);
    run_until_held(1);
    answer(STORE_OP_CREATE, 0);
    turn();
    ck_answered(&begun, 0);
}

static void ck_aborts(void)
{
    run_until_held(1);
    ck_assert_int_eq(script.held[0]->state, CHXA_ABORTING);
    answer(STORE_OP_CAS, CHXA_E_STORE_UNAVAILABLE); /* enough seen */
    coord->recovered = false;
    turn();
}

/* The sweep comes by twice in each pause, which therefore is part of the time that passes. */
START_TEST(idle)
{
    begin(0);
    clock_shift(0, IDLE_MS - 5000);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    clock_shift(0, IDLE_MS);
    sweep();
    ck_aborts();
}
END_TEST

/* Nothing ends while the store is away; when it is back, it does. */
START_TEST(store_away)
{
    begin(0);
    coord->store_ready = false;
    clock_shift(0, IDLE_MS);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    coord->store_ready = true;
    sweep();
    ck_aborts();
}
END_TEST

/* Kept busy, until the total limit. */
START_TEST(total)
{
    begin(0);
    for (int64_t at = IDLE_MS / 2; at < TOTAL_MS - IDLE_MS; at += IDLE_MS / 2) {
        clock_shift(at, at);
        struct asked asked = {0};
        coord_begin(coord, "x", &(struct coord_begin){0}, answered, &asked);
        turn();
        ck_answered(&asked, 0);
    }
    txn_find(coord, "x")->touched_ms = clock_monotonic_ms() + IDLE_MS;
    clock_shift(TOTAL_MS - 5000, TOTAL_MS - 5000);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    clock_shift(TOTAL_MS, TOTAL_MS);
    sweep();
    ck_aborts();
}
END_TEST

/* A begin may ask for less, not for more. */
START_TEST(asked_for)
{
    begin(20000);
    ck_assert_int_eq(txn_find(coord, "x")->record.timeout_ms, 20000);
    clock_shift(0, 15000);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    clock_shift(0, 20000);
    sweep();
    ck_aborts();
}
END_TEST

START_TEST(asked_for_more)
{
    begin(INT64_MAX);
    ck_assert_int_eq(txn_find(coord, "x")->record.timeout_ms, TOTAL_MS);
}
END_TEST

/* The wall clock is set forward, then back, by a year: young stays, old does not. */
START_TEST(wall_clock_is_set)
{
    begin(0);
    clock_shift(YEAR_MS, 0);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    clock_shift(-YEAR_MS, IDLE_MS / 2);
    sweep();
    ck_assert_uint_eq(script.n_held, 0);
    clock_shift(-YEAR_MS, IDLE_MS);
    sweep();
    ck_aborts();
}
END_TEST

START_TEST(prepared_has_no_timer)
{
    begin(1000);
    struct asked prepared = {0};
    coord_finish(coord, "x", TXN_PREPARE, NULL, 60000, answered, &prepared);
    run_until_held(1);
    answer(STORE_OP_CAS, 0);
    turn();
    ck_answered(&prepared, 0);
    for (int64_t at = YEAR_MS; at <= 3 * YEAR_MS; at += YEAR_MS) {
        clock_shift(at, at);
        sweep();
        ck_assert_uint_eq(script.n_held, 0);
    }
}
END_TEST

/* What is not answered when the coordinator is halted is neither asked again nor answered. */
START_TEST(halted)
{
    struct asked asked = {0};
    coord_get(coord, "x", answered, &asked);
    run_until_held(1);
    coord_stop(coord, 0, set_closed, NULL);
    run_until_closed();
    coord_halt(coord);
    answer(STORE_OP_GET, CHXA_E_STORE_UNAVAILABLE);
    turn();
    ck_assert_int_eq(asked.answers, 0);
    ck_assert_uint_eq(script.n_held, 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("txn");
    TCase *t = tcase_create("waiters");
    tcase_set_timeout(t, 20);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, forgotten_twice);
    tcase_add_test(t, forgotten_twice_and_unreadable);
    tcase_add_test(t, unreadable);
    tcase_add_test(t, not_waited_for_but_done);
    tcase_add_test(t, gathered_elsewhere);
    tcase_add_test(t, not_refreshed_beside_an_operation);
    tcase_add_test(t, nothing_begins_while_refreshed);
    tcase_add_test(t, refreshed_without_an_answer_or_a_record);
    tcase_add_test(t, meta_at_prepare);
    tcase_add_test(t, behind_a_begin_that_failed);
    tcase_add_test(t, behind_a_begin_that_was_too_many);
    suite_add_tcase(s, t);
    TCase *times = tcase_create("time-outs");
    tcase_set_timeout(times, 20);
    tcase_add_checked_fixture(times, setup, teardown);
    tcase_add_test(times, idle);
    tcase_add_test(times, store_away);
    tcase_add_test(times, total);
    tcase_add_test(times, asked_for);
    tcase_add_test(times, asked_for_more);
    tcase_add_test(times, wall_clock_is_set);
    tcase_add_test(times, prepared_has_no_timer);
    suite_add_tcase(s, times);
    TCase *stop = tcase_create("stop");
    tcase_add_checked_fixture(stop, setup, NULL);
    tcase_add_test(stop, halted);
    suite_add_tcase(s, stop);
    return suite_run(s);
}
