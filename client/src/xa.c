/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch: the ten entries of X/Open XA over libchxa.
 *
 * Every entry looks at its arguments (XAER_INVAL, XAER_ASYNC), at this process's state tables (xa_state.h), asks a node if the
 * call needs one, and translates what it says (xa_answer.h). Threads: any; see chxa/xa_switch.h.
 */
#include "client/include/chxa/xa_switch.h"
#include "client/src/internal.h"
#include "client/src/xa_answer.h"
#include "client/src/xa_state.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- what every entry begins with ------------------------------------------------------------------------------- */

struct call {
    enum xa_event event;
    bool nowait;
    struct xa_open *open;
    struct xa_instance *instance;
    struct chxa_error *error;
    char id[CHXA_XID_BYTES_MAX + 1];
};

/* A call with a branch. first: as cx_xa_table_event. */
static int call_begin(enum xa_event first, const XID *xid, int rmid, long flags,
                      struct call *ret_call)
{
    struct call *call = ret_call;
    int code = cx_xa_table_event(first, flags, &call->event);
    if (code)
        return code;
    code = chxa_xa_id_from_xid(xid, call->id);
    if (code)
        return code;
    call->nowait = (flags & TMNOWAIT) != 0;
    call->open = cx_xa_state_open_find(rmid);
    if (!call->open)
        return XAER_PROTO;
    call->instance = call->open->instance;
    call->error = cx_xa_state_error();
    memset(call->error, 0, sizeof *call->error);
    return XA_OK;
}

/* ---- what a node knows besides ---------------------------------------------------------------------------------- */

static enum xa_heuristic heuristic_of(const char *name)
{
    static const char *const names[XA_HEURISTIC_COUNT] = {
        [XA_HEURISTIC_ROLLED_BACK] = "rolled_back",
        [XA_HEURISTIC_MIXED] = "mixed",
        [XA_HEURISTIC_HAZARD] = "hazard",
    };
    if (!name)
        return XA_HEURISTIC_NONE;
    for (int i = XA_HEURISTIC_NONE + 1; i < XA_HEURISTIC_COUNT; i++) {
        if (strcmp(names[i], name) == 0)
            return (enum xa_heuristic)i;
    }
    return XA_HEURISTIC_HAZARD; /* a kind that this library does not know yet */
}

/* The code for an answer, and if the record has a word in it, the record's. Keeps call->error. */
static int call_code(const struct call *call)
{
    enum xa_heuristic heuristic = XA_HEURISTIC_NONE;
    bool timed_out = false;
    if (cx_xa_answer_wants_record(call->event, call->error)) {
        char path[32 + CHXA_XID_BYTES_MAX], *body = NULL;
        size_t n = 0;
        snprintf(path, sizeof path, "/v1/transactions/%s", call->id);
        if (chxa_request(call->instance->client, NULL, "GET", path, NULL, &body, &n, NULL)) {
            chxa_free(body);
            return XAER_RMFAIL;
        }
        json_t *record = json_loadb(body, n, 0, NULL);
        const char *reason = json_string_value(json_object_get(record, "reason"));
        heuristic = heuristic_of(json_string_value(json_object_get(record, "heuristic")));
        timed_out = reason && strstr(reason, "time-out");
        bool read = json_is_object(record);
        json_decref(record);
        chxa_free(body);
        if (!read)
            return XAER_RMFAIL;
    }
    return cx_xa_answer_code(call->event, call->error, heuristic, timed_out, call->nowait);
}

/* ---- open, close ------------------------------------------------------------------------------------------------ */

static int entry_open(char *xa_info, int rmid, long flags)
{
    int code = cx_xa_table_flags(flags, TMNOFLAGS);
    if (code)
        return code;
    struct chxa_error *error = cx_xa_state_error();
    if (!error)
        return XAER_RMERR;
    memset(error, 0, sizeof *error);
    if (!xa_info)
        return XAER_INVAL;
    const char *why = NULL;
    code = cx_xa_state_open(xa_info, rmid, &why);
    if (code && why) {
        error->code = code == XAER_INVAL ? CHXA_ERR_INVALID_REQUEST : CHXA_ERR_NO_MEMORY;
        snprintf(error->message, sizeof error->message, "%s", why);
    }
    if (code)
        error->xa_code = code;
    return code;
}

