/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: which command, which options, which operands. Pure: it prints nothing and ends nothing.
 */
#ifndef CHXA_TOOL_ARGS_H
#define CHXA_TOOL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tool_command {
#define TOOL_COMMAND(name, operands, doc) TOOL_CMD_##name,
#include "commands.def"
#undef TOOL_COMMAND
    TOOL_CMD_COUNT
};

/* Strings of argv, not copied. */
struct tool_list {
    const char **items;
    size_t n;
};

/* A DURATION or NUMBER, and whether it was given. */
struct tool_number {
    uint64_t value;
    bool given;
};

struct tool_options {
#define TOOL_FIELD_FLAG                                              bool
#define TOOL_FIELD_TEXT                                              const char *
#define TOOL_FIELD_LIST                                              struct tool_list
#define TOOL_FIELD_DURATION                                          struct tool_number
#define TOOL_FIELD_NUMBER                                            struct tool_number
#define TOOL_OPTION(field, name, letter, kind, value, commands, doc) TOOL_FIELD_##kind field;
#define TOOL_ALIAS(name, field)
#include "options.def"
#undef TOOL_OPTION
#undef TOOL_ALIAS
};

struct tool_args {
    enum tool_command command; /* TOOL_CMD_COUNT: none was named */
    bool version;              /* --version */
    struct tool_options options;
    struct tool_list operands;
    char problem[400]; /* why parsing failed; may hold any byte of the command line */
};

/* Fills *ret_args from argv[1…]; false when the line is wrong, and then only `problem` counts. Strings of argv must live
 * as long as it. Free with tool_args_clear, in either case. */
bool tool_args_parse(int argc, char *const *argv, struct tool_args *ret_args);
void tool_args_clear(struct tool_args *args);

/* "90s", "10m", "1h30m", "2d", "1w", "250ms"; a number alone is seconds. False: not a duration, or over 2^53 ms. */
bool tool_duration_parse(const char *text, uint64_t *ret_ms);

const char *tool_command_name(enum tool_command command);
/* TOOL_CMD_COUNT when there is none of that name. */
enum tool_command tool_command_find(const char *name);

/* --help, wrapped to width columns (0: not); TOOL_CMD_COUNT: of the whole tool. */
void tool_help_print(FILE *file, enum tool_command command, unsigned width);

#endif
