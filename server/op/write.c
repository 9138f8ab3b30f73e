/* SPDX-License-Identifier: Apache-2.0
 *
 * Write: one INSERT inside an Initialized transaction, all of it or nothing. Read the table from
 * top to bottom.
 *
 * What recovery sees after a crash
 *   until "link"    rows in a scratch table only, which is dropped at start
 *   link to record  a held part that no record names: removed with the transaction's folder
 *   after record    the write, whole
 *
 * In a transaction with `gather` a small body is collected, and joined with others (gather.h); what is too long
 * for that, or cannot be joined, goes its own way from "scratch" on, behind what was gathered for the same table.
 *
 * The client's body flows through: coord_write_data hands it to the upload, and `flow` holds the
 * client back while the upload's buffer is full. Whether the body was whole is for us to know:
 * ClickHouse answers 200 to a truncated one.
 */
#include "op/write_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "ch/sql.h"
#include "store/store_settle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void write_admit(struct op *op);
static void write_compare(struct op *op);
static void write_target(struct op *op);
static void write_scratch(struct op *op);
static void write_insert(struct op *op);
static void write_link(struct op *op);
static void write_record(struct op *op);

static const struct op_step write_steps[] = {
    {"admit", write_admit},     /* the transaction is ours and open, the write_id is new */
    {"compare", write_compare}, /* (a known write_id: read the body, is it the same?) */
    {"target", write_target},   /* what the target is, once per transaction and table */
    {"gather", write_gather},   /* (a small one, if the transaction gathers: join it with others) */
    {"scratch", write_scratch}, /* borrow an empty copy of it */
    {"insert", write_insert},   /* stream the body into it */
    {"link", write_link},       /* hard-link the new parts into the held area */
    {"record", write_record},   /* one entry in the store: from here on the write exists */
};

static void write_finished(struct op *op, int code);
static void write_release(struct op *op);

static const struct op_kind write_kind = {
    "write", write_steps, sizeof write_steps / sizeof write_steps[0], write_finished, write_release,
};

/* ---- called by the HTTP layer ---- */

struct coord_write *coord_write_start(struct coord *coord, const struct coord_write_params *params,
                                      coord_cb *done, void *arg)
{
    struct coord_write *write = mem_alloc(sizeof *write);
    write->done = done;
    write->arg = arg;
    write->flow = params->flow;
    write->xid = mem_strdup(params->xid);
    write->query = mem_strdup(params->query);
    write->write_id = params->write_id ? mem_strdup(params->write_id) : coord_op_id(coord);
    write->client_database = mem_strdup(params->database);
    write->content_encoding = mem_strdup(params->content_encoding);
    write->body_bytes_told = params->body_bytes;
    write->skip_views = params->skip_views;
    write->gathers = params->gathers;
    write->settings = mem_array(params->n_settings, sizeof *write->settings);
    for (size_t i = 0; i < params->n_settings; i++)
        write->settings[write->n_settings++] = (struct ch_param){
            mem_strdup(params->settings[i].name), mem_strdup(params->settings[i].value)};
    write->hash = hash_new_fingerprint(NULL);
    op_start(&write->op, &write_kind, coord, NULL, NULL);
    return write;
}

static void hold_back(struct coord_write *write, bool hold)
{
    if (write->held_back == hold)
        return;
    write->held_back = hold;
    write->flow(write->arg, !hold);
}

/* The step that waits for the body goes on, on a later turn. */
static void go_on(struct coord_write *write)
{
    op_retry(&write->op, NULL, 0);
}

void coord_write_data(struct coord_write *write, const void *data, size_t len)
{
    if (write->abort.code || write->op.over)
        return;
    hash_update(write->hash, data, len);
    write->write.body_bytes += len;
    if (write->collects || (write->kept.len && write->upload == NULL)) {
        if (!write_keep(write, data, len) && write->collects) {
            write->collects = false;
            hold_back(write, true);
            go_on(write);
        }
        return;
    }
    if (write->replaying || write->upload == NULL)
        return;
    if (write->head.source == INSERT_SELECT) {
        coord_write_abort(write, CHXA_E_INVALID_REQUEST);
        return;
    }
    if (!ch_upload_write(write->upload, data, len))
        hold_back(write, true);
}

