/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's contract (server/store/store.h), the same tests for SQLite and for ZooKeeper:
 * requests, error codes, versions, pages and filters, sizes, hostile text, closing.
 * Locks and fencing are in test_store_lock.c, lost answers in test_store_unknown.c.
 */
#include "contract/store/store_lab.h"

#define NODE "n1"

/* ---- one record ---- */

START_TEST(record_lives)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    ck_assert_str_eq(store_kind(node->store), _i == LAB_SQLITE ? "sqlite" : "zookeeper");
    struct chxa_record record = lab_record("job:1-2_3.x", NODE);
    record.sink = mem_strdup("job");
    record.sink_epoch = 7;
    record.timeout_ms = 60000;
    struct lab_answer answer = {0};
    store_create(node->store, &record, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), 0);
    ck_assert(!answer.has_record);
    record.version = answer.version;

    struct chxa_write second = lab_write(2, 3), first = lab_write(1, 1);
    ck_assert_int_eq(lab_add_write(&lab, node, record.xid, record.version, &second), 0);
    ck_assert_int_eq(lab_add_write(&lab, node, record.xid, record.version, &first), 0);
    lab_record_set(&record, CHXA_PREPARED, "op-prepare");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);

    answer = lab_get(&lab, node, record.xid);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_int_eq(answer.version, record.version);
    ck_assert_int_eq(answer.record.version, record.version);
    ck_assert_str_eq(answer.record.xid, record.xid);
    ck_assert_int_eq(answer.record.state, CHXA_PREPARED);
    ck_assert_str_eq(answer.record.owner, NODE);
    ck_assert_str_eq(answer.record.op_id, "op-prepare");
    ck_assert_str_eq(answer.record.sink, "job");
    ck_assert_uint_eq(answer.record.sink_epoch, 7);
    ck_assert_int_eq(answer.record.timeout_ms, 60000);
    ck_assert_uint_eq(answer.record.n_writes, 2);
    lab_same_write(&answer.record.writes[0], &first);
    lab_same_write(&answer.record.writes[1], &second);
    lab_answer_clear(&answer);

    lab_record_set(&record, CHXA_COMMITTING, "op-commit");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    lab_record_set(&record, CHXA_COMMITTED, "op-done");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    /* A finished one can still be changed (a reason added). */
    record.reason = mem_strdup("by hand");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    ck_assert_int_eq(lab_remove(&lab, node, record.xid, record.version), 0);
    answer = lab_get(&lab, node, record.xid);
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    ck_assert(!answer.has_record);
    /* The id is free again, and nothing of the old one shines through. */
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    answer = lab_get(&lab, node, record.xid);
    ck_assert_uint_eq(answer.record.n_writes, 0);
    lab_answer_clear(&answer);
    chxa_write_clear(&first);
    chxa_write_clear(&second);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

START_TEST(create_tells_what_exists)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    struct chxa_record record = lab_record("x", NODE), other = lab_record("x", NODE);
    struct chxa_write write = lab_write(1, 2);
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    ck_assert_int_eq(lab_add_write(&lab, node, "x", 0, &write), 0);
    other.meta = mem_strdup("{\"a\": 1}");
    struct lab_answer answer = {0};
    store_create(node->store, &other, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_CONFLICT);
    ck_assert(answer.has_record);
    ck_assert_str_eq(answer.record.op_id, record.op_id);
    ck_assert_ptr_null(answer.record.meta);
    ck_assert_uint_eq(answer.record.n_writes, 1);
    ck_assert_int_eq(answer.version, answer.record.version);
    lab_answer_clear(&answer);
    chxa_write_clear(&write);
    chxa_record_clear(&record);
    chxa_record_clear(&other);
    lab_close(&lab);
}
END_TEST

