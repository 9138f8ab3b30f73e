/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of the node itself: liveness, readiness, metrics, the list of nodes.
 */
#include "base/metrics.h"
#include "http/api_private.h"

#include <string.h>

void api_healthz(struct api_call *call)
{
    api_answer(call, 200, NULL, 0, "text/plain", "ok\n", 3);
}

void api_readyz(struct api_call *call)
{
    const char *why = coord_not_ready(call->api->coord);
    if (why == NULL)
        why = watch_why_down(call->api->watch);
    if (why)
        api_answer_error(call, CHXA_E_NOT_READY, "%s", why);
    else
        api_answer(call, 200, NULL, 0, "text/plain", "ready\n", 6);
}

void api_metrics(struct api_call *call)
{
    struct buf page = {0};
    metrics_render(&page);
    api_answer(call, 200, NULL, 0, METRICS_CONTENT_TYPE, buf_str(&page), page.len);
    buf_clear(&page);
}

static void nodes_listed(void *arg, const struct store_nodes_result *result)
{
    struct api_call *call = arg;
    if (result->code) {
        api_answer_error(call, result->code, "%s", chxa_error_text(result->code));
        return;
    }
    json_t *nodes = json_array();
    for (size_t i = 0; i < result->n_nodes; i++) {
        const struct store_node *node = &result->nodes[i];
        json_array_append_new(nodes,
                              json_pack("{s:s,s:s?,s:I,s:b}", "node", node->name, "url", node->url,
                                        "epoch", (json_int_t)node->epoch, "live", node->live));
    }
    api_answer_json(call, 200, json_pack("{s:o}", "nodes", nodes));
}

void api_nodes(struct api_call *call)
{
    store_nodes(coord_store(call->api->coord), nodes_listed, call);
}
