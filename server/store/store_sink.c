/* SPDX-License-Identifier: Apache-2.0
 *
 * See store_sink.h.
 */
#include "store/store_sink.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1

void store_sink_clear(struct store_sink *sink)
{
    free(sink->checkpoint.xid);
    free(sink->checkpoint.meta);
    *sink = (struct store_sink){0};
}

static struct store_checkpoint checkpoint_copy(const struct store_checkpoint *from)
{
    struct store_checkpoint copy = *from;
    copy.xid = mem_strdup(from->xid);
    copy.meta = mem_strdup(from->meta);
    return copy;
}

struct store_sink store_sink_copy(const struct store_sink *sink)
{
    return (struct store_sink){sink->epoch, checkpoint_copy(&sink->checkpoint)};
}

/* ---- what a change does ---- */

bool store_op_has_sink(const struct store_op *op)
{
    return op->sink_fence || op->checkpoint.xid != NULL;
}

/* Two that began in the same millisecond: the one that is committed later. */
static bool is_newer(const struct store_checkpoint *checkpoint, const struct store_checkpoint *last)
{
    if (last->xid == NULL)
        return true;
    if (strcmp(checkpoint->xid, last->xid) == 0)
        return false; /* it is there */
    if (checkpoint->epoch != last->epoch)
        return checkpoint->epoch > last->epoch;
    return checkpoint->created_ms >= last->created_ms;
}

int store_sink_apply(const struct store_op *op, struct store_sink *sink, bool *ret_changed)
{
    bool changed = false;
    if (op->sink_fence && sink->epoch > op->sink_epoch)
        return CHXA_E_FENCED;
    if (sink->epoch < op->sink_epoch) {
        sink->epoch = op->sink_epoch;
        changed = true;
    }
    if (op->checkpoint.xid && is_newer(&op->checkpoint, &sink->checkpoint)) {
        free(sink->checkpoint.xid);
        free(sink->checkpoint.meta);
        sink->checkpoint = checkpoint_copy(&op->checkpoint);
        changed = true;
    }
    *ret_changed = changed;
    return 0;
}

/* ---- the text ---- */

char *store_sink_encode(const struct store_sink *sink)
{
    const struct store_checkpoint *last = &sink->checkpoint;
    json_t *head = json_pack("{s:i, s:I}", "format", FORMAT, "epoch", (json_int_t)sink->epoch);
    if (head && last->xid) {
        json_object_set_new(head, "xid", json_string(last->xid));
        json_object_set_new(head, "checkpoint_epoch", json_integer((json_int_t)last->epoch));
        json_object_set_new(head, "created_ms", json_integer(last->created_ms));
        json_object_set_new(head, "committed_ms", json_integer(last->committed_ms));
    }
    char *line = head ? json_dumps(head, JSON_COMPACT) : NULL;
    json_decref(head);
    if (line == NULL)
        abort(); /* no memory, see base/mem.h */
    char *text = mem_printf("%s\n%s", line, last->meta ? last->meta : "");
    free(line);
    return text;
}

static bool read_number(const json_t *head, const char *key, json_int_t *ret)
{
    const json_t *value = json_object_get(head, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *ret = json_integer_value(value);
    return true;
}

static bool read_checkpoint(const json_t *head, struct store_checkpoint *checkpoint)
{
    json_int_t epoch, created_ms, committed_ms;
    const char *xid = json_string_value(json_object_get(head, "xid"));
    if (xid == NULL || !chxa_xid_valid(xid) || !read_number(head, "checkpoint_epoch", &epoch) ||
        !read_number(head, "created_ms", &created_ms) ||
        !read_number(head, "committed_ms", &committed_ms))
        return false;
    *checkpoint =
        (struct store_checkpoint){mem_strdup(xid), NULL, (uint64_t)epoch, created_ms, committed_ms};
    return true;
}

int store_sink_decode(const char *text, size_t text_bytes, struct store_sink *ret_sink)
{
    const char *end = memchr(text, '\n', text_bytes);
    if (end == NULL)
        return CHXA_E_INVALID_RECORD;
    json_t *head = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
    struct store_sink sink = {0};
    json_int_t format = 0, epoch = 0;
    bool good = read_number(head, "format", &format) && format == FORMAT &&
                read_number(head, "epoch", &epoch);
    sink.epoch = (uint64_t)epoch;
    if (good && json_object_get(head, "xid"))
        good = read_checkpoint(head, &sink.checkpoint);
    json_decref(head);
    size_t meta_bytes = text_bytes - (size_t)(end + 1 - text);
    if (!good || (meta_bytes && sink.checkpoint.xid == NULL)) {
        store_sink_clear(&sink);
        return CHXA_E_INVALID_RECORD;
    }
    if (meta_bytes)
        sink.checkpoint.meta = mem_strndup(end + 1, meta_bytes);
    *ret_sink = sink;
    return 0;
}
