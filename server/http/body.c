/* SPDX-License-Identifier: Apache-2.0
 *
 * See body.h. The states of a chunked body:
 *
 *   SIZE -> [EXTENSION] -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE …
 *                             | size 0
 *                             v
 *                       TRAILER_START -> TRAILER -> TRAILER_LF -> TRAILER_START …
 *                             | CR
 *                             v
 *                           END_LF -> done
 */
#include "http/body.h"

#include "base/hex.h"

void http_body_init(struct http_body *body, enum http_framing framing, uint64_t content_length)
{
    *body = (struct http_body){.framing = framing};
    if (framing == HTTP_FRAMING_LENGTH)
        body->remaining = content_length;
    body->done = framing == HTTP_FRAMING_NONE;
}

static bool is_control(unsigned char c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

static const char *chunk_size(struct http_body *body, unsigned char c)
{
    int value = hex_value((char)c);
    if (value >= 0) {
        /* 15 digits are 2^60 bytes: enough, and no overflow. */
        if (++body->digits > 15)
            return "a chunk size has too many digits";
        body->remaining = body->remaining * 16 + (unsigned)value;
        return NULL;
    }
    if (body->digits == 0)
        return "a chunk size is missing";
    if (c == '\r')
        body->state = HTTP_CHUNK_SIZE_LF;
    else if (c == ';')
        body->state = HTTP_CHUNK_EXTENSION;
    else
        return "a chunk size is not hexadecimal";
    return NULL;
}

static const char *chunk_extension(struct http_body *body, unsigned char c)
{
    if (c == '\r') {
        body->state = HTTP_CHUNK_SIZE_LF;
        return NULL;
    }
    if (is_control(c))
        return "a chunk extension holds a control character or a bare LF";
    if (++body->extensions_bytes > HTTP_EXTENSIONS_BYTES_MAX)
        return "the chunk extensions are too long";
    return NULL;
}

static const char *chunk_size_lf(struct http_body *body, unsigned char c)
{
    if (c != '\n')
        return "a chunk size is not ended by CRLF";
    body->state = body->remaining ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILER_START;
    body->line_bytes = 0;
    body->digits = 0;
    return NULL;
}

static const char *chunk_data_end(struct http_body *body, unsigned char c)
{
    if (c != (body->state == HTTP_CHUNK_DATA_CR ? '\r' : '\n'))
        return "a chunk is not ended by CRLF";
    body->state = body->state == HTTP_CHUNK_DATA_CR ? HTTP_CHUNK_DATA_LF : HTTP_CHUNK_SIZE;
    return NULL;
}

static const char *chunk_trailer(struct http_body *body, unsigned char c)
{
    if (++body->trailer_bytes > HTTP_TRAILER_BYTES_MAX)
        return "the trailer section is too long";
    bool line_start = body->state == HTTP_CHUNK_TRAILER_START;
    if (c == '\r') {
        body->state = line_start ? HTTP_CHUNK_END_LF : HTTP_CHUNK_TRAILER_LF;
        return NULL;
    }
    if (is_control(c) || (line_start && (c == ' ' || c == '\t' || c == ':')))
        return "a trailer is malformed";
    body->state = HTTP_CHUNK_TRAILER;
    return NULL;
}

static const char *chunk_trailer_lf(struct http_body *body, unsigned char c)
{
    if (c != '\n')
        return "a trailer is not ended by CRLF";
    if (body->state == HTTP_CHUNK_END_LF)
        body->done = true;
    else
        body->state = HTTP_CHUNK_TRAILER_START;
    return NULL;
}

static const char *chunk_byte(struct http_body *body, unsigned char c)
{
    switch (body->state) {
    case HTTP_CHUNK_SIZE:
    case HTTP_CHUNK_EXTENSION:
        if (++body->line_bytes > HTTP_CHUNK_LINE_BYTES_MAX)
            return "a chunk's first line is too long";
        return body->state == HTTP_CHUNK_SIZE ? chunk_size(body, c) : chunk_extension(body, c);
    case HTTP_CHUNK_SIZE_LF:
        return chunk_size_lf(body, c);
    case HTTP_CHUNK_DATA_CR:
    case HTTP_CHUNK_DATA_LF:
        return chunk_data_end(body, c);
    case HTTP_CHUNK_TRAILER_START:
    case HTTP_CHUNK_TRAILER:
        return chunk_trailer(body, c);
    case HTTP_CHUNK_TRAILER_LF:
    case HTTP_CHUNK_END_LF:
        return chunk_trailer_lf(body, c);
    case HTTP_CHUNK_DATA:
        break;
    }
    return "internal: data is no framing";
}

/* Takes content: what is left of the chunk or of the body, as far as it is there. */
static size_t take(struct http_body *body, size_t len)
{
    size_t take_bytes = len < body->remaining ? len : (size_t)body->remaining;
    body->remaining -= take_bytes;
    if (body->remaining == 0) {
        if (body->framing == HTTP_FRAMING_LENGTH)
            body->done = true;
        else
            body->state = HTTP_CHUNK_DATA_CR;
    }
    return take_bytes;
}

bool http_body_next(struct http_body *body, const char *data, size_t len, size_t *ret_used,
                    const char **ret_data, size_t *ret_len, const char **ret_reason)
{
    size_t used = 0;
    size_t content = 0;
    while (used < len && !body->done && content == 0) {
        if (body->framing == HTTP_FRAMING_LENGTH || body->state == HTTP_CHUNK_DATA) {
            content = take(body, len - used);
            *ret_data = data + used;
            used += content;
            continue;
        }
        const char *reason = chunk_byte(body, (unsigned char)data[used++]);
        if (reason) {
            *ret_reason = reason;
            return false;
        }
    }
    *ret_used = used;
    *ret_len = content;
    return true;
}
