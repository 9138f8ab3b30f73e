/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests that are passed through, against a fake server in the same loop: which headers go on, in both directions, and
 * what becomes of a body when the answer comes before its end. Real servers and clients are in tests/e2e.
 */
#include "ch/ch_http_pass.h"
#include "fake_clickhouse.h"
#include "lib/suite.h"

struct result {
    int heads, dones, code, status;
    struct buf fields; /* "name: value\n" of the head */
    struct buf body;
    int64_t body_bytes;
    int drains;
};

static uv_loop_t loop;
static struct fake fake;
static struct ch_passer *passer;
static struct result result;
static bool closed;

static void on_head(void *arg, int status, const struct ch_pass_field *fields, size_t n_fields,
                    int64_t body_bytes)
{
    (void)arg;
    result.heads++;
    result.status = status;
    result.body_bytes = body_bytes;
    for (size_t i = 0; i < n_fields; i++)
        buf_printf(&result.fields, "%s: %s\n", fields[i].name, fields[i].value);
}

static bool on_data(void *arg, const void *data, size_t len)
{
    (void)arg;
    buf_append(&result.body, data, len);
    return true;
}

static void on_drain(void *arg)
{
    (void)arg;
    result.drains++;
}

static void on_done(void *arg, int code, const struct error *error)
{
    (void)arg, (void)error;
    result.dones++;
    result.code = code;
}

static const struct ch_pass_handler handler = {on_head, on_data, on_drain, on_done};

static void start_with(const struct fake_step *steps)
{
    char url[64];
    struct error error = {0};
    uv_loop_init(&loop);
    fake = (struct fake){.steps = steps, .n_steps = 1};
    fake_start(&fake, &loop);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", fake.port);
    const struct ch_passer_config config = {
        .url = url, .connect_timeout_ms = 2000, .requests_max = 4, .buffer_bytes = 65536};
    ck_assert_int_eq(ch_passer_new(&loop, &config, &passer, &error), 0);
    result = (struct result){0};
    closed = false;
}

#define START(...)                                                                                 \
    static const struct fake_step step_ = {__VA_ARGS__};                                           \
    start_with(&step_)

static void on_closed(void *arg)
{
    (void)arg;
    closed = true;
}

static void finish(void)
{
    ch_passer_close(passer, on_closed, NULL);
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
    fake_stop(&fake);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(result.dones, 1);
    buf_clear(&fake.received);
    buf_clear(&result.fields);
    buf_clear(&result.body);
}

static void run_until_done(void)
{
    while (result.dones == 0)
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || result.dones);
}

static void run_until_received(const char *text)
{
    while (strstr(buf_str(&fake.received), text) == NULL)
        ck_assert(uv_run(&loop, UV_RUN_ONCE));
}

static void fake_say(const char *text)
{
    struct fake_connection *connection = TAILQ_FIRST(&fake.connections);
    uv_buf_t out = uv_buf_init((char *)(uintptr_t)text, (unsigned)strlen(text));
    ck_assert_int_eq(uv_try_write((uv_stream_t *)&connection->tcp, &out, 1), (int)out.len);
}

/* ---- headers ---- */

START_TEST(headers_that_connection_names_stop_here)
{
    static const struct ch_pass_field fields[] = {
        {"X-Hop", "secret-1"},
        {"X-Far", "goes on"},
        {"User-Agent", "secret-2"},
        {"Connection", "keep-alive, x-hop"},
        {"Connection", "USER-AGENT,,\tx-later ,"},
        {"X-Later", "secret-3"},
        {"X-Hop-Not", "goes on too"},
    };
    START("HTTP/1.1 200 OK\r\nX-Before: secret\r\nX-Far: back\r\nConnection: X-Before\r\n"
          "Connection: keep-alive, x-AFTER\r\nX-After: secret\r\nContent-Length: 2\r\n\r\nok");
    struct ch_pass_request request = {
        .method = "GET", .target = "/", .fields = fields, .n_fields = 7};
    ch_pass_start(passer, &request, &handler, NULL);
    run_until_done();
    ck_assert_int_eq(result.code, 0);
    ck_assert_ptr_nonnull(strstr(fake.received.data, "\r\nX-Far: goes on\r\n"));
    ck_assert_ptr_nonnull(strstr(fake.received.data, "\r\nX-Hop-Not: goes on too\r\n"));
    ck_assert_ptr_null(strstr(fake.received.data, "secret"));
    ck_assert_ptr_null(strcasestr(fake.received.data, "user-agent"));
    ck_assert_str_eq(buf_str(&result.fields), "X-Far: back\n");
    ck_assert_str_eq(buf_str(&result.body), "ok");
    finish();
}
END_TEST

/* ---- a body behind the beginning of its answer ---- */

static struct ch_pass *pass_upload(int64_t body_bytes)
{
    struct ch_pass_request request = {
        .method = "POST", .target = "/?query=SELECT", .body_bytes = body_bytes};
    return ch_pass_start(passer, &request, &handler, NULL);
}

START_TEST(the_body_goes_on_behind_the_answers_beginning)
{
    START("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", .after = 80);
    struct ch_pass *pass = pass_upload(_i ? -1 : 15);
    ch_pass_write(pass, "first", 5);
    while (result.heads == 0)
        ck_assert(uv_run(&loop, UV_RUN_ONCE));
    ck_assert_ptr_nonnull(strstr(fake.received.data, "first"));
    ch_pass_write(pass, "middl", 5);
    run_until_received("middl");
    ck_assert_int_eq(result.dones, 0);
    fake_say("2\r\ncd\r\n");
    ch_pass_write(pass, "last.", 5);
    ch_pass_end(pass);
    run_until_received("last.");
    fake_say("0\r\n\r\n");
    run_until_done();
    ck_assert_int_eq(result.code, 0);
    ck_assert_str_eq(buf_str(&result.body), "abcd");
    finish();
}
END_TEST

/* An answer that is whole is whole, though nobody reads the rest of the body. */
START_TEST(an_answer_that_ends_before_the_body)
{
    START("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", .after = 80, .end = CLOSE);
    struct ch_pass *pass = pass_upload(_i ? -1 : 1 << 30);
    char piece[16384] = {0};
    while (result.dones == 0) {
        if (ch_pass_write(pass, piece, sizeof piece))
            ch_pass_write(pass, piece, sizeof piece);
        ck_assert(uv_run(&loop, UV_RUN_ONCE) || result.dones);
    }
    ck_assert_int_eq(result.code, 0);
    ck_assert_int_eq(result.status, 200);
    ck_assert_str_eq(buf_str(&result.body), "ok");
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ch_pass");
    TCase *tcase = tcase_create("pass");
    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, headers_that_connection_names_stop_here);
    tcase_add_loop_test(tcase, the_body_goes_on_behind_the_answers_beginning, 0, 2);
    tcase_add_loop_test(tcase, an_answer_that_ends_before_the_body, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
