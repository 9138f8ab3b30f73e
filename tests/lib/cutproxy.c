/* SPDX-License-Identifier: Apache-2.0
 *
 * A TCP proxy that loses what a test wants lost: between a client and a real server.
 *
 *   cutproxy HOST:PORT          (HOST a numeric IPv4 address)
 *
 * Prints "port N" (it listens on 127.0.0.1:N) and then obeys commands, a line each on standard
 * input, answering "ok COMMAND" when it is done. Ends at end of input.
 *
 *   pass      forward both ways (the beginning)
 *   swallow   forward requests, drop answers
 *   drop      drop both: requests do not reach the server
 *   swallow-on TEXT, drop-on TEXT
 *             become that when a client's bytes contain TEXT; those are the first that it is for
 *   cut       close every connection with a reset; new ones are as the mode says
 *   refuse    cut, and close new connections at once
 *   stat      answers "ok stat MODE"
 *
 * Single-threaded; nothing is buffered beyond libuv's own queues.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum mode { MODE_PASS, MODE_SWALLOW, MODE_DROP, MODE_REFUSE };

struct pair {
    struct pair *next;
    uv_tcp_t client;
    uv_tcp_t server;
    uv_connect_t connect;
    unsigned n_open;
    bool closing;
};

struct chunk {
    uv_write_t write;
    char bytes[];
};

static uv_loop_t loop;
static uv_tcp_t listener;
static uv_pipe_t input;
static struct sockaddr_in target;
static enum mode mode;
static struct pair *pairs;
static char trigger[256]; /* "": none */
static enum mode triggered_mode;
static char line[256];
static size_t line_bytes;

static void pair_closed(uv_handle_t *handle)
{
    struct pair *pair = handle->data;
    if (--pair->n_open)
        return;
    struct pair **link = &pairs;
    while (*link != pair)
        link = &(*link)->next;
    *link = pair->next;
    free(pair);
}

/* With a reset, so that the other side does not take it for an orderly end. */
static void pair_close(struct pair *pair)
{
    if (pair->closing)
        return;
    pair->closing = true;
    if (uv_tcp_close_reset(&pair->client, pair_closed) != 0)
        uv_close((uv_handle_t *)&pair->client, pair_closed);
    if (uv_tcp_close_reset(&pair->server, pair_closed) != 0)
        uv_close((uv_handle_t *)&pair->server, pair_closed);
}

static void make_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    struct chunk *chunk = malloc(sizeof *chunk + suggested);
    *buf = chunk ? uv_buf_init(chunk->bytes, (unsigned)suggested) : uv_buf_init(NULL, 0);
}

static struct chunk *chunk_of(const uv_buf_t *buf)
{
    return buf->base ? (struct chunk *)(void *)(buf->base - offsetof(struct chunk, bytes)) : NULL;
}

static void written(uv_write_t *write, int status)
{
    (void)status;
    free(write->data);
}

static void forward(uv_stream_t *to, struct chunk *chunk, size_t bytes)
{
    chunk->write.data = chunk;
    uv_buf_t buf = uv_buf_init(chunk->bytes, (unsigned)bytes);
    if (uv_write(&chunk->write, to, &buf, 1, written) != 0)
        free(chunk);
}

static void arrived(uv_stream_t *from, ssize_t n, const uv_buf_t *buf)
{
    struct pair *pair = from->data;
    bool up = from == (uv_stream_t *)&pair->client;
    struct chunk *chunk = chunk_of(buf);
    if (n > 0 && up && trigger[0] && memmem(chunk->bytes, (size_t)n, trigger, strlen(trigger))) {
        mode = triggered_mode;
        trigger[0] = '\0';
    }
    bool lose = mode == MODE_DROP || (mode == MODE_SWALLOW && !up);
    if (n > 0 && !lose && !pair->closing)
        forward((uv_stream_t *)(up ? &pair->server : &pair->client), chunk, (size_t)n);
    else
        free(chunk);
    /* In a mode that loses, the end of the server's side is lost as well. */
    if (n < 0 && !(lose && !up))
        pair_close(pair);
}

