/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa list, and chxa recover without a sink: the cluster's transactions, page by page. A page is printed before the next
 * is asked for, so a list of any length starts at once and needs no memory.
 */
#include "cmd_list.h"

#include "advice.h"
#include "ask.h"
#include "text.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ROWS "1000" /* the most that a node gives */

/* What the list has seen so far. */
struct totals {
    uint64_t n, in_doubt, blocked;
};

struct listing {
    struct tool *tool;
    struct view view;
    struct table table;
    struct totals totals;
    uint64_t limit; /* UINT64_MAX: none */
};

/* ---- the filter ---- */

static char *comma_list(const struct tool_list *list)
{
    char *text = tool_strdup("");
    for (size_t i = 0; i < list->n; i++) {
        char *longer = tool_printf("%s%s%s", text, i ? "," : "", list->items[i]);
        free(text);
        text = longer;
    }
    return text;
}

static bool is_state(const char *text, size_t bytes)
{
    for (int state = CHXA_STATE_INITIALIZED; state <= CHXA_STATE_ABORTED; state++) {
        const char *name = chxa_state_name((enum chxa_txn_state)state);
        if (strlen(name) == bytes && memcmp(name, text, bytes) == 0)
            return true;
    }
    return false;
}

/* --state: names of states, separated by commas. */
static int check_states(const struct tool_options *options)
{
    for (size_t i = 0; i < options->state.n; i++) {
        const char *word = options->state.items[i];
        while (true) {
            size_t bytes = strcspn(word, ",");
            if (!is_state(word, bytes))
                return tool_usage_error("--state: '%.*s' is no state; there are Initialized, "
                                        "Prepared, Committing, Committed, Aborting, Aborted",
                                        (int)bytes, word);
            if (word[bytes] == '\0')
                break;
            word += bytes + 1;
        }
    }
    return TOOL_OK;
}

char *list_query(const struct tool_options *options, bool prepared_only)
{
    char *query = tool_strdup("");
    char *states = prepared_only ? tool_strdup("Prepared") : comma_list(&options->state);
    if (*states)
        query = ask_query_add(query, "state", states);
    else if (options->in_doubt)
        query = ask_query_add(query, "state", "Prepared,Committing,Aborting");
    else if (!options->all)
        query = ask_query_add(query, "unfinished", "1");
    free(states);
    if (options->owner)
        query = ask_query_add(query, "owner", options->owner);
    if (options->sink)
        query = ask_query_add(query, "sink", options->sink);
    if (options->table)
        query = ask_query_add(query, "table", options->table);
    if (options->older_than.given) {
        char number[24];
        snprintf(number, sizeof number, "%" PRIu64, options->older_than.value);
        query = ask_query_add(query, "older_than_ms", number);
    }
    if (options->in_doubt && options->state.n)
        query = ask_query_add(query, "in_doubt", "1");
    if (options->blocked)
        query = ask_query_add(query, "blocked", "1");
    return query;
}

int list_pages(struct tool *tool, const char *query, list_function *each, void *context)
{
    char *next = tool_strdup("");
    int rc = TOOL_OK;
    bool more = true;
    while (more && rc == TOOL_OK) {
        char *page = ask_query_add(tool_strdup(query), "limit", PAGE_ROWS);
        if (*next)
            page = ask_query_add(page, "page", next);
        char *path = tool_printf("/v1/transactions%s", page);
        struct chxa_error error;
        json_t *answer;
        rc = ask(tool, NULL, "GET", path, NULL, &answer, &error);
        free(path);
        free(page);
        if (rc != TOOL_OK) {
            ask_failed(tool, "list", &error);
        } else {
            more = each(context, json_object_get(answer, "transactions"));
            const char *token = json_string_value(json_object_get(answer, "next"));
            more = more && token != NULL;
            free(next);
            next = tool_strdup(token ? token : "");
        }
        json_decref(answer);
    }
    free(next);
    return rc;
}

/* ---- printing ---- */

