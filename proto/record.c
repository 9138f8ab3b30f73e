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
    free(record->given_reason);
    free(record->abandoned_by);
    free(record->converted_to);
    free(record->discarded);
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

static bool discarded_copy(const struct chxa_record *from, struct chxa_record *to)
{
    if (from->n_discarded == 0)
        return true;
    to->discarded = malloc(from->n_discarded * sizeof *to->discarded);
    if (to->discarded == NULL)
        return false;
    memcpy(to->discarded, from->discarded, from->n_discarded * sizeof *to->discarded);
    return true;
}

int chxa_record_copy(const struct chxa_record *from, struct chxa_record *ret)
{
    struct chxa_record to = *from;
    to.xid = to.owner = to.owner_url = to.op_id = to.sink = to.meta = to.reason = NULL;
    to.given_reason = to.abandoned_by = to.converted_to = NULL;
    to.writes = NULL;
    to.n_writes = 0;
    to.discarded = NULL;
    if (!copy_text(from->xid, &to.xid) || !copy_text(from->owner, &to.owner) ||
        !copy_text(from->owner_url, &to.owner_url) || !copy_text(from->op_id, &to.op_id) ||
        !copy_text(from->sink, &to.sink) || !copy_text(from->meta, &to.meta) ||
        !copy_text(from->reason, &to.reason) || !copy_text(from->given_reason, &to.given_reason) ||
        !copy_text(from->abandoned_by, &to.abandoned_by) ||
        !copy_text(from->converted_to, &to.converted_to) || !discarded_copy(from, &to)) {
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

/* ---- parts that were given up ---- */

static int range_compare(const void *left, const void *right)
{
    const struct chxa_range *key = left, *range = right;
    return key->first < range->first ? -1 : key->first > range->last;
}

bool chxa_record_discards(const struct chxa_record *record, uint64_t number)
{
    struct chxa_range key = {number, number};
    return record->n_discarded && bsearch(&key, record->discarded, record->n_discarded,
                                          sizeof *record->discarded, range_compare) != NULL;
}

static int number_compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* All numbers of the record's parts, ascending; NULL without memory. */
static uint64_t *sorted_numbers(const struct chxa_record *record, size_t *ret_n)
{
    size_t n_parts = chxa_record_parts(record), n = 0;
    uint64_t *numbers = malloc((n_parts + 1) * sizeof *numbers);
    if (numbers == NULL)
        return NULL;
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            numbers[n++] = record->writes[i].parts[j].number;
    qsort(numbers, n, sizeof *numbers, number_compare);
    *ret_n = n;
    return numbers;
}

/* A range goes on as long as none of the record's other parts is in between: numbers of other
 * transactions do no harm there. */
int chxa_record_set_discarded(struct chxa_record *record, const uint64_t *numbers, size_t n_numbers)
{
    size_t n_all = 0, n_ranges = 0;
    uint64_t *all = sorted_numbers(record, &n_all);
    uint64_t *given_up = malloc((n_numbers + 1) * sizeof *given_up);
    struct chxa_range *ranges = malloc((n_numbers + 1) * sizeof *ranges);
    if (all == NULL || given_up == NULL || ranges == NULL) {
        free(all);
        free(given_up);
        free(ranges);
        return CHXA_E_NO_MEMORY;
    }
    if (n_numbers)
        memcpy(given_up, numbers, n_numbers * sizeof *given_up);
    qsort(given_up, n_numbers, sizeof *given_up, number_compare);
    bool open = false;
    for (size_t i = 0, k = 0; i < n_all; i++) {
        while (k < n_numbers && given_up[k] < all[i])
            k++;
        bool is_given_up = k < n_numbers && given_up[k] == all[i];
        if (is_given_up && open)
            ranges[n_ranges - 1].last = all[i];
        else if (is_given_up)
            ranges[n_ranges++] = (struct chxa_range){all[i], all[i]};
        open = is_given_up;
    }
    free(all);
    free(given_up);
    free(record->discarded);
    record->discarded = ranges;
    record->n_discarded = n_ranges;
    return 0;
}
