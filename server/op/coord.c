/* SPDX-License-Identifier: Apache-2.0
 *
 * The coordinator's life: made, told of the store, recovered, serving, stopped. And what all
 * operations need of it: operation ids, part numbers, storing a state.
 */
#include "op/coord.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "core/txn_time.h"
#include "op/gather.h"
#include "op/txn.h"
#include "store/store_settle.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SWEEP_MS 250u

uv_loop_t *coord_loop(struct coord *coord)
{
    return coord->loop;
}

const char *coord_node(const struct coord *coord)
{
    return coord->config.node;
}

struct store *coord_store(struct coord *coord)
{
    return coord->store;
}

/* ---- time-outs ---- */

static const char *expired(const struct txn *txn, uint64_t now_ms)
{
    struct txn_times times = {
        .expires_ms = txn->expires_ms,
        .touched_ms = txn->touched_ms,
        .idle_ms = txn->writes_in_flight ? 0 : txn->coord->config.idle_timeout_ms,
    };
    switch (txn_time_check(times, now_ms)) {
    case TXN_IN_TIME:
        return NULL;
    case TXN_OVER_TOTAL:
        return "transaction time-out";
    case TXN_OVER_IDLE:
        return "idle time-out";
    }
    abort();
}

static void sweep(uv_timer_t *timer)
{
    struct coord *coord = timer->data;
    coord->swept_ms = clock_monotonic_ms();
    /* While the store is away nothing can be recorded and no client be heard; recovery begins the
     * idle times anew. */
    if (!coord->recovered || !coord->store_ready || coord->stopping)
        return;
    uint64_t now_ms = clock_monotonic_ms();
    struct txn *txn, *next;
    for (txn = TAILQ_FIRST(&coord->txns); txn; txn = next) {
        next = TAILQ_NEXT(txn, link);
        if (txn->op || !txn->loaded || !txn_is_ours(txn))
            continue;
        if (txn->stale) {
            txn_pump(txn);
            continue;
        }
        if (txn_next(txn->record.state, TXN_EXPIRE).verdict != TXN_GO)
            continue;
        const char *why = expired(txn, now_ms);
        if (why)
            rollback_start(txn, why);
    }
}

/* ---- metrics ---- */

static void collect_metrics(void *arg)
{
    struct coord_stats stats;
    coord_stats(arg, &stats);
    for (int state = CHXA_INITIALIZED; state < CHXA_STATE_COUNT; state++) {
        if (chxa_state_kind((enum chxa_state)state) == CHXA_KIND_FINAL)
            continue;
        const char *name = chxa_state_name((enum chxa_state)state);
        metrics_set(METRIC_transactions, (double)stats.by_state[state], name, NULL);
        metrics_set(METRIC_transaction_oldest_seconds, (double)stats.oldest_ms[state] / 1000.0,
                    name, NULL);
    }
    metrics_set(METRIC_transactions_blocked, (double)stats.blocked, NULL, NULL);
    metrics_set(METRIC_ready, coord_not_ready(arg) == NULL, NULL, NULL);
    metrics_set(METRIC_gathers, (double)((struct coord *)arg)->n_gathers, NULL, NULL);
    metrics_set(METRIC_held_parts, (double)stats.held_parts, NULL, NULL);
    metrics_set(METRIC_held_bytes, (double)stats.held_bytes, NULL, NULL);
    metrics_set(METRIC_scratch_tables, (double)stats.scratch.idle, "idle", NULL);
    metrics_set(METRIC_scratch_tables, (double)stats.scratch.lent, "lent", NULL);
    metrics_set(METRIC_scratch_tables, (double)stats.scratch.retired, "retired", NULL);
    metrics_set(METRIC_scratch_tables, (double)stats.scratch.creating, "creating", NULL);
    metrics_set(METRIC_scratch_tables, (double)stats.scratch.waiting, "waiting", NULL);
    metrics_count_to(METRIC_scratch_changes_total, stats.scratch.created, "created", NULL);
    metrics_count_to(METRIC_scratch_changes_total, stats.scratch.truncated, "truncated", NULL);
    metrics_count_to(METRIC_scratch_changes_total, stats.scratch.dropped, "dropped", NULL);
}