static int entry_close(char *xa_info, int rmid, long flags)
{
    (void)xa_info;
    int code = cx_xa_table_flags(flags, TMNOFLAGS);
    return code ? code : cx_xa_state_close(rmid);
}

/* ---- start, end ------------------------------------------------------------------------------------------------- */

/*
 * A begin is answered alike for a new transaction and for one that exists, and its answer may have been lost; the standard
 * wants XAER_DUPID for a branch that somebody else has begun. So each process leaves its mark in what it begins.
 */
static pthread_once_t mark_once = PTHREAD_ONCE_INIT;
static char mark[64];

static void mark_make(void)
{
    uint64_t random[2] = {0};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        random[0] =
            (uint64_t)(uintptr_t)&random; /* never met: 16 bytes never block nor fall short */
    snprintf(mark, sizeof mark, "{\"xa_process\": \"%ld-%016llx%016llx\"}", (long)getpid(),
             (unsigned long long)random[0], (unsigned long long)random[1]);
}

/* Did this process begin it? XA_OK, XAER_DUPID, or XAER_RMFAIL: cannot be told. */
static int begun_here(struct call *call)
{
    struct chxa_txn_record *record = NULL;
    if (chxa_get(call->instance->client, call->id, &record, call->error))
        return XAER_RMFAIL;
    json_t *meta = record->meta ? json_loads(record->meta, 0, NULL) : NULL;
    json_t *own = json_loads(mark, 0, NULL);
    bool same = own && json_equal(meta, own);
    json_decref(meta);
    json_decref(own);
    chxa_record_free(record);
    return same ? XA_OK : XAER_DUPID;
}

static int start_new(struct call *call, struct chxa_txn **ret_txn)
{
    pthread_once(&mark_once, mark_make);
    struct chxa_start_options options;
    chxa_start_options_init(&options);
    options.timeout_ms = call->instance->timeout_ms;
    options.gather = call->instance->gather;
    options.meta = mark;
    if (chxa_start(call->instance->client, call->id, &options, ret_txn, call->error))
        return call_code(call);
    int code = call->error->http_status == 201 ? XA_OK : begun_here(call);
    if (code) {
        chxa_txn_free(*ret_txn);
        *ret_txn = NULL;
    }
    return code;
}

static int entry_start(XID *xid, int rmid, long flags)
{
    struct call call;
    int code = call_begin(XA_EVENT_START, xid, rmid, flags, &call);
    if (code)
        return code;
    if (call.event == XA_EVENT_RESUME)
        return cx_xa_state_resume(call.open, call.id);
    struct xa_association_entry *association = NULL;
    code = cx_xa_state_start_begin(call.open, call.id, call.event, call.nowait, &association);
    if (code)
        return code;
    struct chxa_txn *txn = NULL;
    if (call.event == XA_EVENT_START)
        code = start_new(&call, &txn);
    else if (chxa_join(call.instance->client, call.id, &txn, call.error))
        code = call_code(&call);
    cx_xa_state_start_end(call.open, association, code ? NULL : txn);
    return code;
}

static int entry_end(XID *xid, int rmid, long flags)
{
    struct call call;
    int code = call_begin(XA_EVENT_SUSPEND, xid, rmid, flags, &call);
    return code ? code : cx_xa_state_end(call.open, call.id, call.event, call.error);
}

/* ---- prepare, commit, rollback, forget -------------------------------------------------------------------------- */

static const char *owner(const struct xa_branch_entry *branch)
{
    return branch->owner_url[0] ? branch->owner_url : NULL;
}

/* What xa_prepare or a one-phase xa_commit reports as rolled back should not hold its parts until a time-out. It is not prepared,
 * so if this does not succeed, the time-out does it. */
