/* SPDX-License-Identifier: Apache-2.0
 *
 * An error on its way to whoever asked: a code of proto/errors.def and a sentence with the
 * particulars.
 */
#ifndef CHXA_BASE_ERROR_H
#define CHXA_BASE_ERROR_H

#include "proto/errors.h"

struct error {
    int code;      /* 0: no error */
    char *message; /* owned; NULL: the code's own text */
};

/* Sets *error, replacing what was there, and returns code (so that `return error_set(…)` reads
 * well). */
int error_set(struct error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Never NULL; valid until the error changes. */
const char *error_message(const struct error *error);
/* Moves *from into *to (whose old content is freed) and leaves *from empty. */
void error_move(struct error *to, struct error *from);
void error_clear(struct error *error);

#endif
