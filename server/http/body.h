/* SPDX-License-Identifier: Apache-2.0
 *
 * The framing of a request body: Content-Length or chunked, strictly (RFC 9112 section 7.1),
 * without copying a byte. Our own and not llhttp's, whose loose build skips the CRLF behind a chunk
 * unseen and takes bare LFs. Chunk extensions and trailers are checked, bounded and dropped.
 *
 * No sockets and no clock, for the fuzzer. Threads: any, one at a time per object.
 */
#ifndef CHXA_HTTP_BODY_H
#define CHXA_HTTP_BODY_H

#include "http/head.h"

#define HTTP_CHUNK_LINE_BYTES_MAX 4096u  /* a chunk's size and extensions */
#define HTTP_EXTENSIONS_BYTES_MAX 65536u /* extensions of a whole body */
#define HTTP_TRAILER_BYTES_MAX    16384u /* the trailer section */

enum http_chunk_state {
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_DATA_CR,
    HTTP_CHUNK_DATA_LF,
    HTTP_CHUNK_TRAILER_START,
    HTTP_CHUNK_TRAILER,
    HTTP_CHUNK_TRAILER_LF,
    HTTP_CHUNK_END_LF,
};

struct http_body {
    enum http_framing framing;
    enum http_chunk_state state;
    uint64_t remaining; /* of the chunk, or of the Content-Length */
    unsigned digits;    /* of the chunk size read so far */
    size_t line_bytes;
    size_t extensions_bytes;
    size_t trailer_bytes;
    bool done;
};

void http_body_init(struct http_body *body, enum http_framing framing, uint64_t content_length);

/* Looks at the next bytes: uses *ret_used of them, among which the *ret_len (maybe 0) at *ret_data
 * are content, the last ones used. Call again with the rest until len is used up or body->done.
 * False when the framing is broken; *ret_reason then says how (static), and it must not be called
 * again. */
bool http_body_next(struct http_body *body, const char *data, size_t len, size_t *ret_used,
                    const char **ret_data, size_t *ret_len, const char **ret_reason);

#endif
