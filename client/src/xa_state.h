/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is associated with what: the part of XA that lives in this process.
 *
 *   thread ── opens (one per rmid) ── associations (one per branch: active, or suspended)
 *                │                         │
 *             instance (one per xa_info) ── branches (by id)
 *
 * Threads.  A thread's opens and associations are its own, found through a thread-specific key. Instances and branches are the
 *           process's, under one lock, which is never held during a request. A branch whose node is being asked is `busy`:
 *           other calls for it wait, so that calls for one branch happen one after the other.
 * Lives.    An instance lives while a thread has it open. A branch is there from xa_start (or from the first call for one that another
 *           process began) until the call that ends it; while it is busy or has associations it stays where it is. A thread
 *           that ends without xa_close leaves its branches rollback-only, unless they are prepared, as the standard wants.
 */
#ifndef CHXA_CLIENT_XA_STATE_H
#define CHXA_CLIENT_XA_STATE_H

#include "client/src/xa_info.h"
#include "client/src/xa_table.h"

#define XA_BRANCHES_MAX 65536u /* per instance; above it xa_start and its like say XAER_RMFAIL */

struct xa_association_entry {
    struct xa_association_entry *next;
    struct xa_branch_entry *branch;
    struct chxa_txn *txn;
    bool suspended;
};

struct xa_branch_entry {
    struct xa_branch_entry *next; /* in its bucket */
    enum xa_branch state;
    bool busy;                              /* some thread asks the node */
    bool may_have_rows;                     /* a handle to write with was given out */
    unsigned associations;                  /* of all threads, suspended and migrating ones too */
    struct xa_association_entry *migrating; /* suspended, and whose thread is open */
    char owner_url[CHXA_URL_BYTES_MAX + 1]; /* "" : ask */
    char id[CHXA_XID_BYTES_MAX + 1];
};

/* One xa_info. Everything in it but the branches stays as it is. */
struct xa_instance {
    struct chxa_client *client;
    uint64_t deadline_ms, nowait_ms, timeout_ms;
    bool gather;
    bool scan_all;
    char info[MAXINFOSIZE];
    struct xa_instance *next;
    unsigned opens;
    size_t n_branches;
    struct xa_branch_entry *buckets[1024];
};

/* xa_recover's cursor. */
struct xa_scan {
    bool open;
    XID *xids;
    size_t n, at;
};

struct xa_open {
    struct xa_open *next;
    int rmid;
    struct xa_instance *instance;
    struct xa_association_entry *associations;
    struct xa_scan scan;
};

/* The calling thread's; NULL: not open. */
struct xa_open *cx_xa_state_open_find(int rmid);
/* Opens; *ret_why on failure. XA_OK also when it is open already. */
int cx_xa_state_open(const char *info, int rmid, const char **ret_why);
/* Ends suspended associations. XAER_PROTO while one is active. XA_OK when it is not open. */
int cx_xa_state_close(int rmid);
void cx_xa_scan_clear(struct xa_scan *scan);
/* Asks the nodes for what xa_recover has to list. XA_OK, XAER_RMFAIL or XAER_RMERR; the scan is closed then. */
int cx_xa_scan_start(struct xa_open *open, struct chxa_error *error);

/* The active association, or NULL. */
struct xa_association_entry *cx_xa_state_active(struct xa_open *open);
/* The application gets its handle. */
void cx_xa_state_mark_rows(struct xa_association_entry *active);

/*
 * Checks START and JOIN against both tables, makes the branch's entry if need be, and takes it: busy. XA_OK, or the code to return, and then
 * nothing is taken. nowait: XA_RETRY rather than waiting for another thread's call. *ret_association goes to start_end.
 */
int cx_xa_state_start_begin(struct xa_open *open, const char *id, enum xa_event event, bool nowait,
                            struct xa_association_entry **ret_association);
/* Associates with txn, which is then the association's; NULL: it failed, nothing has changed. Gives the branch back. */
void cx_xa_state_start_end(struct xa_open *open, struct xa_association_entry *association,
                           struct chxa_txn *txn);
/* TMRESUME, and all of xa_end. They ask no node. */
int cx_xa_state_resume(struct xa_open *open, const char *id);
int cx_xa_state_end(struct xa_open *open, const char *id, enum xa_event event,
                    struct chxa_error *error);

/* PREPARE … FORGET: as start_begin, and the state after success. */
int cx_xa_state_take(struct xa_open *open, const char *id, enum xa_event event, bool nowait,
                     struct xa_branch_entry **ret_branch, enum xa_branch *ret_next);
/* Gives it back in that state; in XA_BRANCH_ELSEWHERE it is forgotten. */
void cx_xa_state_give(struct xa_open *open, struct xa_branch_entry *branch, enum xa_branch state);

/* The calling thread's, to be filled. NULL: no memory. */
struct chxa_error *cx_xa_state_error(void);

#endif
