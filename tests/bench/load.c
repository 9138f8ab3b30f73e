/* SPDX-License-Identifier: Apache-2.0
 *
 * The benchmark's load: so many writers, each a thread with one kept connection, send the same batch of rows again and again,
 * in transactions through libchxa or straight to ClickHouse. Prints one line of JSON. It does little besides, so that what
 * is measured is the servers. tests/bench/run drives it.
 *
 *   bench_load KIND --url URL [--query INSERT…] [--writers N] [--transactions N] [--batches N] [--rows N] …
 *
 *   direct      every batch is an INSERT of its own             chxad has no part in it
 *   statements  the lines of --file, one after the other, each timed
 *   body        one INSERT of --bytes
 *   write       transactions of --batches writes, one batch each
 *   gather      the same in transactions that gather their writes
 *   stream      transactions of --batches batches through one streaming write
 *   sink        all batches of all transactions through a sink, a checkpoint each --interval-ms
 *   commit      as write; only the commits are timed
 *   empty       begin, prepare, commit without a write
 *   begin       begin, and no end
 *   prepared    begin and prepare, and no end
 *   txn-body    one write of --bytes in a transaction
 *   idle        --transactions connections that ask once and then wait until standard input ends
 */
#include "load.h"

#include <curl/curl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const step_names[STEPS] = {"begin", "write", "prepare", "commit", "statement"};

static pthread_barrier_t start_line;
static const struct kind *kind;

double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

_Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_load: %s: %s\n", what, why);
    exit(1);
}

void *must_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        die("memory", "none left");
    return memory;
}

static void samples_add(struct samples *samples, double ms)
{
    if (samples->n == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 64;
        samples->ms = realloc(samples->ms, samples->room * sizeof *samples->ms);
        if (samples->ms == NULL)
            die("memory", "none left");
    }
    samples->ms[samples->n++] = ms;
}

double mark(struct writer *writer, enum step step, double since)
{
    double now = now_ms();
    samples_add(&writer->samples[step], now - since);
    return now;
}

/* ---- the rows ---- */

static struct batch make_batch(uint64_t rows)
{
    size_t room = rows * 64, used = 0;
    struct batch batch = {must_alloc(room + 1), 0};
    for (uint64_t row = 0; row < rows; row++)
        used += (size_t)snprintf(
            batch.data + used, room + 1 - used, "%llu\t2026-01-01 %02u:%02u:%02u\tname %u\t%u.25\n",
            (unsigned long long)row, (unsigned)(row / 3600 % 24), (unsigned)(row / 60 % 60),
            (unsigned)(row % 60), (unsigned)(row * 7919 % 100003), (unsigned)(row % 10000));
    batch.bytes = used;
    return batch;
}

/* Whole copies of a block that is made once: the generator is not what is measured. */
static char body_block[BODY_ROW_BYTES * 1024];

static void make_body(void)
{
    for (size_t i = 0; i < sizeof body_block; i += 8)
        body_block[i] = (char)(i % BODY_ROW_BYTES / 8);
}

void body_copy(char *room, size_t bytes, uint64_t left)
{
    size_t at = (BODY_ROW_BYTES - left % BODY_ROW_BYTES) % BODY_ROW_BYTES;
    while (bytes) {
        size_t take = sizeof body_block - at;
        if (take > bytes)
            take = bytes;
        memcpy(room, body_block + at, take);
        room += take;
        bytes -= take;
        at = 0;
    }
}

/* ---- running ---- */

static void *run_writer(void *arg)
{
    struct writer *writer = arg;
    if (kind->open)
        kind->open(writer);
    pthread_barrier_wait(&start_line); /* ready */
    pthread_barrier_wait(&start_line); /* go */
    kind->work(writer);
    pthread_barrier_wait(&start_line); /* done */
    if (kind->close)
        kind->close(writer);
    return NULL;
}

