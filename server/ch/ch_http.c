/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to ClickHouse: libcurl's multi interface driven by libuv. See ch_http.h.
 *
 * A request's life:
 *
 *   QUEUED ──start_queued──> RUNNING ──multi_collect──> FINISHED ──request_deliver──> DELIVERED
 *      └───────────────request_finish (cancel, time-out, refusal)────^
 *
 * Invariants:
 *  - QUEUED requests are in their kind's queue, RUNNING ones in client->running and in the multi
 *    handle; the others in no list.
 *  - User callbacks are called from the loop, never from inside a curl callback, so they may start,
 *    cancel and close anything.
 *  - A request is freed in the close callback of its timer, after its done callback.
 *  - Nothing is sent twice: curl tries another connection when a kept-alive one turns out dead, and
 *    curl_before_request refuses that once any byte of the request has left. (curl looks at an idle
 *    connection before it uses it, so this needs a server that closes it in that very moment.)
 *  - Uploads never use the last quarter of the connections, so that the statements that finish a
 *    transaction do not wait behind the bodies of slow clients.
 *  - An upload that waits in the queue holds none of its body, unless its user insists; memory for it is taken
 *    from the budget when it starts. The queue is in order: who needs more does not starve.
 */
#include "ch/ch_http.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http_loop.h"
#include "ch/ch_response.h"
#include "ch/ch_ring.h"
#include "ch/ch_url.h"
#include "ch/sql.h"

#include <assert.h>
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#define UPLOAD_BUFFER_BYTES_DEFAULT ((size_t)256 * 1024)
#define UPLOAD_BUFFER_BYTES_MIN     ((size_t)16 * 1024)
/* At most this much comes to ch_upload_write at a time. */
#define UPLOAD_READ_BYTES ((size_t)256 * 1024)
/* What curl reads and sends at a time; its own limits are 16 KiB and 2 MiB. */
#define CURL_BUFFER_BYTES_MIN 16384l
#define CURL_BUFFER_BYTES_MAX 131072l
/* An idle connection older than this is not used again: ClickHouse 18.16 closes them after 3 s, and
 * a request that crosses with the close has an unknown outcome. curl counts whole seconds. */
#define CONNECTION_IDLE_S_MAX 1l
/* A longer statement goes at the head of an upload's body. */
#define URL_SQL_BYTES_MAX ((size_t)4 * 1024)
/* How long the rest of an answer that came before the end of the upload may take. */
#define EARLY_ANSWER_MS_MAX 2000u
/* Of an answer that is found in the socket of a connection that can no longer be written to. */
#define LATE_ANSWER_BYTES_MAX ((size_t)64 * 1024)

enum request_state { REQUEST_QUEUED, REQUEST_RUNNING, REQUEST_FINISHED, REQUEST_DELIVERED };

TAILQ_HEAD(request_list, ch_request);

struct ch_request {
    TAILQ_ENTRY(ch_request) link;
    TAILQ_ENTRY(ch_request) due_link;
    struct ch_client *client;
    enum request_state state;
    uv_timer_t timer; /* the deadline; in FINISHED: the delivery */
    uint64_t timeout_ms;
    ch_answer_cb *done;
    void *arg;
    const char *kind; /* for the metrics */
    uint64_t started_us;

    CURL *easy;
    struct curl_slist *headers; /* owned when it is not the client's */
    char *sql;                  /* body of a query */
    curl_socket_t socket;       /* last one curl used for it */
    char reason[CURL_ERROR_SIZE];

    bool upload;
    bool ended;      /* the user's body is whole */
    bool paused;     /* curl_read had nothing to give */
    bool blocked;    /* the user waits for on_drain */
    bool deaf;       /* paused, and curl has nothing more to read: answered or closed */
    bool early;      /* answered before its end: what is written now is dropped */
    bool due;        /* in client->due */
    size_t held;     /* of the budget, while it runs */
    bool told_short; /* it waited for that, and was counted */
    void (*on_drain)(void *arg);
    struct ch_ring ring;
    uint64_t sent_bytes;

