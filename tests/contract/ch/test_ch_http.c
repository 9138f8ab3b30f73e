/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests, quoting and rewritten INSERTs on a real server (CHXA_TEST_CLICKHOUSE). The same suite
 * for every version; nothing here asks which one it is.
 */
#include "base/mem.h"
#include "ch/ch_http.h"
#include "ch/insert_head.h"
#include "ch/sql.h"
#include "lib/suite.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define DATABASE "chxa_test_ch_http"

static uv_loop_t loop;
static struct ch_client *client;

struct result {
    bool done;
    int code, http_status, ch_code;
    char *body, *message;
    size_t body_bytes;
    bool drained;
};

static void on_answer(void *arg, const struct ch_answer *answer)
{
    struct result *result = arg;
    ck_assert(!result->done);
    result->done = true;
    result->code = answer->code;
    result->http_status = answer->http_status;
    result->ch_code = answer->ch_code;
    result->body = mem_alloc(answer->body_bytes + 1);
    memcpy(result->body, answer->body, answer->body_bytes);
    result->body_bytes = answer->body_bytes;
    result->message = answer->code ? mem_strdup(error_message(answer->error)) : NULL;
}

static void on_drain(void *arg)
{
    struct result *result = arg;
    result->drained = true;
}

static void result_clear(struct result *result)
{
    free(result->body);
    free(result->message);
    *result = (struct result){0};
}

static void wait_for(const struct result *result)
{
    while (!result->done)
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || result->done);
}

static void run(const char *sql, struct result *result)
{
    struct ch_statement statement = {.sql = sql, .timeout_ms = 60000};
    result_clear(result);
    ch_query(client, &statement, on_answer, result);
    wait_for(result);
}

/* Runs a statement that must succeed; its answer is valid until the next one. */
static const char *value(const char *sql)
{
    static struct result result;
    run(sql, &result);
    ck_assert_msg(result.code == 0, "%s: %s", sql, result.message);
    char *end = strchr(result.body, '\n');
    if (end && !end[1])
        *end = '\0';
    return result.body;
}

static struct ch_request *upload(const char *sql, const char *encoding, struct result *result)
{
    struct ch_statement statement = {.sql = sql, .timeout_ms = 60000};
    result_clear(result);
    return ch_upload(client, &statement, encoding, on_drain, on_answer, result);
}

