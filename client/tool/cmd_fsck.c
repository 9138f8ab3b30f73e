/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa fsck: asks each node to compare its records with its disk, and prints what it found, what that means, and what mends
 * it. Changes nothing.
 */
#include "ask.h"
#include "text.h"
#include "tool.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

static bool is_wanted(const struct tool_options *options, const char *node)
{
    for (size_t i = 0; i < options->node.n; i++)
        if (strcmp(options->node.items[i], node) == 0)
            return true;
    return options->node.n == 0;
}

static void put_finding(const struct tool *tool, const char *node, const json_t *finding)
{
    char *safe_node = text_safe(node), *kind = text_safe(view_text(finding, "kind"));
    char *xid = text_safe(view_text(finding, "xid"));
    printf("%s: %s%s%s%s%s\n", safe_node, tool->colour ? "\033[31m" : "", kind,
           tool->colour ? "\033[0m" : "", *xid ? "  " : "", xid);
    static const struct {
        const char *label, *name;
    } lines[] = {{"    what:    ", "message"},
                 {"    where:   ", "path"},
                 {"    means:   ", "meaning"},
                 {"    mend it: ", "mend"}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (*view_text(finding, lines[i].name))
            text_wrap(stdout, lines[i].label, view_text(finding, lines[i].name), tool->width);
    free(safe_node);
    free(kind);
    free(xid);
}

/* One node's answer; its findings are counted in *ret_n. */
static int check_node(struct tool *tool, const json_t *node, size_t *ret_n)
{
    const char *name = view_text(node, "node");
    struct chxa_error error;
    json_t *answer;
    int rc = ask(tool, view_text(node, "url"), "GET", "/v1/fsck", NULL, &answer, &error);
    if (rc != TOOL_OK) {
        ask_failed(tool, name, &error);
    } else {
        json_t *findings = json_object_get(answer, "findings");
        size_t i;
        const json_t *finding;
        *ret_n += json_array_size(findings);
        if (tool->document) {
            json_array_append(json_object_get(tool->document, "nodes"), answer);
        } else {
            json_array_foreach(findings, i, finding) put_finding(tool, name, finding);
            if (json_array_size(findings) == 0)
                printf("%s: nothing out of order\n", name);
        }
    }
    json_decref(answer);
    return rc;
}

int tool_cmd_fsck(struct tool *tool)
{
    struct chxa_error error;
    json_t *answer;
    int rc = ask(tool, NULL, "GET", "/v1/nodes", NULL, &answer, &error);
    if (rc != TOOL_OK)
        ask_failed(tool, "nodes", &error);
    if (tool->document)
        tool_json_set(tool->document, "nodes", json_array());
    size_t i, n_findings = 0, n_nodes = 0;
    const json_t *node;
    json_array_foreach(json_object_get(answer, "nodes"), i, node)
    {
        const char *name = view_text(node, "node");
        if (!is_wanted(tool->options, name))
            continue;
        n_nodes++;
        if (json_is_true(json_object_get(node, "live"))) {
            rc = tool_exit_worse(rc, check_node(tool, node, &n_findings));
        } else {
            tool_complain("%s is down: its disk was not looked at", name);
            rc = tool_exit_worse(rc, TOOL_UNREACHABLE);
        }
    }
    json_decref(answer);
    if (rc == TOOL_OK && n_nodes == 0)
        return tool_usage_error("fsck: there is no node of that name; chxa nodes lists them");
    return tool_exit_worse(rc, n_findings ? TOOL_FINDINGS : TOOL_OK);
}
