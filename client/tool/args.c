/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line, parsed by the list in options.def. Options and operands may be mixed; `--` ends the options; a name
 * is not abbreviated. The first operand is the command.
 */
#include "args.h"

#include "text.h"
#include "tool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum kind { KIND_FLAG, KIND_TEXT, KIND_LIST, KIND_DURATION, KIND_NUMBER };

/* A set of commands, as a bit each. */
#define BIT(name) (1u << TOOL_CMD_##name)
#define C_LIST    BIT(list)
#define C_SHOW    BIT(show)
#define C_COMMIT  BIT(commit)
#define C_RECOVER BIT(recover)
#define C_RESOLVE BIT(resolve)
#define C_FSCK    (BIT(fsck) | BIT(clear))
#define C_SINKS   BIT(sinks)
#define C_LOAD    BIT(load)
#define C_FILTER  (C_LIST | C_RECOVER)
#define C_CHANGE                                                                                   \
    (C_COMMIT | BIT(rollback) | C_RECOVER | BIT(forget) | C_RESOLVE | BIT(abandon) | BIT(clear) |  \
     C_LOAD)
#define C_LOSE   (BIT(rollback) | C_RECOVER | C_RESOLVE | BIT(abandon) | BIT(clear))
#define C_REASON (C_COMMIT | BIT(rollback) | C_RESOLVE | BIT(abandon))
#define C_ALL    UINT_MAX

static const struct option {
    const char *name;
    char letter;
    enum kind kind;
    const char *value;
    unsigned commands;
    const char *doc; /* NULL: an alias */
    size_t offset;
} options[] = {
#define TOOL_OPTION(field, name, letter, kind, value, commands, doc)                               \
    {name, letter, KIND_##kind, value, commands, doc, offsetof(struct tool_options, field)},
#define TOOL_ALIAS(name, field) {name, 0, 0, NULL, 0, NULL, offsetof(struct tool_options, field)},
#include "options.def"
#undef TOOL_OPTION
#undef TOOL_ALIAS
};
#define OPTIONS_COUNT (sizeof options / sizeof options[0])

static const struct command {
    const char *name, *operands, *doc;
} commands[TOOL_CMD_COUNT] = {
#define TOOL_COMMAND(name, operands, doc) {#name, operands, doc},
#include "commands.def"
#undef TOOL_COMMAND
};

const char *tool_command_name(enum tool_command command)
{
    return commands[command].name;
}

enum tool_command tool_command_find(const char *name)
{
    unsigned i = 0;
    while (i < TOOL_CMD_COUNT && strcmp(commands[i].name, name) != 0)
        i++;
    return (enum tool_command)i;
}

/* The option that an alias stands for; others stand for themselves. */
static const struct option *resolved(const struct option *option)
{
    if (option->doc)
        return option;
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (options[i].doc && options[i].offset == option->offset)
            return &options[i];
    return NULL;
}

static const struct option *find_name(const char *name, size_t bytes)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (strlen(options[i].name) == bytes && memcmp(options[i].name, name, bytes) == 0)
            return resolved(&options[i]);
    return NULL;
}

static const struct option *find_letter(char letter)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (options[i].letter && options[i].letter == letter)
            return &options[i];
    return NULL;
}

/* ---- values ---- */

static bool parse_number(const char *text, uint64_t *ret_value)
{
    if (*text == '\0' || strlen(text) > 16)
        return false;
    uint64_t value = 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    *ret_value = value;
    return true;
}

