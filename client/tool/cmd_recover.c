/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa recover: without a sink, what is prepared and what is safe, which changes nothing. With a sink, what that sink's
 * writer does when it starts: fence older epochs, commit what a checkpoint names, roll back the rest. The plan is shown first.
 */
#include "advice.h"
#include "ask.h"
#include "cmd_list.h"
#include "text.h"
#include "view.h"
#include "waiting.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What recovery will do, in the order of the sink's list; then what --commit names besides. */
struct plan {
    struct tool *tool;
    const char *sink;
    json_t *state; /* SinkState */
    uint64_t epoch;
    size_t n_rollback, n_prepared_rollback;
};

static bool is_listed(const struct tool_list *list, const char *xid)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], xid) == 0)
            return true;
    return false;
}

static const json_t *find_open(const struct plan *plan, const char *xid)
{
    size_t i;
    const json_t *record;
    json_array_foreach(json_object_get(plan->state, "open"), i,
                       record) if (strcmp(view_text(record, "xid"), xid) == 0) return record;
    return NULL;
}

/* Each transaction with what is planned: into the document, or as lines. */
static void put_plan(struct plan *plan, json_t *planned)
{
    size_t i;
    const json_t *record;
    const struct tool_list *commit = &plan->tool->options->commit;
    json_array_foreach(json_object_get(plan->state, "open"), i, record)
    {
        const char *xid = view_text(record, "xid");
        bool commits = is_listed(commit, xid) || strcmp(advice_state(record), "Committing") == 0;
        plan->n_rollback += !commits;
        plan->n_prepared_rollback += !commits && strcmp(advice_state(record), "Prepared") == 0;
        json_t *entry = json_pack("{s:s, s:s, s:s}", "xid", xid, "state", advice_state(record),
                                  "action", commits ? "commit" : "rollback");
        json_array_append_new(planned, tool_json(entry));
    }
    for (size_t k = 0; k < commit->n; k++) {
        if (find_open(plan, commit->items[k]))
            continue;
        json_t *entry =
            json_pack("{s:s, s:n, s:s}", "xid", commit->items[k], "state", "action", "commit");
        json_array_append_new(planned, tool_json(entry));
    }
    if (plan->tool->document)
        return;
    printf("sink %s, epoch %" PRId64 ": recovery with epoch %" PRIu64 "\n", plan->sink,
           view_number(plan->state, "epoch"), plan->epoch);
    json_array_foreach(planned, i, record)
    {
        const char *state = json_string_value(json_object_get(record, "state"));
        printf("  %-8s  %s (%s)\n", view_text(record, "action"), view_text(record, "xid"),
               state ? state : "not open: its record tells");
    }
    if (json_is_true(json_object_get(plan->state, "more")))
        puts("  and more than can be listed here: chxa list --sink shows all");
}

static int ask_for_plan(const struct plan *plan)
{
    const struct tool_options *options = plan->tool->options;
    if (options->force || (options->yes && plan->n_prepared_rollback == 0))
        return TOOL_OK;
    if (!ask_can_prompt()) {
        if (plan->n_prepared_rollback == 0)
            return TOOL_OK;
        tool_complain("%zu prepared transaction%s would be rolled back; --force does it",
                      plan->n_prepared_rollback, plan->n_prepared_rollback == 1 ? "" : "s");
        return TOOL_DECLINED;
    }
    char *question =
        plan->n_prepared_rollback
            ? tool_printf(
                  "%zu PREPARED transactions are rolled back by this. Type the sink's name:",
                  plan->n_prepared_rollback)
            : tool_printf("Go on? Type yes:");
    bool agreed = ask_person(question, plan->n_prepared_rollback ? plan->sink : "yes");
    free(question);
    if (!agreed)
        tool_complain("nothing was done");
    return agreed ? TOOL_OK : TOOL_DECLINED;
}

static int carry_out(struct plan *plan, const json_t *planned)
{
    struct tool *tool = plan->tool;
    const struct tool_list *commit = &tool->options->commit;
    struct chxa_error error;
    const struct tool_number deadline = tool->options->deadline;
    waiting_begin();
    (void)!chxa_sink_recover(tool->client, plan->sink, plan->epoch, commit->items, commit->n,
                             deadline.given ? deadline.value : 0, &error);
    waiting_end();
    int rc = ask_exit_of(&error);
    if (rc != TOOL_OK) {
        ask_failed(tool, plan->sink, &error);
        if (error.code != CHXA_ERR_FENCED)
            tool_complain("run the same again; chxa sinks %s shows what is still open", plan->sink);
        return rc;
    }
    size_t i;
    const json_t *entry;
    json_array_foreach(planned, i, entry)
    {
        bool commits = strcmp(view_text(entry, "action"), "commit") == 0;
        ask_report(tool, view_text(entry, "xid"), view_text(entry, "action"), TOOL_OK,
                   commits ? "committed" : "rolled back", commits ? "Committed" : "Aborted", NULL);
    }
    if (!tool->document && json_array_size(planned) == 0)
        puts("nothing was open");
    return TOOL_OK;
}

static int recover_sink(struct tool *tool, const char *sink)
{
    struct plan plan = {.tool = tool, .sink = sink};
    struct chxa_error error;
    char *path = ask_sink_path(sink, "");
    int rc = ask(tool, NULL, "GET", path, NULL, &plan.state, &error);
    free(path);
    if (rc != TOOL_OK) {
        json_decref(plan.state);
        return ask_failed(tool, sink, &error);
    }
    const struct tool_number epoch = tool->options->epoch;
    plan.epoch = epoch.given ? epoch.value : (uint64_t)view_number(plan.state, "epoch") + 1;
    json_t *planned = tool_json(json_array());
    put_plan(&plan, planned);
    if (tool->document) {
        tool_json_set(tool->document, "sink", json_string(sink));
        tool_json_set(tool->document, "epoch", json_integer((json_int_t)plan.epoch));
        tool_json_set(tool->document, "plan", json_deep_copy(planned));
    }
    /* A sink's entry stays for ever: none is made for a slip of the pen. */
    bool unknown = view_number(plan.state, "epoch") == 0 && !epoch.given &&
                   json_array_size(json_object_get(plan.state, "open")) == 0;
    if (unknown) {
        tool_complain("nobody has used a sink of this name; chxa sinks lists those that have "
                      "something open. To fence it all the same: --epoch 1");
        rc = TOOL_NOT_FOUND;
    } else if (!tool->options->dry_run) {
        rc = ask_for_plan(&plan);
        if (rc == TOOL_OK)
            rc = carry_out(&plan, planned);
    }
    json_decref(planned);
    json_decref(plan.state);
    return rc;
}

int tool_cmd_recover(struct tool *tool)
{
    const struct tool_options *options = tool->options;
    if (tool->n_operands == 0) {
        if (options->commit.n || options->epoch.given || options->force || options->yes)
            return tool_usage_error("recover: of which sink?");
        return list_print(tool, true);
    }
    if (options->owner || options->sink || options->table || options->older_than.given ||
        options->in_doubt || options->blocked || options->limit.given || options->quiet)
        return tool_usage_error("recover SINK takes no filter: it ends all that the sink has open");
    struct tool_list commit = options->commit, sink;
    for (size_t i = 0; i < commit.n; i++)
        if (strlen(commit.items[i]) > CHXA_XID_BYTES_MAX)
            return tool_usage_error("--commit: '%s' is no id", commit.items[i]);
    int rc = ask_ids(tool, &sink);
    if (rc == TOOL_OK && sink.n == 1)
        rc = recover_sink(tool, sink.items[0]);
    free(sink.items);
    return rc;
}
