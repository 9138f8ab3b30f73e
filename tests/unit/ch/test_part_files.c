/* SPDX-License-Identifier: Apache-2.0
 *
 * Part directories on disk, tried in a temporary directory without a server.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "ch/part_files.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XID "job-1:ckpt-7"

static char base[64];  /* the test's own directory */
static char root[96];  /* a disk's root in it */
static char table[96]; /* a scratch table's directory */
static char target[96];
static struct error err;

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void setup(void)
{
    snprintf(base, sizeof base, "/tmp/chxa-parts-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(base));
    snprintf(root, sizeof root, "%s/root", base);
    snprintf(table, sizeof table, "%s/root/scratch", base);
    snprintf(target, sizeof target, "%s/root/target", base);
    ck_assert_int_eq(mkdir(root, 0755), 0);
    ck_assert_int_eq(mkdir(table, 0755), 0);
    ck_assert_int_eq(mkdir(target, 0755), 0);
    err = (struct error){0};
}

static void teardown(void)
{
    error_clear(&err);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *path_of(const char *first, const char *rest)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, 512, "%s/%s", first, rest);
    return path;
}

static void make_file(const char *dir, const char *name, const char *text)
{
    int fd = open(path_of(dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void make_part(const char *in, const char *name, const char *count)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", in, name);
    ck_assert_int_eq(mkdir(dir, 0750), 0);
    make_file(dir, "count.txt", count);
    make_file(dir, "checksums.txt", name);
    make_file(dir, "data.bin", "0123456789");
}

static struct chxa_part link_part(const char *name, uint64_t number)
{
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, name, false, root, 0, XID, number, &part, &err), 0);
    return part;
}

static struct part_place place_of(const struct chxa_part *part)
{
    struct part_place place = {0};
    char *const tables[] = {target}, *const roots[] = {root};
    ck_assert_int_eq(part_places_read(XID, part, 1, tables, roots, 1, &place, &err), 0);
    return place;
}

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* ---- names ---- */

START_TEST(test_dir_name)
{
    char name[HELD_DIR_BYTES_MAX + 1], other[HELD_DIR_BYTES_MAX + 1], xid[CHXA_XID_BYTES_MAX + 1];
    held_dir_name("a.b:c-D_9", name);
    ck_assert_str_eq(name, "t-a.b:c-D_9");
    held_dir_name("..", name);
    ck_assert_str_eq(name, "t-..");
    memset(xid, 'x', sizeof xid);
    xid[200] = '\0';
    held_dir_name(xid, name);
    ck_assert_uint_eq(strlen(name), 202);
    xid[200] = 'x';
    xid[CHXA_XID_BYTES_MAX] = '\0';
    held_dir_name(xid, name);
    ck_assert_uint_eq(strlen(name), 2 + 200 + 1 + 32);
    ck_assert_int_eq(name[202], '~');
    xid[CHXA_XID_BYTES_MAX - 1] = 'y';
    held_dir_name(xid, other);
    ck_assert_str_ne(name, other);
    held_dir_name(xid, name);
    ck_assert_str_eq(name, other);
}
END_TEST

static const char *const good_names[] = {
    "all_1_1_0",
    "202401_5_9_2",
    "202401_5_9_2_11",
    "-5_1_1_0",
    "202401-0_1_1_0",
    "20240101_1_1_0",
    "all_1000000000000000_1000000000000000_0",
    "8a1b2c3d4e5f60718293a4b5c6d7e8f9_3_3_0",
    "all_9223372036854775807_9223372036854775807_0",
};
static const char *const bad_names[] = {
    "",
    "detached",
    "format_version.txt",
    "tmp_insert_all_1_1_0",
    "delete_tmp_all_1_1_0",
    "all",
    "all_1_1",
    "all_1_1_0_",
    "all_1_1_0_2_3",
    "all_2_1_0",
    "_1_1_0",
    "all_-1_1_0",
    "all_1_1_x",
    "tmp-fetch_5_7_7_0",
    "all_1_1_0.tmp",
    "../x_1_1_0",
    "a/b_1_1_0",
    "all_ 1_1_0",
    "all_01_01_0",
    "moving",
    "all_9223372036854775808_9223372036854775808_0",
    "all_99999999999999999999_1_0",
    "attaching_1_1_0",
    "ignored_1_1_0",
};

