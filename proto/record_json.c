/* SPDX-License-Identifier: Apache-2.0
 *
 * The text that the store keeps for a record and for a write: JSON, "format": 1. Checked on the way
 * in and on the way out (record_check.h). What the REST API shows is in record_api.c.
 *
 * The client's meta is kept as a string that holds its JSON text, so that it comes back byte for
 * byte.
 */
#include "errors.h"
#include "json_text.h"
#include "record.h"
#include "record_check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1
/* A record with `gather`: whoever does not know of it must not prepare what it names. */
#define FORMAT_GATHER 2

/* ---- encoding ---- */

static json_t *ranges_to_json(const struct chxa_record *record)
{
    json_t *ranges = json_array();
    for (size_t i = 0; ranges && i < record->n_discarded; i++) {
        const struct chxa_range *range = &record->discarded[i];
        json_t *pair = json_pack("[I,I]", (json_int_t)range->first, (json_int_t)range->last);
        if (!json_build_append(ranges, pair)) {
            json_decref(ranges);
            return NULL;
        }
    }
    return ranges;
}

/* What most records have nothing of is left out. */
static void put_operator(struct json_build *build, const struct chxa_record *record,
                         const char *given_reason)
{
    json_build_text(build, "given_reason", given_reason, false);
    json_build_text(build, "abandoned_by", record->abandoned_by, false);
    json_build_text(build, "converted_to", record->converted_to, false);
    json_build_text(build, "heuristic", chxa_heuristic_name(record->heuristic), false);
    if (record->discarding)
        json_build_bool(build, "discarding", true);
    if (record->n_discarded)
        json_build_put(build, "discarded", ranges_to_json(record));
}

/* What a person reads must not be able to stop a commit from being recorded: it is repaired and
 * cut. *ret is NULL for NULL. */
static int reason_copy(const char *reason, char **ret)
{
    *ret = NULL;
    return reason ? chxa_text_repair(reason, CHXA_REASON_BYTES_MAX, ret) : 0;
}

int chxa_record_encode(const struct chxa_record *record, char **ret_text)
{
    int code = chxa_record_check(record);
    if (code != 0)
        return code;
    char *reason = NULL, *given_reason = NULL;
    code = reason_copy(record->reason, &reason);
    if (code == 0)
        code = reason_copy(record->given_reason, &given_reason);
    if (code != 0) {
        free(reason);
        return code;
    }

    struct json_build build;
    json_build_start(&build);
    json_build_number(&build, "format", record->gather ? FORMAT_GATHER : FORMAT);
    json_build_text(&build, "xid", record->xid, true);
    json_build_text(&build, "state", chxa_state_name(record->state), true);
    json_build_text(&build, "owner", record->owner, true);
    json_build_text(&build, "owner_url", record->owner_url, true);
    json_build_number(&build, "node_epoch", record->node_epoch);
    json_build_text(&build, "op_id", record->op_id, true);
    json_build_number(&build, "created_ms", (uint64_t)record->created_ms);
    json_build_number(&build, "changed_ms", (uint64_t)record->changed_ms);
    json_build_number(&build, "timeout_ms", (uint64_t)record->timeout_ms);
    json_build_text(&build, "sink", record->sink, false);
    json_build_number(&build, "sink_epoch", record->sink_epoch);
    json_build_text(&build, "meta", record->meta, false);
    json_build_text(&build, "reason", reason, false);
    json_build_bool(&build, "blocked", record->blocked);
    put_operator(&build, record, given_reason);
    free(reason);
    free(given_reason);

    char *text;
    code = json_build_finish(&build, NULL, NULL, &text);
    if (code != 0)
        return code;
    if (strlen(text) > CHXA_RECORD_TEXT_MAX) {
        free(text);
        return CHXA_E_INVALID_RECORD;
    }
    *ret_text = text;
    return 0;
}

static json_t *part_to_json(const struct chxa_part *part)
{
    struct json_build build;
    json_build_start(&build);
    json_build_text(&build, "name", part->name, true);
    json_build_text(&build, "partition_id", part->partition_id, true);
    json_build_number(&build, "number", part->number);
    json_build_number(&build, "rows", part->rows);
    json_build_number(&build, "bytes", part->bytes);
    json_build_number(&build, "inode", part->inode);
    json_build_number(&build, "disk", part->disk);
    json_build_text(&build, "checksum", part->checksum, true);
    return build.object;
}

