/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that fits the terminal.
 */
#include "table.h"

#include "text.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

#define GAP         2u  /* columns between columns */
#define ID_MIN      12u /* narrower than this an id column makes no sense */
#define NOTE_INDENT "    "

void table_init(struct table *table, const struct table_column *columns, size_t n_columns)
{
    *table = (struct table){.columns = columns, .n_columns = n_columns};
}

struct table_row *table_add(struct table *table)
{
    table->rows = tool_realloc(table->rows, (table->n_rows + 1) * sizeof *table->rows);
    struct table_row *row = &table->rows[table->n_rows++];
    *row = (struct table_row){0};
    return row;
}

/* ---- layout ---- */

static size_t natural_width(const struct table *table, size_t column)
{
    size_t width = text_width(table->columns[column].title);
    for (size_t i = 0; i < table->n_rows; i++) {
        const char *cell = table->rows[i].cells[column];
        size_t cell_width = cell ? text_width(cell) : 0;
        width = cell_width > width ? cell_width : width;
    }
    size_t max = table->columns[column].width_max;
    return max && width > max ? max : width;
}

static size_t total_width(const struct table *table)
{
    size_t total = 0;
    for (size_t i = 0; i < table->n_columns; i++)
        total += table->widths[i] ? table->widths[i] + (i ? GAP : 0) : 0;
    return total;
}

/* The id column gives way down to a third of the line; then whole columns go. */
static void fit(struct table *table, size_t width)
{
    size_t id_least = width / 3 > ID_MIN ? width / 3 : ID_MIN;
    while (total_width(table) > width) {
        size_t over = total_width(table) - width;
        size_t spare = table->widths[0] > id_least ? table->widths[0] - id_least : 0;
        if (spare >= over) {
            table->widths[0] -= over;
            return;
        }
        size_t victim = 0;
        for (size_t i = 1; i < table->n_columns; i++)
            if (table->widths[i] && table->columns[i].rank &&
                (victim == 0 || table->columns[i].rank > table->columns[victim].rank))
                victim = i;
        if (victim == 0) {
            table->widths[0] -= spare;
            return;
        }
        table->widths[victim] = 0;
    }
}

/* A column in which no cell of the first page has anything is left out too. */
static bool has_cells(const struct table *table, size_t column)
{
    for (size_t i = 0; i < table->n_rows; i++)
        if (table->rows[i].cells[column] && *table->rows[i].cells[column])
            return true;
    return false;
}

/* ---- printing ---- */

static void put_cell(const struct table *table, size_t column, const char *cell, bool is_last,
                     FILE *file)
{
    size_t room = table->widths[column], width = text_width(cell);
    size_t bytes = strlen(cell);
    bool is_cut = width > room;
    if (is_cut) {
        bytes = text_fit(cell, room - 1);
        width = room;
    }
    if (column > 0)
        fprintf(file, "%*s", (int)GAP, "");
    if (table->columns[column].right)
        fprintf(file, "%*s", (int)(room - width), "");
    fwrite(cell, 1, bytes, file);
    if (is_cut)
        fputs("…", file);
    if (!table->columns[column].right && !is_last)
        fprintf(file, "%*s", (int)(room - width), "");
}

static void put_cells(const struct table *table, char *const *cells, FILE *file)
{
    size_t last = 0;
    for (size_t i = 0; i < table->n_columns; i++)
        if (table->widths[i] && cells[i] && *cells[i])
            last = i;
    const char *id = cells[0] ? cells[0] : "";
    if (text_width(id) > table->widths[0]) {
        fprintf(file, "%s\n", id);
        id = "";
    }
    for (size_t i = 0; i <= last; i++)
        if (table->widths[i])
            put_cell(table, i, i == 0 ? id : cells[i] ? cells[i] : "", i == last, file);
}

static void put_head(const struct table *table, FILE *file, bool colour)
{
    char *titles[TABLE_COLUMNS_MAX];
    for (size_t i = 0; i < table->n_columns; i++)
        titles[i] = tool_strdup(table->columns[i].title);
    fputs(colour ? "\033[1m" : "", file);
    put_cells(table, titles, file);
    fputs(colour ? "\033[0m\n" : "\n", file);
    for (size_t i = 0; i < table->n_columns; i++)
        free(titles[i]);
}

static void put_note(const char *note, FILE *file, unsigned width)
{
    size_t label = strcspn(note, " ");
    label += strspn(note + label, " ");
    char *head = tool_printf("%s%.*s", NOTE_INDENT, (int)label, note);
    text_wrap(file, head, note + label, width);
    free(head);
}

static void put_row(const struct table *table, struct table_row *row, FILE *file, unsigned width,
                    bool colour)
{
    bool has_colour = colour && row->colour;
    if (has_colour)
        fprintf(file, "\033[%sm", row->colour);
    put_cells(table, row->cells, file);
    fputs(has_colour ? "\033[0m\n" : "\n", file);
    for (size_t i = 0; i < sizeof row->notes / sizeof row->notes[0]; i++)
        if (row->notes[i])
            put_note(row->notes[i], file, width);
}

static void clear_row(struct table_row *row)
{
    for (size_t i = 0; i < TABLE_COLUMNS_MAX; i++)
        free(row->cells[i]);
    for (size_t i = 0; i < sizeof row->notes / sizeof row->notes[0]; i++)
        free(row->notes[i]);
}

void table_flush(struct table *table, FILE *file, unsigned width, bool colour)
{
    if (table->n_rows > 0 && !table->is_laid_out) {
        for (size_t i = 0; i < table->n_columns; i++)
            table->widths[i] = i == 0 || has_cells(table, i) ? natural_width(table, i) : 0;
        if (width > 0)
            fit(table, width);
        table->is_laid_out = true;
        put_head(table, file, colour);
    }
    for (size_t i = 0; i < table->n_rows; i++) {
        put_row(table, &table->rows[i], file, width, colour);
        clear_row(&table->rows[i]);
    }
    free(table->rows);
    table->rows = NULL;
    table->n_rows = 0;
}