    struct ch_response response;
    struct buf late; /* answer found in the socket after sending failed */
    bool body_too_long;
    enum fault_end end;
    uint64_t slow_ms;
    int code;
    struct error error;
};

struct ch_client {
    uv_loop_t *loop;
    struct ch_http_loop *http_loop; /* NULL once it is closing */
    char *url; /* scheme://host:port/? and the parameters that are always sent */
    struct curl_slist *query_headers, *upload_headers;
    char *user_header, *password_header;
    struct ch_client_config config;

    struct request_list running, queries, uploads, due;
    size_t n_running, n_running_uploads, n_queued;
    size_t n_requests; /* not freed yet */
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void start_queued(struct ch_client *client);
static int classify(struct ch_request *request, CURLcode result);
static void client_try_free(struct ch_client *client);
static void client_progress(void *arg);

/* ---- the end of a request ---- */

static void request_free(uv_handle_t *handle)
{
    struct ch_request *request = handle->data;
    struct ch_client *client = request->client;

    if (request->easy)
        curl_easy_cleanup(request->easy);
    if (request->headers != client->query_headers && request->headers != client->upload_headers)
        curl_slist_free_all(request->headers);
    free(request->sql);
    ch_ring_clear(&request->ring);
    ch_response_clear(&request->response);
    buf_clear(&request->late);
    error_clear(&request->error);
    free(request);
    client->n_requests--;
    client_try_free(client);
}

static void on_delivery_timer(uv_timer_t *timer);

static void request_deliver(struct ch_request *request)
{
    assert(request->state == REQUEST_FINISHED);
    const struct ch_response *response = &request->response;
    const char *text;
    int ch_code = 0;
    if (request->end == FAULT_SLOW) {
        request->end = FAULT_NONE;
        uv_timer_start(&request->timer, on_delivery_timer, request->slow_ms, 0);
        return;
    }
    if (fault_loses(request->end))
        request->code = error_set(&request->error, CHXA_E_CLICKHOUSE_UNKNOWN, "%s", FAULT_TEXT);
    if (request->code)
        ch_response_exception(response, &ch_code, &text);
    struct ch_answer answer = {
        .code = request->code,
        .http_status = response->status,
        .ch_code = ch_code,
        .body = buf_str(&response->body),
        .body_bytes = response->body.len,
        .summary = response->summary ? response->summary : "",
        .query_id = response->query_id ? response->query_id : "",
        .error = &request->error,
        .sent_bytes = request->sent_bytes,
    };
    uv_timer_stop(&request->timer);
    request->state = REQUEST_DELIVERED;
    metrics_clickhouse(request->kind, request->code, clock_monotonic_us() - request->started_us);
    request->done(request->arg, &answer);
    uv_close((uv_handle_t *)&request->timer, request_free);
}

/* Takes the request out of its list and out of curl; its code and error are set. */
static void request_detach(struct ch_request *request)
{
    struct ch_client *client = request->client;

    if (request->state == REQUEST_QUEUED) {
        TAILQ_REMOVE(request->upload ? &client->uploads : &client->queries, request, link);
        client->n_queued--;
    } else {
        assert(request->state == REQUEST_RUNNING);
        TAILQ_REMOVE(&client->running, request, link);
        client->n_running--;
        client->n_running_uploads -= request->upload;
        curl_multi_remove_handle(ch_http_loop_multi(client->http_loop), request->easy);
        ch_ring_clear(&request->ring);
        budget_give(client->config.budget, request->held);
        request->held = 0;
    }
    if (request->due) {
        TAILQ_REMOVE(&client->due, request, due_link);
        request->due = false;
    }
    request->state = REQUEST_FINISHED;
    uv_timer_stop(&request->timer);
}

static void on_delivery_timer(uv_timer_t *timer)
{
    request_deliver(timer->data);
}

/* Ends a request from inside a call of the user's: the callback comes on a later turn. */
static void request_finish_later(struct ch_request *request)
{
    request_detach(request);
    uv_timer_start(&request->timer, on_delivery_timer, 0, 0);
    start_queued(request->client);
}

/* Anything of it? The body goes behind the head, so the head tells. */
static bool was_sent(const struct ch_request *request)
{
    long head_bytes = 0;
    if (request->easy)
        curl_easy_getinfo(request->easy, CURLINFO_REQUEST_SIZE, &head_bytes);
    return head_bytes > 0;
}

static void on_request_timeout(uv_timer_t *timer)
{
    struct ch_request *request = timer->data;
    unsigned long long ms = request->timeout_ms;

    if (request->response.head_done)
        request->code = classify(request, CURLE_OPERATION_TIMEDOUT);
    else if (was_sent(request))
        request->code = error_set(&request->error, CHXA_E_CLICKHOUSE_UNKNOWN,
                                  "no answer from ClickHouse within %llu ms", ms);
    else
        request->code = error_set(&request->error, CHXA_E_CLICKHOUSE_UNAVAILABLE,
                                  "no connection to ClickHouse within %llu ms", ms);
    request_detach(request);
    start_queued(request->client);
    request_deliver(request);
}

static void give_time(struct ch_request *request)
{
    if (request->timeout_ms)
        uv_timer_start(&request->timer, on_request_timeout, request->timeout_ms, 0);
}

/* curl's own end of a request that has no complete response. */
static int classify_failure(struct ch_request *request, CURLcode result)
{
    struct error *error = &request->error;
    const char *reason = *request->reason ? request->reason : curl_easy_strerror(result);

    if (!was_sent(request))
        return error_set(error, CHXA_E_CLICKHOUSE_UNAVAILABLE, "cannot reach ClickHouse: %s",
                         reason);
    if (request->body_too_long)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "ClickHouse's answer is longer than %zu bytes",
                         request->response.body.bytes_max);
    if (result == CURLE_ABORTED_BY_CALLBACK)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "ClickHouse closed the connection before it answered");
    if (request->response.head_done)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "ClickHouse's answer (HTTP %d) was cut short: %s",
                         request->response.status, reason);
    return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN, "ClickHouse's answer was lost: %s", reason);
}

