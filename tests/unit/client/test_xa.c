/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch against a node that is made of functions (fake_node.h): what a transaction manager may do, in every order that matters, with
 * answers that are lost, refused and late, several threads, and memory that runs out.
 */
#include "client/include/chxa/xa_switch.h"
#include "client/src/internal.h"
#include "client/src/xa_state.h"
#include "lib/suite.h"
#include "unit/client/fake_node.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the transaction manager ------------------------------------------------------------------------------------ */

#define INFO "url=http://n1:1,http://n2:1 write_mode=first"

static int xa_open(char *info, int rmid, long flags)
{
    return chxa_xa_switch.xa_open_entry(info, rmid, flags);
}

static int xa_close(int rmid, long flags)
{
    return chxa_xa_switch.xa_close_entry("", rmid, flags);
}

static XID make_xid(int n)
{
    XID xid = {.formatID = 7, .gtrid_length = 4, .bqual_length = 1};
    snprintf(xid.data, sizeof xid.data, "%04d", n % 10000);
    xid.data[4] = (char)(n / 10000);
    return xid;
}

static const char *id_of(int n)
{
    static _Thread_local char id[CHXA_XID_BYTES_MAX + 1];
    XID xid = make_xid(n);
    ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XA_OK);
    return id;
}

#define ENTRY(name)                                                                                \
    static int xa_##name(int n, long flags)                                                        \
    {                                                                                              \
        XID xid = make_xid(n);                                                                     \
        return chxa_xa_switch.xa_##name##_entry(&xid, 1, flags);                                   \
    }
ENTRY(start)
ENTRY(end)
ENTRY(prepare)
ENTRY(commit)
ENTRY(rollback)
ENTRY(forget)

static int xa_recover(XID *xids, long count, long flags)
{
    return chxa_xa_switch.xa_recover_entry(xids, count, 1, flags);
}

static enum chxa_txn_state node_state(int n)
{
    struct fake *fake = fake_find(id_of(n));
    return fake ? fake->state : CHXA_STATE_UNKNOWN;
}

static void write_rows(int n)
{
    struct chxa_txn *txn = NULL;
    ck_assert_int_eq(chxa_xa_txn(1, &txn), XA_OK);
    ck_assert_str_eq(txn->xid, id_of(n));
    pthread_mutex_lock(&node_lock);
    fake_find(id_of(n))->writes++;
    pthread_mutex_unlock(&node_lock);
}

#define is(call, code) ck_assert_int_eq((call), (code))

/* Leaves branch n idle, with rows. */
static void make_idle(int n)
{
    is(xa_start(n, TMNOFLAGS), XA_OK);
    write_rows(n);
    is(xa_end(n, TMSUCCESS), XA_OK);
}

static void make_prepared(int n)
{
    make_idle(n);
    is(xa_prepare(n, TMNOFLAGS), XA_OK);
}

static void setup(void)
{
    requests = 0;
    is(xa_open(INFO, 1, TMNOFLAGS), XA_OK);
}

static void teardown(void)
{
    is(xa_close(1, TMNOFLAGS), XA_OK);
    ck_assert_uint_eq(clients_open, 0);
    ck_assert_uint_eq(txns_open, 0);
    fakes_clear();
}

/* In another thread that has opened the resource manager. */
struct job {
    int (*call)(int n, long flags);
    int n;
    long flags;
    int code;
};

static void *run_job(void *arg)
{
    struct job *job = arg;
    ck_assert_int_eq(xa_open(INFO, 1, TMNOFLAGS), XA_OK);
    job->code = job->call(job->n, job->flags);
    if (xa_close(1, TMNOFLAGS) == XAER_PROTO)
        return NULL; /* ends associated, which is what some tests want */
    return NULL;
}

static int elsewhere(int (*call)(int n, long flags), int n, long flags)
{
    struct job job = {call, n, flags, 0};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_job, &job), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return job.code;
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

START_TEST(the_switch_is_the_standards)
{
    ck_assert_str_eq(chxa_xa_switch.name, "chxa");
    ck_assert_int_eq(chxa_xa_switch.flags, TMNOFLAGS);
    ck_assert_int_eq(chxa_xa_switch.version, 0);
    ck_assert_uint_eq(sizeof chxa_xa_switch.name, 32);
    ck_assert_uint_eq(sizeof(XID), 3 * sizeof(long) + 128);
}
END_TEST

START_TEST(two_phases)
{
    make_idle(1);
    ck_assert_int_eq(node_state(1), CHXA_STATE_INITIALIZED);
    is(xa_prepare(1, TMNOFLAGS), XA_OK);
    ck_assert_int_eq(node_state(1), CHXA_STATE_PREPARED);
    is(xa_commit(1, TMNOFLAGS), XA_OK);
    ck_assert_int_eq(node_state(1), CHXA_STATE_COMMITTED);
    /* its first answer might have been lost */
    is(xa_commit(1, TMNOFLAGS), XA_OK);
}
END_TEST

