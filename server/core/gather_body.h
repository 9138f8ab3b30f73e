/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bodies of INSERTs may be put one behind the other, so that ClickHouse reads the same rows of them together as
 * it would one by one. Pure; any thread.
 *
 * The rule is by format, and errs towards "no" where one body could run on into the next (an open quote, a backslash at
 * the end, a JSON array, which ends the reading), or a server treats the first or last line of an INSERT in a way of
 * its own. Native is not among them: an empty block ends the reading, and only a reader of all types finds it. What
 * only a reader of the rows could tell is the client's to keep: a body is whole rows, and in RowBinary nothing says
 * where a cut one ends.
 */
#ifndef CHXA_CORE_GATHER_BODY_H
#define CHXA_CORE_GATHER_BODY_H

#include <stdbool.h>
#include <stddef.h>

/* True when bodies of this format can be joined at all: format as written after FORMAT. */
bool gather_format_joins(const char *format);
/* False: under this setting bodies may be read otherwise together than one by one. */
bool gather_setting_joins(const char *name);
/* The same of what a statement's SETTINGS may name. */
bool gather_statement_joins(const char *query);
/*
 * The same of this body, whole. *ret_newline: it lacks the newline that must stand between it and the next one.
 * An empty one, or one of white space, is joined with nothing.
 */
bool gather_body_joins(const char *format, const char *data, size_t len, bool *ret_newline);

/* name: not terminated. */
typedef bool gather_is_column(void *arg, const char *name, size_t len);
/* True when every field of the first line is a column's name: newer servers take that for a header, at the beginning of
 * an INSERT only. */
bool gather_body_has_header(const char *format, const char *data, size_t len,
                            gather_is_column *is_column, void *arg);

#endif
