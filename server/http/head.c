/* SPDX-License-Identifier: Apache-2.0
 *
 * See head.h. What is refused here and why: whoever stands in front of this server (a proxy, a load
 * balancer) must not be able to see another request boundary than we do, so that everything
 * ambiguous in a head is an error and never repaired.
 */
#include "http/head.h"

#include "base/mem.h"

#include <llhttp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int invalid(struct error *error, const char *what)
{
    return error_set(error, CHXA_E_INVALID_REQUEST, "%s", what);
}

/* ---- the scan ---- */

static int scan_too_large(const struct http_head_scan *scan, const struct http_head_limits *limits,
                          struct error *error)
{
    if (scan->state == HTTP_SCAN_REQUEST_LINE && scan->spaces == 1)
        return error_set(error, CHXA_E_URI_TOO_LONG,
                         "the request target does not fit into a head of %zu bytes",
                         limits->head_bytes_max);
    return error_set(error, CHXA_E_HEADERS_TOO_LARGE, "the request head is longer than %zu bytes",
                     limits->head_bytes_max);
}

static int scan_request_line(struct http_head_scan *scan, const struct http_head_limits *limits,
                             unsigned char c, struct error *error)
{
    if (c == '\r') {
        if (scan->spaces != 2)
            return invalid(error, "the request line is not \"method target HTTP/1.1\"");
        scan->state = HTTP_SCAN_CR;
    } else if (c == ' ') {
        if (++scan->spaces > 2)
            return invalid(error, "the request line has more than two spaces");
    } else if (c < 0x20 || c == 0x7f) {
        return invalid(error, "the request line holds a control character or a bare LF");
    } else if (scan->spaces == 1 && ++scan->target_bytes > limits->url_bytes_max) {
        return error_set(error, CHXA_E_URI_TOO_LONG, "the request target is longer than %zu bytes",
                         limits->url_bytes_max);
    }
    return 0;
}

static int scan_line_start(struct http_head_scan *scan, const struct http_head_limits *limits,
                           unsigned char c, struct error *error)
{
    if (c == '\r') {
        scan->state = HTTP_SCAN_END_CR;
        return 0;
    }
    if (c == ' ' || c == '\t')
        return invalid(error, "a header is folded over several lines (obs-fold)");
    if (c < 0x20 || c == 0x7f)
        return invalid(error, "a header holds a control character or a bare LF");
    if (++scan->headers > limits->headers_max)
        return error_set(error, CHXA_E_HEADERS_TOO_LARGE, "more than %zu header fields",
                         limits->headers_max);
    scan->state = HTTP_SCAN_LINE;
    return 0;
}

static int scan_line(struct http_head_scan *scan, unsigned char c, struct error *error)
{
    if (c == '\r')
        scan->state = HTTP_SCAN_CR;
    else if ((c < 0x20 && c != '\t') || c == 0x7f)
        return invalid(error, "a header holds a control character or a bare LF");
    return 0;
}

static int scan_lf(struct http_head_scan *scan, unsigned char c, enum http_scan_state next,
                   struct error *error)
{
    if (c != '\n')
        return invalid(error, "the request head holds a bare CR");
    scan->state = next;
    return 0;
}

static int scan_start(struct http_head_scan *scan, const struct http_head_limits *limits,
                      unsigned char c, struct error *error)
{
    if (c == '\r') {
        scan->state = HTTP_SCAN_START_CR;
        return 0;
    }
    scan->state = HTTP_SCAN_REQUEST_LINE;
    if (c == ' ')
        return invalid(error, "the request line begins with a space");
    return scan_request_line(scan, limits, c, error);
}

static int scan_byte(struct http_head_scan *scan, const struct http_head_limits *limits,
                     unsigned char c, struct error *error)
{
    switch (scan->state) {
    case HTTP_SCAN_START:
        return scan_start(scan, limits, c, error);
    case HTTP_SCAN_REQUEST_LINE:
        return scan_request_line(scan, limits, c, error);
    case HTTP_SCAN_LINE_START:
        return scan_line_start(scan, limits, c, error);
    case HTTP_SCAN_LINE:
        return scan_line(scan, c, error);
    case HTTP_SCAN_CR:
        return scan_lf(scan, c, HTTP_SCAN_LINE_START, error);
    case HTTP_SCAN_START_CR:
        return scan_lf(scan, c, HTTP_SCAN_START, error);
    case HTTP_SCAN_END_CR:
        return scan_lf(scan, c, HTTP_SCAN_DONE, error);
    case HTTP_SCAN_DONE:
        break;
    }
    return error_set(error, CHXA_E_INTERNAL, "scan behind the end of a head");
}

