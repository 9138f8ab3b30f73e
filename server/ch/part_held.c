/* SPDX-License-Identifier: Apache-2.0
 *
 * Commit and its undoing on disk: moving out of the held area and back, removal. See part_files.h;
 * the markers are in held_markers.c, where a part is in part_places.c. Threads: any worker.
 *
 * The order that a crash may cut anywhere (design: "where a part is, tells how far its commit
 * got"): out:  marker → rename held → detached → marker says sent (all of it durable) → ALTER;
 * back: rename detached → held → both folders durable → marker gone. So a part that has left the held area has its
 * marker (but after a power cut, which may take a "moved" along while the part stands in detached/), and one that was
 * never given to ClickHouse has none that says sent.
 */
#include "ch/part_files.h"

#include "base/clock.h"
#include "base/mem.h"
#include "ch/part_clone.h"
#include "ch/part_dirs.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELD_PREFIX "t-"
#define LOST        "lost"

/* ---- moves ---- */

/* <table>/detached, made when missing. */
static int detached_open(const char *table_path, int *ret_fd, struct error *error)
{
    int table = dirs_open(table_path);
    int fd = table < 0 ? table : dirs_open_at(table, DETACHED);
    if (fd == -ENOENT && table >= 0) {
        /* ClickHouse makes it with the table; it is not there when somebody tidied up. */
        if (mkdirat(table, DETACHED, 0750) != 0 && errno != EEXIST)
            fd = -errno;
        else
            fd = dirs_open_at(table, DETACHED);
    }
    dirs_close(&table);
    if (fd < 0)
        return dirs_failed(error, fd, "open", table_path, DETACHED);
    *ret_fd = fd;
    return 0;
}

