/* SPDX-License-Identifier: Apache-2.0
 *
 * See retention.h. One round: ask which nodes run; list a page of old finished records; say in the
 * store that the history now begins behind the youngest of those that will go; remove them all at
 * once (each by the version that was listed, so a record that changed stays); then, after a pause as
 * long as that took, the next page: ZooKeeper looks at every record for it, and a round must not
 * take it from those who wait. A removal whose answer is lost is not followed up: the next round
 * finds the record or does not.
 *
 * A node that does not run cannot forget its own, so the others do, by their retention. What it may
 * still hold parts of, which it has to set aside when it comes back, stays: the records that say so
 * (ended for it by another node; parts given up; converted).
 *
 * The wall clock decides what is old, for records carry it. While the process runs it is believed
 * only as far as the monotonic clock agrees: a clock that is set forward, by mistake or after it was
 * wrong, removes nothing early. (Set forward while the process is down, it does; what is then
 * answered stays true, for where the history begins is taken from the records.)
 */
#include "op/retention.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PAGE            100u
#define INTERVAL_MIN_MS 1000u
#define INTERVAL_MAX_MS 3600000u

struct retention {
    uv_timer_t timer;
    uv_timer_t pause;
    unsigned n_timers;
    struct store *store;
    char *node;
    uint64_t retention_ms, interval_ms;
    bool stopping;
    int64_t start_wall_ms;
    uint64_t start_ms; /* monotonic */
    size_t in_flight;  /* requests to the store, and the pause */
    uint64_t page_ms;  /* monotonic: when the page was asked for */
    char **running;    /* the other nodes that run */
    size_t n_running;
    struct chxa_record *old; /* of this page: to be removed */
    size_t n_old;
    char *next;       /* page after the one whose records are being removed, or NULL */
    size_t n_removed; /* in this round */
    bool failed;      /* the store did: end the round after this page */
};

static void retention_look(struct retention *retention, const char *after);

static void old_clear(struct retention *retention)
{
    for (size_t i = 0; i < retention->n_old; i++)
        chxa_record_clear(&retention->old[i]);
    free(retention->old);
    retention->old = NULL;
    retention->n_old = 0;
}

static void running_clear(struct retention *retention)
{
    for (size_t i = 0; i < retention->n_running; i++)
        free(retention->running[i]);
    free(retention->running);
    retention->running = NULL;
    retention->n_running = 0;
}

static void free_if_done(struct retention *retention)
{
    if (!retention->stopping || retention->n_timers || retention->in_flight)
        return;
    old_clear(retention);
    running_clear(retention);
    free(retention->node);
    free(retention->next);
    free(retention);
}

static void pause_over(uv_timer_t *timer)
{
    struct retention *retention = timer->data;
    char *next = retention->next;
    retention->next = NULL;
    retention->in_flight--;
    retention_look(retention, next);
    free(next);
}

static void page_done(struct retention *retention)
{
    old_clear(retention);
    if (retention->stopping) {
        free_if_done(retention);
    } else if (retention->next && !retention->failed) {
        retention->in_flight++;
        uint64_t took_ms = clock_monotonic_ms() - retention->page_ms;
        uv_timer_start(&retention->pause, pause_over, took_ms, 0);
    } else if (retention->n_removed) {
        log_info("finished transactions forgotten", "count=%zu retention_ms=%llu",
                 retention->n_removed, (unsigned long long)retention->retention_ms);
    }
}

static void removed(void *arg, const struct store_result *result)
{
    struct retention *retention = arg;
    if (result->code == 0)
        retention->n_removed++;
    else if (result->code != CHXA_E_STORE_CONFLICT && result->code != CHXA_E_TXN_NOT_FOUND)
        retention->failed = true;
    assert(retention->in_flight > 0);
    if (--retention->in_flight == 0)
        page_done(retention);
}

/* What changed before this is over. */
static int64_t over_before_ms(const struct retention *retention)
{
    int64_t now_ms = clock_wall_ms();
    int64_t ran_ms = (int64_t)(clock_monotonic_ms() - retention->start_ms);
    if (now_ms > retention->start_wall_ms + ran_ms)
        now_ms = retention->start_wall_ms + ran_ms;
    return now_ms - (int64_t)retention->retention_ms;
}

/* in_flight still counts the request that was answered, so that no removal ends the page too early. */
static void history_raised(void *arg, const struct store_result *result)
{
    struct retention *retention = arg;
    if (result->code)
        retention->failed = true;
    for (size_t i = 0; result->code == 0 && !retention->stopping && i < retention->n_old; i++) {
        const struct chxa_record *record = &retention->old[i];
        retention->in_flight++;
        store_remove(retention->store, record->xid, record->version, removed, retention);
    }
    old_clear(retention);
    if (--retention->in_flight == 0)
        page_done(retention);
}

