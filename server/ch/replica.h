/* SPDX-License-Identifier: Apache-2.0
 *
 * What ZooKeeper knows of this server's replica of a table. The table's folder is not enough: a
 * replica that loses ZooKeeper in the middle of an ATTACH keeps the part in its folder, and no
 * other replica ever hears of it.
 */
#ifndef CHXA_CH_REPLICA_H
#define CHXA_CH_REPLICA_H

#include "ch/ch_http.h"

struct replica_parts {
    char **names; /* sorted by strcmp */
    size_t n_names;
};

/* Asks ClickHouse for the parts that ZooKeeper lists for its replica of the table. CHXA_E_BLOCKED
 * when the table is no replica now, or as in ch_http.h. The list is valid during the callback. */
typedef void replica_parts_cb(void *arg, int code, struct error *error,
                              const struct replica_parts *parts);
void replica_parts_load(struct ch_client *client, const char *database, const char *table,
                        uint64_t timeout_ms, replica_parts_cb *done, void *arg);

/* Pure. */
bool replica_has_part(const struct replica_parts *parts, const char *name);

#endif
