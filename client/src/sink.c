/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpointing sink: write, snapshot, notify, close. Opening, which is restoring, is in sink_open.c.
 *
 * Phases of the transaction that takes the rows. Only a snapshot leads out of OPEN, and a snapshot that failed halfway is
 * repeated from where it stopped:
 *
 *   OPEN      begun, takes rows
 *     v  flush, end
 *   ENDED     every row is staged; no more are taken
 *     v  prepare                     -> becomes an entry of `state`: waits for its checkpoint
 *   PREPARED  there is none to write to
 *     v  begin the next
 *   OPEN
 *
 * FAILED, from anywhere: the rows since the last snapshot are lost to this handle. Commits go on; writing does not.
 *
 * Exactly once rests on this: an entry is in the state before the state is given out, and is committed only when the caller
 * says that a state with it is safe. Whatever is in no state is rolled back at the next open. Commits go in order and stop at
 * the first that does not end, so that what the sink committed last says of every earlier one that it is committed.
 *
 * Every transaction of one opened sink is begun at the same node: the nodes' clocks decide which of them was last.
 */
#include "client/src/sink_private.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRESH_MS             10000u /* an empty transaction older than this is replaced before it takes rows */
#define ROLLBACK_DEADLINE_MS 10000u

/* ---- the transaction that takes the rows ---- */

static int fail_for_good(struct chxa_sink *sink, struct chxa_error *error)
{
    sink->phase = CX_SINK_FAILED;
    snprintf(sink->why, sizeof sink->why, "%s: %s", chxa_error_name(error->code), error->message);
    return error->code;
}

static int failed_before(const struct chxa_sink *sink, struct chxa_error *error)
{
    return cx_fail(error, CHXA_ERR_FAILED_BEFORE, "the sink failed before, restart it: %s",
                   sink->why);
}

/* Whether the same call may be repeated on this handle. */
static bool may_pass(const struct chxa_error *error)
{
    return error->retryable || error->outcome == CHXA_OUTCOME_UNKNOWN ||
           error->code == CHXA_ERR_UNREACHABLE || error->code == CHXA_ERR_NO_MEMORY;
}

int cx_sink_begin(struct chxa_sink *sink, struct chxa_error *error)
{
    struct chxa_start_options options;
    char xid[CHXA_XID_BYTES_MAX + 1];
    assert(sink->txn == NULL && sink->stream == NULL);
    chxa_start_options_init(&options);
    options.sink = sink->state.name;
    options.epoch = sink->state.epoch;
    options.timeout_ms = sink->timeout_ms;
    memset(error, 0, sizeof *error);
    cx_sink_xid(sink->state.name, sink->state.epoch, ++sink->begun, sink->start, xid);
    int code = cx_start(sink->client, sink->owner_url[0] ? sink->owner_url : NULL, xid, &options,
                        &sink->txn, error);
    if (code == 0)
        code = chxa_stream_open(sink->txn, &sink->stream_options, &sink->stream, error);
    if (code) {
        chxa_txn_free(sink->txn);
        sink->txn = NULL;
        return code;
    }
    snprintf(sink->owner_url, sizeof sink->owner_url, "%s", chxa_txn_owner_url(sink->txn));
    sink->begun_ms = cx_now_ms();
    sink->has_rows = false;
    sink->phase = CX_SINK_OPEN;
    return cx_done(error);
}

/* Leaves the transaction to its fate. */
static void let_go(struct chxa_sink *sink)
{
    chxa_stream_abort(sink->stream);
    chxa_txn_free(sink->txn);
    sink->stream = NULL;
    sink->txn = NULL;
}

static int roll_back(struct chxa_sink *sink, const char *reason, struct chxa_error *error)
{
    char xid[CHXA_XID_BYTES_MAX + 1];
    if (sink->txn == NULL)
        return cx_done(error);
    snprintf(xid, sizeof xid, "%s", chxa_txn_xid(sink->txn));
    let_go(sink);
    return chxa_rollback(sink->client, xid, sink->owner_url, reason, ROLLBACK_DEADLINE_MS, error);
}

