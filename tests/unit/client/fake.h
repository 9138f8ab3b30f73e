/* SPDX-License-Identifier: Apache-2.0
 *
 * A scripted HTTP server for what a real one does not do on demand: lost and half answers, garbage, redirects in a
 * circle, a slow answer.
 *
 * Serves one request per connection, one after the other, on a thread of its own. Each request takes the next step of the
 * script; the last one is repeated. What was received is kept, in order, and may be read when the call that caused it is
 * over.
 */
#ifndef TESTS_UNIT_CLIENT_FAKE_H
#define TESTS_UNIT_CLIENT_FAKE_H

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define FAKE_SEEN_MAX 4096
#define FAKE_HEAD_MAX 65536u

enum fake_does {
    FAKE_ANSWERS,
    FAKE_CLOSES, /* after the whole request, without a word */
    FAKE_RESETS, /* after the head: the body is not read */
    FAKE_HALF,   /* half of the answer, then closes */
    FAKE_LEAVES, /* after the whole request, for good */
    FAKE_RAW,    /* body as it stands, then closes */
    FAKE_EARLY,  /* answers after the head, reads no body, stays for a moment */
};

struct fake_step {
    int status;
    const char *body;
    const char *headers; /* whole lines, with \r\n */
    enum fake_does does;
    unsigned delay_ms; /* before the answer */
};

struct fake_seen {
    char *head; /* first line and headers */
    char *body;
    size_t body_bytes;
    bool whole;
};

struct fake {
    int listener;
    pthread_t thread;
    char url[64];
    const struct fake_step *steps;
    size_t n_steps;
    atomic_bool stop;
    atomic_size_t body_bytes; /* of all bodies, as they come */
    pthread_mutex_t lock;
    size_t n;
    struct fake_seen seen[FAKE_SEEN_MAX];
};

static void fake_send(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static bool fake_receive(int fd, char *buffer, size_t room, size_t *len)
{
    ssize_t n = recv(fd, buffer + *len, room - *len, 0);
    if (n > 0)
        *len += (size_t)n;
    return n > 0;
}

struct fake_body {
    char *data;
    size_t len, room;
};

static void fake_keep(struct fake_body *body, const char *data, size_t len)
{
    if (body->len + len + 1 > body->room) {
        body->room = 2 * (body->len + len + 1);
        body->data = realloc(body->data, body->room);
    }
    memcpy(body->data + body->len, data, len);
    body->len += len;
    body->data[body->len] = '\0';
}

/* A byte from what came behind the head, or from the socket. */
struct fake_input {
    int fd;
    atomic_size_t *body_bytes;
    char buffer[65536];
    size_t at, len;
};

static int fake_byte(struct fake_input *input)
{
    if (input->at == input->len) {
        input->at = input->len = 0;
        if (!fake_receive(input->fd, input->buffer, sizeof input->buffer, &input->len))
            return -1;
    }
    return (unsigned char)input->buffer[input->at++];
}

static bool fake_body_bytes(struct fake_input *input, size_t n, struct fake_body *body)
{
    while (n > 0) {
        int byte = fake_byte(input);
        if (byte < 0)
            return false;
        input->at--;
        size_t some = input->len - input->at < n ? input->len - input->at : n;
        fake_keep(body, input->buffer + input->at, some);
        atomic_fetch_add(input->body_bytes, some);
        input->at += some;
        n -= some;
    }
    return true;
}

static bool fake_line(struct fake_input *input, char *line, size_t room)
{
    size_t n = 0;
    for (int byte; (byte = fake_byte(input)) != '\n';) {
        if (byte < 0 || n + 1 == room)
            return false;
        line[n++] = (char)byte;
    }
    line[n] = '\0';
    return true;
}

static bool fake_chunks(struct fake_input *input, struct fake_body *body)
{
    char line[64];
    for (;;) {
        if (!fake_line(input, line, sizeof line))
            return false;
        size_t n = strtoul(line, NULL, 16);
        if (!fake_body_bytes(input, n, body) || !fake_line(input, line, sizeof line))
            return false;
        if (n == 0)
            return true;
    }
}

static const char *fake_header(const char *head, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = strchr(head, '\n'); line; line = strchr(line, '\n')) {
        line++;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':')
            return line + len + 1 + strspn(line + len + 1, " ");
    }
    return NULL;
}

static bool fake_read_body(struct fake_input *input, const char *head, struct fake_body *body)
{
    const char *length = fake_header(head, "Content-Length"), *expect = fake_header(head, "Expect");
    fake_keep(body, "", 0);
    if (expect)
        fake_send(input->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    if (fake_header(head, "Transfer-Encoding"))
        return fake_chunks(input, body);
    return length == NULL || fake_body_bytes(input, strtoul(length, NULL, 10), body);
}

static void fake_answer(int fd, const struct fake_step *step)
{
    char head[2048];
    const char *body = step->body ? step->body : "";
    if (step->delay_ms)
        usleep(step->delay_ms * 1000);
    if (step->does == FAKE_RAW) {
        fake_send(fd, body, strlen(body));
        return;
    }
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d Whatever\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
                     step->status, strlen(body), step->headers ? step->headers : "");
    fake_send(fd, head, (size_t)n);
    fake_send(fd, body, step->does == FAKE_HALF ? strlen(body) / 2 : strlen(body));
}