/* A name from a record or a listing that becomes a path component. */
static int component_check(const char *name, struct error *error)
{
    if (name == NULL || name[0] == '\0' || strlen(name) > 255 || strchr(name, '/') ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return error_set(error, CHXA_E_IO_FAILED, "not the name of a part's directory");
    return 0;
}

/*
 * Renames the recorded directory from → to, unless it is there already. The inode is looked at
 * first, so that nothing but the recorded part is ever moved.
 */
static int part_move(int from_dir, const char *from, int to_dir, const char *to,
                     const struct chxa_part *part, const char *shown, struct error *error)
{
    if (dirs_inode(from_dir, from) == part->inode) {
        int number = dirs_rename(from_dir, from, to_dir, to);
        return number == 0 ? 0
                           : dirs_failed(error, number, "move a part to its place in", shown, to);
    }
    if (dirs_inode(to_dir, to) == part->inode)
        return 0;
    return error_set(error, CHXA_E_IO_FAILED,
                     "the directory recorded for part %s (inode %llu) is neither %s nor %s (%s)",
                     part->name, (unsigned long long)part->inode, from, to, shown);
}

/* What stands for the part outside the held area: itself, or its clone. */
static struct chxa_part as_handed_out(const struct chxa_part *part,
                                      const struct held_marker *marker)
{
    struct chxa_part moved = *part;
    if (marker->inode)
        moved.inode = marker->inode;
    return moved;
}

static struct held_entry_name handed_name(const struct chxa_part *part,
                                          const struct held_marker *marker)
{
    return marker->inode ? held_out_name(part->number) : held_part_name(part->number);
}

static int markers_open(int held, const char *root, struct held_markers *ret_markers,
                        struct error *error)
{
    int number = held_markers_read(held, ret_markers);
    return number == 0 ? 0 : dirs_failed(error, number, "list the markers under", root, HELD_AREA);
}

static int move_out(int held, const struct held_markers *markers, int detached,
                    const struct chxa_part *part, const char *root, const char *table_path,
                    struct error *error)
{
    struct held_marker marker;
    int result = component_check(part->name, error);
    if (result != 0)
        return result;
    if (!held_marker_read(held, markers, part->number, &marker))
        return dirs_failed(error, ENOENT, "find the marker of a part under", root,
                           held_marker_name(part->number).text);
    struct chxa_part moved = as_handed_out(part, &marker);
    return part_move(held, handed_name(part, &marker).text, detached, part->name, &moved,
                     table_path, error);
}

int held_move_out(const char *root, const char *xid, const struct chxa_part *parts, size_t n,
                  const char *table_path, struct error *error)
{
    int held = -1, detached = -1;
    struct held_markers markers = {0};
    int result = dirs_need_held(root, xid, &held, error);
    if (result == 0)
        result = detached_open(table_path, &detached, error);
    if (result == 0)
        result = markers_open(held, root, &markers, error);
    for (size_t i = 0; result == 0 && i < n; i++)
        result = move_out(held, &markers, detached, &parts[i], root, table_path, error);
    held_markers_clear(&markers);
    dirs_close(&detached);
    dirs_close(&held);
    return result;
}

static int link_out(int held, int detached, const struct chxa_part *part)
{
    struct stat status;
    uint64_t bytes = 0;
    int from = dirs_open_at(held, held_part_name(part->number).text);
    if (from < 0)
        return from;
    int number = fstat(from, &status) != 0 ? -errno : dirs_remove_tree(detached, part->name);
    if (number == 0 && status.st_ino != part->inode)
        number = -ESTALE;
    if (number == 0 && mkdirat(detached, part->name, status.st_mode & 07777) != 0)
        number = -errno;
    int to = number == 0 ? dirs_open_at(detached, part->name) : -1;
    if (number == 0 && to < 0)
        number = to;
    if (number != 0) {
        dirs_close(&from);
        return number;
    }
    number = dirs_link_part(from, to, &bytes);
    dirs_close(&to);
    return number;
}

int held_link_out(const char *root, const char *xid, const struct chxa_part *part,
                  const char *table_path, struct error *error)
{
    int held = -1, detached = -1;
    int result = component_check(part->name, error);
    if (result == 0)
        result = dirs_need_held(root, xid, &held, error);
    if (result == 0)
        result = detached_open(table_path, &detached, error);
    int number = result == 0 ? link_out(held, detached, part) : 0;
    if (number != 0)
        result = dirs_failed(error, number, "link a held part into", table_path, part->name);
    dirs_close(&detached);
    dirs_close(&held);
    return result;
}

int detached_rename(const char *table_path, const char *from, const struct chxa_part *part,
                    struct error *error)
{
    int detached = -1;
    int result = component_check(part->name, error);
    if (result == 0)
        result = component_check(from, error);
    if (result == 0)
        result = detached_open(table_path, &detached, error);
    if (result == 0)
        result = part_move(detached, from, detached, part->name, part, table_path, error);
    dirs_close(&detached);
    return result;
}

int held_move_back(const char *root, const char *xid, const struct chxa_part *part,
                   const char *table_path, const char *from, struct error *error)
{
    int held = -1, detached = -1;
    int result = component_check(from, error);
    if (result == 0)
        result = dirs_need_held(root, xid, &held, error);
    if (result == 0)
        result = detached_open(table_path, &detached, error);
    struct held_marker marker = {0};
    struct held_markers markers = {0};
    if (result == 0)
        result = markers_open(held, root, &markers, error);
    if (result == 0) {
        held_marker_read(held, &markers, part->number, &marker);
        struct chxa_part moved = as_handed_out(part, &marker);
        result = part_move(detached, from, held, handed_name(part, &marker).text, &moved,
                           table_path, error);
    }
    if (result == 0 && (fsync(held) != 0 || fsync(detached) != 0))
        result = dirs_failed(error, errno, "make durable", root, HELD_AREA);
    bool any;
    int number = result == 0
                     ? held_markers_take(held, (struct part_run){part->number, part->number}, false,
                                         true, &any)
                     : 0;
    if (number != 0)
        result = dirs_failed(error, number, "remove a marker under", root, HELD_AREA);
    if (result == 0 && marker.inode)
        dirs_remove_tree(held, handed_name(part, &marker).text);
    held_markers_clear(&markers);
    dirs_close(&detached);
    dirs_close(&held);
    return result;
}

/* ---- the end ---- */

/* 1 at the first held part. */
static int find_part(void *arg, int dir, const char *name)
{
    (void)arg;
    for (const char *p = name; *p; p++)
        if (!isdigit((unsigned char)*p))
            return 0;
    return dirs_inode(dir, name) != 0;
}

static int held_refuse_parts(const char *xid, const char *root, struct error *error)
{
    int held;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0 || held < 0)
        return result;
    result = dirs_each(held, find_part, NULL);
    if (result < 0)
        return dirs_failed(error, result, "list the transaction's folder under", root, HELD_AREA);
    if (result > 0)
        return error_set(error, CHXA_E_IO_FAILED,
                         "the held folder of transaction %s under %s still has parts", xid, root);
    return 0;
}

