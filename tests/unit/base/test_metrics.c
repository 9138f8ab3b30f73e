/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics page: values, labels, cumulative buckets, escaping, the bound on series, and a small
 * reader that holds the whole page to the text format.
 */
#include "base/metrics.h"
#include "lib/suite.h"
#include "proto/errors.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *page(void)
{
    struct buf out = {0};
    metrics_render(&out);
    return buf_take(&out);
}

static void expect(const char *text, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, line, len) == 0 && at[len] == '\n')
            return;
    ck_abort_msg("no line \"%s\" in\n%s", line, text);
}

START_TEST(values)
{
    metrics_count(METRIC_http_requests_total, 2, "commit", "2xx");
    metrics_count(METRIC_http_requests_total, 1, "commit", "2xx");
    metrics_count(METRIC_http_requests_total, 1, "commit", "4xx");
    metrics_set(METRIC_transactions, 7, "Prepared", NULL);
    metrics_set(METRIC_transactions, 3, "Prepared", NULL);
    metrics_set(METRIC_held_bytes, 1234567890123.0, NULL, NULL);
    metrics_set(METRIC_transaction_oldest_seconds, 0.5, "Prepared", NULL);
    char *text = page();
    expect(text, "# TYPE chxa_http_requests_total counter");
    expect(text, "chxa_http_requests_total{route=\"commit\",status=\"2xx\"} 3");
    expect(text, "chxa_http_requests_total{route=\"commit\",status=\"4xx\"} 1");
    expect(text, "chxa_transactions{state=\"Prepared\"} 3");
    expect(text, "chxa_held_bytes 1234567890123");
    expect(text, "chxa_transaction_oldest_seconds{state=\"Prepared\"} 0.5");
    expect(text, "chxa_build_info{version=\"" CHXA_VERSION "\"} 1");
    expect(text, "chxa_ready 0"); /* never set, without labels: shown */
    ck_assert_double_eq(metrics_value(METRIC_transactions, "Prepared", NULL), 3);
    ck_assert_double_eq(metrics_value(METRIC_transactions, "Committing", NULL), 0);
    ck_assert_double_gt(metrics_value(METRIC_resident_memory_bytes, NULL, NULL), 100000);
    ck_assert_double_ge(metrics_value(METRIC_open_files, NULL, NULL), 3);
    free(text);
}
END_TEST

START_TEST(histogram)
{
    metrics_observe(METRIC_step_seconds, 1000, "commit", "attach"); /* on the bound: below it */
    metrics_observe(METRIC_step_seconds, 1001, "commit", "attach");
    metrics_observe(METRIC_step_seconds, 400000000, "commit", "attach");
    char *text = page();
    expect(text, "chxa_step_seconds_bucket{op=\"commit\",step=\"attach\",le=\"0.0005\"} 0");
    expect(text, "chxa_step_seconds_bucket{op=\"commit\",step=\"attach\",le=\"0.001\"} 1");
    expect(text, "chxa_step_seconds_bucket{op=\"commit\",step=\"attach\",le=\"0.0025\"} 2");
    expect(text, "chxa_step_seconds_bucket{op=\"commit\",step=\"attach\",le=\"300\"} 2");
    expect(text, "chxa_step_seconds_bucket{op=\"commit\",step=\"attach\",le=\"+Inf\"} 3");
    expect(text, "chxa_step_seconds_sum{op=\"commit\",step=\"attach\"} 400.002001");
    expect(text, "chxa_step_seconds_count{op=\"commit\",step=\"attach\"} 3");
    ck_assert_double_eq(metrics_value(METRIC_step_seconds, "commit", "attach"), 3);
    free(text);
}
END_TEST

START_TEST(label_values_are_escaped)
{
    metrics_count(METRIC_errors_total, 1, "a\"b\\c\nd", NULL);
    char *text = page();
    expect(text, "chxa_errors_total{code=\"a\\\"b\\\\c\\nd\"} 1");
    free(text);
}
END_TEST

START_TEST(labels_that_look_alike_are_two)
{
    metrics_count(METRIC_store_operations_total, 1, "ab", "c");
    metrics_count(METRIC_store_operations_total, 1, "a", "bc");
    ck_assert_double_eq(metrics_value(METRIC_store_operations_total, "ab", "c"), 1);
    ck_assert_double_eq(metrics_value(METRIC_store_operations_total, "a", "bc"), 1);
}
END_TEST

