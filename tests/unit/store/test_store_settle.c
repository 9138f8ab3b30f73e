/* SPDX-License-Identifier: Apache-2.0
 *
 * Settling over a scripted store: what each answer, and each thing read back, leads to. The same
 * against real servers: tests/contract/store/test_store_unknown.c.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "lib/suite.h"
#include "store/store_impl.h"
#include "store/store_settle.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define V 5 /* the version that the change is for */

/* What the store answers next, in this order. */
struct answer {
    int code;
    /* With code 0 of a get, and a create's conflict: */
    const char *op_id;
    int64_t version;
    const char *write_id; /* of the write with seq 1, or NULL: no writes */
};

struct script {
    struct store base;
    const struct answer *answers;
    size_t n_answers;
    size_t next;
    bool not_ready_when_done; /* after the last answer */
    bool closed;
};

static void script_start(struct store *base, struct store_op *op)
{
    struct script *script = (struct script *)base;
    ck_assert_msg(script->next < script->n_answers, "one request too many");
    const struct answer *answer = &script->answers[script->next++];
    op->ret_version = answer->version;
    if (answer->op_id && (op->kind == STORE_OP_GET || op->kind == STORE_OP_CREATE)) {
        op->ret_has_record = true;
        op->ret_record.xid = mem_strdup("x");
        op->ret_record.op_id = mem_strdup(answer->op_id);
        if (answer->write_id) {
            op->ret_record.writes = mem_array(1, sizeof *op->ret_record.writes);
            op->ret_record.n_writes = 1;
            op->ret_record.writes[0].seq = 1;
            op->ret_record.writes[0].write_id = mem_strdup(answer->write_id);
        }
    }
    if (script->not_ready_when_done && script->next == script->n_answers)
        base->ready = false;
    store_op_finish(op, answer->code);
}

static void script_close(struct store *base)
{
    store_impl_closed(base);
}

static void script_destroy(struct store *base)
{
    store_base_clear(base);
}

static const struct store_impl script_impl = {"script", script_start, script_close, script_destroy};

static void no_event(void *arg, enum store_event event, const char *detail)
{
    (void)arg, (void)event, (void)detail;
}

struct outcome {
    bool done;
    int code;
    int64_t version;
    bool has_record;
};

static void settled(void *arg, const struct store_result *result)
{
    struct outcome *outcome = arg;
    ck_assert(!outcome->done);
    *outcome = (struct outcome){true, result->code, result->version, result->record != NULL};
}

static void script_closed(void *arg)
{
    *(bool *)arg = true;
}

enum change { CREATE, CAS, ADD_WRITE, REMOVE };

static void start(struct store *store, enum change change, uint64_t deadline_ms,
                  struct outcome *outcome)
{
    struct chxa_record record = {.xid = "x",
                                 .state = CHXA_PREPARED,
                                 .owner = "n",
                                 .owner_url = "u",
                                 .op_id = "ours",
                                 .version = V};
    struct chxa_write write = {.write_id = "ours", .seq = 1};
    write.target.database = "d";
    write.target.table = "t";
    memset(write.query_hash, 'a', CHXA_HASH_HEX_BYTES);
    memset(write.body_hash, 'a', CHXA_HASH_HEX_BYTES);
    switch (change) {
    case CREATE:
        store_settle_create(store, &record, deadline_ms, settled, outcome);
        break;
    case CAS:
        store_settle_cas(store, &record, NULL, deadline_ms, settled, outcome);
        break;
    case ADD_WRITE:
        store_settle_add_write(store, "x", V, NULL, &write, deadline_ms, settled, outcome);
        break;
    default:
        store_settle_remove(store, "x", V, deadline_ms, settled, outcome);
    }
}

