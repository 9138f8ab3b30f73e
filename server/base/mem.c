/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation that cannot fail; see mem.h.
 */
#include "base/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *block)
{
    if (block == NULL) {
        fputs("level=fatal msg=\"out of memory\"\n", stderr);
        abort();
    }
    return block;
}

void *mem_alloc(size_t bytes)
{
    return checked(calloc(1, bytes ? bytes : 1));
}

void *mem_array(size_t count, size_t bytes)
{
    return checked(calloc(count ? count : 1, bytes ? bytes : 1));
}

void *mem_realloc(void *old, size_t bytes)
{
    return checked(realloc(old, bytes ? bytes : 1));
}

char *mem_strdup(const char *text)
{
    return text ? checked(strdup(text)) : NULL;
}

char *mem_strndup(const char *text, size_t bytes)
{
    return checked(strndup(text, bytes));
}

char *mem_vprintf(const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    return checked(text);
}

char *mem_printf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    return text;
}

void mem_free_text(const char *text)
{
    free((char *)(uintptr_t)text);
}

void mem_replace(char **slot, const char *text)
{
    char *copy = mem_strdup(text);
    free(*slot);
    *slot = copy;
}
