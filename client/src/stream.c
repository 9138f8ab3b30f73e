/* SPDX-License-Identifier: Apache-2.0
 *
 * The streaming write: batches go into one chunked upload until it is long, old or silent enough; then it ends and was one
 * write.
 *
 * Threads. The caller appends; a worker of each stream runs the requests, and is the timer as well: it waits for bytes in
 * the body's reader, and ends the body there when they stay away. Everything below `lock` is under the lock; the request
 * itself runs without it.
 *
 * A write goes   NONE -> OPEN    append, with the first batch
 *                OPEN -> ENDING  append or flush at a limit, or the reader when a time has passed
 *                any  -> NONE    the worker, with the answer; on failure `failed` is set and stays
 *
 * Memory. While a write is not longer than replay_bytes, all of it is kept, and it can be sent again (start == 0, base == 0). A
 * longer one is a queue: what was read is gone. Unread bytes are never more than QUEUE_BYTES, which is what slows the caller
 * down to the node's speed. A buffer that cannot grow makes a write that cannot be repeated, not a failed one.
 */
#include "client/src/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define QUEUE_BYTES ((size_t)1 << 20)
#define WORTH_BYTES ((size_t)256 << 10) /* less is not sent before HOLD_MS, or the end */
#define HOLD_MS     1000u
#define IDLE_MS_MAX 29000u

enum write_state { NONE, OPEN, ENDING };

struct chxa_stream {
    struct chxa_stream_options options;
    struct chxa_client *client;
    struct chxa_txn *txn; /* the caller's thread only */
    char xid[CHXA_XID_BYTES_MAX + 1];
    char owner_url[CHXA_URL_BYTES_MAX + 1]; /* the worker's, once it runs */
    char *query;
    pthread_t worker;
    bool has_worker;
    atomic_bool cancel;

    pthread_mutex_t lock;
    pthread_cond_t for_worker, for_caller;
    enum write_state state;
    bool quit;
    bool kept;   /* the whole write is in the buffer */
    bool taking; /* a batch is being copied: no time ends the write now */
    char *data;  /* [start, len) are kept, [at, len) are unread */
    size_t len, at, room;
    uint64_t bytes, rows; /* of the write under way */
    uint64_t begun, appended, read;
    struct chxa_stream_totals totals;
    bool failed, told; /* told: the caller has had the error once */
    struct chxa_error failure;
};

/* ---- the worker: the reader of the body ---- */

static size_t unread(const struct chxa_stream *stream)
{
    return stream->len - stream->at;
}

/* When the reader must look again though nothing was appended. */
static uint64_t next_time(const struct chxa_stream *stream)
{
    const struct chxa_stream_options *options = &stream->options;
    uint64_t when = CX_NEVER, other;
    if (options->idle_ms && !stream->taking)
        when = cx_deadline(stream->appended, options->idle_ms);
    if (options->age_ms && !stream->taking &&
        (other = cx_deadline(stream->begun, options->age_ms)) < when)
        when = other;
    if (unread(stream) && (other = cx_deadline(stream->read, HOLD_MS)) < when)
        when = other;
    return when;
}

/* Waits until there is something worth sending, or the write is to end. */
static void wait_for_bytes(struct chxa_stream *stream)
{
    const struct chxa_stream_options *options = &stream->options;
    while (stream->state == OPEN && unread(stream) < WORTH_BYTES && !atomic_load(&stream->cancel)) {
        uint64_t now = cx_now_ms();
        bool idle = options->idle_ms && now >= cx_deadline(stream->appended, options->idle_ms);
        bool old = options->age_ms && now >= cx_deadline(stream->begun, options->age_ms);
        if ((idle || old) && !stream->taking)
            stream->state = ENDING;
        else if (unread(stream) && now >= cx_deadline(stream->read, HOLD_MS))
            break;
        else
            cx_cond_wait(&stream->for_worker, &stream->lock, next_time(stream));
    }
}

