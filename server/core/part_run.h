/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of part numbers: what a commit leaves one marker for. A run means those of the transaction's
 * parts on one disk whose numbers lie in it; other transactions' numbers may lie between, for a
 * marker says nothing about them. Pure.
 */
#ifndef CHXA_CORE_PART_RUN_H
#define CHXA_CORE_PART_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct part_run {
    uint64_t first, last; /* both belong to it */
};

/* Sorts n numbers that are to be marked alike. */
void part_run_sort(uint64_t *numbers, size_t n);
/* Another part of the transaction on that disk: sets *ret_breaks to the index of the number before
 * which no run may go on, so that the part lies in none. False: it is one of the numbers (sorted),
 * or before or behind all of them. */
bool part_run_parted(const uint64_t *numbers, size_t n, uint64_t other, size_t *ret_breaks);
/* The runs of n numbers (sorted), a new one at each index with breaks. ret_runs has room for n. Returns how many. */
size_t part_run_make(const uint64_t *numbers, size_t n, const bool *breaks,
                     struct part_run *ret_runs);

/* Sorts runs and joins those that overlap or touch. Returns how many are left. */
size_t part_run_join(struct part_run *runs, size_t n);
/* runs: joined. */
bool part_run_has(const struct part_run *runs, size_t n, uint64_t number);

#endif
