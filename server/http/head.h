/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of a request: where it ends, and what it says. No sockets and no clock in here, so that
 * a fuzzer can drive it.
 *
 * Two passes. http_head_scan looks at bytes as they arrive, refuses what must not be in a head
 * (bare CR or LF, control characters, obs-fold, too many bytes) and finds its end. http_head_parse
 * then gets the complete head in one piece: llhttp splits and validates it, and what llhttp lets
 * pass in its loose build (LLHTTP_STRICT_MODE 0) is checked behind it.
 *
 * Threads: any, one at a time per object.
 */
#ifndef CHXA_HTTP_HEAD_H
#define CHXA_HTTP_HEAD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_PARAMS_MAX 1024u /* URL parameters; more are 400 */

struct http_head_limits {
    size_t head_bytes_max; /* all bytes up to and with the empty line */
    size_t url_bytes_max;  /* the request target */
    size_t headers_max;
};

enum http_scan_state {
    HTTP_SCAN_START, /* nothing but empty lines so far */
    HTTP_SCAN_REQUEST_LINE,
    HTTP_SCAN_LINE_START, /* behind a CRLF */
    HTTP_SCAN_LINE,
    HTTP_SCAN_CR,       /* behind the CR that ends a line */
    HTTP_SCAN_START_CR, /* behind the CR of a leading empty line */
    HTTP_SCAN_END_CR,   /* behind the CR of the empty line that ends the head */
    HTTP_SCAN_DONE,
};

/* Zero-initialise for each head. */
struct http_head_scan {
    enum http_scan_state state;
    size_t bytes;        /* counted so far, leading empty lines included */
    size_t target_bytes; /* of the request target */
    size_t headers;
    unsigned spaces; /* in the request line */
};

/* Looks at the next bytes of a head. Returns 0 and *ret_used bytes that belong to it (all of them,
 * unless the state is now DONE), *ret_skip of these in front being empty lines that are no part of
 * what http_head_parse may see. Else INVALID_REQUEST, URI_TOO_LONG, HEADERS_TOO_LARGE. */
int http_head_scan(struct http_head_scan *scan, const struct http_head_limits *limits,
                   const char *data, size_t len, size_t *ret_used, size_t *ret_skip,
                   struct error *error);

enum http_framing { HTTP_FRAMING_NONE, HTTP_FRAMING_LENGTH, HTTP_FRAMING_CHUNKED };

struct http_field {
    const char *name;
    const char *value;
};

struct http_head {
    char *bytes;        /* owned; the strings below point into it */
    const char *method; /* static */
    const char *target;
    struct http_field *headers; /* owned array */
    size_t n_headers;
    char *decoded; /* owned; path and parameters point into it */
    const char *path;
    struct http_field *params; /* owned array */
    size_t n_params;
    unsigned minor; /* HTTP/1.minor */
    bool keep_alive;
    bool expect_continue;
    enum http_framing framing;
    uint64_t content_length; /* with HTTP_FRAMING_LENGTH, at least 1 */
};

/* Takes bytes (len of them, a head that http_head_scan called complete, allocated with one byte
 * more) whatever the result. On failure, *ret_head is untouched: INVALID_REQUEST,
 * EXPECTATION_FAILED. */
int http_head_parse(char *bytes, size_t len, struct http_head *ret_head, struct error *error);
void http_head_clear(struct http_head *head);
/* First value of a header, or NULL. */
const char *http_head_header(const struct http_head *head, const char *name);

/* ---- target.c: the request target's path and parameters ---- */

/* Fills decoded, path, params of head from head->target. INVALID_REQUEST; then head holds what was
 * allocated, for http_head_clear. */
int http_target_decode(struct http_head *head, struct error *error);

#endif
