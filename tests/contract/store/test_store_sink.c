/* SPDX-License-Identifier: Apache-2.0
 *
 * Sinks, the same tests for SQLite and for ZooKeeper: who is fenced on which change, what the last
 * committed checkpoint is, two nodes that write to one entry, many changes at once, what it costs.
 */
#include "contract/store/proxy_lab.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define SINK "job:7"

struct sink_answer {
    bool done;
    int code;
    struct store_sink sink;
};

static void sink_answered(void *arg, const struct store_sink_result *result)
{
    struct sink_answer *answer = arg;
    ck_assert(!answer->done);
    answer->done = true;
    answer->code = result->code;
    ck_assert((result->code == 0) == (result->sink != NULL));
    if (result->sink) {
        answer->sink = *result->sink;
        *result->sink = (struct store_sink){0};
    }
}

static struct sink_answer sink_get(struct lab *lab, struct lab_node *node, const char *name)
{
    struct sink_answer answer = {0};
    store_sink_get(node->store, name, sink_answered, &answer);
    ck_assert(!answer.done);
    lab_wait(lab, &answer.done);
    return answer;
}

static int sink_raise(struct lab *lab, struct lab_node *node, const char *name, uint64_t epoch)
{
    struct sink_answer answer = {0};
    store_sink_raise(node->store, name, epoch, sink_answered, &answer);
    lab_wait(lab, &answer.done);
    if (answer.code == 0)
        ck_assert_uint_eq(answer.sink.epoch, epoch);
    store_sink_clear(&answer.sink);
    return answer.code;
}

static void is_at(struct lab *lab, struct lab_node *node, uint64_t epoch, const char *xid)
{
    struct sink_answer answer = sink_get(lab, node, SINK);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.sink.epoch, epoch);
    if (xid)
        ck_assert_str_eq(answer.sink.checkpoint.xid, xid);
    else
        ck_assert_ptr_null(answer.sink.checkpoint.xid);
    store_sink_clear(&answer.sink);
}

static struct chxa_record sink_record(const char *xid, const char *owner, uint64_t epoch)
{
    struct chxa_record record = lab_record(xid, owner);
    record.sink = mem_strdup(SINK);
    record.sink_epoch = epoch;
    return record;
}

static int cas_fenced(struct lab *lab, struct lab_node *node, struct chxa_record *record,
                      enum chxa_state state)
{
    static unsigned count;
    struct store_fence fence = {record->sink, record->sink_epoch};
    char *op_id = mem_printf("fenced-%u", count++);
    lab_record_set(record, state, op_id);
    free(op_id);
    struct lab_answer answer = {0};
    store_cas(node->store, record, &fence, lab_answered, &answer);
    int code = lab_finish(lab, &answer);
    if (code == 0)
        record->version = answer.version;
    lab_answer_clear(&answer);
    return code;
}

static int write_fenced(struct lab *lab, struct lab_node *node, const struct chxa_record *record,
                        uint64_t seq, size_t n_parts)
{
    struct store_fence fence = {record->sink, record->sink_epoch};
    struct chxa_write write = lab_write(seq, n_parts);
    struct lab_answer answer = {0};
    store_add_write(node->store, record->xid, record->version, &fence, &write, lab_answered,
                    &answer);
    int code = lab_finish(lab, &answer);
    lab_answer_clear(&answer);
    chxa_write_clear(&write);
    return code;
}

static int cas(struct lab *lab, struct lab_node *node, struct chxa_record *record,
               enum chxa_state state)
{
    static unsigned count;
    char *op_id = mem_printf("plain-%u", count++);
    lab_record_set(record, state, op_id);
    free(op_id);
    return lab_cas(lab, node, record);
}

