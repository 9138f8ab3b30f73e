/* SPDX-License-Identifier: Apache-2.0
 *
 * What fsck makes of what it has read: findings, each with what it means and the command that mends
 * it. See fsck.c for the steps.
 */
#include "op/fsck_private.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define RESTART "restart chxad on this node: its recovery removes the folder"

/* ---- findings ---- */

struct coord_finding *fsck_add(struct fsck *fsck, const char *kind, const char *meaning)
{
    if (fsck->n_findings == fsck->findings_max) {
        fsck->truncated = true;
        return NULL;
    }
    size_t n = fsck->n_findings;
    if ((n & (n - 1)) == 0)
        fsck->findings = mem_realloc(fsck->findings, (n ? n * 2 : 1) * sizeof *fsck->findings);
    struct fsck_finding *finding = &fsck->findings[fsck->n_findings++];
    *finding = (struct fsck_finding){0};
    finding->shown =
        (struct coord_finding){.kind = kind, .meaning = meaning, .bytes = -1, .age_ms = -1};
    return &finding->shown;
}

void fsck_findings_clear(struct fsck *fsck)
{
    for (size_t i = 0; i < fsck->n_findings; i++) {
        struct coord_finding *finding = &fsck->findings[i].shown;
        free(finding->xid);
        free(finding->path);
        free(finding->part);
        free(finding->message);
        free(finding->mend);
    }
    free(fsck->findings);
    fsck->findings = NULL;
    fsck->n_findings = 0;
}

/* One about an open transaction: told if its record stays as it is. */
static struct coord_finding *add_about(struct fsck *fsck, const struct chxa_record *record,
                                       const char *kind, const char *meaning)
{
    struct coord_finding *finding = fsck_add(fsck, kind, meaning);
    if (finding == NULL)
        return NULL;
    struct fsck_finding *whole = &fsck->findings[fsck->n_findings - 1];
    whole->recheck = true;
    whole->version = record->version;
    finding->xid = mem_strdup(record->xid);
    return finding;
}

static char *area_path(const struct held_folder *folder)
{
    return mem_printf("%s/chxa/%s%s", folder->root, folder->kind == HELD_SET_ASIDE ? "lost/" : "",
                      folder->name);
}

void fsck_unreadable(struct fsck *fsck, const char *xid)
{
    for (size_t i = 0; i < fsck->n_findings; i++) /* the list's and its folder's are one */
        if (fsck->findings[i].shown.xid && strcmp(fsck->findings[i].shown.xid, xid) == 0)
            return;
    struct coord_finding *finding = fsck_add(
        fsck, "unreadable_record",
        "a stored record of this node cannot be understood: it was changed by hand, damaged, or "
        "written by a newer version. Its transaction cannot be ended, and its rows are held");
    if (finding == NULL)
        return;
    finding->xid = mem_strdup(xid);
    finding->message = mem_printf("the record of %s cannot be read", xid);
    finding->mend = mem_strdup("restore the store's entry, or run the version that wrote it");
}

void fsck_scratch(struct fsck *fsck)
{
    const struct coord *coord = fsck->op.coord;
    for (size_t i = 0; i < fsck->n_scratch; i++) {
        const char *name = fsck->scratch[i];
        if (coord->pool == NULL || scratch_pool_made(coord->pool, name))
            continue;
        struct coord_finding *finding = fsck_add(
            fsck, "scratch_table",
            "a table in the coordinator's database that this process did not make: left over from "
            "an earlier one that could not drop it, or somebody else's. Nothing in it has value");
        if (finding == NULL)
            return;
        finding->path = mem_printf("%s.%s", coord->config.database, name);
        finding->message = mem_printf("stray scratch table %s", name);
        finding->mend = mem_printf("restart chxad on this node, or DROP TABLE `%s`.`%s`",
                                   coord->config.database, name);
    }
}

/* ---- open transactions ---- */

static int by_folder(const void *left, const void *right)
{
    return strcmp(((const struct fsck_folder_of *)left)->name,
                  ((const struct fsck_folder_of *)right)->name);
}

static int by_number(const void *left, const void *right)
{
    uint64_t a = ((const struct fsck_number_of *)left)->number;
    uint64_t b = ((const struct fsck_number_of *)right)->number;
    return (a > b) - (a < b);
}

