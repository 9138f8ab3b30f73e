/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a node's lock away from under its holder; a plain client of ZooKeeper. Blocking.
 */
#ifndef CHXA_TESTS_CONTRACT_STORE_LOCK_LAB_H
#define CHXA_TESTS_CONTRACT_STORE_LOCK_LAB_H

#include "contract/store/store_lab.h"

#define THREADED
#include <zookeeper/zookeeper.h>

static inline void raw_event(zhandle_t *zh, int type, int state, const char *path, void *arg)
{
    (void)zh, (void)type, (void)path;
    if (state == ZOO_CONNECTED_STATE)
        __atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static inline zhandle_t *raw_open(void)
{
    static int connected;
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *zh = zookeeper_init(lab_zookeeper(), raw_event, 4000, NULL, &connected, 0);
    for (int i = 0; i < 500 && !__atomic_load_n(&connected, __ATOMIC_SEQ_CST); i++)
        usleep(10000);
    return zh;
}

/* Takes the lock away from under its holder, as an operator's slip or a lost session would. */
static inline void lock_steal(struct lab *lab, const char *node)
{
    char *path;
    if (lab->kind == LAB_SQLITE) {
        path = mem_printf("%s/%s.db.%s.lock", lab_tmp(), lab->cluster, node);
        ck_assert_int_eq(unlink(path), 0);
    } else {
        zhandle_t *zh = raw_open();
        path = mem_printf("/chxa-test/deep/%s/nodes/%s", lab->cluster, node);
        ck_assert_int_eq(zoo_delete(zh, path, -1), ZOK);
        zookeeper_close(zh);
    }
    free(path);
}

#endif
