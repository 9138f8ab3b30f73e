/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of part directories and of held folders; see part_files.h. Pure, any thread.
 */
#include "ch/part_files.h"

#include "base/hash.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XID_KEPT_BYTES    200u
#define XID_HASH_HEX      32u
#define MONTH_DIGITS      6u
#define DATES_BYTES       17u /* 20240101_20240131 */
#define BLOCK_NUMBER_MAX  INT64_MAX
#define PART_NUMBERS_MIN  3u /* min, max, level */
#define PART_NUMBERS_MAX  4u /* and the mutation */
#define U64_DECIMAL_BYTES 20u

void held_dir_name(const char *xid, char ret_name[HELD_DIR_BYTES_MAX + 1])
{
    size_t len = strlen(xid);
    assert(len >= 1 && len <= CHXA_XID_BYTES_MAX);
    if (len <= XID_KEPT_BYTES) {
        snprintf(ret_name, HELD_DIR_BYTES_MAX + 1, "t-%s", xid);
        return;
    }
    char hex[HASH_HEX_BYTES + 1];
    hash_of(xid, len, hex);
    snprintf(ret_name, HELD_DIR_BYTES_MAX + 1, "t-%.*s~%.*s", (int)XID_KEPT_BYTES, xid,
             (int)XID_HASH_HEX, hex);
}

/* Decimal digits without sign or needless zeros, up to a terminator that may follow. */
static bool number_read(const char **at, uint64_t *ret_number)
{
    const char *p = *at;
    if (!isdigit((unsigned char)*p) || (*p == '0' && isdigit((unsigned char)p[1])))
        return false;
    uint64_t number = 0;
    for (size_t digits = 0; isdigit((unsigned char)*p); p++) {
        if (++digits > U64_DECIMAL_BYTES - 1)
            return false;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    if (number > BLOCK_NUMBER_MAX)
        return false;
    *at = p;
    *ret_number = number;
    return true;
}

/* ClickHouse's own working directories, some of which read like parts of a partition "tmp-fetch".
 */
static bool partition_id_is_working_name(const char *id)
{
    static const char *const prefixes[] = {"tmp",       "delete", "detached", "ignored",
                                           "attaching", "broken", "moving",   "covered",
                                           "patch",     "clone",  "deleting", "unexpected"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(id, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool partition_id_read(const char **at, struct part_name *name)
{
    const char *end = strchr(*at, '_');
    size_t len = end ? (size_t)(end - *at) : 0;
    if (len == 0 || len >= sizeof name->partition_id)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)(*at)[i]) && (*at)[i] != '-')
            return false;
    memcpy(name->partition_id, *at, len);
    name->partition_id[len] = '\0';
    *at = end;
    return !partition_id_is_working_name(name->partition_id);
}

static bool dates_read(const char **at, struct part_name *name)
{
    if (strlen(*at) <= DATES_BYTES)
        return false;
    for (size_t i = 0; i < DATES_BYTES; i++)
        if (i == 8 ? (*at)[i] != '_' : !isdigit((unsigned char)(*at)[i]))
            return false;
    memcpy(name->dates, *at, DATES_BYTES);
    *at += DATES_BYTES;
    return true;
}

bool part_name_parse(const char *text, bool old_syntax, struct part_name *ret_name)
{
    struct part_name name = {0};
    const char *at = text;
    if (!(old_syntax ? dates_read(&at, &name) : partition_id_read(&at, &name)))
        return false;
    uint64_t numbers[PART_NUMBERS_MAX] = {0};
    size_t n = 0;
    while (*at == '_') {
        at++;
        if (n == PART_NUMBERS_MAX || !number_read(&at, &numbers[n++]))
            return false;
    }
    if (*at != '\0' || n < PART_NUMBERS_MIN || numbers[0] > numbers[1])
        return false;
    name.min_block = numbers[0];
    name.max_block = numbers[1];
    name.level = numbers[2];
    name.mutation = numbers[3];
    *ret_name = name;
    return true;
}

bool part_name_contains(const struct part_name *outer, const struct part_name *inner)
{
    /* An old-syntax partition is the month; a part never spans two. */
    if (strcmp(outer->partition_id, inner->partition_id) != 0 ||
        strncmp(outer->dates, inner->dates, MONTH_DIGITS) != 0)
        return false;
    if (outer->min_block == inner->min_block && outer->max_block == inner->max_block &&
        outer->level == inner->level && outer->mutation == inner->mutation)
        return false;
    return outer->min_block <= inner->min_block && outer->max_block >= inner->max_block &&
           outer->level >= inner->level && outer->mutation >= inner->mutation;
}
