/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a file of lines through one streaming write: start, appends of so many lines, close, prepare, commit. Prints one line
 * of JSON with the milliseconds that each took. tests/bench/stream.py compares it with curl.
 *
 *   bench_stream URL QUERY FILE LINES_PER_BATCH
 */
#include <chxa/chxa.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct chxa_error error;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void must(int code)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s: %s\n", chxa_error_name(code), error.message);
    exit(1);
}

/* Appends the whole file, so many lines at a time. */
static void append_all(struct chxa_stream *stream, const char *data, size_t bytes,
                       uint64_t lines_max)
{
    const char *end = data + bytes;
    while (data < end) {
        const char *at = data;
        uint64_t lines = 0;
        for (; at < end && lines < lines_max; lines++) {
            const char *line_end = memchr(at, '\n', (size_t)(end - at));
            at = line_end ? line_end + 1 : end;
        }
        must(chxa_stream_append(stream, data, (size_t)(at - data), lines, &error));
        data = at;
    }
}

int main(int argc, char **argv)
{
    struct chxa_client_options options;
    struct chxa_stream_options stream_options;
    struct chxa_client *client;
    struct chxa_txn *txn;
    struct chxa_stream *stream;
    struct stat info;
    if (argc != 5)
        return 2;
    int fd = open(argv[3], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        return 2;
    size_t bytes = (size_t)info.st_size;
    const char *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    chxa_client_options_init(&options);
    options.urls = (const char *const *)&argv[1];
    options.n_urls = 1;
    chxa_stream_options_init(&stream_options);
    stream_options.query = argv[2];
    stream_options.bytes_max = 0;
    must(chxa_client_open(&options, &client, &error));
    double begun = now_ms();
    must(chxa_start(client, NULL, NULL, &txn, &error));
    must(chxa_stream_open(txn, &stream_options, &stream, &error));
    append_all(stream, data, bytes, strtoull(argv[4], NULL, 10));
    must(chxa_stream_close(stream, &error));
    double written = now_ms();
    must(chxa_prepare(client, chxa_txn_xid(txn), chxa_txn_owner_url(txn), NULL, 0, &error));
    double prepared = now_ms();
    must(chxa_commit(client, chxa_txn_xid(txn), chxa_txn_owner_url(txn), true, 0, &error));
    double committed = now_ms();
    printf("{\"write_ms\":%.1f,\"prepare_ms\":%.1f,\"commit_ms\":%.1f}\n", written - begun,
           prepared - written, committed - prepared);
    chxa_txn_free(txn);
    chxa_client_close(client);
    close(fd);
    return 0;
}
