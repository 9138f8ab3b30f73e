/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa show: everything about a transaction.
 */
#include "advice.h"
#include "ask.h"
#include "table.h"
#include "text.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct table_column write_columns[] = {
    {"WRITE", false, 0, 0}, {"TABLE", false, 1, 0}, {"ROWS", true, 0, 0},
    {"BYTES", true, 3, 0},  {"PARTS", true, 2, 0},  {"AT", false, 4, 0},
};
static const struct table_column part_columns[] = {
    {"PART", false, 0, 0}, {"PARTITION", false, 2, 24}, {"ROWS", true, 0, 0},
    {"BYTES", true, 3, 0}, {"", false, 1, 0},
};

static void put_field(const struct tool *tool, const char *label, const char *text)
{
    char *head = tool_printf("%-10s", label);
    if (*text)
        text_wrap(stdout, head, text, tool->width);
    free(head);
}

static void put_when(const struct tool *tool, const char *label, int64_t unix_ms, int64_t ago_ms)
{
    char time[40], ago[32];
    text_time(unix_ms, time, sizeof time);
    text_duration(ago_ms, ago, sizeof ago);
    char *text = tool_printf("%s (%s ago)", time, ago);
    put_field(tool, label, text);
    free(text);
}

static char *count_cell(const json_t *object, const char *name)
{
    char text[32];
    text_count((uint64_t)view_number(object, name), text, sizeof text);
    return tool_strdup(text);
}

static char *bytes_cell(const json_t *object)
{
    char text[32];
    text_bytes((uint64_t)view_number(object, "bytes"), text, sizeof text);
    return tool_strdup(text);
}

static char *joined(const char *between, const char *one, const char *two)
{
    char *whole = tool_printf("%s%s%s", one, between, two);
    char *safe = text_safe(whole);
    free(whole);
    return safe;
}

static void put_writes(const struct tool *tool, const json_t *record)
{
    struct table table;
    size_t i;
    const json_t *write;
    table_init(&table, write_columns, sizeof write_columns / sizeof write_columns[0]);
    json_array_foreach(json_object_get(record, "writes"), i, write)
    {
        struct table_row *row = table_add(&table);
        char at[40];
        text_time(view_number(write, "time_ms"), at, sizeof at);
        row->cells[0] = text_safe(view_text(write, "write_id"));
        row->cells[1] = joined(".", view_text(write, "database"), view_text(write, "table"));
        row->cells[2] = count_cell(write, "rows");
        row->cells[3] = bytes_cell(write);
        row->cells[4] = tool_printf("%zu", json_array_size(json_object_get(write, "parts")));
        row->cells[5] = tool_strdup(at);
    }
    if (table.n_rows > 0)
        putchar('\n');
    table_flush(&table, stdout, tool->width, tool->colour);
}

static void put_parts(const struct tool *tool, const json_t *record)
{
    struct table table;
    size_t i, j;
    const json_t *write, *part;
    bool converted = *view_text(record, "converted_to") != '\0';
    table_init(&table, part_columns, sizeof part_columns / sizeof part_columns[0]);
    json_array_foreach(json_object_get(record, "writes"), i, write)
    {
        json_array_foreach(json_object_get(write, "parts"), j, part)
        {
            struct table_row *row = table_add(&table);
            bool discarded = json_is_true(json_object_get(part, "discarded"));
            row->cells[0] = text_safe(view_text(part, "name"));
            row->cells[1] = text_safe(view_text(part, "partition_id"));
            row->cells[2] = count_cell(part, "rows");
            row->cells[3] = bytes_cell(part);
            row->cells[4] = tool_strdup(!discarded ? "" : converted ? "converted" : "given up");
            row->colour = discarded && !converted ? "31" : NULL;
        }
    }
    if (table.n_rows > 0)
        putchar('\n');
    table_flush(&table, stdout, tool->width, tool->colour);
}

