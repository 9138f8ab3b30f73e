/* SPDX-License-Identifier: Apache-2.0
 *
 * The pure part of table.h: engine clauses, scratch DDL, and the comparison of structures.
 */
#include "base/mem.h"
#include "ch/table.h"
#include "ch/table_engine.h"
#include "ch/table_schema.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- engine clauses ---- */

static const struct {
    const char *full, *plain;
} plains[] = {
    {"MergeTree ORDER BY k SETTINGS index_granularity = 8192",
     "MergeTree ORDER BY k SETTINGS index_granularity = 8192"},
    {"ReplicatedMergeTree('/t/{shard}/a', '{replica}') ORDER BY k", "MergeTree ORDER BY k"},
    {"ReplicatedReplacingMergeTree('/t/{shard}/a', '{replica}', ver) PARTITION BY d ORDER BY k",
     "ReplacingMergeTree(ver) PARTITION BY d ORDER BY k"},
    {"ReplicatedSummingMergeTree('/t', 'r', (a, b)) ORDER BY k",
     "SummingMergeTree((a, b)) ORDER BY k"},
    {"ReplicatedMergeTree ORDER BY k", "MergeTree ORDER BY k"},
    {"ReplicatedMergeTree() ORDER BY k", "MergeTree ORDER BY k"},
    {"ReplicatedReplacingMergeTree(ver) ORDER BY k", "ReplacingMergeTree(ver) ORDER BY k"},
    {"ReplicatedVersionedCollapsingMergeTree('/p', '{replica}', sign, ver) ORDER BY (k, ver)",
     "VersionedCollapsingMergeTree(sign, ver) ORDER BY (k, ver)"},
    {"ReplicatedMergeTree('/t/{shard}/old', '{replica}', d, k, 8192)", "MergeTree(d, k, 8192)"},
    {"ReplicatedSummingMergeTree('/t', 'r', d, (k, j), 8192, (x, y))",
     "SummingMergeTree(d, (k, j), 8192, (x, y))"},
    {"ReplicatedGraphiteMergeTree('/t', 'r', 'graphite_rollup') ORDER BY k",
     "GraphiteMergeTree('graphite_rollup') ORDER BY k"},
    {"ReplicatedGraphiteMergeTree('graphite_rollup') ORDER BY k",
     "GraphiteMergeTree('graphite_rollup') ORDER BY k"},
    {"GraphiteMergeTree('a', 'b') ORDER BY k", "GraphiteMergeTree('a', 'b') ORDER BY k"},
    {"ReplicatedMergeTree('/it\\'s, (a)/{shard}', 'r''1)') ORDER BY `a)b`",
     "MergeTree ORDER BY `a)b`"},
    {"ReplicatedMergeTree('/t', 'r') ORDER BY k TTL d + toIntervalDay(1) TO DISK 'd\\'2'",
     "MergeTree ORDER BY k TTL d + toIntervalDay(1) TO DISK 'd\\'2'"},
    {"Replicated", "Replicated"},
    {"ReplicatedMergeTree('/t', 'r' ORDER BY k", NULL},
    {"ReplicatedMergeTree('/t, 'r') ORDER BY k", NULL},
    {"MergeTree ORDER BY (k", NULL},
    {"MergeTree ORDER BY `k", NULL},
    {"", NULL},
    {"(a)", NULL},
    {"'MergeTree'", NULL},
};

START_TEST(test_plain)
{
    char *plain = table_engine_plain(plains[_i].full);
    if (plains[_i].plain == NULL) {
        ck_assert_ptr_null(plain);
        return;
    }
    ck_assert_ptr_nonnull(plain);
    ck_assert_str_eq(plain, plains[_i].plain);
    free(plain);
}
END_TEST

START_TEST(test_old_syntax)
{
    ck_assert(table_engine_is_old_syntax("MergeTree(d, k, 8192)"));
    ck_assert(table_engine_is_old_syntax("MergeTree(d, intHash64(k), (k, intHash64(k)), 8192)"));
    ck_assert(table_engine_is_old_syntax("SummingMergeTree(d, (k, j), 8192, (x, y))"));
    ck_assert(!table_engine_is_old_syntax("MergeTree ORDER BY k"));
    ck_assert(!table_engine_is_old_syntax("SummingMergeTree((a, b, c)) ORDER BY k"));
    ck_assert(!table_engine_is_old_syntax("SummingMergeTree((a, b, c))"));
    ck_assert(!table_engine_is_old_syntax("VersionedCollapsingMergeTree(sign, ver)"));
    ck_assert(!table_engine_is_old_syntax("MergeTree"));
}
END_TEST

#define OURS "max_x = 1, async_insert = 0"

