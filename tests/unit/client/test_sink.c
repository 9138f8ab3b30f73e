/* SPDX-License-Identifier: Apache-2.0
 *
 * The sink against a scripted server: out of memory at every allocation in turn, and what is repeated after a lost answer.
 * What the calls do to a real node is in tests/e2e/test_sink_calls.py.
 */
#include "lib/suite.h"
#include "unit/client/fake.h"
#include "unit/client/scarce.h"

static struct chxa_error error;
static struct fake *fake;
static struct chxa_client *client;

/* Fits every request that a sink makes but commit. */
static const struct fake_step yes = {200,
                                     "{\"state\":\"Initialized\",\"sink\":\"s\",\"epoch\":4,"
                                     "\"checkpoint\":null,\"open\":[],\"more\":false,"
                                     "\"complete\":true,\"transactions\":[],\"seq\":1,\"rows\":1}",
                                     NULL, FAKE_ANSWERS, 0};
static const struct fake_step lost = {200, "{}", NULL, FAKE_CLOSES, 0};

static void connect_to(const struct fake_step *steps, size_t n)
{
    struct chxa_client_options options;
    scarce_setup();
    fake = fake_start_n(steps, n);
    const char *urls[] = {fake->url};
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 1;
    options.deadline_ms = 2000;
    ck_assert_int_eq(chxa_client_open(&options, &client, &error), 0);
}

static void disconnect(void)
{
    chxa_client_close(client);
    fake_stop(fake);
}

static int open_sink(const void *state, size_t state_bytes, struct chxa_sink **ret_sink)
{
    struct chxa_sink_options options;
    chxa_sink_options_init(&options);
    options.name = "s";
    options.stream.query = "INSERT INTO t FORMAT TSV";
    return chxa_sink_open(client, &options, state, state_bytes, ret_sink, &error);
}

/* Fails cleanly, or not at all: then gives the state. */
static int write_and_snapshot(struct chxa_sink *sink, void **ret_state, size_t *ret_bytes)
{
    int code = chxa_sink_write(sink, "1\n", 2, 1, &error);
    if (code == 0)
        code = chxa_sink_snapshot(sink, 1, "[1]", ret_state, ret_bytes, &error);
    if (code == 0)
        return 0;
    /* Memory is there again: the snapshot goes on, or the sink has said that it cannot. */
    atomic_store(&scarce_left, -1);
    void *again;
    size_t again_bytes;
    int second = chxa_sink_snapshot(sink, 1, "[1]", &again, &again_bytes, NULL);
    ck_assert_msg(second == 0 || second == CHXA_ERR_FAILED_BEFORE, "%s", chxa_error_name(second));
    if (second == 0)
        chxa_free(again);
    return code;
}

static int whole_life(void)
{
    struct chxa_sink *sink = NULL;
    void *state = NULL;
    size_t state_bytes = 0;
    int code = open_sink(NULL, 0, &sink);
    ck_assert((code == 0) == (sink != NULL));
    if (code)
        return code;
    ck_assert_uint_eq(chxa_sink_epoch(sink), 5);
    code = write_and_snapshot(sink, &state, &state_bytes);
    ck_assert((code == 0) == (state != NULL));
    if (code == 0)
        ck_assert_uint_eq(chxa_sink_pending(sink), 1);
    int closed = chxa_sink_close(sink, NULL);
    sink = NULL;
    if (code == 0)
        code = closed;
    if (code == 0)
        code = open_sink(state, state_bytes, &sink);
    chxa_free(state);
    if (code == 0) {
        ck_assert_uint_eq(chxa_sink_pending(sink), 0);
        code = chxa_sink_close(sink, &error);
    }
    return code;
}

START_TEST(without_memory)
{
    connect_to(&yes, 1);
    ck_assert_int_gt(scarce_fail_in_turn(whole_life, &error), 20);
    disconnect();
}
END_TEST

/* How many requests began so. */
static size_t count(const char *begin)
{
    size_t n = 0;
    for (size_t i = 0; i < fake->n; i++)
        n += strncmp(fake->seen[i].head, begin, strlen(begin)) == 0;
    return n;
}

/*
 * The answer to prepare is lost until the deadline: the snapshot may be repeated, writes wait for it, and the transaction that
 * may be prepared is not left behind by close.
 */
START_TEST(prepare_is_lost)
{
    struct fake_step steps[128];
    size_t n = 0;
    void *state;
    size_t state_bytes;
    struct chxa_sink *sink;
    /* look, recover, look, begin, twins, look; the write: then nothing is heard any more. */
    for (; n < 7; n++)
        steps[n] = yes;
    steps[n++] = lost;
    connect_to(steps, n);
    ck_assert_int_eq(open_sink(NULL, 0, &sink), 0);
    ck_assert_int_eq(chxa_sink_write(sink, "1\n", 2, 1, &error), 0);
    int code = chxa_sink_snapshot(sink, 1, NULL, &state, &state_bytes, &error);
    ck_assert_int_eq(code, CHXA_ERR_LOST);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_UNKNOWN);
    ck_assert_uint_eq(chxa_sink_pending(sink), 0);
    ck_assert_int_eq(chxa_sink_write(sink, "2\n", 2, 1, &error), CHXA_ERR_MISUSE);
    ck_assert_int_eq(chxa_sink_snapshot(sink, 1, NULL, &state, &state_bytes, &error),
                     CHXA_ERR_LOST);
    ck_assert_int_ne(chxa_sink_close(sink, &error), 0);
    ck_assert_uint_gt(count("POST /v1/transactions/s:5:1:"), 3);
    ck_assert_uint_eq(count("PUT /v1/transactions/s:5:1:"), 1);
    ck_assert_uint_eq(count("PUT /v1/transactions/s:5:2:"), 0);
    disconnect();
}
END_TEST

START_TEST(nothing_is_half_opened)
{
    static const struct fake_step fenced = {409,
                                            "{\"error\":{\"code\":\"FENCED\",\"message\":\"newer\","
                                            "\"retryable\":false,\"outcome\":\"known\"}}",
                                            NULL, FAKE_ANSWERS, 0};
    struct chxa_sink *sink = NULL;
    /* Somebody raises the epoch each time between our look and our recover. */
    const struct fake_step steps[] = {yes,    fenced, yes,    fenced, yes,
                                      fenced, yes,    fenced, yes,    fenced};
    connect_to(steps, 10);
    ck_assert_int_eq(open_sink(NULL, 0, &sink), CHXA_ERR_FENCED);
    ck_assert_ptr_null(sink);
    ck_assert_uint_eq(count("PUT "), 0);
    ck_assert_int_eq(open_sink("x", 0, &sink), CHXA_ERR_STATE_REFUSED);
    ck_assert_int_eq(open_sink("x", 1, &sink), CHXA_ERR_STATE_REFUSED);
    ck_assert_int_eq(chxa_sink_close(NULL, &error), 0);
    disconnect();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sink");
    TCase *t = tcase_create("sink");
    tcase_set_timeout(t, 100);
    tcase_add_test(t, without_memory);
    tcase_add_test(t, prepare_is_lost);
    tcase_add_test(t, nothing_is_half_opened);
    suite_add_tcase(s, t);
    return suite_run(s);
}
