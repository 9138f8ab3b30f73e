/* SPDX-License-Identifier: Apache-2.0
 *
 * Lost answers, with a proxy between the store and a real ZooKeeper: each change, lost behind the
 * server (it was made) and before it (it was not), told as UNKNOWN by the store and settled by
 * store_settle.h; deadlines; a session that ends meanwhile. SQLite has no such thing.
 */
#include "contract/store/proxy_lab.h"

enum change { CREATE, CAS, ADD_WRITE, REMOVE, ABANDON, N_CHANGES };
enum loss { BEHIND, BEFORE, N_LOSSES };

struct scene {
    struct lab lab;
    struct proxy_lab proxy;
    struct lab_node *node;
    struct chxa_record record;
    struct chxa_write write;
    struct lab_answer answer;
};

static void scene_open(struct scene *scene, enum change change)
{
    memset(scene, 0, sizeof *scene);
    proxy_open(&scene->proxy, lab_zookeeper());
    lab_open(&scene->lab, LAB_ZOOKEEPER, scene->proxy.address);
    scene->node = lab_node(&scene->lab, "n1");
    scene->record = lab_record("x", change == ABANDON ? "n2" : "n1");
    scene->write = lab_write(1, 1);
    if (change != CREATE)
        ck_assert_int_eq(lab_create(&scene->lab, scene->node, &scene->record), 0);
}

static void scene_close(struct scene *scene)
{
    lab_answer_clear(&scene->answer);
    chxa_record_clear(&scene->record);
    chxa_write_clear(&scene->write);
    lab_close(&scene->lab);
    proxy_close(&scene->proxy);
}

static void start(struct scene *scene, enum change change, uint64_t settle_ms)
{
    struct store *store = scene->node->store;
    uint64_t deadline_ms = clock_monotonic_ms() + settle_ms;
    struct lab_answer *answer = &scene->answer;
    if (change == CAS)
        lab_record_set(&scene->record, CHXA_PREPARED, "op-ours");
    if (change == ABANDON)
        lab_record_set(&scene->record, CHXA_ABORTED, "op-ours");
    if (settle_ms == 0 && change == ABANDON)
        store_abandon(store, &scene->record, lab_answered, answer);
    else if (change == ABANDON)
        store_settle_abandon(store, &scene->record, deadline_ms, lab_answered, answer);
    else if (settle_ms == 0 && change == CREATE)
        store_create(store, &scene->record, lab_answered, answer);
    else if (settle_ms == 0 && change == CAS)
        store_cas(store, &scene->record, NULL, lab_answered, answer);
    else if (settle_ms == 0 && change == ADD_WRITE)
        store_add_write(store, "x", 0, NULL, &scene->write, lab_answered, answer);
    else if (settle_ms == 0)
        store_remove(store, "x", 0, lab_answered, answer);
    else if (change == CREATE)
        store_settle_create(store, &scene->record, deadline_ms, lab_answered, answer);
    else if (change == CAS)
        store_settle_cas(store, &scene->record, NULL, deadline_ms, lab_answered, answer);
    else if (change == ADD_WRITE)
        store_settle_add_write(store, "x", 0, NULL, &scene->write, deadline_ms, lab_answered,
                               answer);
    else
        store_settle_remove(store, "x", 0, deadline_ms, lab_answered, answer);
}

/* Starts the change and loses its deciding request (the one that checks the epoch) or the answer to
 * it; what a change reads before passes. */
static void lose(struct scene *scene, enum change change, enum loss loss, uint64_t settle_ms)
{
    proxy_do(&scene->proxy, loss == BEHIND ? "swallow-on epochs/n1" : "drop-on epochs/n1");
    start(scene, change, settle_ms);
    while (!proxy_mode_is(&scene->proxy, loss == BEHIND ? "swallow" : "drop"))
        lab_pause(&scene->lab, 10);
    lab_pause(&scene->lab, 200); /* the server answers into the void */
}

/* Whether the change is in the store, seen by a node that is not behind the proxy. */
static bool was_made(struct scene *scene, enum change change)
{
    char *uri = mem_printf("zookeeper:%s/chxa-test/deep", lab_zookeeper());
    scene->lab.config.uri = uri;
    struct lab_node *eyes = lab_node(&scene->lab, "eyes");
    struct lab_answer answer = lab_get(&scene->lab, eyes, "x");
    bool made = false;
    switch (change) {
    case CREATE:
        made = answer.code == 0;
        break;
    case CAS:
    case ABANDON:
        made = answer.version == 1 && strcmp(answer.record.op_id, "op-ours") == 0;
        break;
    case ADD_WRITE:
        made = answer.record.n_writes == 1;
        break;
    default:
        made = answer.code == CHXA_E_TXN_NOT_FOUND;
    }
    ck_assert(answer.code == 0 || answer.code == CHXA_E_TXN_NOT_FOUND);
    lab_answer_clear(&answer);
    lab_stop(&scene->lab, eyes);
    free(uri);
    return made;
}

START_TEST(lost_answers_are_unknown)
{
    enum change change = (enum change)(_i / N_LOSSES);
    enum loss loss = (enum loss)(_i % N_LOSSES);
    struct scene scene;
    scene_open(&scene, change);
    lose(&scene, change, loss, 0);
    ck_assert(!scene.answer.done);
    proxy_do(&scene.proxy, "pass");
    proxy_do(&scene.proxy, "cut");
    lab_wait(&scene.lab, &scene.answer.done);
    bool made = was_made(&scene, change);
    ck_assert_int_eq(scene.answer.code, CHXA_E_STORE_UNKNOWN);
    ck_assert(made == (loss == BEHIND)); /* this test lost what it meant to lose */
    ck_assert_uint_ge(scene.node->n_lost, 1);
    lab_wait_count(&scene.lab, &scene.node->n_ready, 2);
    ck_assert_uint_eq(store_epoch(scene.node->store), 1); /* the same session, the same lock */
    scene_close(&scene);
}
END_TEST

