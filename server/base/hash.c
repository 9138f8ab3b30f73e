/* SPDX-License-Identifier: Apache-2.0
 *
 * See hash.h.
 */
#include "base/hash.h"

#include "base/mem.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdlib.h>

struct hash {
    EVP_MD_CTX *context;
};

static void require(int ok)
{
    if (ok != 1)
        abort(); /* libcrypto's SHA-256 fails only without memory */
}

struct hash *hash_new(void)
{
    struct hash *hash = mem_alloc(sizeof *hash);
    hash->context = EVP_MD_CTX_new();
    require(hash->context != NULL);
    require(EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL));
    return hash;
}

void hash_update(struct hash *hash, const void *data, size_t len)
{
    require(EVP_DigestUpdate(hash->context, data, len));
}

void hash_final(struct hash *hash, char ret_hex[HASH_HEX_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    require(EVP_DigestFinal_ex(hash->context, digest, &len));
    assert(len * 2 == HASH_HEX_BYTES);
    for (unsigned i = 0; i < len; i++) {
        ret_hex[2 * i] = digits[digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[digest[i] & 15];
    }
    ret_hex[HASH_HEX_BYTES] = '\0';
    hash_free(hash);
}

void hash_free(struct hash *hash)
{
    if (hash == NULL)
        return;
    EVP_MD_CTX_free(hash->context);
    free(hash);
}

void hash_of(const void *data, size_t len, char ret_hex[HASH_HEX_BYTES + 1])
{
    struct hash *hash = hash_new();
    hash_update(hash, data, len);
    hash_final(hash, ret_hex);
}
