/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an answer: status line, headers, the error object. Pure; any thread.
 */
#ifndef CHXA_HTTP_REPLY_H
#define CHXA_HTTP_REPLY_H

#include "base/buf.h"
#include "http/http.h"

struct http_reply {
    int status;
    const struct http_header *headers;
    size_t n_headers;
    const char *content_type; /* or NULL */
    int64_t body_bytes;       /* -1: of unknown length */
    bool chunked;             /* then in chunks, else until the connection is closed */
    bool keep_alive;
    uint64_t keep_alive_ms;
};

/* True when every name is a token and no value holds a control character. */
bool http_reply_headers_valid(const struct http_header *headers, size_t n_headers);
/* Appends the head. Headers that are ours to say (Content-Length, Transfer-Encoding, Connection,
 * Keep-Alive, Date, and Content-Type beside content_type) are left out of reply->headers. */
void http_reply_head(struct buf *out, const struct http_reply *reply);
/* False for a status that has no body (1xx, 204, 304). */
bool http_reply_has_body(int status);
/* Appends {"error":{"code","message","retryable","outcome"}}. */
void http_reply_error_json(struct buf *out, const struct error *error);

#endif
