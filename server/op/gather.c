/* SPDX-License-Identifier: Apache-2.0
 *
 * See gather.h.
 */
#include "op/gather.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct gather {
    TAILQ_ENTRY(gather) link; /* in txn->gathers */
    TAILQ_ENTRY(gather)
    by_use; /* in coord->gathers, until it ends; the one used longest ago first */
    struct txn *txn;
    uint64_t number; /* in the transaction, from 1 */
    char *query, *client_database;
    bool skip_views;
    struct ch_param *settings;
    size_t n_settings;
    struct chxa_target target;
    struct coord_write *insert; /* NULL: it waits for the one before it on the same table */
    bool wants;                 /* the INSERT takes bytes now */
    bool ending;                /* nothing more is added; the INSERT ends when it has what waits */
    bool ended;                 /* its body is whole */
    size_t n_taken;
    uint64_t opened_ms, used_ms;
    TAILQ_HEAD(gather_items, gather_item) queue;
};

/* ---- what was lost ---- */

int gather_check(const struct txn *txn, struct error *error)
{
    if (!txn->record.gather)
        return 0;
    if (txn->lost)
        return error_set(error, CHXA_E_ROLLBACK_ONLY, "%s", txn->lost);
    if (txn->begun_ms != txn->record.created_ms)
        return error_set(error, CHXA_E_ROLLBACK_ONLY,
                         "the node was started anew since transaction %s was begun, and rows that "
                         "it had gathered may be lost: roll back and write the rows again",
                         txn_xid(txn));
    return 0;
}

/* ---- known writes ---- */

static int by_write_id(const void *a, const void *b)
{
    return strcmp(((const struct gather_known *)a)->write_id,
                  ((const struct gather_known *)b)->write_id);
}

const struct gather_known *gather_find(const struct txn *txn, const char *write_id)
{
    struct gather_known probe = {.write_id = (char *)(uintptr_t)write_id};
    void *node = tfind(&probe, &txn->gathered, by_write_id);
    return node ? *(struct gather_known **)node : NULL;
}

void gather_remember(struct txn *txn, const struct gather_known *known)
{
    struct gather_known *copy = mem_alloc(sizeof *copy);
    *copy = *known;
    copy->write_id = mem_strdup(known->write_id);
    const struct gather_known **node = tsearch(copy, &txn->gathered, by_write_id);
    if (node == NULL)
        abort();
    assert(*node == copy);
    txn->n_gathered++;
}

static void known_free(void *item)
{
    struct gather_known *known = item;
    free(known->write_id);
    free(known);
}

/* ---- one gather ---- */

static void close_to_more(struct gather *gather)
{
    struct coord *coord = gather->txn->coord;
    if (gather->ending)
        return;
    gather->ending = true;
    TAILQ_REMOVE(&coord->gathers, gather, by_use);
    coord->n_gathers--;
}

static void gather_free(struct gather *gather)
{
    close_to_more(gather);
    TAILQ_REMOVE(&gather->txn->gathers, gather, link);
    for (size_t i = 0; i < gather->n_settings; i++) {
        mem_free_text(gather->settings[i].name);
        mem_free_text(gather->settings[i].value);
    }
    free(gather->settings);
    free(gather->query);
    free(gather->client_database);
    chxa_target_clear(&gather->target);
    free(gather);
}

/* Gives the INSERT what waits for it, as long as it takes it, and its end. */
static void feed(struct gather *gather)
{
    struct gather_item *item;
    while (gather->wants && !gather->ended && (item = TAILQ_FIRST(&gather->queue)) != NULL) {
        TAILQ_REMOVE(&gather->queue, item, link);
        gather->n_taken++;
        coord_write_data(gather->insert, item->data, item->len);
        if (item->newline)
            coord_write_data(gather->insert, "\n", 1);
        metrics_count(METRIC_gathered_writes_total, 1, NULL, NULL);
        item->taken(item, 0, NULL);
    }
    if (gather->ending && gather->wants && !gather->ended && TAILQ_EMPTY(&gather->queue)) {
        gather->ended = true;
        coord_write_end(gather->insert);
    }
}

static void insert_flow(void *arg, bool want)
{
    struct gather *gather = arg;
    gather->wants = want;
    if (want)
        feed(gather);
}

static void insert_done(void *arg, const struct coord_reply *reply);

