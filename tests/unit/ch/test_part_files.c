/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing, linking and syncing part directories, tried in a temporary directory without a server.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "lib/suite.h"
#include "unit/ch/part_lab.h"

#include <errno.h>
#include <sys/syscall.h>

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

static size_t asked;

/* The library's calls come here first. */
int statx(int dir, const char *restrict name, int flags, unsigned mask, struct statx *restrict to)
{
    asked++;
    return (int)syscall(SYS_statx, dir, name, flags, mask, to);
}

/* Both read the same, by so many questions; its n_new. */
static void check_read_on(const struct part_list *before, size_t questions, size_t n_new)
{
    char *const paths[] = {table};
    struct part_list after = {0}, all = {0}, fresh = {0};
    asked = 0;
    ck_assert_int_eq(part_list_read_on(before, paths, 1, false, &after, &err), 0);
    ck_assert_uint_eq(asked, questions);
    ck_assert_int_eq(part_list_read(paths, 1, false, &all, &err), 0);
    ck_assert_uint_eq(after.n_entries, all.n_entries);
    for (size_t i = 0; i < all.n_entries; i++) {
        ck_assert_str_eq(after.entries[i].name, all.entries[i].name);
        ck_assert_uint_eq(after.entries[i].inode, all.entries[i].inode);
        ck_assert_uint_eq(after.entries[i].birth_ns, all.entries[i].birth_ns);
    }
    part_list_new(before, &after, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, n_new);
    part_list_clear(&after);
    part_list_clear(&all);
    part_list_clear(&fresh);
}

/* A list is gone on with: nobody is asked about parts that were there before, while that can be relied on. */
START_TEST(test_list_goes_on)
{
    char *const paths[] = {table};
    struct part_list before = {0};
    make_part(table, "all_1_1_0", "1");
    check_read_on(&before, 1, 1);
    make_part(table, "all_9_9_0", "1");
    make_part(table, "all_10_10_0", "1");
    ck_assert_int_eq(part_list_read(paths, 1, false, &before, &err), 0);
    check_read_on(&before, 1, 0);
    make_part(table, "all_11_11_0", "1");
    check_read_on(&before, 2, 1);
    struct part_entry *highest = &before.entries[0], *other = &before.entries[1];
    ck_assert_str_eq(highest->name, "all_10_10_0");
    other->inode++; /* another one under its name, which the folder tells */
    check_read_on(&before, 3, 2);
    other->inode--;
    /* Others under all the names, with the inodes of the old: emptied, and numbered anew. */
    highest->birth_ns++;
    other->birth_ns++;
    check_read_on(&before, 1 + 1 + 4, 3);
    /* The highest was taken away. */
    nftw(path_of(table, highest->name), remove_one, 16, FTW_DEPTH | FTW_PHYS);
    check_read_on(&before, 1 + 1 + 3, 2);
    part_list_clear(&before);
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
    ck_assert(part_list_stands(&fresh, paths, 1));
    char *const elsewhere[] = {base, table};
    ck_assert(part_list_stands(&fresh, elsewhere, 2)); /* as if it had been moved there */
    ck_assert(!part_list_stands(&fresh, elsewhere, 1));
    fresh.entries[0].inode++; /* another one under its name */
    ck_assert(!part_list_stands(&fresh, paths, 1));
    fresh.entries[0].inode--;
    fresh.entries[0].birth_ns++;
    ck_assert(!part_list_stands(&fresh, paths, 1));
    part_list_clear(&fresh);
    make_part(table, "all_1_4_2", "4");
    ck_assert_int_eq(part_list_read(paths, 1, false, &later, &err), 0);
    part_list_new(&before, &later, false, &fresh);
    ck_assert_uint_eq(fresh.n_entries, 1);
    ck_assert(part_list_overlaps(&before, &fresh, false));
    struct part_list none = {0};
    ck_assert(!part_list_overlaps(&none, &fresh, false));
    ck_assert(part_list_stands(&none, paths, 1));
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
    ck_assert_int_eq(held_mark(root, xid, RUN_OF(part), 1, true, &err), 0);
    ck_assert_int_eq(held_move_out(root, xid, &part, 1, target, &err), 0);
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
static int asks_until_refused = -1;
static bool syncfs_refuses;
static unsigned fsyncs;

static int refuse_at(int *until)
{
    if (*until == 0) {
        *until = -1; /* and says yes the next time, as Linux does */
        errno = EIO;
        return -1;
    }
    *until -= *until > 0;
    return 0;
}

int fsync(int fd)
{
    fsyncs++;
    return refuse_at(&fsyncs_until_refused) == 0 ? fdatasync(fd) : -1;
}

int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags)
{
    (void)fd, (void)offset, (void)bytes, (void)flags;
    return refuse_at(&asks_until_refused);
}

