/* SPDX-License-Identifier: Apache-2.0
 *
 * A growable byte buffer that is always NUL-terminated behind its last byte. Growing past bytes_max
 * (0: no limit) is refused and changes nothing. Zero-initialise; buf_clear frees and zeroes all but
 * bytes_max.
 */
#ifndef CHXA_BASE_BUF_H
#define CHXA_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *data; /* NULL while empty */
    size_t len;
    size_t cap;
    size_t bytes_max;
};

/* False when bytes_max would be passed. */
bool buf_append(struct buf *buf, const void *data, size_t len);
bool buf_puts(struct buf *buf, const char *text);
bool buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first len bytes. */
void buf_consume(struct buf *buf, size_t len);
/* The content as a string; "" while empty; valid until the next change. */
const char *buf_str(const struct buf *buf);
/* The content, NUL-terminated, for the caller to free; the buffer is empty afterwards. */
char *buf_take(struct buf *buf);
void buf_clear(struct buf *buf);

#endif
