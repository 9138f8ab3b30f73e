/* SPDX-License-Identifier: Apache-2.0
 *
 * Retention, on a real SQLite store: only finished and old records go, of this node and of those
 * that do not run, over several pages; the store says where the history begins; the wall clock may be set; stopping in the middle
 * is clean.
 */
#include "contract/store/store_lab.h"

#include "lib/suite.h"
#include "op/retention.h"

#define RETENTION_MS 20000u

static struct lab lab;
static struct lab_node *node;

static void setup(void)
{
    lab_open(&lab, LAB_SQLITE, NULL);
    lab.config.fsync = false;
    node = lab_node(&lab, "n1");
}

static void teardown(void)
{
    clock_shift(0, 0);
    char file[300];
    static const char *const endings[] = {"", "-wal", "-shm", ".n1.lock", ".n2.lock"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        snprintf(file, sizeof file, "%s%s", lab.uri + strlen("sqlite:"), endings[i]);
        unlink(file);
    }
    lab_close(&lab);
}

static void put(const char *xid, const char *owner, enum chxa_state state, int64_t age_ms)
{
    struct chxa_record record = lab_record(xid, owner);
    record.state = state;
    record.created_ms = 1000;
    record.changed_ms = clock_wall_ms() - age_ms;
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    chxa_record_clear(&record);
}

static bool is_there(const char *xid)
{
    struct lab_answer answer = lab_get(&lab, node, xid);
    bool there = answer.code == 0;
    ck_assert(there || answer.code == CHXA_E_TXN_NOT_FOUND);
    lab_answer_clear(&answer);
    return there;
}

static int64_t history(void)
{
    struct lab_answer answer = {0};
    store_history_get(node->store, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), 0);
    return answer.version;
}

START_TEST(only_old_finished_records)
{
    struct lab_node *other = lab_node(&lab, "n2");
    put("old-committed", "n1", CHXA_COMMITTED, RETENTION_MS + 1000);
    put("old-aborted", "n1", CHXA_ABORTED, RETENTION_MS + 1000);
    put("new-committed", "n1", CHXA_COMMITTED, 0);
    put("old-prepared", "n1", CHXA_PREPARED, RETENTION_MS + 1000);
    put("old-initialized", "n1", CHXA_INITIALIZED, RETENTION_MS + 1000);
    put("old-committing", "n1", CHXA_COMMITTING, RETENTION_MS + 1000);
    put("old-of-another", "n2", CHXA_COMMITTED, RETENTION_MS + 1000);
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    for (int i = 0; i < 100 && is_there("old-committed"); i++)
        lab_pause(&lab, 20);
    lab_pause(&lab, 100);
    ck_assert(!is_there("old-committed"));
    ck_assert(!is_there("old-aborted"));
    ck_assert(is_there("new-committed"));
    ck_assert(is_there("old-prepared"));
    ck_assert(is_there("old-initialized"));
    ck_assert(is_there("old-committing"));
    ck_assert(is_there("old-of-another"));
    lab_stop(&lab, other);
    int64_t starts_ms = history(), now_ms = clock_wall_ms();
    ck_assert_int_lt(starts_ms, now_ms - RETENTION_MS - 999);
    ck_assert_int_gt(starts_ms, now_ms - RETENTION_MS - 20000);
    retention_stop(retention);
}
END_TEST

/* Of a node that does not run, except where it has something to set aside when it comes back. */
START_TEST(old_records_of_a_lost_node)
{
    put("lost-committed", "n2", CHXA_COMMITTED, RETENTION_MS + 1000);
    put("lost-aborted", "n2", CHXA_ABORTED, RETENTION_MS + 1000);
    put("lost-new", "n2", CHXA_COMMITTED, 0);
    put("lost-prepared", "n2", CHXA_PREPARED, RETENTION_MS + 1000);
    struct chxa_record record = lab_record("lost-abandoned", "n2");
    record.state = CHXA_ABORTED;
    record.abandoned_by = mem_strdup("n1");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    mem_replace(&record.xid, "lost-discarded");
    mem_replace(&record.abandoned_by, NULL);
    record.state = CHXA_COMMITTED;
    record.heuristic = CHXA_HEURISTIC_MIXED;
    record.discarded = mem_array(1, sizeof *record.discarded);
    record.discarded[0] = (struct chxa_range){1000000000000000, 1000000000000000};
    record.n_discarded = 1;
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    chxa_record_clear(&record);
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    for (int i = 0; i < 100 && is_there("lost-committed"); i++)
        lab_pause(&lab, 20);
    lab_pause(&lab, 100);
    ck_assert(!is_there("lost-committed"));
    ck_assert(!is_there("lost-aborted"));
    ck_assert(is_there("lost-new"));
    ck_assert(is_there("lost-prepared"));
    ck_assert(is_there("lost-abandoned"));
    ck_assert(is_there("lost-discarded"));
    retention_stop(retention);
}
END_TEST