START_TEST(series_are_bounded)
{
    for (unsigned i = 0; i < 3 * METRICS_SERIES_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "step%u", i);
        metrics_observe(METRIC_step_seconds, 1, "op", name);
        metrics_observe(METRIC_step_seconds, 1, "op", name);
    }
    double kept = metrics_value(METRIC_step_seconds, "op", "step0");
    ck_assert_double_eq(kept, 2);
    double rest = metrics_value(METRIC_step_seconds, "other", "other");
    ck_assert_double_eq(rest, 2.0 * (2 * METRICS_SERIES_MAX + 1));
}
END_TEST

static void collect(void *arg)
{
    metrics_set(METRIC_held_parts, *(double *)arg, NULL, NULL);
}

START_TEST(collectors)
{
    double parts = 5;
    metrics_collect_add(collect, &parts);
    char *text = page();
    expect(text, "chxa_held_parts 5");
    free(text);
    parts = 6;
    metrics_collect_remove(collect, &parts);
    text = page();
    expect(text, "chxa_held_parts 5");
    free(text);
}
END_TEST

/* Every line is a comment or `name{labels} number`, and each family is introduced once. */
START_TEST(page_is_well_formed)
{
    metrics_observe(METRIC_http_request_seconds, 5, "x", NULL);
    char *text = page();
    unsigned types = 0;
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        ck_assert_ptr_nonnull(end);
        *end = '\0';
        if (strncmp(line, "# TYPE chxa_", 12) == 0)
            types++;
        if (line[0] == '#')
            continue;
        ck_assert_msg(strncmp(line, "chxa_", 5) == 0, "%s", line);
        char *blank = strrchr(line, ' ');
        ck_assert_ptr_nonnull(blank);
        char *rest;
        strtod(blank + 1, &rest);
        ck_assert_msg(rest != blank + 1 && *rest == '\0', "%s", line);
    }
    ck_assert_uint_eq(types, METRIC_COUNT);
    free(text);
}
END_TEST

START_TEST(what_layers_report)
{
    metrics_transition(CHXA_PREPARED);
    metrics_step("commit", "attach", 7);
    metrics_write(1000, 5000, 9000);
    metrics_error(CHXA_E_BLOCKED);
    metrics_http("commit", 409, 5);
    metrics_store("cas", 0, 5);
    metrics_store("cas", CHXA_E_STORE_UNKNOWN, 5);
    metrics_clickhouse("attach", CHXA_E_CLICKHOUSE_REJECTED, 5);
    char *text = page();
    expect(text, "chxa_transitions_total{state=\"Prepared\"} 1");
    expect(text, "chxa_step_seconds_count{op=\"commit\",step=\"attach\"} 1");
    expect(text, "chxa_writes_total 1");
    expect(text, "chxa_write_rows_total 1000");
    expect(text, "chxa_write_part_bytes_total 5000");
    expect(text, "chxa_write_body_bytes_total 9000");
    expect(text, "chxa_errors_total{code=\"BLOCKED\"} 1");
    expect(text, "chxa_http_requests_total{route=\"commit\",status=\"4xx\"} 1");
    expect(text, "chxa_store_operations_total{kind=\"cas\",result=\"ok\"} 1");
    expect(text, "chxa_store_operations_total{kind=\"cas\",result=\"STORE_UNKNOWN\"} 1");
    expect(text, "chxa_store_operation_seconds_count{kind=\"cas\"} 2");
    expect(text,
           "chxa_clickhouse_statements_total{kind=\"attach\",result=\"CLICKHOUSE_REJECTED\"} 1");
    free(text);
}
END_TEST

START_TEST(status_classes)
{
    ck_assert_str_eq(metrics_status_class(204), "2xx");
    ck_assert_str_eq(metrics_status_class(307), "3xx");
    ck_assert_str_eq(metrics_status_class(599), "5xx");
    ck_assert_str_eq(metrics_status_class(0), "other");
    ck_assert_str_eq(metrics_status_class(600), "other");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_checked_fixture(t, NULL, metrics_clear);
    tcase_add_test(t, values);
    tcase_add_test(t, histogram);
    tcase_add_test(t, label_values_are_escaped);
    tcase_add_test(t, labels_that_look_alike_are_two);
    tcase_add_test(t, series_are_bounded);
    tcase_add_test(t, collectors);
    tcase_add_test(t, page_is_well_formed);
    tcase_add_test(t, what_layers_report);
    tcase_add_test(t, status_classes);
    suite_add_tcase(s, t);
    return suite_run(s);
}
