/* SPDX-License-Identifier: Apache-2.0
 *
 * Clones of held parts in a temporary directory: made whole, cut off by a crash at any place, in the
 * way of something else, and without space.
 */
#include "ch/part_clone.h"
#include "ch/part_dirs.h"
#include "lib/suite.h"
#include "unit/ch/part_lab.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#define FOLDER "chxa/t-job-1:ckpt-7"
#define NUMBER 1000000000000001u

static struct chxa_part part;

static const char *held_path(const char *rest)
{
    return path_of(path_of(root, FOLDER), rest);
}

#define HELD   held_path("1000000000000001")
#define OUT    held_path("1000000000000001.out")
#define MARKER held_path("1000000000000001.moved")
#define NEXT   held_path("1000000000000001.moved~")

static void make_dir(const char *path)
{
    ck_assert_msg(mkdir(path, 0750) == 0, "%s: %s", path, strerror(errno));
}

/* A held part with a projection, of a target with an empty detached/. */
static void make_world(void)
{
    make_dir(path_of(target, "detached"));
    make_dir(path_of(table, "all_1_1_0"));
    make_file(path_of(table, "all_1_1_0"), "count.txt", "5");
    make_file(path_of(table, "all_1_1_0"), "checksums.txt", "sums");
    make_file(path_of(table, "all_1_1_0"), "data.bin", "0123456789");
    make_dir(path_of(table, "all_1_1_0/p.proj"));
    make_file(path_of(table, "all_1_1_0/p.proj"), "data.bin", "projected");
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, NUMBER, &part, &err), 0);
}

static void clone_setup(void)
{
    setup();
    part = (struct chxa_part){0};
    make_world();
}

static void clone_teardown(void)
{
    chxa_part_clear(&part);
    teardown();
}

static ino_t inode_of(const char *path)
{
    struct stat status;
    ck_assert_msg(lstat(path, &status) == 0, "%s: %s", path, strerror(errno));
    return status.st_ino;
}

static struct part_place look(void)
{
    struct part_place place = {0};
    char *const tables[] = {target}, *const roots[] = {root};
    ck_assert_msg(part_places_read(XID, &part, 1, tables, roots, 1, &place, &err) == 0, "%s",
                  error_message(&err));
    return place;
}

static void clone_ok(void)
{
    ck_assert_msg(held_clone(root, XID, &part, 1, false, &err) == 0, "%s", error_message(&err));
}

static void check_whole(const char *clone)
{
    static const char *const files[] = {"count.txt", "checksums.txt", "data.bin",
                                        "p.proj/data.bin"};
    struct stat of_held, of_clone;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        ck_assert_msg(inode_of(path_of(clone, files[i])) == inode_of(path_of(HELD, files[i])), "%s",
                      files[i]);
    ck_assert_int_eq(stat(HELD, &of_held), 0);
    ck_assert_int_eq(stat(clone, &of_clone), 0);
    ck_assert_int_eq(of_held.st_mode, of_clone.st_mode);
}

/* The clone is there, whole, and the marker names it. */
static void check_cloned(void)
{
    struct part_place place = look();
    ck_assert(place.held && place.marker && place.kept && place.out);
    ck_assert(!place.detached && !place.attaching && !place.ignored && !place.active);
    ck_assert_uint_eq(place.inode, inode_of(OUT));
    ck_assert_int_gt(place.cloned_ms, 0);
    ck_assert_ptr_null(place.seen);
    ck_assert(!exists(NEXT));
    part_place_clear(&place);
    check_whole(OUT);
}

START_TEST(test_clone)
{
    ck_assert_int_eq(held_clone(root, XID, &part, 1, true, &err), 0);
    check_cloned();
    /* Only the clone goes out. */
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), 0);
    struct part_place place = look();
    ck_assert(place.held && place.marker && place.kept && !place.out && place.detached);
    part_place_clear(&place);
    check_whole(path_of(path_of(target, "detached"), part.name));
}
END_TEST

/* Those of a batch: one is there from before a crash, and one cannot be made; then no marker names any of the new ones. */
START_TEST(test_several)
{
    struct chxa_part parts[] = {part, link_part("all_1_1_0", NUMBER + 1),
                                link_part("all_1_1_0", NUMBER + 2)};
    clone_ok();
    ino_t first = inode_of(OUT);
    const char *last = held_path("1000000000000003");
    ck_assert_int_eq(rename(last, path_of(base, "away")), 0);
    ck_assert_int_eq(held_clone(root, XID, parts, 3, true, &err), CHXA_E_IO_FAILED);
    ck_assert(strstr(error_message(&err), "1000000000000003"));
    ck_assert(exists(held_path("1000000000000002.out")));
    ck_assert(!exists(held_path("1000000000000002.moved")));
    ck_assert_int_eq(rename(path_of(base, "away"), last), 0);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_clone(root, XID, parts, 3, true, &err), 0);
    check_cloned();
    ck_assert_uint_eq(inode_of(OUT), first);
    for (size_t i = 1; i < 3; i++) {
        struct part_place place = place_of(&parts[i]);
        ck_assert(place.kept && place.out && place.inode != parts[i].inode);
        part_place_clear(&place);
        chxa_part_clear(&parts[i]);
    }
}
END_TEST

