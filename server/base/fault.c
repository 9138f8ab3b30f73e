/* SPDX-License-Identifier: Apache-2.0
 *
 * See fault.h.
 */
#include "base/fault.h"

#ifdef CHXA_FAULTS

#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void trace(const char *name)
{
    const char *path = getenv("CHXA_FAULT_TRACE");
    if (path == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    char *line = mem_printf("%s\n", name);
    ssize_t written = write(fd, line, strlen(line));
    (void)written;
    free(line);
    close(fd);
}

void fault_visit(const char *operation, const char *step, enum fault_place place)
{
    static const char *const places[] = {"before", "sent", "after"};
    static unsigned long visits;
    char *name = mem_printf("%s.%s:%s", operation, step, places[place]);
    trace(name);
    const char *wanted = getenv("CHXA_FAULT");
    size_t len = strlen(name);
    if (wanted != NULL && strncmp(wanted, name, len) == 0 &&
        (wanted[len] == '\0' || wanted[len] == ':')) {
        unsigned long nth = wanted[len] == ':' ? strtoul(wanted + len + 1, NULL, 10) : 1;
        if (++visits == nth)
            raise(SIGKILL);
    }
    free(name);
}

#else

/* ISO C wants something in a translation unit. */
extern const char fault_points_are_compiled_out;
const char fault_points_are_compiled_out = 1;

#endif
