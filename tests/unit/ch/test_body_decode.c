/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressed bodies: every coding whole, in crumbs, cut short, damaged; ClickHouse's blocks and their
 * checksum against values made by other implementations.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "ch/body_decode.h"
#include "ch/city_hash.h"
#include "ch/native_block.h"
#include "lib/suite.h"

#include <check.h>
#include <lz4.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

/* ---- CityHash128 1.0.2; values from the Python package clickhouse-cityhash 1.0.2 ---- */

static const struct {
    size_t len;
    uint64_t low, high;
} hashes[] = {
    {0, UINT64_C(0x3df09dfc64c09a2b), UINT64_C(0x3cb540c392e51e29)},
    {1, UINT64_C(0x5a03ab4f802b3f6c), UINT64_C(0x58a88a3c8a31e91a)},
    {3, UINT64_C(0x3108fa6b1da16986), UINT64_C(0x32301bf0c250612d)},
    {4, UINT64_C(0x2b36229ba99aa334), UINT64_C(0x25e1c052f6408d75)},
    {7, UINT64_C(0x4d6955e1bc4624e3), UINT64_C(0x252e8c015f4c9bd0)},
    {8, UINT64_C(0x9feb346ce8e35a98), UINT64_C(0xf2f9f1185545d8ba)},
    {9, UINT64_C(0x80885008a99d77f2), UINT64_C(0x0854364fe84aef88)},
    {15, UINT64_C(0x1443b6470aa1c7ff), UINT64_C(0x70f998835a684c59)},
    {16, UINT64_C(0x4e7e2890890c933d), UINT64_C(0x9b6511d6440477c7)},
    {17, UINT64_C(0xf0e9ed04b1c7f44e), UINT64_C(0x8a17c6d04d5431ae)},
    {20, UINT64_C(0xc50d5188dd3f0cd4), UINT64_C(0xbc678d2c1155160a)},
    {24, UINT64_C(0x3a34086b235ecfbb), UINT64_C(0x0cb65080ace6058f)},
    {25, UINT64_C(0x7396cd4ed292081b), UINT64_C(0xd3383823f829f861)},
    {31, UINT64_C(0x99f185112aa9cd7e), UINT64_C(0xd42762edf0508928)},
    {32, UINT64_C(0xadf0df935f46a6c9), UINT64_C(0x45c6069d82f7b2fc)},
    {33, UINT64_C(0xd5513023ba6cfa27), UINT64_C(0x07943a16a8757b14)},
    {48, UINT64_C(0x9f72d6597fa54484), UINT64_C(0x91ec40eca51b02c3)},
    {49, UINT64_C(0x0ed88d7528ad753e), UINT64_C(0x15f67759eb7a7510)},
    {64, UINT64_C(0x5e4814caa88e96df), UINT64_C(0x0ed8510d87379cb2)},
    {100, UINT64_C(0x2053973196d17d5a), UINT64_C(0xd4e6ce4e7564ace7)},
    {127, UINT64_C(0x4f13561d5be076e7), UINT64_C(0x38f8d0cde62497c7)},
    {128, UINT64_C(0xcf62d3c7adbc75a9), UINT64_C(0x74badcfa53f7ac90)},
    {143, UINT64_C(0xd9e0dedd250a44da), UINT64_C(0x6c7eb8fd5e5bd6a8)},
    {144, UINT64_C(0xfbce3da5a8ff2dd6), UINT64_C(0xe0dbdd0442ed57e6)},
    {145, UINT64_C(0x35ce7b645ec7b243), UINT64_C(0x78e40e981b9fc775)},
    {159, UINT64_C(0x6c4d88a70782818a), UINT64_C(0x8225a7a939fe8308)},
    {160, UINT64_C(0xbd37c4b84e04b399), UINT64_C(0x5566571cbbc0bfba)},
    {161, UINT64_C(0x76681d763373f7fd), UINT64_C(0x5acb592bc8710229)},
    {271, UINT64_C(0xc212e2bb5725d843), UINT64_C(0x69f05e93bb9dfa10)},
    {272, UINT64_C(0xbc8c72b236c44673), UINT64_C(0xa3ea8207cfd9b709)},
    {300, UINT64_C(0x3d4454aeb58d912b), UINT64_C(0x183e5532b8f0c27c)},
    {4096, UINT64_C(0xee5695b4259ad53e), UINT64_C(0xf5ecf4fa031b4fbc)},
};