void coord_write_end(struct coord_write *write)
{
    if (write->abort.code || write->op.over)
        return;
    write->body_ended = true;
    if (write->replaying || write->collects)
        go_on(write);
    else if (write->upload)
        ch_upload_end(write->upload);
}

static void abort_because(struct coord_write *write, int code, const char *why)
{
    if (write->abort.code || write->body_ended || write->op.over)
        return;
    error_set(&write->abort, code, "%s", why);
    if (write->upload)
        ch_request_cancel(write->upload);
    else if (write->replaying || write->collects)
        go_on(write);
}

void coord_write_abort(struct coord_write *write, int code)
{
    abort_because(write, code,
                  code == CHXA_E_INVALID_REQUEST ? "an INSERT … SELECT takes no body"
                                                 : chxa_error_text(code));
}

void coord_write_fail(struct coord_write *write, int code, const char *message)
{
    abort_because(write, code, message);
}

void write_cancel_all(struct txn *txn)
{
    struct coord_write *write;
    TAILQ_FOREACH (write, &txn->writes, link)
        abort_because(write, CHXA_E_WRONG_STATE, "the transaction is being rolled back");
}

bool write_gave_up(struct coord_write *write)
{
    if (write->abort.code == 0)
        return false;
    error_move(&write->op.error, &write->abort);
    write->abort.code = write->op.error.code;
    op_end(&write->op, write->op.error.code);
    return true;
}

/* ---- admit ---- */

static const struct chxa_write *find_write(const struct txn *txn, const char *write_id)
{
    for (size_t i = txn->record.n_writes; i > 0; i--)
        if (strcmp(txn->record.writes[i - 1].write_id, write_id) == 0)
            return &txn->record.writes[i - 1];
    return NULL;
}

/* A write that was answered before: recorded, or gathered. */
struct known {
    const char *query_hash, *body_hash; /* NULL: it is not known */
};

static struct known find_known(const struct txn *txn, const char *write_id)
{
    const struct chxa_write *write = find_write(txn, write_id);
    const struct gather_known *gathered = write ? NULL : gather_find(txn, write_id);
    if (write)
        return (struct known){write->query_hash, write->body_hash};
    if (gathered)
        return (struct known){gathered->query_hash, gathered->body_hash};
    return (struct known){NULL, NULL};
}

static bool write_id_in_flight(const struct txn *txn, const char *write_id)
{
    const struct coord_write *other;
    TAILQ_FOREACH (other, &txn->writes, link)
        if (strcmp(other->write_id, write_id) == 0)
            return true;
    return false;
}

