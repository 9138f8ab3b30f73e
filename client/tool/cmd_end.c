/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa commit, rollback, forget, resolve and abandon: each takes ids, does one thing to each of them, reports each, and
 * exits with the worst end. What throws staged rows away asks for the id on a terminal, and wants --force elsewhere.
 */
#include "advice.h"
#include "ask.h"
#include "text.h"
#include "view.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef int one_function(struct tool *tool, const char *xid);

/* ---- questions ---- */

/* The action as a sentence has it: "roll it back", "commit it"; free with free(). */
static char *do_it(const char *action)
{
    return strcmp(action, "rollback") == 0 ? tool_strdup("roll it back")
                                           : tool_printf("%s it", action);
}

/* TOOL_OK: go on. What loses rows wants the id, or --force. */
static int ask_to_lose(struct tool *tool, const char *xid, const char *action, const char *what)
{
    if (tool->options->force)
        return TOOL_OK;
    if (!ask_can_prompt()) {
        char *sentence = tool_printf("%s; --force does it all the same", what);
        ask_report(tool, xid, action, TOOL_DECLINED, sentence, NULL, NULL);
        free(sentence);
        return TOOL_DECLINED;
    }
    char *doing = do_it(action);
    char *question = tool_printf("%s: %s. Type the id to %s:", xid, what, doing);
    bool agreed = ask_person(question, xid);
    free(question);
    free(doing);
    if (agreed)
        return TOOL_OK;
    return ask_report(tool, xid, action, TOOL_DECLINED, "that is not the id; nothing was done",
                      NULL, NULL);
}

/* Several at once, by a person: one question, unless --yes. */
static int ask_for_many(struct tool *tool, const char *action, size_t n)
{
    if (n < 2 || tool->options->yes || tool->options->force || tool->options->dry_run ||
        !ask_can_prompt())
        return TOOL_OK;
    char *question = tool_printf("%s %zu transactions? Type yes:", action, n);
    bool agreed = ask_person(question, "yes");
    free(question);
    if (agreed)
        return TOOL_OK;
    tool_complain("nothing was done");
    return TOOL_DECLINED;
}

#define REASON_BYTES_MAX 1024u

/* As a node takes it: said here, the sentence is clearer. */
static int check_reason(const struct tool *tool)
{
    const char *reason = tool->options->reason;
    if (reason == NULL)
        return TOOL_OK;
    json_t *text = json_string(reason);
    bool good = text != NULL && *reason && strlen(reason) <= REASON_BYTES_MAX;
    for (const char *at = reason; *at; at++)
        good = good && (unsigned char)*at >= 0x20 && *at != 0x7f;
    json_decref(text);
    return good ? TOOL_OK
                : tool_usage_error("--reason: 1 to %u bytes of text in one line", REASON_BYTES_MAX);
}

static int each_id(struct tool *tool, one_function *one)
{
    struct tool_list ids;
    int rc = check_reason(tool);
    if (rc != TOOL_OK)
        return rc;
    rc = ask_ids(tool, &ids);
    if (tool->document)
        tool_json_set(tool->document, "results", json_array());
    for (size_t i = 0; rc != TOOL_USAGE && i < ids.n; i++)
        rc = tool_exit_worse(rc, one(tool, ids.items[i]));
    free(ids.items);
    return rc;
}

static int each_id_asking(struct tool *tool, one_function *one, const char *action)
{
    int rc = ask_for_many(tool, action, tool->n_operands);
    return rc == TOOL_OK ? each_id(tool, one) : rc;
}

/* ---- the record before ---- */

/* The record, or NULL: the reason was reported, and is in *ret_rc. */
static json_t *look(struct tool *tool, const char *xid, const char *action, int *ret_rc)
{
    struct chxa_error error;
    json_t *record;
    char *path = ask_txn_path(xid, "");
    *ret_rc = ask(tool, NULL, "GET", path, NULL, &record, &error);
    free(path);
    if (*ret_rc == TOOL_OK)
        return record;
    json_decref(record);
    ask_report(tool, xid, action, *ret_rc, "nothing was done", NULL, &error);
    return NULL;
}

/* "Prepared, 12 000 rows"; free with free(). */
static char *describe(const json_t *record)
{
    char rows[32];
    int64_t n = view_number(record, "rows");
    text_count((uint64_t)n, rows, sizeof rows);
    return tool_printf("%s, %s row%s", advice_state(record), rows, n == 1 ? "" : "s");
}

static bool is_state(const json_t *record, const char *state)
{
    return strcmp(advice_state(record), state) == 0;
}