START_TEST(city_hash_is_that_of_1_0_2)
{
    unsigned char data[4096];
    size_t len = hashes[_i].len;
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)((i * 7 + len) % 251);
    struct city_hash hash = city_hash_128(data, len);
    ck_assert_uint_eq(hash.low, hashes[_i].low);
    ck_assert_uint_eq(hash.high, hashes[_i].high);
}
END_TEST

/* ---- making bodies ---- */

static const char *const CODINGS[] = {"identity", "gzip", "deflate", "zstd", "lz4", "br", NULL};
#define N_CODINGS 7 /* the last one is ClickHouse's own */

static char *plain;
static size_t plain_len;

static void setup(void)
{
    struct buf text = {0};
    for (int i = 0; i < 20000; i++)
        buf_printf(&text, "%d\trow %d of a body that is to be compressed\n", i, i * 7919 % 1000);
    plain_len = text.len;
    plain = buf_take(&text);
}

static void teardown(void)
{
    free(plain);
}

static void zlib_into(struct buf *out, int window_bits, const char *data, size_t len)
{
    z_stream zlib = {0};
    ck_assert_int_eq(deflateInit2(&zlib, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t bound = deflateBound(&zlib, (uLong)len);
    char *to = mem_alloc(bound);
    zlib.next_in = (unsigned char *)(uintptr_t)data;
    zlib.avail_in = (uInt)len;
    zlib.next_out = (unsigned char *)to;
    zlib.avail_out = (uInt)bound;
    ck_assert_int_eq(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    buf_append(out, to, bound - zlib.avail_out);
    deflateEnd(&zlib);
    free(to);
}

static void native_into(struct buf *out, unsigned char method, const char *data, size_t len)
{
    struct buf block = {0};
    size_t bound = ZSTD_compressBound(len) + (size_t)LZ4_compressBound((int)len);
    char *packed = mem_alloc(bound);
    size_t packed_len = len;
    if (method == 0x82)
        packed_len = (size_t)LZ4_compress_default(data, packed, (int)len, (int)bound);
    else if (method == 0x90)
        packed_len = ZSTD_compress(packed, bound, data, len, 1);
    else
        memcpy(packed, data, len);
    buf_append(&block, &method, 1);
    for (int i = 0; i < 4; i++)
        buf_append(&block, &(char){(char)((packed_len + 9) >> (8 * i))}, 1);
    for (int i = 0; i < 4; i++)
        buf_append(&block, &(char){(char)(len >> (8 * i))}, 1);
    buf_append(&block, packed, packed_len);
    struct city_hash sum = city_hash_128(block.data, block.len);
    for (int i = 0; i < 8; i++)
        buf_append(out, &(char){(char)(sum.low >> (8 * i))}, 1);
    for (int i = 0; i < 8; i++)
        buf_append(out, &(char){(char)(sum.high >> (8 * i))}, 1);
    buf_append(out, block.data, block.len);
    buf_clear(&block);
    free(packed);
}

/* Half of the text each, so that what may come several times does; br comes from a constant. */
static void make(int coding, struct buf *out, struct buf *want)
{
    static const unsigned char br[] = {0x0b, 0x10, 0x80, 0x49, 0x4e, 0x53, 0x45, 0x52, 0x54, 0x20,
                                       0x49, 0x4e, 0x54, 0x4f, 0x20, 0x74, 0x20, 0x46, 0x4f, 0x52,
                                       0x4d, 0x41, 0x54, 0x20, 0x54, 0x53, 0x56, 0x0a, 0x31, 0x09,
                                       0x61, 0x0a, 0x32, 0x09, 0x62, 0x0a, 0x03};
    size_t half = plain_len / 2;
    buf_append(want, plain, plain_len);
    switch (coding) {
    case BODY_CLEAR:
        buf_append(out, plain, plain_len);
        break;
    case BODY_GZIP:
        zlib_into(out, 31, plain, half);
        zlib_into(out, 31, plain + half, plain_len - half);
        break;
    case BODY_DEFLATE:
        zlib_into(out, 15, plain, plain_len);
        break;
    case BODY_ZSTD:
    case BODY_LZ4: {
        size_t room = coding == BODY_ZSTD ? ZSTD_compressBound(plain_len)
                                          : LZ4F_compressFrameBound(plain_len, NULL);
        char *packed = mem_alloc(room);
        for (int i = 0; i < 2; i++) {
            const char *part = plain + (i ? half : 0);
            size_t len = i ? plain_len - half : half;
            size_t got = coding == BODY_ZSTD ? ZSTD_compress(packed, room, part, len, 1)
                                             : LZ4F_compressFrame(packed, room, part, len, NULL);
            buf_append(out, packed, got);
        }
        free(packed);
        break;
    }
    case BODY_BR:
        buf_clear(want);
        buf_puts(want, "INSERT INTO t FORMAT TSV\n1\ta\n2\tb\n");
        buf_append(out, br, sizeof br);
        break;
    default:
        native_into(out, 0x82, plain, half);
        native_into(out, 0x02, plain + half, 1000);
        native_into(out, 0x90, plain + half + 1000, plain_len - half - 1000);
        break;
    }
}

/* Gives the body in pieces of `step` bytes and takes at most `room` at a time. */
static int decode(enum body_coding coding, const char *body, size_t len, size_t step, size_t room,
                  struct buf *out)
{
    struct body_decoder *decoder = body_decoder_new(coding);
    struct error error = {0};
    char *to = mem_alloc(room);
    int code = 0;
    for (size_t at = 0; at < len && code == 0; at += step) {
        body_decoder_put(decoder, body + at, len - at < step ? len - at : step);
        size_t got = 0;
        while ((code = body_decoder_take(decoder, to, room, &got, &error)) == 0 && got)
            buf_append(out, to, got);
    }
    if (code == 0)
        code = body_decoder_end(decoder, &error);
    ck_assert(code == 0 || *error_message(&error));
    error_clear(&error);
    body_decoder_free(decoder);
    free(to);
    return code;
}

/* ---- the tests; _i is the coding ---- */

START_TEST(is_decoded_in_any_pieces)
{
    static const size_t steps[] = {1 << 20, 65536, 4099, 17, 1};
    struct buf body = {0}, want = {0};
    make(_i, &body, &want);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (size_t room = 1 << 17; room > 100; room /= 37) {
            struct buf out = {0};
            ck_assert_int_eq(
                decode((enum body_coding)_i, body.data, body.len, steps[i], room, &out), 0);
            ck_assert_uint_eq(out.len, want.len);
            ck_assert(memcmp(out.data, want.data, want.len) == 0);
            buf_clear(&out);
        }
    }
    buf_clear(&body);
    buf_clear(&want);
}
END_TEST

START_TEST(is_named)
{
    enum body_coding coding;
    if (CODINGS[_i]) {
        ck_assert(body_coding_of(CODINGS[_i], &coding));
        ck_assert_int_eq(coding, _i);
    }
    ck_assert(body_coding_of("GZip", &coding) && coding == BODY_GZIP);
    ck_assert(body_coding_of("x-gzip", &coding) && coding == BODY_GZIP);
    ck_assert(body_coding_of(NULL, &coding) && coding == BODY_CLEAR);
    ck_assert(body_coding_of("", &coding) && coding == BODY_CLEAR);
    ck_assert(!body_coding_of("gzip, gzip", &coding));
    ck_assert(!body_coding_of("snappy", &coding));
}
END_TEST

/* Cut anywhere but between two members, frames or blocks, a body is not whole. */
START_TEST(is_not_whole_when_cut)
{
    struct buf body = {0}, want = {0};
    make(_i, &body, &want);
    size_t step = body.len / 97 + 1;
    unsigned whole = 0;
    for (size_t len = 1; len < body.len; len += step) {
        struct buf out = {0};
        int code = decode((enum body_coding)_i, body.data, len, 4096, 65536, &out);
        ck_assert(code == 0 || code == CHXA_E_BODY_TRUNCATED);
        whole += code == 0;
        buf_clear(&out);
    }
    if (_i != BODY_CLEAR)
        ck_assert_uint_le(whole, 2);
    struct buf out = {0};
    if (_i != BODY_CLEAR)
        ck_assert_int_eq(decode((enum body_coding)_i, body.data, body.len - 1, 4096, 65536, &out),
                         CHXA_E_BODY_TRUNCATED);
    buf_clear(&out);
    buf_clear(&body);
    buf_clear(&want);
}
END_TEST

/* Any bytes may come: never a crash, never more than was there. (The sanitizers watch.) */
START_TEST(damage_is_harmless)
{
    struct buf body = {0}, want = {0};
    make(_i, &body, &want);
    unsigned seed = 12345;
    unsigned refused = 0;
    for (int round = 0; round < 300; round++) {
        struct buf out = {.bytes_max = 64 << 20};
        char *copy = mem_alloc(body.len);
        memcpy(copy, body.data, body.len);
        for (int i = 0; i < 3; i++) {
            seed = seed * 1103515245u + 12345u;
            copy[(seed >> 8) % (round < 150 ? 32 : body.len)] ^= (char)(1 + (seed >> 3) % 255);
        }
        refused += decode((enum body_coding)_i, copy, body.len, 8191, 65536, &out) != 0;
        free(copy);
        buf_clear(&out);
    }
    if (_i == BODY_NATIVE) /* each byte of a block is under its checksum, or is it */
        ck_assert_uint_eq(refused, 300);
    else if (_i != BODY_CLEAR)
        ck_assert_uint_gt(refused, 0);
    buf_clear(&body);
    buf_clear(&want);
}
END_TEST

START_TEST(deflate_without_its_wrapping)
{
    struct buf body = {0}, out = {0};
    static const size_t steps[] = {1, 2, 3, 4096, 1 << 20};
    zlib_into(&body, -15, plain, plain_len);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        ck_assert_int_eq(decode(BODY_DEFLATE, body.data, body.len, steps[i], 65536, &out), 0);
        ck_assert_uint_eq(out.len, plain_len);
        ck_assert_mem_eq(out.data, plain, plain_len);
        buf_clear(&out);
    }
    /* one byte says nothing, and is not a whole body */
    ck_assert_int_eq(decode(BODY_DEFLATE, body.data, 1, 1, 65536, &out), CHXA_E_BODY_TRUNCATED);
    buf_clear(&body);
    buf_clear(&out);
}
END_TEST

/* A header is enough to make a decoder hold megabytes; it says so. */
START_TEST(memory_is_told)
{
    char space[64] = {0};
    struct buf body = {0}, want = {0};
    struct error error = {0};
    size_t len = 0;
    make(_i, &body, &want);
    struct body_decoder *decoder = body_decoder_new((enum body_coding)_i);
    body_decoder_put(decoder, body.data, body.len);
    ck_assert_int_eq(body_decoder_take(decoder, space, sizeof space, &len, &error), 0);
    size_t memory = body_decoder_memory(decoder);
    ck_assert_uint_ge(memory, body.len);
    ck_assert_uint_lt(memory, (size_t)16 << 20);
    if (_i == BODY_NATIVE)
        ck_assert_uint_ge(memory, plain_len / 2);
    body_decoder_free(decoder);
    buf_clear(&body);
    buf_clear(&want);
}
END_TEST

START_TEST(memory_of_a_wide_window)
{
    char out[4096];
    size_t len = 0;
    struct error error = {0};
    ZSTD_CCtx *context = ZSTD_createCCtx();
    char packed[4096];
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer in = {plain, 100, 0}, none = {plain, 0, 0};
    ZSTD_outBuffer to = {packed, sizeof packed, 0};
    ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue);
    ZSTD_compressStream2(context, &to, &none, ZSTD_e_end);
    ZSTD_freeCCtx(context);
    struct body_decoder *decoder = body_decoder_new(BODY_ZSTD);
    ck_assert_uint_lt(body_decoder_memory(decoder), (size_t)1 << 20);
    body_decoder_put(decoder, packed, to.pos - 4);
    ck_assert_int_eq(body_decoder_take(decoder, out, sizeof out, &len, &error), 0);
    ck_assert_uint_ge(body_decoder_memory(decoder), (size_t)1 << 27);
    body_decoder_free(decoder);
}
END_TEST