/* ---- life ---- */

void coord_new(uv_loop_t *loop, const struct coord_config *config, struct ch_client *client,
               struct coord **ret_coord)
{
    struct coord *coord = mem_alloc(sizeof *coord);
    coord->loop = loop;
    coord->config = *config;
    coord->config.cluster = mem_strdup(config->cluster);
    coord->config.node = mem_strdup(config->node);
    coord->config.url = mem_strdup(config->url);
    coord->config.database = mem_strdup(config->database);
    coord->client = client;
    coord->tables = table_cache_new(client);
    coord->swept_ms = clock_monotonic_ms();
    TAILQ_INIT(&coord->txns);
    TAILQ_INIT(&coord->pumps);
    uv_timer_init(loop, &coord->pump_timer);
    gather_init(coord);
    uv_timer_init(loop, &coord->sweep_timer);
    uv_timer_init(loop, &coord->stop_timer);
    coord->pump_timer.data = coord->sweep_timer.data = coord->stop_timer.data = coord;
    uv_timer_start(&coord->sweep_timer, sweep, SWEEP_MS, SWEEP_MS);
    coord->swept_ms = clock_monotonic_ms();
    if (getrandom(&coord->random_id, sizeof coord->random_id, 0) != sizeof coord->random_id)
        abort();
    coord->not_ready = mem_strdup("waiting for the store");
    metrics_collect_add(collect_metrics, coord);
    struct scratch_config scratch = {
        .database = coord->config.database,
        .tables_max = config->scratch_tables_max,
        .idle_ms = config->scratch_idle_ms,
        .parts_max = config->scratch_parts_max,
        .timeout_ms = config->clickhouse_timeout_ms,
    };
    if (scratch_pool_new(loop, client, &scratch, &coord->pool) != 0)
        abort();
    *ret_coord = coord;
}

void coord_set_store(struct coord *coord, struct store *store)
{
    coord->store = store;
}

const char *coord_not_ready(const struct coord *coord)
{
    return coord->not_ready;
}

void coord_on_ready(struct coord *coord, void (*ready)(void *arg), void (*replaced)(void *arg),
                    void *arg)
{
    coord->on_replaced = replaced;
    coord->on_ready = ready;
    coord->on_ready_arg = arg;
}

void coord_set_not_ready(struct coord *coord, const char *why)
{
    mem_replace(&coord->not_ready, why);
}

void coord_store_event(void *arg, enum store_event event, const char *detail)
{
    struct coord *coord = arg;
    switch (event) {
    case STORE_READY: {
        uint64_t first = PART_NUMBER_FIRST + store_epoch(coord->store) * PART_NUMBERS_PER_EPOCH;
        if (atomic_load(&coord->next_number) < first)
            atomic_store(&coord->next_number, first);
        coord->store_ready = true;
        log_info("store ready", "epoch=%llu detail=\"%s\"",
                 (unsigned long long)store_epoch(coord->store), detail);
        recover_again(coord);
        break;
    }
    case STORE_LOST:
        coord->store_ready = false;
        coord_set_not_ready(coord, "the store is lost; waiting for it");
        log_warn("store lost", "detail=\"%s\"", detail);
        break;
    case STORE_REFUSED:
        coord_set_not_ready(coord, "another process holds this node's lock");
        log_warn("node lock refused", "detail=\"%s\"", detail);
        /* We were this node once, lost our session (asleep, cut off), and another process has taken its place: it waits
         * for the held areas, which we have locked. */
        if (coord->n_locks && coord->on_replaced)
            coord->on_replaced(coord->on_ready_arg);
        break;
    }
}

void coord_clickhouse_back(void *arg)
{
    struct coord *coord = arg;
    struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link)
        if (txn->op)
            op_wake(txn->op);
}

static void coord_stopped(struct coord *coord)
{
    uv_timer_stop(&coord->stop_timer);
    if (coord->on_stopped) {
        void (*on_stopped)(void *) = coord->on_stopped;
        coord->on_stopped = NULL;
        on_stopped(coord->on_stopped_arg);
    }
}

static void pool_closed(void *arg)
{
    struct coord *coord = arg;
    coord->pool = NULL;
    coord_stopped(coord);
}

