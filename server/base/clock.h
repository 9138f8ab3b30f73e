/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks. Every reading of time in the server comes from here (a lint holds it to that), so
 * that a test can set them.
 *
 *   wall       what people and records say. It may jump, in both directions, whenever somebody or
 *              NTP sets it, so no deadline hangs on it while the process runs
 *   monotonic  every deadline. It begins anew at each boot, so nothing of it is ever stored
 *
 * Threads: any.
 */
#ifndef CHXA_BASE_CLOCK_H
#define CHXA_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_wall_ms(void);
uint64_t clock_monotonic_ms(void);
uint64_t clock_monotonic_us(void);

/*
 * For tests: from now on the clocks run so far ahead (negative: behind) of the machine's. The
 * monotonic one must not be set back by more than it has run.
 *
 * In a build with fault points (-DCHXA_FAULTS=ON) the environment's CHXA_CLOCK_FILE may name a file
 * that holds the two numbers, "wall_ms monotonic_ms"; it is read again several times a second, so
 * that a test sets the clocks of a running chxad. Replace it by rename.
 */
void clock_shift(int64_t wall_ms, int64_t monotonic_ms);

#endif
