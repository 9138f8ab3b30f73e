/* SPDX-License-Identifier: Apache-2.0
 *
 * See held_survey.h.
 */
#include "ch/held_survey.h"

#include "base/mem.h"
#include "ch/held_markers.h"
#include "ch/part_dirs.h"
#include "ch/part_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEPTH_MAX 4u /* of a set-aside folder: part, projection */

void held_survey_clear(struct held_survey *survey)
{
    for (size_t i = 0; i < survey->n_folders; i++) {
        free(survey->folders[i].name);
        free(survey->folders[i].items);
        free(survey->folders[i].moved);
        free(survey->folders[i].sent);
    }
    free(survey->folders);
    *survey = (struct held_survey){0};
}

/* ---- numbers in a folder ---- */

static int item_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct held_item *)left)->number;
    uint64_t b = ((const struct held_item *)right)->number;
    return (a > b) - (a < b);
}

const struct held_item *held_folder_find(const struct held_folder *folder, uint64_t number)
{
    struct held_item key = {.number = number};
    if (folder->n_items == 0)
        return NULL;
    return bsearch(&key, folder->items, folder->n_items, sizeof key, item_compare);
}

static void add_run(struct part_run **runs, size_t *n_runs, struct part_run run)
{
    size_t n = *n_runs;
    if ((n & (n - 1)) == 0)
        *runs = mem_realloc(*runs, (n ? n * 2 : 1) * sizeof **runs);
    (*runs)[n] = run;
    *n_runs = n + 1;
}

/* "123", or a marker (held_markers.h); others (a clone on its way out) say nothing here. */
static int item_visit(void *arg, int dir, const char *name)
{
    struct held_folder *folder = arg;
    struct part_run run;
    bool sent = false;
    bool marker = held_marker_parse(name, &run, &sent);
    size_t digits = strspn(name, "0123456789");
    if (marker && run.first < run.last) {
        add_run(sent ? &folder->sent : &folder->moved, sent ? &folder->n_sent : &folder->n_moved,
                run);
        return 0;
    }
    if (digits == 0 || digits > 19 || (name[digits] && !marker))
        return 0;
    size_t n = folder->n_items;
    if ((n & (n - 1)) == 0)
        folder->items = mem_realloc(folder->items, (n ? n * 2 : 1) * sizeof *folder->items);
    folder->items[folder->n_items++] = (struct held_item){
        .number = strtoull(name, NULL, 10),
        .inode = marker ? 0 : dirs_inode(dir, name),
        .marker = marker,
    };
    return 0;
}

/* A part and its marker become one item. */
static void items_merge(struct held_folder *folder)
{
    if (folder->n_items == 0)
        return;
    qsort(folder->items, folder->n_items, sizeof *folder->items, item_compare);
    size_t n = 0;
    for (size_t i = 1; i < folder->n_items; i++) {
        struct held_item *last = &folder->items[n], *next = &folder->items[i];
        if (last->number == next->number) {
            last->marker = last->marker || next->marker;
            last->inode = last->inode ? last->inode : next->inode;
        } else {
            folder->items[++n] = *next;
        }
    }
    folder->n_items = n + 1;
}

static const struct part_run *run_of(const struct part_run *runs, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i++)
        if (runs[i].first <= number && number <= runs[i].last)
            return &runs[i];
    return NULL;
}

char *held_folder_marker(const struct held_folder *folder, uint64_t number)
{
    const struct held_item *item = held_folder_find(folder, number);
    if (item && item->marker)
        return mem_strdup(held_marker_name(number).text);
    const struct part_run *moved = run_of(folder->moved, folder->n_moved, number);
    const struct part_run *sent = run_of(folder->sent, folder->n_sent, number);
    if (moved == NULL && sent == NULL)
        return NULL;
    return mem_strdup(held_run_name(sent ? *sent : *moved, sent != NULL).text);
}

/* ---- sizes ---- */

struct sizing {
    uint64_t *bytes;
    unsigned depth;
};

static int size_visit(void *arg, int dir, const char *name)
{
    const struct sizing *sizing = arg;
    struct stat status;
    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    if (S_ISREG(status.st_mode))
        *sizing->bytes += (uint64_t)status.st_size;
    if (!S_ISDIR(status.st_mode) || sizing->depth == DEPTH_MAX)
        return 0;
    struct sizing below = {sizing->bytes, sizing->depth + 1};
    int fd = dirs_open_at(dir, name);
    if (fd >= 0)
        dirs_each(fd, size_visit, &below);
    return 0;
}

