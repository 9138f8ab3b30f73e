/* SPDX-License-Identifier: Apache-2.0
 *
 * Making held parts durable: see held_sync in part_files.h. Threads: any worker.
 *
 * Each fsync waits for the filesystem's journal, a dozen times for a small part; one syncfs waits
 * once, but for all that anybody has written. So it is taken for many files, or when little waits
 * to be written. A syncfs of an old kernel does not tell what the disk refused, and one of a new
 * kernel tells it of anybody's files, once; so the files are asked afterwards (each remembers what
 * was refused of it until it is told), and after a failure the files are made durable one by one.
 */
#include "ch/part_files.h"

#include "base/mem.h"
#include "ch/part_dirs.h"
#include "ch/part_renew.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* With no more than this to be written for each part, one syncfs is the shorter way. */
#define DIRTY_BYTES_PER_PART (8u << 20)

enum sync_visit {
    SYNC_COUNT, /* until files_left is 0 */
    SYNC_FSYNC, /* files and directories */
    SYNC_ASK,   /* after a syncfs: whether it was refused anything of the files */
};

struct syncing {
    enum sync_visit does;
    size_t files_left;
    bool refused; /* the disk did not keep something */
    unsigned depth;
};

/* 0, or a negative errno. What an fsync that failed was about is not known to be on disk, ever: the
 * kernel may drop the pages and say yes the next time (PostgreSQL's "fsyncgate", 2018). */
static int sync_file(struct syncing *syncing, int fd)
{
    int result = syncing->does == SYNC_FSYNC
                     ? fsync(fd)
                     : sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE);
    if (result == 0)
        return 0;
    int number = -errno;
    syncing->refused = true;
    return number;
}

static int sync_tree(struct syncing *syncing, int dir);

static int sync_directory(struct syncing *syncing, int dir, const char *name)
{
    if (syncing->depth > 1)
        return -ELOOP;
    int fd = dirs_open_at(dir, name);
    if (fd < 0)
        return fd;
    syncing->depth++;
    int result = sync_tree(syncing, fd);
    syncing->depth--;
    return result;
}

static int sync_visit(void *arg, int dir, const struct dirent64 *entry)
{
    struct syncing *syncing = arg;
    const char *name = entry->d_name;
    struct stat status = {0};
    if (entry->d_type == DT_UNKNOWN && fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (entry->d_type == DT_DIR || S_ISDIR(status.st_mode))
        return sync_directory(syncing, dir, name);
    if (syncing->does == SYNC_COUNT) {
        if (syncing->files_left == 0)
            return 1;
        syncing->files_left--;
        return 0;
    }
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = sync_file(syncing, fd);
    close(fd);
    return result;
}

/* Takes dir. */
static int sync_tree(struct syncing *syncing, int dir)
{
    int self = syncing->does == SYNC_FSYNC ? dup(dir) : -1;
    int result = dirs_each_entry(dir, sync_visit, syncing);
    if (result == 0 && self >= 0)
        result = sync_file(syncing, self);
    dirs_close(&self);
    return result;
}

/* Visits the files of all parts on one disk. 0, 1 (counting: too many) or an error code. */
static int sync_parts(struct syncing *syncing, int held, const char *root, uint32_t disk,
                      const struct chxa_part *parts, size_t n_parts, struct error *error)
{
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].disk != disk)
            continue;
        struct held_entry_name name = held_part_name(parts[i].number);
        int result = dirs_open_at(held, name.text);
        if (result >= 0)
            result = sync_tree(syncing, result);
        if (result < 0)
            return dirs_failed(error, result, "make durable a held part under", root, name.text);
        if (result > 0)
            return result;
    }
    return 0;
}

static int sync_file_by_file(struct syncing *syncing, int held, const char *root, uint32_t disk,
                             const struct chxa_part *parts, size_t n_parts, struct error *error)
{
    int result = sync_parts(syncing, held, root, disk, parts, n_parts, error);
    if (result != 0)
        return result;
    int root_fd = dirs_open(root);
    int area = root_fd < 0 ? root_fd : dirs_open_at(root_fd, HELD_AREA);
    int number = area < 0 ? area : 0;
    if (number == 0)
        number = sync_file(syncing, held);
    if (number == 0)
        number = sync_file(syncing, area);
    if (number == 0)
        number = sync_file(syncing, root_fd);
    dirs_close(&area);
    dirs_close(&root_fd);
    return number == 0 ? 0 : dirs_failed(error, number, "make durable", root, HELD_AREA);
}

static bool disk_in_use(const struct chxa_part *parts, size_t n_parts, size_t disk)
{
    for (size_t i = 0; i < n_parts; i++)
        if (parts[i].disk == disk)
            return true;
    return false;
}

/* Bytes that wait to be written, of all filesystems; UINT64_MAX: not known. */
static uint64_t dirty_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t sum = 0, kilobytes;
    unsigned found = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "Dirty: %" SCNu64, &kilobytes) != 1 &&
            sscanf(line, "Writeback: %" SCNu64, &kilobytes) != 1)
            continue;
        sum += kilobytes << 10;
        found++;
    }
    if (file)
        fclose(file);
    return found == 2 ? sum : UINT64_MAX;
}

/* Filesystems whose syncfs is known to reach the disk: some that live in another process, or on
 * another machine, only hand the data on. */
