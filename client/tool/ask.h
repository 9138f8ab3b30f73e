/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the cluster, their ends as exit codes, and the results that a command reports, as text or in its document.
 */
#ifndef CHXA_TOOL_ASK_H
#define CHXA_TOOL_ASK_H

#include "tool.h"

/* Makes tool->client from the options and the environment. TOOL_OK, or an error that was told. */
int ask_open(struct tool *tool);
/* Another client of the same nodes that gives up soon, for asking how somebody is. NULL: told why not. */
struct chxa_client *ask_open_quick(struct tool *tool, unsigned deadline_ms);

/* The nodes' URLs, as the client has them: --url, else CHXA_URL, else the default. They live until the end. */
struct tool_list ask_urls(const struct tool *tool);

/* The exit code of a call's end. */
int ask_exit_of(const struct chxa_error *error);

/*
 * One request, and its JSON answer in *ret_answer (owned; NULL when there is none). body may be NULL; it is not consumed.
 * base_url NULL: any node. Returns an exit code; nothing is printed.
 */
int ask(struct tool *tool, const char *base_url, const char *method, const char *path,
        const json_t *body, json_t **ret_answer, struct chxa_error *ret_error);

/* "/v1/transactions/{xid}{rest}", the id percent-encoded; free with free(). */
char *ask_txn_path(const char *xid, const char *rest);
char *ask_sink_path(const char *sink, const char *rest);
/* Appends name=value to a query in memory ("" at first), percent-encoded; returns the new one, frees the old. */
char *ask_query_add(char *query, const char *name, const char *value);

/* Tells an error that ends the command: to standard error, and into the document. Returns ask_exit_of(error). */
int ask_failed(struct tool *tool, const char *what, const struct chxa_error *error);

/* {"code", "message", "retryable", "outcome"} */
json_t *ask_error_json(const struct chxa_error *error);

/* The live nodes by name, {"n1": true, …}; NULL when the list could not be read. */
json_t *ask_live_nodes(struct tool *tool);
/* A SinkState, or NULL. */
json_t *ask_sink(struct tool *tool, const char *sink);

/*
 * The operands, or the lines of standard input where one is "-". Returns TOOL_OK, or TOOL_USAGE when one is no id (told).
 * The strings and *ret_list live until the end.
 */
int ask_ids(struct tool *tool, struct tool_list *ret_list);

/* True when a person can be asked: standard input and standard error are terminals. */
bool ask_can_prompt(void);
/* Asks a person to type `answer`; true when that is what was typed. */
bool ask_person(const char *question, const char *answer);

/* One line of a command's report about one transaction, and its entry in the document's "results". error may be NULL. */
int ask_report(struct tool *tool, const char *xid, const char *action, int exit_code,
               const char *sentence, const char *state, const struct chxa_error *error);

#endif
