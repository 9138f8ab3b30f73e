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
    {"CSV", "1,O'Brien\n", true, false},
    {"CSV", "1,x'y\n2,'abc\n", false, false}, /* 18.16 takes it for closed */
    {"CSV", "1, 'a\n", false, false},
    {"CSV", "1;\"a\n", false, false}, /* where a profile has another delimiter */
    {"CSV", "\"a\"\"\n", false, false},
    {"CSV", "\"a\"\"\"\n", true, false},
    {"CSV", "1,\"it's\"\n2,\"a\nb\"\n", true, false},
    {"CSV", "1,\"it's\"\n2,'\"'\n", false, false},
    {"CSV", "1,5\" pipe\n2,5\" pipe\n", false, false},
    {"CSV", "1,\"it's\"\n2,'\"\n", false, false},
    {"CSV", "1,a\r\n2,b\r\n", true, false},
    {"CSV", "1,a\r", false, false}, /* would become a line's end */
    {"CSV", "1,a\n\r", false, false},
    {"CSV", "1,a ", false, false}, /* would be trimmed */
    {"CSV", "1,a \n", true, false},
    {"CSV", "1\n  ", false, false}, /* would become a row */
    {"CSV",
     "\xEF\xBB\xBF"
     "1,a\n",
     false, false}, /* left out at the beginning only */
    {"JSONEachRow", "\xEF\xBB\xBF{}\n", false, false},
    {"TSKV",
     "\xEF\xBB\xBF"
     "a=1\n",
     false, false},
    {"TSV", "1\ta\r\n2\tb\n", false, false}, /* refused in an INSERT's first line only */
    {"TSV", "1\ta\n2\tb\r\n", true, false},
    {"TSV", "1\n ", false, false},
    {"CSV", " \r\n", false, false},
    {"JSONEachRow", "{\"a\":1}\n{\"a\":2}\n", true, false},
    {"JSONEachRow", " \n{\"a\":1} ", true, true},
    {"JSONEachRow", "[{\"a\":1}]", false, false}, /* ends the reading */
    {"JSONEachRow", "{\"a\":1};", false, false},
    {"JSONEachRow", "{\"a\":1", false, false},
    {"JSONEachRow", "   ", false, false},
    {"JSONEachRow", "{\"a\":1};{\"a\":2}", false, false}, /* ends the reading too */
    {"JSONEachRow", "{\"a\":1}]{\"a\":2}", false, false},
    {"JSONEachRow", "{\"a\":1},{\"a\":[{\"b\":\"}\\\"\"}]}", true, true},
    {"JSONEachRow", "{\"a\":\"}", false, false},
    {"JSONEachRow", "{\"a\":\"\\}", false, false},
    {"JSONEachRow", "{\"a\":{\"b\":1}", false, false},
    {"JSONEachRow", "{\"a\":1}}", false, false},
    {"RowBinary", "\x01", true, false},
    {"Native", "\x01", false, false}, /* an empty block ends the reading */
    {"Values", "(1)", false, false},  /* a `;` in one would hide the next */
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

static bool is_a_or_b(void *arg, const char *name, size_t len)
{
    (void)arg;
    return len == 1 && (*name == 'a' || *name == 'b');
}

START_TEST(a_header_is_known)
{
    static const struct {
        const char *format, *body;
        bool is;
    } lines[] = {
        {"CSV", "a,b\n1,2\n", true},  {"CSV", "\"b\" , 'a'\r\n1,2\n", true},
        {"CSV", "a;b\n", false},      {"CSV", "a", true},
        {"CSV", "a,c\n", false},      {"CSV", "a,\n", false},
        {"CSV", "1,2\na,b\n", false}, {"TSV", "a\tb\n1\t2\n", true},
        {"TabSeparated", "b", true},  {"TSV", "a,b\n", false},
        {"TSKV", "a\tb\n", false},    {"JSONEachRow", "a", false},
        {"RowBinary", "a", false},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(gather_body_has_header(lines[i].format, lines[i].body, strlen(lines[i].body),
                                             is_a_or_b, NULL) == lines[i].is,
                      "%s: %s", lines[i].format, lines[i].body);
}
END_TEST

START_TEST(settings_of_the_whole_insert_part)
{
    ck_assert(!gather_setting_joins("input_format_allow_errors_num"));
    ck_assert(!gather_setting_joins("format_csv_delimiter"));
    ck_assert(!gather_setting_joins("input_format_tsv_skip_first_lines"));
    ck_assert(gather_setting_joins("input_format_null_as_default"));
    ck_assert(!gather_statement_joins(
        "INSERT INTO t settings Input_Format_Allow_Errors_Num=1 FORMAT CSV"));
    ck_assert(gather_statement_joins("INSERT INTO t_csv_ FORMAT CSV"));
    ck_assert(gather_statement_joins("INSERT INTO t SETTINGS max_threads = 1 FORMAT CSV"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gather_body");
    TCase *tcase = tcase_create("gather_body");
    tcase_add_loop_test(tcase, bodies_join, 0, (int)(sizeof bodies / sizeof *bodies));
    tcase_add_test(tcase, a_header_is_known);
    tcase_add_test(tcase, settings_of_the_whole_insert_part);
    tcase_add_test(tcase, a_nul_is_a_byte_like_others);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
