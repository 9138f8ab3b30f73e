/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of part numbers, against a list of single numbers.
 */
#include "core/part_run.h"
#include "lib/suite.h"

#include <stdlib.h>

#define NUMBERS 40u

/* Some numbers are to be marked, some belong to other parts of the transaction, the rest to nobody: every one of the
 * first kind is in a run, none of the second. And there is no run more than that needs. */
START_TEST(runs_have_what_is_marked_and_nothing_else)
{
    srandom(1);
    for (int round = 0; round < 2000; round++) {
        enum { NOBODYS, MARKED, OTHERS } kinds[NUMBERS];
        uint64_t numbers[NUMBERS];
        struct part_run runs[NUMBERS];
        bool breaks[NUMBERS] = {false};
        size_t n = 0, needed = 0;
        bool open = false;
        for (size_t i = 0; i < NUMBERS; i++) {
            kinds[i] = (int)(random() % 3);
            if (kinds[i] == MARKED) {
                numbers[n++] = i;
                needed += !open;
                open = true;
            } else if (kinds[i] == OTHERS) {
                open = false;
            }
        }
        for (size_t i = n; i > 1; i--) {
            size_t with = (size_t)random() % i;
            uint64_t number = numbers[i - 1];
            numbers[i - 1] = numbers[with];
            numbers[with] = number;
        }
        part_run_sort(numbers, n);
        for (size_t i = 0; i < NUMBERS; i++) { /* the marked ones too: the record has them all */
            size_t at;
            if (kinds[i] != NOBODYS && part_run_parted(numbers, n, i, &at))
                breaks[at] = true;
        }
        size_t n_runs = part_run_make(numbers, n, breaks, runs);
        ck_assert_uint_eq(n_runs, needed);
        for (size_t i = 0; i < NUMBERS; i++) {
            if (kinds[i] != NOBODYS)
                ck_assert_int_eq(part_run_has(runs, n_runs, i), kinds[i] == MARKED);
        }
    }
}
END_TEST

START_TEST(joined_runs_have_the_same_numbers)
{
    srandom(2);
    for (int round = 0; round < 2000; round++) {
        struct part_run runs[8];
        bool in[NUMBERS + 2] = {false};
        size_t n = (size_t)random() % 9;
        for (size_t i = 0; i < n; i++) {
            runs[i].first = (uint64_t)random() % NUMBERS;
            runs[i].last = runs[i].first + (uint64_t)random() % (NUMBERS - runs[i].first);
            for (uint64_t number = runs[i].first; number <= runs[i].last; number++)
                in[number] = true;
        }
        size_t kept = part_run_join(runs, n);
        ck_assert_uint_le(kept, n);
        for (size_t i = 1; i < kept; i++)
            ck_assert_uint_gt(runs[i].first, runs[i - 1].last + 1);
        for (uint64_t number = 0; number < NUMBERS + 2; number++)
            ck_assert_int_eq(part_run_has(runs, kept, number), in[number]);
    }
}
END_TEST

START_TEST(none_and_the_largest)
{
    size_t at;
    struct part_run runs[] = {{5, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}, {0, 3}};
    ck_assert(!part_run_parted(NULL, 0, 7, &at));
    ck_assert_uint_eq(part_run_make(NULL, 0, NULL, NULL), 0);
    ck_assert(!part_run_has(NULL, 0, 7));
    ck_assert_uint_eq(part_run_join(NULL, 0), 0);
    ck_assert_uint_eq(part_run_join(runs, 3), 2);
    ck_assert(part_run_has(runs, 2, UINT64_MAX) && part_run_has(runs, 2, 0));
    ck_assert(!part_run_has(runs, 2, 4));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_run");
    TCase *tests = tcase_create("runs");
    tcase_add_test(tests, runs_have_what_is_marked_and_nothing_else);
    tcase_add_test(tests, joined_runs_have_the_same_numbers);
    tcase_add_test(tests, none_and_the_largest);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
