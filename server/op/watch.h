/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks ClickHouse for a sign of life every few seconds, so that /readyz and the metrics tell when it
 * is away, also while nobody writes; and so that what waits for it goes on when it is back. Nothing
 * else hangs on it: a request meets ClickHouse itself.
 *
 * Threads: the loop's.
 */
#ifndef CHXA_OP_WATCH_H
#define CHXA_OP_WATCH_H

#include "ch/ch_http.h"

struct watch;

/* Begins to ask; ClickHouse counts as there until it was away for down_ms (0: for ever). back:
 * called when it answers after it did not. The client must outlive it. */
struct watch *watch_start(uv_loop_t *loop, struct ch_client *client, uint64_t down_ms,
                          void (*back)(void *arg), void *arg);
/* Asks no more; frees itself, at the latest while the client is being closed. */
void watch_stop(struct watch *watch);

/* NULL, or a sentence: since when ClickHouse does not answer, and with what. watch may be NULL.
 * Valid until the next turn. */
const char *watch_why_down(const struct watch *watch);

#endif