START_TEST(versions_guard_every_change)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    struct chxa_record record = lab_record("x", NODE);
    struct chxa_write write = lab_write(1, 1);
    /* Nothing is there yet. */
    ck_assert_int_eq(lab_cas(&lab, node, &record), CHXA_E_TXN_NOT_FOUND);
    ck_assert_int_eq(lab_add_write(&lab, node, "x", 0, &write), CHXA_E_TXN_NOT_FOUND);
    ck_assert_int_eq(lab_remove(&lab, node, "x", 0), CHXA_E_TXN_NOT_FOUND);
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    int64_t first = record.version;
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    static const int64_t strange[] = {
        -1, -2, 99, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX, INT64_MIN, 1ll << 32};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0] + 1; i++) {
        int64_t version = i == 0 ? first : strange[i - 1];
        int64_t current = record.version;
        record.version = version;
        ck_assert_int_eq(lab_cas(&lab, node, &record), CHXA_E_STORE_CONFLICT);
        ck_assert_int_eq(lab_add_write(&lab, node, "x", version, &write), CHXA_E_STORE_CONFLICT);
        ck_assert_int_eq(lab_remove(&lab, node, "x", version), CHXA_E_STORE_CONFLICT);
        record.version = current;
    }
    struct lab_answer answer = lab_get(&lab, node, "x");
    ck_assert_int_eq(answer.version, record.version);
    ck_assert_uint_eq(answer.record.n_writes, 0);
    lab_answer_clear(&answer);
    /* A sequence number is used once. */
    ck_assert_int_eq(lab_add_write(&lab, node, "x", record.version, &write), 0);
    ck_assert_int_eq(lab_add_write(&lab, node, "x", record.version, &write), CHXA_E_STORE_CONFLICT);
    chxa_write_clear(&write);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

START_TEST(bad_input_is_refused)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    static const char *const xids[] = {"", ".", "..", "a/b", "../x", "a b", "a'b", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof xids / sizeof xids[0]; i++) {
        struct lab_answer answer = lab_get(&lab, node, xids[i]);
        ck_assert_int_eq(answer.code, CHXA_E_INVALID_XID);
        struct chxa_record record = lab_record(xids[i], NODE);
        ck_assert_int_eq(lab_create(&lab, node, &record), CHXA_E_INVALID_XID);
        ck_assert_int_eq(lab_remove(&lab, node, xids[i], 0), CHXA_E_INVALID_XID);
        chxa_record_clear(&record);
    }
    struct chxa_record record = lab_record("x", "a/b");
    ck_assert_int_eq(lab_create(&lab, node, &record), CHXA_E_INVALID_RECORD);
    mem_replace(&record.owner, "..");
    ck_assert_int_eq(lab_create(&lab, node, &record), CHXA_E_INVALID_RECORD);
    mem_replace(&record.owner, NODE);
    record.state = CHXA_UNKNOWN;
    ck_assert_int_eq(lab_create(&lab, node, &record), CHXA_E_INVALID_RECORD);
    record.state = CHXA_INITIALIZED;
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    struct chxa_write write = lab_write(0, 1);
    ck_assert_int_eq(lab_add_write(&lab, node, "x", 0, &write), CHXA_E_INVALID_RECORD);
    struct store_filter filter = {.owner = "a/b", .limit = 10};
    struct lab_answer answer = lab_list(&lab, node, &filter);
    ck_assert_int_eq(answer.code, CHXA_E_INVALID_REQUEST);
    lab_answer_clear(&answer);
    chxa_write_clear(&write);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

START_TEST(hostile_text_survives)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    char xid[CHXA_XID_BYTES_MAX + 1];
    memset(xid, 'Z', sizeof xid);
    xid[CHXA_XID_BYTES_MAX] = '\0';
    struct chxa_record record = lab_record(xid, NODE);
    record.meta =
        mem_strdup("{\"a'\\\"; DROP TABLE txns; --\": \"\xe2\x82\xac \\u0000 \xf0\x9f\x92\xa9\"}");
    record.reason = mem_strdup("it's \"odd\" \\ `\xc3\xa9` % %s \t\n \x01 ?");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    struct chxa_write write = lab_write(INT64_MAX, 1);
    mem_replace(&write.target.schema, "'; \xe2\x82\xac\n\"");
    ck_assert_int_eq(lab_add_write(&lab, node, xid, 0, &write), 0);
    struct lab_answer answer = lab_get(&lab, node, xid);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_str_eq(answer.record.xid, xid);
    ck_assert_str_eq(answer.record.meta, record.meta);
    ck_assert_str_eq(answer.record.reason, record.reason);
    ck_assert_uint_eq(answer.record.n_writes, 1);
    lab_same_write(&answer.record.writes[0], &write);
    lab_answer_clear(&answer);
    ck_assert_int_eq(lab_remove(&lab, node, xid, 0), 0);
    chxa_write_clear(&write);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* ---- sizes ---- */

