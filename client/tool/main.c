/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa, the operator's command: reads the command line, runs one command, prints its document where --json was said, and
 * exits with the code that chxa.1 documents. Only the public library is beneath.
 */
#include "ask.h"
#include "text.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

typedef int command_function(struct tool *tool);
static command_function *const functions[TOOL_CMD_COUNT] = {
#define TOOL_COMMAND(name, operands, doc) tool_cmd_##name,
#include "commands.def"
#undef TOOL_COMMAND
};

int tool_cmd_help(struct tool *tool)
{
    enum tool_command command = TOOL_CMD_COUNT;
    if (tool->n_operands == 1) {
        command = tool_command_find(tool->operands[0]);
        if (command == TOOL_CMD_COUNT)
            return tool_usage_error("there is no command '%s'", tool->operands[0]);
    }
    tool_help_print(stdout, command, tool->width);
    return TOOL_OK;
}

/* Columns of the terminal that standard output is; 0 when it is none. */
static unsigned terminal_width(void)
{
    struct winsize size = {0};
    if (!isatty(STDOUT_FILENO))
        return 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* https://no-color.org: present and not empty. */
static bool wants_colour(const struct tool_options *options)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !options->json && !options->no_color &&
           !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void print_document(struct tool *tool, int rc)
{
    tool_json_set(tool->document, "exit", json_integer(rc));
    /* ASCII only: nothing in it can do anything to a terminal. */
    char *text = json_dumps(tool->document, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    if (text)
        puts(text);
    free(text);
}

static int run(const struct tool_args *args)
{
    struct tool tool = {
        .command = args->command,
        .options = &args->options,
        .operands = args->operands.items,
        .n_operands = args->operands.n,
        .colour = wants_colour(&args->options),
        .width = terminal_width(),
        .now_ms = now_ms(),
    };
    if (args->options.json && args->command != TOOL_CMD_help)
        tool.document = tool_json(
            json_pack("{s:i, s:s}", "chxa", 1, "command", tool_command_name(args->command)));
    int rc = args->command == TOOL_CMD_help ? TOOL_OK : ask_open(&tool);
    if (rc == TOOL_OK)
        rc = functions[args->command](&tool);
    if (tool.document && !tool.is_streaming)
        print_document(&tool, rc);
    json_decref(tool.document);
    chxa_client_close(tool.client);
    return rc;
}

int main(int argc, char **argv)
{
    struct tool_args args;
    int rc = TOOL_OK;
    text_init();
    if (!tool_args_parse(argc, argv, &args))
        rc = tool_usage_error("%s", args.problem);
    else if (args.version)
        printf("chxa %s\n", CHXA_VERSION);
    else if (args.options.help)
        tool_help_print(stdout, args.command, terminal_width());
    else
        rc = run(&args);
    tool_args_clear(&args);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        tool_complain("cannot write to standard output");
        rc = rc == TOOL_OK ? TOOL_FAILED : rc;
    }
    return rc;
}
