/* SPDX-License-Identifier: Apache-2.0
 *
 * The streaming write against a scripted server: where a write is cut, what is sent again, what a failure does.
 */
#include "lib/suite.h"
#include "unit/client/fake.h"

#include <chxa/chxa.h>

#define BEGUN                                                                                      \
    {                                                                                              \
        201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0                                             \
    }
#define WRITTEN                                                                                    \
    {                                                                                              \
        200, "{\"seq\":1,\"rows\":1,\"parts\":1}", NULL, FAKE_ANSWERS, 0                           \
    }
#define QUERY "INSERT INTO t FORMAT TSV"

static struct chxa_error error;
static struct fake *fake;
static struct chxa_client *client;
static struct chxa_txn *txn;
static struct chxa_stream *stream;

static void begin(const struct fake_step *steps, size_t n,
                  const struct chxa_stream_options *options)
{
    struct chxa_client_options client_options;
    fake = fake_start_n(steps, n);
    const char *urls[] = {fake->url};
    chxa_client_options_init(&client_options);
    client_options.urls = urls;
    client_options.n_urls = 1;
    client_options.deadline_ms = 2000;
    ck_assert_int_eq(chxa_client_open(&client_options, &client, &error), 0);
    ck_assert_int_eq(chxa_start(client, "x", NULL, &txn, &error), 0);
    ck_assert_msg(chxa_stream_open(txn, options, &stream, &error) == 0, "%s", error.message);
}

#define BEGIN(steps, options) begin(steps, sizeof(steps) / sizeof((steps)[0]), options)

static struct chxa_stream_options defaults(void)
{
    struct chxa_stream_options options;
    chxa_stream_options_init(&options);
    options.query = QUERY;
    return options;
}

static void finish(void)
{
    chxa_txn_free(txn);
    chxa_client_close(client);
    fake_stop(fake);
}

static int append(const char *rows)
{
    return chxa_stream_append(stream, rows, strlen(rows), 1, &error);
}

static const char *body(size_t number)
{
    return number < fake->n ? fake->seen[number].body : NULL;
}

START_TEST(many_batches_are_one_write)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    struct chxa_stream_options options = defaults();
    BEGIN(steps, &options);
    ck_assert_int_eq(chxa_end(txn, &error), CHXA_ERR_MISUSE);
    ck_assert_uint_eq(fake_count(fake), 1); /* nothing before the first append */
    size_t all = 0;
    for (int i = 0; i < 20000; i++) {
        char row[32];
        all += (size_t)snprintf(row, sizeof row, "%d\trow\n", i);
        ck_assert_int_eq(append(row), 0);
    }
    ck_assert_int_eq(chxa_stream_flush(stream, &error), 0);
    ck_assert_int_eq(chxa_stream_flush(stream, &error), 0); /* nothing under way: nothing to do */
    ck_assert_uint_eq(fake_count(fake), 2);
    ck_assert_uint_eq(fake->seen[1].body_bytes, all);
    ck_assert_str_eq(strstr(body(1), "19999\t"), "19999\trow\n");
    struct chxa_stream_totals totals;
    chxa_stream_totals(stream, &totals);
    ck_assert_uint_eq(totals.writes, 1);
    ck_assert_uint_eq(totals.rows, 20000);
    ck_assert_uint_eq(totals.bytes, all);
    ck_assert_int_eq(append("again\n"), 0);
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    ck_assert_str_eq(body(2), "again\n");
    ck_assert_int_ne(strncmp(fake->seen[1].head, fake->seen[2].head, 80), 0); /* another write_id */
    ck_assert_int_eq(chxa_end(txn, &error), 0);
    ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), CHXA_ERR_MISUSE);
    finish();
}
END_TEST

START_TEST(cut_by_rows_and_bytes)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    struct chxa_stream_options options = defaults();
    options.rows_max = 2;
    options.bytes_max = 10;
    BEGIN(steps, &options);
    ck_assert_int_eq(append("1\n"), 0);
    ck_assert_int_eq(append("2\n"), 0);
    ck_assert_int_eq(append("34567890123\n"), 0);
    ck_assert_int_eq(append("4\n"), 0);
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    ck_assert_str_eq(body(1), "1\n2\n");
    ck_assert_str_eq(body(2), "34567890123\n");
    ck_assert_str_eq(body(3), "4\n");
    finish();
}
END_TEST

