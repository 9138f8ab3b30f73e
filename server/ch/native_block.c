/* SPDX-License-Identifier: Apache-2.0
 *
 * See native_block.h.
 */
#include "ch/native_block.h"

#include "base/buf.h"
#include "base/mem.h"
#include "ch/city_hash.h"

#include <lz4.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define CHECKSUM_BYTES 16u
#define HEADER_BYTES   9u /* method and both lengths */

enum method { METHOD_NONE = 0x02, METHOD_LZ4 = 0x82, METHOD_ZSTD = 0x90 };

struct native_block {
    struct buf packed; /* of the block that is being read */
    char *content;     /* of the last one that is complete */
    size_t content_len, at;
};

static uint64_t read_number(const char *at, size_t bytes)
{
    uint64_t value = 0;
    while (bytes > 0)
        value = value << 8 | (unsigned char)at[--bytes];
    return value;
}

struct native_block *native_block_new(void)
{
    return mem_alloc(sizeof(struct native_block));
}

void native_block_free(struct native_block *block)
{
    if (block == NULL)
        return;
    buf_clear(&block->packed);
    free(block->content);
    free(block);
}

/* The whole block's bytes, or those of its head while that is not there. */
static size_t wanted(const struct native_block *block)
{
    if (block->packed.len < CHECKSUM_BYTES + HEADER_BYTES)
        return CHECKSUM_BYTES + HEADER_BYTES;
    return CHECKSUM_BYTES + (size_t)read_number(block->packed.data + CHECKSUM_BYTES + 1, 4);
}

static const char *check_head(const struct native_block *block)
{
    const char *head = block->packed.data + CHECKSUM_BYTES;
    size_t packed = (size_t)read_number(head + 1, 4), unpacked = (size_t)read_number(head + 5, 4);
    unsigned char method = (unsigned char)*head;
    if (method != METHOD_NONE && method != METHOD_LZ4 && method != METHOD_ZSTD)
        return "a block of an unknown method (known are LZ4, ZSTD, none)";
    if (packed < HEADER_BYTES)
        return "a block that is shorter than its head";
    if (packed > NATIVE_BLOCK_BYTES_MAX || unpacked > NATIVE_BLOCK_BYTES_MAX)
        return "a block of more than 16 MiB";
    return NULL;
}

static bool unpack(struct native_block *block, unsigned char method, const char *data, size_t len)
{
    char *to = block->content;
    size_t size = block->content_len;
    if (method == METHOD_NONE) {
        if (len != size)
            return false;
        memcpy(to, data, len);
        return true;
    }
    if (method == METHOD_LZ4)
        return LZ4_decompress_safe(data, to, (int)len, (int)size) == (int)size;
    size_t got = ZSTD_decompress(to, size, data, len);
    return !ZSTD_isError(got) && got == size;
}

static const char *complete(struct native_block *block)
{
    const char *body = block->packed.data + CHECKSUM_BYTES;
    size_t len = block->packed.len - CHECKSUM_BYTES;
    struct city_hash sum = city_hash_128(body, len);
    if (sum.low != read_number(block->packed.data, 8) ||
        sum.high != read_number(block->packed.data + 8, 8))
        return "a block whose checksum is wrong";
    block->content_len = (size_t)read_number(body + 5, 4);
    block->content = mem_realloc(block->content, block->content_len + 1);
    block->at = 0;
    bool sound = unpack(block, (unsigned char)*body, body + HEADER_BYTES, len - HEADER_BYTES);
    buf_clear(&block->packed);
    if (sound)
        return NULL;
    block->content_len = 0;
    return "a block that cannot be unpacked";
}

size_t native_block_put(struct native_block *block, const char *data, size_t len,
                        const char **ret_problem)
{
    size_t used = 0;
    while (used < len) {
        size_t part = wanted(block) - block->packed.len;
        if (part > len - used)
            part = len - used;
        buf_append(&block->packed, data + used, part);
        used += part;
        if (block->packed.len == CHECKSUM_BYTES + HEADER_BYTES &&
            (*ret_problem = check_head(block)) != NULL)
            break;
        if (block->packed.len >= CHECKSUM_BYTES + HEADER_BYTES &&
            block->packed.len == wanted(block)) {
            *ret_problem = complete(block);
            if (*ret_problem || block->content_len)
                break;
        }
    }
    return used;
}

size_t native_block_take(struct native_block *block, char *to, size_t room)
{
    size_t len = block->content_len - block->at;
    if (len > room)
        len = room;
    if (len)
        memcpy(to, block->content + block->at, len);
    block->at += len;
    if (block->at == block->content_len) {
        /* a few hundred packed bytes may have become megabytes, on many connections at once */
        free(block->content);
        block->content = NULL;
        block->content_len = block->at = 0;
    }
    return len;
}

bool native_block_begun(const struct native_block *block)
{
    return block->packed.len > 0 || block->at < block->content_len;
}

size_t native_block_memory(const struct native_block *block)
{
    return block->packed.cap + (block->content ? block->content_len : 0);
}