START_TEST(large_write_is_whole)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE), *other = lab_node(&lab, "n2");
    struct chxa_record record = lab_record("big", NODE);
    char *meta = mem_alloc(200001);
    memset(meta, '1', 200000);
    meta[0] = meta[199999] = '"';
    record.meta = meta;
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    struct chxa_write writes[3] = {lab_write(1, 9000), lab_write(2, 1), lab_write(3, 20000)};
    char *text;
    ck_assert_int_eq(chxa_write_encode(&writes[0], &text), 0);
    ck_assert_uint_gt(strlen(text), 2000000); /* the size this test is about */
    free(text);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(lab_add_write(&lab, node, "big", 0, &writes[i]), 0);
    ck_assert_int_eq(lab_add_write(&lab, node, "big", 0, &writes[0]), CHXA_E_STORE_CONFLICT);
    struct lab_answer answer = lab_get(&lab, other, "big");
    ck_assert_int_eq(answer.code, 0);
    ck_assert_str_eq(answer.record.meta, meta);
    ck_assert_uint_eq(answer.record.n_writes, 3);
    for (int i = 0; i < 3; i++)
        lab_same_write(&answer.record.writes[i], &writes[i]);
    lab_answer_clear(&answer);
    lab_record_set(&record, CHXA_ABORTED, "op");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    ck_assert_int_eq(lab_remove(&lab, node, "big", record.version), 0);
    answer = lab_get(&lab, other, "big");
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    for (int i = 0; i < 3; i++)
        chxa_write_clear(&writes[i]);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

struct many {
    unsigned n_done, n_calls;
    unsigned n_code[2]; /* 0, anything else */
};

static void many_done(void *arg, const struct store_result *result)
{
    struct many *many = arg;
    many->n_done++;
    many->n_code[result->code != 0]++;
}

START_TEST(many_writes_come_back_in_order)
{
    enum { N = 1500 };
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    lab.config.queue_max = 2 * N;
    struct lab_node *node = lab_node(&lab, NODE);
    struct chxa_record record = lab_record("many", NODE);
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    struct many many = {0};
    for (unsigned i = N; i > 0; i--) {
        struct chxa_write write = lab_write(i, 1);
        store_add_write(node->store, "many", 0, NULL, &write, many_done, &many);
        chxa_write_clear(&write);
    }
    lab_wait_count(&lab, &many.n_done, N);
    ck_assert_uint_eq(many.n_code[0], N);
    struct lab_answer answer = lab_get(&lab, node, "many");
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.record.n_writes, N);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(answer.record.writes[i].seq, i + 1);
    lab_answer_clear(&answer);
    lab_record_set(&record, CHXA_COMMITTED, "op");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    ck_assert_int_eq(lab_remove(&lab, node, "many", record.version), 0);
    answer = lab_get(&lab, node, "many");
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

START_TEST(queue_is_bounded)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    lab.config.queue_max = 10;
    struct lab_node *node = lab_node(&lab, NODE);
    struct many many = {0};
    for (int i = 0; i < 25; i++) {
        char xid[16];
        snprintf(xid, sizeof xid, "x%d", i);
        struct chxa_record record = lab_record(xid, NODE);
        store_create(node->store, &record, many_done, &many);
        chxa_record_clear(&record);
    }
    ck_assert_uint_eq(many.n_done, 0);
    lab_wait_count(&lab, &many.n_done, 25);
    ck_assert_uint_eq(many.n_code[0], 10);
    struct store_filter filter = {.limit = 100};
    struct lab_answer answer = lab_list(&lab, node, &filter);
    ck_assert_uint_eq(answer.n_records, 10); /* UNAVAILABLE: nothing was changed */
    lab_answer_clear(&answer);
    lab_close(&lab);
}
END_TEST

/* ---- two nodes ---- */