static bool anything_runs(const struct coord *coord)
{
    const struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link)
        if (txn->writes_in_flight || (txn->op && !op_sleeps(txn->op)) ||
            (txn->convert && !op_sleeps(txn->convert)))
            return true;
    return false;
}

/* Running writes and operations get until the deadline; whatever is left is resumable by design. */
static void stop_check(uv_timer_t *timer)
{
    struct coord *coord = timer->data;
    if (anything_runs(coord) && clock_monotonic_ms() < coord->stop_deadline_ms)
        return;
    uv_timer_stop(timer);
    struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link)
        write_cancel_all(txn);
    scratch_pool_close(coord->pool, 1000, pool_closed, coord);
}

void coord_stop(struct coord *coord, uint64_t deadline_ms, void (*on_stopped)(void *arg), void *arg)
{
    coord->stopping = true;
    coord_set_not_ready(coord, "the node is stopping");
    coord->on_stopped = on_stopped;
    coord->on_stopped_arg = arg;
    coord->stop_deadline_ms = clock_monotonic_ms() + deadline_ms;
    gather_end_all(coord);
    uv_timer_start(&coord->stop_timer, stop_check, 0, 10);
}

void coord_halt(struct coord *coord)
{
    assert(coord->stopping && coord->pool == NULL);
    coord->halted = true;
}

/* ---- for the operations ---- */

char *coord_op_id(struct coord *coord)
{
    return mem_printf(
        "%s-%llu-%016llx-%llu", coord->config.node, (unsigned long long)store_epoch(coord->store),
        (unsigned long long)coord->random_id, (unsigned long long)++coord->op_counter);
}

uint64_t coord_number(struct coord *coord)
{
    uint64_t number = atomic_fetch_add(&coord->next_number, 1);
    assert(number >= PART_NUMBER_FIRST);
    return number;
}

char *coord_query_id(struct coord *coord, const char *xid, const char *kind)
{
    char *prefix = coord_query_prefix(xid, kind);
    char *id = mem_printf("%s%llu:%llu", prefix, (unsigned long long)store_epoch(coord->store),
                          (unsigned long long)++coord->op_counter);
    free(prefix);
    return id;
}

char *coord_query_prefix(const char *xid, const char *kind)
{
    return mem_printf("chxa:%s:%zu:%s:", kind, strlen(xid), xid);
}

const struct store_fence *txn_fence(const struct txn *txn, struct store_fence *fence)
{
    if (txn->record.sink == NULL)
        return NULL;
    *fence = (struct store_fence){txn->record.sink, txn->record.sink_epoch};
    return fence;
}

struct state_change {
    struct op *op;
    struct chxa_record record;
    txn_stored_cb *done;
};

static void state_stored(void *arg, const struct store_result *result)
{
    struct state_change *change = arg;
    struct op *op = change->op;
    struct txn *txn = op->txn;
    int code = result->code;
    if (code == 0) {
        struct chxa_record *now = &txn->record, *next = &change->record;
        now->version = result->version;
        now->changed_ms = next->changed_ms;
        now->node_epoch = next->node_epoch;
        now->blocked = next->blocked;
        mem_replace(&now->op_id, next->op_id);
        mem_replace(&now->owner_url, next->owner_url);
        mem_replace(&now->reason, next->reason);
        mem_replace(&now->meta, next->meta);
        mem_replace(&now->given_reason, next->given_reason);
        mem_replace(&now->converted_to, next->converted_to);
        now->discarding = next->discarding;
        now->heuristic = next->heuristic;
        free(now->discarded);
        now->discarded = next->discarded;
        now->n_discarded = next->n_discarded;
        next->discarded = NULL;
        if (now->state != next->state) {
            txn_set_state(txn, next->state);
            txn_pump(txn); /* who waited for the decision may now be answered */
        }
    } else {
        error_set(&op->error, code, "recording %s: %s", chxa_state_name(change->record.state),
                  chxa_error_text(code));
        if (code == CHXA_E_STORE_UNKNOWN || code == CHXA_E_STORE_CONFLICT)
            txn->stale = true;
    }
    txn_stored_cb *done = change->done;
    chxa_record_clear(&change->record);
    free(change);
    done(op, code);
}

