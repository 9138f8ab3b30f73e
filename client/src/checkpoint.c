/* SPDX-License-Identifier: Apache-2.0
 *
 * A sink's entry: what it committed last, and its recovery at every node that owns something of it.
 *
 * Recovery asks one node, which ends its own and names the owners of the rest; then each of those, and from the
 * beginning again until one answer says complete. Repeating it is harmless.
 */
#include "client/src/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTED_MAX   10000u
#define OWNERS_MAX   64u
#define PAUSE_MS     100u
#define PAUSE_MS_MAX 5000u

/* ---- last committed ---- */

static int read_checkpoint(const json_t *sink, struct chxa_checkpoint *ret_checkpoint,
                           struct chxa_error *error)
{
    const json_t *last = json_object_get(sink, "checkpoint");
    const char *xid = cx_json_text(last, "xid");
    bool failed = false;
    struct chxa_checkpoint checkpoint = {.epoch = cx_json_number(sink, "epoch")};
    if (xid && !cx_id_valid(xid))
        return cx_fail(error, CHXA_ERR_BAD_ANSWER, "the checkpoint's id is none");
    if (xid)
        snprintf(checkpoint.xid, sizeof checkpoint.xid, "%s", xid);
    checkpoint.meta = cx_json_dump(json_object_get(last, "meta"), &failed);
    if (failed)
        return cx_no_memory(error);
    *ret_checkpoint = checkpoint;
    return cx_done(error);
}

int chxa_sink_last_committed(struct chxa_client *client, const char *name,
                             struct chxa_checkpoint *ret_checkpoint, struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = cx_check_id("the sink's name", name, error);
    if (code)
        return code;
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/sinks/%s", name);
    struct cx_call call = {.client = client,
                           .method = "GET",
                           .target = target.data,
                           .deadline = cx_client_deadline(client, 0)};
    code = target.failed ? cx_no_memory(error) : cx_call_run(&call, error);
    if (code == 0)
        code = read_checkpoint(call.json, ret_checkpoint, error);
    cx_call_clear(&call);
    cx_buf_clear(&target);
    return code;
}

/* ---- recover ---- */

struct recovery {
    struct chxa_client *client;
    struct cx_buf target, body;
    uint64_t deadline;
    char *owners[OWNERS_MAX]; /* who were named in this pass, and are still to be asked */
    size_t n_owners, asked;
    bool complete;
};

static bool add_owner(struct recovery *recovery, const char *url)
{
    char origin[CHXA_URL_BYTES_MAX + 1];
    if (url == NULL || !cx_url_origin(url, origin, sizeof origin))
        return true;
    for (size_t i = 0; i < recovery->n_owners; i++)
        if (strcmp(recovery->owners[i], origin) == 0)
            return true;
    if (recovery->n_owners == OWNERS_MAX)
        return true;
    recovery->owners[recovery->n_owners] = cx_strdup(origin);
    return recovery->owners[recovery->n_owners++] != NULL;
}

static void forget_owners(struct recovery *recovery)
{
    for (size_t i = 0; i < recovery->n_owners; i++)
        free(recovery->owners[i]);
    recovery->n_owners = recovery->asked = 0;
}

/* What the list says of one transaction that has not ended as it should. */
static int judge_txn(struct recovery *recovery, const json_t *txn, struct chxa_error *error)
{
    const json_t *detail = json_object_get(txn, "error");
    const char *name = cx_json_text(detail, "code"), *xid = cx_json_text(txn, "xid");
    const char *action = cx_json_text(txn, "action"), *message = cx_json_text(detail, "message");
    int code = cx_error_from_name(name);
    bool commits = action && strcmp(action, "commit") == 0;
    if (detail == NULL || xid == NULL)
        return 0;
    if (code == CHXA_ERR_NOT_OWNER)
        return add_owner(recovery, cx_json_text(txn, "owner_url")) ? 0 : cx_no_memory(error);
    if (json_is_true(json_object_get(detail, "retryable")) || !commits)
        return 0; /* the same request again */
    enum chxa_txn_state state = cx_state_from_name(cx_json_text(txn, "state"));
    if (code == CHXA_ERR_WRONG_STATE)
        cx_fail(error, CHXA_ERR_ROLLED_BACK, "%s is %s, but was to be committed", xid,
                chxa_state_name(state));
    else
        cx_fail(error, code ? code : CHXA_ERR_UNKNOWN_CODE, "%s: %.100s: %.3000s", xid, name,
                message ? message : "");
    error->state = state;
    return error->code;
}