START_TEST(one_phase)
{
    make_idle(1);
    is(xa_commit(1, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(1, TMONEPHASE), XA_OK);
    ck_assert_int_eq(node_state(1), CHXA_STATE_COMMITTED);
    make_prepared(2);
    is(xa_commit(2, TMONEPHASE), XAER_PROTO);
    is(xa_commit(2, TMNOFLAGS), XA_OK);
    /* prepared by a process that is gone */
    fake_add(id_of(3), CHXA_STATE_PREPARED);
    is(xa_commit(3, TMONEPHASE), XAER_PROTO);
    ck_assert_int_eq(node_state(3), CHXA_STATE_PREPARED);
    is(xa_commit(3, TMNOFLAGS), XA_OK);
    fake_add(id_of(4), CHXA_STATE_INITIALIZED);
    is(xa_commit(4, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(4, TMONEPHASE), XA_OK);
}
END_TEST

START_TEST(nothing_works_unopened)
{
    XID xid = make_xid(1), xids[1];
    int handle = 0, retval = 0;
    is(xa_close(1, TMNOFLAGS), XA_OK);
    is(xa_close(1, TMNOFLAGS), XA_OK);
    is(xa_start(1, TMNOFLAGS), XAER_PROTO);
    is(xa_end(1, TMSUCCESS), XAER_PROTO);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(1, TMNOFLAGS), XAER_PROTO);
    is(xa_rollback(1, TMNOFLAGS), XAER_PROTO);
    is(xa_forget(1, TMNOFLAGS), XAER_PROTO);
    is(xa_recover(xids, 1, TMSTARTRSCAN), XAER_PROTO);
    is(chxa_xa_switch.xa_complete_entry(&handle, &retval, 1, TMNOFLAGS), XAER_PROTO);
    ck_assert_uint_eq(requests, 0);
    setup();
    is(xa_open(INFO, 1, TMNOFLAGS), XA_OK);                            /* once more: nothing */
    is(chxa_xa_switch.xa_start_entry(&xid, 2, TMNOFLAGS), XAER_PROTO); /* another rmid */
    struct chxa_txn *txn = NULL;
    is(chxa_xa_txn(1, &txn), XAER_PROTO);
    is(elsewhere(xa_prepare, 1, TMNOFLAGS), XAER_NOTA);
}
END_TEST

START_TEST(arguments)
{
    XID xid = make_xid(1), null = {.formatID = -1};
    int handle = 0, retval = 0;
    is(xa_open(INFO, 2, TMASYNC), XAER_ASYNC);
    is(xa_open(INFO, 2, TMJOIN), XAER_INVAL);
    is(xa_open(NULL, 2, TMNOFLAGS), XAER_INVAL);
    is(xa_open("write_mode=first", 2, TMNOFLAGS), XAER_INVAL);
    ck_assert_str_eq(chxa_xa_last_error()->message, "xa_info has no url");
    is(xa_open("url=ftp://n1", 2, TMNOFLAGS), XAER_INVAL);
    is(xa_close(1, TMASYNC), XAER_ASYNC);
    is(xa_close(1, TMFAIL), XAER_INVAL);
    is(xa_start(1, TMASYNC), XAER_ASYNC);
    is(xa_start(1, TMJOIN | TMRESUME), XAER_INVAL);
    is(xa_end(1, TMNOFLAGS), XAER_INVAL);
    is(xa_end(1, TMSUCCESS | TMMIGRATE), XAER_INVAL);
    is(xa_prepare(1, TMASYNC), XAER_ASYNC);
    is(xa_prepare(1, TMNOWAIT), XAER_INVAL);
    is(xa_commit(1, TMASYNC), XAER_ASYNC);
    is(xa_rollback(1, TMNOWAIT), XAER_INVAL);
    is(xa_forget(1, TMONEPHASE), XAER_INVAL);
    is(chxa_xa_switch.xa_start_entry(&null, 1, TMNOFLAGS), XAER_INVAL);
    is(chxa_xa_switch.xa_start_entry(NULL, 1, TMNOFLAGS), XAER_INVAL);
    is(chxa_xa_switch.xa_commit_entry(&null, 1, TMNOFLAGS), XAER_INVAL);
    is(xa_recover(NULL, 1, TMSTARTRSCAN), XAER_INVAL);
    is(xa_recover(&xid, -1, TMSTARTRSCAN), XAER_INVAL);
    is(xa_recover(&xid, 1, TMASYNC), XAER_INVAL);
    is(xa_recover(&xid, 1, TMNOFLAGS), XAER_INVAL);
    is(xa_recover(&xid, 1, TMENDRSCAN), XAER_INVAL);
    is(chxa_xa_switch.xa_complete_entry(&handle, &retval, 1, TMNOFLAGS), XAER_PROTO);
    is(chxa_xa_switch.xa_complete_entry(&handle, &retval, 1, TMMULTIPLE | TMNOWAIT), XAER_PROTO);
    is(chxa_xa_switch.xa_complete_entry(&handle, &retval, 1, TMASYNC), XAER_INVAL);
    is(chxa_xa_switch.xa_complete_entry(NULL, &retval, 1, TMNOFLAGS), XAER_INVAL);
    ck_assert_uint_eq(requests, 0);
}
END_TEST

START_TEST(one_active_association_at_a_time)
{
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(xa_start(1, TMNOFLAGS), XAER_PROTO);
    is(xa_start(2, TMNOFLAGS), XAER_PROTO);
    is(xa_start(1, TMJOIN), XAER_PROTO);
    is(xa_start(1, TMRESUME), XAER_PROTO);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(1, TMONEPHASE), XAER_PROTO);
    is(xa_rollback(1, TMNOFLAGS), XAER_PROTO);
    is(xa_forget(1, TMNOFLAGS), XAER_PROTO);
    is(xa_close(1, TMNOFLAGS), XAER_PROTO);
    is(elsewhere(xa_rollback, 1, TMNOFLAGS), XAER_PROTO);
    is(elsewhere(xa_end, 1, TMSUCCESS), XAER_PROTO); /* not its own */
    is(elsewhere(xa_start, 1, TMNOFLAGS), XAER_DUPID);
    is(xa_end(2, TMSUCCESS), XAER_NOTA);
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(xa_end(1, TMSUCCESS), XAER_PROTO);
    is(xa_start(1, TMNOFLAGS), XAER_DUPID);
    is(xa_rollback(1, TMNOFLAGS), XA_OK);
    ck_assert_int_eq(node_state(1), CHXA_STATE_ABORTED);
}
END_TEST

