/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of parts on disk share: a folder of the test's own with a disk's root, a scratch table and a target in it, and
 * parts to put there. One translation unit includes this.
 */
#ifndef CHXA_TESTS_UNIT_CH_PART_LAB_H
#define CHXA_TESTS_UNIT_CH_PART_LAB_H

#include "ch/part_files.h"

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XID "job-1:ckpt-7"
/* For held_mark and held_note_sent: the run that is the part alone. */
#define RUN_OF(part) (&(struct part_run){(part).number, (part).number})

static char base[64];  /* the test's own directory */
static char root[96];  /* a disk's root in it */
static char table[96]; /* a scratch table's directory */
static char target[96];
static struct error err;

static inline int remove_one(const char *path, const struct stat *status, int kind,
                             struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline void setup(void)
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

static inline void teardown(void)
{
    error_clear(&err);
    nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* first/rest; valid for the next 31 calls. */
static inline const char *path_of(const char *first, const char *rest)
{
    static char paths[32][512];
    static unsigned turn;
    char *path = paths[turn++ % 32];
    snprintf(path, 512, "%s/%s", first, rest);
    return path;
}

static inline void make_file(const char *dir, const char *name, const char *text)
{
    int fd = open(path_of(dir, name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static inline void make_part(const char *in, const char *name, const char *count)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s/%s", in, name);
    ck_assert_int_eq(mkdir(dir, 0750), 0);
    make_file(dir, "count.txt", count);
    make_file(dir, "checksums.txt", name);
    make_file(dir, "data.bin", "0123456789");
}

static inline struct chxa_part link_part(const char *name, uint64_t number)
{
    struct chxa_part part = {0};
    ck_assert_int_eq(part_link(table, name, false, root, 0, XID, number, &part, &err), 0);
    return part;
}

static inline struct part_place place_of(const struct chxa_part *part)
{
    struct part_place place = {0};
    char *const tables[] = {target}, *const roots[] = {root};
    ck_assert_int_eq(part_places_read(XID, part, 1, tables, roots, 1, &place, &err), 0);
    return place;
}

static inline bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

#endif
