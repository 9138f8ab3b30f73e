/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose held area it is: <root>/chxa/owner names the node, and is locked while a process of it
 * runs, so that two coordinators never clean up each other's parts (a wrong `clickhouse` setting, a
 * second store).
 *
 * Threads: blocks; call it on a worker thread.
 */
#ifndef CHXA_CH_HELD_LOCK_H
#define CHXA_CH_HELD_LOCK_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* What the owner file says of the time before. */
struct held_history {
    bool store_behind; /* the epoch noted before was not smaller than ours: the store has lost its
                          history (wiped), or it is another one; then a folder without a record
                          proves nothing */
    bool rebooted; /* the machine has restarted since: what was not made durable (all that is not
                      prepared) may be damaged without a trace */
};

/*
 * Creates <root>/chxa (mode 0700) if missing and locks it for `identity` ("cluster/node") until
 * *ret_fd is closed (or the process ends in any way). Notes epoch (the one just taken from the
 * store) and the kernel's boot id in the file; sets in *ret_history what differs from the last time
 * (and leaves alone what does not). A restart of the machine is told until held_lock_booted. CHXA_E_NOT_READY: another process has it, or it belongs to
 * another node and still holds transactions; CHXA_E_IO_FAILED: the root cannot be written, or its
 * folders are another user's (not the same machine or user as ClickHouse).
 */
int held_lock(const char *root, const char *identity, uint64_t epoch, int *ret_fd,
              struct held_history *ret_history, struct error *error);
/* What a restart of the machine may have damaged is seen to: note the boot id. fd: held_lock's. */
int held_lock_booted(int fd, struct error *error);

#endif
