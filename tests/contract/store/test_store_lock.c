/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's lock and epoch: refusal, takeover, fencing, processes that are killed; both stores.
 * And what only ZooKeeper has: hosts that do not resolve, removals that were cut short.
 */
#include "contract/store/lock_lab.h"

#include <signal.h>
#include <sys/wait.h>

#define OTHER_URL "http://127.0.0.1:2/"

/* ---- two stores that want to be one node ---- */

START_TEST(second_is_refused_until_the_first_closes)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *first = lab_node(&lab, "n1");
    uint64_t epoch = store_epoch(first->store);
    ck_assert_uint_eq(epoch, 1);
    struct chxa_record record = lab_record("x", "n1");
    ck_assert_int_eq(lab_create(&lab, first, &record), 0);
    lab.config.url = OTHER_URL;
    struct lab_node *second = lab_start(&lab, "n1");
    lab_wait_count(&lab, &second->n_refused, 1);
    ck_assert_ptr_nonnull(strstr(second->detail, "n1"));
    ck_assert(!store_is_ready(second->store));
    struct lab_answer answer = lab_get(&lab, second, "x");
    ck_assert_int_eq(answer.code, CHXA_E_STORE_UNAVAILABLE);
    ck_assert_int_eq(lab_cas(&lab, second, &record), CHXA_E_STORE_UNAVAILABLE);
    lab_pause(&lab, 1000);
    ck_assert_uint_eq(second->n_refused, 1); /* said once */
    ck_assert_uint_eq(second->n_ready, 0);
    ck_assert_int_eq(lab_cas(&lab, first, &record), 0); /* the first is not disturbed */
    lab_stop(&lab, first);
    lab_wait_count(&lab, &second->n_ready, 1);
    ck_assert_uint_gt(store_epoch(second->store), epoch);
    ck_assert_int_eq(lab_cas(&lab, second, &record), 0);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

START_TEST(stale_holder_changes_nothing)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *stale = lab_node(&lab, "n1");
    struct chxa_record record = lab_record("x", "n1"), created = lab_record("y", "n1");
    struct chxa_write write = lab_write(1, 1);
    ck_assert_int_eq(lab_create(&lab, stale, &record), 0);
    lock_steal(&lab, "n1");
    lab.config.url = OTHER_URL;
    struct lab_node *owner = lab_node(&lab, "n1");
    ck_assert_uint_gt(store_epoch(owner->store), store_epoch(stale->store));

    /* All of them at once, before the first answer tells the store that it was replaced. */
    struct lab_answer answers[4] = {0};
    store_create(stale->store, &created, lab_answered, &answers[0]);
    store_cas(stale->store, &record, NULL, lab_answered, &answers[1]);
    store_add_write(stale->store, "x", 0, NULL, &write, lab_answered, &answers[2]);
    store_remove(stale->store, "x", 0, lab_answered, &answers[3]);
    ck_assert(!answers[0].done);
    unsigned n_conflicts = 0;
    for (int i = 0; i < 4; i++) {
        lab_wait(&lab, &answers[i].done);
        n_conflicts += answers[i].code == CHXA_E_STORE_CONFLICT;
        ck_assert(answers[i].code == CHXA_E_STORE_CONFLICT ||
                  answers[i].code == CHXA_E_STORE_UNAVAILABLE);
        ck_assert(!answers[i].has_record);
    }
    ck_assert_uint_ge(n_conflicts, 1);
    struct lab_answer answer = lab_get(&lab, owner, "x");
    ck_assert_int_eq(answer.code, 0);
    ck_assert_int_eq(answer.version, 0);
    ck_assert_uint_eq(answer.record.n_writes, 0);
    lab_answer_clear(&answer);
    answer = lab_get(&lab, owner, "y");
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    /* It says so, finds the other, and is the node again when that one leaves. */
    lab_wait_count(&lab, &stale->n_lost, 1);
    lab_wait_count(&lab, &stale->n_refused, 1);
    ck_assert_int_eq(lab_cas(&lab, owner, &record), 0);
    uint64_t epoch = store_epoch(owner->store);
    lab_stop(&lab, owner);
    lab_wait_count(&lab, &stale->n_ready, 2);
    ck_assert_uint_gt(store_epoch(stale->store), epoch);
    ck_assert_int_eq(lab_cas(&lab, stale, &record), 0);
    chxa_record_clear(&record);
    chxa_record_clear(&created);
    chxa_write_clear(&write);
    lab_close(&lab);
}
END_TEST