static json_t *parts_to_json(const struct chxa_write *write)
{
    json_t *parts = json_array();
    for (size_t i = 0; parts && i < write->n_parts; i++) {
        if (!json_build_append(parts, part_to_json(&write->parts[i]))) {
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

static json_t *roots_to_json(const struct chxa_target *target)
{
    json_t *roots = json_array();
    for (size_t i = 0; roots && i < target->n_roots; i++) {
        if (!json_build_append(roots, json_string(target->roots[i]))) {
            json_decref(roots);
            return NULL;
        }
    }
    return roots;
}

int chxa_write_encode(const struct chxa_write *write, char **ret_text)
{
    int code = chxa_write_check(write);
    if (code != 0)
        return code;
    struct json_build build;
    json_build_start(&build);
    json_build_number(&build, "format", FORMAT);
    json_build_text(&build, "write_id", write->write_id, true);
    json_build_number(&build, "seq", write->seq);
    json_build_number(&build, "time_ms", (uint64_t)write->time_ms);
    json_build_text(&build, "database", write->target.database, true);
    json_build_text(&build, "table", write->target.table, true);
    json_build_text(&build, "schema", write->target.schema, false);
    json_build_put(&build, "roots", roots_to_json(&write->target));
    json_build_text(&build, "query_hash", write->query_hash, true);
    json_build_text(&build, "body_hash", write->body_hash, true);
    json_build_number(&build, "body_bytes", write->body_bytes);
    json_build_number(&build, "rows", write->rows);
    json_build_number(&build, "bytes", write->bytes);
    json_build_put(&build, "parts", parts_to_json(write));

    char *text;
    code = json_build_finish(&build, NULL, NULL, &text);
    if (code != 0)
        return code;
    if (strlen(text) > CHXA_WRITE_TEXT_MAX) {
        free(text);
        return CHXA_E_INVALID_RECORD;
    }
    *ret_text = text;
    return 0;
}

/* ---- decoding: the first field that is missing or of another type sets `code`, and the rest does
 * nothing ---- */

struct reader {
    const json_t *object;
    int code;
};

static void fail(struct reader *reader, int code)
{
    if (reader->code == 0)
        reader->code = code;
}

/* Copies a string; absent or null is an error when required, else NULL. */
static void read_text(struct reader *reader, const char *key, bool required, char **ret)
{
    if (reader->code != 0)
        return;
    const json_t *value = json_object_get(reader->object, key);
    if (!required && (value == NULL || json_is_null(value)))
        return;
    if (!json_is_string(value)) {
        fail(reader, CHXA_E_INVALID_RECORD);
        return;
    }
    *ret = strdup(json_string_value(value));
    if (*ret == NULL)
        fail(reader, CHXA_E_NO_MEMORY);
}

static void read_number(struct reader *reader, const char *key, uint64_t max, uint64_t *ret)
{
    if (reader->code != 0)
        return;
    const json_t *value = json_object_get(reader->object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        fail(reader, CHXA_E_INVALID_RECORD);
        return;
    }
    *ret = (uint64_t)json_integer_value(value);
}

static void read_time(struct reader *reader, const char *key, int64_t *ret)
{
    uint64_t number = 0;
    read_number(reader, key, CHXA_NUMBER_MAX, &number);
    *ret = (int64_t)number;
}

static void read_bool(struct reader *reader, const char *key, bool *ret)
{
    if (reader->code != 0)
        return;
    const json_t *value = json_object_get(reader->object, key);
    if (json_is_boolean(value))
        *ret = json_is_true(value);
    else
        fail(reader, CHXA_E_INVALID_RECORD);
}

static void read_body_hash(struct reader *reader, char ret[CHXA_BODY_HASH_BYTES_MAX + 1])
{
    if (reader->code != 0)
        return;
    const json_t *value = json_object_get(reader->object, "body_hash");
    if (json_is_string(value) && json_string_length(value) <= CHXA_BODY_HASH_BYTES_MAX)
        memcpy(ret, json_string_value(value), json_string_length(value) + 1);
    else
        fail(reader, CHXA_E_INVALID_RECORD);
}

static void read_hash(struct reader *reader, const char *key, char ret[CHXA_HASH_HEX_BYTES + 1])
{
    if (reader->code != 0)
        return;
    const json_t *value = json_object_get(reader->object, key);
    if (json_is_string(value) && json_string_length(value) == CHXA_HASH_HEX_BYTES)
        memcpy(ret, json_string_value(value), CHXA_HASH_HEX_BYTES + 1);
    else
        fail(reader, CHXA_E_INVALID_RECORD);
}

/* Which of FORMAT to format_max it is; 0 with code set. */
static uint64_t read_format(struct reader *reader, uint64_t format_max)
{
    uint64_t format = 0;
    read_number(reader, "format", format_max, &format);
    if (reader->code == 0 && format < FORMAT)
        fail(reader, CHXA_E_INVALID_RECORD);
    return format;
}

/* The array under key with at most count_max elements, or NULL with code set. */
static const json_t *read_array(struct reader *reader, const char *key, size_t count_max)
{
    if (reader->code != 0)
        return NULL;
    const json_t *value = json_object_get(reader->object, key);
    if (json_is_array(value) && json_array_size(value) <= count_max)
        return value;
    fail(reader, CHXA_E_INVALID_RECORD);
    return NULL;
}

/* Parses text as a JSON object into *ret_object (for the caller to decref). */
static int parse(const char *text, size_t text_bytes, size_t bytes_max, json_t **ret_object)
{
    if (text_bytes > bytes_max)
        return CHXA_E_INVALID_RECORD;
    json_t *object;
    int code = json_parse(text, text_bytes, JSON_REJECT_DUPLICATES, &object);
    if (code != 0)
        return code;
    if (!json_is_object(object)) {
        json_decref(object);
        return CHXA_E_INVALID_RECORD;
    }
    *ret_object = object;
    return 0;
}

static void read_discarded(struct reader *reader, struct chxa_record *record)
{
    const json_t *given = json_object_get(reader->object, "discarded");
    if (reader->code != 0 || given == NULL || json_is_null(given))
        return;
    const json_t *array = read_array(reader, "discarded", CHXA_DISCARDED_MAX);
    size_t count = json_array_size(array);
    if (count == 0)
        return;
    record->discarded = calloc(count, sizeof *record->discarded);
    if (record->discarded == NULL) {
        fail(reader, CHXA_E_NO_MEMORY);
        return;
    }
    record->n_discarded = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i);
        const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
            json_integer_value(first) < 0 || json_integer_value(last) < 0) {
            fail(reader, CHXA_E_INVALID_RECORD);
            return;
        }
        record->discarded[i] = (struct chxa_range){(uint64_t)json_integer_value(first),
                                                   (uint64_t)json_integer_value(last)};
    }
}

