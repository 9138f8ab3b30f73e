/* SPDX-License-Identifier: Apache-2.0
 *
 * One request over libcurl, and its whole answer. Nothing is repeated or judged here.
 *
 * Threads: a curl handle is one thread's from take to give back; the pool is under the client's lock. A handle keeps at
 * most one connection alive, so handles are what connections_max counts.
 * Signals: CURLOPT_NOSIGNAL, and SIGPIPE is blocked in this thread while curl sends: TLS libraries use write().
 */
#include "client/src/internal.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct cx_easy {
    CURL *curl;
    struct cx_easy *next;
    char origin[CHXA_URL_BYTES_MAX + 1]; /* whom its idle connection leads to */
};

/* ---- the pool ---- */

/* One that is connected to origin already, else any. */
static struct cx_easy *take_idle(struct chxa_client *client, const char *origin)
{
    struct cx_easy **link = &client->idle;
    while (*link && strcmp((*link)->origin, origin) != 0)
        link = &(*link)->next;
    if (*link == NULL)
        link = &client->idle;
    struct cx_easy *easy = *link;
    if (easy)
        *link = easy->next;
    return easy;
}

static struct cx_easy *easy_new(void)
{
    struct cx_easy *easy = cx_alloc(sizeof *easy);
    if (easy && (easy->curl = curl_easy_init()) == NULL) {
        free(easy);
        easy = NULL;
    }
    return easy;
}

/* NULL: *ret_end says why. A new handle is made while there may be more and none leads to this origin. */
static struct cx_easy *easy_take(const struct cx_request *request, enum cx_end *ret_end)
{
    struct chxa_client *client = request->client;
    bool make = false;
    pthread_mutex_lock(&client->lock);
    struct cx_easy *easy = take_idle(client, request->origin);
    if (easy && strcmp(easy->origin, request->origin) != 0 &&
        client->n_easy < client->options.connections_max) {
        easy->next = client->idle;
        client->idle = easy;
        easy = NULL;
    }
    while (easy == NULL) {
        make = client->n_easy < client->options.connections_max;
        if (make || !cx_cond_wait(&client->freed, &client->lock, request->deadline))
            break;
        easy = take_idle(client, request->origin);
    }
    client->n_easy += make;
    pthread_mutex_unlock(&client->lock);
    if (make && (easy = easy_new()) == NULL) {
        pthread_mutex_lock(&client->lock);
        client->n_easy--;
        pthread_cond_signal(&client->freed);
        pthread_mutex_unlock(&client->lock);
        *ret_end = CX_NO_MEMORY;
    } else if (easy == NULL) {
        *ret_end = CX_EXHAUSTED;
    }
    return easy;
}

static void easy_give(struct chxa_client *client, struct cx_easy *easy, const char *origin)
{
    curl_easy_reset(easy->curl);
    snprintf(easy->origin, sizeof easy->origin, "%s", origin);
    pthread_mutex_lock(&client->lock);
    easy->next = client->idle;
    client->idle = easy;
    pthread_cond_signal(&client->freed);
    pthread_mutex_unlock(&client->lock);
}

void cx_http_free_easies(struct chxa_client *client)
{
    while (client->idle) {
        struct cx_easy *easy = client->idle;
        client->idle = easy->next;
        curl_easy_cleanup(easy->curl);
        free(easy);
    }
}

/* ---- curl's callbacks ---- */

struct transfer {
    const struct cx_request *request;
    struct cx_answer *answer;
    uint64_t moved; /* when a byte last went either way */
    curl_off_t bytes;
    bool head_ended; /* the blank line behind the answer's headers was there */
    bool too_long, cancelled, late;
};

/* Curl takes a head that breaks off for a whole one; an answer without its end is none to us. */
static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
    struct transfer *transfer = arg;
    (void)size; /* always 1 */
    transfer->head_ended = n > 0 && (line[0] == '\r' || line[0] == '\n');
    return n;
}

static size_t on_answer(char *data, size_t size, size_t n, void *arg)
{
    struct transfer *transfer = arg;
    struct cx_buf *text = &transfer->answer->text;
    (void)size; /* always 1 */
    if (n > CX_ANSWER_BYTES_MAX - text->len) {
        transfer->too_long = true;
        return 0;
    }
    cx_buf_put(text, data, n);
    return text->failed ? 0 : n;
}

static size_t on_body(char *buffer, size_t size, size_t n, void *arg)
{
    struct transfer *transfer = arg;
    struct cx_body *body = transfer->request->body;
    (void)size; /* always 1 */
    body->touched = true;
    ptrdiff_t got = body->read(body->context, buffer, n);
    transfer->moved = cx_now_ms(); /* waiting for the caller is no stall */
    if (got < 0 || (size_t)got > n) {
        transfer->cancelled = true;
        return CURL_READFUNC_ABORT;
    }
    transfer->answer->body_ended = got == 0;
    return (size_t)got;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct transfer *transfer = arg;
    struct cx_body *body = transfer->request->body;
    if (!body->touched && offset == 0 && origin == SEEK_SET)
        return CURL_SEEKFUNC_OK;
    if (offset != 0 || origin != SEEK_SET || body->rewind == NULL ||
        body->rewind(body->context) != 0)
        return CURL_SEEKFUNC_CANTSEEK;
    transfer->answer->body_ended = false;
    return CURL_SEEKFUNC_OK;
}