START_TEST(test_name_parse)
{
    struct part_name name;
    for (size_t i = 0; i < sizeof good_names / sizeof good_names[0]; i++)
        ck_assert_msg(part_name_parse(good_names[i], false, &name), "%s", good_names[i]);
    for (size_t i = 0; i < sizeof bad_names / sizeof bad_names[0]; i++) {
        ck_assert_msg(!part_name_parse(bad_names[i], false, &name), "%s", bad_names[i]);
        ck_assert_msg(!part_name_parse(bad_names[i], true, &name), "%s", bad_names[i]);
    }
    ck_assert(part_name_parse("202401-0_5_9_2_11", false, &name));
    ck_assert_str_eq(name.partition_id, "202401-0");
    ck_assert_str_eq(name.dates, "");
    ck_assert_uint_eq(name.min_block, 5);
    ck_assert_uint_eq(name.max_block, 9);
    ck_assert_uint_eq(name.level, 2);
    ck_assert_uint_eq(name.mutation, 11);
    ck_assert(part_name_parse("20240105_20240131_1_2_3", true, &name));
    ck_assert_str_eq(name.dates, "20240105_20240131");
    ck_assert_uint_eq(name.max_block, 2);
    ck_assert(!part_name_parse("202401_1_1_0", true, &name));
    ck_assert(!part_name_parse("2024010x_20240131_1_2_3", true, &name));
    ck_assert(!part_name_parse("20240101_20240131", true, &name));
    char long_name[400];
    memset(long_name, '1', sizeof long_name);
    memcpy(long_name + 300, "_1_1_0", 7);
    ck_assert(!part_name_parse(long_name, false, &name));
}
END_TEST

static const struct {
    const char *outer, *inner;
    bool old_syntax, contains;
} containments[] = {
    {"all_1_5_1", "all_2_2_0", false, true},
    {"all_1_5_1", "all_1_1_0", false, true},
    {"all_1_5_1", "all_5_5_0", false, true},
    {"all_1_5_1", "all_6_6_0", false, false},
    {"all_1_5_1", "all_1_5_1", false, false},
    {"all_1_5_1", "all_1_5_2", false, false},
    {"all_1_5_2", "all_1_5_1", false, true},
    {"all_1_1_0_7", "all_1_1_0", false, true},
    {"all_1_1_0", "all_1_1_0_7", false, false},
    {"all_1_5_1", "202401_2_2_0", false, false},
    {"all_2_2_0", "all_1_5_1", false, false},
    {"20240101_20240131_1_5_1", "20240104_20240105_2_2_0", true, true},
    {"20240101_20240131_1_5_1", "20240204_20240205_2_2_0", true, false},
    {"20240101_20240131_1_5_1", "20240101_20240131_1_5_1", true, false},
};

START_TEST(test_contains)
{
    struct part_name outer, inner;
    ck_assert(part_name_parse(containments[_i].outer, containments[_i].old_syntax, &outer));
    ck_assert(part_name_parse(containments[_i].inner, containments[_i].old_syntax, &inner));
    ck_assert_int_eq(part_name_contains(&outer, &inner), containments[_i].contains);
}
END_TEST

/* ---- listing ---- */

START_TEST(test_list)
{
    char second[96];
    snprintf(second, sizeof second, "%s/second", base);
    ck_assert_int_eq(mkdir(second, 0755), 0);
    make_part(table, "b_1_1_0", "1");
    make_part(table, "a_1_1_0", "1");
    make_part(table, "tmp_insert_a_2_2_0", "1");
    make_part(second, "a_2_2_0", "1");
    make_file(table, "c_1_1_0", "a file is no part");
    ck_assert_int_eq(symlink("/etc", path_of(table, "d_1_1_0")), 0);
    ck_assert_int_eq(mkdir(path_of(table, "detached"), 0755), 0);
    char *const paths[] = {table, second};
    struct part_list list = {0};
    ck_assert_int_eq(part_list_read(paths, 2, false, &list, &err), 0);
    ck_assert_uint_eq(list.n_entries, 3);
    ck_assert_str_eq(list.entries[0].name, "a_1_1_0");
    ck_assert_str_eq(list.entries[1].name, "a_2_2_0");
    ck_assert_uint_eq(list.entries[1].disk, 1);
    ck_assert_str_eq(list.entries[2].name, "b_1_1_0");
    ck_assert_uint_ne(list.entries[0].inode, 0);
    part_list_clear(&list);
    snprintf(second, sizeof second, "%s/none", base);
    char *const gone[] = {table, second};
    ck_assert_int_eq(part_list_read(gone, 2, false, &list, &err), CHXA_E_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error_message(&err), second));
    ck_assert_uint_eq(list.n_entries, 0);
}
END_TEST

