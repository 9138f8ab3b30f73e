/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: who asks, who waits, what is lent; its start and its close. The life of one table is
 * in scratch_life.c, the contract in scratch.h.
 *
 * Threads: the loop's.
 */
#include "ch/scratch_pool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ch/sql.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS     250u
#define WAITERS_MAX 65536u

/* ---- answers: on the next turn ---- */

static void deliver_all(uv_timer_t *timer)
{
    struct scratch_pool *pool = timer->data;
    struct delivery *delivery = pool->deliveries;
    pool->deliveries = NULL; /* what the callbacks ask for is for the turn after */
    while (delivery) {
        struct delivery *next = delivery->next;
        delivery->done(delivery->arg, delivery->code, &delivery->error, delivery->scratch);
        error_clear(&delivery->error);
        free(delivery);
        delivery = next;
    }
    scratch_try_close(pool);
}

/* Moves *error when there is a code. */
static void deliver(struct scratch_pool *pool, scratch_cb *done, void *arg, int code,
                    struct error *error, struct scratch *scratch)
{
    struct delivery *delivery = mem_alloc(sizeof *delivery);
    *delivery = (struct delivery){.done = done, .arg = arg, .code = code, .scratch = scratch};
    if (code != 0)
        error_move(&delivery->error, error);
    struct delivery **tail = &pool->deliveries;
    while (*tail)
        tail = &(*tail)->next;
    *tail = delivery;
    if (!uv_is_active((uv_handle_t *)&pool->delivery))
        uv_timer_start(&pool->delivery, deliver_all, 0, 0);
}

static void deliver_error(struct scratch_pool *pool, scratch_cb *done, void *arg, int code,
                          const char *message)
{
    struct error error = {0};
    error_set(&error, code, "%s", message);
    deliver(pool, done, arg, code, &error, NULL);
}

/* ---- groups and waiters ---- */

static struct group *group_find(struct scratch_pool *pool, const struct ch_table *target)
{
    for (struct group *group = pool->groups; group; group = group->next)
        if (strcmp(group->target.shape, target->shape) == 0 &&
            strcmp(group->target.database, target->database) == 0 &&
            strcmp(group->target.table, target->table) == 0)
            return group;
    return NULL;
}

/* With what making a scratch table needs of its target. */
static struct group *group_new(struct scratch_pool *pool, const struct ch_table *target)
{
    struct group *group = mem_alloc(sizeof *group);
    struct ch_table *copy = &group->target;
    copy->database = mem_strdup(target->database);
    copy->table = mem_strdup(target->table);
    copy->engine_full = mem_strdup(target->engine_full);
    copy->schema = mem_strdup(target->schema);
    copy->shape = mem_strdup(target->shape);
    copy->old_syntax = target->old_syntax;
    copy->disks = mem_array(target->n_disks, sizeof *copy->disks);
    for (; copy->n_disks < target->n_disks; copy->n_disks++)
        copy->disks[copy->n_disks].root = mem_strdup(target->disks[copy->n_disks].root);
    group->next = pool->groups;
    pool->groups = group;
    return group;
}

void scratch_group_release(struct scratch_pool *pool, struct group *group)
{
    if (group->waiters)
        return;
    for (struct entry *entry = pool->entries; entry; entry = entry->next)
        if (entry->group == group)
            return;
    struct group **link = &pool->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    ch_table_clear(&group->target);
    free(group);
}

static struct waiter *waiter_take(struct scratch_pool *pool, struct group *group)
{
    struct waiter *waiter = group->waiters;
    group->waiters = waiter->next;
    pool->n_waiting--;
    return waiter;
}

void scratch_fail_waiter(struct group *group, struct scratch_pool *pool, struct error *error)
{
    if (group->waiters == NULL)
        return;
    struct waiter *waiter = waiter_take(pool, group);
    deliver(pool, waiter->done, waiter->arg, error->code, error, NULL);
    free(waiter);
}