static bool comes_within(size_t n, unsigned ms)
{
    for (unsigned i = 0; i < ms / 10 && fake_count(fake) < n; i++)
        usleep(10000);
    return fake_count(fake) >= n;
}

/* Nobody calls the library, and the rows arrive all the same. */
START_TEST(silence_and_age_end_a_write)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    struct chxa_stream_options options = defaults();
    options.idle_ms = 200;
    BEGIN(steps, &options);
    ck_assert_int_eq(append("1\n"), 0);
    ck_assert(comes_within(2, 10000));
    ck_assert_str_eq(body(1), "1\n");
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    options.idle_ms = 0;
    options.age_ms = 300;
    ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), 0);
    for (int i = 0; i < 20; i++) { /* never silent for long */
        ck_assert_int_eq(append("2\n"), 0);
        usleep(50000);
    }
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    ck_assert_uint_ge(fake_count(fake), 5);
    finish();
}
END_TEST

/* What was held back for company goes out while the stream is not silent: no body is silent for long. */
START_TEST(a_trickle_is_sent)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    struct chxa_stream_options options = defaults();
    options.idle_ms = 20000;
    BEGIN(steps, &options);
    size_t before = atomic_load(&fake->body_bytes);
    ck_assert_int_eq(append("1\n"), 0);
    for (int i = 0; i < 1000 && atomic_load(&fake->body_bytes) == before; i++)
        usleep(10000);
    ck_assert_uint_eq(atomic_load(&fake->body_bytes), before + 2);
    ck_assert_uint_eq(fake_count(fake), 1); /* and the write is still open */
    chxa_stream_abort(stream);
    finish();
}
END_TEST

START_TEST(kept_writes_are_repeated)
{
    static const struct fake_step steps[] = {
        BEGUN,
        {0, NULL, NULL, FAKE_RESETS, 0},
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {503, FAILS("BUSY", "true", "known"), NULL, FAKE_EARLY, 0},
        WRITTEN};
    struct chxa_stream_options options = defaults();
    BEGIN(steps, &options);
    static char batch[100000];
    memset(batch, 'b', sizeof batch);
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(chxa_stream_append(stream, batch, sizeof batch, 1, &error), 0);
    ck_assert_msg(chxa_stream_flush(stream, &error) == 0, "%s", error.message);
    ck_assert_uint_eq(fake_count(fake), 5);
    ck_assert_uint_eq(fake->seen[2].body_bytes, 50 * sizeof batch);
    ck_assert_uint_eq(fake->seen[4].body_bytes, 50 * sizeof batch);
    size_t line = strcspn(fake->seen[2].head, "\r");
    ck_assert_int_eq(strncmp(fake->seen[2].head, fake->seen[4].head, line), 0);
    struct chxa_stream_totals totals;
    chxa_stream_totals(stream, &totals);
    ck_assert_uint_eq(totals.retries, 3);
    ck_assert_uint_eq(totals.writes, 1);
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    finish();
}
END_TEST

START_TEST(long_writes_are_not)
{
    static const struct fake_step steps[] = {
        BEGUN, {503, FAILS("BUSY", "true", "known"), NULL, FAKE_ANSWERS, 0}, WRITTEN};
    struct chxa_stream_options options = defaults();
    options.replay_bytes = 1 << 20;
    BEGIN(steps, &options);
    static char batch[300000];
    memset(batch, 'b', sizeof batch);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(chxa_stream_append(stream, batch, sizeof batch, 1, &error), 0);
    ck_assert_int_eq(chxa_stream_flush(stream, &error), CHXA_ERR_BUSY);
    ck_assert_uint_eq(fake_count(fake), 2);
    ck_assert_uint_eq(fake->seen[1].body_bytes, 20 * sizeof batch);
    ck_assert_int_eq(append("1\n"), CHXA_ERR_FAILED_BEFORE);
    ck_assert(strstr(error.message, "BUSY") != NULL);
    ck_assert_int_eq(chxa_stream_close(stream, &error), CHXA_ERR_FAILED_BEFORE);
    finish();
}
END_TEST