static int classify(struct ch_request *request, CURLcode result)
{
    struct ch_response *response = &request->response;
    struct error *error = &request->error;
    int number = 0;
    const char *text = "";

    if (result != CURLE_OK && !response->head_done && request->late.len)
        ch_response_raw(response, request->late.data, request->late.len);
    int status = response->head_done ? response->status : 0;
    if (status && ch_response_exception(response, &number, &text)) {
        if (ch_response_trimmed(text) == 0)
            return error_set(error, CHXA_E_CLICKHOUSE_REJECTED,
                             "ClickHouse answered with exception %d and no text", number);
        return error_set(error, CHXA_E_CLICKHOUSE_REJECTED, "%.*s", (int)ch_response_trimmed(text),
                         text);
    }
    text = buf_str(&response->body);
    if (status >= 300 && status < 500)
        return error_set(error, CHXA_E_CLICKHOUSE_REJECTED, "ClickHouse answered HTTP %d: %.*s",
                         status, (int)ch_response_trimmed(text), text);
    if (status >= 500)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN, "ClickHouse answered HTTP %d: %.*s",
                         status, (int)ch_response_trimmed(text), text);
    if (result != CURLE_OK || !response->head_done)
        return classify_failure(request, result ? result : CURLE_GOT_NOTHING);
    if (status != 200)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN, "ClickHouse answered HTTP %d", status);
    if (!response->chunked && !response->has_length)
        return error_set(error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "ClickHouse's answer has no length: it may have been cut short");
    return 0;
}

static bool request_writable(const struct ch_request *request)
{
    return request->early || request->ring.len < request->client->config.upload_buffer_bytes / 2;
}