START_TEST(test_again)
{
    clone_ok();
    ino_t first = inode_of(OUT);
    clone_ok(); /* chxad died before the rename: the same clone, which the marker names */
    ck_assert_uint_eq(inode_of(OUT), first);
    check_cloned();
}
END_TEST

START_TEST(test_half_made)
{
    make_dir(OUT);
    ck_assert_int_eq(link(path_of(HELD, "count.txt"), path_of(OUT, "count.txt")), 0);
    struct part_place place = look();
    ck_assert(place.held && !place.marker && !place.kept && !place.out);
    part_place_clear(&place);
    clone_ok();
    check_cloned();
}
END_TEST

START_TEST(test_whole_but_not_marked)
{
    clone_ok();
    ck_assert_int_eq(unlink(MARKER), 0);
    make_file(OUT, "stranger", "not of this part");
    make_file(path_of(root, FOLDER), "1000000000000001.moved~",
              "half a marker"); /* died writing it */
    clone_ok();
    check_cloned();
    ck_assert(!exists(path_of(OUT, "stranger")));
}
END_TEST

/* The marker of an earlier clone, which is gone: another directory under the name is not it. */
START_TEST(test_marker_of_another)
{
    clone_ok();
    ck_assert_int_eq(rename(OUT, path_of(base, "moved-away")), 0);
    make_dir(OUT);
    struct part_place place = look();
    ck_assert(place.kept && !place.out);
    part_place_clear(&place);
    clone_ok();
    check_cloned();
}
END_TEST

START_TEST(test_name_taken)
{
    make_file(base, "precious", "not ours");
    make_file(path_of(root, FOLDER), "1000000000000001.out", "a file");
    clone_ok();
    check_cloned();
    ck_assert_int_eq(held_unmark(root, XID, &part, false, &err), 0);
    ck_assert_int_eq(rename(OUT, path_of(base, "elsewhere")), 0);
    ck_assert_int_eq(symlink(base, OUT), 0); /* removed, not followed */
    clone_ok();
    check_cloned();
    ck_assert(exists(path_of(base, "precious")) && exists(path_of(base, "elsewhere/data.bin")));
}
END_TEST

START_TEST(test_marker_is_a_link)
{
    make_file(base, "precious", "not ours");
    ck_assert_int_eq(symlink(path_of(base, "precious"), NEXT), 0);
    ck_assert_int_eq(held_clone(root, XID, &part, 1, false, &err), CHXA_E_IO_FAILED);
    ck_assert(!exists(MARKER));
    struct stat status;
    ck_assert_int_eq(stat(path_of(base, "precious"), &status), 0);
    ck_assert_int_eq(status.st_size, (off_t)strlen("not ours"));
}
END_TEST

START_TEST(test_another_part_is_held)
{
    part.inode++;
    ck_assert_int_eq(held_clone(root, XID, &part, 1, false, &err), CHXA_E_IO_FAILED);
    ck_assert(!exists(OUT) && !exists(MARKER));
    ck_assert_int_eq(held_clone(root, "nobody", &part, 1, false, &err), CHXA_E_IO_FAILED);
    ck_assert(!exists(path_of(root, "chxa/t-nobody")));
}
END_TEST

START_TEST(test_note_seen)
{
    char longest[256];
    ck_assert_int_eq(held_note_seen(root, XID, &part, "all_7_7_0", &err), 0);
    ck_assert(!exists(MARKER)); /* no clone was handed out */
    clone_ok();
    struct part_place before = look();
    ck_assert_int_eq(held_note_seen(root, XID, &part, "all_7_7_0", &err), 0);
    struct part_place place = look();
    ck_assert_str_eq(place.seen, "all_7_7_0");
    ck_assert_uint_eq(place.inode, before.inode);
    ck_assert_int_eq(place.cloned_ms, before.cloned_ms);
    part_place_clear(&place);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ck_assert_int_eq(held_note_seen(root, XID, &part, longest, &err), 0);
    place = look();
    ck_assert_str_eq(place.seen, longest);
    ck_assert(place.kept && place.out);
    part_place_clear(&place);
    part_place_clear(&before);
}
END_TEST

