/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows on their way from an INSERT into a scratch table to the target, on a real server: acquire,
 * insert, list, link, move, ATTACH; and the pool's manners when things fail.
 */
#include "ch/part_files.h"
#include "ch/scratch.h"
#include "contract/ch/ch_tables.h"

#include <sys/stat.h>

#define POOL_DATABASE "lab_scratch"
#define XID           "lab:xid"
#define NUMBER_FIRST  1000000000000000u

static struct scratch_pool *pool;

static void started(void *arg, int code, struct error *error)
{
    (void)arg;
    ck_assert_msg(code == 0, "start: %s", error_message(error));
    lab_waiting = false;
}

static void pool_open(size_t tables_max, uint64_t idle_ms, size_t parts_max, uint64_t timeout_ms)
{
    struct scratch_config config = {.database = POOL_DATABASE,
                                    .tables_max = tables_max,
                                    .idle_ms = idle_ms,
                                    .parts_max = parts_max,
                                    .timeout_ms = timeout_ms};
    ck_assert_int_eq(scratch_pool_new(&lab_loop, lab_client, &config, &pool), 0);
    lab_waiting = true;
    scratch_pool_start(pool, &lab_caps, started, NULL);
    lab_wait();
}

static void pool_closed(void *arg)
{
    (void)arg;
    lab_waiting = false;
}

static void pool_shut(void)
{
    lab_waiting = true;
    scratch_pool_close(pool, 5000, pool_closed, NULL);
    lab_wait();
    pool = NULL;
}

struct acquired {
    int code;
    char *message;
    struct scratch *scratch;
    bool done;
};

static void acquired(void *arg, int code, struct error *error, struct scratch *scratch)
{
    struct acquired *ret = arg;
    ck_assert(!ret->done);
    ret->done = true;
    ret->code = code;
    ret->message = mem_strdup(code ? error_message(error) : "");
    ret->scratch = scratch;
}

static void wait_for(const bool *done)
{
    while (!*done)
        uv_run(&lab_loop, UV_RUN_ONCE);
}

static struct scratch *acquire(const struct ch_table *target)
{
    struct acquired got = {0};
    scratch_acquire(pool, target, acquired, &got);
    ck_assert(!got.done); /* never inside the call */
    wait_for(&got.done);
    ck_assert_msg(got.code == 0, "acquire: %s", got.message);
    free(got.message);
    return got.scratch;
}

static struct scratch_stats stats(void)
{
    struct scratch_stats now;
    scratch_pool_stats(pool, &now);
    return now;
}

