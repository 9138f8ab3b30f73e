/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa as an X/Open XA resource manager: the switch that a transaction manager is given, and the calls by which an
 * application writes in the branch that its transaction manager has started. The chapter XA of client/README.md says what
 * each entry does and what each code means.
 *
 * Threads. The standard's thread of control is a POSIX thread: each one calls xa_open, has its own associations and its own
 *          recovery scan. Branches are known to the whole process: any thread that has opened the resource manager may end
 *          them. An association that is suspended with TMMIGRATE may be resumed by any thread.
 * Fork.    A child must not use what its parent opened.
 */
#ifndef CHXA_XA_SWITCH_H
#define CHXA_XA_SWITCH_H

#include "chxa.h"
#include "xa.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The resource manager. name is "chxa", version 0; flags are TMNOFLAGS: no dynamic registration, associations migrate, nothing is
 * asynchronous.
 *
 * xa_info is a text of words like `key=value`, separated by blanks; 255 bytes at most, and no blank in a value:
 *   url              nodes, separated by commas: http://10.0.0.1:8124,http://10.0.0.2:8124. The only key that must be there
 *   write_mode       random (the default), round_robin, first
 *   deadline_ms      of one xa_ call, with its retries; 120000
 *   nowait_ms        of one xa_ call with TMNOWAIT; 1000
 *   timeout_ms       of a branch that is not prepared; 0, the default: the node's
 *   connect_timeout_ms, request_timeout_ms
 *   scan             what xa_recover lists: in_doubt (the default), or all: also what an operator ended with a reason
 *   gather           yes, or no (the default): small writes of a branch are put into INSERTs together (chxa_start_options)
 *   user, password_file            basic authentication; the password is the file's first line
 *   bearer_token_file              instead; likewise
 *   ca_file, cert_file, key_file   TLS
 */
extern CHXA_API struct xa_switch_t chxa_xa_switch;

/*
 * The handle to write with (chxa_write, chxa_stream_open) in the branch that this thread is associated with at rmid. Between
 * xa_start and xa_end only, and by this thread only; streams must be closed before xa_end. Not to be ended or freed.
 * XA_OK, or XAER_PROTO: rmid is not open in this thread, or no association is active. *ret_txn is then untouched.
 */
CHXA_API CHXA_MUST_CHECK int chxa_xa_txn(int rmid, struct chxa_txn **ret_txn);

/*
 * What the last xa_ call of this thread that spoke to a node heard from it, for the log: the message behind an XAER_RMFAIL. Valid
 * until this thread's next xa_ call. Never NULL.
 */
CHXA_API const struct chxa_error *chxa_xa_last_error(void);

/*
 * A branch's name at the nodes, as `chxa list` shows it, and back: "xa<format id>:<gtrid>:<bqual>", the two in hex. One to one: an id
 * that a different XID or none would be written as is refused. gtrid has 1-64 bytes; bqual 0-64, for not every TM keeps to the
 * standard's 1; the format id is any but -1. XA_OK or XAER_INVAL.
 */
CHXA_API CHXA_MUST_CHECK int chxa_xa_id_from_xid(const XID *xid,
                                                 char ret_id[CHXA_XID_BYTES_MAX + 1]);
CHXA_API CHXA_MUST_CHECK int chxa_xa_id_to_xid(const char *id, XID *ret_xid);

#ifdef __cplusplus
}
#endif

#endif