/* Says what would be done: allowed as in the state table of PROTOCOL.md. */
static int report_dry_run(struct tool *tool, const json_t *record, const char *action, bool allowed)
{
    const char *xid = view_text(record, "xid");
    char *now = describe(record), *doing = do_it(action);
    bool incomplete = strcmp(action, "commit") == 0 && is_state(record, "Initialized");
    char *sentence = allowed ? tool_printf("would %s (it is %s)", doing, now)
                             : tool_printf("could not %s: it is %s%s", doing, now,
                                           incomplete ? "; with --one-phase it could" : "");
    int rc = ask_report(tool, xid, action, allowed ? TOOL_OK : TOOL_REFUSED, sentence,
                        advice_state(record), NULL);
    free(sentence);
    free(doing);
    free(now);
    return rc;
}

static const char *state_after(const struct chxa_error *error)
{
    return error->state == CHXA_STATE_UNKNOWN ? NULL : chxa_state_name(error->state);
}

/* Reports the end of a call of the library. */
static int report_end(struct tool *tool, const char *xid, const char *action, const char *done,
                      const char *state, const struct chxa_error *error)
{
    int rc = ask_exit_of(error);
    bool never_prepared = strcmp(action, "commit") == 0 && error->code == CHXA_ERR_WRONG_STATE &&
                          error->state == CHXA_STATE_INITIALIZED;
    const char *sentence = rc == TOOL_OK ? done
                           : error->code == CHXA_ERR_BLOCKED
                               ? "not finished; chxa show says what can be done"
                           : rc == TOOL_UNKNOWN ? "not finished, or not known: ask again"
                           : never_prepared     ? "refused without --one-phase"
                           : rc == TOOL_REFUSED ? "refused"
                                                : "failed";
    return ask_report(tool, xid, action, rc, sentence, rc == TOOL_OK ? state : state_after(error),
                      error);
}

static json_t *reason_body(const struct tool *tool)
{
    if (tool->options->reason == NULL)
        return tool_json(json_object());
    return tool_json(json_pack("{s:s}", "reason", tool->options->reason));
}

/* ---- commit ---- */

/* With a reason the decision is sent by ourselves, and the library then waits for its end. */
static int decide_commit(struct tool *tool, const char *xid, struct chxa_error *error)
{
    json_t *body = reason_body(tool), *answer;
    char *path = ask_txn_path(xid, "/commit?wait_ms=0");
    int rc = ask(tool, NULL, "POST", path, body, &answer, error);
    free(path);
    json_decref(body);
    json_decref(answer);
    return rc;
}

static int commit_one(struct tool *tool, const char *xid)
{
    const struct tool_options *options = tool->options;
    struct chxa_error error;
    if (options->dry_run || options->reason) {
        int rc;
        json_t *record = look(tool, xid, "commit", &rc);
        if (record == NULL)
            return rc;
        bool open = is_state(record, "Initialized");
        bool allowed = (open && options->one_phase) || is_state(record, "Prepared") ||
                       is_state(record, "Committing") || is_state(record, "Committed");
        if (options->dry_run || !allowed)
            rc = report_dry_run(tool, record, "commit", allowed);
        json_decref(record);
        if (options->dry_run || !allowed)
            return rc;
        rc = decide_commit(tool, xid, &error);
        if (rc != TOOL_OK && rc != TOOL_UNKNOWN)
            return report_end(tool, xid, "commit", "", NULL, &error);
    }
    waiting_begin();
    (void)!chxa_commit(tool->client, xid, NULL, options->one_phase, 0, &error);
    waiting_end();
    return report_end(tool, xid, "commit", "committed", "Committed", &error);
}

int tool_cmd_commit(struct tool *tool)
{
    return each_id_asking(tool, commit_one, "commit");
}

/* ---- rollback ---- */

static int rollback_one(struct tool *tool, const char *xid)
{
    int rc;
    json_t *record = look(tool, xid, "rollback", &rc);
    if (record == NULL)
        return rc;
    bool allowed = !is_state(record, "Committing") && !is_state(record, "Committed");
    if (tool->options->dry_run || !allowed) {
        rc = report_dry_run(tool, record, "rollback", allowed);
        json_decref(record);
        return rc;
    }
    if (is_state(record, "Prepared")) {
        char *now = describe(record);
        char *what = tool_printf("it is %s, which its writer was promised", now);
        rc = ask_to_lose(tool, xid, "rollback", what);
        free(what);
        free(now);
    }
    json_decref(record);
    if (rc != TOOL_OK)
        return rc;
    struct chxa_error error;
    waiting_begin();
    (void)!chxa_rollback(tool->client, xid, NULL, tool->options->reason, 0, &error);
    waiting_end();
    return report_end(tool, xid, "rollback", "rolled back", "Aborted", &error);
}

