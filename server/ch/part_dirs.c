/* SPDX-License-Identifier: Apache-2.0
 *
 * See part_dirs.h.
 */
#include "ch/part_dirs.h"

#include "base/hash.h"
#include "base/mem.h"
#include "ch/part_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES   16384u /* more than most checksums.txt have */
#define ENTRIES_BYTES 16384u /* a part's folder at once */
#define DEPTH_MAX     16u    /* a part has projections and their files: two levels */

struct held_entry_name held_part_name(uint64_t number)
{
    struct held_entry_name name;
    snprintf(name.text, sizeof name.text, "%" PRIu64, number);
    return name;
}

struct held_entry_name held_marker_name(uint64_t number)
{
    struct held_entry_name name;
    snprintf(name.text, sizeof name.text, "%" PRIu64 MARKER_SUFFIX, number);
    return name;
}

struct held_entry_name held_run_name(struct part_run run, bool sent)
{
    struct held_entry_name name;
    const char *suffix = sent ? SENT_SUFFIX : MARKER_SUFFIX;
    if (run.first == run.last)
        snprintf(name.text, sizeof name.text, "%" PRIu64 "%s", run.first, suffix);
    else
        snprintf(name.text, sizeof name.text, "%" PRIu64 "-%" PRIu64 "%s", run.first, run.last,
                 suffix);
    return name;
}

struct held_entry_name held_syncing_name(uint64_t number)
{
    struct held_entry_name name;
    snprintf(name.text, sizeof name.text, "%" PRIu64 SYNCING_SUFFIX, number);
    return name;
}

struct held_entry_name held_out_name(uint64_t number)
{
    struct held_entry_name name;
    snprintf(name.text, sizeof name.text, "%" PRIu64 OUT_SUFFIX, number);
    return name;
}

struct held_entry_name held_next_marker_name(uint64_t number)
{
    struct held_entry_name name;
    snprintf(name.text, sizeof name.text, "%" PRIu64 MARKER_SUFFIX "~", number);
    return name;
}

int dirs_failed(struct error *error, int number, const char *what, const char *path,
                const char *name)
{
    int code = number < 0 ? -number : number;
    const char *slash = name ? "/" : "";
    name = name ? name : "";
    if (code == EXDEV)
        return error_set(error, CHXA_E_TARGET_UNSUPPORTED,
                         "cannot %s %s%s%s: the table is not on one filesystem with its disk's "
                         "root, so its parts cannot be staged there; give ClickHouse a disk whose "
                         "path is the mount point or lies within it",
                         what, path, slash, name);
    return error_set(error, CHXA_E_IO_FAILED, "cannot %s %s%s%s: %s", what, path, slash, name,
                     strerror(code));
}

