/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that fits the terminal. The first column is an id: it is never cut, because people copy it; where it is too
 * long it takes a line of its own. Other columns are left out from the least important on, and cut with an ellipsis.
 * A long list is printed page by page: the first page decides the layout.
 */
#ifndef CHXA_TOOL_TABLE_H
#define CHXA_TOOL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS_MAX 12u

struct table_column {
    const char *title;
    bool right;       /* numbers */
    unsigned rank;    /* 0: always there; the highest is left out first */
    size_t width_max; /* 0: as wide as its cells */
};

struct table_row {
    char *cells[TABLE_COLUMNS_MAX]; /* harmless text, owned; NULL is "" */
    const char *colour;             /* an SGR number such as "31", or NULL */
    char *notes[3];                 /* lines below the row, "label: text", owned; or NULL */
};

struct table {
    const struct table_column *columns;
    size_t n_columns;
    struct table_row *rows; /* of this page */
    size_t n_rows;
    bool is_laid_out;                 /* widths are decided, and the head is printed */
    size_t widths[TABLE_COLUMNS_MAX]; /* 0: left out */
};

void table_init(struct table *table, const struct table_column *columns, size_t n_columns);
/* A new, empty row; valid until the next call. */
struct table_row *table_add(struct table *table);
/* Prints the rows and forgets them. width 0: no limit. Nothing is printed while there was no row. */
void table_flush(struct table *table, FILE *file, unsigned width, bool colour);

#endif
