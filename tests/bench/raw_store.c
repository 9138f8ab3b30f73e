/* SPDX-License-Identifier: Apache-2.0
 *
 * What a store gives by itself: the changes of empty transactions, made with nothing of ours in between. One line of JSON.
 *
 *   raw_store zookeeper:HOST:PORT N CONCURRENCY BYTES
 *   raw_store sqlite:PATH N [CONCURRENCY [BYTES]]
 *
 * A change is what chxad sends for one step of begin, prepare, commit: the check of an epoch, a record of BYTES that is
 * created (1st) or set (2nd to 4th), and an entry of the index of open ones that is created, checked or deleted. N
 * changes, four for each transaction.
 *
 * ZooKeeper: one session, one multi a change, CONCURRENCY of them in flight, each lane's next one sent when its last was
 * answered. Everything is below /raw_store-<pid>, and stays there.
 * SQLite: WAL, synchronous=FULL, a transaction of its own for each change ("changes_per_s"); then the same with
 * CONCURRENCY changes in each transaction ("grouped_per_s").
 */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define THREADED /* declares its blocking calls */
#include <zookeeper/zookeeper.h>

#define PATH_BYTES  128
#define LANES_MAX   4096
#define BYTES_MAX   (512 * 1024)
#define CHANGES_MAX 100000000ul

static const int bytes_default = 300;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "raw_store: %s: %s\n", what, why);
    exit(1);
}

static unsigned long number(const char *text, unsigned long max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value == 0 || value > max)
        die(text, "not a number in its range");
    return value;
}

static int compare_times(const void *a, const void *b)
{
    const double *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* ---- ZooKeeper ---- */

struct lane {
    unsigned long change; /* of this lane, from 0 */
    double sent_s;
    char record[PATH_BYTES];
    char index[PATH_BYTES];
    unsigned number;
    zoo_op_t ops[3];
    zoo_op_result_t results[3];
};

static struct {
    zhandle_t *zh;
    char base[PATH_BYTES / 2];
    char epoch[PATH_BYTES];
    char *data;
    int data_bytes;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool connected;          /* under mutex */
    unsigned n_running;      /* under mutex: lanes that are not done */
    unsigned long n_started; /* the completion thread's, once the lanes run */
    unsigned long n_done;    /* likewise */
    unsigned long n_changes;
    double *times_s;
} zk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void session_event(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    (void)zh;
    (void)path;
    (void)context;
    if (type != ZOO_SESSION_EVENT)
        return;
    pthread_mutex_lock(&zk.mutex);
    zk.connected = state == ZOO_CONNECTED_STATE;
    pthread_cond_signal(&zk.cond);
    pthread_mutex_unlock(&zk.mutex);
}

static void must(int rc, const char *what)
{
    if (rc != ZOK)
        die(what, zerror(rc));
}

static void lane_answered(int rc, const void *data);

static void lane_send(struct lane *lane)
{
    unsigned step = lane->change % 4;
    if (step == 0) {
        unsigned long transaction = lane->change / 4;
        snprintf(lane->record, sizeof lane->record, "%s/txns/%02lx/raw-%u-%lu", zk.base,
                 transaction % 256, lane->number, transaction);
        snprintf(lane->index, sizeof lane->index, "%s/open/raw-%u-%lu", zk.base, lane->number,
                 transaction);
    }
    zoo_check_op_init(&lane->ops[0], zk.epoch, 0);
    if (step == 0) {
        zoo_create_op_init(&lane->ops[1], lane->record, zk.data, zk.data_bytes,
                           &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0);
        zoo_create_op_init(&lane->ops[2], lane->index, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT,
                           NULL, 0);
    } else {
        zoo_set_op_init(&lane->ops[1], lane->record, zk.data, zk.data_bytes, (int)step - 1, NULL);
        if (step < 3)
            zoo_check_op_init(&lane->ops[2], lane->index, -1);
        else
            zoo_delete_op_init(&lane->ops[2], lane->index, -1);
    }
    lane->sent_s = now_s();
    must(zoo_amulti(zk.zh, 3, lane->ops, lane->results, lane_answered, lane), "multi");
}

/* The library's thread; it sends the next ones too. */
static void lane_answered(int rc, const void *data)
{
    struct lane *lane = (struct lane *)(uintptr_t)data;
    must(rc, "multi");
    zk.times_s[zk.n_done++] = now_s() - lane->sent_s;
    lane->change++;
    if (zk.n_started < zk.n_changes) {
        zk.n_started++;
        lane_send(lane);
        return;
    }
    pthread_mutex_lock(&zk.mutex);
    zk.n_running--;
    pthread_cond_signal(&zk.cond);
    pthread_mutex_unlock(&zk.mutex);
}

static void make(const char *path)
{
    must(zoo_create(zk.zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT, NULL, 0), path);
}

static void make_folders(void)
{
    char path[PATH_BYTES];
    snprintf(zk.base, sizeof zk.base, "/raw_store-%ld", (long)getpid());
    make(zk.base);
    snprintf(zk.epoch, sizeof zk.epoch, "%s/epoch", zk.base);
    make(zk.epoch);
    snprintf(path, sizeof path, "%s/open", zk.base);
    make(path);
    snprintf(path, sizeof path, "%s/txns", zk.base);
    make(path);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(path, sizeof path, "%s/txns/%02x", zk.base, i);
        make(path);
    }
}

