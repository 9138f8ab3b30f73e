/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of every kind that can be staged, for the contract tests of table.h and scratch.h: each
 * with rows to insert and a query whose answer tells whether they arrived.
 */
#ifndef CHXA_TESTS_CONTRACT_CH_CH_TABLES_H
#define CHXA_TESTS_CONTRACT_CH_CH_TABLES_H

#include "contract/ch/ch_lab.h"

enum { ANY = 0, NEW = 1, REPLICATION = 2, DISKS = 4, ROWS_VANISH = 8 };

struct lab_kind {
    const char *name;
    const char *columns; /* and indexes … */
    const char *engine;
    const char *rows; /* SELECT … */
    unsigned needs;
};

#define NUMBERS "SELECT toDate('2024-01-20') + number, number, number * 2 FROM numbers(40)"

static const struct lab_kind lab_kinds[] = {
    {"plain", "d Date, k UInt64, v UInt64", "MergeTree PARTITION BY toYYYYMM(d) ORDER BY k",
     NUMBERS, ANY},
    {"none", "d Date, k UInt64, v UInt64", "MergeTree ORDER BY k", NUMBERS, ANY},
    {"tuples", "d Date, k UInt64, v UInt64", "MergeTree PARTITION BY tuple() ORDER BY tuple()",
     NUMBERS, ANY},
    {"by_string", "s String, k UInt64", "MergeTree PARTITION BY s ORDER BY k",
     "SELECT concat('it''s ', toString(number % 3)), number FROM numbers(40)", ANY},
    {"by_tuple", "d Date, k UInt64, v UInt64",
     "MergeTree PARTITION BY (toMonday(d), k % 2) ORDER BY (k, d)", NUMBERS, ANY},
    {"by_negative", "k Int32", "MergeTree PARTITION BY k ORDER BY k",
     "SELECT toInt32(number) - 3 FROM numbers(6)", ANY},
    {"sampled", "d Date, k UInt64, v UInt64",
     "MergeTree PARTITION BY toYYYYMM(d) ORDER BY (d, intHash64(k)) SAMPLE BY intHash64(k)"
     " SETTINGS index_granularity = 1024",
     NUMBERS, ANY},
    {"replacing", "d Date, k UInt64, ver UInt64",
     "ReplacingMergeTree(ver) PARTITION BY toYYYYMM(d) ORDER BY k", NUMBERS, ANY},
    {"summing", "d Date, k UInt64, a UInt64, b UInt64",
     "SummingMergeTree((a, b)) PARTITION BY toYYYYMM(d) ORDER BY k",
     "SELECT toDate('2024-01-20') + number, number, number, 1 FROM numbers(40)", ANY},
    {"aggregating", "k UInt64, a AggregateFunction(sum, UInt64), u AggregateFunction(uniq, String)",
     "AggregatingMergeTree ORDER BY k",
     "SELECT number AS k, sumState(number), uniqState(toString(number)) FROM numbers(40) GROUP BY "
     "k",
     ANY},
    {"collapsing", "k UInt64, sign Int8", "CollapsingMergeTree(sign) ORDER BY k",
     "SELECT number, toInt8(1) FROM numbers(40)", ANY},
    {"versioned", "k UInt64, sign Int8, ver UInt8",
     "VersionedCollapsingMergeTree(sign, ver) PRIMARY KEY k ORDER BY (k, ver)",
     "SELECT number, toInt8(1), toUInt8(number) FROM numbers(40)", ANY},
    {"old", "d Date, k UInt64, v UInt64", "MergeTree(d, k, 8192)", NUMBERS, ANY},
    {"old_sampled", "d Date, k UInt64, v UInt64",
     "MergeTree(d, intHash64(k), (k, intHash64(k)), 8192)", NUMBERS, ANY},
    {"old_summing", "d Date, k UInt64, x UInt64", "SummingMergeTree(d, k, 8192, (x))", NUMBERS,
     ANY},
    {"replicated", "d Date, k UInt64, v UInt64",
     "ReplicatedMergeTree('/lab/{shard}/replicated', '{replica}') PARTITION BY toYYYYMM(d) ORDER BY"
     " k",
     NUMBERS, REPLICATION},
    {"replicated_replacing", "d Date, k UInt64, ver UInt64",
     "ReplicatedReplacingMergeTree('/lab/{shard}/it''s (b)', '{replica}', ver) PARTITION BY d ORDER"
     " BY k",
     NUMBERS, REPLICATION},
    {"replicated_old", "d Date, k UInt64, v UInt64",
     "ReplicatedMergeTree('/lab/{shard}/old', '{replica}', d, k, 8192)", NUMBERS, REPLICATION},
    {"defaults",
     "k UInt64, w UInt64 DEFAULT k * 3, m UInt64 MATERIALIZED k + 1, a UInt64 ALIAS k + 2, n "
     "Nullable(String), l Array(String), e Enum8('x' = 1, 'it''s' = 2)",
     "MergeTree ORDER BY k",
     "SELECT number, number, if(number % 2 = 0, NULL, 'odd'), ['a', 'b'], 'x' FROM numbers(40)",
     ANY},
    {"nested", "k UInt64, n Nested(a UInt8, b String)", "MergeTree ORDER BY k",
     "SELECT number, [1, 2], ['x', 'y'] FROM numbers(40)", ANY},
    {"odd_columns",
     "`a b.c` UInt64, `tick\\`'\"` String, `\xc3\xa9\xe2\x82\xac` UInt8, SETTINGS UInt8",
     "MergeTree ORDER BY (`a b.c`, SETTINGS)", "SELECT number, 'x', 1, 2 FROM numbers(40)", ANY},
    {"low_cardinality", "k UInt64, s LowCardinality(String), u LowCardinality(UInt8)",
     "MergeTree ORDER BY k", "SELECT number, toString(number % 3), number % 3 FROM numbers(40)",
     NEW},
    {"types", "k UInt64, m Map(String, UInt64), j JSON, t Tuple(a UInt8, b String), u UUID",
     "MergeTree ORDER BY k SETTINGS min_bytes_for_wide_part = 0",
     "SELECT number, map('a', number), '{\"a\":1}', (1, 'x'), generateUUIDv4() FROM numbers(40)",
     NEW},
    {"nested_whole", "k UInt64, n Nested(a UInt8, b String)", "MergeTree ORDER BY k",
     "SELECT number, [(1, 'x')] FROM numbers(40)", NEW},
    {"decorated",
     "k UInt64 CODEC(Delta, ZSTD(3)), s String CODEC(NONE), d Date, e UInt64 EPHEMERAL 7, f UInt64"
     " DEFAULT e + 1 COMMENT 'Engine = Log() SETTINGS x = 1', INDEX i1 s TYPE bloom_filter"
     " GRANULARITY 2, INDEX i2 k TYPE minmax, CONSTRAINT c1 CHECK k < 1000000, PROJECTION p1 "
     "(SELECT"
     " s, count() GROUP BY s), PROJECTION p2 (SELECT * ORDER BY s)",
     "MergeTree PARTITION BY toYYYYMM(d) ORDER BY k SETTINGS min_bytes_for_wide_part = 0,"
     " min_rows_for_wide_part = 0 COMMENT 'ENGINE = Memory SETTINGS a = 1'",
     "SELECT number, toString(number % 3), toDate('2024-01-20') + number, number FROM numbers(40)",
     NEW},
    {"settings", "k UInt64, v UInt64",
     "ReplacingMergeTree ORDER BY k SETTINGS non_replicated_deduplication_window = 100,"
     " min_age_to_force_merge_seconds = 1, parts_to_throw_insert = 2, parts_to_delay_insert = 1,"
     " replicated_deduplication_window = 5, add_minmax_index_for_numeric_columns = 1,"
     " index_granularity = 512, old_parts_lifetime = 17",
     "SELECT number, number FROM numbers(40)", NEW},
    {"expired", "d Date, k UInt64, v UInt64 TTL d + INTERVAL 1 DAY",
     "MergeTree ORDER BY k TTL d + INTERVAL 1 MONTH SETTINGS ttl_only_drop_parts = 1,"
     " merge_with_ttl_timeout = 0",
     "SELECT toDate('2000-01-01') + number, number, 7 FROM numbers(40)", NEW | ROWS_VANISH},
    {"two_disks", "d Date, k UInt64, v UInt64",
     "MergeTree PARTITION BY d ORDER BY k SETTINGS storage_policy = 'two_disks'", NUMBERS,
     NEW | DISKS},
    {"to_disk", "d Date, k UInt64, v UInt64",
     "MergeTree PARTITION BY toYYYYMM(d) ORDER BY k TTL d + INTERVAL 1 DAY TO DISK 'second' "
     "SETTINGS"
     " storage_policy = 'two_disks'",
     NUMBERS, NEW | DISKS},
};
#define LAB_KINDS (sizeof lab_kinds / sizeof lab_kinds[0])

