/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the cluster, and what became of them.
 */
#include "ask.h"

#include "text.h"
#include "waiting.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEADLINE_MS       30000u
#define LOAD_DEADLINE_MS  600000u
#define NODES_DEADLINE_MS 5000u /* who asks how the nodes are wants to hear it soon */
#define SECRET_BYTES_MAX  4096u
#define IDS_MAX           1000000u

/* ---- the client ---- */

/* The first line of a file; NULL: told why not. */
static char *read_secret(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[SECRET_BYTES_MAX];
    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        tool_complain("cannot read %s: %s", path, file ? "it is empty" : strerror(errno));
        if (file)
            fclose(file);
        return NULL;
    }
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    return tool_keep(tool_strdup(line));
}

/* The words of CHXA_URL, between spaces or commas. */
static void add_words(struct tool_list *list, const char *text)
{
    char *word = tool_keep(tool_strdup(text));
    while (*(word += strspn(word, " ,\t\n")) != '\0') {
        size_t bytes = strcspn(word, " ,\t\n");
        bool more = word[bytes] != '\0';
        word[bytes] = '\0';
        list->items = tool_realloc(list->items, (list->n + 1) * sizeof *list->items);
        list->items[list->n++] = word;
        word += bytes + more;
    }
}

/* A URL without a scheme is http. */
static const char *whole_url(const char *url)
{
    char *whole = tool_keep(strstr(url, "://") ? tool_strdup(url) : tool_printf("http://%s", url));
    for (size_t bytes = strlen(whole); bytes > 0 && whole[bytes - 1] == '/'; bytes--)
        whole[bytes - 1] = '\0';
    return whole;
}

struct tool_list ask_urls(const struct tool *tool)
{
    const struct tool_options *options = tool->options;
    struct tool_list list = {0};
    const char *environment = getenv("CHXA_URL");
    for (size_t i = 0; i < options->url.n; i++)
        add_words(&list, options->url.items[i]);
    if (list.n == 0 && environment)
        add_words(&list, environment);
    if (list.n == 0)
        add_words(&list, "http://127.0.0.1:8124");
    for (size_t i = 0; i < list.n; i++)
        list.items[i] = whole_url(list.items[i]);
    tool_keep(list.items);
    return list;
}

/* Says for whom a command waits. */
static void prepare_waiting(const struct tool *tool, unsigned deadline_ms)
{
    struct tool_list urls = ask_urls(tool);
    char *whom = tool_strdup("");
    for (size_t i = 0; i < urls.n; i++) {
        char *longer = tool_printf("%s%s%s", whom, i ? ", " : "", urls.items[i]);
        free(whom);
        whom = longer;
    }
    waiting_prepare(whom, deadline_ms);
    free(whom);
}

static int open_client(struct tool *tool, unsigned deadline_ms, struct chxa_client **ret_client)
{
    const struct tool_options *given = tool->options;
    struct chxa_client_options options;
    chxa_client_options_init(&options);
    struct tool_list urls = ask_urls(tool);
    options.n_urls = urls.n;
    options.urls = urls.items;
    options.write_mode = CHXA_WRITE_FIRST;
    options.deadline_ms = deadline_ms;
    options.connect_timeout_ms = deadline_ms < 3000 ? deadline_ms : 3000;
    options.request_timeout_ms = deadline_ms;
    options.user = given->user;
    options.ca_file = given->ca_file;
    options.user_agent = "chxa/" CHXA_VERSION;
    if (given->password_file && (options.password = read_secret(given->password_file)) == NULL)
        return TOOL_USAGE;
    if (given->token_file && (options.bearer_token = read_secret(given->token_file)) == NULL)
        return TOOL_USAGE;
    struct chxa_error error;
    if (chxa_client_open(&options, ret_client, &error) != CHXA_OK)
        return tool_usage_error("%s", error.message);
    return TOOL_OK;
}

int ask_open(struct tool *tool)
{
    struct tool_number deadline = tool->options->deadline;
    uint64_t fallback = tool->command == TOOL_CMD_load    ? LOAD_DEADLINE_MS
                        : tool->command == TOOL_CMD_nodes ? NODES_DEADLINE_MS
                                                          : DEADLINE_MS;
    uint64_t ms = deadline.given ? deadline.value : fallback;
    if (ms == 0 || ms > 86400000)
        return tool_usage_error("--deadline: from 1ms to 1d");
    int rc = open_client(tool, (unsigned)ms, &tool->client);
    if (rc == TOOL_OK)
        prepare_waiting(tool, (unsigned)ms);
    return rc;
}

struct chxa_client *ask_open_quick(struct tool *tool, unsigned deadline_ms)
{
    struct chxa_client *client = NULL;
    return open_client(tool, deadline_ms, &client) == TOOL_OK ? client : NULL;
}

/* ---- ends ---- */

