/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a real server (CHXA_TEST_CLICKHOUSE) read the head of an INSERT as we do? Each statement is
 * rewritten from the table t to the table s and run. Whatever the server makes of it, t stays
 * empty; what every version reads must bring its row into s.
 */
#include "ch/ch_http.h"
#include "ch/insert_head.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATABASE "chxa_test_head"
#define T        DATABASE ".t"

static const struct {
    const char *sql;
    const char *body;
    bool everywhere; /* read by the oldest version too */
} tests[] = {
    {"INSERT INTO " T " FORMAT TSV", "1\tx\n", true},
    {"insert into/**/" T "/**/(a)format TSV", "1\n", true},
    {"-- ` ' \"\nINSERT /* ' */ INTO TABLE " DATABASE " . `t` (b, a) FORMAT TSV", "x\t1\n", true},
    {"INSERT INTO `" DATABASE "`.\"t\"VALUES", "(1, ')')", true},
    {"INSERT INTO " T " VALUES (1, 'it''s; \\' ok');", "", true},
    {"INSERT INTO " T " VALUES (1, 'goes on ", "here')", true},
    {"INSERT INTO " T " FORMAT TSV;", "1\tx\n", true},
    {"INSERT INTO " T " FORMAT TSV 1\tin the text", "", true},
    {"INSERT INTO " T " FORMAT TSV\n1\tx; INSERT INTO " T " FORMAT TSV", "", true},
    {"INSERT INTO " T " FORMAT JSONEachRow", "{\"a\":1,\"b\":\"\"}", true},
    {"INSERT INTO " T " SELECT 1, ';' FROM system.one -- ; end", "", true},
    {"INSERT INTO " T " (b) SELECT 'x' UNION ALL SELECT 'y';", "", true},
    {"INSERT INTO " T " WITH 1 AS x SELECT x, '' FROM (SELECT 1) SETTINGS max_threads = 1", "",
     false},
    {"INSERT INTO " T " SELECT 1, '' FROM system.one SETTINGS max_threads = 1", "", true},
    {"WITH x AS (SELECT 1 AS a) INSERT INTO " T " (a) SELECT a FROM x", "", false},
    {"INSERT INTO " T " (* EXCEPT (b)) FORMAT TSV", "1\n", false},
    {"INSERT INTO " T " SETTINGS max_threads = 1, log_comment = ', t' FORMAT TSV", "1\tx\n", false},
    {"INSERT INTO " T " SETTINGS optimize_on_insert VALUES", "(1, '')", false},
    {"INSERT INTO " T " SELECT a, b FROM input('a UInt8, b String') FORMAT TSV", "1\tx\n", false},
    {"INSERT INTO " T " (SELECT 1, '')", "", false},
    {"INSERT INTO " T " ((SELECT 1, '') UNION ALL (SELECT 2, ''))", "", false},
    {"INSERT INTO " T " (FROM system.one SELECT 1, '')", "", false},
    {"INSERT INTO " T " VALUES (1, $x$ ; ' $x$)", "", false},
    {"# comment\nINSERT INTO " T " #! another\n VALUES (1, '')", "", false},
    {"\xEF\xBB\xBF\xC2\xA0INSERT INTO " T " VALUES (1, '')", "", false},
    {"INSERT INTO " T " SELECT 1, ‘it's’ FROM system.one", "", false},
};

static uv_loop_t loop;
static struct ch_client *client;

struct result {
    bool done;
    int code;
    int ch_code;
    char text[4000]; /* body or message */
};

static void on_answer(void *arg, const struct ch_answer *answer)
{
    struct result *result = arg;
    result->done = true;
    result->code = answer->code;
    result->ch_code = answer->ch_code;
    snprintf(result->text, sizeof result->text, "%s",
             answer->code ? error_message(answer->error) : answer->body);
}

static void run(const char *sql, const char *body, struct result *result)
{
    struct ch_statement statement = {.sql = sql, .timeout_ms = 30000};
    *result = (struct result){0};
    if (body) {
        struct ch_request *request = ch_upload(client, &statement, NULL, NULL, on_answer, result);
        ch_upload_write(request, body, strlen(body));
        ch_upload_end(request);
    } else {
        ch_query(client, &statement, on_answer, result);
    }
    while (!result->done)
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || result->done);
}

static void must(const char *sql, const char *want)
{
    struct result result;
    run(sql, NULL, &result);
    ck_assert_msg(result.code == 0, "%s: %s", sql, result.text);
    if (want)
        ck_assert_str_eq(result.text, want);
}