static void count(struct totals *totals, const json_t *record)
{
    totals->n++;
    totals->in_doubt += advice_in_doubt(record);
    totals->blocked += json_is_true(json_object_get(record, "blocked"));
}

/* One entry of "transactions"; the document is printed as it goes. */
static void put_json(const struct listing *listing, const json_t *record)
{
    char *text = json_dumps(record, JSON_COMPACT | JSON_ENSURE_ASCII);
    printf("%s\n    %s", listing->totals.n > 1 ? "," : "", text ? text : "null");
    free(text);
}

static int older_first(const void *left, const void *right)
{
    int64_t a = view_number(*(json_t *const *)left, "created_ms");
    int64_t b = view_number(*(json_t *const *)right, "created_ms");
    return (a > b) - (a < b);
}

/* The store's order is that of the ids; people want to see what waits longest. */
static void sort(json_t *records)
{
    size_t n = json_array_size(records);
    json_t **sorted = tool_alloc(n * sizeof(json_t *));
    for (size_t i = 0; i < n; i++)
        sorted[i] = json_incref(json_array_get(records, i));
    qsort(sorted, n, sizeof(json_t *), older_first);
    for (size_t i = 0; i < n; i++)
        json_array_set_new(records, i, sorted[i]);
    free(sorted);
}

static bool page_came(void *context, json_t *records)
{
    struct listing *listing = context;
    struct tool *tool = listing->tool;
    sort(records);
    size_t i;
    json_t *record;
    json_array_foreach(records, i, record)
    {
        if (listing->totals.n >= listing->limit)
            break;
        count(&listing->totals, record);
        if (tool->options->quiet && !tool->document) {
            puts(view_text(record, "xid"));
            continue;
        }
        view_complete(&listing->view, record);
        if (tool->document)
            put_json(listing, record);
        else
            view_add_row(&listing->table, record);
    }
    table_flush(&listing->table, stdout, tool->width, tool->colour);
    fflush(stdout);
    return listing->totals.n < listing->limit;
}

static void put_summary(const struct listing *listing, bool prepared_only)
{
    const struct totals *totals = &listing->totals;
    bool coloured = listing->tool->colour;
    if (totals->n == 0)
        puts(prepared_only ? "nothing is prepared" : "no transaction");
    else
        printf("\n%" PRIu64 " transaction%s, %" PRIu64 " in doubt, %s%" PRIu64 " blocked%s\n",
               totals->n, totals->n == 1 ? "" : "s", totals->in_doubt,
               coloured && totals->blocked ? "\033[31m" : "", totals->blocked,
               coloured && totals->blocked ? "\033[0m" : "");
}

int list_print(struct tool *tool, bool prepared_only)
{
    struct listing listing = {.tool = tool, .limit = UINT64_MAX};
    int rc = check_states(tool->options);
    if (rc != TOOL_OK)
        return rc;
    if (tool->options->limit.given)
        listing.limit = tool->options->limit.value;
    view_init(&listing.view, tool);
    view_columns(&listing.table);
    if (tool->document) {
        printf("{\n  \"chxa\": 1,\n  \"command\": \"%s\",\n  \"transactions\": [",
               tool_command_name(tool->command));
        tool->is_streaming = true;
    }
    char *query = list_query(tool->options, prepared_only);
    rc = list_pages(tool, query, page_came, &listing);
    free(query);
    if (tool->document) {
        char *error = json_dumps(json_object_get(tool->document, "error"),
                                 JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
        printf("\n  ],\n  \"in_doubt\": %" PRIu64 ",\n  \"blocked\": %" PRIu64
               ",\n%s%s%s  \"exit\": %d\n}\n",
               listing.totals.in_doubt, listing.totals.blocked, error ? "  \"error\": " : "",
               error ? error : "", error ? ",\n" : "", rc);
        free(error);
    } else if (rc == TOOL_OK && !tool->options->quiet) {
        put_summary(&listing, prepared_only);
    }
    view_clear(&listing.view);
    return rc;
}

int tool_cmd_list(struct tool *tool)
{
    return list_print(tool, false);
}