START_TEST(suspend_and_resume)
{
    struct chxa_txn *first = NULL, *again = NULL;
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(chxa_xa_txn(1, &first), XA_OK);
    is(xa_end(1, TMSUSPEND), XA_OK);
    is(chxa_xa_txn(1, &again), XAER_PROTO);
    is(xa_end(1, TMSUSPEND), XAER_PROTO);
    is(xa_start(1, TMJOIN), XAER_PROTO);
    is(xa_start(1, TMNOFLAGS), XAER_DUPID);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(elsewhere(xa_start, 1, TMRESUME), XAER_PROTO); /* did not migrate */
    is(xa_start(2, TMNOFLAGS), XA_OK);                /* another branch meanwhile */
    is(xa_start(1, TMRESUME), XAER_PROTO);
    is(xa_end(2, TMSUSPEND), XA_OK);
    is(xa_start(1, TMRESUME), XA_OK);
    is(chxa_xa_txn(1, &again), XA_OK);
    ck_assert_ptr_eq(first, again);
    is(xa_end(2, TMSUCCESS), XA_OK); /* a suspended one beside the active one */
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(xa_start(1, TMRESUME), XAER_PROTO);
    is(xa_start(3, TMRESUME), XAER_NOTA);
    is(xa_prepare(1, TMNOFLAGS), XA_OK);
    is(xa_rollback(1, TMNOFLAGS), XA_OK);
    is(xa_rollback(2, TMNOFLAGS), XA_OK);
}
END_TEST

START_TEST(an_association_migrates)
{
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(xa_end(1, TMSUSPEND | TMMIGRATE), XA_OK);
    is(xa_end(1, TMSUSPEND), XAER_PROTO);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(elsewhere(xa_start, 1, TMNOFLAGS), XAER_DUPID);
    is(elsewhere(xa_end, 1, TMSUCCESS), XA_OK); /* ended by whom it may concern */
    is(xa_prepare(1, TMNOFLAGS), XA_RDONLY);
    is(xa_start(2, TMNOFLAGS), XA_OK);
    is(xa_end(2, TMSUSPEND | TMMIGRATE), XA_OK);
    is(xa_start(2, TMRESUME), XA_OK); /* the same thread may as well */
    is(xa_end(2, TMSUSPEND | TMMIGRATE), XA_OK);
    is(elsewhere(xa_start, 2, TMRESUME), XA_OK); /* … and ends, associated */
    is(xa_start(2, TMRESUME), XAER_PROTO);
    is(xa_prepare(2, TMNOFLAGS), XAER_PROTO);
    is(xa_rollback(2, TMNOFLAGS), XA_OK);
    is(xa_start(3, TMNOFLAGS), XA_OK); /* nobody ever comes for it: freed with the instance */
    is(xa_end(3, TMSUSPEND | TMMIGRATE), XA_OK);
}
END_TEST

