/* SPDX-License-Identifier: Apache-2.0
 *
 * What every file of the tool may use: memory that is never NULL, complaints, and the worse of two ends.
 */
#include "text.h"
#include "tool.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

_Noreturn static void no_memory(void)
{
    fputs("chxa: out of memory\n", stderr);
    exit(TOOL_FAILED);
}

void *tool_alloc(size_t bytes)
{
    return tool_realloc(NULL, bytes);
}

void *tool_realloc(void *memory, size_t bytes)
{
    void *longer = realloc(memory, bytes ? bytes : 1);
    if (longer == NULL)
        no_memory();
    return longer;
}

char *tool_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(tool_alloc(bytes), text, bytes);
}

void *tool_keep(void *memory)
{
    static void **kept;
    static size_t n_kept;
    kept = tool_realloc(kept, (n_kept + 1) * sizeof *kept);
    kept[n_kept++] = memory;
    return memory;
}

static char *print(const char *format, va_list arguments)
{
    char *text = NULL;
    if (vasprintf(&text, format, arguments) < 0)
        no_memory();
    return text;
}

char *tool_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = print(format, arguments);
    va_end(arguments);
    return text;
}

json_t *tool_json(json_t *value)
{
    if (value == NULL)
        no_memory();
    return value;
}

void tool_json_set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, tool_json(value)) != 0)
        no_memory();
}

static void complain(const char *format, va_list arguments)
{
    char *text = print(format, arguments);
    fflush(stdout);
    fputs("chxa: ", stderr);
    text_put(stderr, text);
    fputc('\n', stderr);
    free(text);
}

void tool_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
}

int tool_usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(format, arguments);
    va_end(arguments);
    return TOOL_USAGE;
}

int tool_exit_worse(int left, int right)
{
    static const int order[] = {TOOL_INTERRUPTED, TOOL_UNKNOWN,  TOOL_UNREACHABLE,
                                TOOL_FAILED,      TOOL_USAGE,    TOOL_REFUSED,
                                TOOL_NOT_FOUND,   TOOL_DECLINED, TOOL_FINDINGS};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (left == order[i] || right == order[i])
            return order[i];
    return TOOL_OK;
}
