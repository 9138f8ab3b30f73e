/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation that compares store and disks, shared by fsck.c (its steps: what is asked and read)
 * and fsck_find.c (what is made of it). Internal to them.
 */
#ifndef CHXA_OP_FSCK_PRIVATE_H
#define CHXA_OP_FSCK_PRIVATE_H

#include "ch/held_survey.h"
#include "op/txn.h"

struct fsck_table {
    char *database, *table;
    char *path; /* absolute, no trailing slash; one entry per disk */
};

/* A part's name of ours in a table's detached/. */
struct fsck_detached {
    size_t table; /* index */
    char *name;
    uint64_t number;
};

struct fsck_folder_of {
    char *name;
    const struct chxa_record *record;
};
struct fsck_number_of {
    uint64_t number;
    const struct chxa_record *record;
};

struct fsck_finding {
    struct coord_finding shown;
    /* Holds only if the record's version is still this one when all is read. */
    bool recheck;
    int64_t version;
};

struct fsck {
    struct op op;
    coord_fsck_cb *done;
    void *arg;
    size_t findings_max;

    char *after;
    char **xids; /* of this node's unfinished transactions */
    size_t n_xids, next_xid, gets;
    int gets_code;
    struct chxa_record *records;
    size_t n_records;
    struct fsck_folder_of *folders_of; /* n_records, sorted */
    struct fsck_number_of *numbers_of; /* sorted */
    size_t n_numbers;

    struct fsck_table *tables; /* of the MergeTree family */
    size_t n_tables;
    char **scratch; /* tables in the coordinator's database */
    size_t n_scratch;
    char *clickhouse_away; /* why tables and scratch are not known, or NULL */

    struct held_survey survey;
    struct fsck_detached *detached;
    size_t n_detached;
    size_t next_folder; /* to be judged */
    size_t next_recheck;

    struct fsck_finding *findings;
    size_t n_findings;
    bool truncated;
};

/* A new finding, all texts NULL; over the limit NULL. kind, meaning: constants. */
struct coord_finding *fsck_add(struct fsck *fsck, const char *kind, const char *meaning);
void fsck_findings_clear(struct fsck *fsck);

/* On a worker thread: open transactions against the held area, detached/, set-aside folders. */
void fsck_find_work(struct fsck *fsck);
/* The open transaction whose folder has that name, or NULL. */
const struct chxa_record *fsck_record_of_folder(const struct fsck *fsck, const char *name);
/* A folder of no open transaction; result: of reading the record that its name tells. */
void fsck_judge_folder(struct fsck *fsck, const struct held_folder *folder,
                       const struct store_result *result);
/* A folder whose name does not tell the id. */
void fsck_unknown_folder(struct fsck *fsck, const struct held_folder *folder);
/* A record of this node that cannot be decoded. */
void fsck_unreadable(struct fsck *fsck, const char *xid);
void fsck_scratch(struct fsck *fsck);

#endif