static void request_end(struct ch_request *request, CURLcode result)
{
    request->code = classify(request, result);
    request_detach(request);
    start_queued(request->client);
    request_deliver(request);
}

/* Does what could not be done inside curl's callback. */
static void request_serve(struct ch_request *request)
{
    if (request->deaf) {
        /* curl would wait for the user's next rows before it looked at the connection again. */
        request_end(request, CURLE_PARTIAL_FILE);
        return;
    }
    if (request->blocked && request_writable(request)) {
        request->blocked = false;
        if (!request->ended && !request->early)
            uv_timer_stop(&request->timer);
        if (request->on_drain && !request->ended)
            request->on_drain(request->arg);
    }
}

/* Takes what curl has finished; then the callbacks that are due. */
static void multi_collect(struct ch_client *client)
{
    if (client->http_loop == NULL)
        return;
    CURLM *multi = ch_http_loop_multi(client->http_loop);
    for (;;) {
        int left;
        CURLMsg *message = curl_multi_info_read(multi, &left);
        if (!message)
            break;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        struct ch_request *request = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&request);
        request_end(request, result);
    }
    struct ch_request *request;
    while ((request = TAILQ_FIRST(&client->due))) {
        TAILQ_REMOVE(&client->due, request, due_link);
        request->due = false;
        request_serve(request);
    }
}

/* ---- curl's callbacks ---- */

static void request_make_due(struct ch_request *request)
{
    if (!request->due) {
        TAILQ_INSERT_TAIL(&request->client->due, request, due_link);
        request->due = true;
    }
}

static size_t curl_header(char *line, size_t size, size_t count, void *arg)
{
    struct ch_request *request = arg;
    const struct ch_response *response = &request->response;

    ch_response_line(&request->response, line, size * count);
    if (request->upload && !request->early && response->head_done &&
        (response->status >= 300 || response->header_exception)) {
        request->early = true;
        uv_timer_start(&request->timer, on_request_timeout, EARLY_ANSWER_MS_MAX, 0);
        request_make_due(request);
    }
    return size * count;
}

static size_t curl_body(char *data, size_t size, size_t count, void *arg)
{
    struct ch_request *request = arg;
    size_t len = size * count;
    ch_response_body(&request->response, data, len);
    /* An error's text is kept as far as it fits; a result is whole or of no use. */
    if (request->response.body_cut && request->response.status < 300) {
        request->body_too_long = true;
        return 0;
    }
    return len;
}

static size_t curl_read(char *to, size_t size, size_t count, void *arg)
{
    struct ch_request *request = arg;

    /* Once answered, sending more would only bring a reset that hides the rest of the answer. */
    size_t len = request->early ? 0 : ch_ring_take(&request->ring, to, size * count);
    request->sent_bytes += len;
    if (len && request->blocked && !request->ended)
        give_time(request); /* a full buffer that nobody takes from is a stopped server */
    if (request->blocked && request_writable(request))
        request_make_due(request);
    if (len == 0 && (request->early || !request->ended)) {
        request->paused = true;
        return CURL_READFUNC_PAUSE;
    }
    return len;
}

static int curl_before_request(void *arg, char *ip, char *local_ip, int port, int local_port)
{
    (void)ip, (void)local_ip, (void)port, (void)local_port;
    struct ch_request *request = arg;
    return was_sent(request) ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/*
 * ClickHouse may answer with an error in the middle of an upload and close. When curl notices by a
 * failed send, it gives up with the answer unread in the socket: take it from there.
 */
static int curl_close_socket(void *arg, curl_socket_t socket)
{
    struct ch_client *client = arg;
    struct ch_request *request;

    TAILQ_FOREACH (request, &client->running, link) {
        if (request->socket == socket && request->response.status == 0 && was_sent(request))
            break;
    }
    char chunk[4096];
    while (request && request->late.len < LATE_ANSWER_BYTES_MAX) {
        ssize_t got = recv(socket, chunk, sizeof chunk, MSG_DONTWAIT);
        if (got <= 0)
            break;
        buf_append(&request->late, chunk, (size_t)got);
    }
    return close(socket);
}

/* Inside curl: what it waits for on a request's socket. */
static void curl_watching(void *arg, CURL *easy, curl_socket_t socket, int what)
{
    struct ch_request *request = NULL;
    (void)arg;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&request);
    if (!request)
        return;
    if (request->paused && !(what & CURL_POLL_IN)) {
        request->deaf = true;
        request_make_due(request);
    }
    if (what != CURL_POLL_REMOVE)
        request->socket = socket;
}

