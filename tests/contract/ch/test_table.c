/* SPDX-License-Identifier: Apache-2.0
 *
 * Target tables as real servers describe them: what is loaded, what is refused and why, copies that
 * are faithful, and alterations that are noticed.
 */
#include "contract/ch/ch_tables.h"

#include <sys/stat.h>

START_TEST(test_caps)
{
    ck_assert_ptr_nonnull(lab_caps.version);
    ck_assert_int_eq(strncmp(lab_sql("SELECT version() FORMAT TSVRaw"), lab_caps.version,
                             strlen(lab_caps.version)),
                     0);
    ck_assert_int_eq(lab_caps.has_data_paths, lab_caps.has_disks);
    ck_assert_int_eq(lab_caps.has_uuid, lab_is_new());
    ck_assert(lab_caps.has_insert_deduplicate);
    ck_assert(lab_caps.has_mutations);
    ck_assert_ptr_nonnull(
        strstr(lab_caps.scratch_settings, "max_bytes_to_merge_at_max_space_in_pool = 1"));
    if (lab_is_new())
        ck_assert_ptr_nonnull(
            strstr(lab_caps.scratch_settings, "max_number_of_merges_with_ttl_in_pool = 0"));
}
END_TEST

/* What two tables must have in common, as text. */
static const char *describe(const char *database, const char *table)
{
    return lab_sql(
        "SELECT name, type, default_kind, default_expression%s FROM system.columns WHERE "
        "database = '%s' AND table = '%s' FORMAT TSV",
        lab_is_new() ? ", compression_codec, comment" : "", database, table);
}

static const char *describe_indexes(const char *database, const char *table)
{
    if (!lab_is_new())
        return "";
    return lab_sql("SELECT name, type, expr, granularity FROM system.data_skipping_indices WHERE "
                   "database = '%s' AND table = '%s' ORDER BY name FORMAT TSV",
                   database, table);
}

START_TEST(test_load)
{
    const struct lab_kind *kind = &lab_kinds[_i];
    if (!lab_make(kind))
        return;
    struct ch_table table = lab_load_fine(LAB_DATABASE, kind->name);
    ck_assert_str_eq(table.database, LAB_DATABASE);
    ck_assert_str_eq(table.table, kind->name);
    ck_assert_int_eq(table.replicated, (kind->needs & REPLICATION) != 0);
    ck_assert_int_eq(table.old_syntax, strstr(kind->name, "old") != NULL);
    ck_assert_uint_eq(table.n_disks, kind->needs & DISKS ? 2 : 1);
    ck_assert_uint_eq(table.n_views, 0);
    for (size_t i = 0; i < table.n_disks; i++) {
        struct stat status;
        ck_assert_int_eq(stat(table.disks[i].table_path, &status), 0);
        ck_assert_int_eq(
            strncmp(table.disks[i].table_path, table.disks[i].root, strlen(table.disks[i].root)),
            0);
        ck_assert_int_ne(table.disks[i].root[strlen(table.disks[i].root) - 1], '/');
    }
    struct buf ddl = {0};
    ch_table_scratch_ddl(&table, &lab_caps, LAB_DATABASE, "s_copy", &ddl);
    lab_sql("%s", buf_str(&ddl));
    ck_assert_str_eq(describe(LAB_DATABASE, "s_copy"), describe(LAB_DATABASE, kind->name));
    ck_assert_str_eq(describe_indexes(LAB_DATABASE, "s_copy"),
                     describe_indexes(LAB_DATABASE, kind->name));
    struct ch_table copy = lab_load_fine(LAB_DATABASE, "s_copy");
    ck_assert(!copy.replicated);
    ck_assert_str_eq(copy.engine, table.engine);
    ck_assert_int_eq(copy.old_syntax, table.old_syntax);
    ck_assert_str_ne(copy.shape, table.shape);
    struct ch_table again = lab_load_fine(LAB_DATABASE, kind->name);
    ck_assert_str_eq(again.shape, table.shape);
    ck_assert_str_eq(again.schema, table.schema);
    buf_clear(&ddl);
    ch_table_clear(&again);
    ch_table_clear(&copy);
    ch_table_clear(&table);
}
END_TEST

START_TEST(test_wide)
{
    struct buf columns = {0};
    for (unsigned i = 0; i < 200; i++)
        buf_printf(&columns, "%scolumn_%03u %s", i ? ", " : "", i, i % 2 ? "String" : "UInt64");
    lab_sql("CREATE TABLE " LAB_DATABASE ".wide (%s) ENGINE = MergeTree ORDER BY column_000",
            buf_str(&columns));
    struct ch_table table = lab_load_fine(LAB_DATABASE, "wide");
    ck_assert_ptr_nonnull(strstr(table.schema, "column_199"));
    buf_clear(&columns);
    ch_table_clear(&table);
}
END_TEST

static const char *const odd_names[] = {
    "it's", "back`tick", "quote\"", "tab\there", "new\nline", "back\\slash", "\xc3\xa9\xe2\x82\xac",
    "a.b",  "a b",       "%41",     "select"};