static void connect_to(const char *hosts)
{
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zk.zh = zookeeper_init(hosts, session_event, 10000, NULL, NULL, 0);
    if (zk.zh == NULL)
        die(hosts, "cannot connect");
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&zk.mutex);
    int rc = 0;
    while (!zk.connected && rc == 0)
        rc = pthread_cond_timedwait(&zk.cond, &zk.mutex, &until);
    bool connected = zk.connected;
    pthread_mutex_unlock(&zk.mutex);
    if (!connected)
        die(hosts, "no answer within 10 seconds");
}

static void run_zookeeper(const char *hosts, unsigned long n_changes, unsigned n_lanes, int bytes)
{
    if (n_lanes > n_changes)
        n_lanes = (unsigned)n_changes;
    struct lane *lanes = calloc(n_lanes, sizeof *lanes);
    zk.data = malloc((size_t)bytes);
    zk.times_s = calloc(n_changes, sizeof *zk.times_s);
    assert(lanes && zk.data && zk.times_s);
    memset(zk.data, 'r', (size_t)bytes);
    zk.data_bytes = bytes;
    connect_to(hosts);
    make_folders();
    zk.n_changes = n_changes;
    zk.n_started = n_lanes;
    zk.n_running = n_lanes;
    double started_s = now_s();
    for (unsigned i = 0; i < n_lanes; i++) {
        lanes[i].number = i;
        lane_send(&lanes[i]);
    }
    pthread_mutex_lock(&zk.mutex);
    while (zk.n_running)
        pthread_cond_wait(&zk.cond, &zk.mutex);
    pthread_mutex_unlock(&zk.mutex);
    double took_s = now_s() - started_s;
    zookeeper_close(zk.zh);
    qsort(zk.times_s, n_changes, sizeof *zk.times_s, compare_times);
    printf("{\"store\": \"zookeeper\", \"changes\": %lu, \"concurrency\": %u, \"bytes\": %d, "
           "\"seconds\": %.6f, \"changes_per_s\": %.1f, \"ms_median\": %.3f, \"ms_p99\": %.3f}\n",
           n_changes, n_lanes, bytes, took_s, (double)n_changes / took_s,
           zk.times_s[n_changes / 2] * 1e3, zk.times_s[n_changes * 99 / 100] * 1e3);
    free(zk.times_s);
    free(zk.data);
    free(lanes);
}

/* ---- SQLite ---- */

static sqlite3 *db;
static sqlite3_stmt *check, *create, *set, *begin, *commit;

static void must_sql(int rc)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
        die("sqlite", sqlite3_errmsg(db));
}

static void run_sql(sqlite3_stmt *stmt)
{
    must_sql(sqlite3_step(stmt));
    must_sql(sqlite3_reset(stmt));
}

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *stmt;
    must_sql(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL));
    return stmt;
}