int ask_exit_of(const struct chxa_error *error)
{
    if (error->code == CHXA_OK)
        return error->http_status == 202 ? TOOL_UNKNOWN : TOOL_OK;
    switch (error->code) {
    case CHXA_ERR_TXN_NOT_FOUND:
        return TOOL_NOT_FOUND;
    case CHXA_ERR_WRONG_STATE:
    case CHXA_ERR_WRITE_ID_REUSED:
    case CHXA_ERR_SCHEMA_CHANGED:
    case CHXA_ERR_TOO_MANY_PARTS:
    case CHXA_ERR_FENCED:
    case CHXA_ERR_PARTS_LOST:
    case CHXA_ERR_ROLLBACK_ONLY:
    case CHXA_ERR_ROLLED_BACK:
    case CHXA_ERR_HEURISTIC:
        return TOOL_REFUSED;
    case CHXA_ERR_INVALID_XID:
    case CHXA_ERR_INVALID_REQUEST: /* what was said is wrong, whoever found out */
        return TOOL_USAGE;
    case CHXA_ERR_PENDING:
    case CHXA_ERR_BLOCKED:
    case CHXA_ERR_LOST:
        return TOOL_UNKNOWN;
    case CHXA_ERR_UNREACHABLE:
        return TOOL_UNREACHABLE;
    default:
        if (error->outcome == CHXA_OUTCOME_UNKNOWN)
            return TOOL_UNKNOWN;
        if (error->retryable)
            return TOOL_UNREACHABLE;
        return error->http_status == 409 ? TOOL_REFUSED : TOOL_FAILED;
    }
}

json_t *ask_error_json(const struct chxa_error *error)
{
    char *message = text_safe(error->message);
    json_t *object =
        tool_json(json_pack("{s:s, s:s, s:b, s:s}", "code", chxa_error_name(error->code), "message",
                            message, "retryable", error->retryable, "outcome",
                            error->outcome == CHXA_OUTCOME_UNKNOWN ? "unknown" : "known"));
    free(message);
    return object;
}

/* What to say beside the error's own words. */
static const char *hint_of(const struct chxa_error *error)
{
    if (error->code == CHXA_ERR_UNREACHABLE || error->code == CHXA_ERR_BAD_ANSWER)
        return "; is this the address of a chxad? (--url, CHXA_URL)";
    if (error->code == CHXA_ERR_ROUTE_NOT_FOUND || error->code == CHXA_ERR_METHOD_NOT_ALLOWED)
        return "; this is no chxad, or an older one that lacks this";
    if (error->code == CHXA_ERR_FENCED)
        return "; chxa sinks SINK shows its newest epoch. To take over from that writer a larger "
               "one is wanted: chxa recover "
               "SINK without --epoch takes the next";
    if (error->code == CHXA_ERR_TXN_NOT_FOUND)
        return "; it was never begun, or has ended and was forgotten, which does not say how. Is "
               "the id right? What its sink "
               "committed last: chxa sinks SINK";
    return "";
}

int ask_failed(struct tool *tool, const char *what, const struct chxa_error *error)
{
    if (tool->document)
        tool_json_set(tool->document, "error", ask_error_json(error));
    tool_complain("%s: %s: %s%s", what, chxa_error_name(error->code), error->message,
                  hint_of(error));
    return ask_exit_of(error);
}

/* ---- requests ---- */

int ask(struct tool *tool, const char *base_url, const char *method, const char *path,
        const json_t *body, json_t **ret_answer, struct chxa_error *ret_error)
{
    char *sent = body ? json_dumps(body, JSON_COMPACT) : NULL, *answer = NULL;
    size_t bytes = 0;
    waiting_begin();
    int code = chxa_request(tool->client, base_url, method, path, sent, &answer, &bytes, ret_error);
    waiting_end();
    free(sent);
    json_t *json =
        answer ? json_loadb(answer, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    chxa_free(answer);
    if (code == CHXA_OK && !json_is_object(json)) {
        ret_error->code = CHXA_ERR_BAD_ANSWER;
        snprintf(ret_error->message, sizeof ret_error->message, "the answer to %s %s is not JSON",
                 method, path);
    }
    *ret_answer = json;
    return ask_exit_of(ret_error);
}

static void put_encoded(FILE *file, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (isalnum(c) || strchr("-._~:", c))
            fputc(c, file);
        else
            fprintf(file, "%%%02X", c);
    }
}

static char *encode(const char *text)
{
    char *memory = NULL;
    size_t bytes;
    FILE *file = open_memstream(&memory, &bytes);
    if (file) {
        put_encoded(file, text);
        fclose(file);
    }
    return memory ? memory : tool_strdup("");
}

static char *item_path(const char *folder, const char *name, const char *rest)
{
    char *encoded = encode(name);
    char *path = tool_printf("/v1/%s/%s%s", folder, encoded, rest);
    free(encoded);
    return path;
}

char *ask_txn_path(const char *xid, const char *rest)
{
    return item_path("transactions", xid, rest);
}

char *ask_sink_path(const char *sink, const char *rest)
{
    return item_path("sinks", sink, rest);
}