struct nodes_answer {
    bool done;
    int code;
    size_t n;
    struct store_node nodes[4];
};

static void nodes_listed(void *arg, const struct store_nodes_result *result)
{
    struct nodes_answer *answer = arg;
    answer->done = true;
    answer->code = result->code;
    answer->n = result->n_nodes;
    ck_assert_uint_le(answer->n, 4);
    for (size_t i = 0; i < answer->n; i++) {
        answer->nodes[i] = result->nodes[i];
        answer->nodes[i].name = mem_strdup(result->nodes[i].name);
        answer->nodes[i].url = mem_strdup(result->nodes[i].url);
    }
}

static void nodes_check(struct lab *lab, struct lab_node *node, bool first_live, uint64_t epoch)
{
    struct nodes_answer answer = {0};
    store_nodes(node->store, nodes_listed, &answer);
    lab_wait(lab, &answer.done);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.n, 2);
    int first = strcmp(answer.nodes[0].name, "n1") == 0 ? 0 : 1;
    ck_assert_str_eq(answer.nodes[first].name, "n1");
    ck_assert_str_eq(answer.nodes[!first].name, "n2");
    ck_assert_str_eq(answer.nodes[first].url, "http://127.0.0.1:1/");
    ck_assert_str_eq(answer.nodes[!first].url, OTHER_URL);
    ck_assert(answer.nodes[first].live == first_live);
    ck_assert(answer.nodes[!first].live);
    ck_assert_uint_eq(answer.nodes[first].epoch, epoch);
    ck_assert_uint_eq(answer.nodes[!first].epoch, 1);
    for (size_t i = 0; i < answer.n; i++) {
        free(answer.nodes[i].name);
        free(answer.nodes[i].url);
    }
}

START_TEST(epochs_grow_and_nodes_are_listed)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        struct lab_node *node = lab_node(&lab, "n1");
        ck_assert_uint_eq(store_epoch(node->store), epoch);
        lab_stop(&lab, node);
    }
    struct lab_node *node = lab_node(&lab, "n1");
    lab.config.url = OTHER_URL;
    struct lab_node *eyes = lab_node(&lab, "n2");
    nodes_check(&lab, eyes, true, 4);
    lab_stop(&lab, node);
    nodes_check(&lab, eyes, false, 4);
    lab_close(&lab);
}
END_TEST

/* ---- processes that are killed ---- */

#define CHILD_XIDS 2000

struct child {
    pid_t pid;
    int pipe;
    char cluster[64];
};

static void child_created(void *arg, const struct store_result *result)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    if (result->code == 0) {
        ssize_t n = write(1, &number, sizeof number);
        ck_assert_int_eq(n, sizeof number);
    }
}

/* Says its cluster, then the number of each record that was acknowledged; never ends by itself. */
static void child_main(enum lab_kind kind)
{
    struct lab lab;
    lab_open(&lab, kind, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    ssize_t n = write(1, lab.cluster, sizeof lab.cluster);
    ck_assert_int_eq(n, sizeof lab.cluster);
    for (unsigned i = 0; i < CHILD_XIDS; i++) {
        char xid[16];
        snprintf(xid, sizeof xid, "k%u", i);
        struct chxa_record record = lab_record(xid, "n1");
        store_create(node->store, &record, child_created, (void *)(uintptr_t)i);
        chxa_record_clear(&record);
        if (i % 7 == 0)
            uv_run(&lab.loop, UV_RUN_ONCE);
    }
    for (;;)
        uv_run(&lab.loop, UV_RUN_DEFAULT);
}

static struct child child_start(enum lab_kind kind)
{
    struct child child = {0};
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    child.pid = fork();
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        child_main(kind);
        _exit(1);
    }
    close(fds[1]);
    child.pipe = fds[0];
    ssize_t n = read(child.pipe, child.cluster, sizeof child.cluster);
    ck_assert_int_eq(n, sizeof child.cluster);
    return child;
}

static void child_kill(struct child *child)
{
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
}

