/* SPDX-License-Identifier: Apache-2.0
 *
 * The record codec: round trips, every field missing or of a wrong type, bounds on both ways,
 * mutated texts, and each allocation failing in turn. Run under ASan for leaks (tests/run does).
 */
#include "fixture.h"
#include "lib/suite.h"
#include "proto/errors.h"
#include "proto/record.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>

/* ---- round trips ---- */

static void same_record(const struct chxa_record *a, const struct chxa_record *b)
{
    ck_assert_str_eq(a->xid, b->xid);
    ck_assert_int_eq(a->state, b->state);
    ck_assert_str_eq(a->owner, b->owner);
    ck_assert_str_eq(a->owner_url, b->owner_url);
    ck_assert_uint_eq(a->node_epoch, b->node_epoch);
    ck_assert_str_eq(a->op_id, b->op_id);
    ck_assert_int_eq(a->created_ms, b->created_ms);
    ck_assert_int_eq(a->changed_ms, b->changed_ms);
    ck_assert_int_eq(a->timeout_ms, b->timeout_ms);
    ck_assert_pstr_eq(a->sink, b->sink);
    ck_assert_uint_eq(a->sink_epoch, b->sink_epoch);
    ck_assert_pstr_eq(a->meta, b->meta);
    ck_assert_pstr_eq(a->reason, b->reason);
    ck_assert_int_eq(a->blocked, b->blocked);
    ck_assert_int_eq(a->gather, b->gather);
    ck_assert_pstr_eq(a->given_reason, b->given_reason);
    ck_assert_pstr_eq(a->abandoned_by, b->abandoned_by);
    ck_assert_pstr_eq(a->converted_to, b->converted_to);
    ck_assert_int_eq(a->discarding, b->discarding);
    ck_assert_int_eq(a->heuristic, b->heuristic);
    ck_assert_uint_eq(a->n_discarded, b->n_discarded);
    for (size_t i = 0; i < a->n_discarded; i++) {
        ck_assert_uint_eq(a->discarded[i].first, b->discarded[i].first);
        ck_assert_uint_eq(a->discarded[i].last, b->discarded[i].last);
    }
}

static void same_write(const struct chxa_write *a, const struct chxa_write *b)
{
    ck_assert_str_eq(a->write_id, b->write_id);
    ck_assert_uint_eq(a->seq, b->seq);
    ck_assert_int_eq(a->time_ms, b->time_ms);
    ck_assert_str_eq(a->target.database, b->target.database);
    ck_assert_str_eq(a->target.table, b->target.table);
    ck_assert_pstr_eq(a->target.schema, b->target.schema);
    ck_assert_uint_eq(a->target.n_roots, b->target.n_roots);
    for (size_t i = 0; i < a->target.n_roots; i++)
        ck_assert_str_eq(a->target.roots[i], b->target.roots[i]);
    ck_assert_str_eq(a->query_hash, b->query_hash);
    ck_assert_str_eq(a->body_hash, b->body_hash);
    ck_assert_uint_eq(a->body_bytes, b->body_bytes);
    ck_assert_uint_eq(a->rows, b->rows);
    ck_assert_uint_eq(a->bytes, b->bytes);
    ck_assert_uint_eq(a->n_parts, b->n_parts);
    for (size_t i = 0; i < a->n_parts; i++) {
        const struct chxa_part *p = &a->parts[i];
        const struct chxa_part *q = &b->parts[i];
        ck_assert_str_eq(p->name, q->name);
        ck_assert_str_eq(p->partition_id, q->partition_id);
        ck_assert_uint_eq(p->number, q->number);
        ck_assert_uint_eq(p->rows, q->rows);
        ck_assert_uint_eq(p->bytes, q->bytes);
        ck_assert_uint_eq(p->inode, q->inode);
        ck_assert_uint_eq(p->disk, q->disk);
        ck_assert_str_eq(p->checksum, q->checksum);
    }
}

START_TEST(record_round_trip)
{
    struct chxa_record record = fixture_record();
    char *text;
    ck_assert_int_eq(chxa_record_encode(&record, &text), 0);
    struct chxa_record back;
    ck_assert_int_eq(chxa_record_decode(text, strlen(text), &back), 0);
    same_record(&record, &back);
    ck_assert_int_eq(back.version, 0); /* the store's, not the text's */
    ck_assert_uint_eq(back.n_writes, 0);
    free(text);
    chxa_record_clear(&back);
    chxa_record_clear(&record);
}
END_TEST

