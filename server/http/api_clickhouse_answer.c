/* SPDX-License-Identifier: Apache-2.0
 *
 * The ClickHouse-compatible endpoint: answers in ClickHouse's words, which its clients read.
 */
#include "http/api_clickhouse.h"

#include "base/mem.h"
#include "base/metrics.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_TYPE "text/plain; charset=UTF-8"

/* Our errors as ClickHouse's (src/Common/ErrorCodes.cpp of its sources): the nearest one by what a
 * client does about it. */
static const struct {
    int code;
    int number;
    const char *name;
} exceptions[] = {
    {CHXA_E_INVALID_REQUEST, 36, "BAD_ARGUMENTS"},
    {CHXA_E_INVALID_XID, 36, "BAD_ARGUMENTS"},
    {CHXA_E_WRITE_ID_REUSED, 36, "BAD_ARGUMENTS"},
    {CHXA_E_INVALID_QUERY, 62, "SYNTAX_ERROR"},
    {CHXA_E_SETTING_REFUSED, 452, "SETTING_CONSTRAINT_VIOLATION"},
    {CHXA_E_BODY_TRUNCATED, 33, "CANNOT_READ_ALL_DATA"},
    {CHXA_E_UNSUPPORTED_ENCODING, 89, "UNKNOWN_COMPRESSION_METHOD"},
    {CHXA_E_BODY_TOO_LARGE, 307, "TOO_MANY_BYTES"},
    {CHXA_E_REQUEST_TIMEOUT, 159, "TIMEOUT_EXCEEDED"},
    {CHXA_E_TARGET_NOT_FOUND, 60, "UNKNOWN_TABLE"},
    {CHXA_E_TARGET_UNSUPPORTED, 48, "NOT_IMPLEMENTED"},
    {CHXA_E_TARGET_HAS_VIEWS, 48, "NOT_IMPLEMENTED"},
    {CHXA_E_TOO_MANY_PARTS, 252, "TOO_MANY_PARTS"},
    {CHXA_E_BUSY, 202, "TOO_MANY_SIMULTANEOUS_QUERIES"},
    {CHXA_E_NOT_READY, 210, "NETWORK_ERROR"},
    {CHXA_E_CLICKHOUSE_UNAVAILABLE, 210, "NETWORK_ERROR"},
    {CHXA_E_CLICKHOUSE_UNKNOWN, 319, "UNKNOWN_STATUS_OF_INSERT"},
    {CHXA_E_STORE_UNKNOWN, 319, "UNKNOWN_STATUS_OF_INSERT"},
    {CHXA_E_STORE_UNAVAILABLE, 999, "KEEPER_EXCEPTION"},
    {CHXA_E_BLOCKED, 319, "UNKNOWN_STATUS_OF_INSERT"},
    {CHXA_E_CANCELLED, 236, "ABORTED"},
    {CHXA_E_METHOD_NOT_ALLOWED, 164, "READONLY"},
    {CHXA_E_TXN_NOT_FOUND, 649, "INVALID_TRANSACTION"},
    {CHXA_E_WRONG_STATE, 649, "INVALID_TRANSACTION"},
    {CHXA_E_SCHEMA_CHANGED, 649, "INVALID_TRANSACTION"},
    {CHXA_E_PARTS_LOST, 649, "INVALID_TRANSACTION"},
    {CHXA_E_FENCED, 649, "INVALID_TRANSACTION"},
    {CHXA_E_ROLLBACK_ONLY, 649, "INVALID_TRANSACTION"},
    {CHXA_E_NOT_OWNER, 649, "INVALID_TRANSACTION"},
    {0, 49, "LOGICAL_ERROR"},
};

/* "Code: 27. …", "Code: 27, …": ClickHouse's own text keeps its number. 0: it has none. */
static int own_number(const char *message)
{
    if (strncmp(message, "Code: ", 6) != 0 || !isdigit((unsigned char)message[6]))
        return 0;
    long number = strtol(message + 6, NULL, 10);
    return number > 0 && number < 100000 ? (int)number : 0;
}

/* The headers of every answer; n of them at most FRONT_HEADERS. */
#define FRONT_HEADERS 4u

static size_t put_query_id(const struct front *front, struct http_header *headers)
{
    if (front->query_id == NULL)
        return 0;
    for (const char *c = front->query_id; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return 0;
    headers[0] = (struct http_header){"X-ClickHouse-Query-Id", front->query_id};
    return 1;
}

static void front_answer(struct front *front, int status, const struct http_header *headers,
                         size_t n_headers, const char *text)
{
    http_request_on_gone(front->request, NULL, NULL);
    api_answer(front->call, status, headers, n_headers, TEXT_TYPE, text, strlen(text));
    front_free(front);
}

/* Puts what every answer to a write has. */
static size_t put_written(struct front *front, bool replay, struct http_header *headers)
{
    if (front->query_id == NULL)
        front->query_id = mem_strdup(*front->write_id ? front->write_id : front->xid);
    size_t n = put_query_id(front, headers);
    headers[n++] = (struct http_header){"X-Chxa-Transaction", front->xid};
    if (replay)
        headers[n++] = (struct http_header){"X-Chxa-Replay", "true"};
    return n;
}

void front_answer_gathered(struct front *front, bool replay)
{
    struct http_header headers[FRONT_HEADERS];
    size_t n = put_written(front, replay, headers);
    headers[n++] = (struct http_header){"X-Chxa-Gathered", "true"};
    front_answer(front, 200, headers, n, "");
}

void front_answer_written(struct front *front, uint64_t rows, uint64_t bytes, bool replay)
{
    struct http_header headers[FRONT_HEADERS];
    char summary[256];
    size_t n = put_written(front, replay, headers);
    snprintf(summary, sizeof summary,
             "{\"read_rows\":\"%" PRIu64 "\",\"read_bytes\":\"%" PRIu64
             "\",\"written_rows\":\"%" PRIu64 "\",\"written_bytes\":\"%" PRIu64
             "\",\"total_rows_to_read\":\"0\",\"result_rows\":\"%" PRIu64
             "\",\"result_bytes\":\"%" PRIu64 "\"}",
             rows, bytes, rows, bytes, rows, bytes);
    headers[n++] = (struct http_header){"X-ClickHouse-Summary", summary};
    front_answer(front, 200, headers, n, "");
}

void front_answer_error(struct front *front, int code, const char *message)
{
    struct http_header headers[FRONT_HEADERS];
    char number_text[16];
    size_t i = 0;
    while (exceptions[i].code && exceptions[i].code != code)
        i++;
    int number = code == CHXA_E_CLICKHOUSE_REJECTED ? own_number(message) : 0;
    bool own = number != 0;
    if (!own)
        number = exceptions[i].number;
    char *text = own ? mem_printf("%s\n", message)
                     : mem_printf("Code: %d. DB::Exception: %s. (%s) (version chxa %s)\n", number,
                                  message, exceptions[i].name, CHXA_VERSION);
    size_t n = put_query_id(front, headers);
    snprintf(number_text, sizeof number_text, "%d", number);
    headers[n++] = (struct http_header){"X-ClickHouse-Exception-Code", number_text};
    headers[n++] = (struct http_header){"X-Chxa-Error", chxa_error_name(code)};
    if (chxa_error_retryable(code))
        headers[n++] = (struct http_header){"Retry-After", "1"};
    metrics_error(code);
    front_answer(front, chxa_error_http(code), headers, n, text);
    free(text);
}
