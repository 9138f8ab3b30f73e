/* SPDX-License-Identifier: Apache-2.0
 *
 * See sink_state.h.
 */
#include "client/src/sink_state.h"

#include "client/src/internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION     1u
#define START_CHARS 8u
static const char magic[4] = {'c', 'h', 'x', 's'};

/* ---- ids ---- */

bool cx_sink_name_valid(const char *name)
{
    return name && strlen(name) <= CX_SINK_NAME_BYTES_MAX && cx_id_valid(name);
}

void cx_sink_xid(const char *name, uint64_t epoch, uint64_t seq, const char *start, char *ret_xid)
{
    int len = snprintf(ret_xid, CHXA_XID_BYTES_MAX + 1, "%s:%" PRIu64 ":%" PRIu64 ":%s", name,
                       epoch, seq, start);
    assert(len > 0 && (unsigned)len <= CHXA_XID_BYTES_MAX);
}

/* A number as we print it, so without leading zeros, and the ':' behind it. */
static const char *read_number(const char *at, uint64_t *ret)
{
    uint64_t value = 0;
    const char *begin = at;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return NULL;
        value = value * 10 + digit;
    }
    if (at == begin || *at != ':' || (*begin == '0' && at != begin + 1))
        return NULL;
    *ret = value;
    return at + 1;
}

bool cx_sink_xid_read(const char *name, const char *xid, uint64_t *ret_epoch, uint64_t *ret_seq)
{
    size_t name_len = strlen(name);
    uint64_t epoch, seq;
    if (strncmp(xid, name, name_len) != 0 || xid[name_len] != ':')
        return false;
    const char *at = read_number(xid + name_len + 1, &epoch);
    at = at ? read_number(at, &seq) : NULL;
    if (at == NULL || strlen(at) != START_CHARS || strspn(at, "0123456789abcdef") != START_CHARS)
        return false;
    *ret_epoch = epoch;
    *ret_seq = seq;
    return true;
}

/* ---- bytes ---- */

static uint32_t crc32_of(const unsigned char *data, size_t len)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void put_number(struct cx_buf *buf, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;) {
        unsigned char byte = (unsigned char)(value >> (8 * i));
        cx_buf_put(buf, &byte, 1);
    }
}

static void put_text(struct cx_buf *buf, const char *text)
{
    put_number(buf, strlen(text), 2);
    cx_buf_put(buf, text, strlen(text));
}

int cx_sink_state_encode(const struct cx_sink_state *state, void **ret_bytes, size_t *ret_len)
{
    struct cx_buf buf = {0};
    cx_buf_put(&buf, magic, sizeof magic);
    put_number(&buf, VERSION, 1);
    put_number(&buf, 0, 1);
    put_text(&buf, state->name);
    put_number(&buf, state->epoch, 8);
    put_number(&buf, state->seq, 8);
    put_number(&buf, state->checkpoint, 8);
    put_number(&buf, state->n_entries, 4);
    for (size_t i = 0; i < state->n_entries; i++) {
        put_number(&buf, state->entries[i].checkpoint, 8);
        put_text(&buf, state->entries[i].xid);
    }
    if (!buf.failed)
        put_number(&buf, crc32_of((const unsigned char *)buf.data, buf.len), 4);
    if (buf.failed) {
        cx_buf_clear(&buf);
        return CHXA_ERR_NO_MEMORY;
    }
    *ret_bytes = buf.data;
    *ret_len = buf.len;
    return 0;
}

struct reader {
    const unsigned char *at;
    size_t left;
    bool short_of; /* something was longer than what is left; all that was read since is zero */
};