void scratch_move_waiters(struct scratch_pool *pool, struct group *from, const struct ch_table *now)
{
    if (from->waiters == NULL)
        return;
    struct group *to = group_find(pool, now);
    if (to == NULL)
        to = group_new(pool, now);
    assert(to != from);
    while (from->waiters) {
        struct waiter *waiter = from->waiters;
        from->waiters = waiter->next;
        struct waiter **link = &to->waiters;
        while (*link && (*link)->turn < waiter->turn)
            link = &(*link)->next;
        waiter->next = *link;
        *link = waiter;
    }
}

/* The idle table that was used last, so that those not needed get old. */
static struct entry *group_idle(struct scratch_pool *pool, const struct group *group)
{
    struct entry *found = NULL;
    for (struct entry *entry = pool->entries; entry; entry = entry->next)
        if (entry->group == group && entry->state == ENTRY_IDLE &&
            (found == NULL || entry->since_ms > found->since_ms))
            found = entry;
    return found;
}

/* Drops the longest idle table. False when there is none. */
static bool make_room(struct scratch_pool *pool)
{
    struct entry *found = NULL;
    for (struct entry *entry = pool->entries; entry; entry = entry->next)
        if (entry->state == ENTRY_IDLE && (found == NULL || entry->since_ms < found->since_ms))
            found = entry;
    if (found)
        entry_drop(found);
    return found != NULL;
}

/* Tables of the group on their way to idle. A TRUNCATE takes long: a new table is there sooner. */
static size_t group_coming(const struct scratch_pool *pool, const struct group *group)
{
    size_t n = 0;
    for (const struct entry *entry = pool->entries; entry; entry = entry->next)
        n += entry->group == group && (entry->state == ENTRY_CREATING ||
                                       (entry->state == ENTRY_PREPARING && entry->request == NULL));
    return n;
}

static size_t pool_leaving(const struct scratch_pool *pool)
{
    size_t n = 0;
    for (const struct entry *entry = pool->entries; entry; entry = entry->next)
        n += entry->state == ENTRY_DROPPING;
    return n;
}

static void group_lend(struct scratch_pool *pool, struct group *group)
{
    struct entry *idle;
    while (group->waiters && (idle = group_idle(pool, group)) != NULL) {
        struct waiter *waiter = waiter_take(pool, group);
        idle->fresh = false;
        entry_set_state(idle, ENTRY_LENT);
        deliver(pool, waiter->done, waiter->arg, 0, NULL, &idle->lent);
        free(waiter);
    }
}

/* New tables for those who wait still, or room for them. */
static void group_grow(struct scratch_pool *pool, struct group *group)
{
    size_t wanted = 0, coming = group_coming(pool, group), leaving = pool_leaving(pool);
    for (const struct waiter *waiter = group->waiters; waiter; waiter = waiter->next)
        wanted++;
    for (; coming < wanted && pool->n_entries < pool->config.tables_max; coming++)
        entry_create(pool, group);
    while (coming + leaving < wanted && make_room(pool))
        leaving++;
}

/* The group of who has waited longest. */
static struct group *group_oldest(struct scratch_pool *pool)
{
    struct group *oldest = NULL;
    for (struct group *group = pool->groups; group; group = group->next)
        if (group->waiters && (oldest == NULL || group->waiters->turn < oldest->waiters->turn))
            oldest = group;
    return oldest;
}

void scratch_pump(struct scratch_pool *pool)
{
    if (pool->closing || pool->n_waiting == 0)
        return;
    /* A busy target must not keep every table to itself: who has waited longest is asked first. */
    struct group *oldest = group_oldest(pool);
    group_lend(pool, oldest);
    if (oldest->waiters && group_coming(pool, oldest) == 0)
        group_grow(pool, oldest);
    for (struct group *group = pool->groups; group; group = group->next)
        group_lend(pool, group);
    for (struct group *group = pool->groups; group; group = group->next)
        if (group->waiters)
            group_grow(pool, group);
}