/* Whose is a folder, whose is a number: looked up often. */
static void make_indexes(struct fsck *fsck)
{
    size_t n_parts = 0;
    for (size_t i = 0; i < fsck->n_records; i++)
        n_parts += chxa_record_parts(&fsck->records[i]);
    fsck->folders_of = mem_array(fsck->n_records, sizeof *fsck->folders_of);
    fsck->numbers_of = mem_array(n_parts, sizeof *fsck->numbers_of);
    for (size_t i = 0; i < fsck->n_records; i++) {
        const struct chxa_record *record = &fsck->records[i];
        char name[HELD_DIR_BYTES_MAX + 1];
        held_dir_name(record->xid, name);
        fsck->folders_of[i] = (struct fsck_folder_of){mem_strdup(name), record};
        for (size_t j = 0; j < record->n_writes; j++)
            for (size_t k = 0; k < record->writes[j].n_parts; k++)
                fsck->numbers_of[fsck->n_numbers++] =
                    (struct fsck_number_of){record->writes[j].parts[k].number, record};
    }
    if (fsck->n_records > 1)
        qsort(fsck->folders_of, fsck->n_records, sizeof *fsck->folders_of, by_folder);
    if (fsck->n_numbers > 1)
        qsort(fsck->numbers_of, fsck->n_numbers, sizeof *fsck->numbers_of, by_number);
}

const struct chxa_record *fsck_record_of_folder(const struct fsck *fsck, const char *name)
{
    struct fsck_folder_of key = {.name = (char *)(uintptr_t)name};
    const struct fsck_folder_of *found =
        fsck->n_records ? bsearch(&key, fsck->folders_of, fsck->n_records, sizeof key, by_folder)
                        : NULL;
    return found ? found->record : NULL;
}

static const struct chxa_record *record_of_number(const struct fsck *fsck, uint64_t number)
{
    struct fsck_number_of key = {.number = number};
    const struct fsck_number_of *found =
        fsck->n_numbers ? bsearch(&key, fsck->numbers_of, fsck->n_numbers, sizeof key, by_number)
                        : NULL;
    return found ? found->record : NULL;
}

/* Folders sorted by root and name. */
static int folder_compare(const void *left, const void *right)
{
    const struct held_folder *a = left, *b = right;
    int order = strcmp(a->root, b->root);
    if (order == 0)
        order = (int)a->kind - (int)b->kind;
    return order ? order : strcmp(a->name, b->name);
}

static const struct held_folder *folder_find(const struct fsck *fsck, const char *root,
                                             const char *xid)
{
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(xid, name);
    /* roots of records are compared by text */
    struct held_folder key = {.kind = HELD_FOLDER, .root = root, .name = name};
    if (fsck->survey.n_folders == 0)
        return NULL;
    return bsearch(&key, fsck->survey.folders, fsck->survey.n_folders, sizeof key, folder_compare);
}

static void add_missing(struct fsck *fsck, const struct chxa_record *record,
                        const struct chxa_write *write, const struct chxa_part *part,
                        bool committing)
{
    struct coord_finding *finding = add_about(
        fsck, record, "missing_part",
        committing
            ? "the commit is decided, and this part is neither held nor detached nor attached: "
              "somebody removed it. The transaction stays Committing"
            : "a staged part is gone from the disk, or is another directory: a prepare will "
              "refuse, "
              "a commit will be blocked");
    if (finding == NULL)
        return;
    char name[HELD_DIR_BYTES_MAX + 1];
    held_dir_name(record->xid, name);
    finding->part = mem_strdup(part->name);
    finding->path = mem_printf("%s/chxa/%s/%llu", write->target.roots[part->disk], name,
                               (unsigned long long)part->number);
    finding->message =
        mem_printf("part %s of %s.%s (%llu rows) is missing", part->name, write->target.database,
                   write->target.table, (unsigned long long)part->rows);
    finding->mend = committing
                        ? mem_printf("put it back, or: chxa resolve %s --discard --reason TEXT; "
                                     "then write its rows again",
                                     record->xid)
                        : mem_printf("put it back, or: chxa rollback %s --reason TEXT; then write "
                                     "its rows again",
                                     record->xid);
}

