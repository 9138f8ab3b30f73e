/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch pool against a ClickHouse that loses answers, refuses, hangs or is not there: a small
 * HTTP server on the same loop, which does what each test tells it to.
 */
#include "base/mem.h"
#include "ch/scratch.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_MS 400u

/* ---- the fake ---- */

enum action { ANSWER, REFUSE, CUT, HANG };

/* What to do with statements that hold `text`; the last rule that fits counts. */
struct rule {
    const char *text;
    enum action action;
    int ch_code; /* REFUSE */
    const char *body;
};

#define RULES_MAX 16u
static struct rule rules[RULES_MAX];
static size_t n_rules;

struct connection {
    uv_tcp_t tcp; /* first */
    struct buf in;
};

static uv_loop_t loop;
static uv_tcp_t listener;
static char folder[64];
static char *table_json;
static struct buf seen; /* every statement, a line each */
static struct ch_client *client;
static struct scratch_pool *pool;
static struct ch_table target;
static struct ch_caps caps;

static void rule(const char *text, enum action action, int ch_code, const char *body)
{
    ck_assert_uint_lt(n_rules, RULES_MAX);
    rules[n_rules++] = (struct rule){text, action, ch_code, body};
}

static unsigned times_seen(const char *text)
{
    unsigned n = 0;
    for (const char *at = buf_str(&seen); (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

static void connection_closed(uv_handle_t *handle)
{
    struct connection *connection = (struct connection *)(void *)handle;
    buf_clear(&connection->in);
    free(connection);
}

static void connection_close(struct connection *connection)
{
    if (!uv_is_closing((uv_handle_t *)&connection->tcp))
        uv_close((uv_handle_t *)&connection->tcp, connection_closed);
}

static void written(uv_write_t *write, int status)
{
    (void)status;
    free(write->data);
    free(write);
}

static void reply(struct connection *connection, int ch_code, const char *body)
{
    char *text;
    if (ch_code)
        text =
            mem_printf("HTTP/1.1 500 Internal Server Error\r\nX-ClickHouse-Exception-Code: %d\r\n"
                       "Content-Length: %zu\r\n\r\nCode: %d. DB::Exception: %s",
                       ch_code, strlen(body) + strlen("Code: 00. DB::Exception: "), ch_code, body);
    else
        text = mem_printf("HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    uv_write_t *write = mem_alloc(sizeof *write);
    write->data = text;
    uv_buf_t data = uv_buf_init(text, (unsigned)strlen(text));
    uv_write(write, (uv_stream_t *)&connection->tcp, &data, 1, written);
}

static void serve(struct connection *connection, const char *statement)
{
    struct rule act = {"", ANSWER, 0, ""};
    if (strstr(statement, "FROM system.tables WHERE database = 'd'") ||
        strstr(statement, "FROM system.tables WHERE database = 'chxa' AND name = "))
        act.body = table_json;
    if (strstr(statement, "system.processes"))
        act.body = "0\n";
    for (size_t i = 0; i < n_rules; i++)
        if (strstr(statement, rules[i].text))
            act = rules[i];
    buf_printf(&seen, "%s\n", statement);
    if (act.action == ANSWER || act.action == REFUSE)
        reply(connection, act.action == REFUSE ? act.ch_code : 0, act.body);
    else if (act.action == CUT)
        connection_close(connection);
}

/* Serves each whole request in the buffer. */
static void requests_take(struct connection *connection)
{
    for (;;) {
        char *text = connection->in.data;
        char *head_end = text ? strstr(text, "\r\n\r\n") : NULL;
        if (head_end == NULL || uv_is_closing((uv_handle_t *)&connection->tcp))
            return;
        char *length = strcasestr(text, "\r\nContent-Length:");
        ck_assert_ptr_nonnull(length);
        size_t body = strtoul(length + strlen("\r\nContent-Length:"), NULL, 10);
        size_t head = (size_t)(head_end - text) + 4;
        if (connection->in.len < head + body)
            return;
        char *statement = mem_strndup(text + head, body);
        buf_consume(&connection->in, head + body);
        serve(connection, statement);
        free(statement);
    }
}

static void allocated(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    static char space[65536];
    (void)handle;
    (void)size;
    *buf = uv_buf_init(space, sizeof space);
}

static void arrived(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct connection *connection = (struct connection *)(void *)stream;
    if (got < 0) {
        connection_close(connection);
        return;
    }
    buf_append(&connection->in, buf->base, (size_t)got);
    requests_take(connection);
}

static void connected(uv_stream_t *server, int status)
{
    ck_assert_int_eq(status, 0);
    struct connection *connection = mem_alloc(sizeof *connection);
    uv_tcp_init(&loop, &connection->tcp);
    ck_assert_int_eq(uv_accept(server, (uv_stream_t *)&connection->tcp), 0);
    uv_read_start((uv_stream_t *)&connection->tcp, allocated, arrived);
}

/* ---- waiting ---- */

static void run_until(const bool *done)
{
    while (!*done)
        uv_run(&loop, UV_RUN_ONCE);
}

static void time_over(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void timer_gone(uv_handle_t *handle)
{
    free(handle);
}

static void run_ms(uint64_t ms)
{
    bool done = false;
    uv_timer_t *timer = mem_alloc(sizeof *timer);
    uv_timer_init(&loop, timer);
    timer->data = &done;
    uv_timer_start(timer, time_over, ms, 0);
    run_until(&done);
    uv_close((uv_handle_t *)timer, timer_gone);
}

struct result {
    bool done;
    int code;
    char message[256];
    struct scratch *scratch;
};

static void got_scratch(void *arg, int code, struct error *error, struct scratch *scratch)
{
    struct result *result = arg;
    ck_assert(!result->done);
    result->done = true;
    result->code = code;
    result->scratch = scratch;
    if (code)
        snprintf(result->message, sizeof result->message, "%s", error_message(error));
}

static void got_done(void *arg, int code, struct error *error)
{
    got_scratch(arg, code, error, NULL);
}

static struct result acquire(void)
{
    struct result result = {0};
    scratch_acquire(pool, &target, got_scratch, &result);
    ck_assert(!result.done);
    run_until(&result.done);
    return result;
}

static struct result start(void)
{
    struct result result = {0};
    scratch_pool_start(pool, &caps, got_done, &result);
    ck_assert(!result.done);
    run_until(&result.done);
    return result;
}

static void set_flag(void *arg)
{
    *(bool *)arg = true;
}

static struct scratch_stats stats(void)
{
    struct scratch_stats now;
    scratch_pool_stats(pool, &now);
    return now;
}

static void got_table(void *arg, int code, struct error *error, struct ch_table *table)
{
    ck_assert_msg(code == 0, "%s", error_message(error));
    target = *table;
    *table = (struct ch_table){0};
    *(bool *)arg = true;
}

/* ---- set up ---- */

static void setup(void)
{
    snprintf(folder, sizeof folder, "/tmp/chxa-scratch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    static const char *const below[] = {"data", "data/d", "data/d/t"};
    for (size_t i = 0; i < 3; i++) {
        char *path = mem_printf("%s/%s", folder, below[i]);
        ck_assert_int_eq(mkdir(path, 0755), 0);
        free(path);
    }
    table_json =
        mem_printf("{\"data\": [[\"table\", [\"MergeTree\", \"MergeTree ORDER BY k\", \"\", "
                   "\"\", \"k\", \"k\", \"\", \"CREATE\", \"\"]], [\"paths\", "
                   "[\"%s/data/d/t/\"]], [\"column\", [\"k\", \"UInt64\", \"\"]]]}",
                   folder);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&loop, &listener);
    ck_assert_int_eq(uv_tcp_bind(&listener, (struct sockaddr *)&address, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&listener, 16, connected), 0);
    int len = sizeof address;
    uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &len);
    char *url = mem_printf("http://127.0.0.1:%d", ntohs(address.sin_port));
    struct ch_client_config config = {.url = url,
                                      .connect_timeout_ms = 1000,
                                      .connections_max = 8,
                                      .queue_max = 100,
                                      .answer_bytes_max = 1u << 20,
                                      .upload_buffer_bytes = 4096};
    struct error error = {0};
    ck_assert_int_eq(ch_client_new(&loop, &config, &client, &error), 0);
    free(url);
    caps.scratch_settings = mem_strdup("");
    struct scratch_config scratch = {.database = "chxa",
                                     .tables_max = 2,
                                     .idle_ms = 60000,
                                     .parts_max = 10,
                                     .timeout_ms = TIMEOUT_MS};
    ck_assert_int_eq(scratch_pool_new(&loop, client, &scratch, &pool), 0);
    bool loaded = false;
    ch_table_load(client, &caps, "d", "t", TIMEOUT_MS, got_table, &loaded);
    run_until(&loaded);
    buf_clear(&seen);
}

static void pool_shut(uint64_t deadline_ms)
{
    bool closed = false;
    scratch_pool_close(pool, deadline_ms, set_flag, &closed);
    pool = NULL;
    run_until(&closed);
}

static void walk_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, handle == (uv_handle_t *)&listener ? NULL : connection_closed);
}

static void teardown(void)
{
    if (pool)
        pool_shut(1000);
    bool closed = false;
    ch_client_close(client, set_flag, &closed);
    run_until(&closed);
    uv_walk(&loop, walk_close, NULL); /* the fake's connections */
    while (uv_run(&loop, UV_RUN_NOWAIT))
        continue;
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ch_table_clear(&target);
    ch_caps_clear(&caps);
    buf_clear(&seen);
    free(table_json);
    char *remove = mem_printf("%s/data/d/t", folder);
    for (size_t i = 0; i < 4; i++) {
        rmdir(remove);
        *strrchr(remove, '/') = '\0';
    }
    free(remove);
}

/* ---- tests ---- */

START_TEST(test_fine)
{
    ck_assert_int_eq(start().code, 0);
    struct result first = acquire();
    ck_assert_msg(first.code == 0, "%s", first.message);
    ck_assert_uint_eq(first.scratch->n_paths, 1);
    scratch_release(pool, first.scratch, NULL);
    run_ms(50);
    buf_clear(&seen);
    struct result second = acquire();
    ck_assert_ptr_eq(second.scratch, first.scratch);
    ck_assert_str_eq(buf_str(&seen), ""); /* an idle table costs no request */
    scratch_release(pool, second.scratch, NULL);
    pool_shut(1000);
    ck_assert_uint_eq(times_seen("DROP TABLE IF EXISTS"), 1);
}
END_TEST

START_TEST(test_create_lost)
{
    ck_assert_int_eq(start().code, 0);
    rule("CREATE TABLE", CUT, 0, "");
    struct result lost = acquire();
    ck_assert_int_eq(lost.code, CHXA_E_CLICKHOUSE_UNKNOWN);
    /* It may exist now or later: seen to be over, then dropped, and its name is not used again. */
    n_rules = 0;
    rule("system.processes", ANSWER, 0, "1\n");
    run_ms(700);
    ck_assert_uint_eq(stats().retired, 1);
    ck_assert_uint_ge(times_seen("system.processes WHERE query_id = 's_"), 1);
    ck_assert_uint_eq(times_seen("DROP TABLE"), 0);
    n_rules = 0;
    run_ms(1500);
    ck_assert_uint_eq(stats().retired, 0);
    ck_assert_uint_eq(times_seen("DROP TABLE IF EXISTS"), 1);
    struct result fine = acquire();
    ck_assert_int_eq(fine.code, 0);
    char *create = mem_printf("CREATE TABLE `chxa`.`%s`", fine.scratch->name);
    ck_assert_uint_eq(times_seen(create), 1);
    free(create);
    scratch_release(pool, fine.scratch, NULL);
}
END_TEST

START_TEST(test_create_hangs)
{
    ck_assert_int_eq(start().code, 0);
    rule("CREATE TABLE", HANG, 0, "");
    struct result result = {0};
    scratch_acquire(pool, &target, got_scratch, &result);
    run_until(&result.done);
    ck_assert(result.code == CHXA_E_BUSY || result.code == CHXA_E_CLICKHOUSE_UNKNOWN);
}
END_TEST

static const struct {
    int ch_code, code;
} refusals[] = {
    {60, CHXA_E_TARGET_NOT_FOUND},     {81, CHXA_E_TARGET_NOT_FOUND},
    {44, CHXA_E_TARGET_UNSUPPORTED},   {36, CHXA_E_TARGET_UNSUPPORTED},
    {241, CHXA_E_CLICKHOUSE_REJECTED}, {497, CHXA_E_CLICKHOUSE_REJECTED},
    {243, CHXA_E_CLICKHOUSE_REJECTED},
};

START_TEST(test_create_refused)
{
    ck_assert_int_eq(start().code, 0);
    rule("CREATE TABLE", REFUSE, refusals[_i].ch_code, "because of this");
    struct result refused = acquire();
    ck_assert_msg(refused.code == refusals[_i].code, "%d %s", refused.code, refused.message);
    n_rules = 0;
    run_ms(350);
    ck_assert_uint_eq(stats().retired, 0);
    struct result fine = acquire();
    ck_assert_int_eq(fine.code, 0);
    scratch_release(pool, fine.scratch, NULL);
}
END_TEST

START_TEST(test_load_fails)
{
    ck_assert_int_eq(start().code, 0);
    rule("system.columns", CUT, 0, "");
    ck_assert_int_eq(acquire().code, CHXA_E_CLICKHOUSE_UNKNOWN);
    n_rules = 0;
    rule("system.columns", ANSWER, 0, "{}");
    ck_assert_int_eq(acquire().code, CHXA_E_CLICKHOUSE_UNKNOWN);
    n_rules = 0;
    rule("name = 's_", ANSWER, 0, "{\"data\": []}"); /* dropped behind our back at once */
    ck_assert_int_eq(acquire().code, CHXA_E_TARGET_NOT_FOUND);
    n_rules = 0;
    run_ms(1000);
    ck_assert_uint_eq(stats().retired, 0);
    ck_assert_uint_eq(times_seen("DROP TABLE IF EXISTS"), 3);
}
END_TEST

START_TEST(test_drop_fails)
{
    ck_assert_int_eq(start().code, 0);
    struct result result = acquire();
    rule("DROP TABLE", REFUSE, 359, "too large");
    scratch_retire(pool, result.scratch, NULL);
    run_ms(1200);
    ck_assert_uint_eq(stats().retired, 1);
    unsigned tries = times_seen("DROP TABLE");
    ck_assert_uint_ge(tries, 2);
    ck_assert_uint_le(tries, 6); /* with growing pauses */
    rule("DROP TABLE", REFUSE, 60, "gone");
    run_ms(3000);
    ck_assert_uint_eq(stats().retired, 0);
}
END_TEST

START_TEST(test_start_fails)
{
    rule("CREATE DATABASE", REFUSE, 497, "not allowed");
    ck_assert_int_eq(start().code, CHXA_E_CLICKHOUSE_REJECTED);
    ck_assert_int_eq(acquire().code, CHXA_E_NOT_READY);
    n_rules = 0;
    rule("CREATE DATABASE", CUT, 0, "");
    ck_assert_int_eq(start().code, CHXA_E_CLICKHOUSE_UNKNOWN);
    n_rules = 0;
    rule("substring(name", ANSWER, 0, "s_1_1\ns_other\ns_2_2\ns_3_3\ns_`x_1\n");
    rule("`s_2_2`", REFUSE, 359, "too large");
    struct result twice[2] = {{0}, {0}};
    scratch_pool_start(pool, &caps, got_done, &twice[0]);
    scratch_pool_start(pool, &caps, got_done, &twice[1]);
    run_until(&twice[1].done);
    ck_assert(twice[0].done && twice[0].code == 0 && twice[1].code == 0);
    ck_assert_uint_eq(times_seen("DROP TABLE"), 6);
    ck_assert_uint_eq(times_seen("s_other"), 0);
    struct result fine = acquire();
    ck_assert_int_eq(fine.code, 0);
    scratch_release(pool, fine.scratch, NULL);
}
END_TEST

START_TEST(test_nobody_there)
{
    ck_assert_int_eq(start().code, 0);
    struct result lent = acquire();
    uv_close((uv_handle_t *)&listener, NULL);
    rule("", CUT, 0, "");
    struct result failed = acquire();
    ck_assert(failed.code == CHXA_E_CLICKHOUSE_UNAVAILABLE ||
              failed.code == CHXA_E_CLICKHOUSE_UNKNOWN);
    if (failed.code == CHXA_E_CLICKHOUSE_UNKNOWN) /* that table takes the room until it is gone */
        ck_assert_int_eq(acquire().code, CHXA_E_BUSY);
    /* What is there is still lent: its listing needs no ClickHouse. */
    scratch_release(pool, lent.scratch, NULL);
    run_ms(50);
    struct result again = acquire();
    ck_assert_int_eq(again.code, 0);
    scratch_retire(pool, again.scratch, "some-query");
    pool_shut(300); /* drops what it can: nothing */
}
END_TEST

START_TEST(test_close_in_the_middle)
{
    static const char *const hanging[] = {"CREATE TABLE", "system.columns",  "name = 's_",
                                          "DROP TABLE",   "CREATE DATABASE", "substring(name"};
    const char *text = hanging[_i];
    if (_i < 4)
        ck_assert_int_eq(start().code, 0);
    struct result result = {0};
    if (_i == 3) {
        result = acquire();
        scratch_release(pool, result.scratch, NULL);
        run_ms(20);
    }
    rule(text, HANG, 0, "");
    if (_i < 3)
        scratch_acquire(pool, &target, got_scratch, &result);
    else if (_i > 3)
        scratch_pool_start(pool, &caps, got_done, &result);
    run_ms(30);
    pool_shut(50);
    ck_assert(result.done);
    if (_i != 3)
        ck_assert_int_eq(result.code, CHXA_E_CANCELLED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scratch");
    TCase *pools = tcase_create("pool");
    tcase_set_timeout(pools, 30);
    tcase_add_checked_fixture(pools, setup, teardown);
    tcase_add_test(pools, test_fine);
    tcase_add_test(pools, test_create_lost);
    tcase_add_test(pools, test_create_hangs);
    tcase_add_loop_test(pools, test_create_refused, 0, sizeof refusals / sizeof refusals[0]);
    tcase_add_test(pools, test_load_fails);
    tcase_add_test(pools, test_drop_fails);
    tcase_add_test(pools, test_start_fails);
    tcase_add_test(pools, test_nobody_there);
    tcase_add_loop_test(pools, test_close_in_the_middle, 0, 6);
    suite_add_tcase(suite, pools);
    return suite_run(suite);
}
