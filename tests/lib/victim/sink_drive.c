/* SPDX-License-Identifier: Apache-2.0
 *
 * The sink interface of libchxa, one call per command, for tests/e2e/test_sink_calls.py.
 *
 *   [CHXA_DEADLINE_MS=N] sink_drive URL…
 *
 * Each line of its input is a command with its words separated by tabs, and is answered by one JSON object: code, name,
 * message, outcome; pending and epoch of the sink, where there is one; what the call returned besides. slot: 0-9.
 *
 *   open slot name epoch query state(hex) pending_max     snapshot slot checkpoint meta      complete slot checkpoint
 *   write slot first last                                  close slot                         aborted slot checkpoint
 *   last name
 */
#include <chxa/chxa.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS     10u
#define WORDS_MAX 8u

static struct chxa_client *client;
static struct chxa_sink *sinks[SLOTS];

static unsigned char *from_hex(const char *hex, size_t *ret_len)
{
    size_t len = strlen(hex) / 2;
    unsigned char *bytes = malloc(len + 1);
    for (size_t i = 0; bytes && i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    *ret_len = len;
    return bytes;
}

static json_t *to_hex(const unsigned char *bytes, size_t len)
{
    char *hex = malloc(2 * len + 1);
    for (size_t i = 0; hex && i < len; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    json_t *value = json_string(len ? hex : "");
    free(hex);
    return value;
}

static int do_open(char **words, unsigned slot, struct chxa_error *error)
{
    struct chxa_sink_options options;
    size_t len;
    unsigned char *state = from_hex(words[5], &len);
    chxa_sink_options_init(&options);
    options.name = words[2];
    options.epoch = strtoull(words[3], NULL, 10);
    options.stream.query = words[4];
    const char *deadline = getenv("CHXA_DEADLINE_MS");
    if (deadline)
        options.commit_deadline_ms = strtoul(deadline, NULL, 10);
    if (words[6][0])
        options.pending_max = (unsigned)strtoul(words[6], NULL, 10);
    int code = chxa_sink_open(client, &options, len ? state : NULL, len, &sinks[slot], error);
    free(state);
    return code;
}

static int do_write(char **words, struct chxa_sink *sink, struct chxa_error *error)
{
    char row[32];
    unsigned long last = strtoul(words[3], NULL, 10);
    int code = 0;
    for (unsigned long n = strtoul(words[2], NULL, 10); code == 0 && n <= last; n++) {
        int length = snprintf(row, sizeof row, "%lu\n", n);
        code = chxa_sink_write(sink, row, (size_t)length, 1, error);
    }
    return code;
}

static int do_snapshot(char **words, struct chxa_sink *sink, json_t *answer,
                       struct chxa_error *error)
{
    void *state;
    size_t len;
    int code = chxa_sink_snapshot(sink, strtoull(words[2], NULL, 10), words[3][0] ? words[3] : NULL,
                                  &state, &len, error);
    if (code == 0) {
        json_object_set_new(answer, "state", to_hex(state, len));
        chxa_free(state);
    }
    return code;
}

static int do_last(char **words, json_t *answer, struct chxa_error *error)
{
    struct chxa_checkpoint last;
    int code = chxa_sink_last_committed(client, words[1], &last, error);
    if (code == 0) {
        json_object_set_new(answer, "xid", json_string(last.xid));
        json_object_set_new(answer, "sink_epoch", json_integer((json_int_t)last.epoch));
        json_object_set_new(answer, "meta", last.meta ? json_string(last.meta) : json_null());
        chxa_free(last.meta);
    }
    return code;
}

static int command(char **words, json_t *answer, struct chxa_error *error)
{
    unsigned slot = (unsigned)strtoul(words[1], NULL, 10) % SLOTS;
    uint64_t checkpoint = strtoull(words[2], NULL, 10);
    const char *name = words[0];
    int code;
    if (strcmp(name, "open") == 0)
        code = do_open(words, slot, error);
    else if (strcmp(name, "write") == 0)
        code = do_write(words, sinks[slot], error);
    else if (strcmp(name, "snapshot") == 0)
        code = do_snapshot(words, sinks[slot], answer, error);
    else if (strcmp(name, "complete") == 0)
        code = chxa_sink_notify_complete(sinks[slot], checkpoint, error);
    else if (strcmp(name, "aborted") == 0)
        code = chxa_sink_notify_aborted(sinks[slot], checkpoint, error);
    else if (strcmp(name, "last") == 0)
        return do_last(words, answer, error);
    else if (strcmp(name, "close") == 0)
        code = chxa_sink_close(sinks[slot], error), sinks[slot] = NULL;
    else
        abort();
    if (sinks[slot]) {
        json_object_set_new(answer, "pending",
                            json_integer((json_int_t)chxa_sink_pending(sinks[slot])));
        json_object_set_new(answer, "epoch",
                            json_integer((json_int_t)chxa_sink_epoch(sinks[slot])));
    }
    return code;
}

static void run(char *line)
{
    static char nothing[] = "";
    static struct chxa_error error;
    char *words[WORDS_MAX];
    line[strcspn(line, "\n")] = '\0';
    for (unsigned i = 0; i < WORDS_MAX; i++) {
        words[i] = line;
        line += strcspn(line, "\t");
        if (*line)
            *line++ = '\0';
        else
            line = nothing;
    }
    json_t *answer = json_object();
    int code = command(words, answer, &error);
    if (code != error.code)
        abort();
    json_object_set_new(answer, "code", json_integer(code));
    json_object_set_new(answer, "name", json_string(chxa_error_name(code)));
    json_object_set_new(answer, "message", json_string(error.message));
    json_object_set_new(answer, "known", json_boolean(error.outcome == CHXA_OUTCOME_KNOWN));
    json_dumpf(answer, stdout, JSON_COMPACT);
    json_decref(answer);
    puts("");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    struct chxa_client_options options;
    chxa_client_options_init(&options);
    options.urls = (const char *const *)(argv + 1);
    options.n_urls = (size_t)(argc - 1);
    options.write_mode = CHXA_WRITE_FIRST;
    const char *deadline = getenv("CHXA_DEADLINE_MS");
    options.deadline_ms = deadline ? (unsigned)strtoul(deadline, NULL, 10) : 30000;
    if (chxa_client_open(&options, &client, NULL) != 0)
        return 1;
    while (fgets(line, sizeof line, stdin))
        run(line);
    for (unsigned i = 0; i < SLOTS; i++)
        if (chxa_sink_close(sinks[i], NULL) != 0)
            fprintf(stderr, "sink %u could not be closed\n", i);
    chxa_client_close(client);
    return 0;
}