/* Initialized, Prepared: every part must be held, and nothing marked. */
static void compare_held(struct fsck *fsck, const struct chxa_record *record)
{
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_write *write = &record->writes[i];
        for (size_t j = 0; j < write->n_parts; j++) {
            const struct chxa_part *part = &write->parts[j];
            const struct held_folder *folder =
                folder_find(fsck, write->target.roots[part->disk], record->xid);
            const struct held_item *item = folder ? held_folder_find(folder, part->number) : NULL;
            if (item == NULL || item->inode != part->inode)
                add_missing(fsck, record, write, part, false);
            char *marker = folder ? held_folder_marker(folder, part->number) : NULL;
            if (marker == NULL)
                continue;
            struct coord_finding *finding =
                add_about(fsck, record, "stray_marker",
                          "a part is marked as moved out, but nothing decided to commit it");
            if (finding == NULL) {
                free(marker);
                return;
            }
            char *path = area_path(folder);
            finding->part = mem_strdup(part->name);
            finding->path = mem_printf("%s/%s", path, marker);
            free(marker);
            finding->message = mem_printf("a marker without a decision, for part %s", part->name);
            finding->mend = mem_printf("remove the file, while the transaction is %s",
                                       chxa_state_name(record->state));
            free(path);
        }
    }
}

/* The table's directory on the disk with that root, or NULL. */
static char *table_path(const struct fsck *fsck, const struct chxa_target *target, const char *root)
{
    size_t len = strlen(root);
    for (size_t i = 0; i < fsck->n_tables; i++) {
        const struct fsck_table *table = &fsck->tables[i];
        if (strcmp(table->table, target->table) == 0 &&
            strcmp(table->database, target->database) == 0 &&
            strncmp(table->path, root, len) == 0 && table->path[len] == '/')
            return table->path;
    }
    return NULL;
}

static void compare_write(struct fsck *fsck, const struct chxa_record *record,
                          const struct chxa_write *write)
{
    const struct chxa_target *target = &write->target;
    char **paths = mem_array(target->n_roots, sizeof *paths);
    bool all = true;
    for (size_t i = 0; i < target->n_roots; i++)
        paths[i] = table_path(fsck, target, target->roots[i]);
    for (size_t i = 0; i < write->n_parts; i++)
        all = all && paths[write->parts[i].disk] != NULL;
    struct part_place *places = mem_array(write->n_parts, sizeof *places);
    struct error ignored = {0}; /* the commit itself tells it */
    if (all && part_places_read(record->xid, write->parts, write->n_parts, paths, target->roots,
                                target->n_roots, places, &ignored) == 0)
        for (size_t i = 0; i < write->n_parts; i++) {
            if (part_plan(txn_part_facts(&places[i])) == PART_VANISHED)
                add_missing(fsck, record, write, &write->parts[i], true);
            part_place_clear(&places[i]);
        }
    error_clear(&ignored);
    free(places);
    free(paths);
}

/* Committing, and it says that it cannot go on. */
static void compare_blocked(struct fsck *fsck, const struct chxa_record *record)
{
    struct coord_finding *finding = add_about(fsck, record, "blocked",
                                              "the commit is decided and cannot be finished; it is "
                                              "tried again by itself, and what is not "
                                              "attached is held where nobody touches it");
    if (finding == NULL)
        return;
    finding->message = mem_strdup(record->reason ? record->reason : "blocked");
    finding->mend = mem_printf("mend what the reason names, then: chxa resolve %s --retry. If it "
                               "cannot be mended: chxa resolve %s --convert for a table that was "
                               "altered, else chxa resolve %s --discard --reason TEXT",
                               record->xid, record->xid, record->xid);
    for (size_t i = 0; i < record->n_writes; i++)
        compare_write(fsck, record, &record->writes[i]);
}

/* ---- detached/ ---- */