static void open_sqlite(const char *path)
{
    must_sql(sqlite3_open(path, &db));
    must_sql(sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL));
    must_sql(sqlite3_exec(db, "PRAGMA synchronous = FULL", NULL, NULL, NULL));
    must_sql(sqlite3_exec(
        db,
        "CREATE TABLE raw_nodes (name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;"
        "INSERT INTO raw_nodes VALUES ('n1', 1);"
        "CREATE TABLE raw_txns (xid TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL,"
        " unfinished INTEGER NOT NULL, record TEXT NOT NULL);"
        "CREATE INDEX raw_open ON raw_txns (xid) WHERE unfinished;",
        NULL, NULL, NULL));
    check = prepare("SELECT epoch FROM raw_nodes WHERE name = 'n1'");
    create = prepare("INSERT INTO raw_txns VALUES (?1, 0, 1, ?2)");
    set = prepare("UPDATE raw_txns SET version = version + 1, unfinished = ?3, record = ?2 "
                  "WHERE xid = ?1 AND version = ?4");
    begin = prepare("BEGIN IMMEDIATE");
    commit = prepare("COMMIT");
}

static void change_sqlite(unsigned long transaction, int step, const char *data, int bytes,
                          const char *prefix)
{
    char xid[64];
    int len = snprintf(xid, sizeof xid, "%s-%lu", prefix, transaction);
    sqlite3_stmt *stmt = step ? set : create;
    must_sql(sqlite3_bind_text(stmt, 1, xid, len, SQLITE_STATIC));
    must_sql(sqlite3_bind_text(stmt, 2, data, bytes, SQLITE_STATIC));
    if (step) {
        must_sql(sqlite3_bind_int(stmt, 3, step < 3));
        must_sql(sqlite3_bind_int(stmt, 4, step - 1));
    }
    run_sql(stmt);
}

/* `group` transactions side by side, one change of each in every commit. Changes per second. */
static double time_sqlite(unsigned long n_changes, unsigned group, const char *data, int bytes,
                          const char *prefix)
{
    unsigned long n_rounds = (n_changes + 4ul * group - 1) / (4ul * group);
    double started_s = now_s();
    for (unsigned long round = 0; round < n_rounds; round++)
        for (int step = 0; step < 4; step++) {
            run_sql(begin);
            run_sql(check);
            for (unsigned i = 0; i < group; i++)
                change_sqlite(round * group + i, step, data, bytes, prefix);
            run_sql(commit);
        }
    return (double)(n_rounds * 4 * group) / (now_s() - started_s);
}

static void run_sqlite(const char *path, unsigned long n_changes, unsigned group, int bytes)
{
    char *data = malloc((size_t)bytes);
    assert(data);
    memset(data, 'r', (size_t)bytes);
    open_sqlite(path);
    double single = time_sqlite(n_changes, 1, data, bytes, "single");
    printf("{\"store\": \"sqlite\", \"changes\": %lu, \"concurrency\": %u, \"bytes\": %d, "
           "\"changes_per_s\": %.1f",
           n_changes, group, bytes, single);
    if (group > 1)
        printf(", \"grouped_per_s\": %.1f", time_sqlite(n_changes, group, data, bytes, "grouped"));
    printf("}\n");
    sqlite3_stmt *stmts[] = {check, create, set, begin, commit};
    for (size_t i = 0; i < sizeof stmts / sizeof stmts[0]; i++)
        sqlite3_finalize(stmts[i]);
    sqlite3_close(db);
    free(data);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: raw_store zookeeper:HOST:PORT N CONCURRENCY BYTES\n"
                        "       raw_store sqlite:PATH N [CONCURRENCY [BYTES]]\n");
        return 2;
    }
    unsigned long n_changes = number(argv[2], CHANGES_MAX);
    unsigned concurrency = argc > 3 ? (unsigned)number(argv[3], LANES_MAX) : 1;
    int bytes = argc > 4 ? (int)number(argv[4], BYTES_MAX) : bytes_default;
    if (strncmp(argv[1], "zookeeper:", 10) == 0)
        run_zookeeper(argv[1] + 10, n_changes, concurrency, bytes);
    else if (strncmp(argv[1], "sqlite:", 7) == 0)
        run_sqlite(argv[1] + 7, n_changes, concurrency, bytes);
    else
        die(argv[1], "neither zookeeper: nor sqlite:");
    return 0;
}
