/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target of what parses requests (head, target, body framing; no sockets): a stream of bytes
 * is read as pipelined requests, whole, byte by byte and in odd pieces, which must give the same;
 * and what is accepted must be free of what lets two parsers disagree. Corpus: corpus/http,
 * replayed by tests/unit/http.
 *
 *   cd tests/fuzz && clang -g -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I../.. \
 *       -I../../server -I/usr/share/include/llhttp fuzz_http.c \
 *       ../../server/http/{head,target,body}.c ../../server/base/{buf,error,mem}.c \
 *       ../../proto/errors.c /usr/share/llhttp/{api,http,llhttp}.c -o /tmp/fuzz_http
 *   /tmp/fuzz_http -max_total_time=120 -dict=http.dict /tmp/new corpus/http
 */
#include "base/buf.h"
#include "http/body.h"
#include "http/head.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http_head_limits limits = {2000, 600, 20};

/* The next bytes, as if one read had brought them. A copy of its own, so that a sanitizer sees
 * reads behind it. */
struct feed {
    const char *data;
    size_t left;
    size_t step;
};

static char *feed_next(const struct feed *feed, size_t *ret_len)
{
    *ret_len = feed->left < feed->step ? feed->left : feed->step;
    char *copy = malloc(*ret_len ? *ret_len : 1);
    assert(copy);
    memcpy(copy, feed->data, *ret_len);
    return copy;
}

static void feed_used(struct feed *feed, size_t used)
{
    assert(used <= feed->left);
    feed->data += used;
    feed->left -= used;
}

/* What is asserted of a head before it is parsed. */
static void check_bytes(const struct buf *head)
{
    assert(head->len <= limits.head_bytes_max && head->len >= 4);
    assert(memcmp(head->data + head->len - 4, "\r\n\r\n", 4) == 0);
    for (size_t i = 0; i < head->len; i++) {
        char c = head->data[i];
        assert(c != '\0');
        assert((c == '\n') == (i > 0 && head->data[i - 1] == '\r'));
        if (i > 0 && head->data[i - 1] == '\n')
            assert(c != ' ' && c != '\t');
    }
}

static unsigned count(const struct http_head *head, const char *name)
{
    unsigned n = 0;
    for (size_t i = 0; i < head->n_headers; i++)
        n += strcasecmp(head->headers[i].name, name) == 0;
    return n;
}

static void check_head(const struct http_head *head)
{
    unsigned lengths = count(head, "Content-Length");
    unsigned codings = count(head, "Transfer-Encoding");
    assert(lengths + codings <= 1 && head->minor <= 1);
    assert(head->framing != HTTP_FRAMING_CHUNKED || (codings == 1 && head->minor == 1));
    assert(head->framing != HTTP_FRAMING_LENGTH || (lengths == 1 && head->content_length));
    assert(head->framing != HTTP_FRAMING_NONE || (codings == 0 && head->content_length == 0));
    assert(count(head, "Host") == 1 || (head->minor == 0 && count(head, "Host") == 0));
    assert(strlen(head->target) <= limits.url_bytes_max && *head->target);
    assert(head->n_headers <= limits.headers_max && head->n_params <= HTTP_PARAMS_MAX);
    assert(*head->path == '/' || strcmp(head->path, "*") == 0);
    for (size_t i = 0; i < head->n_headers; i++) {
        assert(*head->headers[i].name && !strpbrk(head->headers[i].name, " \t\r\n:,;\"/"));
        assert(!strpbrk(head->headers[i].value, "\r\n"));
    }
}

static void describe(struct buf *out, const struct http_head *head)
{
    buf_printf(out, "%s %s %s %u%d%d %d %llu\n", head->method, head->target, head->path,
               head->minor, head->keep_alive, head->expect_continue, (int)head->framing,
               (unsigned long long)head->content_length);
    for (size_t i = 0; i < head->n_params; i++)
        buf_printf(out, "?%s=%s\n", head->params[i].name, head->params[i].value);
    for (size_t i = 0; i < head->n_headers; i++)
        buf_printf(out, "%s: %s\n", head->headers[i].name, head->headers[i].value);
}

/* False when the stream ended or was refused. */
static bool take_head(struct feed *feed, struct http_head *ret_head, struct buf *out)
{
    struct http_head_scan scan = {0};
    struct buf bytes = {0};
    struct error error = {0};
    int code = 0;
    while (feed->left && scan.state != HTTP_SCAN_DONE && code == 0) {
        size_t len;
        size_t used;
        size_t skip;
        char *piece = feed_next(feed, &len);
        code = http_head_scan(&scan, &limits, piece, len, &used, &skip, &error);
        if (code == 0) {
            assert(skip <= used && used <= len && used > 0);
            buf_append(&bytes, piece + skip, used - skip);
            feed_used(feed, used);
        }
        free(piece);
    }
    bool complete = scan.state == HTTP_SCAN_DONE && code == 0;
    if (complete) {
        check_bytes(&bytes);
        size_t len = bytes.len;
        code = http_head_parse(buf_take(&bytes), len, ret_head, &error);
    }
    if (code)
        buf_printf(out, "refused %d\n", code);
    error_clear(&error);
    buf_clear(&bytes);
    return complete && code == 0;
}

static bool take_body(struct feed *feed, const struct http_head *head, struct buf *out)
{
    struct http_body body;
    uint64_t content = 0;
    http_body_init(&body, head->framing, head->content_length);
    while (!body.done && feed->left) {
        size_t len;
        size_t used = 0;
        const char *data = NULL;
        size_t data_len = 0;
        const char *reason = NULL;
        char *piece = feed_next(feed, &len);
        bool sound = http_body_next(&body, piece, len, &used, &data, &data_len, &reason);
        if (!sound) {
            buf_printf(out, "broken: %s\n", reason);
            free(piece);
            return false;
        }
        assert(used <= len && used > 0 && data_len <= used);
        assert(data_len == 0 || data + data_len == piece + used);
        buf_append(out, data ? data : "", data_len);
        content += data_len;
        feed_used(feed, used);
        free(piece);
    }
    assert(head->framing != HTTP_FRAMING_LENGTH || content <= head->content_length);
    assert(head->framing != HTTP_FRAMING_LENGTH || body.done == (content == head->content_length));
    buf_printf(out, "\nbody %s\n", body.done ? "whole" : "cut");
    return body.done;
}

static struct buf transcript(const uint8_t *data, size_t size, size_t step)
{
    struct feed feed = {(const char *)data, size, step};
    struct buf out = {0};
    struct http_head head = {0};
    bool goes_on = true;
    while (goes_on && take_head(&feed, &head, &out)) {
        check_head(&head);
        describe(&out, &head);
        goes_on = take_body(&feed, &head, &out);
        http_head_clear(&head);
    }
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t steps[] = {1, 7, size % 61 + 2};
    struct buf whole = transcript(data, size, size + 1);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct buf pieces = transcript(data, size, steps[i]);
        assert(pieces.len == whole.len);
        assert(whole.len == 0 || memcmp(pieces.data, whole.data, whole.len) == 0);
        buf_clear(&pieces);
    }
    buf_clear(&whole);
    return 0;
}