static void fake_serve(struct fake *fake, int fd)
{
    struct fake_input *input = calloc(1, sizeof *input);
    struct fake_body body = {0};
    char head[FAKE_HEAD_MAX];
    size_t len = 0;
    input->fd = fd;
    input->body_bytes = &fake->body_bytes;
    for (int byte; len + 1 < sizeof head && (byte = fake_byte(input)) >= 0;) {
        head[len++] = (char)byte;
        head[len] = '\0';
        if (len >= 4 && strcmp(head + len - 4, "\r\n\r\n") == 0)
            break;
    }
    if (len == 0) { /* connected and left */
        free(input);
        return;
    }
    pthread_mutex_lock(&fake->lock);
    size_t number = fake->n;
    const struct fake_step *step =
        &fake->steps[number < fake->n_steps ? number : fake->n_steps - 1];
    pthread_mutex_unlock(&fake->lock);
    bool whole = false;
    if (step->does == FAKE_EARLY)
        fake_keep(&body, "", 0);
    else if (step->does != FAKE_RESETS)
        whole = fake_read_body(input, head, &body);
    pthread_mutex_lock(&fake->lock);
    if (number < FAKE_SEEN_MAX)
        fake->seen[number] = (struct fake_seen){strdup(head), body.data, body.len, whole};
    fake->n = number + 1;
    pthread_mutex_unlock(&fake->lock);
    struct linger hard = {1, 0};
    if (step->does == FAKE_RESETS)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    else if (step->does != FAKE_CLOSES && step->does != FAKE_LEAVES &&
             (whole || step->does == FAKE_EARLY))
        fake_answer(fd, step);
    if (step->does == FAKE_LEAVES) {
        shutdown(fake->listener, SHUT_RDWR);
        atomic_store(&fake->stop, true);
    }
    if (step->does == FAKE_EARLY) {
        /* Takes what still comes, so that the answer is not lost in a reset. */
        shutdown(fd, SHUT_WR);
        while (input->len = 0, fake_receive(fd, input->buffer, sizeof input->buffer, &input->len))
            continue;
    }
    free(input);
}

static void *fake_run(void *arg)
{
    struct fake *fake = arg;
    while (!atomic_load(&fake->stop)) {
        struct pollfd listening = {.fd = fake->listener, .events = POLLIN};
        if (poll(&listening, 1, 20) != 1)
            continue;
        int fd = accept(fake->listener, NULL, NULL);
        if (fd >= 0) {
            fake_serve(fake, fd);
            close(fd);
        }
    }
    return NULL;
}

static struct fake *fake_start_n(const struct fake_step *steps, size_t n)
{
    struct fake *fake = calloc(1, sizeof *fake);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    fake->steps = steps;
    fake->n_steps = n;
    pthread_mutex_init(&fake->lock, NULL);
    fake->listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fake->listener, 64), 0);
    getsockname(fake->listener, (struct sockaddr *)&address, &len);
    snprintf(fake->url, sizeof fake->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    pthread_create(&fake->thread, NULL, fake_run, fake);
    return fake;
}

#define fake_start(steps) fake_start_n(steps, sizeof(steps) / sizeof((steps)[0]))

static void fake_stop(struct fake *fake)
{
    atomic_store(&fake->stop, true);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    for (size_t i = 0; i < fake->n && i < FAKE_SEEN_MAX; i++) {
        free(fake->seen[i].head);
        free(fake->seen[i].body);
    }
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

/* Begins with "METHOD /target". */
static inline bool fake_saw(struct fake *fake, size_t number, const char *start)
{
    pthread_mutex_lock(&fake->lock);
    bool saw = number < fake->n && strncmp(fake->seen[number].head, start, strlen(start)) == 0;
    pthread_mutex_unlock(&fake->lock);
    return saw;
}

static inline size_t fake_count(struct fake *fake)
{
    pthread_mutex_lock(&fake->lock);
    size_t n = fake->n;
    pthread_mutex_unlock(&fake->lock);
    return n;
}

/* A transaction as a node answers it; the owner's URL is not told. */
#define TXN(state) "{\"xid\":\"x\",\"owner\":\"n1\",\"state\":\"" state "\",\"rows\":0}"
#define FAILS(code, retryable, outcome)                                                            \
    "{\"error\":{\"code\":\"" code "\",\"message\":\"because\",\"retryable\":" retryable           \
    ",\"outcome\":\"" outcome "\"}}"

#endif