/* Where the history begins is the youngest record that went, and stays when nothing goes. */
START_TEST(history_is_of_the_records)
{
    put("a", "n1", CHXA_COMMITTED, 3 * RETENTION_MS);
    int64_t middle_ms = clock_wall_ms() - 2 * RETENTION_MS;
    put("b", "n1", CHXA_COMMITTED, 2 * RETENTION_MS);
    put("c", "n1", CHXA_COMMITTED, 0);
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    for (int i = 0; i < 100 && is_there("b"); i++)
        lab_pause(&lab, 20);
    ck_assert(!is_there("a"));
    int64_t starts_ms = history();
    ck_assert_int_gt(starts_ms, middle_ms);
    ck_assert_int_lt(starts_ms, middle_ms + 20000);
    lab_pause(&lab, 1200); /* another round */
    ck_assert_int_eq(history(), starts_ms);
    retention_stop(retention);
}
END_TEST

/* The wall clock is set forward by a year: what is young stays. Time passes: it goes. */
START_TEST(the_wall_clock_is_set)
{
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    lab_pause(&lab, 50);
    put("young", "n1", CHXA_COMMITTED, 1000);
    clock_shift(365LL * 24 * 3600 * 1000, 0);
    lab_pause(&lab, 1500);
    ck_assert(is_there("young"));
    clock_shift(-365LL * 24 * 3600 * 1000, RETENTION_MS + 1000);
    lab_pause(&lab, 1500);
    ck_assert(is_there("young"));
    clock_shift(RETENTION_MS + 1000, RETENTION_MS + 1000);
    for (int i = 0; i < 100 && is_there("young"); i++)
        lab_pause(&lab, 50);
    ck_assert(!is_there("young"));
    retention_stop(retention);
}
END_TEST

/* Finished ones of all ages between others, 250 in all: three pages. */
START_TEST(several_pages)
{
    char xid[32];
    for (int i = 0; i < 250; i++) {
        snprintf(xid, sizeof xid, "x%03d", i);
        put(xid, "n1", i % 5 ? CHXA_COMMITTED : CHXA_PREPARED, i % 2 ? RETENTION_MS + 1000 : 0);
    }
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    for (int i = 0; i < 100 && is_there("x249"); i++)
        lab_pause(&lab, 20);
    lab_pause(&lab, 100);
    for (int i = 0; i < 250; i++) {
        snprintf(xid, sizeof xid, "x%03d", i);
        ck_assert_msg(is_there(xid) == !(i % 5 && i % 2), "%s", xid);
    }
    retention_stop(retention);
}
END_TEST

START_TEST(comes_back)
{
    struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
    lab_pause(&lab, 50);
    put("later", "n1", CHXA_ABORTED, RETENTION_MS + 1000);
    for (int i = 0; i < 100 && is_there("later"); i++)
        lab_pause(&lab, 50);
    ck_assert(!is_there("later"));
    retention_stop(retention);
}
END_TEST

/* With requests under way, then the store closed: no leak (ASan), nothing called later. */
START_TEST(stops_in_the_middle)
{
    char xid[32];
    for (int i = 0; i < 50; i++) {
        snprintf(xid, sizeof xid, "x%03d", i);
        put(xid, "n1", CHXA_COMMITTED, RETENTION_MS + 1000);
    }
    for (int turns = 0; turns < 4; turns++) {
        struct retention *retention = retention_start(&lab.loop, node->store, "n1", RETENTION_MS);
        for (int i = 0; i < turns; i++)
            uv_run(&lab.loop, UV_RUN_ONCE);
        retention_stop(retention);
    }
    lab_stop(&lab, node);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("retention");
    TCase *t = tcase_create("retention");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, only_old_finished_records);
    tcase_add_test(t, old_records_of_a_lost_node);
    tcase_add_test(t, history_is_of_the_records);
    tcase_add_test(t, the_wall_clock_is_set);
    tcase_add_test(t, several_pages);
    tcase_add_test(t, comes_back);
    tcase_add_test(t, stops_in_the_middle);
    suite_add_tcase(s, t);
    return suite_run(s);
}