START_TEST(test_odd_names)
{
    struct buf sql = {0};
    buf_puts(&sql, "CREATE DATABASE ");
    sql_identifier(&sql, odd_names[_i]);
    lab_sql("%s", buf_str(&sql));
    buf_clear(&sql);
    buf_puts(&sql, "CREATE TABLE ");
    sql_table(&sql, odd_names[_i], odd_names[_i]);
    buf_puts(&sql, " (");
    sql_identifier(&sql, odd_names[_i]);
    buf_puts(&sql, " UInt64) ENGINE = MergeTree ORDER BY ");
    sql_identifier(&sql, odd_names[_i]);
    lab_sql("%s", buf_str(&sql));
    buf_clear(&sql);
    struct ch_table table = lab_load_fine(odd_names[_i], odd_names[_i]);
    ck_assert_str_eq(table.table, odd_names[_i]);
    struct stat status;
    ck_assert_int_eq(stat(table.disks[0].table_path, &status), 0);
    ch_table_scratch_ddl(&table, &lab_caps, LAB_DATABASE, "s_copy", &sql);
    lab_sql("%s", buf_str(&sql));
    buf_clear(&sql);
    buf_puts(&sql, "DROP DATABASE ");
    sql_identifier(&sql, odd_names[_i]);
    lab_sql("%s", buf_str(&sql));
    buf_clear(&sql);
    ch_table_clear(&table);
}
END_TEST

/* ---- refused ---- */

static void expect_refused(const char *name, int code, const char *advice)
{
    struct lab_table loaded = lab_load(LAB_DATABASE, name);
    ck_assert_msg(loaded.code == code, "%s: %d, %s", name, loaded.code, loaded.message);
    ck_assert_msg(strstr(loaded.message, advice) != NULL, "%s: %s does not say %s", name,
                  loaded.message, advice);
    ck_assert_msg(strstr(loaded.message, name) != NULL, "%s: %s", name, loaded.message);
    free(loaded.message);
    ch_table_clear(&loaded.table);
}

START_TEST(test_refused)
{
    lab_sql("CREATE TABLE " LAB_DATABASE ".base (d Date, k UInt64) ENGINE = MergeTree ORDER BY k");
    lab_sql("CREATE TABLE " LAB_DATABASE ".memory (k UInt64) ENGINE = Memory");
    lab_sql("CREATE TABLE " LAB_DATABASE ".log (k UInt64) ENGINE = Log");
    lab_sql("CREATE TABLE " LAB_DATABASE ".nothing (k UInt64) ENGINE = Null");
    lab_sql("CREATE VIEW " LAB_DATABASE ".view AS SELECT k FROM " LAB_DATABASE ".base");
    lab_sql("CREATE TABLE " LAB_DATABASE ".buffer AS " LAB_DATABASE ".base ENGINE = "
            "Buffer(" LAB_DATABASE ", base, 1, 10, 100, 10, 100, 1000, 10000)");
    lab_sql("CREATE TABLE " LAB_DATABASE ".merge AS " LAB_DATABASE ".base ENGINE = "
            "Merge(" LAB_DATABASE ", '^base$')");
    lab_sql("CREATE MATERIALIZED VIEW " LAB_DATABASE
            ".mv ENGINE = MergeTree ORDER BY k AS SELECT k "
            "FROM " LAB_DATABASE ".base");
    expect_refused("memory", CHXA_E_TARGET_UNSUPPORTED, "use a MergeTree table");
    expect_refused("log", CHXA_E_TARGET_UNSUPPORTED, "use a MergeTree table");
    expect_refused("nothing", CHXA_E_TARGET_UNSUPPORTED, "MergeTree family");
    expect_refused("view", CHXA_E_TARGET_UNSUPPORTED, "the table that the view reads from");
    expect_refused("buffer", CHXA_E_TARGET_UNSUPPORTED, "behind the buffer");
    expect_refused("merge", CHXA_E_TARGET_UNSUPPORTED, "one of the tables");
    expect_refused("mv", CHXA_E_TARGET_UNSUPPORTED, "source");
    expect_refused("missing", CHXA_E_TARGET_NOT_FOUND, "does not exist");
    struct lab_table loaded = lab_load("no_such_database", "t");
    ck_assert_int_eq(loaded.code, CHXA_E_TARGET_NOT_FOUND);
    free(loaded.message);
    ch_table_clear(&loaded.table);
    struct ch_table base = lab_load_fine(LAB_DATABASE, "base");
    ck_assert_uint_eq(base.n_views, 1);
    ck_assert_str_eq(base.views[0], LAB_DATABASE ".mv");
    ch_table_clear(&base);
}
END_TEST

START_TEST(test_refused_disks)
{
    if (!lab_is_new() || getenv("CHXA_TEST_TMP") == NULL)
        return;
    lab_sql("CREATE TABLE " LAB_DATABASE
            ".objects (k UInt64) ENGINE = MergeTree ORDER BY k SETTINGS "
            "disk = disk(type = 'local_blob_storage', path = '%s/objects/')",
            getenv("CHXA_TEST_TMP"));
    expect_refused("objects", CHXA_E_TARGET_UNSUPPORTED, "not a local one");
}
END_TEST