/* ---- starting ---- */

static void set_common_options(struct ch_request *request)
{
    struct ch_client *client = request->client;
    CURL *easy = request->easy;

    curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->reason);
    ch_http_loop_set_up(easy);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, CONNECTION_IDLE_S_MAX);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)client->config.connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, curl_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, curl_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, curl_before_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, request);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, curl_close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, client);
    curl_easy_setopt(easy, CURLOPT_POST, 1l);

    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
}

static void set_body_options(struct ch_request *request)
{
    CURL *easy = request->easy;

    if (!request->upload) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request->sql));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->sql);
        return;
    }
    size_t bytes = request->client->config.upload_buffer_bytes / 2;
    long buffer_bytes = bytes > (size_t)CURL_BUFFER_BYTES_MAX   ? CURL_BUFFER_BYTES_MAX
                        : bytes < (size_t)CURL_BUFFER_BYTES_MIN ? CURL_BUFFER_BYTES_MIN
                                                                : (long)bytes;
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, buffer_bytes);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, curl_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, request);
}

/* ClickHouse refuses long URLs (18.16: over 16 KiB), and reads a statement at the head of the body as
 * well. It would have to be packed as the body is, so one with a packed body stays where it is. */
static bool sql_in_body(const struct ch_request *request, const struct ch_statement *statement)
{
    return request->headers == request->client->upload_headers &&
           strlen(statement->sql) > URL_SQL_BYTES_MAX;
}

/* False when curl cannot take it: out of memory, or over curl's limit of 8 MB for a string. */
static bool set_url(struct ch_request *request, const struct ch_statement *statement)
{
    struct buf url = {0};
    buf_puts(&url, request->client->url);
    if (statement->query_id)
        ch_url_param(&url, "query_id", statement->query_id);
    for (size_t i = 0; i < statement->n_params; i++)
        ch_url_param(&url, statement->params[i].name, statement->params[i].value);
    if (request->end == FAULT_REFUSED)
        ch_url_param(&url, FAULT_SETTING, "1");
    if (request->upload && !sql_in_body(request, statement))
        ch_url_param(&url, "query", statement->sql);
    CURLcode result = curl_easy_setopt(request->easy, CURLOPT_URL, buf_str(&url));
    buf_clear(&url);
    return result == CURLE_OK;
}

static struct ch_request *request_new(struct ch_client *client,
                                      const struct ch_statement *statement, bool upload,
                                      ch_answer_cb *done, void *arg)
{
    struct ch_request *request = mem_alloc(sizeof *request);
    request->client = client;
    request->state = REQUEST_QUEUED;
    request->timeout_ms = statement->timeout_ms;
    request->kind = sql_verb(statement->sql);
    request->started_us = clock_monotonic_us();
    request->done = done;
    request->arg = arg;
    request->end = fault_effect_starts(FAULT_CLICKHOUSE);
    if (upload && request->end == FAULT_OVERTAKEN)
        request->end = FAULT_ANSWER_LOST;
    request->slow_ms = fault_slow_ms();
    request->socket = CURL_SOCKET_BAD;
    request->upload = upload;
    request->response.body.bytes_max = client->config.answer_bytes_max;
    request->headers = upload ? client->upload_headers : client->query_headers;
    request->sql = upload ? NULL : mem_strdup(statement->sql);
    request->easy = curl_easy_init();
    uv_timer_init(client->loop, &request->timer);
    request->timer.data = request;
    client->n_requests++;
    return request;
}