/* Begins, and takes it to Committed. */
static void commit_one(struct lab *lab, struct lab_node *node, const char *xid, uint64_t epoch,
                       int64_t created_ms)
{
    struct chxa_record record = sink_record(xid, node == &lab->nodes[0] ? "n1" : "n2", epoch);
    record.created_ms = created_ms;
    record.changed_ms = created_ms + 5;
    record.meta = mem_printf("{\"offset\":\"%s\"}", xid);
    ck_assert_int_eq(lab_create(lab, node, &record), 0);
    ck_assert_int_eq(cas(lab, node, &record, CHXA_PREPARED), 0);
    ck_assert_int_eq(cas(lab, node, &record, CHXA_COMMITTING), 0);
    ck_assert_int_eq(cas(lab, node, &record, CHXA_COMMITTED), 0);
    chxa_record_clear(&record);
}

/* ---- fencing ---- */

START_TEST(an_unused_sink_is_empty)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    is_at(&lab, node, 0, NULL);
    static const char *const names[] = {"", ".", "..", "a/b", "a b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct sink_answer answer = sink_get(&lab, node, names[i]);
        ck_assert_int_eq(answer.code, CHXA_E_INVALID_REQUEST);
        ck_assert_int_eq(sink_raise(&lab, node, names[i], 1), CHXA_E_INVALID_REQUEST);
    }
    ck_assert_int_eq(sink_raise(&lab, node, SINK, (uint64_t)INT64_MAX + 1), CHXA_E_INVALID_REQUEST);
    ck_assert_int_eq(sink_raise(&lab, node, SINK, INT64_MAX), 0);
    is_at(&lab, node, INT64_MAX, NULL);
    lab_close(&lab);
}
END_TEST

START_TEST(a_newer_epoch_fences_the_older)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record open = sink_record("open", "n1", 5), prepared = sink_record("prep", "n1", 5);
    struct chxa_record late = sink_record("late", "n1", 5), next = sink_record("next", "n1", 6);
    ck_assert_int_eq(lab_create(&lab, node, &open), 0);
    ck_assert_int_eq(write_fenced(&lab, node, &open, 1, 1), 0);
    ck_assert_int_eq(lab_create(&lab, node, &prepared), 0);
    ck_assert_int_eq(cas_fenced(&lab, node, &prepared, CHXA_PREPARED), 0);
    is_at(&lab, node, 5, NULL);

    ck_assert_int_eq(lab_create(&lab, node, &next), 0); /* raises it */
    is_at(&lab, node, 6, NULL);
    ck_assert_int_eq(lab_create(&lab, node, &late), CHXA_E_FENCED);
    ck_assert_int_eq(write_fenced(&lab, node, &open, 2, 1), CHXA_E_FENCED);
    ck_assert_int_eq(write_fenced(&lab, node, &open, 3, 9000), CHXA_E_FENCED);
    ck_assert_int_eq(cas_fenced(&lab, node, &open, CHXA_PREPARED), CHXA_E_FENCED);
    ck_assert_int_eq(cas_fenced(&lab, node, &open, CHXA_COMMITTING), CHXA_E_FENCED);
    ck_assert_int_eq(sink_raise(&lab, node, SINK, 5), CHXA_E_FENCED);
    ck_assert_int_eq(sink_raise(&lab, node, SINK, 6), 0);
    /* Nothing of it is there. */
    struct lab_answer answer = lab_get(&lab, node, "late");
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    answer = lab_get(&lab, node, "open");
    ck_assert_int_eq(answer.record.state, CHXA_INITIALIZED);
    ck_assert_uint_eq(answer.record.n_writes, 1);
    ck_assert_int_eq(answer.version, open.version);
    lab_answer_clear(&answer);
    /* What needs no fence goes on: roll back the one, commit the other. */
    ck_assert_int_eq(cas(&lab, node, &open, CHXA_ABORTING), 0);
    ck_assert_int_eq(cas(&lab, node, &prepared, CHXA_COMMITTING), 0);
    ck_assert_int_eq(cas(&lab, node, &prepared, CHXA_COMMITTED), 0);
    is_at(&lab, node, 6, "prep");
    ck_assert_int_eq(write_fenced(&lab, node, &next, 1, 1), 0);
    /* Another sink is another sink. */
    mem_replace(&late.sink, "job:8");
    ck_assert_int_eq(lab_create(&lab, node, &late), 0);
    chxa_record_clear(&open);
    chxa_record_clear(&prepared);
    chxa_record_clear(&late);
    chxa_record_clear(&next);
    lab_close(&lab);
}
END_TEST