static struct part_list list_of(const char *const *names)
{
    struct part_list list = {0};
    for (size_t n = 0; names[n]; n++) {
        list.entries = mem_realloc(list.entries, (n + 1) * sizeof *list.entries);
        list.entries[n] = (struct part_entry){.name = mem_strdup(names[n]), .inode = n + 100};
        list.n_entries = n + 1;
    }
    return list;
}

START_TEST(test_list_new)
{
    const char *const old[] = {"a_1_1_0", "a_2_2_0", NULL};
    const char *const now[] = {"a_1_1_0", "a_2_2_0", "a_3_3_0", "a_4_4_0",
                               "a_4_5_1", "b_1_1_0", NULL};
    struct part_list before = list_of(old), after = list_of(now), fresh = {0};
    part_list_new(&before, &after, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 3);
    ck_assert_str_eq(fresh.entries[0].name, "a_3_3_0");
    ck_assert_str_eq(fresh.entries[1].name, "a_4_5_1");
    ck_assert_str_eq(fresh.entries[2].name, "b_1_1_0");
    part_list_clear(&fresh);
    /* The same name with another inode, or the same inode born later, is another part. */
    after.entries[0].inode = 7;
    after.entries[1].birth_ns = 1;
    part_list_new(&before, &after, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 5);
    part_list_clear(&fresh);
    struct part_list none = {0};
    part_list_new(&none, &before, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 2);
    part_list_clear(&fresh);
    part_list_new(&before, &none, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 0);
    part_list_clear(&before);
    part_list_clear(&after);
}
END_TEST

/* What somebody's OPTIMIZE and TRUNCATE leave of a scratch table. */
START_TEST(test_list_tampered)
{
    char *const paths[] = {table};
    struct part_list before = {0}, after = {0}, fresh = {0}, later = {0};
    make_part(table, "all_1_1_0", "1");
    make_part(table, "all_2_2_0", "1");
    ck_assert_int_eq(part_list_read(paths, 1, false, &before, &err), 0);
    make_part(table, "all_3_3_0", "1");
    make_part(table, "all_4_4_0", "1");
    make_part(table, "all_3_4_1", "2");
    ck_assert_int_eq(part_list_read(paths, 1, false, &after, &err), 0);
    part_list_new(&before, &after, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 1);
    ck_assert(!part_list_overlaps(&before, &fresh, false)); /* of this INSERT's own blocks */
    ck_assert(part_list_covers(&after, &fresh));
    ck_assert(!part_list_covers(&before, &fresh));
    part_list_clear(&fresh);
    make_part(table, "all_1_4_2", "4");
    ck_assert_int_eq(part_list_read(paths, 1, false, &later, &err), 0);
    part_list_new(&before, &later, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 1);
    ck_assert(part_list_overlaps(&before, &fresh, false));
    struct part_list none = {0};
    ck_assert(!part_list_overlaps(&none, &fresh, false));
    ck_assert(part_list_covers(&none, &none));
    part_list_clear(&before);
    part_list_clear(&after);
    part_list_clear(&fresh);
    part_list_clear(&later);
}
END_TEST

START_TEST(test_list_new_while_moving)
{
    const char *const old[] = {"a_1_1_0", NULL};
    /* The old part now lies on disk 1; the new one is listed on both while it is moved. */
    const char *const now[] = {"a_1_1_0", "a_2_2_0", "a_2_2_0", NULL};
    struct part_list before = list_of(old), after = list_of(now), fresh = {0};
    after.entries[0].inode = 7;
    after.entries[0].disk = after.entries[2].disk = 1;
    part_list_new(&before, &after, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 1);
    ck_assert_str_eq(fresh.entries[0].name, "a_2_2_0");
    part_list_clear(&fresh);
    part_list_clear(&before);
    part_list_clear(&after);
}
END_TEST

