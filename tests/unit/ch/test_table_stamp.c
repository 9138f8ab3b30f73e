/* SPDX-License-Identifier: Apache-2.0
 *
 * Stamps of a definition's file: what takes its place shows.
 */
#include "ch/table_stamp.h"

#include "base/mem.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/chxa-stamp-XXXXXX";
static char *path, *next;

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    path = mem_printf("%s/t.sql", folder);
    next = mem_printf("%s/t.sql.tmp", folder);
}

static void teardown(void)
{
    unlink(path);
    unlink(next);
    rmdir(folder);
    free(path);
    free(next);
}

static void write_file(const char *to, const char *text)
{
    FILE *file = fopen(to, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

START_TEST(test_path)
{
    char *plain = table_definition_path("/var/lib/clickhouse", "default", "hits_2");
    ck_assert_str_eq(plain, "/var/lib/clickhouse/metadata/default/hits_2.sql");
    char *odd = table_definition_path("/c", "b-x", "t.\xc3\xa9/..");
    ck_assert_str_eq(odd, "/c/metadata/b%2Dx/t%2E%C3%A9%2F%2E%2E.sql");
    free(plain);
    free(odd);
}
END_TEST

START_TEST(test_missing)
{
    struct table_stamp stamp, other;
    ck_assert(!table_stamp_read(NULL, folder, &stamp));
    ck_assert(!table_stamp_read(path, folder, &stamp));
    ck_assert(!table_stamp_read(folder, folder, &stamp)); /* no file */
    write_file(path, "ATTACH TABLE t");
    ck_assert(!table_stamp_read(path, next, &other)); /* no folder of its rows */
    ck_assert(!table_stamp_equal(&stamp, &other));
    ck_assert(!table_stamp_settled(&stamp, INT64_MAX / 2));
}
END_TEST

START_TEST(test_replaced)
{
    struct table_stamp before, same, after;
    write_file(path, "ATTACH TABLE t");
    ck_assert(table_stamp_read(path, folder, &before));
    ck_assert(table_stamp_read(path, folder, &same));
    ck_assert(table_stamp_equal(&before, &same));
    write_file(next, "ATTACH TABLE t");
    ck_assert_int_eq(rename(next, path), 0);
    ck_assert(table_stamp_read(path, folder, &after));
    ck_assert(!table_stamp_equal(&before, &after));
    before = after;
    before.folder_inode++;
    ck_assert(!table_stamp_equal(&before, &after));
}
END_TEST

/* Renamed away and back again: the same file, and its change of inode tells. */
START_TEST(test_there_and_back)
{
    struct table_stamp before, after;
    write_file(path, "ATTACH TABLE t");
    ck_assert(table_stamp_read(path, folder, &before));
    usleep(20000);
    ck_assert_int_eq(rename(path, next), 0);
    ck_assert_int_eq(rename(next, path), 0);
    ck_assert(table_stamp_read(path, folder, &after));
    ck_assert(!table_stamp_equal(&before, &after));
}
END_TEST

START_TEST(test_settled)
{
    struct table_stamp stamp;
    write_file(path, "ATTACH TABLE t");
    ck_assert(table_stamp_read(path, folder, &stamp));
    int64_t changed_ms = stamp.changed_ns / 1000000;
    ck_assert(!table_stamp_settled(&stamp, changed_ms));
    ck_assert(!table_stamp_settled(&stamp, changed_ms + 1000));
    ck_assert(table_stamp_settled(&stamp, changed_ms + 1001));
    ck_assert(!table_stamp_settled(&stamp, changed_ms - 3600000)); /* a clock that was set back */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table_stamp");
    TCase *stamps = tcase_create("stamps");
    tcase_add_checked_fixture(stamps, setup, teardown);
    tcase_add_test(stamps, test_path);
    tcase_add_test(stamps, test_missing);
    tcase_add_test(stamps, test_replaced);
    tcase_add_test(stamps, test_there_and_back);
    tcase_add_test(stamps, test_settled);
    suite_add_tcase(suite, stamps);
    return suite_run(suite);
}
