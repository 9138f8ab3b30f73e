/* SPDX-License-Identifier: Apache-2.0
 *
 * See budget.h.
 */
#include "base/budget.h"

#include <assert.h>

bool budget_take(struct budget *budget, size_t bytes)
{
    return budget_take_leaving(budget, bytes, 0);
}

bool budget_take_leaving(struct budget *budget, size_t bytes, size_t bytes_left)
{
    if (budget == NULL)
        return true;
    size_t may = budget->bytes_max > bytes_left ? budget->bytes_max - bytes_left : 0;
    if (budget->bytes > may || bytes > may - budget->bytes) {
        budget->short_of = true;
        return false;
    }
    budget->bytes += bytes;
    return true;
}

void budget_take_anyway(struct budget *budget, size_t bytes)
{
    if (budget)
        budget->bytes += bytes;
}

void budget_give(struct budget *budget, size_t bytes)
{
    if (budget == NULL)
        return;
    assert(bytes <= budget->bytes);
    budget->bytes -= bytes;
    if (bytes && budget->short_of) {
        budget->short_of = false;
        if (budget->on_room)
            budget->on_room(budget->on_room_arg);
    }
}

bool budget_hold(struct budget *budget, size_t *held, size_t bytes)
{
    if (bytes > *held && !budget_take(budget, bytes - *held))
        return false;
    if (bytes < *held)
        budget_give(budget, *held - bytes);
    *held = bytes;
    return true;
}
