/* SPDX-License-Identifier: Apache-2.0
 *
 * Fault points: places named "<operation>.<step>" × before/sent/after where a test can make the
 * process die. Compiled in with -DCHXA_FAULTS=ON only; a release has none.
 *
 * CHXA_FAULT="commit.attach:after:2" in the environment: at the second visit of that place the
 * process ends as by kill -9. CHXA_FAULT_TRACE=FILE: the name of each place visited is appended to
 * FILE, so that a test can hold the visited places against the tables of steps.
 */
#ifndef CHXA_BASE_FAULT_H
#define CHXA_BASE_FAULT_H

enum fault_place { FAULT_BEFORE, FAULT_SENT, FAULT_AFTER };

#ifdef CHXA_FAULTS
void fault_visit(const char *operation, const char *step, enum fault_place place);
#else
static inline void fault_visit(const char *operation, const char *step, enum fault_place place)
{
    (void)operation;
    (void)step;
    (void)place;
}
#endif

#endif
