/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_lexer.h.
 */
#include "ch/insert_lexer.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Every `$` that opens no heredoc costs a look through the rest of the text. */
#define HEREDOC_MISSES_MAX 100u

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

static bool starts_with(const struct insert_lexer *lexer, size_t pos, const char *prefix)
{
    size_t len = strlen(prefix);
    return lexer->len - pos >= len && memcmp(lexer->text + pos, prefix, len) == 0;
}

/* Offset behind the next occurrence of what, or len when there is none. */
static size_t find_behind(const struct insert_lexer *lexer, size_t pos, const char *what,
                          size_t what_len, bool *ret_found)
{
    const char *at = memmem(lexer->text + pos, lexer->len - pos, what, what_len);
    *ret_found = at != NULL;
    return at ? (size_t)(at - lexer->text) + what_len : lexer->len;
}

/* Length of the blank at pos: ASCII white space, no-break space, byte order mark; 0: none. */
static size_t blank_length(const struct insert_lexer *lexer, size_t pos)
{
    if (pos < lexer->len && lexer->text[pos] && strchr(" \t\n\r\f\v", lexer->text[pos]))
        return 1;
    if (starts_with(lexer, pos, "\xC2\xA0"))
        return 2;
    return starts_with(lexer, pos, "\xEF\xBB\xBF") ? 3 : 0;
}

static bool skip_block_comment(struct insert_lexer *lexer)
{
    for (size_t pos = lexer->pos + 2; pos + 1 < lexer->len; pos++) {
        if (starts_with(lexer, pos, "*/")) {
            lexer->pos = pos + 2;
            return true;
        }
        if (starts_with(lexer, pos, "/*")) {
            lexer->problem =
                "a comment inside a comment, which ClickHouse servers read differently";
            lexer->pos = pos;
            return false;
        }
    }
    lexer->problem = "a comment that does not end";
    return false;
}

/* False: lexer->problem. */
static bool skip_blanks(struct insert_lexer *lexer)
{
    bool found;
    while (lexer->pos < lexer->len) {
        size_t blank = blank_length(lexer, lexer->pos);
        if (blank) {
            lexer->pos += blank;
        } else if (starts_with(lexer, lexer->pos, "--") || starts_with(lexer, lexer->pos, "//") ||
                   starts_with(lexer, lexer->pos, "# ") || starts_with(lexer, lexer->pos, "#!")) {
            lexer->pos = find_behind(lexer, lexer->pos, "\n", 1, &found);
        } else if (starts_with(lexer, lexer->pos, "/*")) {
            if (!skip_block_comment(lexer))
                return false;
        } else {
            break;
        }
    }
    return true;
}

static struct token take(struct insert_lexer *lexer, enum token_kind kind, size_t end)
{
    struct token token = {kind, lexer->pos, end};
    lexer->pos = end;
    return token;
}

static struct token fail(struct insert_lexer *lexer, const char *problem)
{
    lexer->problem = problem;
    return (struct token){TOKEN_ERROR, lexer->pos, lexer->pos};
}

static struct token take_quoted(struct insert_lexer *lexer, enum token_kind kind)
{
    char quote = lexer->text[lexer->pos];
    for (size_t pos = lexer->pos + 1; pos < lexer->len; pos++) {
        char c = lexer->text[pos];
        if (c == '\\') {
            pos++;
        } else if (c == quote) {
            if (pos + 1 < lexer->len && lexer->text[pos + 1] == quote)
                pos++;
            else
                return take(lexer, kind, pos + 1);
        }
    }
    return fail(lexer, "a quote that does not end");
}

static struct token take_word(struct insert_lexer *lexer)
{
    size_t end = lexer->pos + 1;
    while (end < lexer->len && (is_word_char(lexer->text[end]) || lexer->text[end] == '$'))
        end++;
    return take(lexer, TOKEN_WORD, end);
}

/* `$tag$…$tag$`, where ClickHouse lets the tag be anything; else a word that begins with `$`. */
static struct token take_dollar(struct insert_lexer *lexer)
{
    bool found;
    size_t begin = lexer->pos;
    size_t tag_end = find_behind(lexer, begin + 1, "$", 1, &found);
    if (found) {
        if (lexer->heredoc_misses >= HEREDOC_MISSES_MAX)
            return fail(lexer, "too many dollar signs");
        size_t end = find_behind(lexer, tag_end, lexer->text + begin, tag_end - begin, &found);
        if (found)
            return take(lexer, TOKEN_STRING, end);
        lexer->heredoc_misses++;
    }
    if (begin + 1 < lexer->len && is_word_char(lexer->text[begin + 1]))
        return take_word(lexer);
    return take(lexer, TOKEN_CHAR, begin + 1);
}

