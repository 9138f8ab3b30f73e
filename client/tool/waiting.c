/* SPDX-License-Identifier: Apache-2.0
 *
 * The line that says that an answer is waited for.
 */
#include "waiting.h"

#include "text.h"
#include "tool.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_S 2u

static char *line; /* NULL: nothing is said */
static size_t line_bytes;

static void on_alarm(int number)
{
    int kept = errno;
    (void)number;
    (void)!write(STDERR_FILENO, line, line_bytes);
    errno = kept;
}

void waiting_prepare(const char *whom, unsigned deadline_ms)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    if (!isatty(STDERR_FILENO))
        return;
    char longest[32], *safe = text_safe(whom);
    text_duration(deadline_ms, longest, sizeof longest);
    line = tool_keep(tool_printf(
        "chxa: no answer yet from %s; waiting for %s at most (Ctrl-C ends it)\n", safe, longest));
    line_bytes = strlen(line);
    free(safe);
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
}

void waiting_begin(void)
{
    if (line)
        alarm(PATIENCE_S);
}

void waiting_end(void)
{
    if (line)
        alarm(0);
}