START_TEST(test_list_new_old_syntax)
{
    const char *const old[] = {"20240101_20240101_1_1_0", NULL};
    /* A merge took the write's part and one that was there before: the sum is what is new. */
    const char *const now[] = {"20240101_20240101_1_1_0", "20240101_20240109_1_2_1",
                               "20240109_20240109_2_2_0", "20240201_20240201_3_3_0", NULL};
    struct part_list before = list_of(old), after = list_of(now), fresh = {0};
    part_list_new(&before, &after, true, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 2);
    ck_assert_str_eq(fresh.entries[0].name, "20240101_20240109_1_2_1");
    ck_assert_str_eq(fresh.entries[1].name, "20240201_20240201_3_3_0");
    part_list_clear(&fresh);
    part_list_clear(&before);
    part_list_clear(&after);
}
END_TEST

/* ---- linking ---- */

START_TEST(test_link)
{
    make_part(table, "202401_4_4_0", "42\n");
    char projection[512];
    snprintf(projection, sizeof projection, "%s/202401_4_4_0/p.proj", table);
    ck_assert_int_eq(mkdir(projection, 0750), 0);
    make_file(projection, "data.bin", "xyz");
    for (int again = 0; again < 2; again++) {
        struct chxa_part part = link_part("202401_4_4_0", 1000000000000007u);
        ck_assert_str_eq(part.name, "202401_1000000000000007_1000000000000007_0");
        ck_assert_str_eq(part.partition_id, "202401");
        ck_assert_uint_eq(part.rows, 42);
        ck_assert_uint_eq(part.bytes, 3 + strlen("202401_4_4_0") + 10 + 3);
        char hex[HASH_HEX_BYTES + 1];
        hash_of("202401_4_4_0", strlen("202401_4_4_0"), hex);
        ck_assert_str_eq(part.checksum, hex);
        struct stat held, file, from;
        const char *dir = path_of(root, "chxa/t-" XID "/1000000000000007");
        ck_assert_int_eq(stat(dir, &held), 0);
        ck_assert_uint_eq(held.st_ino, part.inode);
        ck_assert_uint_eq(held.st_mode & 07777, 0750);
        ck_assert_int_eq(stat(path_of(dir, "p.proj/data.bin"), &file), 0);
        ck_assert_int_eq(stat(path_of(projection, "data.bin"), &from), 0);
        ck_assert_uint_eq(file.st_ino, from.st_ino);
        ck_assert_int_eq(stat(path_of(root, "chxa"), &held), 0);
        ck_assert_uint_eq(held.st_mode & 07777, 0700);
        chxa_part_clear(&part);
    }
}
END_TEST

START_TEST(test_link_no_rows)
{
    make_part(table, "all_1_1_0", "0");
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err), 0);
    ck_assert_ptr_null(part.name);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5")));
}
END_TEST

static const char *const bad_counts[] = {
    "",      "\n",
    "x",     "-1",
    "1 2",   " 1",
    "1\n\n", "99999999999999999999",
    "0x10",  "1111111111111111111111111111111111111111111111111111111111",
};

START_TEST(test_link_bad_count)
{
    make_part(table, "all_1_1_0", bad_counts[_i]);
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert_ptr_null(part.name);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5")));
}
END_TEST

static const char *const hostile_names[] = {"",
                                            ".",
                                            "..",
                                            "../../etc",
                                            "/etc",
                                            "detached",
                                            "tmp_insert_all_1_1_0",
                                            "all_1_1_0/..",
                                            "all_1_1_0\n"};

START_TEST(test_link_hostile)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, hostile_names[_i], false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, "../x", 5, &part, &err),
                     CHXA_E_INVALID_XID);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, "a/b", 5, &part, &err),
                     CHXA_E_INVALID_XID);
    ck_assert_ptr_null(part.name);
}
END_TEST

