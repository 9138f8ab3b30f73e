/* SPDX-License-Identifier: Apache-2.0
 *
 * What the REST API shows of a record (openapi.yaml, schemas Transaction, Write and Part): the
 * client's and the operator's view, without the fields that only the store and the owner need.
 */
#include "errors.h"
#include "json_text.h"
#include "record.h"
#include "record_check.h"

#include <jansson.h>
#include <stdlib.h>

static json_t *part_to_json(const struct chxa_record *record, const struct chxa_part *part)
{
    struct json_build build;
    json_build_start(&build);
    json_build_text(&build, "name", part->name, true);
    json_build_text(&build, "partition_id", part->partition_id, true);
    json_build_number(&build, "rows", part->rows);
    json_build_number(&build, "bytes", part->bytes);
    json_build_number(&build, "disk", part->disk);
    json_build_bool(&build, "discarded", chxa_record_discards(record, part->number));
    return build.object;
}

static json_t *parts_to_json(const struct chxa_record *record, const struct chxa_write *write)
{
    json_t *parts = json_array();
    for (size_t i = 0; parts && i < write->n_parts; i++) {
        if (!json_build_append(parts, part_to_json(record, &write->parts[i]))) {
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

static void put_write(struct json_build *build, const struct chxa_write *write)
{
    json_build_text(build, "write_id", write->write_id, true);
    json_build_number(build, "seq", write->seq);
    json_build_text(build, "database", write->target.database, true);
    json_build_text(build, "table", write->target.table, true);
    json_build_number(build, "rows", write->rows);
    json_build_number(build, "bytes", write->bytes);
    json_build_number(build, "body_bytes", write->body_bytes);
    json_build_number(build, "time_ms", (uint64_t)write->time_ms);
}

static json_t *writes_to_json(const struct chxa_record *record, bool with_parts)
{
    json_t *writes = json_array();
    for (size_t i = 0; writes && i < record->n_writes; i++) {
        struct json_build build;
        json_build_start(&build);
        put_write(&build, &record->writes[i]);
        if (with_parts)
            json_build_put(&build, "parts", parts_to_json(record, &record->writes[i]));
        if (!json_build_append(writes, build.object)) {
            json_decref(writes);
            return NULL;
        }
    }
    return writes;
}

static int check(const struct chxa_record *record)
{
    int code = chxa_record_check(record);
    for (size_t i = 0; code == 0 && i < record->n_writes; i++)
        code = chxa_write_check(&record->writes[i]);
    return code;
}

static int put_record(struct json_build *build, const struct chxa_record *record)
{
    int code = check(record);
    if (code != 0)
        return code;
    char *reason = NULL, *given_reason = NULL;
    const char *why = record->reason ? record->reason : record->given_reason;
    if (why && chxa_text_repair(why, CHXA_REASON_BYTES_MAX, &reason) != 0)
        return CHXA_E_NO_MEMORY;
    if (record->given_reason &&
        chxa_text_repair(record->given_reason, CHXA_REASON_BYTES_MAX, &given_reason) != 0) {
        free(reason);
        return CHXA_E_NO_MEMORY;
    }
    json_build_start(build);
    json_build_text(build, "xid", record->xid, true);
    json_build_text(build, "state", chxa_state_name(record->state), true);
    json_build_text(build, "owner", record->owner, true);
    json_build_text(build, "owner_url", record->owner_url, true);
    json_build_number(build, "created_ms", (uint64_t)record->created_ms);
    json_build_number(build, "changed_ms", (uint64_t)record->changed_ms);
    json_build_number(build, "timeout_ms", (uint64_t)record->timeout_ms);
    json_build_text(build, "sink", record->sink, true);
    json_build_number(build, "epoch", record->sink_epoch);
    json_build_bool(build, "gather", record->gather);
    json_build_text(build, "reason", reason, true);
    json_build_text(build, "given_reason", given_reason, true);
    json_build_bool(build, "blocked", record->blocked);
    json_build_text(build, "heuristic", chxa_heuristic_name(record->heuristic), true);
    json_build_text(build, "abandoned_by", record->abandoned_by, true);
    json_build_text(build, "converted_to", record->converted_to, true);
    json_build_bool(build, "discarding", record->discarding);
    free(reason);
    free(given_reason);
    return 0;
}

static void put_discarded(struct json_build *build, const struct chxa_record *record)
{
    uint64_t parts = 0, rows = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            if (chxa_record_discards(record, record->writes[i].parts[j].number)) {
                parts++;
                rows += record->writes[i].parts[j].rows;
            }
    json_build_number(build, "discarded_parts", parts);
    json_build_number(build, "discarded_rows", rows);
}

static void put_totals(struct json_build *build, const struct chxa_record *record)
{
    json_build_number(build, "rows", chxa_record_rows(record));
    json_build_number(build, "bytes", chxa_record_bytes(record));
    json_build_number(build, "parts", chxa_record_parts(record));
    put_discarded(build, record);
}

static const char *meta_of(const struct chxa_record *record)
{
    return record->meta ? record->meta : "null";
}

int chxa_record_to_api_json(const struct chxa_record *record, bool with_writes, bool with_parts,
                            char **ret_text)
{
    struct json_build build;
    int code = put_record(&build, record);
    if (code != 0)
        return code;
    /* A record of a list comes without its writes: better no totals than wrong ones. */
    if (with_writes || record->n_writes > 0)
        put_totals(&build, record);
    if (with_writes)
        json_build_put(&build, "writes", writes_to_json(record, with_parts));
    return json_build_finish(&build, "meta", meta_of(record), ret_text);
}

int chxa_record_to_answer_json(const struct chxa_record *record, bool replay, char **ret_text)
{
    struct json_build build;
    int code = put_record(&build, record);
    if (code != 0)
        return code;
    put_totals(&build, record);
    json_build_bool(&build, "replay", replay);
    return json_build_finish(&build, "meta", meta_of(record), ret_text);
}

int chxa_gathered_to_answer_json(const char *xid, const char *write_id, uint64_t body_bytes,
                                 bool replay, char **ret_text)
{
    if (!chxa_xid_valid(xid) || !chxa_xid_valid(write_id))
        return CHXA_E_INVALID_RECORD;
    struct json_build build;
    json_build_start(&build);
    json_build_text(&build, "xid", xid, true);
    json_build_text(&build, "write_id", write_id, true);
    json_build_bool(&build, "gathered", true);
    json_build_number(&build, "body_bytes", body_bytes);
    json_build_bool(&build, "replay", replay);
    return json_build_finish(&build, NULL, NULL, ret_text);
}

int chxa_write_to_answer_json(const char *xid, const struct chxa_write *write, bool replay,
                              char **ret_text)
{
    int code = chxa_xid_valid(xid) ? chxa_write_check(write) : CHXA_E_INVALID_RECORD;
    if (code != 0)
        return code;
    struct json_build build;
    json_build_start(&build);
    json_build_text(&build, "xid", xid, true);
    put_write(&build, write);
    json_build_number(&build, "parts", write->n_parts);
    json_build_bool(&build, "replay", replay);
    return json_build_finish(&build, NULL, NULL, ret_text);
}
