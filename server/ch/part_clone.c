/* SPDX-License-Identifier: Apache-2.0
 *
 * Clones of held parts: see part_files.h. A marker (held_markers.h) is empty (of parts that are given away themselves), or the part's own, and then says
 * "<inode> <birth> <ms> <name or ->"; it is replaced by a rename, so that it is whole whenever a crash comes.
 *
 * The order that a crash may cut anywhere:  clone, marker's next content → both durable → marker (durable) →
 * rename clone → detached … attached for sure → held directory gone. A clone without its marker was never moved
 * out, and is made anew. The clones of a batch go together from one to the next, so that the disk is waited for
 * once rather than for each. Threads: any worker.
 */
#include "ch/part_clone.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ch/part_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARKER_BYTES_MAX 320u

/* The part's own marker. False when there is none. */
static bool clone_marker_read(int held, uint64_t number, struct held_marker *ret_marker)
{
    struct held_marker marker = {0};
    char text[MARKER_BYTES_MAX + 1];
    *ret_marker = marker;
    int fd = openat(held, held_marker_name(number).text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, MARKER_BYTES_MAX);
    dirs_close(&fd);
    text[len > 0 ? len : 0] = '\0';
    int end = 0;
    if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNd64 " %255s%n", &marker.inode, &marker.birth_ns,
               &marker.cloned_ms, marker.seen, &end) != 4 ||
        text[end] != '\n')
        marker = (struct held_marker){0};
    if (strcmp(marker.seen, "-") == 0)
        marker.seen[0] = '\0';
    *ret_marker = marker;
    return true;
}

bool held_marker_read(int held, const struct held_markers *markers, uint64_t number,
                      struct held_marker *ret_marker)
{
    bool marked = part_run_has(markers->moved, markers->n_moved, number);
    *ret_marker = (struct held_marker){0};
    if (part_run_has(markers->single, markers->n_single, number))
        marked = clone_marker_read(held, number, ret_marker) || marked;
    ret_marker->sent = part_run_has(markers->sent, markers->n_sent, number);
    return marked || ret_marker->sent;
}

