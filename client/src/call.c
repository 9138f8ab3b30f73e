/* SPDX-License-Identifier: Apache-2.0
 *
 * A request until it is answered for good: which node, redirects, retries with a back-off, the deadline, and what the
 * answer means.
 *
 * An attempt is one request and its redirects. After each, judge() fills *error and says whether another may follow.
 * Nodes are tried in the order of write_mode, the preferred one first. Going on to a node that was not tried in this round costs no
 * pause; after the last one, the round begins anew and a pause comes before each attempt.
 *
 * What is never forgotten: once an attempt may have been carried out (maybe), a later failure that says nothing about it
 * leaves the outcome unknown.
 */
#include "client/src/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACK_OFF_FIRST_MS 100u
#define BACK_OFF_MAX_MS   10000u
#define WAIT_MARGIN_MS    250u
#define TOLD_BYTES        400u

/* Where a call has got to. */
struct round {
    struct cx_call *call;
    struct chxa_error *error;
    char preferred[CHXA_URL_BYTES_MAX + 1]; /* the first of each round; "": none */
    unsigned order[CX_URLS_MAX];
    unsigned n_nodes, next; /* next: index into preferred + order */
    char at[CHXA_URL_BYTES_MAX + 1];
    unsigned pauses;
    uint64_t retry_after_ms;
    bool stay;        /* the next attempt goes to the same node again */
    bool maybe;       /* an earlier attempt may have been carried out */
    bool untrusted;   /* every node of this round failed in TLS */
    bool may_go_on;   /* set by judge: another attempt makes sense */
    bool other_node;  /* set by judge: another node may do better */
    bool no_wait_ms;  /* the node refused our wait_ms */
    bool asked_owner; /* 421 was followed once */
    bool uploaded;    /* the first upload has moved the deadline */
    /* why each candidate failed last, by its place in the round; "": it was not tried, or has answered for good */
    char told[CX_URLS_MAX + 1][TOLD_BYTES];
};

/* ---- what an answer says ---- */

static void note_txn(const json_t *json, struct chxa_error *error)
{
    const char *state = cx_json_text(json, "state"), *url = cx_json_text(json, "owner_url");
    error->state = cx_state_from_name(state);
    error->owner_url[0] = '\0';
    if (url && !cx_url_origin(url, error->owner_url, sizeof error->owner_url))
        error->owner_url[0] = '\0';
}

static void judge_error(const json_t *detail, struct chxa_error *error)
{
    const char *name = cx_json_text(detail, "code"), *message = cx_json_text(detail, "message");
    const char *outcome = cx_json_text(detail, "outcome");
    int code = cx_error_from_name(name);
    if (code == 0 || code <= CHXA_ERR_UNREACHABLE)
        cx_fail(error, CHXA_ERR_UNKNOWN_CODE, "%.100s: %.3900s", name, message ? message : "");
    else
        cx_fail(error, code, "%s", message ? message : chxa_error_text(code));
    error->retryable = json_is_true(json_object_get(detail, "retryable"));
    if (outcome)
        error->outcome = strcmp(outcome, "known") ? CHXA_OUTCOME_UNKNOWN : CHXA_OUTCOME_KNOWN;
}

static void judge_foreign(struct round *round, const struct cx_answer *answer)
{
    struct chxa_error *error = round->error;
    long status = answer->status;
    if (status == 401 || status == 403) {
        cx_fail(error, CHXA_ERR_CREDENTIALS, "%s answers %ld", round->at, status);
        return;
    }
    cx_fail(error, CHXA_ERR_BAD_ANSWER, "%s answers %ld with something that is not chxad's: %.200s",
            round->at, status, answer->text.data ? answer->text.data : "");
    /* A proxy's 5xx says nothing about what happened behind it, and may pass. */
    error->retryable = status >= 500 || status == 408 || status == 429;
    if (status >= 400 && status < 500)
        error->outcome = CHXA_OUTCOME_KNOWN;
}

