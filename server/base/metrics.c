/* SPDX-License-Identifier: Apache-2.0
 *
 * See metrics.h. A metric's series stand in one growing array in the order in which they came; a
 * label pair is found by its hash.
 */
#include "base/metrics.h"

#include "base/mem.h"
#include "proto/errors.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { COUNTER, GAUGE, HISTOGRAM };

static const struct row {
    enum kind kind;
    const char *name;
    const char *label_a, *label_b; /* "": none */
    const char *help;
} table[METRIC_COUNT] = {
#define METRIC(kind, name, a, b, help) [METRIC_##name] = {kind, "chxa_" #name, a, b, help},
#include "base/metrics.def"
#undef METRIC
};

/* Upper bounds in microseconds, and as they are printed in seconds. */
static const struct bound {
    uint64_t us;
    const char *text;
} bounds[] = {
    {250, "0.00025"}, {500, "0.0005"},  {1000, "0.001"},    {2500, "0.0025"}, {5000, "0.005"},
    {10000, "0.01"},  {25000, "0.025"}, {50000, "0.05"},    {100000, "0.1"},  {250000, "0.25"},
    {500000, "0.5"},  {1000000, "1"},   {2500000, "2.5"},   {5000000, "5"},   {10000000, "10"},
    {30000000, "30"}, {60000000, "60"}, {300000000, "300"},
};
#define N_BOUNDS (sizeof bounds / sizeof bounds[0])

struct histogram {
    uint64_t buckets[N_BOUNDS + 1]; /* not cumulative; the last: above all bounds */
    uint64_t count;
    uint64_t sum_us;
};

struct series {
    uint32_t hash;
    char *a, *b; /* "" where there is no label */
    double gauge;
    uint64_t counter;
    struct histogram *histogram; /* of histograms only */
};

static struct family {
    struct series *series;
    size_t n, cap;
} families[METRIC_COUNT];

static struct collector {
    metrics_collect_fn *collect;
    void *arg;
} collectors[METRICS_COLLECTORS_MAX];
static size_t n_collectors;

static uint32_t hash_of(const char *a, const char *b)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *a; a++)
        hash = (hash ^ (unsigned char)*a) * 16777619u;
    hash *= 16777619u; /* between the two */
    for (; *b; b++)
        hash = (hash ^ (unsigned char)*b) * 16777619u;
    return hash;
}

static struct series *find(const struct family *family, const char *a, const char *b)
{
    uint32_t hash = hash_of(a, b);
    for (size_t i = 0; i < family->n; i++) {
        struct series *series = &family->series[i];
        if (series->hash == hash && strcmp(series->a, a) == 0 && strcmp(series->b, b) == 0)
            return series;
    }
    return NULL;
}

static struct series *add(enum metric metric, const char *a, const char *b)
{
    struct family *family = &families[metric];
    if (family->n == family->cap) {
        family->cap = family->cap ? family->cap * 2 : 4;
        family->series = mem_realloc(family->series, family->cap * sizeof *family->series);
    }
    struct series *series = &family->series[family->n++];
    *series = (struct series){.hash = hash_of(a, b), .a = mem_strdup(a), .b = mem_strdup(b)};
    if (table[metric].kind == HISTOGRAM)
        series->histogram = mem_alloc(sizeof *series->histogram);
    return series;
}

static struct series *series_of(enum metric metric, const char *a, const char *b)
{
    assert(metric < METRIC_COUNT);
    assert((a != NULL) == (*table[metric].label_a != '\0'));
    assert((b != NULL) == (*table[metric].label_b != '\0'));
    a = a ? a : "";
    b = b ? b : "";
    struct series *series = find(&families[metric], a, b);
    if (series)
        return series;
    if (families[metric].n + 1 >= METRICS_SERIES_MAX) { /* the last one is the rest's */
        a = *a ? "other" : a;
        b = *b ? "other" : b;
        series = find(&families[metric], a, b);
    }
    return series ? series : add(metric, a, b);
}

void metrics_count(enum metric metric, uint64_t n, const char *a, const char *b)
{
    assert(table[metric].kind == COUNTER);
    series_of(metric, a, b)->counter += n;
}

void metrics_count_to(enum metric metric, uint64_t total, const char *a, const char *b)
{
    assert(table[metric].kind == COUNTER);
    series_of(metric, a, b)->counter = total;
}

void metrics_set(enum metric metric, double value, const char *a, const char *b)
{
    assert(table[metric].kind == GAUGE);
    series_of(metric, a, b)->gauge = value;
}

void metrics_observe(enum metric metric, uint64_t duration_us, const char *a, const char *b)
{
    assert(table[metric].kind == HISTOGRAM);
    struct histogram *histogram = series_of(metric, a, b)->histogram;
    size_t bucket = 0;
    while (bucket < N_BOUNDS && duration_us > bounds[bucket].us)
        bucket++;
    histogram->buckets[bucket]++;
    histogram->count++;
    histogram->sum_us += duration_us;
}

const char *metrics_status_class(int status)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    return status >= 100 && status <= 599 ? classes[status / 100] : classes[0];
}

static const char *result_of(int code)
{
    return code ? chxa_error_name(code) : "ok";
}

void metrics_transition(enum chxa_state to)
{
    metrics_count(METRIC_transitions_total, 1, chxa_state_name(to), NULL);
}

void metrics_step(const char *op, const char *step, uint64_t duration_us)
{
    metrics_observe(METRIC_step_seconds, duration_us, op, step);
}

