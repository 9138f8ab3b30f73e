/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of a request that ends a transaction: why, and what to do.
 */
#include "http/api_private.h"
#include "proto/record_check.h"

#include <string.h>

static bool reason_is_valid(const char *reason)
{
    size_t len = strlen(reason);
    if (len == 0 || len > API_REASON_BYTES_MAX)
        return false;
    for (size_t step; *reason; reason += step) {
        step = chxa_utf8_step(reason);
        if (step == 0 || (step == 1 && ((unsigned char)*reason < ' ' || *reason == 0x7f)))
            return false;
    }
    return true;
}

static bool is_one_of(const char *const *names, const char *name)
{
    for (; name && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

static void read_fields(const char *const *actions, bool takes_meta, struct api_order *order,
                        struct error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach (order->body, key, value) {
        if (strcmp(key, "reason") == 0) {
            order->reason = json_string_value(value);
            if (order->reason == NULL)
                error_set(error, CHXA_E_INVALID_REQUEST, "reason must be a text");
        } else if (actions && strcmp(key, "action") == 0) {
            order->action = json_string_value(value);
            if (!is_one_of(actions, order->action))
                error_set(error, CHXA_E_INVALID_REQUEST, "no such action");
        } else if (takes_meta && strcmp(key, "meta") == 0) {
            order->meta = value;
        } else {
            error_set(error, CHXA_E_INVALID_REQUEST, "unknown field \"%.100s\"", key);
        }
    }
    if (order->reason && !reason_is_valid(order->reason))
        error_set(error, CHXA_E_INVALID_REQUEST,
                  "reason must be 1-%u bytes of UTF-8 text without control characters",
                  API_REASON_BYTES_MAX);
}

static bool order_read(struct api_call *call, int code, const char *text, size_t len,
                       const char *const *actions, bool takes_meta, struct api_order *ret_order)
{
    struct error error = {0};
    json_t *body = api_body_read(call, code, text, len);
    if (body == NULL)
        return false; /* answered: the call is gone */
    struct api_order order = {.reason = http_request_param(call->request, "reason"), .body = body};
    read_fields(actions, takes_meta, &order, &error);
    if (error.code == 0) {
        *ret_order = order;
        return true;
    }
    api_answer_error(call, error.code, "%s", error_message(&error));
    api_order_clear(&order);
    error_clear(&error);
    return false;
}

bool api_order_read(struct api_call *call, int code, const char *text, size_t len,
                    const char *const *actions, struct api_order *ret_order)
{
    return order_read(call, code, text, len, actions, false, ret_order);
}

bool api_order_read_meta(struct api_call *call, int code, const char *text, size_t len,
                         struct api_order *ret_order)
{
    return order_read(call, code, text, len, NULL, true, ret_order);
}

void api_order_clear(struct api_order *order)
{
    json_decref(order->body);
    order->body = NULL;
}
