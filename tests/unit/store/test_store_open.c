/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store: URIs and names that are refused at once, and SQLite files that are not ours.
 */
#include "contract/store/store_lab.h"

#include "lib/suite.h"
#include "store/store_impl.h"

#include <ftw.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

static char folder[256];

static int open_code(const char *uri, const char *cluster, const char *node, char *ret_why)
{
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct store_config config = {
        .uri = uri, .cluster = cluster, .node = node, .url = "http://h/", .fsync = false};
    struct store *store = NULL;
    struct error error = {0};
    int code = store_open(&loop, &config, NULL, NULL, &store, &error);
    ck_assert_int_ne(code, 0);
    ck_assert_int_eq(code, error.code);
    ck_assert_ptr_null(store);
    snprintf(ret_why, 512, "%s", error_message(&error));
    error_clear(&error);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    return code;
}

START_TEST(bad_configs_are_refused)
{
    char why[512];
    static const char *const uris[] = {"",
                                       "sqlite:",
                                       "sqlite::memory:",
                                       "sqlite:file:x?mode=ro",
                                       "mysql:x",
                                       "zookeeper:",
                                       "zookeeper:/chroot",
                                       "zookeeper:h:2181//x",
                                       "zookeeper:h:2181/a/../b",
                                       "zookeeper:h:0",
                                       "zookeeper:h:70000",
                                       "zookeeper:h:x",
                                       "zookeeper:,h:2181",
                                       "zookeeper:h:2181/a b\n",
                                       "chxa.db"};
    for (size_t i = 0; i < sizeof uris / sizeof uris[0]; i++)
        ck_assert_msg(open_code(uris[i], "c", "n", why) == CHXA_E_INVALID_REQUEST, "%s: %s",
                      uris[i], why);
    static const char *const names[] = {
        "",    ".",
        "..",  "a/b",
        "a b", "\xc3\xa9",
        "a:b", "12345678901234567890123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ck_assert_int_eq(open_code("sqlite:/tmp/x", names[i], "n", why), CHXA_E_INVALID_REQUEST);
        ck_assert_int_eq(open_code("sqlite:/tmp/x", "c", names[i], why), CHXA_E_INVALID_REQUEST);
    }
}
END_TEST

