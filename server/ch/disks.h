/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ClickHouse's local disks are: the roots of the held areas. Loop's thread.
 */
#ifndef CHXA_CH_DISKS_H
#define CHXA_CH_DISKS_H

#include "ch/table.h"

/* roots: absolute paths without a trailing slash, each once, at least one; valid during the
 * callback. Errors as in ch_http.h, and CHXA_E_TARGET_UNSUPPORTED when the server names no local
 * disk. */
typedef void ch_disks_cb(void *arg, int code, struct error *error, char **roots, size_t n_roots);
void ch_disks_load(struct ch_client *client, const struct ch_caps *caps, uint64_t timeout_ms,
                   ch_disks_cb *done, void *arg);

#endif