START_TEST(another_thread_joins)
{
    is(elsewhere(xa_start, 1, TMJOIN), XAER_NOTA);
    make_idle(1);
    is(xa_start(1, TMJOIN), XA_OK);
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(elsewhere(xa_start, 1, TMJOIN), XA_OK); /* and ends, associated: the branch is doomed */
    is(xa_start(1, TMJOIN), XA_RBROLLBACK);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(1, TMONEPHASE), XAER_PROTO);
    is(elsewhere(xa_rollback, 1, TMNOFLAGS), XA_OK);
    /* begun by another process */
    fake_add(id_of(2), CHXA_STATE_INITIALIZED)->writes = 1;
    is(xa_start(2, TMJOIN), XA_OK);
    is(xa_end(2, TMSUCCESS), XA_OK);
    is(xa_prepare(2, TMNOFLAGS), XA_OK);
    is(xa_start(2, TMJOIN), XAER_PROTO);
    fake_add(id_of(3), CHXA_STATE_PREPARED);
    is(xa_start(3, TMJOIN), XAER_PROTO);
    fake_add(id_of(4), CHXA_STATE_ABORTED)->reason = "idle time-out";
    is(xa_start(4, TMJOIN), XA_RBTIMEOUT);
    fake_add(id_of(5), CHXA_STATE_ABORTED);
    is(xa_start(5, TMJOIN), XA_RBROLLBACK);
}
END_TEST

START_TEST(a_failed_end_dooms)
{
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(xa_end(1, TMFAIL), XA_RBROLLBACK);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    is(xa_commit(1, TMONEPHASE), XAER_PROTO);
    is(xa_start(1, TMJOIN), XA_RBROLLBACK);
    is(xa_rollback(1, TMNOFLAGS), XA_OK);
    /* with a second association, suspended: it is told when it comes back */
    is(xa_start(2, TMNOFLAGS), XA_OK);
    is(xa_end(2, TMSUSPEND | TMMIGRATE), XA_OK);
    is(elsewhere(xa_start, 2, TMJOIN), XA_OK);
    is(xa_rollback(2, TMNOFLAGS), XAER_PROTO);
    is(xa_start(2, TMRESUME), XA_RBROLLBACK);
    is(xa_rollback(2, TMNOFLAGS), XA_OK);
    /* doomed while this thread is active */
    is(xa_start(3, TMNOFLAGS), XA_OK);
    is(elsewhere(xa_start, 3, TMJOIN), XA_OK);
    is(xa_end(3, TMSUSPEND), XA_RBROLLBACK);
    is(xa_start(3, TMRESUME), XAER_PROTO);
    is(xa_rollback(3, TMNOFLAGS), XA_OK);
}
END_TEST

START_TEST(a_stream_keeps_the_association)
{
    struct chxa_txn *txn = NULL;
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(chxa_xa_txn(1, &txn), XA_OK);
    txn->streams = 1;
    is(xa_end(1, TMSUCCESS), XAER_PROTO);
    is(xa_end(1, TMFAIL), XAER_PROTO);
    is(xa_prepare(1, TMNOFLAGS), XAER_PROTO);
    txn->streams = 0;
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(xa_prepare(1, TMNOFLAGS), XA_OK);
    is(xa_commit(1, TMNOFLAGS), XA_OK);
}
END_TEST

START_TEST(a_branch_that_exists)
{
    fake_add(id_of(1), CHXA_STATE_INITIALIZED);
    is(xa_start(1, TMNOFLAGS), XAER_DUPID);
    snprintf(fake_add(id_of(2), CHXA_STATE_INITIALIZED)->meta, 64, "{\"xa_process\": \"1-00\"}");
    is(xa_start(2, TMNOFLAGS), XAER_DUPID);
    static const enum chxa_txn_state states[] = {CHXA_STATE_PREPARED, CHXA_STATE_COMMITTING,
                                                 CHXA_STATE_COMMITTED, CHXA_STATE_ABORTING,
                                                 CHXA_STATE_ABORTED};
    for (int i = 0; i < 5; i++) {
        fake_add(id_of(3 + i), states[i]);
        is(xa_start(3 + i, TMNOFLAGS), XAER_DUPID);
    }
    /* our own begin, whose answer was lost */
    lose("start", true);
    is(xa_start(20, TMNOFLAGS), XAER_RMFAIL);
    is(xa_start(20, TMNOFLAGS), XA_OK);
    is(xa_end(20, TMSUCCESS), XA_OK);
    lose("start", true);
    is(xa_start(21, TMNOFLAGS), XAER_RMFAIL);
    refuse("get", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_start(21, TMNOFLAGS), XAER_RMFAIL);
    is(xa_rollback(21, TMNOFLAGS), XA_OK);
}
END_TEST

START_TEST(rollback_in_every_state)
{
    is(xa_rollback(1, TMNOFLAGS), XA_OK); /* unknown: nothing to roll back */
    make_idle(2);
    is(xa_rollback(2, TMNOFLAGS), XA_OK);
    is(xa_rollback(2, TMNOFLAGS), XA_OK);
    make_prepared(3);
    is(xa_rollback(3, TMNOFLAGS), XA_OK);
    is(xa_commit(3, TMNOFLAGS), XA_HEURRB);
    make_prepared(4);
    is(xa_commit(4, TMNOFLAGS), XA_OK);
    is(xa_rollback(4, TMNOFLAGS), XA_HEURCOM);
    fake_add(id_of(5), CHXA_STATE_COMMITTING);
    is(xa_rollback(5, TMNOFLAGS), XAER_RMFAIL);
    fake_add(id_of(6), CHXA_STATE_ABORTING);
    is(xa_rollback(6, TMNOFLAGS), XAER_RMFAIL);
    for (int done = 0; done < 2; done++) {
        make_prepared(10 + done);
        lose("rollback", done);
        is(xa_rollback(10 + done, TMNOFLAGS), XAER_RMFAIL);
        is(xa_rollback(10 + done, TMNOFLAGS), XA_OK);
        ck_assert_int_eq(node_state(10 + done), CHXA_STATE_ABORTED);
    }
}
END_TEST

