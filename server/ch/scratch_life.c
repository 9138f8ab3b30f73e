/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of one scratch table:
 *
 *   CREATING ──> PREPARING ──> IDLE <──> LENT
 *      │             │           │         │
 *      └─────────────┴───────────┴────> RETIRED <──> DROPPING ──> gone
 *
 * CREATING: CREATE … AS target; the target loaded again, for it must still have the shape that was
 * asked for; the scratch table loaded, for its paths. PREPARING: its parts listed on a worker; where
 * they are too many, it is retired, or emptied by a TRUNCATE and listed again. RETIRED: until its
 * query is gone from system.processes.
 *
 * A step ends in exactly one of: the next step, entry_retire, entry_free; then in scratch_pump and
 * scratch_try_close. An outcome that is not known always ends in entry_retire: what may still run
 * runs in a table that nobody gets.
 *
 * Threads: the loop's; list_parts alone runs on a worker, on an entry that nothing else touches
 * then.
 */
#include "ch/scratch_pool.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ch/sql.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS_MIN      250u
#define RETRY_MS_MAX      30000u
#define CH_UNKNOWN_TABLE  60
#define CH_UNKNOWN_SCHEMA 81 /* a database that does not exist */

void entry_set_state(struct entry *entry, enum entry_state state)
{
    static const char *const names[] = {"creating", "preparing", "idle",
                                        "lent",     "retired",   "dropping"};
    log_debug("scratch table", "name=%s from=%s to=%s", entry->lent.name, names[entry->state],
              names[state]);
    entry->state = state;
    entry->since_ms = clock_monotonic_ms();
}

static void scratch_fields_clear(struct scratch *scratch)
{
    free(scratch->database);
    free(scratch->name);
    for (size_t i = 0; i < scratch->n_paths; i++)
        free(scratch->paths[i]);
    free(scratch->paths);
    part_list_clear(&scratch->before);
}

void entry_free(struct entry *entry)
{
    struct scratch_pool *pool = entry->pool;
    assert(entry->request == NULL);
    struct entry **link = &pool->entries;
    while (*link != entry)
        link = &(*link)->next;
    *link = entry->next;
    pool->n_entries--;
    struct group *group = entry->group;
    scratch_fields_clear(&entry->lent);
    part_list_clear(&entry->listed);
    error_clear(&entry->work_error);
    free(entry->query_id);
    free(entry);
    scratch_group_release(pool, group);
}

/* The end of every step. */
static void step_ended(struct scratch_pool *pool)
{
    scratch_pump(pool);
    scratch_try_close(pool);
}

static void entry_query(struct entry *entry, const char *sql, const char *query_id,
                        const struct ch_param *params, size_t n_params, ch_answer_cb *done)
{
    struct ch_statement statement = {.sql = sql,
                                     .query_id = query_id,
                                     .params = params,
                                     .n_params = n_params,
                                     .timeout_ms = entry->pool->config.timeout_ms};
    assert(entry->request == NULL);
    entry->request = ch_query(entry->pool->client, &statement, done, entry);
}

/* ---- creating ---- */

static void create_statement(struct entry *entry);

/* A table that could not be had: who waits hears of it (the error is moved). */
static void create_failed(struct entry *entry, struct error *error, const char *query_id)
{
    struct scratch_pool *pool = entry->pool;
    scratch_fail_waiter(entry->group, pool, error);
    entry_retire(entry, query_id);
    step_ended(pool);
}

/* Refusals that come from the server's state, not from the table. */
static bool is_passing(int ch_code)
{
    static const int codes[] = {
        159,           /* timeout */
        164,           /* readonly */
        173,           /* cannot allocate */
        192, 193, 516, /* authentication */
        202,           /* too many queries */
        209, 210,      /* sockets */
        241,           /* memory limit */
        243,           /* not enough space */
        394,           /* cancelled */
        497,           /* access denied */
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i] == ch_code)
            return true;
    return false;
}

static void create_rejected(struct entry *entry, const struct ch_answer *answer)
{
    const struct ch_table *target = &entry->group->target;
    struct error error = {0};
    if (answer->ch_code == CH_UNKNOWN_TABLE || answer->ch_code == CH_UNKNOWN_SCHEMA)
        error_set(&error, CHXA_E_TARGET_NOT_FOUND, "the table %s.%s does not exist",
                  target->database, target->table);
    else if (is_passing(answer->ch_code))
        error_move(&error, answer->error);
    else
        error_set(&error, CHXA_E_TARGET_UNSUPPORTED,
                  "rows for %s.%s cannot be staged, ClickHouse refuses an empty copy of it: %s",
                  target->database, target->table, error_message(answer->error));
    create_failed(entry, &error, NULL);
    error_clear(&error);
}