/* Plays the script; every answer must be used. */
static struct outcome play(enum change change, const struct answer *answers, size_t n_answers,
                           bool not_ready_when_done, uint64_t settle_ms)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct script script = {
        .answers = answers, .n_answers = n_answers, .not_ready_when_done = not_ready_when_done};
    struct store_config config = {.cluster = "c", .node = "n", .url = "u"};
    store_base_init(&script.base, &script_impl, &loop, &config, no_event, NULL);
    script.base.ready = true;
    struct outcome outcome = {0};
    start(&script.base, change, clock_monotonic_ms() + settle_ms, &outcome);
    ck_assert(!outcome.done);
    while (!outcome.done)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(script.next, n_answers);
    store_close(&script.base, script_closed, &script.closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(script.closed);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return outcome;
}

#define LOST                                                                                       \
    {                                                                                              \
        CHXA_E_STORE_UNKNOWN, NULL, 0, NULL                                                        \
    }
#define AWAY                                                                                       \
    {                                                                                              \
        CHXA_E_STORE_UNAVAILABLE, NULL, 0, NULL                                                    \
    }
#define CONFLICT                                                                                   \
    {                                                                                              \
        CHXA_E_STORE_CONFLICT, NULL, 0, NULL                                                       \
    }
#define GONE                                                                                       \
    {                                                                                              \
        CHXA_E_TXN_NOT_FOUND, NULL, 0, NULL                                                        \
    }
#define BROKEN                                                                                     \
    {                                                                                              \
        CHXA_E_INVALID_RECORD, NULL, 0, NULL                                                       \
    }

#define FENCED                                                                                     \
    {                                                                                              \
        CHXA_E_FENCED, NULL, 0, NULL                                                               \
    }

static const struct {
    enum change change;
    size_t n_answers;
    struct answer answers[4];
    int code;
    int64_t version;
    bool has_record;
} cells[] = {
    /* Known at once. */
    {CREATE, 1, {{0, NULL, 0, NULL}}, 0, 0, false},
    {CAS, 1, {{0, NULL, V + 1, NULL}}, 0, V + 1, false},
    {CAS, 1, {GONE}, CHXA_E_TXN_NOT_FOUND, 0, false},
    {ADD_WRITE, 1, {{0, NULL, V, NULL}}, 0, V, false},
    {REMOVE, 1, {{0, NULL, V, NULL}}, 0, V, false},
    {REMOVE, 1, {CONFLICT}, CHXA_E_STORE_CONFLICT, 0, false},
    {REMOVE, 1, {GONE}, CHXA_E_TXN_NOT_FOUND, 0, false},
    {CAS, 1, {BROKEN}, CHXA_E_INVALID_RECORD, 0, false},
    {CREATE, 1, {FENCED}, CHXA_E_FENCED, 0, false},
    {CAS, 1, {FENCED}, CHXA_E_FENCED, 0, false},
    {ADD_WRITE, 1, {FENCED}, CHXA_E_FENCED, 0, false},
    /* Fenced behind a lost answer: not there when read back, so known. */
    {CREATE, 3, {LOST, GONE, FENCED}, CHXA_E_FENCED, 0, false},
    {CAS, 3, {LOST, {0, "before", V, NULL}, FENCED}, CHXA_E_FENCED, 0, false},
    {ADD_WRITE, 3, {LOST, {0, "r", V, NULL}, FENCED}, CHXA_E_FENCED, 0, false},
    /* The store is away for a moment. */
    {CAS, 3, {AWAY, AWAY, {0, NULL, V + 1, NULL}}, 0, V + 1, false},
    /* create: exists. */
    {CREATE, 1, {{CHXA_E_STORE_CONFLICT, "ours", 0, NULL}}, 0, 0, false},
    {CREATE, 1, {{CHXA_E_STORE_CONFLICT, "theirs", 3, NULL}}, CHXA_E_STORE_CONFLICT, 3, true},
    {CREATE, 2, {LOST, {0, "ours", 0, NULL}}, 0, 0, false},
    {CREATE, 2, {LOST, {0, "theirs", 2, NULL}}, CHXA_E_STORE_CONFLICT, 2, true},
    {CREATE, 3, {LOST, GONE, {0, NULL, 0, NULL}}, 0, 0, false},
    {CREATE, 4, {LOST, AWAY, AWAY, {0, "ours", 0, NULL}}, 0, 0, false},
    {CREATE, 2, {LOST, BROKEN}, CHXA_E_STORE_UNKNOWN, 0, false},
    /* cas: the version tells. */
    {CAS, 2, {LOST, {0, "ours", V + 1, NULL}}, 0, V + 1, false},
    {CAS, 3, {LOST, {0, "before", V, NULL}, {0, NULL, V + 1, NULL}}, 0, V + 1, false},
    {CAS, 4, {LOST, {0, "before", V, NULL}, LOST, {0, "ours", V + 1, NULL}}, 0, V + 1, false},
    {CAS, 2, {LOST, {0, "theirs", V + 1, NULL}}, CHXA_E_STORE_CONFLICT, 0, false},
    {CAS, 2, {LOST, {0, "theirs", V + 2, NULL}}, CHXA_E_STORE_UNKNOWN, 0, false},
    {CAS, 2, {CONFLICT, {0, "theirs", V + 2, NULL}}, CHXA_E_STORE_CONFLICT, 0, false},
    {CAS, 2, {CONFLICT, {0, "ours", V + 1, NULL}}, 0, V + 1, false},
    {CAS, 2, {LOST, GONE}, CHXA_E_TXN_NOT_FOUND, 0, false},
    /* add_write: the seq and the write id tell. */
    {ADD_WRITE, 2, {LOST, {0, "r", V, "ours"}}, 0, V, false},
    {ADD_WRITE, 2, {LOST, {0, "r", V + 1, "ours"}}, 0, V, false},
    {ADD_WRITE, 3, {LOST, {0, "r", V, NULL}, {0, NULL, V, NULL}}, 0, V, false},
    {ADD_WRITE, 2, {LOST, {0, "r", V, "theirs"}}, CHXA_E_STORE_CONFLICT, 0, false},
    {ADD_WRITE, 2, {LOST, {0, "r", V + 1, NULL}}, CHXA_E_STORE_CONFLICT, 0, false},
    {ADD_WRITE, 2, {CONFLICT, {0, "r", V, "ours"}}, 0, V, false},
    {ADD_WRITE, 2, {LOST, GONE}, CHXA_E_TXN_NOT_FOUND, 0, false},
    /* remove: gone is done. */
    {REMOVE, 2, {LOST, GONE}, 0, 0, false},
    {REMOVE, 3, {LOST, {0, "r", V, NULL}, {0, NULL, V, NULL}}, 0, V, false},
    {REMOVE, 4, {LOST, {0, "r", V, NULL}, LOST, GONE}, 0, 0, false},
    {REMOVE, 2, {LOST, {0, "r", V + 1, NULL}}, CHXA_E_STORE_CONFLICT, 0, false},
};

