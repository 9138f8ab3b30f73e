/* SPDX-License-Identifier: Apache-2.0
 *
 * The ClickHouse-compatible endpoint: whose request it is, and what its statement is. See
 * api_clickhouse.h.
 */
#include "http/api_clickhouse.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/ch_http_pass.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of a statement in front of its rows, decoded; ClickHouse's own max_query_size is 256 KiB. */
#define STATEMENT_BYTES_MAX ((size_t)1024 * 1024)
/* Of the body as it comes, while its statement is looked for: frames that hold nothing are no way to
 * fill our memory. */
#define RAW_BYTES_MAX ((size_t)4 * 1024 * 1024)
/* Taken from the decoder at a time. */
#define SNIFF_BYTES ((size_t)16 * 1024)

void front_free(struct front *front)
{
    body_decoder_free(front->decoder);
    buf_clear(&front->raw);
    buf_clear(&front->text);
    buf_clear(&front->rows);
    free(front->statement);
    free(front->query_id);
    budget_give(front->budget, front->held);
    free(front);
}

/* ---- what the request says ---- */

/* The URL's word, or the header's. */
static const char *named(const struct http_request *request, const char *param, const char *header)
{
    const char *value = http_request_param(request, param);
    if (value == NULL || *value == '\0')
        value = http_request_header(request, header);
    return value && *value ? value : NULL;
}

/* What is said twice, ClickHouse and this server could read differently; a misspelt name of ours would
 * leave a write outside of its transaction. */
static const char *const own_names[][2] = {{"chxa_txn", "X-Chxa-Transaction"},
                                           {"chxa_write_id", "X-Chxa-Write-Id"},
                                           {"chxa_views", "X-Chxa-Views"}};
#define N_OWN_NAMES (sizeof own_names / sizeof *own_names)

static bool is_own(const char *name, size_t which)
{
    for (size_t i = 0; i < N_OWN_NAMES; i++)
        if (strcasecmp(own_names[i][which], name) == 0)
            return which == 1 || strcmp(own_names[i][which], name) == 0;
    return false;
}

static size_t count_params(const struct http_request *request, const char *name)
{
    const char *other, *value;
    size_t n = 0;
    for (size_t i = 0; http_request_param_at(request, i, &other, &value); i++)
        n += strcmp(other, name) == 0;
    return n;
}

static size_t count_headers(const struct http_request *request, const char *name)
{
    const char *other, *value;
    size_t n = 0;
    for (size_t i = 0; http_request_header_at(request, i, &other, &value); i++)
        n += strcasecmp(other, name) == 0;
    return n;
}

static bool refuse_name(struct front *front, const char *name, const char *what)
{
    char *text = mem_printf("%.100s %s", name, what);
    front_answer_error(front, CHXA_E_INVALID_REQUEST, text);
    free(text);
    return false;
}

/* Names of ours are those that exist, each once and with a value. False: answered. */
static bool check_own_names(struct front *front)
{
    const struct http_request *request = front->request;
    const char *name, *value;
    for (size_t i = 0; http_request_param_at(request, i, &name, &value); i++)
        if (strncasecmp(name, "chxa_", 5) != 0)
            continue;
        else if (!is_own(name, 0))
            return refuse_name(front, name, "is no parameter of this server");
        else if (*value == '\0' || count_params(request, name) > 1)
            return refuse_name(front, name, *value ? "is given twice" : "is empty");
    for (size_t i = 0; http_request_header_at(request, i, &name, &value); i++)
        if (strncasecmp(name, "X-Chxa-", 7) != 0)
            continue;
        else if (!is_own(name, 1))
            return refuse_name(front, name, "is no header of this server");
        else if (*value == '\0' || count_headers(request, name) > 1)
            return refuse_name(front, name, *value ? "is given twice" : "is empty");
    return true;
}

/* What decides where the rows go is said once. False: answered. */
static bool check_statement_names(struct front *front)
{
    static const char *const params[] = {"query", "query_id", "database", "decompress", NULL};
    static const char *const headers[] = {"Content-Encoding", "Content-Type",
                                          "X-ClickHouse-Database", "X-ClickHouse-Query-Id", NULL};
    for (const char *const *name = params; *name; name++)
        if (count_params(front->request, *name) > 1)
            return refuse_name(front, *name, "is given twice");
    for (const char *const *name = headers; *name; name++)
        if (count_headers(front->request, *name) > 1)
            return refuse_name(front, *name, "is given twice");
    return true;
}

