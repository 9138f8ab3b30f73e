/* SPDX-License-Identifier: Apache-2.0
 *
 * Held parts on their way into a table and to their end: moved, found, put aside, removed.
 */
#include "base/mem.h"
#include "lib/suite.h"
#include "unit/ch/part_lab.h"

#include <errno.h>

/* ---- commit ---- */

START_TEST(test_move)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    struct part_place place = place_of(&part);
    ck_assert(place.held && !place.marker && !place.detached && !place.attaching);
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), CHXA_E_IO_FAILED);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, again, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && place.marker);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), 0);
    place = place_of(&part);
    ck_assert(!place.held && place.marker && place.detached && !place.attaching);
    ck_assert(!place.sent);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_note_sent(root, XID, RUN_OF(part), 1, again, &err), 0);
    place = place_of(&part);
    ck_assert(place.marker && place.sent && place.detached);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_move_back(root, XID, &part, target, part.name, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && !place.marker && !place.sent && !place.detached);
    /* A move back that died before it removed the marker: marked anew, it is not sent. */
    ck_assert_int_eq(held_note_sent(root, XID, RUN_OF(part), 1, true, &err), 0);
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, true, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && place.marker && !place.sent);
    ck_assert_int_eq(held_note_sent(root, XID, RUN_OF(part), 1, true, &err), 0);
    ck_assert_int_eq(held_unmark(root, XID, &part, true, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && !place.marker && !place.sent);
    ck_assert_ptr_null(place.ignored);
    ck_assert_ptr_null(place.active);
    chxa_part_clear(&part);
}
END_TEST

START_TEST(test_places)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, false, &err), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), 0);
    char name[512], attaching[512], ignored[512], active[512];
    snprintf(name, sizeof name, "%s/detached/all_5_5_0", target);
    snprintf(attaching, sizeof attaching, "%s/detached/attaching_all_5_5_0", target);
    snprintf(ignored, sizeof ignored, "%s/detached/ignored_all_17_17_0", target);
    snprintf(active, sizeof active, "%s/all_17_17_0", target);
    ck_assert_int_eq(rename(name, attaching), 0);
    struct part_place place = place_of(&part);
    ck_assert(place.attaching && !place.detached && !place.held);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(detached_rename(target, "attaching_all_5_5_0", &part, &err), 0);
    ck_assert(exists(name));
    ck_assert_int_eq(rename(name, ignored), 0);
    place = place_of(&part);
    ck_assert_str_eq(place.ignored, "ignored_all_17_17_0");
    ck_assert(!place.attaching && !place.detached);
    part_place_clear(&place);
    /* The inode alone is not enough: another part's files under it are not ours. */
    make_file(ignored, "checksums.txt", "different");
    place = place_of(&part);
    ck_assert_ptr_null(place.ignored);
    make_file(ignored, "checksums.txt", "all_1_1_0");
    ck_assert_int_eq(detached_rename(target, "ignored_all_17_17_0", &part, &err), 0);
    ck_assert_int_eq(rename(name, active), 0);
    place = place_of(&part);
    ck_assert_str_eq(place.active, "all_17_17_0");
    ck_assert(place.marker && !place.detached);
    part_place_clear(&place);
    ck_assert_int_eq(detached_rename(target, "attaching_all_5_5_0", &part, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_move_back(root, XID, &part, target, part.name, &err), CHXA_E_IO_FAILED);
    place = place_of(&part);
    ck_assert(place.marker); /* still: it has left the held area */
    part_place_clear(&place);
    chxa_part_clear(&part);
}
END_TEST

/* A part of the table that has got the number of a held one, which somebody deleted. */
START_TEST(test_places_inode_used_again)
{
    make_part(target, "all_3_3_0", "1");
    struct stat status;
    ck_assert_int_eq(stat(path_of(target, "all_3_3_0"), &status), 0);
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    ck_assert_int_eq(held_remove_part(XID, root, 5, &err), 0);
    part.inode = status.st_ino;
    struct part_place place = place_of(&part);
    ck_assert_ptr_null(place.active);
    part_place_clear(&place);
    /* With the content of ours it is ours, though its marker is gone. */
    make_file(path_of(target, "all_3_3_0"), "checksums.txt", "all_1_1_0");
    place = place_of(&part);
    ck_assert_str_eq(place.active, "all_3_3_0");
    part_place_clear(&place);
    /* With a marker that says sent too, for ClickHouse may have altered it in place since. */
    make_file(path_of(target, "all_3_3_0"), "checksums.txt", "altered");
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, false, &err), 0);
    place = place_of(&part);
    ck_assert_ptr_null(place.active);
    ck_assert_int_eq(held_note_sent(root, XID, RUN_OF(part), 1, false, &err), 0);
    place = place_of(&part);
    ck_assert_str_eq(place.active, "all_3_3_0");
    part_place_clear(&place);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_unmark(root, XID, &part, again, &err), 0);
    place = place_of(&part);
    ck_assert(!place.marker);
    ck_assert_ptr_null(place.active);
    chxa_part_clear(&part);
}
END_TEST