START_TEST(bytes_behind_the_end)
{
    struct buf body = {0}, want = {0}, out = {0};
    make(_i, &body, &want);
    buf_puts(&body, "INSERT INTO live VALUES (1)");
    int code = decode((enum body_coding)_i, body.data, body.len, 4096, 65536, &out);
    ck_assert(_i == BODY_CLEAR ? code == 0 : code != 0);
    buf_clear(&body);
    buf_clear(&want);
    buf_clear(&out);
}
END_TEST

/* As ClickHouse 18.16.1 sent it. */
START_TEST(a_block_of_a_server)
{
    static const unsigned char block[] = {
        0x28, 0xee, 0xd5, 0xfd, 0x1d, 0xd3, 0x5b, 0xb0, 0xaf, 0x77, 0xd1, 0xde, 0xb0, 0xef,
        0xb1, 0xbd, 0x82, 0x5a, 0x00, 0x00, 0x00, 0x5d, 0x00, 0x00, 0x00, 0xf0, 0x28, 0x43,
        0x6f, 0x64, 0x65, 0x3a, 0x20, 0x34, 0x36, 0x2c, 0x20, 0x65, 0x2e, 0x64, 0x69, 0x73,
        0x70, 0x6c, 0x61, 0x79, 0x54, 0x65, 0x78, 0x74, 0x28, 0x29, 0x20, 0x3d, 0x20, 0x44,
        0x42, 0x3a, 0x3a, 0x45, 0x78, 0x63, 0x65, 0x70, 0x74, 0x69, 0x6f, 0x6e, 0x3a, 0x20,
        0x55, 0x6e, 0x6b, 0x6e, 0x6f, 0x77, 0x6e, 0x20, 0x66, 0x75, 0x6e, 0x63, 0x12, 0x00,
        0x70, 0x20, 0x72, 0x65, 0x70, 0x65, 0x61, 0x74, 0x3a, 0x00, 0x3b, 0x77, 0x68, 0x61,
        0x33, 0x00, 0x50, 0x74, 0x69, 0x6f, 0x6e, 0x0a};
    struct buf out = {0};
    ck_assert_int_eq(decode(BODY_NATIVE, (const char *)block, sizeof block, 50, 65536, &out), 0);
    ck_assert_str_eq(out.data,
                     "Code: 46, e.displayText() = DB::Exception: Unknown function repeat, "
                     "e.what() = DB::Exception\n");
    buf_clear(&out);
}
END_TEST

