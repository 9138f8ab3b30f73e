/* SPDX-License-Identifier: Apache-2.0
 *
 * See table_engine.h.
 */
#include "ch/table_engine.h"

#include "base/buf.h"
#include "base/mem.h"
#include "ch/table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define REPLICATED      "Replicated"
#define SETTINGS        "SETTINGS"
#define REPLICA_STRINGS 2u /* path and replica name */
#define OLD_ARGUMENTS   3u /* date, key, granularity at least */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static const char *skip_spaces(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* Behind the quoted text that begins at p; NULL when it has no end. */
static const char *skip_quoted(const char *p)
{
    char quote = *p++;
    for (; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == quote && p[1] == quote)
            p++;
        else if (*p == quote)
            return p + 1;
    }
    return NULL;
}

static bool is_quote(char c)
{
    return c == '\'' || c == '`' || c == '"';
}

/* Behind one token: a word, a quoted text, a balanced pair of brackets with all in it, or a
 * character. NULL when it has no end. */
static const char *skip_token(const char *p)
{
    if (is_quote(*p))
        return skip_quoted(p);
    if (is_word(*p)) {
        while (is_word(*p))
            p++;
        return p;
    }
    if (*p != '(' && *p != '[' && *p != '{')
        return p + 1;
    size_t depth = 0;
    while (*p) {
        if (is_quote(*p)) {
            p = skip_quoted(p);
            if (p == NULL)
                return NULL;
            continue;
        }
        if (strchr("([{", *p))
            depth++;
        else if (strchr(")]}", *p) && --depth == 0)
            return p + 1;
        p++;
    }
    return NULL;
}

/* Behind the list element that begins at p: at a comma of this level or at end. NULL: broken. */
static const char *skip_element(const char *p, const char *end)
{
    while (p < end && *p != ',') {
        p = skip_token(p);
        if (p == NULL || p > end)
            return NULL;
    }
    return p;
}

struct engine_text {
    const char *name;
    size_t name_len;
    const char *arguments; /* within the parentheses */
    size_t arguments_len;
    const char *rest; /* behind them */
};

static bool engine_read(const char *text, struct engine_text *ret)
{
    struct engine_text engine = {.name = text};
    while (is_word(text[engine.name_len]))
        engine.name_len++;
    if (engine.name_len == 0 || isdigit((unsigned char)*text))
        return false;
    engine.arguments = text + engine.name_len;
    engine.rest = engine.arguments;
    const char *open = skip_spaces(engine.arguments);
    if (*open == '(') {
        const char *end = skip_token(open);
        if (end == NULL)
            return false;
        engine.arguments = open + 1;
        engine.arguments_len = (size_t)(end - open) - 2;
        engine.rest = end;
    }
    /* The rest must be whole, too. */
    for (const char *p = engine.rest; *p;) {
        p = skip_token(p);
        if (p == NULL)
            return false;
    }
    *ret = engine;
    return true;
}

/* A string literal and nothing else. */
static bool element_is_string(const char *p, const char *end)
{
    p = skip_spaces(p);
    if (p >= end || *p != '\'')
        return false;
    p = skip_quoted(p);
    return p && skip_spaces(p) >= end;
}

/* Behind path and replica name, when the arguments begin with them. */
static const char *skip_replica_strings(const char *p, const char *end)
{
    const char *begin = p;
    for (size_t i = 0; i < REPLICA_STRINGS; i++) {
        const char *next = skip_element(p, end);
        if (next == NULL || !element_is_string(p, next))
            return begin;
        p = next < end ? next + 1 : next;
    }
    return p < end ? skip_spaces(p) : p;
}

char *table_engine_plain(const char *engine_full)
{
    struct engine_text engine;
    if (!engine_read(engine_full, &engine))
        return NULL;
    size_t prefix = strlen(REPLICATED);
    if (engine.name_len <= prefix || strncmp(engine.name, REPLICATED, prefix) != 0)
        return mem_strdup(engine_full);
    const char *end = engine.arguments + engine.arguments_len;
    const char *arguments = skip_replica_strings(engine.arguments, end);
    struct buf out = {0};
    buf_append(&out, engine.name + prefix, engine.name_len - prefix);
    if (arguments < end) {
        buf_puts(&out, "(");
        buf_append(&out, arguments, (size_t)(end - arguments));
        buf_puts(&out, ")");
    }
    buf_puts(&out, engine.rest);
    return buf_take(&out);
}

