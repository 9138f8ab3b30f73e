/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes that come at once share a commit (SQLite) or a multi (ZooKeeper): how few there are, and that each change has
 * an outcome of its own, whatever becomes of those beside it. The counts do not depend on the machine.
 */
#include "contract/store/lock_lab.h"
#include "contract/store/proxy_lab.h"

#include "base/metrics.h"
#include "lib/suite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define MANY 200u

static atomic_uint n_syncs;

/* Stands before libc's: SQLite's writer thread makes its log durable with it. */
int fdatasync(int fd)
{
    atomic_fetch_add(&n_syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

struct crowd {
    struct lab lab;
    struct lab_node *node;
    struct chxa_record records[MANY];
    struct lab_answer answers[MANY];
    double commits; /* when it was last asked for */
};

static enum lab_kind kind_of(int i)
{
    return i == 0 ? LAB_SQLITE : LAB_ZOOKEEPER;
}

static void crowd_open_within(struct crowd *crowd, enum lab_kind kind, const char *zookeeper,
                              uint64_t timeout_ms)
{
    memset(crowd, 0, sizeof *crowd);
    lab_open(&crowd->lab, kind, zookeeper);
    crowd->lab.config.operation_timeout_ms = timeout_ms;
    crowd->node = lab_node(&crowd->lab, "n1");
    for (unsigned i = 0; i < MANY; i++) {
        char xid[16];
        snprintf(xid, sizeof xid, "x%u", i);
        crowd->records[i] = lab_record(xid, "n1");
    }
}

/* The answers do not depend on how busy the machine is. */
static void crowd_open(struct crowd *crowd, enum lab_kind kind, const char *zookeeper)
{
    crowd_open_within(crowd, kind, zookeeper, 20000);
}

static void crowd_close(struct crowd *crowd)
{
    for (unsigned i = 0; i < MANY; i++) {
        chxa_record_clear(&crowd->records[i]);
        lab_answer_clear(&crowd->answers[i]);
    }
    lab_close(&crowd->lab);
}

static void answers_clear(struct crowd *crowd)
{
    for (unsigned i = 0; i < MANY; i++)
        lab_answer_clear(&crowd->answers[i]);
}

static void wait_all(struct crowd *crowd, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        lab_wait(&crowd->lab, &crowd->answers[i].done);
    lab_pause(&crowd->lab, 50); /* none comes twice (lab_answered) */
}

/* Commits since the last time. */
static unsigned commits(struct crowd *crowd)
{
    double now = metrics_value(METRIC_store_commits_total, NULL, NULL);
    double since = now - crowd->commits;
    crowd->commits = now;
    return (unsigned)since;
}

static void create_all(struct crowd *crowd, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        store_create(crowd->node->store, &crowd->records[i], lab_answered, &crowd->answers[i]);
    wait_all(crowd, n);
}

static void cas_all(struct crowd *crowd, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        store_cas(crowd->node->store, &crowd->records[i], NULL, lab_answered, &crowd->answers[i]);
    wait_all(crowd, n);
}

START_TEST(changes_at_once_share_commits)
{
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    commits(&crowd);
    atomic_store(&n_syncs, 0);
    create_all(&crowd, MANY);
    ck_assert_uint_le(commits(&crowd), 12);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_int_eq(crowd.answers[i].code, 0);
        lab_record_set(&crowd.records[i], CHXA_PREPARED, "op-next");
    }
    answers_clear(&crowd);
    cas_all(&crowd, MANY);
    ck_assert_uint_le(commits(&crowd), 12);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(crowd.answers[i].code, 0);
    if (kind_of(_i) == LAB_SQLITE) {
        ck_assert_uint_ge(atomic_load(&n_syncs), 2);
        ck_assert_uint_le(atomic_load(&n_syncs), 24);
    }
    crowd_close(&crowd);
}
END_TEST

/* What ZooKeeper has received, of everybody. */
static unsigned long packets(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    unsigned port = 0;
    ck_assert_int_eq(sscanf(lab_zookeeper(), "127.0.0.1:%u", &port), 1);
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(write(fd, "mntr", 4), 4);
    char text[16384];
    size_t len = 0;
    ssize_t n;
    while ((n = read(fd, text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)n;
    close(fd);
    text[len] = '\0';
    const char *at = strstr(text, "zk_packets_received\t");
    ck_assert_ptr_nonnull(at);
    return strtoul(strchr(at, '\t') + 1, NULL, 10);
}

/* Begin, prepare, decide, end, one after the other: a commit each, and nothing is read. */
START_TEST(a_transaction_costs_four_commits)
{
    const unsigned n_transactions = 50;
    bool sqlite = kind_of(_i) == LAB_SQLITE;
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    commits(&crowd);
    atomic_store(&n_syncs, 0);
    unsigned long before = sqlite ? 0 : packets();
    for (unsigned i = 0; i < n_transactions; i++) {
        static const enum chxa_state states[] = {CHXA_PREPARED, CHXA_COMMITTING, CHXA_COMMITTED};
        struct chxa_record *record = &crowd.records[i];
        ck_assert_int_eq(lab_create(&crowd.lab, crowd.node, record), 0);
        for (size_t k = 0; k < sizeof states / sizeof states[0]; k++) {
            lab_record_set(record, states[k], "op-next");
            ck_assert_int_eq(lab_cas(&crowd.lab, crowd.node, record), 0);
        }
    }
    ck_assert_uint_eq(commits(&crowd), 4 * n_transactions);
    if (sqlite) {
        ck_assert_uint_ge(atomic_load(&n_syncs), 4 * n_transactions);
        ck_assert_uint_le(atomic_load(&n_syncs), 4 * n_transactions + 4); /* a checkpoint */
    } else {
        unsigned long sent = packets() - before;
        ck_assert_uint_ge(sent, 4 * n_transactions);
        ck_assert_uint_le(sent, 4 * n_transactions + 20); /* pings, our questions */
    }
    crowd_close(&crowd);
}
END_TEST

START_TEST(each_change_has_its_own_outcome)
{
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    for (unsigned i = 0; i < MANY; i += 10)
        ck_assert_int_eq(lab_create(&crowd.lab, crowd.node, &crowd.records[i]), 0);
    commits(&crowd);
    create_all(&crowd, MANY);
    ck_assert_uint_le(commits(&crowd),
                      70); /* each refusal is answered, and the rest shared again */
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert_int_eq(crowd.answers[i].code, i % 10 == 0 ? CHXA_E_STORE_CONFLICT : 0);
        ck_assert(crowd.answers[i].has_record == (i % 10 == 0));
    }
    answers_clear(&crowd);
    for (unsigned i = 0; i < MANY; i++) {
        lab_record_set(&crowd.records[i], CHXA_PREPARED, "op-next");
        if (i % 7 == 3)
            crowd.records[i].version = 5;
        if (i % 11 == 4)
            mem_replace(&crowd.records[i].xid, "nobody");
    }
    cas_all(&crowd, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        int expected = i % 11 == 4 ? CHXA_E_TXN_NOT_FOUND : i % 7 == 3 ? CHXA_E_STORE_CONFLICT : 0;
        ck_assert_int_eq(crowd.answers[i].code, expected);
        char xid[16];
        snprintf(xid, sizeof xid, "x%u", i);
        struct lab_answer answer = lab_get(&crowd.lab, crowd.node, xid);
        ck_assert_int_eq(answer.record.state, expected ? CHXA_INITIALIZED : CHXA_PREPARED);
        ck_assert_int_eq(answer.version, expected ? 0 : 1);
        lab_answer_clear(&answer);
    }
    crowd_close(&crowd);
}
END_TEST

/* A sink of its own for most, one that several share, and writers that were replaced. */
START_TEST(sinks_of_changes_at_once)
{
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    struct lab_answer raised = {0};
    store_history_raise(crowd.node->store, 1, lab_answered, &raised);
    lab_finish(&crowd.lab, &raised);
    for (unsigned i = 0; i < MANY; i++) {
        char sink[16];
        snprintf(sink, sizeof sink, "s%u", i % 10 == 0 ? 0 : i);
        mem_replace(&crowd.records[i].sink, sink);
        crowd.records[i].sink_epoch = i % 10 == 0 && i ? i % 20 == 0 ? 7 : 6 : 9;
    }
    create_all(&crowd, 1); /* s0 has epoch 9 */
    ck_assert_int_eq(crowd.answers[0].code, 0);
    answers_clear(&crowd);
    for (unsigned i = 0; i < MANY; i++)
        if (i % 20 == 0)
            crowd.records[i].sink_epoch = 9;
    create_all(&crowd, MANY);
    for (unsigned i = 1; i < MANY; i++)
        ck_assert_int_eq(crowd.answers[i].code, i % 20 == 10 ? CHXA_E_FENCED : 0);
    ck_assert_int_eq(crowd.answers[0].code, CHXA_E_STORE_CONFLICT);
    lab_answer_clear(&raised);
    crowd_close(&crowd);
}
END_TEST

static bool exists(struct crowd *crowd, const char *xid)
{
    struct lab_answer answer = lab_get(&crowd->lab, crowd->node, xid);
    ck_assert(answer.code == 0 || answer.code == CHXA_E_TXN_NOT_FOUND);
    bool there = answer.code == 0;
    lab_answer_clear(&answer);
    return there;
}

static void sql(struct lab *lab, const char *text)
{
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(lab->uri + strlen("sqlite:"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* SQLite fails at one of them, in the middle of their transaction: the others are done. */
START_TEST(one_that_fails_is_not_the_loss_of_others)
{
    struct crowd crowd;
    crowd_open(&crowd, LAB_SQLITE, NULL);
    sql(&crowd.lab, "CREATE TRIGGER bad BEFORE INSERT ON txns WHEN NEW.xid IN ('x30', 'x31', 'x77')"
                    " BEGIN SELECT RAISE(ABORT, 'bad'); END");
    ck_assert_int_eq(lab_create(&crowd.lab, crowd.node, &crowd.records[50]), 0);
    create_all(&crowd, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        bool bad = i == 30 || i == 31 || i == 77;
        ck_assert_int_eq(crowd.answers[i].code, bad       ? CHXA_E_STORE_UNAVAILABLE
                                                : i == 50 ? CHXA_E_STORE_CONFLICT
                                                          : 0);
        ck_assert(crowd.answers[i].has_record == (i == 50));
        ck_assert(exists(&crowd, crowd.records[i].xid) == !bad);
    }
    crowd_close(&crowd);
}
END_TEST

/* What is large is not waited for by everybody: a transaction takes 1 MiB, or one change. */
START_TEST(large_changes_share_no_commit)
{
    const unsigned n_writes = 8;
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    create_all(&crowd, n_writes);
    answers_clear(&crowd);
    commits(&crowd);
    struct chxa_write write = lab_write(1, 1800); /* about 450 KB */
    for (unsigned i = 0; i < n_writes; i++)
        store_add_write(crowd.node->store, crowd.records[i].xid, 0, NULL, &write, lab_answered,
                        &crowd.answers[i]);
    wait_all(&crowd, n_writes);
    for (unsigned i = 0; i < n_writes; i++)
        ck_assert_int_eq(crowd.answers[i].code, 0);
    ck_assert_uint_ge(commits(&crowd), n_writes / 2);
    chxa_write_clear(&write);
    crowd_close(&crowd);
}
END_TEST

/* A page that looks at thousands of records holds up no change that comes behind it. */
START_TEST(lists_hold_up_no_change)
{
    struct crowd crowd;
    crowd_open(&crowd, LAB_SQLITE, NULL);
    crowd.lab.config.queue_max = 10000;
    crowd.lab.config.fsync = false;
    crowd.node = lab_node(&crowd.lab, "n2");
    for (unsigned round = 0; round < 25; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            char xid[16];
            snprintf(xid, sizeof xid, "y%u-%u", round, i);
            mem_replace(&crowd.records[i].xid, xid);
            mem_replace(&crowd.records[i].owner, "n2");
        }
        create_all(&crowd, MANY);
        answers_clear(&crowd);
    }
    bool ahead = false;
    for (unsigned i = 0; i < MANY && !ahead; i++) { /* on a busy machine, not always */
        struct store_filter filter = {.sink = "nobody", .limit = 10};
        struct lab_answer list = {0};
        store_list(crowd.node->store, &filter, lab_listed, &list);
        ck_assert_int_eq(lab_create(&crowd.lab, crowd.node, &crowd.records[i]),
                         CHXA_E_STORE_CONFLICT);
        ahead = !list.done;
        lab_wait(&crowd.lab, &list.done);
        ck_assert_int_eq(list.code, 0);
        lab_answer_clear(&list);
    }
    ck_assert(ahead);
    crowd_close(&crowd);
}
END_TEST

/* ---- lost answers (ZooKeeper) ---- */

#define FEW 40u

/* The server takes what is out, its answers are lost: those are unknown. What waited was not sent,
 * is told so, and never appears. */
START_TEST(what_waits_is_not_sent_late)
{
    struct proxy_lab proxy;
    struct crowd crowd;
    proxy_open(&proxy, lab_zookeeper());
    crowd_open_within(&crowd, LAB_ZOOKEEPER, proxy.address, 2000);
    proxy_do(&proxy, "swallow-on epochs/n1");
    for (unsigned i = 0; i < FEW; i++)
        store_create(crowd.node->store, &crowd.records[i], lab_answered, &crowd.answers[i]);
    lab_pause(&crowd.lab, 2500);
    wait_all(&crowd, FEW);
    proxy_do(&proxy, "pass");
    proxy_do(&proxy, "cut");
    lab_wait_count(&crowd.lab, &crowd.node->n_ready, 2);
    unsigned n_unknown = 0;
    for (unsigned i = 0; i < FEW; i++) {
        bool unknown = crowd.answers[i].code == CHXA_E_STORE_UNKNOWN;
        n_unknown += unknown;
        ck_assert(unknown || crowd.answers[i].code == CHXA_E_STORE_UNAVAILABLE);
        ck_assert(exists(&crowd, crowd.records[i].xid) == unknown);
    }
    ck_assert_uint_ge(n_unknown, 1);
    ck_assert_uint_lt(n_unknown, FEW / 2);
    crowd_close(&crowd);
    proxy_close(&proxy);
}
END_TEST

/* Lost in the middle, behind the server or before it: each one is settled as its own. */
START_TEST(a_lost_multi_is_settled_for_each)
{
    struct proxy_lab proxy;
    struct crowd crowd;
    proxy_open(&proxy, lab_zookeeper());
    crowd_open(&crowd, LAB_ZOOKEEPER, proxy.address);
    crowd.records[7].version = 0;
    ck_assert_int_eq(lab_create(&crowd.lab, crowd.node, &crowd.records[7]), 0);
    mem_replace(&crowd.records[7].op_id, "op-another");
    proxy_do(&proxy, _i ? "swallow-on x30" : "drop-on x30");
    uint64_t deadline_ms = clock_monotonic_ms() + 20000;
    for (unsigned i = 0; i < FEW; i++)
        store_settle_create(crowd.node->store, &crowd.records[i], deadline_ms, lab_answered,
                            &crowd.answers[i]);
    while (!proxy_mode_is(&proxy, _i ? "swallow" : "drop"))
        lab_pause(&crowd.lab, 10);
    lab_pause(&crowd.lab, 200);
    proxy_do(&proxy, "pass");
    proxy_do(&proxy, "cut");
    wait_all(&crowd, FEW);
    for (unsigned i = 0; i < FEW; i++) {
        ck_assert_int_eq(crowd.answers[i].code, i == 7 ? CHXA_E_STORE_CONFLICT : 0);
        ck_assert(exists(&crowd, crowd.records[i].xid));
    }
    crowd_close(&crowd);
    proxy_close(&proxy);
}
END_TEST

/* Long enough that no store makes all of them within a millisecond. */
#define HEAVY_BYTES 16384u

static void make_heavy(struct chxa_record *record)
{
    char *meta = mem_alloc(HEAVY_BYTES + 1);
    memset(meta, 'x', HEAVY_BYTES);
    meta[0] = meta[HEAVY_BYTES - 1] = '"';
    free(record->meta);
    record->meta = meta;
}

/* With a deadline of a millisecond some are late while they wait: told to be not done, they are not,
 * whatever is sent later. */
START_TEST(late_ones_are_not_done)
{
    unsigned n_late = 0;
    for (unsigned round = 0; round < 20 && n_late == 0; round++) {
        struct crowd crowd;
        crowd_open(&crowd, kind_of(_i), NULL);
        crowd.lab.config.operation_timeout_ms = 1;
        struct lab_node *eyes = crowd.node;
        crowd.node = lab_node(&crowd.lab, "n2");
        for (unsigned i = 0; i < MANY; i++) {
            mem_replace(&crowd.records[i].owner, "n2");
            make_heavy(&crowd.records[i]);
        }
        create_all(&crowd, MANY);
        lab_pause(&crowd.lab, 300);
        crowd.node = eyes;
        for (unsigned i = 0; i < MANY; i++) {
            int code = crowd.answers[i].code;
            n_late += code == CHXA_E_STORE_UNAVAILABLE;
            bool there = exists(&crowd, crowd.records[i].xid);
            ck_assert(code == CHXA_E_STORE_UNKNOWN || there == (code == 0));
        }
        crowd_close(&crowd);
    }
    ck_assert_uint_ge(n_late, 1);
}
END_TEST

/* Another process took the lock: what is out and what waits is refused, and nothing of it is done. */
START_TEST(all_are_fenced)
{
    struct crowd crowd;
    crowd_open(&crowd, kind_of(_i), NULL);
    lock_steal(&crowd.lab, "n1");
    struct lab_node *owner = lab_node(&crowd.lab, "n1");
    for (unsigned i = 0; i < FEW; i++)
        store_create(crowd.node->store, &crowd.records[i], lab_answered, &crowd.answers[i]);
    wait_all(&crowd, FEW);
    unsigned n_conflicts = 0;
    crowd.node = owner;
    for (unsigned i = 0; i < FEW; i++) {
        n_conflicts += crowd.answers[i].code == CHXA_E_STORE_CONFLICT;
        ck_assert(crowd.answers[i].code == CHXA_E_STORE_CONFLICT ||
                  crowd.answers[i].code == CHXA_E_STORE_UNAVAILABLE);
        ck_assert(!exists(&crowd, crowd.records[i].xid));
    }
    ck_assert_uint_ge(n_conflicts, 1);
    crowd_close(&crowd);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("store batches");
    int n_kinds = lab_zookeeper() ? 2 : 1;
    TCase *both = tcase_create("both");
    tcase_set_timeout(both, 60);
    tcase_add_loop_test(both, changes_at_once_share_commits, 0, n_kinds);
    tcase_add_loop_test(both, a_transaction_costs_four_commits, 0, n_kinds);
    tcase_add_loop_test(both, each_change_has_its_own_outcome, 0, n_kinds);
    tcase_add_loop_test(both, sinks_of_changes_at_once, 0, n_kinds);
    tcase_add_loop_test(both, late_ones_are_not_done, 0, n_kinds);
    tcase_add_test(both, lists_hold_up_no_change);
    tcase_add_test(both, one_that_fails_is_not_the_loss_of_others);
    tcase_add_loop_test(both, large_changes_share_no_commit, 0, n_kinds);
    tcase_add_loop_test(both, all_are_fenced, 0, n_kinds);
    suite_add_tcase(suite, both);
    if (n_kinds == 2) {
        TCase *lost = tcase_create("lost");
        tcase_set_timeout(lost, 60);
        tcase_add_test(lost, what_waits_is_not_sent_late);
        tcase_add_loop_test(lost, a_lost_multi_is_settled_for_each, 0, 2);
        suite_add_tcase(suite, lost);
    }
    return suite_run(suite);
}
