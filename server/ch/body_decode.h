/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies in clear: what clients compress with (Content-Encoding, or ClickHouse's own blocks), decoded
 * piece by piece in bounded memory. The caller takes as much as it has room for, so a body that
 * expands a thousandfold costs time and no memory.
 *
 * Threads: any, one at a time per object.
 */
#ifndef CHXA_CH_BODY_DECODE_H
#define CHXA_CH_BODY_DECODE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum body_coding {
    BODY_CLEAR,
    BODY_GZIP,    /* RFC 1952, any number of members */
    BODY_DEFLATE, /* zlib's wrapping (RFC 1950), or none: clients send both under this name */
    BODY_ZSTD,    /* RFC 8878, any number of frames */
    BODY_LZ4,     /* LZ4 frame format 1.6, any number of frames */
    BODY_BR,      /* RFC 7932 */
    BODY_NATIVE,  /* ClickHouse's blocks, as with decompress=1: LZ4, ZSTD or none in each */
};

/* The coding that a Content-Encoding names (NULL, "" and "identity": BODY_CLEAR), case-insensitive.
 * False for any other, a list of several too. */
bool body_coding_of(const char *content_encoding, enum body_coding *ret_coding);

struct body_decoder;

/* CHXA_E_NO_MEMORY when the library has none. */
struct body_decoder *body_decoder_new(enum body_coding coding);
void body_decoder_free(struct body_decoder *decoder);
/* Gives it the next bytes (copied). Only when it has none left: body_decoder_take returned 0. */
void body_decoder_put(struct body_decoder *decoder, const void *data, size_t len);
/* Decodes up to room bytes into to; *ret_len of them, 0 when it needs more input. room > 0.
 * UNSUPPORTED_ENCODING with *error: these bytes are not what they were said to be. */
int body_decoder_take(struct body_decoder *decoder, void *to, size_t room, size_t *ret_len,
                      struct error *error);
/* What it holds now: state, windows, blocks, input. It changes with body_decoder_put and _take. */
size_t body_decoder_memory(const struct body_decoder *decoder);
/* All input is there, and taken: BODY_TRUNCATED when it ends in the middle of something. */
int body_decoder_end(const struct body_decoder *decoder, struct error *error);

#endif