START_TEST(record_round_trip_without_optional_fields)
{
    struct chxa_record record = fixture_record();
    free(record.sink);
    free(record.meta);
    free(record.reason);
    record.sink = record.meta = record.reason = NULL;
    for (enum chxa_state s = CHXA_INITIALIZED; s < CHXA_STATE_COUNT; s++) {
        record.state = s;
        record.gather = s % 2;
        char *text;
        ck_assert_int_eq(chxa_record_encode(&record, &text), 0);
        struct chxa_record back;
        ck_assert_int_eq(chxa_record_decode(text, strlen(text), &back), 0);
        same_record(&record, &back);
        free(text);
        chxa_record_clear(&back);
    }
    chxa_record_clear(&record);
}
END_TEST

START_TEST(write_round_trip)
{
    struct chxa_write write = fixture_write();
    char *text;
    ck_assert_int_eq(chxa_write_encode(&write, &text), 0);
    struct chxa_write back;
    ck_assert_int_eq(chxa_write_decode(text, strlen(text), &back), 0);
    same_write(&write, &back);
    free(text);
    chxa_write_clear(&back);

    struct chxa_write copy;
    ck_assert_int_eq(chxa_write_copy(&write, &copy), 0);
    same_write(&write, &copy);
    chxa_write_clear(&copy);
    chxa_write_clear(&write);
}
END_TEST

START_TEST(write_without_rows_round_trip)
{
    struct chxa_write write = fixture_write();
    for (size_t i = 0; i < write.n_parts; i++)
        chxa_part_clear(&write.parts[i]);
    free(write.parts);
    write.parts = NULL;
    write.n_parts = 0;
    free(write.target.schema);
    write.target.schema = NULL;
    char *text;
    ck_assert_int_eq(chxa_write_encode(&write, &text), 0);
    struct chxa_write back;
    ck_assert_int_eq(chxa_write_decode(text, strlen(text), &back), 0);
    same_write(&write, &back);
    free(text);
    chxa_write_clear(&back);
    chxa_write_clear(&write);
}
END_TEST

START_TEST(record_copy_leaves_writes_out)
{
    struct chxa_record record = fixture_record();
    record.writes = calloc(1, sizeof *record.writes);
    record.writes[0] = fixture_write();
    record.n_writes = 1;
    struct chxa_record copy;
    ck_assert_int_eq(chxa_record_copy(&record, &copy), 0);
    same_record(&record, &copy);
    ck_assert_int_eq(copy.version, record.version);
    ck_assert_ptr_null(copy.writes);
    ck_assert_uint_eq(copy.n_writes, 0);
    ck_assert_uint_eq(chxa_record_rows(&record), 1000);
    ck_assert_uint_eq(chxa_record_bytes(&record), 5000000000u);
    ck_assert_uint_eq(chxa_record_parts(&record), 2);
    record.writes[0].rows = UINT64_MAX; /* a sum stops at the top */
    ck_assert_uint_eq(chxa_record_rows(&record), UINT64_MAX);
    chxa_record_clear(&copy);
    chxa_record_clear(&record);
}
END_TEST

START_TEST(reason_is_repaired_never_refused)
{
    struct chxa_record record = fixture_record();
    free(record.reason);
    record.reason = malloc(20000);
    memset(record.reason, 0xe9, 19999);
    record.reason[19999] = '\0';
    char *text;
    ck_assert_int_eq(chxa_record_encode(&record, &text), 0);
    struct chxa_record back;
    ck_assert_int_eq(chxa_record_decode(text, strlen(text), &back), 0);
    ck_assert_uint_eq(strlen(back.reason), 8192);
    ck_assert_uint_eq(strspn(back.reason, "?"), 8192);
    free(text);
    chxa_record_clear(&back);
    chxa_record_clear(&record);
}
END_TEST

START_TEST(clear_takes_zeroed_and_null)
{
    struct chxa_record record = {0};
    struct chxa_write write = {0};
    chxa_record_clear(&record);
    chxa_record_clear(NULL);
    chxa_write_clear(&write);
    chxa_write_clear(NULL);
    chxa_part_clear(NULL);
    chxa_target_clear(NULL);
}
END_TEST