/* Makes the table; false when this server does not have what it needs. */
static bool lab_make(const struct lab_kind *kind)
{
    if ((kind->needs & NEW) && !lab_is_new())
        return false;
    if ((kind->needs & REPLICATION) &&
        (lab_is_new() ||
         !lab_has("SELECT count() FROM system.tables WHERE database = 'system' AND name = "
                  "'zookeeper'")))
        return false; /* 26.7 as it is run here has no interserver address */
    if ((kind->needs & DISKS) && !lab_has("SELECT count() FROM system.storage_policies WHERE "
                                          "policy_name = 'two_disks'"))
        return false;
    struct ch_param params[64];
    size_t n = 0;
    for (; n < lab_caps.n_create_params; n++)
        params[n] = lab_caps.create_params[n];
    for (size_t i = 0; i < n; i++)
        if (strcmp(params[i].name, "flatten_nested") == 0 &&
            strcmp(kind->name, "nested_whole") != 0)
            params[i].value = "1";
    char *sql = mem_printf("CREATE TABLE " LAB_DATABASE ".%s (%s) ENGINE = %s", kind->name,
                           kind->columns, kind->engine);
    struct lab_answer answer = lab_run(sql, params, n);
    ck_assert_msg(answer.code == 0, "%s: %s", sql, answer.message);
    free(answer.body);
    free(answer.message);
    free(sql);
    return true;
}

/* `(names)` of an INSERT: only where the rows do not fill every insertable column in order. */
static const char *lab_insert_columns(const struct lab_kind *kind)
{
    if (strcmp(kind->name, "decorated") == 0)
        return " (k, s, d, e)";
    return "";
}

#endif
