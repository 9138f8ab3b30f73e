/* SPDX-License-Identifier: Apache-2.0
 *
 * The xa_info string: what it may say, what is refused, where secrets go.
 */
#include "client/src/xa_info.h"
#include "lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void chxa_client_options_init(struct chxa_client_options *options)
{
    *options = (struct chxa_client_options){.size = sizeof *options, .deadline_ms = 120000};
}

static struct xa_info info;
static const char *why;

static int parse(const char *text)
{
    why = NULL;
    return cx_xa_info_parse(text, &info, &why);
}

START_TEST(defaults)
{
    ck_assert_int_eq(parse("url=http://n1:8124"), XA_OK);
    ck_assert_uint_eq(info.options.n_urls, 1);
    ck_assert_str_eq(info.options.urls[0], "http://n1:8124");
    ck_assert_int_eq(info.options.write_mode, CHXA_WRITE_RANDOM);
    ck_assert_uint_eq(info.options.deadline_ms, 120000);
    ck_assert_uint_eq(info.nowait_ms, 1000);
    ck_assert_uint_eq(info.timeout_ms, 0);
    ck_assert(!info.scan_all);
    ck_assert(!info.gather);
    ck_assert_ptr_null(info.options.user);
    ck_assert_ptr_null(info.options.password);
}
END_TEST

START_TEST(every_key)
{
    char secret[] = "/tmp/chxa-secret-XXXXXX", text[MAXINFOSIZE + 200];
    int file = mkstemp(secret);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, "p w\r\nother\n", 11), 11);
    close(file);
    snprintf(
        text, sizeof text,
        "  url=http://a:1,https://b:2\twrite_mode=round_robin deadline_ms=5 nowait_ms=6 "
        "timeout_ms=7 scan=all connect_timeout_ms=8 request_timeout_ms=9 user=u password_file=%s "
        "gather=yes ca_file=/c cert_file=/d key_file=/e \n",
        secret);
    ck_assert_int_eq(parse(text), XA_OK);
    ck_assert_uint_eq(info.options.n_urls, 2);
    ck_assert_str_eq(info.options.urls[0], "http://a:1");
    ck_assert_str_eq(info.options.urls[1], "https://b:2");
    ck_assert_int_eq(info.options.write_mode, CHXA_WRITE_ROUND_ROBIN);
    ck_assert_uint_eq(info.options.deadline_ms, 5);
    ck_assert_uint_eq(info.nowait_ms, 6);
    ck_assert_uint_eq(info.timeout_ms, 7);
    ck_assert(info.scan_all);
    ck_assert(info.gather);
    ck_assert_uint_eq(info.options.connect_timeout_ms, 8);
    ck_assert_uint_eq(info.options.request_timeout_ms, 9);
    ck_assert_str_eq(info.options.user, "u");
    ck_assert_str_eq(info.options.password, "p w");
    ck_assert_str_eq(info.options.ca_file, "/c");
    ck_assert_str_eq(info.options.cert_file, "/d");
    ck_assert_str_eq(info.options.key_file, "/e");
    snprintf(text, sizeof text, "url=http://a bearer_token_file=%s", secret);
    ck_assert_int_eq(parse(text), XA_OK);
    ck_assert_str_eq(info.options.bearer_token, "p w");
    cx_xa_info_wipe(&info);
    for (size_t i = 0; i < sizeof info; i++)
        ck_assert_int_eq(((char *)&info)[i], 0);
    snprintf(text, sizeof text, "url=http://a password_file=%s bearer_token_file=%s", secret,
             secret);
    ck_assert_int_eq(parse(text), XAER_INVAL);
    ck_assert_int_eq(truncate(secret, 0), 0);
    snprintf(text, sizeof text, "url=http://a password_file=%s", secret);
    ck_assert_int_eq(parse(text), XAER_RMERR);
    ck_assert_int_eq(truncate(secret, 5000), 0); /* no line of text */
    ck_assert_int_eq(parse(text), XAER_RMERR);
    unlink(secret);
    ck_assert_int_eq(parse(text), XAER_RMERR);
    ck_assert_int_eq(parse("url=http://a password_file=/"), XAER_RMERR);
}
END_TEST

START_TEST(what_is_refused)
{
    static const char *const wrong[] = {"",
                                        "   ",
                                        "url",
                                        "url=",
                                        "url=,",
                                        "url=http://a,",
                                        "url=,http://a",
                                        "url=http://a,,http://b",
                                        "url=http://a url=http://b",
                                        "url=http://a colour=red",
                                        "url=http://a write_mode=last",
                                        "url=http://a write_mode=",
                                        "url=http://a deadline_ms=",
                                        "url=http://a deadline_ms=-1",
                                        "url=http://a deadline_ms=1s",
                                        "url=http://a deadline_ms=2147483648",
                                        "url=http://a deadline_ms=99999999999999999999",
                                        "url=http://a timeout_ms=9223372036854775808",
                                        "url=http://a user=",
                                        "url=http://a scan=",
                                        "url=http://a scan=some",
                                        "url=http://a gather=",
                                        "url=http://a gather=true",
                                        "url=http://a =x",
                                        "write_mode=first"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_msg(parse(wrong[i]) == XAER_INVAL, "taken: %s", wrong[i]);
        ck_assert_ptr_nonnull(why);
    }
    ck_assert_int_eq(parse(NULL), XAER_INVAL);
    ck_assert_int_eq(parse("url=http://a gather=no"), XA_OK);
    ck_assert_int_eq(parse("url=http://a deadline_ms=2147483647"), XA_OK);
    ck_assert_int_eq(parse("url=http://a timeout_ms=9223372036854775807"), XA_OK);
}
END_TEST

START_TEST(the_length_is_the_standards)
{
    char text[400];
    memset(text, ' ', sizeof text);
    memcpy(text, "url=http://a", 12);
    text[MAXINFOSIZE - 1] = 0;
    ck_assert_int_eq(parse(text), XA_OK);
    text[MAXINFOSIZE - 1] = ' ';
    text[MAXINFOSIZE] = 0;
    ck_assert_int_eq(parse(text), XAER_INVAL);
    /* 64 URLs and more than fit do not go together, but the limit is there */
    size_t n = (size_t)snprintf(text, sizeof text, "url=a");
    for (int i = 1; i < 64; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",a");
    ck_assert_int_eq(parse(text), XA_OK);
    snprintf(text + n, sizeof text - n, ",a");
    ck_assert_int_eq(parse(text), XAER_INVAL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xa_info");
    TCase *tcase = tcase_create("xa_info");
    tcase_add_test(tcase, defaults);
    tcase_add_test(tcase, every_key);
    tcase_add_test(tcase, what_is_refused);
    tcase_add_test(tcase, the_length_is_the_standards);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