/* A record of a time without entries, or whose entry was lost: the first fenced change makes it. */
START_TEST(a_missing_entry_is_made)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = lab_record("x", "n1");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    record.sink = mem_strdup(SINK);
    record.sink_epoch = 4;
    ck_assert_int_eq(cas_fenced(&lab, node, &record, CHXA_PREPARED), 0);
    is_at(&lab, node, 4, NULL);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* A change that fails for another reason leaves the sink as it was. */
START_TEST(a_failed_change_raises_nothing)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = sink_record("x", "n1", 1), again = sink_record("x", "n1", 9);
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    ck_assert_int_eq(lab_create(&lab, node, &again), CHXA_E_STORE_CONFLICT);
    is_at(&lab, node, 1, NULL);
    again.version = 77;
    ck_assert_int_eq(cas_fenced(&lab, node, &again, CHXA_PREPARED), CHXA_E_STORE_CONFLICT);
    again.state = CHXA_COMMITTED;
    ck_assert_int_eq(lab_cas(&lab, node, &again), CHXA_E_STORE_CONFLICT);
    ck_assert_int_eq(write_fenced(&lab, node, &again, 1, 1), CHXA_E_STORE_CONFLICT);
    is_at(&lab, node, 1, NULL);
    ck_assert_int_eq(write_fenced(&lab, node, &record, 1, 1), 0);
    chxa_record_clear(&record);
    chxa_record_clear(&again);
    lab_close(&lab);
}
END_TEST

/* ---- the last committed checkpoint ---- */

START_TEST(the_checkpoint_never_goes_back)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    commit_one(&lab, node, "a", 1, 1000);
    struct sink_answer answer = sink_get(&lab, node, SINK);
    ck_assert_str_eq(answer.sink.checkpoint.xid, "a");
    ck_assert_str_eq(answer.sink.checkpoint.meta, "{\"offset\":\"a\"}");
    ck_assert_uint_eq(answer.sink.checkpoint.epoch, 1);
    ck_assert_int_eq(answer.sink.checkpoint.created_ms, 1000);
    ck_assert_int_eq(answer.sink.checkpoint.committed_ms, 1005);
    store_sink_clear(&answer.sink);

    struct chxa_record older = sink_record("older", "n1", 1), newer = sink_record("newer", "n1", 1);
    older.created_ms = 2000;
    newer.created_ms = 3000;
    ck_assert_int_eq(lab_create(&lab, node, &older), 0);
    ck_assert_int_eq(lab_create(&lab, node, &newer), 0);
    ck_assert_int_eq(cas(&lab, node, &older, CHXA_PREPARED), 0);
    ck_assert_int_eq(cas(&lab, node, &newer, CHXA_COMMITTED), 0);
    is_at(&lab, node, 1, "newer");
    ck_assert_int_eq(cas(&lab, node, &older, CHXA_COMMITTED), 0);
    is_at(&lab, node, 1, "newer");
    commit_one(&lab, node, "same-ms", 1, 3000); /* the one that is committed later */
    is_at(&lab, node, 1, "same-ms");
    commit_one(&lab, node, "new-epoch", 2, 500); /* whatever its clock said */
    is_at(&lab, node, 2, "new-epoch");
    /* It stays when the record goes, and aborted ones do not count. */
    ck_assert_int_eq(lab_remove(&lab, node, "new-epoch", 3), 0);
    struct chxa_record aborted = sink_record("aborted", "n1", 2);
    aborted.created_ms = 9000;
    ck_assert_int_eq(lab_create(&lab, node, &aborted), 0);
    ck_assert_int_eq(cas(&lab, node, &aborted, CHXA_ABORTED), 0);
    is_at(&lab, node, 2, "new-epoch");
    chxa_record_clear(&older);
    chxa_record_clear(&newer);
    chxa_record_clear(&aborted);
    lab_close(&lab);
}
END_TEST

