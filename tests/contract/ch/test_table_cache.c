/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of a table without asking is what asking says, after whatever was done to it.
 */
#include "contract/ch/ch_lab.h"

#include "ch/table_cache.h"

#define SETTLED_US 1100000u /* see table_stamp.c */
#define TABLE      "cached"

static struct table_cache *cache;

static void setup(void)
{
    lab_setup();
    cache = table_cache_new(lab_client);
}

static void teardown(void)
{
    table_cache_free(cache);
    lab_teardown();
}

static struct lab_table ask(enum table_ask how)
{
    struct lab_table ret = {0};
    lab_waiting = true;
    table_cache_load(cache, &lab_caps, how, LAB_DATABASE, TABLE, LAB_TIMEOUT_MS, lab_loaded, &ret);
    lab_wait();
    return ret;
}

static void lab_table_clear(struct lab_table *loaded)
{
    free(loaded->message);
    ch_table_clear(&loaded->table);
}

static size_t ask_views(enum table_ask how)
{
    struct lab_table loaded = ask(how);
    ck_assert_msg(loaded.code == 0, "%s", loaded.message);
    size_t n = loaded.table.n_views;
    lab_table_clear(&loaded);
    return n;
}

/* A table that is known for sure: looked at before a question and after it. */
static void make_known(void)
{
    lab_sql("CREATE TABLE " LAB_DATABASE "." TABLE
            " (d Date, k UInt64, a UInt64, b String) ENGINE = "
            "MergeTree PARTITION BY toYYYYMM(d) ORDER BY k");
    usleep(SETTLED_US);
    ask_views(TABLE_KNOWN);
    ask_views(TABLE_KNOWN);
}

START_TEST(test_views)
{
    make_known();
    lab_sql("CREATE MATERIALIZED VIEW " LAB_DATABASE
            ".mv ENGINE = MergeTree ORDER BY k AS SELECT k "
            "FROM " LAB_DATABASE "." TABLE);
    /* That it was not noticed is how we see that nothing was asked. */
    ck_assert_uint_eq(ask_views(TABLE_KNOWN), 0);
    struct lab_table loaded = ask(TABLE_VIEWS);
    ck_assert_uint_eq(loaded.table.n_views, 1);
    ck_assert_str_eq(loaded.table.views[0], LAB_DATABASE ".mv");
    lab_table_clear(&loaded);
    ck_assert_uint_eq(ask_views(TABLE_KNOWN), 1);
    lab_sql("DROP TABLE " LAB_DATABASE ".mv");
    ck_assert_uint_eq(ask_views(TABLE_KNOWN), 1);
    ck_assert_uint_eq(ask_views(TABLE_ANEW), 0);
}
END_TEST

/* Nothing is believed of a file that is younger than a filesystem's tick. */
START_TEST(test_young)
{
    make_known();
    lab_sql("ALTER TABLE " LAB_DATABASE "." TABLE " ADD COLUMN c UInt8");
    ask_views(TABLE_KNOWN);
    ask_views(TABLE_KNOWN);
    lab_sql("CREATE MATERIALIZED VIEW " LAB_DATABASE
            ".mv ENGINE = MergeTree ORDER BY k AS SELECT k "
            "FROM " LAB_DATABASE "." TABLE);
    ck_assert_uint_eq(ask_views(TABLE_KNOWN), 1);
}
END_TEST

#define ALTER "ALTER TABLE " LAB_DATABASE "." TABLE " "
#define LIKE  LAB_DATABASE ".other AS " LAB_DATABASE "." TABLE
#define MOVE  "RENAME TABLE " LAB_DATABASE "." TABLE " TO " LAB_DATABASE ".away"

static const struct change {
    const char *sql[3];
    bool is_new;  /* not for 18.16 */
    bool changes; /* the definition */
} changes[] = {
    {{"INSERT INTO " LAB_DATABASE "." TABLE " VALUES ('2024-01-01', 1, 1, '')"}, false, false},
    {{ALTER "DELETE WHERE k = 1"}, false, false},
    {{ALTER "ADD COLUMN c UInt8"}, false, true},
    {{ALTER "MODIFY COLUMN a UInt32"}, false, true},
    {{ALTER "MODIFY COLUMN a DEFAULT 7"}, false, true},
    {{ALTER "DROP COLUMN a"}, false, true},
    {{ALTER "ADD COLUMN z UInt64, MODIFY ORDER BY (k, z)"}, false, true},
    {{ALTER "DROP COLUMN a", ALTER "ADD COLUMN a UInt64 AFTER k"}, true, true},
    {{ALTER "RENAME COLUMN a TO c"}, true, true},
    {{ALTER "MODIFY SETTING parts_to_delay_insert = 7"}, true, true},
    {{ALTER "MODIFY TTL d + INTERVAL 100 YEAR"}, true, true},
    {{ALTER "ADD INDEX i a TYPE minmax"}, true, true},
    {{"DROP TABLE " LAB_DATABASE "." TABLE}, false, true},
    {{MOVE}, false, true},
    {{"CREATE TABLE " LIKE, MOVE, "RENAME TABLE " LAB_DATABASE ".other TO " LAB_DATABASE "." TABLE},
     false,
     true},
    {{"CREATE TABLE " LIKE, "EXCHANGE TABLES " LAB_DATABASE ".other AND " LAB_DATABASE "." TABLE},
     true,
     true},
    {{"RENAME DATABASE " LAB_DATABASE " TO lab_away", "CREATE DATABASE " LAB_DATABASE,
      "CREATE TABLE " LAB_DATABASE "." TABLE " AS lab_away." TABLE
      " ENGINE = MergeTree ORDER BY k"},
     true,
     true},
};
#define CHANGES (sizeof changes / sizeof changes[0])

START_TEST(test_changes)
{
    const struct change *change = &changes[_i];
    if (change->is_new && !lab_is_new())
        return;
    make_known();
    struct lab_table before = ask(TABLE_KNOWN);
    for (size_t i = 0; i < 3 && change->sql[i]; i++)
        lab_sql("%s", change->sql[i]);
    struct lab_table known = ask(TABLE_KNOWN);
    struct lab_table asked = lab_load(LAB_DATABASE, TABLE);
    ck_assert_int_eq(known.code, asked.code);
    if (asked.code == 0) {
        ck_assert_str_eq(known.table.schema, asked.table.schema);
        ck_assert_str_eq(known.table.shape, asked.table.shape);
        ck_assert_str_eq(known.table.disks[0].table_path, asked.table.disks[0].table_path);
        bool same = table_stamp_equal(&before.table.stamp, &asked.table.stamp);
        ck_assert_int_eq(same, !change->changes);
    }
    lab_table_clear(&before);
    lab_table_clear(&known);
    lab_table_clear(&asked);
    if (lab_is_new())
        lab_sql("DROP DATABASE IF EXISTS lab_away");
}
END_TEST

int main(void)
{
    lab_require();
    Suite *suite = suite_create("table_cache");
    TCase *cached = tcase_create("cached");
    tcase_set_timeout(cached, 60);
    tcase_add_checked_fixture(cached, setup, teardown);
    tcase_add_test(cached, test_views);
    tcase_add_test(cached, test_young);
    tcase_add_loop_test(cached, test_changes, 0, CHANGES);
    suite_add_tcase(suite, cached);
    return suite_run(suite);
}
