/* SPDX-License-Identifier: Apache-2.0
 *
 * Part directories on disk: listing, linking into the held area, moving to detached/ and back,
 * durability.
 *
 * The held area of a disk is <root>/chxa (mode 0700 beneath). A transaction's folder is
 * <root>/chxa/<held_dir_name(xid)>; in it a held part is the directory <number>, and its marker,
 * left before it is moved out, the file <number>.moved, or <first>-<last>.moved for a run of numbers
 * (core/part_run.h), renamed to .sent before the ALTER that attaches them is sent; a clone to be moved
 * out is <number>.out; <number>.syncing see held_sync.
 *
 * Threads: everything here blocks; call it on a worker thread (uv_queue_work), never on the loop.
 * Distinct transactions may be worked on at once. Names and xids are checked again here before they
 * become paths; roots and table paths come from ClickHouse's own configuration and may be reached
 * through symbolic links, every component below them is opened relative to a directory descriptor
 * with O_NOFOLLOW.
 *
 * Errors: CHXA_E_IO_FAILED with path and errno text (ENOSPC, EACCES, … ; known: not done, or done
 * in part where said so); CHXA_E_TARGET_UNSUPPORTED for EXDEV (the table is not on one filesystem
 * with its disk's root).
 */
#ifndef CHXA_CH_PART_FILES_H
#define CHXA_CH_PART_FILES_H

#include "base/error.h"
#include "core/part_run.h"
#include "proto/record.h"

#include <stdint.h>

#define HELD_DIR_BYTES_MAX 255u

/* The folder's name for a transaction: "t-" and the xid; a xid over 200 characters is cut there and
 * "~" and 32 hex digits of its SHA-256 follow ("~" is in no xid, so names never collide). Pure. */
void held_dir_name(const char *xid, char ret_name[HELD_DIR_BYTES_MAX + 1]);

/* A part directory's name, taken apart. Pure. */
struct part_name {
    char partition_id[232]; /* "202401", "all", a hash, "-5", "202401-0"; old syntax: "" */
    char dates[20];         /* old syntax: "20240101_20240131"; else "" */
    uint64_t min_block, max_block;
    uint64_t level;
    uint64_t mutation; /* 0: none */
};
/* False when it is not a part's name (tmp_*, detached, delete_tmp_*, format_version.txt …). */
bool part_name_parse(const char *name, bool old_syntax, struct part_name *ret_name);
/* Same partition and the block range (and level, mutation) of outer covers inner's; a part does not
 * contain itself. */
bool part_name_contains(const struct part_name *outer, const struct part_name *inner);

/* ---- staging ---- */

/* Names and inodes of the part directories of a table, sorted by name; over all its disks. */
struct part_entry {
    char *name;
    uint64_t inode;
    uint64_t birth_ns; /* 0: the filesystem does not say; tells a re-used inode number apart */
    uint32_t disk;
};
struct part_list {
    struct part_entry *entries;
    size_t n_entries;
};
void part_list_clear(struct part_list *list);
/* paths: one per disk. Lists parts only (part_name_parse). */
int part_list_read(char *const *paths, size_t n_paths, bool old_syntax, struct part_list *ret_list,
                   struct error *error);
/* The same, of a table that was listed before: the filesystem is asked only about what is new since, and about the part
 * with the highest block, by name, inode and birth. While that one stands, no new part can have an old one's name: a
 * table numbers its blocks upwards, and goes on behind the highest that it finds at a start. Where it does not stand, or
 * a folder tells other inodes than stat does, everything is asked about again. */
int part_list_read_on(const struct part_list *before, char *const *paths, size_t n_paths,
                      bool old_syntax, struct part_list *ret_list, struct error *error);
/* Adds to ret_list the entries of `after` that are not in `before` (by name and inode) and that no
 * other entry of `after` contains: what an INSERT left. A part that its storage policy moves from
 * one disk to another meanwhile counts once, and does not become new by it. */
void part_list_new(const struct part_list *before, const struct part_list *after, bool old_syntax,
                   struct part_list *ret_list);

/* True when a part of `fresh` covers a block that was there before: a merge, whose rows are not all
 * of the INSERT. A table gives every INSERT a higher block number. */
bool part_list_overlaps(const struct part_list *before, const struct part_list *fresh,
                        bool old_syntax);
/* True when every part of the list is still there (by name and inode; or on another disk). */
bool part_list_stands(const struct part_list *list, char *const *paths, size_t n_paths);

/*
 * Hard-links the files of the part <table_path>/<entry name> into the held directory
 * <root>/chxa/<txn dir>/<number> (made here, whole or removed again on error; a left-over of an
 * earlier try under that number is replaced) and fills *ret_part (name to be, rows of count.txt,
 * bytes, inode, checksum). A part with 0 rows is skipped: 0 with ret_part->name NULL.
 * Subdirectories (projections) are linked too. Not durable yet.
 */
int part_link(const char *table_path, const char *entry_name, bool old_syntax, const char *root,
              uint32_t disk, const char *xid, uint64_t number, struct chxa_part *ret_part,
              struct error *error);

/* ---- durability ---- */

/* Makes held parts and their folders durable: one syncfs per disk when they have more than files_max
 * files or little else waits to be written, else fsync file by file. Also the folder of the transaction, the held area and the root.
 * PARTS_LOST: the disk refused to keep something; a second try may say yes and mean nothing, so the
 * parts must not be used. IO_FAILED: anything else, and nothing is known to be wrong with them.
 * While it runs there is a note, <first number>.syncing; where one is found, of a process that was
 * killed within it, nobody knows what the disk said: the files are written anew first (part_renew.h). */
int held_sync(const char *xid, char *const *roots, size_t n_roots, const struct chxa_part *parts,
              size_t n_parts, size_t files_max, struct error *error);
