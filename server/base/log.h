/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines in logfmt on standard error: `time=… level=info msg="…" key=value …`. Layers below op
 * log nothing above debug; the operation that owns an outcome logs it once. Any thread; a line is
 * one write(2).
 */
#ifndef CHXA_BASE_LOG_H
#define CHXA_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);

/* msg is a constant sentence; fields is a printf format of `key=value` pairs ("" for none); quote a
 * value that may hold spaces (`error="%s"`). Control characters are replaced by
 * spaces, bytes that are no UTF-8 by question marks. */
void log_write(enum log_level level, const char *msg, const char *fields, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_enabled(LOG_LEVEL_DEBUG))                                                          \
            log_write(LOG_LEVEL_DEBUG, __VA_ARGS__);                                               \
    } while (0)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