void scratch_acquire(struct scratch_pool *pool, const struct ch_table *target, scratch_cb *done,
                     void *arg)
{
    if (pool->closing || !pool->ready) {
        deliver_error(pool, done, arg, pool->closing ? CHXA_E_CANCELLED : CHXA_E_NOT_READY,
                      pool->closing ? "the node is stopping"
                                    : "the scratch tables are not ready yet");
        return;
    }
    if (pool->n_waiting >= WAITERS_MAX) {
        deliver_error(pool, done, arg, CHXA_E_BUSY, "too many writes wait for a scratch table");
        return;
    }
    struct group *group = group_find(pool, target);
    if (group == NULL)
        group = group_new(pool, target);
    struct waiter *waiter = mem_alloc(sizeof *waiter);
    *waiter = (struct waiter){.done = done,
                              .arg = arg,
                              .turn = pool->turns++,
                              .deadline_ms = clock_monotonic_ms() + pool->config.timeout_ms};
    struct waiter **tail = &group->waiters;
    while (*tail)
        tail = &(*tail)->next;
    *tail = waiter;
    pool->n_waiting++;
    scratch_pump(pool);
}

static struct entry *entry_lent(struct scratch_pool *pool, struct scratch *scratch)
{
    struct entry *entry = (struct entry *)(void *)scratch; /* its first member */
    assert(entry->pool == pool && entry->state == ENTRY_LENT);
    (void)pool;
    return entry;
}

void scratch_release(struct scratch_pool *pool, struct scratch *scratch, struct part_list *now)
{
    struct entry *entry = entry_lent(pool, scratch);
    if (pool->closing)
        entry_retire(entry, NULL);
    else
        entry_prepare(entry, now);
    scratch_pump(pool);
    scratch_try_close(pool);
}

void scratch_retire(struct scratch_pool *pool, struct scratch *scratch, const char *query_id)
{
    entry_retire(entry_lent(pool, scratch), query_id);
    scratch_pump(pool);
    scratch_try_close(pool);
}

/* ---- time ---- */

static void group_expire(struct scratch_pool *pool, struct group *group, uint64_t now)
{
    /* Waiters came in order, so their deadlines are in order. */
    while (group->waiters && group->waiters->deadline_ms <= now) {
        struct error error = {0};
        error_set(&error, CHXA_E_BUSY, "no scratch table became free in time (%zu exist)",
                  pool->n_entries);
        scratch_fail_waiter(group, pool, &error);
    }
}

static void cancel_all(struct scratch_pool *pool)
{
    for (struct entry *entry = pool->entries; entry; entry = entry->next)
        if (entry->request)
            ch_request_cancel(entry->request);
}

static void tick(uv_timer_t *timer)
{
    struct scratch_pool *pool = timer->data;
    uint64_t now = clock_monotonic_ms();
    if (pool->closing && !pool->deadline_passed && now >= pool->close_deadline_ms) {
        pool->deadline_passed = true;
        cancel_all(pool);
    }
    for (struct entry *entry = pool->entries; entry && !pool->deadline_passed;
         entry = entry->next) {
        if (entry->state == ENTRY_RETIRED && entry->request == NULL && entry->retry_at_ms <= now)
            entry_reap(entry);
        else if (entry->state == ENTRY_IDLE && now - entry->since_ms >= pool->config.idle_ms)
            entry_drop(entry);
    }
    for (struct group *group = pool->groups, *next; group; group = next) {
        next = group->next;
        group_expire(pool, group, now);
        scratch_group_release(pool, group);
    }
    scratch_try_close(pool);
}

/* ---- start: the database, without left-overs ---- */

struct starting {
    struct starting *next; /* asked for meanwhile: one after the other */
    struct scratch_pool *pool;
    struct ch_caps caps;
    scratch_done_cb *done;
    void *arg;
    struct ch_request *request;
    char *names; /* of left-over tables, a line each */
    char *at;
};

static void starting_begin(struct starting *starting);

static void starting_end(struct starting *starting, int code, struct error *error)
{
    struct scratch_pool *pool = starting->pool;
    struct error none = {0};
    if (code == 0)
        pool->ready = true;
    pool->starting = starting->next;
    starting->done(starting->arg, code, error ? error : &none);
    ch_caps_clear(&starting->caps);
    free(starting->names);
    free(starting);
    if (pool->starting)
        starting_begin(pool->starting);
    scratch_try_close(pool);
}

static void starting_query(struct starting *starting, const struct buf *sql, ch_answer_cb *done)
{
    struct ch_param params[SCRATCH_DROP_PARAMS_MAX];
    struct ch_statement statement = {.sql = buf_str(sql),
                                     .params = params,
                                     .n_params = scratch_drop_params(&starting->pool->caps, params),
                                     .timeout_ms = starting->pool->config.timeout_ms};
    starting->request = ch_query(starting->pool->client, &statement, done, starting);
}

