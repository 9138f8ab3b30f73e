/* SPDX-License-Identifier: Apache-2.0
 *
 * A held part's files written anew, for when it is not known whether a disk has refused to keep them.
 * Internal to part_files.c. Threads: any worker; everything blocks.
 */
#ifndef CHXA_CH_PART_RENEW_H
#define CHXA_CH_PART_RENEW_H

/*
 * After an fsync that failed, the old files are in memory at best, and another fsync of them says
 * nothing; a copy can be made durable like any file. That the copy is what ClickHouse wrote, its
 * checksums.txt tells, and whether that is whole the record's checksum. The part's directory (its inode)
 * stays. Not durable yet. Cut off anywhere it can be done again.
 * 0 or negative errno; -EBADMSG: it is not what ClickHouse wrote, or nobody can tell (projections).
 */
int part_renew(int dir, const char *checksum);

#endif
