/* SPDX-License-Identifier: Apache-2.0
 *
 * CityHash128 as it was in version 1.0.2 (Google, 2011): what ClickHouse puts before each block of its
 * native compression. Later versions of CityHash give other values, so no packaged library will do.
 * Pure; any thread.
 */
#ifndef CHXA_CH_CITY_HASH_H
#define CHXA_CH_CITY_HASH_H

#include <stddef.h>
#include <stdint.h>

struct city_hash {
    uint64_t low, high;
};

struct city_hash city_hash_128(const void *data, size_t len);
/* The same, begun with what went before. */
struct city_hash city_hash_128_seeded(const void *data, size_t len, struct city_hash seed);

#endif