START_TEST(test_link_symlinks)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = {0};
    /* A link among the files. */
    ck_assert_int_eq(symlink("/etc/passwd", path_of(table, "all_1_1_0/x.bin")), 0);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5")));
    ck_assert_int_eq(unlink(path_of(table, "all_1_1_0/x.bin")), 0);
    /* A link in place of the part. */
    ck_assert_int_eq(symlink("all_1_1_0", path_of(table, "all_2_2_0")), 0);
    ck_assert_int_eq(part_link(table, "all_2_2_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    /* A link in place of the transaction's folder, then of the held area. */
    held_remove(XID, (char *const[]){root}, 1, false, &err);
    ck_assert_int_eq(symlink(target, path_of(root, "chxa/t-" XID)), 0);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert_int_eq(unlink(path_of(root, "chxa/t-" XID)), 0);
    ck_assert_int_eq(rmdir(path_of(root, "chxa")), 0);
    ck_assert_int_eq(symlink(target, path_of(root, "chxa")), 0);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert(!exists(path_of(target, "t-" XID)));
}
END_TEST

START_TEST(test_link_missing)
{
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert_int_eq(
        part_link(path_of(base, "no"), "all_1_1_0", false, root, 0, XID, 5, &part, &err),
        CHXA_E_IO_FAILED);
    make_part(table, "all_1_1_0", "1");
    ck_assert_int_eq(
        part_link(table, "all_1_1_0", false, path_of(base, "no"), 0, XID, 5, &part, &err),
        CHXA_E_IO_FAILED);
    ck_assert_int_eq(unlink(path_of(table, "all_1_1_0/checksums.txt")), 0);
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, XID, 5, &part, &err),
                     CHXA_E_IO_FAILED);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5")));
}
END_TEST

START_TEST(test_link_long_partition)
{
    char name[300];
    memset(name, '1', sizeof name);
    memcpy(name + 220, "_1_1_0", 7);
    make_part(table, name, "1");
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, name, false, root, 0, XID, 1000000000000000u, &part, &err),
                     CHXA_E_TARGET_UNSUPPORTED);
    ck_assert_ptr_null(part.name);
}
END_TEST

START_TEST(test_link_other_filesystem)
{
    struct stat here, there;
    char other[] = "/dev/shm/chxa-parts-XXXXXX";
    if (stat(base, &here) != 0 || stat("/dev/shm", &there) != 0 || here.st_dev == there.st_dev ||
        mkdtemp(other) == NULL)
        return; /* this machine has no second filesystem to write to */
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = {0};
    int code = part_link(table, "all_1_1_0", false, other, 0, XID, 5, &part, &err);
    bool left = exists(path_of(other, "chxa/t-" XID "/5"));
    nftw(other, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    ck_assert_int_eq(code, CHXA_E_TARGET_UNSUPPORTED);
    ck_assert(!left);
    ck_assert_ptr_null(part.name);
}
END_TEST

START_TEST(test_link_long_xid)
{
    char xid[CHXA_XID_BYTES_MAX + 1];
    memset(xid, 'z', sizeof xid);
    xid[CHXA_XID_BYTES_MAX] = '\0';
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, "all_1_1_0", false, root, 0, xid, 5, &part, &err), 0);
    char *const roots[] = {root};
    ck_assert_int_eq(held_sync(xid, roots, 1, &part, 1, 100, &err), 0);
    ck_assert_int_eq(held_mark(root, xid, &part, true, &err), 0);
    ck_assert_int_eq(held_move_out(root, xid, &part, target, &err), 0);
    ck_assert_int_eq(held_remove(xid, roots, 1, true, &err), 0);
    ck_assert(exists(path_of(target, "detached/all_5_5_0")));
    chxa_part_clear(&part);
}
END_TEST

/* One compressed block's head (the packed bytes themselves do not matter). */
static void make_blocks(const char *dir, const char *name, unsigned n_blocks, uint32_t plain)
{
    int fd = open(path_of(dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(fd, 0);
    for (unsigned i = 0; i < n_blocks; i++) {
        unsigned char block[16 + 9 + 4] = {0};
        block[16] = 0x82;
        block[17] = 9 + 4;
        for (unsigned byte = 0; byte < 4; byte++)
            block[21 + byte] = (unsigned char)(plain >> (8 * byte));
        ck_assert_int_eq(write(fd, block, sizeof block), sizeof block);
    }
    close(fd);
}

START_TEST(test_link_old_syntax)
{
    const char *name = "20240105_20240131_1_1_0";
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", table, name);
    ck_assert_int_eq(mkdir(dir, 0750), 0);
    make_file(dir, "checksums.txt", "c");
    make_file(dir, "columns.txt",
              "columns format version: 1\n3 columns:\n`s` String\n`a b.c` Date\n`k` UInt64\n");
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, name, true, root, 0, XID, 5, &part, &err), CHXA_E_IO_FAILED);
    make_blocks(dir, "a%20b%2Ec.bin", 3, 1000);
    ck_assert_int_eq(part_link(table, name, true, root, 0, XID, 5, &part, &err), 0);
    ck_assert_uint_eq(part.rows, 1500);
    ck_assert_str_eq(part.name, "20240105_20240131_5_5_0");
    ck_assert_str_eq(part.partition_id, "202401");
    chxa_part_clear(&part);
    make_file(dir, "a%20b%2Ec.bin", "short");
    ck_assert_int_eq(part_link(table, name, true, root, 0, XID, 5, &part, &err), CHXA_E_IO_FAILED);
}
END_TEST

