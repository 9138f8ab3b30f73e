/* SPDX-License-Identifier: Apache-2.0
 *
 * The marker of a held part and what it says of a clone. Internal to part_held.c and part_clone.c.
 */
#ifndef CHXA_CH_PART_CLONE_H
#define CHXA_CH_PART_CLONE_H

#include "ch/held_markers.h"
#include "ch/part_files.h"

struct held_marker {
    bool sent;         /* without a clone: the ALTER may have been sent */
    uint64_t inode;    /* of the clone; 0: the held directory itself was moved out */
    uint64_t birth_ns; /* of the clone; 0: the filesystem does not say */
    int64_t cloned_ms;
    char seen[256]; /* "": not noted */
};

/* held: the transaction's folder, markers: all of them there. False when the part has none. */
bool held_marker_read(int held, const struct held_markers *markers, uint64_t number,
                      struct held_marker *ret_marker);

#endif
