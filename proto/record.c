/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of the record structs: clear, copy, totals. The checks are in record_check.c, the JSON text
 * in record_json.c (store) and record_api.c (REST).
 */
#include "record.h"

#include "errors.h"

#include <stdlib.h>
#include <string.h>

void chxa_part_clear(struct chxa_part *part)
{
    if (part == NULL)
        return;
    free(part->name);
    free(part->partition_id);
    *part = (struct chxa_part){0};
}

void chxa_target_clear(struct chxa_target *target)
{
    if (target == NULL)
        return;
    free(target->database);
    free(target->table);
    free(target->schema);
    for (size_t i = 0; target->roots && i < target->n_roots; i++)
        free(target->roots[i]);
    free(target->roots);
    *target = (struct chxa_target){0};
}

void chxa_write_clear(struct chxa_write *write)
{
    if (write == NULL)
        return;
    free(write->write_id);
    chxa_target_clear(&write->target);
    for (size_t i = 0; write->parts && i < write->n_parts; i++)
        chxa_part_clear(&write->parts[i]);
    free(write->parts);
    *write = (struct chxa_write){0};
}

void chxa_record_clear(struct chxa_record *record)
{
    if (record == NULL)
        return;
    free(record->xid);
    free(record->owner);
    free(record->owner_url);
    free(record->op_id);
    free(record->sink);
    free(record->meta);
    free(record->reason);
    for (size_t i = 0; record->writes && i < record->n_writes; i++)
        chxa_write_clear(&record->writes[i]);
    free(record->writes);
    *record = (struct chxa_record){0};
}

/* Copies text into *slot; false when there is no memory. */
static bool copy_text(const char *text, char **slot)
{
    *slot = text ? strdup(text) : NULL;
    return text == NULL || *slot != NULL;
}

static bool target_copy(const struct chxa_target *from, struct chxa_target *to)
{
    if (!copy_text(from->database, &to->database) || !copy_text(from->table, &to->table) ||
        !copy_text(from->schema, &to->schema))
        return false;
    if (from->n_roots == 0)
        return true;
    to->roots = calloc(from->n_roots, sizeof *to->roots);
    if (to->roots == NULL)
        return false;
    to->n_roots = from->n_roots;
    for (size_t i = 0; i < from->n_roots; i++)
        if (!copy_text(from->roots[i], &to->roots[i]))
            return false;
    return true;
}

static bool parts_copy(const struct chxa_write *from, struct chxa_write *to)
{
    if (from->n_parts == 0)
        return true;
    to->parts = calloc(from->n_parts, sizeof *to->parts);
    if (to->parts == NULL)
        return false;
    to->n_parts = from->n_parts;
    for (size_t i = 0; i < from->n_parts; i++) {
        struct chxa_part *part = &to->parts[i];
        *part = from->parts[i];
        part->name = part->partition_id = NULL;
        if (!copy_text(from->parts[i].name, &part->name) ||
            !copy_text(from->parts[i].partition_id, &part->partition_id))
            return false;
    }
    return true;
}

int chxa_write_copy(const struct chxa_write *from, struct chxa_write *ret)
{
    struct chxa_write to = *from;
    to.write_id = NULL;
    to.target = (struct chxa_target){0};
    to.parts = NULL;
    to.n_parts = 0;
    if (!copy_text(from->write_id, &to.write_id) || !target_copy(&from->target, &to.target) ||
        !parts_copy(from, &to)) {
        chxa_write_clear(&to);
        *ret = to;
        return CHXA_E_NO_MEMORY;
    }
    *ret = to;
    return 0;
}

int chxa_record_copy(const struct chxa_record *from, struct chxa_record *ret)
{
    struct chxa_record to = *from;
    to.xid = to.owner = to.owner_url = to.op_id = to.sink = to.meta = to.reason = NULL;
    to.writes = NULL;
    to.n_writes = 0;
    if (!copy_text(from->xid, &to.xid) || !copy_text(from->owner, &to.owner) ||
        !copy_text(from->owner_url, &to.owner_url) || !copy_text(from->op_id, &to.op_id) ||
        !copy_text(from->sink, &to.sink) || !copy_text(from->meta, &to.meta) ||
        !copy_text(from->reason, &to.reason)) {
        chxa_record_clear(&to);
        *ret = to;
        return CHXA_E_NO_MEMORY;
    }
    *ret = to;
    return 0;
}

/* Sums stop at the largest number instead of wrapping: totals are for people. */
static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t chxa_record_rows(const struct chxa_record *record)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        rows = add(rows, record->writes[i].rows);
    return rows;
}

uint64_t chxa_record_bytes(const struct chxa_record *record)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        bytes = add(bytes, record->writes[i].bytes);
    return bytes;
}

size_t chxa_record_parts(const struct chxa_record *record)
{
    size_t parts = 0;
    for (size_t i = 0; i < record->n_writes; i++)
        parts += record->writes[i].n_parts;
    return parts;
}