/* A whole answer that is no redirect. */
static void judge_answer(struct round *round, const struct cx_answer *answer)
{
    struct cx_call *call = round->call;
    struct chxa_error *error = round->error;
    json_error_t where = {0};
    json_t *json = NULL;
    int parsed = CHXA_ERR_BAD_ANSWER;
    if (answer->text.len && strlen(answer->text.data) == answer->text.len)
        parsed = cx_json_parse(answer->text.data, &json, &where);
    const json_t *detail = json_object_get(json, "error");
    bool fine = answer->status >= 200 && answer->status < 300;
    note_txn(json, error);
    if (parsed == CHXA_ERR_NO_MEMORY) {
        cx_no_memory(error);
        error->outcome = CHXA_OUTCOME_UNKNOWN;
        error->retryable = false;
    } else if (fine && (json_is_object(json) || call->raw)) {
        call->json = json_is_object(json) ? json_incref(json) : NULL;
        cx_done(error);
        if (answer->status == 202 && call->to_end)
            cx_fail(error, CHXA_ERR_PENDING, "%s is still at it", round->at);
    } else if (!fine && json_is_object(detail) && cx_json_text(detail, "code")) {
        judge_error(detail, error);
    } else {
        judge_foreign(round, answer);
    }
    json_decref(json);
}

static void judge_end(struct round *round, const struct cx_answer *answer)
{
    struct chxa_error *error = round->error;
    error->state = CHXA_STATE_UNKNOWN;
    switch (answer->end) {
    case CX_ANSWERED:
        judge_answer(round, answer);
        break;
    case CX_UNREACHABLE:
    case CX_UNTRUSTED:
    case CX_EXHAUSTED:
        cx_fail(error, CHXA_ERR_UNREACHABLE, "%s: %s", round->at,
                answer->end == CX_EXHAUSTED ? "all connections_max connections are in use"
                                            : answer->why);
        error->retryable = answer->end != CX_UNTRUSTED;
        break;
    case CX_LOST:
        cx_fail(error, CHXA_ERR_LOST, "%s: %s", round->at, answer->why);
        if (round->call->body.there && !answer->body_ended)
            error->outcome = CHXA_OUTCOME_KNOWN; /* a body cut short leaves nothing */
        break;
    case CX_GARBAGE:
        cx_fail(error, CHXA_ERR_BAD_ANSWER, "%s: %s", round->at, answer->why);
        break;
    case CX_CANCELLED:
        cx_fail(error, CHXA_ERR_CANCELLED, "the body was given up by its reader");
        error->retryable = false;
        if (answer->body_ended)
            error->outcome = CHXA_OUTCOME_UNKNOWN;
        break;
    case CX_NO_MEMORY:
        cx_no_memory(error);
        error->retryable = false;
        break;
    }
}

/* ---- one attempt ---- */

/* Requests never go from https down to http; nor to http at all when every node that was configured has https. */
static bool may_go_to(const struct round *round, const char *origin)
{
    if (cx_url_is_https(origin))
        return true;
    return !round->call->client->only_https && !cx_url_is_https(round->at);
}

static bool body_again(struct round *round)
{
    struct cx_body *body = &round->call->body;
    if (body->read && body->touched)
        body->touched = body->rewind == NULL || body->rewind(body->context) != 0;
    return !body->touched;
}

static char *make_target(const struct round *round)
{
    const struct cx_call *call = round->call;
    struct cx_buf target = {0};
    cx_buf_puts(&target, call->target);
    if (call->waits && !round->no_wait_ms) {
        uint64_t now = cx_now_ms(), left = call->deadline > now ? call->deadline - now : 0;
        uint64_t most = call->client->options.request_timeout_ms;
        uint64_t wait = left < most ? left : most;
        wait -= wait > 2 * WAIT_MARGIN_MS ? WAIT_MARGIN_MS : wait / 2;
        wait = wait < 30000 ? wait : 30000; /* the node's default; more may be refused */
        cx_buf_printf(&target, "%cwait_ms=%llu", strchr(call->target, '?') ? '&' : '?',
                      (unsigned long long)wait);
    }
    if (target.failed)
        cx_buf_clear(&target);
    return target.data;
}

