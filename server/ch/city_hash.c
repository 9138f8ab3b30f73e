/* SPDX-License-Identifier: Apache-2.0
 *
 * See city_hash.h. The constants, rotations and the order of the steps are the algorithm's; the
 * names follow its published description: v and w are pairs of lanes, x, y, z single ones.
 */
#include "ch/city_hash.h"

#include <endian.h>
#include <string.h>

#define K0  UINT64_C(0xc3a5c85c97cb3127)
#define K1  UINT64_C(0xb492b66fbe98f273)
#define K2  UINT64_C(0x9ae16a3b2f90404f)
#define K3  UINT64_C(0xc949d7c7509e6557)
#define MUL UINT64_C(0x9ddfea08eb382d69)

/* Little-endian, at any address. */
static uint64_t read64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static uint64_t read32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t turn(uint64_t value, unsigned by)
{
    return by ? value >> by | value << (64 - by) : value;
}

static uint64_t fold(uint64_t value)
{
    return value ^ value >> 47;
}

static uint64_t mix(uint64_t u, uint64_t v)
{
    uint64_t a = fold((u ^ v) * MUL);
    return fold((v ^ a) * MUL) * MUL;
}

static uint64_t hash_up_to_16(const unsigned char *at, size_t len)
{
    if (len > 8) {
        uint64_t last = read64(at + len - 8);
        return mix(read64(at), turn(last + len, (unsigned)len)) ^ last;
    }
    if (len >= 4)
        return mix(len + (read32(at) << 3), read32(at + len - 4));
    if (len == 0)
        return K2;
    uint64_t y = (uint64_t)at[0] | (uint64_t)at[len >> 1] << 8;
    uint64_t z = len + ((uint64_t)at[len - 1] << 2);
    return fold(y * K2 ^ z * K3) * K2;
}

/* 32 bytes into a pair of lanes. */
static struct city_hash weak(const unsigned char *at, uint64_t a, uint64_t b)
{
    uint64_t before = a + read64(at);
    uint64_t after = before + read64(at + 8) + read64(at + 16);
    b = turn(b + before + read64(at + 24), 21);
    return (struct city_hash){after + read64(at + 24), b + turn(after, 44) + before};
}

static struct city_hash hash_short(const unsigned char *at, size_t len, uint64_t a, uint64_t b)
{
    uint64_t c, d;
    if (len <= 16) {
        a = fold(a * K1) * K1;
        c = b * K1 + hash_up_to_16(at, len);
        d = fold(a + (len >= 8 ? read64(at) : c));
    } else {
        c = mix(read64(at + len - 8) + K1, a);
        d = mix(b + len, c + read64(at + len - 16));
        a += d;
        for (; len > 16; at += 16, len -= 16) {
            a = (a ^ fold(read64(at) * K1) * K1) * K1;
            b ^= a;
            c = (c ^ fold(read64(at + 8) * K1) * K1) * K1;
            d ^= c;
        }
    }
    a = mix(a, c);
    b = mix(d, b);
    return (struct city_hash){a ^ b, mix(b, a)};
}

struct lanes {
    struct city_hash v, w;
    uint64_t x, y, z;
};

static void take_64(struct lanes *l, const unsigned char *at)
{
    l->x = turn(l->x + l->y + l->v.low + read64(at + 16), 37) * K1 ^ l->w.high;
    l->y = turn(l->y + l->v.high + read64(at + 48), 42) * K1 ^ l->v.low;
    l->z = turn(l->z ^ l->w.low, 33);
    l->v = weak(at, l->v.high * K1, l->x + l->w.low);
    l->w = weak(at + 32, l->z + l->w.high, l->y);
    uint64_t x = l->x;
    l->x = l->z;
    l->z = x;
}

static struct city_hash hash_long(const unsigned char *at, size_t len, uint64_t a, uint64_t b)
{
    struct lanes l = {.x = a, .y = b, .z = len * K1};
    l.v.low = turn(b ^ K1, 49) * K1 + read64(at);
    l.v.high = turn(l.v.low, 42) * K1 + read64(at + 8);
    l.w.low = turn(b + l.z, 35) * K1 + a;
    l.w.high = turn(a + read64(at + 88), 53) * K1;
    for (; len >= 128; at += 128, len -= 128) {
        take_64(&l, at);
        take_64(&l, at + 64);
    }
    l.y += turn(l.w.low, 37) * K0 + l.z;
    l.x += turn(l.v.low + l.z, 49) * K0;
    /* the rest, from its end in steps of 32, the last of which may reach back into what was taken */
    for (size_t done = 32; done < len + 32; done += 32) {
        const unsigned char *tail = at + len - done;
        l.y = turn(l.y - l.x, 42) * K0 + l.v.high;
        l.w.low += read64(tail + 16);
        l.x = turn(l.x, 49) * K0 + l.w.low;
        l.w.low += l.v.low;
        l.v = weak(tail, l.v.low, l.v.high);
    }
    l.x = mix(l.x, l.v.low);
    l.y = mix(l.y, l.w.low);
    return (struct city_hash){mix(l.x + l.v.high, l.w.high) + l.y,
                              mix(l.x + l.w.high, l.y + l.v.high)};
}

static struct city_hash hash_seeded(const unsigned char *at, size_t len, uint64_t a, uint64_t b)
{
    return len < 128 ? hash_short(at, len, a, b) : hash_long(at, len, a, b);
}

struct city_hash city_hash_128_seeded(const void *data, size_t len, struct city_hash seed)
{
    return hash_seeded(data, len, seed.low, seed.high);
}

struct city_hash city_hash_128(const void *data, size_t len)
{
    const unsigned char *at = data;
    if (len >= 16)
        return hash_seeded(at + 16, len - 16, read64(at) ^ K3, read64(at + 8));
    if (len >= 8)
        return hash_seeded(at, 0, read64(at) ^ len * K0, read64(at + len - 8) ^ K1);
    return hash_seeded(at, len, K0, K1);
}
