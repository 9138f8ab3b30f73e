/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of parts and of held folders: read, checked, and which part covers which.
 */
#include "ch/part_files.h"
#include "lib/suite.h"

#include <check.h>
#include <string.h>

START_TEST(test_dir_name)
{
    char name[HELD_DIR_BYTES_MAX + 1], other[HELD_DIR_BYTES_MAX + 1], xid[CHXA_XID_BYTES_MAX + 1];
    held_dir_name("a.b:c-D_9", name);
    ck_assert_str_eq(name, "t-a.b:c-D_9");
    held_dir_name("..", name);
    ck_assert_str_eq(name, "t-..");
    memset(xid, 'x', sizeof xid);
    xid[200] = '\0';
    held_dir_name(xid, name);
    ck_assert_uint_eq(strlen(name), 202);
    xid[200] = 'x';
    xid[CHXA_XID_BYTES_MAX] = '\0';
    held_dir_name(xid, name);
    ck_assert_uint_eq(strlen(name), 2 + 200 + 1 + 32);
    ck_assert_int_eq(name[202], '~');
    xid[CHXA_XID_BYTES_MAX - 1] = 'y';
    held_dir_name(xid, other);
    ck_assert_str_ne(name, other);
    held_dir_name(xid, name);
    ck_assert_str_eq(name, other);
}
END_TEST

static const char *const good_names[] = {
    "all_1_1_0",
    "202401_5_9_2",
    "202401_5_9_2_11",
    "-5_1_1_0",
    "202401-0_1_1_0",
    "20240101_1_1_0",
    "all_1000000000000000_1000000000000000_0",
    "8a1b2c3d4e5f60718293a4b5c6d7e8f9_3_3_0",
    "all_9223372036854775807_9223372036854775807_0",
};
static const char *const bad_names[] = {
    "",
    "detached",
    "format_version.txt",
    "tmp_insert_all_1_1_0",
    "delete_tmp_all_1_1_0",
    "all",
    "all_1_1",
    "all_1_1_0_",
    "all_1_1_0_2_3",
    "all_2_1_0",
    "_1_1_0",
    "all_-1_1_0",
    "all_1_1_x",
    "tmp-fetch_5_7_7_0",
    "all_1_1_0.tmp",
    "../x_1_1_0",
    "a/b_1_1_0",
    "all_ 1_1_0",
    "all_01_01_0",
    "moving",
    "all_9223372036854775808_9223372036854775808_0",
    "all_99999999999999999999_1_0",
    "attaching_1_1_0",
    "ignored_1_1_0",
};

START_TEST(test_name_parse)
{
    struct part_name name;
    for (size_t i = 0; i < sizeof good_names / sizeof good_names[0]; i++)
        ck_assert_msg(part_name_parse(good_names[i], false, &name), "%s", good_names[i]);
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        ck_assert_msg(!part_name_parse(bad_names[i], false, &name), "%s", bad_names[i]);
        ck_assert_msg(!part_name_parse(bad_names[i], true, &name), "%s", bad_names[i]);
    }
    ck_assert(part_name_parse("202401-0_5_9_2_11", false, &name));
    ck_assert_str_eq(name.partition_id, "202401-0");
    ck_assert_str_eq(name.dates, "");
    ck_assert_uint_eq(name.min_block, 5);
    ck_assert_uint_eq(name.max_block, 9);
    ck_assert_uint_eq(name.level, 2);
    ck_assert_uint_eq(name.mutation, 11);
    ck_assert(part_name_parse("20240105_20240131_1_2_3", true, &name));
    ck_assert_str_eq(name.dates, "20240105_20240131");
    ck_assert_uint_eq(name.max_block, 2);
    ck_assert(!part_name_parse("202401_1_1_0", true, &name));
    ck_assert(!part_name_parse("2024010x_20240131_1_2_3", true, &name));
    ck_assert(!part_name_parse("20240101_20240131", true, &name));
    char long_name[400];
    memset(long_name, '1', sizeof long_name);
    memcpy(long_name + 300, "_1_1_0", 7);
    ck_assert(!part_name_parse(long_name, false, &name));
}
END_TEST

static const struct {
    const char *outer, *inner;
    bool old_syntax, contains;
} containments[] = {
    {"all_1_5_1", "all_2_2_0", false, true},
    {"all_1_5_1", "all_1_1_0", false, true},
    {"all_1_5_1", "all_5_5_0", false, true},
    {"all_1_5_1", "all_6_6_0", false, false},
    {"all_1_5_1", "all_1_5_1", false, false},
    {"all_1_5_1", "all_1_5_2", false, false},
    {"all_1_5_2", "all_1_5_1", false, true},
    {"all_1_1_0_7", "all_1_1_0", false, true},
    {"all_1_1_0", "all_1_1_0_7", false, false},
    {"all_1_5_1", "202401_2_2_0", false, false},
    {"all_2_2_0", "all_1_5_1", false, false},
    {"20240101_20240131_1_5_1", "20240104_20240105_2_2_0", true, true},
    {"20240101_20240131_1_5_1", "20240204_20240205_2_2_0", true, false},
    {"20240101_20240131_1_5_1", "20240101_20240131_1_5_1", true, false},
};

START_TEST(test_contains)
{
    struct part_name outer, inner;
    ck_assert(part_name_parse(containments[_i].outer, containments[_i].old_syntax, &outer));
    ck_assert(part_name_parse(containments[_i].inner, containments[_i].old_syntax, &inner));
    ck_assert_int_eq(part_name_contains(&outer, &inner), containments[_i].contains);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_names");
    TCase *tests = tcase_create("part_names");
    tcase_add_test(tests, test_dir_name);
    tcase_add_test(tests, test_name_parse);
    tcase_add_loop_test(tests, test_contains, 0, sizeof containments / sizeof containments[0]);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
