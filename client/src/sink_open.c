/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a sink, which is restoring it. In this order:
 *
 *   1. read the state, and what the sink committed last: is the state the newest?
 *   2. recover: fence the older writers, commit what the state lists, roll back the rest; at every node
 *   3. look again at what was committed last: no older writer can commit anything any more
 *   4. begin the first transaction
 *   5. roll back what another writer with the very same epoch has open: two that were started at once may have got the
 *      same number. Each does this after its own begin, so at least one of them sees the other, and what is rolled back
 *      fails at its next request
 *   6. look once more: that other one must not have committed anything meanwhile
 *
 * A failure at any point leaves what the same call, repeated, begins with.
 */
#include "client/src/sink_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH_TRIES          5u
#define ROLLBACK_DEADLINE_MS 10000u

void chxa_sink_options_init(struct chxa_sink_options *options)
{
    *options = (struct chxa_sink_options){
        .size = sizeof *options, .pending_max = 1000, .commit_deadline_ms = 120000};
    chxa_stream_options_init(&options->stream);
}

static int check_options(const struct chxa_sink_options *options, struct chxa_error *error)
{
    if (options->size < sizeof *options)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                       "options must come from chxa_sink_options_init");
    if (!cx_sink_name_valid(options->name))
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "name is not 1-%u of A-Z a-z 0-9 . _ : -",
                       CX_SINK_NAME_BYTES_MAX);
    if (options->stream.query == NULL)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "there is no statement: stream.query");
    if (options->epoch > INT64_MAX || options->timeout_ms > INT64_MAX)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "epoch and timeout_ms end at 2^63-1");
    if (options->pending_max < 1 || options->pending_max > CX_SINK_PENDING_MAX)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "pending_max is 1-%u", CX_SINK_PENDING_MAX);
    return 0;
}

static struct chxa_sink *sink_new(struct chxa_client *client,
                                  const struct chxa_sink_options *options)
{
    struct chxa_sink *sink = cx_alloc(sizeof *sink);
    uint32_t chance;
    if (sink == NULL)
        return NULL;
    cx_random(&chance, sizeof chance);
    snprintf(sink->start, sizeof sink->start, "%08" PRIx32, chance);
    sink->client = client;
    sink->phase = CX_SINK_PREPARED;
    sink->query = cx_strdup(options->stream.query);
    sink->stream_options = options->stream;
    sink->stream_options.query = sink->query;
    sink->timeout_ms = options->timeout_ms;
    sink->commit_deadline_ms = options->commit_deadline_ms ? options->commit_deadline_ms : 120000;
    sink->pending_max = options->pending_max;
    if (sink->query == NULL) {
        cx_sink_free(sink);
        return NULL;
    }
    return sink;
}

static int read_state(struct chxa_sink *sink, const char *name, const void *bytes, size_t len,
                      struct chxa_error *error)
{
    const char *why = "";
    if (len == 0) {
        snprintf(sink->state.name, sizeof sink->state.name, "%s", name);
        return 0;
    }
    int code = cx_sink_state_decode(name, bytes, len, &sink->state, &why);
    sink->entries_max = sink->state.n_entries;
    if (code == CHXA_ERR_NO_MEMORY)
        return cx_no_memory(error);
    return code ? cx_fail(error, code, "the state of sink %s is refused: %s", name, why) : 0;
}

/* Rows are in the table that this state does not know of: the source would be read again from before them. */
static int check_newest(const struct cx_sink_state *state, const char *last_xid,
                        struct chxa_error *error)
{
    uint64_t epoch, seq;
    if (!cx_sink_xid_read(state->name, last_xid, &epoch, &seq) || epoch < state->epoch ||
        (epoch == state->epoch && seq <= state->seq))
        return 0;
    return cx_fail(error, CHXA_ERR_STATE_REFUSED,
                   "the state of sink %s is old: it ends before %s, which is committed, so that "
                   "rows would come twice. "
                   "Give the state of the last checkpoint that completed; or none, to begin anew",
                   state->name, last_xid);
}

/* What the sink committed last (without its meta); and that the state, if there is one, knows of it. */
static int look(struct chxa_sink *sink, bool has_state, struct chxa_checkpoint *ret_last,
                struct chxa_error *error)
{
    int code = chxa_sink_last_committed(sink->client, sink->state.name, ret_last, error);
    if (code)
        return code;
    chxa_free(ret_last->meta);
    ret_last->meta = NULL;
    return has_state ? check_newest(&sink->state, ret_last->xid, error) : 0;
}

/* ---- recover ---- */

/* A listed transaction is unknown: takes those out of the list that were committed and are forgotten since. */
static int drop_forgotten(struct chxa_sink *sink, struct chxa_error *error)
{
    struct cx_sink_state *state = &sink->state;
    struct chxa_checkpoint last;
    int code = chxa_sink_last_committed(sink->client, state->name, &last, error);
    if (code)
        return code;
    chxa_free(last.meta);
    size_t kept = 0;
    for (size_t i = 0; i < state->n_entries; i++) {
        struct cx_sink_entry *entry = &state->entries[i];
        struct chxa_txn_record *record;
        code = chxa_get(sink->client, entry->xid, &record, error);
        if (code == 0)
            chxa_record_free(record);
        else if (code != CHXA_ERR_TXN_NOT_FOUND)
            return code;
        else if (cx_sink_is_committed(state, entry, last.xid))
            continue;
        else
            return cx_fail(error, CHXA_ERR_TXN_NOT_FOUND,
                           "%s was prepared, is not known any more, and is not in what sink %s "
                           "committed last (%s): "
                           "a person must look",
                           entry->xid, state->name, last.xid[0] ? last.xid : "nothing");
        state->entries[kept++] = *entry;
    }
    state->n_entries = kept;
    return 0;
}

