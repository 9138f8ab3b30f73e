/* SPDX-License-Identifier: Apache-2.0
 *
 * See reply.h.
 */
#include "http/reply.h"

#include "base/clock.h"
#include "proto/record_check.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const struct {
    int status;
    const char *text;
} status_texts[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
};

static const char *status_text(int status)
{
    for (size_t i = 0; i < sizeof status_texts / sizeof *status_texts; i++)
        if (status_texts[i].status == status)
            return status_texts[i].text;
    return "Status";
}

/* RFC 9110 section 5.6.7; not strftime, whose names depend on the locale. */
static void put_date(struct buf *out)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t seconds = (time_t)(clock_wall_ms() / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    buf_printf(out, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", days + 3 * tm.tm_wday,
               tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
               tm.tm_sec);
}

static bool token_valid(const char *name)
{
    if (*name == '\0')
        return false;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c <= 0x20 || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c))
            return false;
    }
    return true;
}

bool http_reply_headers_valid(const struct http_header *headers, size_t n_headers)
{
    for (size_t i = 0; i < n_headers; i++) {
        if (headers[i].name == NULL || headers[i].value == NULL || !token_valid(headers[i].name))
            return false;
        for (const char *c = headers[i].value; *c; c++)
            if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7f)
                return false;
    }
    return true;
}

static bool is_ours(const struct http_reply *reply, const char *name)
{
    static const char *const names[] = {"Content-Length", "Transfer-Encoding", "Connection",
                                        "Keep-Alive", "Date"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return reply->content_type && strcasecmp("Content-Type", name) == 0;
}

bool http_reply_has_body(int status)
{
    return status >= 200 && status != 204 && status != 304;
}

void http_reply_head(struct buf *out, const struct http_reply *reply)
{
    buf_printf(out, "HTTP/1.1 %d %s\r\n", reply->status, status_text(reply->status));
    put_date(out);
    if (reply->content_type)
        buf_printf(out, "Content-Type: %s\r\n", reply->content_type);
    for (size_t i = 0; i < reply->n_headers; i++)
        if (!is_ours(reply, reply->headers[i].name))
            buf_printf(out, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
    if (http_reply_has_body(reply->status)) {
        if (reply->body_bytes >= 0)
            buf_printf(out, "Content-Length: %" PRId64 "\r\n", reply->body_bytes);
        else if (reply->chunked)
            buf_puts(out, "Transfer-Encoding: chunked\r\n");
    }
    if (reply->keep_alive)
        buf_printf(out, "Connection: keep-alive\r\nKeep-Alive: timeout=%" PRIu64 "\r\n\r\n",
                   reply->keep_alive_ms / 1000);
    else
        buf_puts(out, "Connection: close\r\n\r\n");
}

/* ---- the error object ---- */

/* ClickHouse's own text may hold any bytes of the user's data: what is not UTF-8 becomes U+FFFD. */
static void put_json_string(struct buf *out, const char *text)
{
    buf_puts(out, "\"");
    while (*text) {
        size_t len = chxa_utf8_step(text);
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n')
            buf_puts(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else if (len == 0)
            buf_puts(out, "\\ufffd");
        else
            buf_append(out, text, len);
        text += len ? len : 1;
    }
    buf_puts(out, "\"");
}

void http_reply_error_json(struct buf *out, const struct error *error)
{
    buf_puts(out, "{\"error\":{\"code\":");
    put_json_string(out, chxa_error_name(error->code));
    buf_puts(out, ",\"message\":");
    put_json_string(out, error_message(error));
    buf_printf(out, ",\"retryable\":%s,\"outcome\":\"%s\"}}\n",
               chxa_error_retryable(error->code) ? "true" : "false",
               chxa_error_outcome_known(error->code) ? "known" : "unknown");
}
