/* SPDX-License-Identifier: Apache-2.0
 *
 * libchxa, moved by hand: reads commands from its input, one a line, words separated by tabs; makes one call of the library
 * for each; prints what came of it as one line of JSON. tests/e2e/test_client.py drives it against real servers, and
 * starts, kills and restarts them in between. One client, one transaction handle and one stream at a time.
 *
 * Without the word "drive" as an argument it has nothing to do, and says so with exit code 77.
 */
#include <chxa/chxa.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 20

static struct chxa_client *client;
static struct chxa_txn *txn;
static struct chxa_stream *stream;
static struct chxa_error error;
static json_t *answer;
static char *words[WORDS_MAX];

/* A word that is empty or missing is NULL. */
static const char *word(int i)
{
    return i < WORDS_MAX && words[i] && *words[i] ? words[i] : NULL;
}

static uint64_t number(int i)
{
    return word(i) ? strtoull(words[i], NULL, 10) : 0;
}

/* Rows first … last - 1 as TSV: number, text. */
static char *make_rows(uint64_t first, uint64_t last, size_t *ret_bytes)
{
    char *rows = malloc((size_t)(last - first) * 48 + 1);
    size_t len = 0;
    rows[0] = '\0';
    for (uint64_t n = first; n < last; n++)
        len += (size_t)snprintf(rows + len, 48, "%llu\trow %llu\n", (unsigned long long)n,
                                (unsigned long long)n);
    *ret_bytes = len;
    return rows;
}

static void say(const char *key, json_t *value)
{
    json_object_set_new(answer, key, value);
}

