/* SPDX-License-Identifier: Apache-2.0
 *
 * What the store's tests share: a loop, stores opened on it as nodes of one cluster, requests that
 * are waited for, and records to put in. One lab per test (libcheck runs each in a process of its
 * own); everything aborts the test with a message when it takes longer than LAB_LIMIT_MS.
 */
#ifndef CHXA_TESTS_CONTRACT_STORE_LAB_H
#define CHXA_TESTS_CONTRACT_STORE_LAB_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "lib/suite.h"
#include "store/store.h"
#include "store/store_settle.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LAB_LIMIT_MS 30000u
#define LAB_NODES    8u

enum lab_kind { LAB_SQLITE, LAB_ZOOKEEPER };

struct lab_node {
    struct store *store;
    unsigned n_ready, n_lost, n_refused;
    char detail[512];
    bool closed;
};

struct lab {
    enum lab_kind kind;
    uv_loop_t loop;
    uv_timer_t guard;
    char cluster[64];
    char *uri;
    struct store_config config;
    struct lab_node nodes[LAB_NODES];
    unsigned n_nodes;
};

static inline void lab_too_long(uv_timer_t *guard)
{
    (void)guard;
    ck_abort_msg("the test waited too long");
}

/* The environment's, or NULL. */
static inline const char *lab_zookeeper(void)
{
    return getenv("CHXA_TEST_ZOOKEEPER");
}

static inline const char *lab_tmp(void)
{
    const char *tmp = getenv("CHXA_TEST_TMP");
    return tmp ? tmp : "/tmp";
}

/* How many kinds of store there are to test: a loop test's _i is an enum lab_kind below it. */
static inline int lab_kinds(void)
{
    return lab_zookeeper() ? 2 : 1;
}

/*
 * A test program's main: `add` puts its tests into the one case there is. 77, ctest's word for skipped, when all went well and
 * there was no ZooKeeper.
 */
static inline int lab_main(const char *name, void (*add)(TCase *tests))
{
    Suite *suite = suite_create(name);
    TCase *tests = tcase_create(name);
    tcase_set_timeout(tests, 100);
    add(tests);
    suite_add_tcase(suite, tests);
    if (suite_run(suite) != 0)
        return 1;
    if (lab_kinds() == 2)
        return 0;
    puts("CHXA_TEST_ZOOKEEPER is not set: SQLite only");
    return 77;
}

/* zookeeper: another address than the environment's (a proxy), or NULL. */
static inline void lab_open(struct lab *lab, enum lab_kind kind, const char *zookeeper)
{
    static unsigned count;
    memset(lab, 0, sizeof *lab);
    lab->kind = kind;
    ck_assert_int_eq(uv_loop_init(&lab->loop), 0);
    uv_timer_init(&lab->loop, &lab->guard);
    uv_unref((uv_handle_t *)&lab->guard);
    snprintf(lab->cluster, sizeof lab->cluster, "c%d-%u-%llx", (int)getpid(), count++,
             (unsigned long long)clock_wall_ms());
    if (kind == LAB_SQLITE)
        lab->uri = mem_printf("sqlite:%s/%s.db", lab_tmp(), lab->cluster);
    else
        lab->uri =
            mem_printf("zookeeper:%s/chxa-test/deep", zookeeper ? zookeeper : lab_zookeeper());
    lab->config = (struct store_config){.uri = lab->uri,
                                        .cluster = lab->cluster,
                                        .node = "n1",
                                        .url = "http://127.0.0.1:1/",
                                        .session_timeout_ms = 4000,
                                        .operation_timeout_ms = 3000,
                                        .queue_max = 1000,
                                        .fsync = true};
}

static inline void lab_event(void *arg, enum store_event event, const char *detail)
{
    struct lab_node *node = arg;
    ck_assert_ptr_nonnull(detail);
    snprintf(node->detail, sizeof node->detail, "%s", detail);
    node->n_ready += event == STORE_READY;
    node->n_lost += event == STORE_LOST;
    node->n_refused += event == STORE_REFUSED;
}

/* Runs the loop until *flag. */
static inline void lab_wait(struct lab *lab, const bool *flag)
{
    uv_timer_start(&lab->guard, lab_too_long, LAB_LIMIT_MS, 0);
    while (!*flag)
        uv_run(&lab->loop, UV_RUN_ONCE);
    uv_timer_stop(&lab->guard);
}

