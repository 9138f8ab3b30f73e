/* SPDX-License-Identifier: Apache-2.0
 *
 * What the contract tests of server/ch share: a loop, a client and the server's capabilities in
 * each test's own process, and calls that wait. Included once per test program.
 */
#ifndef CHXA_TESTS_CONTRACT_CH_CH_LAB_H
#define CHXA_TESTS_CONTRACT_CH_CH_LAB_H

#include "base/mem.h"
#include "ch/ch_http.h"
#include "ch/sql.h"
#include "ch/table.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAB_TIMEOUT_MS 20000u
#define LAB_DATABASE   "lab"

static uv_loop_t lab_loop;
static struct ch_client *lab_client;
static struct ch_caps lab_caps;
static bool lab_waiting;
static char **lab_kept; /* answers, until the test ends */
static size_t lab_n_kept;

struct lab_answer {
    int code;
    int ch_code;
    char *body;
    char *message;
};

static void lab_wait(void)
{
    while (lab_waiting)
        ck_assert_msg(uv_run(&lab_loop, UV_RUN_ONCE) || !lab_waiting, "the loop is empty");
}

static void lab_answered(void *arg, const struct ch_answer *answer)
{
    struct lab_answer *ret = arg;
    ret->code = answer->code;
    ret->ch_code = answer->ch_code;
    ret->body = mem_strdup(answer->body ? answer->body : "");
    ret->message = mem_strdup(answer->code ? error_message(answer->error) : "");
    lab_waiting = false;
}

static struct lab_answer lab_run(const char *sql, const struct ch_param *params, size_t n_params)
{
    struct lab_answer answer = {0};
    struct ch_statement statement = {
        .sql = sql, .params = params, .n_params = n_params, .timeout_ms = LAB_TIMEOUT_MS};
    lab_waiting = true;
    ch_query(lab_client, &statement, lab_answered, &answer);
    lab_wait();
    return answer;
}

/* The answer's text, kept until the test ends. Must succeed. */
static const char *lab_sql(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *lab_sql(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sql = mem_vprintf(format, args);
    va_end(args);
    struct lab_answer answer = lab_run(sql, lab_caps.create_params, lab_caps.n_create_params);
    ck_assert_msg(answer.code == 0, "%s: %s", sql, answer.message);
    free(sql);
    free(answer.message);
    lab_kept = mem_realloc(lab_kept, (lab_n_kept + 1) * sizeof *lab_kept);
    lab_kept[lab_n_kept++] = answer.body;
    return answer.body;
}

static void lab_probed(void *arg, int code, struct error *error, struct ch_caps *caps)
{
    (void)arg;
    ck_assert_msg(code == 0, "probe: %s", error_message(error));
    lab_caps = *caps;
    *caps = (struct ch_caps){0};
    lab_waiting = false;
}

struct lab_table {
    int code;
    char *message;
    struct ch_table table;
};

static void lab_loaded(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct lab_table *ret = arg;
    ret->code = code;
    ret->message = mem_strdup(code ? error_message(error) : "");
    ret->table = *table;
    *table = (struct ch_table){0};
    lab_waiting = false;
}

static struct lab_table lab_load(const char *database, const char *table)
{
    struct lab_table ret = {0};
    lab_waiting = true;
    ch_table_load(lab_client, &lab_caps, database, table, LAB_TIMEOUT_MS, lab_loaded, &ret);
    lab_wait();
    return ret;
}

static struct ch_table lab_load_fine(const char *database, const char *table)
{
    struct lab_table loaded = lab_load(database, table);
    ck_assert_msg(loaded.code == 0, "%s.%s: %s", database, table, loaded.message);
    free(loaded.message);
    return loaded.table;
}

/* Newer than 18.16: what only those have is tried there. */
static bool lab_is_new(void)
{
    return lab_caps.has_data_paths;
}

static bool lab_has(const char *sql)
{
    struct lab_answer answer = lab_run(sql, NULL, 0);
    bool has = answer.code == 0 && strcmp(answer.body, "0\n") != 0;
    free(answer.body);
    free(answer.message);
    return has;
}

static void lab_setup(void)
{
    struct ch_client_config config = {.url = getenv("CHXA_TEST_CLICKHOUSE"),
                                      .connect_timeout_ms = 5000,
                                      .connections_max = 16,
                                      .queue_max = 1000,
                                      .answer_bytes_max = 16u << 20,
                                      .upload_buffer_bytes = 256u << 10};
    struct error error = {0};
    ck_assert_int_eq(uv_loop_init(&lab_loop), 0);
    ck_assert_msg(ch_client_new(&lab_loop, &config, &lab_client, &error) == 0, "%s",
                  error_message(&error));
    lab_waiting = true;
    ch_caps_probe(lab_client, LAB_TIMEOUT_MS, lab_probed, NULL);
    lab_wait();
    lab_sql("DROP DATABASE IF EXISTS " LAB_DATABASE);
    lab_sql("CREATE DATABASE " LAB_DATABASE);
}

static void lab_client_closed(void *arg)
{
    (void)arg;
    lab_waiting = false;
}

static void lab_teardown(void)
{
    lab_sql("DROP DATABASE IF EXISTS " LAB_DATABASE);
    lab_waiting = true;
    ch_client_close(lab_client, lab_client_closed, NULL);
    lab_wait();
    ch_caps_clear(&lab_caps);
    while (lab_n_kept)
        free(lab_kept[--lab_n_kept]);
    free(lab_kept);
    while (uv_run(&lab_loop, UV_RUN_NOWAIT))
        continue;
    ck_assert_int_eq(uv_loop_close(&lab_loop), 0);
}

/* Skips the program when there is no server. */
static void lab_require(void)
{
    if (getenv("CHXA_TEST_CLICKHOUSE"))
        return;
    puts("skipped: CHXA_TEST_CLICKHOUSE names no server");
    exit(77);
}

#endif