START_TEST(lost_answers)
{
    for (int done = 0; done < 2; done++) {
        int n = done * 100;
        make_idle(n);
        lose("prepare", done);
        is(xa_prepare(n, TMNOFLAGS), XAER_RMFAIL);
        is(xa_prepare(n, TMNOFLAGS), XA_OK);
        lose("commit", done);
        is(xa_commit(n, TMNOFLAGS), XAER_RMFAIL);
        is(xa_commit(n, TMNOFLAGS), XA_OK);
        make_idle(n + 1);
        lose("commit", done);
        is(xa_commit(n + 1, TMONEPHASE), XAER_RMFAIL);
        is(xa_commit(n + 1, TMONEPHASE), XA_OK);
        make_idle(n + 2); /* a fault in the node is nobody's last word */
        lose("commit", done);
        trouble.code = CHXA_ERR_INTERNAL;
        trouble.xa_code = XAER_RMERR;
        is(xa_commit(n + 2, TMONEPHASE), XAER_RMFAIL);
        is(xa_commit(n + 2, TMONEPHASE), XA_OK);
    }
    ck_assert_int_eq(chxa_xa_last_error()->http_status, 200);
}
END_TEST

START_TEST(refused_at_the_end)
{
    make_idle(1);
    refuse("prepare", CHXA_ERR_SCHEMA_CHANGED, XA_RBINTEGRITY);
    is(xa_prepare(1, TMNOFLAGS), XA_RBINTEGRITY);
    ck_assert_int_eq(node_state(1), CHXA_STATE_ABORTED); /* as the standard says: and rolled back */
    is(xa_prepare(1, TMNOFLAGS), XA_RBROLLBACK);
    make_idle(2);
    refuse("commit", CHXA_ERR_TOO_MANY_PARTS, XA_RBOTHER);
    is(xa_commit(2, TMONEPHASE), XA_RBOTHER);
    ck_assert_int_eq(node_state(2), CHXA_STATE_ABORTED);
    /* never a word of rolled back in the second phase */
    make_prepared(3);
    refuse("commit", CHXA_ERR_PARTS_LOST, XA_RBROLLBACK);
    is(xa_commit(3, TMNOFLAGS), XAER_RMFAIL);
    ck_assert_int_eq(node_state(3), CHXA_STATE_PREPARED);
    is(xa_commit(3, TMNOFLAGS), XA_OK);
    /* ended by its time-out */
    make_idle(4);
    fake_find(id_of(4))->state = CHXA_STATE_ABORTED;
    fake_find(id_of(4))->reason = "idle time-out";
    is(xa_prepare(4, TMNOFLAGS), XA_RBTIMEOUT);
    make_idle(5);
    fake_find(id_of(5))->state = CHXA_STATE_ABORTED;
    fake_find(id_of(5))->reason = "idle time-out";
    is(xa_commit(5, TMONEPHASE), XA_RBTIMEOUT);
    is(xa_prepare(6, TMNOFLAGS), XAER_NOTA);
    is(xa_commit(6, TMNOFLAGS), XAER_NOTA);
    is(xa_commit(6, TMONEPHASE), XAER_NOTA);
    make_prepared(7);
    refuse("commit", CHXA_ERR_BLOCKED, XAER_RMFAIL);
    is(xa_commit(7, TMNOWAIT), XA_RETRY);
    refuse("commit", CHXA_ERR_BLOCKED, XAER_RMFAIL);
    is(xa_commit(7, TMNOFLAGS), XAER_RMFAIL);
    is(xa_commit(7, TMNOWAIT), XA_OK);
}
END_TEST

START_TEST(read_only)
{
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(xa_prepare(1, TMNOFLAGS), XA_RDONLY);
    ck_assert_int_eq(node_state(1), CHXA_STATE_UNKNOWN);
    is(xa_commit(1, TMNOFLAGS), XAER_NOTA);
    /* rows of another process */
    is(xa_start(2, TMNOFLAGS), XA_OK);
    is(xa_end(2, TMSUCCESS), XA_OK);
    fake_find(id_of(2))->writes = 1;
    is(xa_prepare(2, TMNOFLAGS), XA_OK);
    is(xa_commit(2, TMNOFLAGS), XA_OK);
    /* nobody can say: it stays prepared */
    is(xa_start(3, TMNOFLAGS), XA_OK);
    is(xa_end(3, TMSUCCESS), XA_OK);
    refuse("get", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_prepare(3, TMNOFLAGS), XA_OK);
    is(xa_commit(3, TMNOFLAGS), XA_OK);
    /* gone or not: the TM must not commit it */
    for (int done = 0; done < 2; done++) {
        is(xa_start(4 + done, TMNOFLAGS), XA_OK);
        is(xa_end(4 + done, TMSUCCESS), XA_OK);
        lose("rollback", done);
        is(xa_prepare(4 + done, TMNOFLAGS), XAER_RMFAIL);
        is(xa_rollback(4 + done, TMNOFLAGS), XA_OK);
    }
    is(xa_start(6, TMNOFLAGS), XA_OK);
    is(xa_end(6, TMSUCCESS), XA_OK);
    refuse("forget", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_prepare(6, TMNOFLAGS), XA_RDONLY);
    ck_assert_int_eq(node_state(6), CHXA_STATE_ABORTED);
}
END_TEST

