/* SPDX-License-Identifier: Apache-2.0
 *
 * The REST API: finds the route of a request and calls its handler (routes.def), which asks the
 * coordinator and answers as openapi.yaml says.
 *
 * Threads: the loop's. One struct api per process, alive as long as the server.
 */
#ifndef CHXA_HTTP_API_H
#define CHXA_HTTP_API_H

#include "ch/ch_http_pass.h"
#include "http/http.h"
#include "op/coord.h"
#include "op/watch.h"

/* In the order of the config key's choices. */
enum api_passthrough { API_PASS_ALL, API_PASS_READS, API_PASS_NONE };

struct api {
    struct coord *coord;
    const struct watch *watch; /* of ClickHouse; NULL before the first recovery */
    uint64_t wait_ms_default, wait_ms_max;
    size_t meta_bytes_max;
    uint64_t body_bytes_max; /* of a write; 0: no limit */
    struct budget *budget;   /* of what bodies under way hold */
    /* the ClickHouse-compatible endpoint */
    struct ch_passer *passer;
    enum api_passthrough passthrough;
    bool implicit_transactions;
};

/* The handler to give to http_server_start, with a struct api as its arg. */
void api_handle(struct http_request *request, void *api);

#endif
