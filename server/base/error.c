/* SPDX-License-Identifier: Apache-2.0
 *
 * See error.h.
 */
#include "base/error.h"

#include "base/mem.h"

#include <stdlib.h>

int error_set(struct error *error, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    free(error->message);
    error->code = code;
    error->message = message;
    return code;
}

const char *error_message(const struct error *error)
{
    return error->message ? error->message : chxa_error_text(error->code);
}

void error_move(struct error *to, struct error *from)
{
    if (to == from)
        return;
    free(to->message);
    *to = *from;
    *from = (struct error){0};
}

void error_clear(struct error *error)
{
    free(error->message);
    *error = (struct error){0};
}
