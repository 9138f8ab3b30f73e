/* SPDX-License-Identifier: Apache-2.0
 *
 * See ch_http_pass.h.
 *
 *   WAITING ──passer_progress──> RUNNING ──curl is done, cancel──> ENDED ──on_done──> freed
 *
 * Nothing of curl is touched inside its own callbacks: those only set flags, and passer_progress,
 * which the loop calls after them, does what they ask for.
 */
#include "ch/ch_http_pass.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http_loop.h"
#include "ch/ch_response.h"
#include "ch/ch_ring.h"
#include "ch/ch_url.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of the head of an answer. */
#define FIELDS_MAX     256u
#define HEAD_BYTES_MAX ((size_t)1024 * 1024)
/* What a request holds besides its ring: curl's buffer and a read that has to wait; an answer on its way. */
#define BODY_BYTES   ((size_t)192 * 1024)
#define ANSWER_BYTES ((size_t)64 * 1024)
/* Of an answer that is found in the socket of a connection that can no longer be written to. */
#define LATE_BYTES_MAX ((size_t)64 * 1024)

enum pass_state { PASS_WAITING, PASS_RUNNING, PASS_ENDED };

TAILQ_HEAD(pass_list, ch_pass);

struct ch_pass {
    TAILQ_ENTRY(ch_pass) link;
    struct ch_passer *passer;
    enum pass_state state;
    struct ch_pass_handler handler;
    void *arg;
    CURL *easy;
    struct curl_slist *headers;
    curl_socket_t socket;
    char reason[CURL_ERROR_SIZE];
    struct error error;

    size_t held_bytes; /* of the budget */

    /* the request's body */
    struct ch_ring ring;
    bool ended;   /* it is whole */
    bool starved; /* curl waits for more of it */
    bool blocked; /* on_drain is owed */
    bool
        deaf; /* curl has nothing more to read, but waits for the body's end: answered, or closed */

    /* the answer */
    int status;
    struct ch_pass_field *fields; /* of the head that is being read */
    size_t n_fields, head_bytes;
    struct buf hops;                /* what its Connection fields name */
    int64_t body_bytes, told_bytes; /* of its body: how long it says it is; how much came */
    bool head_told, held, paused;   /* held: the user wants no more; paused: curl knows */
    bool too_long;
    struct buf late; /* found in the socket after sending failed */
};