int tool_cmd_rollback(struct tool *tool)
{
    return each_id(tool, rollback_one);
}

/* ---- forget ---- */

static int forget_one(struct tool *tool, const char *xid)
{
    int rc;
    json_t *record = look(tool, xid, "forget", &rc);
    if (record == NULL)
        return rc;
    bool allowed = is_state(record, "Committed") || is_state(record, "Aborted");
    if (tool->options->dry_run || !allowed) {
        rc = report_dry_run(tool, record, "forget", allowed);
        json_decref(record);
        return rc;
    }
    json_decref(record);
    struct chxa_error error;
    waiting_begin();
    (void)!chxa_forget(tool->client, xid, &error);
    waiting_end();
    return report_end(tool, xid, "forget", "forgotten", NULL, &error);
}

int tool_cmd_forget(struct tool *tool)
{
    return each_id_asking(tool, forget_one, "forget");
}

/* ---- resolve ---- */

static const char *resolution(const struct tool_options *options)
{
    return options->retry ? "retry" : options->convert ? "convert" : "discard";
}

/* POSTs a body to a verb of the transaction, and reports where it led. */
static int post(struct tool *tool, const char *xid, const char *verb, const char *action,
                json_t *body)
{
    struct chxa_error error;
    json_t *answer;
    char *rest = tool_printf("/%s", verb), *path = ask_txn_path(xid, rest);
    int rc = ask(tool, NULL, "POST", path, body, &answer, &error);
    free(rest);
    free(path);
    json_decref(body);
    const char *state = json_string_value(json_object_get(answer, "state"));
    char *sentence = rc == TOOL_OK ? tool_printf("%s: it is %s now", action, state ? state : "done")
                     : error.code == CHXA_ERR_BLOCKED ? tool_printf("%s: still blocked", action)
                     : rc == TOOL_UNKNOWN
                         ? tool_printf("%s: under way; it is %s. To wait for the end: chxa show %s",
                                       action, state ? state : "not known", xid)
                         : tool_printf("%s refused", action);
    ask_report(tool, xid, action, rc, sentence, state, &error);
    free(sentence);
    json_decref(answer);
    return rc;
}

static int resolve_one(struct tool *tool, const char *xid)
{
    const struct tool_options *options = tool->options;
    const char *action = resolution(options);
    int rc;
    json_t *record = look(tool, xid, action, &rc);
    if (record == NULL)
        return rc;
    bool blocked = json_is_true(json_object_get(record, "blocked"));
    bool allowed = is_state(record, "Committing") && (options->retry || blocked);
    if (options->dry_run || !allowed) {
        rc = report_dry_run(tool, record, action, allowed);
        json_decref(record);
        return rc;
    }
    if (options->discard) {
        char *now = describe(record);
        char *what = tool_printf("it is %s; those that cannot be attached are given up", now);
        rc = ask_to_lose(tool, xid, action, what);
        free(what);
        free(now);
    }
    json_decref(record);
    if (rc != TOOL_OK)
        return rc;
    json_t *body = reason_body(tool);
    tool_json_set(body, "action", json_string(action));
    return post(tool, xid, "resolve", action, body);
}

int tool_cmd_resolve(struct tool *tool)
{
    const struct tool_options *options = tool->options;
    if (options->retry + options->convert + options->discard != 1)
        return tool_usage_error("resolve: say one of --retry, --convert, --discard");
    if (options->discard && options->reason == NULL)
        return tool_usage_error("resolve --discard wants --reason: it is kept in the record");
    return each_id(tool, resolve_one);
}

/* ---- abandon ---- */

static int abandon_one(struct tool *tool, const char *xid)
{
    int rc;
    json_t *record = look(tool, xid, "abandon", &rc);
    if (record == NULL)
        return rc;
    bool finished = is_state(record, "Committed") || is_state(record, "Aborted");
    if (tool->options->dry_run || finished) {
        rc = report_dry_run(tool, record, "abandon", !finished);
        json_decref(record);
        return rc;
    }
    char *now = describe(record);
    char *what = tool_printf("it is %s; what node %s staged for it is lost with that node", now,
                             view_text(record, "owner"));
    rc = ask_to_lose(tool, xid, "abandon", what);
    free(what);
    free(now);
    json_decref(record);
    return rc == TOOL_OK ? post(tool, xid, "abandon", "abandon", reason_body(tool)) : rc;
}

int tool_cmd_abandon(struct tool *tool)
{
    if (tool->options->reason == NULL)
        return tool_usage_error("abandon wants --reason: it is kept in the record");
    return each_id(tool, abandon_one);
}
