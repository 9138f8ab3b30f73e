/* SPDX-License-Identifier: Apache-2.0
 *
 * See clock.h.
 */
#include "base/clock.h"

#include <assert.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic int64_t shift_wall_ms, shift_monotonic_ms;

void clock_shift(int64_t wall_ms, int64_t monotonic_ms)
{
    atomic_store(&shift_wall_ms, wall_ms);
    atomic_store(&shift_monotonic_ms, monotonic_ms);
}

static uint64_t machine_us(clockid_t clock)
{
    struct timespec now;
    int rc = clock_gettime(clock, &now);
    assert(rc == 0);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

#ifdef CHXA_FAULTS

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LOOK_US 20000u

/* Two threads that look at once read the same. */
static void look_at_file(void)
{
    static _Atomic uint64_t looked_us;
    const char *path = getenv("CHXA_CLOCK_FILE");
    uint64_t now_us = machine_us(CLOCK_MONOTONIC);
    if (path == NULL || now_us - atomic_load(&looked_us) < LOOK_US)
        return;
    atomic_store(&looked_us, now_us);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    int64_t wall_ms, monotonic_ms;
    if (fscanf(file, "%" SCNd64 " %" SCNd64, &wall_ms, &monotonic_ms) == 2)
        clock_shift(wall_ms, monotonic_ms);
    fclose(file);
}

#else

static void look_at_file(void)
{
}

#endif

int64_t clock_wall_ms(void)
{
    look_at_file();
    return (int64_t)(machine_us(CLOCK_REALTIME) / 1000u) + atomic_load(&shift_wall_ms);
}

uint64_t clock_monotonic_us(void)
{
    look_at_file();
    return machine_us(CLOCK_MONOTONIC) + (uint64_t)atomic_load(&shift_monotonic_ms) * 1000u;
}

uint64_t clock_monotonic_ms(void)
{
    return clock_monotonic_us() / 1000u;
}
