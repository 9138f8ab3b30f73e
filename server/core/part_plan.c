/* SPDX-License-Identifier: Apache-2.0
 *
 * See part_plan.h. An inode is in one place at a time, so on an honest disk the order of the
 * questions does not matter; where facts contradict each other, the earlier answer is the one that
 * cannot double rows.
 */
#include "core/part_plan.h"

enum part_todo part_plan(struct part_facts facts)
{
    if (facts.active)
        return PART_DONE;
    if (facts.detached)
        return PART_ATTACH;
    if (facts.displaced)
        return PART_RENAME;
    if (facts.held)
        return facts.handed ? PART_DOUBTED : PART_MOVE;
    /* Gone from every place we look: attached and merged away since, if ClickHouse was ever asked to
     * attach it; else somebody took it away, from the held area or from detached/. */
    return facts.sent ? PART_DONE : PART_VANISHED;
}
