/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging: listing a table's parts, linking new ones into the held area. See part_files.h. Threads:
 * any worker.
 */
#include "ch/part_files.h"

#include "base/mem.h"
#include "ch/part_dirs.h"
#include "ch/part_rows.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME_BYTES_MAX 255u
#define ATTACH_PREFIX_BYTES 16u /* ClickHouse puts attaching_ or ignored_ in front of a name */
#define PART_NAME_BYTES_MAX (FILE_NAME_BYTES_MAX - ATTACH_PREFIX_BYTES)

/* ---- listing ---- */

void part_list_clear(struct part_list *list)
{
    for (size_t i = 0; i < list->n_entries; i++)
        free(list->entries[i].name);
    free(list->entries);
    *list = (struct part_list){0};
}

static void list_add(struct part_list *list, const char *name, const struct part_entry *like)
{
    /* Doubling at powers of two keeps the capacity implicit. */
    size_t n = list->n_entries;
    if ((n & (n - 1)) == 0)
        list->entries = mem_realloc(list->entries, (n ? n * 2 : 1) * sizeof *list->entries);
    list->entries[n] = *like;
    list->entries[n].name = mem_strdup(name);
    list->n_entries++;
}

struct listing {
    struct part_list *list;
    const struct part_list *known; /* or NULL; taken over by name and inode */
    bool old_syntax;
    uint32_t disk;
};

/* 1, and what tells it from others; 0: there is no such directory; or negative errno. dir may be
 * AT_FDCWD, with a path. */
static int entry_read(int dir, const char *name, struct part_entry *ret_entry)
{
    struct statx status;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &status) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(status.stx_mode))
        return 0;
    ret_entry->inode = status.stx_ino;
    ret_entry->birth_ns = 0;
    if (status.stx_mask & STATX_BTIME)
        ret_entry->birth_ns =
            (uint64_t)status.stx_btime.tv_sec * 1000000000u + status.stx_btime.tv_nsec;
    return 1;
}

static int entry_compare_name(const void *left, const void *right)
{
    return strcmp(((const struct part_entry *)left)->name,
                  ((const struct part_entry *)right)->name);
}

static const struct part_entry *list_find(const struct part_list *list, const char *name)
{
    struct part_entry key = {.name = (char *)(uintptr_t)name};
    if (list->n_entries == 0)
        return NULL;
    return bsearch(&key, list->entries, list->n_entries, sizeof key, entry_compare_name);
}

static int listing_visit(void *arg, int dir, const char *name, uint64_t inode)
{
    struct listing *listing = arg;
    const struct part_entry *known = listing->known ? list_find(listing->known, name) : NULL;
    if (known && known->disk == listing->disk && known->inode == inode) {
        list_add(listing->list, name, known);
        return 0;
    }
    struct part_name parsed;
    if (!part_name_parse(name, listing->old_syntax, &parsed))
        return 0;
    struct part_entry entry = {.disk = listing->disk};
    int there = entry_read(dir, name, &entry); /* ClickHouse removes outdated parts meanwhile */
    if (there > 0)
        list_add(listing->list, name, &entry);
    return there < 0 ? there : 0;
}

static int entry_compare(const void *left, const void *right)
{
    const struct part_entry *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->disk > b->disk) - (a->disk < b->disk);
}

static void list_sort(struct part_list *list)
{
    if (list->n_entries > 1)
        qsort(list->entries, list->n_entries, sizeof *list->entries, entry_compare);
}

static int list_read(char *const *paths, size_t n_paths, bool old_syntax,
                     const struct part_list *known, struct part_list *ret_list, struct error *error)
{
    struct part_list list = {0};
    for (size_t i = 0; i < n_paths; i++) {
        struct listing listing = {&list, known, old_syntax, (uint32_t)i};
        int result = dirs_open(paths[i]);
        if (result >= 0)
            result = dirs_each_inode(result, listing_visit, &listing);
        if (result < 0) {
            part_list_clear(&list);
            return dirs_failed(error, result, "list", paths[i], NULL);
        }
    }
    list_sort(&list);
    *ret_list = list;
    return 0;
}

int part_list_read(char *const *paths, size_t n_paths, bool old_syntax, struct part_list *ret_list,
                   struct error *error)
{
    return list_read(paths, n_paths, old_syntax, NULL, ret_list, error);
}

/* Something of that name there; is it the same? */
static bool entry_is_there(const struct part_entry *entry, const char *path, bool *ret_same)
{
    struct part_entry now = {0};
    char *whole = mem_printf("%s/%s", path, entry->name);
    bool there = entry_read(AT_FDCWD, whole, &now) > 0;
    free(whole);
    /* The birth time too: a freed inode number can come back under a re-used name. */
    *ret_same = there && now.inode == entry->inode && now.birth_ns == entry->birth_ns;
    return there;
}