START_TEST(zookeeper_uris_are_read)
{
    static const struct {
        const char *location, *hosts, *chroot;
    } good[] = {
        {"h", "h:2181", "/chxa"},
        {"h:1,b.example:65535", "h:1,b.example:65535", "/chxa"},
        {"h/", "h:2181", ""},
        {"h/a/b/", "h:2181", "/a/b"},
        {"[::1]:7,[fe80::1]/x", "[::1]:7,[fe80::1]:2181", "/x"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char *hosts, *chroot;
        ck_assert_int_eq(store_uri_zookeeper(good[i].location, &hosts, &chroot, NULL), 0);
        ck_assert_str_eq(hosts, good[i].hosts);
        ck_assert_str_eq(chroot, good[i].chroot);
        free(hosts);
        free(chroot);
    }
}
END_TEST

/* Opens and closes the store at name once, so that the file exists. */
static char *made_file(const char *name)
{
    struct lab lab;
    lab_open(&lab, LAB_SQLITE, NULL);
    free(lab.uri);
    lab.config.uri = lab.uri = mem_printf("sqlite:%s/%s", folder, name);
    lab_node(&lab, "n1");
    char *path = mem_printf("%s/%s", folder, name);
    lab_close(&lab);
    return path;
}

static void sql(const char *path, const char *text)
{
    sqlite3 *db;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

START_TEST(foreign_files_are_refused)
{
    char why[512];
    char *path = made_file("newer.db");
    char *uri = mem_printf("sqlite:%s", path);
    ck_assert_int_eq(open_code(uri, "other-cluster", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why, "cluster"));
    sql(path, "PRAGMA user_version = 4");
    ck_assert_int_eq(open_code(uri, "c", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why, "schema version 4"));
    sql(path, "PRAGMA user_version = 0");
    ck_assert_int_eq(open_code(uri, "c", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why, "no schema version"));
    free(uri);
    free(path);

    path = mem_printf("%s/foreign.db", folder);
    uri = mem_printf("sqlite:%s", path);
    sql(path, "CREATE TABLE mine (x)");
    ck_assert_int_eq(open_code(uri, "c", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why, "another program"));
    free(uri);

    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is not a database\n", file);
    fclose(file);
    free(path);
    uri = mem_printf("sqlite:%s/foreign.db", folder);
    ck_assert_int_eq(open_code(uri, "c", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    free(uri);
    uri = mem_printf("sqlite:%s/no/such/folder.db", folder);
    ck_assert_int_eq(open_code(uri, "c", "n1", why), CHXA_E_STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why, "/no/such/folder.db"));
    free(uri);
}
END_TEST

static void sink_got(void *arg, const struct store_sink_result *result)
{
    ck_assert_int_eq(result->code, 0);
    ck_assert_uint_eq(result->sink->epoch, 3);
    ck_assert_str_eq(result->sink->checkpoint.xid, "before");
    *(bool *)arg = true;
}

/* A file of schema version 1, with a prepared transaction of a sink in it. */
START_TEST(an_older_file_is_brought_up_to_date)
{
    char *path = made_file("older.db");
    struct lab lab;
    lab_open(&lab, LAB_SQLITE, NULL);
    char *uri = mem_printf("sqlite:%s", path), *cluster = mem_strdup(lab.config.cluster);
    char *set = mem_printf("UPDATE meta SET value = '%s' WHERE name = 'cluster'", cluster);
    sql(path, set);
    lab.config.uri = uri;
    struct chxa_record record = lab_record("before", "n1");
    record.state = CHXA_PREPARED;
    ck_assert_int_eq(lab_create(&lab, lab_node(&lab, "n1"), &record), 0);
    lab_stop(&lab, &lab.nodes[0]);
    sql(path, "DROP TABLE sinks; DROP INDEX txns_finished; PRAGMA user_version = 1");
    sql(path, "INSERT INTO txns VALUES ('broken', 0, 0, 'n1', 'no JSON')");

    struct lab_node *node = lab_node(&lab, "n1");
    record.sink = mem_strdup("job");
    record.sink_epoch = 3;
    lab_record_set(&record, CHXA_COMMITTED, "op");
    ck_assert_int_eq(lab_cas(&lab, node, &record), 0);
    bool done = false;
    store_sink_get(node->store, "job", sink_got, &done);
    lab_wait(&lab, &done);
    struct store_filter filter = {.finished_before_ms = record.changed_ms + 1, .limit = 10};
    struct lab_answer answer = lab_list(&lab, node, &filter);
    ck_assert_int_eq(answer.code, 0);
    ck_assert_uint_eq(answer.n_records, 1); /* the index has it, and cannot have the broken one */
    ck_assert_str_eq(answer.records[0].xid, "before");
    lab_answer_clear(&answer);
    chxa_record_clear(&record);
    lab_close(&lab);
    free(uri);
    free(set);
    free(cluster);
    free(path);
}
END_TEST

/* A stored record that cannot be read is an error with a code, for a get and for a list. */
START_TEST(broken_records_are_told)
{
    char *path = made_file("broken.db");
    sql(path, "INSERT INTO txns VALUES ('x', 0, 1, 'n1', '{\"format\": 1')");
    sql(path, "DELETE FROM meta; INSERT INTO meta VALUES ('cluster', 'c')");
    struct lab lab;
    lab_open(&lab, LAB_SQLITE, NULL);
    char *uri = mem_printf("sqlite:%s", path);
    lab.config.uri = uri;
    lab.config.cluster = "c";
    struct lab_node *node = lab_node(&lab, "n1");
    struct lab_answer answer = lab_get(&lab, node, "x");
    ck_assert_int_eq(answer.code, CHXA_E_INVALID_RECORD);
    ck_assert(!answer.has_record);
    struct store_filter filter = {.limit = 10};
    answer = lab_list(&lab, node, &filter);
    ck_assert_int_eq(answer.code, CHXA_E_INVALID_RECORD);
    lab_answer_clear(&answer);
    lab_close(&lab);
    free(uri);
    free(path);
}
END_TEST

/* The disk is full for a while (a file may not grow): what is told as not done is not there, what
 * was done stays, and it works again afterwards. */
START_TEST(full_disk_is_told_and_survived)
{
    signal(SIGXFSZ, SIG_IGN);
    struct lab lab;
    lab_open(&lab, LAB_SQLITE, NULL);
    struct lab_node *node = lab_node(&lab, "n1");
    struct chxa_record record = lab_record("x", "n1");
    ck_assert_int_eq(lab_create(&lab, node, &record), 0);
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    static int codes[40];
    unsigned n_failed = 0;
    for (uint64_t seq = 1; seq <= 40; seq++) {
        struct chxa_write write = lab_write(seq, 200);
        codes[seq - 1] = lab_add_write(&lab, node, "x", 0, &write);
        n_failed += codes[seq - 1] != 0;
        chxa_write_clear(&write);
    }
    ck_assert_uint_ge(n_failed, 10);
    ck_assert_int_eq(codes[0], 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    struct chxa_write write = lab_write(41, 200);
    ck_assert_int_eq(lab_add_write(&lab, node, "x", 0, &write), 0);
    chxa_write_clear(&write);
    struct lab_answer answer = lab_get(&lab, node, "x");
    ck_assert_int_eq(answer.code, 0);
    for (uint64_t seq = 1; seq <= 40; seq++) {
        bool there = false;
        for (size_t i = 0; i < answer.record.n_writes; i++)
            there |= answer.record.writes[i].seq == seq;
        if (codes[seq - 1] == 0 || chxa_error_outcome_known(codes[seq - 1]))
            ck_assert(there == (codes[seq - 1] == 0));
    }
    lab_answer_clear(&answer);
    chxa_record_clear(&record);
    lab_close(&lab);
}
END_TEST

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *at)
{
    (void)what, (void)kind, (void)at;
    return remove(path);
}

int main(void)
{
    snprintf(folder, sizeof folder, "%s/chxa-store-XXXXXX", lab_tmp());
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    setenv("CHXA_TEST_TMP", folder, 1);
    Suite *suite = suite_create("store open");
    TCase *tests = tcase_create("open");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, bad_configs_are_refused);
    tcase_add_test(tests, zookeeper_uris_are_read);
    tcase_add_test(tests, foreign_files_are_refused);
    tcase_add_test(tests, an_older_file_is_brought_up_to_date);
    tcase_add_test(tests, broken_records_are_told);
    tcase_add_test(tests, full_disk_is_told_and_survived);
    suite_add_tcase(suite, tests);
    int status = suite_run(suite);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return status;
}