/* True (and the end, with its error) when the answer is no success. */
static bool starting_failed(struct starting *starting, const struct ch_answer *answer)
{
    starting->request = NULL;
    if (answer->code == 0 && !starting->pool->closing)
        return false;
    struct error error = {0};
    if (answer->code != 0)
        error_move(&error, answer->error);
    else
        error_set(&error, CHXA_E_CANCELLED, "the node is stopping");
    starting_end(starting, error.code, &error);
    error_clear(&error);
    return true;
}

/* s_<hex>_<number>: nobody else's table is touched. */
static bool is_scratch_name(const char *name)
{
    if (strncmp(name, "s_", 2) != 0 || !isxdigit((unsigned char)name[2]))
        return false;
    const char *p = name + 2;
    while (isxdigit((unsigned char)*p))
        p++;
    if (*p++ != '_' || !isdigit((unsigned char)*p))
        return false;
    while (isdigit((unsigned char)*p))
        p++;
    return *p == '\0';
}

static bool is_known(const struct scratch_pool *pool, const char *name)
{
    for (const struct entry *entry = pool->entries; entry; entry = entry->next)
        if (strcmp(entry->lent.name, name) == 0)
            return true;
    return false;
}

static void starting_drop_next(struct starting *starting);

static void leftover_dropped(void *arg, const struct ch_answer *answer)
{
    struct starting *starting = arg;
    if (answer->code != CHXA_E_CLICKHOUSE_REJECTED) {
        if (starting_failed(starting, answer))
            return;
        starting->pool->dropped++;
    }
    starting_drop_next(starting);
}

static void starting_drop_next(struct starting *starting)
{
    starting->request = NULL;
    char *name;
    while ((name = strsep(&starting->at, "\n")) != NULL) {
        if (!is_scratch_name(name) || is_known(starting->pool, name))
            continue;
        struct buf sql = {0};
        buf_puts(&sql, "DROP TABLE IF EXISTS ");
        sql_table(&sql, starting->pool->database, name);
        starting_query(starting, &sql, leftover_dropped);
        buf_clear(&sql);
        return;
    }
    starting_end(starting, 0, NULL);
}

static void leftovers_listed(void *arg, const struct ch_answer *answer)
{
    struct starting *starting = arg;
    if (starting_failed(starting, answer))
        return;
    starting->names = mem_strdup(answer->body);
    starting->at = starting->names;
    starting_drop_next(starting);
}

static void database_created(void *arg, const struct ch_answer *answer)
{
    struct starting *starting = arg;
    if (starting_failed(starting, answer))
        return;
    struct buf sql = {0};
    buf_puts(&sql, "SELECT name FROM system.tables WHERE database = ");
    sql_string(&sql, starting->pool->database);
    buf_puts(&sql, " AND substring(name, 1, 2) = 's_' FORMAT TSV");
    starting_query(starting, &sql, leftovers_listed);
    buf_clear(&sql);
}

static void starting_begin(struct starting *starting)
{
    struct scratch_pool *pool = starting->pool;
    ch_caps_clear(&pool->caps);
    ch_caps_copy(&starting->caps, &pool->caps);
    struct buf sql = {0};
    buf_puts(&sql, "CREATE DATABASE IF NOT EXISTS ");
    sql_identifier(&sql, pool->database);
    starting_query(starting, &sql, database_created);
    buf_clear(&sql);
}

void scratch_pool_start(struct scratch_pool *pool, const struct ch_caps *caps,
                        scratch_done_cb *done, void *arg)
{
    assert(!pool->closing);
    struct starting *starting = mem_alloc(sizeof *starting);
    *starting = (struct starting){.pool = pool, .done = done, .arg = arg};
    ch_caps_copy(caps, &starting->caps);
    struct starting **tail = &pool->starting;
    while (*tail)
        tail = &(*tail)->next;
    *tail = starting;
    if (pool->starting == starting)
        starting_begin(starting);
}

/* ---- the pool ---- */