struct ch_passer {
    struct ch_http_loop *http_loop;
    char *url;
    struct ch_passer_config config;
    struct pass_list passes; /* WAITING and RUNNING */
    struct pass_list ended;
    size_t n_passes;
    bool closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- the answer's head ---- */

static bool is_hop(const char *name)
{
    static const char *const names[] = {"Connection",
                                        "Keep-Alive",
                                        "Proxy-Authenticate",
                                        "Proxy-Authorization",
                                        "Proxy-Connection",
                                        "TE",
                                        "Trailer",
                                        "Transfer-Encoding",
                                        "Upgrade",
                                        "Content-Length"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return false;
}

/* Is the name in a list like "close, X-Other"? */
static bool list_names(const char *list, const char *name)
{
    static const char blanks[] = " \t,";
    size_t name_len = strlen(name);
    for (;;) {
        list += strspn(list, blanks);
        size_t len = strcspn(list, blanks);
        if (len == 0)
            return false;
        if (len == name_len && strncasecmp(list, name, len) == 0)
            return true;
        list += len;
    }
}

static void field_clear(struct ch_pass_field *field)
{
    mem_free_text(field->name);
    mem_free_text(field->value);
}

static void fields_clear(struct ch_pass *pass)
{
    for (size_t i = 0; i < pass->n_fields; i++)
        field_clear(&pass->fields[i]);
    buf_clear(&pass->hops);
    pass->n_fields = pass->head_bytes = 0;
    pass->body_bytes = -1;
}

/* A value with a control character could not be passed on: it becomes a blank. */
static char *clean_value(const char *value, size_t len)
{
    char *clean = mem_strndup(value, len);
    for (char *c = clean; *c; c++)
        if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
            *c = ' ';
    return clean;
}

static bool is_token(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name <= 0x20 || (unsigned char)*name >= 0x7f ||
            strchr("\"(),/:;<=>?@[\\]{}", *name))
            return false;
    return true;
}

static void read_field(struct ch_pass *pass, const char *line, size_t len)
{
    const char *colon = memchr(line, ':', len);
    if (!colon || colon == line)
        return;
    const char *value = colon + 1;
    size_t value_len = len - (size_t)(value - line);
    while (value_len && (*value == ' ' || *value == '\t')) {
        value++;
        value_len--;
    }
    char *name = mem_strndup(line, (size_t)(colon - line));
    char *text = clean_value(value, value_len);
    bool framing = strcasecmp(name, "Content-Length") == 0;
    if (framing && *text && strlen(text) <= 18 && strspn(text, "0123456789") == strlen(text))
        pass->body_bytes = (int64_t)strtoll(text, NULL, 10);
    if (strcasecmp(name, "Connection") == 0)
        buf_printf(&pass->hops, "%s,", text);
    if (is_hop(name) || !is_token(name) || pass->n_fields == FIELDS_MAX) {
        free(name);
        free(text);
        return;
    }
    pass->fields[pass->n_fields++] = (struct ch_pass_field){name, text};
}

/* Takes out what Connection names, which may stand in front of it. */
static void drop_hops(struct ch_pass *pass)
{
    size_t n = 0;
    for (size_t i = 0; i < pass->n_fields; i++)
        if (list_names(buf_str(&pass->hops), pass->fields[i].name))
            field_clear(&pass->fields[i]);
        else
            pass->fields[n++] = pass->fields[i];
    pass->n_fields = n;
}

static void tell_head(struct ch_pass *pass)
{
    drop_hops(pass);
    pass->head_told = true;
    pass->handler.on_head(pass->arg, pass->status, pass->fields, pass->n_fields, pass->body_bytes);
}

/* ---- curl's callbacks ---- */

static size_t pass_header(char *line, size_t size, size_t count, void *arg)
{
    struct ch_pass *pass = arg;
    size_t all = size * count, len = all;
    pass->head_bytes += all;
    if (pass->head_told)
        return all; /* a trailer */
    if (pass->head_bytes > HEAD_BYTES_MAX) {
        pass->too_long = true;
        return 0;
    }
    while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
        len--;
    if (len >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        fields_clear(pass);
        long status = 0;
        curl_easy_getinfo(pass->easy, CURLINFO_RESPONSE_CODE, &status);
        pass->status = (int)status;
    } else if (len) {
        read_field(pass, line, len);
    } else if (pass->status >= 200) {
        tell_head(pass);
    }
    return all;
}

static size_t pass_body(char *data, size_t size, size_t count, void *arg)
{
    struct ch_pass *pass = arg;
    if (!pass->head_told)
        return 0; /* of another protocol, behind a 101 that nobody asked for */
    if (pass->held) {
        pass->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    pass->told_bytes += (int64_t)(size * count);
    pass->held = !pass->handler.on_data(pass->arg, data, size * count);
    return size * count;
}

static bool pass_writable(const struct ch_pass *pass)
{
    return pass->ring.len < pass->passer->config.buffer_bytes / 2;
}

static size_t pass_read(char *to, size_t size, size_t count, void *arg)
{
    struct ch_pass *pass = arg;
    size_t len = ch_ring_take(&pass->ring, to, size * count);
    if (pass->blocked && pass_writable(pass))
        ch_http_loop_kick(pass->passer->http_loop);
    if (len == 0 && !pass->ended) {
        pass->starved = true;
        return CURL_READFUNC_PAUSE;
    }
    return len;
}

static void pass_watching(void *arg, CURL *easy, curl_socket_t socket, int what)
{
    struct ch_pass *pass = NULL;
    (void)arg;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&pass);
    if (!pass)
        return;
    if ((pass->starved || pass->head_told) && !pass->paused && !(what & CURL_POLL_IN)) {
        pass->deaf = true;
        ch_http_loop_kick(pass->passer->http_loop);
    }
    if (what != CURL_POLL_REMOVE)
        pass->socket = socket;
}

/* ClickHouse may answer with an error in the middle of a body and close. When curl notices by a
 * failed send, it gives up with the answer unread in the socket: take it from there. */
static int pass_close_socket(void *arg, curl_socket_t socket)
{
    struct ch_passer *passer = arg;
    struct ch_pass *pass;
    TAILQ_FOREACH (pass, &passer->passes, link)
        if (pass->state == PASS_RUNNING && pass->socket == socket && pass->status == 0)
            break;
    char chunk[4096];
    while (pass && pass->late.len < LATE_BYTES_MAX) {
        ssize_t got = recv(socket, chunk, sizeof chunk, MSG_DONTWAIT);
        if (got <= 0)
            break;
        buf_append(&pass->late, chunk, (size_t)got);
    }
    return close(socket);
}

/* ---- the end ---- */

static bool was_sent(const struct ch_pass *pass)
{
    long head_bytes = 0;
    curl_easy_getinfo(pass->easy, CURLINFO_REQUEST_SIZE, &head_bytes);
    return head_bytes > 0;
}

/* Tells the answer that was left in the socket; false when there is none. */
static bool tell_late(struct ch_pass *pass)
{
    struct ch_response response = {.body.bytes_max = LATE_BYTES_MAX};
    bool found = ch_response_raw(&response, pass->late.data, pass->late.len);
    if (found) {
        char number[16];
        const char *text;
        int exception = 0;
        ch_response_exception(&response, &exception, &text);
        snprintf(number, sizeof number, "%d", exception);
        struct ch_pass_field field = {"X-ClickHouse-Exception-Code", number};
        pass->head_told = true;
        pass->handler.on_head(pass->arg, response.status, &field, exception ? 1 : 0,
                              (int64_t)response.body.len);
        pass->handler.on_data(pass->arg, response.body.data, response.body.len);
    }
    ch_response_clear(&response);
    return found;
}

/* Takes it out of curl; the code, 0 for a whole answer. */
static int pass_finish(struct ch_pass *pass, CURLcode result)
{
    const char *reason = *pass->reason ? pass->reason : curl_easy_strerror(result);
    if (result == CURLE_OK && pass->head_told)
        return 0;
    /* Whole, though the server closed before it had read all of the body. */
    if (pass->head_told && pass->body_bytes >= 0 && pass->told_bytes == pass->body_bytes)
        return 0;
    if (!pass->head_told && pass->late.len && tell_late(pass))
        return 0;
    if (!was_sent(pass))
        return error_set(&pass->error, CHXA_E_CLICKHOUSE_UNAVAILABLE, "cannot reach ClickHouse: %s",
                         reason);
    if (pass->too_long)
        return error_set(&pass->error, CHXA_E_CLICKHOUSE_UNKNOWN,
                         "the head of ClickHouse's answer is longer than %zu bytes",
                         HEAD_BYTES_MAX);
    return error_set(&pass->error, CHXA_E_CLICKHOUSE_UNKNOWN, "ClickHouse's answer was %s: %s",
                     pass->head_told ? "cut short" : "lost", reason);
}

static void pass_stop(struct ch_pass *pass, CURLcode result)
{
    struct ch_passer *passer = pass->passer;
    assert(pass->state != PASS_ENDED);
    if (pass->state == PASS_RUNNING)
        curl_multi_remove_handle(ch_http_loop_multi(passer->http_loop), pass->easy);
    if (pass->error.code == 0)
        pass_finish(pass, result);
    TAILQ_REMOVE(&passer->passes, pass, link);
    TAILQ_INSERT_TAIL(&passer->ended, pass, link);
    pass->state = PASS_ENDED;
    ch_http_loop_kick(passer->http_loop);
}

static void pass_free(struct ch_pass *pass)
{
    fields_clear(pass);
    free(pass->fields);
    curl_easy_cleanup(pass->easy);
    curl_slist_free_all(pass->headers);
    ch_ring_clear(&pass->ring);
    budget_give(pass->passer->config.budget, pass->held_bytes);
    buf_clear(&pass->late);
    error_clear(&pass->error);
    free(pass);
}

static void pass_deliver(struct ch_pass *pass)
{
    struct ch_passer *passer = pass->passer;
    TAILQ_REMOVE(&passer->ended, pass, link);
    pass->handler.on_done(pass->arg, pass->error.code, &pass->error);
    pass_free(pass);
    passer->n_passes--;
}

/* ---- on the loop ---- */

static void passer_closed(void *arg)
{
    struct ch_passer *passer = arg;
    void (*on_closed)(void *arg) = passer->on_closed;
    void *on_closed_arg = passer->on_closed_arg;
    free(passer->url);
    free(passer);
    curl_global_cleanup();
    on_closed(on_closed_arg);
}

static void passer_collect(struct ch_passer *passer)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(ch_http_loop_multi(passer->http_loop), &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        struct ch_pass *pass = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&pass);
        pass_stop(pass, result);
    }
}

