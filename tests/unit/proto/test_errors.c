/* SPDX-License-Identifier: Apache-2.0
 *
 * The error list: numbers and names are unique, the attributes fit each other, unlisted codes read
 * as INTERNAL.
 */
#include "lib/suite.h"
#include "proto/errors.h"

#include <check.h>
#include <string.h>

static const struct {
    int number;
    const char *name;
} list[] = {
#define CHXA_ERROR(number, name, http, xa, retry, outcome, text) {number, #name},
#include "proto/errors.def"
#undef CHXA_ERROR
};
#define N_LIST (sizeof list / sizeof list[0])

START_TEST(numbers_and_names_are_unique)
{
    for (size_t i = 0; i < N_LIST; i++) {
        ck_assert_int_gt(list[i].number, 0);
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(list[i].number, list[j].number);
            ck_assert_str_ne(list[i].name, list[j].name);
        }
        ck_assert_int_eq(chxa_error_from_name(list[i].name), -list[i].number);
        ck_assert_str_eq(chxa_error_name(-list[i].number), list[i].name);
    }
}
END_TEST

START_TEST(attributes_fit_each_other)
{
    for (size_t i = 0; i < N_LIST; i++) {
        int code = -list[i].number;
        int http = chxa_error_http(code);
        ck_assert_msg(http >= 400 && http <= 599, "%s: %d", list[i].name, http);
        ck_assert_uint_gt(strlen(chxa_error_text(code)), 10);
        /* 503 means "not now": such a request may be sent again. */
        if (http == 503)
            ck_assert_msg(chxa_error_retryable(code), "%s", list[i].name);
        /* 400 and its kin are the request's own fault: nothing happened, and nothing will. */
        if (http < 500 && http != 408 && http != 409) {
            ck_assert_msg(!chxa_error_retryable(code), "%s", list[i].name);
            ck_assert_msg(chxa_error_outcome_known(code), "%s", list[i].name);
        }
        /* What may go away is not a refusal for good in XA's words either. */
        if (chxa_error_retryable(code))
            ck_assert_msg(chxa_error_xa(code) == CHXA_XA_RMFAIL ||
                              chxa_error_xa(code) == CHXA_XA_RMERR,
                          "%s", list[i].name);
    }
}
END_TEST

START_TEST(others)
{
    ck_assert_str_eq(chxa_error_name(0), "OK");
    ck_assert_int_eq(chxa_error_http(0), 200);
    ck_assert_int_eq(chxa_error_xa(0), 0);
    ck_assert(chxa_error_outcome_known(0));
    ck_assert_str_eq(chxa_error_name(-9999), "INTERNAL");
    ck_assert_str_eq(chxa_error_name(7), "INTERNAL");
    ck_assert_int_eq(chxa_error_from_name("nothing"), 0);
    ck_assert_int_eq(chxa_error_from_name(""), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("errors");
    TCase *t = tcase_create("errors");
    tcase_add_test(t, numbers_and_names_are_unique);
    tcase_add_test(t, attributes_fit_each_other);
    tcase_add_test(t, others);
    suite_add_tcase(s, t);
    return suite_run(s);
}
