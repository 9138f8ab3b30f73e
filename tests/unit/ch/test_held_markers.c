/* SPDX-License-Identifier: Apache-2.0
 *
 * Markers of held parts: one for many parts, and what is true of each of them after any change, and when a
 * crash comes in the middle of one.
 */
#include "ch/held_markers.h"
#include "ch/held_survey.h"
#include "ch/part_dirs.h"
#include "lib/suite.h"
#include "unit/ch/part_lab.h"

#include <dirent.h>

#define FOLDER "chxa/t-" XID
#define PARTS  12u

static int held = -1;

static void setup_held(void)
{
    setup();
    ck_assert_int_eq(dirs_open_held(root, XID, true, &held, &err), 0);
}

static void teardown_held(void)
{
    dirs_close(&held);
    teardown();
}

/* 's' sent, 'm' marked, '-' neither, for the numbers 0 and up. */
static const char *seen(void)
{
    static char text[PARTS + 1];
    struct held_markers markers = {0};
    ck_assert_int_eq(held_markers_read(held, &markers), 0);
    for (uint64_t i = 0; i < PARTS; i++) {
        bool moved = part_run_has(markers.moved, markers.n_moved, i) ||
                     part_run_has(markers.single, markers.n_single, i);
        text[i] = '-';
        if (part_run_has(markers.sent, markers.n_sent, i))
            text[i] = 's';
        else if (moved)
            text[i] = 'm';
    }
    held_markers_clear(&markers);
    return text;
}

static size_t n_files(void)
{
    DIR *stream = opendir(path_of(root, FOLDER));
    size_t n = 0;
    ck_assert_ptr_nonnull(stream);
    while (readdir(stream))
        n++;
    closedir(stream);
    return n - 2;
}

static void mark(uint64_t first, uint64_t last)
{
    struct part_run run = {first, last};
    ck_assert_int_eq(held_mark(root, XID, &run, 1, true, &err), 0);
}

static void note(uint64_t first, uint64_t last)
{
    struct part_run run = {first, last};
    ck_assert_int_eq(held_note_sent(root, XID, &run, 1, true, &err), 0);
}

static void unmark(uint64_t number)
{
    struct chxa_part part = {.number = number};
    ck_assert_int_eq(held_unmark(root, XID, &part, true, &err), 0);
}

