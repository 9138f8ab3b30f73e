/* SPDX-License-Identifier: Apache-2.0
 *
 * A record and a write with every field set, for the tests of proto/. Allocated with malloc; the
 * caller clears them.
 */
#ifndef CHXA_TESTS_PROTO_FIXTURE_H
#define CHXA_TESTS_PROTO_FIXTURE_H

#include "proto/record.h"

#include <stdlib.h>
#include <string.h>

#define HASH_A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HASH_B "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static inline struct chxa_record fixture_record(void)
{
    struct chxa_record record = {
        .xid = strdup("job-7:12.3_a"),
        .state = CHXA_COMMITTING,
        .owner = strdup("n1"),
        .owner_url = strdup("http://10.0.0.1:8124"),
        .node_epoch = 9007199254740993u, /* 2^53 + 1: no double holds it */
        .op_id = strdup("n1/9/commit/44"),
        .version = 5,
        .created_ms = 1700000000123,
        .changed_ms = 1700000000456,
        .timeout_ms = 60000,
        .sink = strdup("job.1"),
        .sink_epoch = INT64_MAX,
        .meta = strdup("{\"offset\": 18446744073709551615, \"rate\": 0.10, \"nul\": \"\\u0000\"}"),
        .reason = strdup("because \"quoted\" \\ \n\t\x01 \xf0\x9f\x98\x80"),
        .blocked = true,
        .given_reason = strdup("ticket 4711: \xe2\x82\xac"),
        .abandoned_by = strdup("n2"),
        .converted_to = strdup("job-7:12.3_a:converted"),
        .discarding = true,
        .heuristic = CHXA_HEURISTIC_MIXED,
        .discarded = calloc(2, sizeof(struct chxa_range)),
        .n_discarded = 2,
    };
    record.discarded[0] = (struct chxa_range){1000000000000001u, 1000000000000001u};
    record.discarded[1] = (struct chxa_range){1000000000000003u, INT64_MAX};
    return record;
}

static inline struct chxa_write fixture_write(void)
{
    struct chxa_write write = {
        .write_id = strdup("w-1"),
        .seq = 3,
        .time_ms = 1700000000200,
        .target = {.database = strdup("d`b\"'\\ .\n\xc3\xa9"),
                   .table = strdup("\xe6\xbc\xa2\xe5\xad\x97; DROP"),
                   .schema = strdup("{\"columns\":[[\"a\\u0000\",\"UInt8\"]]}"),
                   .roots = calloc(2, sizeof(char *)),
                   .n_roots = 2},
        .query_hash = HASH_A,
        .body_hash = CHXA_BODY_HASH_PREFIX HASH_B,
        .body_bytes = 12345,
        .rows = 1000,
        .bytes = 5000000000u,
        .parts = calloc(2, sizeof(struct chxa_part)),
        .n_parts = 2,
    };
    write.target.roots[0] = strdup("/var/lib/clickhouse/chxa");
    write.target.roots[1] = strdup("/mnt/d2/chxa");
    write.parts[0] = (struct chxa_part){
        .name = strdup("202401_1000000000000001_1000000000000001_0"),
        .partition_id = strdup("202401"),
        .number = 1000000000000001u,
        .rows = 600,
        .bytes = 3000000000u,
        .inode = 77,
        .disk = 1,
        .checksum = HASH_B,
    };
    write.parts[1] = (struct chxa_part){
        .name = strdup("20240101_20240131_9223372036854775807_9223372036854775807_0"),
        .partition_id = strdup(""),
        .number = INT64_MAX,
        .rows = 400,
        .bytes = 2000000000u,
        .inode = INT64_MAX,
        .disk = 0,
        .checksum = HASH_A,
    };
    return write;
}

#endif