static inline void lab_wait_count(struct lab *lab, const unsigned *count, unsigned value)
{
    uv_timer_start(&lab->guard, lab_too_long, LAB_LIMIT_MS, 0);
    while (*count < value)
        uv_run(&lab->loop, UV_RUN_ONCE);
    uv_timer_stop(&lab->guard);
}

static inline void lab_pause_done(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static inline void lab_pause(struct lab *lab, uint64_t ms)
{
    bool done = false;
    uv_timer_t timer;
    uv_timer_init(&lab->loop, &timer);
    timer.data = &done;
    uv_timer_start(&timer, lab_pause_done, ms, 0);
    lab_wait(lab, &done);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&lab->loop, UV_RUN_NOWAIT);
}

/* Opens a store as that node; does not wait. */
static inline struct lab_node *lab_start(struct lab *lab, const char *name)
{
    ck_assert_uint_lt(lab->n_nodes, LAB_NODES);
    struct lab_node *node = &lab->nodes[lab->n_nodes++];
    lab->config.node = name;
    struct error error = {0};
    int code = store_open(&lab->loop, &lab->config, lab_event, node, &node->store, &error);
    ck_assert_msg(code == 0, "store_open: %s", error_message(&error));
    ck_assert_uint_eq(node->n_ready + node->n_lost + node->n_refused, 0); /* never inside */
    return node;
}

static inline struct lab_node *lab_node(struct lab *lab, const char *name)
{
    struct lab_node *node = lab_start(lab, name);
    lab_wait_count(lab, &node->n_ready, 1);
    ck_assert(store_is_ready(node->store));
    return node;
}

static inline void lab_node_closed(void *arg)
{
    struct lab_node *node = arg;
    ck_assert(!node->closed);
    node->closed = true;
    node->store = NULL;
}

static inline void lab_stop(struct lab *lab, struct lab_node *node)
{
    store_close(node->store, lab_node_closed, node);
    ck_assert(!node->closed); /* never inside */
    lab_wait(lab, &node->closed);
}

static inline void lab_close(struct lab *lab)
{
    for (unsigned i = 0; i < lab->n_nodes; i++)
        if (lab->nodes[i].store)
            lab_stop(lab, &lab->nodes[i]);
    uv_close((uv_handle_t *)&lab->guard, NULL);
    uv_run(&lab->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&lab->loop), 0); /* no handle is left */
    free(lab->uri);
}

/* ---- requests that are waited for ---- */

/* One answer; clear record. A list's fills records and next. */
struct lab_answer {
    bool done;
    unsigned n_calls;
    int code;
    int64_t version;
    bool has_record;
    struct chxa_record record;
    struct chxa_record *records;
    size_t n_records;
    char *next;
};

static inline void lab_answer_clear(struct lab_answer *answer)
{
    chxa_record_clear(&answer->record);
    for (size_t i = 0; i < answer->n_records; i++)
        chxa_record_clear(&answer->records[i]);
    free(answer->records);
    free(answer->next);
    memset(answer, 0, sizeof *answer);
}

static inline void lab_answered(void *arg, const struct store_result *result)
{
    struct lab_answer *answer = arg;
    answer->n_calls++;
    ck_assert_uint_eq(answer->n_calls, 1);
    answer->done = true;
    answer->code = result->code;
    answer->version = result->version;
    if (result->record) {
        answer->has_record = true;
        answer->record = *result->record;
        *result->record = (struct chxa_record){0};
    }
}

static inline void lab_listed(void *arg, const struct store_list_result *result)
{
    struct lab_answer *answer = arg;
    answer->done = true;
    answer->code = result->code;
    answer->n_records = result->n_records;
    answer->records = mem_array(result->n_records, sizeof *answer->records);
    for (size_t i = 0; i < result->n_records; i++) {
        answer->records[i] = result->records[i];
        result->records[i] = (struct chxa_record){0};
    }
    answer->next = mem_strdup(result->next);
}

/* The code of a request; the answer's record goes to *ret_record when that is not NULL. */
static inline int lab_finish(struct lab *lab, struct lab_answer *answer)
{
    ck_assert(!answer->done); /* never inside the call */
    lab_wait(lab, &answer->done);
    return answer->code;
}

static inline struct lab_answer lab_get(struct lab *lab, struct lab_node *node, const char *xid)
{
    struct lab_answer answer = {0};
    store_get(node->store, xid, lab_answered, &answer);
    lab_finish(lab, &answer);
    return answer;
}