/* The part with the highest block. */
static const struct part_entry *list_highest(const struct part_list *list, bool old_syntax)
{
    const struct part_entry *highest = NULL;
    struct part_name name;
    uint64_t block = 0;
    for (size_t i = 0; i < list->n_entries; i++)
        if (part_name_parse(list->entries[i].name, old_syntax, &name) &&
            (highest == NULL || name.max_block > block)) {
            highest = &list->entries[i];
            block = name.max_block;
        }
    return highest;
}

int part_list_read_on(const struct part_list *before, char *const *paths, size_t n_paths,
                      bool old_syntax, struct part_list *ret_list, struct error *error)
{
    struct part_list list = {0};
    int result = list_read(paths, n_paths, old_syntax, before, &list, error);
    if (result != 0)
        return result;
    const struct part_entry *highest = list_highest(before, old_syntax);
    bool stands = true;
    if (highest)
        entry_is_there(highest, paths[highest->disk], &stands);
    if (!stands) {
        part_list_clear(&list);
        return part_list_read(paths, n_paths, old_syntax, ret_list, error);
    }
    *ret_list = list;
    return 0;
}

static bool list_has(const struct part_list *list, const struct part_entry *entry)
{
    const struct part_entry *found = list_find(list, entry->name);
    if (found == NULL)
        return false;
    /* On another disk it is the same part, moved there by the storage policy. */
    if (found->disk != entry->disk)
        return true;
    /* The birth time too: a freed inode number can come back under a re-used name. */
    return found->inode == entry->inode && found->birth_ns == entry->birth_ns;
}

/* Those of the list that came of a merge or a mutation: no other part contains anything. */
static struct part_name *list_outers(const struct part_list *list, bool old_syntax, size_t *ret_n)
{
    struct part_name *outers = NULL;
    size_t n = 0;
    for (size_t i = 0; i < list->n_entries; i++) {
        struct part_name name;
        if (!part_name_parse(list->entries[i].name, old_syntax, &name) ||
            (name.level == 0 && name.mutation == 0))
            continue;
        outers = mem_realloc(outers, (n + 1) * sizeof *outers);
        outers[n++] = name;
    }
    *ret_n = n;
    return outers;
}

void part_list_new(const struct part_list *before, const struct part_list *after, bool old_syntax,
                   struct part_list *ret_list)
{
    size_t n_outers;
    struct part_name *outers = list_outers(after, old_syntax, &n_outers);
    for (size_t i = 0; i < after->n_entries; i++) {
        const struct part_entry *entry = &after->entries[i];
        struct part_name name;
        if (i && strcmp(after->entries[i - 1].name, entry->name) == 0)
            continue; /* on two disks at once: being moved from one to the other */
        if (list_has(before, entry) || !part_name_parse(entry->name, old_syntax, &name))
            continue;
        bool contained = false;
        for (size_t o = 0; o < n_outers && !contained; o++)
            contained = part_name_contains(&outers[o], &name);
        if (!contained)
            list_add(ret_list, entry->name, entry);
    }
    free(outers);
    list_sort(ret_list);
}

bool part_list_overlaps(const struct part_list *before, const struct part_list *fresh,
                        bool old_syntax)
{
    struct part_name name;
    uint64_t highest = 0;
    bool any = false;
    for (size_t i = 0; i < before->n_entries; i++) {
        if (!part_name_parse(before->entries[i].name, old_syntax, &name))
            continue;
        any = true;
        if (name.max_block > highest)
            highest = name.max_block;
    }
    for (size_t i = 0; any && i < fresh->n_entries; i++)
        if (part_name_parse(fresh->entries[i].name, old_syntax, &name) && name.min_block <= highest)
            return true;
    return false;
}

static bool entry_stands(const struct part_entry *entry, char *const *paths, size_t n_paths)
{
    for (size_t i = 0; i < n_paths; i++) {
        bool same;
        bool there = entry_is_there(entry, paths[i], &same);
        /* On another disk it is the same part, moved there by the storage policy. */
        if (same || (there && i != entry->disk))
            return true;
    }
    return false;
}

bool part_list_stands(const struct part_list *list, char *const *paths, size_t n_paths)
{
    for (size_t i = 0; i < list->n_entries; i++)
        if (!entry_stands(&list->entries[i], paths, n_paths))
            return false;
    return true;
}

/* ---- linking ---- */

static int link_tree(int from, int to, unsigned depth, uint64_t *bytes);

struct linking {
    int to;
    unsigned depth;
    uint64_t *bytes;
};

