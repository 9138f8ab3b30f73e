/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bodies may be joined: every format's own dangers, and that anything in doubt is not.
 */
#include "core/gather_body.h"
#include "lib/suite.h"

#include <check.h>
#include <string.h>

static const struct {
    const char *format, *body;
    bool joins, newline;
} bodies[] = {
    {"TSV", "1\ta\n", true, false},
    {"TabSeparated", "1\ta", true, true},
    {"TSV", "1\ta\\", false, false},    /* takes the newline along */
    {"TSV", "1\ta\\\n", false, false},  /* likewise */
    {"TSV", "1\ta\\\\\n", true, false}, /* a backslash of its own */
    {"TSV", "1\ta\\\\\\\n", false, false},
    {"TSV", "\\", false, false},
    {"TSV", "\n", false, false},
    {"TSV", "", false, false},
    {"TSKV", "a=1\tb=2\n", true, false},
    {"TSKV", "a=1\\", false, false},
    {"CSV", "1,\"a\"\n2,b", true, true},
    {"CSV", "1,\"a\n", false, false},
    {"CSV", "1,'a\n", false, false},
    {"CSV", "1,'a'\n", true, false},
    {"CSV", "1,O'Brien\n", false, false}, /* nobody's open quote, but who knows */
    {"CSV", " \r\n", false, false},
    {"JSONEachRow", "{\"a\":1}\n{\"a\":2}\n", true, false},
    {"JSONEachRow", " \n{\"a\":1} ", true, true},
    {"JSONEachRow", "[{\"a\":1}]", false, false}, /* ends the reading */
    {"JSONEachRow", "{\"a\":1};", false, false},
    {"JSONEachRow", "{\"a\":1", false, false},
    {"JSONEachRow", "   ", false, false},
    {"RowBinary", "\x01", true, false},
    {"Native", "\x01", true, false},
    {"Native", "", false, false},
    {"Values", "(1)", false, false}, /* a `;` in one would hide the next */
    {"CSVWithNames", "a\n1\n", false, false},
    {"TSVWithNames", "a\n1\n", false, false},
    {"Parquet", "PAR1", false, false},
    {"tsv", "1\n", false, false}, /* names are as ClickHouse has them */
};

START_TEST(bodies_join)
{
    bool newline = true;
    bool joins =
        gather_body_joins(bodies[_i].format, bodies[_i].body, strlen(bodies[_i].body), &newline);
    ck_assert_msg(joins == bodies[_i].joins, "%s: %s", bodies[_i].format, bodies[_i].body);
    if (joins)
        ck_assert(newline == bodies[_i].newline);
    if (joins)
        ck_assert(gather_format_joins(bodies[_i].format));
}
END_TEST

START_TEST(a_nul_is_a_byte_like_others)
{
    bool newline;
    ck_assert(gather_body_joins("TSV", "a\0b\n", 4, &newline));
    ck_assert(!newline);
    ck_assert(gather_body_joins("RowBinary", "\0", 1, &newline));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gather_body");
    TCase *tcase = tcase_create("gather_body");
    tcase_add_loop_test(tcase, bodies_join, 0, (int)(sizeof bodies / sizeof *bodies));
    tcase_add_test(tcase, a_nul_is_a_byte_like_others);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