static void put_sums(const struct tool *tool, const json_t *record)
{
    char rows[32], bytes[32];
    text_count((uint64_t)view_number(record, "rows"), rows, sizeof rows);
    text_bytes((uint64_t)view_number(record, "bytes"), bytes, sizeof bytes);
    size_t n_writes = json_array_size(json_object_get(record, "writes"));
    int64_t n_parts = view_number(record, "parts");
    char *text = tool_printf("%s in %zu write%s, %" PRId64 " part%s, %s", rows, n_writes,
                             n_writes == 1 ? "" : "s", n_parts, n_parts == 1 ? "" : "s", bytes);
    put_field(tool, "rows", text);
    free(text);
    if (view_number(record, "discarded_rows") > 0 || view_number(record, "discarded_parts") > 0) {
        char *lost = tool_printf("%" PRId64 " rows in %" PRId64 " parts",
                                 view_number(record, "discarded_rows"),
                                 view_number(record, "discarded_parts"));
        put_field(tool, *view_text(record, "converted_to") ? "converted" : "given up", lost);
        free(lost);
    }
}

static void put_record(const struct tool *tool, const json_t *record)
{
    const json_t *meta = json_object_get(record, "meta");
    bool blocked = json_is_true(json_object_get(record, "blocked"));
    bool is_down = json_is_false(json_object_get(record, "owner_live"));
    put_field(tool, "xid", view_text(record, "xid"));
    char *state = tool_printf("%s%s", advice_state(record), blocked ? ", blocked" : "");
    put_field(tool, "state", state);
    free(state);
    put_when(tool, "since", view_number(record, "changed_ms"), view_number(record, "in_state_ms"));
    put_when(tool, "begun", view_number(record, "created_ms"), view_number(record, "age_ms"));
    char *owner = tool_printf("%s, %s%s", view_text(record, "owner"),
                              view_text(record, "owner_url"), is_down ? ", DOWN" : "");
    put_field(tool, "owner", owner);
    free(owner);
    if (*view_text(record, "sink")) {
        char *sink = tool_printf("%s, epoch %" PRId64, view_text(record, "sink"),
                                 view_number(record, "epoch"));
        put_field(tool, "sink", sink);
        free(sink);
    }
    if (meta && !json_is_null(meta)) {
        char *text = json_dumps(meta, JSON_ENCODE_ANY | JSON_COMPACT);
        put_field(tool, "meta", text ? text : "");
        free(text);
    }
    if (json_is_true(json_object_get(record, "gather")) &&
        strcmp(advice_state(record), chxa_state_name(CHXA_STATE_INITIALIZED)) == 0)
        put_field(tool, "gathers",
                  "small writes; their rows are counted when their INSERT has ended");
    put_sums(tool, record);
    put_field(tool, "given", view_text(record, "given_reason"));
    put_field(tool, "heuristic", view_text(record, "heuristic"));
    put_field(tool, "abandoned", view_text(record, "abandoned_by"));
    put_field(tool, "became", view_text(record, "converted_to"));
    put_field(tool, "why", view_text(record, "why"));
    put_field(tool, "next", view_text(record, "next"));
    put_writes(tool, record);
    if (tool->options->parts)
        put_parts(tool, record);
}

static int show(struct tool *tool, struct view *view, const char *xid, bool is_first)
{
    struct chxa_error error;
    json_t *record;
    char *path = ask_txn_path(xid, "");
    int rc = ask(tool, NULL, "GET", path, NULL, &record, &error);
    free(path);
    if (rc != TOOL_OK) {
        json_decref(record);
        return ask_failed(tool, xid, &error);
    }
    view_complete(view, record);
    if (tool->document) {
        json_array_append(json_object_get(tool->document, "transactions"), record);
    } else {
        if (!is_first)
            putchar('\n');
        put_record(tool, record);
    }
    json_decref(record);
    return TOOL_OK;
}

int tool_cmd_show(struct tool *tool)
{
    struct tool_list ids;
    int rc = ask_ids(tool, &ids);
    if (rc != TOOL_OK)
        return rc;
    struct view view;
    view_init(&view, tool);
    if (tool->document)
        tool_json_set(tool->document, "transactions", json_array());
    for (size_t i = 0; i < ids.n; i++)
        rc = tool_exit_worse(rc, show(tool, &view, ids.items[i], i == 0));
    view_clear(&view);
    free(ids.items);
    return rc;
}