/* A header alone may not make us allocate what it claims. */
START_TEST(a_block_that_claims_too_much)
{
    unsigned char block[25] = {[16] = 0x82};
    memset(block + 17, 0xff, 8);
    struct buf out = {0};
    ck_assert_int_eq(decode(BODY_NATIVE, (const char *)block, sizeof block, 25, 65536, &out),
                     CHXA_E_UNSUPPORTED_ENCODING);
    block[16] = 0x77;
    ck_assert_int_eq(decode(BODY_NATIVE, (const char *)block, sizeof block, 25, 65536, &out),
                     CHXA_E_UNSUPPORTED_ENCODING);
    buf_clear(&out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("body_decode");
    TCase *tcase = tcase_create("decode");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, city_hash_is_that_of_1_0_2, 0,
                        (int)(sizeof hashes / sizeof *hashes));
    tcase_add_loop_test(tcase, is_decoded_in_any_pieces, 0, N_CODINGS);
    tcase_add_loop_test(tcase, is_named, 0, N_CODINGS);
    tcase_add_loop_test(tcase, is_not_whole_when_cut, 0, N_CODINGS);
    tcase_add_loop_test(tcase, damage_is_harmless, 0, N_CODINGS);
    tcase_add_loop_test(tcase, bytes_behind_the_end, 0, N_CODINGS);
    tcase_add_loop_test(tcase, memory_is_told, 0, N_CODINGS);
    tcase_add_test(tcase, memory_of_a_wide_window);
    tcase_add_test(tcase, deflate_without_its_wrapping);
    tcase_add_test(tcase, a_block_of_a_server);
    tcase_add_test(tcase, a_block_that_claims_too_much);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