static const struct {
    const char *plain, *with;
} settings_cases[] = {
    {"MergeTree ORDER BY k", "MergeTree ORDER BY k SETTINGS " OURS},
    {"MergeTree ORDER BY k SETTINGS index_granularity = 8192",
     "MergeTree ORDER BY k SETTINGS index_granularity = 8192, " OURS},
    {"MergeTree ORDER BY k SETTINGS max_x = 7, storage_policy = 'a, b = (', async_insert = 1",
     "MergeTree ORDER BY k SETTINGS storage_policy = 'a, b = (', " OURS},
    {"MergeTree ORDER BY k SETTINGS max_x_y = 7",
     "MergeTree ORDER BY k SETTINGS max_x_y = 7, " OURS},
    {"MergeTree ORDER BY k SETTINGS gone = 7", "MergeTree ORDER BY k SETTINGS " OURS},
    {"MergeTree ORDER BY k SETTINGS disk = disk(type = 'local', path = '/x/'), a = 1",
     "MergeTree ORDER BY k SETTINGS disk = disk(type = 'local', path = '/x/'), a = 1, " OURS},
    /* A column that is called SETTINGS. */
    {"MergeTree ORDER BY SETTINGS", "MergeTree ORDER BY SETTINGS SETTINGS " OURS},
    {"MergeTree ORDER BY SETTINGS SETTINGS a = 1",
     "MergeTree ORDER BY SETTINGS SETTINGS a = 1, " OURS},
    {"MergeTree ORDER BY (SETTINGS = 1) SETTINGS a = 1",
     "MergeTree ORDER BY (SETTINGS = 1) SETTINGS a = 1, " OURS},
    {"MergeTree ORDER BY k TTL d TO DISK ' SETTINGS gone = 1'",
     "MergeTree ORDER BY k TTL d TO DISK ' SETTINGS gone = 1' SETTINGS " OURS},
    {"MergeTree(d, k, 8192)", "MergeTree(d, k, 8192)"},
};

START_TEST(test_settings)
{
    static const char *const dropped[] = {"gone", NULL};
    char *with = table_engine_with_settings(settings_cases[_i].plain, OURS, dropped);
    ck_assert_str_eq(with, settings_cases[_i].with);
    free(with);
}
END_TEST

START_TEST(test_ddl)
{
    struct ch_table table = {.database = mem_strdup("my`db"),
                             .table = mem_strdup("t' \n"),
                             .engine_full = mem_strdup("MergeTree ORDER BY k")};
    struct ch_caps caps = {0};
    struct buf out = {0};
    ch_table_scratch_ddl(&table, &caps, "chxa", "s_1", &out);
    ck_assert_ptr_nonnull(strstr(buf_str(&out), "CREATE TABLE `chxa`.`s_1` AS "));
    ck_assert_ptr_nonnull(strstr(buf_str(&out), " ENGINE = MergeTree ORDER BY k"));
    ck_assert_ptr_null(strstr(buf_str(&out), "`my`db`"));
    buf_clear(&out);
    ch_table_clear(&table);
}
END_TEST

/* ---- structures ---- */

static struct table_schema_column columns[8];
static const char *alters[4];
static struct table_schema schema;

static void schema_reset(void)
{
    static const struct table_schema_column start[] = {{"d", "Date", ""},
                                                       {"k", "UInt64", "DEFAULT"},
                                                       {"a", "UInt64", "ALIAS"},
                                                       {"s", "String", ""}};
    memcpy(columns, start, sizeof start);
    alters[0] = "(DROP COLUMN z), mutation_1.txt";
    schema = (struct table_schema){.uuid = "9260fa85-7dbc-47c7-bf1e-451e077b4c02",
                                   .engine = "ReplacingMergeTree(v) PARTITION BY d ORDER BY k",
                                   .partition_key = "d",
                                   .sorting_key = "k",
                                   .primary_key = "k",
                                   .sampling_key = "",
                                   .columns = columns,
                                   .n_columns = 4,
                                   .alters = alters,
                                   .n_alters = 1};
}

/* Compares the start with what schema says now; checks that the reason names `reason`. */
static void expect(bool compatible, const char *reason)
{
    char *now = table_schema_encode(&schema);
    schema_reset();
    char *staged = table_schema_encode(&schema);
    char *why = NULL;
    ck_assert_ptr_nonnull(now);
    bool same = table_schema_compatible(staged, now, &why);
    ck_assert_msg(same == compatible, "%s -> %s: %s", staged, now, why ? why : "fine");
    if (!compatible)
        ck_assert_msg(strstr(why, reason) != NULL, "%s does not name %s", why, reason);
    free(why);
    free(staged);
    free(now);
}