static void compare_detached(struct fsck *fsck, const struct fsck_detached *part)
{
    const struct fsck_table *table = &fsck->tables[part->table];
    const struct chxa_record *record = record_of_number(fsck, part->number);
    if (record && record->state == CHXA_COMMITTING && !record->blocked)
        return; /* on its way */
    struct coord_finding *finding =
        record ? add_about(fsck, record, "detached_part",
                           "a part of an open transaction lies in its table's detached/, where an "
                           "ATTACH PARTITION of anybody would publish it")
               : fsck_add(fsck, "detached_part",
                          "a part that a coordinator moved out, and no open transaction of this "
                          "node names: of a commit that was given up or whose record was removed, "
                          "or copied here. Its rows are not in the table, as far as can be told");
    if (finding == NULL)
        return;
    finding->part = mem_strdup(part->name);
    finding->path = mem_printf("%s/detached/%s", table->path, part->name);
    finding->message =
        mem_printf("%s in detached/ of %s.%s", part->name, table->database, table->table);
    finding->mend =
        record ? mem_printf("chxa resolve %s --retry", record->xid)
               : mem_printf("look at its rows; then move the folder away, or ALTER TABLE `%s`.`%s` "
                            "DROP DETACHED PART '%s' SETTINGS allow_drop_detached = 1",
                            table->database, table->table, part->name);
}

/* ---- the held area ---- */

/* A part that no write names, when no write can be under way any more. */
static void compare_folder(struct fsck *fsck, const struct held_folder *folder)
{
    const struct chxa_record *record = fsck_record_of_folder(fsck, folder->name);
    if (record == NULL || (record->state != CHXA_PREPARED && record->state != CHXA_COMMITTING))
        return;
    for (size_t i = 0; i < folder->n_items; i++) {
        if (folder->items[i].inode == 0 ||
            record_of_number(fsck, folder->items[i].number) == record)
            continue;
        struct coord_finding *finding =
            add_about(fsck, record, "unnamed_part",
                      "rows of a write that failed before it was recorded; harmless, and removed "
                      "with the transaction's end");
        if (finding == NULL)
            return;
        char *path = area_path(folder);
        finding->path = mem_printf("%s/%llu", path, (unsigned long long)folder->items[i].number);
        finding->message = mem_strdup("a held part that no write of its transaction names");
        finding->mend = mem_strdup("nothing needs to be done");
        free(path);
    }
}

static void tell_set_aside(struct fsck *fsck, const struct held_folder *folder)
{
    struct coord_finding *finding =
        fsck_add(fsck, "set_aside",
                 "rows that an operator gave up or converted, or whose record the store has lost; "
                 "nothing attaches them any more");
    if (finding == NULL)
        return;
    size_t n_parts = 0;
    for (size_t i = 0; i < folder->n_items; i++)
        n_parts += folder->items[i].inode != 0;
    int64_t age_ms = clock_wall_ms() - folder->modified_ms;
    finding->path = area_path(folder);
    finding->bytes = (int64_t)folder->bytes;
    finding->age_ms = age_ms > 0 ? age_ms : 0;
    finding->message =
        mem_printf("%zu parts set aside, %llu bytes", n_parts, (unsigned long long)folder->bytes);
    finding->mend = mem_printf("when nobody needs the rows: DELETE /v1/lost?name=%s", folder->name);
}

static void tell_strange(struct fsck *fsck, const struct held_folder *folder)
{
    struct coord_finding *finding =
        fsck_add(fsck, "strange_entry", "not made by a coordinator, which never touches it");
    if (finding == NULL)
        return;
    finding->path = area_path(folder);
    finding->message = mem_strdup("something in the held area that is no transaction's folder");
    finding->mend = mem_strdup("move it away");
}

void fsck_unknown_folder(struct fsck *fsck, const struct held_folder *folder)
{
    struct coord_finding *finding =
        fsck_add(fsck, "unknown_folder",
                 "a held folder of no open transaction, whose id is too long to be read from the "
                 "name, so that its record cannot be asked for");
    if (finding == NULL)
        return;
    finding->path = area_path(folder);
    finding->message = mem_strdup("a held folder of an unknown transaction");
    finding->mend = mem_strdup("find the id in the client's log; if that transaction is finished, "
                               "move the folder away");
}

static bool names_number(const struct chxa_record *record, uint64_t number)
{
    for (size_t i = 0; i < record->n_writes; i++)
        for (size_t j = 0; j < record->writes[i].n_parts; j++)
            if (record->writes[i].parts[j].number == number)
                return true;
    return false;
}