START_TEST(two_nodes_create_one_record)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *nodes[2] = {lab_node(&lab, NODE), lab_node(&lab, "n2")};
    for (int round = 0; round < 20; round++) {
        char xid[16];
        snprintf(xid, sizeof xid, "r%d", round);
        struct lab_answer answers[2] = {0};
        char *op_ids[2];
        for (int k = 0; k < 2; k++) {
            int n = (k + round) % 2;
            struct chxa_record record = lab_record(xid, n ? "n2" : NODE);
            op_ids[n] = mem_strdup(record.op_id);
            store_create(nodes[n]->store, &record, lab_answered, &answers[n]);
            chxa_record_clear(&record);
        }
        lab_finish(&lab, &answers[0]);
        lab_wait(&lab, &answers[1].done);
        ck_assert_int_eq((answers[0].code == 0) + (answers[1].code == 0), 1);
        int winner = answers[0].code == 0 ? 0 : 1;
        ck_assert_int_eq(answers[!winner].code, CHXA_E_STORE_CONFLICT);
        ck_assert_str_eq(answers[!winner].record.op_id, op_ids[winner]);
        for (int k = 0; k < 2; k++) {
            lab_answer_clear(&answers[k]);
            free(op_ids[k]);
        }
    }
    lab_close(&lab);
}
END_TEST

/* Each round both nodes replace the same version: one wins, and the record is the winner's. */
START_TEST(two_nodes_replace_one_version)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *nodes[2] = {lab_node(&lab, NODE), lab_node(&lab, "n2")};
    struct chxa_record record = lab_record("x", NODE);
    ck_assert_int_eq(lab_create(&lab, nodes[0], &record), 0);
    unsigned wins[2] = {0};
    for (int round = 0; round < 30; round++) {
        struct lab_answer answers[2] = {0};
        for (int k = 0; k < 2; k++) {
            int n = (k + round) % 2;
            lab_record_set(&record, CHXA_INITIALIZED, n ? "op-two" : "op-one");
            store_cas(nodes[n]->store, &record, NULL, lab_answered, &answers[n]);
        }
        lab_finish(&lab, &answers[0]);
        lab_wait(&lab, &answers[1].done);
        ck_assert_int_eq((answers[0].code == 0) + (answers[1].code == 0), 1);
        int winner = answers[0].code == 0 ? 0 : 1;
        ck_assert_int_eq(answers[!winner].code, CHXA_E_STORE_CONFLICT);
        wins[winner]++;
        record.version = answers[winner].version;
        struct lab_answer now = lab_get(&lab, nodes[!winner], "x");
        ck_assert_int_eq(now.version, record.version);
        ck_assert_str_eq(now.record.op_id, winner ? "op-two" : "op-one");
        lab_answer_clear(&now);
    }
    ck_assert_uint_eq(wins[0] + wins[1], 30);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

/* ---- lists ---- */

struct page_count {
    size_t n_records, n_pages;
    char xids[200][32];
};

static struct page_count list_all(struct lab *lab, struct lab_node *node,
                                  struct store_filter filter)
{
    struct page_count count = {0};
    char *after = NULL;
    do {
        filter.after = after;
        struct lab_answer answer = lab_list(lab, node, &filter);
        ck_assert_int_eq(answer.code, 0);
        ck_assert_uint_le(answer.n_records, filter.limit);
        for (size_t i = 0; i < answer.n_records; i++) {
            ck_assert_uint_lt(count.n_records, 200);
            ck_assert_uint_eq(answer.records[i].n_writes, 0);
            for (size_t k = 0; k < count.n_records; k++) /* never twice */
                ck_assert_str_ne(count.xids[k], answer.records[i].xid);
            snprintf(count.xids[count.n_records++], 32, "%s", answer.records[i].xid);
        }
        free(after);
        after = mem_strdup(answer.next);
        lab_answer_clear(&answer);
        ck_assert_uint_lt(count.n_pages++, 500);
    } while (after);
    return count;
}

#define LIST_N 60

static const char *list_owner(int i)
{
    return i % 3 ? NODE : "n2";
}

static enum chxa_state list_state(int i)
{
    return (enum chxa_state)(CHXA_INITIALIZED + i % (CHXA_STATE_COUNT - 1));
}

static const char *list_sink(int i)
{
    return i % 4 ? NULL : i % 8 ? "job:1" : "1";
}

/* Several in one millisecond. */
static int64_t list_changed_ms(int i)
{
    return 1000 + i % 7;
}

