/* SPDX-License-Identifier: Apache-2.0
 *
 * The configuration: defaults, file, flags over it, every problem named, and the sample file equal
 * to the table.
 */
#include "base/config.h"
#include "lib/suite.h"

#include <check.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/chxa-test-config-XXXXXX";
static char path[128];

static void make_folder(void)
{
    memcpy(folder + sizeof folder - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static void put_file(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    ck_assert_int_eq(chmod(path, mode), 0);
}

static struct config config;
static struct error error;

/* Loads with these arguments (NULL ends them). */
static int load(const char *first, ...)
{
    char *argv[32] = {(char *)(uintptr_t) "chxad"};
    int argc = 1;
    va_list args;
    va_start(args, first);
    for (const char *arg = first; arg; arg = va_arg(args, const char *))
        argv[argc++] = (char *)(uintptr_t)arg;
    va_end(args);
    error_clear(&error);
    return config_load(argc, argv, &config, &error);
}

static void expect_problem(const char *part)
{
    ck_assert_msg(strstr(error_message(&error), part) != NULL, "\"%s\" lacks \"%s\"",
                  error_message(&error), part);
    error_clear(&error);
    config_clear(&config);
}

START_TEST(defaults)
{
    ck_assert_int_eq(load("--node", "n1", NULL), 0);
    ck_assert_str_eq(config.node, "n1");
    ck_assert_str_eq(config.listen, "127.0.0.1:8124");
    ck_assert_str_eq(config.cluster, "main");
    ck_assert_str_eq(config.database, "chxa");
    ck_assert_str_eq(config.advertise, "");
    ck_assert_uint_eq(config.retention_ms, 7ull * 24 * 3600 * 1000);
    ck_assert_uint_eq(config.log_level, 1); /* info */
    ck_assert(config.fsync);
    ck_assert_str_eq(config.clickhouse_password, "");
    ck_assert_str_eq(config.warnings, "");
    ck_assert_int_eq(config.action, CONFIG_RUN);
    ck_assert_int_eq(config.origin[CONFIG_KEY_node].source, CONFIG_FROM_FLAG);
    ck_assert_int_eq(config.origin[CONFIG_KEY_listen].source, CONFIG_FROM_DEFAULT);
    config_clear(&config);
}
END_TEST

START_TEST(every_default_is_allowed)
{
    /* config_print's output, read back as a file, is the same configuration. */
    ck_assert_int_eq(load("--node", "n1", NULL), 0);
    FILE *file = fopen(path, "w");
    config_print(&config, file);
    fclose(file);
    config_clear(&config);
    ck_assert_msg(load("--config", path, NULL) == 0, "%s", error_message(&error));
    for (unsigned key = 0; key < CONFIG_KEY_COUNT; key++)
        ck_assert_int_eq(config.origin[key].source, CONFIG_FROM_FILE);
    config_clear(&config);
}
END_TEST

START_TEST(flags_win_over_the_file)
{
    put_file("# comment\n"
             "; another\n"
             "\n"
             "node = n9   # the ninth\n"
             "  idle_timeout_ms=5000\n"
             "cluster: c\r\n"
             "fsync = false\n"
             "log_level = debug",
             0600);
    ck_assert_msg(
        load("--idle-timeout-ms", "7000", "--config", path, "--transactions_max=5", NULL) == 0,
        "%s", error_message(&error));
    ck_assert_str_eq(config.node, "n9");
    ck_assert_str_eq(config.cluster, "c");
    ck_assert_uint_eq(config.idle_timeout_ms, 7000);
    ck_assert_uint_eq(config.transactions_max, 5);
    ck_assert(!config.fsync);
    ck_assert_uint_eq(config.log_level, 0);
    ck_assert_int_eq(config.origin[CONFIG_KEY_node].source, CONFIG_FROM_FILE);
    ck_assert_uint_eq(config.origin[CONFIG_KEY_node].line, 4);
    ck_assert_uint_eq(config.origin[CONFIG_KEY_log_level].line, 8);
    ck_assert_int_eq(config.origin[CONFIG_KEY_idle_timeout_ms].source, CONFIG_FROM_FLAG);
    ck_assert_ptr_nonnull(strstr(config.warnings, "fsync"));
    config_clear(&config);
}
END_TEST

START_TEST(every_problem_is_named_with_its_place)
{
    put_file("idle_timeout_ms = 5\n"
             "idel_timeout_ms = 5\n"
             "nothing\n"
             "cluster = a/b\n"
             "cluster = b\n"
             "[section]\n"
             "threads = 3\n",
             0600);
    ck_assert_int_ne(load("--config", path, "--listen=nowhere", "--log-level", "loud", "stray",
                          "--stop-timeout-ms", NULL),
                     0);
    static const char *const parts[] = {
        ":1: idle_timeout_ms = \"5\": must be a whole number from 100 to 2592000000 (ms)",
        ":2: unknown key \"idel_timeout_ms\"; did you mean \"idle_timeout_ms\"?",
        ":3: \"nothing\" is not of the form key = value",
        ":4: cluster = \"a/b\": must be 1-64 characters",
        ":7: threads stands in a section",
        "--listen \"nowhere\": must be host:port",
        "--log_level \"loud\": must be one of debug|info|warn|error",
        "\"stray\": not a flag",
        "--stop_timeout_ms: its value is missing",
        "node: must be given",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        ck_assert_msg(strstr(error_message(&error), parts[i]) != NULL, "lacks %s in:\n%s", parts[i],
                      error_message(&error));
    size_t lines = 1;
    for (const char *at = error_message(&error); *at; at++)
        lines += *at == '\n';
    ck_assert_uint_eq(lines, sizeof parts / sizeof parts[0]);
    error_clear(&error);
    config_clear(&config);
}
END_TEST

START_TEST(single_problems)
{
    put_file("node = n1\nnode = n2\n", 0600);
    ck_assert_int_ne(load("--config", path, NULL), 0);
    expect_problem(":2: node is given twice, here and in line 1");
    ck_assert_int_ne(load("--config", "/nonexistent/x", "--node", "a", NULL), 0);
    expect_problem("/nonexistent/x: cannot be read: No such file");
    ck_assert_int_ne(load("--config", folder, "--node", "a", NULL), 0);
    expect_problem("is a directory");
    ck_assert_int_ne(load("--node", "a", "--listen", "0.0.0.0:1", NULL), 0);
    expect_problem("advertise: must be given when listen is");
    ck_assert_int_ne(load("--node", "a", "--wait-ms-default", "400000", NULL), 0);
    expect_problem("wait_ms_default = 400000: must not be above wait_ms_max");
    ck_assert_int_ne(load("--node", "a", "--http-head-bytes-max", "1024", NULL), 0);
    expect_problem("must not be below http_url_bytes_max");
    ck_assert_int_ne(load("--node", "a", "--zzzzzzzzzzzzzzzzzzzz", "--cluster", "b", NULL), 0);
    ck_assert_ptr_null(strstr(error_message(&error), "did you mean"));
    ck_assert_str_eq(config.cluster, "b"); /* not taken for the unknown flag's value */
    expect_problem("unknown key \"zzz");
    ck_assert_int_ne(load("--node", "a", "--cluster", "a\nb", NULL), 0);
    expect_problem("\"a?b\"");
}
END_TEST

START_TEST(values_allowed_and_not)
{
    static const struct {
        const char *flag;
        bool good;
    } cases[] = {
        {"--listen=[::1]:0", true},
        {"--listen=localhost:65535", true},
        {"--listen=localhost:65536", false},
        {"--listen=:80", false},
        {"--listen=a b:80", false},
        {"--listen=[]:80", false},
        {"--listen=h:", false},
        {"--advertise=http://10.0.0.1:8124", true},
        {"--advertise=http://h/", false},
        {"--advertise=ftp://h", false},
        {"--advertise=http://h\r\nX:y", false},
        {"--advertise=", true},
        {"--clickhouse=", false},
        {"--clickhouse=https://[::1]:8443", true},
        {"--store=sqlite:/a", true},
        {"--store=sqlite:a", false},
        {"--store=sqlite:/", false},
        {"--store=zookeeper:a:1", true},
        {"--store=zookeeper:a:1,b:2/chxa/x", true},
        {"--store=zookeeper:a:1,", false},
        {"--store=zookeeper:a", true},
        {"--store=zookeeper:", false},
        {"--store=zookeeper:a:1/", false},
        {"--store=zookeeper:a:1/x/", false},
        {"--store=zookeeper:a:1//x", false},
        {"--store=zookeeper:a:1/../x", false},
        {"--store=etcd:x", false},
        {"--database=9a", false},
        {"--database=a`b", false},
        {"--cluster=..", false},
        {"--cluster=", false},
        {"--threads=0", false},
        {"--threads=1", true},
        {"--threads=1024", true},
        {"--threads=1025", false},
        {"--threads=-1", false},
        {"--threads= 1", false},
        {"--threads=1k", false},
        {"--threads=", false},
        {"--threads=99999999999999999999999", false},
        {"--body-bytes-max=0", true},
        {"--fsync=true", true},
        {"--fsync=1", false},
        {"--log-level=info|warn", false},
        {"--log-level=", false},
        {"--clickhouse-user=a b", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool good = load("--node=n", cases[i].flag, NULL) == 0;
        ck_assert_msg(good == cases[i].good, "%s: %s", cases[i].flag, error_message(&error));
        config_clear(&config);
    }
    error_clear(&error);
}
END_TEST

START_TEST(password_file)
{
    put_file("s3 cret\n", 0600);
    ck_assert_int_eq(load("--node=n", "--clickhouse-password-file", path, NULL), 0);
    ck_assert_str_eq(config.clickhouse_password, "s3 cret");
    ck_assert_str_eq(config.warnings, "");
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    config_print(&config, out);
    fclose(out);
    ck_assert_ptr_null(strstr(text, "s3 cret"));
    ck_assert_ptr_nonnull(strstr(text, path));
    free(text);
    config_clear(&config);

    put_file("x\r\n", 0644);
    ck_assert_int_eq(load("--node=n", "--clickhouse-password-file", path, NULL), 0);
    ck_assert_str_eq(config.clickhouse_password, "x");
    ck_assert_ptr_nonnull(strstr(config.warnings, "every user"));
    config_clear(&config);

    put_file("x\ny\n", 0600);
    ck_assert_int_ne(load("--node=n", "--clickhouse-password-file", path, NULL), 0);
    expect_problem("must hold one line");
    ck_assert_int_ne(load("--node=n", "--clickhouse-password-file", folder, NULL), 0);
    expect_problem("not a regular file");
    ck_assert_int_ne(load("--node=n", "--clickhouse-password-file", "/nonexistent", NULL), 0);
    expect_problem("No such file");
}
END_TEST

START_TEST(long_lines)
{
    char store[3000] = "zookeeper:h0:1";
    size_t len = strlen(store);
    while (len < sizeof store - 100)
        len += (size_t)snprintf(store + len, sizeof store - len, ",host%zu.example.net:2181", len);
    FILE *file = fopen(path, "w");
    fprintf(file, "store = %s\nnode = n1\n", store);
    fclose(file);
    int code = load("--config", path, NULL);
    if (code == 0)
        ck_assert_str_eq(config.store, store);
    else /* an inih with fixed limits */
        ck_assert_ptr_nonnull(strstr(error_message(&error), ":1: the line is too long"));
    ck_assert_str_eq(config.node, "n1");
    config_clear(&config);
    error_clear(&error);
}
END_TEST

START_TEST(actions)
{
    ck_assert_int_eq(load("--help", NULL), 0);
    ck_assert_int_eq(config.action, CONFIG_HELP);
    config_clear(&config);
    ck_assert_int_eq(load("--version", "--node", NULL), 0);
    ck_assert_int_eq(config.action, CONFIG_VERSION);
    config_clear(&config);
    ck_assert_int_eq(load("--check-config", "--node", "n", NULL), 0);
    ck_assert_int_eq(config.action, CONFIG_CHECK);
    config_clear(&config);

    int status = -1;
    char *wrong[] = {(char *)(uintptr_t) "chxad", NULL};
    ck_assert(!config_start(1, wrong, &config, &status));
    ck_assert_int_eq(status, 2); /* no node */
}
END_TEST

/* deploy/chxad.conf, found from this file's own path. */
START_TEST(sample_file_is_the_table)
{
    char sample[512];
    const char *here = strstr(__FILE__, "tests/unit/base/");
    ck_assert_ptr_nonnull(here);
    snprintf(sample, sizeof sample, "%.*sdeploy/chxad.conf", (int)(here - __FILE__), __FILE__);
    FILE *file = fopen(sample, "r");
    ck_assert_msg(file != NULL, "%s", sample);
    char found[65536];
    size_t found_len = fread(found, 1, sizeof found - 1, file);
    found[found_len] = '\0';
    fclose(file);
    char *wanted = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&wanted, &len);
    config_sample(out);
    fclose(out);
    const char *generate = getenv("CHXA_WRITE_SAMPLE");
    if (generate && strcmp(found, wanted) != 0) {
        file = fopen(sample, "w");
        fputs(wanted, file);
        fclose(file);
    }
    ck_assert_msg(strcmp(found, wanted) == 0,
                  "deploy/chxad.conf differs from config.def; CHXA_WRITE_SAMPLE=1 writes it anew");
    free(wanted);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("config");
    TCase *t = tcase_create("config");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, defaults);
    tcase_add_test(t, every_default_is_allowed);
    tcase_add_test(t, flags_win_over_the_file);
    tcase_add_test(t, every_problem_is_named_with_its_place);
    tcase_add_test(t, single_problems);
    tcase_add_test(t, values_allowed_and_not);
    tcase_add_test(t, password_file);
    tcase_add_test(t, long_lines);
    tcase_add_test(t, actions);
    tcase_add_test(t, sample_file_is_the_table);
    suite_add_tcase(s, t);
    return suite_run(s);
}
