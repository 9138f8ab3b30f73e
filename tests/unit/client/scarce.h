/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out at the n-th allocation, for the tests of the client library: its own allocations, and whichever else
 * are made through scarce_allow(). One translation unit includes this.
 */
#ifndef TESTS_UNIT_CLIENT_SCARCE_H
#define TESTS_UNIT_CLIENT_SCARCE_H

#include "client/src/internal.h"

#include <check.h>

#define SCARCE_ROUNDS_MAX 400

static atomic_int scarce_left = -1; /* allocations until one fails; negative: none does */
static atomic_bool scarce_hit;      /* one has failed */

static bool scarce_allow(void)
{
    if (atomic_load(&scarce_left) < 0 || atomic_fetch_sub(&scarce_left, 1) > 0)
        return true;
    atomic_store(&scarce_hit, true);
    return false;
}

static bool scarce_hook(size_t bytes)
{
    (void)bytes;
    return scarce_allow();
}

/* From here on the library's allocations count. */
static void scarce_setup(void)
{
    cx_alloc_hook = scarce_hook;
    atomic_store(&scarce_left, -1);
}

/*
 * Runs the call with the 1st, 2nd, 3rd … allocation failing until none is hit: each time it succeeds all the same or says
 * NO_MEMORY, and in the end it works. Returns how many failed.
 */
static int scarce_fail_in_turn(int (*call)(void), const struct chxa_error *error)
{
    int round = 0;
    for (; round < SCARCE_ROUNDS_MAX; round++) {
        atomic_store(&scarce_hit, false);
        atomic_store(&scarce_left, round);
        int code = call();
        atomic_store(&scarce_left, -1);
        if (!atomic_load(&scarce_hit)) {
            ck_assert_msg(code == 0, "unhindered: %s: %s", chxa_error_name(code), error->message);
            break;
        }
        ck_assert_msg(code == 0 || code == CHXA_ERR_NO_MEMORY, "allocation %d: %s: %s", round,
                      chxa_error_name(code), error->message);
    }
    ck_assert_int_gt(round, 0);
    ck_assert_int_lt(round, SCARCE_ROUNDS_MAX);
    return round;
}

#endif
