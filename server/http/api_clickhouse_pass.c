/* SPDX-License-Identifier: Apache-2.0
 *
 * The ClickHouse-compatible endpoint: what is passed through, both ways, as it comes.
 */
#include "http/api_clickhouse.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http_pass.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADERS_MAX 256u

/* ---- the answer ---- */

static void drained(struct http_request *request, void *arg)
{
    struct front *front = arg;
    (void)request;
    ch_pass_resume(front->pass);
}

static void pass_head(void *arg, int status, const struct ch_pass_field *fields, size_t n_fields,
                      int64_t body_bytes)
{
    struct front *front = arg;
    struct http_header headers[HEADERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < n_fields && n < HEADERS_MAX; i++)
        headers[n++] = (struct http_header){fields[i].name, fields[i].value};
    front->head_told = true;
    front->answer_status = status;
    http_request_read_on(front->request);
    /* A HEAD's Content-Length speaks of a body that does not come. */
    http_reply_start(front->request, status, headers, n, body_bytes, drained, front);
}

static bool pass_data(void *arg, const void *data, size_t len)
{
    struct front *front = arg;
    return http_reply_data(front->request, data, len);
}

static void pass_drain(void *arg)
{
    struct front *front = arg;
    if (front->reading && !front->body_over)
        http_request_resume(front->request);
}

static void pass_done(void *arg, int code, const struct error *error)
{
    struct front *front = arg;
    if (!front->head_told) {
        front_answer_error(front, code, error_message(error));
        return;
    }
    struct api_call *call = front->call;
    http_request_on_gone(front->request, NULL, NULL);
    metrics_http(call->route, front->answer_status, clock_monotonic_us() - call->started_us);
    http_reply_end(front->request, code == 0);
    free(call);
    front_free(front);
}

static void client_gone(struct http_request *request, void *arg)
{
    struct front *front = arg;
    (void)request;
    if (front->pass)
        ch_pass_cancel(front->pass); /* ClickHouse sees it and may stop the query */
}

/* ---- the request ---- */

/* Is name=value of a query string a parameter that ClickHouse must not see? Names of ours are plain
 * ASCII; one that is written with escapes is decoded for the comparison. */
static bool is_dropped(const char *pair, size_t len, bool reads_only)
{
    char name[16];
    size_t n = 0;
    for (size_t i = 0; i < len && pair[i] != '=' && n < sizeof name - 1; i++) {
        char c = pair[i];
        unsigned value;
        char digits[3] = {0};
        if (c == '%' && i + 2 < len) {
            memcpy(digits, pair + i + 1, 2);
            char *end;
            value = (unsigned)strtoul(digits, &end, 16);
            if (*end == '\0') {
                c = (char)value;
                i += 2;
            }
        }
        name[n++] = c;
    }
    name[n] = '\0';
    return strncmp(name, "chxa_", 5) == 0 || (reads_only && strcmp(name, "readonly") == 0);
}

/* The target without what is ours. */
static char *make_target(const char *target, bool reads_only)
{
    struct buf out = {0};
    size_t path = strcspn(target, "?");
    char separator = '?';
    buf_append(&out, target, path);
    if (reads_only) {
        buf_puts(&out, "?readonly=2");
        separator = '&';
    }
    const char *pair = target + path + (target[path] == '?');
    while (*pair) {
        size_t len = strcspn(pair, "&");
        if (!is_dropped(pair, len, reads_only)) {
            buf_append(&out, &separator, 1);
            buf_append(&out, pair, len);
            separator = '&';
        }
        pair += len + (pair[len] == '&');
    }
    return buf_take(&out);
}

static size_t copy_fields(struct front *front, struct ch_pass_field *fields)
{
    size_t n = 0;
    const char *name, *value;
    for (size_t i = 0; http_request_header_at(front->request, i, &name, &value); i++)
        if (strncasecmp(name, "X-Chxa-", 7) != 0 && n < HEADERS_MAX)
            fields[n++] = (struct ch_pass_field){name, value};
    return n;
}

bool front_has_form(const struct http_request *request)
{
    static const char form[] = "multipart/form-data";
    const char *type = http_request_header(request, "Content-Type");
    return type && strncasecmp(type, form, sizeof form - 1) == 0;
}

static bool may_pass(const struct front *front)
{
    const char *path = http_request_path(front->request);
    const char *method = http_request_method(front->request);
    if (front->call->api->passthrough != API_PASS_NONE)
        return true;
    /* What clients ask to see that somebody is there. */
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    return reads &&
           (strcmp(path, "/ping") == 0 ||
            (strcmp(path, "/") == 0 && http_request_param(front->request, "query") == NULL));
}

void front_pass(struct front *front)
{
    static const struct ch_pass_handler handler = {pass_head, pass_data, pass_drain, pass_done};
    struct api *api = front->call->api;
    struct ch_pass_field fields[HEADERS_MAX];
    front->state = FRONT_PASSING;
    if (!may_pass(front)) {
        front_answer_error(front, CHXA_E_METHOD_NOT_ALLOWED,
                           *front->xid ? "inside a transaction only INSERTs are taken here "
                                         "(passthrough = none)"
                                       : "only INSERTs that name a transaction (chxa_txn) are "
                                         "taken here (passthrough = none)");
        return;
    }
    /* 18.16 lets a form's parameter override the URL's. */
    if (api->passthrough == API_PASS_READS && front_has_form(front->request)) {
        front_answer_error(front, CHXA_E_METHOD_NOT_ALLOWED,
                           "a form could change what it likes (passthrough = reads)");
        return;
    }
    const char *method = http_request_method(front->request);
    bool reads_only = api->passthrough == API_PASS_READS || front->reads_only;
    /* For a GET ClickHouse does it by itself. */
    char *target =
        make_target(http_request_target(front->request), reads_only && strcmp(method, "GET") != 0);
    struct ch_pass_request request = {
        .method = method,
        .target = target,
        .fields = fields,
        .n_fields = copy_fields(front, fields),
        .body_bytes = http_request_body_bytes(front->request),
    };
    http_request_on_gone(front->request, client_gone, front);
    front->pass = ch_pass_start(api->passer, &request, &handler, front);
    free(target);
    if (front->raw.len)
        ch_pass_write(front->pass, front->raw.data, front->raw.len);
    buf_clear(&front->raw);
    front_count(front);
    if (front->body_over)
        ch_pass_end(front->pass);
    else if (request.body_bytes != 0 && !front->reading)
        front_read(front);
}