/* The child's cluster, seen from here. */
static void lab_open_child(struct lab *lab, enum lab_kind kind, const struct child *child)
{
    lab_open(lab, kind, NULL);
    snprintf(lab->cluster, sizeof lab->cluster, "%s", child->cluster);
    free(lab->uri);
    lab->uri = kind == LAB_SQLITE ? mem_printf("sqlite:%s/%s.db", lab_tmp(), lab->cluster)
                                  : mem_printf("zookeeper:%s/chxa-test/deep", lab_zookeeper());
    lab->config.uri = lab->uri;
}

START_TEST(acknowledged_survives_a_kill)
{
    struct child child = child_start((enum lab_kind)_i);
    static bool acknowledged[CHILD_XIDS];
    unsigned number, n_acknowledged = 0;
    while (n_acknowledged < 500 && read(child.pipe, &number, sizeof number) == sizeof number) {
        acknowledged[number] = true;
        n_acknowledged++;
    }
    child_kill(&child);
    while (read(child.pipe, &number, sizeof number) == sizeof number)
        acknowledged[number] = true;
    close(child.pipe);
    ck_assert_uint_eq(n_acknowledged, 500);

    struct lab lab;
    lab_open_child(&lab, (enum lab_kind)_i, &child);
    uint64_t start_ms = clock_monotonic_ms();
    struct lab_node *node = lab_node(&lab, "n1"); /* the same URL: a quick restart */
    ck_assert_uint_eq(store_epoch(node->store), 2);
    /* What is left of a session that died is waited for, without calling it another process. */
    ck_assert_uint_eq(node->n_refused, 0);
    ck_assert_uint_lt(clock_monotonic_ms() - start_ms, 8000);
    for (unsigned i = 0; i < CHILD_XIDS; i++) {
        if (!acknowledged[i])
            continue;
        char xid[16];
        snprintf(xid, sizeof xid, "k%u", i);
        struct lab_answer answer = lab_get(&lab, node, xid);
        ck_assert_msg(answer.code == 0, "%s was acknowledged and is gone", xid);
        lab_answer_clear(&answer);
    }
    lab_close(&lab);
}
END_TEST

/* The same URL, and it does not go away: refused in the end, and taken over when it is killed. */
START_TEST(live_process_is_refused)
{
    struct child child = child_start((enum lab_kind)_i);
    struct lab lab;
    lab_open_child(&lab, (enum lab_kind)_i, &child);
    struct lab_node *node = lab_start(&lab, "n1");
    lab_wait_count(&lab, &node->n_refused, 1);
    ck_assert_uint_eq(node->n_ready, 0);
    child_kill(&child);
    close(child.pipe);
    lab_wait_count(&lab, &node->n_ready, 1);
    ck_assert_uint_eq(store_epoch(node->store), 2);
    lab_close(&lab);
}
END_TEST

/* ---- ZooKeeper only ---- */

START_TEST(hosts_that_do_not_resolve_do_not_matter)
{
    char *hosts = mem_printf("no-such-host.invalid:2181,%s,also.invalid", lab_zookeeper());
    struct lab lab;
    lab_open(&lab, LAB_ZOOKEEPER, hosts);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = lab_record("x", "n1");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    chxa_record_clear(&record);
    lab_close(&lab);
    free(hosts);
}
END_TEST