static void roll_back_quietly(struct call *call, const struct xa_branch_entry *branch)
{
    if (chxa_rollback(call->instance->client, call->id, owner(branch), NULL,
                      call->instance->nowait_ms, NULL))
        return;
}

/*
 * A prepared branch without a row needs no second phase. The handle to write with was never given out in this process, and since
 * prepare no other process can write: only then does the record's count say it for good.
 * XA_RDONLY: it is gone. XA_OK: it stays prepared. XAER_RMFAIL: it may be gone.
 */
static int finish_read_only(struct call *call, const struct xa_branch_entry *branch)
{
    struct chxa_client *client = call->instance->client;
    struct chxa_txn_record *record = NULL;
    if (branch->may_have_rows || chxa_get(client, call->id, &record, NULL))
        return XA_OK;
    bool empty = record->state == CHXA_STATE_PREPARED && record->writes == 0 && record->rows == 0;
    chxa_record_free(record);
    if (!empty)
        return XA_OK;
    if (chxa_rollback(client, call->id, owner(branch), NULL, call->instance->deadline_ms,
                      call->error))
        return XAER_RMFAIL;
    if (chxa_forget(client, call->id, NULL))
        return XA_RDONLY; /* its record goes with the retention */
    return XA_RDONLY;
}

static int ask_prepare(struct call *call, struct xa_branch_entry *branch)
{
    if (chxa_prepare(call->instance->client, call->id, owner(branch), NULL,
                     call->instance->deadline_ms, call->error) == CHXA_OK)
        return finish_read_only(call, branch);
    int code = call_code(call);
    if (code >= XA_RBBASE && code <= XA_RBEND)
        roll_back_quietly(call, branch);
    return code;
}

/* One phase is for what is not prepared; a node would not mind. */
static bool is_prepared(struct call *call)
{
    struct chxa_txn_record *record = NULL;
    if (chxa_get(call->instance->client, call->id, &record, call->error))
        return false; /* the commit will say why */
    bool prepared = record->state == CHXA_STATE_PREPARED;
    chxa_record_free(record);
    return prepared;
}

static int ask_commit(struct call *call, struct xa_branch_entry *branch)
{
    bool one_phase = call->event == XA_EVENT_COMMIT_ONE;
    if (one_phase && branch->state == XA_BRANCH_ELSEWHERE && is_prepared(call))
        return XAER_PROTO;
    uint64_t deadline_ms = call->nowait ? call->instance->nowait_ms : call->instance->deadline_ms;
    /* Who has seen it prepared need not have that asked again. */
    bool any_state = one_phase || branch->state == XA_BRANCH_PREPARED;
    if (chxa_commit(call->instance->client, call->id, owner(branch), any_state, deadline_ms,
                    call->error) == CHXA_OK)
        return XA_OK;
    int code = call_code(call);
    if (code >= XA_RBBASE && code <= XA_RBEND)
        roll_back_quietly(call, branch);
    return code;
}

static int ask_rollback(struct call *call, struct xa_branch_entry *branch)
{
    if (chxa_rollback(call->instance->client, call->id, owner(branch), NULL,
                      call->instance->deadline_ms, call->error))
        return call_code(call);
    return XA_OK;
}

static int ask_forget(struct call *call, struct xa_branch_entry *branch)
{
    (void)branch;
    if (chxa_forget(call->instance->client, call->id, call->error))
        return call_code(call);
    /* A repeated request that finds nothing may have removed it the first time. */
    bool unknown = call->error->http_status == 404 && call->error->attempts <= 1;
    return unknown ? XAER_NOTA : XA_OK;
}

/* Where a call leaves the branch's entry: where it was if the call is to be repeated, else where it leads, or the node's word
 * is better than ours. */
static enum xa_branch state_after(enum xa_branch before, enum xa_branch next, int code)
{
    if (code == XA_OK)
        return next;
    bool unchanged = code == XAER_RMFAIL || code == XAER_RMERR || code == XA_RETRY;
    return unchanged ? before : XA_BRANCH_ELSEWHERE;
}