static ptrdiff_t body_read(void *context, void *buffer, size_t room)
{
    struct chxa_stream *stream = context;
    pthread_mutex_lock(&stream->lock);
    wait_for_bytes(stream);
    size_t n = unread(stream) < room ? unread(stream) : room;
    bool cancelled = atomic_load(&stream->cancel);
    if (!cancelled && n) {
        memcpy(buffer, stream->data + stream->at, n);
        stream->at += n;
        stream->read = cx_now_ms();
        pthread_cond_signal(&stream->for_caller);
    }
    pthread_mutex_unlock(&stream->lock);
    return cancelled ? -1 : (ptrdiff_t)n;
}

static int body_rewind(void *context)
{
    struct chxa_stream *stream = context;
    pthread_mutex_lock(&stream->lock);
    bool kept = stream->kept;
    if (kept)
        stream->at = 0;
    pthread_mutex_unlock(&stream->lock);
    return kept ? 0 : -1;
}

/* ---- the worker: the write ---- */

static int run_write(struct chxa_stream *stream, struct chxa_error *error)
{
    char write_id[40];
    cx_random_id(write_id, sizeof write_id);
    struct cx_write write = {
        .client = stream->client,
        .xid = stream->xid,
        .query = stream->query,
        .write_id = write_id,
        .owner_url = stream->owner_url,
        .views_skip = stream->options.views_skip,
        .body = {.read = body_read, .rewind = body_rewind, .context = stream, .there = true},
        .deadline = cx_client_deadline(stream->client, 0),
        .cancel = &stream->cancel};
    return cx_write_run(&write, NULL, error);
}

static void write_ended(struct chxa_stream *stream, int code, struct chxa_error *error)
{
    if (code == 0 && stream->state != ENDING)
        code = cx_fail(error, CHXA_ERR_BAD_ANSWER, "the node took a write that had not ended");
    stream->totals.retries += error->attempts ? error->attempts - 1 : 0;
    if (code) {
        stream->failed = true;
        stream->failure = *error;
    } else {
        stream->totals.writes++;
        stream->totals.rows += stream->rows;
        stream->totals.bytes += stream->bytes;
    }
    stream->state = NONE;
    stream->len = stream->at = 0;
    pthread_cond_signal(&stream->for_caller);
}

static void *work(void *arg)
{
    struct chxa_stream *stream = arg;
    struct chxa_error error;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->state == NONE && !stream->quit)
            cx_cond_wait(&stream->for_worker, &stream->lock, CX_NEVER);
        if (stream->state == NONE)
            break;
        pthread_mutex_unlock(&stream->lock);
        cx_error_start(&error, NULL);
        int code = run_write(stream, &error);
        pthread_mutex_lock(&stream->lock);
        write_ended(stream, code, &error);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* No signal of the program's is handled on a thread that it does not know. */
static int start_worker(struct chxa_stream *stream, struct chxa_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&stream->worker, NULL, work, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return cx_no_memory(error);
    stream->has_worker = true;
    return 0;
}

static void stop_worker(struct chxa_stream *stream)
{
    if (!stream->has_worker)
        return;
    pthread_mutex_lock(&stream->lock);
    stream->quit = true;
    pthread_cond_signal(&stream->for_worker);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->worker, NULL);
    stream->has_worker = false;
}

/* ---- open, free ---- */

void chxa_stream_options_init(struct chxa_stream_options *options)
{
    *options = (struct chxa_stream_options){.size = sizeof *options,
                                            .bytes_max = (uint64_t)256 << 20,
                                            .idle_ms = 1000,
                                            .replay_bytes = (uint64_t)16 << 20};
}

/* The last word of the statement, if FORMAT stands before it. */
static const char *format_of(const char *query, size_t *ret_len)
{
    static const char blanks[] = " \t\r\n";
    size_t end = strlen(query), begin, before;
    while (end && strchr(blanks, query[end - 1]))
        end--;
    for (begin = end; begin && !strchr(blanks, query[begin - 1]); begin--)
        continue;
    for (before = begin; before && strchr(blanks, query[before - 1]); before--)
        continue;
    if (before < 6 || strncasecmp(query + before - 6, "FORMAT", 6) != 0)
        return NULL;
    *ret_len = end - begin;
    return query + begin;
}

