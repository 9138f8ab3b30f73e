/* SPDX-License-Identifier: Apache-2.0
 *
 * Time-outs to the millisecond: not before, and not later; whatever is done to the wall clock.
 */
#include "core/txn_time.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>

#define YEAR_MS (365LL * 24 * 3600 * 1000)

START_TEST(total_is_at_most_what_the_node_grants)
{
    ck_assert_uint_eq(txn_time_total_ms(0, 3600000), 3600000);
    ck_assert_uint_eq(txn_time_total_ms(1, 3600000), 1);
    ck_assert_uint_eq(txn_time_total_ms(3599999, 3600000), 3599999);
    ck_assert_uint_eq(txn_time_total_ms(3600001, 3600000), 3600000);
    ck_assert_uint_eq(txn_time_total_ms(INT64_MAX, 3600000), 3600000);
}
END_TEST

START_TEST(what_is_left)
{
    ck_assert_uint_eq(txn_time_left_ms(1000, 1000, 500), 500);
    ck_assert_uint_eq(txn_time_left_ms(1000, 1001, 500), 499);
    ck_assert_uint_eq(txn_time_left_ms(1000, 1499, 500), 1);
    ck_assert_uint_eq(txn_time_left_ms(1000, 1500, 500), 0);
    ck_assert_uint_eq(txn_time_left_ms(1000, 1000 + YEAR_MS, 500), 0);
    /* begun in the future: the wall clock was set back meanwhile */
    ck_assert_uint_eq(txn_time_left_ms(1000 + YEAR_MS, 1000, 500), 500);
    ck_assert_uint_eq(txn_time_left_ms(INT64_MAX, 0, 500), 500);
    ck_assert_uint_eq(txn_time_left_ms(0, INT64_MAX, 500), 0);
}
END_TEST

START_TEST(total_to_the_millisecond)
{
    struct txn_times times = {.expires_ms = 5000, .touched_ms = 4990, .idle_ms = 100};
    ck_assert_int_eq(txn_time_check(times, 4999), TXN_IN_TIME);
    ck_assert_int_eq(txn_time_check(times, 5000), TXN_OVER_TOTAL);
    ck_assert_int_eq(txn_time_check(times, UINT64_MAX), TXN_OVER_TOTAL);
}
END_TEST

START_TEST(idle_to_the_millisecond)
{
    struct txn_times times = {.expires_ms = 100000, .touched_ms = 4000, .idle_ms = 100};
    ck_assert_int_eq(txn_time_check(times, 4000), TXN_IN_TIME);
    ck_assert_int_eq(txn_time_check(times, 4099), TXN_IN_TIME);
    ck_assert_int_eq(txn_time_check(times, 4100), TXN_OVER_IDLE);
    /* touched by a thread that read the clock a little later */
    ck_assert_int_eq(txn_time_check(times, 3999), TXN_IN_TIME);
    times.idle_ms = 0;
    ck_assert_int_eq(txn_time_check(times, 99999), TXN_IN_TIME);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("txn_time");
    TCase *t = tcase_create("txn_time");
    tcase_add_test(t, total_is_at_most_what_the_node_grants);
    tcase_add_test(t, what_is_left);
    tcase_add_test(t, total_to_the_millisecond);
    tcase_add_test(t, idle_to_the_millisecond);
    suite_add_tcase(s, t);
    return suite_run(s);
}