bool tool_duration_parse(const char *text, uint64_t *ret_ms)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                 {"h", 3600000}, {"d", 86400000}, {"w", 604800000}};
    const uint64_t max = (uint64_t)1 << 53;
    uint64_t sum = 0, last_unit = max;
    if (*text == '\0')
        return false;
    while (*text) {
        uint64_t value = 0, unit = 0;
        size_t digits = strspn(text, "0123456789");
        if (digits == 0 || digits > 12)
            return false;
        for (size_t i = 0; i < digits; i++)
            value = value * 10 + (uint64_t)(text[i] - '0');
        text += digits;
        size_t letters = strcspn(text, "0123456789");
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (strlen(units[i].name) == letters && memcmp(units[i].name, text, letters) == 0)
                unit = units[i].ms;
        if (letters == 0 && last_unit == max)
            unit = 1000;
        /* "1h30m", not "30m1h": the second is more often a slip than meant. */
        if (unit == 0 || unit >= last_unit || value > max / unit || sum > max - value * unit)
            return false;
        sum += value * unit;
        last_unit = unit;
        text += letters;
    }
    *ret_ms = sum;
    return true;
}

/* ---- parsing ---- */

static void list_add(struct tool_list *list, const char *item)
{
    list->items = tool_realloc(list->items, (list->n + 1) * sizeof *list->items);
    list->items[list->n++] = item;
}

static bool store(struct tool_args *args, const struct option *option, const char *value)
{
    void *field = (char *)&args->options + option->offset;
    struct tool_number *number = field;
    bool good = true;
    switch (option->kind) {
    case KIND_FLAG:
        *(bool *)field = true;
        break;
    case KIND_TEXT:
        *(const char **)field = value;
        break;
    case KIND_LIST:
        list_add(field, value);
        break;
    case KIND_DURATION:
        good = tool_duration_parse(value, &number->value);
        number->given = true;
        if (!good)
            snprintf(args->problem, sizeof args->problem,
                     "--%s: '%.100s' is not a duration like 90s, 10m, 2h or 3d", option->name,
                     value);
        break;
    case KIND_NUMBER:
        good = parse_number(value, &number->value);
        number->given = true;
        if (!good)
            snprintf(args->problem, sizeof args->problem, "--%s: '%.100s' is not a number",
                     option->name, value);
        break;
    }
    return good;
}

/* A cursor over argv, and the options seen, which are checked when the command is known. */
struct parser {
    int argc;
    char *const *argv;
    int at;
    bool seen[OPTIONS_COUNT];
    struct tool_args *args;
};

static bool problem(struct parser *parser, const char *before, const char *text, const char *after)
{
    snprintf(parser->args->problem, sizeof parser->args->problem, "%s%.100s%s", before, text,
             after);
    return false;
}

static bool take(struct parser *parser, const struct option *option, const char *value)
{
    parser->seen[option - options] = true;
    if (option->kind != KIND_FLAG && value == NULL) {
        if (parser->at + 1 >= parser->argc)
            return problem(parser, "--", option->name, " wants a value");
        value = parser->argv[++parser->at];
    } else if (option->kind == KIND_FLAG && value != NULL) {
        return problem(parser, "--", option->name, " takes no value");
    }
    return store(parser->args, option, value);
}

static bool take_long(struct parser *parser, const char *word)
{
    if (strcmp(word, "version") == 0) {
        parser->args->version = true;
        return true;
    }
    size_t bytes = strcspn(word, "=");
    const struct option *option = find_name(word, bytes);
    if (option == NULL)
        return problem(parser, "there is no option --", word, "");
    return take(parser, option, word[bytes] == '=' ? word + bytes + 1 : NULL);
}

/* "-nf", "-uURL", "-u URL". */
static bool take_short(struct parser *parser, const char *letters)
{
    for (; *letters; letters++) {
        const struct option *option = find_letter(*letters);
        if (option == NULL)
            return problem(parser, "there is no option -", letters, "");
        if (option->kind != KIND_FLAG)
            return take(parser, option, letters[1] ? letters + 1 : NULL);
        if (!take(parser, option, NULL))
            return false;
    }
    return true;
}

static bool take_operand(struct parser *parser, const char *word)
{
    struct tool_args *args = parser->args;
    if (args->command != TOOL_CMD_COUNT) {
        list_add(&args->operands, word);
        return true;
    }
    args->command = tool_command_find(word);
    if (args->command == TOOL_CMD_COUNT)
        return problem(parser, "there is no command '", word, "'; chxa help lists them");
    return true;
}