START_TEST(no_server_is_lost_and_tried_again)
{
    static const char *const hosts[] = {"no-such-host.invalid:2181", "127.0.0.1:1"};
    struct lab lab;
    lab_open(&lab, LAB_ZOOKEEPER, hosts[_i]);
    struct lab_node *node = lab_start(&lab, "n1");
    lab_wait_count(&lab, &node->n_lost, 1);
    lab_pause(&lab, 1500);
    ck_assert_uint_eq(node->n_lost, 1);
    struct lab_answer answer = {0};
    struct chxa_record record = lab_record("x", "n1");
    store_settle_create(node->store, &record, clock_monotonic_ms() + 500, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_UNAVAILABLE);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* A removal of many writes that was cut short leaves a record that can still be read and removed;
 * pieces of a large write that was never finished are not seen and go with the record. */
START_TEST(removal_can_be_resumed)
{
    struct lab lab;
    lab_open(&lab, LAB_ZOOKEEPER, NULL);
    lab.config.entry_bytes_max = 4096;
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = lab_record("x", "n1");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        struct chxa_write write = lab_write(seq, 50);
        ck_assert_int_eq(lab_add_write(&lab, node, "x", 0, &write), 0);
        chxa_write_clear(&write);
    }
    lab_record_set(&record, CHXA_ABORTED, "op");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);

    zhandle_t *zh = raw_open();
    char bucket_path[256], path[512], child[1024];
    struct String_vector children;
    bool found = false;
    for (unsigned i = 0; i < 256 && !found; i++) {
        snprintf(bucket_path, sizeof bucket_path, "/chxa-test/deep/%s/txns/%02x", lab.cluster, i);
        snprintf(path, sizeof path, "%s/x", bucket_path);
        found = zoo_get_children(zh, path, 0, &children) == ZOK;
    }
    ck_assert(found);
    ck_assert_int_gt(children.count, 9); /* in pieces */
    unsigned n_heads = 0;
    for (int i = 0; i < children.count; i++) {
        if (strncmp(children.data[i], "w-", 2) != 0 || n_heads++ == 1)
            continue; /* all heads but one */
        snprintf(child, sizeof child, "%s/%s", path, children.data[i]);
        ck_assert_int_eq(zoo_delete(zh, child, -1), ZOK);
    }
    deallocate_String_vector(&children);
    ck_assert_uint_eq(n_heads, 3);
    struct lab_answer answer = lab_get(&lab, node, "x");
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.record.n_writes, 1);
    lab_answer_clear(&answer);
    ck_assert_int_eq(lab_remove(&lab, node, "x", record.version), 0);
    ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), ZNONODE);
    zookeeper_close(zh);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* The znode of the index: there while the record is unfinished, also for another owner, and when
 * the record comes back from a finished state (which only an operator's hand could do). */
START_TEST(index_follows_the_record)
{
    struct lab lab;
    lab_open(&lab, LAB_ZOOKEEPER, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    zhandle_t *zh = raw_open();
    static const char *const owners[] = {"n1", "never-seen"};
    for (int i = 0; i < 2; i++) {
        struct chxa_record record = lab_record(i ? "b" : "a", owners[i]);
        char *path =
            mem_printf("/chxa-test/deep/%s/open/%s/%s", lab.cluster, owners[i], record.xid);
        static const enum chxa_state states[] = {CHXA_PREPARED,  CHXA_COMMITTING, CHXA_COMMITTED,
                                                 CHXA_COMMITTED, CHXA_PREPARED,   CHXA_ABORTED};
        ck_assert_int_eq(lab_create(&lab, node, &record), 0);
        ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), ZOK);
        for (size_t k = 0; k < sizeof states / sizeof states[0]; k++) {
            lab_record_set(&record, states[k], "op");
            ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
            bool open = chxa_state_kind(states[k]) != CHXA_KIND_FINAL;
            ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), open ? ZOK : ZNONODE);
        }
        ck_assert_int_eq(lab_remove(&lab, node, record.xid, record.version), 0);
        ck_assert_int_eq(lab_create(&lab, node, &record), 0);
        ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), ZNONODE); /* created finished */
        record.version = 0;
        lab_record_set(&record, CHXA_INITIALIZED, "op");
        ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
        ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), ZOK);
        ck_assert_int_eq(lab_remove(&lab, node, record.xid, record.version), 0);
        ck_assert_int_eq(zoo_exists(zh, path, 0, NULL), ZNONODE);
        free(path);
        chxa_record_clear(&record);
    }
    zookeeper_close(zh);
    lab_close(&lab);
}
END_TEST

static void add_tests(TCase *tests)
{
    int kinds = lab_kinds();
    tcase_add_loop_test(tests, second_is_refused_until_the_first_closes, 0, kinds);
    tcase_add_loop_test(tests, stale_holder_changes_nothing, 0, kinds);
    tcase_add_loop_test(tests, epochs_grow_and_nodes_are_listed, 0, kinds);
    tcase_add_loop_test(tests, acknowledged_survives_a_kill, 0, kinds);
    tcase_add_loop_test(tests, live_process_is_refused, 0, kinds);
    if (kinds == 2) {
        tcase_add_test(tests, hosts_that_do_not_resolve_do_not_matter);
        tcase_add_loop_test(tests, no_server_is_lost_and_tried_again, 0, 2);
        tcase_add_test(tests, removal_can_be_resumed);
        tcase_add_test(tests, index_follows_the_record);
    }
}

int main(void)
{
    return lab_main("store lock", add_tests);
}