/* ---- durability ---- */

/* This program's own: the disk refuses on demand. */
static int fsyncs_until_refused = -1; /* -1: never */

int fsync(int fd)
{
    if (fsyncs_until_refused == 0) {
        fsyncs_until_refused = -1; /* and says yes the next time, as Linux does */
        errno = EIO;
        return -1;
    }
    fsyncs_until_refused -= fsyncs_until_refused > 0;
    return fdatasync(fd);
}

/* Whatever the fsync was about: of a file, of a part's folder, of the folders above. */
START_TEST(test_sync_that_the_disk_refuses)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    char *const roots[] = {root};
    int refused = 0;
    for (int at = 0; at < 100; at++) {
        fsyncs_until_refused = at;
        int code = held_sync(XID, roots, 1, &part, 1, 1000, &err);
        if (code == 0)
            break;
        ck_assert_int_eq(code, CHXA_E_PARTS_LOST);
        ck_assert_ptr_nonnull(strstr(error_message(&err), "roll back and replay"));
        /* The note that it is not known to be durable stays, and a "yes" is not enough then: the files
         * must be written anew, and these are not what checksums.txt says. */
        const char *note = path_of(root, "chxa/t-" XID "/5.syncing");
        ck_assert(exists(note));
        ck_assert_int_eq(held_sync(XID, roots, 1, &part, 1, 1000, &err), CHXA_E_PARTS_LOST);
        ck_assert_int_eq(unlink(note), 0);
        refused++;
    }
    ck_assert_int_ge(refused, 5); /* a file, its folder, the transaction's, the area, the root */
    ck_assert_int_lt(refused, 100);
    ck_assert(!exists(path_of(root, "chxa/t-" XID "/5.syncing")));
    fsyncs_until_refused = -1;
    chxa_part_clear(&part);
}
END_TEST