static json_t *text(const char *value)
{
    return value ? json_string(value) : json_null();
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

/* ---- the calls ---- */

/* open urls mode deadline_ms redirects_max connections_max request_timeout_ms ca_file user password cert_file key_file */
static int do_open(void)
{
    struct chxa_client_options options;
    const char *urls[8];
    size_t n = 0;
    for (char *url = words[1]; url && n < 8; n++) {
        char *comma = strchr(url, ',');
        urls[n] = url;
        if (comma)
            *comma = '\0';
        url = comma ? comma + 1 : NULL;
    }
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = n;
    options.write_mode = (enum chxa_write_mode)number(2);
    options.deadline_ms = word(3) ? (unsigned)number(3) : options.deadline_ms;
    options.redirects_max = word(4) ? (unsigned)number(4) : options.redirects_max;
    options.connections_max = word(5) ? (unsigned)number(5) : options.connections_max;
    options.request_timeout_ms = word(6) ? (unsigned)number(6) : options.request_timeout_ms;
    options.ca_file = word(7);
    options.user = word(8);
    options.password = word(9);
    options.cert_file = word(10);
    options.key_file = word(11);
    return chxa_client_open(&options, &client, &error);
}

static void told(const struct chxa_txn *handle)
{
    say("xid", text(chxa_txn_xid(handle)));
    say("url", text(chxa_txn_owner_url(handle)));
}

/* start xid sink epoch meta timeout_ms */
static int do_start(void)
{
    struct chxa_start_options options;
    chxa_start_options_init(&options);
    options.sink = word(2);
    options.epoch = number(3);
    options.meta = word(4);
    options.timeout_ms = number(5);
    int code = chxa_start(client, word(1), &options, &txn, &error);
    if (code == 0)
        told(txn);
    return code;
}

static int do_join(void)
{
    int code = chxa_join(client, word(1), &txn, &error);
    if (code == 0)
        told(txn);
    return code;
}

static int do_end(void)
{
    return chxa_end(txn, &error);
}

static int do_free(void)
{
    chxa_txn_free(txn);
    txn = NULL;
    return 0;
}

static void say_written(const struct chxa_written *written)
{
    say("seq", whole(written->seq));
    say("rows", whole(written->rows));
    say("parts", whole(written->parts));
    say("replay", json_boolean(written->replay));
}

/* write query first last write_id views_skip */
static int do_write(void)
{
    struct chxa_written written = {0};
    size_t bytes;
    char *rows = make_rows(number(2), number(3), &bytes);
    int code = chxa_write(txn, word(1), rows, bytes, word(4), number(5) != 0, &written, &error);
    free(rows);
    if (code == 0)
        say_written(&written);
    return code;
}

struct source {
    char *rows;
    size_t bytes, at, give_up_at;
};

static ptrdiff_t source_read(void *context, void *buffer, size_t room)
{
    struct source *source = context;
    size_t left = source->bytes - source->at, n = left < room ? left : room;
    n = n < 10000 ? n : 10000;
    if (source->give_up_at && source->at >= source->give_up_at)
        return -1;
    memcpy(buffer, source->rows + source->at, n);
    source->at += n;
    return (ptrdiff_t)n;
}

static int source_rewind(void *context)
{
    struct source *source = context;
    source->at = 0;
    return 0;
}

/* write_from query first last rewinds give_up_at write_id */
static int do_write_from(void)
{
    struct chxa_written written = {0};
    struct source source = {.give_up_at = (size_t)number(5)};
    source.rows = make_rows(number(2), number(3), &source.bytes);
    int code = chxa_write_from(txn, word(1), source_read, number(4) ? source_rewind : NULL, &source,
                               NULL, word(6), false, &written, &error);
    free(source.rows);
    if (code == 0)
        say_written(&written);
    return code;
}

/* prepare xid owner_url meta deadline_ms */
static int do_prepare(void)
{
    return chxa_prepare(client, word(1), word(2), word(3), number(4), &error);
}

/* commit xid owner_url one_phase deadline_ms */
static int do_commit(void)
{
    return chxa_commit(client, word(1), word(2), number(3) != 0, number(4), &error);
}

/* rollback xid owner_url reason deadline_ms */
static int do_rollback(void)
{
    return chxa_rollback(client, word(1), word(2), word(3), number(4), &error);
}

static int do_forget(void)
{
    return chxa_forget(client, word(1), &error);
}

static json_t *record_json(const struct chxa_txn_record *record)
{
    json_t *json = json_object();
    json_object_set_new(json, "xid", text(record->xid));
    json_object_set_new(json, "state", text(chxa_state_name(record->state)));
    json_object_set_new(json, "owner", text(record->owner));
    json_object_set_new(json, "owner_url", text(record->owner_url));
    json_object_set_new(json, "sink", text(record->sink));
    json_object_set_new(json, "epoch", whole(record->epoch));
    json_object_set_new(json, "meta", text(record->meta));
    json_object_set_new(json, "writes", whole(record->writes));
    json_object_set_new(json, "rows", whole(record->rows));
    json_object_set_new(json, "created_ms", json_integer(record->created_ms));
    return json;
}

static int do_get(void)
{
    struct chxa_txn_record *record;
    int code = chxa_get(client, word(1), &record, &error);
    if (code == 0) {
        say("record", record_json(record));
        chxa_record_free(record);
    }
    return code;
}

/* recover prefix sink owner prepared_only in_doubt_only older_than_ms */
static int do_recover(void)
{
    struct chxa_txn_record *records;
    struct chxa_filter filter;
    size_t n;
    chxa_filter_init(&filter);
    filter.xid_prefix = word(1);
    filter.sink = word(2);
    filter.owner = word(3);
    filter.prepared_only = number(4) != 0;
    filter.in_doubt_only = number(5) != 0;
    filter.older_than_ms = number(6);
    int code = chxa_recover(client, &filter, &records, &n, &error);
    if (code)
        return code;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, record_json(&records[i]));
    chxa_records_free(records, n);
    say("records", list);
    return 0;
}

/* request base_url method path body */
static int do_request(void)
{
    char *body = NULL;
    size_t bytes = 0;
    int code = chxa_request(client, word(1), word(2), word(3), word(4), &body, &bytes, &error);
    say("body", text(body));
    say("body_bytes", whole(bytes));
    chxa_free(body);
    return code;
}

static int do_last_committed(void)
{
    struct chxa_checkpoint checkpoint;
    int code = chxa_sink_last_committed(client, word(1), &checkpoint, &error);
    if (code)
        return code;
    say("last", text(checkpoint.xid));
    say("epoch", whole(checkpoint.epoch));
    say("meta", text(checkpoint.meta));
    chxa_free(checkpoint.meta);
    return 0;
}

/* sink_recover name epoch deadline_ms xid… */
static int do_sink_recover(void)
{
    size_t n = 0;
    while (word(4 + (int)n))
        n++;
    return chxa_sink_recover(client, word(1), number(2), (const char *const *)&words[4], n,
                             number(3), &error);
}

