/* SPDX-License-Identifier: Apache-2.0
 *
 * Percent-decoding of a request target (see head.h). The path: %XX only, `+` is itself. Parameters:
 * form-decoded, `+` is a space. A malformed escape is refused, never guessed at: what is decoded
 * here is SQL and transaction ids. An encoded NUL is refused everywhere (the strings are C
 * strings), an encoded slash in the path (two paths must not look alike to us and to a proxy).
 */
#include "base/hex.h"
#include "base/mem.h"
#include "http/head.h"

#include <string.h>

/* Decodes in place, up to the end of the string. */
static int decode(char *text, bool is_path, struct error *error)
{
    char *out = text;
    for (const char *in = text; *in; in++) {
        char c = *in;
        if (c == '%') {
            int high = hex_value(in[1]);
            int low = high < 0 ? -1 : hex_value(in[2]);
            if (low < 0)
                return error_set(error, CHXA_E_INVALID_REQUEST,
                                 "the URL holds a %% without two hexadecimal digits behind it");
            c = (char)(high * 16 + low);
            in += 2;
            if (c == '\0' || (is_path && c == '/'))
                return error_set(error, CHXA_E_INVALID_REQUEST, "the URL holds an encoded %s",
                                 c ? "slash in its path" : "NUL");
        } else if (c == '+' && !is_path) {
            c = ' ';
        }
        *out++ = c;
    }
    *out = '\0';
    return 0;
}

static int decode_params(struct http_head *head, char *query, struct error *error)
{
    size_t count = 1;
    for (const char *c = query; *c; c++)
        count += *c == '&';
    if (count > HTTP_PARAMS_MAX)
        return error_set(error, CHXA_E_INVALID_REQUEST, "more than %u URL parameters",
                         HTTP_PARAMS_MAX);
    head->params = mem_array(count, sizeof *head->params);
    for (char *item = query; item;) {
        char *next = strchr(item, '&');
        if (next)
            *next++ = '\0';
        if (*item) {
            char *value = strchr(item, '=');
            if (value)
                *value++ = '\0';
            int code = decode(item, false, error);
            if (code == 0 && value)
                code = decode(value, false, error);
            if (code)
                return code;
            head->params[head->n_params++] = (struct http_field){item, value ? value : ""};
        }
        item = next;
    }
    return 0;
}

int http_target_decode(struct http_head *head, struct error *error)
{
    const char *target = head->target;
    if (strchr(target, '#'))
        return error_set(error, CHXA_E_INVALID_REQUEST, "the request target holds a fragment");
    if (*target != '/' && strcmp(target, "*") != 0) {
        /* absolute form, as sent to proxies: scheme://authority/path */
        const char *authority = strstr(target, "://");
        const char *query = strchr(target, '?');
        if (authority == NULL || (query && query < authority))
            return error_set(error, CHXA_E_INVALID_REQUEST,
                             "the request target is not a path or an absolute URL");
        target = authority + 3 + strcspn(authority + 3, "/?");
    }
    head->decoded = mem_printf("%s%s", *target == '/' || *target == '*' ? "" : "/", target);
    head->path = head->decoded;
    char *query = strchr(head->decoded, '?');
    if (query)
        *query++ = '\0';
    int code = decode(head->decoded, true, error);
    if (code == 0 && query)
        code = decode_params(head, query, error);
    return code;
}
