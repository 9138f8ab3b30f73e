/* SPDX-License-Identifier: Apache-2.0
 *
 * See record_check.h.
 */
#include "record_check.h"

#include "errors.h"
#include "json_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Non-empty, at most bytes_max, letters, digits and what `more` lists. */
static bool made_of(const char *text, size_t bytes_max, const char *more)
{
    if (text == NULL || *text == '\0' || strnlen(text, bytes_max + 1) > bytes_max)
        return false;
    for (const char *at = text; *at; at++)
        if (!is_alnum(*at) && strchr(more, *at) == NULL)
            return false;
    return true;
}

bool chxa_xid_valid(const char *xid)
{
    return made_of(xid, CHXA_XID_BYTES_MAX, "._:-") && strcmp(xid, ".") != 0 &&
           strcmp(xid, "..") != 0;
}

size_t chxa_utf8_step(const char *text)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    size_t len = b[0] >= 0xc2 && b[0] <= 0xdf ? 2 : (b[0] & 0xf0) == 0xe0 ? 3 : 0;
    if (b[0] >= 0xf0 && b[0] <= 0xf4)
        len = 4;
    if (len == 0)
        return 0;
    /* Overlong forms, surrogates and what lies above U+10FFFF show in the second byte. */
    unsigned low = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    if (b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* Bounded UTF-8. */
static bool is_text(const char *text, size_t bytes_max)
{
    if (text == NULL || strnlen(text, bytes_max + 1) > bytes_max)
        return false;
    while (*text) {
        size_t step = chxa_utf8_step(text);
        if (step == 0)
            return false;
        text += step;
    }
    return true;
}

int chxa_text_repair(const char *text, size_t bytes_max, char **ret_text)
{
    char *copy = strndup(text, bytes_max);
    if (copy == NULL)
        return CHXA_E_NO_MEMORY;
    for (char *at = copy; *at;) {
        size_t step = chxa_utf8_step(at);
        if (step == 0) {
            *at = '?';
            step = 1;
        }
        at += step;
    }
    *ret_text = copy;
    return 0;
}

static bool is_name(const char *text)
{
    return is_text(text, CHXA_NAME_BYTES_MAX) && *text;
}

/* Visible ASCII: goes into a header line or a log line as it is. */
static bool is_visible(const char *text, size_t bytes_max)
{
    if (text == NULL || *text == '\0' || strnlen(text, bytes_max + 1) > bytes_max)
        return false;
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static bool is_hash(const char *hex)
{
    if (strnlen(hex, CHXA_HASH_HEX_BYTES + 1) != CHXA_HASH_HEX_BYTES)
        return false;
    return strspn(hex, "0123456789abcdef") == CHXA_HASH_HEX_BYTES;
}

static bool is_body_hash(const char *text)
{
    static const char prefix[] = CHXA_BODY_HASH_PREFIX;
    size_t len = sizeof prefix - 1;
    return is_hash(strncmp(text, prefix, len) == 0 ? text + len : text);
}

static bool is_number(uint64_t number)
{
    return number <= CHXA_NUMBER_MAX;
}

/* An absolute path that no ".." leads out of. */
static bool is_root(const char *path)
{
    if (!is_text(path, CHXA_ROOT_BYTES_MAX) || path[0] != '/' || path[1] == '\0')
        return false;
    size_t len = strlen(path);
    bool climbs = strstr(path, "/../") != NULL || (len >= 3 && strcmp(path + len - 3, "/..") == 0);
    return path[len - 1] != '/' && !climbs;
}

/* Only whether it is JSON; the text itself is what is kept, so large integers stay exact. */
static int is_json(const char *text)
{
    json_t *value;
    int code = json_parse(text, strlen(text),
                          JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &value);
    if (code == 0)
        json_decref(value);
    return code;
}

/* Ascending, and none touches the next. */
static bool is_discarded(const struct chxa_range *ranges, size_t n_ranges)
{
    if (n_ranges > CHXA_DISCARDED_MAX)
        return false;
    for (size_t i = 0; i < n_ranges; i++)
        if (ranges[i].first == 0 || ranges[i].first > ranges[i].last ||
            !is_number(ranges[i].last) || (i && ranges[i].first <= ranges[i - 1].last))
            return false;
    return true;
}

int chxa_record_check(const struct chxa_record *record)
{
    bool good = chxa_xid_valid(record->xid) && record->state > CHXA_UNKNOWN &&
                record->state < CHXA_STATE_COUNT && chxa_xid_valid(record->owner) &&
                is_visible(record->owner_url, CHXA_URL_BYTES_MAX) &&
                is_visible(record->op_id, CHXA_OP_ID_BYTES_MAX) && is_number(record->node_epoch) &&
                record->created_ms >= 0 && record->changed_ms >= 0 && record->timeout_ms >= 0 &&
                (record->sink == NULL || chxa_xid_valid(record->sink)) &&
                is_number(record->sink_epoch) &&
                (record->meta == NULL || is_text(record->meta, CHXA_META_BYTES_MAX));
    good = good && (record->abandoned_by == NULL || chxa_xid_valid(record->abandoned_by)) &&
           (record->converted_to == NULL || chxa_xid_valid(record->converted_to)) &&
           record->heuristic >= CHXA_HEURISTIC_NONE && record->heuristic < CHXA_HEURISTIC_COUNT &&
           is_discarded(record->discarded, record->n_discarded);
    if (!good)
        return CHXA_E_INVALID_RECORD;
    return record->meta ? is_json(record->meta) : 0;
}

/* <partition id>_<number>_<number>_0; old-syntax tables have dates for the partition id. */
static bool is_part(const struct chxa_part *part, size_t n_roots)
{
    char tail[64];
    int n = snprintf(tail, sizeof tail, "_%" PRIu64 "_%" PRIu64 "_0", part->number, part->number);
    if (n < 0 || (size_t)n >= sizeof tail)
        return false;
    size_t tail_bytes = (size_t)n;
    if (!made_of(part->name, CHXA_PART_NAME_BYTES_MAX, "_-") || strlen(part->name) <= tail_bytes ||
        strcmp(part->name + strlen(part->name) - tail_bytes, tail) != 0)
        return false;
    /* Old-syntax names carry dates instead of the partition, whose id may then be empty. */
    if (part->partition_id == NULL ||
        (*part->partition_id && !made_of(part->partition_id, CHXA_PART_NAME_BYTES_MAX, "_-")))
        return false;
    return part->number > 0 && is_number(part->number) && is_number(part->rows) &&
           is_number(part->bytes) && is_number(part->inode) && part->disk < n_roots &&
           is_hash(part->checksum);
}

int chxa_write_check(const struct chxa_write *write)
{
    const struct chxa_target *target = &write->target;
    bool good = chxa_xid_valid(write->write_id) && write->seq > 0 && is_number(write->seq) &&
                write->time_ms >= 0 && is_name(target->database) && is_name(target->table) &&
                (target->schema == NULL || is_text(target->schema, CHXA_SCHEMA_BYTES_MAX)) &&
                target->n_roots <= CHXA_ROOTS_MAX && is_hash(write->query_hash) &&
                is_body_hash(write->body_hash) && is_number(write->body_bytes) &&
                is_number(write->rows) && is_number(write->bytes) &&
                write->n_parts <= CHXA_PARTS_PER_WRITE_MAX;
    for (size_t i = 0; good && i < target->n_roots; i++)
        good = is_root(target->roots[i]);
    for (size_t i = 0; good && i < write->n_parts; i++)
        good = is_part(&write->parts[i], target->n_roots);
    return good ? 0 : CHXA_E_INVALID_RECORD;
}
