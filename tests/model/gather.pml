/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathered writes (server/op/gather.h), for the model checker spin: one transaction begun with `gather`, its client with
 * WRITES writes, its node, which may die and start again at any time, the store, and ClickHouse, which may refuse an INSERT.
 * tests/model/run checks it.
 *
 * How to read it: Node is what one process of the node may do next, World what may go wrong, Client asks until it is
 * answered. Every answer may be lost, and is asked for again; every change in the store may be made with its answer lost.
 *
 * What is checked: when Prepared is recorded, each write that was answered is recorded exactly once, no write twice, and
 * none of which only a piece came. And a transaction from which nothing was lost can always be prepared: the client ends.
 *
 * Left out: what comes behind Prepared (commit.pml), several tables (their gathers share nothing), a second process
 * beside the first (the store's epoch keeps it from changing anything: commit.pml).
 *
 * Mistakes, which `run` makes one at a time to see that they are found:
 *   NO_BEGUN       a process that did not begin the transaction goes on with it
 *   NO_LOST        an INSERT that failed with answered writes in it is forgotten
 *   NO_DRAIN       prepare does not wait for the open INSERT
 *   EARLY_CHECK    prepare asks what is lost before it waits, and not behind
 *   FORGET_KNOWN   the write ids that an INSERT took are forgotten when it has ended
 *   TAKE_PIECES    a body is fed as it comes, not when it is whole
 *   BEGUN_BY_RETRY a begin that finds the record there counts as having begun it
 */
#define WRITES 2

#define NONE     0
#define OPEN     1 /* Initialized */
#define PREPARED 2
#define ABORTED  3

/* The store */
byte state = NONE;
byte recorded[WRITES]; /* times */
bool piece_recorded;

/* The node's memory; gone when it dies */
bool begun, lost;
bool known[WRITES];  /* answered, or about to be */
byte in_insert[WRITES];
bool piece_in_insert, insert_open;
bool draining, checked; /* a prepare runs */

/* The client's */
bool answered[WRITES];
bool gave_up;
byte crashes, failures;

inline forget_memory() {
    begun = false; lost = false; draining = false; checked = false; insert_open = false; piece_in_insert = false;
    w = 0;
    do
    :: w < WRITES -> known[w] = false; in_insert[w] = 0; w++
    :: else -> break
    od;
    skip
}

inline insert_over(kept) {
    w = 0;
    do
    :: w < WRITES ->
        if
        :: kept -> recorded[w] = recorded[w] + in_insert[w]
        :: else
        fi;
#ifdef FORGET_KNOWN
        known[w] = false;
#endif
        in_insert[w] = 0; w++
    :: else -> break
    od;
    piece_recorded = piece_recorded || (kept && piece_in_insert);
    piece_in_insert = false; insert_open = false
}

/* gather_check */
#ifdef NO_BEGUN
#define BEGUN true
#else
#define BEGUN begun
#endif
#ifdef NO_LOST
#define LOST false
#else
#define LOST lost
#endif
#define MAY (BEGUN && !LOST)

inline record_prepared() {
    w = 0;
    do
    :: w < WRITES ->
        assert(recorded[w] <= 1);                   /* no write twice */
        assert(!answered[w] || recorded[w] == 1);   /* an answered one in any case */
        w++
    :: else -> break
    od;
    assert(!piece_recorded);
    state = PREPARED; draining = false; checked = false
}

active proctype Node() {
    byte w;
end:
    do
    /* The INSERT ends by itself (a pause, its age, another that needs its place), or because a prepare waits */
    :: d_step { insert_open -> insert_over(true) }
    /* … ClickHouse refuses it, or goes away */
    :: d_step { insert_open && failures < 1 -> failures++; lost = true; insert_over(false) }
    /* … it is recorded, and the store's answer is lost */
    :: d_step { insert_open && failures < 1 -> failures++; lost = true; insert_over(true) }
    /* prepare.c, drain */
#ifdef EARLY_CHECK
    :: d_step { state == OPEN && draining && !checked && MAY -> checked = true }
    :: d_step { state == OPEN && draining && checked && !insert_open -> record_prepared() }
    :: d_step { state == OPEN && draining && !checked && !MAY -> draining = false }
#else
#ifdef NO_DRAIN
    :: d_step { state == OPEN && draining && MAY -> record_prepared() }
#else
    :: d_step { state == OPEN && draining && !insert_open && MAY -> record_prepared() }
#endif
    :: d_step { state == OPEN && draining && !MAY -> draining = false }
#endif
    od
}

active proctype World() {
    byte w;
end:
    do
    :: d_step { crashes < 2 -> crashes++; forget_memory() } /* kill -9, and a start */
    od
}

/* The record is there: a replay, at whatever time it comes */
inline begin_again() {
#ifdef BEGUN_BY_RETRY
    begun = true
#else
    skip
#endif
}

active proctype Client() {
    byte i;
    d_step { state = OPEN; begun = true };
    i = 0;
    do
    :: i == WRITES -> break
    :: i < WRITES ->
        if
        :: d_step { state == OPEN -> begin_again() }
        /* write_gather.c: new, its body whole */
        :: d_step { state == OPEN && MAY && !draining && !known[i] ->
            known[i] = true; in_insert[i]++; insert_open = true }
        /* … a client that goes away in the middle of its body */
#ifdef TAKE_PIECES
        :: d_step { state == OPEN && MAY && !draining && !known[i] -> piece_in_insert = true; insert_open = true }
#endif
        /* known: the first answer again */
        :: d_step { state == OPEN && MAY && known[i] -> answered[i] = true; i++ }
        /* ROLLBACK_ONLY */
        :: d_step { state == OPEN && !MAY -> gave_up = true; state = ABORTED }; goto over
        fi
    od;
    do
    :: d_step { state == OPEN && !draining && MAY -> draining = true; checked = false }
    :: d_step { state == OPEN && !draining && !MAY -> gave_up = true; state = ABORTED }; break
    :: state == PREPARED -> break
    od;
over:
    assert(!gave_up || crashes || failures) /* nothing was lost: it is not refused */
}