static void list_fill(struct lab *lab, struct lab_node *node)
{
    for (int i = 0; i < LIST_N; i++) {
        char xid[16];
        snprintf(xid, sizeof xid, "txn-%02d", i);
        struct chxa_record record = lab_record(xid, list_owner(i));
        record.created_ms = 1000 + i;
        record.changed_ms = list_changed_ms(i);
        record.sink = mem_strdup(list_sink(i));
        ck_assert_int_eq(lab_create(lab, node, &record), 0);
        /* Every state by way of cas, so that the index is kept by both ways. */
        if (list_state(i) != CHXA_INITIALIZED) {
            lab_record_set(&record, list_state(i), "op");
            ck_assert_int_eq(lab_cas(lab, node, &record), 0);
        }
        chxa_record_clear(&record);
    }
}

static bool list_expects(const struct store_filter *filter, int i)
{
    bool final = chxa_state_kind(list_state(i)) == CHXA_KIND_FINAL;
    if (filter->states && !(filter->states & (1u << list_state(i))))
        return false;
    if (filter->owner && strcmp(filter->owner, list_owner(i)) != 0)
        return false;
    if (filter->sink && (list_sink(i) == NULL || strcmp(filter->sink, list_sink(i)) != 0))
        return false;
    if (filter->created_before_ms && 1000 + i >= filter->created_before_ms)
        return false;
    if (filter->finished_before_ms && (!final || list_changed_ms(i) >= filter->finished_before_ms))
        return false;
    return !(filter->unfinished && final);
}

START_TEST(lists_filter_and_page)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    struct page_count none = list_all(&lab, node, (struct store_filter){.limit = 10});
    ck_assert_uint_eq(none.n_records, 0);
    list_fill(&lab, node);
    const struct store_filter filters[] = {
        {.limit = 1000},
        {.limit = 7},
        {.limit = 1, .states = 1u << CHXA_PREPARED},
        {.limit = 5, .states = 1u << CHXA_COMMITTED | 1u << CHXA_ABORTED},
        {.limit = 4, .owner = "n2"},
        {.limit = 4, .owner = "nobody"},
        {.limit = 3, .sink = "1"},
        {.limit = 3, .sink = "job:1", .owner = NODE},
        {.limit = 6, .created_before_ms = 1030},
        {.limit = 1, .finished_before_ms = 1004},
        {.limit = 3, .finished_before_ms = 1006, .owner = NODE},
        {.limit = 1000, .finished_before_ms = 5000},
        {.limit = 10, .finished_before_ms = 1000},
        {.limit = 7, .unfinished = true, .owner = NODE},
        {.limit = 1000, .unfinished = true, .owner = "n2"},
        {.limit = 7, .unfinished = true},
        {.limit = 2, .unfinished = true, .owner = NODE, .states = 1u << CHXA_COMMITTING},
        {.limit = 2, .unfinished = true, .owner = "nobody"},
        {.limit = LIST_N},
    };
    for (size_t f = 0; f < sizeof filters / sizeof filters[0]; f++) {
        struct page_count count = list_all(&lab, node, filters[f]);
        size_t expected = 0;
        for (int i = 0; i < LIST_N; i++) {
            if (!list_expects(&filters[f], i))
                continue;
            expected++;
            char xid[16];
            snprintf(xid, sizeof xid, "txn-%02d", i);
            bool found = false;
            for (size_t k = 0; k < count.n_records; k++)
                found |= strcmp(count.xids[k], xid) == 0;
            ck_assert_msg(found, "filter %zu lacks %s", f, xid);
        }
        ck_assert_msg(count.n_records == expected, "filter %zu: %zu, expected %zu", f,
                      count.n_records, expected);
        /* The same again, in the same order. */
        struct page_count again = list_all(&lab, node, filters[f]);
        ck_assert_mem_eq(&again, &count, sizeof count);
    }
    lab_close(&lab);
}
END_TEST

