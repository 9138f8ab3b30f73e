/* SPDX-License-Identifier: Apache-2.0
 *
 * Digests of libcrypto's, incremental, as lower-case hex: SHA-256 (FIPS 180-4), and fingerprints of bodies. Any thread; a
 * hash in progress belongs to one at a time. Never fails.
 *
 * A fingerprint tells whether a body that is sent again is the same one. It is "poly1305:", 16 bytes of a key that is made
 * anew for each, and 16 of the authenticator of RFC 8439 under it (s = 0). Two bodies of up to 10 GB that differ get the
 * same one with a probability below 2^-73, whoever made them, because the key was not known then. It takes a third of the
 * time of SHA-256 where the processor has instructions for that, and a tenth where it has not. Fingerprints that are
 * recorded as SHA-256, in hex alone, are compared as such.
 */
#ifndef CHXA_BASE_HASH_H
#define CHXA_BASE_HASH_H

#include <stddef.h>

#define HASH_HEX_BYTES         64u
#define HASH_FINGERPRINT_BYTES 73u /* the longest */

struct hash;

struct hash *hash_new(void);
void hash_update(struct hash *hash, const void *data, size_t len);
/* Writes the hex digest and frees the hash. */
void hash_final(struct hash *hash, char ret_hex[HASH_HEX_BYTES + 1]);
/* Frees without a result; NULL is fine. */
void hash_free(struct hash *hash);
void hash_of(const void *data, size_t len, char ret_hex[HASH_HEX_BYTES + 1]);

/* like: NULL, or a fingerprint: the same bytes will give the same text again. */
struct hash *hash_new_fingerprint(const char *like);
/* As hash_final, for one of hash_new_fingerprint's. */
void hash_final_fingerprint(struct hash *hash, char ret_text[HASH_FINGERPRINT_BYTES + 1]);

#endif