static int finish(enum xa_event first, const XID *xid, int rmid, long flags,
                  int (*ask)(struct call *call, struct xa_branch_entry *branch))
{
    struct call call;
    struct xa_branch_entry *branch = NULL;
    enum xa_branch next = XA_BRANCH_ELSEWHERE;
    int code = call_begin(first, xid, rmid, flags, &call);
    if (code == XA_OK)
        code = cx_xa_state_take(call.open, call.id, call.event, call.nowait, &branch, &next);
    if (code)
        return code;
    code = ask(&call, branch);
    cx_xa_state_give(call.open, branch, state_after(branch->state, next, code));
    return code;
}

static int entry_prepare(XID *xid, int rmid, long flags)
{
    return finish(XA_EVENT_PREPARE, xid, rmid, flags, ask_prepare);
}

static int entry_commit(XID *xid, int rmid, long flags)
{
    return finish(XA_EVENT_COMMIT, xid, rmid, flags, ask_commit);
}

static int entry_rollback(XID *xid, int rmid, long flags)
{
    return finish(XA_EVENT_ROLLBACK, xid, rmid, flags, ask_rollback);
}

static int entry_forget(XID *xid, int rmid, long flags)
{
    return finish(XA_EVENT_FORGET, xid, rmid, flags, ask_forget);
}

/* ---- recover, complete ------------------------------------------------------------------------------------------ */

static int entry_recover(XID *xids, long count, int rmid, long flags)
{
    if ((flags & ~(TMSTARTRSCAN | TMENDRSCAN)) || count < 0 || (!xids && count > 0))
        return XAER_INVAL;
    struct xa_open *open = cx_xa_state_open_find(rmid);
    if (!open)
        return XAER_PROTO;
    if (!(flags & TMSTARTRSCAN) && !open->scan.open)
        return XAER_INVAL;
    if (flags & TMSTARTRSCAN) {
        int code = cx_xa_scan_start(open, cx_xa_state_error());
        if (code)
            return code;
    }
    struct xa_scan *scan = &open->scan;
    size_t n = scan->n - scan->at;
    if (n > (size_t)count)
        n = (size_t)count;
    if (n > 0)
        memcpy(xids, scan->xids + scan->at, n * sizeof *xids);
    scan->at += n;
    if (flags & TMENDRSCAN)
        cx_xa_scan_clear(scan);
    return (int)n; /* no list has more than 1 000 000 */
}

/* No operation is ever outstanding, for TMASYNC is refused. */
static int entry_complete(int *handle, int *retval, int rmid, long flags)
{
    (void)rmid;
    if ((flags & ~(TMMULTIPLE | TMNOWAIT)) || !handle || !retval)
        return XAER_INVAL;
    return XAER_PROTO;
}

struct xa_switch_t chxa_xa_switch = {
    .name = "chxa",
    .flags = TMNOFLAGS,
    .version = 0,
    .xa_open_entry = entry_open,
    .xa_close_entry = entry_close,
    .xa_start_entry = entry_start,
    .xa_end_entry = entry_end,
    .xa_rollback_entry = entry_rollback,
    .xa_prepare_entry = entry_prepare,
    .xa_commit_entry = entry_commit,
    .xa_recover_entry = entry_recover,
    .xa_forget_entry = entry_forget,
    .xa_complete_entry = entry_complete,
};

/* ---- the application's ------------------------------------------------------------------------------------------ */

int chxa_xa_txn(int rmid, struct chxa_txn **ret_txn)
{
    struct xa_open *open = cx_xa_state_open_find(rmid);
    struct xa_association_entry *active = open ? cx_xa_state_active(open) : NULL;
    if (!active)
        return XAER_PROTO;
    cx_xa_state_mark_rows(active);
    *ret_txn = active->txn;
    return XA_OK;
}

const struct chxa_error *chxa_xa_last_error(void)
{
    static const struct chxa_error none = {.code = CHXA_ERR_NO_MEMORY, .message = "out of memory"};
    const struct chxa_error *error = cx_xa_state_error();
    return error ? error : &none;
}