static void tell_finished(struct fsck *fsck, const struct held_folder *folder,
                          const struct chxa_record *record)
{
    bool given_up = record->abandoned_by || record->n_discarded;
    bool committed = record->state == CHXA_COMMITTED && !given_up, parts = false;
    for (size_t i = 0; i < folder->n_items; i++)
        parts = parts || (folder->items[i].inode && names_number(record, folder->items[i].number));
    struct coord_finding *finding = fsck_add(
        fsck, "finished_folder",
        committed && parts
            ? "hazard: a committed transaction still holds parts that are recorded as published"
            : "left over from a transaction that has ended; nothing in it will be published");
    if (finding == NULL)
        return;
    finding->xid = mem_strdup(record->xid);
    finding->path = area_path(folder);
    finding->message = mem_printf("the folder of a transaction that is %s%s",
                                  chxa_state_name(record->state), parts ? ", with parts" : "");
    finding->mend = committed && parts
                        ? mem_strdup("compare the table with the rows of these parts before you "
                                     "move the folder away")
                        : mem_strdup(given_up ? "restart chxad on this node: it sets the folder "
                                                "aside, in lost/"
                                              : RESTART);
}

void fsck_judge_folder(struct fsck *fsck, const struct held_folder *folder,
                       const struct store_result *result)
{
    const char *xid = folder->name + 2;
    if (result->code == CHXA_E_INVALID_RECORD) {
        fsck_unreadable(fsck, xid);
        return;
    }
    const struct chxa_record *record = result->record;
    bool finished = record && chxa_state_kind(record->state) == CHXA_KIND_FINAL;
    if (finished) {
        tell_finished(fsck, folder, record);
        return;
    }
    if (record && strcmp(record->owner, fsck->op.coord->config.node) == 0)
        return; /* begun meanwhile */
    struct coord_finding *finding =
        record ? fsck_add(fsck, "foreign_folder",
                          "held parts of a transaction that another node owns: this disk was that "
                          "node's, or is a copy")
               : fsck_add(fsck, "orphan_folder",
                          "no record names it: its record was removed, or the store has lost it");
    if (finding == NULL)
        return;
    finding->xid = mem_strdup(xid);
    finding->path = area_path(folder);
    finding->message = record ? mem_printf("the folder of a transaction of node %s", record->owner)
                              : mem_strdup("a held folder without a record");
    finding->mend = record ? mem_strdup("do not start chxad here under another name; give that "
                                        "node its disk")
                           : mem_strdup(RESTART);
}

/* ---- all of it ---- */

void fsck_find_work(struct fsck *fsck)
{
    make_indexes(fsck);
    if (fsck->survey.n_folders > 1)
        qsort(fsck->survey.folders, fsck->survey.n_folders, sizeof *fsck->survey.folders,
              folder_compare);
    for (size_t i = 0; i < fsck->n_records; i++) {
        const struct chxa_record *record = &fsck->records[i];
        if (record->state == CHXA_INITIALIZED || record->state == CHXA_PREPARED)
            compare_held(fsck, record);
        else if (record->state == CHXA_COMMITTING && record->blocked)
            compare_blocked(fsck, record);
    }
    for (size_t i = 0; i < fsck->n_detached; i++)
        compare_detached(fsck, &fsck->detached[i]);
    for (size_t i = 0; i < fsck->survey.n_folders; i++) {
        const struct held_folder *folder = &fsck->survey.folders[i];
        if (folder->kind == HELD_FOLDER)
            compare_folder(fsck, folder);
        else if (folder->kind == HELD_SET_ASIDE)
            tell_set_aside(fsck, folder);
        else
            tell_strange(fsck, folder);
    }
    struct coord_finding *finding =
        fsck->clickhouse_away
            ? fsck_add(fsck, "not_looked_at",
                       "ClickHouse does not answer: its tables' detached/ and the scratch tables "
                       "were not looked at")
            : NULL;
    if (finding) {
        finding->message = mem_strdup(fsck->clickhouse_away);
        finding->mend = mem_strdup("start ClickHouse, and ask again");
    }
}
