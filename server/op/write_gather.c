/* SPDX-License-Identifier: Apache-2.0
 *
 * The step of a write that joins a small body with others: collects it, and hands it to a gather when it is whole.
 * What is too long, finds no memory or cannot be joined goes on as a write of its own, with what was collected at the
 * head of its upload.
 */
#include "op/write_private.h"

#include "base/budget.h"
#include "core/gather_body.h"

#include <stddef.h>
#include <string.h>

/* The end of an INSERT takes ClickHouse some milliseconds. */
#define GATHER_POLL_MS 2u

void write_drop_kept(struct coord_write *write)
{
    buf_clear(&write->kept);
    budget_hold(write->op.coord->config.memory, &write->kept_held, 0);
}

bool write_keep(struct coord_write *write, const void *data, size_t len)
{
    const struct coord_config *config = &write->op.coord->config;
    /* What waits for an INSERT must leave it the memory that it begins with. */
    size_t left = config->memory ? config->memory->bytes_max / 2 : 0;
    bool fits = write->kept.len + len <= config->gather_body_bytes_max &&
                budget_take_leaving(config->memory, len, left);
    if (!fits) /* it is there, and goes to the upload soon */
        budget_take_anyway(config->memory, len);
    write->kept_held += len;
    buf_append(&write->kept, data, len);
    return fits;
}

static void gather_taken(struct gather_item *item, int code, const struct error *error)
{
    struct coord_write *write =
        (struct coord_write *)((char *)item - offsetof(struct coord_write, item));
    struct op *op = &write->op;
    struct gather_known known = {.write_id = write->write_id,
                                 .body_bytes = write->write.body_bytes};
    write_drop_kept(write);
    if (code) {
        op_fail(op, code, "%s", error_message(error));
        return;
    }
    write->gathered = true;
    memcpy(known.query_hash, write->write.query_hash, sizeof known.query_hash);
    hash_final_fingerprint(write->hash, known.body_hash);
    write->hash = NULL;
    gather_remember(op->txn, &known);
    op_end(op, 0);
}

static bool settings_join(const struct coord_write *write)
{
    for (size_t i = 0; i < write->n_settings; i++)
        if (!gather_setting_joins(write->settings[i].name))
            return false;
    return gather_statement_joins(write->query);
}

/* Nothing that ClickHouse takes for rows: a line behind the first is. */
static bool blank(const char *text)
{
    return text[strspn(text, " \t")] == '\0';
}

/* Whether a body of this statement may be joined with others; what it is comes later. */
static bool may_gather(const struct coord_write *write)
{
    const struct insert_head *head = &write->head;
    return write->op.txn->record.gather && !write->gathers && head->source == INSERT_FORMAT &&
           write->content_encoding == NULL && gather_format_joins(head->format) &&
           write->body_bytes_told <= write->op.coord->config.gather_body_bytes_max &&
           blank(write->query + head->data_begin) && settings_join(write);
}

static bool is_column(void *arg, const char *name, size_t len)
{
    const struct coord_write *write = arg;
    return table_schema_may_name(write->target->table.schema, name, len);
}

static bool body_joins(struct coord_write *write, bool *ret_newline)
{
    const char *format = write->head.format;
    const struct buf *kept = &write->kept;
    return gather_body_joins(format, kept->data, kept->len, ret_newline) &&
           !gather_body_has_header(format, kept->data, kept->len, is_column, write);
}

/* Goes its own way, behind what was gathered for its table. */
static void gather_not(struct coord_write *write)
{
    struct op *op = &write->op;
    if (op->txn->record.gather && !write->gathers &&
        gather_end_before(op->txn, &write->write.target, &write->behind))
        op_retry(op, NULL, GATHER_POLL_MS);
    else
        op_next(op);
}

void write_gather(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    bool newline;
    if (write_gave_up(write))
        return;
    if (op->tries == 1) {
        write->collects = may_gather(write);
        if (write->collects) {
            write->flow(write->arg, true);
            return;
        }
    }
    bool whole = write->collects && write->body_ended;
    write->collects = false;
    if (whole && body_joins(write, &newline)) {
        struct coord_write_params params = {
            .query = write->query,
            .database = write->client_database,
            .skip_views = write->skip_views,
            .settings = write->settings,
            .n_settings = write->n_settings,
        };
        write->item = (struct gather_item){.data = write->kept.data,
                                           .len = write->kept.len,
                                           .newline = newline,
                                           .taken = gather_taken};
        gather_put(op->txn, &params, &write->write.target, &write->item);
    } else {
        gather_not(write);
    }
}