static void start(void)
{
    struct ch_client_config config = {.url = getenv("CHXA_TEST_CLICKHOUSE"),
                                      .connect_timeout_ms = 5000,
                                      .connections_max = 4,
                                      .queue_max = 10,
                                      .answer_bytes_max = 100000};
    struct error error = {0};
    uv_loop_init(&loop);
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    must("DROP DATABASE IF EXISTS " DATABASE, NULL);
    must("CREATE DATABASE " DATABASE, NULL);
    must("CREATE TABLE " T " (a UInt8, b String) ENGINE = Memory", NULL);
    must("CREATE TABLE " DATABASE ".s (a UInt8, b String) ENGINE = Memory", NULL);
}

static void stop(void)
{
    must("DROP DATABASE " DATABASE, NULL);
    ch_client_close(client, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

START_TEST(server_reads_it_alike)
{
    const char *sql = tests[_i].sql;
    struct insert_head head = {0};
    struct error error = {0};
    struct buf rewritten = {0};
    struct result result;

    ck_assert_msg(insert_head_parse(sql, strlen(sql), &head, &error) == 0, "%s",
                  error_message(&error));
    ck_assert_str_eq(head.database, DATABASE);
    ck_assert_str_eq(head.table, "t");
    insert_head_rewrite(sql, strlen(sql), &head, DATABASE, "s", &rewritten);
    run(buf_str(&rewritten), tests[_i].body, &result);
    must("SELECT count() FROM " T, "0\n");
    if (result.code == 0) {
        struct result rows;
        run("SELECT count() > 0 FROM " DATABASE ".s", NULL, &rows);
        ck_assert_str_eq(rows.text, "1\n");
    } else {
        ck_assert_msg(!tests[_i].everywhere, "%s: %s", sql, result.text);
        ck_assert_int_eq(result.code, CHXA_E_CLICKHOUSE_REJECTED);
        printf("not read by this server: %s\n", sql);
    }
    insert_head_clear(&head);
    buf_clear(&rewritten);
}
END_TEST

/* A text of statement and rows, split into URL and body: the rows arrive byte for byte. */
START_TEST(text_is_split)
{
    static const struct {
        const char *sql, *want;
    } splits[] = {
        {"INSERT INTO " T " (b) FORMAT TSV\nx y\n", "x y"},
        {"INSERT INTO " T " (b) FORMAT TSV \t \r\n x\n", " x"},
        {"INSERT INTO " T " (b) FORMAT TSV ;\n", ";"},
        {"INSERT INTO " T " (b) FORMAT RowBinary\n\1\n", "\\n"},
        {"INSERT INTO " T " (b) FORMAT RowBinary\n\n0123456789", "0123456789"},
        {"INSERT INTO " T " (b) VALUES\n('x')", "x"},
    };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        const char *sql = splits[i].sql;
        size_t len = strlen(sql);
        struct insert_head head = {0};
        struct error error = {0};
        struct buf rewritten = {0};
        struct result result;
        ck_assert_int_eq(insert_head_parse(sql, len, &head, &error), 0);
        insert_head_rewrite(sql, head.data_begin, &head, DATABASE, "s", &rewritten);
        run(buf_str(&rewritten), sql + insert_head_rows(sql, len, &head), &result);
        ck_assert_msg(result.code == 0, "%s: %s", sql, result.text);
        run("SELECT b FROM " DATABASE ".s", NULL, &result);
        result.text[strcspn(result.text, "\n")] = '\0';
        ck_assert_str_eq(result.text, splits[i].want);
        must("TRUNCATE TABLE " DATABASE ".s", NULL);
        insert_head_clear(&head);
        buf_clear(&rewritten);
    }
}
END_TEST

int main(void)
{
    if (!getenv("CHXA_TEST_CLICKHOUSE")) {
        puts("skipped: CHXA_TEST_CLICKHOUSE names no server");
        return 77;
    }
    Suite *suite = suite_create("insert_head");
    TCase *cases = tcase_create("insert_head");
    tcase_add_checked_fixture(cases, start, stop);
    tcase_set_timeout(cases, 30);
    tcase_add_loop_test(cases, server_reads_it_alike, 0, (int)(sizeof tests / sizeof *tests));
    tcase_add_test(cases, text_is_split);
    suite_add_tcase(suite, cases);
    return suite_run(suite);
}
