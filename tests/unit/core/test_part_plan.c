/* SPDX-License-Identifier: Apache-2.0
 *
 * What is left to do for a part: all combinations of facts, and a walk that kills the commit of
 * one part after each of its effects.
 */
#include "core/part_plan.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>

static struct part_facts facts_from(unsigned bits)
{
    return (struct part_facts){bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32};
}

START_TEST(each_place_has_its_action)
{
    for (unsigned bits = 0; bits < 64; bits++) {
        struct part_facts facts = facts_from(bits);
        enum part_todo todo = part_plan(facts);
        bool anywhere = facts.held || facts.detached || facts.displaced || facts.active;
        /* never attached a second time */
        if (facts.active)
            ck_assert_int_eq(todo, PART_DONE);
        /* never given up while the rows are somewhere */
        ck_assert((todo == PART_VANISHED) == (!anywhere && !facts.sent));
        /* never called done while it waits outside the table */
        if (todo == PART_DONE)
            ck_assert(facts.active || !anywhere);
        if (!facts.active && facts.detached)
            ck_assert_int_eq(todo, PART_ATTACH);
        if (!facts.active && !facts.detached && facts.displaced)
            ck_assert_int_eq(todo, PART_RENAME);
        if (!facts.active && !facts.detached && !facts.displaced && facts.held)
            ck_assert_int_eq(todo, PART_MOVE);
    }
}
END_TEST

/* The disk of one part, and what each effect of a commit (and of ClickHouse within it) does to it.
 */
static void effect(struct part_facts *disk, enum part_todo todo, unsigned nth)
{
    if (todo == PART_MOVE && nth == 0) {
        disk->marker = true;
    } else if (todo == PART_MOVE && nth == 1) {
        disk->held = false;
        disk->detached = true;
    } else if (todo == PART_RENAME) {
        disk->displaced = false;
        disk->detached = true;
    } else if (todo == PART_ATTACH && nth == 0) {
        disk->sent = true;
    } else if (todo == PART_ATTACH && nth == 1) { /* attaching_N */
        disk->detached = false;
        disk->displaced = true;
    } else if (todo == PART_ATTACH && nth == 2) {
        disk->displaced = false;
        disk->active = true;
    }
}

static const unsigned effects[] = {
    [PART_DONE] = 0, [PART_MOVE] = 2, [PART_ATTACH] = 3, [PART_RENAME] = 1};

/* Runs the plan, dying after `die` effects each time it has begun anew; counts how often the part
 * became active. */
static void run_with_deaths(unsigned die)
{
    struct part_facts disk = {.held = true};
    unsigned lives = 0, attached = 0, done = 0;
    while (part_plan(disk) != PART_DONE) {
        ck_assert_uint_lt(lives++, 20);
        for (unsigned made = 0; made < die;) {
            enum part_todo todo = part_plan(disk);
            ck_assert_int_ne(todo, PART_VANISHED);
            if (todo == PART_DONE)
                break;
            for (unsigned nth = 0; nth < effects[todo] && made < die; nth++, made++) {
                bool before = disk.active;
                effect(&disk, todo, nth);
                attached += !before && disk.active;
                done++;
            }
        }
        if (die <= 2 && lives > 8)
            break; /* one or two effects a life repeat marker and attaching_N for ever: that is no
                      progress, but no harm */
    }
    ck_assert_uint_le(attached, 1);
    if (die > 2)
        ck_assert(disk.active && attached == 1);
    ck_assert_uint_gt(done, 0);
}

START_TEST(killed_after_each_effect_a_part_is_attached_once)
{
    for (unsigned die = 1; die <= 8; die++)
        run_with_deaths(die);
}
END_TEST

START_TEST(merged_away_counts_as_attached_only_when_sent)
{
    ck_assert_int_eq(part_plan((struct part_facts){.marker = true, .sent = true}), PART_DONE);
    ck_assert_int_eq(part_plan((struct part_facts){.marker = true}), PART_VANISHED);
    ck_assert_int_eq(part_plan((struct part_facts){0}), PART_VANISHED);
}
END_TEST

START_TEST(a_clone_that_is_gone_is_neither_moved_again_nor_done)
{
    struct part_facts facts = {.held = true, .marker = true, .sent = true, .handed = true};
    ck_assert_int_eq(part_plan(facts), PART_DOUBTED);
    facts.detached = true;
    ck_assert_int_eq(part_plan(facts), PART_ATTACH);
    facts.detached = false;
    facts.displaced = true;
    ck_assert_int_eq(part_plan(facts), PART_RENAME);
    facts.displaced = false;
    facts.active = true;
    ck_assert_int_eq(part_plan(facts), PART_DONE);
    /* let go */
    facts = (struct part_facts){.marker = true, .sent = true};
    ck_assert_int_eq(part_plan(facts), PART_DONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_plan");
    TCase *tests = tcase_create("plan");
    tcase_add_test(tests, each_place_has_its_action);
    tcase_add_test(tests, killed_after_each_effect_a_part_is_attached_once);
    tcase_add_test(tests, merged_away_counts_as_attached_only_when_sent);
    tcase_add_test(tests, a_clone_that_is_gone_is_neither_moved_again_nor_done);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
