/* SPDX-License-Identifier: Apache-2.0
 *
 * See txn_time.h.
 */
#include "core/txn_time.h"

uint64_t txn_time_total_ms(int64_t asked_ms, uint64_t granted_ms)
{
    return asked_ms > 0 && (uint64_t)asked_ms < granted_ms ? (uint64_t)asked_ms : granted_ms;
}

uint64_t txn_time_left_ms(int64_t created_ms, int64_t wall_ms, uint64_t total_ms)
{
    if (wall_ms <= created_ms)
        return total_ms;
    uint64_t age_ms = (uint64_t)wall_ms - (uint64_t)created_ms;
    return age_ms < total_ms ? total_ms - age_ms : 0;
}

enum txn_overdue txn_time_check(struct txn_times times, uint64_t now_ms)
{
    if (now_ms >= times.expires_ms)
        return TXN_OVER_TOTAL;
    if (times.idle_ms && now_ms >= times.touched_ms && now_ms - times.touched_ms >= times.idle_ms)
        return TXN_OVER_IDLE;
    return TXN_IN_TIME;
}