/* What the callbacks have asked for. */
static void passer_serve(struct ch_passer *passer)
{
    struct ch_pass *pass, *next;
    for (pass = TAILQ_FIRST(&passer->passes); pass; pass = next) {
        next = TAILQ_NEXT(pass, link);
        if (pass->state == PASS_WAITING) {
            pass->state = PASS_RUNNING;
            if (curl_multi_add_handle(ch_http_loop_multi(passer->http_loop), pass->easy) !=
                CURLM_OK)
                abort(); /* out of memory, as in base/mem.h */
        } else if (pass->deaf) {
            /* The answer is over, or the connection. curl would say so only behind the body's end, and
             * take a server that stopped reading there for a failure. */
            pass_stop(pass, pass->head_told ? CURLE_OK : CURLE_PARTIAL_FILE);
        }
    }
}

static void passer_drain(struct ch_passer *passer)
{
    struct ch_pass *pass;
again:
    TAILQ_FOREACH (pass, &passer->passes, link) {
        if (!pass->blocked || pass->ended || !pass_writable(pass))
            continue;
        pass->blocked = false;
        pass->handler.on_drain(pass->arg); /* may end it: look at the list anew */
        goto again;
    }
}

static void passer_progress(void *arg)
{
    struct ch_passer *passer = arg;
    if (passer->http_loop == NULL)
        return;
    passer_collect(passer);
    passer_serve(passer);
    passer_drain(passer);
    struct ch_pass *pass;
    while ((pass = TAILQ_FIRST(&passer->ended)))
        pass_deliver(pass);
    if (passer->closing && passer->n_passes == 0) {
        struct ch_http_loop *http_loop = passer->http_loop;
        passer->http_loop = NULL;
        ch_http_loop_close(http_loop, passer_closed, passer);
    }
}

