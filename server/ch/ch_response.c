/* SPDX-License-Identifier: Apache-2.0
 *
 * See ch_response.h.
 */
#include "ch/ch_response.h"

#include "base/hex.h"
#include "base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* How far from its end a body is searched for an exception that broke off a result. ClickHouse
 * itself keeps such a text under 16 KiB. */
#define TAIL_BYTES_MAX ((size_t)32 * 1024)

void ch_response_clear(struct ch_response *response)
{
    free(response->summary);
    free(response->query_id);
    buf_clear(&response->body);
    *response = (struct ch_response){.body.bytes_max = response->body.bytes_max};
}

/* A decimal number of at most 9 digits (exception numbers, statuses); -1 when there is none. */
static int parse_number(const char *text, size_t len)
{
    int value = 0;
    size_t i = 0;
    for (; i < len && isdigit((unsigned char)text[i]); i++) {
        if (i == 9)
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return i ? value : -1;
}

static bool parse_length(const char *text, size_t len, int base, unsigned long long *ret_value)
{
    unsigned long long value = 0;
    size_t i = 0;
    for (int digit; i < len && (digit = hex_value(text[i])) >= 0; i++) {
        if (digit >= base || i == 15)
            return false;
        value = value * (unsigned)base + (unsigned)digit;
    }
    *ret_value = value;
    return i > 0;
}

static void keep_header(char **slot, const char *value, size_t len)
{
    free(*slot);
    *slot = mem_strndup(value, len);
}

static bool name_is(const char *line, size_t name_len, const char *name)
{
    return strlen(name) == name_len && strncasecmp(line, name, name_len) == 0;
}

static void read_header(struct ch_response *response, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return;
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1;
    size_t value_len = len - name_len - 1;
    while (value_len && (*value == ' ' || *value == '\t')) {
        value++;
        value_len--;
    }
    while (value_len && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;

    if (name_is(line, name_len, "X-ClickHouse-Exception-Code")) {
        /* The header may be there with nothing in it: no exception. */
        response->header_exception = value_len ? parse_number(value, value_len) : 0;
    } else if (name_is(line, name_len, "X-ClickHouse-Summary")) {
        keep_header(&response->summary, value, value_len);
    } else if (name_is(line, name_len, "X-ClickHouse-Query-Id")) {
        keep_header(&response->query_id, value, value_len);
    } else if (name_is(line, name_len, "Transfer-Encoding")) {
        response->chunked = value_len >= 7 && strncasecmp(value + value_len - 7, "chunked", 7) == 0;
    } else if (name_is(line, name_len, "Content-Length")) {
        response->has_length = parse_length(value, value_len, 10, &response->length);
    }
}

void ch_response_line(struct ch_response *response, const char *line, size_t len)
{
    while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
        len--;
    if (response->head_done)
        return; /* a trailer */
    if (len == 0) {
        response->head_done = response->status >= 200;
    } else if (len >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        ch_response_clear(response);
        const char *space = memchr(line, ' ', len);
        int status = space ? parse_number(space + 1, len - (size_t)(space + 1 - line)) : -1;
        response->status = status < 0 ? 0 : status;
    } else {
        read_header(response, line, len);
    }
}

void ch_response_body(struct ch_response *response, const char *data, size_t len)
{
    size_t max = response->body.bytes_max;
    assert(max);
    size_t room = max - response->body.len;
    if (len > room) {
        len = room;
        response->body_cut = true;
    }
    buf_append(&response->body, data, len);
}

static void raw_chunks(struct ch_response *response, const char *data, size_t len)
{
    for (;;) {
        const char *end = memchr(data, '\n', len);
        unsigned long long chunk = 0;
        if (!end || !parse_length(data, (size_t)(end - data), 16, &chunk) || chunk == 0)
            return;
        len -= (size_t)(end + 1 - data);
        data = end + 1;
        size_t take = chunk < len ? (size_t)chunk : len;
        ch_response_body(response, data, take);
        data += take;
        len -= take;
        /* The line end behind the chunk. */
        while (len && (*data == '\r' || *data == '\n')) {
            data++;
            len--;
        }
    }
}

bool ch_response_raw(struct ch_response *response, const char *data, size_t len)
{
    if (len < 5 || memcmp(data, "HTTP/", 5) != 0)
        return false;
    while (!response->head_done) {
        const char *end = memchr(data, '\n', len);
        if (!end)
            return false;
        ch_response_line(response, data, (size_t)(end - data));
        len -= (size_t)(end + 1 - data);
        data = end + 1;
    }
    if (response->chunked)
        raw_chunks(response, data, len);
    else if (response->has_length && response->length < len)
        ch_response_body(response, data, (size_t)response->length);
    else
        ch_response_body(response, data, len);
    return true;
}

/* An exception that is not ClickHouse's own, for instance of a file operation: `Poco::Exception.
 * Code: 1000, e.code() = 2, …`. The length of what stands before `Code: `. */
static size_t foreign_prefix(const char *text, size_t len)
{
    static const char *const prefixes[] = {"Poco::Exception. ", "std::exception. ",
                                           "Unknown exception. "};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t need = strlen(prefixes[i]);
        if (len >= need && memcmp(text, prefixes[i], need) == 0)
            return need;
    }
    return 0;
}

/* The number when text begins like an exception of 18.16 (`Code: 60, e.displayText() = …`) or of
 * newer servers (`Code: 60. DB::Exception: …`); -1 otherwise. */
static int exception_number(const char *text, size_t len)
{
    static const char *const behind[] = {", e.displayText()", ", e.what()",
                                         ". DB::", ", e.code() = ", ", type: "};
    size_t foreign = foreign_prefix(text, len);
    text += foreign;
    len -= foreign;
    if (len < 6 || memcmp(text, "Code: ", 6) != 0)
        return -1;
    text += 6;
    len -= 6;
    int number = parse_number(text, len);
    if (number < 0)
        return -1;
    while (len && isdigit((unsigned char)*text)) {
        text++;
        len--;
    }
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        size_t need = strlen(behind[i]);
        if (len >= need && memcmp(text, behind[i], need) == 0)
            return number;
    }
    return -1;
}

