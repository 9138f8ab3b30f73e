/* SPDX-License-Identifier: Apache-2.0
 *
 * See watch.h. One question at a time, the next one a while after the answer. Any answer counts, an
 * exception too.
 */
#include "op/watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

#include <stdlib.h>

#define ASK_MIN_MS 250u
#define ASK_MAX_MS 5000u

struct watch {
    uv_timer_t timer;
    struct ch_client *client;
    uint64_t down_ms, ask_ms, answer_ms;
    uint64_t seen_ms; /* monotonic: the last answer, or the start */
    bool asking, stopping, timer_closed;
    bool missed; /* the last question was not answered */
    void (*back)(void *arg);
    void *back_arg;
    char *why; /* once it was away for down_ms */
};

static void free_if_done(struct watch *watch)
{
    if (!watch->stopping || !watch->timer_closed || watch->asking)
        return;
    free(watch->why);
    free(watch);
}

static void collect_metrics(void *arg)
{
    const struct watch *watch = arg;
    metrics_set(METRIC_clickhouse_up, watch->why == NULL, NULL, NULL);
}

static void seen(struct watch *watch)
{
    watch->seen_ms = clock_monotonic_ms();
    if (watch->why)
        log_info("ClickHouse answers again", "%s", "");
    mem_replace(&watch->why, NULL);
    if (watch->missed)
        watch->back(watch->back_arg);
    watch->missed = false;
}

static void missed(struct watch *watch, const struct error *error)
{
    uint64_t away_ms = clock_monotonic_ms() - watch->seen_ms;
    watch->missed = true;
    if (watch->down_ms == 0 || away_ms < watch->down_ms)
        return;
    if (watch->why == NULL)
        log_error("ClickHouse does not answer", "away_ms=%llu error=\"%s\"",
                  (unsigned long long)away_ms, error_message(error));
    free(watch->why);
    watch->why = mem_printf("ClickHouse has not answered for %llu s: %s",
                            (unsigned long long)(away_ms / 1000), error_message(error));
}

static void ask(uv_timer_t *timer);

static void answered(void *arg, const struct ch_answer *answer)
{
    struct watch *watch = arg;
    watch->asking = false;
    if (watch->stopping) {
        free_if_done(watch);
        return;
    }
    if (answer->code == 0 || answer->code == CHXA_E_CLICKHOUSE_REJECTED)
        seen(watch);
    else
        missed(watch, answer->error);
    uv_timer_start(&watch->timer, ask, watch->ask_ms, 0);
}

static void ask(uv_timer_t *timer)
{
    struct watch *watch = timer->data;
    struct ch_statement statement = {.sql = "SELECT 1", .timeout_ms = watch->answer_ms};
    watch->asking = true;
    ch_query(watch->client, &statement, answered, watch);
}

struct watch *watch_start(uv_loop_t *loop, struct ch_client *client, uint64_t down_ms,
                          void (*back)(void *arg), void *arg)
{
    struct watch *watch = mem_alloc(sizeof *watch);
    watch->client = client;
    watch->down_ms = down_ms;
    watch->back = back;
    watch->back_arg = arg;
    watch->ask_ms = down_ms && down_ms / 4 < ASK_MAX_MS ? down_ms / 4 : ASK_MAX_MS;
    if (watch->ask_ms < ASK_MIN_MS)
        watch->ask_ms = ASK_MIN_MS;
    watch->answer_ms = down_ms && down_ms < ASK_MAX_MS ? down_ms : ASK_MAX_MS;
    watch->seen_ms = clock_monotonic_ms();
    metrics_collect_add(collect_metrics, watch);
    uv_timer_init(loop, &watch->timer);
    watch->timer.data = watch;
    uv_timer_start(&watch->timer, ask, watch->ask_ms, 0);
    return watch;
}

static void timer_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    watch->timer_closed = true;
    free_if_done(watch);
}

void watch_stop(struct watch *watch)
{
    watch->stopping = true;
    metrics_collect_remove(collect_metrics, watch);
    uv_close((uv_handle_t *)&watch->timer, timer_closed);
}

const char *watch_why_down(const struct watch *watch)
{
    return watch ? watch->why : NULL;
}