/* ---- starting ---- */

static void append_header(struct ch_pass *pass, const char *header)
{
    struct curl_slist *longer = curl_slist_append(pass->headers, header);
    if (!longer)
        abort(); /* out of memory, as in base/mem.h */
    pass->headers = longer;
}

static bool has_field(const struct ch_pass_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_fields; i++)
        if (strcasecmp(request->fields[i].name, name) == 0)
            return true;
    return false;
}

static bool is_named_hop(const struct ch_pass_request *request, const char *name)
{
    for (size_t i = 0; i < request->n_fields; i++)
        if (strcasecmp(request->fields[i].name, "Connection") == 0 &&
            list_names(request->fields[i].value, name))
            return true;
    return false;
}

static void set_headers(struct ch_pass *pass, const struct ch_pass_request *request)
{
    /* What curl would add by itself; "Name:" takes it away. */
    static const char *const curls[] = {"Accept", "Content-Type", "User-Agent"};
    for (size_t i = 0; i < request->n_fields; i++) {
        const struct ch_pass_field *field = &request->fields[i];
        if (is_hop(field->name) || strcasecmp(field->name, "Host") == 0 ||
            strcasecmp(field->name, "Expect") == 0 || is_named_hop(request, field->name))
            continue;
        /* curl writes a header without a value only when it is given as "Name;" */
        char *header = *field->value ? mem_printf("%s: %s", field->name, field->value)
                                     : mem_printf("%s;", field->name);
        append_header(pass, header);
        free(header);
    }
    for (size_t i = 0; i < sizeof curls / sizeof *curls; i++)
        if (!has_field(request, curls[i]) || is_named_hop(request, curls[i])) {
            char *header = mem_printf("%s:", curls[i]);
            append_header(pass, header);
            free(header);
        }
    append_header(pass, "Expect:");
    if (request->body_bytes < 0)
        append_header(pass, "Transfer-Encoding: chunked");
    curl_easy_setopt(pass->easy, CURLOPT_HTTPHEADER, pass->headers);
}