/*
 * An exception in the middle of a result: a line `__exception__`, on the newest servers a line with
 * a random tag, then the text. Returns its start or NULL.
 */
static const char *exception_in_tail(const struct buf *body)
{
    static const char mark[] = "__exception__";
    if (body->len < sizeof mark)
        return NULL;
    size_t at = body->len > TAIL_BYTES_MAX ? body->len - TAIL_BYTES_MAX : 0;
    const char *end = body->data + body->len;
    const char *from = body->data + at;
    const char *found;
    while ((found = memmem(from, (size_t)(end - from), mark, sizeof mark - 1))) {
        from = found + sizeof mark - 1;
        const char *text = from;
        for (int line = 0; line < 2; line++) {
            const char *eol = memchr(text, '\n', (size_t)(end - text));
            if (!eol)
                break;
            text = eol + 1;
            if (exception_number(text, (size_t)(end - text)) >= 0)
                return text;
        }
    }
    return NULL;
}

bool ch_response_exception(const struct ch_response *response, int *ret_code, const char **ret_text)
{
    const char *text = buf_str(&response->body);
    int number = exception_number(text, response->body.len);
    if (number < 0) {
        const char *tail = exception_in_tail(&response->body);
        if (tail) {
            text = tail;
            number = exception_number(tail, strlen(tail));
        }
    }
    if (number < 0 && response->header_exception == 0)
        return false;
    *ret_code = response->header_exception > 0 ? response->header_exception
                : number > 0                   ? number
                                               : 0;
    *ret_text = text;
    return true;
}

size_t ch_response_trimmed(const char *text)
{
    size_t len = strlen(text);
    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        len--;
    return len > INT32_MAX ? INT32_MAX : len;
}