static struct token take_number(struct insert_lexer *lexer)
{
    size_t end = lexer->pos;
    bool digits = true;
    for (; end < lexer->len; end++) {
        char c = lexer->text[end];
        bool fraction =
            c == '.' && digits && end + 1 < lexer->len && is_digit(lexer->text[end + 1]);
        bool exponent = (c == '+' || c == '-') && (lexer->text[end - 1] | 32) == 'e' &&
                        end + 1 < lexer->len && is_digit(lexer->text[end + 1]);
        if (!is_word_char(c) && !fraction && !exponent)
            break;
        digits = digits && is_digit(c);
    }
    return take(lexer, TOKEN_NUMBER, end);
}

/* Typographic quotes: ‘string’ and “name”, read by the newest servers only; no escapes. */
static struct token take_typographic(struct insert_lexer *lexer, const char *closing)
{
    bool found;
    size_t end = find_behind(lexer, lexer->pos + 3, closing, 3, &found);
    return found ? take(lexer, TOKEN_STRING, end) : fail(lexer, "a quote that does not end");
}

struct token insert_lexer_next(struct insert_lexer *lexer)
{
    if (lexer->problem || !skip_blanks(lexer))
        return (struct token){TOKEN_ERROR, lexer->pos, lexer->pos};
    if (lexer->pos == lexer->len)
        return (struct token){TOKEN_END, lexer->pos, lexer->pos};

    char c = lexer->text[lexer->pos];
    if (c == '\'')
        return take_quoted(lexer, TOKEN_STRING);
    if (c == '`' || c == '"')
        return take_quoted(lexer, TOKEN_QUOTED);
    if (c == '$')
        return take_dollar(lexer);
    if (is_digit(c))
        return take_number(lexer);
    if (is_word_char(c))
        return take_word(lexer);
    if (starts_with(lexer, lexer->pos, "\xE2\x80\x98"))
        return take_typographic(lexer, "\xE2\x80\x99");
    if (starts_with(lexer, lexer->pos, "\xE2\x80\x9C"))
        return take_typographic(lexer, "\xE2\x80\x9D");
    return take(lexer, TOKEN_CHAR, lexer->pos + 1);
}

struct token insert_lexer_peek(const struct insert_lexer *lexer)
{
    struct insert_lexer copy = *lexer;
    return insert_lexer_next(&copy);
}

bool token_is_word(const struct insert_lexer *lexer, const struct token *token, const char *word)
{
    size_t len = strlen(word);
    return token->kind == TOKEN_WORD && token->end - token->begin == len &&
           strncasecmp(lexer->text + token->begin, word, len) == 0;
}

bool token_is_char(const struct insert_lexer *lexer, const struct token *token, char c)
{
    return token->kind == TOKEN_CHAR && lexer->text[token->begin] == c;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    char lower = (char)(c | 32);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Reads the escape behind a backslash at *pos and steps over it; 0: none that all servers read
 * alike, or a NUL. */
static char unescape(const char *text, size_t end, size_t *pos)
{
    static const char letters[] = "abfnrtve\\'\"`";
    static const char values[] = "\a\b\f\n\r\t\v\033\\'\"`";
    char c = *pos < end ? text[(*pos)++] : '\0';
    if (c == 'x' && end - *pos >= 2) {
        int high = hex_value(text[*pos]);
        int low = hex_value(text[*pos + 1]);
        *pos += 2;
        return high >= 0 && low >= 0 ? (char)(high * 16 + low) : '\0';
    }
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? values[at - letters] : '\0';
}

static char *unquote(struct insert_lexer *lexer, const struct token *token)
{
    char quote = lexer->text[token->begin];
    size_t end = token->end - 1;
    char *name = mem_alloc(token->end - token->begin);
    size_t len = 0;

    for (size_t pos = token->begin + 1; pos < end;) {
        char c = lexer->text[pos++];
        if (c == '\\')
            c = unescape(lexer->text, end, &pos);
        else if (c == quote)
            pos++; /* doubled */
        if (c == '\0') {
            lexer->problem = "a name with a NUL or an escape that ClickHouse servers read "
                             "differently";
            free(name);
            return NULL;
        }
        name[len++] = c;
    }
    return name;
}

char *token_name(struct insert_lexer *lexer, const struct token *token)
{
    const char *begin = lexer->text + token->begin;
    size_t len = token->end - token->begin;

    if (token->kind == TOKEN_QUOTED) {
        if (len > 2)
            return unquote(lexer, token);
        lexer->problem = "an empty name";
        return NULL;
    }
    bool letters = token->kind == TOKEN_WORD;
    bool named = letters || token->kind == TOKEN_NUMBER;
    for (size_t i = 0; i < len && token->kind == TOKEN_NUMBER; i++) {
        letters = letters || !is_digit(begin[i]);
        named = named && is_word_char(begin[i]);
    }
    if (named && letters)
        return mem_strndup(begin, len);
    lexer->problem = "not a name";
    return NULL;
}