bool table_engine_split(const char *engine_full, char **ret_name, char **ret_arguments)
{
    struct engine_text engine;
    if (!engine_read(engine_full, &engine))
        return false;
    *ret_name = mem_strndup(engine.name, engine.name_len);
    *ret_arguments = mem_strndup(engine.arguments, engine.arguments_len);
    return true;
}

bool table_engine_is_old_syntax(const char *engine_plain)
{
    struct engine_text engine;
    if (!engine_read(engine_plain, &engine) || *skip_spaces(engine.rest) != '\0')
        return false;
    const char *end = engine.arguments + engine.arguments_len;
    size_t n = 0;
    for (const char *p = engine.arguments; p && p < end; n++) {
        p = skip_element(p, end);
        if (p && p < end)
            p++;
    }
    return n >= OLD_ARGUMENTS;
}

/* ---- settings ---- */

static bool setting_name(const char *p, const char *end, const char **ret_name, size_t *ret_len)
{
    p = skip_spaces(p);
    const char *name = p;
    while (p < end && is_word(*p))
        p++;
    *ret_name = name;
    *ret_len = (size_t)(p - name);
    p = skip_spaces(p);
    return *ret_len > 0 && p < end && *p == '=';
}

/* `name = value, …` to the end of the text, at least one. */
static bool is_settings_list(const char *p)
{
    const char *end = p + strlen(p);
    do {
        const char *name;
        size_t len;
        const char *next = skip_element(p, end);
        if (next == NULL || !setting_name(p, next, &name, &len))
            return false;
        p = next < end ? next + 1 : NULL;
    } while (p);
    return true;
}

/* The SETTINGS clause at the end of the rest, or its end when there is none. */
static const char *find_settings(const char *rest)
{
    const char *found = NULL;
    for (const char *p = rest; *p;) {
        const char *next = skip_token(p);
        if ((size_t)(next - p) == strlen(SETTINGS) && strncmp(p, SETTINGS, strlen(SETTINGS)) == 0 &&
            is_settings_list(next))
            found = p;
        p = next;
    }
    return found ? found : rest + strlen(rest);
}

/* True when a list of settings sets this one. */
static bool settings_have(const char *settings, const char *name, size_t len)
{
    const char *end = settings + strlen(settings);
    for (const char *p = settings; p < end;) {
        const char *next = skip_element(p, end);
        const char *own;
        size_t own_len;
        if (next == NULL)
            return false;
        if (setting_name(p, next, &own, &own_len) && own_len == len && strncmp(own, name, len) == 0)
            return true;
        p = next < end ? next + 1 : next;
    }
    return false;
}

static bool name_in(const char *const *names, const char *name, size_t len)
{
    for (; *names; names++)
        if (strlen(*names) == len && strncmp(*names, name, len) == 0)
            return true;
    return false;
}

char *table_engine_with_settings(const char *engine_plain, const char *settings,
                                 const char *const *dropped)
{
    struct engine_text engine;
    if (!engine_read(engine_plain, &engine) || table_engine_is_old_syntax(engine_plain))
        return mem_strdup(engine_plain);
    const char *clause = find_settings(engine.rest);
    const char *head_end = clause;
    while (head_end > engine_plain && isspace((unsigned char)head_end[-1]))
        head_end--;
    struct buf out = {0};
    buf_append(&out, engine_plain, (size_t)(head_end - engine_plain));
    const char *separator = " SETTINGS ";
    const char *p = *clause ? clause + strlen(SETTINGS) : clause;
    const char *end = clause + strlen(clause);
    while (p < end) {
        const char *next = skip_element(p, end);
        const char *name;
        size_t len;
        if (setting_name(p, next, &name, &len) && !name_in(dropped, name, len) &&
            !settings_have(settings, name, len)) {
            buf_puts(&out, separator);
            buf_append(&out, name, (size_t)(next - name));
            separator = ", ";
        }
        p = next < end ? next + 1 : next;
    }
    if (*settings) {
        buf_puts(&out, separator);
        buf_puts(&out, settings);
    }
    return buf_take(&out);
}
