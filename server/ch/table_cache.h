/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of target tables, so that ClickHouse need not be asked all of it for every
 * transaction: the whole question (ch_table_load) costs it several times an INSERT.
 *
 * Invariants: an answer out of memory is what ClickHouse would have said when the definition's file
 * was looked at, but for the views, which TABLE_VIEWS asks for. An entry is used for so long only as
 * the file is the one that stood there before and after the question (table_stamp.h), was settled
 * then, and at most TABLE_CACHE_MS: what no file shows (ClickHouse was started anew with another
 * configuration) is believed no longer than that. Replicated tables are always asked for: their
 * definition changes elsewhere first.
 *
 * Threads: the loop's; the look at the file is a worker's. Callbacks on a later turn, exactly once.
 */
#ifndef CHXA_CH_TABLE_CACHE_H
#define CHXA_CH_TABLE_CACHE_H

#include "ch/table.h"

#define TABLE_CACHE_MS 10000u

struct table_cache;

struct table_cache *table_cache_new(struct ch_client *client);
/* Nothing may be under way. NULL is fine. */
void table_cache_free(struct table_cache *cache);

enum table_ask {
    TABLE_ANEW,  /* the whole question, whatever is known */
    TABLE_KNOWN, /* the views may be old */
    TABLE_VIEWS, /* the views, too, are today's */
};

/* ch_table_load, or what is known. caps must stay until the callback. */
void table_cache_load(struct table_cache *cache, const struct ch_caps *caps, enum table_ask ask,
                      const char *database, const char *table, uint64_t timeout_ms,
                      ch_table_cb *done, void *arg);

#endif