/* The empty marker of a part that was moved out itself names no clone. */
START_TEST(test_marker_without_clone)
{
    ck_assert_int_eq(held_mark(root, XID, RUN_OF(part), 1, false, &err), 0);
    struct part_place place = look();
    ck_assert(place.held && place.marker && !place.kept && !place.out);
    ck_assert_uint_eq(place.inode, part.inode);
    part_place_clear(&place);
    ck_assert_int_eq(held_note_seen(root, XID, &part, "all_7_7_0", &err), 0);
    place = look();
    ck_assert_ptr_null(place.seen);
    part_place_clear(&place);
}
END_TEST

START_TEST(test_attached_and_let_go)
{
    clone_ok();
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), 0);
    const char *out = path_of(path_of(target, "detached"), part.name);
    ck_assert_int_eq(rename(out, path_of(target, "all_9_9_0")), 0);
    struct part_place place = look();
    ck_assert(place.held && place.kept && !place.detached);
    ck_assert_str_eq(place.active, "all_9_9_0");
    part_place_clear(&place);
    ck_assert_int_eq(held_let_go(root, XID, &part, &err), 0);
    ck_assert_int_eq(held_let_go(root, XID, &part, &err), 0);
    ck_assert(!exists(HELD));
    place = look();
    ck_assert(!place.held && place.marker && !place.kept);
    ck_assert_str_eq(place.active, "all_9_9_0"); /* its files live on */
    part_place_clear(&place);
    ck_assert_int_eq(access(path_of(target, "all_9_9_0/p.proj/data.bin"), R_OK), 0);
}
END_TEST

START_TEST(test_moved_back)
{
    clone_ok();
    ck_assert_int_eq(held_move_out(root, XID, &part, 1, target, &err), 0);
    ck_assert_int_eq(held_move_back(root, XID, &part, target, part.name, &err), 0);
    ck_assert(exists(HELD) && !exists(OUT) && !exists(MARKER));
    ck_assert(!exists(path_of(path_of(target, "detached"), part.name)));
    clone_ok();
    check_cloned();
}
END_TEST

START_TEST(test_remove)
{
    char *const roots[] = {root};
    clone_ok();
    ck_assert_int_eq(held_remove(XID, roots, 1, false, &err), 0);
    ck_assert(!exists(path_of(root, FOLDER)));
    ck_assert_int_eq(access(path_of(table, "all_1_1_0/data.bin"), R_OK), 0);
}
END_TEST

/* The marker cannot be written: the clone does not count, and is made anew. */
START_TEST(test_no_space_for_the_marker)
{
    struct rlimit limit = {0, RLIM_INFINITY}, before;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(held_clone(root, XID, &part, 1, false, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_ptr_nonnull(strstr(error_message(&err), strerror(EFBIG)));
    ck_assert(!exists(MARKER) && exists(HELD));
    clone_ok();
    check_cloned();
}
END_TEST

/* A disk that has no room for the clone's entries; where this user may not mount one, nothing. */
START_TEST(test_no_space_for_the_clone)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", root, "tmpfs", 0, "size=1m,nr_inodes=21") != 0)
        return;
    chxa_part_clear(&part);
    make_dir(table);
    make_dir(target);
    make_world();
    ck_assert_int_eq(held_clone(root, XID, &part, 1, false, &err), CHXA_E_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error_message(&err), strerror(ENOSPC)));
    ck_assert(exists(HELD) && exists(OUT) && !exists(MARKER)); /* cut off half way */
    ck_assert_int_eq(mount("none", root, NULL, MS_REMOUNT, "nr_inodes=100"), 0);
    clone_ok();
    check_cloned();
    umount(root);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("part_clone");
    TCase *tests = tcase_create("clone");
    tcase_add_checked_fixture(tests, clone_setup, clone_teardown);
    tcase_add_test(tests, test_clone);
    tcase_add_test(tests, test_several);
    tcase_add_test(tests, test_again);
    tcase_add_test(tests, test_half_made);
    tcase_add_test(tests, test_whole_but_not_marked);
    tcase_add_test(tests, test_marker_of_another);
    tcase_add_test(tests, test_name_taken);
    tcase_add_test(tests, test_marker_is_a_link);
    tcase_add_test(tests, test_another_part_is_held);
    tcase_add_test(tests, test_note_seen);
    tcase_add_test(tests, test_marker_without_clone);
    tcase_add_test(tests, test_attached_and_let_go);
    tcase_add_test(tests, test_moved_back);
    tcase_add_test(tests, test_remove);
    tcase_add_test(tests, test_no_space_for_the_marker);
    tcase_add_test(tests, test_no_space_for_the_clone);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