static bool runs(const struct retention *retention, const char *node)
{
    for (size_t i = 0; i < retention->n_running; i++)
        if (strcmp(retention->running[i], node) == 0)
            return true;
    return false;
}

static bool is_to_go(const struct retention *retention, const struct chxa_record *record)
{
    if (strcmp(record->owner, retention->node) == 0)
        return true;
    return !runs(retention, record->owner) && record->abandoned_by == NULL &&
           record->converted_to == NULL && record->n_discarded == 0;
}

static void listed(void *arg, const struct store_list_result *result)
{
    struct retention *retention = arg;
    int64_t youngest_ms = 0;
    if (result->code)
        retention->failed = true;
    if (result->code == 0 && !retention->stopping) {
        mem_replace(&retention->next, result->next);
        retention->old = mem_array(result->n_records, sizeof *retention->old);
        for (size_t i = 0; i < result->n_records; i++) {
            struct chxa_record *record = &result->records[i];
            assert(chxa_state_kind(record->state) == CHXA_KIND_FINAL);
            if (!is_to_go(retention, record))
                continue;
            if (record->changed_ms > youngest_ms)
                youngest_ms = record->changed_ms;
            retention->old[retention->n_old++] = *record;
            *record = (struct chxa_record){0};
        }
    }
    if (retention->n_old)
        store_history_raise(retention->store, youngest_ms + 1, history_raised, retention);
    else if (--retention->in_flight == 0)
        page_done(retention);
}

static void retention_look(struct retention *retention, const char *after)
{
    struct store_filter filter = {
        .finished_before_ms = over_before_ms(retention),
        .skip_unreadable = true,
        .after = after,
        .limit = PAGE,
    };
    if (filter.finished_before_ms < 1)
        filter.finished_before_ms = 1; /* 0 would be: any */
    retention->page_ms = clock_monotonic_ms();
    retention->in_flight++;
    store_list(retention->store, &filter, listed, retention);
}

static void nodes_known(void *arg, const struct store_nodes_result *result)
{
    struct retention *retention = arg;
    retention->in_flight--;
    if (retention->stopping) {
        free_if_done(retention);
        return;
    }
    if (result->code)
        return; /* the next round asks again */
    running_clear(retention);
    retention->running = mem_array(result->n_nodes, sizeof *retention->running);
    for (size_t i = 0; i < result->n_nodes; i++)
        if (result->nodes[i].live)
            retention->running[retention->n_running++] = mem_strdup(result->nodes[i].name);
    retention_look(retention, NULL);
}

static void timer_fired(uv_timer_t *timer)
{
    struct retention *retention = timer->data;
    if (retention->in_flight || !store_is_ready(retention->store))
        return;
    retention->n_removed = 0;
    retention->failed = false;
    mem_replace(&retention->next, NULL);
    retention->in_flight++;
    store_nodes(retention->store, nodes_known, retention);
}

struct retention *retention_start(uv_loop_t *loop, struct store *store, const char *node,
                                  uint64_t retention_ms)
{
    struct retention *retention = mem_alloc(sizeof *retention);
    retention->store = store;
    retention->node = mem_strdup(node);
    retention->retention_ms = retention_ms;
    retention->start_wall_ms = clock_wall_ms();
    retention->start_ms = clock_monotonic_ms();
    retention->interval_ms = retention_ms / 20;
    if (retention->interval_ms < INTERVAL_MIN_MS)
        retention->interval_ms = INTERVAL_MIN_MS;
    if (retention->interval_ms > INTERVAL_MAX_MS)
        retention->interval_ms = INTERVAL_MAX_MS;
    uv_timer_t *timers[] = {&retention->timer, &retention->pause};
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(loop, timers[i]);
        timers[i]->data = retention;
        retention->n_timers++;
    }
    uv_timer_start(&retention->timer, timer_fired, 0, retention->interval_ms);
    return retention;
}

static void timer_closed(uv_handle_t *handle)
{
    struct retention *retention = handle->data;
    retention->n_timers--;
    free_if_done(retention);
}

void retention_stop(struct retention *retention)
{
    retention->stopping = true;
    if (uv_is_active((uv_handle_t *)&retention->pause))
        retention->in_flight--; /* it does not end any more */
    uv_close((uv_handle_t *)&retention->timer, timer_closed);
    uv_close((uv_handle_t *)&retention->pause, timer_closed);
}
