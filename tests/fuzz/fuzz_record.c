/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target of the record codec: what decodes must encode, and decode to the same text again.
 * tests/unit/proto mutates valid texts in the quick tier; this goes further.
 *
 *   clang -g -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. -Iserver \
 *       tests/fuzz/fuzz_record.c proto/[a-z]*.c -ljansson -o /tmp/fuzz_record
 *   /tmp/fuzz_record -max_total_time=120 /tmp/new tests/fuzz/corpus/record
 */
#include "proto/record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int good)
{
    if (!good)
        abort();
}

static void try_record(const char *text, size_t size)
{
    struct chxa_record record, again;
    char *first, *second, *shown;
    if (chxa_record_decode(text, size, &record) != 0)
        return;
    require(chxa_record_encode(&record, &first) == 0);
    require(chxa_record_decode(first, strlen(first), &again) == 0);
    require(chxa_record_encode(&again, &second) == 0);
    require(strcmp(first, second) == 0);
    require(chxa_record_to_api_json(&record, true, true, &shown) == 0);
    free(first);
    free(second);
    free(shown);
    chxa_record_clear(&record);
    chxa_record_clear(&again);
}

static void try_write(const char *text, size_t size)
{
    struct chxa_write write, again;
    char *first, *second, *shown;
    if (chxa_write_decode(text, size, &write) != 0)
        return;
    require(chxa_write_encode(&write, &first) == 0);
    require(chxa_write_decode(first, strlen(first), &again) == 0);
    require(chxa_write_encode(&again, &second) == 0);
    require(strcmp(first, second) == 0);
    require(chxa_write_to_answer_json("x", &write, false, &shown) == 0);
    free(first);
    free(second);
    free(shown);
    chxa_write_clear(&write);
    chxa_write_clear(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_record((const char *)data, size);
    try_write((const char *)data, size);
    return 0;
}