static int recover_listed(struct chxa_sink *sink, uint64_t epoch, uint64_t deadline,
                          struct chxa_error *error)
{
    const struct cx_sink_state *state = &sink->state;
    uint64_t now = cx_now_ms();
    const char **xids = state->n_entries ? cx_alloc(state->n_entries * sizeof *xids) : NULL;
    if (state->n_entries && xids == NULL)
        return cx_no_memory(error);
    for (size_t i = 0; i < state->n_entries; i++)
        xids[i] = state->entries[i].xid;
    int code = chxa_sink_recover(sink->client, state->name, epoch, xids, state->n_entries,
                                 deadline > now ? deadline - now : 1, error);
    free(xids);
    return code;
}

static int recover(struct chxa_sink *sink, uint64_t epoch, struct chxa_error *error)
{
    uint64_t deadline = cx_deadline(cx_now_ms(), sink->commit_deadline_ms);
    size_t before = sink->state.n_entries;
    int code = recover_listed(sink, epoch, deadline, error);
    if (code == CHXA_ERR_TXN_NOT_FOUND) {
        code = drop_forgotten(sink, error);
        if (code == 0 && sink->state.n_entries == before)
            return cx_fail(error, CHXA_ERR_PENDING,
                           "a listed transaction is known again; try again");
        if (code == 0)
            code = recover_listed(sink, epoch, deadline, error);
    }
    return code;
}

/* Steps 1 to 3; *ret_last has the new epoch, too. given: the caller's, or 0. */
static int restore(struct chxa_sink *sink, bool has_state, uint64_t given,
                   struct chxa_checkpoint *ret_last, struct chxa_error *error)
{
    int code = CHXA_ERR_FENCED;
    uint64_t epoch = given;
    for (unsigned try = 0; try < EPOCH_TRIES && code == CHXA_ERR_FENCED; try++) {
        code = look(sink, has_state, ret_last, error);
        if (code)
            return code;
        if (given == 0)
            epoch = (ret_last->epoch > sink->state.epoch ? ret_last->epoch : sink->state.epoch) + 1;
        else if (given <= sink->state.epoch)
            return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                           "epoch %" PRIu64 " is not above %" PRIu64 ", which made the state",
                           given, sink->state.epoch);
        code = recover(sink, epoch, error);
        if (given) /* its fence is an answer; ours may be another start's, a moment ago */
            break;
    }
    if (code == 0)
        code = look(sink, has_state, ret_last, error);
    ret_last->epoch = epoch;
    return code;
}

/* ---- the other writer of the same epoch ---- */

static int roll_back_twin(struct chxa_sink *sink, const json_t *txn, struct chxa_error *error)
{
    const char *xid = cx_json_text(txn, "xid");
    enum chxa_txn_state state = cx_state_from_name(cx_json_text(txn, "state"));
    bool open = state == CHXA_STATE_INITIALIZED || state == CHXA_STATE_PREPARED;
    if (xid == NULL || !open || strcmp(xid, chxa_txn_xid(sink->txn)) == 0 ||
        cx_json_number(txn, "epoch") != sink->state.epoch)
        return 0;
    return chxa_rollback(sink->client, xid, cx_json_text(txn, "owner_url"),
                         "another start of its sink, with the same epoch, came after it",
                         ROLLBACK_DEADLINE_MS, error);
}

static int roll_back_twins(struct chxa_sink *sink, struct chxa_error *error)
{
    char target[CHXA_XID_BYTES_MAX + 16];
    snprintf(target, sizeof target, "/v1/sinks/%s", sink->state.name);
    struct cx_call call = {.client = sink->client,
                           .method = "GET",
                           .target = target,
                           .deadline = cx_client_deadline(sink->client, 0)};
    int code = cx_call_run(&call, error);
    const json_t *open = json_object_get(call.json, "open");
    for (size_t i = 0; code == 0 && i < json_array_size(open); i++)
        code = roll_back_twin(sink, json_array_get(open, i), error);
    cx_call_clear(&call);
    return code;
}

static int open_sink(struct chxa_sink *sink, const struct chxa_sink_options *options,
                     const void *bytes, size_t len, struct chxa_error *error)
{
    struct cx_sink_state *state = &sink->state;
    struct chxa_checkpoint last, now;
    int code = read_state(sink, options->name, bytes, len, error);
    if (code == 0)
        code = restore(sink, len != 0, options->epoch, &last, error);
    if (code)
        return code;
    state->epoch = last.epoch;
    state->seq = state->checkpoint = 0;
    state->n_entries = 0;
    code = cx_sink_begin(sink, error);
    if (code == 0)
        code = roll_back_twins(sink, error);
    if (code == 0)
        code = look(sink, false, &now, error);
    if (code == 0 && strcmp(now.xid, last.xid) != 0)
        code =
            cx_fail(error, CHXA_ERR_FENCED, "another start of sink %s is at work, and committed %s",
                    state->name, now.xid);
    return code;
}

int chxa_sink_open(struct chxa_client *client, const struct chxa_sink_options *options,
                   const void *state, size_t state_bytes, struct chxa_sink **ret_sink,
                   struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = check_options(options, error);
    if (code)
        return code;
    if ((state == NULL) != (state_bytes == 0))
        return cx_fail(error, CHXA_ERR_STATE_REFUSED, "the state is empty");
    struct chxa_sink *sink = sink_new(client, options);
    if (sink == NULL)
        return cx_no_memory(error);
    code = open_sink(sink, options, state, state_bytes, error);
    if (code) {
        struct chxa_error left; /* a transaction without rows, at worst: its time-out ends it */
        if (chxa_sink_close(sink, &left) != 0)
            error->attempts += left.attempts;
        return code;
    }
    *ret_sink = sink;
    return cx_done(error);
}
