/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories by descriptor: the helpers that part_files.c, part_held.c and part_rows.c share.
 * Internal to them. Threads: any worker; everything blocks.
 *
 * A root or a table's directory comes from ClickHouse's own configuration and may be reached
 * through symbolic links; every component below them is opened with O_NOFOLLOW.
 */
#ifndef CHXA_CH_PART_DIRS_H
#define CHXA_CH_PART_DIRS_H

#include "base/error.h"
#include "base/hash.h"
#include "core/part_run.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* The held area's folder in a disk's root, and the suffixes of a marker. */
#define HELD_AREA     "chxa"
#define MARKER_SUFFIX ".moved"
#define SENT_SUFFIX   ".sent"
#define OUT_SUFFIX    ".out"
/* Of the note that parts are being made durable, named after the first of them. */
#define SYNCING_SUFFIX ".syncing"
#define DETACHED       "detached"

#define CHECKSUMS_FILE "checksums.txt"
/* In the folder of a transaction whose xid is too long to be its name: the xid. */
#define XID_FILE "xid"

/* A number as text, with the marker's suffix where asked. */
struct held_entry_name {
    char text[64];
};
struct held_entry_name held_part_name(uint64_t number);
struct held_entry_name held_marker_name(uint64_t number);
/* The marker of a run; sent: once the ALTER may have been sent. */
struct held_entry_name held_run_name(struct part_run run, bool sent);
/* The clone of a held part, until it is moved out; the marker's next content (part_clone.c). */
struct held_entry_name held_out_name(uint64_t number);
struct held_entry_name held_next_marker_name(uint64_t number);
struct held_entry_name held_syncing_name(uint64_t number);

/* *error: "<what> <path>[/<name>]: <errno text>", IO_FAILED, or TARGET_UNSUPPORTED for EXDEV. */
int dirs_failed(struct error *error, int number, const char *what, const char *path,
                const char *name);

/* A directory by absolute path (links followed). Negative errno on failure. */
int dirs_open(const char *path);
/* One below it (O_NOFOLLOW). Negative errno on failure. */
int dirs_open_at(int dir, const char *name);
/* <path>/<name> at once; links are followed in path only. Negative errno on failure. */
int dirs_open_below(const char *path, const char *name);
/* As dirs_open_at, made with mode 0700 when missing. */
int dirs_make_at(int dir, const char *name);

/* Opens the transaction's folder on a root; with create it is made (and the held area). 0 and a
 * descriptor, or CHXA_E_IO_FAILED; a missing folder is 0 with *ret_fd = -1 unless create. */
int dirs_open_held(const char *root, const char *xid, bool create, int *ret_fd,
                   struct error *error);

/* The same, where it must be there already. */
int dirs_need_held(const char *root, const char *xid, int *ret_fd, struct error *error);

/* Renames, and never replaces what is there. 0 or negative errno. */
int dirs_rename(int from_dir, const char *from, int to_dir, const char *to);

/* Inode of the directory `name` in dir; 0 when there is none (or it is no directory). */
uint64_t dirs_inode(int dir, const char *name);

/* When the directory was made; 0: the filesystem does not say, or there is none. Tells a re-used inode
 * number apart. */
uint64_t dirs_birth_ns(int dir, const char *name);

/* Calls visit for each entry but . and .., in no order, until it returns non-zero. Takes dir (is
 * closed). 0, what visit returned, or negative errno. */
typedef int dirs_visit(void *arg, int dir, const char *name);
int dirs_each(int dir, dirs_visit *visit, void *arg);
/* The same, with the entry's inode as the folder tells it: on most filesystems what stat says. */
typedef int dirs_visit_inode(void *arg, int dir, const char *name, uint64_t inode);
int dirs_each_inode(int dir, dirs_visit_inode *visit, void *arg);
/* The same, with all that the folder tells. Not each folder tells d_type. */
typedef int dirs_visit_entry(void *arg, int dir, const struct dirent64 *entry);
int dirs_each_entry(int dir, dirs_visit_entry *visit, void *arg);

/* Removes name and all beneath; symbolic links are removed, not followed. Missing is fine. 0 or
 * negative errno. */
int dirs_remove_tree(int dir, const char *name);

/* Hard-links a part's files and projections into the empty directory `to`, and adds their sizes. Takes
 * from (part_files.c). 0 or negative errno. */
int dirs_link_part(int from, int to, uint64_t *bytes);

/* Of a regular file: less than room is its end. Bytes, or negative errno. */
ssize_t dirs_read(int fd, char *to, size_t room);

/* SHA-256 of a file's content (no link followed). 0 or negative errno. */
int dirs_file_hash(int dir, const char *name, char ret_hex[HASH_HEX_BYTES + 1]);

void dirs_close(int *fd);

#endif
