/* SPDX-License-Identifier: Apache-2.0
 *
 * Convert: a decided commit is blocked because its table was altered after the rows were staged. Its
 * rows are read through a table of the old structure and written, by an INSERT like any other, into
 * a transaction of their own, <xid>:converted; that one is prepared; then one change of the blocked
 * transaction's record says that it stands for those parts. Read the table from top to bottom.
 *
 * What recovery sees after a crash
 *   until "record"   the transaction blocked as before, and perhaps the other one: Initialized, which
 *                    a time-out ends, or Prepared, which the next convert rolls back. Tables of the
 *                    old structure are scratch tables: dropped at start
 *   after "record"   the commit goes on: parts that were converted are attached no more, whatever
 *                    the table is altered to; before Committed is recorded the other transaction is
 *                    committed (resolve.c: commit_follow)
 *
 * The commit itself waits in "quiet" while txn->convert is set, so that nothing is attached of what
 * is being converted.
 */
#include "op/txn.h"

#include "base/log.h"
#include "base/mem.h"
#include "ch/sql.h"
#include "ch/table_schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HOLD_POLL_MS 20u
#define END_WAIT_MS  60000u

struct convert {
    struct op op;
    char *xid, *other; /* the transaction, and the one that its rows go to */
    char *reason;
    const struct chxa_target **targets;
    size_t n_targets, at;
    struct ch_table now;     /* the target at `at`, as it is */
    struct chxa_part *parts; /* of it, shallow; in the end those that are not attached */
    size_t n_parts, next_part;
    uint64_t rows;
    char **table_paths; /* by root: the target's, then the old table's */
    size_t n_paths;
    char *name; /* of the table of the old structure, or NULL */
    char *columns;
    struct coord_write *write;
    uint64_t *numbers; /* of all parts that were converted */
    size_t n_numbers;
    struct error failure; /* code: undo, and tell */
};

static void convert_hold(struct op *op);
static void convert_clean(struct op *op);
static void convert_forget(struct op *op);
static void convert_begin(struct op *op);
static void convert_target(struct op *op);
static void convert_look(struct op *op);
static void convert_create(struct op *op);
static void convert_path(struct op *op);
static void convert_fill(struct op *op);
static void convert_attach(struct op *op);
static void convert_count(struct op *op);
static void convert_write(struct op *op);
static void convert_drop(struct op *op);
static void convert_prepare(struct op *op);
static void convert_record(struct op *op);
static void convert_undo(struct op *op);

static const struct op_step convert_steps[] = {
    {"hold", convert_hold},       /* until the commit sleeps, with its parts in the held area */
    {"clean", convert_clean},     /* roll back what an earlier try has left */
    {"forget", convert_forget},   /* … and its record */
    {"begin", convert_begin},     /* the transaction that the rows go to */
    {"target", convert_target},   /* the next table that does not suit its parts; none: "prepare" */
    {"look", convert_look},       /* which of its parts are held */
    {"create", convert_create},   /* a table of the old structure */
    {"path", convert_path},       /* where that is */
    {"fill", convert_fill},       /* link the parts into its detached/ */
    {"attach", convert_attach},   /* ALTER TABLE … ATTACH PART … */
    {"count", convert_count},     /* it has all rows */
    {"write", convert_write},     /* INSERT INTO the target SELECT … FROM it */
    {"drop", convert_drop},       /* drop it; back to "target" */
    {"prepare", convert_prepare}, /* the other transaction: a promise */
    {"record", convert_record},   /* it stands for these parts: the decision */
    {"undo", convert_undo},       /* failed: roll the other one back; reached by no other way */
};

static void convert_finished(struct op *op, int code);
static void convert_release(struct op *op);

static const struct op_kind convert_kind = {
    "convert",        convert_steps,   sizeof convert_steps / sizeof convert_steps[0],
    convert_finished, convert_release,
};

void convert_start(struct txn *txn, const char *reason)
{
    struct convert *convert = mem_alloc(sizeof *convert);
    convert->xid = mem_strdup(txn_xid(txn));
    convert->other = mem_printf("%s:converted", convert->xid);
    convert->reason = mem_strdup(reason);
    txn->convert = &convert->op;
    op_start(&convert->op, &convert_kind, txn->coord, txn, NULL);
}

