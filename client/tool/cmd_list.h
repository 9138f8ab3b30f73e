/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of transactions, for the commands that walk them.
 */
#ifndef CHXA_TOOL_CMD_LIST_H
#define CHXA_TOOL_CMD_LIST_H

#include "tool.h"

/* The query of GET /v1/transactions for the filter options: "?…" or "". Free with free(). */
char *list_query(const struct tool_options *options, bool prepared_only);

/* Gets the records of a page; they may be changed. False: no more pages are wanted. */
typedef bool list_function(void *context, json_t *records);
/* Every page of a query. An exit code; an error was told. */
int list_pages(struct tool *tool, const char *query, list_function *each, void *context);

/* Prints the list that the filter options describe; prepared_only: whatever they say, what is Prepared. */
int list_print(struct tool *tool, bool prepared_only);

#endif
