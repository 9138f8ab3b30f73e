/* SPDX-License-Identifier: Apache-2.0
 *
 * Exactly once from a file into ClickHouse: each line is a row (TSV). Kill it at any point, start it again: it goes on.
 *
 *   file_sink http://127.0.0.1:8124 SINK "INSERT INTO db.t FORMAT TSV" rows.tsv rows.checkpoint [ROWS]
 *
 * It makes a checkpoint every ROWS rows (100000) and at the end of the file. A checkpoint is one small file: how far the
 * source was read, and the sink's state. It is replaced in one step, so there is always one, and it is always whole.
 */
#include <chxa/chxa.h>

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct checkpoint {
    uint64_t number;
    int64_t offset; /* in the source: everything before it is in the sink's state, or committed */
    void *state;    /* the sink's */
    size_t state_bytes;
};

static struct chxa_error error;

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: %s: %s\n", what, chxa_error_name(code), error.message);
        exit(2);
    }
}

static void sync_folder(const char *path)
{
    char *copy = strdup(path);
    must(copy, "strdup");
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY);
    must(folder >= 0 && fsync(folder) == 0 && close(folder) == 0, "folder of the checkpoint");
    free(copy);
}

/* Once this returns the checkpoint is complete: whatever happens, we start from it. */
static void save(const char *path, const struct checkpoint *checkpoint)
{
    char temporary[4096];
    must((size_t)snprintf(temporary, sizeof temporary, "%s.new", path) < sizeof temporary, path);
    FILE *file = fopen(temporary, "wb");
    must(file, temporary);
    fprintf(file, "%" PRIu64 " %" PRId64 " %zu\n", checkpoint->number, checkpoint->offset,
            checkpoint->state_bytes);
    fwrite(checkpoint->state, 1, checkpoint->state_bytes, file);
    must(fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0, temporary);
    must(fclose(file) == 0 && rename(temporary, path) == 0, path);
    sync_folder(path);
}

/* All zero when there is none yet. */
static struct checkpoint load(const char *path)
{
    struct checkpoint checkpoint = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return checkpoint;
    must(fscanf(file, "%" SCNu64 " %" SCNd64 " %zu", &checkpoint.number, &checkpoint.offset,
                &checkpoint.state_bytes) == 3 &&
             fgetc(file) == '\n' && checkpoint.state_bytes < 1 << 20,
         path);
    checkpoint.state = malloc(checkpoint.state_bytes);
    must(checkpoint.state &&
             fread(checkpoint.state, 1, checkpoint.state_bytes, file) == checkpoint.state_bytes,
         path);
    fclose(file);
    return checkpoint;
}

/* Gives the sink up to `rows` whole lines; how many it were. A line that has no end yet is left for the next start. */
static uint64_t copy_rows(struct chxa_sink *sink, FILE *source, uint64_t rows, int64_t *offset)
{
    static char *line;
    static size_t room;
    uint64_t copied = 0;
    ssize_t length;
    while (copied < rows && (length = getline(&line, &room, source)) > 0) {
        if (line[length - 1] != '\n')
            break;
        check(chxa_sink_write(sink, line, (size_t)length, 1, &error), "write");
        *offset += length;
        copied++;
    }
    must(!ferror(source), "source");
    return copied;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: file_sink URL SINK INSERT SOURCE CHECKPOINT [ROWS]\n");
        return 64;
    }
    const char *url = argv[1], *path = argv[5];
    uint64_t rows = argc > 6 ? strtoull(argv[6], NULL, 10) : 100000;

    struct chxa_client_options client_options;
    struct chxa_client *client;
    chxa_client_options_init(&client_options);
    client_options.urls = &url;
    client_options.n_urls = 1;
    check(chxa_client_open(&client_options, &client, &error), "client");

    /* Restore: commits what the last checkpoint had prepared, rolls back what came after it. */
    struct checkpoint last = load(path);
    struct chxa_sink_options options;
    struct chxa_sink *sink;
    chxa_sink_options_init(&options);
    options.name = argv[2];
    options.stream.query = argv[3];
    check(chxa_sink_open(client, &options, last.state, last.state_bytes, &sink, &error), "open");
    free(last.state);

    FILE *source = fopen(argv[4], "rb");
    must(source && fseeko(source, (off_t)last.offset, SEEK_SET) == 0, argv[4]);
    while (copy_rows(sink, source, rows, &last.offset) > 0) {
        last.number++;
        check(chxa_sink_snapshot(sink, last.number, NULL, &last.state, &last.state_bytes, &error),
              "snapshot");
        save(path, &last);
        check(chxa_sink_notify_complete(sink, last.number, &error), "commit");
        chxa_free(last.state);
    }

    fclose(source);
    check(chxa_sink_close(sink, &error), "close");
    chxa_client_close(client);
    printf("%" PRIu64 " checkpoints, %" PRId64 " bytes\n", last.number, last.offset);
    return 0;
}