static bool check(struct parser *parser)
{
    const struct tool_args *args = parser->args;
    if (args->version || args->options.help)
        return true;
    if (args->command == TOOL_CMD_COUNT)
        return problem(parser, "which command? chxa help lists them", "", "");
    const struct command *command = &commands[args->command];
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (parser->seen[i] && !(options[i].commands & (1u << args->command)))
            return problem(parser, command->name, " does not take --", options[i].name);
    bool many = strstr(command->operands, "…") != NULL;
    bool optional = command->operands[0] == '[';
    if (args->operands.n > 0 && command->operands[0] == '\0')
        return problem(parser, command->name, " takes no argument: ", args->operands.items[0]);
    if (args->operands.n > 1 && !many)
        return problem(parser, "one argument is enough: ", args->operands.items[1], "");
    if (args->operands.n == 0 && command->operands[0] != '\0' && !optional)
        return problem(parser, command->name, " of what? give at least one ", "id");
    return true;
}

bool tool_args_parse(int argc, char *const *argv, struct tool_args *ret_args)
{
    *ret_args = (struct tool_args){.command = TOOL_CMD_COUNT};
    struct parser parser = {.argc = argc, .argv = argv, .at = 1, .args = ret_args};
    bool options_ended = false;
    for (; parser.at < argc; parser.at++) {
        const char *word = argv[parser.at];
        bool good = true;
        if (options_ended || word[0] != '-' || word[1] == '\0')
            good = take_operand(&parser, word);
        else if (strcmp(word, "--") == 0)
            options_ended = true;
        else if (word[1] == '-')
            good = take_long(&parser, word + 2);
        else
            good = take_short(&parser, word + 1);
        if (!good)
            return false;
    }
    return check(&parser);
}

void tool_args_clear(struct tool_args *args)
{
    free(args->operands.items);
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (options[i].doc && options[i].kind == KIND_LIST)
            free(((struct tool_list *)(void *)((char *)&args->options + options[i].offset))->items);
    *args = (struct tool_args){.command = TOOL_CMD_COUNT};
}

/* ---- help ---- */

static void print_option(FILE *file, const struct option *option, unsigned width)
{
    char name[64], letter[8] = "    ", left[80];
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(name, sizeof name, "%s--%s%s%s", letter, option->name, *option->value ? " " : "",
             option->value);
    snprintf(left, sizeof left, "  %-28s ", name);
    text_wrap(file, left, option->doc, width);
}

static void print_commands(FILE *file, unsigned width)
{
    fputs("usage: chxa COMMAND [OPTION…] [ARGUMENT…]\n\n", file);
    text_wrap(file, "",
              "Shows the transactions of a chxa cluster, and ends those that are left in doubt.\n",
              width);
    fputc('\n', file);
    for (size_t i = 0; i < TOOL_CMD_COUNT; i++) {
        char left[32];
        snprintf(left, sizeof left, "  %-10s ", commands[i].name);
        text_wrap(file, left, commands[i].doc, width);
    }
    fputs("\nOptions of all commands; `chxa help COMMAND` lists the others:\n", file);
}

void tool_help_print(FILE *file, enum tool_command command, unsigned width)
{
    if (command == TOOL_CMD_COUNT) {
        print_commands(file, width);
    } else {
        fprintf(file, "usage: chxa %s [OPTION…]%s%s\n\n", commands[command].name,
                *commands[command].operands ? " " : "", commands[command].operands);
        text_wrap(file, "", commands[command].doc, width);
        fputc('\n', file);
    }
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (options[i].doc && command != TOOL_CMD_COUNT && options[i].commands != C_ALL &&
            (options[i].commands & (1u << command)))
            print_option(file, &options[i], width);
    for (size_t i = 0; i < OPTIONS_COUNT; i++)
        if (options[i].doc && options[i].commands == C_ALL)
            print_option(file, &options[i], width);
    if (command == TOOL_CMD_COUNT)
        fputs("      --version                the version\n\n"
              "The manual is chxa(1); begin at \"A stuck checkpoint\".\n",
              file);
}
