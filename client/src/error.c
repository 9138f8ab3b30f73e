/* SPDX-License-Identifier: Apache-2.0
 *
 * The error list, as the header promises it: a node's codes from proto/errors.def, the library's own from
 * own_errors.def. Static assertions hold the public enum to both.
 */
#include "client/src/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The values of X/Open's xa.h. */
enum {
    XAER_RMERR = -3,
    XAER_NOTA = -4,
    XAER_INVAL = -5,
    XAER_PROTO = -6,
    XAER_RMFAIL = -7,
    XA_HEURMIX = 5,
    XA_HEURRB = 6,
    XA_RBROLLBACK = 100,
    XA_RBINTEGRITY = 103,
    XA_RBOTHER = 104,
    XA_RBPROTO = 105,
};
#define KNOWN   CHXA_OUTCOME_KNOWN
#define UNKNOWN CHXA_OUTCOME_UNKNOWN

#define CHXA_ERROR(number, name, http, xa, retry, outcome, text)                                   \
    static_assert(CHXA_ERR_##name == -(number), "chxa.h and the error list differ: " #name);
#include "client/src/own_errors.def"
#include "proto/errors.def"
#undef CHXA_ERROR

#define CHXA_STATE(name, text, kind, reads) STATE_##name,
enum {
#include "proto/states.def"
};
#undef CHXA_STATE
#define CHXA_STATE(name, text, kind, reads)                                                        \
    static_assert((int)CHXA_STATE_##name == (int)STATE_##name,                                     \
                  "chxa.h and states.def differ: " #name);
#include "proto/states.def"
#undef CHXA_STATE

struct row {
    int code;
    const char *name;
    int xa;
    bool retryable;
    enum chxa_outcome outcome;
    const char *text;
};

static const struct row rows[] = {
#define CHXA_ERROR(number, name, http, xa, retry, outcome, text)                                   \
    {-(number), #name, xa, retry, outcome, text},
#include "client/src/own_errors.def"
#include "proto/errors.def"
#undef CHXA_ERROR
};

static const char *const states[] = {
#define CHXA_STATE(name, text, kind, reads) text,
#include "proto/states.def"
#undef CHXA_STATE
};

static const struct row *row_of(int code)
{
    static const struct row ok = {0, "OK", 0, false, KNOWN, "done"};
    if (code == 0)
        return &ok;
    const struct row *unlisted = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].code == code)
            return &rows[i];
        if (rows[i].code == CHXA_ERR_UNKNOWN_CODE)
            unlisted = &rows[i];
    }
    return unlisted;
}

const char *chxa_version(void)
{
    return CHXA_VERSION;
}

const char *chxa_error_name(int code)
{
    return row_of(code)->name;
}

const char *chxa_error_text(int code)
{
    return row_of(code)->text;
}

const char *chxa_state_name(enum chxa_txn_state state)
{
    size_t number = (size_t)state;
    return number < sizeof states / sizeof states[0] ? states[number] : states[0];
}

enum chxa_txn_state cx_state_from_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof states / sizeof states[0]; i++)
        if (strcmp(states[i], name) == 0)
            return (enum chxa_txn_state)i;
    return CHXA_STATE_UNKNOWN;
}

int cx_error_from_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].code;
    return 0;
}

struct chxa_error *cx_error_start(struct chxa_error *given, struct chxa_error *local)
{
    struct chxa_error *error = given ? given : local;
    memset(error, 0, sizeof *error);
    return error;
}

void cx_error_message(struct chxa_error *error, const char *text)
{
    size_t len = 0;
    while (*text) {
        size_t n = cx_utf8_step(text), some = n ? n : 1;
        if (len + some > CHXA_MESSAGE_BYTES_MAX)
            break;
        memcpy(error->message + len, n ? text : "?", some);
        len += some;
        text += some;
    }
    error->message[len] = '\0';
}

int cx_fail(struct chxa_error *error, int code, const char *format, ...)
{
    const struct row *row = row_of(code);
    char text[2 * CHXA_MESSAGE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error->code = code;
    error->outcome = row->outcome;
    error->retryable = row->retryable;
    error->xa_code = row->xa;
    cx_error_message(error, text);
    return code;
}

int cx_no_memory(struct chxa_error *error)
{
    return cx_fail(error, CHXA_ERR_NO_MEMORY, "out of memory in this process");
}

int cx_done(struct chxa_error *error)
{
    error->code = 0;
    error->outcome = CHXA_OUTCOME_KNOWN;
    error->retryable = false;
    error->xa_code = 0;
    error->message[0] = '\0';
    return 0;
}