static void read_operator(struct reader *reader, struct chxa_record *record)
{
    char *heuristic = NULL;
    read_text(reader, "given_reason", false, &record->given_reason);
    read_text(reader, "abandoned_by", false, &record->abandoned_by);
    read_text(reader, "converted_to", false, &record->converted_to);
    read_text(reader, "heuristic", false, &heuristic);
    if (heuristic)
        record->heuristic = chxa_heuristic_from_name(heuristic);
    free(heuristic);
    const json_t *discarding = json_object_get(reader->object, "discarding");
    if (discarding && !json_is_null(discarding))
        read_bool(reader, "discarding", &record->discarding);
    read_discarded(reader, record);
}

int chxa_record_decode(const char *text, size_t text_bytes, struct chxa_record *ret_record)
{
    json_t *object;
    int code = parse(text, text_bytes, CHXA_RECORD_TEXT_MAX, &object);
    if (code != 0)
        return code;
    struct reader reader = {.object = object};
    struct chxa_record record = {0};
    char *state = NULL;
    record.gather = read_format(&reader, FORMAT_GATHER) == FORMAT_GATHER;
    read_text(&reader, "xid", true, &record.xid);
    read_text(&reader, "state", true, &state);
    read_text(&reader, "owner", true, &record.owner);
    read_text(&reader, "owner_url", true, &record.owner_url);
    read_number(&reader, "node_epoch", CHXA_NUMBER_MAX, &record.node_epoch);
    read_text(&reader, "op_id", true, &record.op_id);
    read_time(&reader, "created_ms", &record.created_ms);
    read_time(&reader, "changed_ms", &record.changed_ms);
    read_time(&reader, "timeout_ms", &record.timeout_ms);
    read_text(&reader, "sink", false, &record.sink);
    read_number(&reader, "sink_epoch", CHXA_NUMBER_MAX, &record.sink_epoch);
    read_text(&reader, "meta", false, &record.meta);
    read_text(&reader, "reason", false, &record.reason);
    read_bool(&reader, "blocked", &record.blocked);
    read_operator(&reader, &record);
    json_decref(object);

    code = reader.code;
    if (code == 0) {
        record.state = chxa_state_from_name(state);
        code = chxa_record_check(&record);
    }
    free(state);
    if (code != 0) {
        chxa_record_clear(&record);
        return code;
    }
    *ret_record = record;
    return 0;
}