/* A sink that had no rows for long has a transaction whose time is running out, or has. */
static int refresh(struct chxa_sink *sink, struct chxa_error *error)
{
    struct chxa_error ignored;
    if (sink->has_rows || cx_now_ms() - sink->begun_ms < FRESH_MS)
        return 0;
    (void)roll_back(sink, "it was empty for long", &ignored); /* at worst its time-out ends it */
    sink->phase = CX_SINK_PREPARED;
    return cx_sink_begin(sink, error);
}

int chxa_sink_write(struct chxa_sink *sink, const void *batch, size_t batch_bytes, uint64_t rows,
                    struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (sink->phase == CX_SINK_FAILED)
        return failed_before(sink, error);
    if (sink->phase != CX_SINK_OPEN)
        return cx_fail(error, CHXA_ERR_MISUSE, "the last snapshot is not done: repeat it first");
    if (batch_bytes == 0)
        return cx_done(error);
    int code = refresh(sink, error);
    if (code == 0) {
        sink->has_rows = true;
        code = chxa_stream_append(sink->stream, batch, batch_bytes, rows, error);
    }
    return code ? fail_for_good(sink, error) : 0;
}

/* ---- snapshot ---- */

static int reserve_entry(struct chxa_sink *sink, struct chxa_error *error)
{
    struct cx_sink_state *state = &sink->state;
    if (state->n_entries >= sink->pending_max)
        return cx_fail(error, CHXA_ERR_BUSY,
                       "%zu transactions wait for their checkpoints (pending_max)",
                       state->n_entries);
    if (state->n_entries < sink->entries_max)
        return 0;
    size_t room = sink->entries_max ? sink->entries_max * 2 : 4;
    struct cx_sink_entry *entries = cx_realloc(state->entries, room * sizeof *entries);
    if (entries == NULL)
        return cx_no_memory(error);
    state->entries = entries;
    sink->entries_max = room;
    return 0;
}

/* OPEN -> ENDED */
static int end_writing(struct chxa_sink *sink, struct chxa_error *error)
{
    int code = chxa_stream_flush(sink->stream, error);
    if (code)
        return may_pass(error) ? code : fail_for_good(sink, error);
    code = chxa_stream_close(sink->stream, error);
    sink->stream = NULL;
    if (code == 0)
        code = chxa_end(sink->txn, error);
    if (code)
        return fail_for_good(sink, error);
    sink->phase = CX_SINK_ENDED;
    return 0;
}

/* ENDED -> PREPARED */
static int prepare(struct chxa_sink *sink, uint64_t checkpoint, const char *meta,
                   struct chxa_error *error)
{
    struct cx_sink_state *state = &sink->state;
    const char *xid = chxa_txn_xid(sink->txn);
    int code = chxa_prepare(sink->client, xid, sink->owner_url, meta, 0, error);
    if (code)
        return may_pass(error) ? code : fail_for_good(sink, error);
    assert(state->n_entries < sink->entries_max);
    struct cx_sink_entry *entry = &state->entries[state->n_entries++];
    entry->checkpoint = checkpoint;
    entry->seq = state->seq = sink->begun;
    snprintf(entry->xid, sizeof entry->xid, "%s", xid);
    let_go(sink);
    sink->phase = CX_SINK_PREPARED;
    return 0;
}

/* Does what is left to do, from the phase that the sink is in. */
static int move_on(struct chxa_sink *sink, uint64_t checkpoint, const char *meta,
                   struct chxa_error *error)
{
    int code = 0;
    if (sink->phase == CX_SINK_OPEN && sink->has_rows) {
        code = reserve_entry(sink, error);
        if (code == 0)
            code = end_writing(sink, error);
    }
    if (code == 0 && sink->phase == CX_SINK_ENDED)
        code = prepare(sink, checkpoint, meta, error);
    if (code == 0 && sink->phase == CX_SINK_PREPARED) {
        code = cx_sink_begin(sink, error);
        if (code && !may_pass(error))
            code = fail_for_good(sink, error);
    }
    return code;
}

