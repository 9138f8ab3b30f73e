/* SPDX-License-Identifier: Apache-2.0
 *
 * The loads that go straight to ClickHouse: plain HTTP over libcurl, one kept connection a writer.
 */
#include "load.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_BYTES ((size_t)1024)

struct direct {
    CURL *curl;
    struct curl_slist *headers;
    char *url;    /* with the INSERT's head */
    size_t left;  /* of the big body */
    bool refused; /* an exception after 200 */
    char answer[ANSWER_BYTES];
    size_t answer_bytes;
};

static size_t on_answer(char *data, size_t size, size_t n, void *arg)
{
    struct direct *direct = arg;
    size_t take = size * n, room = ANSWER_BYTES - 1 - direct->answer_bytes;
    if (take > room)
        take = room;
    memcpy(direct->answer + direct->answer_bytes, data, take);
    direct->answer_bytes += take;
    return size * n;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "X-ClickHouse-Exception-Code:";
    struct direct *direct = arg;
    if (size * n >= sizeof name && strncasecmp(data, name, sizeof name - 1) == 0)
        direct->refused = true;
    return size * n;
}

static size_t on_body(char *room, size_t size, size_t n, void *arg)
{
    struct direct *direct = arg;
    size_t take = size * n;
    if (take > direct->left)
        take = direct->left;
    body_copy(room, take, direct->left);
    direct->left -= take;
    return take;
}

/* Sends what was set; the answer must be a success. */
static void perform(struct direct *direct)
{
    long status = 0;
    direct->answer_bytes = 0;
    direct->refused = false;
    CURLcode rc = curl_easy_perform(direct->curl);
    direct->answer[direct->answer_bytes] = '\0';
    if (rc != CURLE_OK)
        die("ClickHouse", curl_easy_strerror(rc));
    curl_easy_getinfo(direct->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 || direct->refused)
        die("ClickHouse", direct->answer);
}

static void post(struct direct *direct, const char *url, const char *data, size_t bytes)
{
    curl_easy_setopt(direct->curl, CURLOPT_URL, url);
    curl_easy_setopt(direct->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    curl_easy_setopt(direct->curl, CURLOPT_POSTFIELDS, data);
    perform(direct);
}

/* A connection that has served a statement already. */
static void direct_open(struct writer *writer)
{
    const struct options *options = writer->options;
    struct direct *direct = must_alloc(sizeof *direct);
    direct->curl = curl_easy_init();
    if (direct->curl == NULL)
        die("curl", "no handle");
    char *query = curl_easy_escape(direct->curl, options->query, 0);
    size_t room = strlen(options->url) + strlen(query) + 16;
    direct->url = must_alloc(room);
    snprintf(direct->url, room, "%s%cquery=%s", options->url, strchr(options->url, '?') ? '&' : '?',
             query);
    curl_free(query);
    direct->headers = curl_slist_append(NULL, "Expect:");
    curl_easy_setopt(direct->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(direct->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(direct->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(direct->curl, CURLOPT_HTTPHEADER, direct->headers);
    curl_easy_setopt(direct->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(direct->curl, CURLOPT_WRITEDATA, direct);
    curl_easy_setopt(direct->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(direct->curl, CURLOPT_HEADERDATA, direct);
    /* As libchxa has it. */
    curl_easy_setopt(direct->curl, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    writer->state = direct;
    post(direct, options->url, "SELECT 1", strlen("SELECT 1"));
}

static void direct_close(struct writer *writer)
{
    struct direct *direct = writer->state;
    curl_easy_cleanup(direct->curl);
    curl_slist_free_all(direct->headers);
    free(direct->url);
    free(direct);
}

static void direct_work(struct writer *writer)
{
    uint64_t n = writer->options->transactions * writer->options->batches;
    struct direct *direct = writer->state;
    double since = now_ms();
    for (uint64_t i = 0; i < n; i++) {
        post(direct, direct->url, writer->batch->data, writer->batch->bytes);
        since = mark(writer, STEP_WRITE, since);
    }
}

/* ---- statements ---- */

static void statements_work(struct writer *writer)
{
    struct direct *direct = writer->state;
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    FILE *lines = fopen(writer->options->file ? writer->options->file : "", "re");
    if (lines == NULL)
        die("--file", strerror(errno));
    while ((bytes = getline(&line, &room, lines)) > 0) {
        double since = now_ms();
        post(direct, writer->options->url, line, (size_t)bytes);
        mark(writer, STEP_STATEMENT, since);
    }
    free(line);
    fclose(lines);
}

/* ---- one big body, in chunks ---- */

static void body_work(struct writer *writer)
{
    struct direct *direct = writer->state;
    double since = now_ms();
    direct->left = writer->options->bytes;
    curl_easy_setopt(direct->curl, CURLOPT_URL, direct->url);
    curl_easy_setopt(direct->curl, CURLOPT_POSTFIELDS, NULL);
    curl_easy_setopt(direct->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)-1);
    curl_easy_setopt(direct->curl, CURLOPT_READFUNCTION, on_body);
    curl_easy_setopt(direct->curl, CURLOPT_READDATA, direct);
    direct->headers = curl_slist_append(direct->headers, "Transfer-Encoding: chunked");
    curl_easy_setopt(direct->curl, CURLOPT_HTTPHEADER, direct->headers);
    perform(direct);
    mark(writer, STEP_WRITE, since);
}

/* ---- idle connections, to any HTTP server ---- */

static int idle_connect(const char *url)
{
    static const char request[] = "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[64], answer[4096];
    unsigned port;
    if (sscanf(url, "http://%63[0-9.]:%u", host, &port) != 2 ||
        inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die(url, "not http://<address>:<port>");
    address.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connect", strerror(errno));
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)(sizeof request - 1) ||
        recv(fd, answer, sizeof answer, 0) <= 0)
        die("an idle connection", "was not served");
    return fd;
}

/* One thread holds --transactions connections: a thread for each would be more than the connection. */
static void idle_open(struct writer *writer)
{
    int *fds = must_alloc(writer->options->transactions * sizeof *fds);
    for (uint64_t i = 0; i < writer->options->transactions; i++)
        fds[i] = idle_connect(writer->options->url);
    writer->state = fds;
}

static void idle_work(struct writer *writer)
{
    char byte;
    (void)writer;
    printf("connected\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0)
        continue;
}

static void idle_close(struct writer *writer)
{
    const int *fds = writer->state;
    for (uint64_t i = 0; i < writer->options->transactions; i++)
        close(fds[i]);
    free(writer->state);
}

const struct kind direct_kinds[] = {
    {"direct", direct_open, direct_work, direct_close},
    {"statements", direct_open, statements_work, direct_close},
    {"body", direct_open, body_work, direct_close},
    {"idle", idle_open, idle_work, idle_close},
    {0},
};
