/* SPDX-License-Identifier: Apache-2.0
 *
 * See retention.h. One round: list a page of finished records; say in the store that the history
 * now begins behind the youngest of those that will go; remove them all at once (each by the version
 * that was listed, so a record that changed stays); then the next page. A removal whose answer is
 * lost is not followed up: the next round finds the record or does not.
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

#define PAGE            100u
#define INTERVAL_MIN_MS 1000u
#define INTERVAL_MAX_MS 3600000u

struct retention {
    uv_timer_t timer;
    struct store *store;
    char *node;
    uint64_t retention_ms, interval_ms;
    bool stopping, timer_closed;
    int64_t start_wall_ms;
    uint64_t start_ms;       /* monotonic */
    size_t in_flight;        /* requests to the store */
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

static void free_if_done(struct retention *retention)
{
    if (!retention->stopping || !retention->timer_closed || retention->in_flight)
        return;
    old_clear(retention);
    free(retention->node);
    free(retention->next);
    free(retention);
}

static void page_done(struct retention *retention)
{
    char *next = retention->next;
    retention->next = NULL;
    old_clear(retention);
    if (retention->stopping) {
        free_if_done(retention);
    } else if (next && !retention->failed) {
        retention_look(retention, next);
    } else if (retention->n_removed) {
        log_info("finished transactions forgotten", "count=%zu retention_ms=%llu",
                 retention->n_removed, (unsigned long long)retention->retention_ms);
    }
    free(next);
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

static void listed(void *arg, const struct store_list_result *result)
{
    struct retention *retention = arg;
    int64_t before_ms = over_before_ms(retention), youngest_ms = 0;
    if (result->code)
        retention->failed = true;
    if (result->code == 0 && !retention->stopping) {
        retention->next = mem_strdup(result->next);
        retention->old = mem_array(result->n_records, sizeof *retention->old);
        for (size_t i = 0; i < result->n_records; i++) {
            struct chxa_record *record = &result->records[i];
            if (chxa_state_kind(record->state) != CHXA_KIND_FINAL ||
                record->changed_ms >= before_ms)
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
        .states = 1u << CHXA_COMMITTED | 1u << CHXA_ABORTED,
        .owner = retention->node,
        .created_before_ms = over_before_ms(retention),
        .after = after,
        .limit = PAGE,
    };
    retention->in_flight++;
    store_list(retention->store, &filter, listed, retention);
}

static void timer_fired(uv_timer_t *timer)
{
    struct retention *retention = timer->data;
    if (retention->in_flight || !store_is_ready(retention->store))
        return;
    retention->n_removed = 0;
    retention->failed = false;
    retention_look(retention, NULL);
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
    uv_timer_init(loop, &retention->timer);
    retention->timer.data = retention;
    uv_timer_start(&retention->timer, timer_fired, 0, retention->interval_ms);
    return retention;
}

static void timer_closed(uv_handle_t *handle)
{
    struct retention *retention = handle->data;
    retention->timer_closed = true;
    free_if_done(retention);
}

void retention_stop(struct retention *retention)
{
    retention->stopping = true;
    uv_close((uv_handle_t *)&retention->timer, timer_closed);
}
