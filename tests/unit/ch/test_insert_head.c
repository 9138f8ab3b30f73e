/* SPDX-License-Identifier: Apache-2.0
 *
 * The INSERT head: what is read, what is rewritten, what is refused; and that no cut, no odd byte
 * and no file of the fuzz corpus leads it astray.
 */
#include "base/mem.h"
#include "ch/insert_head.h"
#include "lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct accepted {
    const char *text;
    const char *database, *table;
    const char *target; /* as it stands in the text */
    enum insert_source source;
    const char *format;
    const char *data; /* from data_begin on */
};

static const struct accepted accepted[] = {
    {"INSERT INTO t FORMAT TSV", NULL, "t", "t", INSERT_FORMAT, "TSV", ""},
    {"insert into T format JSONEachRow", NULL, "T", "T", INSERT_FORMAT, "JSONEachRow", ""},
    {"INSERT INTO db.t FORMAT Native\n\nx;y", "db", "t", "db.t", INSERT_FORMAT, "Native",
     "\n\nx;y"},
    {"INSERT INTO db . \"t\" FORMAT TSV", "db", "t", "db . \"t\"", INSERT_FORMAT, "TSV", ""},
    {"INSERT INTO`db`.`t`(a)FORMAT TSV 1", "db", "t", "`db`.`t`", INSERT_FORMAT, "TSV", " 1"},
    {"\xEF\xBB\xBF \n\tINSERT\r\nINTO\fTABLE\vt\xC2\xA0VALUES(1)", NULL, "t", "t", INSERT_VALUES,
     NULL, "(1)"},
    {"-- a ; comment\nINSERT /* x ' \" ` ; */ INTO #! more\n db /*.*/ . # and more\n t/**/(a,b) "
     "FORMAT TSV",
     "db", "t", "db /*.*/ . # and more\n t", INSERT_FORMAT, "TSV", ""},
    /* A comment behind the format is data, to ClickHouse too. */
    {"INSERT INTO t FORMAT TSV -- c", NULL, "t", "t", INSERT_FORMAT, "TSV", " -- c"},
    {"INSERT INTO t FORMAT TSV ; x", NULL, "t", "t", INSERT_FORMAT, "TSV", " ; x"},
    /* Quotes. */
    {"INSERT INTO `a``b`.\"c\"\"d\" VALUES", "a`b", "c\"d", "`a``b`.\"c\"\"d\"", INSERT_VALUES,
     NULL, ""},
    {"INSERT INTO `a\\`b`.\"c\\\"d\\\\\" VALUES", "a`b", "c\"d\\", "`a\\`b`.\"c\\\"d\\\\\"",
     INSERT_VALUES, NULL, ""},
    {"INSERT INTO `a.b c;--'\"`.`\\t\\x41\\n` VALUES", "a.b c;--'\"", "\tA\n",
     "`a.b c;--'\"`.`\\t\\x41\\n`", INSERT_VALUES, NULL, ""},
    {"INSERT INTO `таблица` VALUES", NULL, "таблица", "`таблица`", INSERT_VALUES, NULL, ""},
    {"INSERT INTO t FORMAT `TSV`", NULL, "t", "t", INSERT_FORMAT, "TSV", ""},
    /* Keywords and digits in names. */
    {"INSERT INTO values VALUES (1)", NULL, "values", "values", INSERT_VALUES, NULL, " (1)"},
    {"INSERT INTO format FORMAT TSV", NULL, "format", "format", INSERT_FORMAT, "TSV", ""},
    {"INSERT INTO TABLE table VALUES", NULL, "table", "table", INSERT_VALUES, NULL, ""},
    {"INSERT INTO select.settings SELECT 1", "select", "settings", "select.settings", INSERT_SELECT,
     NULL, ""},
    {"INSERT INTO `function` VALUES", NULL, "function", "`function`", INSERT_VALUES, NULL, ""},
    {"INSERT INTO db.function VALUES", "db", "function", "db.function", INSERT_VALUES, NULL, ""},
    {"INSERT INTO into VALUES", NULL, "into", "into", INSERT_VALUES, NULL, ""},
    {"INSERT INTO 2024_events VALUES", NULL, "2024_events", "2024_events", INSERT_VALUES, NULL, ""},
    {"INSERT INTO db.1a VALUES", "db", "1a", "db.1a", INSERT_VALUES, NULL, ""},
    {"INSERT INTO _t$1 VALUES", NULL, "_t$1", "_t$1", INSERT_VALUES, NULL, ""},
    /* Columns. */
    {"INSERT INTO t(* EXCEPT (a, `)`), b.c, \"(\") FORMAT TSV", NULL, "t", "t", INSERT_FORMAT,
     "TSV", ""},
    {"INSERT INTO t (select, from) VALUES", NULL, "t", "t", INSERT_VALUES, NULL, ""},
    {"INSERT INTO t (with) SELECT 1", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t (COLUMNS('a)')) VALUES", NULL, "t", "t", INSERT_VALUES, NULL, ""},
    /* Settings. */
    {"INSERT INTO t SETTINGS max_threads = 1, a.b='x', c=-1.5, d=[1,'async_insert'] FORMAT TSV",
     NULL, "t", "t", INSERT_FORMAT, "TSV", ""},
    {"INSERT INTO t (a) SETTINGS x = {'k': 1} VALUES", NULL, "t", "t", INSERT_VALUES, NULL, ""},
    {"INSERT INTO t SETTINGS optimize_on_insert VALUES", NULL, "t", "t", INSERT_VALUES, NULL, ""},
    {"INSERT INTO t SETTINGS x=1 (SELECT 1)", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    /* Values. */
    {"INSERT INTO t VALUES (1, ';', \"a\"), (2, 'x''y\\';');", NULL, "t", "t", INSERT_VALUES, NULL,
     " (1, ';', \"a\"), (2, 'x''y\\';');"},
    {"INSERT INTO t VALUES (1); -- done\n/* really */ ;", NULL, "t", "t", INSERT_VALUES, NULL,
     " (1); -- done\n/* really */ ;"},
    {"INSERT INTO t VALUES (1, 'goes on in the body", NULL, "t", "t", INSERT_VALUES, NULL,
     " (1, 'goes on in the body"},
    {"INSERT INTO t VALUES ($a$ ; ' $a$)", NULL, "t", "t", INSERT_VALUES, NULL, " ($a$ ; ' $a$)"},
    /* Queries. */
    {"INSERT INTO t SELECT 1;", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t (a, b) WITH 1 AS x SELECT x, ';' FROM s -- ; c", NULL, "t", "t", INSERT_SELECT,
     NULL, ""},
    {"INSERT INTO t ((SELECT 1) UNION ALL (SELECT 2))", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t(SELECT a FROM s)", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t (FROM s SELECT a)", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"WITH x AS (SELECT 'INSERT' AS insert) INSERT INTO t SELECT a FROM x", NULL, "t", "t",
     INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT lower(a) FROM input('a String') WHERE a != ';' FORMAT CSV\n\"a;\"\n",
     NULL, "t", "t", INSERT_FORMAT, "CSV", "\n\"a;\"\n"},
    {"INSERT INTO t SELECT format FROM s", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT $$ ; ) SETTINGS async_insert=1 $$, $x$'$x$ FROM s", NULL, "t", "t",
     INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT ‘it's ;’, 1.5e-3, 0x1F, [1,2], {'a':1}, t.1.2, {p:UInt8} FROM s", NULL,
     "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT a AS parallel FROM s GROUP BY parallel WITH TOTALS", NULL, "t", "t",
     INSERT_SELECT, NULL, ""},
    /* Not settings, though they look alike. */
    {"INSERT INTO t SELECT settings, async_insert FROM s", NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT settings FROM s, async_insert_log", NULL, "t", "t", INSERT_SELECT, NULL,
     ""},
    {"INSERT INTO t SELECT async_insert = 1 FROM s WHERE settings = 2 SETTINGS max_threads = 1",
     NULL, "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT a FROM s SETTINGS x = 1 UNION ALL SELECT b, profile = 2 FROM s", NULL,
     "t", "t", INSERT_SELECT, NULL, ""},
    {"INSERT INTO t SELECT (SELECT 1 SETTINGS x = 1), profile = 2", NULL, "t", "t", INSERT_SELECT,
     NULL, ""},
    {"INSERT INTO t SELECT 'SETTINGS async_insert = 1' -- SETTINGS async_insert = 1", NULL, "t",
     "t", INSERT_SELECT, NULL, ""},
};

struct refused {
    const char *text;
    int code;
    const char *message; /* part of it */
};

static const struct refused refused[] = {
    {"", CHXA_E_INVALID_QUERY, "INSERT is expected"},
    {" -- only a comment", CHXA_E_INVALID_QUERY, "INSERT is expected"},
    {"SELECT 1", CHXA_E_INVALID_QUERY, "expected INSERT at byte 1"},
    {"INSERTINTO t VALUES", CHXA_E_INVALID_QUERY, "expected INSERT"},
    {"INSERT t VALUES (1)", CHXA_E_INVALID_QUERY, "expected INTO at byte 8"},
    {"INSERT INTO", CHXA_E_INVALID_QUERY, "the name of a table is expected"},
    {"INSERT INTO VALUES (1)", CHXA_E_INVALID_QUERY, "FORMAT, VALUES or SELECT"},
    {"INSERT INTO t", CHXA_E_INVALID_QUERY, "FORMAT, VALUES or SELECT is expected"},
    {"INSERT INTO t (a, b)", CHXA_E_INVALID_QUERY, "FORMAT, VALUES or SELECT"},
    {"INSERT INTO t (a, b VALUES", CHXA_E_INVALID_QUERY, "a closing bracket"},
    {"INSERT INTO t (a; b) VALUES", CHXA_E_INVALID_QUERY, "a closing bracket"},
    {"INSERT INTO t.", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO . t VALUES", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO a.b.c VALUES", CHXA_E_INVALID_QUERY, "at most two parts"},
    {"INSERT INTO '' VALUES", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO 't' VALUES", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO 123 VALUES", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO 1e+5 VALUES", CHXA_E_INVALID_QUERY, "the name of a table"},
    {"INSERT INTO `` VALUES", CHXA_E_INVALID_QUERY, "an empty name"},
    {"INSERT INTO `a\\0b` VALUES", CHXA_E_INVALID_QUERY, "NUL"},
    {"INSERT INTO `a\\qb` VALUES", CHXA_E_INVALID_QUERY, "escape"},
    {"INSERT INTO `a\\x4` VALUES", CHXA_E_INVALID_QUERY, "escape"},
    {"INSERT INTO `t VALUES", CHXA_E_INVALID_QUERY, "a quote that does not end"},
    {"INSERT INTO t /* VALUES", CHXA_E_INVALID_QUERY, "a comment that does not end"},
    {"INSERT INTO t /* /* */ */ VALUES", CHXA_E_INVALID_QUERY, "a comment inside a comment"},
    {"INSERT INTO {t:Identifier} VALUES", CHXA_E_INVALID_QUERY, "name the table literally"},
    {"INSERT INTO db.{t:Identifier} FORMAT TSV", CHXA_E_INVALID_QUERY, "name the table literally"},
    {"INSERT INTO {db:Identifier}.{t:Identifier} FORMAT TSV", CHXA_E_INVALID_QUERY,
     "name the table literally"},
    {"INSERT INTO FUNCTION remote('h', db, t) VALUES", CHXA_E_TARGET_UNSUPPORTED, "table function"},
    {"INSERT INTO TABLE FUNCTION file('x') SELECT 1", CHXA_E_TARGET_UNSUPPORTED, "table function"},
    {"INSERT INTO t PARTITION BY a VALUES", CHXA_E_INVALID_QUERY, "PARTITION BY is for functions"},
    {"INSERT INTO t FROM INFILE 'x' FORMAT CSV", CHXA_E_INVALID_QUERY, "FROM INFILE"},
    {"INSERT INTO t WATCH v", CHXA_E_INVALID_QUERY, "FORMAT, VALUES or SELECT"},
    {"INSERT INTO t FORMAT", CHXA_E_INVALID_QUERY, "the name of a format"},
    {"INSERT INTO t FORMAT 'TSV'", CHXA_E_INVALID_QUERY, "the name of a format"},
    {"INSERT INTO t FORMAT TSV; SELECT 1", CHXA_E_INVALID_QUERY, "one statement at a time"},
    {"INSERT INTO t VALUES (1); SELECT 1", CHXA_E_INVALID_QUERY, "one statement at a time"},
    {"INSERT INTO t SELECT 1; SELECT 2", CHXA_E_INVALID_QUERY, "one statement at a time"},
    {"INSERT INTO t SELECT 1; 'x", CHXA_E_INVALID_QUERY, "a quote that does not end"},
    {"INSERT INTO t SELECT (1", CHXA_E_INVALID_QUERY, "a closing bracket"},
    {"INSERT INTO t SELECT (1; 2)", CHXA_E_INVALID_QUERY, "a closing bracket"},
    {"INSERT INTO t SELECT 1)", CHXA_E_INVALID_QUERY, "balanced brackets"},
    {"INSERT INTO t SELECT 'x", CHXA_E_INVALID_QUERY, "a quote that does not end"},
    {"WITH 1 AS x SELECT 1", CHXA_E_INVALID_QUERY, "a query is expected"},
    {"WITH 1 AS x; INSERT INTO t SELECT 1", CHXA_E_INVALID_QUERY, "a query"},
    {"INSERT INTO t SETTINGS = 1 VALUES", CHXA_E_INVALID_QUERY, "the name of a setting"},
    {"INSERT INTO t SETTINGS a = VALUES", CHXA_E_INVALID_QUERY, "FORMAT, VALUES or SELECT"},
    {"INSERT INTO t SETTINGS a = , VALUES", CHXA_E_INVALID_QUERY, "the value of a setting"},
    {"INSERT INTO t SETTINGS a = [1 VALUES", CHXA_E_INVALID_QUERY, "a closing bracket"},
    {"INSERT INTO t SETTINGS {p:Identifier} = 1 VALUES", CHXA_E_INVALID_QUERY, "literally"},
    {"INSERT INTO t SETTINGS async_insert = 1 VALUES", CHXA_E_SETTING_REFUSED, "async_insert"},
    {"INSERT INTO t SELECT 1 SETTINGS max_execution_time = 1, timeout_overflow_mode = 'break'",
     CHXA_E_SETTING_REFUSED, "timeout_overflow_mode"},
    {"INSERT INTO t SETTINGS async_insert VALUES", CHXA_E_SETTING_REFUSED, "async_insert"},
    {"INSERT INTO t SETTINGS a=1, `async_insert`=1 FORMAT TSV", CHXA_E_SETTING_REFUSED,
     "async_insert"},
    {"INSERT INTO t SETTINGS a=[1,2], \"insert_deduplication_token\"='x' SELECT 1",
     CHXA_E_SETTING_REFUSED, "insert_deduplication_token"},
    {"INSERT INTO t SELECT 1 SETTINGS a = 1, async_insert = 1", CHXA_E_SETTING_REFUSED,
     "async_insert"},
    {"INSERT INTO t SELECT 1 SETTINGS async_insert", CHXA_E_SETTING_REFUSED, "async_insert"},
    {"INSERT INTO t SELECT 1 SETTINGS a, async_insert", CHXA_E_SETTING_REFUSED, "async_insert"},
    {"INSERT INTO t (SELECT 1 settings/**/async_insert/**/=1)", CHXA_E_SETTING_REFUSED,
     "async_insert"},
    {"INSERT INTO t SELECT * FROM (SELECT 1 SETTINGS max_insert_block_size=1)",
     CHXA_E_SETTING_REFUSED, "max_insert_block_size"},
    {"INSERT INTO t SELECT 1 SETTINGS a=[1,2], b={'x':1}, async_insert=1", CHXA_E_SETTING_REFUSED,
     "async_insert"},
    {"INSERT INTO t SELECT 1 SETTINGS a=1, async_insert FORMAT TSV", CHXA_E_SETTING_REFUSED,
     "async_insert"},
    {"INSERT INTO t SELECT * FROM input('a Int8') SETTINGS async_insert=1 FORMAT TSV",
     CHXA_E_SETTING_REFUSED, "async_insert"},
    {"INSERT INTO t SELECT 1 SETTINGS `async\\_insert`=1", CHXA_E_INVALID_QUERY, "escape"},
    {"WITH x AS (SELECT 1 SETTINGS profile='p') INSERT INTO t SELECT 1", CHXA_E_SETTING_REFUSED,
     "profile"},
    {"INSERT INTO t SELECT 1 SETTINGS dialect = 'kusto'", CHXA_E_SETTING_REFUSED, "dialect"},
    {"INSERT INTO t SELECT 1 SETTINGS “async_insert” = 1", CHXA_E_INVALID_QUERY,
     "the name of a setting"},
    /* A second statement, which 26.7 runs beside the first. */
    {"INSERT INTO t SELECT 1 PARALLEL WITH DROP TABLE u", CHXA_E_INVALID_QUERY,
     "one statement at a time"},
    {"INSERT INTO t (SELECT 1) parallel/**/with -- x\n INSERT INTO u SELECT 2",
     CHXA_E_INVALID_QUERY, "one statement at a time"},
    {"INSERT INTO t SELECT a FROM s GROUP BY parallel WITH TOTALS PARALLEL WITH DROP TABLE u",
     CHXA_E_INVALID_QUERY, "one statement at a time"},
    {"INSERT INTO t SELECT 1 SETTINGS max_threads = 1 PARALLEL WITH SELECT 2", CHXA_E_INVALID_QUERY,
     "one statement at a time"},
};

#define N_ACCEPTED ((int)(sizeof accepted / sizeof *accepted))
#define N_REFUSED  ((int)(sizeof refused / sizeof *refused))

/* Parses a copy that ends where its memory ends, so that a read past it is caught. */
static int parse_exact(const char *text, size_t len, struct insert_head *ret_head,
                       struct error *error)
{
    char *copy = malloc(len ? len : 1);
    memcpy(copy, text, len);
    int code = insert_head_parse(copy, len, ret_head, error);
    if (code == 0) {
        struct buf out = {0};
        insert_head_rewrite(copy, len, ret_head, "chxa", "s_1", &out);
        buf_clear(&out);
    }
    free(copy);
    return code;
}

/* Whatever the text: an error with a message, or a head that hangs together. */
static void parse_any(const char *text, size_t len)
{
    struct insert_head head = {0};
    struct error error = {0};
    int code = parse_exact(text, len, &head, &error);
    if (code) {
        ck_assert_int_eq(error.code, code);
        ck_assert_ptr_nonnull(error.message);
        ck_assert_ptr_null(head.table);
    } else {
        ck_assert_int_eq(error.code, 0);
        ck_assert(head.target_begin < head.target_end && head.target_end <= head.data_begin &&
                  head.data_begin <= len && head.end <= len);
        ck_assert(*head.table);
        ck_assert((head.format != NULL) == (head.source == INSERT_FORMAT));
    }
    insert_head_clear(&head);
    error_clear(&error);
}

START_TEST(accepts)
{
    const struct accepted *test = &accepted[_i];
    size_t len = strlen(test->text);
    struct insert_head head = {0};
    struct error error = {0};
    int code = parse_exact(test->text, len, &head, &error);
    ck_assert_msg(code == 0, "%s: %s", test->text, error_message(&error));
    ck_assert_pstr_eq(head.database, test->database);
    ck_assert_str_eq(head.table, test->table);
    char *target = mem_strndup(test->text + head.target_begin, head.target_end - head.target_begin);
    ck_assert_str_eq(target, test->target);
    ck_assert_int_eq(head.source, test->source);
    ck_assert_pstr_eq(head.format, test->format);
    ck_assert_str_eq(test->text + head.data_begin, test->data);
    ck_assert_uint_eq(head.end, len);

    /* Rewritten: only the target differs; and read again it is the new one. */
    struct buf out = {0};
    insert_head_rewrite(test->text, len, &head, "ch`xa", "s", &out);
    char *expected = mem_printf("%.*s`ch\\`xa`.`s`%s", (int)head.target_begin, test->text,
                                test->text + head.target_end);
    ck_assert_str_eq(buf_str(&out), expected);
    struct insert_head again = {0};
    ck_assert_int_eq(parse_exact(out.data, out.len, &again, &error), 0);
    ck_assert_str_eq(again.database, "ch`xa");
    ck_assert_str_eq(again.table, "s");
    ck_assert_int_eq(again.source, head.source);
    ck_assert_uint_eq(out.len - again.data_begin, len - head.data_begin);
    insert_head_clear(&again);
    insert_head_clear(&head);
    buf_clear(&out);
    free(expected);
    free(target);
}
END_TEST

START_TEST(refuses)
{
    const struct refused *test = &refused[_i];
    struct insert_head head = {0};
    struct error error = {0};
    int code = parse_exact(test->text, strlen(test->text), &head, &error);
    ck_assert_msg(code == test->code, "%s: %d %s", test->text, code,
                  code ? error_message(&error) : "accepted");
    ck_assert_msg(strstr(error_message(&error), test->message) != NULL, "%s: %s", test->text,
                  error_message(&error));
    ck_assert_ptr_null(head.table);
    error_clear(&error);
}
END_TEST

START_TEST(survives_every_cut)
{
    for (int i = 0; i < N_ACCEPTED; i++) {
        for (size_t len = 0; len <= strlen(accepted[i].text); len++)
            parse_any(accepted[i].text, len);
    }
    for (int i = 0; i < N_REFUSED; i++) {
        for (size_t len = 0; len <= strlen(refused[i].text); len++)
            parse_any(refused[i].text, len);
    }
}
END_TEST

START_TEST(survives_odd_bytes)
{
    static const char odd[] = "\0'\"`\\$/*-#;.,(){}[]= \n0eS\xE2\xC2\xEF\xFF";
    for (int i = 0; i < N_ACCEPTED; i++) {
        size_t len = strlen(accepted[i].text);
        char *text = mem_strdup(accepted[i].text);
        for (size_t at = 0; at < len; at++) {
            char was = text[at];
            for (size_t k = 0; k < sizeof odd - 1; k++) {
                text[at] = odd[k];
                parse_any(text, len);
            }
            text[at] = was;
        }
        free(text);
    }
}
END_TEST

START_TEST(lone_semicolon_behind_the_format_is_dropped)
{
    static const char *const texts[] = {"INSERT INTO t FORMAT TSV;", "INSERT INTO t FORMAT TSV; \n",
                                        "INSERT INTO t FORMAT TSV;; -- c"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct insert_head head = {0};
        struct error error = {0};
        struct buf out = {0};
        ck_assert_int_eq(parse_exact(texts[i], strlen(texts[i]), &head, &error), 0);
        insert_head_rewrite(texts[i], strlen(texts[i]), &head, "d", "s", &out);
        ck_assert_str_eq(buf_str(&out), "INSERT INTO `d`.`s` FORMAT TSV");
        buf_clear(&out);
        insert_head_clear(&head);
    }
}
END_TEST

START_TEST(rows_in_the_text)
{
    static const struct {
        const char *text, *rows;
    } tests[] = {
        {"INSERT INTO t FORMAT Native\n\n\1x", "\n\1x"},
        {"INSERT INTO t FORMAT Native \t\r\n x", " x"},
        {"INSERT INTO t FORMAT TSV 1", "1"},
        {"INSERT INTO t FORMAT TSV{", "{"},
        {"INSERT INTO t FORMAT TSV", ""},
        {"INSERT INTO t FORMAT TSV\n", ""},
        {"INSERT INTO t VALUES\n(1)", "\n(1)"},
        {"INSERT INTO t SELECT 1 \n", ""},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        struct insert_head head = {0};
        struct error error = {0};
        size_t len = strlen(tests[i].text);
        ck_assert_int_eq(insert_head_parse(tests[i].text, len, &head, &error), 0);
        ck_assert_str_eq(tests[i].text + insert_head_rows(tests[i].text, len, &head),
                         tests[i].rows);
        insert_head_clear(&head);
    }
}
END_TEST

START_TEST(many_dollars_are_bounded)
{
    struct buf text = {0};
    buf_puts(&text, "INSERT INTO t SELECT ");
    for (int i = 0; i < 200000; i++)
        buf_printf(&text, "$%d ", i);
    parse_any(text.data, text.len);
    struct insert_head head;
    struct error error = {0};
    ck_assert_int_eq(insert_head_parse(text.data, text.len, &head, &error), CHXA_E_INVALID_QUERY);
    error_clear(&error);
    buf_clear(&text);
}
END_TEST

START_TEST(deep_brackets_are_no_recursion)
{
    struct buf text = {0};
    buf_puts(&text, "INSERT INTO t ");
    for (int i = 0; i < 200000; i++)
        buf_puts(&text, "(");
    parse_any(text.data, text.len);
    buf_clear(&text);
}
END_TEST

START_TEST(settings_list)
{
    static const char *const no[] = {"async_insert",
                                     "async_insert_max_data_size",
                                     "wait_for_async_insert",
                                     "insert_deduplication_token",
                                     "insert_deduplicate",
                                     "input_format_max_block_wait_ms",
                                     "input_format_connection_handling",
                                     "max_insert_block_size",
                                     "min_insert_block_size_rows",
                                     "min_insert_block_size_bytes",
                                     "buffer_size",
                                     "dialect",
                                     "timeout_overflow_mode",
                                     "timeout_overflow_mode_leaf",
                                     "read_overflow_mode",
                                     "wait_end_of_query"};
    static const char *const yes[] = {
        "max_threads",  "optimize_on_insert", "insert_quorum", "", "wait_for_async_insert_timeout",
        "Async_Insert", "profile_x"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(insert_setting_refused(no[i]), "%s", no[i]);
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        ck_assert_msg(!insert_setting_refused(yes[i]), "%s", yes[i]);
}
END_TEST

START_TEST(fuzz_corpus)
{
    const char *folder = CHXA_SOURCE_DIR "/tests/fuzz/corpus/insert_head";
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    int files = 0;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = mem_printf("%s/%s", folder, entry->d_name);
        char space[65536];
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        size_t len = fread(space, 1, sizeof space, file);
        fclose(file);
        free(path);
        parse_any(space, len);
        files++;
    }
    closedir(dir);
    ck_assert_int_ge(files, 10);
}
END_TEST

/* ---- a target that is named by parameters ---- */

static const char *lookup(void *arg, const char *name)
{
    (void)arg;
    if (strcmp(name, "database") == 0)
        return "my db";
    if (strcmp(name, "table") == 0)
        return "t`1";
    return strcmp(name, "empty") == 0 ? "" : NULL;
}

static const struct {
    const char *text, *database, *table, *rewritten;
} parameters[] = {
    {"INSERT INTO {database:Identifier}.{table:Identifier} FORMAT JSONEachRow", "my db", "t`1",
     "INSERT INTO `chxa`.`s` FORMAT JSONEachRow"},
    {"INSERT INTO{ table : Identifier }(a)VALUES", NULL, "t`1", "INSERT INTO`chxa`.`s`(a)VALUES"},
    {"INSERT INTO db . {table:Identifier} SELECT {x:UInt8}", "db", "t`1",
     "INSERT INTO `chxa`.`s` SELECT {x:UInt8}"},
    {"INSERT INTO {absent:Identifier} VALUES", NULL, NULL, "has no value"},
    {"INSERT INTO {empty:Identifier} VALUES", NULL, NULL, "has no value"},
    {"INSERT INTO {table:String} VALUES", NULL, NULL, "{name:Identifier}"},
    {"INSERT INTO {table} VALUES", NULL, NULL, "{name:Identifier}"},
    {"INSERT INTO {table:Identifier VALUES", NULL, NULL, "{name:Identifier}"},
    {"INSERT INTO {", NULL, NULL, "{name:Identifier}"},
};

START_TEST(parameters_in_the_target)
{
    const char *text = parameters[_i].text;
    struct insert_head head = {0};
    struct error error = {0};
    int code = insert_head_parse_with(text, strlen(text), lookup, NULL, &head, &error);
    if (parameters[_i].table) {
        ck_assert_msg(code == 0, "%s: %s", text, error_message(&error));
        ck_assert_pstr_eq(head.database, parameters[_i].database);
        ck_assert_str_eq(head.table, parameters[_i].table);
        struct buf out = {0};
        insert_head_rewrite(text, strlen(text), &head, "chxa", "s", &out);
        ck_assert_str_eq(buf_str(&out), parameters[_i].rewritten);
        buf_clear(&out);
    } else {
        ck_assert_int_eq(code, CHXA_E_INVALID_QUERY);
        ck_assert_msg(strstr(error_message(&error), parameters[_i].rewritten) != NULL, "%s",
                      error_message(&error));
    }
    insert_head_clear(&head);
    error_clear(&error);
}
END_TEST

/* ---- is it an INSERT? ---- */

static const struct {
    const char *text;
    enum insert_kind cut, whole;
} kinds[] = {
    {"", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"  -- a comment", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"/* open", INSERT_KIND_UNDECIDED, INSERT_KIND_UNREADABLE},
    {"/* /* */ INSERT INTO t", INSERT_KIND_UNDECIDED, INSERT_KIND_UNREADABLE},
    {"\xE2\x80\x83INSERT INTO t", INSERT_KIND_UNREADABLE, INSERT_KIND_UNREADABLE},
    {"WITH 1 AS select INSERT INTO t SELECT 1", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"DROP TABLE a PARALLEL WITH INSERT INTO t ", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"CREATE TABLE t (a String DEFAULT 'INSERT INTO') ", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"// x\nINSERT INTO t ", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"1\ta\n", INSERT_KIND_UNREADABLE, INSERT_KIND_UNREADABLE},
    {"INS", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"INSERT", INSERT_KIND_UNDECIDED, INSERT_KIND_INSERT},
    {"insert into", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"/* x */ -- y\n InSeRt\n", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"INSERTED x", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"SELECT 1", INSERT_KIND_OTHER, INSERT_KIND_OTHER},
    {"(SELECT 1)", INSERT_KIND_OTHER, INSERT_KIND_OTHER},
    {"EXPLAIN INSERT INTO t VALUES", INSERT_KIND_OTHER, INSERT_KIND_OTHER},
    {"WITH x AS (SELECT 1) ", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"WITH x AS (SELECT 1) INSERT INTO t ", INSERT_KIND_INSERT, INSERT_KIND_INSERT},
    {"WITH x AS (INSERT) SELECT insert ", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"WITH 'INSERT' AS x SELECT x ", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"WITH 1 AS `INSERT` SELECT 1 ", INSERT_KIND_UNDECIDED, INSERT_KIND_OTHER},
    {"; INSERT INTO t VALUES", INSERT_KIND_UNREADABLE, INSERT_KIND_UNREADABLE},
};

START_TEST(tells_an_insert)
{
    const char *text = kinds[_i].text;
    ck_assert_int_eq(insert_head_kind(text, strlen(text), false), kinds[_i].cut);
    ck_assert_int_eq(insert_head_kind(text, strlen(text), true), kinds[_i].whole);
}
END_TEST

/* More text never changes a decision, and what parses as an INSERT is told as one. */
START_TEST(tells_an_insert_from_any_prefix)
{
    for (int i = 0; i < N_ACCEPTED; i++) {
        const char *text = accepted[i].text;
        enum insert_kind before = INSERT_KIND_UNDECIDED;
        for (size_t len = 0; len <= strlen(text); len++) {
            enum insert_kind now = insert_head_kind(text, len, false);
            ck_assert_msg(before == INSERT_KIND_UNDECIDED || now == before, "%s: %zu", text, len);
            before = now;
        }
        ck_assert_msg(insert_head_kind(text, strlen(text), true) == INSERT_KIND_INSERT, "%s", text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("insert_head");
    TCase *tests = tcase_create("insert_head");
    tcase_set_timeout(tests, 30);
    tcase_add_loop_test(tests, accepts, 0, N_ACCEPTED);
    tcase_add_loop_test(tests, refuses, 0, N_REFUSED);
    tcase_add_test(tests, survives_every_cut);
    tcase_add_test(tests, survives_odd_bytes);
    tcase_add_test(tests, lone_semicolon_behind_the_format_is_dropped);
    tcase_add_test(tests, rows_in_the_text);
    tcase_add_test(tests, many_dollars_are_bounded);
    tcase_add_test(tests, deep_brackets_are_no_recursion);
    tcase_add_test(tests, settings_list);
    tcase_add_test(tests, fuzz_corpus);
    tcase_add_loop_test(tests, parameters_in_the_target, 0,
                        (int)(sizeof parameters / sizeof *parameters));
    tcase_add_loop_test(tests, tells_an_insert, 0, (int)(sizeof kinds / sizeof *kinds));
    tcase_add_test(tests, tells_an_insert_from_any_prefix);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