void txn_store_state(struct op *op, enum chxa_state state, const char *reason, bool blocked,
                     txn_stored_cb *done)
{
    txn_store_amended(op, state, reason, blocked, NULL, done);
}

void txn_store_amended(struct op *op, enum chxa_state state, const char *reason, bool blocked,
                       txn_amend *amend, txn_stored_cb *done)
{
    struct txn *txn = op->txn;
    struct coord *coord = op->coord;
    struct state_change *change = mem_alloc(sizeof *change);
    change->op = op;
    change->done = done;
    if (chxa_record_copy(&txn->record, &change->record) != 0)
        abort();
    struct chxa_record *record = &change->record;
    assert(record->state == state || txn_edge_exists(record->state, state));
    if (record->state != state)
        record->changed_ms = clock_wall_ms();
    record->state = state;
    record->node_epoch = store_epoch(coord->store);
    record->blocked = blocked;
    mem_replace(&record->owner_url, coord->config.url);
    mem_replace(&record->reason, reason);
    bool decides =
        txn->record.state != state && (state == CHXA_COMMITTING || state == CHXA_ABORTING);
    if (decides && txn->given_reason)
        mem_replace(&record->given_reason, txn->given_reason);
    if (amend)
        amend(op, record);
    free(record->op_id);
    record->op_id = coord_op_id(coord);
    /* What was prepared is its client's promise, and is kept whoever the writer is now. */
    bool promise = txn->record.state == CHXA_INITIALIZED &&
                   (state == CHXA_PREPARED || state == CHXA_COMMITTING);
    if (promise && txn->new_meta)
        mem_replace(&record->meta, txn->new_meta);
    struct store_fence fence;
    store_settle_cas(coord->store, record, promise ? txn_fence(txn, &fence) : NULL,
                     clock_monotonic_ms() + coord->config.store_timeout_ms, state_stored, change);
    op_sent(op);
}

struct reload {
    struct op *op;
    txn_stored_cb *done;
};

static void reloaded(void *arg, const struct store_result *result)
{
    struct reload *reload = arg;
    struct op *op = reload->op;
    txn_stored_cb *done = reload->done;
    free(reload);
    if (result->code == 0)
        txn_take_record(op->txn, result->record);
    else
        error_set(&op->error, result->code, "reading the record again: %s",
                  chxa_error_text(result->code));
    done(op, result->code);
}

void txn_reload(struct op *op, txn_stored_cb *done)
{
    struct reload *reload = mem_alloc(sizeof *reload);
    reload->op = op;
    reload->done = done;
    store_get(op->coord->store, txn_xid(op->txn), reloaded, reload);
}

bool target_equal(const struct chxa_target *a, const struct chxa_target *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->table, b->table) == 0;
}

const struct chxa_target **txn_targets(const struct txn *txn, size_t *ret_n)
{
    const struct chxa_record *record = &txn->record;
    const struct chxa_target **targets = mem_array(record->n_writes, sizeof *targets);
    size_t n = 0;
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_target *target = &record->writes[i].target;
        size_t j = 0;
        while (j < n && !target_equal(targets[j], target))
            j++;
        if (j == n)
            targets[n++] = target;
    }
    *ret_n = n;
    return targets;
}

void coord_stats(struct coord *coord, struct coord_stats *ret_stats)
{
    *ret_stats = (struct coord_stats){0};
    int64_t now_ms = clock_wall_ms();
    const struct txn *txn;
    TAILQ_FOREACH (txn, &coord->txns, link) {
        if (!txn->loaded || !txn_is_ours(txn))
            continue;
        ret_stats->by_state[txn->record.state]++;
        ret_stats->writes_in_flight += txn->writes_in_flight;
        ret_stats->blocked += txn->record.blocked;
        ret_stats->held_parts += chxa_record_parts(&txn->record);
        ret_stats->held_bytes += chxa_record_bytes(&txn->record);
        int64_t age_ms = now_ms - txn->record.changed_ms;
        if (age_ms > ret_stats->oldest_ms[txn->record.state])
            ret_stats->oldest_ms[txn->record.state] = age_ms;
    }
    if (coord->pool)
        scratch_pool_stats(coord->pool, &ret_stats->scratch);
}