void metrics_write(uint64_t rows, uint64_t bytes, uint64_t body_bytes)
{
    metrics_count(METRIC_writes_total, 1, NULL, NULL);
    metrics_count(METRIC_write_rows_total, rows, NULL, NULL);
    metrics_count(METRIC_write_part_bytes_total, bytes, NULL, NULL);
    metrics_count(METRIC_write_body_bytes_total, body_bytes, NULL, NULL);
}

void metrics_error(int code)
{
    metrics_count(METRIC_errors_total, 1, chxa_error_name(code), NULL);
}

void metrics_http(const char *route, int status, uint64_t duration_us)
{
    metrics_count(METRIC_http_requests_total, 1, route, metrics_status_class(status));
    metrics_observe(METRIC_http_request_seconds, duration_us, route, NULL);
}

void metrics_store(const char *kind, int code, uint64_t duration_us)
{
    metrics_count(METRIC_store_operations_total, 1, kind, result_of(code));
    metrics_observe(METRIC_store_operation_seconds, duration_us, kind, NULL);
}

void metrics_clickhouse(const char *kind, int code, uint64_t duration_us)
{
    metrics_count(METRIC_clickhouse_statements_total, 1, kind, result_of(code));
    metrics_observe(METRIC_clickhouse_statement_seconds, duration_us, kind, NULL);
}

void metrics_collect_add(metrics_collect_fn *collect, void *arg)
{
    assert(n_collectors < METRICS_COLLECTORS_MAX);
    collectors[n_collectors++] = (struct collector){collect, arg};
}

void metrics_collect_remove(metrics_collect_fn *collect, void *arg)
{
    for (size_t i = 0; i < n_collectors; i++) {
        if (collectors[i].collect == collect && collectors[i].arg == arg) {
            collectors[i] = collectors[--n_collectors];
            return;
        }
    }
}

/* ---- the page ---- */

static void put_escaped(struct buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            buf_append(out, "\\", 1);
        if (*value == '\n')
            buf_puts(out, "\\n");
        else
            buf_append(out, value, 1);
    }
}

/* name_suffix{a="…",b="…",le="…"} and a blank */
static void put_name(struct buf *out, const struct row *row, const char *suffix,
                     const struct series *series, const char *le)
{
    buf_printf(out, "%s%s", row->name, suffix);
    const char *names[] = {row->label_a, row->label_b, le ? "le" : ""};
    const char *values[] = {series->a, series->b, le};
    char before = '{';
    for (size_t i = 0; i < 3; i++) {
        if (*names[i] == '\0')
            continue;
        buf_printf(out, "%c%s=\"", before, names[i]);
        put_escaped(out, values[i]);
        buf_append(out, "\"", 1);
        before = ',';
    }
    buf_puts(out, before == ',' ? "} " : " ");
}

static void put_histogram(struct buf *out, const struct row *row, const struct series *series)
{
    const struct histogram *histogram = series->histogram;
    uint64_t below = 0;
    for (size_t i = 0; i <= N_BOUNDS; i++) {
        below += histogram->buckets[i];
        put_name(out, row, "_bucket", series, i < N_BOUNDS ? bounds[i].text : "+Inf");
        buf_printf(out, "%" PRIu64 "\n", below);
    }
    put_name(out, row, "_sum", series, NULL);
    buf_printf(out, "%" PRIu64 ".%06" PRIu64 "\n", histogram->sum_us / 1000000u,
               histogram->sum_us % 1000000u);
    put_name(out, row, "_count", series, NULL);
    buf_printf(out, "%" PRIu64 "\n", histogram->count);
}

static void put_family(struct buf *out, enum metric metric)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    const struct row *row = &table[metric];
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name,
               kinds[row->kind]);
    for (size_t i = 0; i < families[metric].n; i++) {
        const struct series *series = &families[metric].series[i];
        if (row->kind == HISTOGRAM) {
            put_histogram(out, row, series);
            continue;
        }
        put_name(out, row, "", series, NULL);
        if (row->kind == COUNTER)
            buf_printf(out, "%" PRIu64 "\n", series->counter);
        else
            buf_printf(out, "%.15g\n", series->gauge);
    }
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long total = 0;
    unsigned long resident = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned count = 0;
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1; /* without the one that looked */
}

static void collect_process(void)
{
    metrics_set(METRIC_build_info, 1, CHXA_VERSION, NULL);
    metrics_set(METRIC_resident_memory_bytes, (double)resident_bytes(), NULL, NULL);
    metrics_set(METRIC_open_files, (double)open_files(), NULL, NULL);
}

void metrics_render(struct buf *out)
{
    collect_process();
    for (size_t i = 0; i < n_collectors; i++)
        collectors[i].collect(collectors[i].arg);
    for (unsigned metric = 0; metric < METRIC_COUNT; metric++) {
        const struct row *row = &table[metric];
        if (*row->label_a == '\0') /* shown from the start, so that a rate has a beginning */
            series_of((enum metric)metric, NULL, NULL);
        put_family(out, (enum metric)metric);
    }
}

double metrics_value(enum metric metric, const char *a, const char *b)
{
    const struct series *series = find(&families[metric], a ? a : "", b ? b : "");
    if (series == NULL)
        return 0;
    switch (table[metric].kind) {
    case COUNTER:
        return (double)series->counter;
    case GAUGE:
        return series->gauge;
    case HISTOGRAM:
        return (double)series->histogram->count;
    }
    return 0;
}

void metrics_clear(void)
{
    for (unsigned metric = 0; metric < METRIC_COUNT; metric++) {
        struct family *family = &families[metric];
        for (size_t i = 0; i < family->n; i++) {
            free(family->series[i].a);
            free(family->series[i].b);
            free(family->series[i].histogram);
        }
        free(family->series);
        *family = (struct family){0};
    }
    n_collectors = 0;
}
