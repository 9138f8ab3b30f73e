/* SPDX-License-Identifier: Apache-2.0
 *
 * Forgets finished transactions when their retention is over, in the background and in batches:
 * this node's, and those of nodes that do not run. Until then a late retry gets the true answer.
 *
 * Threads: the loop's.
 */
#ifndef CHXA_OP_RETENTION_H
#define CHXA_OP_RETENTION_H

#include "store/store.h"

struct retention;

/* Starts looking, at once and then every twentieth of retention_ms (between 1 s and 1 h). A store
 * that is not ready, or fails, is asked again the next time. The store must outlive it. */
struct retention *retention_start(uv_loop_t *loop, struct store *store, const char *node,
                                  uint64_t retention_ms);
/* Starts nothing more; frees itself when the store has answered what is under way, at the latest
 * while the store is being closed. */
void retention_stop(struct retention *retention);

#endif
