/* SPDX-License-Identifier: Apache-2.0
 *
 * The write operation's state, shared by write.c (its steps) and write_gather.c (the step that joins it with others).
 * Internal to them.
 */
#ifndef CHXA_OP_WRITE_PRIVATE_H
#define CHXA_OP_WRITE_PRIVATE_H

#include "op/gather.h"
#include "op/txn.h"

#include "base/buf.h"
#include "base/hash.h"
#include "ch/insert_head.h"

struct coord_write {
    struct op op;
    TAILQ_ENTRY(coord_write) link; /* in txn->writes while it counts as in flight */
    coord_cb *done;
    void *arg;
    void (*flow)(void *arg, bool want);
    /* what the client asked for */
    char *xid, *query, *write_id, *client_database, *content_encoding;
    uint64_t body_bytes_told; /* 0: not */
    bool skip_views;
    struct ch_param *settings;
    size_t n_settings;
    struct insert_head head;
    /* progress */
    bool gathers;     /* it is the INSERT of a gather */
    bool collects;    /* its body is kept in `kept`, to be gathered */
    bool gathered;    /* it was */
    struct buf kept;  /* what came of the body before it was known where to */
    size_t kept_held; /* of the memory budget */
    uint64_t behind;  /* it waits for its table's gathers up to this one; 0: not yet known */
    struct gather_item item;
    struct error abort; /* code: the body will not come, or the transaction is being rolled back */
    struct txn_target *target;
    struct scratch *scratch;
    struct part_list listed; /* its parts after the INSERT, once `link` is through */
    bool retire;             /* the INSERT's outcome is unknown */
    char *query_id;          /* of the INSERT */
    struct ch_request *upload;
    bool body_ended, held_back;
    struct hash *hash;
    struct chxa_write write; /* what will be recorded */
    bool replaying;          /* the write_id is known: only compare */
    bool rows_told;          /* ClickHouse said how many rows it wrote */
    uint64_t rows_written;
};

/* True (and the operation is over) when the body will not come. */
bool write_gave_up(struct coord_write *write);

/* A step. */
void write_gather(struct op *op);
/* Takes a piece of the body into `kept`. False: it has grown too long to be gathered, or there is no memory for it. */
bool write_keep(struct coord_write *write, const void *data, size_t len);
void write_drop_kept(struct coord_write *write);

#endif