int chxa_sink_snapshot(struct chxa_sink *sink, uint64_t checkpoint, const char *meta,
                       void **ret_state, size_t *ret_state_bytes, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    struct cx_sink_state *state = &sink->state;
    uint64_t newest = state->n_entries ? state->entries[state->n_entries - 1].checkpoint : 0;
    if (sink->phase == CX_SINK_FAILED)
        return failed_before(sink, error);
    if ((sink->has_checkpoint && checkpoint <= state->checkpoint) || checkpoint < newest)
        return cx_fail(
            error, CHXA_ERR_INVALID_REQUEST, "checkpoint %llu comes after %llu",
            (unsigned long long)checkpoint,
            (unsigned long long)(newest > state->checkpoint ? newest : state->checkpoint));
    int code = meta ? cx_json_check("meta", meta, error) : 0;
    if (code == 0)
        code = move_on(sink, checkpoint, meta, error);
    if (code)
        return code;
    struct cx_sink_state given = *state;
    given.checkpoint = checkpoint;
    code = cx_sink_state_encode(&given, ret_state, ret_state_bytes);
    if (code)
        return cx_no_memory(error);
    state->checkpoint = checkpoint;
    sink->has_checkpoint = true;
    return cx_done(error);
}

/* ---- notify ---- */

/* An entry that nobody knows any more is committed when the sink has committed it, or a later one, last. */
bool cx_sink_is_committed(const struct cx_sink_state *state, const struct cx_sink_entry *entry,
                          const char *last_xid)
{
    uint64_t epoch, last_epoch, last_seq, seq;
    return cx_sink_xid_read(state->name, entry->xid, &epoch, &seq) &&
           cx_sink_xid_read(state->name, last_xid, &last_epoch, &last_seq) &&
           (last_epoch > epoch || (last_epoch == epoch && last_seq >= seq));
}

static int commit_one(struct chxa_sink *sink, const struct cx_sink_entry *entry, uint64_t deadline,
                      struct chxa_error *error)
{
    uint64_t now = cx_now_ms();
    int code = chxa_commit(sink->client, entry->xid, sink->owner_url, false,
                           deadline > now ? deadline - now : 1, error);
    if (code != CHXA_ERR_TXN_NOT_FOUND)
        return code;
    struct chxa_checkpoint last;
    struct chxa_error asked;
    if (chxa_sink_last_committed(sink->client, sink->state.name, &last, &asked) != 0)
        return code;
    chxa_free(last.meta);
    return cx_sink_is_committed(&sink->state, entry, last.xid) ? cx_done(error) : code;
}

int chxa_sink_notify_complete(struct chxa_sink *sink, uint64_t checkpoint, struct chxa_error *error)
{
    struct chxa_error local, gave_up = {0};
    error = cx_error_start(error, &local);
    struct cx_sink_state *state = &sink->state;
    uint64_t deadline = cx_deadline(cx_now_ms(), sink->commit_deadline_ms);
    size_t n = 0;
    int code = 0;
    for (; n < state->n_entries && state->entries[n].checkpoint <= checkpoint; n++) {
        code = commit_one(sink, &state->entries[n], deadline, error);
        if (code == CHXA_ERR_HEURISTIC)
            gave_up =
                *error; /* it has ended, and is told once; the later ones need not wait for it */
        else if (code)
            break;
        code = 0;
    }
    state->n_entries -= n;
    if (n)
        memmove(state->entries, state->entries + n, state->n_entries * sizeof *state->entries);
    if (code == 0 && gave_up.code)
        *error = gave_up;
    return code || gave_up.code ? error->code : cx_done(error);
}

int chxa_sink_notify_aborted(struct chxa_sink *sink, uint64_t checkpoint, struct chxa_error *error)
{
    struct chxa_error local;
    (void)sink, (void)checkpoint;
    return cx_done(cx_error_start(error, &local));
}

size_t chxa_sink_pending(const struct chxa_sink *sink)
{
    return sink->state.n_entries;
}

uint64_t chxa_sink_epoch(const struct chxa_sink *sink)
{
    return sink->state.epoch;
}

/* ---- close ---- */

void cx_sink_free(struct chxa_sink *sink)
{
    let_go(sink);
    cx_sink_state_clear(&sink->state);
    free(sink->query);
    free(sink);
}

int chxa_sink_close(struct chxa_sink *sink, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (sink == NULL)
        return cx_done(error);
    int code = roll_back(sink, "its sink was closed before a snapshot", error);
    cx_sink_free(sink);
    return code;
}