START_TEST(test_places_disks)
{
    char second[96];
    snprintf(second, sizeof second, "%s/second", base);
    ck_assert_int_eq(mkdir(second, 0755), 0);
    ck_assert_int_eq(mkdir(path_of(second, "t"), 0755), 0);
    char second_table[128];
    snprintf(second_table, sizeof second_table, "%s/t", second);
    make_part(table, "all_1_1_0", "1");
    make_part(second_table, "all_2_2_0", "1");
    struct chxa_part parts[2] = {link_part("all_1_1_0", 5)};
    ck_assert_int_eq(
        part_link(second_table, "all_2_2_0", false, second, 1, XID, 6, &parts[1], &err), 0);
    char *const tables[] = {target, second_table}, *const roots[] = {root, second};
    struct part_place places[2];
    memset(places, 0, sizeof places);
    ck_assert_int_eq(part_places_read(XID, parts, 2, tables, roots, 2, places, &err), 0);
    ck_assert(places[0].held && places[1].held);
    ck_assert_int_eq(held_sync(XID, roots, 2, parts, 2, 3, &err), 0);
    /* A disk that is not mounted proves nothing about its parts. */
    ck_assert_int_eq(rename(second, path_of(base, "away")), 0);
    ck_assert_int_eq(part_places_read(XID, parts, 2, tables, roots, 2, places, &err),
                     CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_remove(XID, roots, 2, false, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(rename(path_of(base, "away"), second), 0);
    ck_assert_int_eq(held_remove(XID, roots, 2, true, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_remove(XID, roots, 2, false, &err), 0);
    ck_assert_int_eq(held_remove(XID, roots, 2, false, &err), 0);
    ck_assert(!exists(path_of(second, "chxa/t-" XID)));
    chxa_part_clear(&parts[0]);
    chxa_part_clear(&parts[1]);
}
END_TEST

START_TEST(test_move_blocked)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, false, &err), 0);
    /* Somebody's part stands where ours must go: never replaced, even when empty. */
    ck_assert_int_eq(mkdir(path_of(target, "detached"), 0755), 0);
    ck_assert_int_eq(mkdir(path_of(target, "detached/all_5_5_0"), 0755), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), CHXA_E_IO_FAILED);
    ck_assert(place_of(&part).held);
    ck_assert_int_eq(rmdir(path_of(target, "detached/all_5_5_0")), 0);
    /* detached/ is a symbolic link. */
    ck_assert_int_eq(rmdir(path_of(target, "detached")), 0);
    ck_assert_int_eq(symlink(table, path_of(target, "detached")), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(unlink(path_of(target, "detached")), 0);
    /* Another directory stands in the held area in its place. */
    const char *held = path_of(root, "chxa/t-" XID "/5");
    ck_assert_int_eq(rename(held, path_of(base, "kept")), 0);
    ck_assert_int_eq(mkdir(path_of(root, "chxa/t-" XID "/5"), 0755), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), CHXA_E_IO_FAILED);
    ck_assert(!place_of(&part).held);
    /* A name from a record that is no name. */
    free(part.name);
    part.name = mem_strdup("../x");
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(detached_rename(target, "../y", &part, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_move_back(root, XID, &part, target, "..", &err), CHXA_E_IO_FAILED);
    chxa_part_clear(&part);
}
END_TEST

/* ---- the end ---- */

START_TEST(test_remove)
{
    char *const roots[] = {root};
    ck_assert_int_eq(held_remove(XID, roots, 1, true, &err), 0); /* nothing there yet */
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    make_file(base, "precious", "x");
    ck_assert_int_eq(symlink(base, path_of(root, "chxa/t-" XID "/5/link")), 0);
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, false, &err), 0);
    ck_assert_int_eq(held_remove(XID, roots, 1, true, &err), CHXA_E_IO_FAILED);
    ck_assert(exists(path_of(root, "chxa/t-" XID "/5.moved")));
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_remove(XID, roots, 1, false, &err), 0);
    ck_assert(!exists(path_of(root, "chxa/t-" XID)));
    ck_assert(exists(path_of(base, "precious")));
    ck_assert_int_eq(held_remove("../..", roots, 1, false, &err), CHXA_E_INVALID_XID);
    chxa_part_clear(&part);
}
END_TEST

