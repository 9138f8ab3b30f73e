/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies in a held area, for a person who wants to know (fsck): read, never changed.
 *
 * Threads: blocks; call it on a worker thread. While transactions go on, what was read may be old by
 * the time it is looked at.
 */
#ifndef CHXA_CH_HELD_SURVEY_H
#define CHXA_CH_HELD_SURVEY_H

#include "base/error.h"
#include "core/part_run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct held_item { /* one number in a transaction's folder */
    uint64_t number;
    uint64_t inode; /* of the held directory; 0: there is none */
    bool marker;    /* of its own; see held_folder_marker */
};

enum held_kind {
    HELD_FOLDER,    /* <root>/chxa/t-… */
    HELD_SET_ASIDE, /* <root>/chxa/lost/… */
    HELD_STRANGE    /* anything else, in <root>/chxa or in lost/ */
};

struct held_folder {
    enum held_kind kind;
    const char *root; /* the caller's */
    char *name;
    struct held_item *items; /* by number */
    size_t n_items;
    struct part_run *moved, *sent; /* markers of several parts */
    size_t n_moved, n_sent;
    uint64_t bytes;      /* set aside: of all its files */
    int64_t modified_ms; /* wall clock */
};

struct held_survey {
    struct held_folder *folders;
    size_t n_folders;
    size_t folders_max; /* more are not looked at */
    bool truncated;
};
void held_survey_clear(struct held_survey *survey);

/* Adds what is in <root>/chxa. A root without a held area adds nothing. IO_FAILED. */
int held_survey_read(struct held_survey *survey, const char *root, struct error *error);
const struct held_item *held_folder_find(const struct held_folder *folder, uint64_t number);
/* The name of a marker that stands for that number, malloc'd; NULL: there is none. */
char *held_folder_marker(const struct held_folder *folder, uint64_t number);

/* Names in <table_path>/detached that are parts of ours, whatever stands before them (attaching_,
 * ignored_, …): their number is number_min or more. Calls found for each; a folder that is not there
 * has none. */
typedef void held_detached_found(void *arg, const char *name, uint64_t number);
int held_survey_detached(const char *table_path, uint64_t number_min, held_detached_found *found,
                         void *arg, struct error *error);

#endif
