/* SPDX-License-Identifier: Apache-2.0
 *
 * The ClickHouse-compatible endpoint: an INSERT that is staged. With a transaction of its own (implicit)
 * it is also begun, committed, and rolled back when it fails:
 *
 *   begin ──> write ──> commit ──> answered
 *     │          └──failed──> rollback ──> answered with the write's error
 *     └──Committed before, by the same query id──> answered again
 */
#include "http/api_clickhouse.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 100u
/* Decoded at a time. */
#define FEED_BYTES ((size_t)64 * 1024)

/* ---- rows ---- */

static void end_rows(struct front *front)
{
    struct error error = {0};
    front->ended = true;
    int code = body_decoder_end(front->decoder, &error);
    if (code)
        coord_write_fail(front->write, code, error_message(&error));
    else
        coord_write_end(front->write);
    error_clear(&error);
}

/* Gives one piece. False: there is none now. */
static bool feed_piece(struct front *front)
{
    char piece[FEED_BYTES];
    struct error error = {0};
    size_t len = 0;
    if (front->rows_at < front->rows.len) {
        len = front->rows.len - front->rows_at;
        len = len < FEED_BYTES ? len : FEED_BYTES;
        front->rows_at += len;
        coord_write_data(front->write, front->rows.data + front->rows_at - len, len);
        return true;
    }
    int code = front_decode(front, piece, sizeof piece, &len, &error);
    if (code) {
        front->ended = true;
        coord_write_fail(front->write, code, error_message(&error));
        error_clear(&error);
    } else if (len) {
        coord_write_data(front->write, piece, len);
    }
    return len > 0;
}

void front_feed(struct front *front)
{
    while (front->wanted && !front->ended && feed_piece(front))
        ;
    if (!front->wanted || front->ended) {
        if (front->reading && !front->body_over)
            http_request_pause(front->request);
    } else if (front->body_over) {
        end_rows(front);
    } else {
        front_read(front);
    }
}

/* The coordinator wants rows, or no more of them for now. */
static void flow(void *arg, bool want)
{
    struct front *front = arg;
    bool feeding = front->wanted; /* it says stop from inside coord_write_data */
    front->wanted = want;
    if (want && !feeding)
        front_feed(front);
}

static void client_gone(struct http_request *request, void *arg)
{
    struct front *front = arg;
    (void)request;
    if (front->write)
        coord_write_abort(front->write, CHXA_E_BODY_TRUNCATED);
}

/* ---- the ends ---- */

static void answer_reply_error(struct front *front, const struct coord_reply *reply)
{
    const struct chxa_record *record = reply->record;
    const char *message = reply->error ? error_message(reply->error) : chxa_error_text(reply->code);
    if (reply->code == CHXA_E_NOT_OWNER && record && record->owner_url) {
        char *text = mem_printf("transaction %s is owned by node %s: write at %s", front->xid,
                                record->owner, record->owner_url);
        front_answer_error(front, reply->code, text);
        free(text);
        return;
    }
    front_answer_error(front, reply->code, message);
}

struct failure {
    struct front *front;
    int code;
    char *message;
};

static void failed(struct failure *failure)
{
    front_answer_error(failure->front, failure->code, failure->message);
    free(failure->message);
    free(failure);
}

static void forgotten(void *arg, const struct coord_reply *reply)
{
    (void)reply; /* its retention ends it */
    failed(arg);
}

static void rolled_back(void *arg, const struct coord_reply *reply)
{
    struct failure *failure = arg;
    struct front *front = failure->front;
    if (reply->code || reply->pending)
        failed(failure); /* the transaction's time-out ends it */
    else
        coord_forget(front->call->api->coord, front->xid, forgotten, failure);
}

/* May the same INSERT, sent again, still succeed with what is there? Then it must stay. And a rollback
 * of what somebody else has written under this query id would be theirs to say. */
static bool leaves_it(const struct front *front, int code)
{
    if (code == CHXA_E_WRITE_ID_REUSED)
        return true;
    return *front->write_id && (!chxa_error_outcome_known(code) || chxa_error_retryable(code));
}

/* An implicit transaction failed before it was decided: nothing of it stays, not even its id, which a
 * later INSERT may use. */
static void implicit_failed(struct front *front, const struct coord_reply *reply)
{
    if (leaves_it(front, reply->code)) {
        answer_reply_error(front, reply);
        return;
    }
    struct failure *failure = mem_alloc(sizeof *failure);
    failure->front = front;
    failure->code = reply->code;
    failure->message =
        mem_strdup(reply->error ? error_message(reply->error) : chxa_error_text(reply->code));
    coord_finish(front->call->api->coord, front->xid, TXN_ROLLBACK, NULL,
                 front->call->api->wait_ms_default, rolled_back, failure);
}

static void committed(void *arg, const struct coord_reply *reply)
{
    struct front *front = arg;
    const struct chxa_record *record = reply->record;
    if (reply->code && record && record->state == CHXA_INITIALIZED) {
        implicit_failed(front, reply);
    } else if (reply->code) {
        answer_reply_error(front, reply);
    } else if (reply->pending) {
        /* decided, and it goes on; the same INSERT again joins it */
        front_answer_error(front, CHXA_E_CLICKHOUSE_UNKNOWN,
                           "the rows are committed, but not all of them are in the table yet");
    } else {
        front_answer_written(front, chxa_record_rows(record), chxa_record_bytes(record),
                             reply->replay);
    }
}

