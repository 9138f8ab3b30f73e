/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering: the small writes of a transaction that was begun with `gather` go into one INSERT together, and each is
 * answered when the INSERT's upload has its body. That INSERT is a write like any other (write.c); it ends after a
 * pause, by age, when another needs its place, before a write that cannot be joined with it, and before a prepare.
 * Private to server/op.
 *
 * What a crash does: what was gathered and not yet recorded is gone, although it was answered. So such a transaction
 * can only be rolled back
 *   - by a process that did not begin it (txn->begun_ms; the record says `gather` from the begin on, so there is no
 *     moment at which an answered write could be forgotten);
 *   - after an INSERT that had answered writes in it has failed (txn->lost).
 * Both are asked at the one way to Prepared and Committing, the prepare, before it is begun and when it has drained the
 * writes; and at every write: gather_check.
 *
 * Invariants
 *   - while a gather exists, its INSERT is in flight or a write that waits in it is: the transaction stays in memory;
 *   - the INSERTs of one table of a transaction run one after the other, so that its rows keep their order;
 *   - a body is taken whole or not at all: a client that goes away in the middle of one harms nobody else's.
 *
 * Threads: the loop's.
 */
#ifndef CHXA_OP_GATHER_H
#define CHXA_OP_GATHER_H

#include "op/txn.h"

/* A whole body that waits for an INSERT. */
struct gather_item {
    TAILQ_ENTRY(gather_item) link;
    const char *data; /* the caller's; valid until `taken` */
    size_t len;
    bool newline; /* one is to follow it */
    /* code 0: an INSERT has it. May be called within gather_put, at its end. */
    void (*taken)(struct gather_item *item, int code, const struct error *error);
};

/* 0, or ROLLBACK_ONLY: rows of answered writes are lost. */
int gather_check(const struct txn *txn, struct error *error);

/* params: of the write that brought the body; those that are equal in all but write_id and flow share an INSERT. target:
 * where it goes, roots unused. */
void gather_put(struct txn *txn, const struct coord_write_params *params,
                const struct chxa_target *target, struct gather_item *item);
/* Ends all of the transaction's gathers. */
void gather_end(struct txn *txn);
/*
 * Ends those of the table that are there now, for a write that is to come behind them. False: there are none any more;
 * ask again until then. *behind: 0 at first. Those that are opened later are not waited for, so that it cannot wait for
 * ever.
 */
bool gather_end_before(struct txn *txn, const struct chxa_target *target, uint64_t *behind);

/* A gathered write, to know it again; hashes as in struct chxa_write. NULL: not known. */
struct gather_known {
    char *write_id;
    char query_hash[CHXA_HASH_HEX_BYTES + 1];
    char body_hash[CHXA_BODY_HASH_BYTES_MAX + 1];
    uint64_t body_bytes;
};
const struct gather_known *gather_find(const struct txn *txn, const char *write_id);
/* Copies it; must not be known. */
void gather_remember(struct txn *txn, const struct gather_known *known);

/* For the begin, once this process has created the record. */
void gather_begin(struct txn *txn);
/* For txn_free, coord_new and coord_stop. */
void gather_clear(struct txn *txn);
void gather_init(struct coord *coord);
void gather_end_all(struct coord *coord);

#endif