/* Formats with a head, a foot or brackets around the rows: two of them in a row are no third one. */
static bool format_can_be_joined(const char *query)
{
    static const char *const closed[] = {"JSON", "JSONCompact", "JSONColumns", "Parquet",
                                         "ORC",  "Arrow",       "ArrowStream", "Avro",
                                         "BSON", "Npy",         "XML"};
    size_t len = 0;
    const char *format = format_of(query, &len);
    for (size_t i = 0; format && i < sizeof closed / sizeof closed[0]; i++)
        if (strlen(closed[i]) == len && strncmp(format, closed[i], len) == 0)
            return false;
    return format == NULL || strstr(format, "WithNames") == NULL;
}

static int check_options(const struct chxa_txn *txn, const struct chxa_stream_options *options,
                         struct chxa_error *error)
{
    if (options == NULL || options->size < sizeof *options)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                       "options must come from chxa_stream_options_init");
    if (txn->ended)
        return cx_fail(error, CHXA_ERR_MISUSE, "the handle was ended: no more writes");
    if (options->query == NULL)
        return cx_fail(error, CHXA_ERR_INVALID_QUERY, "no statement");
    if (!format_can_be_joined(options->query))
        return cx_fail(error, CHXA_ERR_INVALID_QUERY,
                       "batches in this format cannot be put one behind the other");
    if (options->idle_ms > IDLE_MS_MAX)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "idle_ms: at most %u", IDLE_MS_MAX);
    if (options->replay_bytes > SIZE_MAX / 4)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "replay_bytes: too many");
    return 0;
}

static void stream_free(struct chxa_stream *stream)
{
    stop_worker(stream);
    stream->txn->streams--;
    pthread_cond_destroy(&stream->for_worker);
    pthread_cond_destroy(&stream->for_caller);
    pthread_mutex_destroy(&stream->lock);
    free(stream->query);
    free(stream->data);
    free(stream);
}

int chxa_stream_open(struct chxa_txn *txn, const struct chxa_stream_options *options,
                     struct chxa_stream **ret_stream, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = check_options(txn, options, error);
    if (code)
        return code;
    struct chxa_stream *stream = cx_alloc(sizeof *stream);
    char *query = cx_strdup(options->query), *data = cx_alloc(2 * QUEUE_BYTES);
    if (stream == NULL || query == NULL || data == NULL || cx_cond_init(&stream->for_worker)) {
        free(stream);
        free(query);
        free(data);
        return cx_no_memory(error);
    }
    if (cx_cond_init(&stream->for_caller)) {
        pthread_cond_destroy(&stream->for_worker);
        free(stream);
        free(query);
        free(data);
        return cx_no_memory(error);
    }
    pthread_mutex_init(&stream->lock, NULL);
    stream->options = *options;
    stream->options.query = NULL;
    stream->query = query;
    stream->data = data;
    stream->room = 2 * QUEUE_BYTES;
    stream->client = txn->client;
    stream->txn = txn;
    memcpy(stream->xid, txn->xid, sizeof stream->xid);
    memcpy(stream->owner_url, txn->owner_url, sizeof stream->owner_url);
    txn->streams++;
    *ret_stream = stream;
    return cx_done(error);
}

/* ---- append ---- */

/* The error of the write that failed: itself once, then FAILED_BEFORE. */
static int tell_failure(struct chxa_stream *stream, struct chxa_error *error)
{
    if (!stream->told) {
        stream->told = true;
        *error = stream->failure;
        return error->code;
    }
    return cx_fail(error, CHXA_ERR_FAILED_BEFORE, "the stream has failed: %s: %.3900s",
                   chxa_error_name(stream->failure.code), stream->failure.message);
}

/* Makes room behind len for at least one byte; returns for how many. */
static size_t make_room(struct chxa_stream *stream)
{
    if (stream->kept && stream->bytes >= stream->options.replay_bytes)
        stream->kept = false;
    if (stream->kept && stream->len == stream->room) {
        char *grown = cx_realloc(stream->data, 2 * stream->room);
        if (grown) {
            stream->data = grown;
            stream->room *= 2;
        } else {
            stream->kept = false;
        }
    }
    if (!stream->kept && stream->room - stream->len < QUEUE_BYTES) {
        memmove(stream->data, stream->data + stream->at, unread(stream));
        stream->len -= stream->at;
        stream->at = 0;
    }
    size_t room = stream->room - stream->len, may = QUEUE_BYTES - unread(stream);
    return room < may ? room : may;
}