START_TEST(heuristic_ends)
{
    static const struct {
        const char *how;
        int commit, rollback;
    } ends[] = {{"rolled_back", XA_HEURRB, XA_HEURRB}, {"mixed", XA_HEURMIX, XA_HEURMIX}};
    for (int i = 0; i < 2; i++) {
        make_prepared(i);
        fake_find(id_of(i))->state = CHXA_STATE_COMMITTED;
        fake_find(id_of(i))->heuristic = ends[i].how;
        is(xa_forget(i, TMNOFLAGS), XAER_PROTO); /* not told yet */
        is(xa_commit(i, TMNOFLAGS), ends[i].commit);
        is(xa_commit(i, TMNOFLAGS), ends[i].commit); /* kept */
        is(xa_rollback(i, TMNOFLAGS), ends[i].rollback);
        lose("forget", false);
        is(xa_forget(i, TMNOFLAGS), XAER_RMFAIL);
        is(xa_forget(i, TMNOFLAGS), XA_OK);
        is(xa_forget(i, TMNOFLAGS), XAER_NOTA);
        is(xa_commit(i, TMNOFLAGS), XAER_NOTA);
    }
    fake_add(id_of(5), CHXA_STATE_COMMITTED)->heuristic = "some kind of the future";
    is(xa_rollback(5, TMNOFLAGS), XA_HEURHAZ);
    refuse("request", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_rollback(5, TMNOFLAGS), XAER_RMFAIL);
    fake_add(id_of(6), CHXA_STATE_ABORTED);
    is(xa_commit(6, TMNOFLAGS), XA_HEURRB);
    is(xa_forget(6, TMNOFLAGS), XA_OK);
    fake_add(id_of(7), CHXA_STATE_PREPARED);
    is(xa_forget(7, TMNOFLAGS), XAER_PROTO);
}
END_TEST

START_TEST(a_recovery_scan)
{
    XID xids[64];
    bool seen[50] = {false};
    fake_add("load-42", CHXA_STATE_PREPARED);
    fake_add("xa01:00:00", CHXA_STATE_PREPARED);
    for (int i = 0; i < 50; i++)
        fake_add(id_of(i), i % 3 == 0   ? CHXA_STATE_PREPARED
                           : i % 3 == 1 ? CHXA_STATE_COMMITTING
                                        : CHXA_STATE_ABORTING);
    for (int i = 50; i < 60; i++)
        fake_add(id_of(i), CHXA_STATE_INITIALIZED);
    is(xa_recover(xids, 7, TMSTARTRSCAN), 7);
    int total = 7;
    for (int got = 7; got == 7; total += got) {
        for (int i = 0; i < got; i++) {
            int n = (xids[i].data[0] - '0') * 1000 + (xids[i].data[1] - '0') * 100 +
                    (xids[i].data[2] - '0') * 10 + xids[i].data[3] - '0';
            ck_assert(n >= 0 && n < 50 && !seen[n]);
            seen[n] = true;
        }
        got = xa_recover(xids, 7, TMNOFLAGS);
        ck_assert_int_ge(got, 0);
        if (got < 7)
            total += got;
        if (got < 7)
            break;
    }
    ck_assert_int_eq(total, 50);
    is(xa_recover(xids, 7, TMNOFLAGS), 0); /* the end, and still open */
    is(xa_recover(xids, 7, TMENDRSCAN), 0);
    is(xa_recover(xids, 7, TMNOFLAGS), XAER_INVAL);
    is(xa_recover(xids, 64, TMSTARTRSCAN | TMENDRSCAN), 50);
    is(xa_recover(xids, 64, TMNOFLAGS), XAER_INVAL);
    is(xa_recover(NULL, 0, TMSTARTRSCAN), 0);
    is(xa_recover(xids, 64, TMNOFLAGS), 50);
    is(xa_recover(xids, 5, TMSTARTRSCAN), 5); /* from the start again */
    refuse("recover", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_recover(xids, 5, TMSTARTRSCAN), XAER_RMFAIL);
    is(xa_recover(xids, 5, TMNOFLAGS), XAER_INVAL);
    is(xa_recover(xids, 5, TMSTARTRSCAN), 5); /* left open: freed by xa_close */
}
END_TEST

