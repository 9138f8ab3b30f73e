/* SPDX-License-Identifier: Apache-2.0
 *
 * What only an operator asks for: to resolve a blocked commit, to abandon a transaction whose owner
 * is lost.
 */
#include "http/api_private.h"

#include <string.h>

/* ---- resolve ---- */

static void resolved(void *arg, const struct coord_reply *reply)
{
    api_answer_reply(arg, reply, true);
}

static void resolve_body_read(struct http_request *request, void *arg, int code, const char *text,
                              size_t len)
{
    static const char *const actions[] = {"retry", "discard", NULL};
    static const char *const known[] = {"wait_ms", "sink", "reason", NULL};
    struct api_call *call = arg;
    struct api_order order;
    (void)request;
    uint64_t wait_ms = call->api->wait_ms_default;
    if (!api_params_known(call, known) || !api_param_sink(call) ||
        !api_param_number(call, "wait_ms", 0, call->api->wait_ms_max, &wait_ms) ||
        !api_order_read(call, code, text, len, actions, &order))
        return;
    bool discards = order.action && strcmp(order.action, "discard") == 0;
    if (order.action == NULL)
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "action must be retry or discard");
    else if (discards && order.reason == NULL)
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "to discard needs a reason");
    else
        coord_resolve(call->api->coord, call->xid,
                      discards ? COORD_RESOLVE_DISCARD : COORD_RESOLVE_RETRY, order.reason, wait_ms,
                      resolved, call);
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