/* ClickHouse takes any text for a query id; ours are stricter. */
static void make_id(const char *text, char ret_id[CHXA_XID_BYTES_MAX + 1])
{
    if (chxa_xid_valid(text)) {
        memcpy(ret_id, text, strlen(text) + 1);
        return;
    }
    char hash[HASH_HEX_BYTES + 1];
    hash_of(text, strlen(text), hash);
    snprintf(ret_id, CHXA_XID_BYTES_MAX + 1, "sha256:%s", hash);
}

/* False: answered. */
static bool read_names(struct front *front)
{
    struct http_request *request = front->request;
    const char *xid = named(request, "chxa_txn", "X-Chxa-Transaction");
    const char *write_id = named(request, "chxa_write_id", "X-Chxa-Write-Id");
    const char *query_id = named(request, "query_id", "X-ClickHouse-Query-Id");
    const char *in_url = http_request_param(request, "chxa_txn");
    const char *in_header = http_request_header(request, "X-Chxa-Transaction");
    if (in_url && in_header && *in_url && *in_header && strcmp(in_url, in_header) != 0) {
        front_answer_error(front, CHXA_E_INVALID_REQUEST,
                           "chxa_txn and X-Chxa-Transaction name two transactions");
        return false;
    }
    if (xid && !chxa_xid_valid(xid)) {
        front_answer_error(front, CHXA_E_INVALID_XID, chxa_error_text(CHXA_E_INVALID_XID));
        return false;
    }
    if (write_id && !chxa_xid_valid(write_id)) {
        front_answer_error(front, CHXA_E_INVALID_REQUEST,
                           "chxa_write_id must be 1-280 characters of A-Z a-z 0-9 . _ : -");
        return false;
    }
    if (xid)
        memcpy(front->xid, xid, strlen(xid) + 1);
    front->implicit = xid == NULL && front->call->api->implicit_transactions;
    if (write_id)
        memcpy(front->write_id, write_id, strlen(write_id) + 1);
    else if (query_id)
        make_id(query_id, front->write_id);
    if (query_id)
        front->query_id = mem_strdup(query_id);
    return true;
}

/* How the body is packed. False: answered. */
static bool make_decoder(struct front *front)
{
    const char *encoding = http_request_header(front->request, "Content-Encoding");
    const char *native = http_request_param(front->request, "decompress");
    bool blocks = native && strcmp(native, "0") != 0 && *native;
    enum body_coding coding;
    if (!body_coding_of(encoding, &coding)) {
        front_answer_error(front, CHXA_E_UNSUPPORTED_ENCODING,
                           "Content-Encoding may be gzip, deflate, zstd, lz4 or br, one of them");
        return false;
    }
    if (blocks && coding != BODY_CLEAR) {
        front_answer_error(front, CHXA_E_UNSUPPORTED_ENCODING,
                           "decompress=1 together with a Content-Encoding is not supported");
        return false;
    }
    front->clear = !blocks && coding == BODY_CLEAR;
    front->decoder = body_decoder_new(blocks ? BODY_NATIVE : coding);
    return true;
}

/* ---- what the statement is ---- */

static const char *find_parameter(void *arg, const char *name)
{
    struct front *front = arg;
    char *param = mem_printf("param_%s", name);
    const char *value = http_request_param(front->request, param);
    free(param);
    return value;
}

/* [0, len) of the text, its target written out if a parameter named it. */
static char *make_statement(const char *text, size_t len, const struct insert_head *head)
{
    struct buf out = {0};
    if (memchr(text + head->target_begin, '{', head->target_end - head->target_begin) == NULL) {
        buf_append(&out, text, len);
        return buf_take(&out);
    }
    buf_append(&out, text, head->target_begin);
    if (head->database) {
        sql_table(&out, head->database, head->table);
    } else {
        sql_identifier(&out, head->table);
    }
    buf_append(&out, text + head->target_end, len - head->target_end);
    return buf_take(&out);
}