START_TEST(lists_forget_the_removed)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    struct chxa_record open = lab_record("open", NODE), done = lab_record("done", NODE);
    ck_assert_int_eq(lab_create(&lab, node, &open), 0);
    ck_assert_int_eq(lab_create(&lab, node, &done), 0);
    lab_record_set(&done, CHXA_ABORTED, "op");
    ck_assert_int_eq(lab_cas(&lab, node, &done), 0);
    struct store_filter all = {.limit = 10};
    struct store_filter unfinished = {.limit = 10, .unfinished = true, .owner = NODE};
    ck_assert_uint_eq(list_all(&lab, node, all).n_records, 2);
    ck_assert_uint_eq(list_all(&lab, node, unfinished).n_records, 1);
    /* An unfinished one may be removed too; its index entry goes with it. */
    ck_assert_int_eq(lab_remove(&lab, node, "open", 0), 0);
    ck_assert_int_eq(lab_remove(&lab, node, "done", done.version), 0);
    ck_assert_uint_eq(list_all(&lab, node, all).n_records, 0);
    ck_assert_uint_eq(list_all(&lab, node, unfinished).n_records, 0);
    chxa_record_clear(&open);
    chxa_record_clear(&done);
    lab_close(&lab);
}
END_TEST

/* ---- closing ---- */

struct closing {
    struct lab_node *node;
    struct many *many;
    struct lab_answer *answers;
};

/* Callbacks start requests of their own, also while the store is closing. */
static void closing_again(void *arg, const struct store_result *result)
{
    struct closing *closing = arg;
    closing->many->n_done++;
    if (closing->many->n_done == 100)
        store_close(closing->node->store, lab_node_closed, closing->node);
    if (closing->many->n_done >= 100)
        ck_assert(!store_is_ready(closing->node->store));
    if (closing->many->n_done < 200)
        store_get(closing->node->store, "x", closing_again, closing);
    else
        ck_assert(result->code != 0);
    closing->many->n_calls += result->code == CHXA_E_STORE_UNAVAILABLE;
}

START_TEST(callbacks_may_close_and_go_on)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    struct many many = {0};
    struct closing closing = {.node = node, .many = &many};
    store_get(node->store, "x", closing_again, &closing);
    lab_wait(&lab, &node->closed);
    ck_assert_uint_eq(many.n_done, 200);
    ck_assert_uint_eq(many.n_calls, 100);
    lab_close(&lab);
}
END_TEST

START_TEST(close_answers_what_is_in_flight)
{
    enum { N = 300 };
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_node(&lab, NODE);
    static struct lab_answer answers[N];
    memset(answers, 0, sizeof answers);
    char xid[16];
    for (int i = 0; i < N; i++) {
        snprintf(xid, sizeof xid, "x%d", i);
        struct chxa_record record = lab_record(xid, NODE);
        store_create(node->store, &record, lab_answered, &answers[i]);
        chxa_record_clear(&record);
    }
    for (int turn = 0; turn < 3; turn++)
        uv_run(&lab.loop, UV_RUN_NOWAIT);
    lab_stop(&lab, node);
    node = lab_node(&lab, NODE);
    for (int i = 0; i < N; i++) {
        ck_assert(answers[i].done);
        snprintf(xid, sizeof xid, "x%d", i);
        struct lab_answer now = lab_get(&lab, node, xid);
        if (answers[i].code == 0)
            ck_assert_int_eq(now.code, 0);
        else if (chxa_error_outcome_known(answers[i].code))
            ck_assert_int_eq(now.code, CHXA_E_TXN_NOT_FOUND);
        else
            ck_assert_int_eq(answers[i].code, CHXA_E_STORE_UNKNOWN);
        lab_answer_clear(&now);
    }
    lab_close(&lab);
}
END_TEST

START_TEST(close_before_ready)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_start(&lab, NODE);
    ck_assert_uint_eq(store_epoch(node->store), 0);
    struct lab_answer answer = {0};
    store_get(node->store, "x", lab_answered, &answer);
    lab_stop(&lab, node);
    ck_assert(answer.done);
    ck_assert_int_eq(answer.code, CHXA_E_STORE_UNAVAILABLE);
    ck_assert_uint_eq(node->n_ready + node->n_lost + node->n_refused, 0);
    lab_close(&lab);
}
END_TEST

/* ---- settling (nothing is lost here; see test_store_unknown.c) ---- */

