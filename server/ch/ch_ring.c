/* SPDX-License-Identifier: Apache-2.0
 *
 * See ch_ring.h. The content is data[head], … wrapping at cap, len bytes.
 */
#include "ch/ch_ring.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define CAP_MIN ((size_t)16 * 1024)

void ch_ring_put(struct ch_ring *ring, const char *data, size_t len)
{
    if (ring->cap - ring->len < len) {
        size_t cap = ring->cap ? ring->cap : CAP_MIN;
        while (cap - ring->len < len)
            cap *= 2;
        char *wider = mem_alloc(cap);
        size_t first = ring->cap - ring->head < ring->len ? ring->cap - ring->head : ring->len;
        if (ring->len) {
            memcpy(wider, ring->data + ring->head, first);
            memcpy(wider + first, ring->data, ring->len - first);
        }
        free(ring->data);
        ring->data = wider;
        ring->cap = cap;
        ring->head = 0;
    }
    size_t tail = (ring->head + ring->len) % ring->cap;
    size_t first = ring->cap - tail < len ? ring->cap - tail : len;
    memcpy(ring->data + tail, data, first);
    memcpy(ring->data, data + first, len - first);
    ring->len += len;
}

size_t ch_ring_take(struct ch_ring *ring, char *to, size_t room)
{
    size_t len = ring->len < room ? ring->len : room;
    if (len == 0)
        return 0;
    size_t first = ring->cap - ring->head < len ? ring->cap - ring->head : len;
    memcpy(to, ring->data + ring->head, first);
    memcpy(to + first, ring->data, len - first);
    ring->len -= len;
    ring->head = ring->len ? (ring->head + len) % ring->cap : 0;
    return len;
}

void ch_ring_clear(struct ch_ring *ring)
{
    free(ring->data);
    *ring = (struct ch_ring){0};
}