START_TEST(a_scan_of_all)
{
    XID xids[64];
    for (int i = 0; i < 20; i++)
        fake_add(id_of(i), i % 2 ? CHXA_STATE_COMMITTED : CHXA_STATE_ABORTED);
    fake_find(id_of(3))->heuristic = "mixed";
    fake_find(id_of(4))->given_reason = "enough";
    fake_find(id_of(19))->given_reason = "enough";
    fake_add("load-42", CHXA_STATE_ABORTED)->given_reason = "not ours";
    fake_add(id_of(20), CHXA_STATE_PREPARED);
    is(xa_recover(xids, 64, TMSTARTRSCAN | TMENDRSCAN), 1);
    is(xa_close(1, TMNOFLAGS), XA_OK);
    is(xa_open(INFO " scan=all", 1, TMNOFLAGS), XA_OK);
    is(xa_recover(xids, 64, TMSTARTRSCAN | TMENDRSCAN), 4);
    for (int i = 0; i < 4; i++) {
        XID want = make_xid((const int[]){20, 3, 4, 19}[i]);
        ck_assert_mem_eq(&xids[i], &want, sizeof want);
    }
    refuse("request", CHXA_ERR_UNREACHABLE, XAER_RMFAIL);
    is(xa_recover(xids, 64, TMSTARTRSCAN | TMENDRSCAN), XAER_RMFAIL);
    is(xa_recover(xids, 64, TMNOFLAGS), XAER_INVAL);
}
END_TEST

START_TEST(close_and_open_again)
{
    make_prepared(1);
    make_idle(2);
    is(xa_start(3, TMNOFLAGS), XA_OK);
    is(xa_close(1, TMNOFLAGS), XAER_PROTO);
    is(xa_end(3, TMSUSPEND), XA_OK);
    is(xa_close(1, TMNOFLAGS), XA_OK);
    ck_assert_uint_eq(txns_open, 0);
    setup();
    is(xa_start(3, TMRESUME), XAER_NOTA); /* this process remembers nothing */
    is(xa_commit(1, TMNOFLAGS), XA_OK);
    is(xa_prepare(2, TMNOFLAGS), XA_OK);
    is(xa_rollback(3, TMNOFLAGS), XA_OK);
}
END_TEST

/* Two rmids in one thread, and the same cluster under another text. */
START_TEST(several_rmids)
{
    XID xid = make_xid(1), other = make_xid(2);
    is(xa_open("url=http://n9:1", 2, TMNOFLAGS), XA_OK);
    ck_assert_uint_eq(clients_open, 2);
    is(xa_start(1, TMNOFLAGS), XA_OK);
    is(chxa_xa_switch.xa_start_entry(&other, 2, TMNOFLAGS), XA_OK);
    is(chxa_xa_switch.xa_end_entry(&xid, 2, TMSUCCESS), XAER_NOTA);
    is(chxa_xa_switch.xa_end_entry(&other, 2, TMSUCCESS), XA_OK);
    is(xa_end(1, TMSUCCESS), XA_OK);
    is(chxa_xa_switch.xa_rollback_entry(&other, 2, TMNOFLAGS), XA_OK);
    is(xa_close(2, TMNOFLAGS), XA_OK);
    ck_assert_uint_eq(clients_open, 1);
}
END_TEST

static void *commit_held(void *arg)
{
    ck_assert_int_eq(xa_open(INFO, 1, TMNOFLAGS), XA_OK);
    *(int *)arg = xa_commit(1, TMNOFLAGS);
    ck_assert_int_eq(xa_close(1, TMNOFLAGS), XA_OK);
    return NULL;
}