/* Rows, of whatever number; a few words of JSON are none. */
static bool uploads(const struct cx_request *request)
{
    return request->body->there && !request->body->json;
}

/*
 * An upload is never cut while it moves, or a large load could not end. From its last byte on the node has as long as a
 * call may take; a body in memory is cut by the deadline as well, once nothing moves.
 */
static bool is_late(const struct transfer *transfer, uint64_t now)
{
    const struct cx_request *request = transfer->request;
    const struct chxa_client_options *options = &request->client->options;
    uint64_t still = now - transfer->moved, may = options->stall_timeout_ms;
    if (!uploads(request))
        return false;
    if (request->body->read && transfer->answer->body_ended && options->deadline_ms > may)
        may = options->deadline_ms;
    return still >= may || (!request->body->read && now >= request->deadline && still >= 500);
}

/* Curl calls this at least once a second. */
static int on_progress(void *arg, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    struct transfer *transfer = arg;
    const struct cx_request *request = transfer->request;
    uint64_t now = cx_now_ms();
    (void)down_all;
    (void)up_all;
    if (request->cancel && atomic_load(request->cancel)) {
        transfer->cancelled = true;
        return 1;
    }
    if (down + up != transfer->bytes) {
        transfer->bytes = down + up;
        transfer->moved = now;
    }
    transfer->late = is_late(transfer, now);
    return transfer->late;
}

/* ---- the request ---- */

static bool add_header(struct curl_slist **list, const char *name, const char *value)
{
    struct cx_buf line = {0};
    cx_buf_puts(&line, name);
    cx_buf_puts(&line, value);
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(*list, line.data);
    cx_wipe(line.data, line.len);
    cx_buf_clear(&line);
    if (more)
        *list = more;
    return more != NULL;
}

static bool make_headers(const struct cx_request *request, struct curl_slist **ret_list)
{
    const struct cx_body *body = request->body;
    const char *bearer = request->client->options.bearer_token;
    bool ok = add_header(ret_list, "Accept: ", "application/json");
    if (body->there)
        ok = ok && add_header(ret_list, "Content-Type: ",
                              body->json ? "application/json" : "application/octet-stream");
    if (body->read)
        ok = ok && add_header(ret_list, "Transfer-Encoding: ", "chunked");
    if (body->content_encoding)
        ok = ok && add_header(ret_list, "Content-Encoding: ", body->content_encoding);
    if (bearer)
        ok = ok && add_header(ret_list, "Authorization: Bearer ", bearer);
    return ok;
}

static CURLcode set_body(CURL *curl, struct transfer *transfer)
{
    const struct cx_request *request = transfer->request;
    const struct cx_body *body = request->body;
    CURLcode rc = CURLE_OK;
    if (body->read) {
        rc = curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_body);
        curl_easy_setopt(curl, CURLOPT_READDATA, transfer);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, transfer);
        /* A kept connection that turns out to be dead would cost a body that cannot be read again. */
        curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, (long)(body->rewind == NULL));
    } else if (body->there || strcmp(request->method, "POST") == 0) {
        rc = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->len ? body->data : "");
        transfer->answer->body_ended = true; /* as far as anybody can tell */
    }
    if (strcmp(request->method, "GET") != 0)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    return rc;
}

static void set_times(CURL *curl, const struct cx_request *request, uint64_t now)
{
    const struct chxa_client_options *options = &request->client->options;
    uint64_t left = request->deadline > now ? request->deadline - now : 1;
    uint64_t connect_ms = options->connect_timeout_ms < left ? options->connect_timeout_ms : left;
    uint64_t all_ms = options->request_timeout_ms < left ? options->request_timeout_ms : left;
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    if (!uploads(request))
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)all_ms);
    else
        curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
}

static CURLcode set_trust(CURL *curl, const struct chxa_client_options *options)
{
    CURLcode rc = CURLE_OK;
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
    if (options->ca_file)
        rc = curl_easy_setopt(curl, CURLOPT_CAINFO, options->ca_file);
    if (rc == CURLE_OK && options->cert_file)
        rc = curl_easy_setopt(curl, CURLOPT_SSLCERT, options->cert_file);
    if (rc == CURLE_OK && options->key_file)
        rc = curl_easy_setopt(curl, CURLOPT_SSLKEY, options->key_file);
    if (rc == CURLE_OK && options->user) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        rc = curl_easy_setopt(curl, CURLOPT_USERNAME, options->user);
        if (rc == CURLE_OK)
            rc = curl_easy_setopt(curl, CURLOPT_PASSWORD,
                                  options->password ? options->password : "");
    }
    return rc;
}

