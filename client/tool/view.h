/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction as the tool shows it: the entry of a --json document, and the row of a table.
 */
#ifndef CHXA_TOOL_VIEW_H
#define CHXA_TOOL_VIEW_H

#include "table.h"
#include "tool.h"

/* What is asked once and used for many transactions. */
struct view {
    struct tool *tool;
    bool asked_nodes;
    json_t *live;  /* live nodes by name, or NULL: the list could not be read */
    json_t *sinks; /* SinkState by name; null: could not be read */
    size_t looked; /* transactions whose rows were asked for one by one */
};

void view_init(struct view *view, struct tool *tool);
void view_clear(struct view *view);

/*
 * Adds to a Transaction what the tool knows besides: age_ms, in_state_ms, in_doubt, owner_live (or null), why, next; and for
 * one in doubt its rows, where the list did not tell them. Changes *record in place.
 */
void view_complete(struct view *view, json_t *record);

/* Adds the row of a completed record. */
void view_columns(struct table *table);
void view_add_row(struct table *table, const json_t *record);

/* A string member, or "". */
const char *view_text(const json_t *object, const char *name);
int64_t view_number(const json_t *object, const char *name);

#endif
