/* SPDX-License-Identifier: Apache-2.0
 *
 * Prepare, commit, rollback, forget: what ends a transaction, by its id alone, and repeated until the end is known.
 */
#include "client/src/internal.h"

#include <string.h>

#define REASON_BYTES_MAX 1024u

struct decision {
    struct chxa_client *client;
    const char *xid, *owner_url, *method;
    const char *verb; /* "/commit"; "" for the transaction itself */
    const char *body; /* JSON, or NULL */
    uint64_t deadline;
    bool waits;
};

/* call is the caller's to clear. */
static int decide(const struct decision *decision, struct cx_call *call, struct chxa_error *error)
{
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/transactions/%s%s", decision->xid, decision->verb);
    *call = (struct cx_call){.client = decision->client,
                             .method = decision->method,
                             .target = target.data,
                             .origin = decision->owner_url,
                             .deadline = decision->deadline,
                             .waits = decision->waits,
                             .to_end = decision->waits};
    if (decision->body)
        call->body = (struct cx_body){
            .data = decision->body, .len = strlen(decision->body), .json = true, .there = true};
    int code = target.failed ? cx_no_memory(error) : cx_call_run(call, error);
    cx_buf_clear(&target);
    call->target = NULL;
    return code;
}

static int decide_alone(const struct decision *decision, struct chxa_error *error)
{
    struct cx_call call = {0};
    int code = decide(decision, &call, error);
    cx_call_clear(&call);
    return code;
}

/* A POST of the verb, and what it waits for. */
static struct decision decision_of(struct chxa_client *client, const char *xid,
                                   const char *owner_url, const char *verb, uint64_t deadline_ms)
{
    return (struct decision){.client = client,
                             .xid = xid,
                             .owner_url = owner_url,
                             .method = "POST",
                             .verb = verb,
                             .deadline = cx_client_deadline(client, deadline_ms),
                             .waits = true};
}

/* With the body {name: value}, or none when there is no value; put writes it. */
static int decide_with(struct decision *decision, const char *name, const char *value,
                       void put(struct cx_buf *buf, const char *value), struct chxa_error *error)
{
    struct cx_buf body = {0};
    if (value) {
        cx_buf_printf(&body, "{\"%s\":", name);
        put(&body, value);
        cx_buf_puts(&body, "}");
    }
    decision->body = body.data;
    int code = body.failed ? cx_no_memory(error) : decide_alone(decision, error);
    decision->body = NULL;
    cx_buf_clear(&body);
    return code;
}

/* ---- prepare ---- */

int chxa_prepare(struct chxa_client *client, const char *xid, const char *owner_url,
                 const char *meta, uint64_t deadline_ms, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code == 0 && meta)
        code = cx_json_check("meta", meta, error);
    if (code)
        return code;
    struct decision decision = decision_of(client, xid, owner_url, "/prepare", deadline_ms);
    return decide_with(&decision, "meta", meta, cx_buf_puts, error);
}

/* ---- commit ---- */

/* What an operator did to a transaction that is Committed all the same: its rows are not all there. */
static int check_heuristic(const struct cx_call *call, struct chxa_error *error)
{
    const char *how = cx_json_text(call->json, "heuristic");
    if (how == NULL)
        return 0;
    cx_fail(error, CHXA_ERR_HEURISTIC, "committed, but an operator gave rows up: %.100s", how);
    if (strcmp(how, "rolled_back") == 0)
        error->xa_code = 6; /* XA_HEURRB */
    else if (strcmp(how, "hazard") == 0)
        error->xa_code = 8; /* XA_HEURHAZ */
    return error->code;
}

/* To a node, the commit of an Initialized transaction is one of one phase: so it is asked for its state before. */
static int check_prepared(struct decision *decision, struct chxa_error *error)
{
    struct decision question = *decision;
    question.method = "GET";
    question.verb = "";
    question.waits = false;
    int code = decide_alone(&question, error);
    if (code == 0 && error->state == CHXA_STATE_INITIALIZED)
        code = cx_fail(error, CHXA_ERR_WRONG_STATE,
                       "the transaction is Initialized, and was never prepared");
    return code;
}

int chxa_commit(struct chxa_client *client, const char *xid, const char *owner_url, bool one_phase,
                uint64_t deadline_ms, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code)
        return code;
    struct decision decision = decision_of(client, xid, owner_url, "/commit", deadline_ms);
    struct cx_call call = {0};
    if (!one_phase)
        code = check_prepared(&decision, error);
    if (code == 0)
        code = decide(&decision, &call, error);
    if (code == 0)
        code = check_heuristic(&call, error);
    else if (code == CHXA_ERR_WRONG_STATE &&
             (error->state == CHXA_STATE_ABORTED || error->state == CHXA_STATE_ABORTING))
        code = cx_fail(error, CHXA_ERR_ROLLED_BACK, "%s was rolled back", xid);
    cx_call_clear(&call);
    return code;
}

/* ---- rollback, forget ---- */

static int check_reason(const char *reason, struct chxa_error *error)
{
    size_t len = strlen(reason);
    bool ok = len > 0 && len <= REASON_BYTES_MAX && cx_utf8_valid(reason);
    for (const char *c = reason; ok && *c; c++)
        ok = (unsigned char)*c >= 0x20 && *c != 0x7f;
    return ok ? 0
              : cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                        "reason is not 1-%u bytes of UTF-8 without control characters",
                        REASON_BYTES_MAX);
}

int chxa_rollback(struct chxa_client *client, const char *xid, const char *owner_url,
                  const char *reason, uint64_t deadline_ms, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code == 0 && reason)
        code = check_reason(reason, error);
    if (code)
        return code;
    struct decision decision = decision_of(client, xid, owner_url, "/rollback", deadline_ms);
    code = decide_with(&decision, "reason", reason, cx_buf_json, error);
    /* Nobody knows it: there is nothing to roll back. */
    return code == CHXA_ERR_TXN_NOT_FOUND ? cx_done(error) : code;
}

int chxa_forget(struct chxa_client *client, const char *xid, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the transaction's id", xid, error);
    if (code)
        return code;
    struct decision decision = {.client = client,
                                .xid = xid,
                                .method = "DELETE",
                                .verb = "",
                                .deadline = cx_client_deadline(client, 0)};
    code = decide_alone(&decision, error);
    return code == CHXA_ERR_TXN_NOT_FOUND ? cx_done(error) : code;
}
