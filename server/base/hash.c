/* SPDX-License-Identifier: Apache-2.0
 *
 * See hash.h.
 */
#include "base/hash.h"

#include "base/hex.h"
#include "base/mem.h"

#include <assert.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAC_PREFIX    "poly1305:"
#define MAC_KEY_BYTES 16u /* r; the other half of Poly1305's key, s, would only mask the result */
#define MAC_TAG_BYTES 16u

struct hash {
    EVP_MD_CTX *digest; /* SHA-256, or */
    EVP_MAC_CTX *mac;
    unsigned char key[2 * MAC_KEY_BYTES];
};

static EVP_MAC *poly1305;

static void require(int ok)
{
    if (ok != 1)
        abort(); /* what is used of libcrypto here fails only without memory */
}

static void fetch_poly1305(void)
{
    poly1305 = EVP_MAC_fetch(NULL, "POLY1305", NULL);
    require(poly1305 != NULL);
}

struct hash *hash_new(void)
{
    struct hash *hash = mem_alloc(sizeof *hash);
    hash->digest = EVP_MD_CTX_new();
    require(hash->digest != NULL);
    require(EVP_DigestInit_ex(hash->digest, EVP_sha256(), NULL));
    return hash;
}

/* The key in a fingerprint; false: it has none. */
static bool read_key(const char *like, unsigned char ret_key[MAC_KEY_BYTES])
{
    size_t prefix = strlen(MAC_PREFIX);
    if (strncmp(like, MAC_PREFIX, prefix) != 0 || strlen(like) != HASH_FINGERPRINT_BYTES)
        return false;
    for (size_t i = 0; i < MAC_KEY_BYTES; i++) {
        int high = hex_value(like[prefix + 2 * i]), low = hex_value(like[prefix + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret_key[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

struct hash *hash_new_fingerprint(const char *like)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char key[MAC_KEY_BYTES];
    if (like && !read_key(like, key))
        return hash_new();
    if (like == NULL)
        require(RAND_bytes(key, sizeof key));
    require(pthread_once(&once, fetch_poly1305) == 0);
    struct hash *hash = mem_alloc(sizeof *hash);
    memcpy(hash->key, key, sizeof key);
    hash->mac = EVP_MAC_CTX_new(poly1305);
    require(hash->mac != NULL);
    require(EVP_MAC_init(hash->mac, hash->key, sizeof hash->key, NULL));
    return hash;
}

void hash_update(struct hash *hash, const void *data, size_t len)
{
    if (hash->mac)
        require(EVP_MAC_update(hash->mac, data, len));
    else
        require(EVP_DigestUpdate(hash->digest, data, len));
}

static char *put_hex(char *to, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    *to = '\0';
    return to;
}

void hash_final(struct hash *hash, char ret_hex[HASH_HEX_BYTES + 1])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    assert(hash->digest);
    require(EVP_DigestFinal_ex(hash->digest, digest, &len));
    assert(len * 2 == HASH_HEX_BYTES);
    put_hex(ret_hex, digest, len);
    hash_free(hash);
}

void hash_final_fingerprint(struct hash *hash, char ret_text[HASH_FINGERPRINT_BYTES + 1])
{
    unsigned char tag[MAC_TAG_BYTES];
    size_t len = 0;
    if (hash->mac == NULL) {
        hash_final(hash, ret_text);
        return;
    }
    require(EVP_MAC_final(hash->mac, tag, &len, sizeof tag));
    assert(len == sizeof tag);
    memcpy(ret_text, MAC_PREFIX, strlen(MAC_PREFIX));
    put_hex(put_hex(ret_text + strlen(MAC_PREFIX), hash->key, MAC_KEY_BYTES), tag, len);
    hash_free(hash);
}

void hash_free(struct hash *hash)
{
    if (hash == NULL)
        return;
    EVP_MD_CTX_free(hash->digest);
    EVP_MAC_CTX_free(hash->mac);
    free(hash);
}

void hash_of(const void *data, size_t len, char ret_hex[HASH_HEX_BYTES + 1])
{
    struct hash *hash = hash_new();
    hash_update(hash, data, len);
    hash_final(hash, ret_hex);
}
