/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sink has the caller store with each checkpoint, as bytes; and the ids of its transactions. Pure: no request, no
 * clock.
 *
 * The bytes, version 1; numbers are big-endian:
 *
 *   "chxs"  4       magic
 *   version 1       1
 *   zero    1
 *   name    2 + n   length, and the sink's name
 *   epoch   8       of the writer that made the state
 *   seq     8       of the last transaction that it had prepared; 0: none in this epoch
 *   checkpoint 8
 *   entries 4       number of prepared transactions that wait, oldest first; for each:
 *     checkpoint 8
 *     id      2 + n
 *   check   4       CRC-32 (IEEE 802.3) of everything before it
 *
 * A later version has another number, and this one stays readable for ever: the vectors in tests/unit/client are never
 * removed. A reader takes nothing on trust: every byte is accounted for, ids must be this sink's and in order.
 */
#ifndef CX_SINK_STATE_H
#define CX_SINK_STATE_H

#include "client/include/chxa/chxa.h"

#define CX_SINK_NAME_BYTES_MAX 200u   /* so that an id made from it is not too long */
#define CX_SINK_PENDING_MAX    10000u /* what one recovery takes */

/* Prepared, and not known to be committed. */
struct cx_sink_entry {
    uint64_t checkpoint;
    uint64_t seq;
    char xid[CHXA_XID_BYTES_MAX + 1];
};

struct cx_sink_state {
    char name[CX_SINK_NAME_BYTES_MAX + 1];
    uint64_t epoch, seq, checkpoint;
    struct cx_sink_entry
        *entries; /* owned by whoever made the state; ordered by seq and checkpoint */
    size_t n_entries;
};

/* A valid id of 1-200 characters. */
bool cx_sink_name_valid(const char *name);

/*
 * "<name>:<epoch>:<seq>:<start>". start is 8 hex digits, by chance, one for each opened sink: two writers that were given
 * the same epoch never share a transaction. name is valid; room for CHXA_XID_BYTES_MAX + 1.
 */
void cx_sink_xid(const char *name, uint64_t epoch, uint64_t seq, const char *start, char *ret_xid);
/* False: not an id of this sink. One to one: no id is of two sinks. */
bool cx_sink_xid_read(const char *name, const char *xid, uint64_t *ret_epoch, uint64_t *ret_seq);

/* *ret_bytes is from malloc (chxa_free). NO_MEMORY. */
int cx_sink_state_encode(const struct cx_sink_state *state, void **ret_bytes, size_t *ret_len);
/*
 * STATE_REFUSED, with *ret_why (static) saying why; NO_MEMORY. name: the sink that it must be of. Clear *ret_state with
 * cx_sink_state_clear.
 */
int cx_sink_state_decode(const char *name, const void *bytes, size_t len,
                         struct cx_sink_state *ret_state, const char **ret_why);
void cx_sink_state_clear(struct cx_sink_state *state);

#endif
