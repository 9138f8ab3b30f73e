/* SPDX-License-Identifier: Apache-2.0
 *
 * The loads that go through chxad, with libchxa. Each writer has a client of its own, and so one kept connection.
 */
#include "load.h"

#include <chxa/chxa.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct through {
    struct chxa_client *client;
    struct chxa_error error;
    char **xids; /* `commit`: of the prepared transactions */
    uint64_t left;
};

static void must(struct through *through, int code)
{
    if (code != CHXA_OK)
        die(chxa_error_name(code), through->error.message);
}

/* A client whose connection has served a request already. */
static void chxa_open(struct writer *writer)
{
    struct through *through = must_alloc(sizeof *through);
    struct chxa_client_options options;
    char *answer = NULL;
    size_t bytes;
    chxa_client_options_init(&options);
    options.urls = &writer->options->url;
    options.n_urls = 1;
    /* A body of any size takes its time to be attached, too. */
    options.deadline_ms = 600000;
    must(through, chxa_client_open(&options, &through->client, &through->error));
    must(through, chxa_request(through->client, NULL, "GET", "/healthz", NULL, &answer, &bytes,
                               &through->error));
    chxa_free(answer);
    writer->state = through;
}

static void chxa_close(struct writer *writer)
{
    struct through *through = writer->state;
    chxa_client_close(through->client);
    free(through);
}

static struct chxa_txn *begin_with(struct writer *writer, const struct chxa_start_options *options,
                                   double *since)
{
    struct through *through = writer->state;
    struct chxa_txn *txn;
    must(through, chxa_start(through->client, NULL, options, &txn, &through->error));
    *since = mark(writer, STEP_BEGIN, *since);
    return txn;
}

static struct chxa_txn *begin(struct writer *writer, double *since)
{
    return begin_with(writer, NULL, since);
}

static void prepare(struct writer *writer, struct chxa_txn *txn, double *since)
{
    struct through *through = writer->state;
    must(through, chxa_prepare(through->client, chxa_txn_xid(txn), chxa_txn_owner_url(txn), NULL, 0,
                               &through->error));
    *since = mark(writer, STEP_PREPARE, *since);
}

/* one_phase, which the library takes for "do not ask first": the transaction is prepared. */
static void commit(struct writer *writer, const char *xid, double *since)
{
    struct through *through = writer->state;
    must(through, chxa_commit(through->client, xid, NULL, true, 0, &through->error));
    *since = mark(writer, STEP_COMMIT, *since);
}

static void finish(struct writer *writer, struct chxa_txn *txn, double *since)
{
    prepare(writer, txn, since);
    commit(writer, chxa_txn_xid(txn), since);
    chxa_txn_free(txn);
}

static void write_batches(struct writer *writer, struct chxa_txn *txn, double *since)
{
    struct through *through = writer->state;
    for (uint64_t i = 0; i < writer->options->batches; i++) {
        must(through, chxa_write(txn, writer->options->query, writer->batch->data,
                                 writer->batch->bytes, NULL, false, NULL, &through->error));
        *since = mark(writer, STEP_WRITE, *since);
    }
}

static void write_work(struct writer *writer)
{
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++) {
        struct chxa_txn *txn = begin(writer, &since);
        write_batches(writer, txn, &since);
        finish(writer, txn, &since);
    }
}

static void gather_work(struct writer *writer)
{
    struct chxa_start_options options;
    double since = now_ms();
    chxa_start_options_init(&options);
    options.gather = true;
    for (uint64_t t = 0; t < writer->options->transactions; t++) {
        struct chxa_txn *txn = begin_with(writer, &options, &since);
        write_batches(writer, txn, &since);
        finish(writer, txn, &since);
    }
}

/* ---- a streaming write ---- */

static void set_stream(const struct options *options, struct chxa_stream_options *stream)
{
    stream->query = options->query;
    if (options->replay_bytes != SIZE_DEFAULT)
        stream->replay_bytes = options->replay_bytes;
}

static void stream_work(struct writer *writer)
{
    const struct options *options = writer->options;
    struct through *through = writer->state;
    struct chxa_stream_options stream_options;
    double since = now_ms();
    chxa_stream_options_init(&stream_options);
    set_stream(options, &stream_options);
    stream_options.bytes_max = options->bytes;
    for (uint64_t t = 0; t < options->transactions; t++) {
        struct chxa_stream *stream;
        struct chxa_txn *txn = begin(writer, &since);
        must(through, chxa_stream_open(txn, &stream_options, &stream, &through->error));
        for (uint64_t i = 0; i < options->batches; i++)
            must(through, chxa_stream_append(stream, writer->batch->data, writer->batch->bytes,
                                             options->rows, &through->error));
        must(through, chxa_stream_close(stream, &through->error));
        since = mark(writer, STEP_WRITE, since);
        finish(writer, txn, &since);
    }
}

