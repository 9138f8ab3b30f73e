/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4) from libcrypto, incremental, as lower-case hex. Any thread; a hash in
 * progress belongs to one at a time. Never fails.
 */
#ifndef CHXA_BASE_HASH_H
#define CHXA_BASE_HASH_H

#include <stddef.h>

#define HASH_HEX_BYTES 64u

struct hash;

struct hash *hash_new(void);
void hash_update(struct hash *hash, const void *data, size_t len);
/* Writes the hex digest and frees the hash. */
void hash_final(struct hash *hash, char ret_hex[HASH_HEX_BYTES + 1]);
/* Frees without a result; NULL is fine. */
void hash_free(struct hash *hash);
void hash_of(const void *data, size_t len, char ret_hex[HASH_HEX_BYTES + 1]);

#endif