static void set_method(struct ch_pass *pass, const struct ch_pass_request *request)
{
    CURL *easy = pass->easy;
    if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1l);
        return;
    }
    /* Without a length, some servers would wait for a body until the connection ends. */
    bool may_be_empty =
        strcmp(request->method, "GET") == 0 || strcmp(request->method, "DELETE") == 0;
    if (request->body_bytes != 0 || !may_be_empty) {
        curl_easy_setopt(easy, CURLOPT_POST, 1l);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, pass_read);
        curl_easy_setopt(easy, CURLOPT_READDATA, pass);
        if (request->body_bytes >= 0)
            curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
    }
    if (strcmp(request->method, "POST") != 0)
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

static void set_options(struct ch_pass *pass)
{
    CURL *easy = pass->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, pass);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, pass->reason);
    ch_http_loop_set_up(easy);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1l);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1l);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)pass->passer->config.connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, pass_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, pass);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, pass_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, pass);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, pass_close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, pass->passer);
}

/* The ring, with a read on top of its high-water mark, and curl's buffer; then the answer's. A request
 * without a body is not refused: it may be somebody who asks how we are. */
static bool take_memory(struct ch_pass *pass, int64_t body_bytes)
{
    struct ch_passer *passer = pass->passer;
    size_t body = 2 * passer->config.buffer_bytes + BODY_BYTES;
    size_t held = ANSWER_BYTES;
    if (body_bytes >= 0 && (uint64_t)body_bytes < body)
        body = (size_t)body_bytes;
    held += body;
    if (body == 0 || passer->n_passes == 1)
        budget_take_anyway(passer->config.budget, held);
    else if (!budget_take(passer->config.budget, held)) {
        metrics_count(METRIC_body_memory_short_total, 1, "refused", NULL);
        return false;
    }
    pass->held_bytes = held;
    return true;
}

