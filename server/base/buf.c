/* SPDX-License-Identifier: Apache-2.0
 *
 * See buf.h.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool buf_append(struct buf *buf, const void *data, size_t len)
{
    if (buf->bytes_max && (buf->len > buf->bytes_max || len > buf->bytes_max - buf->len))
        return false;
    size_t need = buf->len + len + 1;
    if (need > buf->cap) {
        size_t cap = buf->cap ? buf->cap : 64;
        while (cap < need)
            cap *= 2;
        buf->data = mem_realloc(buf->data, cap);
        buf->cap = cap;
    }
    if (len)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return true;
}

bool buf_puts(struct buf *buf, const char *text)
{
    return buf_append(buf, text, strlen(text));
}

bool buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    bool fits = buf_puts(buf, text);
    free(text);
    return fits;
}

void buf_consume(struct buf *buf, size_t len)
{
    if (len >= buf->len) {
        buf->len = 0;
    } else {
        memmove(buf->data, buf->data + len, buf->len - len);
        buf->len -= len;
    }
    if (buf->data)
        buf->data[buf->len] = '\0';
}

const char *buf_str(const struct buf *buf)
{
    return buf->data ? buf->data : "";
}

char *buf_take(struct buf *buf)
{
    char *text = buf->data ? buf->data : mem_strdup("");
    buf->data = NULL;
    buf->len = buf->cap = 0;
    return text;
}

void buf_clear(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
}