/* The statement ends in the URL, or is all there is: the body has the rows. */
static void write_from_query(struct front *front, const struct insert_head *head)
{
    const char *text = buf_str(&front->text);
    size_t len = front->body_at ? front->body_at - 1 : front->text.len;
    front->statement = make_statement(text, len < head->end ? len : head->end, head);
    if (front->text.len > front->body_at && front->body_at)
        buf_append(&front->rows, text + front->body_at, front->text.len - front->body_at);
    front_write(front);
}

/* It ends in the body, in front of the rows. */
static void write_from_body(struct front *front, const struct insert_head *head)
{
    const char *text = buf_str(&front->text);
    size_t len = front->text.len;
    size_t rows = insert_head_rows(text, len, head);
    front->statement =
        make_statement(text, head->data_begin < head->end ? head->data_begin : head->end, head);
    if (rows < len && head->end == len)
        buf_append(&front->rows, text + rows, len - rows);
    front_write(front);
}

/* Is the statement complete? The whole body is in the text when `whole`. */
static bool try_insert(struct front *front, bool whole)
{
    struct insert_head head = {0};
    struct error error = {0};
    const char *text = buf_str(&front->text);
    size_t len = front->text.len;
    /* A statement that is complete in the URL; body_at is behind it and a line end. */
    if (front->body_at && insert_head_parse_with(text, front->body_at - 1, find_parameter, front,
                                                 &head, &error) == 0) {
        write_from_query(front, &head);
        insert_head_clear(&head);
        return true;
    }
    error_clear(&error);
    bool done = false;
    int code = insert_head_parse_with(text, len, find_parameter, front, &head, &error);
    if (code == 0 && (whole || (head.source != INSERT_SELECT && head.data_begin < len))) {
        write_from_body(front, &head);
        done = true;
    } else if (whole) {
        front_answer_error(front, code, error_message(&error));
        done = true;
    }
    insert_head_clear(&head);
    error_clear(&error);
    return done;
}

/* True when it was decided (the front may be gone). */
static bool decide(struct front *front, bool whole)
{
    if (!whole && front->text.len < front->try_again)
        return false;
    front->try_again =
        front->text.len + front->text.len / 8 + 1; /* not at every byte of a dribble */
    switch (insert_head_kind(buf_str(&front->text), front->text.len, whole)) {
    case INSERT_KIND_OTHER:
        front_pass(front);
        return true;
    case INSERT_KIND_INSERT:
        if (try_insert(front, whole))
            return true;
        break;
    case INSERT_KIND_UNREADABLE:
        front_answer_error(
            front, CHXA_E_INVALID_QUERY,
            "what begins like this is no statement that is read here, so that it "
            "cannot be told whether it inserts; inside a transaction it is not passed on");
        return true;
    case INSERT_KIND_UNDECIDED:
        break;
    }
    if (front->text.len < STATEMENT_BYTES_MAX)
        return false;
    front_answer_error(front, CHXA_E_INVALID_QUERY,
                       "no complete head of a statement in the first MiB of the body");
    return true;
}

static size_t front_bytes(const struct front *front)
{
    size_t decoder = front->decoder ? body_decoder_memory(front->decoder) : 0;
    return decoder + front->raw.cap + front->text.cap + front->rows.cap;
}

void front_count(struct front *front)
{
    size_t bytes = front_bytes(front);
    if (bytes < front->held)
        budget_hold(front->budget, &front->held, bytes);
}

int front_decode(struct front *front, char *to, size_t room, size_t *ret_len, struct error *error)
{
    int code = body_decoder_take(front->decoder, to, room, ret_len, error);
    /* Counted when it is there: one step of one body at a time may be over the limit. */
    size_t bytes = front_bytes(front);
    if (code || budget_hold(front->budget, &front->held, bytes))
        return code;
    metrics_count(METRIC_body_memory_short_total, 1, "refused", NULL);
    if (bytes > front->budget->bytes_max)
        return error_set(error, CHXA_E_UNSUPPORTED_ENCODING,
                         "unpacking the body takes %zu bytes, more than body_memory_bytes_max",
                         bytes);
    return error_set(error, CHXA_E_BUSY,
                     "the bodies under way hold all the memory that they may "
                     "(body_memory_bytes_max)");
}

