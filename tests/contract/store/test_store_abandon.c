/* SPDX-License-Identifier: Apache-2.0
 *
 * Ending a transaction of a node that is gone, the same tests for SQLite and for ZooKeeper: never
 * while its lock is held, all in one step, and the node that comes back is behind it.
 */
#include "contract/store/store_lab.h"

static int abandon(struct lab *lab, struct lab_node *node, struct chxa_record *record)
{
    struct lab_answer answer = {0};
    store_abandon(node->store, record, lab_answered, &answer);
    int code = lab_finish(lab, &answer);
    if (code == 0)
        ck_assert_int_eq(answer.version, record->version + 1);
    ck_assert(!answer.has_record);
    return code;
}

static struct chxa_record as(const struct chxa_record *from, enum chxa_state state)
{
    struct chxa_record record;
    ck_assert_int_eq(chxa_record_copy(from, &record), 0);
    record.version = from->version;
    lab_record_set(&record, state, "op-abandon");
    mem_replace(&record.abandoned_by, "n1");
    return record;
}

static size_t count_open(struct lab *lab, struct lab_node *node, const char *owner)
{
    struct lab_answer answer = lab_list(
        lab, node, &(struct store_filter){.owner = owner, .unfinished = true, .limit = 100});
    ck_assert_int_eq(answer.code, 0);
    size_t n = answer.n_records;
    lab_answer_clear(&answer);
    return n;
}

static void is_unchanged(struct lab *lab, struct lab_node *node, const struct chxa_record *record)
{
    struct lab_answer answer = lab_get(lab, node, record->xid);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_int_eq(answer.version, record->version);
    ck_assert_str_eq(answer.record.op_id, record->op_id);
    lab_answer_clear(&answer);
}

START_TEST(refused_while_the_lock_is_held)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *through = lab_node(&lab, "n1"), *owner = lab_node(&lab, "n2");
    struct chxa_record theirs = lab_record("x", "n2"), ours = lab_record("y", "n1");
    ck_assert_int_eq(lab_create(&lab, owner, &theirs), 0);
    ck_assert_int_eq(lab_create(&lab, through, &ours), 0);
    uint64_t epoch = store_epoch(owner->store);
    struct chxa_record ended = as(&theirs, CHXA_ABORTED), own = as(&ours, CHXA_ABORTED);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(abandon(&lab, through, &ended), CHXA_E_OWNER_ALIVE);
    ck_assert_int_eq(abandon(&lab, through, &own), CHXA_E_OWNER_ALIVE); /* this node itself */
    is_unchanged(&lab, through, &theirs);
    is_unchanged(&lab, through, &ours);
    ck_assert_uint_eq(count_open(&lab, through, "n2"), 1);
    /* The owner noticed nothing. */
    lab_record_set(&theirs, CHXA_PREPARED, "op-owner");
    ck_assert_int_eq(lab_cas(&lab, owner, &theirs), 0);
    ck_assert_uint_eq(store_epoch(owner->store), epoch);
    ck_assert_uint_eq(owner->n_lost, 0);
    chxa_record_clear(&ended);
    chxa_record_clear(&own);
    chxa_record_clear(&theirs);
    chxa_record_clear(&ours);
    lab_close(&lab);
}
END_TEST

START_TEST(ended_when_the_owner_is_gone)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *through = lab_node(&lab, "n1"), *owner = lab_node(&lab, "n2");
    struct chxa_record record = lab_record("x", "n2"), other = lab_record("z", "n2");
    struct chxa_write write = lab_write(1, 2);
    ck_assert_int_eq(lab_create(&lab, owner, &record), 0);
    ck_assert_int_eq(lab_create(&lab, owner, &other), 0);
    ck_assert_int_eq(lab_add_write(&lab, owner, "x", 0, &write), 0);
    uint64_t epoch = store_epoch(owner->store);
    lab_stop(&lab, owner);

    struct chxa_record ended = as(&record, CHXA_ABORTED);
    ck_assert_int_eq(abandon(&lab, through, &ended), 0);
    struct lab_answer answer = lab_get(&lab, through, "x");
    ck_assert_int_eq(answer.code, 0);
    ck_assert_int_eq(answer.version, 1);
    ck_assert_int_eq(answer.record.state, CHXA_ABORTED);
    ck_assert_str_eq(answer.record.abandoned_by, "n1");
    ck_assert_str_eq(answer.record.owner, "n2");
    ck_assert_uint_eq(answer.record.n_writes, 1);
    lab_answer_clear(&answer);
    ck_assert_uint_eq(count_open(&lab, through, "n2"), 1); /* the other one */

    /* The owner is free to come back, and knows that it was fenced: once more by its own start. */
    owner = lab_node(&lab, "n2");
    ck_assert_uint_eq(store_epoch(owner->store), epoch + 2);
    lab_record_set(&record, CHXA_PREPARED, "op-late");
    ck_assert_int_eq(lab_cas(&lab, owner, &record), CHXA_E_STORE_CONFLICT);
    lab_record_set(&other, CHXA_PREPARED, "op-good");
    ck_assert_int_eq(lab_cas(&lab, owner, &other), 0);
    chxa_record_clear(&ended);
    chxa_record_clear(&record);
    chxa_record_clear(&other);
    chxa_write_clear(&write);
    lab_close(&lab);
}
END_TEST

