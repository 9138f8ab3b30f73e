/* SPDX-License-Identifier: Apache-2.0
 *
 * The table behind errors.h, generated from errors.def.
 */
#include "errors.h"

#include <stddef.h>
#include <string.h>

#define XAER_INVAL     CHXA_XA_INVAL
#define XAER_RMERR     CHXA_XA_RMERR
#define XAER_NOTA      CHXA_XA_NOTA
#define XAER_RMFAIL    CHXA_XA_RMFAIL
#define XAER_PROTO     CHXA_XA_PROTO
#define XA_RBINTEGRITY CHXA_XA_RBINTEGRITY
#define XA_RBROLLBACK  CHXA_XA_RBROLLBACK
#define XA_RBOTHER     CHXA_XA_RBOTHER
#define XA_RBPROTO     CHXA_XA_RBPROTO
#define KNOWN          true
#define UNKNOWN        false

struct row {
    int code;
    const char *name;
    int http;
    int xa;
    bool retryable;
    bool outcome_known;
    const char *text;
};

static const struct row rows[] = {
#define CHXA_ERROR(number, name, http, xa, retry, outcome, text)                                   \
    {-(number), #name, http, xa, retry, outcome, text},
#include "errors.def"
#undef CHXA_ERROR
};

static const struct row ok = {0, "OK", 200, 0, false, true, "done"};

static const struct row *row_of(int code)
{
    if (code == 0)
        return &ok;
    const struct row *fallback = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].code == code)
            return &rows[i];
        if (rows[i].code == CHXA_E_INTERNAL)
            fallback = &rows[i];
    }
    return fallback;
}

const char *chxa_error_name(int code)
{
    return row_of(code)->name;
}

const char *chxa_error_text(int code)
{
    return row_of(code)->text;
}

int chxa_error_http(int code)
{
    return row_of(code)->http;
}

int chxa_error_xa(int code)
{
    return row_of(code)->xa;
}

bool chxa_error_retryable(int code)
{
    return row_of(code)->retryable;
}

bool chxa_error_outcome_known(int code)
{
    return row_of(code)->outcome_known;
}

int chxa_error_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].code;
    return 0;
}