struct chxa_part *txn_target_parts(const struct txn *txn, const struct chxa_target *target,
                                   size_t *ret_n)
{
    const struct chxa_record *record = &txn->record;
    struct chxa_part *parts = mem_array(chxa_record_parts(record), sizeof *parts);
    size_t n = 0;
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_write *write = &record->writes[i];
        if (!target_equal(&write->target, target))
            continue;
        for (size_t j = 0; j < write->n_parts; j++)
            parts[n++] = write->parts[j];
    }
    *ret_n = n;
    return parts;
}

/* Every schema that the transaction's writes to this target were staged under must suit the table
 * as it is now. */
int txn_check_schema(const struct txn *txn, const struct chxa_target *target,
                     const struct ch_table *now, struct error *error)
{
    const struct chxa_record *record = &txn->record;
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_target *staged = &record->writes[i].target;
        if (staged->schema == NULL || !target_equal(staged, target))
            continue;
        char *why = NULL;
        if (!table_schema_compatible(staged->schema, now->schema, &why)) {
            error_set(error, CHXA_E_SCHEMA_CHANGED, "%s.%s was altered after rows were staged: %s",
                      target->database, target->table, why);
            free(why);
            return error->code;
        }
    }
    return 0;
}

/* The table's paths in the order of the target's roots (parts count their disks by it); NULL where
 * a disk is gone. */
char **table_paths_by_root(const struct ch_table *table, const struct chxa_target *target)
{
    char **paths = mem_array(target->n_roots, sizeof *paths);
    for (size_t i = 0; i < target->n_roots; i++)
        for (size_t j = 0; j < table->n_disks && paths[i] == NULL; j++)
            if (strcmp(target->roots[i], table->disks[j].root) == 0)
                paths[i] = mem_strdup(table->disks[j].table_path);
    return paths;
}

static void add_root(char **roots, size_t *n, const char *root)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(roots[i], root) == 0)
            return;
    roots[(*n)++] = mem_strdup(root);
}

char **txn_roots(const struct txn *txn, bool with_node, size_t *ret_n)
{
    const struct coord *coord = txn->coord;
    const struct chxa_record *record = &txn->record;
    size_t most = coord->n_roots, n = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        most += record->writes[i].target.n_roots;
    char **roots = mem_array(most, sizeof *roots);
    for (size_t i = 0; with_node && i < coord->n_roots; i++)
        add_root(roots, &n, coord->roots[i]);
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].target.n_roots; j++)
            add_root(roots, &n, record->writes[i].target.roots[j]);
    *ret_n = n;
    return roots;
}

void txn_add_write(struct txn *txn, struct chxa_write *write)
{
    struct chxa_record *record = &txn->record;
    record->writes = mem_realloc(record->writes, (record->n_writes + 1) * sizeof *record->writes);
    size_t at = record->n_writes++;
    for (; at && record->writes[at - 1].seq > write->seq; at--)
        record->writes[at] = record->writes[at - 1];
    record->writes[at] = *write;
    *write = (struct chxa_write){0};
}

void coord_free(struct coord *coord)
{
    if (coord == NULL)
        return;
    metrics_collect_remove(collect_metrics, coord);
    struct txn *txn, *next;
    bool all_ended = coord->recovery == NULL;
    for (txn = TAILQ_FIRST(&coord->txns); txn; txn = next) {
        next = TAILQ_NEXT(txn, link);
        if (txn->op || txn->convert || txn->writes_in_flight)
            all_ended = false;
        else
            txn_free(txn);
    }
    if (!all_ended)
        return;
    for (size_t i = 0; i < coord->n_locks; i++)
        close(coord->locks[i]);
    for (size_t i = 0; i < coord->n_roots; i++)
        free(coord->roots[i]);
    free(coord->locks);
    free(coord->roots);
    table_cache_free(coord->tables);
    ch_caps_clear(&coord->caps);
    free(coord->default_database);
    free(coord->last_begin_sink);
    free(coord->not_ready);
    mem_free_text(coord->config.cluster);
    mem_free_text(coord->config.node);
    mem_free_text(coord->config.url);
    mem_free_text(coord->config.database);
    free(coord);
}