char *ask_query_add(char *query, const char *name, const char *value)
{
    char *encoded = encode(value);
    char *longer = tool_printf("%s%c%s=%s", query, *query ? '&' : '?', name, encoded);
    free(encoded);
    free(query);
    return longer;
}

json_t *ask_live_nodes(struct tool *tool)
{
    struct chxa_error error;
    json_t *answer, *live = NULL;
    if (ask(tool, NULL, "GET", "/v1/nodes", NULL, &answer, &error) == TOOL_OK) {
        live = tool_json(json_object());
        size_t i;
        const json_t *node;
        json_array_foreach(json_object_get(answer, "nodes"), i, node)
        {
            const char *name = json_string_value(json_object_get(node, "node"));
            if (name && json_is_true(json_object_get(node, "live")))
                tool_json_set(live, name, json_true());
        }
    }
    json_decref(answer);
    return live;
}

json_t *ask_sink(struct tool *tool, const char *sink)
{
    struct chxa_error error;
    json_t *answer;
    char *path = ask_sink_path(sink, "");
    int rc = ask(tool, NULL, "GET", path, NULL, &answer, &error);
    free(path);
    if (rc == TOOL_OK)
        return answer;
    json_decref(answer);
    return NULL;
}

/* ---- ids ---- */

static bool is_id(const char *text)
{
    size_t bytes = strlen(text);
    return bytes > 0 && bytes <= CHXA_XID_BYTES_MAX && strcmp(text, ".") != 0 &&
           strcmp(text, "..") != 0 &&
           strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") ==
               bytes;
}

static int add_id(struct tool_list *list, const char *id)
{
    if (!is_id(id))
        return tool_usage_error("'%s' is no id: 1-280 of A-Z a-z 0-9 . _ : -", id);
    list->items = tool_realloc(list->items, (list->n + 1) * sizeof *list->items);
    list->items[list->n++] = id;
    return TOOL_OK;
}

static int read_ids(struct tool_list *list)
{
    char *line = NULL;
    size_t room = 0;
    int rc = TOOL_OK;
    while (rc == TOOL_OK && getline(&line, &room, stdin) >= 0) {
        char *word = line + strspn(line, " \t\r\n");
        word[strcspn(word, " \t\r\n")] = '\0';
        if (list->n >= IDS_MAX)
            rc = tool_usage_error("more than %u ids on standard input", IDS_MAX);
        else if (*word)
            rc = add_id(list, tool_keep(tool_strdup(word)));
    }
    free(line);
    return rc;
}

int ask_ids(struct tool *tool, struct tool_list *ret_list)
{
    int rc = TOOL_OK;
    *ret_list = (struct tool_list){0};
    for (size_t i = 0; i < tool->n_operands && rc == TOOL_OK; i++)
        rc = strcmp(tool->operands[i], "-") == 0 ? read_ids(ret_list)
                                                 : add_id(ret_list, tool->operands[i]);
    return rc;
}

/* ---- people ---- */

bool ask_can_prompt(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

bool ask_person(const char *question, const char *answer)
{
    char *line = NULL;
    size_t room = 0;
    fflush(stdout);
    text_put(stderr, question);
    fputc(' ', stderr);
    fflush(stderr);
    bool is_same = false;
    if (getline(&line, &room, stdin) >= 0) {
        line[strcspn(line, "\r\n")] = '\0';
        is_same = strcmp(line, answer) == 0;
    } else {
        fputc('\n', stderr);
    }
    free(line);
    return is_same;
}

/* ---- reports ---- */

int ask_report(struct tool *tool, const char *xid, const char *action, int exit_code,
               const char *sentence, const char *state, const struct chxa_error *error)
{
    bool failed = error && error->code != CHXA_OK;
    if (tool->document) {
        json_t *results = json_object_get(tool->document, "results");
        char *safe = text_safe(sentence);
        json_t *result = tool_json(json_pack(
            "{s:s, s:s, s:s?, s:i, s:s, s:o?}", "xid", xid, "action", action, "state", state,
            "exit", exit_code, "message", safe, "error", failed ? ask_error_json(error) : NULL));
        free(safe);
        if (results == NULL) {
            results = json_array();
            tool_json_set(tool->document, "results", results);
        }
        if (json_array_append_new(results, result) != 0)
            tool_json(NULL);
        return exit_code;
    }
    FILE *file = exit_code == TOOL_OK ? stdout : stderr;
    const char *colour = exit_code == TOOL_OK ? "32" : "31";
    bool is_coloured = tool->colour && (file == stdout || isatty(STDERR_FILENO));
    if (file == stderr)
        fflush(stdout);
    fprintf(file, "%s: ", xid);
    if (is_coloured)
        fprintf(file, "\033[%sm", colour);
    text_put(file, sentence);
    if (failed) {
        fprintf(file, ": %s: ", chxa_error_name(error->code));
        text_put(file, error->message);
        fputs(hint_of(error), file);
    }
    fputs(is_coloured ? "\033[0m\n" : "\n", file);
    return exit_code;
}
