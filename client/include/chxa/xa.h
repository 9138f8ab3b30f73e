/* SPDX-License-Identifier: Apache-2.0
 *
 * The X/Open XA interface between a transaction manager (TM) and a resource manager (RM): "Distributed Transaction
 * Processing: The XA Specification", X/Open document C193. Names and values are the standard's, and the include guard is the one
 * that its own header has, so that a TM's xa.h and this one never clash: whichever comes first counts.
 *
 * chxa's own additions are in chxa/xa_switch.h.
 */
#ifndef XA_H
#define XA_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transaction branch identification -------------------------------------------------------------------------- */

#define XIDDATASIZE  128 /* bytes in XID.data */
#define MAXGTRIDSIZE 64  /* bytes of a global transaction id, at most */
#define MAXBQUALSIZE 64  /* bytes of a branch qualifier, at most */

struct xid_t {
    long formatID;          /* the format's number; -1: the null XID */
    long gtrid_length;      /* 1-64 */
    long bqual_length;      /* 1-64 */
    char data[XIDDATASIZE]; /* gtrid, and bqual right behind it; any bytes */
};
typedef struct xid_t XID;

/* What a resource manager that registers dynamically calls in the TM; chxa does not. */
extern int ax_reg(int rmid, XID *xid, long flags);
extern int ax_unreg(int rmid, long flags);

/* ---- the resource manager's switch ------------------------------------------------------------------------------ */

#define RMNAMESZ    32  /* bytes of a resource manager's name, NUL included */
#define MAXINFOSIZE 256 /* bytes of an xa_info string, NUL included */

struct xa_switch_t {
    char name[RMNAMESZ]; /* of the resource manager */
    long flags;          /* TMNOFLAGS, or TMREGISTER, TMNOMIGRATE, TMUSEASYNC */
    long version;        /* 0 */
    int (*xa_open_entry)(char *xa_info, int rmid, long flags);
    int (*xa_close_entry)(char *xa_info, int rmid, long flags);
    int (*xa_start_entry)(XID *xid, int rmid, long flags);
    int (*xa_end_entry)(XID *xid, int rmid, long flags);
    int (*xa_rollback_entry)(XID *xid, int rmid, long flags);
    int (*xa_prepare_entry)(XID *xid, int rmid, long flags);
    int (*xa_commit_entry)(XID *xid, int rmid, long flags);
    int (*xa_recover_entry)(XID *xids, long count, int rmid, long flags);
    int (*xa_forget_entry)(XID *xid, int rmid, long flags);
    int (*xa_complete_entry)(int *handle, int *retval, int rmid, long flags);
};

/* ---- flags ------------------------------------------------------------------------------------------------------ */

#define TMNOFLAGS 0x00000000L

/* in xa_switch_t.flags */
#define TMREGISTER  0x00000001L /* the RM registers dynamically */
#define TMNOMIGRATE 0x00000002L /* the RM cannot move an association to another thread */
#define TMUSEASYNC  0x00000004L /* the RM supports asynchronous operations */

/* in calls */
#define TMASYNC      0x80000000L /* return at once, end with xa_complete */
#define TMONEPHASE   0x40000000L /* xa_commit: without xa_prepare */
#define TMFAIL       0x20000000L /* xa_end: and mark it rollback-only */
#define TMNOWAIT     0x10000000L /* do not wait for what blocks */
#define TMRESUME     0x08000000L /* xa_start: a suspended association */
#define TMSUCCESS    0x04000000L /* xa_end: for good */
#define TMSUSPEND    0x02000000L /* xa_end: to be resumed */
#define TMSTARTRSCAN 0x01000000L /* xa_recover: from the start */
#define TMENDRSCAN   0x00800000L /* xa_recover: and end the scan */
#define TMMULTIPLE   0x00400000L /* xa_complete: any operation */
#define TMJOIN       0x00200000L /* xa_start: a branch that exists */
#define TMMIGRATE    0x00100000L /* with TMSUSPEND: to be resumed by any thread */

/* ---- return codes ----------------------------------------------------------------------------------------------- */

/* of ax_ calls */
#define TM_JOIN    2  /* caller joins an existing branch */
#define TM_RESUME  1  /* caller resumes a suspended association */
#define TM_OK      0  /* normal */
#define TMER_TMERR -1 /* an error in the TM */
#define TMER_INVAL -2 /* invalid arguments */
#define TMER_PROTO -3 /* called in an improper context */

/* of xa_ calls */
#define XA_RBBASE      100             /* least of the rollback codes */
#define XA_RBROLLBACK  XA_RBBASE       /* rolled back, for a reason that is not told */
#define XA_RBCOMMFAIL  (XA_RBBASE + 1) /* a communication failure */
#define XA_RBDEADLOCK  (XA_RBBASE + 2) /* a deadlock */
#define XA_RBINTEGRITY (XA_RBBASE + 3) /* the integrity of the resources would be violated */
#define XA_RBOTHER     (XA_RBBASE + 4) /* a reason that is not listed here */
#define XA_RBPROTO     (XA_RBBASE + 5) /* a protocol error in the RM */
#define XA_RBTIMEOUT   (XA_RBBASE + 6) /* it took too long */
#define XA_RBTRANSIENT (XA_RBBASE + 7) /* may be tried again */
#define XA_RBEND       XA_RBTRANSIENT  /* greatest of the rollback codes */

#define XA_NOMIGRATE 9  /* must be resumed where it was suspended */
#define XA_HEURHAZ   8  /* may have been completed heuristically */
#define XA_HEURCOM   7  /* committed heuristically */
#define XA_HEURRB    6  /* rolled back heuristically */
#define XA_HEURMIX   5  /* partly committed, partly rolled back */
#define XA_RETRY     4  /* nothing was done; call again */
#define XA_RDONLY    3  /* the branch was read-only, and is committed */
#define XA_OK        0  /* normal */
#define XAER_ASYNC   -2 /* asynchronous operation outstanding, or not supported */
#define XAER_RMERR   -3 /* an error in the branch */
#define XAER_NOTA    -4 /* the XID is not known */
#define XAER_INVAL   -5 /* invalid arguments */
#define XAER_PROTO   -6 /* called in an improper context */
#define XAER_RMFAIL  -7 /* the RM is unavailable */
#define XAER_DUPID   -8 /* the XID exists already */
#define XAER_OUTSIDE -9 /* the RM works outside any global transaction */

#ifdef __cplusplus
}
#endif

#endif