static bool same_disks(const struct ch_table *a, const struct ch_table *b)
{
    if (a->n_disks != b->n_disks)
        return false;
    for (size_t i = 0; i < a->n_disks; i++)
        if (strcmp(a->disks[i].root, b->disks[i].root) != 0)
            return false;
    return true;
}

static void merges_stopped(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    entry->request = NULL;
    if (answer->code != 0)
        log_debug("merges not stopped", "name=%s error=\"%s\"", entry->lent.name,
                  error_message(answer->error));
    entry_prepare(entry, NULL);
}

/* An old-syntax table cannot carry the settings that keep merges off. This lasts until ClickHouse
 * restarts, and may fail: a merge in between costs a retry of the write, no more. */
static void merges_stop(struct entry *entry)
{
    struct buf sql = {0};
    buf_puts(&sql, "SYSTEM STOP MERGES ");
    sql_table(&sql, entry->lent.database, entry->lent.name);
    entry_query(entry, buf_str(&sql), NULL, NULL, 0, merges_stopped);
    buf_clear(&sql);
}

static void loaded_self(void *arg, int code, struct error *error, struct ch_table *self)
{
    struct entry *entry = arg;
    const struct ch_table *target = &entry->group->target;
    struct error other = {0};
    if (code == 0 && !same_disks(self, target))
        code = error_set(&other, CHXA_E_TARGET_UNSUPPORTED,
                         "rows for %s.%s cannot be staged: its scratch table lies on other disks; "
                         "give the table a storage policy by name",
                         target->database, target->table);
    else if (code != 0)
        error_move(&other, error);
    if (code != 0) {
        create_failed(entry, &other, NULL);
        error_clear(&other);
        return;
    }
    entry->lent.paths = mem_array(self->n_disks, sizeof *entry->lent.paths);
    for (size_t i = 0; i < self->n_disks; i++)
        entry->lent.paths[entry->lent.n_paths++] = mem_strdup(self->disks[i].table_path);
    entry->pool->created++;
    if (entry->lent.old_syntax)
        merges_stop(entry);
    else
        entry_prepare(entry, NULL);
}

/*
 * The target was altered since it was loaded, so this copy may be of either definition: of no use.
 * Who waits gets a copy of what the table is now, where parts of that go with what the waiter knows
 * (a column was added), or hears of it.
 */
static void target_changed(struct entry *entry, const struct ch_table *now)
{
    struct scratch_pool *pool = entry->pool;
    const struct ch_table *target = &entry->group->target;
    struct error error = {0};
    char *why = NULL;
    if (!table_schema_compatible(target->schema, now->schema, &why))
        error_set(&error, CHXA_E_SCHEMA_CHANGED, "the table %s.%s was altered: %s",
                  target->database, target->table, why);
    else if (!same_disks(target, now))
        error_set(&error, CHXA_E_SCHEMA_CHANGED, "the table %s.%s was moved to other disks",
                  target->database, target->table);
    free(why);
    if (error.code)
        scratch_fail_waiter(entry->group, pool, &error);
    else
        scratch_move_waiters(pool, entry->group, now);
    error_clear(&error);
    entry_retire(entry, NULL);
    step_ended(pool);
}

static void loaded_target(void *arg, int code, struct error *error, struct ch_table *now)
{
    struct entry *entry = arg;
    struct scratch_pool *pool = entry->pool;
    struct error other = {0};
    if (code != 0) {
        error_move(&other, error);
    } else if (pool->deadline_passed) {
        code = error_set(&other, CHXA_E_CANCELLED, "the node is stopping");
    } else if (strcmp(now->shape, entry->group->target.shape) != 0) {
        target_changed(entry, now);
        return;
    }
    if (code != 0) {
        create_failed(entry, &other, NULL);
        error_clear(&other);
        return;
    }
    ch_table_load(pool->client, &pool->caps, entry->lent.database, entry->lent.name,
                  pool->config.timeout_ms, loaded_self, entry);
}

static void database_made(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    entry->request = NULL;
    if (answer->code == 0) {
        create_statement(entry);
        return;
    }
    struct error error = {0};
    error_move(&error, answer->error);
    create_failed(entry, &error, NULL);
    error_clear(&error);
}