int scratch_pool_new(uv_loop_t *loop, struct ch_client *client, const struct scratch_config *config,
                     struct scratch_pool **ret_pool)
{
    assert(config->tables_max > 0 && config->timeout_ms > 0);
    struct scratch_pool *pool = mem_alloc(sizeof *pool);
    pool->loop = loop;
    pool->client = client;
    pool->config = *config;
    pool->database = mem_strdup(config->database);
    pool->config.database = pool->database;
    pool->name_token = (uint64_t)clock_wall_ms();
    pool->tick.data = pool->delivery.data = pool;
    uv_timer_init(loop, &pool->tick);
    uv_timer_init(loop, &pool->delivery);
    pool->handles_open = 2;
    uv_timer_start(&pool->tick, tick, TICK_MS, TICK_MS);
    *ret_pool = pool;
    return 0;
}

static void handle_closed(uv_handle_t *handle)
{
    struct scratch_pool *pool = handle->data;
    if (--pool->handles_open > 0)
        return;
    void (*on_closed)(void *arg) = pool->on_closed;
    void *arg = pool->closed_arg;
    ch_caps_clear(&pool->caps);
    free(pool->database);
    free(pool);
    if (on_closed)
        on_closed(arg);
}

void scratch_try_close(struct scratch_pool *pool)
{
    if (!pool->closing || pool->starting || pool->deliveries ||
        uv_is_closing((uv_handle_t *)&pool->tick))
        return;
    for (const struct entry *entry = pool->entries; entry; entry = entry->next) {
        bool at_rest = entry->state == ENTRY_IDLE || entry->state == ENTRY_RETIRED;
        if (!at_rest || entry->request || !pool->deadline_passed)
            return;
    }
    while (pool->entries)
        entry_free(pool->entries);
    assert(pool->groups == NULL);
    uv_close((uv_handle_t *)&pool->tick, handle_closed);
    uv_close((uv_handle_t *)&pool->delivery, handle_closed);
}

void scratch_pool_close(struct scratch_pool *pool, uint64_t deadline_ms,
                        void (*on_closed)(void *arg), void *arg)
{
    assert(!pool->closing);
    pool->closing = true;
    pool->close_deadline_ms = clock_monotonic_ms() + deadline_ms;
    pool->on_closed = on_closed;
    pool->closed_arg = arg;
    for (struct group *group = pool->groups, *next; group; group = next) {
        next = group->next;
        while (group->waiters) {
            struct error error = {0};
            error_set(&error, CHXA_E_CANCELLED, "the node is stopping");
            scratch_fail_waiter(group, pool, &error);
        }
        scratch_group_release(pool, group);
    }
    if (pool->starting && pool->starting->request)
        ch_request_cancel(pool->starting->request);
    for (struct entry *entry = pool->entries; entry; entry = entry->next) {
        if (entry->state == ENTRY_IDLE)
            entry_drop(entry);
        else if (entry->state == ENTRY_RETIRED && entry->request == NULL)
            entry_reap(entry);
    }
    scratch_try_close(pool);
}

void scratch_pool_stats(const struct scratch_pool *pool, struct scratch_stats *ret_stats)
{
    struct scratch_stats stats = {.waiting = pool->n_waiting,
                                  .created = pool->created,
                                  .truncated = pool->truncated,
                                  .dropped = pool->dropped};
    for (const struct entry *entry = pool->entries; entry; entry = entry->next) {
        stats.idle += entry->state == ENTRY_IDLE || entry->state == ENTRY_PREPARING;
        stats.lent += entry->state == ENTRY_LENT;
        stats.retired += entry->state == ENTRY_RETIRED || entry->state == ENTRY_DROPPING;
        stats.creating += entry->state == ENTRY_CREATING;
    }
    *ret_stats = stats;
}

bool scratch_pool_made(const struct scratch_pool *pool, const char *name)
{
    char *prefix = mem_printf("s_%" PRIx64 "_", pool->name_token);
    bool ours = strncmp(name, prefix, strlen(prefix)) == 0;
    free(prefix);
    return ours;
}

char *scratch_pool_name(struct scratch_pool *pool)
{
    return mem_printf("s_%" PRIx64 "_%" PRIu64, pool->name_token, ++pool->name_number);
}
