/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tool prints: made harmless, measured, wrapped; tables and the progress line within their width; and what it advises.
 */
#include "client/tool/advice.h"
#include "client/tool/progress.h"
#include "client/tool/table.h"
#include "client/tool/text.h"
#include "client/tool/tool.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void safe_is(const char *text, const char *wanted)
{
    char *safe = text_safe(text);
    ck_assert_str_eq(safe, wanted);
    free(safe);
}

START_TEST(harmless)
{
    safe_is("plain, \xc3\xa4 \xe2\x82\xac \xe6\xbc\xa2",
            "plain, \xc3\xa4 \xe2\x82\xac \xe6\xbc\xa2");
    safe_is("a\x1b[31mb\x07", "a\\x1b[31mb\\x07");
    safe_is("one\ntwo\tthree\r", "one\\ntwo\\tthree\\x0d");
    safe_is("\xc2\x9b"
            "31m",
            "\\u{9b}31m"); /* C1: another CSI */
    safe_is("\xe2\x80\xae"
            "abc",
            "\\u{202e}abc"); /* right-to-left override */
    safe_is("\xe2\x80\xa8\xef\xbb\xbf", "\\u{2028}\\u{feff}");
    safe_is("\xff\xc3(\xed\xa0\x80", "\\xff\\xc3(\\xed\\xa0\\x80"); /* not UTF-8 */
    safe_is("\x7f", "\\x7f");
    safe_is("", "");
    safe_is(NULL, "");
}
END_TEST

START_TEST(widths)
{
    ck_assert_uint_eq(text_width("abc"), 3);
    ck_assert_uint_eq(text_width("\xc3\xa4"), 1);
    ck_assert_uint_eq(text_width("\xe6\xbc\xa2"), 2);
    ck_assert_uint_eq(text_fit("\xe6\xbc\xa2\xe6\xbc\xa2", 3), 3);
    ck_assert_uint_eq(text_fit("abc", 2), 2);
}
END_TEST

static char *printed;
static size_t printed_bytes;

static void wraps(const char *text, unsigned width, const char *wanted)
{
    FILE *file = open_memstream(&printed, &printed_bytes);
    text_wrap(file, "why: ", text, width);
    fclose(file);
    ck_assert_str_eq(printed, wanted);
    free(printed);
}

START_TEST(wrapping)
{
    wraps("short", 80, "why: short\n");
    wraps("", 80, "why: \n");
    wraps("one two three four five six", 25, "why: one two three four\n     five six\n");
    wraps("abcdefghijklmnopqrstuvwxyz", 25, "why: abcdefghijklmnopqrst\n     uvwxyz\n");
    wraps("a\nb\x1b\n", 80, "why: a\n     b\\x1b\n");
    wraps("one two three four five six seven eight nine", 0,
          "why: one two three four five six seven eight nine\n");
}
END_TEST

START_TEST(numbers)
{
    char text[40];
#define IS(call, wanted)                                                                           \
    do {                                                                                           \
        call;                                                                                      \
        ck_assert_str_eq(text, wanted);                                                            \
    } while (0)
    IS(text_duration(-5, text, sizeof text), "0s");
    IS(text_duration(59999, text, sizeof text), "59s");
    IS(text_duration(60000, text, sizeof text), "1m");
    IS(text_duration(7980000, text, sizeof text), "2h 13m");
    IS(text_duration(273600000, text, sizeof text), "3d 4h");
    IS(text_count(0, text, sizeof text), "0");
    IS(text_count(999, text, sizeof text), "999");
    IS(text_count(12345678, text, sizeof text), "12 345 678");
    IS(text_count(UINT64_MAX, text, sizeof text), "18 446 744 073 709 551 615");
    IS(text_bytes(817, text, sizeof text), "817 B");
    IS(text_bytes(1400000, text, sizeof text), "1.4 MB");
    IS(text_bytes(12000000000, text, sizeof text), "12 GB");
    IS(text_time(1764471845000, text, sizeof text), "2025-11-30 03:04:05 UTC");
#undef IS
}
END_TEST

static const struct table_column columns[] = {
    {"XID", false, 0, 0}, {"STATE", false, 0, 0}, {"ROWS", true, 1, 0}, {"SINK", false, 2, 6}};

static void add(struct table *table, const char *xid, const char *rows, const char *sink)
{
    struct table_row *row = table_add(table);
    row->cells[0] = tool_strdup(xid);
    row->cells[1] = tool_strdup("Prepared");
    row->cells[2] = tool_strdup(rows);
    row->cells[3] = tool_strdup(sink);
}

static void table_is(struct table *table, unsigned width, const char *wanted)
{
    FILE *file = open_memstream(&printed, &printed_bytes);
    table_flush(table, file, width, false);
    fclose(file);
    ck_assert_str_eq(printed, wanted);
    free(printed);
}

