/* SPDX-License-Identifier: Apache-2.0
 *
 * The small things of base: buffers, errors, hashes, log levels.
 */
#include "base/buf.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/mem.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

START_TEST(buf_grows_and_stays_terminated)
{
    struct buf buf = {0};
    ck_assert_str_eq(buf_str(&buf), "");
    for (int i = 0; i < 1000; i++) {
        ck_assert(buf_printf(&buf, "%d,", i));
        ck_assert_uint_eq(strlen(buf_str(&buf)), buf.len);
    }
    ck_assert(buf_append(&buf, "a\0b", 3));
    ck_assert_int_eq(memcmp(buf.data + buf.len - 3, "a\0b", 4), 0);
    buf_consume(&buf, buf.len - 1);
    ck_assert_str_eq(buf_str(&buf), "b");
    buf_consume(&buf, 100);
    ck_assert_str_eq(buf_str(&buf), "");
    ck_assert(buf_append(&buf, NULL, 0));
    char *taken = buf_take(&buf);
    ck_assert_str_eq(taken, "");
    free(taken);
    ck_assert_ptr_null(buf.data);
    buf_clear(&buf);
}
END_TEST

START_TEST(buf_bound_changes_nothing)
{
    struct buf buf = {.bytes_max = 4};
    ck_assert(buf_puts(&buf, "abc"));
    ck_assert(!buf_puts(&buf, "de"));
    ck_assert(!buf_printf(&buf, "%s", "de"));
    ck_assert_str_eq(buf_str(&buf), "abc");
    ck_assert(buf_puts(&buf, "d"));
    ck_assert(!buf_puts(&buf, "e"));
    ck_assert(!buf_append(&buf, "e", SIZE_MAX));
    ck_assert_str_eq(buf_str(&buf), "abcd");
    buf_clear(&buf);
    ck_assert_uint_eq(buf.bytes_max, 4);
}
END_TEST

START_TEST(errors_move)
{
    struct error a = {0}, b = {0};
    ck_assert_int_eq(error_set(&a, CHXA_E_BUSY, "at %d", 5), CHXA_E_BUSY);
    ck_assert_int_eq(error_set(&a, CHXA_E_BLOCKED, "%s, then", error_message(&a)), CHXA_E_BLOCKED);
    ck_assert_str_eq(error_message(&a), "at 5, then");
    error_move(&b, &a);
    ck_assert_int_eq(a.code, 0);
    ck_assert_int_eq(b.code, CHXA_E_BLOCKED);
    error_move(&b, &b);
    ck_assert_str_eq(error_message(&b), "at 5, then");
    error_clear(&b);
    b.code = CHXA_E_BUSY;
    ck_assert_str_eq(error_message(&b), chxa_error_text(CHXA_E_BUSY));
}
END_TEST

/* RFC 8439 section 2.5.2, without the s that it adds. */
START_TEST(fingerprints)
{
    static const char known[] =
        "poly1305:85d6be7857556d337f4452fe42d506a8a7039d36354384c8776c94ffcab7318d";
    static const char text[] = "Cryptographic Forum Research Group";
    static const char sha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    char one[HASH_FINGERPRINT_BYTES + 1], other[HASH_FINGERPRINT_BYTES + 1];
    struct hash *hash = hash_new_fingerprint(known);
    hash_update(hash, text, 5);
    hash_update(hash, text + 5, strlen(text) - 5);
    hash_final_fingerprint(hash, one);
    ck_assert_str_eq(one, known);
    hash = hash_new_fingerprint(sha256); /* as earlier versions recorded them */
    hash_update(hash, "abc", 3);
    hash_final_fingerprint(hash, one);
    ck_assert_str_eq(one, sha256);
    for (int i = 0; i < 3; i++) {
        hash = hash_new_fingerprint(i ? one : NULL);
        hash_update(hash, i == 2 ? "abd" : "abc", 3);
        hash_final_fingerprint(hash, i ? other : one);
        if (i)
            ck_assert_int_eq(strcmp(one, other) == 0, i == 1);
    }
    hash = hash_new_fingerprint(NULL);
    hash_update(hash, "abc", 3);
    hash_final_fingerprint(hash, other);
    ck_assert_str_ne(one, other); /* another key */
}
END_TEST

START_TEST(hashes)
{
    char hex[HASH_HEX_BYTES + 1];
    hash_of("", 0, hex);
    ck_assert_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    struct hash *hash = hash_new();
    hash_update(hash, "a", 1);
    hash_update(hash, "bc", 2);
    hash_final(hash, hex);
    ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_free(hash_new());
    hash_free(NULL);
}
END_TEST

START_TEST(hex_digits)
{
    for (int c = -128; c < 128; c++) {
        const char *all = "0123456789abcdefABCDEF";
        const char *at = c ? strchr(all, c) : NULL;
        int value = at == NULL ? -1 : at - all < 16 ? (int)(at - all) : (int)(at - all) - 6;
        ck_assert_int_eq(hex_value((char)c), value);
    }
}
END_TEST

START_TEST(log_lines)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    log_set_level(LOG_LEVEL_WARN);
    log_info("not shown", "%s", "");
    log_warn("shown", "xid=%s error=\"%s\"", "x", "line\nbreak\x7f \xff \xc3\xa9 \xc3");
    char line[512];
    ssize_t len = read(ends[0], line, sizeof line - 1);
    ck_assert_int_gt(len, 0);
    line[len] = '\0';
    ck_assert_ptr_nonnull(
        strstr(line, " level=warn msg=\"shown\" xid=x error=\"line break  ? \xc3\xa9 ?\"\n"));
    ck_assert_ptr_null(strstr(line, "not shown"));
    ck_assert_uint_eq(strcspn(line, "\n"), strlen(line) - 1);
}
END_TEST

START_TEST(mem_helpers)
{
    char *text = NULL;
    mem_replace(&text, "one");
    mem_replace(&text, text); /* of itself */
    ck_assert_str_eq(text, "one");
    mem_replace(&text, NULL);
    ck_assert_ptr_null(text);
    ck_assert_ptr_null(mem_strdup(NULL));
    unsigned char *zeroed = mem_alloc(100);
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(zeroed[i], 0);
    free(zeroed);
    free(mem_array(0, 0));
    text = mem_strndup("abcdef", 3);
    ck_assert_str_eq(text, "abc");
    free(text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("base");
    TCase *t = tcase_create("base");
    tcase_add_test(t, buf_grows_and_stays_terminated);
    tcase_add_test(t, buf_bound_changes_nothing);
    tcase_add_test(t, errors_move);
    tcase_add_test(t, hashes);
    tcase_add_test(t, fingerprints);
    tcase_add_test(t, hex_digits);
    tcase_add_test(t, log_lines);
    tcase_add_test(t, mem_helpers);
    suite_add_tcase(s, t);
    return suite_run(s);
}
