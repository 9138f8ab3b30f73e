/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls against a scripted server: what is repeated, what is not, where a call goes, and what is said in the end.
 */
#include "lib/suite.h"
#include "unit/client/fake.h"

#include <chxa/chxa.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct chxa_error error;

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct chxa_client *open_both(const char *first, const char *second, unsigned deadline_ms)
{
    const char *urls[] = {first, second};
    struct chxa_client_options options;
    struct chxa_client *client = NULL;
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = second ? 2 : 1;
    options.write_mode = CHXA_WRITE_FIRST;
    options.deadline_ms = deadline_ms;
    options.user = "anna";
    options.password = "secret";
    ck_assert_int_eq(chxa_client_open(&options, &client, &error), 0);
    return client;
}

static struct chxa_client *open_one(const struct fake *fake, unsigned deadline_ms)
{
    return open_both(fake->url, NULL, deadline_ms);
}

/* A URL where nobody listens. */
static const char *nobody(void)
{
    static char url[64];
    static const struct fake_step none[] = {{200, "", NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(none);
    snprintf(url, sizeof url, "%s", fake->url);
    fake_stop(fake);
    return url;
}

static struct chxa_txn *start(struct chxa_client *client)
{
    struct chxa_txn *txn = NULL;
    ck_assert_msg(chxa_start(client, "x", NULL, &txn, &error) == 0, "%s", error.message);
    return txn;
}

static void done(struct fake *fake, struct chxa_client *client)
{
    chxa_client_close(client);
    fake_stop(fake);
}

/* ---- retries ---- */

START_TEST(busy_is_repeated_after_what_it_says)
{
    static const struct fake_step steps[] = {
        {503, FAILS("BUSY", "true", "known"), "Retry-After: 1\r\n", FAKE_ANSWERS, 0},
        {201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    uint64_t before = now_ms();
    struct chxa_txn *txn = start(client);
    ck_assert_uint_ge(now_ms() - before, 1000);
    ck_assert_uint_eq(error.attempts, 2);
    ck_assert_int_eq(error.state, CHXA_STATE_INITIALIZED);
    ck_assert_str_eq(chxa_txn_owner_url(txn), fake->url);
    ck_assert(strstr(fake->seen[0].head, "Authorization: Basic YW5uYTpzZWNyZXQ=") != NULL);
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

START_TEST(retry_after_beyond_the_deadline_ends_it)
{
    static const struct fake_step steps[] = {
        {503, FAILS("NOT_READY", "true", "known"), "Retry-After: 60\r\n", FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 3000);
    uint64_t before = now_ms();
    ck_assert_int_eq(chxa_prepare(client, "x", NULL, NULL, 0, &error), CHXA_ERR_NOT_READY);
    ck_assert_uint_lt(now_ms() - before, 2900);
    ck_assert(error.retryable && error.outcome == CHXA_OUTCOME_KNOWN);
    ck_assert_int_eq(error.http_status, 503);
    ck_assert_int_eq(error.xa_code, -7);
    done(fake, client);
}
END_TEST

START_TEST(lost_answers_are_asked_for_again)
{
    static const struct fake_step steps[] = {{0, NULL, NULL, FAKE_CLOSES, 0},
                                             {200, TXN("Prepared"), NULL, FAKE_HALF, 0},
                                             {0, NULL, NULL, FAKE_RESETS, 0},
                                             {200, TXN("Prepared"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 10000);
    ck_assert_int_eq(chxa_prepare(client, "x", fake->url, "{\"offset\":3}", 0, &error), 0);
    ck_assert_uint_eq(error.attempts, 4);
    ck_assert_str_eq(fake->seen[3].body, "{\"meta\":{\"offset\":3}}");
    done(fake, client);
}
END_TEST

START_TEST(lost_until_the_deadline)
{
    static const struct fake_step steps[] = {{0, NULL, NULL, FAKE_CLOSES, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 10000);
    uint64_t before = now_ms();
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 1000, &error), CHXA_ERR_LOST);
    ck_assert_uint_lt(now_ms() - before, 2900);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_UNKNOWN);
    ck_assert(error.retryable);
    ck_assert_uint_gt(error.attempts, 2);
    done(fake, client);
}
END_TEST

/* Wherever the answer breaks off, it is lost, and never taken for another. */
START_TEST(cut_anywhere)
{
    static const char whole[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                "Content-Length: 52\r\nRetry-After: 0\r\n\r\n" TXN("Prepared");
    for (size_t cut = 0; cut < sizeof whole - 1; cut += cut < 16 ? 1 : 3) {
        char part[sizeof whole];
        memcpy(part, whole, cut);
        part[cut] = '\0';
        const struct fake_step steps[] = {{0, part, NULL, FAKE_RAW, 0},
                                          {200, TXN("Committed"), NULL, FAKE_ANSWERS, 0}};
        struct fake *fake = fake_start(steps);
        struct chxa_client *client = open_one(fake, 5000);
        ck_assert_msg(chxa_commit(client, "x", NULL, true, 0, &error) == 0, "cut at %zu: %s: %s",
                      cut, chxa_error_name(error.code), error.message);
        ck_assert_int_eq(error.state, CHXA_STATE_COMMITTED);
        done(fake, client);
    }
}
END_TEST

/* What may have happened is not made undone by a later refusal. */
START_TEST(lost_and_then_busy)
{
    static const struct fake_step steps[] = {
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {503, FAILS("BUSY", "true", "known"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 1000);
    ck_assert_int_eq(chxa_prepare(client, "x", NULL, NULL, 0, &error), CHXA_ERR_BUSY);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_UNKNOWN);
    done(fake, client);
    /* The same, with nobody there afterwards. */
    static const struct fake_step away[] = {{0, NULL, NULL, FAKE_LEAVES, 0}};
    fake = fake_start(away);
    client = open_one(fake, 1000);
    ck_assert_int_eq(chxa_prepare(client, "x", NULL, NULL, 0, &error), CHXA_ERR_LOST);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_UNKNOWN);
    ck_assert_uint_gt(error.attempts, 1);
    done(fake, client);
}
END_TEST

START_TEST(slow_is_cut_by_the_deadline)
{
    static const struct fake_step steps[] = {{200, TXN("Committed"), NULL, FAKE_ANSWERS, 3000}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 10000);
    uint64_t before = now_ms();
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 700, &error), CHXA_ERR_LOST);
    ck_assert_uint_lt(now_ms() - before, 2900);
    done(fake, client);
}
END_TEST

/* A begin that may have happened at one node is not repeated at another: an id must not get two owners. */
START_TEST(begin_stays_where_it_may_have_happened)
{
    static const struct fake_step first[] = {
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {503, FAILS("NOT_READY", "true", "known"), NULL, FAKE_ANSWERS, 0},
        {200, TXN("Initialized"), NULL, FAKE_ANSWERS, 0}};
    static const struct fake_step second[] = {{201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0}};
    struct fake *a = fake_start(first), *b = fake_start(second);
    struct chxa_client *client = open_both(a->url, b->url, 10000);
    chxa_txn_free(start(client));
    ck_assert_uint_eq(fake_count(a), 3);
    ck_assert_uint_eq(fake_count(b), 0);
    /* Where it surely did not, the next is tried, and at once. */
    fake_stop(a);
    uint64_t before = now_ms();
    chxa_txn_free(start(client));
    ck_assert_uint_eq(error.attempts, 2);
    ck_assert_uint_lt(now_ms() - before, 3000);
    ck_assert_uint_eq(fake_count(b), 1);
    done(b, client);
}
END_TEST

START_TEST(nobody_there)
{
    const char *url = nobody();
    struct chxa_client *client = open_both(url, NULL, 800);
    struct chxa_txn_record *record = NULL;
    ck_assert_int_eq(chxa_get(client, "x", &record, &error), CHXA_ERR_UNREACHABLE);
    ck_assert(record == NULL && error.retryable && error.outcome == CHXA_OUTCOME_KNOWN);
    ck_assert_int_eq(error.http_status, 0);
    chxa_client_close(client);
}
END_TEST

/* ---- what is not a chxad's answer ---- */

START_TEST(foreign_answers)
{
    static const struct {
        struct fake_step step;
        int code;
        enum chxa_outcome outcome;
        bool again;
    } cases[] = {
        {{200, "<html>log in</html>", NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         false},
        {{200, "", NULL, FAKE_ANSWERS, 0}, CHXA_ERR_BAD_ANSWER, CHXA_OUTCOME_UNKNOWN, false},
        {{200, "[]", NULL, FAKE_ANSWERS, 0}, CHXA_ERR_BAD_ANSWER, CHXA_OUTCOME_UNKNOWN, false},
        {{200, "\xff\xfe", NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         false},
        {{404, "Not here", NULL, FAKE_ANSWERS, 0}, CHXA_ERR_BAD_ANSWER, CHXA_OUTCOME_KNOWN, false},
        {{502, "<html>bad gateway", NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         true},
        {{401, "who?", NULL, FAKE_ANSWERS, 0}, CHXA_ERR_CREDENTIALS, CHXA_OUTCOME_KNOWN, false},
        {{302, "", "Location: http://127.0.0.1:1/\r\n", FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         false},
        {{307, "", "Location: ftp://127.0.0.1/x\r\n", FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_KNOWN,
         false},
        {{307, "", "Location: http://u:p@127.0.0.1/x\r\n", FAKE_ANSWERS, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_KNOWN,
         false},
        {{307, "", NULL, FAKE_ANSWERS, 0}, CHXA_ERR_BAD_ANSWER, CHXA_OUTCOME_KNOWN, false},
        {{0, "this is no HTTP at all\r\n\r\n", NULL, FAKE_RAW, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         false},
        {{0, "HTTP/1.1 200 OK\r\nContent-Length: zwei\r\n\r\n", NULL, FAKE_RAW, 0},
         CHXA_ERR_BAD_ANSWER,
         CHXA_OUTCOME_UNKNOWN,
         false},
        {{418, FAILS("NEW_TROUBLE", "false", "known"), NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_UNKNOWN_CODE,
         CHXA_OUTCOME_KNOWN,
         false},
        {{500, FAILS("NEW_TROUBLE", "true", "unknown"), NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_UNKNOWN_CODE,
         CHXA_OUTCOME_UNKNOWN,
         true},
        {{409, FAILS("LOST", "false", "known"), NULL, FAKE_ANSWERS, 0},
         CHXA_ERR_UNKNOWN_CODE,
         CHXA_OUTCOME_KNOWN,
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake *fake = fake_start_n(&cases[i].step, 1);
        struct chxa_client *client = open_one(fake, 1500);
        int code = chxa_commit(client, "x", NULL, true, 0, &error);
        ck_assert_msg(code == cases[i].code, "case %zu: %s: %s", i, chxa_error_name(code),
                      error.message);
        ck_assert_msg(error.outcome == cases[i].outcome, "case %zu: %s", i, error.message);
        ck_assert_msg((error.attempts > 1) == cases[i].again, "case %zu: %u attempts", i,
                      error.attempts);
        done(fake, client);
    }
}
END_TEST

START_TEST(long_messages_are_cut_between_characters)
{
    char *body = calloc(1, 20000);
    size_t len = (size_t)snprintf(body, 20000,
                                  "{\"error\":{\"code\":\"CLICKHOUSE_REJECTED\",\"message\":\"a");
    for (int i = 0; i < 4000; i++)
        len += (size_t)snprintf(body + len, 20000 - len, "€");
    snprintf(body + len, 20000 - len, "\",\"retryable\":false,\"outcome\":\"known\"}}");
    struct fake_step step = {422, body, NULL, FAKE_ANSWERS, 0};
    struct fake *fake = fake_start_n(&step, 1);
    struct chxa_client *client = open_one(fake, 2000);
    ck_assert_int_eq(chxa_prepare(client, "x", NULL, NULL, 0, &error),
                     CHXA_ERR_CLICKHOUSE_REJECTED);
    size_t cut = strlen(error.message);
    ck_assert_uint_gt(cut, CHXA_MESSAGE_BYTES_MAX - 4);
    ck_assert_uint_eq((cut - 1) % 3, 0);
    done(fake, client);
    free(body);
}
END_TEST

/* ---- where it goes ---- */

START_TEST(redirects_are_followed_so_far)
{
    struct fake_step around = {307, "{}", NULL, FAKE_ANSWERS, 0};
    static const struct fake_step there[] = {{200, TXN("Committed"), NULL, FAKE_ANSWERS, 0}};
    char location[128];
    struct fake *loop = fake_start_n(&around, 1), *owner = fake_start(there);
    snprintf(location, sizeof location, "Location: %s/v1/transactions/x/commit\r\n", loop->url);
    around.headers = location;
    struct chxa_client *client = open_one(loop, 5000);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), CHXA_ERR_REDIRECTS);
    ck_assert_uint_eq(fake_count(loop), 4); /* redirects_max is 3 */
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_KNOWN);
    snprintf(location, sizeof location, "Location: %s/v1/transactions/x/commit\r\n", owner->url);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), 0);
    ck_assert(fake_saw(owner, 0, "POST /v1/transactions/x/commit?wait_ms="));
    /* The node that sent us there named it: it gets the credentials too. */
    ck_assert(strstr(owner->seen[0].head, "Authorization: Basic") != NULL);
    fake_stop(owner);
    done(loop, client);
}
END_TEST

START_TEST(environment_has_no_part)
{
    static const struct fake_step steps[] = {{200, TXN("Committed"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 3000);
    setenv("http_proxy", nobody(), 1);
    setenv("ALL_PROXY", nobody(), 1);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), 0);
    done(fake, client);
}
END_TEST

START_TEST(https_is_never_left)
{
    const char *urls[] = {"https://127.0.0.1:1"};
    struct chxa_client_options options;
    struct chxa_client *client;
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 1;
    ck_assert_int_eq(chxa_client_open(&options, &client, NULL), 0);
    ck_assert_int_eq(chxa_commit(client, "x", "http://127.0.0.1:1", true, 500, &error),
                     CHXA_ERR_INVALID_REQUEST);
    ck_assert_uint_eq(error.attempts, 0);
    chxa_client_close(client);
}
END_TEST

/* ---- 202, and the ends of transactions ---- */

START_TEST(accepted_is_asked_again)
{
    static const struct fake_step steps[] = {{202, TXN("Committing"), NULL, FAKE_ANSWERS, 0},
                                             {202, TXN("Committing"), NULL, FAKE_ANSWERS, 0},
                                             {200, TXN("Committed"), NULL, FAKE_ANSWERS, 0},
                                             {202, TXN("Committing"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), 0);
    ck_assert_int_eq(error.state, CHXA_STATE_COMMITTED);
    /* The last answer before the deadline is lost where the machine is busy. */
    for (int i = 0; i < 20 && error.code != CHXA_ERR_PENDING; i++)
        ck_assert_int_ne(chxa_commit(client, "x", NULL, true, 400, &error), 0);
    ck_assert_int_eq(error.code, CHXA_ERR_PENDING);
    ck_assert_int_eq(error.state, CHXA_STATE_COMMITTING);
    ck_assert(error.retryable);
    done(fake, client);
}
END_TEST

START_TEST(refused_wait_is_left_out)
{
    static const struct fake_step steps[] = {
        {400, FAILS("INVALID_REQUEST", "false", "known"), NULL, FAKE_ANSWERS, 0},
        {200, TXN("Aborted"), NULL, FAKE_ANSWERS, 0},
        {400, FAILS("INVALID_REQUEST", "false", "known"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    ck_assert_int_eq(chxa_rollback(client, "x", NULL, "the job \"7\" is gone", 0, &error), 0);
    ck_assert(fake_saw(fake, 0, "POST /v1/transactions/x/rollback?wait_ms="));
    ck_assert(fake_saw(fake, 1, "POST /v1/transactions/x/rollback HTTP"));
    ck_assert_str_eq(fake->seen[1].body, "{\"reason\":\"the job \\\"7\\\" is gone\"}");
    ck_assert_int_eq(chxa_rollback(client, "x", NULL, NULL, 0, &error), CHXA_ERR_INVALID_REQUEST);
    ck_assert_uint_eq(error.attempts, 2);
    done(fake, client);
}
END_TEST

START_TEST(commit_judges_what_it_finds)
{
    static const struct fake_step steps[] = {
        {200, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
        {409,
         "{\"error\":{\"code\":\"WRONG_STATE\",\"message\":\"m\",\"retryable\":false,\"outcome\":"
         "\"known\"},\"state\":\"Aborted\"}",
         NULL, FAKE_ANSWERS, 0},
        {200, "{\"state\":\"Committed\",\"heuristic\":\"rolled_back\"}", NULL, FAKE_ANSWERS, 0},
        {404, FAILS("TXN_NOT_FOUND", "false", "known"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, false, 0, &error), CHXA_ERR_WRONG_STATE);
    ck_assert_uint_eq(fake_count(fake), 1);
    ck_assert(fake_saw(fake, 0, "GET /v1/transactions/x "));
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), CHXA_ERR_ROLLED_BACK);
    ck_assert_int_eq(error.xa_code, 6);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), CHXA_ERR_HEURISTIC);
    ck_assert_int_eq(error.xa_code, 6);
    ck_assert_int_eq(chxa_commit(client, "x", NULL, true, 0, &error), CHXA_ERR_TXN_NOT_FOUND);
    ck_assert_int_eq(chxa_rollback(client, "x", NULL, NULL, 0, &error), 0);
    ck_assert_int_eq(error.state, CHXA_STATE_UNKNOWN);
    ck_assert_int_eq(chxa_forget(client, "x", &error), 0);
    done(fake, client);
}
END_TEST

/* ---- writes ---- */

static ptrdiff_t read_some(void *context, void *buffer, size_t room)
{
    size_t *left = context, n = *left < room ? *left : room;
    memset(buffer, 'r', n);
    *left -= n;
    return (ptrdiff_t)n;
}

START_TEST(write_is_repeated_with_its_id)
{
    static const struct fake_step steps[] = {
        {201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {200, "{\"seq\":4,\"rows\":2,\"parts\":1,\"replay\":true}", NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    struct chxa_txn *txn = start(client);
    struct chxa_written written;
    ck_assert_int_eq(
        chxa_write(txn, "INSERT INTO t FORMAT TSV", "1\n2\n", 4, NULL, true, &written, &error), 0);
    ck_assert_uint_eq(written.seq, 4);
    ck_assert(written.replay && !written.gathered);
    ck_assert_str_eq(fake->seen[1].body, "1\n2\n");
    ck_assert_str_eq(fake->seen[2].body, "1\n2\n");
    ck_assert(fake_saw(fake, 1, "POST /v1/transactions/x/writes?write_id="));
    ck_assert(strstr(fake->seen[1].head, "&views=skip&query=INSERT%20INTO%20t%20FORMAT%20TSV ") !=
              NULL);
    ck_assert_uint_eq(strcspn(fake->seen[1].head, "\r"), strcspn(fake->seen[2].head, "\r"));
    ck_assert_int_eq(
        strncmp(fake->seen[1].head, fake->seen[2].head, strcspn(fake->seen[1].head, "\r")), 0);
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

START_TEST(write_is_gathered)
{
    static const struct fake_step steps[] = {
        {201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
        {200, "{\"write_id\":\"w\",\"gathered\":true,\"body_bytes\":4,\"replay\":false}", NULL,
         FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    struct chxa_txn *txn = start(client);
    struct chxa_written written = {.seq = 1, .rows = 1, .replay = true};
    ck_assert_int_eq(
        chxa_write(txn, "INSERT INTO t FORMAT TSV", "1\n2\n", 4, "w", false, &written, &error), 0);
    ck_assert(written.gathered && !written.replay);
    ck_assert_uint_eq(written.seq, 0);
    ck_assert_uint_eq(written.rows, 0);
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

START_TEST(write_without_rewind_is_looked_for)
{
    static const struct fake_step steps[] = {
        {201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {200, "{\"state\":\"Initialized\",\"writes\":[]}", NULL, FAKE_ANSWERS, 0},
        {200,
         "{\"state\":\"Initialized\",\"writes\":[{\"write_id\":\"v\"},{\"write_id\":\"w\",\"seq\":"
         "2,\"parts\":[{},{}]}]}",
         NULL, FAKE_ANSWERS, 0},
        {0, NULL, NULL, FAKE_CLOSES, 0},
        {200, "{\"state\":\"Initialized\",\"writes\":[]}", NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 1500);
    struct chxa_txn *txn = start(client);
    struct chxa_written written;
    size_t left = 300000;
    ck_assert_int_eq(
        chxa_write_from(txn, "INSERT", read_some, NULL, &left, NULL, "w", false, &written, &error),
        0);
    ck_assert_uint_eq(written.seq, 2);
    ck_assert_uint_eq(written.parts, 2);
    ck_assert_uint_eq(fake->seen[1].body_bytes, 300000);
    left = 1000;
    ck_assert_int_eq(
        chxa_write_from(txn, "INSERT", read_some, NULL, &left, NULL, "w2", false, NULL, &error),
        CHXA_ERR_LOST);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_UNKNOWN);
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

/* The answer that comes before the body is out is the one that counts, and the connection's end raises no signal. */
START_TEST(early_refusal_and_broken_pipe)
{
    static const struct fake_step steps[] = {
        {201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
        {422, FAILS("TARGET_NOT_FOUND", "false", "known"), NULL, FAKE_EARLY, 0},
        {0, NULL, NULL, FAKE_RESETS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 1500);
    struct chxa_txn *txn = start(client);
    size_t left = (size_t)50 << 20;
    signal(SIGPIPE, SIG_DFL);
    ck_assert_int_eq(
        chxa_write_from(txn, "INSERT", read_some, NULL, &left, NULL, NULL, false, NULL, &error),
        CHXA_ERR_TARGET_NOT_FOUND);
    left = (size_t)50 << 20;
    ck_assert_int_eq(
        chxa_write_from(txn, "INSERT", read_some, NULL, &left, NULL, NULL, false, NULL, &error),
        CHXA_ERR_LOST);
    ck_assert_int_eq(error.outcome, CHXA_OUTCOME_KNOWN); /* the body was not over */
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

START_TEST(write_follows_its_owner)
{
    static const struct fake_step there[] = {{200, "{\"seq\":1}", NULL, FAKE_ANSWERS, 0}};
    struct fake *owner = fake_start(there);
    char body[512];
    snprintf(body, sizeof body,
             "{\"error\":{\"code\":\"NOT_OWNER\",\"message\":\"m\",\"retryable\":false,\"outcome\":"
             "\"known\"},\"owner_url\":\"%s\"}",
             owner->url);
    struct fake_step steps[] = {{201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0},
                                {421, body, NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 1500);
    struct chxa_txn *txn = start(client);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(chxa_write(txn, "INSERT", "1\n", 2, NULL, false, NULL, &error), 0);
    ck_assert_uint_eq(fake_count(fake), 2);
    ck_assert_uint_eq(fake_count(owner), 2);
    ck_assert_str_eq(chxa_txn_owner_url(txn), owner->url);
    chxa_txn_free(txn);
    fake_stop(owner);
    done(fake, client);
}
END_TEST

/* ---- lists and sinks ---- */

START_TEST(lists_are_read_to_their_end)
{
    static const struct fake_step steps[] = {
        {200,
         "{\"transactions\":[{\"xid\":\"b\",\"owner\":\"n\",\"state\":\"Prepared\",\"created_ms\":"
         "2}],\"next\":\"a/b c\"}",
         NULL, FAKE_ANSWERS, 0},
        {200, "{\"transactions\":[],\"next\":\"q\"}", NULL, FAKE_ANSWERS, 0},
        {200,
         "{\"transactions\":[{\"xid\":\"a\",\"owner\":\"n\",\"state\":\"Prepared\",\"created_ms\":"
         "1,\"heuristic\":null}],\"next\":null}",
         NULL, FAKE_ANSWERS, 0},
        {200, "{\"transactions\":[{\"xid\":\"b\"}],\"next\":null}", NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 3000);
    struct chxa_txn_record *records;
    size_t n;
    ck_assert_int_eq(chxa_recover(client, NULL, &records, &n, &error), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(records[0].xid, "a");
    ck_assert_str_eq(records[1].xid, "b");
    ck_assert(!records[0].heuristic);
    ck_assert(fake_saw(fake, 1, "GET /v1/transactions?limit=1000&page=a%2Fb%20c "));
    chxa_records_free(records, n);
    ck_assert_int_eq(chxa_recover(client, NULL, &records, &n, &error), CHXA_ERR_BAD_ANSWER);
    done(fake, client);
}
END_TEST

START_TEST(recovery_goes_to_every_owner)
{
    static const struct fake_step there[] = {
        {200, "{\"complete\":false,\"transactions\":[]}", NULL, FAKE_ANSWERS, 0}};
    struct fake *owner = fake_start(there);
    char body[600];
    snprintf(body, sizeof body,
             "{\"complete\":false,\"transactions\":[{\"xid\":\"a\",\"action\":\"commit\","
             "\"pending\":false,\"owner_url\":\"%s\",\"error\":{\"code\":\"NOT_OWNER\",\"message\":"
             "\"m\",\"retryable\":false,\"outcome\":\"known\"}}]}",
             owner->url);
    struct fake_step steps[] = {
        {200, body, NULL, FAKE_ANSWERS, 0},
        {200, "{\"complete\":true,\"transactions\":[]}", NULL, FAKE_ANSWERS, 0},
        {200,
         "{\"complete\":false,\"transactions\":[{\"xid\":\"a\",\"action\":\"commit\",\"pending\":"
         "false,\"state\":\"Aborted\",\"error\":{\"code\":\"WRONG_STATE\",\"message\":\"m\","
         "\"retryable\":false,\"outcome\":\"known\"}}]}",
         NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 3000);
    const char *xids[] = {"a", "b"};
    ck_assert_int_eq(chxa_sink_recover(client, "s", 5, xids, 2, 0, &error), 0);
    ck_assert_uint_eq(fake_count(fake), 2);
    ck_assert_uint_eq(fake_count(owner), 1);
    ck_assert_str_eq(owner->seen[0].body, "{\"epoch\":5,\"commit\":[\"a\",\"b\"]}");
    ck_assert_int_eq(chxa_sink_recover(client, "s", 5, xids, 2, 0, &error), CHXA_ERR_ROLLED_BACK);
    ck_assert_int_eq(error.state, CHXA_STATE_ABORTED);
    fake_stop(owner);
    done(fake, client);
}
END_TEST

/* Not only the last one: who reads the message learns what is wrong with each. */
START_TEST(each_node_that_was_tried_is_named)
{
    static const struct fake_step steps[] = {
        {503, FAILS("STORE_UNAVAILABLE", "true", "known"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    char away[100], there[100];
    snprintf(away, sizeof away, "%s: ", nobody());
    snprintf(there, sizeof there, "%s: ", fake->url);
    struct chxa_client *client = open_both(strndupa(away, strlen(away) - 2), fake->url, 1500);
    struct chxa_txn_record *record;
    ck_assert_int_ne(chxa_get(client, "x", &record, &error), 0);
    /* The one that is there has said why; or, when the deadline came first, that it said nothing is told of it. */
    ck_assert_msg(strstr(error.message, away) != NULL, "%s", error.message);
    ck_assert_msg(strncmp(error.message, "because; tried before: ", 23) == 0 ||
                      strstr(error.message, there) != NULL,
                  "%s", error.message);
    chxa_client_close(client);
    /* An answer for good has nothing to do with who was away before. */
    static const struct fake_step gone[] = {
        {404, FAILS("TXN_NOT_FOUND", "false", "known"), NULL, FAKE_ANSWERS, 0}};
    struct fake *second = fake_start(gone);
    client = open_both(fake->url, second->url, 5000);
    ck_assert_int_eq(chxa_get(client, "x", &record, &error), CHXA_ERR_TXN_NOT_FOUND);
    ck_assert_ptr_null(strstr(error.message, "tried before"));
    fake_stop(second);
    done(fake, client);
}
END_TEST

/* ---- on the same machine ---- */

static char congestion[16];

/* The library's calls come here first. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    int result = (int)syscall(SYS_setsockopt, fd, level, name, value, len);
    if (result == 0 && level == IPPROTO_TCP && name == TCP_CONGESTION)
        snprintf(congestion, sizeof congestion, "%.*s", (int)len, (const char *)value);
    return result;
}

/* Whatever paces what this machine sends, it does not do so on the way to a node of the same machine. */
START_TEST(nothing_paces_what_stays_on_the_machine)
{
    static const struct fake_step steps[] = {{201, TXN("Initialized"), NULL, FAKE_ANSWERS, 0}};
    struct fake *fake = fake_start(steps);
    struct chxa_client *client = open_one(fake, 5000);
    struct chxa_txn *txn = start(client);
    ck_assert_str_eq(congestion, "reno");
    chxa_txn_free(txn);
    done(fake, client);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, busy_is_repeated_after_what_it_says);
    tcase_add_test(tcase, retry_after_beyond_the_deadline_ends_it);
    tcase_add_test(tcase, lost_answers_are_asked_for_again);
    tcase_add_test(tcase, lost_until_the_deadline);
    tcase_add_test(tcase, cut_anywhere);
    tcase_add_test(tcase, lost_and_then_busy);
    tcase_add_test(tcase, slow_is_cut_by_the_deadline);
    tcase_add_test(tcase, begin_stays_where_it_may_have_happened);
    tcase_add_test(tcase, nobody_there);
    tcase_add_test(tcase, each_node_that_was_tried_is_named);
    tcase_add_test(tcase, foreign_answers);
    tcase_add_test(tcase, long_messages_are_cut_between_characters);
    tcase_add_test(tcase, redirects_are_followed_so_far);
    tcase_add_test(tcase, environment_has_no_part);
    tcase_add_test(tcase, https_is_never_left);
    tcase_add_test(tcase, accepted_is_asked_again);
    tcase_add_test(tcase, refused_wait_is_left_out);
    tcase_add_test(tcase, commit_judges_what_it_finds);
    tcase_add_test(tcase, write_is_repeated_with_its_id);
    tcase_add_test(tcase, write_is_gathered);
    tcase_add_test(tcase, write_without_rewind_is_looked_for);
    tcase_add_test(tcase, early_refusal_and_broken_pipe);
    tcase_add_test(tcase, write_follows_its_owner);
    tcase_add_test(tcase, lists_are_read_to_their_end);
    tcase_add_test(tcase, recovery_goes_to_every_owner);
    tcase_add_test(tcase, nothing_paces_what_stays_on_the_machine);
}

int main(void)
{
    Suite *suite = suite_create("client_call");
    TCase *tcase = tcase_create("call");
    add_tests(tcase);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