int dirs_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int dirs_open_at(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int dirs_open_below(const char *path, const char *name)
{
    char *whole = mem_printf("%s/%s", path, name);
    int fd = open(whole, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int number = fd < 0 ? -errno : fd;
    free(whole);
    return number;
}

int dirs_make_at(int dir, const char *name)
{
    int fd = dirs_open_at(dir, name);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(dir, name, 0700) != 0 && errno != EEXIST)
        return -errno;
    return dirs_open_at(dir, name);
}

/* 0 or negative errno. Replaced by a rename, so that it is whole or not there. */
static int xid_note(int folder, const char *xid)
{
    static const char next[] = XID_FILE "~";
    if (faccessat(folder, XID_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    int fd = openat(folder, next, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = fd < 0 ? -errno : 0;
    size_t len = strlen(xid);
    if (result == 0 && write(fd, xid, len) != (ssize_t)len)
        result = errno ? -errno : -EIO;
    dirs_close(&fd);
    if (result == 0 && renameat(folder, next, folder, XID_FILE) != 0)
        result = -errno;
    return result;
}

int dirs_open_held(const char *root, const char *xid, bool create, int *ret_fd, struct error *error)
{
    if (!chxa_xid_valid(xid))
        return error_set(error, CHXA_E_INVALID_XID, "%s", chxa_error_text(CHXA_E_INVALID_XID));
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(xid, name);
    int area = dirs_open_below(root, HELD_AREA);
    if (area == -ENOENT) { /* or there is no root */
        int root_fd = dirs_open(root);
        if (root_fd < 0)
            return dirs_failed(error, root_fd, "open", root, NULL);
        area = create ? dirs_make_at(root_fd, HELD_AREA) : dirs_open_at(root_fd, HELD_AREA);
        dirs_close(&root_fd);
    }
    int fd = area;
    if (area >= 0)
        fd = create ? dirs_make_at(area, name) : dirs_open_at(area, name);
    dirs_close(&area);
    int noted = fd >= 0 && create && strchr(name, '~') ? xid_note(fd, xid) : 0;
    if (noted != 0) {
        dirs_close(&fd);
        fd = noted;
    }
    if (fd == -ENOENT && !create)
        fd = -1;
    else if (fd < 0)
        return dirs_failed(error, fd, "open", root, HELD_AREA);
    *ret_fd = fd;
    return 0;
}

int dirs_need_held(const char *root, const char *xid, int *ret_fd, struct error *error)
{
    int result = dirs_open_held(root, xid, false, ret_fd, error);
    if (result == 0 && *ret_fd < 0)
        return dirs_failed(error, ENOENT, "open the transaction's folder under", root, HELD_AREA);
    return result;
}

int dirs_rename(int from_dir, const char *from, int to_dir, const char *to)
{
    if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /* A filesystem without the flag. Nobody else makes our names, so looking first is enough; and a
     * directory that is not empty is never replaced. */
    struct stat there;
    if (fstatat(to_dir, to, &there, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return renameat(from_dir, from, to_dir, to) == 0 ? 0 : -errno;
}

uint64_t dirs_birth_ns(int dir, const char *name)
{
    struct statx status;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &status) != 0 ||
        !(status.stx_mask & STATX_BTIME))
        return 0;
    return (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec;
}

uint64_t dirs_inode(int dir, const char *name)
{
    struct stat status;
    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode))
        return 0;
    return status.st_ino;
}

/* The entries of one read of a folder. */
static int visit_entries(int dir, const char *entries, size_t bytes, dirs_visit_entry *visit,
                         void *arg)
{
    int result = 0;
    for (size_t at = 0; at < bytes && result == 0;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(entries + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = visit(arg, dir, entry);
    }
    return result;
}

/* Without a DIR, which costs three calls more for each folder. */
int dirs_each_entry(int dir, dirs_visit_entry *visit, void *arg)
{
    union {
        struct dirent64 first;
        char bytes[ENTRIES_BYTES];
    } entries;
    int result = 0;
    ssize_t got;
    do {
        got = getdents64(dir, entries.bytes, sizeof entries.bytes);
        if (got < 0)
            result = -errno;
        else if (got > 0)
            result = visit_entries(dir, entries.bytes, (size_t)got, visit, arg);
    } while (got > 0 && result == 0);
    close(dir);
    return result;
}

struct visiting {
    dirs_visit *name;
    dirs_visit_inode *inode;
    void *arg;
};

static int visit_inode(void *arg, int dir, const struct dirent64 *entry)
{
    const struct visiting *visiting = arg;
    return visiting->inode(visiting->arg, dir, entry->d_name, entry->d_ino);
}

int dirs_each_inode(int dir, dirs_visit_inode *visit, void *arg)
{
    struct visiting visiting = {.inode = visit, .arg = arg};
    return dirs_each_entry(dir, visit_inode, &visiting);
}

static int visit_name(void *arg, int dir, const struct dirent64 *entry)
{
    const struct visiting *visiting = arg;
    return visiting->name(visiting->arg, dir, entry->d_name);
}

int dirs_each(int dir, dirs_visit *visit, void *arg)
{
    struct visiting visiting = {.name = visit, .arg = arg};
    return dirs_each_entry(dir, visit_name, &visiting);
}

static int tree_remove(int dir, const char *name, unsigned depth);

static int tree_remove_entry(void *arg, int dir, const char *name)
{
    return tree_remove(dir, name, *(unsigned *)arg + 1);
}

static int tree_remove(int dir, const char *name, unsigned depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    if (depth > DEPTH_MAX)
        return -ELOOP;
    int fd = dirs_open_at(dir, name);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    int result = dirs_each(fd, tree_remove_entry, &depth);
    if (result != 0)
        return result;
    return unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int dirs_remove_tree(int dir, const char *name)
{
    return tree_remove(dir, name, 0);
}

ssize_t dirs_read(int fd, char *to, size_t room)
{
    ssize_t got;
    do {
        got = read(fd, to, room);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

int dirs_file_hash(int dir, const char *name, char ret_hex[HASH_HEX_BYTES + 1])
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct hash *hash = hash_new();
    char chunk[CHUNK_BYTES];
    ssize_t got;
    do {
        got = dirs_read(fd, chunk, sizeof chunk);
        if (got > 0)
            hash_update(hash, chunk, (size_t)got);
    } while (got == (ssize_t)sizeof chunk);
    close(fd);
    if (got >= 0)
        hash_final(hash, ret_hex);
    else
        hash_free(hash);
    return got < 0 ? (int)got : 0;
}

void dirs_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