/* Decodes what has come. False: it was decided, or answered. */
static bool sniff(struct front *front, bool whole)
{
    char piece[SNIFF_BYTES];
    struct error error = {0};
    size_t len = 0;
    int code;
    while ((code = front_decode(front, piece, sizeof piece, &len, &error)) == 0 && len) {
        buf_append(&front->text, piece, len);
        if (decide(front, false))
            return false;
    }
    if (code == 0 && whole)
        code = body_decoder_end(front->decoder, &error);
    if (code) {
        front_answer_error(front, code, error_message(&error));
        error_clear(&error);
        return false;
    }
    return !whole || !decide(front, true);
}

/* ---- the body ---- */

static void body_data(struct http_request *request, void *arg, const char *data, size_t len)
{
    struct front *front = arg;
    switch (front->state) {
    case FRONT_SNIFFING:
        if (!buf_append(&front->raw, data, len)) {
            front_answer_error(front, CHXA_E_INVALID_QUERY,
                               "no statement in the first 4 MiB of the body");
            return;
        }
        body_decoder_put(front->decoder, data, len);
        sniff(front, false);
        break;
    case FRONT_WRITING:
        if (front->clear && front->wanted && !front->ended)
            coord_write_data(front->write, data, len);
        else
            body_decoder_put(front->decoder, data, len);
        front_feed(front);
        break;
    case FRONT_PASSING:
        if (!ch_pass_write(front->pass, data, len))
            http_request_pause(request);
        break;
    }
}

static void body_end(struct http_request *request, void *arg)
{
    struct front *front = arg;
    (void)request;
    front->body_over = true;
    switch (front->state) {
    case FRONT_SNIFFING:
        sniff(front, true);
        break;
    case FRONT_WRITING:
        front_feed(front);
        break;
    case FRONT_PASSING:
        ch_pass_end(front->pass);
        break;
    }
}

static void body_abort(struct http_request *request, void *arg, int code)
{
    struct front *front = arg;
    (void)request;
    switch (front->state) {
    case FRONT_SNIFFING:
        front_answer_error(front, code, chxa_error_text(code));
        break;
    case FRONT_WRITING:
        if (front->write)
            coord_write_abort(front->write, code);
        break;
    case FRONT_PASSING:
        ch_pass_cancel(front->pass);
        break;
    }
}

void front_read(struct front *front)
{
    static const struct http_body_handler handler = {body_data, body_end, body_abort};
    if (front->reading) {
        http_request_resume(front->request);
        return;
    }
    front->reading = true;
    uint64_t bytes_max = front->state == FRONT_PASSING ? 0 : front->call->api->body_bytes_max;
    http_request_read(front->request, &handler, bytes_max, front);
}

/* ---- the beginning ---- */

void api_clickhouse(struct api_call *call)
{
    struct front *front = mem_alloc(sizeof *front);
    struct http_request *request = call->request;
    const char *method = http_request_method(request);
    front->call = call;
    front->budget = call->api->budget;
    front->request = request;
    front->raw.bytes_max = RAW_BYTES_MAX;
    if (!check_own_names(front) || !read_names(front))
        return;
    bool ours = *front->xid || front->implicit;
    bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    bool posts = strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0;
    if (ours && !check_statement_names(front))
        return;
    /* A path may be a handler with a statement of its own. */
    if (*front->xid && !reads && strcmp(http_request_path(request), "/") != 0) {
        front_answer_error(front, CHXA_E_INVALID_REQUEST,
                           "inside a transaction, statements are taken at / only");
        return;
    }
    /* A form's statement is one of its parts. ClickHouse changes nothing for a GET; for what else is
     * no statement of ours to read, it is told to change nothing. */
    front->reads_only = ours && (!posts || front_has_form(request));
    if (!ours || front->reads_only) {
        front_pass(front);
        return;
    }
    if (!make_decoder(front))
        return;
    const char *query = http_request_param(request, "query");
    if (query && *query) {
        buf_printf(&front->text, "%s\n", query);
        front->body_at = front->text.len;
    }
    if (http_request_body_bytes(request) == 0) {
        front->body_over = true;
        decide(front, true);
    } else if (front->body_at == 0 || !decide(front, false)) {
        front_read(front);
    }
}