/* Writes as a well-behaved caller does; false when it was answered meanwhile. */
static bool write_rows(struct ch_request *request, struct result *result, const void *data,
                       size_t len)
{
    if (result->done)
        return false;
    result->drained = false;
    if (!ch_upload_write(request, data, len)) {
        while (!result->drained && !result->done)
            uv_run(&loop, UV_RUN_ONCE);
    } else {
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return !result->done;
}

static void insert(const char *sql, const char *rows, struct result *result)
{
    struct ch_request *request = upload(sql, NULL, result);
    ch_upload_write(request, rows, strlen(rows));
    ch_upload_end(request);
    wait_for(result);
}

static void start(void)
{
    struct ch_client_config config = {.url = getenv("CHXA_TEST_CLICKHOUSE"),
                                      .connect_timeout_ms = 5000,
                                      .connections_max = 8,
                                      .queue_max = 100,
                                      .answer_bytes_max = 1000000};
    struct error error = {0};
    uv_loop_init(&loop);
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    value("DROP DATABASE IF EXISTS " DATABASE);
    value("CREATE DATABASE " DATABASE);
    value("CREATE TABLE " DATABASE ".t (x UInt64) ENGINE = Memory");
}

static void stop(void)
{
    value("DROP DATABASE " DATABASE);
    ch_client_close(client, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* ---- quoting ---- */

static const char *const names[] = {
    "plain",
    "select",
    "a b",
    "a.b",
    "a`b",
    "a``b",
    "`",
    "a'b",
    "a\"b",
    "a\\b",
    "\\",
    "a\\`b",
    "a\\'b",
    "a\\nb",
    "a\nb",
    "a\tb",
    "таблица",
    "表",
    "a;b",
    "a--b",
    "a/*b",
    "a%b",
    "a#b",
    "{a:Identifier}",
    "$a$",
    "1",
    " a ",
    "a\rb",
    "a\\x41b",
    "a\x01"
    "b",
};

START_TEST(names_are_quoted)
{
    const char *name = names[_i];
    struct buf sql = {0};
    struct result result = {0};
    char *database = mem_printf(DATABASE "_%s", name);

    buf_puts(&sql, "CREATE DATABASE ");
    sql_identifier(&sql, database);
    value(buf_str(&sql));
    buf_clear(&sql);
    buf_puts(&sql, "CREATE TABLE ");
    sql_table(&sql, database, name);
    buf_puts(&sql, " (");
    sql_identifier(&sql, name);
    buf_puts(&sql, " UInt64) ENGINE = Memory");
    value(buf_str(&sql));
    buf_clear(&sql);

    /* An INSERT that names it, through the lexer and back. */
    buf_puts(&sql, "INSERT INTO ");
    sql_table(&sql, database, name);
    buf_puts(&sql, "(");
    sql_identifier(&sql, name);
    buf_puts(&sql, ") FORMAT TSV");
    struct insert_head head = {0};
    struct error error = {0};
    ck_assert_msg(insert_head_parse(sql.data, sql.len, &head, &error) == 0, "%s",
                  error_message(&error));
    ck_assert_str_eq(head.database, database);
    ck_assert_str_eq(head.table, name);
    struct buf again = {0};
    insert_head_rewrite(sql.data, sql.len, &head, head.database, head.table, &again);
    insert(buf_str(&again), "7\n", &result);
    ck_assert_msg(result.code == 0, "%s", result.message);
    insert_head_clear(&head);
    buf_clear(&again);
    buf_clear(&sql);

    buf_puts(&sql, "SELECT name FROM system.tables WHERE database = ");
    sql_string(&sql, database);
    char *listed = mem_strdup(value(buf_str(&sql)));
    ck_assert_uint_eq(sql_tsv_unescape(listed), strlen(name));
    ck_assert_str_eq(listed, name);
    free(listed);
    buf_clear(&sql);
    buf_puts(&sql, "SELECT ");
    sql_identifier(&sql, name);
    buf_puts(&sql, " FROM ");
    sql_table(&sql, database, name);
    ck_assert_str_eq(value(buf_str(&sql)), "7");
    buf_clear(&sql);
    buf_puts(&sql, "DROP DATABASE ");
    sql_identifier(&sql, database);
    value(buf_str(&sql));
    buf_clear(&sql);
    free(database);
    result_clear(&result);
}
END_TEST

START_TEST(strings_are_quoted)
{
    struct buf sql = {0};
    char all[256] = {0};
    for (int c = 1; c < 256; c++)
        all[c - 1] = (char)c;
    const char *texts[] = {
        all, "", "'", "\\", "\\'", "''", "\\\\'", "a\\0b", "x'; DROP TABLE y --"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        buf_puts(&sql, "SELECT ");
        sql_string(&sql, texts[i]);
        char *got = mem_strdup(value(buf_str(&sql)));
        ck_assert_uint_eq(sql_tsv_unescape(got), strlen(texts[i]));
        ck_assert_str_eq(got, texts[i]);
        free(got);
        buf_clear(&sql);
    }
}
END_TEST

/* ---- statements ---- */

START_TEST(exceptions_are_rejections)
{
    static const struct {
        const char *sql;
        int ch_code;
    } tests[] = {
        {"SELEC 1", 62},
        {"SELECT * FROM " DATABASE ".missing", 60},
        {"SELECT throwIf(number = 100000) FROM numbers(200000)", 395},
        {"SELECT sum(sleepEachRow(1)) FROM numbers(100) SETTINGS max_execution_time = 1", 159},
    };
    struct result result = {0};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        run(tests[i].sql, &result);
        if (i == 2 && result.ch_code == 46)
            continue; /* no such function on the oldest server */
        ck_assert_int_eq(result.code, CHXA_E_CLICKHOUSE_REJECTED);
        ck_assert_msg(strncmp(result.message, "Code: ", 6) == 0, "%s", result.message);
        ck_assert_msg(result.ch_code == tests[i].ch_code || i == 3, "%s", result.message);
    }
    result_clear(&result);
}
END_TEST

START_TEST(many_at_once)
{
    struct result results[60] = {0};
    char sql[60][40];
    for (int i = 0; i < 60; i++) {
        snprintf(sql[i], sizeof sql[i], "SELECT %d + sleep(0.01)", i);
        struct ch_statement statement = {.sql = sql[i], .timeout_ms = 60000};
        ch_query(client, &statement, on_answer, &results[i]);
    }
    for (int i = 0; i < 60; i++) {
        wait_for(&results[i]);
        ck_assert_msg(results[i].code == 0, "%s", results[i].message);
        ck_assert_int_eq((int)strtol(results[i].body, NULL, 10), i);
        result_clear(&results[i]);
    }
}
END_TEST

static void count_processes(const char *query_id, int want)
{
    for (int tries = 0;; tries++) {
        char sql[200];
        snprintf(sql, sizeof sql, "SELECT count() FROM system.processes WHERE query_id = '%s'",
                 query_id);
        if ((int)strtol(value(sql), NULL, 10) == want)
            return;
        ck_assert_int_lt(tries, 500);
        uv_sleep(10);
    }
}

START_TEST(cancelled_upload_leaves_no_query)
{
    struct result result = {0};
    struct ch_statement statement = {.sql = "INSERT INTO " DATABASE ".t FORMAT TSV",
                                     .query_id = "chxa-test-cancel"};
    struct ch_request *request = ch_upload(client, &statement, NULL, on_drain, on_answer, &result);
    /* The servers begin when they have the first 256 KiB (max_query_size) of statement and body. */
    static char rows[1 << 20];
    memset(rows, '\n', sizeof rows);
    for (size_t i = 0; i < sizeof rows; i += 2)
        rows[i] = '1';
    ck_assert(write_rows(request, &result, rows, sizeof rows));
    count_processes("chxa-test-cancel", 1);
    ch_request_cancel(request);
    wait_for(&result);
    ck_assert_int_eq(result.code, CHXA_E_CANCELLED);
    count_processes("chxa-test-cancel", 0);
    result_clear(&result);
}
END_TEST

/* ---- uploads ---- */

START_TEST(upload_in_pieces)
{
    struct result result = {0};
    struct ch_request *request = upload("INSERT INTO " DATABASE ".t FORMAT TSV", NULL, &result);
    for (int i = 0; i < 1000; i++) {
        char row[20];
        int len = snprintf(row, sizeof row, "%d\n", i);
        ck_assert(write_rows(request, &result, row, (size_t)len));
    }
    ch_upload_end(request);
    wait_for(&result);
    ck_assert_msg(result.code == 0, "%s", result.message);
    ck_assert_str_eq(value("SELECT count(), sum(x) FROM " DATABASE ".t"), "1000\t499500");
    result_clear(&result);
}
END_TEST

START_TEST(compressed_upload)
{
    static const unsigned char gzip[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02,
                                         0x03, 0x33, 0xe4, 0x32, 0xe2, 0x32, 0xe6, 0x02, 0x00,
                                         0xd8, 0x54, 0x5f, 0x77, 0x06, 0x00, 0x00, 0x00};
    struct result result = {0};
    struct ch_request *request = upload("INSERT INTO " DATABASE ".t FORMAT TSV", "gzip", &result);
    ch_upload_write(request, gzip, sizeof gzip);
    ch_upload_end(request);
    wait_for(&result);
    ck_assert_msg(result.code == 0, "%s", result.message);
    ck_assert_str_eq(value("SELECT count(), sum(x) FROM " DATABASE ".t"), "3\t6");
    result_clear(&result);
}
END_TEST

START_TEST(upload_of_a_query_without_rows)
{
    struct result result = {0};
    insert("INSERT INTO " DATABASE ".t SELECT number FROM numbers(10)", "", &result);
    ck_assert_msg(result.code == 0, "%s", result.message);
    ck_assert_str_eq(value("SELECT count() FROM " DATABASE ".t"), "10");
    result_clear(&result);
}
END_TEST

/* A bad row early in a long body: the server answers in the middle of it, and its text must come
 * through whatever becomes of the connection. */
START_TEST(bad_row_in_a_long_body)
{
    char rows[65536];
    for (size_t i = 0; i < sizeof rows; i += 8)
        memcpy(rows + i, "1234567\n", 8);
    for (int k = 0; k < 15; k++) {
        struct result result = {0};
        struct ch_request *request = upload("INSERT INTO " DATABASE ".t FORMAT TSV", NULL, &result);
        size_t good = (size_t)k * sizeof rows;
        for (size_t sent = 0; sent < 64u << 20; sent += sizeof rows) {
            if (sent == good)
                ch_upload_write(request, "not a number\n", 13);
            if (!write_rows(request, &result, rows, sizeof rows))
                break;
        }
        if (!result.done)
            ch_upload_end(request);
        wait_for(&result);
        ck_assert_msg(result.code == CHXA_E_CLICKHOUSE_REJECTED, "%d: %d %s", k, result.code,
                      result.code ? result.message : "accepted");
        ck_assert_msg(strstr(result.message, "Cannot parse") != NULL, "%s", result.message);
        ck_assert_int_gt(result.ch_code, 0);
        result_clear(&result);
    }
    /* And the table that does not exist, known before the first row. */
    struct result result = {0};
    struct ch_request *request = upload("INSERT INTO " DATABASE ".no FORMAT TSV", NULL, &result);
    for (size_t sent = 0; sent < 64u << 20; sent += sizeof rows) {
        if (!write_rows(request, &result, rows, sizeof rows))
            break;
    }
    if (!result.done)
        ch_upload_end(request);
    wait_for(&result);
    ck_assert_int_eq(result.code, CHXA_E_CLICKHOUSE_REJECTED);
    ck_assert_int_eq(result.ch_code, 60);
    result_clear(&result);
}
END_TEST

static long memory_peak_kb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

START_TEST(long_body_needs_no_memory)
{
    static char rows[65536];
    const size_t total = (size_t)512 << 20;
    struct result result = {0};
    value("CREATE TABLE " DATABASE ".n (x UInt64) ENGINE = Null");
    long before = memory_peak_kb();
    struct ch_request *request =
        upload("INSERT INTO " DATABASE ".n FORMAT RowBinary", NULL, &result);
    for (size_t sent = 0; sent < total; sent += sizeof rows)
        ck_assert(write_rows(request, &result, rows, sizeof rows));
    ch_upload_end(request);
    wait_for(&result);
    ck_assert_msg(result.code == 0, "%s", result.message);
    ck_assert_int_lt(memory_peak_kb() - before, 8000);
    result_clear(&result);
}
END_TEST

int main(void)
{
    if (!getenv("CHXA_TEST_CLICKHOUSE")) {
        puts("skipped: CHXA_TEST_CLICKHOUSE names no server");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("ch_http");
    TCase *tests = tcase_create("ch_http");
    tcase_add_checked_fixture(tests, start, stop);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, names_are_quoted, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(tests, strings_are_quoted);
    tcase_add_test(tests, exceptions_are_rejections);
    tcase_add_test(tests, many_at_once);
    tcase_add_test(tests, cancelled_upload_leaves_no_query);
    tcase_add_test(tests, upload_in_pieces);
    tcase_add_test(tests, compressed_upload);
    tcase_add_test(tests, upload_of_a_query_without_rows);
    tcase_add_test(tests, bad_row_in_a_long_body);
    tcase_add_test(tests, long_body_needs_no_memory);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
