/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinks in ZooKeeper: what a change has to do with its sink's znode, as one more operation of its
 * multi; sink_get and sink_raise.
 *
 * The store remembers the entries of the sinks that it used last, each with the version that it has
 * seen it at, so that a change costs no reading: its multi checks that version, or sets the entry
 * at it. Where another node changed the entry meanwhile, the multi is refused for the sink's sake;
 * then the entry is read again and the change planned anew, until the request's deadline.
 *
 * Invariants
 *   - What is remembered was read, or set by a multi that went through: epochs only grow, so a
 *     newer epoch that is remembered fences without asking, and a version stands for one text.
 *   - While a multi that sets an entry, or a read of it, is under way (busy), this store's other
 *     changes of that sink wait: what they would plan now would be refused.
 *   - A run that waits counts as one call of its own, so that it outlives its answer.
 */
#include "store/store_zookeeper.h"

#include "base/mem.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define SINKS_MAX 4096u /* remembered */

struct zk_sink {
    TAILQ_ENTRY(zk_sink) link; /* in zk->sinks, last used last */
    struct zk_store *zk;
    char *name;
    bool known;
    bool busy;
    size_t n_calls;  /* that point to it */
    int32_t version; /* when known; -1: there is no entry */
    struct store_sink sink;
    /* What the multi under way makes of it. */
    struct store_sink next;
    TAILQ_HEAD(, zk_run) waiting;
};

/* ---- the memory ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct zk_sink *)a)->name, ((const struct zk_sink *)b)->name);
}

static void sink_free(struct zk_sink *sink)
{
    assert(TAILQ_EMPTY(&sink->waiting) && sink->n_calls == 0);
    tdelete(sink, &sink->zk->sinks_by_name, by_name);
    TAILQ_REMOVE(&sink->zk->sinks, sink, link);
    sink->zk->n_sinks--;
    store_sink_clear(&sink->sink);
    store_sink_clear(&sink->next);
    free(sink->name);
    free(sink);
}

static void make_room(struct zk_store *zk)
{
    struct zk_sink *sink, *next;
    for (sink = TAILQ_FIRST(&zk->sinks); sink && zk->n_sinks >= SINKS_MAX; sink = next) {
        next = TAILQ_NEXT(sink, link);
        if (sink->n_calls == 0 && TAILQ_EMPTY(&sink->waiting))
            sink_free(sink);
    }
}

static struct zk_sink *sink_ensure(struct zk_store *zk, const char *name)
{
    struct zk_sink probe = {.name = (char *)(uintptr_t)name};
    void *node = tfind(&probe, &zk->sinks_by_name, by_name);
    struct zk_sink *sink = node ? *(struct zk_sink **)node : NULL;
    if (sink) {
        TAILQ_REMOVE(&zk->sinks, sink, link);
    } else {
        make_room(zk);
        sink = mem_alloc(sizeof *sink);
        sink->zk = zk;
        sink->name = mem_strdup(name);
        TAILQ_INIT(&sink->waiting);
        if (tsearch(sink, &zk->sinks_by_name, by_name) == NULL)
            abort();
        zk->n_sinks++;
    }
    TAILQ_INSERT_TAIL(&zk->sinks, sink, link);
    return sink;
}

void zk_sinks_forget(struct zk_store *zk)
{
    struct zk_sink *sink;
    TAILQ_FOREACH (sink, &zk->sinks, link)
        sink->known = false;
}

void zk_sinks_free(struct zk_store *zk)
{
    while (!TAILQ_EMPTY(&zk->sinks))
        sink_free(TAILQ_FIRST(&zk->sinks));
}

/* ---- what came back ---- */

static void sink_know(struct zk_sink *sink, int32_t version, struct store_sink *now)
{
    sink->known = true;
    sink->version = version;
    store_sink_clear(&sink->sink);
    sink->sink = *now;
    *now = (struct store_sink){0};
}

static void sink_was_read(struct zk_sink *sink, struct zk_call *call)
{
    struct store_sink now = {0};
    if (call->rc == ZOK)
        call->decoded = store_sink_decode(call->data, call->data_bytes, &now);
    if (call->rc == ZNONODE || (call->rc == ZOK && call->decoded == 0))
        sink_know(sink, call->rc == ZOK ? call->version : -1, &now);
}

/* The multi may have changed the entry, or the entry was not what we thought. */
static bool multi_moved_it(const struct zk_call *call)
{
    if (call->unsent || call->rc == ZOK)
        return false;
    return zk_rc_unknown(call->rc) || call->failed == call->run->sink_op;
}

static void wake(struct zk_sink *sink)
{
    TAILQ_HEAD(, zk_run) runs;
    TAILQ_INIT(&runs);
    TAILQ_CONCAT(&runs, &sink->waiting, sink_link);
    struct zk_run *run;
    while ((run = TAILQ_FIRST(&runs)) != NULL) {
        TAILQ_REMOVE(&runs, run, sink_link);
        assert(run->n_calls > 0);
        if (run->op)
            run->sink_then(run);
        run->n_calls--;
        zk_run_release(run);
    }
}