START_TEST(test_names)
{
    struct part_run run;
    bool sent;
    ck_assert(held_marker_parse("7.moved", &run, &sent) && run.first == 7 && run.last == 7 &&
              !sent);
    ck_assert(held_marker_parse("7-12.sent", &run, &sent) && run.first == 7 && run.last == 12 &&
              sent);
    ck_assert(held_marker_parse("1000000000000001-9223372036854775807.moved", &run, &sent));
    ck_assert_str_eq(held_run_name(run, true).text, "1000000000000001-9223372036854775807.sent");
    ck_assert_str_eq(held_run_name((struct part_run){7, 7}, false).text, "7.moved");
    static const char *const strange[] = {"",           "7",          "moved",
                                          ".moved",     "7.moved~",   "7.out",
                                          "7-.moved",   "-7.moved",   "7-7.sent",
                                          "12-7.moved", "7-8",        "7.syncing",
                                          "7-8-9.sent", " 7-8.moved", "+7.moved",
                                          "7- 8.moved", "x.sent",     "99999999999999999999.moved"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        ck_assert_msg(!held_marker_parse(strange[i], &run, &sent), "%s", strange[i]);
}
END_TEST

START_TEST(test_a_batch_is_one_file)
{
    for (int again = 0; again < 2; again++)
        mark(2, 9);
    ck_assert_str_eq(seen(), "--mmmmmmmm--");
    ck_assert_uint_eq(n_files(), 1);
    for (int again = 0; again < 2; again++)
        note(2, 9);
    ck_assert_str_eq(seen(), "--ssssssss--");
    ck_assert_uint_eq(n_files(), 1);
    note(10, 10); /* found in detached/ without a marker */
    ck_assert_str_eq(seen(), "--sssssssss-");
}
END_TEST

START_TEST(test_taking_parts_out)
{
    mark(1, 10);
    unmark(0);
    unmark(11);
    ck_assert_str_eq(seen(), "-mmmmmmmmmm-");
    unmark(1);
    unmark(10);
    ck_assert_str_eq(seen(), "--mmmmmmmm--");
    unmark(5);
    ck_assert_str_eq(seen(), "--mmm-mmmm--");
    note(2, 4);
    unmark(3);
    ck_assert_str_eq(seen(), "--s-s-mmmm--");
    for (uint64_t number = 0; number < PARTS; number++)
        unmark(number);
    ck_assert_str_eq(seen(), "------------");
    ck_assert_uint_eq(n_files(), 0);
}
END_TEST

START_TEST(test_marked_anew_is_sent_no_more)
{
    mark(1, 10);
    note(1, 10);
    mark(4, 6);
    ck_assert_str_eq(seen(), "-sssmmmssss-");
    note(4, 6);
    ck_assert_str_eq(seen(), "-ssssssssss-");
    mark(0, 11);
    ck_assert_str_eq(seen(), "mmmmmmmmmmmm");
}
END_TEST

/* Markers of an earlier version, one for each part, and those of this one besides. */
START_TEST(test_single_ones)
{
    make_file(path_of(root, FOLDER), "3.moved", "");
    make_file(path_of(root, FOLDER), "4.sent", "");
    make_file(path_of(root, FOLDER), "5.moved", "");
    mark(8, 9);
    ck_assert_str_eq(seen(), "---msm--mm--");
    note(3, 5);
    ck_assert_str_eq(seen(), "---sss--mm--");
    for (uint64_t number = 3; number < 6; number++)
        unmark(number);
    ck_assert_str_eq(seen(), "--------mm--");
    ck_assert_uint_eq(n_files(), 1);
}
END_TEST

/* As a crash leaves it that came when a marker was being cut in two: the whole is still there. */
START_TEST(test_killed_while_cutting)
{
    mark(1, 10);
    note(1, 10);
    make_file(path_of(root, FOLDER), "1-4.sent", "");
    ck_assert_str_eq(seen(), "-ssssssssss-");
    unmark(5);
    ck_assert_str_eq(seen(), "-ssss-sssss-");
    unmark(2);
    ck_assert_str_eq(seen(), "-s-ss-sssss-");
}
END_TEST

/* One after the other, as after a refused ALTER: what is true of a part never depends on its neighbours. */
START_TEST(test_any_order)
{
    srandom(3);
    for (int round = 0; round < 100; round++) {
        char expected[PARTS + 1] = "------------";
        for (int step = 0; step < 12; step++) {
            uint64_t first = (uint64_t)random() % PARTS;
            uint64_t last = first + (uint64_t)random() % (PARTS - first);
            long what = random() % 4;
            if (what == 0)
                mark(first, last);
            else if (what == 1)
                note(first, last);
            else
                unmark(last = first);
            for (uint64_t i = first; i <= last; i++)
                expected[i] = what == 0 ? 'm' : what == 1 ? 's' : '-';
            ck_assert_str_eq(seen(), expected);
        }
        for (uint64_t number = 0; number < PARTS; number++)
            unmark(number);
        ck_assert_uint_eq(n_files(), 0);
    }
}
END_TEST

/* Parts of one batch: the run's marker is enough for each of them, on the way out and back. */
START_TEST(test_move_by_a_run)
{
    struct chxa_part parts[3];
    struct part_place places[3];
    char *const tables[] = {target};
    char *const roots[] = {root};
    make_part(table, "all_1_1_0", "1");
    for (uint64_t i = 0; i < 3; i++)
        parts[i] = link_part("all_1_1_0", 5 + i);
    mark(5, 6);
    ck_assert_int_eq(held_move_out(root, XID, parts, 2, target, &err), 0);
    ck_assert_int_eq(held_move_out(root, XID, &parts[2], 1, target, &err), CHXA_E_IO_FAILED);
    note(5, 6);
    ck_assert_int_eq(part_places_read(XID, parts, 3, tables, roots, 1, places, &err), 0);
    for (size_t i = 0; i < 3; i++) {
        bool out = i < 2;
        ck_assert(places[i].sent == out && places[i].marker == out && places[i].detached == out);
        ck_assert(places[i].held == !out && !places[i].kept);
    }
    ck_assert_int_eq(held_move_back(root, XID, &parts[0], target, parts[0].name, &err), 0);
    ck_assert_int_eq(part_places_read(XID, parts, 3, tables, roots, 1, places, &err), 0);
    ck_assert(places[0].held && !places[0].marker && places[1].sent && places[1].detached);
    for (size_t i = 0; i < 3; i++)
        chxa_part_clear(&parts[i]);
}
END_TEST

START_TEST(test_survey)
{
    struct held_survey survey = {.folders_max = 10};
    mark(2, 4);
    mark(8, 8);
    note(9, 11);
    ck_assert_int_eq(held_survey_read(&survey, root, &err), 0);
    ck_assert_uint_eq(survey.n_folders, 1);
    static const struct {
        uint64_t number;
        const char *marker;
    } expected[] = {{1, NULL},      {2, "2-4.moved"}, {4, "2-4.moved"}, {5, NULL},
                    {8, "8.moved"}, {9, "9-11.sent"}, {11, "9-11.sent"}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char *marker = held_folder_marker(&survey.folders[0], expected[i].number);
        if (expected[i].marker)
            ck_assert_str_eq(marker, expected[i].marker);
        else
            ck_assert_ptr_null(marker);
        free(marker);
    }
    held_survey_clear(&survey);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("held_markers");
    TCase *tests = tcase_create("markers");
    tcase_add_checked_fixture(tests, setup_held, teardown_held);
    tcase_add_test(tests, test_names);
    tcase_add_test(tests, test_a_batch_is_one_file);
    tcase_add_test(tests, test_taking_parts_out);
    tcase_add_test(tests, test_marked_anew_is_sent_no_more);
    tcase_add_test(tests, test_single_ones);
    tcase_add_test(tests, test_killed_while_cutting);
    tcase_add_test(tests, test_any_order);
    tcase_add_test(tests, test_move_by_a_run);
    tcase_add_test(tests, test_survey);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