START_TEST(settle_recognises_its_own)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *node = lab_start(&lab, NODE);
    struct chxa_record record = lab_record("x", NODE), other = lab_record("x", NODE);
    struct chxa_write write = lab_write(1, 1), second = lab_write(1, 2);
    mem_replace(&second.write_id, "another");
    uint64_t deadline_ms = clock_monotonic_ms() + 20000;
    /* Not ready yet: waits for it. */
    struct lab_answer answer = {0};
    store_settle_create(node->store, &record, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), 0);
    memset(&answer, 0, sizeof answer);
    store_settle_create(node->store, &record, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), 0);
    memset(&answer, 0, sizeof answer);
    store_settle_create(node->store, &other, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_CONFLICT);
    ck_assert_str_eq(answer.record.op_id, record.op_id);
    lab_answer_clear(&answer);
    for (int i = 0; i < 2; i++) {
        store_settle_add_write(node->store, "x", 0, NULL, &write, deadline_ms, lab_answered,
                               &answer);
        ck_assert_int_eq(lab_finish(&lab, &answer), 0);
        memset(&answer, 0, sizeof answer);
    }
    store_settle_add_write(node->store, "x", 0, NULL, &second, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_CONFLICT);
    lab_record_set(&record, CHXA_PREPARED, "op-p");
    for (int i = 0; i < 2; i++) {
        memset(&answer, 0, sizeof answer);
        store_settle_cas(node->store, &record, NULL, deadline_ms, lab_answered, &answer);
        ck_assert_int_eq(lab_finish(&lab, &answer), 0);
        ck_assert_int_eq(answer.version, 1);
    }
    memset(&answer, 0, sizeof answer);
    mem_replace(&record.op_id, "op-q");
    store_settle_cas(node->store, &record, NULL, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_CONFLICT);
    memset(&answer, 0, sizeof answer);
    store_settle_remove(node->store, "x", 0, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_STORE_CONFLICT);
    memset(&answer, 0, sizeof answer);
    store_settle_remove(node->store, "x", 1, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), 0);
    memset(&answer, 0, sizeof answer);
    store_settle_remove(node->store, "x", 1, deadline_ms, lab_answered, &answer);
    ck_assert_int_eq(lab_finish(&lab, &answer), CHXA_E_TXN_NOT_FOUND);
    chxa_write_clear(&write);
    chxa_write_clear(&second);
    chxa_record_clear(&record);
    chxa_record_clear(&other);
    lab_close(&lab);
}
END_TEST

START_TEST(settle_ends_with_the_store)
{
    struct lab lab;
    lab_open(&lab, (enum lab_kind)_i, NULL);
    struct lab_node *first = lab_node(&lab, NODE);
    struct lab_node *node = lab_start(&lab, NODE); /* waits behind the first */
    struct chxa_record record = lab_record("x", NODE);
    struct lab_answer late = {0}, closed = {0};
    uint64_t now_ms = clock_monotonic_ms();
    store_settle_create(node->store, &record, now_ms + 300, lab_answered, &late);
    store_settle_create(node->store, &record, now_ms + 60000, lab_answered, &closed);
    ck_assert_int_eq(lab_finish(&lab, &late), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_uint_ge(clock_monotonic_ms(), now_ms + 300);
    ck_assert(!closed.done);
    lab_stop(&lab, node);
    ck_assert(closed.done);
    ck_assert_int_eq(closed.code, CHXA_E_STORE_UNAVAILABLE);
    struct lab_answer answer = lab_get(&lab, first, "x");
    ck_assert_int_eq(answer.code, CHXA_E_TXN_NOT_FOUND);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

static void add_tests(TCase *tests)
{
    int kinds = lab_kinds();
#define ADD(test) tcase_add_loop_test(tests, test, 0, kinds)
    ADD(record_lives);
    ADD(create_tells_what_exists);
    ADD(versions_guard_every_change);
    ADD(bad_input_is_refused);
    ADD(hostile_text_survives);
    ADD(large_write_is_whole);
    ADD(many_writes_come_back_in_order);
    ADD(queue_is_bounded);
    ADD(two_nodes_create_one_record);
    ADD(two_nodes_replace_one_version);
    ADD(lists_filter_and_page);
    ADD(lists_forget_the_removed);
    ADD(callbacks_may_close_and_go_on);
    ADD(close_answers_what_is_in_flight);
    ADD(close_before_ready);
    ADD(settle_recognises_its_own);
    ADD(settle_ends_with_the_store);
}

int main(void)
{
    return lab_main("store", add_tests);
}
