/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction as the tool shows it.
 */
#include "view.h"

#include "advice.h"
#include "ask.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* So many transactions in doubt are asked for their rows one by one, where the node's list does not tell them; and so many
 * sinks for what they committed last. A list of ten thousand is not the time for ten thousand questions. */
#define LOOKED_MAX 100u
#define SINKS_MAX  100u

static const struct table_column columns[] = {
    {"XID", false, 0, 0},    {"STATE", false, 0, 0}, {"SINCE", false, 0, 0}, {"ROWS", true, 1, 0},
    {"OWNER", false, 2, 24}, {"SINK", false, 3, 32}, {"AGE", false, 4, 0},
};

const char *view_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

int64_t view_number(const json_t *object, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(object, name));
}

void view_init(struct view *view, struct tool *tool)
{
    *view = (struct view){.tool = tool};
    view->sinks = tool_json(json_object());
}

void view_clear(struct view *view)
{
    json_decref(view->live);
    json_decref(view->sinks);
}

static const json_t *sink_of(struct view *view, const char *name)
{
    if (*name == '\0')
        return NULL;
    const json_t *known = json_object_get(view->sinks, name);
    if (known == NULL && json_object_size(view->sinks) < SINKS_MAX) {
        json_t *answer = ask_sink(view->tool, name);
        tool_json_set(view->sinks, name, answer ? answer : json_null());
        known = json_object_get(view->sinks, name);
    }
    return json_is_object(known) ? known : NULL;
}

/* Rows, bytes and parts, from the record itself. */
static void look_up_rows(struct view *view, json_t *record)
{
    static const char *const names[] = {"rows", "bytes", "parts"};
    if (json_object_get(record, "rows") || view->looked >= LOOKED_MAX)
        return;
    view->looked++;
    struct chxa_error error;
    json_t *whole;
    char *path = ask_txn_path(view_text(record, "xid"), "");
    ask(view->tool, NULL, "GET", path, NULL, &whole, &error);
    free(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (json_is_integer(json_object_get(whole, names[i])))
            json_object_set(record, names[i], json_object_get(whole, names[i]));
    json_decref(whole);
}

/* A node tells ages by its own clock; older ones tell points in time only. */
static void put_age(const struct view *view, json_t *record, const char *name, const char *since)
{
    if (json_is_integer(json_object_get(record, name)))
        return;
    int64_t age = view->tool->now_ms - view_number(record, since);
    tool_json_set(record, name, json_integer(age > 0 ? age : 0));
}

void view_complete(struct view *view, json_t *record)
{
    bool in_doubt = advice_in_doubt(record);
    const char *state = advice_state(record);
    bool finished = strcmp(state, "Committed") == 0 || strcmp(state, "Aborted") == 0;
    if (!finished && !view->asked_nodes) {
        view->live = ask_live_nodes(view->tool);
        view->asked_nodes = true;
    }
    if (in_doubt)
        look_up_rows(view, record);
    struct advice_facts facts = {
        .record = record,
        .owner_known = view->live != NULL,
        .owner_live = json_object_get(view->live, view_text(record, "owner")) != NULL,
        .sink = in_doubt ? sink_of(view, view_text(record, "sink")) : NULL,
    };
    struct advice advice;
    advice_make(&facts, &advice);
    put_age(view, record, "age_ms", "created_ms");
    put_age(view, record, "in_state_ms", "changed_ms");
    tool_json_set(record, "in_doubt", json_boolean(in_doubt));
    tool_json_set(record, "owner_live",
                  facts.owner_known && !finished ? json_boolean(facts.owner_live) : json_null());
    tool_json_set(record, "why", json_string(advice.why));
    tool_json_set(record, "next", json_string(advice.next));
    advice_clear(&advice);
}

/* ---- the row ---- */

void view_columns(struct table *table)
{
    table_init(table, columns, sizeof columns / sizeof columns[0]);
}

static const char *colour_of(const json_t *record)
{
    bool is_down = json_is_false(json_object_get(record, "owner_live"));
    if (json_is_true(json_object_get(record, "blocked")) || is_down)
        return "31";
    return json_is_true(json_object_get(record, "in_doubt")) ? "33" : NULL;
}

void view_add_row(struct table *table, const json_t *record)
{
    struct table_row *row = table_add(table);
    char since[32], age[32], rows[32] = "";
    bool blocked = json_is_true(json_object_get(record, "blocked"));
    text_duration(view_number(record, "in_state_ms"), since, sizeof since);
    text_duration(view_number(record, "age_ms"), age, sizeof age);
    if (json_is_integer(json_object_get(record, "rows")))
        text_count((uint64_t)view_number(record, "rows"), rows, sizeof rows);
    char *state = text_safe(advice_state(record));
    row->cells[0] = text_safe(view_text(record, "xid"));
    row->cells[1] = blocked ? tool_printf("%s, blocked", state) : tool_strdup(state);
    row->cells[2] = tool_strdup(since);
    row->cells[3] = tool_strdup(rows);
    row->cells[4] = text_safe(view_text(record, "owner"));
    row->cells[5] = text_safe(view_text(record, "sink"));
    row->cells[6] = tool_strdup(age);
    row->colour = colour_of(record);
    free(state);
    size_t n = 0;
    if (*view_text(record, "why"))
        row->notes[n++] = tool_printf("why:  %s", view_text(record, "why"));
    if (*view_text(record, "next"))
        row->notes[n++] = tool_printf("next: %s", view_text(record, "next"));
}
