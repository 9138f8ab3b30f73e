/* SPDX-License-Identifier: Apache-2.0
 *
 * XID <-> id: there and back for every length and any bytes, and nothing else is read.
 */
#include "client/include/chxa/xa_switch.h"
#include "lib/suite.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static XID make(long format, long gtrid, long bqual)
{
    XID xid;
    memset(&xid, 0, sizeof xid);
    xid.formatID = format;
    xid.gtrid_length = gtrid;
    xid.bqual_length = bqual;
    for (long i = 0; i < gtrid + bqual; i++)
        xid.data[i] = (char)(unsigned char)(rand() & 255);
    return xid;
}

/* The id's alphabet is that of the nodes. */
static void there_and_back(const XID *xid)
{
    char id[CHXA_XID_BYTES_MAX + 1], again[CHXA_XID_BYTES_MAX + 1];
    XID back;
    memset(&back, 0x55, sizeof back);
    ck_assert_int_eq(chxa_xa_id_from_xid(xid, id), XA_OK);
    ck_assert_uint_le(strlen(id), CHXA_XID_BYTES_MAX);
    ck_assert_uint_eq(strspn(id, "0123456789abcdefx:-"), strlen(id));
    ck_assert_int_eq(chxa_xa_id_to_xid(id, &back), XA_OK);
    ck_assert_int_eq(back.formatID, xid->formatID);
    ck_assert_int_eq(back.gtrid_length, xid->gtrid_length);
    ck_assert_int_eq(back.bqual_length, xid->bqual_length);
    ck_assert_mem_eq(back.data, xid->data, (size_t)(xid->gtrid_length + xid->bqual_length));
    for (long i = xid->gtrid_length + xid->bqual_length; i < XIDDATASIZE; i++)
        ck_assert_int_eq(back.data[i], 0);
    ck_assert_int_eq(chxa_xa_id_from_xid(&back, again), XA_OK);
    ck_assert_str_eq(again, id);
}

static const long formats[] = {
    0,        1,        -2,           7,   131077,    INT_MAX, INT_MIN, INT_MIN + 1L,
    LONG_MAX, LONG_MIN, LONG_MIN + 1, -10, 0x434858L, 10};

START_TEST(every_length_goes_there_and_back)
{
    for (long gtrid = 1; gtrid <= MAXGTRIDSIZE; gtrid++) {
        for (long bqual = 0; bqual <= MAXBQUALSIZE; bqual++) {
            XID xid = make(formats[(gtrid + bqual) % 14], gtrid, bqual);
            there_and_back(&xid);
        }
    }
}
END_TEST

START_TEST(every_format_and_byte_goes_there_and_back)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        for (int byte = 0; byte < 256; byte++) {
            XID xid = make(formats[i], 1, 1);
            xid.data[0] = (char)(unsigned char)byte;
            xid.data[1] = (char)(unsigned char)~byte;
            there_and_back(&xid);
        }
    }
}
END_TEST

START_TEST(the_longest_fits_exactly)
{
    char id[CHXA_XID_BYTES_MAX + 1];
    XID xid = make(LONG_MIN, MAXGTRIDSIZE, MAXBQUALSIZE);
    ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XA_OK);
    ck_assert_uint_eq(strlen(id), sizeof(long) == 8 ? CHXA_XID_BYTES_MAX : 271u);
}
END_TEST

START_TEST(the_form_is_kept_for_ever)
{
    char id[CHXA_XID_BYTES_MAX + 1];
    XID xid = {.formatID = 131077, .gtrid_length = 3, .bqual_length = 2, .data = "a\xff\0bq"};
    ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XA_OK);
    ck_assert_str_eq(id, "xa131077:61ff00:6271");
    xid.formatID = -7;
    xid.bqual_length = 0;
    ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XA_OK);
    ck_assert_str_eq(id, "xa-7:61ff00:");
}
END_TEST

