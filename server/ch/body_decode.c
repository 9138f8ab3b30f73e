/* SPDX-License-Identifier: Apache-2.0
 *
 * See body_decode.h. Each coding is a row of the table `codings`: how to begin, and how to decode some
 * input into some room. A step may take input, give output, or both; when it does neither it waits for
 * input.
 */
#include "ch/body_decode.h"

#include "base/buf.h"
#include "base/mem.h"
#include "ch/native_block.h"

#include <assert.h>
#include <brotli/decode.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

/* Largest window a zstd body may ask for, as browsers and ClickHouse accept: 128 MiB. */
#define ZSTD_WINDOW_LOG_MAX 27

struct body_decoder {
    const struct coding *coding;
    char *input; /* owned */
    size_t input_len, at;
    bool begun; /* some input of the current member or frame was taken */
    union {
        z_stream *zlib;
        ZSTD_DStream *zstd;
        LZ4F_dctx *lz4;
        BrotliDecoderState *br;
        struct native_block *native;
    } state;
    size_t bytes;   /* br, lz4: what the library holds, or may */
    bool raw;       /* deflate without zlib's wrapping */
    bool told;      /* deflate: its first two bytes have said whether it is raw */
    bool has_first; /* deflate: the first byte came alone; it goes in front of the next input */
    char first;
    bool finished; /* br: the one stream is over */
};

struct coding {
    const char *name;
    void (*begin)(struct body_decoder *decoder);
    void (*end)(struct body_decoder *decoder);
    /* Moves decoder->at. *ret_len bytes were put into to. Returns NULL, or what is wrong (static). */
    const char *(*step)(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len);
    size_t (*memory)(const struct body_decoder *decoder);
};

static const char *left(const struct body_decoder *decoder)
{
    return decoder->input + decoder->at;
}

static size_t left_len(const struct body_decoder *decoder)
{
    return decoder->input_len - decoder->at;
}

/* ---- none ---- */

static void clear_begin(struct body_decoder *decoder)
{
    (void)decoder;
}

static const char *clear_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    *ret_len = left_len(decoder) < room ? left_len(decoder) : room;
    if (*ret_len)
        memcpy(to, left(decoder), *ret_len);
    decoder->at += *ret_len;
    return NULL;
}

static size_t clear_memory(const struct body_decoder *decoder)
{
    (void)decoder;
    return 0;
}

/* ---- gzip, deflate ---- */

static void zlib_begin_with(struct body_decoder *decoder, int window_bits)
{
    decoder->state.zlib = mem_alloc(sizeof *decoder->state.zlib);
    if (inflateInit2(decoder->state.zlib, window_bits) != Z_OK)
        abort(); /* out of memory, as in base/mem.h */
}

static void gzip_begin(struct body_decoder *decoder)
{
    zlib_begin_with(decoder, 16 + MAX_WBITS);
}

static void deflate_begin(struct body_decoder *decoder)
{
    zlib_begin_with(decoder, MAX_WBITS);
}

static void zlib_end(struct body_decoder *decoder)
{
    inflateEnd(decoder->state.zlib);
    free(decoder->state.zlib);
}

static int zlib_inflate(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    z_stream *zlib = decoder->state.zlib;
    uInt some = room < (1u << 30) ? (uInt)room : 1u << 30;
    zlib->next_in = (unsigned char *)decoder->input + decoder->at;
    zlib->avail_in = (uInt)left_len(decoder);
    zlib->next_out = (unsigned char *)to;
    zlib->avail_out = some;
    int result = inflate(zlib, Z_NO_FLUSH);
    decoder->at = decoder->input_len - zlib->avail_in;
    *ret_len = some - zlib->avail_out;
    return result;
}