/* ---- the area ---- */

struct surveying {
    struct held_survey *survey;
    const char *root;
    bool in_lost;
};

static void folder_look(struct held_folder *folder, int dir, const char *name)
{
    int fd = dirs_open_at(dir, name);
    if (fd >= 0)
        dirs_each(fd, item_visit, folder);
    items_merge(folder);
    fd = folder->kind == HELD_SET_ASIDE ? dirs_open_at(dir, name) : -1;
    struct sizing sizing = {&folder->bytes, 0};
    if (fd >= 0)
        dirs_each(fd, size_visit, &sizing);
}

static int area_visit(void *arg, int dir, const char *name)
{
    const struct surveying *surveying = arg;
    struct held_survey *survey = surveying->survey;
    struct stat status;
    if (!surveying->in_lost && (strcmp(name, "owner") == 0 || strcmp(name, "lost") == 0))
        return 0;
    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return 0; /* gone meanwhile */
    if (survey->n_folders == survey->folders_max) {
        survey->truncated = true;
        return 1;
    }
    bool is_folder = S_ISDIR(status.st_mode) && strncmp(name, "t-", 2) == 0;
    struct held_folder folder = {
        .kind = !is_folder           ? HELD_STRANGE
                : surveying->in_lost ? HELD_SET_ASIDE
                                     : HELD_FOLDER,
        .root = surveying->root,
        .name = mem_strdup(name),
        .modified_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000,
    };
    if (is_folder)
        folder_look(&folder, dir, name);
    size_t n = survey->n_folders;
    if ((n & (n - 1)) == 0)
        survey->folders = mem_realloc(survey->folders, (n ? n * 2 : 1) * sizeof *survey->folders);
    survey->folders[survey->n_folders++] = folder;
    return 0;
}

int held_survey_read(struct held_survey *survey, const char *root, struct error *error)
{
    struct surveying surveying = {survey, root, false};
    int root_fd = dirs_open(root);
    int area = root_fd < 0 ? root_fd : dirs_open_at(root_fd, HELD_AREA);
    dirs_close(&root_fd);
    if (area == -ENOENT)
        return 0;
    int lost = area < 0 ? area : dirs_open_at(area, "lost");
    int number = area < 0 ? area : dirs_each(area, area_visit, &surveying);
    surveying.in_lost = true;
    if (number == 0 && lost >= 0) {
        number = dirs_each(lost, area_visit, &surveying);
        lost = -1;
    }
    if (lost >= 0)
        dirs_close(&lost);
    return number < 0 ? dirs_failed(error, number, "look into the held area of", root, HELD_AREA)
                      : 0;
}

/* ---- detached/ ---- */

struct detached {
    uint64_t number_min;
    held_detached_found *found;
    void *arg;
};

/* Every name that ends in <partition>_<N>_<N>_0, as a part of ours does before it is attached. */
static int detached_visit(void *arg, int dir, const char *name)
{
    const struct detached *detached = arg;
    static const char *const prefixes[] = {"", "attaching_", "ignored_"};
    (void)dir;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        size_t len = strlen(prefixes[i]);
        struct part_name part;
        if (strncmp(name, prefixes[i], len) != 0 ||
            (!part_name_parse(name + len, false, &part) &&
             !part_name_parse(name + len, true, &part)) ||
            part.min_block != part.max_block || part.min_block < detached->number_min)
            continue;
        detached->found(detached->arg, name, part.min_block);
        break;
    }
    return 0;
}

int held_survey_detached(const char *table_path, uint64_t number_min, held_detached_found *found,
                         void *arg, struct error *error)
{
    struct detached detached = {number_min, found, arg};
    int table = dirs_open(table_path);
    int fd = table < 0 ? table : dirs_open_at(table, DETACHED);
    dirs_close(&table);
    if (fd == -ENOENT)
        return 0;
    int number = fd < 0 ? fd : dirs_each(fd, detached_visit, &detached);
    return number < 0 ? dirs_failed(error, number, "list", table_path, DETACHED) : 0;
}
