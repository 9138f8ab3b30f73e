/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa nodes and chxa sinks: who is there, and what each has in doubt.
 */
#include "advice.h"
#include "ask.h"
#include "cmd_list.h"
#include "table.h"
#include "text.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READY_DEADLINE_MS 2000u

static const struct table_column node_columns[] = {
    {"NODE", false, 0, 0},    {"LIVE", false, 0, 0},   {"READY", false, 1, 0},
    {"IN DOUBT", true, 0, 0}, {"BLOCKED", true, 2, 0}, {"URL", false, 3, 0},
    {"EPOCH", true, 4, 0},
};
static const struct table_column sink_columns[] = {
    {"SINK", false, 0, 0},    {"EPOCH", true, 2, 0},   {"OPEN", true, 0, 0},
    {"IN DOUBT", true, 0, 0}, {"OLDEST", false, 1, 0}, {"LAST COMMITTED", false, 3, 48},
};

/* Counts by name, over a list: {"n1": {"open", "in_doubt", "blocked", "oldest_ms"}}. */
struct tally {
    const char *member; /* of the record: "owner" or "sink" */
    json_t *by_name;
};

static void raise_count(json_t *entry, const char *name, bool by_one)
{
    if (by_one)
        tool_json_set(entry, name, json_integer(view_number(entry, name) + 1));
}

static bool tally_page(void *context, json_t *records)
{
    struct tally *tally = context;
    size_t i;
    json_t *record;
    json_array_foreach(records, i, record)
    {
        const char *name = view_text(record, tally->member), *state = advice_state(record);
        if (*name == '\0')
            continue;
        json_t *entry = json_object_get(tally->by_name, name);
        if (entry == NULL) {
            entry = tool_json(json_pack("{s:i, s:i, s:i, s:I}", "open", 0, "in_doubt", 0, "blocked",
                                        0, "oldest_ms", (json_int_t)0));
            tool_json_set(tally->by_name, name, entry);
        }
        bool open = strcmp(state, "Committed") != 0 && strcmp(state, "Aborted") != 0;
        int64_t created = view_number(record, "created_ms"),
                oldest = view_number(entry, "oldest_ms");
        raise_count(entry, "open", open);
        raise_count(entry, "in_doubt", advice_in_doubt(record));
        raise_count(entry, "blocked", json_is_true(json_object_get(record, "blocked")));
        if (open && (oldest == 0 || created < oldest))
            tool_json_set(entry, "oldest_ms", json_integer(created));
    }
    return true;
}

static char *count_cell(const json_t *entry, const char *name)
{
    char text[32];
    text_count((uint64_t)view_number(entry, name), text, sizeof text);
    return tool_strdup(text);
}

/* ---- nodes ---- */

/* What keeps a node from serving, asked at itself; NULL: nothing does. Free with free(). */
static char *why_not_ready(struct chxa_client *quick, const char *url)
{
    struct chxa_error error;
    char *body = NULL;
    size_t bytes = 0;
    if (quick == NULL)
        return tool_strdup("it was not asked");
    int code = chxa_request(quick, url, "GET", "/readyz", NULL, &body, &bytes, &error);
    chxa_free(body);
    return code == CHXA_OK ? NULL : tool_strdup(error.message);
}

static void put_node_json(struct tool *tool, json_t *node, const json_t *counts, const char *why)
{
    static const char *const names[] = {"open", "in_doubt", "blocked"};
    bool listed = !json_is_null(json_object_get(node, "live"));
    tool_json_set(node, "ready", json_boolean(why == NULL));
    tool_json_set(node, "why", why ? json_string(why) : json_null());
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tool_json_set(node, names[i],
                      listed ? json_integer(view_number(counts, names[i])) : json_null());
    json_array_append(json_object_get(tool->document, "nodes"), node);
}