START_TEST(a_large_meta_is_whole)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1"), *other = lab_node(&lab, "n2");
    struct chxa_record record = sink_record("x", "n1", 1);
    size_t bytes = (256u << 10) - 2; /* all of them need escaping inside JSON */
    record.meta = mem_alloc(bytes + 3);
    memset(record.meta, '\\', bytes + 2);
    record.meta[0] = record.meta[bytes + 1] = '"';
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    ck_assert_int_eq(cas(&lab, node, &record, CHXA_COMMITTED), 0);
    struct sink_answer answer = sink_get(&lab, other, SINK);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_str_eq(answer.sink.checkpoint.meta, record.meta);
    store_sink_clear(&answer.sink);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* ---- two nodes, many at once ---- */

START_TEST(another_node_moves_the_entry)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *one = lab_node(&lab, "n1"), *two = lab_node(&lab, "n2");
    struct chxa_record record = sink_record("x", "n1", 1);
    ck_assert_int_eq(lab_create(&lab, one, &record), 0);
    /* What node 1 remembers is stale each time, and only the last is a fence. */
    commit_one(&lab, two, "a", 1, 1000);
    ck_assert_int_eq(write_fenced(&lab, one, &record, 1, 1), 0);
    commit_one(&lab, two, "b", 1, 2000);
    ck_assert_int_eq(write_fenced(&lab, one, &record, 2, 9000), 0);
    commit_one(&lab, two, "c", 1, 3000);
    commit_one(&lab, one, "d", 1, 4000);
    is_at(&lab, two, 1, "d");
    ck_assert_int_eq(sink_raise(&lab, two, SINK, 2), 0);
    ck_assert_int_eq(cas_fenced(&lab, one, &record, CHXA_PREPARED), CHXA_E_FENCED);
    ck_assert_int_eq(sink_raise(&lab, one, SINK, 1), CHXA_E_FENCED);
    is_at(&lab, one, 2, "d");
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

struct crowd {
    unsigned n_done, n_ok, n_fenced, n_other;
};

static void crowd_done(void *arg, const struct store_result *result)
{
    struct crowd *crowd = arg;
    crowd->n_done++;
    crowd->n_ok += result->code == 0;
    crowd->n_fenced += result->code == CHXA_E_FENCED;
    crowd->n_other += result->code != 0 && result->code != CHXA_E_FENCED;
}

/* Commits, begins and writes of one sink, from two nodes, all in flight together. */
START_TEST(a_crowd_gets_through)
{
    enum { N = 100 };
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    lab.config.operation_timeout_ms = 20000;
    struct lab_node *nodes[2] = {lab_node(&lab, "n1"), lab_node(&lab, "n2")};
    struct crowd crowd = {0};
    struct chxa_record records[N];
    for (unsigned i = 0; i < N; i++) {
        char xid[16];
        snprintf(xid, sizeof xid, "x%02u", i);
        records[i] = sink_record(xid, i % 2 ? "n2" : "n1", 1);
        records[i].created_ms = 1000 + i;
        store_create(nodes[i % 2]->store, &records[i], crowd_done, &crowd);
    }
    lab_wait_count(&lab, &crowd.n_done, N);
    ck_assert_uint_eq(crowd.n_ok, N);
    crowd = (struct crowd){0};
    for (unsigned i = 0; i < N; i++) {
        struct store_fence fence = {SINK, 1};
        struct chxa_write write = lab_write(1, 1);
        if (i % 4 < 2) {
            lab_record_set(&records[i], CHXA_COMMITTED, "op");
            store_cas(nodes[i % 2]->store, &records[i], NULL, crowd_done, &crowd);
        } else {
            store_add_write(nodes[i % 2]->store, records[i].xid, 0, &fence, &write, crowd_done,
                            &crowd);
        }
        chxa_write_clear(&write);
    }
    lab_wait_count(&lab, &crowd.n_done, N);
    ck_assert_uint_eq(crowd.n_ok, N);
    is_at(&lab, nodes[0], 1, "x97");
    for (unsigned i = 0; i < N; i++)
        chxa_record_clear(&records[i]);
    lab_close(&lab);
}
END_TEST

