/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes on their way from a client to ClickHouse: a ring that grows when it must and then stays.
 * Zero-initialise. Whoever fills it keeps it bounded.
 */
#ifndef CHXA_CH_CH_RING_H
#define CHXA_CH_CH_RING_H

#include <stddef.h>

struct ch_ring {
    char *data;
    size_t cap, head, len;
};

void ch_ring_put(struct ch_ring *ring, const char *data, size_t len);
/* Moves up to room bytes out; returns how many. */
size_t ch_ring_take(struct ch_ring *ring, char *to, size_t room);
void ch_ring_clear(struct ch_ring *ring);

#endif