static int judge_list(struct recovery *recovery, const json_t *json, struct chxa_error *error)
{
    const json_t *list = json_object_get(json, "transactions");
    if (!json_is_array(list))
        return cx_fail(error, CHXA_ERR_BAD_ANSWER, "the answer is no recovery's");
    recovery->complete = json_is_true(json_object_get(json, "complete"));
    int code = 0;
    for (size_t i = 0; code == 0 && !recovery->complete && i < json_array_size(list); i++)
        code = judge_txn(recovery, json_array_get(list, i), error);
    return code;
}

/* One node; url NULL: any. */
static int ask(struct recovery *recovery, const char *url, struct chxa_error *error)
{
    struct cx_call call = {.client = recovery->client,
                           .method = "POST",
                           .target = recovery->target.data,
                           .origin = url,
                           .only_here = url != NULL,
                           .body = {.data = recovery->body.data,
                                    .len = recovery->body.len,
                                    .json = true,
                                    .there = true},
                           .deadline = recovery->deadline,
                           .waits = true};
    int code = cx_call_run(&call, error);
    if (code == 0)
        code = judge_list(recovery, call.json, error);
    cx_call_clear(&call);
    return code;
}

/* A pass over all nodes that own something. */
static int pass(struct recovery *recovery, struct chxa_error *error)
{
    forget_owners(recovery);
    int code = ask(recovery, NULL, error);
    while (code == 0 && !recovery->complete && recovery->asked < recovery->n_owners)
        code = ask(recovery, recovery->owners[recovery->asked++], error);
    return code;
}

static int run(struct recovery *recovery, struct chxa_error *error)
{
    uint64_t pause = PAUSE_MS;
    for (;;) {
        int code = pass(recovery, error);
        if (code || recovery->complete)
            return code ? code : cx_done(error);
        uint64_t now = cx_now_ms();
        if (cx_deadline(now, pause) >= recovery->deadline)
            return cx_fail(error, CHXA_ERR_PENDING, "the sink's transactions have not all ended");
        cx_sleep_until(now + pause);
        pause = 2 * pause < PAUSE_MS_MAX ? 2 * pause : PAUSE_MS_MAX;
    }
}

static int check_list(const char *name, uint64_t epoch, const char *const *xids, size_t n,
                      struct chxa_error *error)
{
    int code = cx_check_id("the sink's name", name, error);
    for (size_t i = 0; code == 0 && i < n; i++)
        code = cx_check_id("an id in the list", xids[i], error);
    if (code == 0 && (n > LISTED_MAX || epoch > INT64_MAX))
        code = cx_fail(error, CHXA_ERR_INVALID_REQUEST, "at most %u ids, and epochs end at 2^63-1",
                       LISTED_MAX);
    return code;
}

int chxa_sink_recover(struct chxa_client *client, const char *name, uint64_t epoch,
                      const char *const *xids, size_t n, uint64_t deadline_ms,
                      struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    int code = check_list(name, epoch, xids, n, error);
    if (code)
        return code;
    struct recovery recovery = {.client = client,
                                .deadline = cx_client_deadline(client, deadline_ms)};
    cx_buf_printf(&recovery.target, "/v1/sinks/%s/recover", name);
    cx_buf_printf(&recovery.body, "{\"epoch\":%llu,\"commit\":[", (unsigned long long)epoch);
    for (size_t i = 0; i < n; i++)
        cx_buf_printf(&recovery.body, "%s\"%s\"", i ? "," : "", xids[i]);
    cx_buf_puts(&recovery.body, "]}");
    if (recovery.target.failed || recovery.body.failed)
        code = cx_no_memory(error);
    else
        code = run(&recovery, error);
    forget_owners(&recovery);
    cx_buf_clear(&recovery.target);
    cx_buf_clear(&recovery.body);
    return code;
}
