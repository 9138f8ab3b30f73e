/* SPDX-License-Identifier: Apache-2.0
 *
 * What ZooKeeper knows of this server's replica of a table, and what the server shows of it. The
 * table's folder is not enough: a replica that loses ZooKeeper in the middle of an ATTACH keeps the
 * part in its folder, and no other replica ever hears of it.
 */
#ifndef CHXA_CH_REPLICA_H
#define CHXA_CH_REPLICA_H

#include "ch/ch_http.h"

struct replica_names {
    char **names; /* sorted by strcmp */
    size_t n_names;
};

struct replica_parts {
    struct replica_names registered; /* in ZooKeeper */
    struct replica_names active;     /* in this server, to be seen by queries */
    /* How long a merged part is kept at least, on disk and in ZooKeeper. */
    uint64_t old_parts_lifetime_ms;
};

/* Asks ClickHouse. CHXA_E_BLOCKED when the table is no replica now, or as in ch_http.h. The parts
 * are valid during the callback. */
typedef void replica_parts_cb(void *arg, int code, struct error *error,
                              const struct replica_parts *parts);
void replica_parts_load(struct ch_client *client, const char *database, const char *table,
                        uint64_t timeout_ms, replica_parts_cb *done, void *arg);

/* Pure. */
bool replica_has(const struct replica_names *names, const char *name);
/* Pure. True when a part of which the named one may have become a part is among them. */
bool replica_covers(const struct replica_names *names, const char *name);

#endif
