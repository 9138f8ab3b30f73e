/* SPDX-License-Identifier: Apache-2.0
 *
 * See gather_body.h.
 */
#include "core/gather_body.h"

#include <string.h>

enum shape {
    SHAPE_TABS,  /* a line is a row; a backslash takes the newline behind it along */
    SHAPE_CSV,   /* likewise, outside quotes */
    SHAPE_JSON,  /* objects, with white space between them */
    SHAPE_BYTES, /* rows say themselves where they end */
};

static const struct {
    const char *format;
    enum shape shape;
} formats[] = {
    {"TabSeparated", SHAPE_TABS}, {"TSV", SHAPE_TABS},         {"TSKV", SHAPE_TABS},
    {"CSV", SHAPE_CSV},           {"JSONEachRow", SHAPE_JSON}, {"RowBinary", SHAPE_BYTES},
    {"Native", SHAPE_BYTES},
};

/* NULL: no such format. */
static const enum shape *find_shape(const char *format)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].format) == 0)
            return &formats[i].shape;
    return NULL;
}

bool gather_format_joins(const char *format)
{
    return find_shape(format) != NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool ends_in_escape(const char *data, size_t len)
{
    size_t n = 0;
    while (n < len && data[len - 1 - n] == '\\')
        n++;
    return n % 2 == 1;
}

/* The last line's end is a row's end. */
static bool tabs_join(const char *data, size_t len)
{
    if (data[len - 1] == '\n')
        len--;
    return !ends_in_escape(data, len);
}

/* No quote of either kind is open at the end, however the fields are parted. */
static bool quotes_join(const char *data, size_t len)
{
    size_t n_single = 0, n_double = 0;
    for (size_t i = 0; i < len; i++) {
        n_single += data[i] == '\'';
        n_double += data[i] == '"';
    }
    return n_single % 2 == 0 && n_double % 2 == 0;
}

static bool objects_join(const char *data, size_t len)
{
    size_t begin = 0;
    while (begin < len && is_space(data[begin]))
        begin++;
    while (len > begin && is_space(data[len - 1]))
        len--;
    return data[begin] == '{' && data[len - 1] == '}';
}

static bool is_blank(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_space(data[i]))
            return false;
    return true;
}

bool gather_body_joins(const char *format, const char *data, size_t len, bool *ret_newline)
{
    const enum shape *shape = find_shape(format);
    *ret_newline = false;
    if (shape == NULL || len == 0)
        return false;
    if (*shape == SHAPE_BYTES)
        return true;
    if (is_blank(data, len))
        return false;
    *ret_newline = data[len - 1] != '\n';
    switch (*shape) {
    case SHAPE_TABS:
        return tabs_join(data, len);
    case SHAPE_CSV:
        return quotes_join(data, len);
    case SHAPE_JSON:
        return objects_join(data, len);
    case SHAPE_BYTES:
        break;
    }
    return false;
}