static void append_header(struct curl_slist **list, const char *header)
{
    struct curl_slist *longer = curl_slist_append(*list, header);
    if (!longer)
        abort(); /* out of memory, as in base/mem.h */
    *list = longer;
}

static struct curl_slist *make_headers(const struct ch_client *client, bool upload,
                                       const char *content_encoding)
{
    struct curl_slist *list = NULL;
    append_header(&list, "Accept: */*");
    append_header(&list, "User-Agent: chxad/" CHXA_VERSION);
    /* Waiting for 100 Continue costs a round trip, and ClickHouse reads what it refuses. */
    append_header(&list, "Expect:");
    append_header(&list, "Content-Type: text/plain; charset=UTF-8");
    if (client->user_header)
        append_header(&list, client->user_header);
    if (client->password_header)
        append_header(&list, client->password_header);
    if (upload)
        append_header(&list, "Transfer-Encoding: chunked");
    if (content_encoding) {
        char *header = mem_printf("Content-Encoding: %s", content_encoding);
        append_header(&list, header);
        free(header);
    }
    return list;
}

/* The ring is a power of two that has room for the high-water mark and a read on top of it. curl's buffer
 * comes to that, and what a read leaves behind in front of a chunk that has to wait. */
size_t ch_upload_memory(const struct ch_client *client)
{
    size_t full = client->config.upload_buffer_bytes + UPLOAD_READ_BYTES, ring = 1;
    while (ring < full)
        ring *= 2;
    return ring + (size_t)CURL_BUFFER_BYTES_MAX + UPLOAD_READ_BYTES / 2;
}

/* One may always run, so that those who hold memory and wait for an upload come to their end. The last
 * quarter is left to what unpacks the bodies: that cannot wait. */
static bool has_memory(struct ch_request *request)
{
    struct ch_client *client = request->client;
    struct budget *budget = client->config.budget;
    size_t bytes = ch_upload_memory(client);
    if (client->n_running_uploads == 0) {
        budget_take_anyway(budget, bytes);
    } else if (!budget_take_leaving(budget, bytes, budget ? budget->bytes_max / 4 : 0)) {
        if (!request->told_short)
            metrics_count(METRIC_body_memory_short_total, 1, "waited", NULL);
        request->told_short = true;
        return false;
    }
    request->held = bytes;
    return true;
}

/* Uploads leave a quarter of the connections to the queries. */
static bool has_room(const struct ch_client *client, bool upload)
{
    size_t max = client->config.connections_max;
    size_t uploads_max = max > 1 ? max - (max + 3) / 4 : 1;
    return client->n_running < max && (!upload || client->n_running_uploads < uploads_max);
}

/* Puts the new request into its queue, or refuses it; both are delivered later. */
static void request_submit(struct ch_request *request, const struct ch_statement *statement)
{
    struct ch_client *client = request->client;
    const char *refusal = NULL;

    if (client->closing)
        refusal = "the client is closing";
    else if (fault_prevents(request->end))
        refusal = FAULT_TEXT;
    else if (!request->easy || !set_url(request, statement))
        refusal = "the request cannot be made: out of memory, or the statement is too long";
    else if (!has_room(client, request->upload) && client->n_queued >= client->config.queue_max)
        refusal = "too many requests to ClickHouse are waiting";

    TAILQ_INSERT_TAIL(request->upload ? &client->uploads : &client->queries, request, link);
    client->n_queued++;
    if (refusal) {
        request->code = error_set(&request->error, CHXA_E_CLICKHOUSE_UNAVAILABLE, "%s", refusal);
        request_finish_later(request);
        return;
    }
    set_common_options(request);
    set_body_options(request);
    give_time(request);
    start_queued(client);
    request->blocked = request->upload && request->state == REQUEST_QUEUED;
}

