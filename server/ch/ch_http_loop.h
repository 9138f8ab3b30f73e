/* SPDX-License-Identifier: Apache-2.0
 *
 * libcurl's multi interface on a libuv loop: sockets and curl's timer. What is done with the
 * transfers is the user's (ch_http.c, ch_http_pass.c).
 *
 * Threads: the loop's. `progress` is called from the loop, never from inside a call of curl's, each
 * time curl may have finished something.
 */
#ifndef CHXA_CH_CH_HTTP_LOOP_H
#define CHXA_CH_CH_HTTP_LOOP_H

#include <curl/curl.h>
#include <stddef.h>
#include <uv.h>

struct ch_http_loop;

struct ch_http_loop_user {
    void (*progress)(void *arg);
    /* Or NULL: inside curl, when it changes what it waits for on a transfer's socket (CURL_POLL_…). */
    void (*watching)(void *arg, CURL *easy, curl_socket_t socket, int what);
    void *arg;
};

struct ch_http_loop *ch_http_loop_new(uv_loop_t *loop, size_t connections_max,
                                      const struct ch_http_loop_user *user);
/* What every transfer to ClickHouse has in common: HTTP/1.1 only, no redirect, no proxy of the environment, no
 * signal. Before it is added to the multi handle. */
void ch_http_loop_set_up(CURL *easy);
CURLM *ch_http_loop_multi(struct ch_http_loop *loop);
/* Calls progress on a later turn. */
void ch_http_loop_kick(struct ch_http_loop *loop);
/* No transfer may be in it any more. Frees, then calls on_closed, on a later turn. */
void ch_http_loop_close(struct ch_http_loop *loop, void (*on_closed)(void *arg), void *arg);

#endif