static bool is_loopback(const struct sockaddr *address)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        return ntohl(four.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    memcpy(&six, address, sizeof six);
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
}

/* On the way to a chxad of the same machine a congestion control that paces (BBR) costs timers, and with them as much
 * processor time as the sending. Reno may be had by everybody; where it is not, it stays as it is. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    int type = address->socktype;
    (void)arg, (void)purpose;
#ifdef SOCK_CLOEXEC
    type |= SOCK_CLOEXEC;
#endif
    int fd = socket(address->family, type, address->protocol);
#ifdef TCP_CONGESTION
    if (fd >= 0 && is_loopback(&address->addr))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", sizeof "reno" - 1);
#endif
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* Nothing that the environment says has a part in it: no proxy, no netrc, no other protocol. */
static CURLcode set_options(CURL *curl, struct transfer *transfer, const char *url,
                            struct curl_slist *headers, char *words)
{
    const struct cx_request *request = transfer->request;
    CURLcode rc = curl_easy_setopt(curl, CURLOPT_URL, url);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(curl, CURLOPT_USERAGENT, request->client->agent);
    if (rc == CURLE_OK)
        rc = set_trust(curl, &request->client->options);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(curl, CURLOPT_PROXY, "");
#if LIBCURL_VERSION_NUM >= 0x075500
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(curl, CURLOPT_MAXCONNECTS, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXAGE_CONN, 60L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, words);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    set_times(curl, request, transfer->moved);
    return rc == CURLE_OK ? set_body(curl, transfer) : rc;
}

/* ---- the answer ---- */

static enum cx_end judge(CURL *curl, CURLcode rc, const struct transfer *transfer)
{
    long head_bytes = 0;
    curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &head_bytes);
    if (transfer->answer->text.failed || rc == CURLE_OUT_OF_MEMORY)
        return CX_NO_MEMORY;
    if (transfer->too_long)
        return CX_GARBAGE;
    if (transfer->cancelled)
        return CX_CANCELLED;
    switch (rc) {
    case CURLE_OK:
        return transfer->head_ended ? CX_ANSWERED : CX_LOST;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return CX_GARBAGE;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return head_bytes ? CX_LOST : CX_UNTRUSTED;
    default:
        return head_bytes ? CX_LOST : CX_UNREACHABLE;
    }
}

static void read_answer(CURL *curl, struct cx_answer *answer)
{
    const char *where = NULL;
    curl_off_t seconds = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &seconds);
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &where);
    if (seconds > 0)
        answer->retry_after_ms =
            (uint64_t)seconds > UINT32_MAX ? UINT32_MAX : (uint64_t)seconds * 1000;
    if (where == NULL || !cx_url_cut(where, answer->location, sizeof answer->location))
        answer->location[0] = '\0';
}

/* curl_easy_perform, during which a broken connection raises no SIGPIPE in this process. */
static CURLcode perform(CURL *curl)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    CURLcode rc = curl_easy_perform(curl);
    struct timespec now = {0};
    if (!sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
            continue; /* what we raised ourselves goes no further */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void run(CURL *curl, struct transfer *transfer, const char *url, struct curl_slist *headers)
{
    char words[CURL_ERROR_SIZE] = "";
    struct cx_answer *answer = transfer->answer;
    CURLcode rc = set_options(curl, transfer, url, headers, words);
    if (rc == CURLE_OK)
        rc = perform(curl);
    answer->end = judge(curl, rc, transfer);
    if (answer->end == CX_ANSWERED)
        read_answer(curl, answer);
    else if (transfer->late)
        snprintf(answer->why, sizeof answer->why, "nothing moved for too long");
    else
        snprintf(answer->why, sizeof answer->why, "%.200s",
                 *words ? words : curl_easy_strerror(rc));
}

void cx_http_perform(const struct cx_request *request, struct cx_answer *ret_answer)
{
    *ret_answer = (struct cx_answer){.end = CX_NO_MEMORY};
    struct transfer transfer = {.request = request, .answer = ret_answer, .moved = cx_now_ms()};
    struct curl_slist *headers = NULL;
    struct cx_buf url = {0};
    cx_buf_puts(&url, request->origin);
    cx_buf_puts(&url, request->target);
    struct cx_easy *easy = NULL;
    if (!url.failed && make_headers(request, &headers))
        easy = easy_take(request, &ret_answer->end);
    if (easy) {
        run(easy->curl, &transfer, url.data, headers);
        easy_give(request->client, easy, request->origin);
    }
    for (struct curl_slist *line = headers; line; line = line->next)
        cx_wipe(line->data, strlen(line->data));
    curl_slist_free_all(headers);
    cx_buf_clear(&url);
}

void cx_answer_clear(struct cx_answer *answer)
{
    cx_buf_clear(&answer->text);
}
