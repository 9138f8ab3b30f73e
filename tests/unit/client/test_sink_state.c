/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a sink, byte by byte. The vectors below are what released libraries have written: never change one, add.
 */
#include "client/src/sink_state.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Version 1: sink orders.3, epoch 7, seq 42, checkpoint 1041; 41 and 42 wait. */
/* clang-format off */
static const unsigned char vector_1[] = {
    'c',  'h',  'x',  's', 1,    0,                                             /* magic, version */
    0,    8,    'o',  'r', 'd',  'e',  'r',  's',  '.', '3',                    /* name */
    0,    0,    0,    0,   0,    0,    0,    7,                                 /* epoch */
    0,    0,    0,    0,   0,    0,    0,    42,                                /* seq */
    0,    0,    0,    0,   0,    0,    0x04, 0x11,                              /* checkpoint */
    0,    0,    0,    2,                                                        /* entries */
    0,    0,    0,    0,   0,    0,    0x04, 0x10,                              /* 1040 */
    0,    22,   'o',  'r', 'd',  'e',  'r',  's',  '.', '3', ':', '7', ':', '4', '1',
    ':',  '1',  'f',  '3', 'a',  '9',  'c',  '0',  '0',                         /* its id */
    0,    0,    0,    0,   0,    0,    0x04, 0x11,                              /* 1041 */
    0,    22,   'o',  'r', 'd',  'e',  'r',  's',  '.', '3', ':', '7', ':', '4', '2',
    ':',  '1',  'f',  '3', 'a',  '9',  'c',  '0',  '0',                         /* its id */
    0x71, 0xea, 0x46, 0x74,                                                     /* CRC-32 */
};
/* clang-format on */

static struct cx_sink_entry entries_1[] = {
    {.checkpoint = 1040, .seq = 41, .xid = "orders.3:7:41:1f3a9c00"},
    {.checkpoint = 1041, .seq = 42, .xid = "orders.3:7:42:1f3a9c00"},
};
static const struct cx_sink_state state_1 = {"orders.3", 7, 42, 1041, entries_1, 2};

static int decode(const void *bytes, size_t len, struct cx_sink_state *ret_state)
{
    const char *why = NULL;
    int code = cx_sink_state_decode("orders.3", bytes, len, ret_state, &why);
    if (code == CHXA_ERR_STATE_REFUSED)
        ck_assert_ptr_nonnull(why);
    return code;
}

static void ck_same(const struct cx_sink_state *a, const struct cx_sink_state *b)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert_uint_eq(a->epoch, b->epoch);
    ck_assert_uint_eq(a->seq, b->seq);
    ck_assert_uint_eq(a->checkpoint, b->checkpoint);
    ck_assert_uint_eq(a->n_entries, b->n_entries);
    for (size_t i = 0; i < a->n_entries; i++) {
        ck_assert_uint_eq(a->entries[i].checkpoint, b->entries[i].checkpoint);
        ck_assert_str_eq(a->entries[i].xid, b->entries[i].xid);
    }
}

static void ck_refused(const void *bytes, size_t len)
{
    struct cx_sink_state state;
    memset(&state, 0x55, sizeof state);
    ck_assert_int_eq(decode(bytes, len, &state), CHXA_ERR_STATE_REFUSED);
    ck_assert_int_eq(((unsigned char *)&state)[0], 0x55); /* untouched */
}

START_TEST(vectors)
{
    struct cx_sink_state state;
    ck_assert_int_eq(decode(vector_1, sizeof vector_1, &state), 0);
    ck_same(&state, &state_1);
    ck_assert(state.entries[0].seq == 41 && state.entries[1].seq == 42);
    cx_sink_state_clear(&state);
    void *bytes;
    size_t len;
    ck_assert_int_eq(cx_sink_state_encode(&state_1, &bytes, &len), 0);
    ck_assert_uint_eq(len, sizeof vector_1);
    ck_assert_mem_eq(bytes, vector_1, len);
    free(bytes);
}
END_TEST

/* No byte can be changed, none taken away, none added. */
START_TEST(damaged)
{
    unsigned char bytes[sizeof vector_1 + 8] = {0};
    memcpy(bytes, vector_1, sizeof vector_1);
    for (size_t len = 0; len <= sizeof bytes; len++)
        if (len != sizeof vector_1)
            ck_refused(bytes, len);
    for (size_t at = 0; at < sizeof vector_1; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1u << bit);
            ck_refused(bytes, sizeof vector_1);
            bytes[at] ^= (unsigned char)(1u << bit);
        }
    struct cx_sink_state state;
    const char *why = NULL;
    ck_assert_int_eq(cx_sink_state_decode("orders.4", vector_1, sizeof vector_1, &state, &why),
                     CHXA_ERR_STATE_REFUSED);
    ck_assert_str_eq(why, "it is another sink's");
    bytes[4] = 2;
    ck_assert_int_eq(cx_sink_state_decode("orders.3", bytes, sizeof vector_1, &state, &why),
                     CHXA_ERR_STATE_REFUSED);
    ck_assert_str_eq(why, "a newer version of the library made it");
}
END_TEST