/* ---- a sink, which takes its checkpoints by the clock ---- */

static void checkpoint(struct writer *writer, struct chxa_sink *sink, uint64_t number)
{
    struct through *through = writer->state;
    double since = now_ms();
    void *state;
    size_t bytes;
    must(through, chxa_sink_snapshot(sink, number, NULL, &state, &bytes, &through->error));
    chxa_free(state);
    since = mark(writer, STEP_PREPARE, since);
    must(through, chxa_sink_notify_complete(sink, number, &through->error));
    mark(writer, STEP_COMMIT, since);
}

static void sink_work(struct writer *writer)
{
    const struct options *options = writer->options;
    struct through *through = writer->state;
    struct chxa_sink_options sink_options;
    struct chxa_sink *sink;
    char name[96];
    uint64_t n = options->transactions * options->batches, checkpoints = 0;
    chxa_sink_options_init(&sink_options);
    snprintf(name, sizeof name, "%.64s.%u", options->name, writer->number);
    sink_options.name = name;
    set_stream(options, &sink_options.stream);
    must(through, chxa_sink_open(through->client, &sink_options, NULL, 0, &sink, &through->error));
    double next = now_ms() + (double)options->interval_ms;
    for (uint64_t i = 0; i < n; i++) {
        must(through, chxa_sink_write(sink, writer->batch->data, writer->batch->bytes,
                                      options->rows, &through->error));
        if (now_ms() >= next) {
            checkpoint(writer, sink, ++checkpoints);
            next += (double)options->interval_ms;
        }
    }
    checkpoint(writer, sink, ++checkpoints);
    must(through, chxa_sink_close(sink, &through->error));
}

/* ---- parts of it ---- */

static void commit_open(struct writer *writer)
{
    chxa_open(writer);
    struct through *through = writer->state;
    through->xids = must_alloc(writer->options->transactions * sizeof *through->xids);
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++) {
        struct chxa_txn *txn = begin(writer, &since);
        write_batches(writer, txn, &since);
        prepare(writer, txn, &since);
        through->xids[t] = must_alloc(CHXA_XID_BYTES_MAX + 1);
        snprintf(through->xids[t], CHXA_XID_BYTES_MAX + 1, "%s", chxa_txn_xid(txn));
        chxa_txn_free(txn);
    }
}

static void commit_work(struct writer *writer)
{
    struct through *through = writer->state;
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++)
        commit(writer, through->xids[t], &since);
}

static void commit_close(struct writer *writer)
{
    struct through *through = writer->state;
    for (uint64_t t = 0; t < writer->options->transactions; t++)
        free(through->xids[t]);
    free(through->xids);
    chxa_close(writer);
}

static void empty_work(struct writer *writer)
{
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++)
        finish(writer, begin(writer, &since), &since);
}

static void begin_work(struct writer *writer)
{
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++)
        chxa_txn_free(begin(writer, &since));
}

static void prepared_work(struct writer *writer)
{
    double since = now_ms();
    for (uint64_t t = 0; t < writer->options->transactions; t++) {
        struct chxa_txn *txn = begin(writer, &since);
        prepare(writer, txn, &since);
        chxa_txn_free(txn);
    }
}

/* ---- one big body ---- */

static ptrdiff_t give_body(void *context, void *room, size_t bytes)
{
    struct through *through = context;
    if (bytes > through->left)
        bytes = through->left;
    body_copy(room, bytes, through->left);
    through->left -= bytes;
    return (ptrdiff_t)bytes;
}

static void txn_body_work(struct writer *writer)
{
    struct through *through = writer->state;
    double since = now_ms();
    struct chxa_txn *txn = begin(writer, &since);
    through->left = writer->options->bytes;
    must(through, chxa_write_from(txn, writer->options->query, give_body, NULL, through, NULL, NULL,
                                  false, NULL, &through->error));
    since = mark(writer, STEP_WRITE, since);
    finish(writer, txn, &since);
}

const struct kind chxa_kinds[] = {
    {"write", chxa_open, write_work, chxa_close},
    {"gather", chxa_open, gather_work, chxa_close},
    {"stream", chxa_open, stream_work, chxa_close},
    {"sink", chxa_open, sink_work, chxa_close},
    {"commit", commit_open, commit_work, commit_close},
    {"empty", chxa_open, empty_work, chxa_close},
    {"begin", chxa_open, begin_work, chxa_close},
    {"prepared", chxa_open, prepared_work, chxa_close},
    {"txn-body", chxa_open, txn_body_work, chxa_close},
    {0},
};