START_TEST(test_sync)
{
    make_part(table, "all_1_1_0", "1");
    make_part(table, "all_2_2_0", "1");
    struct chxa_part parts[2] = {link_part("all_1_1_0", 5), link_part("all_2_2_0", 6)};
    char *const roots[] = {root};
    size_t limits[] = {0, 1, 5, 6, 1000}; /* 6 files in all: both ways, and the edge */
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        ck_assert_int_eq(held_sync(XID, roots, 1, parts, 2, limits[i], &err), 0);
    ck_assert_int_eq(held_sync(XID, roots, 1, parts, 0, 10, &err), 0);
    ck_assert_int_eq(held_remove_part(XID, root, 6, &err), 0);
    ck_assert_int_eq(held_remove_part(XID, root, 6, &err), 0);
    ck_assert_int_eq(held_sync(XID, roots, 1, parts, 2, 1000, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(held_sync("other", roots, 1, parts, 1, 10, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(dir_sync(root, &err), 0);
    ck_assert_int_eq(dir_sync(path_of(base, "no"), &err), CHXA_E_IO_FAILED);
    chxa_part_clear(&parts[0]);
    chxa_part_clear(&parts[1]);
}
END_TEST

/* ---- commit ---- */

START_TEST(test_move)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    struct part_place place = place_of(&part);
    ck_assert(place.held && !place.marker && !place.detached && !place.attaching);
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), CHXA_E_IO_FAILED);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_mark(root, XID, &part, again, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && place.marker);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), 0);
    place = place_of(&part);
    ck_assert(!place.held && place.marker && place.detached && !place.attaching);
    ck_assert(!place.sent);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_note_sent(root, XID, &part.number, 1, again, &err), 0);
    place = place_of(&part);
    ck_assert(place.marker && place.sent && place.detached);
    for (int again = 0; again < 2; again++)
        ck_assert_int_eq(held_move_back(root, XID, &part, target, part.name, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && !place.marker && !place.sent && !place.detached);
    /* A move back that died before it removed the marker: marked anew, it is not sent. */
    ck_assert_int_eq(held_note_sent(root, XID, &part.number, 1, true, &err), 0);
    ck_assert_int_eq(held_mark(root, XID, &part, true, &err), 0);
    place = place_of(&part);
    ck_assert(place.held && place.marker && !place.sent);
    ck_assert_int_eq(held_note_sent(root, XID, &part.number, 1, true, &err), 0);
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
    ck_assert_int_eq(held_mark(root, XID, &part, false, &err), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), 0);
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
    ck_assert_int_eq(held_mark(root, XID, &part, false, &err), 0);
    place = place_of(&part);
    ck_assert_ptr_null(place.active);
    ck_assert_int_eq(held_note_sent(root, XID, &part.number, 1, false, &err), 0);
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
    ck_assert_int_eq(held_mark(root, XID, &part, false, &err), 0);
    /* Somebody's part stands where ours must go: never replaced, even when empty. */
    ck_assert_int_eq(mkdir(path_of(target, "detached"), 0755), 0);
    ck_assert_int_eq(mkdir(path_of(target, "detached/all_5_5_0"), 0755), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), CHXA_E_IO_FAILED);
    ck_assert(place_of(&part).held);
    ck_assert_int_eq(rmdir(path_of(target, "detached/all_5_5_0")), 0);
    /* detached/ is a symbolic link. */
    ck_assert_int_eq(rmdir(path_of(target, "detached")), 0);
    ck_assert_int_eq(symlink(table, path_of(target, "detached")), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), CHXA_E_IO_FAILED);
    ck_assert_int_eq(unlink(path_of(target, "detached")), 0);
    /* Another directory stands in the held area in its place. */
    const char *held = path_of(root, "chxa/t-" XID "/5");
    ck_assert_int_eq(rename(held, path_of(base, "kept")), 0);
    ck_assert_int_eq(mkdir(path_of(root, "chxa/t-" XID "/5"), 0755), 0);
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), CHXA_E_IO_FAILED);
    ck_assert(!place_of(&part).held);
    /* A name from a record that is no name. */
    free(part.name);
    part.name = mem_strdup("../x");
    ck_assert_int_eq(held_move_out(root, XID, &part, target, &err), CHXA_E_IO_FAILED);
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
    ck_assert_int_eq(held_mark(root, XID, &part, false, &err), 0);
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
    ck_assert_int_eq(held_mark(root, XID, &five, false, &err), 0);
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
    Suite *suite = suite_create("part_files");
    TCase *names = tcase_create("names");
    tcase_add_test(names, test_dir_name);
    tcase_add_test(names, test_name_parse);
    tcase_add_loop_test(names, test_contains, 0, sizeof containments / sizeof containments[0]);
    tcase_add_test(names, test_list_new);
    tcase_add_test(names, test_list_new_while_moving);
    tcase_add_test(names, test_list_new_old_syntax);
    suite_add_tcase(suite, names);
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, test_list);
    tcase_add_test(files, test_link);
    tcase_add_test(files, test_link_no_rows);
    tcase_add_loop_test(files, test_link_bad_count, 0, sizeof bad_counts / sizeof bad_counts[0]);
    tcase_add_loop_test(files, test_link_hostile, 0,
                        sizeof hostile_names / sizeof hostile_names[0]);
    tcase_add_test(files, test_link_symlinks);
    tcase_add_test(files, test_link_missing);
    tcase_add_test(files, test_link_long_partition);
    tcase_add_test(files, test_link_other_filesystem);
    tcase_add_test(files, test_link_long_xid);
    tcase_add_test(files, test_link_old_syntax);
    tcase_add_test(files, test_sync);
    tcase_add_test(files, test_sync_that_the_disk_refuses);
    tcase_add_test(files, test_move);
    tcase_add_test(files, test_list_tampered);
    tcase_add_test(files, test_places);
    tcase_add_test(files, test_places_inode_used_again);
    tcase_add_test(files, test_places_disks);
    tcase_add_test(files, test_move_blocked);
    tcase_add_test(files, test_remove);
    tcase_add_test(files, test_remove_unnamed);
    tcase_add_test(files, test_folder_xid);
    tcase_add_test(files, test_held_list);
    suite_add_tcase(suite, files);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
