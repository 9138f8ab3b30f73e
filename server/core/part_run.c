/* SPDX-License-Identifier: Apache-2.0
 *
 * See part_run.h.
 */
#include "core/part_run.h"

#include <stdlib.h>

static int number_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void part_run_sort(uint64_t *numbers, size_t n)
{
    if (n > 1)
        qsort(numbers, n, sizeof *numbers, number_compare);
}

bool part_run_parted(const uint64_t *numbers, size_t n, uint64_t other, size_t *ret_breaks)
{
    size_t low = 0, high = n; /* the first number that is not below `other` is in between */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (numbers[middle] < other)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || low == n || numbers[low] == other)
        return false;
    *ret_breaks = low;
    return true;
}

size_t part_run_make(const uint64_t *numbers, size_t n, const bool *breaks,
                     struct part_run *ret_runs)
{
    size_t n_runs = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || breaks[i])
            ret_runs[n_runs++].first = numbers[i];
        ret_runs[n_runs - 1].last = numbers[i];
    }
    return n_runs;
}

static int run_compare(const void *left, const void *right)
{
    return number_compare(&((const struct part_run *)left)->first,
                          &((const struct part_run *)right)->first);
}

size_t part_run_join(struct part_run *runs, size_t n)
{
    if (n > 1)
        qsort(runs, n, sizeof *runs, run_compare);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct part_run *last = kept ? &runs[kept - 1] : NULL;
        if (last && (runs[i].first <= last->last || runs[i].first - last->last == 1)) {
            if (runs[i].last > last->last)
                last->last = runs[i].last;
        } else {
            runs[kept++] = runs[i];
        }
    }
    return kept;
}

bool part_run_has(const struct part_run *runs, size_t n, uint64_t number)
{
    size_t low = 0, high = n; /* the first run that does not end below the number is in between */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (runs[middle].last < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && runs[low].first <= number;
}