/* A projection: a directory of files within the part. */
static int link_directory(const struct linking *linking, int from, const char *name, mode_t mode)
{
    if (linking->depth > 1)
        return -ELOOP;
    int from_dir = dirs_open_at(from, name);
    if (from_dir < 0)
        return from_dir;
    if (mkdirat(linking->to, name, mode & 07777) != 0) {
        int number = -errno;
        dirs_close(&from_dir);
        return number;
    }
    int to_dir = dirs_open_at(linking->to, name);
    if (to_dir < 0) {
        dirs_close(&from_dir);
        return to_dir;
    }
    int result = link_tree(from_dir, to_dir, linking->depth + 1, linking->bytes);
    dirs_close(&to_dir);
    return result;
}

static int link_visit(void *arg, int from, const char *name)
{
    const struct linking *linking = arg;
    struct stat status;
    if (fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return -errno;
    if (S_ISDIR(status.st_mode))
        return link_directory(linking, from, name, status.st_mode);
    if (!S_ISREG(status.st_mode))
        return -EBADF; /* a part has files and projections, nothing else */
    if (linkat(from, name, linking->to, name, 0) != 0)
        return -errno;
    *linking->bytes += (uint64_t)status.st_size;
    return 0;
}

/* Takes from. */
static int link_tree(int from, int to, unsigned depth, uint64_t *bytes)
{
    struct linking linking = {to, depth, bytes};
    return dirs_each(from, link_visit, &linking);
}

int dirs_link_part(int from, int to, uint64_t *bytes)
{
    return link_tree(from, to, 0, bytes);
}

/* The name it is attached under. NULL when that would be longer than a file's name may be. */
static char *attach_name(const struct part_name *from, uint64_t number)
{
    const char *partition = from->dates[0] ? from->dates : from->partition_id;
    char *name = mem_printf("%s_%" PRIu64 "_%" PRIu64 "_0", partition, number, number);
    if (strlen(name) <= PART_NAME_BYTES_MAX)
        return name;
    free(name);
    return NULL;
}

/* In place of what an earlier try may have left. */
static int held_make(int held, const char *name)
{
    if (mkdirat(held, name, 0700) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    int result = dirs_remove_tree(held, name);
    return result != 0 ? result : mkdirat(held, name, 0700) != 0 ? -errno : 0;
}

/* Makes <held>/<number> with links to the files of the open part. Takes from. */
static int held_fill(int held, int from, struct chxa_part *part)
{
    struct held_entry_name name = held_part_name(part->number);
    struct stat status;
    int to = -1;
    int result = fstat(from, &status) != 0 ? -errno : held_make(held, name.text);
    if (result == 0) {
        to = dirs_open_at(held, name.text);
        result = to < 0 ? to : 0;
    }
    if (result != 0) {
        dirs_close(&from);
        return result;
    }
    result = dirs_link_part(from, to, &part->bytes);
    if (result == 0)
        result = dirs_file_hash(to, CHECKSUMS_FILE, part->checksum);
    /* It becomes the part's directory: as open to others as ClickHouse made the original. */
    if (result == 0 && fchmod(to, status.st_mode & 07777) != 0)
        result = -errno;
    if (result == 0 && fstat(to, &status) != 0)
        result = -errno;
    part->inode = status.st_ino;
    dirs_close(&to);
    if (result != 0)
        dirs_remove_tree(held, name.text);
    return result;
}

int part_link(const char *table_path, const char *entry_name, bool old_syntax, const char *root,
              uint32_t disk, const char *xid, uint64_t number, struct chxa_part *ret_part,
              struct error *error)
{
    struct part_name name;
    if (!part_name_parse(entry_name, old_syntax, &name))
        return error_set(error, CHXA_E_IO_FAILED, "not a part's name in %s", table_path);
    struct chxa_part part = {.number = number, .disk = disk};
    int held = -1;
    int from = dirs_open_below(table_path, entry_name);
    if (from < 0)
        return dirs_failed(error, from, "open", table_path, entry_name);
    char *shown = mem_printf("%s/%s", table_path, entry_name);
    int result = part_rows_read(from, shown, old_syntax, &part.rows, error);
    free(shown);
    if (result != 0 || part.rows == 0)
        goto out;
    part.name = attach_name(&name, number);
    if (part.name == NULL) {
        result =
            error_set(error, CHXA_E_TARGET_UNSUPPORTED,
                      "the partition id %s is too long to name a part of it", name.partition_id);
        goto out;
    }
    part.partition_id = name.dates[0] ? mem_strndup(name.dates, 6) : mem_strdup(name.partition_id);
    result = dirs_open_held(root, xid, true, &held, error);
    if (result != 0)
        goto out;
    int number_or_0 = held_fill(held, from, &part);
    from = -1;
    if (number_or_0 != 0)
        result = dirs_failed(error, number_or_0, "link into the held area", table_path, entry_name);
out:
    dirs_close(&held);
    dirs_close(&from);
    if (result == 0) {
        *ret_part = part;
        return 0;
    }
    chxa_part_clear(&part);
    return result;
}
