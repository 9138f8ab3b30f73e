/* SPDX-License-Identifier: Apache-2.0
 *
 * See gather_body.h.
 */
#include "core/gather_body.h"

#include <string.h>
#include <strings.h>

enum shape {
    SHAPE_TABS,  /* a line is a row; a backslash takes the newline behind it along */
    SHAPE_CSV,   /* likewise, outside quotes */
    SHAPE_JSON,  /* objects, with white space or commas between them */
    SHAPE_BYTES, /* rows say themselves where they end */
};

static const struct {
    const char *format;
    enum shape shape;
} formats[] = {
    {"TabSeparated", SHAPE_TABS}, {"TSV", SHAPE_TABS},         {"TSKV", SHAPE_TABS},
    {"CSV", SHAPE_CSV},           {"JSONEachRow", SHAPE_JSON}, {"RowBinary", SHAPE_BYTES},
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

/* Parts of the names of settings that act on an INSERT as a whole, or on its first or last lines, or change where a CSV
 * field ends. */
static const char *const settings_apart[] = {
    "allow_errors", "skip_first_lines", "skip_trailing", "detect_header", "_csv_",
    "_tsv_crlf",    "max_execution",    "max_rows",      "max_bytes",
};

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, len) == 0)
            return true;
    return false;
}

bool gather_setting_joins(const char *name)
{
    for (size_t i = 0; i < sizeof settings_apart / sizeof *settings_apart; i++)
        if (has_word(name, settings_apart[i]))
            return false;
    return true;
}

bool gather_statement_joins(const char *query)
{
    return !has_word(query, "SETTINGS") || gather_setting_joins(query);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_blank(const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_space(data[i]))
            return false;
    return true;
}

static size_t first_line(const char *data, size_t len)
{
    const char *end = memchr(data, '\n', len);
    return end ? (size_t)(end - data) : len;
}

/* ---- the lines of TSV, TSKV and CSV ---- */

/* With the newline that is added a lone CR becomes a line's end, and a last line of blanks a row. */
static bool lines_join(const char *data, size_t len)
{
    size_t last = len;
    while (last > 0 && data[last - 1] != '\n')
        last--;
    return data[len - 1] != '\r' && (last == len || !is_blank(data + last, len - last));
}

/* The last line's end is a row's end; and a CR before it is refused in the first line of an INSERT only. */
static bool tabs_join(const char *data, size_t len)
{
    size_t first = first_line(data, len), n = 0;
    if (first && data[first - 1] == '\r')
        return false;
    if (data[len - 1] == '\n')
        len--;
    while (n < len && data[len - 1 - n] == '\\')
        n++;
    return n % 2 == 0;
}

/* Whether every quote is closed, where a double one, and this one, opens a field. */
static bool quotes_closed(const char *data, size_t len, char other)
{
    bool at_field = true;
    char open = '\0';
    for (size_t i = 0; i < len; i++) {
        char c = data[i];
        if (open) {
            if (c == open && i + 1 < len && data[i + 1] == open)
                i++; /* two of them are one of the field's own */
            else if (c == open)
                open = '\0';
        } else if (c == ',' || c == '\n' || c == '\r') {
            at_field = true;
        } else if (at_field && (c == '"' || c == other)) {
            open = c;
            at_field = false;
        } else if (c == '"') {
            /* Newer servers that cut a long INSERT for several readers take it for one that opens a field; and
             * elsewhere it does, where the server's profile has another delimiter. */
            return false;
        } else if (c != ' ' && c != '\t') {
            at_field = false;
        }
    }
    return open == '\0';
}

/* Old servers take an open quote at the end for a closed one. Whether a single one opens a field is up to the server. */
static bool fields_join(const char *data, size_t len)
{
    if (data[len - 1] == ' ' || data[len - 1] == '\t')
        return false; /* a newline behind it trims the field */
    bool has_single = memchr(data, '\'', len) != NULL, has_double = memchr(data, '"', len) != NULL;
    return (!has_double || quotes_closed(data, len, '"')) &&
           (!has_single || quotes_closed(data, len, '\''));
}

/* ---- JSONEachRow ---- */

/* Nothing but whole objects: an array, or a semicolon behind one, ends the reading. */
static bool objects_join(const char *data, size_t len)
{
    size_t depth = 0, begin = 0;
    bool in_string = false;
    while (len > 0 && is_space(data[len - 1]))
        len--;
    while (begin < len && is_space(data[begin]))
        begin++;
    if (data[begin] != '{' || data[len - 1] != '}')
        return false;
    for (size_t i = begin; i < len; i++) {
        char c = data[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (depth == 0) {
            if (c == '{')
                depth++;
            else if (c != ',' && !is_space(c))
                return false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return depth == 0 && !in_string;
}

/* ---- what newer servers find out by themselves ---- */

static const char mark[] = "\xEF\xBB\xBF"; /* left out at the beginning of an INSERT only */

static bool has_mark(const char *data, size_t len)
{
    return len >= sizeof mark - 1 && memcmp(data, mark, sizeof mark - 1) == 0;
}

static bool is_trimmed(char c, bool quoted)
{
    return c == ' ' || c == '\r' || (quoted && (c == '\t' || c == '"' || c == '\''));
}

bool gather_body_has_header(const char *format, const char *data, size_t len,
                            gather_is_column *is_column, void *arg)
{
    const enum shape *shape = find_shape(format);
    bool csv = shape && *shape == SHAPE_CSV;
    if (shape == NULL || (*shape != SHAPE_TABS && !csv) || strcmp(format, "TSKV") == 0)
        return false;
    size_t end = first_line(data, len), begin = 0;
    while (begin <= end) {
        size_t field = begin;
        while (field < end && data[field] != (csv ? ',' : '\t'))
            field++;
        size_t from = begin, to = field;
        while (from < to && is_trimmed(data[from], csv))
            from++;
        while (to > from && is_trimmed(data[to - 1], csv))
            to--;
        if (from == to || !is_column(arg, data + from, to - from))
            return false;
        begin = field + 1;
    }
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
    if (is_blank(data, len) || has_mark(data, len))
        return false;
    *ret_newline = data[len - 1] != '\n';
    switch (*shape) {
    case SHAPE_TABS:
        return lines_join(data, len) && tabs_join(data, len);
    case SHAPE_CSV:
        return lines_join(data, len) && fields_join(data, len);
    case SHAPE_JSON:
        return objects_join(data, len);
    case SHAPE_BYTES:
        break;
    }
    return false;
}
