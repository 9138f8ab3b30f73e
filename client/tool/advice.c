/* SPDX-License-Identifier: Apache-2.0
 *
 * What is safe to do about a transaction. The rules are those of PROTOCOL.md: a Prepared one is its writer's to decide;
 * a decided one finishes by itself or is blocked; one whose node is gone can be abandoned, and by nobody else than an operator.
 */
#include "advice.h"

#include "text.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

static const char *string_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static int64_t number_of(const json_t *object, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(object, name));
}

static bool flag_of(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}

const char *advice_state(const json_t *record)
{
    const char *state = string_of(record, "state");
    return *state ? state : "Unknown";
}

static bool is_state(const json_t *record, const char *state)
{
    return strcmp(advice_state(record), state) == 0;
}

bool advice_in_doubt(const json_t *record)
{
    return is_state(record, "Prepared") || is_state(record, "Committing") ||
           is_state(record, "Aborting");
}

/* Where the sink's last commit tells what became of its writer; "" where it does not. Free with free(). */
static char *sink_says(const json_t *record, const json_t *sink)
{
    const json_t *checkpoint = json_object_get(sink, "checkpoint");
    int64_t newest = number_of(sink, "epoch"), epoch = number_of(record, "epoch");
    if (sink == NULL)
        return tool_strdup("");
    if (newest > epoch)
        return tool_printf("its writer (epoch %lld) was replaced by epoch %lld, which should have "
                           "ended it when it started",
                           (long long)epoch, (long long)newest);
    if (json_is_object(checkpoint) &&
        number_of(checkpoint, "created_ms") > number_of(record, "created_ms"))
        return tool_printf("its sink has committed a later one since (%s): a writer that commits "
                           "in order has left this one behind",
                           string_of(checkpoint, "xid"));
    return tool_strdup("");
}

static void advise_prepared(const struct advice_facts *facts, struct advice *advice)
{
    const char *xid = string_of(facts->record, "xid"), *sink = string_of(facts->record, "sink");
    char *said = sink_says(facts->record, facts->sink);
    advice->why = *said ? tool_strdup(said) : tool_strdup("");
    free(said);
    advice->colour = "33";
    char *start = *sink ? tool_printf("start its writer (sink %s), which decides", sink)
                        : tool_strdup("its client decides");
    advice->next = tool_printf("%s. Only if it never comes back: was its checkpoint completed?\n"
                               "chxa commit %s  # yes\n"
                               "chxa rollback %s  # no: drops its rows",
                               start, xid, xid);
    free(start);
}

/* Only what no longer fits an altered table can be rewritten to it; a node's words for that begin so. */
static bool can_convert(const char *reason)
{
    return strstr(reason, "was altered after rows were staged") != NULL;
}

static void advise_committing(const struct advice_facts *facts, struct advice *advice)
{
    const char *xid = string_of(facts->record, "xid"), *reason = string_of(facts->record, "reason");
    advice->why = tool_strdup(reason);
    advice->colour = "31";
    if (flag_of(facts->record, "discarding")) {
        advice->next =
            tool_printf("an operator gave up what cannot be attached; to wait for the end:\n"
                        "chxa commit %s",
                        xid);
    } else if (flag_of(facts->record, "blocked")) {
        char *convert =
            can_convert(reason)
                ? tool_printf("chxa resolve %s --convert  # table altered for good\n", xid)
                : tool_strdup("");
        advice->next =
            tool_printf("mend what the reason names; the node then goes on by itself, or at once:\n"
                        "chxa resolve %s --retry\n"
                        "If it cannot be mended:\n"
                        "%s"
                        "chxa resolve %s --discard --reason TEXT  # loses rows",
                        xid, convert, xid);
        free(convert);
    } else {
        advice->next = tool_printf("it finishes by itself; to wait for it:\nchxa commit %s", xid);
        advice->colour = NULL;
    }
}

/* The node that holds the rows is away: only it can end the transaction. */
static void advise_lost_owner(const struct advice_facts *facts, struct advice *advice)
{
    const char *xid = string_of(facts->record, "xid"), *owner = string_of(facts->record, "owner");
    const char *reason = string_of(facts->record, "reason");
    advice->why =
        tool_printf("node %s is down%s%s", owner, *reason ? "; before that: " : "", reason);
    advice->next = tool_printf("start node %s again; it goes on by itself. Only if its disk is "
                               "gone for good:\nchxa abandon %s --reason TEXT",
                               owner, xid);
    advice->colour = "31";
}

static void advise_finished(const struct advice_facts *facts, struct advice *advice)
{
    const char *xid = string_of(facts->record, "xid");
    const char *heuristic = string_of(facts->record, "heuristic");
    advice->why = tool_strdup(string_of(facts->record, "reason"));
    if (*heuristic == '\0')
        return;
    free(advice->why);
    advice->why = tool_printf("heuristic end (%s): an operator gave rows up. %s", heuristic,
                              string_of(facts->record, "reason"));
    const char *start = strcmp(heuristic, "hazard") == 0
                            ? "look in its tables which rows are there, and load the others"
                            : "load again what was given up, and no more";
    advice->next = tool_printf("%s; then the record may go:\n"
                               "chxa show %s --parts\n"
                               "chxa forget %s",
                               start, xid, xid);
    advice->colour = "35";
}

void advice_make(const struct advice_facts *facts, struct advice *ret_advice)
{
    const json_t *record = facts->record;
    *ret_advice = (struct advice){0};
    bool is_finished = is_state(record, "Committed") || is_state(record, "Aborted");
    if (is_finished)
        advise_finished(facts, ret_advice);
    else if (facts->owner_known && !facts->owner_live)
        advise_lost_owner(facts, ret_advice);
    else if (is_state(record, "Prepared"))
        advise_prepared(facts, ret_advice);
    else if (is_state(record, "Committing"))
        advise_committing(facts, ret_advice);
    else if (is_state(record, "Aborting")) {
        ret_advice->why = tool_strdup(string_of(record, "reason"));
        ret_advice->next = tool_printf("it finishes by itself; to wait for it:\nchxa rollback %s",
                                       string_of(record, "xid"));
    } else {
        /* Open: its writer is at work, and a time-out ends it if not. A reason says that it cannot go on. */
        ret_advice->why = tool_strdup(string_of(record, "reason"));
        if (*ret_advice->why)
            ret_advice->next =
                tool_printf("its writer rolls it back, or its time-out does; at once:\n"
                            "chxa rollback %s",
                            string_of(record, "xid"));
    }
    if (ret_advice->why == NULL)
        ret_advice->why = tool_strdup("");
    if (ret_advice->next == NULL)
        ret_advice->next = tool_strdup("");
}

void advice_clear(struct advice *advice)
{
    free(advice->why);
    free(advice->next);
    *advice = (struct advice){0};
}