static void tick_done(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void sleep_ms(uint64_t ms)
{
    bool done = false;
    uv_timer_t timer = {.data = &done};
    uv_timer_init(&lab_loop, &timer);
    uv_timer_start(&timer, tick_done, ms, 0);
    wait_for(&done);
    uv_close((uv_handle_t *)&timer, NULL);
    while (uv_is_closing((uv_handle_t *)&timer) && uv_run(&lab_loop, UV_RUN_NOWAIT))
        if (!uv_is_active((uv_handle_t *)&timer))
            break;
}

static void insert(const struct scratch *scratch, const char *columns, const char *rows)
{
    struct buf sql = {0};
    buf_puts(&sql, "INSERT INTO ");
    sql_table(&sql, scratch->database, scratch->name);
    buf_printf(&sql, "%s %s", columns, rows);
    struct ch_param small[] = {{"max_block_size", "15"},
                               {"max_insert_block_size", "15"},
                               {"min_insert_block_size_rows", "15"},
                               {"min_insert_block_size_bytes", "0"}};
    struct lab_answer answer = lab_run(buf_str(&sql), small, 4);
    ck_assert_msg(answer.code == 0, "%s: %s", buf_str(&sql), answer.message);
    free(answer.body);
    free(answer.message);
    buf_clear(&sql);
}

static size_t inserts_since(const struct scratch *scratch, struct part_list *ret_fresh)
{
    struct error error = {0};
    struct part_list after = {0};
    ck_assert_msg(
        part_list_read(scratch->paths, scratch->n_paths, scratch->old_syntax, &after, &error) == 0,
        "%s", error_message(&error));
    part_list_new(&scratch->before, &after, scratch->old_syntax, ret_fresh);
    part_list_clear(&after);
    return ret_fresh->n_entries;
}

struct held {
    struct chxa_part *parts;
    size_t n;
    uint64_t rows;
};

static struct held link_all(const struct scratch *scratch, const struct ch_table *target)
{
    static uint64_t number = NUMBER_FIRST;
    struct error error = {0};
    struct part_list fresh = {0};
    struct held held = {.parts = mem_array(inserts_since(scratch, &fresh), sizeof *held.parts)};
    for (size_t i = 0; i < fresh.n_entries; i++) {
        uint32_t disk = fresh.entries[i].disk;
        struct chxa_part *part = &held.parts[held.n];
        ck_assert_msg(part_link(scratch->paths[disk], fresh.entries[i].name, scratch->old_syntax,
                                target->disks[disk].root, disk, XID, number++, part, &error) == 0,
                      "%s", error_message(&error));
        if (part->name == NULL)
            continue;
        held.rows += part->rows;
        held.n++;
    }
    part_list_clear(&fresh);
    return held;
}

struct paths {
    char *tables[8], *roots[8];
};

static struct paths paths_of(const struct ch_table *target)
{
    struct paths paths;
    ck_assert_uint_le(target->n_disks, 8);
    for (size_t i = 0; i < target->n_disks; i++) {
        paths.tables[i] = target->disks[i].table_path;
        paths.roots[i] = target->disks[i].root;
    }
    return paths;
}

static void move_out(const struct ch_table *target, const struct held *held)
{
    struct error error = {0};
    for (size_t i = 0; i < held->n; i++) {
        const struct chxa_part *part = &held->parts[i];
        const struct ch_disk *disk = &target->disks[part->disk];
        const struct part_run run = {part->number, part->number};
        ck_assert_msg(held_mark(disk->root, XID, &run, 1, true, &error) == 0 &&
                          held_move_out(disk->root, XID, part, 1, disk->table_path, &error) == 0,
                      "%s", error_message(&error));
    }
}

static void attach(const struct ch_table *target, const struct held *held)
{
    struct buf sql = {0};
    buf_puts(&sql, "ALTER TABLE ");
    sql_table(&sql, target->database, target->table);
    for (size_t i = 0; i < held->n; i++) {
        buf_puts(&sql, i ? ", ATTACH PART " : " ATTACH PART ");
        sql_string(&sql, held->parts[i].name);
    }
    lab_sql("%s", buf_str(&sql));
    buf_clear(&sql);
}

/* All parts in one state: held, or active in the target. */
static void expect_places(const struct ch_table *target, const struct held *held, bool active)
{
    struct error error = {0};
    struct paths paths = paths_of(target);
    struct part_place *places = mem_array(held->n, sizeof *places);
    ck_assert_msg(part_places_read(XID, held->parts, held->n, paths.tables, paths.roots,
                                   target->n_disks, places, &error) == 0,
                  "%s", error_message(&error));
    for (size_t i = 0; i < held->n; i++) {
        ck_assert_int_eq(places[i].held, !active);
        ck_assert_int_eq(places[i].marker, active);
        ck_assert(!places[i].detached && !places[i].attaching);
        ck_assert_ptr_null(places[i].ignored);
        ck_assert_msg((places[i].active != NULL) == active, "%s", held->parts[i].name);
        part_place_clear(&places[i]);
    }
    free(places);
}

static void held_clear(struct held *held)
{
    for (size_t i = 0; i < held->n; i++)
        chxa_part_clear(&held->parts[i]);
    free(held->parts);
}

static void scratch_setup(void)
{
    lab_setup();
    lab_sql("DROP DATABASE IF EXISTS " POOL_DATABASE);
}

static void scratch_teardown(void)
{
    if (pool)
        pool_shut();
    lab_sql("DROP DATABASE IF EXISTS " POOL_DATABASE);
    lab_teardown();
}

static const char *sum_of(const char *database, const char *table)
{
    return lab_sql("SELECT count() FROM `%s`.`%s` FORMAT TSV", database, table);
}

START_TEST(test_whole_way)
{
    const struct lab_kind *kind = &lab_kinds[_i];
    if (!lab_make(kind))
        return;
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    struct ch_table target = lab_load_fine(LAB_DATABASE, kind->name);
    struct paths paths = paths_of(&target);
    struct error error = {0};
    held_remove(XID, paths.roots, target.n_disks, false, &error);
    uint64_t rows = 0;
    /* Merges of the target must not take parts away before they are looked at. */
    lab_sql("SYSTEM STOP MERGES " LAB_DATABASE ".%s", kind->name);
    if (kind->needs & ROWS_VANISH)
        lab_sql("SYSTEM STOP TTL MERGES " LAB_DATABASE ".%s", kind->name);
    for (int write = 0; write < 2; write++) {
        struct scratch *scratch = acquire(&target);
        insert(scratch, lab_insert_columns(kind), kind->rows);
        if (kind->needs & ROWS_VANISH)
            sleep_ms(6000); /* a TTL merge would have come by now */
        struct held held = link_all(scratch, &target);
        ck_assert_uint_gt(held.n, 0);
        scratch_release(pool, scratch, NULL);
        ck_assert_msg(held_sync(XID, paths.roots, target.n_disks, held.parts, held.n,
                                write ? 0 : 100000, &error) == 0,
                      "%s", error_message(&error));
        expect_places(&target, &held, false);
        rows += held.rows;
        move_out(&target, &held);
        attach(&target, &held);
        expect_places(&target, &held, true);
        held_clear(&held);
        ck_assert_msg(held_remove(XID, paths.roots, target.n_disks, true, &error) == 0, "%s",
                      error_message(&error));
    }
    ck_assert_uint_ge(rows, 8);
    char *expected = mem_printf("%llu\n", (unsigned long long)rows);
    ck_assert_str_eq(sum_of(LAB_DATABASE, kind->name), expected);
    free(expected);
    /* The same rows directly, in a copy: the contents must be equal twice over. */
    struct buf ddl = {0};
    ch_table_scratch_ddl(&target, &lab_caps, LAB_DATABASE, "direct", &ddl);
    lab_sql("%s", buf_str(&ddl));
    buf_clear(&ddl);
    lab_sql("SYSTEM STOP MERGES " LAB_DATABASE ".direct");
    struct scratch direct = {.database = mem_strdup(LAB_DATABASE), .name = mem_strdup("direct")};
    insert(&direct, lab_insert_columns(kind), kind->rows);
    insert(&direct, lab_insert_columns(kind), kind->rows);
    if (strcmp(kind->name, "types") != 0) { /* it has random values */
        const char *hash =
            "SELECT count(), sum(cityHash64(t)) FROM (SELECT toString(tuple(%s)) AS t"
            " FROM " LAB_DATABASE ".%s) FORMAT TSV";
        const char *columns = lab_sql(
            "SELECT arrayStringConcat(groupArray(concat('`', replaceAll(name, '`', '\\\\`'), '`')),"
            " ', ') FROM system.columns WHERE database = '" LAB_DATABASE "' AND table = '%s' AND"
            " default_kind != 'EPHEMERAL' AND type NOT LIKE 'Agg%%' FORMAT TSVRaw",
            kind->name);
        char *list = mem_strndup(columns, strcspn(columns, "\n"));
        if (lab_is_new()) {
            char *first = mem_printf(hash, list, kind->name);
            char *second = mem_printf(hash, list, "direct");
            ck_assert_str_eq(lab_sql("%s", first), lab_sql("%s", second));
            free(first);
            free(second);
        }
        free(list);
    }
    ck_assert_str_eq(sum_of(LAB_DATABASE, kind->name), sum_of(LAB_DATABASE, "direct"));
    free(direct.database);
    free(direct.name);
    ch_table_clear(&target);
}
END_TEST

/* ---- the pool ---- */

static struct ch_table plain_target(const char *name)
{
    lab_sql("CREATE TABLE " LAB_DATABASE ".%s (d Date, k UInt64, v UInt64) ENGINE = MergeTree "
            "PARTITION BY toYYYYMM(d) ORDER BY k",
            name);
    return lab_load_fine(LAB_DATABASE, name);
}

static unsigned tables_there(void)
{
    return (unsigned)strtoul(lab_sql("SELECT count() FROM system.tables WHERE database = "
                                     "'" POOL_DATABASE "' FORMAT TSV"),
                             NULL, 10);
}

START_TEST(test_reuse)
{
    pool_open(4, 60000, 3, LAB_TIMEOUT_MS);
    struct ch_table target = plain_target("t");
    struct scratch *first = acquire(&target);
    char *name = mem_strdup(first->name);
    insert(first, "", NUMBERS); /* several parts: past parts_max */
    scratch_release(pool, first, NULL);
    sleep_ms(300);
    bool replaced = lab_caps.has_drop_sync; /* there a TRUNCATE would leave a part for each */
    ck_assert_uint_eq(stats().idle, replaced ? 0 : 1);
    ck_assert_uint_eq(stats().truncated, replaced ? 0 : 1);
    ck_assert_uint_eq(stats().dropped, replaced ? 1 : 0);
    ck_assert_uint_eq(tables_there(), replaced ? 0 : 1);
    struct scratch *second = acquire(&target);
    ck_assert(replaced == (strcmp(second->name, name) != 0));
    mem_replace(&name, second->name);
    ck_assert_str_eq(sum_of(POOL_DATABASE, name), "0\n");
    uint64_t created = stats().created;
    ck_assert_uint_eq(created, replaced ? 2 : 1);
    /* What one write leaves is not the next one's. */
    insert(second, "", "SELECT toDate('2024-01-01'), 1, 1");
    scratch_release(pool, second, NULL);
    struct scratch *third = acquire(&target);
    ck_assert_str_eq(third->name, name);
    struct part_list fresh = {0};
    ck_assert_uint_eq(inserts_since(third, &fresh), 0);
    insert(third, "", "SELECT toDate('2024-01-01'), 1, 1"); /* the same block again */
    ck_assert_uint_eq(inserts_since(third, &fresh), 1);
    part_list_clear(&fresh);
    scratch_release(pool, third, NULL);
    ck_assert_uint_eq(stats().created, created);
    /* An altered default is another shape: never the old table. */
    lab_sql("ALTER TABLE " LAB_DATABASE ".t MODIFY COLUMN v DEFAULT 9");
    struct ch_table altered = lab_load_fine(LAB_DATABASE, "t");
    struct scratch *fourth = acquire(&altered);
    ck_assert_str_ne(fourth->name, name);
    scratch_release(pool, fourth, NULL);
    ck_assert_uint_eq(stats().created, created + 1);
    pool_shut();
    ck_assert_uint_eq(tables_there(), 0);
    free(name);
    ch_table_clear(&altered);
    ch_table_clear(&target);
}
END_TEST

START_TEST(test_old_syntax_is_empty)
{
    lab_sql("CREATE TABLE " LAB_DATABASE ".o (d Date, k UInt64, v UInt64) ENGINE = MergeTree(d, k, "
            "8192)");
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    struct ch_table target = lab_load_fine(LAB_DATABASE, "o");
    for (int i = 0; i < 4; i++) {
        struct scratch *scratch = acquire(&target);
        ck_assert(scratch->old_syntax);
        ck_assert_uint_eq(scratch->before.n_entries, 0);
        ck_assert_str_eq(sum_of(POOL_DATABASE, scratch->name), "0\n");
        insert(scratch, "", NUMBERS);
        scratch_release(pool, scratch, NULL);
        sleep_ms(100);
    }
    ck_assert_uint_ge(stats().truncated, 3);
    ch_table_clear(&target);
}
END_TEST

START_TEST(test_waiting)
{
    pool_open(2, 60000, 100, 1500);
    struct ch_table target = plain_target("t"), other = plain_target("u");
    struct scratch *first = acquire(&target), *second = acquire(&target);
    ck_assert_str_ne(first->name, second->name);
    struct acquired third = {0}, fourth = {0};
    scratch_acquire(pool, &target, acquired, &third);
    scratch_acquire(pool, &other, acquired, &fourth);
    sleep_ms(100);
    ck_assert(!third.done && !fourth.done);
    ck_assert_uint_eq(stats().waiting, 2);
    scratch_release(pool, first, NULL);
    wait_for(&third.done);
    ck_assert_msg(third.code == 0, "%s", third.message);
    ck_assert_str_eq(third.scratch->name, first->name);
    /* Another target needs the room of an idle table. */
    scratch_release(pool, second, NULL);
    sleep_ms(400);
    if (!fourth.done)
        wait_for(&fourth.done);
    ck_assert_msg(fourth.code == 0, "%s", fourth.message);
    /* None free in time. */
    struct acquired fifth = {0};
    scratch_acquire(pool, &other, acquired, &fifth);
    wait_for(&fifth.done);
    ck_assert_int_eq(fifth.code, CHXA_E_BUSY);
    ck_assert_uint_eq(stats().waiting, 0);
    scratch_release(pool, third.scratch, NULL);
    scratch_release(pool, fourth.scratch, NULL);
    free(third.message);
    free(fourth.message);
    free(fifth.message);
    ch_table_clear(&target);
    ch_table_clear(&other);
}
END_TEST

START_TEST(test_idle_dropped)
{
    pool_open(4, 300, 100, LAB_TIMEOUT_MS);
    struct ch_table target = plain_target("t");
    scratch_release(pool, acquire(&target), NULL);
    sleep_ms(1200);
    ck_assert_uint_eq(stats().idle, 0);
    ck_assert_uint_eq(stats().dropped, 1);
    ck_assert_uint_eq(tables_there(), 0);
    ch_table_clear(&target);
}
END_TEST

static void slow_answered(void *arg, const struct ch_answer *answer)
{
    (void)answer;
    *(bool *)arg = true;
}

START_TEST(test_retire)
{
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    struct ch_table target = plain_target("t");
    struct scratch *scratch = acquire(&target);
    char *name = mem_strdup(scratch->name);
    char *query_id = mem_printf("lab-slow-%s", name);
    char *sql = mem_printf("INSERT INTO " POOL_DATABASE ".%s SELECT toDate('2024-01-01'), number, "
                           "sleep(1) FROM system.numbers LIMIT 3",
                           name);
    struct ch_param one[] = {{"max_block_size", "1"}};
    struct ch_statement slow = {.sql = sql,
                                .query_id = query_id,
                                .params = one,
                                .n_params = 1,
                                .timeout_ms = LAB_TIMEOUT_MS};
    bool done = false;
    ch_query(lab_client, &slow, slow_answered, &done);
    sleep_ms(300);
    scratch_retire(pool, scratch, query_id);
    sleep_ms(700);
    ck_assert_uint_eq(stats().retired, 1); /* its INSERT still runs */
    ck_assert_uint_eq(tables_there(), 1);
    /* Others go on meanwhile, with another table. */
    struct scratch *next = acquire(&target);
    ck_assert_str_ne(next->name, name);
    scratch_release(pool, next, NULL);
    wait_for(&done);
    sleep_ms(3500);
    ck_assert_uint_eq(stats().retired, 0);
    ck_assert_uint_eq(tables_there(), 1);
    free(sql);
    free(name);
    free(query_id);
    ch_table_clear(&target);
}
END_TEST

START_TEST(test_dropped_behind_our_back)
{
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    struct ch_table target = plain_target("t");
    struct scratch *scratch = acquire(&target);
    scratch_release(pool, scratch, NULL);
    sleep_ms(200);
    lab_sql("DROP DATABASE " POOL_DATABASE);
    struct scratch *again = acquire(&target); /* asks nobody, so it cannot know */
    scratch_retire(pool, again, NULL);        /* the INSERT was answered with code 60 */
    struct scratch *fresh = acquire(&target);
    insert(fresh, "", NUMBERS);
    scratch_release(pool, fresh, NULL);
    sleep_ms(600);
    ck_assert_uint_eq(stats().retired, 0);
    ck_assert_uint_eq(tables_there(), 1);
    /* Dropped while lent, then released: not lent again. */
    struct scratch *lent = acquire(&target);
    lab_sql("DROP TABLE " POOL_DATABASE ".%s%s", lent->name, lab_is_new() ? " SYNC" : "");
    char *name = mem_strdup(lent->name);
    scratch_release(pool, lent, NULL);
    struct scratch *last = acquire(&target);
    ck_assert_str_ne(last->name, name);
    scratch_release(pool, last, NULL);
    free(name);
    ch_table_clear(&target);
}
END_TEST

static void expect_acquire_fails(const struct ch_table *target, int code, const char *says)
{
    struct acquired got = {0};
    scratch_acquire(pool, target, acquired, &got);
    wait_for(&got.done);
    ck_assert_msg(got.code == code, "%d %s", got.code, got.message);
    ck_assert_msg(strstr(got.message, says) != NULL, "%s does not say %s", got.message, says);
    ck_assert_ptr_null(got.scratch);
    free(got.message);
}

START_TEST(test_create_fails)
{
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    struct ch_table target = plain_target("t");
    /* Altered after it was loaded: harmlessly, then not. */
    lab_sql("ALTER TABLE " LAB_DATABASE ".t ADD COLUMN z UInt64 DEFAULT 5");
    struct scratch *altered = acquire(&target);
    insert(altered, "(d, k, z)", "SELECT toDate('2024-01-01'), 1, 1");
    scratch_release(pool, altered, NULL);
    lab_sql("ALTER TABLE " LAB_DATABASE ".t MODIFY COLUMN v String");
    expect_acquire_fails(&target, CHXA_E_SCHEMA_CHANGED, "column v");
    /* Dropped. */
    lab_sql("DROP TABLE " LAB_DATABASE ".t");
    expect_acquire_fails(&target, CHXA_E_TARGET_NOT_FOUND, "does not exist");
    ch_table_clear(&target);
    /* An engine that cannot be. */
    target = plain_target("u");
    free(target.engine_full);
    target.engine_full = mem_strdup("NoSuchMergeTree ORDER BY k");
    expect_acquire_fails(&target, CHXA_E_TARGET_UNSUPPORTED, "NoSuchMergeTree");
    sleep_ms(800);
    ck_assert_uint_eq(tables_there(), 1); /* the one of z */
    ck_assert_uint_eq(stats().retired, 0);
    ch_table_clear(&target);
}
END_TEST

START_TEST(test_start_drops_leftovers)
{
    lab_sql("CREATE DATABASE " POOL_DATABASE);
    lab_sql("CREATE TABLE " POOL_DATABASE ".s_18c_7 (k UInt64) ENGINE = MergeTree ORDER BY k");
    lab_sql("CREATE TABLE " POOL_DATABASE ".s_18c_8 (k UInt64) ENGINE = MergeTree ORDER BY k");
    lab_sql("CREATE TABLE " POOL_DATABASE ".s_mine (k UInt64) ENGINE = MergeTree ORDER BY k");
    pool_open(4, 60000, 100, LAB_TIMEOUT_MS);
    ck_assert_uint_eq(tables_there(), 1); /* somebody's own table is left alone */
    ck_assert_uint_eq(stats().dropped, 2);
    /* Again, while the pool has tables: those stay. */
    struct ch_table target = plain_target("t");
    struct scratch *scratch = acquire(&target);
    lab_waiting = true;
    scratch_pool_start(pool, &lab_caps, started, NULL);
    lab_wait();
    insert(scratch, "", NUMBERS);
    scratch_release(pool, scratch, NULL);
    ch_table_clear(&target);
}
END_TEST

START_TEST(test_close)
{
    struct ch_table target = plain_target("t");
    /* While a table is being made, while somebody waits, and while one is lent. */
    pool_open(2, 60000, 100, LAB_TIMEOUT_MS);
    struct scratch *lent = acquire(&target);
    struct acquired waiting[2] = {{0}, {0}};
    scratch_acquire(pool, &target, acquired, &waiting[0]);
    scratch_acquire(pool, &target, acquired, &waiting[1]);
    lab_waiting = true;
    scratch_pool_close(pool, 3000, pool_closed, NULL);
    while (!waiting[0].done || !waiting[1].done)
        uv_run(&lab_loop, UV_RUN_ONCE);
    ck_assert_int_eq(waiting[0].code, CHXA_E_CANCELLED);
    ck_assert_int_eq(waiting[1].code, CHXA_E_CANCELLED);
    ck_assert(lab_waiting);
    scratch_release(pool, lent, NULL);
    lab_wait();
    pool = NULL;
    ck_assert_uint_eq(tables_there(), 0);
    free(waiting[0].message);
    free(waiting[1].message);
    /* Not started, and at once. */
    struct scratch_config config = {.database = POOL_DATABASE,
                                    .tables_max = 1,
                                    .idle_ms = 1000,
                                    .parts_max = 10,
                                    .timeout_ms = 1000};
    ck_assert_int_eq(scratch_pool_new(&lab_loop, lab_client, &config, &pool), 0);
    expect_acquire_fails(&target, CHXA_E_NOT_READY, "not ready");
    pool_shut();
    ch_table_clear(&target);
}
END_TEST

int main(void)
{
    lab_require();
    Suite *suite = suite_create("scratch");
    TCase *way = tcase_create("way");
    tcase_set_timeout(way, 60);
    tcase_add_checked_fixture(way, scratch_setup, scratch_teardown);
    tcase_add_loop_test(way, test_whole_way, 0, LAB_KINDS);
    suite_add_tcase(suite, way);
    TCase *pools = tcase_create("pool");
    tcase_set_timeout(pools, 60);
    tcase_add_checked_fixture(pools, scratch_setup, scratch_teardown);
    tcase_add_test(pools, test_reuse);
    tcase_add_test(pools, test_old_syntax_is_empty);
    tcase_add_test(pools, test_waiting);
    tcase_add_test(pools, test_idle_dropped);
    tcase_add_test(pools, test_retire);
    tcase_add_test(pools, test_dropped_behind_our_back);
    tcase_add_test(pools, test_create_fails);
    tcase_add_test(pools, test_start_drops_leftovers);
    tcase_add_test(pools, test_close);
    suite_add_tcase(suite, pools);
    return suite_run(suite);
}
