/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters, gauges and histograms, and their page in the Prometheus text format (0.0.4). Every
 * metric is a row of metrics.def.
 *
 * One set per process. Loop's thread only: nothing here locks. Label values are copied; a metric
 * keeps at most METRICS_SERIES_MAX different ones, what comes after is counted under "other".
 * Nothing here fails.
 */
#ifndef CHXA_BASE_METRICS_H
#define CHXA_BASE_METRICS_H

#include "base/buf.h"
#include "proto/record.h"

#include <stdint.h>

#define METRICS_SERIES_MAX     512u
#define METRICS_COLLECTORS_MAX 16u

enum metric {
#define METRIC(kind, name, a, b, help) METRIC_##name,
#include "base/metrics.def"
#undef METRIC
    METRIC_COUNT
};

/* Label values a and b are NULL where the metric has no such label (asserted). */
void metrics_count(enum metric metric, uint64_t n, const char *a, const char *b);
/* Sets a counter to a total that is kept elsewhere. */
void metrics_count_to(enum metric metric, uint64_t total, const char *a, const char *b);
void metrics_set(enum metric metric, double value, const char *a, const char *b);
/* duration_us: microseconds, from clock_monotonic_us; shown in seconds. */
void metrics_observe(enum metric metric, uint64_t duration_us, const char *a, const char *b);

/* "2xx" … "5xx" for a status: the label of http_requests_total. */
const char *metrics_status_class(int status);

/* What the layers report, in their own words. code: 0 or an error of proto/errors.def. */
void metrics_transition(enum chxa_state to);
void metrics_step(const char *op, const char *step, uint64_t duration_us);
void metrics_write(uint64_t rows, uint64_t bytes, uint64_t body_bytes);
void metrics_error(int code);
void metrics_http(const char *route, int status, uint64_t duration_us);
void metrics_store(const char *kind, int code, uint64_t duration_us);
void metrics_clickhouse(const char *kind, int code, uint64_t duration_us);

/* collect(arg) is called at the beginning of each metrics_render, to set gauges from what a module
 * knows. At most METRICS_COLLECTORS_MAX (asserted). Removed by the same pair. */
typedef void metrics_collect_fn(void *arg);
void metrics_collect_add(metrics_collect_fn *collect, void *arg);
void metrics_collect_remove(metrics_collect_fn *collect, void *arg);

/* Appends the page. Content-Type: METRICS_CONTENT_TYPE. */
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"
void metrics_render(struct buf *out);

/* The value of a counter or gauge, or the number of observations of a histogram; 0 when never set.
 * For tests. */
double metrics_value(enum metric metric, const char *a, const char *b);
/* Frees everything; the next use starts at zero. */
void metrics_clear(void);

#endif