/* A table's directory on another filesystem than its disk's root: its parts cannot be renamed in.
 */
START_TEST(test_refused_elsewhere)
{
    char elsewhere[] = "/dev/shm/chxa-lab-XXXXXX";
    struct stat here, there;
    if (lab_is_new() || stat("/dev/shm", &there) != 0)
        return;
    lab_sql("CREATE TABLE " LAB_DATABASE ".linked (k UInt64) ENGINE = MergeTree ORDER BY k");
    struct ch_table table = lab_load_fine(LAB_DATABASE, "linked");
    const char *path = table.disks[0].table_path;
    ck_assert_int_eq(stat(path, &here), 0);
    if (here.st_dev != there.st_dev && mkdtemp(elsewhere)) {
        char *kept = mem_printf("%s.kept", path);
        ck_assert_int_eq(rename(path, kept), 0);
        ck_assert_int_eq(symlink(elsewhere, path), 0);
        expect_refused("linked", CHXA_E_TARGET_UNSUPPORTED, "same filesystem");
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(rename(kept, path), 0);
        ck_assert_int_eq(rmdir(elsewhere), 0);
        free(kept);
    }
    ch_table_clear(&table);
}
END_TEST

/* ---- altered ---- */

static char *staged;

static void expect_compatible(bool compatible, const char *reason)
{
    struct ch_table now = lab_load_fine(LAB_DATABASE, "altered");
    char *why = NULL;
    bool same = table_schema_compatible(staged, now.schema, &why);
    ck_assert_msg(same == compatible, "%s -> %s: %s", staged, now.schema, why ? why : "fine");
    if (!compatible)
        ck_assert_msg(strstr(why, reason) != NULL, "%s does not say %s", why, reason);
    free(why);
    ch_table_clear(&now);
}

static void stage(void)
{
    lab_sql("DROP TABLE IF EXISTS " LAB_DATABASE ".altered");
    lab_sql("CREATE TABLE " LAB_DATABASE ".altered (d Date, k UInt64, a UInt64, b String) ENGINE = "
            "MergeTree PARTITION BY toYYYYMM(d) ORDER BY k");
    lab_sql("INSERT INTO " LAB_DATABASE ".altered SELECT toDate('2024-01-01'), number, 1, 'x' FROM "
            "numbers(10)");
    struct ch_table table = lab_load_fine(LAB_DATABASE, "altered");
    free(staged);
    staged = mem_strdup(table.schema);
    ch_table_clear(&table);
}

#define ALTER "ALTER TABLE " LAB_DATABASE ".altered "

START_TEST(test_altered)
{
    stage();
    expect_compatible(true, NULL);
    lab_sql(ALTER "ADD COLUMN added UInt64 DEFAULT 7");
    expect_compatible(true, NULL);
    lab_sql(ALTER "MODIFY COLUMN added DEFAULT 8");
    expect_compatible(true, NULL);
    lab_sql(ALTER "ADD COLUMN z UInt64, MODIFY ORDER BY (k, z)");
    expect_compatible(true, NULL);
    lab_sql(ALTER "DELETE WHERE k = 1");
    expect_compatible(true, NULL);
    if (lab_is_new()) {
        lab_sql(ALTER "ADD INDEX i1 a TYPE minmax");
        lab_sql(ALTER "MODIFY TTL d + INTERVAL 100 YEAR");
        lab_sql(ALTER "COMMENT COLUMN a 'DROP COLUMN'");
        expect_compatible(true, NULL);
        lab_sql(ALTER "RENAME COLUMN b TO c");
        expect_compatible(false, "column b");
    }
    stage();
    lab_sql(ALTER "MODIFY COLUMN a String");
    expect_compatible(false, "column a");
    stage();
    lab_sql(ALTER "DROP COLUMN a");
    expect_compatible(false, "column a");
    lab_sql(ALTER "ADD COLUMN a UInt64 AFTER k");
    if (lab_is_new())
        expect_compatible(false, "DROP COLUMN a");
    stage();
    char *first = mem_strdup(staged);
    stage();
    char *why = NULL;
    if (lab_is_new())
        ck_assert(!table_schema_compatible(first, staged, &why));
    free(why);
    free(first);
    free(staged);
    staged = NULL;
}
END_TEST

int main(void)
{
    lab_require();
    Suite *suite = suite_create("table");
    TCase *tables = tcase_create("tables");
    tcase_set_timeout(tables, 60);
    tcase_add_checked_fixture(tables, lab_setup, lab_teardown);
    tcase_add_test(tables, test_caps);
    tcase_add_loop_test(tables, test_load, 0, LAB_KINDS);
    tcase_add_test(tables, test_wide);
    tcase_add_loop_test(tables, test_odd_names, 0, sizeof odd_names / sizeof odd_names[0]);
    tcase_add_test(tables, test_refused);
    tcase_add_test(tables, test_refused_disks);
    tcase_add_test(tables, test_refused_elsewhere);
    tcase_add_test(tables, test_altered);
    suite_add_tcase(suite, tables);
    return suite_run(suite);
}