/* ---- ids and states ---- */

START_TEST(xid_rule)
{
    char longest[282];
    memset(longest, 'a', 281);
    longest[281] = '\0';
    ck_assert(!chxa_xid_valid(longest));
    longest[280] = '\0';
    ck_assert(chxa_xid_valid(longest));
    static const char *const good[] = {"a", "Z9._:-", "...", ".a", "-"};
    static const char *const bad[] = {"",     ".",    "..",   "a/b", "a b",      "a\n",
                                      "a%2f", "\xc3", "a\\b", "a@b", "\xc3\xa9", "a\x7f"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        ck_assert_msg(chxa_xid_valid(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(!chxa_xid_valid(bad[i]), "%s", bad[i]);
    ck_assert(!chxa_xid_valid(NULL));
}
END_TEST

START_TEST(state_names)
{
    for (enum chxa_state s = 0; s < CHXA_STATE_COUNT; s++)
        ck_assert_int_eq(chxa_state_from_name(chxa_state_name(s)), s);
    ck_assert_int_eq(chxa_state_from_name("committed"), CHXA_STATE_COUNT);
    ck_assert_int_eq(chxa_state_from_name(""), CHXA_STATE_COUNT);
    ck_assert_int_eq(chxa_state_kind(CHXA_PREPARED), CHXA_KIND_IN_DOUBT);
    ck_assert_int_eq(chxa_state_kind(CHXA_INITIALIZED), CHXA_KIND_ACTIVE);
    ck_assert_int_eq(chxa_state_kind(CHXA_COMMITTED), CHXA_KIND_FINAL);
    ck_assert_int_eq(chxa_state_kind(CHXA_UNKNOWN), CHXA_KIND_NONE);
}
END_TEST

/* ---- what encoding refuses ---- */

#define REFUSED_RECORD(statement)                                                                  \
    do {                                                                                           \
        struct chxa_record r = fixture_record();                                                   \
        statement;                                                                                 \
        char *text = (char *)0x1;                                                                  \
        ck_assert_msg(chxa_record_encode(&r, &text) == CHXA_E_INVALID_RECORD, #statement);         \
        ck_assert_ptr_eq(text, (char *)0x1);                                                       \
        chxa_record_clear(&r);                                                                     \
    } while (0)
#define REFUSED_WRITE(statement)                                                                   \
    do {                                                                                           \
        struct chxa_write w = fixture_write();                                                     \
        statement;                                                                                 \
        char *text = (char *)0x1;                                                                  \
        ck_assert_msg(chxa_write_encode(&w, &text) == CHXA_E_INVALID_RECORD, #statement);          \
        ck_assert_ptr_eq(text, (char *)0x1);                                                       \
        chxa_write_clear(&w);                                                                      \
    } while (0)

static void set(char **slot, const char *text)
{
    free(*slot);
    *slot = text ? strdup(text) : NULL;
}

START_TEST(encode_refuses_bad_records)
{
    REFUSED_RECORD(set(&r.xid, NULL));
    REFUSED_RECORD(set(&r.xid, "a/b"));
    REFUSED_RECORD(r.state = CHXA_UNKNOWN);
    REFUSED_RECORD(r.state = CHXA_STATE_COUNT);
    REFUSED_RECORD(set(&r.owner, NULL));
    REFUSED_RECORD(set(&r.owner, "n 1"));
    REFUSED_RECORD(set(&r.owner_url, NULL));
    REFUSED_RECORD(set(&r.owner_url, "http://h\r\nX: y"));
    REFUSED_RECORD(r.node_epoch = (uint64_t)INT64_MAX + 1);
    REFUSED_RECORD(set(&r.op_id, NULL));
    REFUSED_RECORD(set(&r.op_id, ""));
    REFUSED_RECORD(r.created_ms = -1);
    REFUSED_RECORD(r.changed_ms = -1);
    REFUSED_RECORD(r.timeout_ms = -1);
    REFUSED_RECORD(set(&r.sink, "a/b"));
    REFUSED_RECORD(r.sink_epoch = UINT64_MAX);
    REFUSED_RECORD(set(&r.meta, "{"));
    REFUSED_RECORD(set(&r.meta, ""));
    REFUSED_RECORD(set(&r.meta, "{} {}"));
    REFUSED_RECORD(set(&r.meta, "\"\xff\""));
}
END_TEST

START_TEST(encode_refuses_bad_writes)
{
    REFUSED_WRITE(set(&w.write_id, NULL));
    REFUSED_WRITE(set(&w.write_id, ""));
    REFUSED_WRITE(w.seq = 0);
    REFUSED_WRITE(w.time_ms = -5);
    REFUSED_WRITE(set(&w.target.database, ""));
    REFUSED_WRITE(set(&w.target.table, NULL));
    REFUSED_WRITE(set(&w.target.table, "bad\xff"));
    REFUSED_WRITE(set(&w.target.table, "surrogate\xed\xa0\x80"));
    REFUSED_WRITE(set(&w.target.table, "overlong\xc0\x80"));
    REFUSED_WRITE(set(&w.target.table, "above\xf4\x90\x80\x80"));
    REFUSED_WRITE(set(&w.target.table, "cut\xe6\xbc"));
    REFUSED_WRITE(set(&w.target.schema, "\xff"));
    REFUSED_WRITE(set(&w.target.roots[0], NULL));
    REFUSED_WRITE(set(&w.target.roots[0], "/"));
    REFUSED_WRITE(set(&w.target.roots[0], "/a/"));
    REFUSED_WRITE(set(&w.target.roots[0], "a"));
    REFUSED_WRITE(set(&w.target.roots[0], "/a/../b"));
    REFUSED_WRITE(set(&w.target.roots[0], "/a/.."));
    REFUSED_WRITE(w.query_hash[0] = 'G');
    REFUSED_WRITE(w.query_hash[63] = '\0');
    REFUSED_WRITE(w.body_hash[0] = 'A'); /* lower case only */
    REFUSED_WRITE(snprintf(w.body_hash, sizeof w.body_hash, CHXA_BODY_HASH_PREFIX "%s", "1234"));
    REFUSED_WRITE(snprintf(w.body_hash, sizeof w.body_hash, "sha1:%s", HASH_B));
    REFUSED_WRITE(w.rows = UINT64_MAX);
    REFUSED_WRITE(w.bytes = UINT64_MAX);
    REFUSED_WRITE(w.body_bytes = UINT64_MAX);
    REFUSED_WRITE(set(&w.parts[0].name, NULL));
    REFUSED_WRITE(set(&w.parts[0].name, "202401_1_1_0"));
    REFUSED_WRITE(set(&w.parts[0].name, "_1000000000000001_1000000000000001_0"));
    REFUSED_WRITE(set(&w.parts[0].name, "../x_1000000000000001_1000000000000001_0"));
    REFUSED_WRITE(set(&w.parts[0].partition_id, NULL));
    REFUSED_WRITE(set(&w.parts[0].partition_id, "a/b"));
    REFUSED_WRITE(w.parts[0].number = 7);
    REFUSED_WRITE(w.parts[0].rows = UINT64_MAX);
    REFUSED_WRITE(w.parts[0].bytes = UINT64_MAX);
    REFUSED_WRITE(w.parts[0].inode = UINT64_MAX);
    REFUSED_WRITE(w.parts[0].disk = 2);
    REFUSED_WRITE(w.parts[1].checksum[5] = 'x');
}
END_TEST

/* ---- what decoding refuses ---- */

typedef int decode_try(const char *text, size_t len);

static int try_record(const char *text, size_t len)
{
    struct chxa_record record;
    memset(&record, 0x5a, sizeof record);
    struct chxa_record untouched = record;
    int code = chxa_record_decode(text, len, &record);
    if (code == 0)
        chxa_record_clear(&record);
    else
        ck_assert_int_eq(memcmp(&record, &untouched, sizeof record), 0);
    return code;
}

static int try_write(const char *text, size_t len)
{
    struct chxa_write write;
    memset(&write, 0x5a, sizeof write);
    struct chxa_write untouched = write;
    int code = chxa_write_decode(text, len, &write);
    if (code == 0)
        chxa_write_clear(&write);
    else
        ck_assert_int_eq(memcmp(&write, &untouched, sizeof write), 0);
    return code;
}

static char *text_of_record(void)
{
    struct chxa_record record = fixture_record();
    char *text;
    ck_assert_int_eq(chxa_record_encode(&record, &text), 0);
    chxa_record_clear(&record);
    return text;
}

static char *text_of_write(void)
{
    struct chxa_write write = fixture_write();
    char *text;
    ck_assert_int_eq(chxa_write_encode(&write, &text), 0);
    chxa_write_clear(&write);
    return text;
}

static int try_json(decode_try *decode, const json_t *value)
{
    char *text = json_dumps(value, 0);
    int code = decode(text, strlen(text));
    free(text);
    return code;
}

/* Removes each member of `object` (which is inside `top`), then gives it each wrong type. */
static void spoil_each(json_t *top, json_t *object, decode_try *decode, const char *optional)
{
    json_t *whole = json_copy(object);
    const char *key;
    json_t *value;
    json_object_foreach (whole, key, value) {
        char word[64];
        snprintf(word, sizeof word, " %s ", key);
        bool may_lack = strstr(optional, word) != NULL;
        json_object_del(object, key);
        int code = try_json(decode, top);
        ck_assert_msg(code == (may_lack ? 0 : CHXA_E_INVALID_RECORD), "without %s: %d", key, code);

        json_t *wrong[] = {json_string("x\n/"), json_integer(-1), json_real(1.5), json_object(),
                           json_pack("[i]", 1), json_true(),      json_null()};
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            bool right = json_typeof(wrong[i]) == json_typeof(value) && !json_is_integer(value);
            right = right || (json_is_boolean(wrong[i]) && json_is_boolean(value));
            right = right || (json_is_null(wrong[i]) && may_lack);
            json_object_set_new(object, key, wrong[i]);
            code = try_json(decode, top);
            if (!right)
                ck_assert_msg(code == CHXA_E_INVALID_RECORD, "%s, wrong %zu: %d", key, i, code);
        }
        json_object_set(object, key, value);
    }
    ck_assert_int_eq(try_json(decode, top), 0);
    json_decref(whole);
}

START_TEST(decode_refuses_each_spoiled_record_field)
{
    char *text = text_of_record();
    json_t *top = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_object_size(top), 21);
    spoil_each(top, top, try_record,
               " sink meta reason given_reason abandoned_by converted_to heuristic discarding "
               "discarded ");
    json_object_set_new(top, "added_later", json_string("x")); /* a newer node's field */
    ck_assert_int_eq(try_json(try_record, top), 0);
    json_object_set_new(top, "format", json_integer(3));
    ck_assert_int_eq(try_json(try_record, top), CHXA_E_INVALID_RECORD);
    json_object_set_new(top, "format", json_integer(0));
    ck_assert_int_eq(try_json(try_record, top), CHXA_E_INVALID_RECORD);
    json_decref(top);
    free(text);
}
END_TEST

START_TEST(decode_refuses_spoiled_ranges)
{
    static const char *const bad[] = {"[1]",      "[[1]]",       "[[1,2,3]]",       "[[0,1]]",
                                      "[[2,1]]",  "[[1,\"2\"]]", "[[1,5],[5,6]]",   "[[5,6],[1,2]]",
                                      "[[-1,2]]", "[[1,1.5]]",   "[[1,2],[3,null]]"};
    char *text = text_of_record();
    json_t *top = json_loads(text, 0, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_object_set_new(top, "discarded", json_loads(bad[i], 0, NULL));
        ck_assert_msg(try_json(try_record, top) == CHXA_E_INVALID_RECORD, "%s", bad[i]);
    }
    json_decref(top);
    free(text);
}
END_TEST

START_TEST(discarded_parts_are_those_and_no_others)
{
    struct chxa_part parts[] = {{.number = 10}, {.number = 11}, {.number = 14},
                                {.number = 20}, {.number = 21}, {.number = 30}};
    struct chxa_write writes[] = {{.parts = parts, .n_parts = 2},
                                  {.parts = parts + 2, .n_parts = 4}};
    struct chxa_record record = {.writes = writes, .n_writes = 2};
    for (unsigned mask = 0; mask < 64; mask++) {
        uint64_t numbers[6];
        size_t n = 0;
        for (size_t i = 6; i-- > 0;)
            if (mask & 1u << i)
                numbers[n++] = parts[i].number;
        ck_assert_int_eq(chxa_record_set_discarded(&record, numbers, n), 0);
        for (size_t i = 0; i < 6; i++)
            ck_assert_int_eq(chxa_record_discards(&record, parts[i].number), (mask >> i) & 1u);
        ck_assert(!chxa_record_discards(&record, 9) && !chxa_record_discards(&record, 31));
        ck_assert_uint_le(record.n_discarded, 3);
    }
    uint64_t ends[] = {30, 10, 11, 14, 20, 21};
    ck_assert_int_eq(chxa_record_set_discarded(&record, ends, 6), 0);
    ck_assert_uint_eq(record.n_discarded, 1); /* nothing of its own in between */
    free(record.discarded);
}
END_TEST

START_TEST(decode_refuses_each_spoiled_write_field)
{
    char *text = text_of_write();
    json_t *top = json_loads(text, 0, NULL);
    ck_assert_uint_eq(json_object_size(top), 14);
    spoil_each(top, top, try_write, " schema ");
    spoil_each(top, json_array_get(json_object_get(top, "parts"), 1), try_write, "");
    json_array_append_new(json_object_get(top, "roots"), json_integer(1));
    ck_assert_int_eq(try_json(try_write, top), CHXA_E_INVALID_RECORD);
    json_decref(top);
    free(text);
}
END_TEST

START_TEST(decode_refuses_what_is_no_object)
{
    static const char *const bad[] = {
        "",
        " ",
        "[]",
        "null",
        "{",
        "{}",
        "{}x",
        "\"\"",
        "{\"format\":1}",
        "{\"format\":1,\"format\":1}",
        "{\"format\":99999999999999999999}",
        "\xef\xbb\xbf{}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(try_record(bad[i], strlen(bad[i])), CHXA_E_INVALID_RECORD);
        ck_assert_int_eq(try_write(bad[i], strlen(bad[i])), CHXA_E_INVALID_RECORD);
    }
    /* Nested far too deep, and far too long. */
    size_t len = (1u << 20) + 10;
    char *deep = malloc(len);
    memset(deep, '[', len);
    ck_assert_int_eq(try_record(deep, len), CHXA_E_INVALID_RECORD);
    ck_assert_int_eq(try_record(deep, 5000), CHXA_E_INVALID_RECORD);
    ck_assert_int_eq(try_write(deep, len), CHXA_E_INVALID_RECORD);
    free(deep);
}
END_TEST

START_TEST(text_need_not_end_with_nul)
{
    char *text = text_of_record();
    size_t len = strlen(text);
    char *exact = malloc(len); /* ASan sees a byte read past it */
    memcpy(exact, text, len);
    ck_assert_int_eq(try_record(exact, len), 0);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(try_record(exact, cut), CHXA_E_INVALID_RECORD);
    free(exact);
    free(text);
}
END_TEST

/* ---- mutations: any answer but a crash, a leak or "no memory"; what is accepted encodes again
 * ---- */

static uint32_t seed;

static uint32_t rnd(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static size_t mutate(char *text, size_t len)
{
    static const char spice[] = "{}[]\",:\\0-9e.ntu\x00\xff\xc3/";
    for (uint32_t n = 1 + rnd(4); n > 0 && len > 1; n--) {
        size_t at = rnd((uint32_t)len);
        switch (rnd(4)) {
        case 0:
            text[at] = spice[rnd(sizeof spice)];
            break;
        case 1:
            text[at] = (char)rnd(256);
            break;
        case 2: /* remove some */
        {
            size_t cut = 1 + rnd((uint32_t)(len - at < 20 ? len - at : 20));
            memmove(text + at, text + at + cut, len - at - cut);
            len -= cut;
            break;
        }
        default: /* move some */
        {
            size_t from = rnd((uint32_t)len);
            size_t some = len - (at > from ? at : from);
            memmove(text + at, text + from, some < 30 ? some : 30);
        }
        }
    }
    return len;
}

static void fuzz(char *(*make)(void), decode_try *decode, uint32_t rounds)
{
    char *valid = make();
    size_t valid_len = strlen(valid);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        seed = i;
        char *text = malloc(valid_len);
        memcpy(text, valid, valid_len);
        size_t len = mutate(text, valid_len);
        char *exact = malloc(len);
        memcpy(exact, text, len);
        int code = decode(exact, len);
        ck_assert_msg(code == 0 || code == CHXA_E_INVALID_RECORD, "round %u: %d", i, code);
        refused += code != 0;
        free(exact);
        free(text);
    }
    ck_assert_uint_gt(refused, rounds / 2);
    free(valid);
}

START_TEST(mutated_texts)
{
    fuzz(text_of_record, try_record, 20000);
    fuzz(text_of_write, try_write, 20000);
}
END_TEST

/* ---- what the REST API shows ---- */

START_TEST(api_json_of_a_record)
{
    struct chxa_record record = fixture_record();
    char *text;
    ck_assert_int_eq(chxa_record_to_api_json(&record, false, false, &text), 0);
    json_t *top = json_loads(text, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(top);
    ck_assert_ptr_null(json_object_get(top, "rows")); /* of a list: writes were not loaded */
    ck_assert_ptr_null(json_object_get(top, "op_id"));
    ck_assert_ptr_null(json_object_get(top, "node_epoch"));
    ck_assert_ptr_nonnull(
        strstr(text, "\"meta\":{\"offset\": 18446744073709551615, \"rate\": 0.10"));
    json_decref(top);
    free(text);

    record.writes = calloc(1, sizeof *record.writes);
    record.writes[0] = fixture_write();
    record.n_writes = 1;
    set(&record.meta, NULL);
    ck_assert_int_eq(chxa_record_to_api_json(&record, true, true, &text), 0);
    top = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(top);
    ck_assert(json_is_null(json_object_get(top, "meta")));
    ck_assert_int_eq(json_integer_value(json_object_get(top, "rows")), 1000);
    ck_assert_int_eq(json_integer_value(json_object_get(top, "parts")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(top, "epoch")), INT64_MAX);
    json_t *write = json_array_get(json_object_get(top, "writes"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(write, "table")),
                     record.writes[0].target.table);
    ck_assert_uint_eq(json_array_size(json_object_get(write, "parts")), 2);
    ck_assert_ptr_null(json_object_get(write, "roots"));
    json_decref(top);
    free(text);

    ck_assert_int_eq(chxa_record_to_api_json(&record, true, false, &text), 0);
    ck_assert_ptr_null(strstr(text, "partition_id"));
    free(text);

    ck_assert_int_eq(chxa_record_to_answer_json(&record, true, &text), 0);
    top = json_loads(text, 0, NULL);
    ck_assert(json_is_true(json_object_get(top, "replay")));
    ck_assert_ptr_null(json_object_get(top, "writes"));
    json_decref(top);
    free(text);

    ck_assert_int_eq(chxa_write_to_answer_json("x", &record.writes[0], false, &text), 0);
    top = json_loads(text, 0, NULL);
    ck_assert(json_is_false(json_object_get(top, "replay")));
    ck_assert_str_eq(json_string_value(json_object_get(top, "xid")), "x");
    ck_assert_int_eq(json_integer_value(json_object_get(top, "parts")), 2);
    json_decref(top);
    free(text);

    set(&record.writes[0].parts[0].name, "..");
    ck_assert_int_eq(chxa_record_to_api_json(&record, true, true, &text), CHXA_E_INVALID_RECORD);
    chxa_record_clear(&record);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("record");
    TCase *t = tcase_create("codec");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, record_round_trip);
    tcase_add_test(t, record_round_trip_without_optional_fields);
    tcase_add_test(t, write_round_trip);
    tcase_add_test(t, write_without_rows_round_trip);
    tcase_add_test(t, record_copy_leaves_writes_out);
    tcase_add_test(t, reason_is_repaired_never_refused);
    tcase_add_test(t, decode_refuses_spoiled_ranges);
    tcase_add_test(t, discarded_parts_are_those_and_no_others);
    tcase_add_test(t, clear_takes_zeroed_and_null);
    tcase_add_test(t, xid_rule);
    tcase_add_test(t, state_names);
    tcase_add_test(t, encode_refuses_bad_records);
    tcase_add_test(t, encode_refuses_bad_writes);
    tcase_add_test(t, decode_refuses_each_spoiled_record_field);
    tcase_add_test(t, decode_refuses_each_spoiled_write_field);
    tcase_add_test(t, decode_refuses_what_is_no_object);
    tcase_add_test(t, text_need_not_end_with_nul);
    tcase_add_test(t, mutated_texts);
    tcase_add_test(t, api_json_of_a_record);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return suite_run(suite());
}
