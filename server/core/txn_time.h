/* SPDX-License-Identifier: Apache-2.0
 *
 * How old an Initialized transaction may get. Pure; the times are given.
 *
 * Records carry wall time, because nothing else means anything to another process. But a wall clock
 * is set now and then, and that must neither end a young transaction nor keep an old one for ever.
 * So the wall clock is asked once, when the process learns of the transaction: what is then left of
 * its time becomes a deadline on the monotonic clock, which is the one that counts. A record that
 * was begun in the future has all its time left, and no more.
 */
#ifndef CHXA_CORE_TXN_TIME_H
#define CHXA_CORE_TXN_TIME_H

#include <stdint.h>

/* The total time-out: what the begin asked for (0: nothing), at most what the node grants. */
uint64_t txn_time_total_ms(int64_t asked_ms, uint64_t granted_ms);

/* Of which is left for a transaction begun at created_ms, on the wall clock's wall_ms. */
uint64_t txn_time_left_ms(int64_t created_ms, int64_t wall_ms, uint64_t total_ms);

enum txn_overdue { TXN_IN_TIME, TXN_OVER_TOTAL, TXN_OVER_IDLE };

/* All on the monotonic clock. A transaction that writes just now is not idle: idle_ms 0. */
struct txn_times {
    uint64_t expires_ms; /* end of the total time-out */
    uint64_t touched_ms; /* last request */
    uint64_t idle_ms;    /* limit; 0: none */
};
enum txn_overdue txn_time_check(struct txn_times times, uint64_t now_ms);

#endif
