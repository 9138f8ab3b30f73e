/* SPDX-License-Identifier: Apache-2.0
 *
 * The ZooKeeper store (being written).
 */
#include "store/store_impl.h"

#include <stdlib.h>

int store_zookeeper_open(uv_loop_t *loop, const struct store_config *config, const char *location,
                         store_event_cb *on_event, void *arg, struct store **ret_store,
                         struct error *error)
{
    (void)loop, (void)config, (void)on_event, (void)arg, (void)ret_store;
    char *hosts, *chroot;
    int code = store_uri_zookeeper(location, &hosts, &chroot, error);
    if (code)
        return code;
    free(hosts);
    free(chroot);
    return error_set(error, CHXA_E_STORE_UNAVAILABLE, "the ZooKeeper store is not built in yet");
}