static void request_start(struct ch_request *request)
{
    struct ch_client *client = request->client;

    TAILQ_REMOVE(request->upload ? &client->uploads : &client->queries, request, link);
    client->n_queued--;
    TAILQ_INSERT_TAIL(&client->running, request, link);
    client->n_running++;
    client->n_running_uploads += request->upload;
    request->state = REQUEST_RUNNING;
    if (request->upload && !request->ended)
        uv_timer_stop(&request->timer);
    CURLMcode result = curl_multi_add_handle(ch_http_loop_multi(client->http_loop), request->easy);
    if (result != CURLM_OK)
        abort(); /* out of memory, as in base/mem.h */
}

static void start_queued(struct ch_client *client)
{
    struct ch_request *request;

    while ((request = TAILQ_FIRST(&client->queries)) && has_room(client, false))
        request_start(request);
    while ((request = TAILQ_FIRST(&client->uploads)) && has_room(client, true) &&
           has_memory(request)) {
        request_start(request);
        if (request->blocked) {
            request_make_due(request);
            ch_http_loop_kick(client->http_loop);
        }
    }
}

/* ---- interface ---- */

static void nobody(void *arg, const struct ch_answer *answer)
{
    (void)arg;
    (void)answer;
}

struct ch_request *ch_query(struct ch_client *client, const struct ch_statement *statement,
                            ch_answer_cb *done, void *arg)
{
    struct ch_request *request = request_new(client, statement, false, done, arg);
    if (request->end == FAULT_OVERTAKEN)
        ch_query(client, statement, nobody, NULL);
    request_submit(request, statement);
    return request;
}

struct ch_request *ch_upload(struct ch_client *client, const struct ch_statement *statement,
                             const char *content_encoding, void (*on_drain)(void *arg),
                             ch_answer_cb *done, void *arg)
{
    struct ch_request *request = request_new(client, statement, true, done, arg);
    request->on_drain = on_drain;
    if (content_encoding)
        request->headers = make_headers(client, true, content_encoding);
    if (sql_in_body(request, statement)) {
        ch_ring_put(&request->ring, statement->sql, strlen(statement->sql));
        ch_ring_put(&request->ring, "\n", 1);
    }
    request_submit(request, statement);
    return request;
}

static void upload_resume(struct ch_request *request)
{
    if (request->paused && request->state == REQUEST_RUNNING && !request->early) {
        request->paused = false;
        curl_easy_pause(request->easy, CURLPAUSE_CONT);
    }
}

bool ch_upload_takes(const struct ch_request *request)
{
    return request->state != REQUEST_QUEUED;
}

bool ch_upload_write(struct ch_request *request, const void *data, size_t len)
{
    assert(request->upload && !request->ended);
    if (request->state >= REQUEST_FINISHED || request->early)
        return true;
    if (len) {
        ch_ring_put(&request->ring, data, len);
        upload_resume(request);
    }
    request->blocked = request->state == REQUEST_QUEUED ||
                       request->ring.len > request->client->config.upload_buffer_bytes;
    if (request->blocked && request->state == REQUEST_RUNNING)
        give_time(request);
    return !request->blocked;
}

void ch_upload_end(struct ch_request *request)
{
    assert(request->upload && !request->ended);
    request->ended = true;
    if (request->state >= REQUEST_FINISHED || request->early)
        return;
    give_time(request);
    upload_resume(request);
}

void ch_request_cancel(struct ch_request *request)
{
    if (request->state >= REQUEST_FINISHED)
        return;
    request->code =
        error_set(&request->error, CHXA_E_CANCELLED, "%s",
                  was_sent(request) ? "the request to ClickHouse was cancelled after it was sent"
                                    : "the request to ClickHouse was cancelled before it was sent");
    request_finish_later(request);
}

/* ---- client ---- */

static bool header_value_ok(const char *value)
{
    return !value || !value[strcspn(value, "\r\n")];
}

