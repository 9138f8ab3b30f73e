/* SPDX-License-Identifier: Apache-2.0
 *
 * Out of memory at every allocation in turn: each call fails cleanly with NO_MEMORY, gives nothing out, leaks nothing, and
 * works when it is made again. The library's own allocations and jansson's count; libcurl's own are left to it.
 */
#include "lib/suite.h"
#include "unit/client/fake.h"
#include "unit/client/scarce.h"

#include <curl/curl.h>

static struct chxa_error error;
static struct fake *fake;
static struct chxa_client *client;
static void *json_allocates(size_t bytes)
{
    return scarce_allow() ? malloc(bytes) : NULL;
}

static void setup(void)
{
    scarce_setup();
    json_set_alloc_funcs(json_allocates, free);
}

static void client_options(struct chxa_client_options *options, const char **urls)
{
    chxa_client_options_init(options);
    options->urls = urls;
    options->n_urls = 1;
    options->deadline_ms = 3000;
    options->user = "u";
    options->password = "p";
    options->user_agent = "test/1";
}

static void connect_to(const struct fake_step *steps, size_t n)
{
    struct chxa_client_options options;
    fake = fake_start_n(steps, n);
    const char *urls[] = {fake->url};
    client_options(&options, urls);
    ck_assert_int_eq(chxa_client_open(&options, &client, &error), 0);
}

/* And once more, with all the memory there is. */
static void fail_in_turn(int (*call)(void))
{
    scarce_fail_in_turn(call, &error);
    ck_assert_int_eq(call(), 0);
}

static void disconnect(void)
{
    chxa_client_close(client);
    fake_stop(fake);
}

static int call_open(void)
{
    struct chxa_client_options options;
    struct chxa_client *made = NULL;
    const char *urls[] = {"http://127.0.0.1:1"};
    client_options(&options, urls);
    int code = chxa_client_open(&options, &made, &error);
    ck_assert((code == 0) == (made != NULL));
    chxa_client_close(made);
    return code;
}

START_TEST(open_without_memory)
{
    fail_in_turn(call_open);
}
END_TEST

static int call_start(void)
{
    struct chxa_start_options options;
    struct chxa_txn *txn = NULL;
    chxa_start_options_init(&options);
    options.meta = "{\"offset\":1}";
    options.sink = "s";
    int code = chxa_start(client, NULL, &options, &txn, &error);
    ck_assert((code == 0) == (txn != NULL));
    if (code == 0)
        code = chxa_write(txn, "INSERT", "1\n", 2, NULL, false, NULL, &error);
    chxa_txn_free(txn);
    return code;
}