START_TEST(refused_and_then_nothing_is_changed)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *through = lab_node(&lab, "n1"), *owner = lab_node(&lab, "n2");
    struct chxa_record record = lab_record("x", "n2"), none = lab_record("none", "n2");
    ck_assert_int_eq(lab_create(&lab, owner, &record), 0);
    uint64_t epoch = store_epoch(owner->store);
    lab_stop(&lab, owner);
    struct chxa_record ended = as(&record, CHXA_ABORTED), missing = as(&none, CHXA_ABORTED);
    struct chxa_record open = as(&record, CHXA_ABORTING);
    ended.version = 5;
    ck_assert_int_eq(abandon(&lab, through, &ended), CHXA_E_STORE_CONFLICT);
    ck_assert_int_eq(abandon(&lab, through, &missing), CHXA_E_TXN_NOT_FOUND);
    ck_assert_int_eq(abandon(&lab, through, &open), CHXA_E_INVALID_RECORD);
    is_unchanged(&lab, through, &record);
    owner = lab_node(&lab, "n2");
    ck_assert_uint_eq(store_epoch(owner->store), epoch + 1); /* its own start's */
    chxa_record_clear(&ended);
    chxa_record_clear(&missing);
    chxa_record_clear(&open);
    chxa_record_clear(&none);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* A decided commit that is given up with its owner is its sink's last commit; one that is aborted
 * is not. */
static void sink_is_at(void *arg, const struct store_sink_result *result)
{
    ck_assert_int_eq(result->code, 0);
    ck_assert_pstr_eq(result->sink->checkpoint.xid, "x");
    *(bool *)arg = true;
}

START_TEST(sink_keeps_what_was_committed)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *through = lab_node(&lab, "n1"), *owner = lab_node(&lab, "n2");
    static const enum chxa_state ends[] = {CHXA_COMMITTED, CHXA_ABORTED};
    struct chxa_record records[2], ended[2];
    for (int i = 0; i < 2; i++) {
        records[i] = lab_record(i ? "y" : "x", "n2");
        records[i].sink = mem_strdup("job:7");
        records[i].sink_epoch = 3;
        records[i].created_ms += i;
        ck_assert_int_eq(lab_create(&lab, owner, &records[i]), 0);
    }
    lab_stop(&lab, owner);
    for (int i = 0; i < 2; i++) {
        ended[i] = as(&records[i], ends[i]);
        ck_assert_int_eq(abandon(&lab, through, &ended[i]), 0);
    }
    bool done = false;
    store_sink_get(through->store, "job:7", sink_is_at, &done);
    lab_wait(&lab, &done);
    ck_assert_uint_eq(count_open(&lab, through, "n2"), 0);
    for (int i = 0; i < 2; i++) {
        chxa_record_clear(&records[i]);
        chxa_record_clear(&ended[i]);
    }
    lab_close(&lab);
}
END_TEST

static void add_tests(TCase *tests)
{
    int kinds = lab_kinds();
    tcase_add_loop_test(tests, refused_while_the_lock_is_held, 0, kinds);
    tcase_add_loop_test(tests, ended_when_the_owner_is_gone, 0, kinds);
    tcase_add_loop_test(tests, refused_and_then_nothing_is_changed, 0, kinds);
    tcase_add_loop_test(tests, sink_keeps_what_was_committed, 0, kinds);
}

int main(void)
{
    return lab_main("store abandon", add_tests);
}