static void client_has_memory(void *arg)
{
    struct ch_client *client = arg;
    ch_http_loop_kick(client->http_loop);
}

int ch_client_new(uv_loop_t *loop, const struct ch_client_config *config,
                  struct ch_client **ret_client, struct error *error)
{
    char *url = NULL;

    assert(config->connections_max > 0 && config->answer_bytes_max > 0);
    if (!header_value_ok(config->user) || !header_value_ok(config->password))
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "a line end in the user or password of ClickHouse");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(error, CHXA_E_INTERNAL, "libcurl cannot be initialised");
    int code = ch_url_base(config->url, &url, error);
    if (code) {
        curl_global_cleanup();
        return code;
    }
    struct ch_client *client = mem_alloc(sizeof *client);
    client->loop = loop;
    client->config = *config;
    client->config.url = client->config.user = client->config.password = NULL;
    client->url = mem_printf("%s?wait_end_of_query=1&send_progress_in_http_headers=0", url);
    free(url);
    if (client->config.upload_buffer_bytes == 0)
        client->config.upload_buffer_bytes = UPLOAD_BUFFER_BYTES_DEFAULT;
    if (client->config.upload_buffer_bytes < UPLOAD_BUFFER_BYTES_MIN)
        client->config.upload_buffer_bytes = UPLOAD_BUFFER_BYTES_MIN;
    if (config->user)
        client->user_header = mem_printf("X-ClickHouse-User: %s", config->user);
    if (config->password && *config->password)
        client->password_header = mem_printf("X-ClickHouse-Key: %s", config->password);
    client->query_headers = make_headers(client, false, NULL);
    client->upload_headers = make_headers(client, true, NULL);
    TAILQ_INIT(&client->running);
    TAILQ_INIT(&client->queries);
    TAILQ_INIT(&client->uploads);
    TAILQ_INIT(&client->due);
    struct ch_http_loop_user user = {client_progress, curl_watching, client};
    client->http_loop = ch_http_loop_new(loop, config->connections_max, &user);
    if (config->budget) {
        config->budget->on_room = client_has_memory;
        config->budget->on_room_arg = client;
    }
    *ret_client = client;
    return 0;
}

static void http_loop_closed(void *arg)
{
    struct ch_client *client = arg;
    void (*on_closed)(void *arg) = client->on_closed;
    void *on_closed_arg = client->on_closed_arg;
    curl_slist_free_all(client->query_headers);
    curl_slist_free_all(client->upload_headers);
    free(client->user_header);
    free(client->password_header);
    free(client->url);
    free(client);
    curl_global_cleanup();
    if (on_closed)
        on_closed(on_closed_arg);
}

/* Goes on with closing when nothing is in the way any more. */
static void client_try_free(struct ch_client *client)
{
    if (!client->closing || client->n_requests > 0 || client->http_loop == NULL)
        return;
    struct ch_http_loop *http_loop = client->http_loop;
    client->http_loop = NULL;
    ch_http_loop_close(http_loop, http_loop_closed, client);
}

static void client_progress(void *arg)
{
    struct ch_client *client = arg;
    if (client->http_loop)
        start_queued(client);
    multi_collect(client);
    client_try_free(client);
}

static void cancel_all(struct request_list *list)
{
    struct ch_request *request;
    while ((request = TAILQ_FIRST(list)))
        ch_request_cancel(request);
}

uv_loop_t *ch_client_loop(const struct ch_client *client)
{
    return client->loop;
}

void ch_client_close(struct ch_client *client, void (*on_closed)(void *arg), void *arg)
{
    if (!client)
        return;
    assert(!client->closing);
    client->closing = true;
    client->on_closed = on_closed;
    client->on_closed_arg = arg;
    cancel_all(&client->queries);
    cancel_all(&client->uploads);
    cancel_all(&client->running);
    if (client->config.budget)
        client->config.budget->on_room = NULL;
    ch_http_loop_kick(client->http_loop); /* on_closed never comes inside this call */
}
