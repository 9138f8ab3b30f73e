/* SPDX-License-Identifier: Apache-2.0
 *
 * Error codes shared by server and client: negative ints, all of them in errors.def.
 * Pure data; every function may be called from any thread and never fails.
 */
#ifndef CHXA_PROTO_ERRORS_H
#define CHXA_PROTO_ERRORS_H

#include <stdbool.h>

enum chxa_error_code {
    CHXA_OK = 0,
#define CHXA_ERROR(number, name, http, xa, retry, outcome, text) CHXA_E_##name = -(number),
#include "errors.def"
#undef CHXA_ERROR
};

/* X/Open XA return codes (The XA Specification, X/Open CAE C193, section 4.3: header xa.h). */
enum chxa_xa_code {
    CHXA_XA_RBROLLBACK = 100,
    CHXA_XA_RBINTEGRITY = 103,
    CHXA_XA_RBOTHER = 104,
    CHXA_XA_RBPROTO = 105,
    CHXA_XA_RMERR = -3,
    CHXA_XA_NOTA = -4,
    CHXA_XA_INVAL = -5,
    CHXA_XA_PROTO = -6,
    CHXA_XA_RMFAIL = -7,
};

/* What the number in errors.def says. An unlisted code reads as INTERNAL; 0 as "OK", 200. */
const char *chxa_error_name(int code);
const char *chxa_error_text(int code);
int chxa_error_http(int code);
int chxa_error_xa(int code);
bool chxa_error_retryable(int code);
bool chxa_error_outcome_known(int code);
/* The code with that name, or 0 when there is none. */
int chxa_error_from_name(const char *name);

#endif
