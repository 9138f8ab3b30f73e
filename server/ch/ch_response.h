/* SPDX-License-Identifier: Apache-2.0
 *
 * What ClickHouse answered: collects the head and the (bounded) body of one response and tells an
 * exception from a success. Pure; any thread. ch_http.c feeds it.
 */
#ifndef CHXA_CH_CH_RESPONSE_H
#define CHXA_CH_CH_RESPONSE_H

#include "base/buf.h"

struct ch_response {
    int status;           /* of the last status line; 0: none yet */
    bool head_done;       /* its head is complete and it is not a 1xx */
    int header_exception; /* X-ClickHouse-Exception-Code; 0: none; -1: there, but not a number */
    bool chunked;
    bool has_length;
    unsigned long long length; /* Content-Length */
    char *summary;             /* X-ClickHouse-Summary or NULL */
    char *query_id;            /* X-ClickHouse-Query-Id or NULL */
    struct buf body;           /* its bytes_max is the limit */
    bool body_cut;             /* the limit was reached: the rest was dropped */
};

void ch_response_clear(struct ch_response *response);
/* One line of the head with or without its line end; a status line starts over, an empty line ends
 * the head. */
void ch_response_line(struct ch_response *response, const char *line, size_t len);
void ch_response_body(struct ch_response *response, const char *data, size_t len);
/* Reads a whole response from raw HTTP/1.1 bytes (what was left in a socket that could no longer be
 * written to). False when they hold no complete head of a final response. The body may be cut. */
bool ch_response_raw(struct ch_response *response, const char *data, size_t len);

/* True when this is an exception of ClickHouse's, whatever the status; *ret_code is its number (0
 * when it cannot be told) and *ret_text its text, which points into the body. */
bool ch_response_exception(const struct ch_response *response, int *ret_code,
                           const char **ret_text);
/* Length of an exception's text without the line ends and blanks behind it. */
size_t ch_response_trimmed(const char *text);

#endif
