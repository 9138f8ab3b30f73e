/* SPDX-License-Identifier: Apache-2.0
 *
 * The markers in a transaction's held folder: files without content, named after the parts that they
 * stand for, <first>-<last>.moved or .sent (<N>.moved, .sent for a single one). Internal to part_held.c, held_survey.c and
 * part_clone.c, which gives the single ones their content when they name a clone.
 *
 * A marker stands for the transaction's parts on that disk whose numbers lie in its run
 * (core/part_run.h). They may overlap; a part is marked when any has it, and sent when any that says
 * sent has it. So a batch of parts costs one file, and what is true of one part is changed by one
 * rename or one removal whenever a crash comes.
 *
 * Threads: any worker; all of it blocks.
 */
#ifndef CHXA_CH_HELD_MARKERS_H
#define CHXA_CH_HELD_MARKERS_H

#include "core/part_run.h"

/* What a file's name says; false: it is no marker's. Pure. */
bool held_marker_parse(const char *name, struct part_run *ret_run, bool *ret_sent);

/* What all of a folder's markers say; each list joined. */
struct held_markers {
    struct part_run *moved;
    struct part_run *single; /* .moved of one part, which may name a clone */
    struct part_run *sent;
    size_t n_moved, n_single, n_sent;
};
/* held: the transaction's folder. 0 or negative errno. */
int held_markers_read(int held, struct held_markers *ret_markers);
void held_markers_clear(struct held_markers *markers);

/* Parts out of all markers, or of those only that say sent; *ret_any: there was one. Missing is fine.
 * With durable, what stays true is made durable before it could be lost; the end is not. 0 or negative errno. */
int held_markers_take(int held, struct part_run parts, bool sent_only, bool durable, bool *ret_any);

#endif