#define N_CELLS ((int)(sizeof cells / sizeof cells[0]))

START_TEST(each_answer_leads_where_it_should)
{
    struct outcome outcome =
        play(cells[_i].change, cells[_i].answers, cells[_i].n_answers, false, 10000);
    ck_assert_int_eq(outcome.code, cells[_i].code);
    ck_assert_int_eq(outcome.version, cells[_i].version);
    ck_assert(outcome.has_record == cells[_i].has_record);
}
END_TEST

/* At the deadline: UNKNOWN only while a change of ours may be in the store. */
START_TEST(deadline_tells_what_is_known)
{
    static const struct answer away[] = {AWAY}, lost[] = {LOST},
                               not_there[] = {LOST, {0, "before", V, NULL}};
    struct outcome outcome = play(CAS, away, 1, true, 300);
    ck_assert_int_eq(outcome.code, CHXA_E_STORE_UNAVAILABLE);
    outcome = play(CAS, lost, 1, true, 300);
    ck_assert_int_eq(outcome.code, CHXA_E_STORE_UNKNOWN);
    outcome = play(CAS, not_there, 2, true, 300);
    ck_assert_int_eq(outcome.code, CHXA_E_STORE_UNAVAILABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store settle");
    TCase *tests = tcase_create("settle");
    tcase_add_loop_test(tests, each_answer_leads_where_it_should, 0, N_CELLS);
    tcase_add_test(tests, deadline_tells_what_is_known);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