/* The transaction is in memory and loaded. */
static void admit(struct coord_write *write, struct txn *txn)
{
    struct op *op = &write->op;
    struct coord *coord = op->coord;
    struct txn_cell cell = txn_next(txn->record.state, TXN_WRITE);
    if (coord->stopping) {
        op_fail(op, CHXA_E_NOT_READY, "the node is stopping");
    } else if (!txn_is_ours(txn) && chxa_state_kind(txn->record.state) != CHXA_KIND_FINAL) {
        op_fail(op, CHXA_E_NOT_OWNER, "transaction %s is owned by node %s at %s: write there",
                write->xid, txn->record.owner, txn->record.owner_url);
    } else if (cell.verdict != TXN_GO) {
        op_fail(op, cell.error, "write is not possible: transaction %s is %s", write->xid,
                chxa_state_name(txn->record.state));
    } else if (txn->op && !(write->gathers && prepare_runs(txn))) {
        op_fail(op, CHXA_E_WRONG_STATE, "write is not possible: %s of transaction %s has begun",
                txn->op->kind->name, write->xid);
    } else if (gather_check(txn, &op->error)) {
        op_end(op, op->error.code);
    } else if (txn->stale) {
        /* A record of ours has an unknown outcome: until it is read again, nobody knows which write
         * ids are taken. */
        op_fail(op, CHXA_E_STORE_UNAVAILABLE, "transaction %s is being read again; try again",
                write->xid);
    } else if (write_id_in_flight(txn, write->write_id)) {
        op_fail(op, CHXA_E_BUSY, "write %s is still running; try again", write->write_id);
    } else if (txn->record.n_writes + txn->n_gathered + txn->writes_in_flight >=
                   coord->config.writes_per_transaction_max &&
               !write->gathers && !find_known(txn, write->write_id).body_hash) {
        op_fail(op, CHXA_E_TOO_MANY_PARTS,
                "transaction %s has %zu writes already (writes_per_transaction_max)", write->xid,
                txn->record.n_writes + txn->n_gathered);
    } else {
        op->txn = txn;
        txn->writes_in_flight++;
        txn->touched_ms = clock_monotonic_ms();
        TAILQ_INSERT_TAIL(&txn->writes, write, link);
        /* Here, so that a statement that cannot be read is answered with the transaction too. */
        if (insert_head_parse(write->query, strlen(write->query), &write->head, &op->error) != 0)
            op_end(op, op->error.code);
        else
            op_next(op);
    }
}

static void admit_loaded(void *arg, const struct coord_reply *reply)
{
    struct coord_write *write = arg;
    struct op *op = &write->op;
    struct txn *txn = txn_find(op->coord, write->xid);
    if (write_gave_up(write))
        return;
    if (reply->code || txn == NULL)
        op_fail(op, reply->code ? reply->code : CHXA_E_TXN_NOT_FOUND, "%s",
                reply->error ? error_message(reply->error) : "no such transaction");
    else
        admit(write, txn);
}

static void write_admit(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    if (write_gave_up(write))
        return;
    struct txn *txn = txn_find(op->coord, write->xid);
    if (txn && txn->loaded && !txn->loading && !txn->stale && txn->record.state != CHXA_UNKNOWN)
        admit(write, txn);
    else
        coord_get(op->coord, write->xid, admit_loaded, write);
}

/* ---- compare ---- */

_Static_assert(HASH_FINGERPRINT_BYTES == CHXA_BODY_HASH_BYTES_MAX,
               "a body's fingerprint is what a record has room for");

static void compare_body(struct coord_write *write)
{
    struct op *op = &write->op;
    char body_hash[HASH_FINGERPRINT_BYTES + 1];
    hash_final_fingerprint(write->hash, body_hash);
    write->hash = NULL;
    struct known known = find_known(op->txn, write->write_id);
    assert(known.body_hash != NULL);
    if (strcmp(known.body_hash, body_hash) != 0)
        op_fail(op, CHXA_E_WRITE_ID_REUSED, "write_id %s was used with another body",
                write->write_id);
    else
        op_end(op, 0);
}

static void name_target(struct coord_write *write)
{
    const char *database = write->head.database     ? write->head.database
                           : write->client_database ? write->client_database
                                                    : write->op.coord->default_database;
    write->write.target.database = mem_strdup(database);
    write->write.target.table = mem_strdup(write->head.table);
}

static void write_compare(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    if (write_gave_up(write))
        return;
    if (write->replaying) {
        compare_body(write);
        return;
    }
    hash_of(write->query, strlen(write->query), write->write.query_hash);
    struct known known = find_known(op->txn, write->write_id);
    if (known.body_hash == NULL) {
        name_target(write);
        op_next(op);
    } else if (strcmp(known.query_hash, write->write.query_hash) != 0) {
        op_fail(op, CHXA_E_WRITE_ID_REUSED, "write_id %s was used with another statement",
                write->write_id);
    } else {
        write->replaying = true;
        hash_free(write->hash);
        write->hash = hash_new_fingerprint(known.body_hash);
        write->flow(write->arg, true);
    }
}

