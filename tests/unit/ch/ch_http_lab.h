/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of requests to ClickHouse share: one client of one fake server on one loop, and what each request got. One
 * translation unit includes this.
 */
#ifndef CHXA_TESTS_UNIT_CH_CH_HTTP_LAB_H
#define CHXA_TESTS_UNIT_CH_CH_HTTP_LAB_H

#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http.h"
#include "fake_clickhouse.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

#define EXCEPTION_26 "Code: 60. DB::Exception: Table default.t does not exist. (UNKNOWN_TABLE)"

struct result {
    int calls;
    int code;
    int http_status;
    int ch_code;
    char *body;
    char *message;
    char *summary;
    char *query_id;
    uint64_t sent_bytes;
    int drains;
};

static uv_loop_t loop;
static struct fake fake;
static struct ch_client *client;
static struct result results[200];
static bool client_closed;

#define OK_ANSWER(text, n)                                                                         \
    "HTTP/1.1 200 OK\r\nContent-Length: " #n "\r\nX-ClickHouse-Summary: "                          \
    "{\"written_rows\":\"3\"}\r\nX-ClickHouse-Query-Id: abc\r\n\r\n" text
#define ERROR_TEXT                                                                                 \
    "Code: 62, e.displayText() = DB::Exception: Syntax error, e.what() = DB::Exception"
#define ERROR_ANSWER                                                                               \
    "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\nTransfer-Encoding: "               \
    "chunked\r\n\r\n51\r\n" ERROR_TEXT "\r\n0\r\n\r\n"

static inline void on_answer(void *arg, const struct ch_answer *answer)
{
    struct result *result = arg;
    result->calls++;
    result->code = answer->code;
    result->http_status = answer->http_status;
    result->ch_code = answer->ch_code;
    result->body = mem_strdup(answer->body);
    result->message = answer->code ? mem_strdup(error_message(answer->error)) : NULL;
    result->summary = mem_strdup(answer->summary);
    result->query_id = mem_strdup(answer->query_id);
    result->sent_bytes = answer->sent_bytes;
    ck_assert_int_eq(answer->code, answer->error->code);
}

static inline struct ch_client_config config_for(const char *url)
{
    return (struct ch_client_config){
        .url = url,
        .connect_timeout_ms = 2000,
        .connections_max = 4,
        .queue_max = 100,
        .answer_bytes_max = 1000,
        .upload_buffer_bytes = 65536,
    };
}

static struct budget budget;

static inline void start_with(const struct fake_step *steps, size_t n_steps, size_t connections_max,
                              size_t queue_max)
{
    budget = (struct budget){.bytes_max = SIZE_MAX};
    char url[64];
    struct error error = {0};
    uv_loop_init(&loop);
    fake = (struct fake){.steps = steps, .n_steps = n_steps};
    fake_start(&fake, &loop);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", fake.port);
    struct ch_client_config config = config_for(url);
    config.user = "us er";
    config.password = "pass";
    config.connections_max = connections_max;
    config.queue_max = queue_max;
    config.budget = &budget;
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    memset(results, 0, sizeof results);
    client_closed = false;
}

#define START(...)                                                                                 \
    static const struct fake_step steps_[] = {__VA_ARGS__};                                        \
    start_with(steps_, sizeof steps_ / sizeof *steps_, 4, 100)

static inline struct ch_request *query(int i, const char *sql, uint64_t timeout_ms)
{
    struct ch_statement statement = {.sql = sql, .query_id = "id-1", .timeout_ms = timeout_ms};
    return ch_query(client, &statement, on_answer, &results[i]);
}

static inline void on_drain(void *arg)
{
    struct result *result = arg;
    result->drains++;
}

static inline struct ch_request *upload(int i)
{
    struct ch_statement statement = {.sql = "INSERT INTO t FORMAT TSV", .timeout_ms = 3000};
    return ch_upload(client, &statement, NULL, on_drain, on_answer, &results[i]);
}

static inline void run_until(int i)
{
    while (results[i].calls == 0)
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || results[i].calls);
}

static inline void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static inline void run_ms(uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_tick, ms, 0);
    while (uv_is_active((uv_handle_t *)&timer))
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static inline void on_closed(void *arg)
{
    (void)arg;
    client_closed = true;
}

/* Ends everything; every request must have had exactly one callback. */
static inline void finish(int n_requests)
{
    ch_client_close(client, on_closed, NULL);
    ck_assert(!client_closed);
    while (!client_closed)
        uv_run(&loop, UV_RUN_ONCE);
    fake_stop(&fake);
    ck_assert_uint_eq(budget.bytes, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    buf_clear(&fake.received);
    for (int i = 0; i < n_requests; i++) {
        ck_assert_int_eq(results[i].calls, 1);
        free(results[i].body);
        free(results[i].message);
        free(results[i].summary);
        free(results[i].query_id);
    }
}

static inline size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

#endif