int http_head_scan(struct http_head_scan *scan, const struct http_head_limits *limits,
                   const char *data, size_t len, size_t *ret_used, size_t *ret_skip,
                   struct error *error)
{
    size_t used = 0;
    size_t skip = 0;
    while (used < len && scan->state != HTTP_SCAN_DONE) {
        int code = scan_byte(scan, limits, (unsigned char)data[used], error);
        if (code)
            return code;
        if (++scan->bytes > limits->head_bytes_max)
            return scan_too_large(scan, limits, error);
        used++;
        if (scan->state == HTTP_SCAN_START || scan->state == HTTP_SCAN_START_CR)
            skip = used;
    }
    *ret_used = used;
    *ret_skip = skip;
    return 0;
}

/* ---- the parse ---- */

struct span {
    const char *at;
    size_t len;
};

struct field_span {
    struct span name;
    struct span value;
};

/* What llhttp reports, as places in the head. The head is executed in one call, so that spans of
 * one item follow each other. */
struct split {
    struct span target;
    struct field_span *fields; /* owned */
    size_t n_fields;
    size_t fields_cap;
    bool name_open; /* the last field's name may go on */
    bool complete;
};

static void span_add(struct span *span, const char *at, size_t len)
{
    if (span->at == NULL)
        *span = (struct span){at, len};
    else
        span->len = (size_t)(at + len - span->at);
}

static int on_url(llhttp_t *parser, const char *at, size_t len)
{
    struct split *split = parser->data;
    span_add(&split->target, at, len);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t len)
{
    struct split *split = parser->data;
    if (!split->name_open) {
        split->name_open = true;
        if (split->n_fields == split->fields_cap) {
            split->fields_cap = split->fields_cap ? split->fields_cap * 2 : 16;
            split->fields = mem_realloc(split->fields, split->fields_cap * sizeof *split->fields);
        }
        split->fields[split->n_fields++] = (struct field_span){{NULL, 0}, {NULL, 0}};
    }
    span_add(&split->fields[split->n_fields - 1].name, at, len);
    return 0;
}

/* The mark between two fields; on_header_value is none, an empty value has no such call. */
static int on_header_field_complete(llhttp_t *parser)
{
    struct split *split = parser->data;
    split->name_open = false;
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t len)
{
    struct split *split = parser->data;
    if (split->n_fields == 0)
        return -1;
    span_add(&split->fields[split->n_fields - 1].value, at, len);
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    struct split *split = parser->data;
    split->complete = true;
    return HPE_PAUSED; /* the body is not llhttp's: see body.h */
}

static const llhttp_settings_t *split_settings(llhttp_settings_t *settings)
{
    llhttp_settings_init(settings);
    settings->on_url = on_url;
    settings->on_header_field = on_header_field;
    settings->on_header_field_complete = on_header_field_complete;
    settings->on_header_value = on_header_value;
    settings->on_headers_complete = on_headers_complete;
    return settings;
}

/* RFC 9110 section 5.6.2 */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (c == '\0' || (!alnum && strchr("!#$%&'*+-.^_`|~", c) == NULL))
            return false;
    }
    return len > 0;
}

static struct span trimmed(struct span span)
{
    while (span.len && (*span.at == ' ' || *span.at == '\t')) {
        span.at++;
        span.len--;
    }
    while (span.len && (span.at[span.len - 1] == ' ' || span.at[span.len - 1] == '\t'))
        span.len--;
    return span;
}

/* Ends a span in place; the byte behind it is a separator that is not needed any more. */
static const char *ended(char *bytes, struct span span)
{
    char *end = bytes + (span.at - bytes) + span.len;
    *end = '\0';
    return span.at;
}