/* On a transaction that is lost it fails, and says so. */
static void start_insert(struct gather *gather)
{
    struct coord_write_params params = {
        .xid = txn_xid(gather->txn),
        .query = gather->query,
        .database = gather->client_database,
        .skip_views = gather->skip_views,
        .settings = gather->settings,
        .n_settings = gather->n_settings,
        .flow = insert_flow,
        .gathers = true,
    };
    gather->insert = coord_write_start(gather->txn->coord, &params, insert_done, gather);
}

static void fail_queue(struct gather *gather, int code, const struct error *error)
{
    struct gather_item *item;
    while ((item = TAILQ_FIRST(&gather->queue)) != NULL) {
        TAILQ_REMOVE(&gather->queue, item, link);
        item->taken(item, code, error);
    }
}

/* Its INSERT failed. If writes in it were answered, the transaction is lost; else it was a failure of those that
 * wait, and of nothing else. */
static void insert_failed(struct gather *gather, const struct coord_reply *reply)
{
    struct txn *txn = gather->txn;
    struct error lost = {0};
    if (gather->n_taken && txn->lost == NULL) {
        txn->lost =
            mem_printf("gathered writes into %s.%s (%zu of them) were answered, and their INSERT "
                       "has failed: roll back and write the rows again. %s",
                       gather->target.database, gather->target.table, gather->n_taken,
                       error_message(reply->error));
        if (txn->op == NULL || prepare_runs(txn)) /* no rollback, which wants it so */
            log_warn("gathered writes lost", "xid=%s writes=%zu code=%s", txn_xid(txn),
                     gather->n_taken, chxa_error_name(reply->code));
    }
    if (gather->n_taken) {
        error_set(&lost, CHXA_E_ROLLBACK_ONLY, "%s", txn->lost);
        fail_queue(gather, lost.code, &lost);
        error_clear(&lost);
    } else {
        fail_queue(gather, reply->code, reply->error);
    }
}

static struct gather *find_first(const struct txn *txn, const struct chxa_target *target)
{
    struct gather *gather;
    TAILQ_FOREACH (gather, &txn->gathers, link)
        if (target_equal(&gather->target, target))
            return gather;
    return NULL;
}

static struct gather *find_last(const struct txn *txn, const struct chxa_target *target)
{
    struct gather *gather;
    TAILQ_FOREACH_REVERSE (gather, &txn->gathers, gather_list, link)
        if (target_equal(&gather->target, target))
            return gather;
    return NULL;
}

static void insert_done(void *arg, const struct coord_reply *reply)
{
    struct gather *gather = arg;
    struct txn *txn = gather->txn;
    if (reply->code)
        insert_failed(gather, reply);
    assert(TAILQ_EMPTY(&gather->queue));
    struct chxa_target target = gather->target;
    gather->target = (struct chxa_target){0};
    gather_free(gather);
    struct gather *next = find_first(txn, &target);
    chxa_target_clear(&target);
    if (next)
        start_insert(next);
}

/* ---- which one ---- */