/* What the marker is to say, beside it; not durable. 0 or negative errno. */
static int marker_put(int held, uint64_t number, const struct held_marker *marker)
{
    char *text =
        mem_printf("%" PRIu64 " %" PRIu64 " %" PRId64 " %s\n", marker->inode, marker->birth_ns,
                   marker->cloned_ms, marker->seen[0] ? marker->seen : "-");
    struct held_entry_name next = held_next_marker_name(number);
    int fd = openat(held, next.text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int result = fd < 0 ? -errno : 0;
    size_t len = strlen(text);
    if (result == 0 && write(fd, text, len) != (ssize_t)len)
        result = errno ? -errno : -EIO;
    dirs_close(&fd);
    free(text);
    return result;
}

/* It says so from now on; durable with the folder. 0 or negative errno. */
static int marker_set(int held, uint64_t number)
{
    return renameat(held, held_next_marker_name(number).text, held,
                    held_marker_name(number).text) == 0
               ? 0
               : -errno;
}

/* A file or a directory. 0 or negative errno. */
static int entry_sync(int held, const char *name)
{
    int fd = openat(held, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return result;
}

/* Begins to write it to the disk, so that fsync of many waits once and not for each. */
static void entry_flush(int held, const char *name)
{
    int fd = openat(held, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* fsync will say what is wrong */
    close(fd);
}

/* Makes <number>.out and tells its inode and birth. 0 or negative errno. */
static int clone_make(int held, uint64_t number, struct held_marker *marker)
{
    struct held_entry_name name = held_out_name(number);
    uint64_t bytes = 0;
    struct stat status;
    int result = dirs_remove_tree(held, name.text);
    if (result != 0)
        return result;
    int from = dirs_open_at(held, held_part_name(number).text);
    if (from < 0)
        return from;
    if (fstat(from, &status) != 0 || mkdirat(held, name.text, 0700) != 0)
        result = -errno;
    int to = result == 0 ? dirs_open_at(held, name.text) : result;
    if (to < 0) {
        dirs_close(&from);
        return to;
    }
    result = dirs_link_part(from, to, &bytes);
    if (result == 0 && fchmod(to, status.st_mode & 07777) != 0)
        result = -errno;
    dirs_close(&to);
    marker->inode = dirs_inode(held, name.text);
    marker->birth_ns = dirs_birth_ns(held, name.text);
    return result;
}

/* The clone and what its marker is to say; *ret_made: there was none from before a crash. 0 or negative errno. */
static int clone_begin(int held, const struct chxa_part *part, bool *ret_made)
{
    struct held_marker marker;
    if (dirs_inode(held, held_part_name(part->number).text) != part->inode)
        return -ENOENT;
    if (clone_marker_read(held, part->number, &marker) && marker.inode &&
        marker.inode == dirs_inode(held, held_out_name(part->number).text))
        return 0;
    marker = (struct held_marker){.cloned_ms = clock_wall_ms()};
    int result = clone_make(held, part->number, &marker);
    if (result == 0)
        result = marker_put(held, part->number, &marker);
    *ret_made = result == 0;
    return result;
}

/* All that was begun. 0 or negative errno. */
static int clones_sync(int held, const struct chxa_part *parts, size_t n, const bool *made)
{
    int result = 0;
    for (size_t i = 0; i < n; i++)
        if (made[i])
            entry_flush(held, held_next_marker_name(parts[i].number).text);
    for (size_t i = 0; result == 0 && i < n; i++) {
        if (!made[i])
            continue;
        result = entry_sync(held, held_next_marker_name(parts[i].number).text);
        if (result == 0)
            result = entry_sync(held, held_out_name(parts[i].number).text);
    }
    return result;
}

/* 0 or negative errno; *ret_at: the part that it is about. */
static int clones_make(int held, const struct chxa_part *parts, size_t n, bool durable,
                       size_t *ret_at)
{
    bool *made = mem_array(n, sizeof *made);
    int result = 0;
    *ret_at = 0;
    for (size_t i = 0; result == 0 && i < n; i++) {
        *ret_at = i;
        result = clone_begin(held, &parts[i], &made[i]);
    }
    if (result == 0 && durable)
        result = clones_sync(held, parts, n, made);
    for (size_t i = 0; result == 0 && i < n; i++) {
        *ret_at = i;
        if (made[i])
            result = marker_set(held, parts[i].number);
    }
    /* Also when they were there: the try that made them may have ended before they were durable. */
    if (result == 0 && durable && fsync(held) != 0)
        result = -errno;
    free(made);
    return result;
}

int held_clone(const char *root, const char *xid, const struct chxa_part *parts, size_t n,
               bool fsync_it, struct error *error)
{
    int held = -1;
    size_t at = 0;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0)
        return result;
    int number = held < 0 ? -ENOENT : clones_make(held, parts, n, fsync_it, &at);
    if (number != 0)
        result = dirs_failed(error, number, "clone a held part under", root,
                             held_part_name(parts[at].number).text);
    dirs_close(&held);
    return result;
}

int held_note_seen(const char *root, const char *xid, const struct chxa_part *part,
                   const char *name, struct error *error)
{
    int held = -1;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0 || held < 0)
        return result;
    struct held_marker marker;
    int number = 0;
    if (clone_marker_read(held, part->number, &marker) && marker.inode) {
        snprintf(marker.seen, sizeof marker.seen, "%s", name);
        /* Durable first: an empty marker after a power cut would say that no clone was handed out. */
        number = marker_put(held, part->number, &marker);
        if (number == 0)
            number = entry_sync(held, held_next_marker_name(part->number).text);
        if (number == 0)
            number = marker_set(held, part->number);
        if (number == 0 && fsync(held) != 0)
            number = -errno;
    }
    dirs_close(&held);
    return number == 0 ? 0 : dirs_failed(error, number, "write a marker under", root, name);
}

int held_let_go(const char *root, const char *xid, const struct chxa_part *part,
                struct error *error)
{
    return held_remove_part(xid, root, part->number, error);
}
