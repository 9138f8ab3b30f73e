/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the REST API share. Private to server/http/api*.c.
 */
#ifndef CHXA_HTTP_API_PRIVATE_H
#define CHXA_HTTP_API_PRIVATE_H

#include "http/api.h"
#include "proto/record.h"

#include <jansson.h>

/* One request while its handler works on it; freed when it is answered. */
struct api_call {
    struct api *api;
    struct http_request *request;
    const char *route; /* pattern, for the metrics */
    uint64_t started_us;
    int status;                       /* of success, when it is not 200 */
    char xid[CHXA_XID_BYTES_MAX + 1]; /* or the sink's name; "" when the route has none */
};

typedef void api_handler(struct api_call *call);
#define HTTP_ROUTE(method, pattern, handler, serves) api_handler handler;
#include "http/routes.def"
#undef HTTP_ROUTE

/* Each answers and frees the call. */
void api_answer(struct api_call *call, int status, const struct http_header *headers,
                size_t n_headers, const char *content_type, const char *body, size_t len);
/* Takes over the JSON value. */
void api_answer_json(struct api_call *call, int status, json_t *value);
/* Takes over a JSON text from malloc, as proto/record.h makes them; code: why there is none. */
void api_answer_text(struct api_call *call, int status, int code, char *text);
void api_answer_error(struct api_call *call, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A coordinator's reply: the record, 202 when pending; an error; 307 to the owner (redirect) or
 * 421; TXN_NOT_FOUND with what is known besides (the parameter sink). */
void api_answer_reply(struct api_call *call, const struct coord_reply *reply, bool redirect);
/* A record with its age; whole: with its writes and parts. *ret_text is from malloc. */
int api_record_text(const struct chxa_record *record, bool whole, char **ret_text);
/* {"sink", "epoch", "checkpoint"} */
json_t *api_sink_json(const char *name, const struct store_sink *sink);
json_t *api_error_json(const struct error *error, const struct chxa_record *record);

/* A parameter that is a whole number in [min, max]; absent: leaves *ret. False: answered 400 (call
 * freed). */
bool api_param_number(struct api_call *call, const char *name, uint64_t min, uint64_t max,
                      uint64_t *ret);
/* The JSON object in a body, {} when there is none; code, text, len: as http_request_collect gave them. Owned;
 * NULL: answered (call freed). */
json_t *api_body_read(struct api_call *call, int code, const char *text, size_t len);
/* What comes with a request that ends a transaction: {"reason": …} in the body, or the parameter of
 * that name (the body's wins), and the action, where there is a choice. */
#define API_ORDER_BODY_MAX   16384u
#define API_REASON_BYTES_MAX 1024u
struct api_order {
    json_t *body;       /* the strings below may point into it */
    const char *reason; /* 1-1024 bytes, or NULL */
    const char *action; /* one of the actions, or NULL */
    json_t *meta;       /* the body's, or NULL */
};
/* code, text, len: as http_request_collect gave them; no body at all is fine. actions: those that
 * "action" may name, NULL-terminated; NULL: there is no such field. False: answered (call freed).
 * True: api_order_clear it after the strings' last use. */
bool api_order_read(struct api_call *call, int code, const char *text, size_t len,
                    const char *const *actions, struct api_order *ret_order);
/* Without an action, but with a meta: for what may publish one. */
bool api_order_read_meta(struct api_call *call, int code, const char *text, size_t len,
                         struct api_order *ret_order);
void api_order_clear(struct api_order *order);

/* False (answered) when a parameter has a name that is not in the NULL-terminated list: a typing
 * error must not be taken for a default. */
bool api_params_known(struct api_call *call, const char *const *names);
/* The parameter sink, if there is one, is a valid name; else false (answered). */
bool api_param_sink(struct api_call *call);

#endif
