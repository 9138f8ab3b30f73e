/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends the process, as kill -9 does, at any place of its code that a test names. The code is compiled with
 * -fsanitize-coverage=trace-pc, which calls the function below at the head of every basic block: between any two lines that
 * may be told apart. Nothing in the code itself knows of it.
 *
 *   CHXA_KILL_PLACE=K    at the K-th place, counted in the order of their first visits
 *   CHXA_KILL_VISIT=N    at its N-th visit; 1 when it is not said
 *   CHXA_KILL_FROM=A, CHXA_KILL_TO=B    at the first place with an address in [A, B), as nm has it: in a function
 *   CHXA_KILL_LOG=FILE   appends one line: "killed <place> <places seen>" or, at an orderly end, "ended 0 <places seen>"; a
 *                        place is an address for addr2line
 *
 * Any thread may call it. It makes no allocation and is not traced itself.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PLACES 65536u /* a power of two, several times the number of basic blocks */

extern const char __executable_start; /* the linker's */
void __sanitizer_cov_trace_pc(void);

static atomic_flag lock = ATOMIC_FLAG_INIT;
static uintptr_t seen[PLACES];
static unsigned long places, kill_place, kill_from, kill_to;
static uintptr_t chosen;       /* the K-th place, once it was seen */
static unsigned long left = 1; /* visits of it until the end */
static int log_file = -1;
static int begun;

static unsigned long number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 0) : 0;
}

static void say(const char *what, uintptr_t place)
{
    char line[128];
    int length = snprintf(line, sizeof line, "%s %#lx %lu\n", what, (unsigned long)place, places);
    if (log_file >= 0 && length > 0 && write(log_file, line, (size_t)length) < 0)
        perror("CHXA_KILL_LOG");
}

static void at_end(void)
{
    say("ended", 0);
}

static void begin(void)
{
    begun = 1;
    kill_place = number_of("CHXA_KILL_PLACE");
    kill_from = number_of("CHXA_KILL_FROM");
    kill_to = number_of("CHXA_KILL_TO");
    unsigned long visit = number_of("CHXA_KILL_VISIT");
    left = visit ? visit : 1;
    const char *path = getenv("CHXA_KILL_LOG");
    if (path)
        log_file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    atexit(at_end);
}

static int is_new(uintptr_t place)
{
    uintptr_t at = (place * 2654435761u) % PLACES;
    while (seen[at] && seen[at] != place)
        at = (at + 1) % PLACES;
    int fresh = seen[at] == 0;
    seen[at] = place;
    return fresh;
}

void __sanitizer_cov_trace_pc(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)&__executable_start;
    while (atomic_flag_test_and_set(&lock))
        ;
    if (!begun)
        begin();
    if (is_new(place) && ++places == kill_place)
        chosen = place;
    if (!chosen && place >= kill_from && place < kill_to)
        chosen = place;
    if (place == chosen && --left == 0) {
        say("killed", place);
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    atomic_flag_clear(&lock);
}