static void server_connected(uv_connect_t *connect, int status)
{
    struct pair *pair = connect->data;
    if (pair->closing)
        return;
    if (status != 0) {
        pair_close(pair);
        return;
    }
    uv_read_start((uv_stream_t *)&pair->server, make_room, arrived);
    uv_read_start((uv_stream_t *)&pair->client, make_room, arrived);
}

static void client_came(uv_stream_t *server, int status)
{
    if (status != 0)
        return;
    struct pair *pair = calloc(1, sizeof *pair);
    if (pair == NULL)
        abort();
    uv_tcp_init(&loop, &pair->client);
    uv_tcp_init(&loop, &pair->server);
    pair->client.data = pair->server.data = pair->connect.data = pair;
    pair->n_open = 2;
    pair->next = pairs;
    pairs = pair;
    if (uv_accept(server, (uv_stream_t *)&pair->client) != 0 || mode == MODE_REFUSE ||
        uv_tcp_connect(&pair->connect, &pair->server, (const struct sockaddr *)&target,
                       server_connected) != 0)
        pair_close(pair);
    else
        uv_tcp_nodelay(&pair->client, 1), uv_tcp_nodelay(&pair->server, 1);
}

static void cut_all(void)
{
    for (struct pair *pair = pairs; pair; pair = pair->next)
        pair_close(pair);
}

static const char *const mode_names[] = {"pass", "swallow", "drop", "refuse"};

static bool obey_mode(const char *command)
{
    for (int i = 0; i < 4; i++)
        if (strcmp(command, mode_names[i]) == 0) {
            mode = (enum mode)i;
            trigger[0] = '\0';
            if (mode == MODE_REFUSE)
                cut_all();
            return true;
        }
    return false;
}

static bool obey_trigger(const char *command)
{
    const char *text = strchr(command, ' ');
    if (text == NULL || text[1] == '\0')
        return false;
    if (strncmp(command, "swallow-on ", 11) == 0)
        triggered_mode = MODE_SWALLOW;
    else if (strncmp(command, "drop-on ", 8) == 0)
        triggered_mode = MODE_DROP;
    else
        return false;
    snprintf(trigger, sizeof trigger, "%s", text + 1);
    return true;
}

static void obey(const char *command)
{
    if (strcmp(command, "stat") == 0) {
        printf("ok stat %s\n", mode_names[mode]);
    } else if (strcmp(command, "cut") == 0) {
        cut_all();
        puts("ok cut");
    } else if (obey_mode(command) || obey_trigger(command)) {
        printf("ok %s\n", command);
    } else {
        printf("unknown %s\n", command);
    }
}

static void input_came(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)stream;
    if (n < 0)
        exit(0);
    for (ssize_t i = 0; i < n; i++) {
        if (buf->base[i] == '\n') {
            line[line_bytes] = '\0';
            line_bytes = 0;
            obey(line);
        } else if (line_bytes + 1 < sizeof line) {
            line[line_bytes++] = buf->base[i];
        }
    }
    free(chunk_of(buf));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN); /* libuv writes without MSG_NOSIGNAL; a peer may have reset */
    char *colon = argc == 2 ? strrchr(argv[1], ':') : NULL;
    if (colon == NULL) {
        fputs("usage: cutproxy HOST:PORT\n", stderr);
        return 2;
    }
    *colon = '\0';
    struct sockaddr_in here;
    int here_bytes = sizeof here;
    if (uv_ip4_addr(argv[1], (int)strtol(colon + 1, NULL, 10), &target) != 0 ||
        uv_ip4_addr("127.0.0.1", 0, &here) != 0 || uv_loop_init(&loop) != 0 ||
        uv_tcp_init(&loop, &listener) != 0 ||
        uv_tcp_bind(&listener, (const struct sockaddr *)&here, 0) != 0 ||
        uv_listen((uv_stream_t *)&listener, 64, client_came) != 0 ||
        uv_tcp_getsockname(&listener, (struct sockaddr *)&here, &here_bytes) != 0 ||
        uv_pipe_init(&loop, &input, 0) != 0 || uv_pipe_open(&input, 0) != 0 ||
        uv_read_start((uv_stream_t *)&input, make_room, input_came) != 0) {
        fputs("cutproxy: cannot listen\n", stderr);
        return 1;
    }
    printf("port %d\n", ntohs(here.sin_port));
    return uv_run(&loop, UV_RUN_DEFAULT);
}