/* stream_open query bytes_max rows_max idle_ms age_ms replay_bytes */
static int do_stream_open(void)
{
    struct chxa_stream_options options;
    chxa_stream_options_init(&options);
    options.query = word(1);
    options.bytes_max = word(2) ? number(2) : options.bytes_max;
    options.rows_max = word(3) ? number(3) : options.rows_max;
    options.idle_ms = word(4) ? (unsigned)number(4) : options.idle_ms;
    options.age_ms = word(5) ? (unsigned)number(5) : options.age_ms;
    options.replay_bytes = word(6) ? number(6) : options.replay_bytes;
    return chxa_stream_open(txn, &options, &stream, &error);
}

/* append first last batch: rows first … last - 1, so many at a time */
static int do_append(void)
{
    uint64_t step = word(3) ? number(3) : 1;
    int code = 0;
    for (uint64_t from = number(1); from < number(2) && code == 0; from += step) {
        uint64_t to = from + step < number(2) ? from + step : number(2);
        size_t bytes;
        char *rows = make_rows(from, to, &bytes);
        code = chxa_stream_append(stream, rows, bytes, to - from, &error);
        free(rows);
    }
    return code;
}

static int do_flush(void)
{
    return chxa_stream_flush(stream, &error);
}

static int do_totals(void)
{
    struct chxa_stream_totals totals;
    chxa_stream_totals(stream, &totals);
    say("writes", whole(totals.writes));
    say("rows", whole(totals.rows));
    say("bytes", whole(totals.bytes));
    say("retries", whole(totals.retries));
    return 0;
}

static int do_stream_close(void)
{
    int code = chxa_stream_close(stream, &error);
    stream = NULL;
    return code;
}

static int do_stream_abort(void)
{
    chxa_stream_abort(stream);
    stream = NULL;
    return 0;
}

static int do_close(void)
{
    chxa_stream_abort(stream);
    stream = NULL;
    chxa_txn_free(txn);
    txn = NULL;
    chxa_client_close(client);
    client = NULL;
    return 0;
}

/* ---- the loop ---- */

static const struct {
    const char *name;
    int (*run)(void);
} verbs[] = {
    {"open", do_open},
    {"start", do_start},
    {"join", do_join},
    {"end", do_end},
    {"free", do_free},
    {"write", do_write},
    {"write_from", do_write_from},
    {"prepare", do_prepare},
    {"commit", do_commit},
    {"rollback", do_rollback},
    {"forget", do_forget},
    {"get", do_get},
    {"recover", do_recover},
    {"request", do_request},
    {"last_committed", do_last_committed},
    {"sink_recover", do_sink_recover},
    {"stream_open", do_stream_open},
    {"append", do_append},
    {"flush", do_flush},
    {"totals", do_totals},
    {"stream_close", do_stream_close},
    {"stream_abort", do_stream_abort},
    {"close", do_close},
};

static void split(char *line)
{
    memset(words, 0, sizeof words);
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; line && i < WORDS_MAX; i++) {
        char *tab = strchr(line, '\t');
        words[i] = line;
        if (tab)
            *tab = '\0';
        line = tab ? tab + 1 : NULL;
    }
}

static bool run(char *line)
{
    split(line);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(words[0], verbs[i].name) != 0)
            continue;
        memset(&error, 0, sizeof error);
        answer = json_object();
        int code = verbs[i].run();
        say("code", json_integer(code));
        say("same", json_boolean(code == error.code));
        say("name", text(chxa_error_name(code)));
        say("known", json_boolean(error.outcome == CHXA_OUTCOME_KNOWN));
        say("retryable", json_boolean(error.retryable));
        say("status", json_integer(error.http_status));
        say("xa", json_integer(error.xa_code));
        say("state", text(chxa_state_name(error.state)));
        say("attempts", whole(error.attempts));
        say("owner_url", text(error.owner_url));
        say("message", text(error.message));
        json_dumpf(answer, stdout, JSON_COMPACT);
        json_decref(answer);
        printf("\n");
        fflush(stdout);
        return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    if (argc != 2 || strcmp(argv[1], "drive") != 0) {
        printf("driven by tests/e2e/test_client.py\n");
        return 77;
    }
    while (getline(&line, &room, stdin) > 0) {
        if (!run(line)) {
            fprintf(stderr, "no such command: %s\n", line);
            return 2;
        }
    }
    free(line);
    do_close();
    return 0;
}