/* fsync of one directory, e.g. a table's folder or its detached/. */
int dir_sync(const char *path, struct error *error);

/* ---- commit ---- */

/* Where one part is: looked at, not changed. */
struct part_place {
    bool held;      /* the held directory is there with the recorded inode */
    bool marker;    /* a marker that has its number is there, .moved or .sent */
    bool sent;      /* … and the ALTER may have been sent: it is .sent, or names a clone */
    bool kept;      /* … and names a clone, for whose sake the held directory stays */
    bool out;       /* the clone is still in the held area (<number>.out) */
    uint64_t inode; /* what is looked for outside the held area: the clone, else the recorded one */
    bool detached;  /* detached/<name> with that inode */
    bool attaching; /* detached/attaching_<name> with it */
    char *ignored;  /* another name in detached/ with it (ignored_…, and so on), or NULL */
    char *active;   /* name of a part in the table's folder with it, or NULL */
    char *seen;     /* kept: under which name the clone was last noted there, or NULL */
    int64_t cloned_ms; /* kept: when the clone was made (wall clock) */
};
void part_place_clear(struct part_place *place);
/* Places of n parts of one target; table_paths[i] and roots[i] are on the same disk (index =
 * part->disk). ret_places: array of n, for the caller to clear. Lists each of the folders once per disk,
 * whatever n; a part that is not held costs a system call or two besides. */
int part_places_read(const char *xid, const struct chxa_part *parts, size_t n_parts,
                     char *const *table_paths, char *const *roots, size_t n_disks,
                     struct part_place *ret_places, struct error *error);

/* Creates the markers of these runs, one for each, where they are missing; what was sent is sent no more, durably with
 * fsync. Not durable else: held_note_sent (held_markers.c says why). No run may have a number of another part of
 * the transaction on that root. */
int held_mark(const char *root, const char *xid, const struct part_run *runs, size_t n, bool fsync,
              struct error *error);
/* Before the ALTER is sent: the markers of these runs say so, durably with fsync (once, not for each). All of one
 * root. */
int held_note_sent(const char *root, const char *xid, const struct part_run *runs, size_t n,
                   bool fsync, struct error *error);
/* Takes the part out of its markers, of a part that was taken away before it was attached. Missing is fine. */
int held_unmark(const char *root, const char *xid, const struct chxa_part *part, bool fsync,
                struct error *error);
/* Renames each held part (or its clone) → <table_path>/detached/<name>, in order, until one fails; never
 * replaces what is there. Needs the markers. */
int held_move_out(const char *root, const char *xid, const struct chxa_part *parts, size_t n,
                  const char *table_path, struct error *error);
/* Renames detached/<from> back to detached/<part name> (attaching_…, ignored_…). */
int detached_rename(const char *table_path, const char *from, const struct chxa_part *part,
                    struct error *error);
/* Renames detached/<from> back into the held area, then removes the marker (and a clone). */
int held_move_back(const char *root, const char *xid, const struct chxa_part *part,
                   const char *table_path, const char *from, struct error *error);

/* Hard-links the held part into <table_path>/detached/<name>, of another table than its target; it
 * stays held. What is there under that name is replaced. */
int held_link_out(const char *root, const char *xid, const struct chxa_part *part,
                  const char *table_path, struct error *error);

/*
 * For a target that may destroy what it is given (a replica does, when ZooKeeper fails it within an
 * ATTACH): hands over clones of hard links, <number>.out, and keeps the held directories until they are
 * let go. The markers, written by held_clone and durable with fsync, name the clones' inodes. On failure
 * some may be made; then no more than that is known.
 */
int held_clone(const char *root, const char *xid, const struct chxa_part *parts, size_t n,
               bool fsync, struct error *error);
/* Notes in the marker under which name the clone stands in the table's folder. */
int held_note_seen(const char *root, const char *xid, const struct chxa_part *part,
                   const char *name, struct error *error);
/* Removes the held directory whose clone is attached for sure; the marker stays. */
int held_let_go(const char *root, const char *xid, const struct chxa_part *part,
                struct error *error);

/* ---- the end ---- */

/* Removes the transaction's folder on each root, with all that is in it; missing is fine. With
 * only_empty, refuses (IO_FAILED) when a held part is still in it: the end of a commit. */
int held_remove(const char *xid, char *const *roots, size_t n_roots, bool only_empty,
                struct error *error);
/* Removes one held part (a write that was linked but could not be recorded). Missing is fine. */
int held_remove_part(const char *xid, const char *root, uint64_t number, struct error *error);
/* Removes one transaction folder by its name (from held_list), with all that is in it: the way to
 * folders that no record names. Missing is fine. */
int held_remove_folder(const char *root, const char *name, struct error *error);
/* Removes the held parts of the transaction whose numbers are not in named: of writes that were
 * linked but never recorded. Missing is fine. */
int held_remove_unnamed(const char *xid, const char *root, const uint64_t *named, size_t n_named,
                        struct error *error);
/* Moves the folder <root>/chxa/<name> to <root>/chxa/lost/<name> (with the time behind it if that
 * exists). Missing is fine. */
int held_set_aside(const char *root, const char *name, struct error *error);
/* Removes <root>/chxa/lost/<name>. Missing is fine: *ret_was_there says so. */
int held_remove_set_aside(const char *root, const char *name, bool *ret_was_there,
                          struct error *error);
/* Names of the transaction folders in <root>/chxa; ret_names: array of n strings for the caller to
 * free. */
int held_list(const char *root, char ***ret_names, size_t *ret_n, struct error *error);
/* Whose folder it is: the xid, for the caller to free; NULL: it is no transaction's, or does not say. */
char *held_folder_xid(const char *root, const char *name);

#endif