/* However begins of two epochs interleave: once the newer is in, the older is out. */
START_TEST(a_race_of_epochs_has_one_winner)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *nodes[2] = {lab_node(&lab, "n1"), lab_node(&lab, "n2")};
    for (unsigned round = 1; round <= 20; round++) {
        struct chxa_record old = lab_record("old", "n1");
        mem_replace(&old.sink, SINK);
        old.sink_epoch = 2 * round;
        char *xid = mem_printf("old-%u", round);
        mem_replace(&old.xid, xid);
        ck_assert_int_eq(lab_create(&lab, nodes[0], &old), 0);
        struct crowd crowd = {0};
        struct store_fence fence = {SINK, 2 * round};
        lab_record_set(&old, CHXA_PREPARED, "op");
        store_cas(nodes[0]->store, &old, &fence, crowd_done, &crowd);
        struct sink_answer raised = {0};
        store_sink_raise(nodes[1]->store, SINK, 2 * round + 1, sink_answered, &raised);
        lab_wait(&lab, &raised.done);
        lab_wait_count(&lab, &crowd.n_done, 1);
        ck_assert_int_eq(raised.code, 0);
        ck_assert_uint_eq(crowd.n_ok + crowd.n_fenced, 1);
        store_sink_clear(&raised.sink);
        if (crowd.n_ok)
            old.version++;
        lab_record_set(&old, CHXA_INITIALIZED, "op2");
        ck_assert_int_eq(write_fenced(&lab, nodes[0], &old, 1, 1), CHXA_E_FENCED);
        free(xid);
        chxa_record_clear(&old);
    }
    lab_close(&lab);
}
END_TEST

/* ---- settling, lost answers, cost: ZooKeeper ---- */

START_TEST(a_lost_raise_is_repeated)
{
    struct lab lab;
    struct proxy_lab proxy;
    proxy_open(&proxy, lab_zookeeper());
    lab_open(&lab, LAB_ZOOKEEPER, proxy.address);
    struct lab_node *node = lab_node(&lab, "n1");
    ck_assert_int_eq(sink_raise(&lab, node, SINK, 1), 0);
    struct sink_answer answer = {0};
    proxy_do(&proxy, "swallow-on epochs/n1");
    store_settle_sink_raise(node->store, SINK, 2, clock_monotonic_ms() + 20000, sink_answered,
                            &answer);
    while (!proxy_mode_is(&proxy, "swallow"))
        lab_pause(&lab, 10);
    lab_pause(&lab, 200);
    ck_assert(!answer.done);
    proxy_do(&proxy, "pass");
    proxy_do(&proxy, "cut");
    lab_wait(&lab, &answer.done);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.sink.epoch, 2);
    store_sink_clear(&answer.sink);
    is_at(&lab, node, 2, NULL);
    /* A begin that was lost with others of its sink waiting behind it. */
    struct crowd crowd = {0};
    struct chxa_record first = sink_record("first", "n1", 3), second = sink_record("2nd", "n1", 3);
    proxy_do(&proxy, "swallow-on epochs/n1");
    uint64_t deadline_ms = clock_monotonic_ms() + 20000;
    store_settle_create(node->store, &first, deadline_ms, crowd_done, &crowd);
    store_settle_create(node->store, &second, deadline_ms, crowd_done, &crowd);
    while (!proxy_mode_is(&proxy, "swallow"))
        lab_pause(&lab, 10);
    lab_pause(&lab, 200);
    proxy_do(&proxy, "pass");
    proxy_do(&proxy, "cut");
    lab_wait_count(&lab, &crowd.n_done, 2);
    ck_assert_uint_eq(crowd.n_ok, 2);
    is_at(&lab, node, 3, NULL);
    chxa_record_clear(&first);
    chxa_record_clear(&second);
    lab_close(&lab);
    proxy_close(&proxy);
}
END_TEST