static void end_gather(struct gather *gather)
{
    close_to_more(gather);
    if (gather->insert)
        feed(gather);
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool suits(const struct gather *gather, const struct coord_write_params *params)
{
    if (gather->ending || gather->skip_views != params->skip_views ||
        gather->n_settings != params->n_settings || strcmp(gather->query, params->query) != 0 ||
        !same_text(gather->client_database, params->database))
        return false;
    for (size_t i = 0; i < gather->n_settings; i++)
        if (strcmp(gather->settings[i].name, params->settings[i].name) != 0 ||
            strcmp(gather->settings[i].value, params->settings[i].value) != 0)
            return false;
    return true;
}

static void look_at_time(uv_timer_t *timer)
{
    struct coord *coord = timer->data;
    uint64_t now_ms = clock_monotonic_ms();
    struct gather *gather, *next;
    for (gather = TAILQ_FIRST(&coord->gathers); gather; gather = next) {
        next = TAILQ_NEXT(gather, by_use);
        if (now_ms - gather->used_ms >= coord->config.gather_idle_ms ||
            now_ms - gather->opened_ms >= coord->config.gather_age_ms)
            end_gather(gather);
    }
    if (TAILQ_EMPTY(&coord->gathers))
        uv_timer_stop(timer);
}

#define LOOK_MS_MAX 250u

static void watch_time(struct coord *coord)
{
    const struct coord_config *config = &coord->config;
    uint64_t shorter = config->gather_idle_ms < config->gather_age_ms ? config->gather_idle_ms
                                                                      : config->gather_age_ms;
    uint64_t look_ms = shorter / 4 < LOOK_MS_MAX ? shorter / 4 + 1 : LOOK_MS_MAX;
    if (!uv_is_active((uv_handle_t *)&coord->gather_timer))
        uv_timer_start(&coord->gather_timer, look_at_time, look_ms, look_ms);
}

static struct gather *gather_new(struct txn *txn, const struct coord_write_params *params,
                                 const struct chxa_target *target)
{
    struct coord *coord = txn->coord;
    struct gather *gather = mem_alloc(sizeof *gather);
    gather->txn = txn;
    gather->number = ++txn->last_gather;
    gather->query = mem_strdup(params->query);
    gather->client_database = mem_strdup(params->database);
    gather->skip_views = params->skip_views;
    gather->settings = mem_array(params->n_settings, sizeof *gather->settings);
    for (size_t i = 0; i < params->n_settings; i++)
        gather->settings[gather->n_settings++] = (struct ch_param){
            mem_strdup(params->settings[i].name), mem_strdup(params->settings[i].value)};
    gather->target.database = mem_strdup(target->database);
    gather->target.table = mem_strdup(target->table);
    gather->opened_ms = clock_monotonic_ms();
    TAILQ_INIT(&gather->queue);
    if (coord->n_gathers >= coord->config.gathers_max && !TAILQ_EMPTY(&coord->gathers))
        end_gather(TAILQ_FIRST(&coord->gathers));
    TAILQ_INSERT_TAIL(&txn->gathers, gather, link);
    TAILQ_INSERT_TAIL(&coord->gathers, gather, by_use);
    coord->n_gathers++;
    watch_time(coord);
    return gather;
}

static void use(struct gather *gather)
{
    struct coord *coord = gather->txn->coord;
    gather->used_ms = clock_monotonic_ms();
    TAILQ_REMOVE(&coord->gathers, gather, by_use);
    TAILQ_INSERT_TAIL(&coord->gathers, gather, by_use);
}

void gather_put(struct txn *txn, const struct coord_write_params *params,
                const struct chxa_target *target, struct gather_item *item)
{
    struct gather *gather = find_last(txn, target);
    if (gather == NULL || !suits(gather, params)) {
        bool waits = gather != NULL;
        if (waits)
            end_gather(gather);
        gather = gather_new(txn, params, target);
        if (!waits)
            start_insert(gather);
    }
    TAILQ_INSERT_TAIL(&gather->queue, item, link);
    use(gather);
    if (prepare_runs(txn))
        end_gather(gather);
    else if (gather->insert)
        feed(gather);
}

void gather_end(struct txn *txn)
{
    struct gather *gather;
    TAILQ_FOREACH (gather, &txn->gathers, link)
        end_gather(gather);
}

bool gather_end_before(struct txn *txn, const struct chxa_target *target, uint64_t *behind)
{
    if (*behind == 0)
        *behind = txn->last_gather;
    struct gather *gather;
    bool any = false;
    TAILQ_FOREACH (gather, &txn->gathers, link)
        if (gather->number <= *behind && target_equal(&gather->target, target)) {
            end_gather(gather);
            any = true;
        }
    return any;
}

/* ---- life ---- */

void gather_init(struct coord *coord)
{
    TAILQ_INIT(&coord->gathers);
    uv_timer_init(coord->loop, &coord->gather_timer);
    coord->gather_timer.data = coord;
}

void gather_end_all(struct coord *coord)
{
    struct gather *gather;
    while ((gather = TAILQ_FIRST(&coord->gathers)) != NULL)
        end_gather(gather);
    uv_timer_stop(&coord->gather_timer);
}

void gather_begin(struct txn *txn)
{
    assert(TAILQ_EMPTY(&txn->gathers));
    gather_clear(txn);
    txn->begun_ms = txn->record.created_ms;
}

void gather_clear(struct txn *txn)
{
    struct gather *gather;
    while ((gather = TAILQ_FIRST(&txn->gathers)) != NULL)
        gather_free(gather);
    tdestroy(txn->gathered, known_free);
    txn->gathered = NULL;
    txn->n_gathered = 0;
    free(txn->lost);
    txn->lost = NULL;
}
