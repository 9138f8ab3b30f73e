/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target of the INSERT head: parses, rewrites, and parses what it wrote, which must be the
 * same statement on another target. Corpus: corpus/insert_head, replayed by tests/unit/ch.
 *
 *   cd tests/fuzz && clang -g -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I../..
 * -I../../server fuzz_insert_head.c ../../server/ch/{insert_head,insert_lexer,sql}.c
 *       ../../server/base/{buf,error,mem}.c ../../proto/errors.c -o /tmp/fuzz_insert_head
 *   /tmp/fuzz_insert_head -max_total_time=120 -dict=insert_head.dict /tmp/new corpus/insert_head
 */
#include "ch/insert_head.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct insert_head head = {0};
    struct insert_head again = {0};
    struct error error = {0};
    struct buf out = {0};

    if (insert_head_parse(text, size, &head, &error) == 0) {
        insert_head_rewrite(text, size, &head, "d`b", "s_1", &out);
        if (insert_head_parse(out.data, out.len, &again, &error) != 0)
            abort();
        assert(strcmp(again.database, "d`b") == 0 && strcmp(again.table, "s_1") == 0);
        assert(again.source == head.source);
        assert((again.format != NULL) == (head.format != NULL));
        assert(!head.format || strcmp(again.format, head.format) == 0);
        assert(out.len - again.data_begin == head.end - head.data_begin ||
               head.source == INSERT_SELECT);
    }
    insert_head_clear(&head);
    insert_head_clear(&again);
    error_clear(&error);
    buf_clear(&out);
    return 0;
}
