/* SPDX-License-Identifier: Apache-2.0
 *
 * One client, eight threads: transactions and streams of their own, and fewer connections than threads. Run under TSan by its tier.
 */
#include "lib/suite.h"
#include "unit/client/fake.h"

#include <chxa/chxa.h>

#define THREADS 8
#define ROUNDS  6

static struct chxa_client *client;
static atomic_uint failures;

static int one_round(struct chxa_error *error)
{
    struct chxa_txn *txn = NULL;
    struct chxa_stream *stream = NULL;
    struct chxa_stream_options options;
    struct chxa_stream_totals totals;
    chxa_stream_options_init(&options);
    options.query = "INSERT INTO t FORMAT TSV";
    options.rows_max = 2;
    options.idle_ms = 20;
    int code = chxa_start(client, NULL, NULL, &txn, error);
    if (code == 0)
        code = chxa_write(txn, "INSERT", "1\n", 2, NULL, false, NULL, error);
    if (code == 0)
        code = chxa_stream_open(txn, &options, &stream, error);
    for (int i = 0; i < 5 && code == 0; i++) {
        code = chxa_stream_append(stream, "2\n", 2, 1, error);
        chxa_stream_totals(stream, &totals);
    }
    if (code == 0)
        code = chxa_stream_close(stream, error);
    if (code == 0)
        code = chxa_prepare(client, chxa_txn_xid(txn), chxa_txn_owner_url(txn), NULL, 0, error);
    if (code == 0)
        code = chxa_commit(client, chxa_txn_xid(txn), NULL, true, 0, error);
    chxa_txn_free(txn);
    return code;
}

static void *work(void *arg)
{
    struct chxa_error error = {0};
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        if (one_round(&error) == 0)
            continue;
        printf("%s: %s\n", chxa_error_name(error.code), error.message);
        atomic_fetch_add(&failures, 1);
    }
    return NULL;
}

START_TEST(eight_threads_one_client)
{
    static const struct fake_step steps[] = {
        {200, "{\"state\":\"Initialized\",\"seq\":1,\"rows\":1}", NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    const char *urls[] = {fake->url, fake->url};
    struct chxa_client_options options;
    pthread_t threads[THREADS];
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 2;
    options.write_mode = CHXA_WRITE_ROUND_ROBIN;
    options.connections_max = 3;
    ck_assert_int_eq(chxa_client_open(&options, &client, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    chxa_client_close(client);
    fake_stop(fake);
}
END_TEST

START_TEST(no_connection_left)
{
    static const struct fake_step steps[] = {{200, TXN("Committed"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    const char *urls[] = {fake->url};
    struct chxa_client_options options;
    struct chxa_stream_options stream_options;
    struct chxa_error error;
    struct chxa_txn *txn;
    struct chxa_stream *stream;
    static const struct fake_step begun[] = {{201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0}};
    fake->steps = begun;
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 1;
    options.connections_max = 1;
    options.deadline_ms = 500;
    ck_assert_int_eq(chxa_client_open(&options, &client, NULL), 0);
    ck_assert_int_eq(chxa_start(client, NULL, NULL, &txn, &error), 0);
    chxa_stream_options_init(&stream_options);
    stream_options.query = "INSERT INTO t FORMAT TSV";
    stream_options.idle_ms = 20000;
    ck_assert_int_eq(chxa_stream_open(txn, &stream_options, &stream, &error), 0);
    size_t before = atomic_load(&fake->body_bytes);
    ck_assert_int_eq(chxa_stream_append(stream, "1\n", 2, 1, &error), 0);
    for (int i = 0; i < 1000 && atomic_load(&fake->body_bytes) == before; i++)
        usleep(10000); /* until the stream has the one connection */
    ck_assert_int_eq(chxa_prepare(client, "x", NULL, NULL, 0, &error), CHXA_ERR_UNREACHABLE);
    ck_assert(strstr(error.message, "connections_max") != NULL);
    ck_assert_int_eq(chxa_stream_close(stream, &error), 0);
    chxa_txn_free(txn);
    chxa_client_close(client);
    fake_stop(fake);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, eight_threads_one_client);
    tcase_add_test(tcase, no_connection_left);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
