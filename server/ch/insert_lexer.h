/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of ClickHouse's SQL, as far as the head of an INSERT needs them. Pure; any thread. Accepts
 * arbitrary bytes and never reads past len; linear time.
 *
 * Blanks and comments are skipped. A comment inside a comment is an error: the newest servers nest
 * them, 18.16 does not, and a text that two servers read differently must not pass.
 */
#ifndef CHXA_CH_INSERT_LEXER_H
#define CHXA_CH_INSERT_LEXER_H

#include <stdbool.h>
#include <stddef.h>

enum token_kind {
    TOKEN_END,
    TOKEN_WORD,   /* bare word or keyword */
    TOKEN_NUMBER, /* begins with a digit; also names like 2024_events */
    TOKEN_QUOTED, /* name in backticks or double quotes */
    TOKEN_STRING, /* '…', $tag$…$tag$, typographic quotes */
    TOKEN_CHAR,   /* any other single byte */
    TOKEN_ERROR,  /* lexer.problem says what; the lexer stays there */
};

struct token {
    enum token_kind kind;
    size_t begin, end;
};

struct insert_lexer {
    const char *text;
    size_t len;
    size_t pos;
    const char *problem;
    size_t heredoc_misses;
};

struct token insert_lexer_next(struct insert_lexer *lexer);
/* The token that comes next, without taking it. */
struct token insert_lexer_peek(const struct insert_lexer *lexer);

/* ASCII without regard to case. */
bool token_is_word(const struct insert_lexer *lexer, const struct token *token, const char *word);
bool token_is_char(const struct insert_lexer *lexer, const struct token *token, char c);
/* The name that a WORD, a QUOTED or a NUMBER with letters stands for, for the caller to free; NULL
 * with lexer->problem set when it is none, is empty, or holds a NUL or an escape that servers read
 * differently. */
char *token_name(struct insert_lexer *lexer, const struct token *token);

#endif
