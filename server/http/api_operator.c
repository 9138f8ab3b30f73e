/* SPDX-License-Identifier: Apache-2.0
 *
 * What only an operator asks for: to resolve a blocked commit, to abandon a transaction whose owner
 * is lost, to compare store and disks, to clear what was set aside.
 */
#include "http/api_private.h"
#include "proto/record_check.h"

#include <stdlib.h>
#include <string.h>

/* ---- resolve ---- */

static void resolved(void *arg, const struct coord_reply *reply)
{
    api_answer_reply(arg, reply, true);
}

static void resolve_body_read(struct http_request *request, void *arg, int code, const char *text,
                              size_t len)
{
    static const char *const actions[] = {"retry", "discard", "convert", NULL};
    static const char *const known[] = {"wait_ms", "sink", "reason", NULL};
    struct api_call *call = arg;
    struct api_order order;
    (void)request;
    uint64_t wait_ms = call->api->wait_ms_default;
    if (!api_params_known(call, known) || !api_param_sink(call) ||
        !api_param_number(call, "wait_ms", 0, call->api->wait_ms_max, &wait_ms) ||
        !api_order_read(call, code, text, len, actions, &order))
        return;
    enum coord_resolve action = COORD_RESOLVE_RETRY;
    if (order.action && strcmp(order.action, "discard") == 0)
        action = COORD_RESOLVE_DISCARD;
    if (order.action && strcmp(order.action, "convert") == 0)
        action = COORD_RESOLVE_CONVERT;
    if (order.action == NULL)
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "action must be retry, discard or convert");
    else if (action == COORD_RESOLVE_DISCARD && order.reason == NULL)
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "to discard needs a reason");
    else
        coord_resolve(call->api->coord, call->xid, action, order.reason, wait_ms, resolved, call);
    api_order_clear(&order);
}

void api_resolve(struct api_call *call)
{
    http_request_collect(call->request, API_ORDER_BODY_MAX, resolve_body_read, call);
}

/* ---- abandon ---- */

static void abandoned(void *arg, const struct coord_reply *reply)
{
    api_answer_reply(arg, reply, false);
}

static void abandon_body_read(struct http_request *request, void *arg, int code, const char *text,
                              size_t len)
{
    static const char *const known[] = {"sink", "reason", NULL};
    struct api_call *call = arg;
    struct api_order order;
    (void)request;
    if (!api_params_known(call, known) || !api_param_sink(call) ||
        !api_order_read(call, code, text, len, NULL, &order))
        return;
    if (order.reason == NULL)
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "to abandon needs a reason");
    else
        coord_abandon(call->api->coord, call->xid, order.reason, abandoned, call);
    api_order_clear(&order);
}

void api_abandon(struct api_call *call)
{
    http_request_collect(call->request, API_ORDER_BODY_MAX, abandon_body_read, call);
}

/* ---- fsck ---- */

#define FINDINGS_DEFAULT 1000u
#define FINDINGS_MAX     10000u

static void set_text(json_t *object, const char *key, const char *text)
{
    char *good = NULL; /* a path may have bytes that are no UTF-8 */
    if (text && chxa_text_repair(text, SIZE_MAX, &good) == 0)
        json_object_set_new(object, key, json_string(good));
    free(good);
}

static json_t *finding_json(const struct coord_finding *finding)
{
    json_t *value = json_object();
    set_text(value, "kind", finding->kind);
    set_text(value, "xid", finding->xid);
    set_text(value, "path", finding->path);
    set_text(value, "part", finding->part);
    set_text(value, "message", finding->message);
    set_text(value, "meaning", finding->meaning);
    set_text(value, "mend", finding->mend);
    if (finding->bytes >= 0)
        json_object_set_new(value, "bytes", json_integer(finding->bytes));
    if (finding->age_ms >= 0)
        json_object_set_new(value, "age_ms", json_integer(finding->age_ms));
    return value;
}

static void fsck_done(void *arg, const struct coord_fsck_reply *reply)
{
    struct api_call *call = arg;
    if (reply->code) {
        api_answer_error(call, reply->code, "%s", error_message(reply->error));
        return;
    }
    json_t *findings = json_array();
    for (size_t i = 0; i < reply->n_findings; i++)
        json_array_append_new(findings, finding_json(&reply->findings[i]));
    api_answer_json(call, 200,
                    json_pack("{s:s,s:I,s:I,s:I,s:b,s:o}", "node", coord_node(call->api->coord),
                              "transactions", (json_int_t)reply->n_transactions, "folders",
                              (json_int_t)reply->n_folders, "tables", (json_int_t)reply->n_tables,
                              "truncated", reply->truncated, "findings", findings));
}

void api_fsck(struct api_call *call)
{
    static const char *const known[] = {"limit", NULL};
    uint64_t limit = FINDINGS_DEFAULT;
    if (api_params_known(call, known) && api_param_number(call, "limit", 1, FINDINGS_MAX, &limit))
        coord_fsck(call->api->coord, limit, fsck_done, call);
}

/* ---- clear lost ---- */

static void lost_cleared(void *arg, int code, const struct error *error, size_t n)
{
    struct api_call *call = arg;
    const char *name = http_request_param(call->request, "name");
    if (code)
        api_answer_error(call, code, "%s", error_message(error));
    else if (n == 0)
        api_answer_error(call, CHXA_E_ROUTE_NOT_FOUND, "nothing of that name is set aside: %s",
                         name);
    else
        api_answer_json(call, 200, json_pack("{s:s,s:I}", "name", name, "removed", (json_int_t)n));
}

/* As held_dir_name makes them, perhaps with "@" and a time behind. */
static bool lost_name_is_valid(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    return len > 2 && len <= 255 && strncmp(name, "t-", 2) == 0 &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-~@") ==
               len;
}

void api_clear_lost(struct api_call *call)
{
    static const char *const known[] = {"name", NULL};
    const char *name = http_request_param(call->request, "name");
    if (!api_params_known(call, known))
        return;
    if (lost_name_is_valid(name))
        coord_clear_lost(call->api->coord, name, lost_cleared, call);
    else
        api_answer_error(call, CHXA_E_INVALID_REQUEST,
                         "name must be that of a set-aside folder, as GET /v1/fsck tells it");
}