static inline int lab_create(struct lab *lab, struct lab_node *node,
                             const struct chxa_record *record)
{
    struct lab_answer answer = {0};
    store_create(node->store, record, lab_answered, &answer);
    int code = lab_finish(lab, &answer);
    lab_answer_clear(&answer);
    return code;
}

/* On success record->version is the new one. */
static inline int lab_cas(struct lab *lab, struct lab_node *node, struct chxa_record *record)
{
    struct lab_answer answer = {0};
    store_cas(node->store, record, NULL, lab_answered, &answer);
    int code = lab_finish(lab, &answer);
    if (code == 0) {
        ck_assert_int_gt(answer.version, record->version);
        record->version = answer.version;
    }
    lab_answer_clear(&answer);
    return code;
}

static inline int lab_add_write(struct lab *lab, struct lab_node *node, const char *xid,
                                int64_t version, const struct chxa_write *write)
{
    struct lab_answer answer = {0};
    store_add_write(node->store, xid, version, NULL, write, lab_answered, &answer);
    int code = lab_finish(lab, &answer);
    if (code == 0)
        ck_assert_int_eq(answer.version, version);
    lab_answer_clear(&answer);
    return code;
}

static inline int lab_remove(struct lab *lab, struct lab_node *node, const char *xid,
                             int64_t version)
{
    struct lab_answer answer = {0};
    store_remove(node->store, xid, version, lab_answered, &answer);
    return lab_finish(lab, &answer);
}

static inline struct lab_answer lab_list(struct lab *lab, struct lab_node *node,
                                         const struct store_filter *filter)
{
    struct lab_answer answer = {0};
    store_list(node->store, filter, lab_listed, &answer);
    lab_finish(lab, &answer);
    return answer;
}

/* ---- records ---- */

static inline struct chxa_record lab_record(const char *xid, const char *owner)
{
    static unsigned count;
    return (struct chxa_record){.xid = mem_strdup(xid),
                                .state = CHXA_INITIALIZED,
                                .owner = mem_strdup(owner),
                                .owner_url = mem_strdup("http://127.0.0.1:1/"),
                                .node_epoch = 1,
                                .op_id = mem_printf("op-%d-%u", (int)getpid(), count++),
                                .created_ms = 1000,
                                .changed_ms = 1000};
}

static inline void lab_record_set(struct chxa_record *record, enum chxa_state state,
                                  const char *op_id)
{
    record->state = state;
    mem_replace(&record->op_id, op_id);
}

/* A write of n_parts parts; a part is about 250 bytes of text. */
static inline struct chxa_write lab_write(uint64_t seq, size_t n_parts)
{
    struct chxa_write write = {.write_id = mem_printf("w-%llu", (unsigned long long)seq),
                               .seq = seq,
                               .time_ms = 1000,
                               .rows = n_parts * 10,
                               .bytes = n_parts * 100,
                               .n_parts = n_parts};
    write.target.database = mem_strdup("d\"'`");
    write.target.table = mem_strdup("t\xc3\xa9\xe2\x82\xac");
    write.target.schema = mem_strdup("fingerprint");
    write.target.n_roots = 1;
    write.target.roots = mem_array(1, sizeof *write.target.roots);
    write.target.roots[0] = mem_strdup("/disk/chxa");
    memset(write.query_hash, 'a', CHXA_HASH_HEX_BYTES);
    memset(write.body_hash, 'b', CHXA_HASH_HEX_BYTES);
    write.parts = mem_array(n_parts, sizeof *write.parts);
    for (size_t i = 0; i < n_parts; i++) {
        struct chxa_part *part = &write.parts[i];
        unsigned long long number = 1000000000000000ull + seq * 100000 + i;
        part->name = mem_printf("201801_%llu_%llu_0", number, number);
        part->partition_id = mem_strdup("201801");
        part->number = number;
        part->rows = 10;
        part->bytes = 100;
        part->inode = 12345 + i;
        memset(part->checksum, 'c', CHXA_HASH_HEX_BYTES);
    }
    return write;
}

static inline void lab_same_write(const struct chxa_write *a, const struct chxa_write *b)
{
    char *left, *right;
    ck_assert_int_eq(chxa_write_encode(a, &left), 0);
    ck_assert_int_eq(chxa_write_encode(b, &right), 0);
    ck_assert_str_eq(left, right);
    free(left);
    free(right);
}

#endif