/* live: true, false, or null for a node that only its URL is known of. */
static void add_node(struct tool *tool, struct table *table, json_t *node, const json_t *counts,
                     struct chxa_client *quick)
{
    const json_t *live_json = json_object_get(node, "live");
    bool live = json_is_true(live_json), listed = !json_is_null(live_json);
    char *said = live || !listed ? why_not_ready(quick, view_text(node, "url"))
                                 : tool_strdup("its process does not run, or has lost the store");
    char *why = said ? text_safe(said) : NULL;
    free(said);
    if (tool->document) {
        put_node_json(tool, node, counts, why);
        free(why);
        return;
    }
    struct table_row *row = table_add(table);
    row->cells[0] = text_safe(view_text(node, "node"));
    row->cells[1] = tool_strdup(live ? "yes" : listed ? "DOWN" : "?");
    row->cells[2] = tool_strdup(why ? "no" : "yes");
    row->cells[3] = listed ? count_cell(counts, "in_doubt") : tool_strdup("?");
    row->cells[4] = listed ? count_cell(counts, "blocked") : tool_strdup("?");
    row->cells[5] = text_safe(view_text(node, "url"));
    row->cells[6] = listed ? tool_printf("%" PRId64, view_number(node, "epoch")) : tool_strdup("?");
    row->colour = why ? "31" : NULL;
    if (why)
        row->notes[0] = tool_printf("why:  %s", why);
    if (!live && listed && view_number(counts, "open") > 0)
        row->notes[1] = tool_printf(
            "next: start it again; its transactions wait for it. Only if its disk is "
            "gone for good:\nchxa list -q --owner %s | chxa abandon - --force --reason TEXT",
            view_text(node, "node"));
    free(why);
}

/* Nobody could list the nodes: those that were named are asked how they are, one by one. */
static void put_named_nodes(struct tool *tool, struct table *table, struct chxa_client *quick)
{
    struct tool_list urls = ask_urls(tool);
    for (size_t i = 0; i < urls.n; i++) {
        json_t *node = tool_json(json_pack("{s:s, s:s, s:i, s:n}", "node", "?", "url",
                                           urls.items[i], "epoch", 0, "live"));
        add_node(tool, table, node, NULL, quick);
        json_decref(node);
    }
}

int tool_cmd_nodes(struct tool *tool)
{
    struct chxa_error error;
    json_t *answer;
    int rc = ask(tool, NULL, "GET", "/v1/nodes", NULL, &answer, &error);
    struct chxa_client *quick = ask_open_quick(tool, READY_DEADLINE_MS);
    struct table table;
    table_init(&table, node_columns, sizeof node_columns / sizeof node_columns[0]);
    if (tool->document)
        tool_json_set(tool->document, "nodes", json_array());
    if (rc != TOOL_OK) {
        put_named_nodes(tool, &table, quick);
        table_flush(&table, stdout, tool->width, tool->colour);
        chxa_client_close(quick);
        json_decref(answer);
        return ask_failed(tool, "nodes", &error);
    }
    struct tally tally = {.member = "owner", .by_name = tool_json(json_object())};
    rc = list_pages(tool, "?unfinished=1", tally_page, &tally);
    size_t i;
    json_t *node;
    json_array_foreach(json_object_get(answer, "nodes"), i, node) add_node(
        tool, &table, node, json_object_get(tally.by_name, view_text(node, "node")), quick);
    table_flush(&table, stdout, tool->width, tool->colour);
    chxa_client_close(quick);
    json_decref(tally.by_name);
    json_decref(answer);
    return rc;
}

/* ---- sinks ---- */

static char *last_committed(const struct tool *tool, const json_t *state)
{
    const json_t *checkpoint = json_object_get(state, "checkpoint");
    if (!json_is_object(checkpoint))
        return tool_strdup("nothing");
    char ago[32];
    text_duration(tool->now_ms - view_number(checkpoint, "committed_ms"), ago, sizeof ago);
    char *text = tool_printf("%s, %s ago", view_text(checkpoint, "xid"), ago);
    char *safe = text_safe(text);
    free(text);
    return safe;
}

