/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target of a sink's state bytes: what decodes must encode to the very same bytes. The input is the state without its
 * last four bytes, the sum, which is put right here: else nothing would ever get past it.
 *
 *   clang -g -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. \
 *       tests/fuzz/fuzz_sink_state.c client/src/sink_state.c client/src/mem.c -lpthread -o /tmp/fuzz_sink_state
 *   /tmp/fuzz_sink_state -max_total_time=60 /tmp/new tests/fuzz/corpus/sink_state
 */
#include "client/src/sink_state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_bytes(const void *bytes, size_t len)
{
    struct cx_sink_state state;
    const char *why;
    void *again;
    size_t again_len;
    if (cx_sink_state_decode("orders.3", bytes, len, &state, &why) != 0)
        return;
    if (cx_sink_state_encode(&state, &again, &again_len) != 0)
        abort();
    if (again_len != len || memcmp(again, bytes, len) != 0)
        abort();
    free(again);
    cx_sink_state_clear(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = malloc(size + 4);
    if (bytes == NULL)
        return 0;
    if (size)
        memcpy(bytes, data, size);
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    for (unsigned i = 0; i < 4; i++)
        bytes[size + i] = (unsigned char)(~crc >> (24 - 8 * i));
    try_bytes(bytes, size);
    try_bytes(bytes, size + 4);
    free(bytes);
    return 0;
}
