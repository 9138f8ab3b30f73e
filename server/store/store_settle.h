/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes that settle an unknown outcome: the same calls as store.h, but STORE_UNKNOWN is followed
 * up by reading the record back and recognising our own operation (record->op_id for create and
 * cas, seq and write_id for add_write) until deadline_ms (monotonic clock, clock.h) passes. Only
 * then is STORE_UNKNOWN delivered. A create whose id exists with our own op_id is done; a cas that
 * finds our own op_id is done. While the store is not ready, a change waits for it until the
 * deadline (then UNAVAILABLE, or UNKNOWN if it had been sent). FENCED is known: whatever was lost
 * before was read back and not found.
 */
#ifndef CHXA_STORE_STORE_SETTLE_H
#define CHXA_STORE_STORE_SETTLE_H

#include "store/store.h"

void store_settle_create(struct store *store, const struct chxa_record *record,
                         uint64_t deadline_ms, store_result_cb *done, void *arg);
void store_settle_cas(struct store *store, const struct chxa_record *record,
                      const struct store_fence *fence, uint64_t deadline_ms, store_result_cb *done,
                      void *arg);
/* Like cas. OWNER_ALIVE is known: what was lost before was read back and not found. */
void store_settle_abandon(struct store *store, const struct chxa_record *record,
                          uint64_t deadline_ms, store_result_cb *done, void *arg);
void store_settle_add_write(struct store *store, const char *xid, int64_t version,
                            const struct store_fence *fence, const struct chxa_write *write,
                            uint64_t deadline_ms, store_result_cb *done, void *arg);
/* A removal whose answer was lost is done when the record is gone. */
void store_settle_remove(struct store *store, const char *xid, int64_t version,
                         uint64_t deadline_ms, store_result_cb *done, void *arg);
/* Raising twice is raising once: a lost answer is followed by the same request. */
void store_settle_sink_raise(struct store *store, const char *sink, uint64_t epoch,
                             uint64_t deadline_ms, store_sink_cb *done, void *arg);

#endif