static uint64_t take_number(struct reader *reader, unsigned bytes)
{
    uint64_t value = 0;
    if (reader->left < bytes) {
        reader->short_of = true;
        reader->left = 0;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        value = value << 8 | reader->at[i];
    reader->at += bytes;
    reader->left -= bytes;
    return value;
}

/* False: longer than room, or than what is left, or with a NUL in it. */
static bool take_text(struct reader *reader, char *ret, size_t room)
{
    size_t len = (size_t)take_number(reader, 2);
    if (len >= room || len > reader->left || memchr(reader->at, '\0', len))
        return false;
    memcpy(ret, reader->at, len);
    ret[len] = '\0';
    reader->at += len;
    reader->left -= len;
    return true;
}

static const char *take_entries(struct reader *reader, struct cx_sink_state *state)
{
    uint64_t epoch, last_epoch = 0, last_seq = 0, last_checkpoint = 0;
    for (size_t i = 0; i < state->n_entries; i++) {
        struct cx_sink_entry *entry = &state->entries[i];
        entry->checkpoint = take_number(reader, 8);
        if (!take_text(reader, entry->xid, sizeof entry->xid))
            return "it is damaged";
        if (!cx_sink_xid_read(state->name, entry->xid, &epoch, &entry->seq))
            return "it names a transaction that is not this sink's";
        bool in_order = epoch > last_epoch || (epoch == last_epoch && entry->seq > last_seq);
        if (i && (!in_order || entry->checkpoint < last_checkpoint))
            return "its transactions are out of order";
        if (epoch > state->epoch || (epoch == state->epoch && entry->seq > state->seq))
            return "it names a transaction that was begun after it was made";
        last_epoch = epoch;
        last_seq = entry->seq;
        last_checkpoint = entry->checkpoint;
    }
    if (state->n_entries && last_checkpoint > state->checkpoint)
        return "it names a checkpoint that is newer than itself";
    return NULL;
}

/* What stands before the entries. NULL: good. */
static const char *take_head(const char *name, struct reader *reader, struct cx_sink_state *state)
{
    if (take_number(reader, 1) != 0 || !take_text(reader, state->name, sizeof state->name))
        return "it is damaged";
    if (strcmp(state->name, name) != 0)
        return "it is another sink's";
    state->epoch = take_number(reader, 8);
    state->seq = take_number(reader, 8);
    state->checkpoint = take_number(reader, 8);
    state->n_entries = (size_t)take_number(reader, 4);
    if (reader->short_of || state->n_entries > CX_SINK_PENDING_MAX ||
        state->n_entries > reader->left / 10)
        return "it is damaged";
    return NULL;
}

static int refused(struct cx_sink_state *state, const char *why, const char **ret_why)
{
    cx_sink_state_clear(state);
    *ret_why = why;
    return CHXA_ERR_STATE_REFUSED;
}

int cx_sink_state_decode(const char *name, const void *bytes, size_t len,
                         struct cx_sink_state *ret_state, const char **ret_why)
{
    struct reader reader = {.at = bytes, .left = len};
    struct cx_sink_state state = {0};
    if (len < sizeof magic + 1 + 4 || memcmp(bytes, magic, sizeof magic) != 0)
        return refused(&state, "it is no state of a sink", ret_why);
    reader.at += sizeof magic;
    reader.left -= sizeof magic;
    if (take_number(&reader, 1) != VERSION)
        return refused(&state, "a newer version of the library made it", ret_why);
    struct reader end = {.at = (const unsigned char *)bytes + len - 4, .left = 4};
    reader.left -= 4;
    if (take_number(&end, 4) != crc32_of(bytes, len - 4))
        return refused(&state, "it is damaged", ret_why);
    const char *why = take_head(name, &reader, &state);
    if (why)
        return refused(&state, why, ret_why);
    state.entries = state.n_entries ? cx_alloc(state.n_entries * sizeof *state.entries) : NULL;
    if (state.n_entries && state.entries == NULL)
        return CHXA_ERR_NO_MEMORY;
    why = take_entries(&reader, &state);
    if (why || reader.short_of || reader.left)
        return refused(&state, why ? why : "it is damaged", ret_why);
    *ret_state = state;
    return 0;
}

void cx_sink_state_clear(struct cx_sink_state *state)
{
    free(state->entries);
    *state = (struct cx_sink_state){0};
}
