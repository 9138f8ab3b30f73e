/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit on memory that many objects share: each says what it is about to hold, and is refused, or waits, when that is
 * more than is left. A bookkeeper only: it allocates nothing.
 *
 * Threads: the loop's. Wherever a budget is a pointer, NULL is one without a limit.
 */
#ifndef CHXA_BASE_BUDGET_H
#define CHXA_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct budget {
    size_t bytes_max;
    size_t bytes; /* taken; over bytes_max only by budget_take_anyway */
    /* Called inside budget_give when somebody was refused since the last call: must only note it. One user. */
    void (*on_room)(void *arg);
    void *on_room_arg;
    bool short_of; /* on_room is owed */
};

/* False: it would be too much; nothing is taken. */
bool budget_take(struct budget *budget, size_t bytes);
/* The same, and so much must be left then. */
bool budget_take_leaving(struct budget *budget, size_t bytes, size_t bytes_left);
/* For what may not be refused. */
void budget_take_anyway(struct budget *budget, size_t bytes);
void budget_give(struct budget *budget, size_t bytes);
/* Makes a holder's *held into bytes, up or down. False: that would be too much; *held is as it was. */
bool budget_hold(struct budget *budget, size_t *held, size_t bytes);

#endif