START_TEST(start_and_write_without_memory)
{
    static const struct fake_step steps[] = {
        {201, "{\"state\":\"Initialized\",\"seq\":1}", NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_start);
    disconnect();
}
END_TEST

/* ---- libcurl's own allocations, too ---- */

static void *curl_allocates(size_t bytes)
{
    return scarce_allow() ? malloc(bytes) : NULL;
}

static void *curl_reallocates(void *memory, size_t bytes)
{
    return scarce_allow() ? realloc(memory, bytes) : NULL;
}

static void *curl_clears(size_t n, size_t bytes)
{
    return scarce_allow() ? calloc(n, bytes) : NULL;
}

static char *curl_copies(const char *text)
{
    return scarce_allow() ? strdup(text) : NULL;
}

/* Curl may call it a connection that failed; that is repeated, and goes well. */
START_TEST(requests_with_a_starved_curl)
{
    static const struct fake_step steps[] = {
        {200, "{\"state\":\"Initialized\",\"seq\":1}", NULL, FAKE_ANSWERS, 0}};
    ck_assert_int_eq(curl_global_init_mem(CURL_GLOBAL_DEFAULT, curl_allocates, free,
                                          curl_reallocates, curl_copies, curl_clears),
                     CURLE_OK);
    connect_to(steps, 1);
    fail_in_turn(call_start);
    disconnect();
}
END_TEST

static int call_join(void)
{
    struct chxa_txn *txn = NULL;
    int code = chxa_join(client, "x", &txn, &error);
    chxa_txn_free(txn);
    return code;
}

static int call_get(void)
{
    struct chxa_txn_record *record = NULL;
    int code = chxa_get(client, "x", &record, &error);
    ck_assert((code == 0) == (record != NULL));
    chxa_record_free(record);
    return code;
}

START_TEST(get_and_join_without_memory)
{
    static const struct fake_step steps[] = {
        {200,
         "{\"xid\":\"x\",\"state\":\"Initialized\",\"owner\":\"n\",\"owner_url\":\"http://"
         "127.0.0.1:1\",\"sink\":\"s\",\"meta\":{\"a\":[1,2]},\"reason\":\"r\",\"writes\":[{"
         "\"rows\":1}]}",
         NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_get);
    fail_in_turn(call_join);
    disconnect();
}
END_TEST

static int call_prepare(void)
{
    return chxa_prepare(client, "x", fake->url, "[1]", 0, &error);
}

static int call_commit(void)
{
    return chxa_commit(client, "x", NULL, false, 0, &error);
}

static int call_rollback(void)
{
    return chxa_rollback(client, "x", NULL, "because", 0, &error);
}

static int call_forget(void)
{
    return chxa_forget(client, "x", &error);
}

static int call_request(void)
{
    char *body = NULL;
    size_t bytes = 0;
    int code = chxa_request(client, NULL, "POST", "/v1/x", "{}", &body, &bytes, &error);
    chxa_free(body);
    return code;
}

START_TEST(decisions_without_memory)
{
    static const struct fake_step steps[] = {{200, TXN("Committed"), NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_prepare);
    fail_in_turn(call_commit);
    fail_in_turn(call_rollback);
    fail_in_turn(call_forget);
    fail_in_turn(call_request);
    disconnect();
}
END_TEST

static int call_recover(void)
{
    struct chxa_txn_record *records = NULL;
    struct chxa_filter filter;
    size_t n = 0;
    chxa_filter_init(&filter);
    filter.sink = "s";
    int code = chxa_recover(client, &filter, &records, &n, &error);
    chxa_records_free(records, n);
    return code;
}

START_TEST(lists_without_memory)
{
    static const struct fake_step steps[] = {
        {200,
         "{\"transactions\":[{\"xid\":\"b\",\"owner\":\"n\",\"state\":\"Prepared\"},{\"xid\":\"a\","
         "\"owner\":\"n\",\"state\":\"Prepared\"}],\"next\":null}",
         NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_recover);
    disconnect();
}
END_TEST

static int call_last_committed(void)
{
    struct chxa_checkpoint checkpoint = {0};
    int code = chxa_sink_last_committed(client, "s", &checkpoint, &error);
    chxa_free(checkpoint.meta);
    return code;
}

static int call_sink_recover(void)
{
    const char *xids[] = {"x"};
    return chxa_sink_recover(client, "s", 2, xids, 1, 0, &error);
}

START_TEST(sinks_without_memory)
{
    static const struct fake_step steps[] = {
        {200,
         "{\"sink\":\"s\",\"epoch\":1,\"checkpoint\":{\"xid\":\"x\",\"meta\":[1]},\"complete\":"
         "true,\"transactions\":[]}",
         NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_last_committed);
    fail_in_turn(call_sink_recover);
    disconnect();
}
END_TEST

static int call_stream(void)
{
    static char batch[300000];
    struct chxa_stream_options options;
    struct chxa_txn *txn = NULL;
    struct chxa_stream *stream = NULL;
    chxa_stream_options_init(&options);
    options.query = "INSERT INTO t FORMAT TSV";
    int code = chxa_start(client, "x", NULL, &txn, &error);
    if (code == 0)
        code = chxa_stream_open(txn, &options, &stream, &error);
    for (int i = 0; i < 30 && code == 0; i++)
        code = chxa_stream_append(stream, batch, sizeof batch, 1, &error);
    if (code)
        chxa_stream_abort(stream);
    else
        code = chxa_stream_close(stream, &error);
    chxa_txn_free(txn);
    return code;
}

START_TEST(streams_without_memory)
{
    static const struct fake_step steps[] = {
        {201, "{\"state\":\"Initialized\",\"seq\":1}", NULL, FAKE_ANSWERS, 0}};
    connect_to(steps, 1);
    fail_in_turn(call_stream);
    disconnect();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_memory");
    TCase *tcase = tcase_create("memory");
    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, open_without_memory);
    tcase_add_test(tcase, start_and_write_without_memory);
    tcase_add_test(tcase, requests_with_a_starved_curl);
    tcase_add_test(tcase, get_and_join_without_memory);
    tcase_add_test(tcase, decisions_without_memory);
    tcase_add_test(tcase, lists_without_memory);
    tcase_add_test(tcase, sinks_without_memory);
    tcase_add_test(tcase, streams_without_memory);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
