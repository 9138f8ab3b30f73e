/* SPDX-License-Identifier: Apache-2.0
 *
 * The head of an INSERT: a real lexer over the statement text, so that only the target is rewritten
 * and every other byte stays. Pure; any thread. Accepts arbitrary bytes (length given); never reads
 * past it.
 *
 * Understood: [WITH …] INSERT INTO [TABLE] [db.]table [(columns, * EXCEPT …)] [SETTINGS …]
 * followed by FORMAT X, VALUES, or SELECT/WITH … (in brackets or not); any line breaks, comments
 * (two dashes, `# `, `#!`, slash-star), three kinds of quotes with doubled and backslash escapes,
 * heredocs, no space before a bracket. What ClickHouse servers would read differently (a comment
 * inside a comment, odd escapes in a name) is refused.
 *
 * After `FORMAT X` comes data, whatever it looks like: for statements given in the URL there is
 * normally none. When text is only the first part of a body (the head and some of its data), a
 * result is final only if data_begin < len: else read more first (`FORMAT JS|ONEachRow`). An
 * INSERT_SELECT needs the whole text. The same holds for errors: a prefix may fail where the whole
 * would not, so keep reading up to the configured limit before giving up.
 */
#ifndef CHXA_CH_INSERT_HEAD_H
#define CHXA_CH_INSERT_HEAD_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum insert_source {
    INSERT_FORMAT, /* FORMAT X, also SELECT … FROM input(…) FORMAT X; data follows in the body */
    INSERT_VALUES, /* VALUES; data follows behind the keyword or in the body */
    INSERT_SELECT, /* SELECT or WITH: no body */
};

struct insert_head {
    char *database;      /* unquoted; NULL: not given */
    char *table;         /* unquoted */
    size_t target_begin; /* byte range of `[db.]table` in the text */
    size_t target_end;
    enum insert_source source;
    char *format;      /* for INSERT_FORMAT, as written; else NULL */
    size_t data_begin; /* offset behind FORMAT X or VALUES (one newline or spaces after FORMAT's
                          name are not skipped); the text's length for INSERT_SELECT */
    size_t end;        /* of the statement: len, or before a lone `;` right behind FORMAT X, which
                          servers would refuse */
};

/* Values of query parameters, for a target that is named by them: {db:Identifier}.{table:Identifier}.
 * NULL: there is none of that name. The value lives as long as arg. */
typedef const char *insert_parameter(void *arg, const char *name);

/*
 * Parses text[0..len). Errors: CHXA_E_INVALID_QUERY (not an INSERT, syntax, trailing statement
 * after `;`), CHXA_E_TARGET_UNSUPPORTED (INSERT INTO FUNCTION …), CHXA_E_SETTING_REFUSED (a
 * SETTINGS clause with one of insert_setting_refused); *error names the place. On success *ret_head
 * is for insert_head_clear.
 */
int insert_head_parse(const char *text, size_t len, struct insert_head *ret_head,
                      struct error *error);
/* The same; a parameter in the target is replaced by its value (insert_head_rewrite puts the real
 * table there in any case). */
int insert_head_parse_with(const char *text, size_t len, insert_parameter *parameter, void *arg,
                           struct insert_head *ret_head, struct error *error);

enum insert_kind {
    INSERT_KIND_UNDECIDED,  /* the text is too short to tell */
    INSERT_KIND_INSERT,     /* begins as an INSERT does, behind a WITH too */
    INSERT_KIND_OTHER,      /* any other statement, or none */
    INSERT_KIND_UNREADABLE, /* no statement as far as this lexer can tell; a server may see one */
};
/* What a text whose beginning this is would be. Never undecided when whole is said. INSERT, too, for what
 * has an INSERT INTO where a server may see a statement of its own; insert_head_parse refuses it. */
enum insert_kind insert_head_kind(const char *text, size_t len, bool whole);
void insert_head_clear(struct insert_head *head);

/* Appends the statement up to head->end (or len: head->data_begin gives the head alone) with its
 * target replaced by `database`.`table`, quoted. */
void insert_head_rewrite(const char *text, size_t len, const struct insert_head *head,
                         const char *database, const char *table, struct buf *out);

/* Where the rows begin when they follow in the same text: as ClickHouse does it, behind FORMAT X
 * and blanks, and behind one line end if there is one; behind VALUES at once. ClickHouse puts a
 * line end between the statement in the URL and the body, so to split a text send [0, data_begin)
 * in the URL and [rows, len) as the body. Final only when it is < len or the text is whole. */
size_t insert_head_rows(const char *text, size_t len, const struct insert_head *head);

/* Settings that a client may not set on a staged INSERT, in SETTINGS or in the URL (wire facts 7).
 * NULL-terminated; a name ending in * is a prefix. Besides these, every …_overflow_mode. */
extern const char *const insert_settings_refused[];
bool insert_setting_refused(const char *name);

#endif
