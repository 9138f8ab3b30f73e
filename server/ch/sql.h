/* SPDX-License-Identifier: Apache-2.0
 *
 * SQL text: the only place that quotes. Pure; any thread. Accepts any bytes without NUL.
 */
#ifndef CHXA_CH_SQL_H
#define CHXA_CH_SQL_H

#include "base/buf.h"

/* Appends `name` in backticks, with backslash and backtick escaped the way both reference engines
 * read. */
void sql_identifier(struct buf *out, const char *name);
/* Appends 'text' in single quotes, escaped. */
void sql_string(struct buf *out, const char *text);
/* Appends `db`.`table`. */
void sql_table(struct buf *out, const char *database, const char *table);
/* Undoes TSV/TSVRaw escaping of one field in place (\t \n \\ \' \0 …); returns the new length. */
size_t sql_tsv_unescape(char *field);

/* The statement's first word in lower case, of those that this program says: "select", "insert",
 * "alter", …; "other" for others. Constant text, for the metrics. */
const char *sql_verb(const char *sql);

#endif
