/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading JSON with jansson, and telling bad JSON from too little memory: when an allocation fails in the middle of a parse,
 * jansson may call the text wrong, so a text that it refuses is looked at by a small grammar of our own, which needs
 * no memory.
 */
#include "client/src/internal.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2048u /* jansson's own */

/* ---- the grammar of RFC 8259; text ends with NUL ---- */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* The number behind a backslash and u, or 0: NUL is refused as well. */
static unsigned unicode(const char *at)
{
    char digits[5] = "";
    for (size_t i = 0; i < 4 && at[i]; i++)
        digits[i] = at[i];
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (unsigned)strtoul(digits, NULL, 16) : 0;
}

/* From a backslash to the last character of what it stands for. */
static const char *skip_escape(const char *at)
{
    if (*++at == '\0' || strchr("\"\\/bfnrtu", *at) == NULL)
        return NULL;
    if (*at != 'u')
        return at;
    unsigned first = unicode(at + 1) >> 10;
    if (unicode(at + 1) == 0 || first == 0xdc00 >> 10)
        return NULL;
    if (first != 0xd800 >> 10)
        return at + 4;
    bool pair = at[5] == '\\' && at[6] == 'u' && unicode(at + 7) >> 10 == 0xdc00 >> 10;
    return pair ? at + 10 : NULL;
}

static const char *skip_string(const char *at)
{
    for (at++; at && *at != '"'; at = at ? at + 1 : NULL) {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at == '\\')
            at = skip_escape(at);
    }
    return at ? at + 1 : NULL;
}

static const char *skip_digits(const char *at)
{
    size_t n = at ? strspn(at, "0123456789") : 0;
    return n ? at + n : NULL;
}

static const char *skip_number(const char *at)
{
    at += *at == '-';
    at = *at == '0' ? at + 1 : skip_digits(at);
    if (at && *at == '.')
        at = skip_digits(at + 1);
    if (at && (*at == 'e' || *at == 'E'))
        at = skip_digits(at + 1 + (at[1] == '+' || at[1] == '-'));
    return at;
}

static const char *skip_word(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    return skip_number(at);
}

static const char *skip_value(const char *at, unsigned depth);

/* Of an object or a list, behind its bracket. */
static const char *skip_members(const char *at, bool object, unsigned depth)
{
    char close = object ? '}' : ']';
    at = skip_blanks(at);
    if (*at == close)
        return at + 1;
    for (;;) {
        if (object) {
            at = *at == '"' ? skip_string(at) : NULL;
            at = at ? skip_blanks(at) : NULL;
            if (at == NULL || *at++ != ':')
                return NULL;
        }
        at = skip_value(skip_blanks(at), depth + 1);
        if (at == NULL)
            return NULL;
        at = skip_blanks(at);
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
        at = skip_blanks(at);
    }
}

static const char *skip_value(const char *at, unsigned depth)
{
    if (depth > DEPTH_MAX)
        return NULL;
    if (*at == '{' || *at == '[')
        return skip_members(at + 1, *at == '{', depth);
    return *at == '"' ? skip_string(at) : skip_word(at);
}

static bool grammatical(const char *text)
{
    const char *end = skip_value(skip_blanks(text), 0);
    return end && *skip_blanks(end) == '\0';
}

/* ---- parsing ---- */

int cx_json_parse(const char *text, json_t **ret_value, json_error_t *where)
{
    *ret_value = json_loads(text, JSON_DECODE_ANY, where);
    if (*ret_value)
        return 0;
    switch (json_error_code(where)) {
    case json_error_out_of_memory:
    case json_error_unknown:
        return CHXA_ERR_NO_MEMORY;
    case json_error_invalid_syntax:
    case json_error_premature_end_of_input:
    case json_error_end_of_input_expected:
    case json_error_wrong_type:
    case json_error_invalid_utf8:
        return grammatical(text) && cx_utf8_valid(text) ? CHXA_ERR_NO_MEMORY : CHXA_ERR_BAD_ANSWER;
    default:
        return CHXA_ERR_BAD_ANSWER;
    }
}

int cx_json_check(const char *what, const char *text, struct chxa_error *error)
{
    json_error_t where = {0};
    json_t *value;
    int code = cx_json_parse(text, &value, &where);
    json_decref(value);
    if (code == CHXA_ERR_NO_MEMORY)
        return cx_no_memory(error);
    return code ? cx_fail(error, CHXA_ERR_INVALID_REQUEST, "%s is not JSON: %s", what, where.text)
                : 0;
}

/* ---- members ---- */

const char *cx_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

uint64_t cx_json_number(const json_t *object, const char *key)
{
    json_int_t number = json_integer_value(json_object_get(object, key));
    return number > 0 ? (uint64_t)number : 0;
}

char *cx_json_dump(const json_t *value, bool *failed)
{
    if (value == NULL || json_is_null(value))
        return NULL;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT), *copy = cx_strdup(text);
    free(text);
    if (copy == NULL)
        *failed = true;
    return copy;
}
