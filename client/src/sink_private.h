/* SPDX-License-Identifier: Apache-2.0
 *
 * A sink, as sink.c and sink_open.c know it.
 */
#ifndef CX_SINK_PRIVATE_H
#define CX_SINK_PRIVATE_H

#include "client/src/internal.h"
#include "client/src/sink_state.h"

enum cx_sink_phase { CX_SINK_OPEN, CX_SINK_ENDED, CX_SINK_PREPARED, CX_SINK_FAILED };

struct chxa_sink {
    struct chxa_client *client; /* the caller's */
    enum cx_sink_phase phase;
    struct cx_sink_state state; /* name, epoch; seq of the last one prepared; entries that wait */
    size_t entries_max;         /* room in state.entries */
    bool has_checkpoint;        /* state.checkpoint is of a snapshot of this handle */
    char start[9];              /* in every id; by chance */
    uint64_t begun;             /* seq of the transaction begun last */
    uint64_t begun_ms;          /* monotonic */
    bool has_rows;              /* in the open transaction */
    struct chxa_txn *txn;       /* OPEN and ENDED; or of a sink that failed there */
    struct chxa_stream *stream; /* OPEN; likewise */
    char owner_url[CHXA_URL_BYTES_MAX + 1]; /* of all of them; "" before the first */
    char why[CHXA_MESSAGE_BYTES_MAX + 64];  /* FAILED: the first failure */
    /* options */
    struct chxa_stream_options stream_options; /* query: the copy below */
    char *query;
    uint64_t timeout_ms, commit_deadline_ms;
    size_t pending_max;
};

/* Begins the next transaction, at owner_url if there is one, and its stream: OPEN. Failed: nothing changed but `begun`. */
int cx_sink_begin(struct chxa_sink *sink, struct chxa_error *error);
/* Whether last_xid, which the sink committed last, says that the entry is committed. */
bool cx_sink_is_committed(const struct cx_sink_state *state, const struct cx_sink_entry *entry,
                          const char *last_xid);
/* Without a request. */
void cx_sink_free(struct chxa_sink *sink);

#endif