static int compare_ms(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* One step's times over all writers. */
static void print_samples(struct writer *writers, unsigned n_writers, enum step step)
{
    struct samples all = {0};
    double sum = 0;
    for (unsigned i = 0; i < n_writers; i++)
        for (size_t k = 0; k < writers[i].samples[step].n; k++)
            samples_add(&all, writers[i].samples[step].ms[k]);
    if (all.n == 0)
        return;
    qsort(all.ms, all.n, sizeof *all.ms, compare_ms);
    for (size_t k = 0; k < all.n; k++)
        sum += all.ms[k];
    printf(",\"%s\":{\"n\":%zu,\"sum_ms\":%.3f,\"median_ms\":%.4f,\"p90_ms\":%.4f,\"max_ms\":%.4f}",
           step_names[step], all.n, sum, all.ms[all.n / 2], all.ms[all.n * 9 / 10],
           all.ms[all.n - 1]);
    free(all.ms);
}

static void run(const struct options *options)
{
    struct batch batch = make_batch(options->rows);
    make_body();
    struct writer *writers = must_alloc(options->writers * sizeof *writers);
    pthread_t *threads = must_alloc(options->writers * sizeof *threads);
    pthread_attr_t attributes;
    pthread_barrier_init(&start_line, NULL, options->writers + 1);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)1 << 18);
    for (unsigned i = 0; i < options->writers; i++) {
        writers[i] = (struct writer){.options = options, .batch = &batch, .number = i};
        if (pthread_create(&threads[i], &attributes, run_writer, &writers[i]) != 0)
            die("thread", "cannot be started");
    }
    pthread_barrier_wait(&start_line);
    double begun = now_ms();
    pthread_barrier_wait(&start_line);
    pthread_barrier_wait(&start_line);
    double ms = now_ms() - begun;
    for (unsigned i = 0; i < options->writers; i++)
        pthread_join(threads[i], NULL);
    printf("{\"seconds\":%.6f,\"batch_bytes\":%zu", ms / 1e3, batch.bytes);
    for (enum step step = 0; step < STEPS; step++)
        print_samples(writers, options->writers, step);
    printf("}\n");
    for (unsigned i = 0; i < options->writers; i++)
        for (enum step step = 0; step < STEPS; step++)
            free(writers[i].samples[step].ms);
    free(threads);
    free(writers);
    free(batch.data);
}

/* ---- the command line ---- */

static uint64_t number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0')
        die(text, "not a number");
    return value;
}

static const struct kind *find_kind(const char *name)
{
    for (const struct kind *one = direct_kinds; one->name; one++)
        if (strcmp(one->name, name) == 0)
            return one;
    for (const struct kind *one = chxa_kinds; one->name; one++)
        if (strcmp(one->name, name) == 0)
            return one;
    die(name, "no such kind");
}

static void set_option(struct options *options, int letter, const char *value)
{
    switch (letter) {
    case 'u':
        options->url = value;
        break;
    case 'q':
        options->query = value;
        break;
    case 'f':
        options->file = value;
        break;
    case 'N':
        options->name = value;
        break;
    case 'w':
        options->writers = (unsigned)number(value);
        break;
    case 't':
        options->transactions = number(value);
        break;
    case 'b':
        options->batches = number(value);
        break;
    case 'r':
        options->rows = number(value);
        break;
    case 'B':
        options->bytes = number(value);
        break;
    case 'i':
        options->interval_ms = number(value);
        break;
    case 'R':
        options->replay_bytes = number(value);
        break;
    default:
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"url", 1, NULL, 'u'},          {"query", 1, NULL, 'q'},
        {"file", 1, NULL, 'f'},         {"name", 1, NULL, 'N'},
        {"writers", 1, NULL, 'w'},      {"transactions", 1, NULL, 't'},
        {"batches", 1, NULL, 'b'},      {"rows", 1, NULL, 'r'},
        {"bytes", 1, NULL, 'B'},        {"interval-ms", 1, NULL, 'i'},
        {"replay-bytes", 1, NULL, 'R'}, {0},
    };
    struct options options = {.name = "bench",
                              .query = "",
                              .writers = 1,
                              .transactions = 1,
                              .batches = 1,
                              .rows = 1,
                              .replay_bytes = SIZE_DEFAULT};
    int letter;
    if (argc < 2 || argv[1][0] == '-')
        die("usage", "bench_load KIND --url URL …; the kinds are explained in tests/bench/load.c");
    kind = find_kind(argv[1]);
    while ((letter = getopt_long(argc - 1, argv + 1, "", known, NULL)) != -1)
        set_option(&options, letter, optarg);
    if (options.url == NULL || options.writers == 0 || options.rows == 0)
        die("usage", "--url is missing, or a number is 0");
    if (options.bytes % BODY_ROW_BYTES != 0 && strstr(kind->name, "body") != NULL)
        die("--bytes", "not whole rows");
    curl_global_init(CURL_GLOBAL_ALL);
    run(&options);
    curl_global_cleanup();
    return 0;
}