START_TEST(calls_for_one_branch_take_turns)
{
    pthread_t thread;
    int code = -1;
    make_prepared(1);
    hold = "commit";
    ck_assert_int_eq(pthread_create(&thread, NULL, commit_held, &code), 0);
    pthread_mutex_lock(&node_lock);
    while (!held)
        pthread_cond_wait(&node_changed, &node_lock);
    pthread_mutex_unlock(&node_lock);
    is(xa_commit(1, TMNOWAIT), XA_RETRY);
    is(xa_start(1, TMJOIN | TMNOWAIT), XA_RETRY);
    make_idle(2); /* others go on */
    pthread_mutex_lock(&node_lock);
    release = true;
    pthread_cond_broadcast(&node_changed);
    pthread_mutex_unlock(&node_lock);
    is(xa_commit(1, TMNOFLAGS), XA_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(code, XA_OK);
}
END_TEST

START_TEST(room_is_made_of_prepared_branches)
{
    for (int i = 0; i < (int)XA_BRANCHES_MAX - 1; i++) {
        is(xa_start(i, TMNOFLAGS), XA_OK);
        is(xa_end(i, TMSUCCESS), XA_OK);
    }
    make_prepared(66000);
    is(xa_start(66001, TMNOFLAGS), XA_OK); /* in the place of 66000 */
    is(xa_end(66001, TMSUCCESS), XA_OK);
    is(xa_start(66002, TMNOFLAGS), XAER_RMFAIL);
    is(xa_rollback(66001, TMNOFLAGS), XA_OK);
    is(xa_commit(66000, TMNOFLAGS), XA_OK);
}
END_TEST

/* ---- many threads ----------------------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    int base = *(int *)arg;
    ck_assert_int_eq(xa_open(INFO, 1, TMNOFLAGS), XA_OK);
    for (int round = 0; round < 300; round++) {
        int own = base * 1000 + round, shared = 60000 + round % 5;
        make_idle(own);
        is(xa_start(own, TMJOIN), XA_OK);
        is(xa_end(own, TMSUSPEND), XA_OK);
        int joined = xa_start(shared, round % 2 ? TMJOIN : TMNOFLAGS);
        if (joined == XA_OK)
            ck_assert_int_ge(xa_end(shared, round % 7 ? TMSUCCESS : TMFAIL), 0);
        if (round % 3 == 0)
            xa_rollback(shared, TMNOFLAGS);
        if (round % 11 == 0)
            xa_prepare(shared, TMNOFLAGS);
        is(xa_end(own, TMSUCCESS), XA_OK);
        is(xa_prepare(own, TMNOFLAGS), XA_OK);
        is(xa_commit(own, TMNOFLAGS), XA_OK);
    }
    ck_assert_int_eq(xa_close(1, TMNOFLAGS), XA_OK);
    return NULL;
}

START_TEST(many_threads)
{
    pthread_t threads[6];
    int bases[6];
    for (int i = 0; i < 6; i++) {
        bases[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &bases[i]), 0);
    }
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static long allocations, failing;

static bool let_fail(size_t bytes)
{
    (void)bytes;
    return ++allocations != failing;
}

/* Tries again until it works: out of memory is temporary, and never a wrong outcome. */
#define insist(call)                                                                               \
    do {                                                                                           \
        int insist_code;                                                                           \
        while ((insist_code = (call)) == XAER_RMERR || insist_code == XAER_RMFAIL)                 \
            failed++;                                                                              \
        ck_assert_int_ge(insist_code, XA_OK);                                                      \
    } while (0)

START_TEST(each_allocation_fails_in_turn)
{
    is(xa_close(1, TMNOFLAGS), XA_OK);
    cx_alloc_hook = let_fail;
    for (failing = 1;; failing++) {
        int n = (int)failing, failed = 0;
        XID xids[10];
        allocations = 0;
        insist(xa_open(INFO " scan=all", 1, TMNOFLAGS));
        insist(xa_start(n, TMNOFLAGS));
        write_rows(n);
        insist(xa_end(n, TMSUCCESS));
        insist(xa_start(n, TMJOIN));
        insist(xa_end(n, TMSUCCESS));
        insist(xa_prepare(n, TMNOFLAGS));
        insist(xa_recover(xids, 10, TMSTARTRSCAN | TMENDRSCAN));
        insist(xa_commit(n, TMNOFLAGS));
        fake_add(id_of(n + 1000), CHXA_STATE_PREPARED);
        insist(xa_rollback(n + 1000, TMNOFLAGS));
        insist(xa_close(1, TMNOFLAGS));
        ck_assert_int_eq(node_state(n), CHXA_STATE_COMMITTED);
        ck_assert_int_eq(node_state(n + 1000), CHXA_STATE_ABORTED);
        ck_assert_uint_eq(txns_open, 0);
        if (allocations < failing)
            break;
        ck_assert_int_eq(failed, 1);
        fakes_clear();
    }
    ck_assert_int_gt(failing, 8);
    cx_alloc_hook = NULL;
    setup();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xa");
    TCase *tcase = tcase_create("xa");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_switch_is_the_standards);
    tcase_add_test(tcase, two_phases);
    tcase_add_test(tcase, one_phase);
    tcase_add_test(tcase, nothing_works_unopened);
    tcase_add_test(tcase, arguments);
    tcase_add_test(tcase, one_active_association_at_a_time);
    tcase_add_test(tcase, suspend_and_resume);
    tcase_add_test(tcase, an_association_migrates);
    tcase_add_test(tcase, another_thread_joins);
    tcase_add_test(tcase, a_failed_end_dooms);
    tcase_add_test(tcase, a_stream_keeps_the_association);
    tcase_add_test(tcase, a_branch_that_exists);
    tcase_add_test(tcase, rollback_in_every_state);
    tcase_add_test(tcase, lost_answers);
    tcase_add_test(tcase, refused_at_the_end);
    tcase_add_test(tcase, read_only);
    tcase_add_test(tcase, heuristic_ends);
    tcase_add_test(tcase, a_recovery_scan);
    tcase_add_test(tcase, a_scan_of_all);
    tcase_add_test(tcase, close_and_open_again);
    tcase_add_test(tcase, several_rmids);
    tcase_add_test(tcase, calls_for_one_branch_take_turns);
    tcase_add_test(tcase, room_is_made_of_prepared_branches);
    tcase_add_test(tcase, many_threads);
    tcase_add_test(tcase, each_allocation_fails_in_turn);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