/* Part of a batch; stops early when the write fails. */
static void take(struct chxa_stream *stream, const char *batch, size_t n)
{
    while (n && stream->state == OPEN) {
        if (unread(stream) >= QUEUE_BYTES) {
            cx_cond_wait(&stream->for_caller, &stream->lock, CX_NEVER);
            continue;
        }
        size_t room = make_room(stream), some = n < room ? n : room;
        memcpy(stream->data + stream->len, batch, some);
        stream->len += some;
        stream->bytes += some;
        batch += some;
        n -= some;
        if (unread(stream) >= WORTH_BYTES)
            pthread_cond_signal(&stream->for_worker);
    }
}

static void begin_write(struct chxa_stream *stream, uint64_t now)
{
    stream->state = OPEN;
    stream->len = stream->at = 0;
    stream->kept = true;
    stream->bytes = stream->rows = 0;
    stream->begun = stream->read = now;
    pthread_cond_signal(&stream->for_worker);
}

static bool limit_reached(const struct chxa_stream *stream, uint64_t now)
{
    const struct chxa_stream_options *options = &stream->options;
    return (options->bytes_max && stream->bytes >= options->bytes_max) ||
           (options->rows_max && stream->rows >= options->rows_max) ||
           (options->age_ms && now >= cx_deadline(stream->begun, options->age_ms));
}

static void end_write(struct chxa_stream *stream)
{
    if (stream->state == OPEN)
        stream->state = ENDING;
    pthread_cond_signal(&stream->for_worker);
}

int chxa_stream_append(struct chxa_stream *stream, const void *batch, size_t batch_bytes,
                       uint64_t rows, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (!stream->has_worker && start_worker(stream, error))
        return error->code;
    int code = 0;
    pthread_mutex_lock(&stream->lock);
    while (stream->state == ENDING)
        cx_cond_wait(&stream->for_caller, &stream->lock, CX_NEVER);
    uint64_t now = cx_now_ms();
    if (!stream->failed && batch_bytes) {
        if (stream->state == NONE)
            begin_write(stream, now);
        bool had_none = unread(stream) == 0;
        stream->taking = true;
        take(stream, batch, batch_bytes);
        stream->taking = false;
        stream->rows += rows;
        stream->appended = cx_now_ms();
        if (had_none)
            pthread_cond_signal(&stream->for_worker); /* it has a time to keep now */
    }
    if (stream->failed)
        code = tell_failure(stream, error);
    else if (stream->state == OPEN && limit_reached(stream, cx_now_ms()))
        end_write(stream);
    pthread_mutex_unlock(&stream->lock);
    return code ? code : cx_done(error);
}

/* ---- flush, close ---- */

int chxa_stream_flush(struct chxa_stream *stream, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    pthread_mutex_lock(&stream->lock);
    end_write(stream);
    while (stream->state != NONE)
        cx_cond_wait(&stream->for_caller, &stream->lock, CX_NEVER);
    int code = stream->failed ? tell_failure(stream, error) : 0;
    pthread_mutex_unlock(&stream->lock);
    return code ? code : cx_done(error);
}

void chxa_stream_totals(const struct chxa_stream *stream, struct chxa_stream_totals *ret_totals)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&stream->lock;
    pthread_mutex_lock(lock);
    *ret_totals = stream->totals;
    pthread_mutex_unlock(lock);
}

int chxa_stream_close(struct chxa_stream *stream, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (stream == NULL)
        return cx_done(error);
    int code = chxa_stream_flush(stream, error);
    stream_free(stream);
    return code;
}

void chxa_stream_abort(struct chxa_stream *stream)
{
    if (stream == NULL)
        return;
    atomic_store(&stream->cancel, true);
    pthread_mutex_lock(&stream->lock);
    pthread_cond_signal(&stream->for_worker);
    pthread_mutex_unlock(&stream->lock);
    stream_free(stream);
}