static bool syncs_whole(int fd)
{
    struct statfs status;
    return fstatfs(fd, &status) == 0 &&
           (status.f_type == EXT4_SUPER_MAGIC || status.f_type == XFS_SUPER_MAGIC ||
            status.f_type == BTRFS_SUPER_MAGIC);
}

/*
 * One syncfs; 0 when it has made the parts durable for sure, 1 when it failed (the files, which were
 * not asked, will say whether it was about them), or an error code. The fsync is of what is durable
 * already, and fails when the filesystem's journal has.
 */
static int sync_at_once(int held, const char *root, uint32_t disk, const struct chxa_part *parts,
                        size_t n_parts, bool *ret_refused, struct error *error)
{
    if (syncfs(held) != 0)
        return 1;
    *ret_refused = true;
    if (fsync(held) != 0)
        return dirs_failed(error, errno, "make durable", root, HELD_AREA);
    struct syncing asking = {.does = SYNC_ASK};
    int result = sync_parts(&asking, held, root, disk, parts, n_parts, error);
    *ret_refused = asking.refused;
    return result;
}

static int held_sync_open(int held, const char *root, uint32_t disk, const struct chxa_part *parts,
                          size_t n_parts, struct syncing *counting, struct error *error)
{
    int result = 0;
    bool at_once = syncs_whole(held) && dirty_bytes() / DIRTY_BYTES_PER_PART <= n_parts;
    if (!at_once) {
        result = sync_parts(counting, held, root, disk, parts, n_parts, error);
        if (result < 0)
            return result;
        at_once = result > 0;
        if (at_once)
            counting->files_left = 0; /* the disks to come have many files too: no need to count */
    }
    if (at_once) {
        result = sync_at_once(held, root, disk, parts, n_parts, &counting->refused, error);
        if (result <= 0)
            return result;
    }
    struct syncing syncing = {.does = SYNC_FSYNC};
    result = sync_file_by_file(&syncing, held, root, disk, parts, n_parts, error);
    counting->refused = syncing.refused;
    return result;
}

/* A process that was killed while it made these parts durable did not say whether the disk refused. */
static int renew_parts(struct syncing *counting, int held, const char *root, uint32_t disk,
                       const struct chxa_part *parts, size_t n_parts, struct error *error)
{
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].disk != disk)
            continue;
        struct held_entry_name name = held_part_name(parts[i].number);
        int dir = dirs_open_at(held, name.text);
        int result = dir < 0 ? dir : part_renew(dir, parts[i].checksum);
        dirs_close(&dir);
        counting->refused = result == -EBADMSG;
        if (result != 0)
            return dirs_failed(error, result, "write anew a held part under", root, name.text);
    }
    return 0;
}

/* Leaves a note, for a next process, that the disk's answer about these parts is still to come. */
static int sync_begin(struct syncing *counting, int held, const char *root, uint32_t disk,
                      const struct chxa_part *parts, size_t n_parts, struct held_entry_name note,
                      struct error *error)
{
    int fd = openat(held, note.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return renew_parts(counting, held, root, disk, parts, n_parts, error);
    if (fd < 0)
        return dirs_failed(error, errno, "make a note under", root, note.text);
    close(fd);
    return 0;
}

static struct held_entry_name note_name(const struct chxa_part *parts, uint32_t disk)
{
    while (parts->disk != disk) /* disk_in_use */
        parts++;
    return held_syncing_name(parts->number);
}

static int held_sync_disk(const char *xid, const char *root, uint32_t disk,
                          const struct chxa_part *parts, size_t n_parts, struct syncing *counting,
                          struct error *error)
{
    int held;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0)
        return result;
    if (held < 0)
        return dirs_failed(error, ENOENT, "open the transaction's folder under", root, HELD_AREA);
    struct held_entry_name note = note_name(parts, disk);
    result = sync_begin(counting, held, root, disk, parts, n_parts, note, error);
    if (result != 0) { /* if there was a note, it stays */
        dirs_close(&held);
        return result;
    }
    result = held_sync_open(held, root, disk, parts, n_parts, counting, error);
    if (!counting->refused && unlinkat(held, note.text, 0) != 0 && result == 0)
        result = dirs_failed(error, errno, "remove a note under", root, note.text);
    dirs_close(&held);
    return result;
}

static int parts_refused(struct error *error)
{
    char *why = mem_strdup(error_message(error));
    error_set(error, CHXA_E_PARTS_LOST,
              "%s: the staged rows may not be on disk; roll back and replay", why);
    free(why);
    return error->code;
}

int held_sync(const char *xid, char *const *roots, size_t n_roots, const struct chxa_part *parts,
              size_t n_parts, size_t files_max, struct error *error)
{
    struct syncing counting = {.does = SYNC_COUNT, .files_left = files_max};
    for (size_t i = 0; i < n_parts; i++)
        assert(parts[i].disk < n_roots);
    for (size_t disk = 0; disk < n_roots; disk++) {
        if (!disk_in_use(parts, n_parts, disk))
            continue;
        int result =
            held_sync_disk(xid, roots[disk], (uint32_t)disk, parts, n_parts, &counting, error);
        if (result != 0)
            return counting.refused ? parts_refused(error) : result;
    }
    return 0;
}

int dir_sync(const char *path, struct error *error)
{
    int fd = dirs_open(path);
    if (fd < 0)
        return dirs_failed(error, fd, "open", path, NULL);
    int result = fsync(fd) == 0 ? 0 : dirs_failed(error, errno, "fsync", path, NULL);
    dirs_close(&fd);
    return result;
}