/* The error of a write that the timer ended comes with the next call. */
START_TEST(errors_are_told_once_and_not_lost)
{
    static const struct fake_step steps[] = {
        BEGUN, {422, FAILS("CLICKHOUSE_REJECTED", "false", "known"), NULL, FAKE_ANSWERS, 0}};
    struct chxa_stream_options options = defaults();
    options.idle_ms = 50;
    BEGIN(steps, &options);
    ck_assert_int_eq(append("1\n"), 0);
    ck_assert(comes_within(2, 10000));
    usleep(100000);
    ck_assert_int_eq(append("2\n"), CHXA_ERR_CLICKHOUSE_REJECTED);
    ck_assert_str_eq(error.message, "because");
    ck_assert_int_eq(chxa_stream_flush(stream, &error), CHXA_ERR_FAILED_BEFORE);
    ck_assert_int_eq(chxa_stream_close(stream, &error), CHXA_ERR_FAILED_BEFORE);
    ck_assert_int_eq(chxa_stream_close(NULL, &error), 0);
    chxa_stream_abort(NULL);
    finish();
}
END_TEST

/* A refusal in the middle of the body reaches the caller, who is waiting for room. */
START_TEST(early_refusal)
{
    static const struct fake_step steps[] = {
        BEGUN, {422, FAILS("TARGET_NOT_FOUND", "false", "known"), NULL, FAKE_EARLY, 0}};
    struct chxa_stream_options options = defaults();
    BEGIN(steps, &options);
    static char batch[4 << 20];
    memset(batch, 'b', sizeof batch);
    int code = 0;
    for (int i = 0; i < 20 && code == 0; i++)
        code = chxa_stream_append(stream, batch, sizeof batch, 1, &error);
    ck_assert_int_eq(code, CHXA_ERR_TARGET_NOT_FOUND);
    ck_assert_int_eq(chxa_stream_close(stream, &error), CHXA_ERR_FAILED_BEFORE);
    finish();
}
END_TEST

START_TEST(abort_leaves_no_whole_body)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    struct chxa_stream_options options = defaults();
    BEGIN(steps, &options);
    static char batch[200000];
    ck_assert_int_eq(chxa_stream_append(stream, batch, sizeof batch, 1, &error), 0);
    usleep(50000);
    chxa_stream_abort(stream);
    ck_assert_int_eq(chxa_end(txn, &error), 0);
    chxa_txn_free(txn);
    chxa_client_close(client);
    ck_assert(comes_within(2, 10000));
    ck_assert(!fake->seen[1].whole);
    fake_stop(fake);
}
END_TEST

START_TEST(options_are_checked)
{
    static const struct fake_step steps[] = {BEGUN, WRITTEN};
    static const char *const refused[] = {"INSERT INTO t FORMAT JSON",
                                          "INSERT INTO t FORMAT Parquet ",
                                          "INSERT INTO t format CSVWithNames"};
    static const char *const taken[] = {"INSERT INTO t FORMAT JSONEachRow",
                                        "INSERT INTO t FORMAT Native",
                                        "INSERT INTO JSON FORMAT RowBinary\n"};
    struct chxa_stream_options options = defaults();
    BEGIN(steps, &options);
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    for (size_t i = 0; i < 3; i++) {
        options.query = refused[i];
        ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), CHXA_ERR_INVALID_QUERY);
        options.query = taken[i];
        ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), 0);
        ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    }
    options.idle_ms = 30000;
    ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), CHXA_ERR_INVALID_REQUEST);
    options.size = 0;
    ck_assert_int_eq(chxa_stream_open(txn, &options, &stream, &error), CHXA_ERR_INVALID_REQUEST);
    ck_assert_uint_eq(fake_count(fake), 1);
    finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_stream");
    TCase *tcase = tcase_create("stream");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, many_batches_are_one_write);
    tcase_add_test(tcase, cut_by_rows_and_bytes);
    tcase_add_test(tcase, silence_and_age_end_a_write);
    tcase_add_test(tcase, a_trickle_is_sent);
    tcase_add_test(tcase, kept_writes_are_repeated);
    tcase_add_test(tcase, long_writes_are_not);
    tcase_add_test(tcase, errors_are_told_once_and_not_lost);
    tcase_add_test(tcase, early_refusal);
    tcase_add_test(tcase, abort_leaves_no_whole_body);
    tcase_add_test(tcase, options_are_checked);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