/* Comes before the call's done, and also when nobody waits for that any more. */
void zk_sink_arrived(struct zk_call *call)
{
    struct zk_sink *sink = call->sink;
    /* Of an older session only the waiting matters. */
    bool current = call->handle && call->handle == sink->zk->handle;
    if (call->multi == NULL) {
        sink->known = false;
        if (current)
            sink_was_read(sink, call);
    } else if (call->sets_sink && call->rc == ZOK && current) {
        sink_know(sink, sink->version + 1, &sink->next);
    } else if (multi_moved_it(call)) {
        sink->known = false;
    }
    assert(sink->n_calls > 0);
    sink->n_calls--;
    if (call->multi && !call->sets_sink)
        return; /* it only checked */
    store_sink_clear(&sink->next);
    sink->busy = false;
    wake(sink);
}

/* ---- planning a change ---- */

static void sink_read(struct zk_call *call)
{
    struct zk_run *run = call->run;
    if (call->rc != ZOK && call->rc != ZNONODE)
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    else if (call->decoded)
        zk_run_finish(run, call->decoded);
    else
        run->sink_then(run);
}

static void sink_read_first(struct zk_run *run, struct zk_sink *sink)
{
    sink->busy = true;
    zk_call_sync(zk_call_new(run->zk, run, NULL), run->zk->base_path);
    struct zk_call *call = zk_call_new(run->zk, run, sink_read);
    call->sink = sink;
    sink->n_calls++;
    char *path = zk_path(run->zk, "sinks", sink->name);
    zk_call_get(call, path);
    free(path);
}

static void sink_wait(struct zk_run *run, struct zk_sink *sink)
{
    run->n_calls++;
    TAILQ_INSERT_TAIL(&sink->waiting, run, sink_link);
}

bool zk_sink_ready(struct zk_run *run, void (*then)(struct zk_run *run))
{
    run->sink_op = 0;
    if (!store_op_has_sink(run->op))
        return true;
    struct zk_sink *sink = sink_ensure(run->zk, run->op->sink);
    run->sink_then = then;
    if (sink->busy) {
        sink_wait(run, sink);
        return false;
    }
    if (!sink->known) {
        sink_read_first(run, sink);
        return false;
    }
    if (run->op->sink_fence && sink->sink.epoch > run->op->sink_epoch) {
        zk_run_finish(run, CHXA_E_FENCED);
        return false;
    }
    return true;
}

void zk_sink_add(struct zk_run *run, struct zk_call *call, struct zk_multi *multi)
{
    if (!store_op_has_sink(run->op))
        return;
    struct zk_sink *sink = sink_ensure(run->zk, run->op->sink);
    assert(sink->known && !sink->busy);
    bool changed = false;
    struct store_sink next = store_sink_copy(&sink->sink);
    int code = store_sink_apply(run->op, &next, &changed);
    assert(code == 0); /* zk_sink_ready */
    char *path = zk_path(run->zk, "sinks", sink->name);
    call->sink = sink;
    sink->n_calls++;
    run->sink_op = multi->n_ops;
    if (run->op->kind == STORE_OP_SINK_RAISE) {
        store_sink_clear(&run->op->ret_sink);
        run->op->ret_sink = store_sink_copy(&next);
    }
    if (!changed && sink->version >= 0) {
        zk_multi_check(multi, path, sink->version);
        store_sink_clear(&next);
        return;
    }
    call->sets_sink = true;
    sink->busy = true;
    sink->next = next;
    char *text = store_sink_encode(&next);
    if (sink->version < 0)
        zk_multi_create(multi, path, text, strlen(text), ZOO_PERSISTENT);
    else
        zk_multi_set(multi, path, text, strlen(text), sink->version);
    multi->sink_text = text;
}

bool zk_sink_refused(struct zk_run *run, const struct zk_call *call)
{
    if (call->rc == ZOK || run->sink_op == 0 || call->failed != run->sink_op)
        return false;
    if (call->rc == ZBADVERSION || call->rc == ZNODEEXISTS || call->rc == ZNONODE)
        run->sink_then(run); /* it is read again first */
    else
        zk_run_finish(run, CHXA_E_STORE_UNAVAILABLE);
    return true;
}

/* ---- sink_get, sink_raise ---- */

static void sink_got(struct zk_call *call)
{
    struct zk_run *run = call->run;
    int code = 0;
    if (call->rc == ZOK)
        code = store_sink_decode(call->data, call->data_bytes, &run->op->ret_sink);
    else if (call->rc != ZNONODE)
        code = CHXA_E_STORE_UNAVAILABLE;
    zk_run_finish(run, code);
}

void zk_sink_get(struct zk_run *run)
{
    zk_call_sync(zk_call_new(run->zk, run, NULL), run->zk->base_path);
    char *path = zk_path(run->zk, "sinks", run->op->sink);
    zk_call_get(zk_call_new(run->zk, run, sink_got), path);
    free(path);
}
