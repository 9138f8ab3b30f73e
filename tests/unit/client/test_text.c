/* SPDX-License-Identifier: Apache-2.0
 *
 * URLs, ids, text and JSON: what is taken, what is refused, and how it goes on the wire.
 */
#include "client/src/internal.h"
#include "lib/suite.h"

#include <check.h>
#include <string.h>

START_TEST(urls)
{
    static const char *const taken[][2] = {
        {"http://10.0.0.1:8124", "http://10.0.0.1:8124"},
        {"HTTP://Host.Example:80/", "http://host.example"},
        {"https://h:443", "https://h"},
        {"https://h:80", "https://h:80"},
        {"http://[::1]:8124", "http://[::1]:8124"},
        {"http://[FE80::1]", "http://[fe80::1]"},
    };
    static const char *const refused[] = {"",
                                          "http",
                                          "http://",
                                          "ftp://h",
                                          "http://h/p",
                                          "http://h?q",
                                          "http://h#f",
                                          "http://u@h",
                                          "http://h:0",
                                          "http://h:65536",
                                          "http://h:",
                                          "http://:80",
                                          "http://h:80a",
                                          "http://a b",
                                          "http://[h",
                                          "http://h]",
                                          "http://a:b:1",
                                          "http://h\r\nX: y",
                                          "http://h/../p",
                                          "//h",
                                          "http://h%41",
                                          "http://[::1]x",
                                          "http://h:-1",
                                          "http://h:080"};
    char origin[CHXA_URL_BYTES_MAX + 1];
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        ck_assert_msg(cx_url_origin(taken[i][0], origin, sizeof origin), "%s", taken[i][0]);
        ck_assert_str_eq(origin, taken[i][1]);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        ck_assert_msg(!cx_url_origin(refused[i], origin, sizeof origin), "%s", refused[i]);
    char longest[CHXA_URL_BYTES_MAX + 2];
    memset(longest, 'h', sizeof longest - 1);
    memcpy(longest, "http://", 7);
    longest[sizeof longest - 1] = '\0';
    ck_assert(!cx_url_origin(longest, origin, sizeof origin));
    longest[CHXA_URL_BYTES_MAX] = '\0';
    ck_assert(cx_url_origin(longest, origin, sizeof origin));
    ck_assert(cx_url_cut("https://h:1/v1/x?y=http://other", origin, sizeof origin));
    ck_assert_str_eq(origin, "https://h:1");
    ck_assert(!cx_url_cut("https://h\\@other/", origin, sizeof origin));
}
END_TEST

START_TEST(ids)
{
    char longest[CHXA_XID_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[CHXA_XID_BYTES_MAX + 1] = '\0';
    ck_assert(!cx_id_valid(longest));
    longest[CHXA_XID_BYTES_MAX] = '\0';
    ck_assert(cx_id_valid(longest));
    ck_assert(cx_id_valid("a.B_9:-") && cx_id_valid("...") && cx_id_valid("-"));
    ck_assert(!cx_id_valid(NULL) && !cx_id_valid("") && !cx_id_valid(".") && !cx_id_valid(".."));
    ck_assert(!cx_id_valid("a/b") && !cx_id_valid("a%41") && !cx_id_valid("\xc3\xa4") &&
              !cx_id_valid("a\n"));
    char one[40], other[40];
    cx_random_id(one, sizeof one);
    cx_random_id(other, sizeof other);
    ck_assert(cx_id_valid(one) && strlen(one) == 32 && strcmp(one, other) != 0);
}
END_TEST

START_TEST(escapes)
{
    struct cx_buf buf = {0};
    cx_buf_uri(&buf, "INSERT a.b-c~_ &=%+/?#\xe2\x82\xac");
    ck_assert_str_eq(buf.data, "INSERT%20a.b-c~_%20%26%3D%25%2B%2F%3F%23%E2%82%AC");
    cx_buf_clear(&buf);
    cx_buf_json(&buf, "\"\\\n\x01/\xe2\x82\xac");
    ck_assert_str_eq(buf.data, "\"\\\"\\\\\\u000a\\u0001/\xe2\x82\xac\"");
    cx_buf_clear(&buf);
    ck_assert(cx_utf8_valid("\xf0\x9f\x98\x80 a") && cx_utf8_valid(""));
    ck_assert(!cx_utf8_valid("\xc0\xaf") && !cx_utf8_valid("\xed\xa0\x80") &&
              !cx_utf8_valid("\xe2\x82"));
    ck_assert(!cx_utf8_valid("\xf4\x90\x80\x80") && !cx_utf8_valid("\x80") &&
              !cx_utf8_valid("\xf0\x8f\x80\x80"));
}
END_TEST

/* What jansson refuses is never taken for want of memory. */
START_TEST(json)
{
    static const char *const taken[] = {"{}",
                                        "[]",
                                        " 1 ",
                                        "-0.5e+3",
                                        "\"\\u20ac\"",
                                        "null",
                                        "\"\\ud83d\\ude00x\"",
                                        "[1,{\"a\":[true,false]}]"};
    static const char *const refused[] = {"",
                                          "{",
                                          "[1,]",
                                          "{\"a\"}",
                                          "{a:1}",
                                          "01",
                                          "1.",
                                          "+1",
                                          "tru",
                                          "\"\n\"",
                                          "\"\\x\"",
                                          "[1]x",
                                          "\"\\ud800\"",
                                          "\"\x80\"",
                                          "[",
                                          "{\"a\":}",
                                          "nul",
                                          "1 2",
                                          "'a'",
                                          "[1 2]",
                                          "{\"a\":1,}",
                                          "1e999",
                                          "99999999999999999999",
                                          "\"\\u0000\"",
                                          "\"abc"};
    json_error_t where;
    json_t *value;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        ck_assert_msg(cx_json_parse(taken[i], &value, &where) == 0, "%s: %s", taken[i], where.text);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int code = cx_json_parse(refused[i], &value, &where);
        ck_assert_msg(code == CHXA_ERR_BAD_ANSWER && value == NULL, "%s: %d", refused[i], code);
    }
    char deep[10001];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    ck_assert_int_eq(cx_json_parse(deep, &value, &where), CHXA_ERR_BAD_ANSWER);
}
END_TEST

START_TEST(errors)
{
    ck_assert_str_eq(chxa_error_name(CHXA_ERR_NOT_OWNER), "NOT_OWNER");
    ck_assert_str_eq(chxa_error_name(0), "OK");
    ck_assert_str_eq(chxa_error_name(-99), "UNKNOWN_CODE");
    ck_assert_str_eq(chxa_error_name(7), "UNKNOWN_CODE");
    ck_assert_str_eq(chxa_state_name(CHXA_STATE_PREPARED), "Prepared");
    ck_assert_str_eq(chxa_state_name((enum chxa_txn_state)99), "Unknown");
    ck_assert_int_eq(cx_state_from_name("Aborting"), CHXA_STATE_ABORTING);
    ck_assert_int_eq(cx_state_from_name("aborting"), CHXA_STATE_UNKNOWN);
    ck_assert_str_eq(chxa_version(), CHXA_VERSION);
    struct chxa_error error;
    cx_fail(&error, CHXA_ERR_MISUSE, "a\x80%s", "\xe2\x82");
    ck_assert_str_eq(error.message, "a???");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_text");
    TCase *tcase = tcase_create("text");
    tcase_add_test(tcase, urls);
    tcase_add_test(tcase, ids);
    tcase_add_test(tcase, escapes);
    tcase_add_test(tcase, json);
    tcase_add_test(tcase, errors);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