START_TEST(lost_answers_are_settled)
{
    enum change change = (enum change)(_i / N_LOSSES);
    enum loss loss = (enum loss)(_i % N_LOSSES);
    struct scene scene;
    scene_open(&scene, change);
    lose(&scene, change, loss, 20000);
    ck_assert(!scene.answer.done);
    proxy_do(&scene.proxy, "pass");
    proxy_do(&scene.proxy, "cut");
    lab_wait(&scene.lab, &scene.answer.done);
    ck_assert_int_eq(scene.answer.code, 0);
    if (change == CAS || change == ABANDON)
        ck_assert_int_eq(scene.answer.version, 1);
    ck_assert(was_made(&scene, change));
    scene_close(&scene);
}
END_TEST

/* The store does not come back before the deadline: only then the caller hears UNKNOWN. */
START_TEST(settling_ends_at_its_deadline)
{
    enum change change = (enum change)_i;
    struct scene scene;
    scene_open(&scene, change);
    uint64_t start_ms = clock_monotonic_ms();
    lose(&scene, change, BEHIND, 2500);
    proxy_do(&scene.proxy, "refuse");
    lab_wait(&scene.lab, &scene.answer.done);
    ck_assert_uint_ge(clock_monotonic_ms(), start_ms + 2500);
    ck_assert_uint_lt(clock_monotonic_ms(), start_ms + 6000);
    ck_assert_int_eq(scene.answer.code, CHXA_E_STORE_UNKNOWN);
    ck_assert(was_made(&scene, change));
    proxy_do(&scene.proxy, "pass");
    scene_close(&scene);
}
END_TEST

/* Nothing is cut: our own deadline ends the request, with what is known then. */
START_TEST(silence_ends_at_the_deadline)
{
    struct scene scene;
    memset(&scene, 0, sizeof scene);
    proxy_open(&scene.proxy, lab_zookeeper());
    lab_open(&scene.lab, LAB_ZOOKEEPER, scene.proxy.address);
    scene.lab.config.operation_timeout_ms = 500;
    scene.node = lab_node(&scene.lab, "n1");
    scene.record = lab_record("x", "n1");
    proxy_do(&scene.proxy, "swallow");
    uint64_t start_ms = clock_monotonic_ms();
    struct lab_answer get = {0};
    struct lab_answer list = {0};
    store_get(scene.node->store, "x", lab_answered, &get);
    store_create(scene.node->store, &scene.record, lab_answered, &scene.answer);
    store_list(scene.node->store, &(struct store_filter){.limit = 1}, lab_listed, &list);
    lab_wait(&scene.lab, &list.done);
    ck_assert(get.done && scene.answer.done);
    ck_assert_uint_ge(clock_monotonic_ms(), start_ms + 500);
    ck_assert_uint_lt(clock_monotonic_ms(), start_ms + 1500);
    ck_assert_int_eq(get.code, CHXA_E_STORE_UNAVAILABLE);
    ck_assert_int_eq(list.code, CHXA_E_STORE_UNAVAILABLE);
    ck_assert_int_eq(scene.answer.code, CHXA_E_STORE_UNKNOWN);
    ck_assert_uint_eq(scene.node->n_lost, 0);
    lab_answer_clear(&list);
    /* Closing does not wait for the silent server longer than the library needs. */
    lab_stop(&scene.lab, scene.node);
    scene_close(&scene);
}
END_TEST

/* The session ends while nothing gets through: LOST, then READY with a new session and epoch; a
 * settling change started before goes through after. */
START_TEST(a_new_session_takes_a_new_epoch)
{
    struct scene scene;
    scene_open(&scene, CAS);
    proxy_do(&scene.proxy, "refuse");
    lab_wait_count(&scene.lab, &scene.node->n_lost, 1);
    ck_assert(!store_is_ready(scene.node->store));
    struct lab_answer answer = lab_get(&scene.lab, scene.node, "x");
    ck_assert_int_eq(answer.code, CHXA_E_STORE_UNAVAILABLE);
    start(&scene, CAS, 25000);
    lab_pause(&scene.lab, 6000); /* the session's 4 s and the server's tick */
    ck_assert(!scene.answer.done);
    ck_assert_uint_eq(scene.node->n_ready, 1);
    proxy_do(&scene.proxy, "pass");
    lab_wait_count(&scene.lab, &scene.node->n_ready, 2);
    ck_assert_uint_eq(store_epoch(scene.node->store), 2);
    lab_wait(&scene.lab, &scene.answer.done);
    ck_assert_int_eq(scene.answer.code, 0);
    scene_close(&scene);
}
END_TEST

static void add_tests(TCase *tests)
{
    tcase_add_loop_test(tests, lost_answers_are_unknown, 0, N_CHANGES * N_LOSSES);
    tcase_add_loop_test(tests, lost_answers_are_settled, 0, N_CHANGES * N_LOSSES);
    tcase_add_loop_test(tests, settling_ends_at_its_deadline, 0, N_CHANGES);
    tcase_add_test(tests, silence_ends_at_the_deadline);
    tcase_add_test(tests, a_new_session_takes_a_new_epoch);
}

int main(void)
{
    if (lab_zookeeper() == NULL) {
        puts("CHXA_TEST_ZOOKEEPER is not set");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    return lab_main("store unknown", add_tests);
}