static struct table_schema_column *column(const char *name)
{
    for (size_t i = 0; i < schema.n_columns; i++)
        if (strcmp(columns[i].name, name) == 0)
            return &columns[i];
    ck_abort_msg("no column %s", name);
}

START_TEST(test_compatible)
{
    schema_reset();
    expect(true, NULL);
    columns[schema.n_columns++] = (struct table_schema_column){"added", "String", ""};
    expect(true, NULL);
    column("a")->type = "String"; /* an alias is in no part */
    expect(true, NULL);
    column("a")->default_kind = "";
    expect(true, NULL);
    column("k")->default_kind = "MATERIALIZED";
    expect(true, NULL);
    schema.sorting_key = "k, added";
    expect(true, NULL);
    schema.engine = "ReplacingMergeTree(v) PARTITION BY d ORDER BY k TTL d SETTINGS a = 1";
    expect(true, NULL);
    schema.n_alters = 0; /* the server forgets old ones */
    expect(true, NULL);
    column("a")->name = "A"; /* the order of the columns does not matter */
    expect(true, NULL);
}
END_TEST

START_TEST(test_incompatible)
{
    schema_reset();
    schema.uuid = "9260fa85-7dbc-47c7-bf1e-451e077b4c03";
    expect(false, "UUID");
    schema.engine = "MergeTree ORDER BY k";
    expect(false, "engine");
    schema.engine = "ReplacingMergeTree(w) ORDER BY k";
    expect(false, "arguments");
    schema.partition_key = "toYYYYMM(d)";
    expect(false, "partition key");
    schema.primary_key = "d";
    expect(false, "primary key");
    schema.sampling_key = "k";
    expect(false, "sampling key");
    schema.sorting_key = "d, k";
    expect(false, "sorting key");
    schema.sorting_key = "kk";
    expect(false, "sorting key");
    schema.sorting_key = "";
    expect(false, "sorting key");
    column("s")->type = "LowCardinality(String)";
    expect(false, "column s");
    column("s")->name = "S";
    expect(false, "column s");
    column("s")->default_kind = "ALIAS";
    expect(false, "column s");
    schema.n_columns = 0;
    expect(false, "column");
    alters[1] = "(DROP COLUMN s), mutation_2.txt"; /* and added again under its name */
    schema.n_alters = 2;
    expect(false, "DROP COLUMN s");
}
END_TEST

START_TEST(test_odd_names)
{
    schema_reset();
    column("s")->name = "tab\t\"quote' \xc3\xa9 \xff\xfe";
    char *staged = table_schema_encode(&schema);
    column("tab\t\"quote' \xc3\xa9 \xff\xfe")->name = "tab\t\"quote' \xc3\xa9 \xff\xfd";
    char *now = table_schema_encode(&schema);
    char *why = NULL;
    ck_assert(table_schema_compatible(staged, staged, &why));
    ck_assert(!table_schema_compatible(staged, now, &why));
    free(why);
    free(now);
    why = NULL;
    ck_assert(!table_schema_compatible("", staged, &why));
    free(why);
    why = NULL;
    ck_assert(!table_schema_compatible(staged, "[1]", &why));
    free(why);
    free(staged);
}
END_TEST

/* Without UUIDs the folder's inode tells one table from another of the same structure. */
START_TEST(another_folder_is_another_table)
{
    schema_reset();
    const char *uuid = schema.uuid;
    for (int with_uuid = 0; with_uuid < 2; with_uuid++) {
        schema.uuid = with_uuid ? uuid : "";
        char *plain = table_schema_encode(&schema);
        char *staged = table_schema_add_folder(plain, 7), *same = table_schema_add_folder(plain, 7);
        char *other = table_schema_add_folder(plain, 8), *why = NULL;
        ck_assert(table_schema_compatible(staged, same, &why));
        ck_assert_int_eq(table_schema_compatible(staged, other, &why), with_uuid);
        if (!with_uuid)
            ck_assert_ptr_nonnull(strstr(why, "folder"));
        free(why);
        free(plain);
        free(staged);
        free(same);
        free(other);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *engines = tcase_create("engines");
    tcase_add_loop_test(engines, test_plain, 0, sizeof plains / sizeof plains[0]);
    tcase_add_test(engines, test_old_syntax);
    tcase_add_loop_test(engines, test_settings, 0,
                        sizeof settings_cases / sizeof settings_cases[0]);
    tcase_add_test(engines, test_ddl);
    suite_add_tcase(suite, engines);
    TCase *structures = tcase_create("structures");
    tcase_add_test(structures, test_compatible);
    tcase_add_test(structures, test_incompatible);
    tcase_add_test(structures, test_odd_names);
    tcase_add_test(structures, another_folder_is_another_table);
    suite_add_tcase(suite, structures);
    return suite_run(suite);
}