/* <root>/chxa; *ret_area is -1 when there is none. 0, or negative errno: the root itself. */
static int area_open(const char *root, int *ret_area)
{
    *ret_area = -1;
    int root_fd = dirs_open(root);
    if (root_fd < 0)
        return root_fd;
    int area = dirs_open_at(root_fd, HELD_AREA);
    dirs_close(&root_fd);
    if (area < 0 && area != -ENOENT)
        return area;
    *ret_area = area < 0 ? -1 : area;
    return 0;
}

int held_remove_folder(const char *root, const char *name, struct error *error)
{
    int result = component_check(name, error);
    if (result == 0 && strncmp(name, HELD_PREFIX, strlen(HELD_PREFIX)) != 0)
        result = error_set(error, CHXA_E_IO_FAILED, "not the name of a transaction's folder");
    if (result != 0)
        return result;
    int area;
    int number = area_open(root, &area);
    if (number == 0 && area >= 0)
        number = dirs_remove_tree(area, name);
    dirs_close(&area);
    return number == 0 ? 0 : dirs_failed(error, number, "remove a held folder under", root, name);
}

static int set_aside(int area, const char *name)
{
    if (mkdirat(area, LOST, 0700) != 0 && errno != EEXIST)
        return -errno;
    int lost = dirs_open_at(area, LOST);
    if (lost < 0)
        return lost;
    int number = dirs_rename(area, name, lost, name);
    if (number == -EEXIST) {
        char *later = mem_printf("%s@%lld", name, (long long)clock_wall_ms());
        number = dirs_rename(area, name, lost, later);
        free(later);
    }
    dirs_close(&lost);
    return number;
}

int held_set_aside(const char *root, const char *name, struct error *error)
{
    int result = component_check(name, error);
    if (result != 0)
        return result;
    int area;
    int number = area_open(root, &area);
    if (number == 0 && area >= 0)
        number = set_aside(area, name);
    dirs_close(&area);
    if (number == 0 || number == -ENOENT)
        return 0;
    return dirs_failed(error, number, "set aside a held folder under", root, name);
}

int held_remove_set_aside(const char *root, const char *name, bool *ret_was_there,
                          struct error *error)
{
    int result = component_check(name, error);
    if (result == 0 && strncmp(name, HELD_PREFIX, strlen(HELD_PREFIX)) != 0)
        result = error_set(error, CHXA_E_IO_FAILED, "not the name of a transaction's folder");
    if (result != 0)
        return result;
    int area;
    int number = area_open(root, &area);
    int lost = number == 0 && area >= 0 ? dirs_open_at(area, LOST) : -ENOENT;
    dirs_close(&area);
    if (number == 0 && lost < 0 && lost != -ENOENT)
        number = lost;
    *ret_was_there = lost >= 0 && dirs_inode(lost, name) != 0;
    if (number == 0 && *ret_was_there)
        number = dirs_remove_tree(lost, name);
    if (lost >= 0)
        dirs_close(&lost);
    return number == 0 ? 0
                       : dirs_failed(error, number, "remove a set-aside folder under", root, name);
}

int held_remove(const char *xid, char *const *roots, size_t n_roots, bool only_empty,
                struct error *error)
{
    if (!chxa_xid_valid(xid))
        return error_set(error, CHXA_E_INVALID_XID, "%s", chxa_error_text(CHXA_E_INVALID_XID));
    for (size_t i = 0; only_empty && i < n_roots; i++) {
        int result = held_refuse_parts(xid, roots[i], error);
        if (result != 0)
            return result;
    }
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(xid, name);
    for (size_t i = 0; i < n_roots; i++) {
        int result = held_remove_folder(roots[i], name, error);
        if (result != 0)
            return result;
    }
    return 0;
}

