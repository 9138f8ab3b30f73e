/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks. Wall time is for records and people; monotonic time for every deadline. Any
 * thread.
 */
#ifndef CHXA_BASE_CLOCK_H
#define CHXA_BASE_CLOCK_H

#include <stdint.h>

int64_t clock_wall_ms(void);
uint64_t clock_monotonic_ms(void);
uint64_t clock_monotonic_us(void);

#endif