/* The folder tells whose it is, also when the xid is too long to be its name. */
START_TEST(test_folder_xid)
{
    char xid[CHXA_XID_BYTES_MAX + 1] = {0}, name[HELD_DIR_BYTES_MAX + 1], path[600];
    char *const roots[] = {root};
    make_part(table, "all_1_1_0", "1");
    for (size_t len = 199; len <= CHXA_XID_BYTES_MAX; len += len < 202 ? 1 : 26) {
        memset(xid, 'x', len);
        struct chxa_part part = {0};
        ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, xid, 5, &part, &err), 0);
        held_dir_name(xid, name);
        char *got = held_folder_xid(root, name);
        ck_assert_str_eq(got, xid);
        free(got);
        snprintf(path, sizeof path, "%s/chxa/%s/xid", root, name);
        ck_assert_int_eq(exists(path), len > 200);
        if (len > 200) { /* another's, or none */
            char *folder = mem_printf("%s/chxa/%s", root, name);
            make_file(folder, "xid", "other");
            ck_assert_ptr_null(held_folder_xid(root, name));
            ck_assert_int_eq(unlink(path), 0);
            ck_assert_ptr_null(held_folder_xid(root, name));
            free(folder);
        }
        ck_assert_int_eq(held_remove(xid, roots, 1, false, &err), 0);
        chxa_part_clear(&part);
    }
    ck_assert_ptr_null(held_folder_xid(root, "lost"));
    ck_assert_ptr_null(held_folder_xid(root, "t-a b"));
    ck_assert_ptr_null(held_folder_xid(root, "t-../x"));
    ck_assert_ptr_null(held_folder_xid(root, "t-none~0123"));
}
END_TEST

START_TEST(test_remove_unnamed)
{
    const uint64_t named[] = {5, 7};
    ck_assert_int_eq(held_remove_unnamed(XID, root, named, 2, &err), 0); /* nothing there yet */
    make_part(table, "all_1_1_0", "1");
    struct chxa_part five = link_part("all_1_1_0", 5), six = link_part("all_1_1_0", 6);
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(five), 1, false, &err), 0);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_remove_unnamed(XID, root, named, 2, &err), 0);
    ck_assert(exists(path_of(root, "chxa/t-" XID "/5")));
    ck_assert(exists(path_of(root, "chxa/t-" XID "/5.moved")));
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/6")));
    ck_assert_int_eq(held_remove_unnamed(XID, root, NULL, 0, &err), 0);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5")));
    chxa_part_clear(&five);
    chxa_part_clear(&six);
}
END_TEST

START_TEST(test_held_list)
{
    char **names = NULL;
    size_t n = 7;
    ck_assert_int_eq(held_list(root, &names, &n, &err), 0);
    ck_assert_uint_eq(n, 0);
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    ck_assert_int_eq(mkdir(path_of(root, "chxa/foreign"), 0755), 0);
    make_file(root, "chxa/t-file", "x");
    ck_assert_int_eq(held_list(root, &names, &n, &err), 0);
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(names[0], "t-" XID);
    ck_assert_int_eq(held_remove_folder(root, "foreign", &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_remove_folder(root, "t-/../..", &err), CHXA_E_IO_FAILED);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_remove_folder(root, names[0], &err), 0);
    ck_assert(!exists(path_of(root, "chxa/t-" XID)));
    free(names[0]);
    free(names);
    ck_assert_int_eq(held_list(path_of(base, "no"), &names, &n, &err), CHXA_E_IO_FAILED);
    chxa_part_clear(&part);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_held");
    TCase *tests = tcase_create("part_held");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_move);
    tcase_add_test(tests, test_places);
    tcase_add_test(tests, test_places_inode_used_again);
    tcase_add_test(tests, test_places_disks);
    tcase_add_test(tests, test_move_blocked);
    tcase_add_test(tests, test_remove);
    tcase_add_test(tests, test_folder_xid);
    tcase_add_test(tests, test_remove_unnamed);
    tcase_add_test(tests, test_held_list);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