static int recode(struct cx_sink_state *state)
{
    void *bytes;
    size_t len;
    struct cx_sink_state again;
    ck_assert_int_eq(cx_sink_state_encode(state, &bytes, &len), 0);
    int code = decode(bytes, len, &again);
    if (code == 0) {
        ck_same(&again, state);
        cx_sink_state_clear(&again);
    }
    free(bytes);
    return code;
}

/* The sum is right, and what it says cannot be. */
START_TEST(senseless)
{
    struct cx_sink_entry entries[2];
    struct cx_sink_state state = state_1;
    state.entries = entries;
#define REFUSED(change)                                                                            \
    memcpy(entries, entries_1, sizeof entries);                                                    \
    state.epoch = 7, state.seq = 42, state.checkpoint = 1041, state.n_entries = 2;                 \
    change;                                                                                        \
    ck_assert_int_eq(recode(&state), CHXA_ERR_STATE_REFUSED)
    REFUSED(entries[0] = entries[1]);
    REFUSED(entries[0].checkpoint = 1042);
    REFUSED(entries[1].checkpoint = 1042);
    REFUSED(state.seq = 41);
    REFUSED(state.epoch = 6);
    REFUSED(memcpy(entries[0].xid, "orders.4", 8));
    REFUSED(memcpy(entries[0].xid, "orders.3:7:43", 13));
    REFUSED(memcpy(entries[0].xid, "orders.3:8:41", 13));
    REFUSED(entries[0].xid[0] = '\0');
    memcpy(entries, entries_1, sizeof entries);
    state.seq = 42, state.epoch = 8;
    ck_assert_int_eq(recode(&state), 0);
    state.n_entries = 0;
    state.seq = 0;
    ck_assert_int_eq(recode(&state), 0);
    state.epoch = state.seq = state.checkpoint = UINT64_MAX;
    ck_assert_int_eq(recode(&state), 0);
}
END_TEST

/* Random changes under a right sum: refused, or taken and given back the same. */
START_TEST(mutated)
{
    srand(1);
    for (int round = 0; round < 20000; round++) {
        struct cx_sink_entry entries[2];
        struct cx_sink_state state = state_1;
        memcpy(entries, entries_1, sizeof entries);
        state.entries = entries;
        state.n_entries = (size_t)rand() % 3;
        char *at = rand() % 2 ? entries[rand() % 2].xid : state.name;
        at[(size_t)rand() % (strlen(at) + 1)] = (char)rand();
        int code = recode(&state);
        ck_assert(code == 0 || code == CHXA_ERR_STATE_REFUSED);
    }
}
END_TEST

START_TEST(ids)
{
    char xid[CHXA_XID_BYTES_MAX + 1];
    uint64_t epoch = 1, seq = 1;
    cx_sink_xid("job", UINT64_MAX, 0, "0123abcd", xid);
    ck_assert_str_eq(xid, "job:18446744073709551615:0:0123abcd");
    ck_assert(cx_sink_xid_read("job", xid, &epoch, &seq));
    ck_assert(epoch == UINT64_MAX && seq == 0);
    static const char *const foreign[] = {
        "",
        "job",
        "job:",
        "job:1",
        "job:1:2",
        "job:1:2:",
        "job:1:2:0123abc",
        "job:1:2:0123abcde",
        "job:1:2:0123ABCD",
        "job:1:2:0123abcd:",
        "job:1:2:3:0123abcd",
        "job:01:2:0123abcd",
        "job:1:-2:0123abcd",
        "job:18446744073709551616:2:0123abcd",
        "jobs:1:2:0123abcd",
        "jo:1:2:0123abcd",
        " job:1:2:0123abcd",
    };
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        ck_assert_msg(!cx_sink_xid_read("job", foreign[i], &epoch, &seq), "%s", foreign[i]);
    /* "job" and "job:1" share nothing. */
    ck_assert(cx_sink_xid_read("job:1", "job:1:2:3:0123abcd", &epoch, &seq));
    char name[CX_SINK_NAME_BYTES_MAX + 2];
    memset(name, 'x', sizeof name);
    name[CX_SINK_NAME_BYTES_MAX + 1] = '\0';
    ck_assert(!cx_sink_name_valid(name) && !cx_sink_name_valid("") && !cx_sink_name_valid(NULL));
    ck_assert(!cx_sink_name_valid("a/b") && !cx_sink_name_valid(".."));
    name[CX_SINK_NAME_BYTES_MAX] = '\0';
    ck_assert(cx_sink_name_valid(name));
    cx_sink_xid(name, UINT64_MAX, UINT64_MAX, "01234567", xid);
    ck_assert(cx_sink_xid_read(name, xid, &epoch, &seq));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sink_state");
    TCase *t = tcase_create("bytes");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, vectors);
    tcase_add_test(t, damaged);
    tcase_add_test(t, senseless);
    tcase_add_test(t, mutated);
    tcase_add_test(t, ids);
    suite_add_tcase(s, t);
    return suite_run(s);
}
