/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the operator's command share: its exit codes, and the one struct that a command gets.
 *
 * The tool is one process, one thread, and ends soon: out of memory ends it at once (tool_alloc and its kin), and what
 * lives until the end is not freed piece by piece.
 */
#ifndef CHXA_TOOL_TOOL_H
#define CHXA_TOOL_TOOL_H

#include "args.h"

#include <chxa/chxa.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes, for scripts; chxa.1 documents them. The numbers never change their meaning. */
enum tool_exit {
    TOOL_OK = 0,
    TOOL_FAILED = 1,    /* it did not happen, and will not by itself */
    TOOL_USAGE = 2,     /* the command line is wrong; nothing was done */
    TOOL_UNKNOWN = 3,   /* under way, decided but not finished, or the answer was lost: ask again */
    TOOL_NOT_FOUND = 4, /* no such transaction */
    TOOL_REFUSED = 5,   /* the transaction's state, or its sink's epoch, does not allow it */
    TOOL_UNREACHABLE = 6,  /* no node could serve this now; nothing was done */
    TOOL_FINDINGS = 7,     /* fsck found something */
    TOOL_DECLINED = 8,     /* it wanted a yes, or --force, and did not get it */
    TOOL_INTERRUPTED = 130 /* Ctrl-C; a load was rolled back */
};

struct tool {
    enum tool_command command;
    const struct tool_options *options;
    const char *const *operands; /* what follows the command */
    size_t n_operands;
    struct chxa_client *client;
    bool colour;       /* standard output takes colours */
    unsigned width;    /* columns of the terminal; 0: not a terminal, no limit */
    json_t *document;  /* with --json: what is printed at the end; else NULL */
    bool is_streaming; /* the command has printed its document itself */
    int64_t now_ms;    /* when the command began, Unix milliseconds */
};

#define TOOL_COMMAND(name, operands, doc) int tool_cmd_##name(struct tool *tool);
#include "commands.def"
#undef TOOL_COMMAND

/* The worse of two ends, when a command had several things to do: UNKNOWN, UNREACHABLE, FAILED, REFUSED, NOT_FOUND,
 * DECLINED, FINDINGS, OK, in this order; INTERRUPTED before all. */
int tool_exit_worse(int left, int right);

/* Prints `chxa: …` and a newline to standard error, whatever is in the text made harmless. Returns TOOL_USAGE. */
int tool_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void tool_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Never NULL: without memory the process ends with TOOL_FAILED. */
void *tool_alloc(size_t bytes);
void *tool_realloc(void *memory, size_t bytes);
char *tool_strdup(const char *text);
/* snprintf into memory of the right size; free with free(). */
char *tool_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Memory that lives until the process ends, without an owner; returns it. */
void *tool_keep(void *memory);
/* What jansson returns when it has no memory is NULL: the same end. */
json_t *tool_json(json_t *value);
/* json_object_set_new that cannot fail. */
void tool_json_set(json_t *object, const char *name, json_t *value);

#endif
