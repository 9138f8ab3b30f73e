/* SPDX-License-Identifier: Apache-2.0
 *
 * See table_cache.h. A request looks at the definition's file on a worker ("look"), then takes what
 * is known, or asks ClickHouse; the look before the question and the one that ch_table_load ends
 * with must have seen the same file for the answer to be kept.
 */
#include "ch/table_cache.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define ENTRIES_MAX 4096u /* then the oldest goes */

struct known {
    TAILQ_ENTRY(known) link;
    struct ch_table table;
    uint64_t loaded_ms;
    bool sure; /* the definition is that of table.stamp's file */
};

struct table_cache {
    struct ch_client *client;
    TAILQ_HEAD(known_list, known) known; /* the youngest first */
    size_t n_known, n_asking;
};

struct asking {
    struct table_cache *cache;
    const struct ch_caps *caps;
    enum table_ask ask;
    char *database, *table;
    uint64_t timeout_ms;
    ch_table_cb *done;
    void *arg;
    uv_work_t work;
    char *fault_step;              /* whose question it is, until it is asked */
    char *definition, *table_path; /* of the look */
    struct table_stamp before;     /* zero: there was no look, or nothing to see */
};

struct table_cache *table_cache_new(struct ch_client *client)
{
    struct table_cache *cache = mem_alloc(sizeof *cache);
    cache->client = client;
    TAILQ_INIT(&cache->known);
    return cache;
}

static void forget(struct table_cache *cache, struct known *known)
{
    if (known == NULL)
        return;
    TAILQ_REMOVE(&cache->known, known, link);
    cache->n_known--;
    ch_table_clear(&known->table);
    free(known);
}

void table_cache_free(struct table_cache *cache)
{
    if (cache == NULL)
        return;
    assert(cache->n_asking == 0);
    while (!TAILQ_EMPTY(&cache->known))
        forget(cache, TAILQ_FIRST(&cache->known));
    free(cache);
}

static struct known *find(const struct table_cache *cache, const char *database, const char *table)
{
    struct known *known;
    TAILQ_FOREACH (known, &cache->known, link)
        if (strcmp(known->table.table, table) == 0 && strcmp(known->table.database, database) == 0)
            return known;
    return NULL;
}

/* ---- the end ---- */

static void answer(struct asking *asking, int code, struct error *error, struct ch_table *table)
{
    asking->cache->n_asking--;
    asking->done(asking->arg, code, error, table);
    free(asking->database);
    free(asking->table);
    free(asking->definition);
    free(asking->table_path);
    free(asking->fault_step);
    free(asking);
}

static void answer_known(struct asking *asking, const struct known *known)
{
    struct ch_table copy;
    struct error none = {0};
    ch_table_copy(&known->table, &copy);
    answer(asking, 0, &none, &copy);
    ch_table_clear(&copy);
}

/* ---- the whole question ---- */

static void loaded(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct asking *asking = arg;
    struct table_cache *cache = asking->cache;
    forget(cache, find(cache, asking->database, asking->table));
    if (code == 0) {
        struct known *known = mem_alloc(sizeof *known);
        ch_table_copy(table, &known->table);
        known->loaded_ms = clock_monotonic_ms();
        known->sure = !table->replicated && table_stamp_equal(&asking->before, &table->stamp) &&
                      table_stamp_settled(&table->stamp, clock_wall_ms());
        TAILQ_INSERT_HEAD(&cache->known, known, link);
        if (++cache->n_known > ENTRIES_MAX)
            forget(cache, TAILQ_LAST(&cache->known, known_list));
    }
    answer(asking, code, error, table);
}

static void ask_all(struct asking *asking)
{
    ch_table_load(asking->cache->client, asking->caps, asking->database, asking->table,
                  asking->timeout_ms, loaded, asking);
}

/* ---- what is known ---- */

/* What the look saw is what is known, and that may be used. */
static struct known *find_same(const struct asking *asking)
{
    struct known *known = find(asking->cache, asking->database, asking->table);
    bool same = known && known->sure && table_stamp_equal(&asking->before, &known->table.stamp) &&
                clock_monotonic_ms() - known->loaded_ms < TABLE_CACHE_MS;
    return same ? known : NULL;
}

static void views_loaded(void *arg, int code, struct error *error, char **views, size_t n_views)
{
    struct asking *asking = arg;
    struct known *known = find_same(asking);
    if (code == CHXA_E_TARGET_NOT_FOUND || (code == 0 && known == NULL)) {
        ask_all(asking); /* the whole question says what has become of it */
        return;
    }
    if (code) {
        struct ch_table none = {0};
        answer(asking, code, error, &none);
        return;
    }
    struct ch_table *table = &known->table;
    for (size_t i = 0; i < table->n_views; i++)
        free(table->views[i]);
    free(table->views);
    table->views = mem_array(n_views, sizeof *table->views);
    for (table->n_views = 0; table->n_views < n_views; table->n_views++)
        table->views[table->n_views] = mem_strdup(views[table->n_views]);
    answer_known(asking, known);
}

/* ---- the look ---- */

static void look(uv_work_t *work)
{
    struct asking *asking = work->data;
    table_stamp_read(asking->definition, asking->table_path, &asking->before);
}

static void looked(uv_work_t *work, int status)
{
    struct asking *asking = work->data;
    const struct known *known = status == 0 && asking->ask != TABLE_ANEW ? find_same(asking) : NULL;
    if (known && asking->ask == TABLE_KNOWN) {
        answer_known(asking, known);
        return;
    }
    fault_step_resume(asking->fault_step);
    asking->fault_step = NULL;
    if (known)
        ch_table_views_load(asking->cache->client, asking->database, asking->table,
                            asking->timeout_ms, views_loaded, asking);
    else
        ask_all(asking);
    fault_step(NULL, NULL);
}

void table_cache_load(struct table_cache *cache, const struct ch_caps *caps, enum table_ask ask,
                      const char *database, const char *table, uint64_t timeout_ms,
                      ch_table_cb *done, void *arg)
{
    struct asking *asking = mem_alloc(sizeof *asking);
    *asking = (struct asking){.cache = cache,
                              .caps = caps,
                              .ask = ask,
                              .database = mem_strdup(database),
                              .table = mem_strdup(table),
                              .timeout_ms = timeout_ms,
                              .done = done,
                              .arg = arg};
    cache->n_asking++;
    const struct known *known = find(cache, database, table);
    if (known == NULL || known->table.definition == NULL) {
        ask_all(asking);
        return;
    }
    asking->definition = mem_strdup(known->table.definition);
    asking->table_path = mem_strdup(known->table.disks[0].table_path);
    asking->fault_step = fault_step_take();
    asking->work.data = asking;
    int queued = uv_queue_work(ch_client_loop(cache->client), &asking->work, look, looked);
    assert(queued == 0);
    (void)queued;
}
