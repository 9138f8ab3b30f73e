/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function of record.h with the 1st, 2nd, 3rd … allocation failing, until one run passes
 * untouched: each gives NO_MEMORY and leaves its result alone; what it had allocated it has freed
 * (counted here, so that it shows without a sanitizer too).
 *
 * The sources are included with their allocations renamed; jansson is given the same functions, but
 * fails only where nothing is parsed: its parser (2.14) aborts on some failed allocations.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool armed;         /* allocations are counted, and may fail */
static unsigned countdown; /* the n-th from here fails; 0: none */
static bool for_good;      /* after it, all fail */
static bool json_fails;    /* jansson's count as well */
static bool failed;
static long live; /* blocks allocated while armed and not freed yet */

/* In front of each block: was it allocated while armed? */
union header {
    bool counted;
    max_align_t align;
};

static bool must_fail(void)
{
    if (!armed)
        return false;
    bool now = countdown > 0 && --countdown == 0;
    now = now || (failed && for_good);
    failed = failed || now;
    return now;
}

static void *test_malloc(size_t bytes)
{
    if (must_fail())
        return NULL;
    union header *block = malloc(sizeof *block + bytes);
    block->counted = armed;
    live += armed;
    return block + 1;
}

static void test_free(void *data)
{
    if (data == NULL)
        return;
    union header *block = (union header *)data - 1;
    live -= block->counted;
    free(block);
}

static void *test_calloc(size_t n, size_t bytes)
{
    void *data = test_malloc(n * bytes);
    return data ? memset(data, 0, n * bytes) : NULL;
}

static char *test_strndup(const char *text, size_t bytes_max)
{
    size_t len = strnlen(text, bytes_max);
    char *copy = test_malloc(len + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

static char *test_strdup(const char *text)
{
    return test_strndup(text, SIZE_MAX);
}

/* Never fails in the middle: a failure is what test_malloc says. */
static void *test_realloc(void *old, size_t bytes)
{
    if (must_fail())
        return NULL;
    union header *block = old ? (union header *)old - 1 : NULL;
    if (block == NULL)
        return test_malloc(bytes);
    block = realloc(block, sizeof *block + bytes);
    return block + 1;
}

static void *json_malloc(size_t bytes)
{
    bool was = armed;
    armed = armed && json_fails;
    void *data = test_malloc(bytes);
    armed = was;
    return data;
}

#undef strdup
#undef strndup
#define malloc  test_malloc
#define free    test_free
#define calloc  test_calloc
#define realloc test_realloc
#define strdup  test_strdup
#define strndup test_strndup

#include "proto/json_text.c"
#include "proto/record.c"
#include "proto/record_check.c"
#include "proto/record_json.c"
#define part_to_json  api_part_to_json
#define parts_to_json api_parts_to_json
#include "proto/record_api.c"

#include "fixture.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>

static struct chxa_record record;
static struct chxa_write staged;
static char *record_text;
static char *write_text;

typedef int attempt(void);

static int record_encode(void)
{
    char *text = NULL;
    int code = chxa_record_encode(&record, &text);
    ck_assert_int_eq(code == 0, text != NULL);
    free(text);
    return code;
}

static int write_encode(void)
{
    char *text = NULL;
    int code = chxa_write_encode(&staged, &text);
    ck_assert_int_eq(code == 0, text != NULL);
    free(text);
    return code;
}

static int record_decode(void)
{
    struct chxa_record back = {0};
    int code = chxa_record_decode(record_text, strlen(record_text), &back);
    ck_assert_int_eq(code == 0, back.xid != NULL);
    chxa_record_clear(&back);
    return code;
}

static int write_decode(void)
{
    struct chxa_write back = {0};
    int code = chxa_write_decode(write_text, strlen(write_text), &back);
    ck_assert_int_eq(code == 0, back.parts != NULL);
    chxa_write_clear(&back);
    return code;
}

static int record_copy(void)
{
    struct chxa_record copy;
    int code = chxa_record_copy(&record, &copy);
    ck_assert_int_eq(code == 0, copy.xid != NULL);
    chxa_record_clear(&copy);
    return code;
}

static int write_copy(void)
{
    struct chxa_write copy;
    int code = chxa_write_copy(&staged, &copy);
    ck_assert_int_eq(code == 0, copy.parts != NULL);
    chxa_write_clear(&copy);
    return code;
}

static int api_json(void)
{
    char *text = NULL;
    int code = chxa_record_to_api_json(&record, true, true, &text);
    ck_assert_int_eq(code == 0, text != NULL);
    free(text);
    return code;
}

static int answer_json(void)
{
    char *text = NULL;
    int code = chxa_record_to_answer_json(&record, true, &text);
    ck_assert_int_eq(code == 0, text != NULL);
    free(text);
    return code;
}

static int write_answer_json(void)
{
    char *text = NULL;
    int code = chxa_write_to_answer_json("x", &staged, true, &text);
    ck_assert_int_eq(code == 0, text != NULL);
    free(text);
    return code;
}

static const struct {
    const char *name;
    attempt *run;
    bool parses;
} attempts[] = {
    {"record_encode", record_encode, false},
    {"write_encode", write_encode, false},
    {"record_decode", record_decode, true},
    {"write_decode", write_decode, true},
    {"record_copy", record_copy, false},
    {"write_copy", write_copy, false},
    {"api_json", api_json, false},
    {"answer_json", answer_json, false},
    {"write_answer_json", write_answer_json, false},
};

static void fail_in_turn(size_t i)
{
    unsigned nth = 1;
    json_fails = !attempts[i].parses;
    for (;; nth++) {
        ck_assert_uint_lt(nth, 10000);
        failed = false;
        countdown = nth;
        armed = true;
        int code = attempts[i].run();
        armed = false;
        countdown = 0;
        ck_assert_msg(live == 0, "%s: %ld blocks left at allocation %u", attempts[i].name, live,
                      nth);
        if (!failed) {
            ck_assert_int_eq(code, 0);
            break;
        }
        ck_assert_msg(code == CHXA_E_NO_MEMORY, "%s gave %s at allocation %u", attempts[i].name,
                      chxa_error_name(code), nth);
    }
    ck_assert_uint_gt(nth, 3); /* it did fail some */
}

START_TEST(each_allocation_fails_in_turn)
{
    json_set_alloc_funcs(json_malloc, test_free);
    json_object_seed(1);
    record = fixture_record();
    record.writes = calloc(1, sizeof *record.writes);
    record.writes[0] = fixture_write();
    record.n_writes = 1;
    staged = fixture_write();
    ck_assert_int_eq(chxa_record_encode(&record, &record_text), 0);
    free(record.meta); /* would be parsed */
    record.meta = NULL;
    ck_assert_int_eq(chxa_write_encode(&staged, &write_text), 0);

    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        for_good = false;
        fail_in_turn(i);
        for_good = true;
        fail_in_turn(i);
    }
    chxa_record_clear(&record);
    chxa_write_clear(&staged);
    free(record_text);
    free(write_text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("record memory");
    TCase *t = tcase_create("allocation failures");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, each_allocation_fails_in_turn);
    suite_add_tcase(s, t);
    return suite_run(s);
}