/* ---- target ---- */

struct txn_target *txn_find_target(struct txn *txn, const struct chxa_target *named)
{
    struct txn_target *target;
    TAILQ_FOREACH (target, &txn->targets, link)
        if (strcmp(target->table.database, named->database) == 0 &&
            strcmp(target->table.table, named->table) == 0)
            return target;
    return NULL;
}

static char *join_views(const struct ch_table *table)
{
    struct buf names = {0};
    for (size_t i = 0; i < table->n_views; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", table->views[i]);
    return buf_take(&names);
}

static void use_target(struct coord_write *write, struct txn_target *target)
{
    struct op *op = &write->op;
    const struct ch_table *table = &target->table;
    if (table->n_views && !write->skip_views) {
        char *views = join_views(table);
        op_fail(op, CHXA_E_TARGET_HAS_VIEWS,
                "%s.%s feeds materialized views (%s), and a commit does not fire them: write with "
                "views=skip to "
                "leave them out, or insert into the views' targets in the same transaction",
                table->database, table->table, views);
        free(views);
        return;
    }
    write->target = target;
    target->no_views = target->no_views || !write->skip_views;
    struct chxa_target *recorded = &write->write.target;
    recorded->roots = mem_array(table->n_disks, sizeof *recorded->roots);
    for (size_t i = 0; i < table->n_disks; i++)
        recorded->roots[recorded->n_roots++] = mem_strdup(table->disks[i].root);
    op_next(op);
}

static void target_loaded(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct coord_write *write = arg;
    struct op *op = &write->op;
    if (write_gave_up(write))
        return;
    if (code == CHXA_E_CLICKHOUSE_UNKNOWN) /* a question: nothing happened */
        op_fail(op, CHXA_E_CLICKHOUSE_UNAVAILABLE, "%s", error_message(error));
    else if (code) {
        error_move(&op->error, error);
        op_end(op, code);
    } else {
        struct txn_target *target = txn_find_target(op->txn, &write->write.target);
        if (target == NULL) {
            target = mem_alloc(sizeof *target);
            target->table = *table;
            *table = (struct ch_table){0};
            TAILQ_INSERT_TAIL(&op->txn->targets, target, link);
        }
        use_target(write, target);
    }
}

static void write_target(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    if (write_gave_up(write))
        return;
    if (strcmp(write->write.target.database, op->coord->config.database) == 0) {
        /* Parts that appear in a scratch table are taken for those of the write that has it. */
        op_fail(op, CHXA_E_TARGET_UNSUPPORTED,
                "%s is the coordinator's own database: nothing can be written into its tables",
                op->coord->config.database);
        return;
    }
    struct txn_target *known = txn_find_target(op->txn, &write->write.target);
    if (known) {
        use_target(write, known);
        return;
    }
    table_cache_load(op->coord->tables, &op->coord->caps, TABLE_VIEWS, write->write.target.database,
                     write->write.target.table, op->coord->config.clickhouse_timeout_ms,
                     target_loaded, write);
}

/* ---- scratch ---- */

static void scratch_lent(void *arg, int code, struct error *error, struct scratch *scratch)
{
    struct coord_write *write = arg;
    if (code) {
        error_move(&write->op.error, error);
        op_end(&write->op, code);
        return;
    }
    write->scratch = scratch;
    op_next(&write->op);
}

static void write_scratch(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    if (!write_gave_up(write))
        scratch_acquire(op->coord->pool, &write->target->table, scratch_lent, write);
}

/* ---- insert ---- */

static void upload_drained(void *arg)
{
    hold_back(arg, false);
}

/* X-ClickHouse-Summary of newer servers: {"read_rows":"2",…,"written_rows":"2",…}. */
static void take_summary(struct coord_write *write, const char *summary)
{
    static const char key[] = "\"written_rows\":\"";
    const char *at = strstr(summary, key);
    write->rows_told = at != NULL;
    write->rows_written = at ? strtoull(at + sizeof key - 1, NULL, 10) : 0;
}

static void inserted(void *arg, const struct ch_answer *answer)
{
    struct coord_write *write = arg;
    struct op *op = &write->op;
    write->upload = NULL;
    take_summary(write, answer->summary);
    write->retire = answer->code != 0 && answer->code != CHXA_E_CLICKHOUSE_REJECTED &&
                    answer->code != CHXA_E_CLICKHOUSE_UNAVAILABLE;
    if (write_gave_up(write))
        return;
    if (answer->code == CHXA_E_CLICKHOUSE_UNKNOWN) {
        /* The rows may be in the scratch table, which is retired: for the client nothing has
         * happened. */
        op_fail(op, CHXA_E_CLICKHOUSE_UNAVAILABLE, "%s", error_message(answer->error));
    } else if (answer->code) {
        error_move(&op->error, answer->error);
        op_end(op, answer->code);
    } else if (!write->body_ended) {
        /* ClickHouse is content before the client has finished: the rest of the body would be lost.
         */
        op_fail(op, CHXA_E_CLICKHOUSE_REJECTED, "ClickHouse answered before the body's end");
    } else {
        op_next(op);
    }
}

/* Whatever the server's profiles say, an INSERT that is staged must be done when it is answered. */
static const struct ch_param forced[] = {
    {"async_insert", "0"},
};

static void write_insert(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    if (write_gave_up(write))
        return;
    struct buf sql = {0};
    insert_head_rewrite(write->query, strlen(write->query), &write->head, write->scratch->database,
                        write->scratch->name, &sql);
    write->query_id = coord_query_id(op->coord, write->xid, "write");
    size_t n_forced = op->coord->caps.has_insert_settings ? sizeof forced / sizeof forced[0] : 0;
    struct ch_param *params = mem_array(write->n_settings + n_forced + 1, sizeof *params);
    size_t n = 0;
    for (size_t i = 0; i < write->n_settings; i++)
        params[n++] = write->settings[i];
    for (size_t i = 0; i < n_forced; i++)
        params[n++] = forced[i];
    if (write->client_database)
        params[n++] = (struct ch_param){"database", write->client_database};
    struct ch_statement statement = {
        .sql = buf_str(&sql),
        .query_id = write->query_id,
        .params = params,
        .n_params = n,
        .timeout_ms = op->coord->config.clickhouse_timeout_ms,
    };
    write->upload = ch_upload(op->coord->client, &statement, write->content_encoding,
                              upload_drained, inserted, write);
    op_sent(op);
    free(params);
    buf_clear(&sql);
    write->held_back = !ch_upload_takes(write->upload);
    if (write->kept.len) {
        ch_upload_write(write->upload, write->kept.data, write->kept.len);
        write_drop_kept(write);
    }
    if (write->body_ended)
        ch_upload_end(write->upload);
    else if (!write->held_back)
        write->flow(write->arg, true);
}

/* ---- link ---- */

static void unlink_parts(struct coord_write *write)
{
    struct error ignored = {0};
    for (size_t i = 0; i < write->write.n_parts; i++) {
        const struct chxa_part *part = &write->write.parts[i];
        if (part->name)
            held_remove_part(write->xid, write->write.target.roots[part->disk], part->number,
                             &ignored);
    }
    error_clear(&ignored);
}

static int link_parts(struct coord_write *write, const struct part_list *fresh, struct error *error)
{
    const struct coord *coord = write->op.coord;
    const struct scratch *scratch = write->scratch;
    if (fresh->n_entries > coord->config.parts_per_transaction_max)
        return error_set(error, CHXA_E_TOO_MANY_PARTS,
                         "the INSERT made %zu parts (parts_per_transaction_max)", fresh->n_entries);
    write->write.parts = mem_array(fresh->n_entries, sizeof *write->write.parts);
    for (size_t i = 0; i < fresh->n_entries; i++) {
        const struct part_entry *entry = &fresh->entries[i];
        struct chxa_part *part = &write->write.parts[write->write.n_parts];
        int code = part_link(scratch->paths[entry->disk], entry->name, scratch->old_syntax,
                             write->write.target.roots[entry->disk], entry->disk, write->xid,
                             coord_number(write->op.coord), part, error);
        if (code)
            return code;
        if (part->name == NULL)
            continue;
        write->write.n_parts++;
        write->write.rows += part->rows;
        write->write.bytes += part->bytes;
    }
    return 0;
}

static int tampered(const struct coord_write *write, const char *what, struct error *error)
{
    return error_set(error, CHXA_E_IO_FAILED,
                     "somebody else %s the scratch table %s.%s during the write; nothing of it was "
                     "kept: try again",
                     what, write->scratch->database, write->scratch->name);
}

/* What was linked is the whole INSERT: its parts are all still there, and so are their rows. */
static int check_linked(const struct coord_write *write, const struct part_list *fresh,
                        struct error *error)
{
    const struct scratch *scratch = write->scratch;
    int code = 0;
    if (!part_list_stands(fresh, scratch->paths, scratch->n_paths))
        code = tampered(write, "emptied", error);
    /* The other engines may make fewer rows of those that came. */
    bool exact = strcmp(write->target->table.engine, "MergeTree") == 0 && write->rows_told;
    if (code == 0 && exact && write->write.rows != write->rows_written)
        code = tampered(write, "changed", error);
    return code;
}

/* On a worker thread: touches only this write and its own scratch table's directories. */
static void link_work(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    const struct scratch *scratch = write->scratch;
    struct part_list *after = &write->listed, fresh = {0};
    op->work_code = part_list_read_on(&scratch->before, scratch->paths, scratch->n_paths,
                                      scratch->old_syntax, after, &op->work_error);
    if (op->work_code == 0) {
        part_list_new(&scratch->before, after, scratch->old_syntax, &fresh);
        if (part_list_overlaps(&scratch->before, &fresh, scratch->old_syntax))
            op->work_code = tampered(write, "merged parts of", &op->work_error);
        if (op->work_code == 0)
            op->work_code = link_parts(write, &fresh, &op->work_error);
        if (op->work_code == 0)
            op->work_code = check_linked(write, &fresh, &op->work_error);
        if (op->work_code)
            unlink_parts(write);
    }
    part_list_clear(&fresh);
}

static void write_linked(struct op *op)
{
    if (op->work_code) {
        ((struct coord_write *)op)->retire = true; /* it may be somebody's doing: not lent again */
        error_move(&op->error, &op->work_error);
        op_end(op, op->work_code);
        return;
    }
    op_next(op);
}

static void write_link(struct op *op)
{
    op_blocking(op, link_work, write_linked);
    op_sent(op);
}

/* ---- record ---- */

static void unlink_work(struct op *op)
{
    unlink_parts((struct coord_write *)op);
}

static void unlinked(struct op *op)
{
    op_end(op, op->error.code);
}

static void write_recorded(void *arg, const struct store_result *result)
{
    struct coord_write *write = arg;
    struct op *op = &write->op;
    if (result->code == 0) {
        write->target->recorded = true;
        op_next(op);
        return;
    }
    error_set(&op->error, result->code, "recording the write: %s", chxa_error_text(result->code));
    if (result->code == CHXA_E_STORE_UNKNOWN || result->code == CHXA_E_STORE_CONFLICT)
        op->txn->stale = true;
    if (result->code == CHXA_E_STORE_UNKNOWN)
        op_end(op, result->code); /* the parts stay: the record may name them */
    else
        op_blocking(op, unlink_work, unlinked);
}

static void write_record(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    struct chxa_write *entry = &write->write;
    size_t parts = chxa_record_parts(&op->txn->record) + entry->n_parts;
    if (parts > op->coord->config.parts_per_transaction_max) {
        error_set(&op->error, CHXA_E_TOO_MANY_PARTS,
                  "transaction %s would have %zu parts (parts_per_transaction_max)", write->xid,
                  parts);
        op_blocking(op, unlink_work, unlinked);
        return;
    }
    if (!write->target->recorded)
        entry->target.schema = mem_strdup(write->target->table.schema);
    entry->write_id = mem_strdup(write->write_id);
    entry->seq = ++op->txn->last_seq;
    entry->time_ms = clock_wall_ms();
    hash_final_fingerprint(write->hash, entry->body_hash);
    write->hash = NULL;
    struct store_fence fence;
    store_settle_add_write(
        op->coord->store, write->xid, op->txn->record.version, txn_fence(op->txn, &fence), entry,
        clock_monotonic_ms() + op->coord->config.store_timeout_ms, write_recorded, write);
    op_sent(op);
}

/* ---- the end ---- */

static void give_scratch_back(struct coord_write *write)
{
    if (write->scratch == NULL)
        return;
    if (write->retire)
        scratch_retire(write->op.coord->pool, write->scratch, write->query_id);
    else
        scratch_release(write->op.coord->pool, write->scratch,
                        write->listed.n_entries ? &write->listed : NULL);
    write->scratch = NULL;
}

static void log_failure(const struct coord_write *write, int code)
{
    const struct op *op = &write->op;
    if (write->gathers && write->abort.code)
        return; /* a rollback ends what gathers: no client's write failed */
    log_warn("write failed", "xid=%s write_id=%s step=%s code=%s error=\"%s\"", write->xid,
             write->write_id, op->kind->steps[op->at].name, chxa_error_name(code),
             error_message(&op->error));
    metrics_error(code);
}

static void reply_what(const struct coord_write *write, struct coord_reply *reply)
{
    const struct txn *txn = write->op.txn;
    reply->write = find_write(txn, write->write_id);
    const struct gather_known *known = reply->write ? NULL : gather_find(txn, write->write_id);
    if (known) {
        reply->gathered = known->write_id;
        reply->body_bytes = known->body_bytes;
    }
}

static void write_finished(struct op *op, int code)
{
    struct coord_write *write = (struct coord_write *)op;
    struct txn *txn = op->txn;
    struct coord_reply reply = {.code = code, .error = &op->error, .replay = write->replaying};
    give_scratch_back(write);
    if (txn) {
        TAILQ_REMOVE(&txn->writes, write, link);
        txn->writes_in_flight--;
        txn->touched_ms = clock_monotonic_ms();
        reply.record = &txn->record;
    } else { /* it was not admitted */
        const struct txn *known = txn_find(op->coord, write->xid);
        if (known && known->loaded && known->record.state != CHXA_UNKNOWN)
            reply.record = &known->record;
    }
    if (code) {
        log_failure(write, code);
    } else {
        if (!write->replaying && !write->gathered) {
            metrics_write(write->write.rows, write->write.bytes, write->write.body_bytes);
            txn_add_write(txn, &write->write);
        }
        reply_what(write, &reply);
    }
    write->done(write->arg, &reply);
    if (txn && txn->op && txn->writes_in_flight == 0)
        op_wake(txn->op); /* it waited for this */
    if (txn)
        txn_pump(txn);
    op->txn = NULL;
}

static void write_release(struct op *op)
{
    struct coord_write *write = (struct coord_write *)op;
    for (size_t i = 0; i < write->n_settings; i++) {
        mem_free_text(write->settings[i].name);
        mem_free_text(write->settings[i].value);
    }
    free(write->settings);
    write_drop_kept(write);
    part_list_clear(&write->listed);
    chxa_write_clear(&write->write);
    insert_head_clear(&write->head);
    hash_free(write->hash);
    error_clear(&write->abort);
    free(write->xid);
    free(write->query);
    free(write->query_id);
    free(write->write_id);
    free(write->client_database);
    free(write->content_encoding);
    free(write);
}
