/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a part is, which tells how far its commit got: part_places_read, see part_files.h. It looks,
 * and changes nothing. Threads: any worker.
 */
#include "ch/part_files.h"

#include "base/mem.h"
#include "ch/part_clone.h"
#include "ch/part_dirs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define ATTACHING_PREFIX "attaching_"

void part_place_clear(struct part_place *place)
{
    free(place->ignored);
    free(place->active);
    free(place->seen);
    *place = (struct part_place){0};
}

struct inode_name {
    uint64_t inode;
    char *name;
};

/* Where in a folder the wanted inodes are: as the folder tells it, which is one call for many entries, and
 * costs little more in a table of ten thousand parts than in one of ten; or looked up one by one (`sure`), where the
 * folder tells something else (a stacked filesystem). */
struct inode_list {
    const uint64_t *wanted; /* sorted; the others are not remembered */
    size_t n_wanted;
    struct inode_name *entries;
    size_t n_entries;
    bool parts_only;
    bool read, sure;
};

static void inodes_clear(struct inode_list *list)
{
    for (size_t i = 0; i < list->n_entries; i++)
        free(list->entries[i].name);
    free(list->entries);
    list->entries = NULL;
    list->n_entries = 0;
    list->read = false;
}

static bool is_part_name(const char *name)
{
    struct part_name parsed;
    return part_name_parse(name, false, &parsed) || part_name_parse(name, true, &parsed);
}

static int number_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static int inodes_visit(void *arg, int dir, const char *name, uint64_t inode)
{
    struct inode_list *list = arg;
    if (list->sure)
        inode = dirs_inode(dir, name);
    if (inode == 0 ||
        bsearch(&inode, list->wanted, list->n_wanted, sizeof inode, number_compare) == NULL ||
        (list->parts_only && !is_part_name(name)))
        return 0;
    size_t n = list->n_entries;
    if ((n & (n - 1)) == 0)
        list->entries = mem_realloc(list->entries, (n ? n * 2 : 1) * sizeof *list->entries);
    list->entries[n] = (struct inode_name){inode, mem_strdup(name)};
    list->n_entries++;
    return 0;
}

static int inode_compare(const void *left, const void *right)
{
    return number_compare(&((const struct inode_name *)left)->inode,
                          &((const struct inode_name *)right)->inode);
}

/* 0 or negative errno. */
static int inodes_read(int dir, bool sure, struct inode_list *list)
{
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (again < 0)
        return -errno;
    inodes_clear(list);
    list->read = true;
    list->sure = sure;
    int result = dirs_each_inode(again, inodes_visit, list);
    if (result == 0 && list->n_entries > 1)
        qsort(list->entries, list->n_entries, sizeof *list->entries, inode_compare);
    return result;
}

/* The name of the directory with that inode, or NULL. */
static const char *inodes_find(int dir, const struct inode_list *list, uint64_t inode)
{
    struct inode_name key = {.inode = inode};
    if (list->n_entries == 0)
        return NULL;
    const struct inode_name *found =
        bsearch(&key, list->entries, list->n_entries, sizeof key, inode_compare);
    return found && (list->sure || dirs_inode(dir, found->name) == inode) ? found->name : NULL;
}

/* An inode number may have been re-used since; the content tells. */
static bool is_same_content(int folder, const char *name, const struct chxa_part *part)
{
    char hex[HASH_HEX_BYTES + 1];
    int dir = dirs_open_at(folder, name);
    if (dir < 0)
        return false;
    int result = dirs_file_hash(dir, CHECKSUMS_FILE, hex);
    dirs_close(&dir);
    return result == 0 && strcmp(hex, part->checksum) == 0;
}

/* What is on one disk, open while its parts are looked up. */
struct disk_view {
    int held; /* -1: no folder */
    struct held_markers markers;
    int table;    /* the table's own */
    int detached; /* -1: none */
    struct inode_list in_detached;
    struct inode_list in_table;
};

static void disk_view_close(struct disk_view *view)
{
    dirs_close(&view->held);
    dirs_close(&view->table);
    dirs_close(&view->detached);
    held_markers_clear(&view->markers);
    inodes_clear(&view->in_detached);
    inodes_clear(&view->in_table);
}

static int disk_view_open(const char *xid, const char *table_path, const char *root,
                          struct disk_view *ret_view, struct error *error)
{
    struct disk_view view = {
        .held = -1, .table = -1, .detached = -1, .in_table = {.parts_only = true}};
    int result = dirs_open_held(root, xid, false, &view.held, error);
    if (result != 0)
        return result;
    /* A table's directory that is not there proves nothing (a disk that is not mounted): an error.
     */
    view.table = dirs_open(table_path);
    int number = view.table < 0 ? view.table : 0;
    if (number == 0) {
        view.detached = dirs_open_at(view.table, DETACHED);
        number = view.detached < 0 && view.detached != -ENOENT ? view.detached : 0;
    }
    if (number != 0) {
        disk_view_close(&view);
        return dirs_failed(error, number, "look for parts in", table_path, NULL);
    }
    number = view.held < 0 ? 0 : held_markers_read(view.held, &view.markers);
    if (number != 0) {
        disk_view_close(&view);
        return dirs_failed(error, number, "list the markers under", root, HELD_AREA);
    }
    *ret_view = view;
    return 0;
}

/* The inode number in the table's folder may be another part's by now: that one is younger than our
 * clone. A part that was given to ClickHouse without a clone has a marker that says so; without one
 * the content tells, which 18.16 may alter in place. */
static bool is_same_directory(int table, const char *name, const struct held_marker *marker,
                              const struct chxa_part *part)
{
    uint64_t birth_ns = marker->birth_ns ? dirs_birth_ns(table, name) : 0;
    if (birth_ns)
        return birth_ns == marker->birth_ns;
    return (marker->sent && marker->inode == 0) || is_same_content(table, name, part);
}