static void commit(struct front *front)
{
    coord_finish(front->call->api->coord, front->xid, TXN_COMMIT, NULL,
                 front->call->api->wait_ms_default, committed, front);
}

static void written(void *arg, const struct coord_reply *reply)
{
    struct front *front = arg;
    front->write = NULL;
    front->ended = true;
    http_request_on_gone(front->request, NULL, NULL);
    if (reply->code && front->implicit) {
        implicit_failed(front, reply);
    } else if (reply->code) {
        answer_reply_error(front, reply);
    } else if (front->implicit) {
        commit(front);
    } else if (reply->gathered) {
        front_answer_gathered(front, reply->replay);
    } else {
        front_answer_written(front, reply->write->rows, reply->write->bytes, reply->replay);
    }
}

/* ---- settings ---- */

/* Of the URL's parameters those that ClickHouse's HTTP interface takes for itself. The node speaks
 * for itself, in its own session, and asks for no progress. */
static bool is_http_parameter(const char *name)
{
    static const char *const names[] = {"query",
                                        "database",
                                        "user",
                                        "password",
                                        "quota_key",
                                        "role",
                                        "session_id",
                                        "session_timeout",
                                        "session_check",
                                        "close_session",
                                        "query_id",
                                        "default_format",
                                        "compress",
                                        "decompress",
                                        "stacktrace",
                                        "client_protocol_version",
                                        "enable_http_compression",
                                        "http_zlib_compression_level",
                                        "network_compression_method",
                                        "network_zstd_compression_level",
                                        "send_progress_in_http_headers",
                                        "http_headers_progress_interval_ms",
                                        "add_http_cors_header",
                                        "readonly"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, "chxa_", 5) == 0;
}

/* ClickHouse settings are lower-case words; anything else is a typing error or an attack. */
static bool setting_valid(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < 100 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == len;
}

/* What is not of the interface goes along as a setting, or as a parameter of an INSERT … SELECT. False:
 * answered. */
static bool read_settings(struct front *front, struct ch_param *settings, size_t *ret_n)
{
    const char *name, *value;
    bool selects = strchr(front->statement, '{') != NULL;
    *ret_n = 0;
    for (size_t i = 0; http_request_param_at(front->request, i, &name, &value); i++) {
        if (is_http_parameter(name) || insert_setting_refused(name))
            continue; /* ours, or overridden: this INSERT is staged on the node's terms */
        if (strncmp(name, "param_", 6) == 0 && !selects)
            continue; /* 18.16 knows none */
        if (!setting_valid(name) || *ret_n == SETTINGS_MAX) {
            char *text = mem_printf("%.100s is no setting that an INSERT can have", name);
            front_answer_error(front, CHXA_E_INVALID_REQUEST, text);
            free(text);
            return false;
        }
        settings[(*ret_n)++] = (struct ch_param){name, value};
    }
    return true;
}

/* ---- the beginning ---- */

static void start_write(struct front *front)
{
    struct ch_param settings[SETTINGS_MAX];
    const struct http_request *request = front->request;
    const char *views = http_request_param(request, "chxa_views");
    const char *database = http_request_param(request, "database");
    struct coord_write_params params = {
        .xid = front->xid,
        .query = front->statement,
        .write_id = *front->write_id ? front->write_id : NULL,
        .database = database && *database ? database
                                          : http_request_header(request, "X-ClickHouse-Database"),
        .settings = settings,
        .flow = flow,
    };
    if (views == NULL)
        views = http_request_header(request, "X-Chxa-Views");
    params.skip_views = views && strcmp(views, "skip") == 0;
    if (!read_settings(front, settings, &params.n_settings))
        return;
    http_request_on_gone(front->request, client_gone, front);
    front->write = coord_write_start(front->call->api->coord, &params, written, front);
}

static void begun(void *arg, const struct coord_reply *reply)
{
    struct front *front = arg;
    const struct chxa_record *record = reply->record;
    if (reply->code == CHXA_E_WRONG_STATE && record && record->state == CHXA_COMMITTED)
        front_answer_written(front, chxa_record_rows(record), chxa_record_bytes(record), true);
    else if (reply->code == CHXA_E_WRONG_STATE && record && record->state == CHXA_COMMITTING)
        commit(front);
    else if (reply->code)
        answer_reply_error(front, reply);
    else
        start_write(front);
}

void front_write(struct front *front)
{
    const char *why = coord_not_ready(front->call->api->coord);
    front->state = FRONT_WRITING;
    buf_clear(&front->raw);
    buf_clear(&front->text);
    front_count(front);
    if (front->reading && !front->body_over)
        http_request_pause(front->request); /* until the coordinator wants rows */
    if (why) {
        front_answer_error(front, CHXA_E_NOT_READY, why);
        return;
    }
    struct ch_param settings[SETTINGS_MAX];
    size_t n_settings;
    if (!read_settings(front, settings, &n_settings)) /* before anything is begun */
        return;
    if (!front->implicit) {
        start_write(front);
        return;
    }
    /* Its id comes from the query id, so that the same INSERT sent again is the same transaction. */
    char *made = *front->write_id ? NULL : coord_op_id(front->call->api->coord);
    int len = snprintf(front->xid, sizeof front->xid, "insert:%s", made ? made : front->write_id);
    free(made);
    if (len >= (int)sizeof front->xid) {
        front_answer_error(front, CHXA_E_INVALID_REQUEST, "the query id is too long");
        return;
    }
    coord_begin(front->call->api->coord, front->xid, &(struct coord_begin){0}, begun, front);
}