/* Requests that the server has received so far (its "mntr"). */
static long packets(void)
{
    char host[64], text[16384];
    int port = 0;
    ck_assert_int_eq(sscanf(lab_zookeeper(), "%63[^:]:%d", host, &port), 2);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    ck_assert_int_eq(inet_pton(AF_INET, host, &address.sin_addr), 1);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(write(fd, "mntr", 4), 4);
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    text[len] = '\0';
    const char *line = strstr(text, "zk_packets_received\t");
    return line ? strtol(line + sizeof "zk_packets_received", NULL, 10) : -1;
}

START_TEST(a_sink_costs_no_request)
{
    enum { N = 100 };
    struct lab lab;
    lab_open(&lab, LAB_ZOOKEEPER, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = sink_record("x", "n1", 1);
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    long before = packets();
    if (before >= 0) { /* else this server does not tell */
        for (unsigned i = 1; i <= N; i++)
            ck_assert_int_eq(write_fenced(&lab, node, &record, i, 1), 0);
        char xid[16];
        for (unsigned i = 0; i < N; i++) {
            snprintf(xid, sizeof xid, "c%u", i);
            commit_one(&lab, node, xid, 1, 1000 + i); /* four changes */
        }
        long used = packets() - before;
        ck_assert_int_ge(used, 5 * N);
        ck_assert_int_le(used, 5 * N + N / 2); /* pings, and who else talks to it */
    }
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* ---- history ---- */

static int64_t history(struct lab *lab, struct lab_node *node)
{
    struct lab_answer answer = {0};
    store_history_get(node->store, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(lab, &answer), 0);
    return answer.version;
}

static int history_raise(struct lab *lab, struct lab_node *node, int64_t starts_ms)
{
    struct lab_answer answer = {0};
    store_history_raise(node->store, starts_ms, lab_answered, &answer);
    return lab_finish(lab, &answer);
}

/* Raised by any node, never lowered, seen by all, and there after a restart. */
START_TEST(history_only_grows)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *a = lab_node(&lab, "n1"), *b = lab_node(&lab, "n2");
    ck_assert_int_eq(history(&lab, a), 0);
    ck_assert_int_eq(history_raise(&lab, a, 5000), 0);
    ck_assert_int_eq(history(&lab, b), 5000);
    ck_assert_int_eq(history_raise(&lab, b, 4000), 0);
    ck_assert_int_eq(history(&lab, a), 5000);
    ck_assert_int_eq(history_raise(&lab, b, 1700000000123), 0);
    ck_assert_int_eq(history_raise(&lab, a, 1700000000122), 0);
    ck_assert_int_eq(history(&lab, a), 1700000000123);
    lab_stop(&lab, a);
    lab_stop(&lab, b);
    ck_assert_int_eq(history(&lab, lab_node(&lab, "n1")), 1700000000123);
    lab_close(&lab);
}
END_TEST

/* The name under which it is kept is no sink's. */
START_TEST(history_is_no_sink)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    ck_assert_int_eq(history_raise(&lab, node, 7), 0);
    ck_assert_int_eq(sink_get(&lab, node, "~history").code, CHXA_E_INVALID_REQUEST);
    ck_assert_int_eq(sink_raise(&lab, node, "~history", 8), CHXA_E_INVALID_REQUEST);
    lab_close(&lab);
}
END_TEST

static void add_tests(TCase *tests)
{
    int kinds = lab_kinds();
#define ADD(test) tcase_add_loop_test(tests, test, 0, kinds)
    ADD(an_unused_sink_is_empty);
    ADD(a_newer_epoch_fences_the_older);
    ADD(a_missing_entry_is_made);
    ADD(a_failed_change_raises_nothing);
    ADD(the_checkpoint_never_goes_back);
    ADD(a_large_meta_is_whole);
    ADD(another_node_moves_the_entry);
    ADD(a_crowd_gets_through);
    ADD(a_race_of_epochs_has_one_winner);
    ADD(history_only_grows);
    ADD(history_is_no_sink);
    if (kinds == 2) {
        tcase_add_test(tests, a_lost_raise_is_repeated);
        tcase_add_test(tests, a_sink_costs_no_request);
    }
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return lab_main("store sinks", add_tests);
}