static const char *gzip_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    /* Output may be left inside zlib even when all input is taken, but not between members. */
    if (left_len(decoder) == 0 && !decoder->begun)
        return NULL;
    decoder->begun = true;
    int result = zlib_inflate(decoder, to, room, ret_len);
    if (result == Z_STREAM_END) {
        decoder->begun = false;
        inflateReset(decoder->state.zlib);
        return NULL;
    }
    return result == Z_OK || result == Z_BUF_ERROR ? NULL : "no sound gzip member";
}

/* Is this zlib's header (RFC 1950)? No encoder's bare stream begins like it: the bits that padding leaves are set. */
static bool is_zlib_header(const unsigned char *two)
{
    return (two[0] & 0x0f) == Z_DEFLATED && two[0] >> 4 <= MAX_WBITS - 8 &&
           (two[0] * 256 + two[1]) % 31 == 0;
}

/* Two bytes tell a bare stream from a wrapped one. */
static void deflate_tell(struct body_decoder *decoder)
{
    decoder->told = true;
    decoder->raw = !is_zlib_header((const unsigned char *)left(decoder));
    if (decoder->raw)
        inflateReset2(decoder->state.zlib, -MAX_WBITS);
}

static const char *deflate_step(struct body_decoder *decoder, char *to, size_t room,
                                size_t *ret_len)
{
    if (decoder->finished)
        return left_len(decoder) ? "bytes behind the end of the deflate stream" : NULL;
    if (left_len(decoder) == 0 && !decoder->begun)
        return NULL;
    decoder->begun = true;
    if (!decoder->told && left_len(decoder) < 2) {
        if (left_len(decoder) == 1) {
            decoder->has_first = true;
            decoder->first = *left(decoder);
            decoder->at++;
        }
        return NULL;
    }
    if (!decoder->told)
        deflate_tell(decoder);
    int result = zlib_inflate(decoder, to, room, ret_len);
    if (result == Z_STREAM_END) {
        decoder->finished = true;
        decoder->begun = false;
        return NULL;
    }
    return result == Z_OK || result == Z_BUF_ERROR ? NULL : "no sound deflate stream";
}

/* Its window of 32 KiB, and as much again for its tables, as zconf.h says. */
static size_t zlib_memory(const struct body_decoder *decoder)
{
    (void)decoder;
    return (size_t)64 * 1024;
}

/* ---- zstd ---- */

static void zstd_begin(struct body_decoder *decoder)
{
    decoder->state.zstd = ZSTD_createDStream();
    if (decoder->state.zstd == NULL)
        abort(); /* out of memory, as in base/mem.h */
    ZSTD_DCtx_setParameter(decoder->state.zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
}

static void zstd_end(struct body_decoder *decoder)
{
    ZSTD_freeDStream(decoder->state.zstd);
}

static const char *zstd_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    if (left_len(decoder) == 0 && !decoder->begun)
        return NULL;
    ZSTD_inBuffer in = {left(decoder), left_len(decoder), 0};
    ZSTD_outBuffer out = {to, room, 0};
    size_t result = ZSTD_decompressStream(decoder->state.zstd, &out, &in);
    decoder->at += in.pos;
    *ret_len = out.pos;
    if (ZSTD_isError(result))
        return "no sound zstd frame";
    decoder->begun = result != 0;
    return NULL;
}

static size_t zstd_memory(const struct body_decoder *decoder)
{
    return ZSTD_sizeof_DStream(decoder->state.zstd);
}

/* ---- lz4 frames ---- */

static void lz4_begin(struct body_decoder *decoder)
{
    if (LZ4F_isError(LZ4F_createDecompressionContext(&decoder->state.lz4, LZ4F_VERSION)))
        abort(); /* out of memory, as in base/mem.h */
}

static void lz4_end(struct body_decoder *decoder)
{
    LZ4F_freeDecompressionContext(decoder->state.lz4);
}