static void created(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    struct scratch_pool *pool = entry->pool;
    entry->request = NULL;
    if (answer->code == 0) {
        const struct ch_table *target = &entry->group->target;
        ch_table_load(pool->client, &pool->caps, target->database, target->table,
                      pool->config.timeout_ms, loaded_target, entry);
        return;
    }
    if (answer->code == CHXA_E_CLICKHOUSE_REJECTED && answer->ch_code == CH_UNKNOWN_SCHEMA &&
        !entry->database_made) {
        /* Somebody dropped our database. */
        entry->database_made = true;
        struct buf sql = {0};
        buf_puts(&sql, "CREATE DATABASE IF NOT EXISTS ");
        sql_identifier(&sql, pool->database);
        entry_query(entry, buf_str(&sql), NULL, NULL, 0, database_made);
        buf_clear(&sql);
        return;
    }
    if (answer->code == CHXA_E_CLICKHOUSE_REJECTED) {
        create_rejected(entry, answer);
        return;
    }
    struct error error = {0};
    error_move(&error, answer->error);
    if (error.code == CHXA_E_CLICKHOUSE_UNAVAILABLE) { /* never sent: there is no table */
        scratch_fail_waiter(entry->group, pool, &error);
        entry_free(entry);
        step_ended(pool);
    } else {
        create_failed(entry, &error, entry->lent.name);
    }
    error_clear(&error);
}

static void create_statement(struct entry *entry)
{
    struct buf ddl = {0};
    ch_table_scratch_ddl(&entry->group->target, &entry->pool->caps, entry->lent.database,
                         entry->lent.name, &ddl);
    /* The table's name serves as the query id: as unique, and of no use to anybody else. */
    entry_query(entry, buf_str(&ddl), entry->lent.name, entry->pool->caps.create_params,
                entry->pool->caps.n_create_params, created);
    buf_clear(&ddl);
}

void entry_create(struct scratch_pool *pool, struct group *group)
{
    struct entry *entry = mem_alloc(sizeof *entry);
    entry->pool = pool;
    entry->group = group;
    entry->fresh = true;
    entry->state = ENTRY_CREATING;
    entry->since_ms = clock_monotonic_ms();
    entry->retry_ms = RETRY_MS_MIN;
    entry->lent.database = mem_strdup(pool->database);
    entry->lent.name = mem_printf("s_%" PRIx64 "_%" PRIu64, pool->name_token, ++pool->name_number);
    entry->lent.old_syntax = group->target.old_syntax;
    entry->next = pool->entries;
    pool->entries = entry;
    pool->n_entries++;
    create_statement(entry);
}

/* ---- preparing ---- */

static void list_parts(uv_work_t *work)
{
    struct entry *entry = work->data;
    entry->work_code = part_list_read(entry->lent.paths, entry->lent.n_paths,
                                      entry->lent.old_syntax, &entry->listed, &entry->work_error);
}

static void list_start(struct entry *entry);

static void truncated(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    struct scratch_pool *pool = entry->pool;
    entry->request = NULL;
    if (answer->code == 0) {
        pool->truncated++;
        entry->truncated = true;
        list_start(entry);
        return;
    }
    /* Also when it was refused: a table that cannot be emptied is of no use. */
    bool known = chxa_error_outcome_known(answer->code) && answer->code != CHXA_E_CANCELLED;
    entry_retire(entry, known ? NULL : entry->lent.name);
    step_ended(pool);
}

static void truncate_start(struct entry *entry)
{
    struct ch_param params[SCRATCH_DROP_PARAMS_MAX];
    size_t n_params = scratch_drop_params(&entry->pool->caps, params);
    struct buf sql = {0};
    buf_puts(&sql, "TRUNCATE TABLE ");
    sql_table(&sql, entry->lent.database, entry->lent.name);
    entry_query(entry, buf_str(&sql), entry->lent.name, params, n_params, truncated);
    buf_clear(&sql);
}

/* True when the table must be emptied before it is lent. */
static bool needs_truncate(const struct entry *entry)
{
    size_t n = entry->listed.n_entries;
    if (entry->lent.old_syntax)
        return n > 0;
    return n > entry->parts_floor && n - entry->parts_floor > entry->pool->config.parts_max;
}

/* Where databases drop at once (Atomic), TRUNCATE writes an empty part for each that it takes away: for a
 * hundred parts that is 20 times the work of DROP and CREATE (26.7). One part of old syntax is not. */
static bool dropped_sooner(const struct entry *entry)
{
    return entry->pool->caps.has_drop_sync && !entry->lent.old_syntax;
}

/* entry->listed is what the table holds. */
static void parts_known(struct entry *entry)
{
    struct scratch_pool *pool = entry->pool;
    if (needs_truncate(entry) && !entry->truncated && !pool->closing) {
        part_list_clear(&entry->listed);
        if (dropped_sooner(entry))
            entry_retire(entry, NULL);
        else
            truncate_start(entry);
    } else if (entry->lent.old_syntax && entry->listed.n_entries > 0) {
        /* A merge could mix what is left into the next write's parts. */
        entry_retire(entry, NULL);
    } else {
        part_list_clear(&entry->lent.before);
        entry->lent.before = entry->listed;
        entry->listed = (struct part_list){0};
        if (entry->truncated)
            entry->parts_floor = entry->lent.before.n_entries;
        entry_set_state(entry, ENTRY_IDLE);
        if (pool->closing && !pool->deadline_passed)
            entry_drop(entry);
    }
}

