/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa fsck: asks each node to compare its records with its disk, and prints what it found, what that means, and what mends
 * it. Changes nothing. chxa clear: removes what fsck calls set_aside, once nobody needs it.
 */
#include "ask.h"
#include "text.h"
#include "tool.h"
#include "view.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_wanted(const struct tool_options *options, const char *node)
{
    for (size_t i = 0; i < options->node.n; i++)
        if (strcmp(options->node.items[i], node) == 0)
            return true;
    return options->node.n == 0;
}

/* The folder's name: the last step of its path. */
static const char *folder_of(const json_t *finding)
{
    const char *path = view_text(finding, "path"), *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_mend(const struct tool *tool, const char *node, const json_t *finding)
{
    static const char *const label = "    mend it: ";
    if (strcmp(view_text(finding, "kind"), "set_aside") == 0) {
        char *text = tool_printf("when nobody needs the rows: chxa clear %s --node %s",
                                 folder_of(finding), node);
        text_wrap(stdout, label, text, tool->width);
        free(text);
    } else if (*view_text(finding, "mend")) {
        text_wrap(stdout, label, view_text(finding, "mend"), tool->width);
    }
}

/* How much it is, and how old, where the node tells. */
static void put_size(const json_t *finding)
{
    char size[24], age[32];
    if (!json_is_integer(json_object_get(finding, "bytes")))
        return;
    text_bytes((uint64_t)view_number(finding, "bytes"), size, sizeof size);
    text_duration(view_number(finding, "age_ms"), age, sizeof age);
    printf("    size:    %s, %s old\n", size, age);
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
                 {"    part:    ", "part"},
                 {"    means:   ", "meaning"}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (*view_text(finding, lines[i].name))
            text_wrap(stdout, lines[i].label, view_text(finding, lines[i].name), tool->width);
    put_size(finding);
    put_mend(tool, node, finding);
    free(safe_node);
    free(kind);
    free(xid);
}

/* *ret_answer is owned, and NULL on failure. */
static int ask_fsck(struct tool *tool, const json_t *node, json_t **ret_answer,
                    struct chxa_error *ret_error)
{
    int rc = ask(tool, view_text(node, "url"), "GET", "/v1/fsck?limit=10000", NULL, ret_answer,
                 ret_error);
    if (rc == TOOL_OK)
        return rc;
    json_decref(*ret_answer);
    *ret_answer = NULL;
    return rc;
}

/* One node's answer; its findings are counted in *ret_n. */
static int check_node(struct tool *tool, const json_t *node, size_t *ret_n)
{
    const char *name = view_text(node, "node");
    struct chxa_error error;
    json_t *answer;
    int rc = ask_fsck(tool, node, &answer, &error);
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
                printf("%s: nothing out of order: %" PRId64 " transactions, %" PRId64
                       " held folders\n",
                       name, view_number(answer, "transactions"), view_number(answer, "folders"));
            if (json_is_true(json_object_get(answer, "truncated")))
                printf("%s: and more: mend these, then look again\n", name);
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

/* ---- clear ---- */

/* The node that --node names, or the only one that lives; NULL: told why not. Borrowed from nodes. */
static const json_t *the_node(const struct tool *tool, const json_t *nodes)
{
    size_t i, n = 0;
    const json_t *node, *found = NULL;
    json_array_foreach(nodes, i, node)
    {
        if (json_is_true(json_object_get(node, "live")) &&
            is_wanted(tool->options, view_text(node, "node"))) {
            found = node;
            n++;
        }
    }
    if (n != 1)
        tool_complain("clear: %s", n ? "of which node? say --node" : "there is no such live node");
    return n == 1 ? found : NULL;
}

/* As a node names what it sets aside: the folder of a transaction, perhaps with a time behind. */
static int check_name(const char *name)
{
    static const char *const letters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-~@";
    bool good = strncmp(name, "t-", 2) == 0 && name[2] && strlen(name) <= 255 &&
                strspn(name, letters) == strlen(name);
    return good
               ? TOOL_OK
               : tool_usage_error("clear: '%s' is no folder's name; chxa fsck shows those that are "
                                  "set aside",
                                  name);
}

/* What fsck says of a set-aside folder; NULL: it has none of that name. Borrowed from findings. */
static const json_t *find_set_aside(const json_t *findings, const char *name)
{
    size_t i;
    const json_t *finding;
    json_array_foreach(findings, i,
                       finding) if (strcmp(view_text(finding, "kind"), "set_aside") == 0 &&
                                    strcmp(folder_of(finding), name) == 0) return finding;
    return NULL;
}

/* "12 MB, 3d 2h old"; free with free(). */
static char *describe(const json_t *finding)
{
    char size[24], age[32];
    text_bytes((uint64_t)view_number(finding, "bytes"), size, sizeof size);
    text_duration(view_number(finding, "age_ms"), age, sizeof age);
    return tool_printf("%s, %s old", size, age);
}

/* A person types the name, a script says --force. */
static int ask_to_clear(struct tool *tool, const char *node_name, const char *name,
                        const char *what)
{
    if (!ask_can_prompt()) {
        char *sentence = tool_printf("%s: its rows are gone for good then; --force does it", what);
        int rc = ask_report(tool, name, "clear", TOOL_DECLINED, sentence, NULL, NULL);
        free(sentence);
        return rc;
    }
    char *question =
        tool_printf("%s on %s (%s): its rows are gone for good then. Type the name to clear:", name,
                    node_name, what);
    bool agreed = ask_person(question, name);
    free(question);
    return agreed ? TOOL_OK
                  : ask_report(tool, name, "clear", TOOL_DECLINED,
                               "that is not the name; nothing was done", NULL, NULL);
}

static int clear_now(struct tool *tool, const json_t *node, const char *name)
{
    struct chxa_error error;
    json_t *answer;
    char *path = ask_query_add(tool_strdup(""), "name", name);
    char *target = tool_printf("/v1/lost%s", path);
    int rc = ask(tool, view_text(node, "url"), "DELETE", target, NULL, &answer, &error);
    free(path);
    free(target);
    json_decref(answer);
    if (error.code == CHXA_ERR_ROUTE_NOT_FOUND)
        rc = TOOL_NOT_FOUND;
    return ask_report(tool, name, "clear", rc, rc == TOOL_OK ? "removed" : "not removed", NULL,
                      &error);
}

static int clear_one(struct tool *tool, const json_t *node, const json_t *found, const char *name)
{
    const struct tool_options *options = tool->options;
    const json_t *finding = find_set_aside(json_object_get(found, "findings"), name);
    if (finding == NULL && !json_is_true(json_object_get(found, "truncated")))
        return ask_report(tool, name, "clear", TOOL_NOT_FOUND,
                          "nothing of that name is set aside there", NULL, NULL);
    char *what = finding ? describe(finding) : tool_strdup("size not known");
    int rc = TOOL_OK;
    if (options->dry_run) {
        char *sentence = tool_printf("would be removed for good (%s)", what);
        ask_report(tool, name, "clear", TOOL_OK, sentence, NULL, NULL);
        free(sentence);
    } else if (!options->force) {
        rc = ask_to_clear(tool, view_text(node, "node"), name, what);
    }
    free(what);
    return rc == TOOL_OK && !options->dry_run ? clear_now(tool, node, name) : rc;
}
int tool_cmd_clear(struct tool *tool)
{
    struct chxa_error error;
    json_t *answer, *found = NULL;
    int rc = TOOL_OK;
    for (size_t i = 0; i < tool->n_operands && rc == TOOL_OK; i++)
        rc = check_name(tool->operands[i]);
    if (rc != TOOL_OK)
        return rc;
    if (tool->document)
        tool_json_set(tool->document, "results", json_array());
    rc = ask(tool, NULL, "GET", "/v1/nodes", NULL, &answer, &error);
    const json_t *node = NULL;
    if (rc != TOOL_OK)
        ask_failed(tool, "nodes", &error);
    else if ((node = the_node(tool, json_object_get(answer, "nodes"))) == NULL)
        rc = TOOL_USAGE;
    else if ((rc = ask_fsck(tool, node, &found, &error)) != TOOL_OK)
        ask_failed(tool, view_text(node, "node"), &error);
    for (size_t i = 0; found && i < tool->n_operands; i++)
        rc = tool_exit_worse(rc, clear_one(tool, node, found, tool->operands[i]));
    json_decref(found);
    json_decref(answer);
    return rc;
}