int syncfs(int fd)
{
    (void)fd;
    errno = EIO;
    return syncfs_refuses ? -1 : 0;
}

/* Refuses the first, the second, … until none is refused. Returns how many there were. */
static int sync_refused_each(int *until, size_t files_max, const struct chxa_part *part)
{
    char *const roots[] = {root};
    for (int at = 0; at < 100; at++) {
        *until = at;
        int code = held_sync(XID, roots, 1, part, 1, files_max, &err);
        *until = -1;
        if (code == 0) {
            ck_assert(!exists(path_of(root, "chxa/t-" XID "/5.syncing")));
            return at;
        }
        ck_assert_int_eq(code, CHXA_E_PARTS_LOST);
        ck_assert_ptr_nonnull(strstr(error_message(&err), "roll back and replay"));
        /* The note that it is not known to be durable stays, and a "yes" is not enough then: the files
         * must be written anew, and these are not what checksums.txt says. */
        const char *note = path_of(root, "chxa/t-" XID "/5.syncing");
        ck_assert(exists(note));
        ck_assert_int_eq(held_sync(XID, roots, 1, part, 1, files_max, &err), CHXA_E_PARTS_LOST);
        ck_assert_int_eq(unlink(note), 0);
    }
    ck_abort_msg("always refused");
}

/* Whatever the fsync was about: of a file, of a part's folder, of the folders above. */
START_TEST(test_sync_that_the_disk_refuses)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    syncfs_refuses = true;
    /* a file, its folder, the transaction's, the area, the root */
    ck_assert_int_ge(sync_refused_each(&fsyncs_until_refused, 1000, &part), 5);
    syncfs_refuses = false;
    chxa_part_clear(&part);
}
END_TEST

/* One syncfs (there are more files than 0), and what it was refused the files tell. */
START_TEST(test_sync_at_once_that_the_disk_refuses)
{
    make_part(table, "all_1_1_0", "1");
    struct chxa_part part = link_part("all_1_1_0", 5);
    char *const roots[] = {root};
    ck_assert_int_eq(sync_refused_each(&asks_until_refused, 0, &part), 3); /* files of the part */
    ck_assert_int_eq(sync_refused_each(&fsyncs_until_refused, 0, &part), 1);
    /* It failed, and not for our files: they are made durable one by one. */
    syncfs_refuses = true;
    fsyncs = 0;
    ck_assert_int_eq(held_sync(XID, roots, 1, &part, 1, 0, &err), 0);
    ck_assert_uint_ge(fsyncs, 5);
    ck_assert_int_ge(sync_refused_each(&fsyncs_until_refused, 0, &part), 5);
    syncfs_refuses = false;
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

int main(void)
{
    Suite *suite = suite_create("part_files");
    TCase *tests = tcase_create("part_files");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_list);
    tcase_add_test(tests, test_list_new);
    tcase_add_test(tests, test_list_goes_on);
    tcase_add_test(tests, test_list_tampered);
    tcase_add_test(tests, test_list_new_while_moving);
    tcase_add_test(tests, test_list_new_old_syntax);
    tcase_add_test(tests, test_link);
    tcase_add_test(tests, test_link_no_rows);
    tcase_add_loop_test(tests, test_link_bad_count, 0, sizeof bad_counts / sizeof bad_counts[0]);
    tcase_add_loop_test(tests, test_link_hostile, 0,
                        sizeof hostile_names / sizeof hostile_names[0]);
    tcase_add_test(tests, test_link_symlinks);
    tcase_add_test(tests, test_link_missing);
    tcase_add_test(tests, test_link_long_partition);
    tcase_add_test(tests, test_link_other_filesystem);
    tcase_add_test(tests, test_link_long_xid);
    tcase_add_test(tests, test_link_old_syntax);
    tcase_add_test(tests, test_sync_that_the_disk_refuses);
    tcase_add_test(tests, test_sync);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