START_TEST(tables)
{
    struct table table;
    table_init(&table, columns, 4);
    table_is(&table, 80, "");
    add(&table, "a", "1", "s");
    add(&table, "bcd", "12 000", "job.long-name");
    table_is(&table, 0,
             "XID  STATE       ROWS  SINK\n"
             "a    Prepared       1  s\n"
             "bcd  Prepared  12 000  job.l\xe2\x80\xa6\n");
    /* The next page has the first one's layout; a longer id takes a line of its own. */
    add(&table, "efgh", "7", "");
    table_is(&table, 0, "efgh\n     Prepared       7\n");
    /* Narrow: the last column goes, and then the next; never the id. */
    table_init(&table, columns, 4);
    add(&table, "a-rather-long-id-to-be-copied", "1", "s");
    table_is(&table, 30,
             "XID             STATE     ROWS\n"
             "a-rather-long-id-to-be-copied\n"
             "                Prepared     1\n");
    table_init(&table, columns, 4);
    add(&table, "a", "", "");
    table_is(&table, 80, "XID  STATE\na    Prepared\n");
}
END_TEST

START_TEST(notes)
{
    struct table table;
    table_init(&table, columns, 4);
    add(&table, "a", "1", "");
    table.rows[0].notes[0] = tool_strdup("why:  one two three four five six");
    table_is(&table, 40,
             "XID  STATE     ROWS\na    Prepared     1\n"
             "    why:  one two three four five six\n");
    add(&table, "a", "1", "");
    table.rows[0].notes[0] = tool_strdup("next: one two three four five six");
    table_is(&table, 32,
             "a    Prepared     1\n"
             "    next: one two three four\n          five six\n");
}
END_TEST

START_TEST(progress)
{
    char line[400];
    progress_line("a.csv", 0, 100, 0, 80, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "  0%"));
    progress_line("a.csv", 50000000, 100000000, 5000, 80, line, sizeof line);
    ck_assert_str_eq(
        line, "a.csv [###################....................]   50%  50 MB  10 MB/s  5s left");
    for (unsigned width = 10; width < 200; width += 7) {
        progress_line("a-file-with-a-long-name.csv", 123456789, 987654321, 61000, width, line,
                      sizeof line);
        ck_assert_msg(width < 45 || strlen(line) <= width, "%u: %s", width, line);
    }
    progress_line("x", 200, 100, 1000, 80, line, sizeof line);
    ck_assert_ptr_nonnull(strstr(line, "100%"));
    progress_line("stdin", 5000, 0, 1000, 80, line, sizeof line);
    ck_assert_str_eq(line, "stdin   5.0 kB  5.0 kB/s");
}
END_TEST

static void advised(const char *record, bool live, const char *sink, const char *why,
                    const char *next)
{
    json_t *parsed = json_loads(record, 0, NULL), *state = sink ? json_loads(sink, 0, NULL) : NULL;
    ck_assert_ptr_nonnull(parsed);
    struct advice_facts facts = {parsed, true, live, state};
    struct advice advice;
    advice_make(&facts, &advice);
    ck_assert_msg(strstr(advice.why, why), "%s: why %s", record, advice.why);
    ck_assert_msg(strstr(advice.next, next) && (*next || !*advice.next), "%s: next %s", record,
                  advice.next);
    advice_clear(&advice);
    json_decref(parsed);
    json_decref(state);
}

START_TEST(advices)
{
    advised("{\"xid\":\"x\",\"state\":\"Prepared\",\"owner\":\"n\"}", true, NULL, "",
            "chxa commit x");
    advised("{\"xid\":\"x\",\"state\":\"Prepared\",\"owner\":\"n\"}", true, NULL, "",
            "chxa rollback x");
    advised("{\"xid\":\"x\",\"state\":\"Prepared\",\"owner\":\"n\",\"sink\":\"s\",\"epoch\":3}",
            true, "{\"epoch\":4}", "replaced by epoch 4", "sink s");
    advised("{\"xid\":\"x\",\"state\":\"Prepared\",\"owner\":\"n\",\"sink\":\"s\",\"epoch\":3,"
            "\"created_ms\":5}",
            true, "{\"epoch\":3,\"checkpoint\":{\"xid\":\"y\",\"created_ms\":6}}",
            "committed a later one since (y)", "checkpoint");
    advised("{\"xid\":\"x\",\"state\":\"Prepared\",\"owner\":\"n\"}", false, NULL, "node n is down",
            "chxa abandon x");
    advised("{\"xid\":\"x\",\"state\":\"Committing\",\"blocked\":true,\"reason\":\"altered\"}",
            true, NULL, "altered", "chxa resolve x --retry");
    advised("{\"xid\":\"x\",\"state\":\"Committing\",\"blocked\":false}", true, NULL, "",
            "finishes by itself");
    advised("{\"xid\":\"x\",\"state\":\"Aborting\"}", true, NULL, "", "finishes by itself");
    advised("{\"xid\":\"x\",\"state\":\"Initialized\"}", true, NULL, "", "");
    advised("{\"xid\":\"x\",\"state\":\"Initialized\",\"reason\":\"rows are lost\"}", true, NULL,
            "rows are lost", "chxa rollback x");
    advised("{\"xid\":\"x\",\"state\":\"Committed\"}", false, NULL, "", "");
    advised("{\"xid\":\"x\",\"state\":\"Committed\",\"heuristic\":\"mixed\"}", true, NULL,
            "gave rows up", "chxa forget x");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    text_init();
    tcase_add_test(t, harmless);
    tcase_add_test(t, widths);
    tcase_add_test(t, wrapping);
    tcase_add_test(t, numbers);
    tcase_add_test(t, tables);
    tcase_add_test(t, notes);
    tcase_add_test(t, progress);
    tcase_add_test(t, advices);
    suite_add_tcase(s, t);
    return suite_run(s);
}