static void listed(uv_work_t *work, int status)
{
    struct entry *entry = work->data;
    struct scratch_pool *pool = entry->pool;
    if (status != 0 && entry->work_code == 0)
        entry->work_code = error_set(&entry->work_error, CHXA_E_CANCELLED, "stopping");
    if (entry->work_code != 0) {
        if (entry->fresh)
            scratch_fail_waiter(entry->group, pool, &entry->work_error);
        entry_retire(entry, NULL);
    } else {
        parts_known(entry);
    }
    step_ended(pool);
}

static void list_start(struct entry *entry)
{
    entry->work_code = 0;
    error_clear(&entry->work_error);
    part_list_clear(&entry->listed);
    entry->work.data = entry;
    int queued = uv_queue_work(entry->pool->loop, &entry->work, list_parts, listed);
    assert(queued == 0);
    (void)queued;
}

void entry_prepare(struct entry *entry, struct part_list *now)
{
    entry_set_state(entry, ENTRY_PREPARING);
    entry->truncated = false;
    if (now == NULL) {
        list_start(entry);
        return;
    }
    part_list_clear(&entry->listed);
    entry->listed = *now;
    *now = (struct part_list){0};
    parts_known(entry);
}

/* ---- the end ---- */

size_t scratch_drop_params(const struct ch_caps *caps, struct ch_param *ret_params)
{
    size_t n = 0;
    if (caps->has_drop_sync)
        ret_params[n++] =
            (struct ch_param){"database_atomic_wait_for_drop_and_detach_synchronously", "1"};
    if (caps->has_drop_limits) { /* what is dropped here is never anybody's data */
        ret_params[n++] = (struct ch_param){"max_table_size_to_drop", "0"};
        ret_params[n++] = (struct ch_param){"max_partition_size_to_drop", "0"};
    }
    return n;
}

void entry_retire(struct entry *entry, const char *query_id)
{
    mem_replace(&entry->query_id, query_id && *query_id ? query_id : NULL);
    entry->retry_at_ms = clock_monotonic_ms();
    entry->retry_ms = RETRY_MS_MIN;
    entry_set_state(entry, ENTRY_RETIRED);
    /* A closing pool gives up what it cannot drop in time. */
    if (!entry->pool->deadline_passed && (entry->query_id == NULL || entry->pool->closing))
        entry_reap(entry);
}

static void retire_again(struct entry *entry)
{
    entry_set_state(entry, ENTRY_RETIRED);
    entry->retry_at_ms = clock_monotonic_ms() + entry->retry_ms;
    entry->retry_ms = entry->retry_ms * 2 > RETRY_MS_MAX ? RETRY_MS_MAX : entry->retry_ms * 2;
}

static void dropped(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    struct scratch_pool *pool = entry->pool;
    entry->request = NULL;
    if (answer->code == 0 || answer->ch_code == CH_UNKNOWN_TABLE ||
        answer->ch_code == CH_UNKNOWN_SCHEMA) {
        pool->dropped++;
        entry_free(entry);
    } else {
        log_debug("scratch table not dropped", "name=%s error=\"%s\"", entry->lent.name,
                  error_message(answer->error));
        retire_again(entry);
    }
    step_ended(pool);
}

void entry_drop(struct entry *entry)
{
    struct ch_param params[SCRATCH_DROP_PARAMS_MAX];
    size_t n_params = scratch_drop_params(&entry->pool->caps, params);
    struct buf sql = {0};
    entry_set_state(entry, ENTRY_DROPPING);
    buf_puts(&sql, "DROP TABLE IF EXISTS ");
    sql_table(&sql, entry->lent.database, entry->lent.name);
    entry_query(entry, buf_str(&sql), NULL, params, n_params, dropped);
    buf_clear(&sql);
}

static void processes_seen(void *arg, const struct ch_answer *answer)
{
    struct entry *entry = arg;
    struct scratch_pool *pool = entry->pool;
    entry->request = NULL;
    if (answer->code == 0 && strcmp(answer->body, "0\n") == 0 && !pool->deadline_passed) {
        mem_replace(&entry->query_id, NULL);
        entry_drop(entry);
        return;
    }
    retire_again(entry);
    step_ended(pool);
}

void entry_reap(struct entry *entry)
{
    assert(entry->state == ENTRY_RETIRED && entry->request == NULL);
    if (entry->query_id == NULL) {
        entry_drop(entry);
        return;
    }
    struct buf sql = {0};
    buf_puts(&sql, "SELECT count() FROM system.processes WHERE query_id = ");
    sql_string(&sql, entry->query_id);
    buf_puts(&sql, " FORMAT TSV");
    entry_query(entry, buf_str(&sql), NULL, NULL, 0, processes_seen);
    buf_clear(&sql);
}
