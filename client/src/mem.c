/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that may fail, text that grows, the two clocks, chance. No state but the tests' hook.
 */
#include "client/src/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

bool (*cx_alloc_hook)(size_t bytes);

void *cx_alloc(size_t bytes)
{
    if (cx_alloc_hook && !cx_alloc_hook(bytes))
        return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *cx_realloc(void *memory, size_t bytes)
{
    if (cx_alloc_hook && !cx_alloc_hook(bytes))
        return NULL;
    return realloc(memory, bytes);
}

char *cx_strdup(const char *text)
{
    size_t bytes = text ? strlen(text) + 1 : 0;
    char *copy = text ? cx_alloc(bytes) : NULL;
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void cx_wipe(void *memory, size_t bytes)
{
    if (memory)
        explicit_bzero(memory, bytes);
}

void chxa_free(void *memory)
{
    free(memory);
}

/* ---- text ---- */

void cx_buf_put(struct cx_buf *buf, const void *data, size_t len)
{
    if (buf->failed || len > SIZE_MAX / 4 - buf->len) {
        buf->failed = true;
        return;
    }
    if (buf->len + len + 1 > buf->room) {
        size_t room = (buf->len + len + 1) * 2;
        char *grown = cx_realloc(buf->data, room);
        if (grown == NULL) {
            buf->failed = true;
            return;
        }
        buf->data = grown;
        buf->room = room;
    }
    if (len)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void cx_buf_puts(struct cx_buf *buf, const char *text)
{
    cx_buf_put(buf, text, strlen(text));
}

void cx_buf_printf(struct cx_buf *buf, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        buf->failed = true; /* only short things are printed */
    else
        cx_buf_put(buf, text, (size_t)n);
}

void cx_buf_uri(struct cx_buf *buf, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
        if (strchr(plain, c))
            cx_buf_put(buf, text, 1);
        else
            cx_buf_put(buf, escape, sizeof escape);
    }
}

void cx_buf_json(struct cx_buf *buf, const char *text)
{
    cx_buf_puts(buf, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            cx_buf_printf(buf, "\\%c", c);
        else if (c < 0x20)
            cx_buf_printf(buf, "\\u%04x", c);
        else
            cx_buf_put(buf, text, 1);
    }
    cx_buf_puts(buf, "\"");
}

void cx_buf_clear(struct cx_buf *buf)
{
    free(buf->data);
    *buf = (struct cx_buf){0};
}

/* ---- time ---- */

uint64_t cx_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int64_t cx_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t cx_deadline(uint64_t from, uint64_t duration_ms)
{
    return duration_ms > CX_NEVER - from ? CX_NEVER : from + duration_ms;
}

static struct timespec at(uint64_t ms)
{
    /* A thousand years are for ever, and fit every time_t. */
    uint64_t most = (uint64_t)1000 * 366 * 86400 * 1000;
    ms = ms < most ? ms : most;
    return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
}

void cx_sleep_until(uint64_t when)
{
    struct timespec until = at(when);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

int cx_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return CHXA_ERR_NO_MEMORY;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int rc = pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return rc ? CHXA_ERR_NO_MEMORY : 0;
}

bool cx_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
    struct timespec until = at(deadline);
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

/* ---- chance ---- */

void cx_random(void *ret_bytes, size_t n)
{
    unsigned char *bytes = ret_bytes;
    while (n > 0) {
        ssize_t got = getrandom(bytes, n, 0);
        if (got > 0) {
            bytes += got;
            n -= (size_t)got;
        } else if (errno != EINTR) {
            abort(); /* no kernel that we run on is without it; ids must not repeat */
        }
    }
}

void cx_random_id(char *ret_id, size_t room)
{
    uint64_t number[2];
    cx_random(number, sizeof number);
    snprintf(ret_id, room, "%016llx%016llx", (unsigned long long)number[0],
             (unsigned long long)number[1]);
}

/* ---- ids ---- */

bool cx_id_valid(const char *id)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t len = id ? strnlen(id, CHXA_XID_BYTES_MAX + 1) : 0;
    return len > 0 && len <= CHXA_XID_BYTES_MAX && strspn(id, allowed) == len &&
           strcmp(id, ".") != 0 && strcmp(id, "..") != 0;
}

size_t cx_utf8_step(const char *character)
{
    const unsigned char *text = (const unsigned char *)character;
    unsigned char first = text[0];
    size_t n = first < 0x80   ? 1
               : first < 0xc2 ? 0
               : first < 0xe0 ? 2
               : first < 0xf0 ? 3
               : first < 0xf5 ? 4
                              : 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if ((first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
        (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f))
        return 0;
    return n;
}

bool cx_utf8_valid(const char *text)
{
    while (*text) {
        size_t n = cx_utf8_step(text);
        if (n == 0)
            return false;
        text += n;
    }
    return true;
}