/* Follows redirects from round->at. */
static void attempt(struct round *round)
{
    struct cx_call *call = round->call;
    struct cx_answer answer = {.end = CX_NO_MEMORY};
    unsigned redirects = 0;
    cx_buf_clear(&call->text);
    round->error->attempts++;
    round->error->http_status = 0;
    round->retry_after_ms = 0;
    for (;;) {
        char *target = make_target(round);
        struct cx_request request = {call->client, call->method,   round->at,   target,
                                     &call->body,  call->deadline, call->cancel};
        if (target)
            cx_http_perform(&request, &answer);
        free(target);
        if (answer.end != CX_ANSWERED || answer.status != 307)
            break;
        if (redirects++ == call->client->options.redirects_max) {
            cx_fail(round->error, CHXA_ERR_REDIRECTS, "more than %u redirects; the last is to %s",
                    redirects - 1, answer.location);
            goto out;
        }
        if (answer.location[0] == '\0' || !may_go_to(round, answer.location) ||
            !body_again(round)) {
            cx_fail(round->error, CHXA_ERR_BAD_ANSWER,
                    "%s redirects to \"%s\", which is not followed", round->at, answer.location);
            round->error->outcome = CHXA_OUTCOME_KNOWN;
            goto out;
        }
        snprintf(round->at, sizeof round->at, "%s", answer.location);
        cx_answer_clear(&answer);
    }
    judge_end(round, &answer);
    if (call->body.read && call->body.touched && !round->uploaded) {
        uint64_t later = cx_client_deadline(call->client, 0);
        call->deadline = later > call->deadline ? later : call->deadline;
        round->uploaded = true;
    }
    call->body_ended = answer.body_ended;
    round->untrusted = round->untrusted && answer.end == CX_UNTRUSTED;
    round->retry_after_ms = answer.retry_after_ms;
    round->other_node =
        answer.end == CX_UNREACHABLE || answer.end == CX_UNTRUSTED || answer.end == CX_LOST;
out:
    round->error->http_status = answer.end == CX_ANSWERED ? (int)answer.status : 0;
    snprintf(call->answered_by, sizeof call->answered_by, "%s", round->at);
    call->text = answer.text;
}

/* ---- between attempts ---- */

/* How many nodes a round has. */
static unsigned candidates(const struct round *round)
{
    return (round->preferred[0] != '\0') + (round->call->only_here ? 0 : round->n_nodes);
}

static void judge_next(struct round *round)
{
    struct cx_call *call = round->call;
    struct chxa_error *error = round->error;
    int code = error->code;
    bool hopeless = round->untrusted && round->next >= candidates(round);
    round->may_go_on = error->retryable || (code == CHXA_ERR_UNREACHABLE && !hopeless);
    if (code == CHXA_ERR_BLOCKED && !call->waits)
        round->may_go_on = false; /* an answer, for who does not wait for the end */
    round->other_node |=
        code == CHXA_ERR_NOT_READY || code == CHXA_ERR_STORE_UNAVAILABLE || code == CHXA_ERR_BUSY;
    if (code == CHXA_ERR_INVALID_REQUEST && call->waits && !round->no_wait_ms) {
        round->no_wait_ms = true; /* the node's wait_ms_max may be lower */
        round->may_go_on = round->stay = true;
    }
    if (code == CHXA_ERR_NOT_OWNER && !round->asked_owner && error->owner_url[0] &&
        may_go_to(round, error->owner_url)) {
        snprintf(round->preferred, sizeof round->preferred, "%s", error->owner_url);
        round->asked_owner = round->may_go_on = true;
        round->next = 0;
        memset(round->told, 0, sizeof round->told); /* another list of candidates */
    }
    if (error->outcome == CHXA_OUTCOME_UNKNOWN && code != CHXA_ERR_PENDING &&
        code != CHXA_ERR_BLOCKED)
        round->maybe = true;
    if (round->maybe && call->begins)
        round->stay = true;
}

/* Keeps what the candidate at `index` has said, for the end. Only a node's own words do not name it. */
static void note_told(struct round *round, unsigned index)
{
    const struct chxa_error *error = round->error;
    if (error->code > CHXA_ERR_UNREACHABLE)
        snprintf(round->told[index], TOLD_BYTES, "%.150s: %s: %.200s", round->at,
                 chxa_error_name(error->code), error->message);
    else
        snprintf(round->told[index], TOLD_BYTES, "%.380s", error->message);
}

/* An error that may pass tells of every node that was tried, not only of the last. */
static void tell_of_others(struct round *round, unsigned last)
{
    struct chxa_error *error = round->error;
    if (error->code == 0 || !(error->retryable || error->code == CHXA_ERR_UNREACHABLE))
        return;
    struct cx_buf text = {0};
    cx_buf_puts(&text, error->message);
    const char *before = "; tried before: ";
    for (unsigned i = 0; i <= CX_URLS_MAX; i++) {
        if (i == last || round->told[i][0] == '\0')
            continue;
        cx_buf_puts(&text, before);
        cx_buf_puts(&text, round->told[i]);
        before = "; ";
    }
    if (!text.failed)
        cx_error_message(error, text.data);
    cx_buf_clear(&text);
}

/* What is said in the end, when nothing better came than what may pass. */
static void judge_whole(struct round *round)
{
    struct chxa_error *error = round->error;
    if (error->code == 0 || !round->maybe ||
        !(error->retryable || error->code == CHXA_ERR_UNREACHABLE))
        return;
    if (error->code == CHXA_ERR_UNREACHABLE) {
        char why[sizeof error->message];
        snprintf(why, sizeof why, "%s", error->message);
        cx_fail(error, CHXA_ERR_LOST, "an answer was lost, and then: %.3900s", why);
    }
    error->outcome = CHXA_OUTCOME_UNKNOWN;
}

