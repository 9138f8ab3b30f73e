/* SPDX-License-Identifier: Apache-2.0
 *
 * How many rows a part directory holds, read from its files. Internal to the part files. Blocks;
 * any worker thread.
 */
#ifndef CHXA_CH_PART_ROWS_H
#define CHXA_CH_PART_ROWS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* dir: the open part directory, shown as `path` in messages. IO_FAILED when the files do not say.
 */
int part_rows_read(int dir, const char *path, bool old_syntax, uint64_t *ret_rows,
                   struct error *error);

#endif
