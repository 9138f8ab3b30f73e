/* SPDX-License-Identifier: Apache-2.0
 *
 * ClickHouse's native compression, reading: a body is a row of blocks, each
 *
 *   16 bytes  CityHash128 (1.0.2) of what follows, little-endian
 *    1 byte   method: 0x82 LZ4, 0x90 ZSTD, 0x02 none
 *    4 bytes  length of the block from the method on
 *    4 bytes  length of its content
 *   …         content
 *
 * Each block is read whole, checked, and then decoded. Threads: any, one at a time per object.
 */
#ifndef CHXA_CH_NATIVE_BLOCK_H
#define CHXA_CH_NATIVE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

/* Of a block, packed and unpacked. ClickHouse and its clients make blocks of about 1 MiB. */
#define NATIVE_BLOCK_BYTES_MAX ((size_t)16 * 1024 * 1024)

struct native_block;

struct native_block *native_block_new(void);
void native_block_free(struct native_block *block);
/* Takes input up to the end of a block; returns how much. Only when native_block_take gave 0. On
 * failure *ret_problem says what is wrong (static). */
size_t native_block_put(struct native_block *block, const char *data, size_t len,
                        const char **ret_problem);
/* Content of the block that was completed last; 0: no more. */
size_t native_block_take(struct native_block *block, char *to, size_t room);
/* What it holds now, in bytes. */
size_t native_block_memory(const struct native_block *block);
/* In the middle of a block. */
bool native_block_begun(const struct native_block *block);

#endif