/* Lists the table, then detached/: while no ALTER of ours runs, a part can only move from the one to the
 * other (a replica that throws out what its ZooKeeper does not know), and must not slip past between the
 * two lists. */
static int disk_view_list(struct disk_view *view, bool sure)
{
    int number = inodes_read(view->table, sure, &view->in_table);
    if (number == 0 && view->detached >= 0)
        number = inodes_read(view->detached, sure, &view->in_detached);
    return number;
}

/* Where a directory is outside the held area. Nothing is listed before somebody is looked for. */
static int disk_view_find(struct disk_view *view, uint64_t inode, const char **ret_in_table,
                          const char **ret_in_detached)
{
    for (int sure = view->in_table.sure; sure < 2; sure++) {
        bool is_read = view->in_table.read && view->in_table.sure == (sure == 1);
        int number = is_read ? 0 : disk_view_list(view, sure == 1);
        if (number != 0)
            return number;
        *ret_in_table = inodes_find(view->table, &view->in_table, inode);
        *ret_in_detached = inodes_find(view->detached, &view->in_detached, inode);
        if (*ret_in_table || *ret_in_detached)
            break;
    }
    return 0;
}

/* One part of the disk that is looked at. */
struct looked {
    const struct chxa_part *part;
    struct part_place *place;
    struct held_marker marker;
    bool outside; /* it, or its clone, has left the held area */
};

/* What the held area tells. */
static void place_read_held(const struct disk_view *view, struct looked *looked)
{
    const struct chxa_part *part = looked->part;
    struct part_place *place = looked->place;
    struct held_marker *marker = &looked->marker;
    if (view->held >= 0) {
        place->held = dirs_inode(view->held, held_part_name(part->number).text) == part->inode;
        place->marker = held_marker_read(view->held, &view->markers, part->number, marker);
    }
    place->sent = marker->sent || marker->inode;
    place->inode = marker->inode ? marker->inode : part->inode;
    place->kept = marker->inode && place->held;
    if (place->kept) {
        place->out = dirs_inode(view->held, held_out_name(part->number).text) == place->inode;
        place->cloned_ms = marker->cloned_ms;
        place->seen = marker->seen[0] ? mem_strdup(marker->seen) : NULL;
    }
    /* a directory is in one place only */
    looked->outside = place->kept ? !place->out : !place->held;
}

/* What the table's folders tell, of a part outside the held area. 0 or negative errno. */
static int place_read_table(struct disk_view *view, const struct looked *looked)
{
    const struct chxa_part *part = looked->part;
    struct part_place *place = looked->place;
    const char *in_table = NULL, *name = NULL;
    int number = disk_view_find(view, place->inode, &in_table, &name);
    if (number != 0)
        return number;
    size_t prefix = strlen(ATTACHING_PREFIX);
    if (name && strcmp(name, part->name) == 0)
        place->detached = true;
    else if (name && strncmp(name, ATTACHING_PREFIX, prefix) == 0 &&
             strcmp(name + prefix, part->name) == 0)
        place->attaching = true;
    else if (name && is_same_content(view->detached, name, part))
        place->ignored = mem_strdup(name);
    if (in_table && is_same_directory(view->table, in_table, &looked->marker, part))
        place->active = mem_strdup(in_table);
    return 0;
}

/* The parts of one disk. 0 or negative errno. */
static int places_read(struct disk_view *view, struct looked *looked, size_t n)
{
    uint64_t *wanted = mem_array(n, sizeof *wanted);
    size_t n_wanted = 0;
    for (size_t i = 0; i < n; i++) {
        place_read_held(view, &looked[i]);
        if (looked[i].outside)
            wanted[n_wanted++] = looked[i].place->inode;
    }
    if (n_wanted > 1)
        qsort(wanted, n_wanted, sizeof *wanted, number_compare);
    view->in_table.wanted = view->in_detached.wanted = wanted;
    view->in_table.n_wanted = view->in_detached.n_wanted = n_wanted;
    int number = 0;
    for (size_t i = 0; number == 0 && i < n; i++)
        if (looked[i].outside)
            number = place_read_table(view, &looked[i]);
    free(wanted);
    return number;
}

static int disk_read(const char *xid, const char *table_path, const char *root,
                     struct looked *looked, size_t n, struct error *error)
{
    struct disk_view view;
    int result = disk_view_open(xid, table_path, root, &view, error);
    if (result != 0)
        return result;
    int number = places_read(&view, looked, n);
    disk_view_close(&view);
    return number == 0 ? 0 : dirs_failed(error, number, "look for parts in", table_path, NULL);
}

int part_places_read(const char *xid, const struct chxa_part *parts, size_t n_parts,
                     char *const *table_paths, char *const *roots, size_t n_disks,
                     struct part_place *ret_places, struct error *error)
{
    struct part_place *places = mem_array(n_parts, sizeof *places);
    struct looked *looked = mem_array(n_parts, sizeof *looked);
    int result = 0;
    for (size_t disk = 0; disk < n_disks && result == 0; disk++) {
        size_t n = 0;
        for (size_t i = 0; i < n_parts; i++) {
            assert(parts[i].disk < n_disks);
            if (parts[i].disk == disk)
                looked[n++] = (struct looked){.part = &parts[i], .place = &places[i]};
        }
        if (n)
            result = disk_read(xid, table_paths[disk], roots[disk], looked, n, error);
    }
    for (size_t i = 0; i < n_parts; i++) {
        if (result == 0)
            ret_places[i] = places[i];
        else
            part_place_clear(&places[i]);
    }
    free(looked);
    free(places);
    return result;
}