START_TEST(xids_that_are_none_are_refused)
{
    static const struct {
        long format, gtrid, bqual;
    } wrong[] = {{-1, 1, 1}, {0, 0, 0},  {0, 0, 1},        {0, 65, 1},       {0, 1, 65},
                 {0, -1, 1}, {0, 1, -1}, {0, LONG_MAX, 1}, {0, 1, LONG_MIN}, {-1, 0, 0}};
    char id[CHXA_XID_BYTES_MAX + 1] = "untouched";
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        XID xid = {.formatID = wrong[i].format,
                   .gtrid_length = wrong[i].gtrid,
                   .bqual_length = wrong[i].bqual};
        ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XAER_INVAL);
        ck_assert_str_eq(id, "untouched");
    }
    ck_assert_int_eq(chxa_xa_id_from_xid(NULL, id), XAER_INVAL);
}
END_TEST

START_TEST(ids_that_no_xid_has_are_refused)
{
    static const char *const wrong[] = {"",
                                        "x",
                                        "xa",
                                        "xa:",
                                        "xa0",
                                        "xa0:",
                                        "xa0:00",
                                        "xa0::",
                                        "xa0::00",
                                        "XA0:00:00",
                                        "xa 0:00:00",
                                        "xa0:00:00 ",
                                        " xa0:00:00",
                                        "xa00:00:00",
                                        "xa01:00:00",
                                        "xa-0:00:00",
                                        "xa-1:00:00",
                                        "xa+1:00:00",
                                        "xa-:00:00",
                                        "xa--2:00:00",
                                        "xa0:0:00",
                                        "xa0:00:0",
                                        "xa0:AB:00",
                                        "xa0:ab:0A",
                                        "xa0:gg:00",
                                        "xa0:00:00:",
                                        "xa0:00:00:00",
                                        "xa0:00;00",
                                        "xa0x:00:00",
                                        "xa0:000:00",
                                        "xa9223372036854775808:00:00",
                                        "xa-9223372036854775809:00:00",
                                        "xa99999999999999999999:00:00",
                                        "xa18446744073709551616:00:00",
                                        "xa18446744073709551615:00:00",
                                        "load-42",
                                        "job.3:41",
                                        "xa0:00:00\n",
                                        NULL};
    XID xid, before;
    memset(&before, 0x55, sizeof before);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        xid = before;
        ck_assert_msg(chxa_xa_id_to_xid(wrong[i], &xid) == XAER_INVAL, "taken: %s", wrong[i]);
        ck_assert_mem_eq(&xid, &before, sizeof xid);
    }
    /* a byte too many in either half */
    char id[400], hex[131];
    memset(hex, 'a', 130);
    hex[130] = 0;
    snprintf(id, sizeof id, "xa0:%s:00", hex);
    ck_assert_int_eq(chxa_xa_id_to_xid(id, &xid), XAER_INVAL);
    snprintf(id, sizeof id, "xa0:00:%s", hex);
    ck_assert_int_eq(chxa_xa_id_to_xid(id, &xid), XAER_INVAL);
}
END_TEST

/* Whatever is read is what would be written. */
START_TEST(a_changed_id_is_refused_or_another_xids)
{
    char id[CHXA_XID_BYTES_MAX + 1], again[CHXA_XID_BYTES_MAX + 1];
    unsigned long taken = 0;
    for (int round = 0; round < 200000; round++) {
        XID xid = make(formats[round % 14], 1 + rand() % 4, rand() % 4);
        ck_assert_int_eq(chxa_xa_id_from_xid(&xid, id), XA_OK);
        for (int changes = 1 + rand() % 2; changes > 0; changes--)
            id[(size_t)rand() % strlen(id)] = "0123456789abcdefx:-AF. \1\xff"[rand() % 25];
        if (chxa_xa_id_to_xid(id, &xid))
            continue;
        taken++;
        if (chxa_xa_id_from_xid(&xid, again) || strcmp(id, again) != 0)
            ck_abort_msg("read, but never written: %s", id);
    }
    ck_assert_uint_gt(taken, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xa_id");
    TCase *tcase = tcase_create("xa_id");
    srand(20261130);
    tcase_add_test(tcase, every_length_goes_there_and_back);
    tcase_add_test(tcase, every_format_and_byte_goes_there_and_back);
    tcase_add_test(tcase, the_longest_fits_exactly);
    tcase_add_test(tcase, the_form_is_kept_for_ever);
    tcase_add_test(tcase, xids_that_are_none_are_refused);
    tcase_add_test(tcase, ids_that_no_xid_has_are_refused);
    tcase_add_test(tcase, a_changed_id_is_refused_or_another_xids);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