/* False: the deadline does not leave the time. */
static bool pause_before_next(struct round *round)
{
    uint64_t now = cx_now_ms(), deadline = round->call->deadline;
    uint64_t left = deadline > now ? deadline - now : 0, pause = BACK_OFF_FIRST_MS;
    for (unsigned i = 0; i < round->pauses && pause < BACK_OFF_MAX_MS; i++)
        pause *= 2;
    pause = pause < BACK_OFF_MAX_MS ? pause : BACK_OFF_MAX_MS;
    uint32_t chance;
    cx_random(&chance, sizeof chance);
    pause = pause / 2 + chance % (pause / 2 + 1);
    /* Rather a last attempt early than none. */
    pause = pause < left / 2 ? pause : left / 2;
    pause = pause > round->retry_after_ms ? pause : round->retry_after_ms;
    if (left < BACK_OFF_FIRST_MS || pause >= left)
        return false;
    round->pauses++;
    const atomic_bool *cancel = round->call->cancel;
    for (uint64_t end = now + pause; now < end && !(cancel && atomic_load(cancel));
         now = cx_now_ms())
        cx_sleep_until(end - now > 100 && cancel ? now + 100 : end);
    return !(cancel && atomic_load(cancel));
}

/* Sets round->at. True: a pause comes before it. */
static bool choose(struct round *round)
{
    struct cx_call *call = round->call;
    if (round->stay && round->at[0])
        return true;
    bool again = round->next >= candidates(round);
    if (again)
        round->next = 0;
    if (round->next == 0)
        round->untrusted = true;
    unsigned index = round->next++;
    if (round->preferred[0] && index-- == 0)
        snprintf(round->at, sizeof round->at, "%s", round->preferred);
    else
        snprintf(round->at, sizeof round->at, "%s", call->client->urls[round->order[index]]);
    return again;
}

/* Returns the place of the candidate that was tried last. */
static unsigned run(struct round *round)
{
    struct cx_call *call = round->call;
    unsigned index = 0;
    for (bool first = true;; first = false) {
        bool same_again = !first && !round->other_node && !round->asked_owner;
        bool pause = same_again || choose(round);
        pause = pause || (call->waits && round->retry_after_ms);
        if (!first && pause && !pause_before_next(round))
            return index;
        if (!first && cx_now_ms() >= call->deadline)
            return index;
        round->stay = round->other_node = false;
        index = round->next ? round->next - 1 : 0;
        uint64_t begun = cx_now_ms();
        attempt(round);
        note_told(round, index);
        judge_next(round);
        /* It waited for us: asking again soon costs nobody anything. */
        if (round->error->code == CHXA_ERR_PENDING && cx_now_ms() - begun >= 1000)
            round->pauses = 0;
        if (round->error->code == 0 || !round->may_go_on)
            return index;
        if (!body_again(round))
            return index;
        json_decref(call->json);
        call->json = NULL;
    }
}

int cx_call_run(struct cx_call *call, struct chxa_error *error)
{
    struct round round = {
        .call = call, .error = error, .n_nodes = (unsigned)call->client->options.n_urls};
    cx_client_order(call->client, call->begins, round.order);
    if (call->origin && call->origin[0]) {
        if (!cx_url_origin(call->origin, round.preferred, sizeof round.preferred))
            return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "\"%.200s\" is not a node's URL",
                           call->origin);
        if (!may_go_to(&round, round.preferred))
            return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "%.200s: this client only speaks https",
                           call->origin);
    }
    unsigned last = run(&round);
    judge_whole(&round);
    tell_of_others(&round, last);
    return error->code;
}

int cx_call_get_txn(struct chxa_client *client, const char *xid, struct cx_call *ret_call,
                    struct chxa_error *error)
{
    struct cx_buf target = {0};
    cx_buf_printf(&target, "/v1/transactions/%s", xid);
    *ret_call = (struct cx_call){.client = client,
                                 .method = "GET",
                                 .target = target.data,
                                 .deadline = cx_client_deadline(client, 0)};
    int code = target.failed ? cx_no_memory(error) : cx_call_run(ret_call, error);
    cx_buf_clear(&target);
    ret_call->target = NULL;
    return code;
}

void cx_call_clear(struct cx_call *call)
{
    json_decref(call->json);
    call->json = NULL;
    cx_buf_clear(&call->text);
}