/* Between two frames the library keeps the largest one's. */
static void lz4_note_memory(struct body_decoder *decoder)
{
    static const size_t dictionaries = (size_t)128 * 1024;
    static const size_t block_bytes[] = {
        [LZ4F_max64KB] = (size_t)64 * 1024,
        [LZ4F_max256KB] = (size_t)256 * 1024,
        [LZ4F_max1MB] = (size_t)1024 * 1024,
        [LZ4F_max4MB] = (size_t)4 * 1024 * 1024,
    };
    LZ4F_frameInfo_t info;
    size_t none = 0;
    if (LZ4F_isError(LZ4F_getFrameInfo(decoder->state.lz4, &info, NULL, &none)))
        return; /* its head is not there yet */
    size_t id = (size_t)info.blockSizeID;
    if (id >= sizeof block_bytes / sizeof *block_bytes)
        id = LZ4F_max4MB;
    size_t bytes = 2 * block_bytes[id] + dictionaries;
    if (bytes > decoder->bytes)
        decoder->bytes = bytes;
}

static const char *lz4_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    if (left_len(decoder) == 0 && !decoder->begun)
        return NULL;
    size_t in = left_len(decoder), out = room;
    size_t result = LZ4F_decompress(decoder->state.lz4, to, &out, left(decoder), &in, NULL);
    decoder->at += in;
    *ret_len = out;
    if (LZ4F_isError(result))
        return "no sound lz4 frame";
    decoder->begun = result != 0;
    if (decoder->begun)
        lz4_note_memory(decoder);
    return NULL;
}

static size_t lz4_memory(const struct body_decoder *decoder)
{
    return decoder->bytes;
}

/* ---- brotli ---- */

/* Each piece has its size in front, so that what is freed can be counted. */
#define BR_SIZE_BYTES ((size_t)16)

static void *br_allocate(void *arg, size_t size)
{
    struct body_decoder *decoder = arg;
    size_t *piece = malloc(BR_SIZE_BYTES + size);
    if (piece == NULL)
        abort(); /* out of memory, as in base/mem.h */
    *piece = size;
    decoder->bytes += size;
    return (char *)piece + BR_SIZE_BYTES;
}

static void br_release(void *arg, void *memory)
{
    struct body_decoder *decoder = arg;
    if (memory == NULL)
        return;
    size_t *piece = (size_t *)(void *)((char *)memory - BR_SIZE_BYTES);
    decoder->bytes -= *piece;
    free(piece);
}

static size_t br_memory(const struct body_decoder *decoder)
{
    return decoder->bytes;
}

static void br_begin(struct body_decoder *decoder)
{
    decoder->state.br = BrotliDecoderCreateInstance(br_allocate, br_release, decoder);
    if (decoder->state.br == NULL)
        abort(); /* out of memory, as in base/mem.h */
}

static void br_end(struct body_decoder *decoder)
{
    BrotliDecoderDestroyInstance(decoder->state.br);
}

static const char *br_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    if (decoder->finished)
        return left_len(decoder) ? "bytes behind the end of the brotli stream" : NULL;
    if (left_len(decoder) == 0 && !decoder->begun)
        return NULL;
    decoder->begun = true;
    size_t in = left_len(decoder), out = room;
    const unsigned char *next_in = (const unsigned char *)left(decoder);
    unsigned char *next_out = (unsigned char *)to;
    BrotliDecoderResult result =
        BrotliDecoderDecompressStream(decoder->state.br, &in, &next_in, &out, &next_out, NULL);
    decoder->at = decoder->input_len - in;
    *ret_len = room - out;
    if (result == BROTLI_DECODER_RESULT_ERROR)
        return "no sound brotli stream";
    if (result == BROTLI_DECODER_RESULT_SUCCESS) {
        decoder->finished = true;
        decoder->begun = false;
    }
    return NULL;
}

/* ---- ClickHouse's blocks ---- */

static void native_begin(struct body_decoder *decoder)
{
    decoder->state.native = native_block_new();
}

static void native_end(struct body_decoder *decoder)
{
    native_block_free(decoder->state.native);
}