/* The first failure counts; what was made is undone. */
static void convert_failed(struct convert *convert, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void convert_failed(struct convert *convert, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *message = mem_vprintf(format, args);
    va_end(args);
    if (convert->failure.code == 0)
        error_set(&convert->failure, CHXA_E_BLOCKED, "cannot be converted: %s", message);
    free(message);
    op_goto(&convert->op, "drop");
}

/* What needs the pool, or begins something anew. True: failed. */
static bool is_stopping(struct convert *convert)
{
    if (!convert->op.coord->stopping)
        return false;
    convert_failed(convert, "the node is stopping");
    return true;
}

/* ---- hold ---- */

static bool commit_sleeps(const struct txn *txn)
{
    const struct op *commit = txn->op;
    const char *step = commit->kind->steps[commit->at].name;
    return op_sleeps(commit) && (strcmp(step, "quiet") == 0 || strcmp(step, "target") == 0);
}

static void convert_hold(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    struct txn *txn = op->txn;
    if (txn->op == NULL || txn->record.state != CHXA_COMMITTING)
        op_end(op, 0); /* it went through meanwhile */
    else if (txn->record.converted_to)
        op_end(op, 0); /* done before */
    else if (strlen(convert->other) > CHXA_XID_BYTES_MAX)
        convert_failed(convert, "the id is too long to make another of it");
    else if (commit_sleeps(txn))
        op_next(op);
    else
        op_retry(op, NULL, HOLD_POLL_MS);
}

/* ---- the other transaction ---- */

static void other_gone(void *arg, const struct coord_reply *reply)
{
    struct convert *convert = arg;
    if (reply->code == 0 && !reply->pending)
        op_next(&convert->op);
    else if (reply->code == CHXA_E_TXN_NOT_FOUND)
        op_next(&convert->op);
    else
        convert_failed(convert, "transaction %s is in the way: %s", convert->other,
                       reply->code ? error_message(reply->error) : "it is being rolled back");
}

static void convert_clean(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    coord_finish(op->coord, convert->other, TXN_ROLLBACK, "converted anew", END_WAIT_MS, other_gone,
                 convert);
    op_sent(op);
}

static void convert_forget(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    coord_forget(op->coord, convert->other, other_gone, convert);
    op_sent(op);
}

static void other_begun(void *arg, const struct coord_reply *reply)
{
    struct convert *convert = arg;
    if (reply->code)
        convert_failed(convert, "%s", error_message(reply->error));
    else
        op_next(&convert->op);
}

static void convert_begin(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (is_stopping(convert))
        return;
    char *meta = mem_printf("{\"converts\": \"%s\"}", convert->xid);
    coord_begin(op->coord, convert->other, &(struct coord_begin){.meta = meta}, other_begun,
                convert);
    op_sent(op);
    free(meta);
}

/* ---- target, look ---- */

static void paths_clear(struct convert *convert)
{
    for (size_t i = 0; convert->table_paths && i < convert->n_paths; i++)
        free(convert->table_paths[i]);
    free(convert->table_paths);
    convert->table_paths = NULL;
}

static void target_clear(struct convert *convert)
{
    paths_clear(convert);
    free(convert->parts);
    free(convert->columns);
    ch_table_clear(&convert->now);
    convert->now = (struct ch_table){0};
    convert->parts = NULL;
    convert->columns = NULL;
    convert->n_parts = convert->next_part = 0;
    convert->rows = 0;
}

static void target_loaded(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct convert *convert = arg;
    struct op *op = &convert->op;
    const struct chxa_target *target = convert->targets[convert->at];
    if (code) {
        convert_failed(convert, "%s", error_message(error));
        return;
    }
    struct error why = {0};
    if (txn_check_schema(op->txn, target, table, &why) == 0) {
        convert->at++; /* its parts can be attached as they are */
        op_goto(op, "target");
        return;
    }
    error_clear(&why);
    convert->now = *table;
    *table = (struct ch_table){0};
    convert->table_paths = table_paths_by_root(&convert->now, target);
    convert->n_paths = target->n_roots;
    for (size_t i = 0; i < convert->n_parts; i++)
        if (convert->table_paths[convert->parts[i].disk] == NULL) {
            convert_failed(convert, "%s.%s is no longer on the disk at %s", target->database,
                           target->table, target->roots[convert->parts[i].disk]);
            return;
        }
    op_next(op);
}

static void convert_target(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (is_stopping(convert))
        return;
    target_clear(convert);
    if (convert->targets == NULL)
        convert->targets = txn_targets(op->txn, &convert->n_targets);
    if (convert->at < convert->n_targets) {
        const struct chxa_target *target = convert->targets[convert->at];
        convert->parts = txn_target_parts(op->txn, target, &convert->n_parts);
        ch_table_load(op->coord->client, &op->coord->caps, target->database, target->table,
                      op->coord->config.clickhouse_timeout_ms, target_loaded, convert);
    } else if (convert->n_numbers == 0) {
        convert_failed(convert, "no table was altered so that its parts do not fit");
    } else {
        op_goto(op, "prepare");
    }
}

/* Keeps those that are not attached, and all of these must be held. */
static void look_work(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    const struct chxa_target *target = convert->targets[convert->at];
    struct part_place *places = mem_array(convert->n_parts, sizeof *places);
    op->work_code =
        part_places_read(convert->xid, convert->parts, convert->n_parts, convert->table_paths,
                         target->roots, target->n_roots, places, &op->work_error);
    size_t n = 0;
    for (size_t i = 0; op->work_code == 0 && i < convert->n_parts; i++) {
        if (places[i].active)
            continue;
        if (!places[i].held)
            op->work_code = error_set(&op->work_error, CHXA_E_BLOCKED, "part %s is not held",
                                      convert->parts[i].name);
        convert->parts[n++] = convert->parts[i];
    }
    for (size_t i = 0; i < convert->n_parts; i++)
        part_place_clear(&places[i]);
    free(places);
    convert->n_parts = n;
}

static void looked(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (op->work_code) {
        convert_failed(convert, "%s", error_message(&op->work_error));
        return;
    }
    if (convert->n_parts == 0) {
        convert->at++;
        op_goto(op, "target");
        return;
    }
    for (size_t i = 0; i < convert->n_parts; i++)
        convert->rows += convert->parts[i].rows;
    op_next(op);
}

static void convert_look(struct op *op)
{
    op_blocking(op, look_work, looked);
}

/* ---- create, path ---- */

/* The structure under which this target's rows were staged; false: they were staged under more than
 * one, or under none that is recorded. */
static const char *staged_schema(const struct txn *txn, const struct chxa_target *target)
{
    const char *schema = NULL;
    for (size_t i = 0; i < txn->record.n_writes; i++) {
        const struct chxa_target *staged = &txn->record.writes[i].target;
        if (staged->schema == NULL || !target_equal(staged, target))
            continue;
        if (schema && strcmp(schema, staged->schema) != 0)
            return NULL;
        schema = staged->schema;
    }
    return schema;
}

/* What the server says of a statement of ours. */
static void ran(void *arg, const struct ch_answer *answer)
{
    struct convert *convert = arg;
    if (answer->code)
        convert_failed(convert, "%s", error_message(answer->error));
    else
        op_next(&convert->op);
}

static void run(struct convert *convert, struct buf *sql, ch_answer_cb *done)
{
    const struct ch_caps *caps = &convert->op.coord->caps;
    bool creates = strncmp(buf_str(sql), "CREATE", 6) == 0;
    struct ch_statement statement = {
        .sql = buf_str(sql),
        .params = creates ? caps->create_params : NULL,
        .n_params = creates ? caps->n_create_params : 0,
        .timeout_ms = convert->op.coord->config.clickhouse_timeout_ms,
    };
    ch_query(convert->op.coord->client, &statement, done, convert);
    op_sent(&convert->op);
    buf_clear(sql);
}

static void convert_create(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (is_stopping(convert))
        return;
    const struct chxa_target *target = convert->targets[convert->at];
    const char *staged = staged_schema(op->txn, target);
    char *name = scratch_pool_name(op->coord->pool), *why = NULL;
    struct buf sql = {0};
    free(convert->name);
    convert->name = name;
    if (staged == NULL) {
        convert_failed(convert, "rows for %s.%s were staged under several structures",
                       target->database, target->table);
    } else if (!table_schema_old_table(staged, &convert->now, op->coord->config.database, name,
                                       &sql, &convert->columns, &why)) {
        convert_failed(convert, "%s.%s: %s", target->database, target->table, why);
        free(why);
    } else {
        run(convert, &sql, ran);
    }
    buf_clear(&sql);
}

static void path_loaded(void *arg, int code, struct error *error, struct ch_table *table)
{
    struct convert *convert = arg;
    const struct chxa_target *target = convert->targets[convert->at];
    if (code) {
        convert_failed(convert, "%s", error_message(error));
        return;
    }
    paths_clear(convert);
    convert->table_paths = table_paths_by_root(table, target);
    for (size_t i = 0; i < convert->n_parts; i++)
        if (convert->table_paths[convert->parts[i].disk] == NULL) {
            convert_failed(convert, "the table of the old structure is not on the disk at %s",
                           target->roots[convert->parts[i].disk]);
            return;
        }
    op_next(&convert->op);
}

static void convert_path(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    ch_table_load(op->coord->client, &op->coord->caps, op->coord->config.database, convert->name,
                  op->coord->config.clickhouse_timeout_ms, path_loaded, convert);
}

/* ---- fill, attach, count ---- */

static void fill_work(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    const struct chxa_target *target = convert->targets[convert->at];
    for (size_t i = 0; op->work_code == 0 && i < convert->n_parts; i++) {
        const struct chxa_part *part = &convert->parts[i];
        op->work_code = held_link_out(target->roots[part->disk], convert->xid, part,
                                      convert->table_paths[part->disk], &op->work_error);
    }
}

static void filled(struct op *op)
{
    if (op->work_code)
        convert_failed((struct convert *)op, "%s", error_message(&op->work_error));
    else
        op_next(op);
}

static void convert_fill(struct op *op)
{
    op_blocking(op, fill_work, filled);
    op_sent(op);
}

static void attached(void *arg, const struct ch_answer *answer)
{
    struct convert *convert = arg;
    if (answer->code == 0 && convert->next_part < convert->n_parts)
        op_goto(&convert->op, "attach");
    else
        ran(arg, answer);
}

static void convert_attach(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    struct buf sql = {0};
    buf_puts(&sql, "ALTER TABLE ");
    sql_table(&sql, op->coord->config.database, convert->name);
    for (size_t n = 0;
         n < op->coord->config.attach_parts_max && convert->next_part < convert->n_parts; n++) {
        buf_puts(&sql, n ? ", ATTACH PART " : " ATTACH PART ");
        sql_string(&sql, convert->parts[convert->next_part++].name);
    }
    run(convert, &sql, attached);
}

static void counted(void *arg, const struct ch_answer *answer)
{
    struct convert *convert = arg;
    if (answer->code == 0 && strtoull(answer->body, NULL, 10) != convert->rows)
        convert_failed(convert, "the old structure reads %s rows of %llu", answer->body,
                       (unsigned long long)convert->rows);
    else
        ran(arg, answer);
}

static void convert_count(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    struct buf sql = {0};
    buf_puts(&sql, "SELECT count() FROM ");
    sql_table(&sql, op->coord->config.database, convert->name);
    buf_puts(&sql, " FORMAT TabSeparated");
    run(convert, &sql, counted);
}

/* ---- write ---- */

static void written(void *arg, const struct coord_reply *reply)
{
    struct convert *convert = arg;
    convert->write = NULL;
    if (reply->code) {
        convert_failed(convert, "%s", error_message(reply->error));
        return;
    }
    convert->numbers = mem_realloc(convert->numbers, (convert->n_numbers + convert->n_parts) *
                                                         sizeof *convert->numbers);
    for (size_t i = 0; i < convert->n_parts; i++)
        convert->numbers[convert->n_numbers++] = convert->parts[i].number;
    op_next(&convert->op);
}

/* There is no body: it is whole as soon as it is wanted. */
static void flow(void *arg, bool want)
{
    struct convert *convert = arg;
    if (want)
        coord_write_end(convert->write);
}

static void convert_write(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (is_stopping(convert))
        return;
    const struct chxa_target *target = convert->targets[convert->at];
    struct buf sql = {0};
    buf_puts(&sql, "INSERT INTO ");
    sql_table(&sql, target->database, target->table);
    buf_printf(&sql, " (%s) SELECT %s FROM ", convert->columns, convert->columns);
    sql_table(&sql, op->coord->config.database, convert->name);
    char *write_id = mem_printf("target-%zu", convert->at);
    struct coord_write_params params = {
        .xid = convert->other,
        .query = buf_str(&sql),
        .write_id = write_id,
        .skip_views = true,
        .flow = flow,
    };
    convert->write = coord_write_start(op->coord, &params, written, convert);
    op_sent(op);
    free(write_id);
    buf_clear(&sql);
}

/* ---- drop ---- */

static void dropped(void *arg, const struct ch_answer *answer)
{
    struct convert *convert = arg;
    if (answer->code)
        log_warn("a table of an old structure could not be dropped", "name=%s error=\"%s\"",
                 convert->name, error_message(answer->error));
    free(convert->name);
    convert->name = NULL;
    convert->at++;
    op_goto(&convert->op, convert->failure.code ? "undo" : "target");
}

static void convert_drop(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (convert->name == NULL) {
        op_goto(op, "undo"); /* failed before there was one */
        return;
    }
    struct buf sql = {0};
    buf_puts(&sql, "DROP TABLE IF EXISTS ");
    sql_table(&sql, op->coord->config.database, convert->name);
    run(convert, &sql, dropped);
}

/* ---- prepare, record ---- */

static void other_prepared(void *arg, const struct coord_reply *reply)
{
    struct convert *convert = arg;
    if (reply->code || reply->pending)
        convert_failed(convert, "preparing %s: %s", convert->other,
                       reply->code ? error_message(reply->error) : "it takes too long");
    else
        op_next(&convert->op);
}

static void convert_prepare(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    coord_finish(op->coord, convert->other, TXN_PREPARE, NULL, END_WAIT_MS, other_prepared,
                 convert);
    op_sent(op);
}

static void record_amend(struct op *op, struct chxa_record *record)
{
    const struct convert *convert = (const struct convert *)op;
    mem_replace(&record->converted_to, convert->other);
    if (convert->reason)
        mem_replace(&record->given_reason, convert->reason);
    struct chxa_record whole = *record;
    whole.writes = op->txn->record.writes;
    whole.n_writes = op->txn->record.n_writes;
    if (chxa_record_set_discarded(&whole, convert->numbers, convert->n_numbers) != 0)
        abort();
    record->discarded = whole.discarded;
    record->n_discarded = whole.n_discarded;
}

static void recorded(struct op *op, int code)
{
    struct convert *convert = (struct convert *)op;
    if (code == 0) {
        log_warn("parts were converted", "xid=%s to=%s parts=%zu reason=\"%s\"", convert->xid,
                 convert->other, convert->n_numbers, convert->reason ? convert->reason : "");
        op->txn->stale = true; /* the commit begins again, with the record as it is now */
        op_end(op, 0);
    } else if (code == CHXA_E_STORE_UNKNOWN) {
        /* It may stand for them already: nothing is undone, and the commit reads the record again. */
        error_set(&convert->failure, code, "recording the conversion: %s", chxa_error_text(code));
        op_end(op, 0);
    } else {
        convert_failed(convert, "recording it: %s", chxa_error_text(code));
    }
}

static void convert_record(struct op *op)
{
    const struct chxa_record *record = &op->txn->record;
    txn_store_amended(op, CHXA_COMMITTING, record->reason, record->blocked, record_amend, recorded);
}

/* ---- undo, the end ---- */

static void undone(void *arg, const struct coord_reply *reply)
{
    struct convert *convert = arg;
    (void)reply; /* what is left is rolled back by the next try, or by its time-out */
    op_next(&convert->op);
}

static void convert_undo(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    if (strlen(convert->other) > CHXA_XID_BYTES_MAX) {
        op_next(op);
        return;
    }
    coord_finish(op->coord, convert->other, TXN_ROLLBACK, "could not be converted", END_WAIT_MS,
                 undone, convert);
    op_sent(op);
}

static void convert_finished(struct op *op, int code)
{
    struct convert *convert = (struct convert *)op;
    struct txn *txn = op->txn;
    (void)code;
    if (convert->failure.code) {
        log_warn("not converted", "xid=%s reason=\"%s\"", convert->xid,
                 error_message(&convert->failure));
        txn_answer_not_converted(txn, &convert->failure);
    }
    txn->convert = NULL;
    if (txn->op)
        op_wake(txn->op);
    txn_pump(txn);
}

static void convert_release(struct op *op)
{
    struct convert *convert = (struct convert *)op;
    target_clear(convert);
    free(convert->targets);
    free(convert->numbers);
    free(convert->name);
    free(convert->xid);
    free(convert->other);
    free(convert->reason);
    error_clear(&convert->failure);
    free(convert);
}