static int part_from_json(const json_t *object, struct chxa_part *part)
{
    struct reader reader = {.object = object};
    uint64_t disk = 0;
    read_text(&reader, "name", true, &part->name);
    read_text(&reader, "partition_id", true, &part->partition_id);
    read_number(&reader, "number", CHXA_NUMBER_MAX, &part->number);
    read_number(&reader, "rows", CHXA_NUMBER_MAX, &part->rows);
    read_number(&reader, "bytes", CHXA_NUMBER_MAX, &part->bytes);
    read_number(&reader, "inode", CHXA_NUMBER_MAX, &part->inode);
    read_number(&reader, "disk", CHXA_ROOTS_MAX, &disk);
    read_hash(&reader, "checksum", part->checksum);
    part->disk = (uint32_t)disk;
    return reader.code;
}

static void read_parts(struct reader *reader, struct chxa_write *write)
{
    const json_t *array = read_array(reader, "parts", CHXA_PARTS_PER_WRITE_MAX);
    size_t count = json_array_size(array);
    if (count == 0)
        return;
    write->parts = calloc(count, sizeof *write->parts);
    if (write->parts == NULL) {
        fail(reader, CHXA_E_NO_MEMORY);
        return;
    }
    write->n_parts = count;
    for (size_t i = 0; i < count && reader->code == 0; i++)
        reader->code = part_from_json(json_array_get(array, i), &write->parts[i]);
}

static void read_roots(struct reader *reader, struct chxa_target *target)
{
    const json_t *array = read_array(reader, "roots", CHXA_ROOTS_MAX);
    size_t count = json_array_size(array);
    if (count == 0)
        return;
    target->roots = calloc(count, sizeof *target->roots);
    if (target->roots == NULL) {
        fail(reader, CHXA_E_NO_MEMORY);
        return;
    }
    target->n_roots = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *root = json_array_get(array, i);
        if (!json_is_string(root)) {
            fail(reader, CHXA_E_INVALID_RECORD);
            return;
        }
        target->roots[i] = strdup(json_string_value(root));
        if (target->roots[i] == NULL) {
            fail(reader, CHXA_E_NO_MEMORY);
            return;
        }
    }
}

int chxa_write_decode(const char *text, size_t text_bytes, struct chxa_write *ret_write)
{
    json_t *object;
    int code = parse(text, text_bytes, CHXA_WRITE_TEXT_MAX, &object);
    if (code != 0)
        return code;
    struct reader reader = {.object = object};
    struct chxa_write write = {0};
    read_format(&reader, FORMAT);
    read_text(&reader, "write_id", true, &write.write_id);
    read_number(&reader, "seq", CHXA_NUMBER_MAX, &write.seq);
    read_time(&reader, "time_ms", &write.time_ms);
    read_text(&reader, "database", true, &write.target.database);
    read_text(&reader, "table", true, &write.target.table);
    read_text(&reader, "schema", false, &write.target.schema);
    read_roots(&reader, &write.target);
    read_hash(&reader, "query_hash", write.query_hash);
    read_body_hash(&reader, write.body_hash);
    read_number(&reader, "body_bytes", CHXA_NUMBER_MAX, &write.body_bytes);
    read_number(&reader, "rows", CHXA_NUMBER_MAX, &write.rows);
    read_number(&reader, "bytes", CHXA_NUMBER_MAX, &write.bytes);
    read_parts(&reader, &write);
    json_decref(object);

    code = reader.code ? reader.code : chxa_write_check(&write);
    if (code != 0) {
        chxa_write_clear(&write);
        return code;
    }
    *ret_write = write;
    return 0;
}
