/* SPDX-License-Identifier: Apache-2.0
 *
 * A person at a terminal is told when an answer is long in coming: one line on standard error, two seconds into a call.
 *
 * It is an alarm: nothing else in this process may use SIGALRM. The line is made before, for the handler only writes it.
 */
#ifndef CHXA_TOOL_WAITING_H
#define CHXA_TOOL_WAITING_H

/* whom: the nodes' URLs; for how long at most. Without a terminal on standard error nothing is ever said. */
void waiting_prepare(const char *whom, unsigned deadline_ms);

/* Around a call that may take long. Not nested. Before waiting_prepare nothing is said. */
void waiting_begin(void);
void waiting_end(void);

#endif