struct ch_pass *ch_pass_start(struct ch_passer *passer, const struct ch_pass_request *request,
                              const struct ch_pass_handler *handler, void *arg)
{
    struct ch_pass *pass = mem_alloc(sizeof *pass);
    pass->passer = passer;
    pass->handler = *handler;
    pass->arg = arg;
    pass->socket = CURL_SOCKET_BAD;
    pass->body_bytes = -1;
    pass->ended = request->body_bytes == 0;
    pass->fields = mem_array(FIELDS_MAX, sizeof *pass->fields);
    pass->easy = curl_easy_init();
    if (!pass->easy)
        abort(); /* out of memory, as in base/mem.h */
    TAILQ_INSERT_TAIL(&passer->passes, pass, link);
    passer->n_passes++;
    set_options(pass);
    set_method(pass, request);
    set_headers(pass, request);
    curl_easy_setopt(pass->easy, CURLOPT_URL, passer->url);
    bool sound = curl_easy_setopt(pass->easy, CURLOPT_REQUEST_TARGET, request->target) == CURLE_OK;
    const char *refusal =
        !sound ? "the request is too long"
        : passer->closing || passer->n_passes > passer->config.requests_max
            ? "too many requests are passed through to ClickHouse at once"
        : !take_memory(pass, request->body_bytes)
            ? "the bodies under way hold all the memory that they may (body_memory_bytes_max)"
            : NULL;
    if (refusal) {
        error_set(&pass->error, CHXA_E_BUSY, "%s", refusal);
        pass_stop(pass, CURLE_OK);
        return pass;
    }
    ch_http_loop_kick(passer->http_loop);
    return pass;
}

static void pass_feed(struct ch_pass *pass)
{
    if (!pass->starved || pass->state != PASS_RUNNING)
        return;
    pass->starved = false;
    curl_easy_pause(pass->easy, pass->paused ? CURLPAUSE_RECV : CURLPAUSE_CONT);
}

bool ch_pass_write(struct ch_pass *pass, const void *data, size_t len)
{
    assert(!pass->ended);
    if (pass->state == PASS_ENDED)
        return true;
    if (len) {
        ch_ring_put(&pass->ring, data, len);
        pass_feed(pass);
    }
    pass->blocked = pass->ring.len > pass->passer->config.buffer_bytes;
    return !pass->blocked;
}

void ch_pass_end(struct ch_pass *pass)
{
    if (pass->ended)
        return;
    pass->ended = true;
    pass_feed(pass);
}

void ch_pass_resume(struct ch_pass *pass)
{
    pass->held = false;
    if (!pass->paused || pass->state != PASS_RUNNING)
        return;
    pass->paused = false;
    curl_easy_pause(pass->easy, pass->starved ? CURLPAUSE_SEND : CURLPAUSE_CONT);
}

void ch_pass_cancel(struct ch_pass *pass)
{
    if (pass->state == PASS_ENDED)
        return;
    error_set(&pass->error, CHXA_E_CANCELLED, "the request to ClickHouse was cancelled");
    pass_stop(pass, CURLE_OK);
}

/* ---- the passer ---- */

int ch_passer_new(uv_loop_t *loop, const struct ch_passer_config *config,
                  struct ch_passer **ret_passer, struct error *error)
{
    char *url = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(error, CHXA_E_INTERNAL, "libcurl cannot be initialised");
    int code = ch_url_base(config->url, &url, error);
    if (code) {
        curl_global_cleanup();
        return code;
    }
    struct ch_passer *passer = mem_alloc(sizeof *passer);
    passer->url = url;
    passer->config = *config;
    passer->config.url = NULL;
    TAILQ_INIT(&passer->passes);
    TAILQ_INIT(&passer->ended);
    struct ch_http_loop_user user = {passer_progress, pass_watching, passer};
    passer->http_loop = ch_http_loop_new(loop, 1, &user);
    *ret_passer = passer;
    return 0;
}

void ch_passer_close(struct ch_passer *passer, void (*on_closed)(void *arg), void *arg)
{
    if (!passer) {
        on_closed(arg);
        return;
    }
    passer->closing = true;
    passer->on_closed = on_closed;
    passer->on_closed_arg = arg;
    struct ch_pass *pass;
    while ((pass = TAILQ_FIRST(&passer->passes)))
        ch_pass_cancel(pass);
    ch_http_loop_kick(passer->http_loop);
}