static const char *native_step(struct body_decoder *decoder, char *to, size_t room, size_t *ret_len)
{
    const char *problem = NULL;
    *ret_len = native_block_take(decoder->state.native, to, room);
    if (*ret_len == 0 && left_len(decoder)) {
        decoder->at +=
            native_block_put(decoder->state.native, left(decoder), left_len(decoder), &problem);
        *ret_len = problem ? 0 : native_block_take(decoder->state.native, to, room);
    }
    decoder->begun = native_block_begun(decoder->state.native);
    return problem;
}

static size_t native_memory(const struct body_decoder *decoder)
{
    return native_block_memory(decoder->state.native);
}

/* ---- interface ---- */

static const struct coding codings[] = {
    [BODY_CLEAR] = {"identity", clear_begin, clear_begin, clear_step, clear_memory},
    [BODY_GZIP] = {"gzip", gzip_begin, zlib_end, gzip_step, zlib_memory},
    [BODY_DEFLATE] = {"deflate", deflate_begin, zlib_end, deflate_step, zlib_memory},
    [BODY_ZSTD] = {"zstd", zstd_begin, zstd_end, zstd_step, zstd_memory},
    [BODY_LZ4] = {"lz4", lz4_begin, lz4_end, lz4_step, lz4_memory},
    [BODY_BR] = {"br", br_begin, br_end, br_step, br_memory},
    [BODY_NATIVE] = {NULL, native_begin, native_end, native_step,
                     native_memory}, /* has no Content-Encoding */
};

bool body_coding_of(const char *content_encoding, enum body_coding *ret_coding)
{
    if (content_encoding == NULL || *content_encoding == '\0') {
        *ret_coding = BODY_CLEAR;
        return true;
    }
    if (strcasecmp(content_encoding, "x-gzip") == 0)
        content_encoding = "gzip";
    for (size_t i = 0; i < sizeof codings / sizeof *codings; i++)
        if (codings[i].name && strcasecmp(content_encoding, codings[i].name) == 0) {
            *ret_coding = (enum body_coding)i;
            return true;
        }
    return false;
}

struct body_decoder *body_decoder_new(enum body_coding coding)
{
    struct body_decoder *decoder = mem_alloc(sizeof *decoder);
    decoder->coding = &codings[coding];
    decoder->coding->begin(decoder);
    return decoder;
}

void body_decoder_free(struct body_decoder *decoder)
{
    if (decoder == NULL)
        return;
    decoder->coding->end(decoder);
    free(decoder->input);
    free(decoder);
}

void body_decoder_put(struct body_decoder *decoder, const void *data, size_t len)
{
    assert(left_len(decoder) == 0);
    size_t before = decoder->has_first;
    decoder->input = mem_realloc(decoder->input, before + len + 1);
    if (before)
        decoder->input[0] = decoder->first;
    memcpy(decoder->input + before, data, len);
    decoder->input_len = before + len;
    decoder->at = 0;
    decoder->has_first = false;
}

int body_decoder_take(struct body_decoder *decoder, void *to, size_t room, size_t *ret_len,
                      struct error *error)
{
    assert(room > 0);
    for (;;) {
        size_t at = decoder->at;
        *ret_len = 0;
        const char *problem = decoder->coding->step(decoder, to, room, ret_len);
        if (problem)
            return error_set(error, CHXA_E_UNSUPPORTED_ENCODING, "the body is not %s: %s",
                             decoder->coding->name ? decoder->coding->name
                                                   : "in ClickHouse's native compression",
                             problem);
        if (*ret_len || decoder->at == at)
            return 0;
    }
}

size_t body_decoder_memory(const struct body_decoder *decoder)
{
    return decoder->input_len + decoder->coding->memory(decoder);
}

int body_decoder_end(const struct body_decoder *decoder, struct error *error)
{
    assert(left_len(decoder) == 0);
    if (decoder->begun)
        return error_set(error, CHXA_E_BODY_TRUNCATED,
                         "the body ends in the middle of its compressed data; nothing of it was "
                         "kept");
    return 0;
}
