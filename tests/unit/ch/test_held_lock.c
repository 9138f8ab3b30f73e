/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose held area it is, and what happens to folders that a wiped store knows nothing of.
 */
#include "base/mem.h"
#include "ch/held_lock.h"
#include "ch/part_files.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/chxa-held-lock-XXXXXX";

static void make_root(void)
{
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_file(const char *name)
{
    char *path = mem_printf("%s/%s", root, name);
    if (unlink(path) != 0)
        ck_assert_int_eq(rmdir(path), 0);
    free(path);
}

static void make_folder(const char *name)
{
    char *path = mem_printf("%s/chxa/%s", root, name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    free(path);
}

static bool exists(const char *name)
{
    char *path = mem_printf("%s/chxa/%s", root, name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

static struct held_history history; /* of the last lock() */

static int lock(const char *identity, uint64_t epoch, int *ret_fd, bool *ret_behind)
{
    struct error error = {0};
    history = (struct held_history){0};
    int code = held_lock(root, identity, epoch, ret_fd, &history, &error);
    *ret_behind = history.store_behind;
    error_clear(&error);
    return code;
}

START_TEST(one_process_at_a_time)
{
    int fd, second;
    bool behind;
    ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), 0);
    ck_assert_int_eq(lock("main/n1", 2, &second, &behind), CHXA_E_NOT_READY);
    close(fd);
    ck_assert_int_eq(lock("main/n1", 2, &second, &behind), 0);
    ck_assert(!behind);
    close(second);
    remove_file("chxa/owner");
    remove_file("chxa");
    rmdir(root);
}
END_TEST

START_TEST(another_node_may_take_it_only_when_it_holds_nothing)
{
    int fd;
    bool behind;
    ck_assert_int_eq(lock("main/n1", 5, &fd, &behind), 0);
    close(fd);
    make_folder("t-x");
    ck_assert_int_eq(lock("main/n2", 1, &fd, &behind), CHXA_E_NOT_READY);
    remove_file("chxa/t-x");
    ck_assert_int_eq(lock("main/n2", 1, &fd, &behind), 0);
    ck_assert(!behind); /* another node's epochs say nothing */
    close(fd);
    remove_file("chxa/owner");
    remove_file("chxa");
    rmdir(root);
}
END_TEST

START_TEST(a_store_that_lost_its_epochs_is_noticed)
{
    int fd;
    bool behind;
    ck_assert_int_eq(lock("main/n1", 17, &fd, &behind), 0);
    ck_assert(!behind);
    close(fd);
    ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), 0);
    ck_assert(behind);
    close(fd);
    ck_assert_int_eq(lock("main/n1", 2, &fd, &behind), 0);
    ck_assert(!behind);
    close(fd);
    remove_file("chxa/owner");
    remove_file("chxa");
    rmdir(root);
}
END_TEST

START_TEST(a_restart_of_the_machine_is_noticed)
{
    int fd;
    bool behind;
    ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), 0);
    ck_assert(!history.rebooted);
    static const char other[] = "main/n1 1 00000000-0000-0000-0000-000000000000\n";
    ck_assert_int_eq(pwrite(fd, other, sizeof other - 1, 0), sizeof other - 1);
    close(fd);
    ck_assert_int_eq(lock("main/n1", 2, &fd, &behind), 0);
    ck_assert(history.rebooted && !behind);
    close(fd);
    /* … until somebody has seen to it. */
    struct error error = {0};
    ck_assert_int_eq(lock("main/n1", 2, &fd, &behind), 0);
    ck_assert(history.rebooted);
    ck_assert_int_eq(held_lock_booted(fd, &error), 0);
    close(fd);
    ck_assert_int_eq(lock("main/n1", 3, &fd, &behind), 0);
    ck_assert(!history.rebooted);
    close(fd);
    remove_file("chxa/owner");
    remove_file("chxa");
    rmdir(root);
}
END_TEST

START_TEST(a_root_that_is_not_there_is_an_error)
{
    int fd;
    struct error error = {0};
    ck_assert_int_eq(held_lock("/nonexistent", "main/n1", 1, &fd, &history, &error),
                     CHXA_E_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error_message(&error), "/nonexistent"));
    error_clear(&error);
    rmdir(root);
}
END_TEST

/* Only root can make a file of somebody else; for others there is nothing to see here. */
START_TEST(another_user_than_clickhouse_is_refused)
{
    int fd;
    bool behind;
    char *data = mem_printf("%s/data", root);
    ck_assert_int_eq(mkdir(data, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(data, 65534, 65534), 0);
        ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), CHXA_E_IO_FAILED);
        ck_assert(!exists("")); /* nothing was made that ClickHouse's user could not use */
        ck_assert_int_eq(chown(data, 0, 0), 0);
    }
    ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), 0);
    close(fd);
    free(data);
    remove_file("chxa/owner");
    remove_file("chxa");
    remove_file("data");
    rmdir(root);
}
END_TEST

START_TEST(set_aside_keeps_what_it_moves)
{
    int fd;
    bool behind;
    struct error error = {0};
    ck_assert_int_eq(lock("main/n1", 1, &fd, &behind), 0);
    close(fd);
    ck_assert_int_eq(held_set_aside(root, "t-none", &error), 0);
    make_folder("t-x");
    ck_assert_int_eq(held_set_aside(root, "t-x", &error), 0);
    ck_assert(!exists("t-x") && exists("lost/t-x"));
    make_folder("t-x");
    ck_assert_int_eq(held_set_aside(root, "t-x", &error), 0); /* beside the first */
    ck_assert(!exists("t-x") && exists("lost/t-x"));
    char **names;
    size_t n;
    ck_assert_int_eq(held_list(root, &names, &n, &error), 0);
    ck_assert_uint_eq(n, 0); /* what is set aside is no transaction's folder */
    free(names);
    ck_assert_int_eq(held_set_aside(root, "../x", &error), CHXA_E_IO_FAILED);
    error_clear(&error);
    char *command[] = {"rm", "-rf", root, NULL};
    execvp("rm", command); /* the test's own process; its status is the test's */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("held_lock");
    TCase *tests = tcase_create("lock");
    tcase_add_checked_fixture(tests, make_root, NULL);
    tcase_add_test(tests, one_process_at_a_time);
    tcase_add_test(tests, another_node_may_take_it_only_when_it_holds_nothing);
    tcase_add_test(tests, a_store_that_lost_its_epochs_is_noticed);
    tcase_add_test(tests, a_restart_of_the_machine_is_noticed);
    tcase_add_test(tests, a_root_that_is_not_there_is_an_error);
    tcase_add_test(tests, another_user_than_clickhouse_is_refused);
    tcase_add_test(tests, set_aside_keeps_what_it_moves);
    suite_add_tcase(suite, tests);
    return suite_run(suite);
}