static void add_sink(struct tool *tool, struct table *table, const char *name, const json_t *counts)
{
    json_t *state = ask_sink(tool, name);
    if (tool->document) {
        json_t *checkpoint = json_object_get(state, "checkpoint");
        json_t *entry =
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:O?}", "sink", name, "epoch",
                      (json_int_t)view_number(state, "epoch"), "open",
                      (json_int_t)view_number(counts, "open"), "in_doubt",
                      (json_int_t)view_number(counts, "in_doubt"), "blocked",
                      (json_int_t)view_number(counts, "blocked"), "checkpoint", checkpoint);
        json_array_append_new(json_object_get(tool->document, "sinks"), tool_json(entry));
        json_decref(state);
        return;
    }
    struct table_row *row = table_add(table);
    char oldest[32] = "";
    if (view_number(counts, "oldest_ms") > 0)
        text_duration(tool->now_ms - view_number(counts, "oldest_ms"), oldest, sizeof oldest);
    row->cells[0] = text_safe(name);
    row->cells[1] = tool_printf("%" PRId64, view_number(state, "epoch"));
    row->cells[2] = count_cell(counts, "open");
    row->cells[3] = count_cell(counts, "in_doubt");
    row->cells[4] = tool_strdup(oldest);
    row->cells[5] = last_committed(tool, state);
    row->colour = view_number(counts, "blocked") > 0    ? "31"
                  : view_number(counts, "in_doubt") > 0 ? "33"
                                                        : NULL;
    json_decref(state);
}

static int all_sinks(struct tool *tool)
{
    struct tally tally = {.member = "sink", .by_name = tool_json(json_object())};
    struct table table;
    table_init(&table, sink_columns, sizeof sink_columns / sizeof sink_columns[0]);
    if (tool->document)
        tool_json_set(tool->document, "sinks", json_array());
    int rc = list_pages(tool, tool->options->all ? "" : "?unfinished=1", tally_page, &tally);
    const char *name;
    json_t *counts;
    json_object_foreach (tally.by_name, name, counts)
        add_sink(tool, &table, name, counts);
    bool none = table.n_rows == 0;
    table_flush(&table, stdout, tool->width, tool->colour);
    if (none && rc == TOOL_OK && !tool->document)
        puts("no sink has anything open (chxa sinks --all: also those with finished transactions)");
    json_decref(tally.by_name);
    return rc;
}

static void put_sink(struct tool *tool, json_t *state)
{
    const json_t *checkpoint = json_object_get(state, "checkpoint");
    char *last = last_committed(tool, state), *safe = text_safe(view_text(state, "sink"));
    printf("sink      %s\nepoch     %" PRId64 "\ncommitted %s\n", safe, view_number(state, "epoch"),
           last);
    if (json_is_object(checkpoint)) {
        char *meta = json_dumps(json_object_get(checkpoint, "meta"), JSON_ENCODE_ANY);
        text_wrap(stdout, "meta      ", meta ? meta : "null", tool->width);
        free(meta);
    }
    free(safe);
    free(last);
}

static int one_sink(struct tool *tool, const char *name)
{
    struct chxa_error error;
    json_t *state;
    char *path = ask_sink_path(name, "");
    int rc = ask(tool, NULL, "GET", path, NULL, &state, &error);
    free(path);
    if (rc != TOOL_OK) {
        json_decref(state);
        return ask_failed(tool, name, &error);
    }
    struct view view;
    struct table table;
    view_init(&view, tool);
    view_columns(&table);
    size_t i;
    json_t *record, *open = json_object_get(state, "open");
    json_array_foreach(open, i, record)
    {
        view_complete(&view, record);
        if (!tool->document)
            view_add_row(&table, record);
    }
    if (tool->document) {
        tool_json_set(tool->document, "sink", json_incref(state));
    } else {
        put_sink(tool, state);
        if (table.n_rows > 0)
            putchar('\n');
        table_flush(&table, stdout, tool->width, tool->colour);
    }
    bool unknown = view_number(state, "epoch") == 0 && json_array_size(open) == 0 &&
                   !json_is_object(json_object_get(state, "checkpoint"));
    if (unknown && !tool->document)
        tool_complain("nobody has used a sink of this name");
    view_clear(&view);
    json_decref(state);
    return unknown ? TOOL_NOT_FOUND : TOOL_OK;
}

int tool_cmd_sinks(struct tool *tool)
{
    struct tool_list ids;
    int rc = ask_ids(tool, &ids);
    if (rc == TOOL_OK)
        rc = ids.n == 1 ? one_sink(tool, ids.items[0]) : all_sinks(tool);
    free(ids.items);
    return rc;
}