int held_remove_part(const char *xid, const char *root, uint64_t number, struct error *error)
{
    int held;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0 || held < 0)
        return result;
    struct held_entry_name name = held_part_name(number);
    int failed = dirs_remove_tree(held, name.text);
    dirs_close(&held);
    return failed == 0 ? 0
                       : dirs_failed(error, failed, "remove a held part under", root, name.text);
}

struct unnamed {
    const uint64_t *named;
    size_t n_named;
    uint64_t *numbers; /* found, and not named */
    size_t n_numbers;
};

static int unnamed_visit(void *arg, int dir, const char *name)
{
    struct unnamed *unnamed = arg;
    (void)dir;
    char *end;
    uint64_t number = strtoull(name, &end, 10);
    if (!isdigit((unsigned char)name[0]) || *end != '\0')
        return 0;
    for (size_t i = 0; i < unnamed->n_named; i++)
        if (unnamed->named[i] == number)
            return 0;
    unnamed->numbers =
        mem_realloc(unnamed->numbers, (unnamed->n_numbers + 1) * sizeof *unnamed->numbers);
    unnamed->numbers[unnamed->n_numbers++] = number;
    return 0;
}

int held_remove_unnamed(const char *xid, const char *root, const uint64_t *named, size_t n_named,
                        struct error *error)
{
    struct unnamed unnamed = {.named = named, .n_named = n_named};
    int held;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0 || held < 0)
        return result;
    int number = dirs_each(held, unnamed_visit, &unnamed);
    if (number < 0)
        result = dirs_failed(error, number, "list the transaction's folder under", root, HELD_AREA);
    for (size_t i = 0; result == 0 && i < unnamed.n_numbers; i++)
        result = held_remove_part(xid, root, unnamed.numbers[i], error);
    free(unnamed.numbers);
    return result;
}

static char *xid_read(int folder)
{
    char text[CHXA_XID_BYTES_MAX + 2];
    int fd = openat(folder, XID_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t len = read(fd, text, sizeof text - 1);
    dirs_close(&fd);
    return len > 0 ? mem_strndup(text, (size_t)len) : NULL;
}

char *held_folder_xid(const char *root, const char *name)
{
    char *xid = NULL, expected[HELD_DIR_BYTES_MAX + 1];
    if (strncmp(name, HELD_PREFIX, strlen(HELD_PREFIX)) != 0 || strchr(name, '/'))
        return NULL;
    if (strchr(name, '~') == NULL) {
        xid = mem_strdup(name + strlen(HELD_PREFIX));
    } else {
        int area = -1;
        int folder = area_open(root, &area) == 0 && area >= 0 ? dirs_open_at(area, name) : -1;
        if (folder >= 0)
            xid = xid_read(folder);
        dirs_close(&folder);
        dirs_close(&area);
    }
    if (xid && chxa_xid_valid(xid)) {
        held_dir_name(xid, expected);
        if (strcmp(expected, name) == 0)
            return xid;
    }
    free(xid);
    return NULL;
}

struct folder_names {
    char **names;
    size_t n;
};

static int folder_visit(void *arg, int dir, const char *name)
{
    struct folder_names *folders = arg;
    if (strncmp(name, HELD_PREFIX, strlen(HELD_PREFIX)) != 0 || dirs_inode(dir, name) == 0)
        return 0;
    folders->names = mem_realloc(folders->names, (folders->n + 1) * sizeof *folders->names);
    folders->names[folders->n++] = mem_strdup(name);
    return 0;
}

int held_list(const char *root, char ***ret_names, size_t *ret_n, struct error *error)
{
    struct folder_names folders = {0};
    int area;
    int result = area_open(root, &area);
    if (result == 0 && area >= 0)
        result = dirs_each(area, folder_visit, &folders);
    if (result < 0) {
        for (size_t i = 0; i < folders.n; i++)
            free(folders.names[i]);
        free(folders.names);
        return dirs_failed(error, result, "list", root, HELD_AREA);
    }
    *ret_names = folders.names;
    *ret_n = folders.n;
    return 0;
}