static int head_fields(struct http_head *head, const struct split *split, struct error *error)
{
    head->headers = mem_array(split->n_fields, sizeof *head->headers);
    for (size_t i = 0; i < split->n_fields; i++) {
        struct span name = split->fields[i].name;
        if (!is_token(name.at, name.len))
            return invalid(error, "a header's name is not a token");
        struct span value = trimmed(split->fields[i].value);
        head->headers[i].name = ended(head->bytes, name);
        /* An empty span may lie behind its line. */
        head->headers[i].value = value.len ? ended(head->bytes, value) : "";
    }
    head->n_headers = split->n_fields;
    return 0;
}

static size_t header_count(const struct http_head *head, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < head->n_headers; i++)
        count += strcasecmp(head->headers[i].name, name) == 0;
    return count;
}

const char *http_head_header(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}

/* Digits only: no sign, no list, no space inside. */
static bool length_parse(const char *text, uint64_t *ret_length)
{
    uint64_t length = 0;
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        unsigned digit = (unsigned)(*text - '0');
        if (length > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        length = length * 10 + digit;
    }
    *ret_length = length;
    return true;
}

static int head_framing(struct http_head *head, struct error *error)
{
    const char *length = http_head_header(head, "Content-Length");
    const char *coding = http_head_header(head, "Transfer-Encoding");
    if (length && coding)
        return invalid(error, "both Content-Length and Transfer-Encoding");
    if (header_count(head, "Content-Length") > 1)
        return invalid(error, "more than one Content-Length");
    if (header_count(head, "Transfer-Encoding") > 1)
        return invalid(error, "more than one Transfer-Encoding");
    if (coding) {
        if (strcasecmp(coding, "chunked") != 0)
            return invalid(error, "a Transfer-Encoding other than chunked");
        if (head->minor == 0)
            return invalid(error, "Transfer-Encoding in HTTP/1.0");
        head->framing = HTTP_FRAMING_CHUNKED;
    } else if (length) {
        if (!length_parse(length, &head->content_length))
            return invalid(error, "Content-Length is not a number");
        head->framing = head->content_length ? HTTP_FRAMING_LENGTH : HTTP_FRAMING_NONE;
    }
    return 0;
}

static int head_meaning(struct http_head *head, struct error *error)
{
    size_t hosts = header_count(head, "Host");
    if (hosts > 1)
        return invalid(error, "more than one Host");
    if (hosts == 0 && head->minor >= 1)
        return invalid(error, "HTTP/1.1 without Host");
    int code = head_framing(head, error);
    if (code)
        return code;
    const char *expect = http_head_header(head, "Expect");
    if (expect && head->minor >= 1) {
        if (strcasecmp(expect, "100-continue") != 0 || header_count(head, "Expect") > 1)
            return error_set(error, CHXA_E_EXPECTATION_FAILED, "an Expect other than 100-continue");
        head->expect_continue = head->framing != HTTP_FRAMING_NONE;
    }
    return http_target_decode(head, error);
}

int http_head_parse(char *bytes, size_t len, struct http_head *ret_head, struct error *error)
{
    struct http_head head = {.bytes = bytes};
    struct split split = {0};
    llhttp_settings_t settings;
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, split_settings(&settings));
    parser.data = &split;

    int code;
    llhttp_errno_t failed = llhttp_execute(&parser, bytes, len);
    if (!split.complete || failed != HPE_PAUSED) {
        const char *reason = llhttp_get_error_reason(&parser);
        code = invalid(error, reason && *reason ? reason : "the request head is malformed");
        goto out;
    }
    if (parser.http_major != 1 || parser.http_minor > 1) {
        code = invalid(error, "a version other than HTTP/1.0 and HTTP/1.1");
        goto out;
    }
    head.minor = parser.http_minor;
    head.keep_alive = llhttp_should_keep_alive(&parser) != 0;
    head.method = llhttp_method_name((llhttp_method_t)parser.method);
    code = head_fields(&head, &split, error);
    if (code)
        goto out;
    head.target = ended(bytes, split.target);
    code = head_meaning(&head, error);
out:
    free(split.fields);
    if (code)
        http_head_clear(&head);
    else
        *ret_head = head;
    return code;
}

void http_head_clear(struct http_head *head)
{
    free(head->bytes);
    free(head->headers);
    free(head->decoded);
    free(head->params);
    *head = (struct http_head){0};
}
