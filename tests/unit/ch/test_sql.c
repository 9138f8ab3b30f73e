/* SPDX-License-Identifier: Apache-2.0
 *
 * Quoting and TSV. That both engines read it the same is in tests/contract/ch/test_ch_http.c.
 */
#include "base/mem.h"
#include "ch/sql.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text, *identifier, *string;
} quoted[] = {
    {"", "``", "''"},
    {"plain", "`plain`", "'plain'"},
    {"a`b", "`a\\`b`", "'a`b'"},
    {"a'b", "`a'b`", "'a\\'b'"},
    {"a\\b", "`a\\\\b`", "'a\\\\b'"},
    {"\\", "`\\\\`", "'\\\\'"},
    {"\\'", "`\\\\'`", "'\\\\\\''"},
    {"\\`", "`\\\\\\``", "'\\\\`'"},
    {"a\"b.c d\n\t", "`a\"b.c d\n\t`", "'a\"b.c d\n\t'"},
    {"``''", "`\\`\\`''`", "'``\\'\\''"},
    {"ünï", "`ünï`", "'ünï'"},
};

START_TEST(quotes)
{
    struct buf out = {0};
    sql_identifier(&out, quoted[_i].text);
    ck_assert_str_eq(buf_str(&out), quoted[_i].identifier);
    buf_clear(&out);
    buf_puts(&out, "x = ");
    sql_string(&out, quoted[_i].text);
    ck_assert_int_eq(strncmp(buf_str(&out), "x = ", 4), 0);
    ck_assert_str_eq(buf_str(&out) + 4, quoted[_i].string);
    buf_clear(&out);
}
END_TEST

START_TEST(table)
{
    struct buf out = {0};
    sql_table(&out, "d.b", "t`");
    ck_assert_str_eq(buf_str(&out), "`d.b`.`t\\``");
    buf_clear(&out);
}
END_TEST

static const struct {
    const char *field;
    const char *text;
    size_t len;
} escaped[] = {
    {"", "", 0},
    {"plain ü", "plain ü", 8},
    {"a\\tb\\nc\\rd", "a\tb\nc\rd", 7},
    {"\\\\t", "\\t", 2},
    {"\\'\\\\", "'\\", 2},
    {"a\\0b", "a\0b", 3},
    {"\\b\\f\\a\\v\\e", "\b\f\a\v\033", 5},
    {"\\x41\\x0a\\xFf", "A\n\xFF", 3},
    {"\\x4", "\\x4", 3},
    {"\\xg1", "\\xg1", 4},
    {"\\N", "\\N", 2},
    {"\\", "\\", 1},
    {"a\\", "a\\", 2},
};

START_TEST(tsv)
{
    /* A copy that ends where its memory ends. */
    char *field = mem_strdup(escaped[_i].field);
    ck_assert_uint_eq(sql_tsv_unescape(field), escaped[_i].len);
    ck_assert_int_eq(memcmp(field, escaped[_i].text, escaped[_i].len + 1), 0);
    free(field);
}
END_TEST

START_TEST(verbs)
{
    ck_assert_str_eq(sql_verb("SELECT 1"), "select");
    ck_assert_str_eq(sql_verb(" \n alter TABLE t"), "alter");
    ck_assert_str_eq(sql_verb("INSERT"), "insert");
    ck_assert_str_eq(sql_verb("SELECTION"), "other");
    ck_assert_str_eq(sql_verb(""), "other");
    ck_assert_str_eq(sql_verb("(select(1))"), "select");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sql");
    TCase *tests = tcase_create("sql");
    tcase_add_loop_test(tests, quotes, 0, (int)(sizeof quoted / sizeof *quoted));
    tcase_add_test(tests, table);
    tcase_add_loop_test(tests, tsv, 0, (int)(sizeof escaped / sizeof *escaped));
    tcase_add_test(tests, verbs);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
