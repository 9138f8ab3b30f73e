/* SPDX-License-Identifier: Apache-2.0
 *
 * See insert_head.h. One function per piece of the grammar, in its order; each takes tokens from
 * the lexer and returns 0 or has set the error:
 *
 *   [WITH …] INSERT INTO [TABLE] target [( columns )] [SETTINGS …]
 *          { VALUES … | FORMAT x … | [(] SELECT or WITH … [)] }
 */
#include "ch/insert_head.h"

#include "base/mem.h"
#include "ch/insert_lexer.h"
#include "ch/sql.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the text shown in an error. */
#define EXCERPT_BYTES_MAX 24u

const char *const insert_settings_refused[] = {
    /* The answer would come before the rows are in the table, or through another queue. */
    "async_insert*",
    "wait_for_async_insert",
    "wait_end_of_query",
    "buffer_size",
    /* Rows could be dropped as seen before. */
    "insert_deduplication_token",
    "insert_deduplicate",
    "deduplicate_insert*",
    /* Blocks cut by time or by connection; a body's end would not be what ends the INSERT. */
    "input_format_max_block_wait_ms",
    "input_format_connection_handling",
    /* Parts per write are the node's to choose. */
    "max_insert_block_size*",
    "min_insert_block_size_*",
    /* Parts of an open transaction of ClickHouse's own cannot be linked. */
    "implicit_transaction",
    /* The statement would be read by another grammar than the one that was checked here. */
    "dialect",
    /* Any of the above could stand in them, or behind FORMAT X. */
    "profile",
    "compatibility",
    "allow_settings_after_format_in_insert",
    NULL,
};

bool insert_setting_refused(const char *name)
{
    /* A limit would end the query early, and the INSERT would have some of its rows. */
    if (strstr(name, "_overflow_mode"))
        return true;
    for (const char *const *refused = insert_settings_refused; *refused; refused++) {
        size_t len = strlen(*refused);
        bool prefix = (*refused)[len - 1] == '*';
        if (prefix ? strncmp(name, *refused, len - 1) == 0 : strcmp(name, *refused) == 0)
            return true;
    }
    return false;
}

struct parse {
    struct insert_lexer lexer;
    struct insert_head *head;
    struct error *error;
    struct token token;          /* current */
    insert_parameter *parameter; /* or NULL */
    void *parameter_arg;
};

static void advance(struct parse *parse)
{
    parse->token = insert_lexer_next(&parse->lexer);
}

static bool at_word(const struct parse *parse, const char *word)
{
    return token_is_word(&parse->lexer, &parse->token, word);
}

static bool at_char(const struct parse *parse, char c)
{
    return token_is_char(&parse->lexer, &parse->token, c);
}

static int syntax_error(struct parse *parse, const char *expected)
{
    const struct insert_lexer *lexer = &parse->lexer;
    const struct token *token = &parse->token;
    char excerpt[EXCERPT_BYTES_MAX + 1];
    size_t len = lexer->len - token->begin;

    if (lexer->problem)
        return error_set(parse->error, CHXA_E_INVALID_QUERY,
                         "%s at byte %zu of the statement (expected %s)", lexer->problem,
                         token->begin + 1, expected);
    if (token->kind == TOKEN_END)
        return error_set(parse->error, CHXA_E_INVALID_QUERY,
                         "the statement ends where %s is expected", expected);
    if (len > EXCERPT_BYTES_MAX)
        len = EXCERPT_BYTES_MAX;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)lexer->text[token->begin + i];
        excerpt[i] = c < ' ' || c > '~' ? ' ' : (char)c;
    }
    excerpt[len] = '\0';
    return error_set(parse->error, CHXA_E_INVALID_QUERY,
                     "expected %s at byte %zu of the statement, before: %s", expected,
                     token->begin + 1, excerpt);
}

/* Steps from an opening bracket behind its closing one. */
static int skip_brackets(struct parse *parse)
{
    size_t depth = 0;
    do {
        if (parse->token.kind == TOKEN_END || parse->token.kind == TOKEN_ERROR ||
            at_char(parse, ';'))
            return syntax_error(parse, "a closing bracket");
        if (at_char(parse, '(') || at_char(parse, '[') || at_char(parse, '{'))
            depth++;
        if (at_char(parse, ')') || at_char(parse, ']') || at_char(parse, '}'))
            depth--;
        advance(parse);
    } while (depth > 0);
    return 0;
}

/* {name:Identifier}; ends at the closing bracket. */
static int parse_parameter(struct parse *parse, char **ret_value)
{
    size_t begin = parse->token.begin;
    advance(parse);
    char *name = token_name(&parse->lexer, &parse->token);
    if (name)
        advance(parse);
    bool sound = name && at_char(parse, ':');
    advance(parse);
    sound = sound && at_word(parse, "Identifier");
    advance(parse);
    const char *value = sound && at_char(parse, '}') && parse->parameter
                            ? parse->parameter(parse->parameter_arg, name)
                            : NULL;
    int code = 0;
    if (!sound || !at_char(parse, '}'))
        code = error_set(parse->error, CHXA_E_INVALID_QUERY,
                         "expected {name:Identifier} at byte %zu of the statement", begin + 1);
    else if (value == NULL || *value == '\0')
        code = error_set(parse->error, CHXA_E_INVALID_QUERY,
                         "the target is the query parameter %.100s (at byte %zu of the statement), "
                         "which has no value: give it as param_%.100s, or name the table literally",
                         name, begin + 1, name);
    else
        *ret_value = mem_strdup(value);
    free(name);
    return code;
}

/* A name, or where `parameters` is said a query parameter; the current token is its last one. */
static int parse_name_or_parameter(struct parse *parse, const char *expected, bool parameters,
                                   char **ret_name)
{
    if (parameters && at_char(parse, '{'))
        return parse_parameter(parse, ret_name);
    if (parse->token.kind == TOKEN_ERROR)
        return syntax_error(parse, expected);
    char *name = token_name(&parse->lexer, &parse->token);
    if (!name) {
        if (parse->token.kind != TOKEN_QUOTED)
            parse->lexer.problem = NULL;
        return syntax_error(parse, expected);
    }
    *ret_name = name;
    return 0;
}

static int parse_name(struct parse *parse, const char *expected, char **ret_name)
{
    if (at_char(parse, '{'))
        return error_set(parse->error, CHXA_E_INVALID_QUERY,
                         "a query parameter stands where %s is expected (at byte %zu of the "
                         "statement); write it literally",
                         expected, parse->token.begin + 1);
    return parse_name_or_parameter(parse, expected, false, ret_name);
}

/* [TABLE] name[.name] */
static int parse_target(struct parse *parse)
{
    struct insert_head *head = parse->head;

    if (at_word(parse, "TABLE"))
        advance(parse);
    if (at_word(parse, "FUNCTION"))
        return error_set(
            parse->error, CHXA_E_TARGET_UNSUPPORTED,
            "rows for a table function cannot be staged; insert into the table itself");
    head->target_begin = parse->token.begin;
    int code = parse_name_or_parameter(parse, "the name of a table", true, &head->table);
    if (code)
        return code;
    head->target_end = parse->token.end;
    advance(parse);
    if (at_char(parse, '.')) {
        advance(parse);
        head->database = head->table;
        head->table = NULL;
        code = parse_name_or_parameter(parse, "the name of a table", true, &head->table);
        if (code)
            return code;
        head->target_end = parse->token.end;
        advance(parse);
    }
    if (at_char(parse, '.'))
        return syntax_error(parse, "a name of at most two parts: database.table");
    return 0;
}

/* Does the query of an INSERT … SELECT begin at the current token? A bracket before a SELECT opens
 * a query unless it is a list of columns of such names. */
static bool at_query(const struct parse *parse)
{
    if (at_word(parse, "SELECT") || at_word(parse, "WITH"))
        return true;
    struct parse copy = *parse;
    bool bracket = false;
    while (at_char(&copy, '(')) {
        bracket = true;
        advance(&copy);
    }
    if (!bracket || !(at_word(&copy, "SELECT") || at_word(&copy, "WITH") || at_word(&copy, "FROM")))
        return false;
    advance(&copy);
    return !at_char(&copy, ',') && !at_char(&copy, ')') && !at_char(&copy, '.') &&
           copy.token.kind != TOKEN_END && copy.token.kind != TOKEN_ERROR;
}

/* The current token is the name of a setting. */
static int check_setting(struct parse *parse)
{
    char *name = NULL;
    int code = parse_name(parse, "the name of a setting", &name);
    if (code == 0 && insert_setting_refused(name))
        code = error_set(parse->error, CHXA_E_SETTING_REFUSED,
                         "the setting %s is not the client's to choose inside a transaction (at "
                         "byte %zu of the statement)",
                         name, parse->token.begin + 1);
    free(name);
    return code;
}

/* = value, of a setting before the source. Newer servers read a name without it as `= 1`. */
static int parse_setting_value(struct parse *parse)
{
    if (!at_char(parse, '='))
        return 0;
    do
        advance(parse);
    while (at_char(parse, '-') || at_char(parse, '+') || at_char(parse, '.'));
    if (at_char(parse, '[') || at_char(parse, '(') || at_char(parse, '{'))
        return skip_brackets(parse);
    if (parse->token.kind == TOKEN_END || parse->token.kind == TOKEN_ERROR ||
        parse->token.kind == TOKEN_CHAR)
        return syntax_error(parse, "the value of a setting");
    advance(parse);
    return 0;
}

/* SETTINGS name [= value], … before the source. */
static int parse_settings(struct parse *parse)
{
    do {
        advance(parse);
        int code = check_setting(parse);
        if (code)
            return code;
        advance(parse);
        while (at_char(parse, '.')) {
            /* A custom setting: a.b. */
            advance(parse);
            advance(parse);
        }
        code = parse_setting_value(parse);
        if (code)
            return code;
    } while (at_char(parse, ','));
    return 0;
}

/* Behind a `;`: nothing but blanks and comments may follow. */
static int parse_end(struct parse *parse)
{
    while (at_char(parse, ';'))
        advance(parse);
    if (parse->token.kind != TOKEN_END)
        return syntax_error(parse, "the end: one statement at a time");
    return 0;
}

/* FORMAT x; what follows is data. Only `;` right behind the name is not: the servers refuse it, so
 * it is dropped when it is the last thing. */
static int parse_format(struct parse *parse)
{
    struct insert_head *head = parse->head;
    struct insert_lexer *lexer = &parse->lexer;

    advance(parse);
    int code = parse_name(parse, "the name of a format", &head->format);
    if (code)
        return code;
    head->source = INSERT_FORMAT;
    head->data_begin = parse->token.end;
    if (lexer->pos < lexer->len && lexer->text[lexer->pos] == ';') {
        advance(parse);
        code = parse_end(parse);
        if (code)
            return code;
        head->end = head->data_begin;
    }
    return 0;
}

/*
 * VALUES: rows up to the end of the text or beyond. What cannot be read here (a string that goes on
 * in the body) is ClickHouse's to judge; only a second statement is refused.
 */
static int parse_values(struct parse *parse)
{
    parse->head->source = INSERT_VALUES;
    parse->head->data_begin = parse->token.end;
    do
        advance(parse);
    while (parse->token.kind != TOKEN_END && parse->token.kind != TOKEN_ERROR &&
           !at_char(parse, ';'));
    return at_char(parse, ';') ? parse_end(parse) : 0;
}

/* While a query is read. */
struct query_scan {
    size_t depth;          /* of brackets */
    size_t settings_depth; /* of the SETTINGS clause we are in; SIZE_MAX: none */
    bool has_input;        /* input(…) was seen: the rows come in the body */
};

static bool ends_settings(const struct parse *parse)
{
    return at_word(parse, "FORMAT") || at_word(parse, "UNION") || at_word(parse, "INTERSECT") ||
           at_word(parse, "EXCEPT") || at_word(parse, "SELECT");
}

/* Do a name and `=`, or a name that stands alone, follow the current token, as they do in a
 * SETTINGS clause (and not behind a column called settings)? */
static bool setting_follows(const struct parse *parse)
{
    struct parse copy = *parse;
    advance(&copy);
    /* A typographic name is a string to this lexer; check_setting refuses it. */
    if (copy.token.kind != TOKEN_WORD && copy.token.kind != TOKEN_QUOTED &&
        copy.token.kind != TOKEN_STRING)
        return false;
    advance(&copy);
    return at_char(&copy, '=') || at_char(&copy, ',') || at_char(&copy, ')') ||
           at_char(&copy, ';') || copy.token.kind == TOKEN_END || ends_settings(&copy);
}

/* Takes one token of a query; looks for settings at any depth. */
static int scan_query_token(struct parse *parse, struct query_scan *scan)
{
    bool name_next = false;

    if (parse->token.kind == TOKEN_ERROR || parse->token.kind == TOKEN_END || at_char(parse, ';'))
        return syntax_error(parse, scan->depth ? "a closing bracket" : "a query");
    if (at_char(parse, '(') || at_char(parse, '[') || at_char(parse, '{')) {
        scan->depth++;
    } else if (at_char(parse, ')') || at_char(parse, ']') || at_char(parse, '}')) {
        if (scan->depth == 0)
            return syntax_error(parse, "a query with balanced brackets");
        scan->depth--;
        if (scan->settings_depth != SIZE_MAX && scan->depth < scan->settings_depth)
            scan->settings_depth = SIZE_MAX;
    } else if (at_char(parse, ',')) {
        name_next = scan->depth == scan->settings_depth && setting_follows(parse);
    } else if (at_word(parse, "SETTINGS") && setting_follows(parse)) {
        scan->settings_depth = scan->depth;
        name_next = true;
    } else if (at_word(parse, "INPUT")) {
        struct token next = insert_lexer_peek(&parse->lexer);
        scan->has_input = scan->has_input || token_is_char(&parse->lexer, &next, '(');
    } else if (ends_settings(parse)) {
        scan->settings_depth = SIZE_MAX;
    }
    advance(parse);
    return name_next ? check_setting(parse) : 0;
}

/* PARALLEL WITH and a second statement, which newer servers run beside the first. A column of that
 * name may stand before a WITH of its own: GROUP BY parallel WITH TOTALS. */
static bool at_second_statement(const struct parse *parse)
{
    static const char *const modifiers[] = {"TOTALS", "ROLLUP", "CUBE", "FILL", "TIES", NULL};
    if (!at_word(parse, "PARALLEL"))
        return false;
    struct parse copy = *parse;
    advance(&copy);
    if (!at_word(&copy, "WITH"))
        return false;
    advance(&copy);
    for (const char *const *modifier = modifiers; *modifier; modifier++)
        if (at_word(&copy, *modifier))
            return false;
    return true;
}

/* SELECT …: to the end of the text; behind input(…), to FORMAT x. */
static int parse_query(struct parse *parse)
{
    struct query_scan scan = {.settings_depth = SIZE_MAX};

    parse->head->source = INSERT_SELECT;
    parse->head->data_begin = parse->lexer.len;
    while (scan.depth > 0 || (!at_char(parse, ';') && parse->token.kind != TOKEN_END)) {
        if (at_second_statement(parse))
            return syntax_error(parse, "the end: one statement at a time");
        if (scan.depth == 0 && scan.has_input && at_word(parse, "FORMAT"))
            return parse_format(parse);
        int code = scan_query_token(parse, &scan);
        if (code)
            return code;
    }
    return at_char(parse, ';') ? parse_end(parse) : 0;
}

/* WITH … before the INSERT, which newer servers read. */
static int parse_leading_with(struct parse *parse)
{
    struct query_scan scan = {.settings_depth = SIZE_MAX};
    do {
        int code = scan_query_token(parse, &scan);
        if (code)
            return code;
    } while (scan.depth > 0 || !at_word(parse, "INSERT"));
    return 0;
}

static int parse_source(struct parse *parse)
{
    if (at_word(parse, "VALUES"))
        return parse_values(parse);
    if (at_word(parse, "FORMAT"))
        return parse_format(parse);
    if (at_word(parse, "FROM"))
        return syntax_error(parse, "the rows in the body: FROM INFILE is for clickhouse-client");
    if (at_query(parse))
        return parse_query(parse);
    return syntax_error(parse, "FORMAT, VALUES or SELECT");
}

static int parse_insert(struct parse *parse)
{
    advance(parse);
    if (at_word(parse, "WITH")) {
        int code = parse_leading_with(parse);
        if (code)
            return code;
    }
    if (!at_word(parse, "INSERT"))
        return syntax_error(parse, "INSERT");
    advance(parse);
    if (!at_word(parse, "INTO"))
        return syntax_error(parse, "INTO");
    advance(parse);
    int code = parse_target(parse);
    if (code)
        return code;
    if (at_char(parse, '(') && !at_query(parse)) {
        code = skip_brackets(parse);
        if (code)
            return code;
    }
    if (at_word(parse, "PARTITION"))
        return syntax_error(parse, "FORMAT, VALUES or SELECT (PARTITION BY is for functions)");
    if (at_word(parse, "SETTINGS")) {
        code = parse_settings(parse);
        if (code)
            return code;
    }
    return parse_source(parse);
}

int insert_head_parse(const char *text, size_t len, struct insert_head *ret_head,
                      struct error *error)
{
    return insert_head_parse_with(text, len, NULL, NULL, ret_head, error);
}

int insert_head_parse_with(const char *text, size_t len, insert_parameter *parameter, void *arg,
                           struct insert_head *ret_head, struct error *error)
{
    struct insert_head head = {.end = len};
    struct parse parse = {
        .lexer = {.text = text, .len = len},
        .head = &head,
        .error = error,
        .parameter = parameter,
        .parameter_arg = arg,
    };
    int code = parse_insert(&parse);
    if (code) {
        insert_head_clear(&head);
        return code;
    }
    assert(head.table && head.target_begin < head.target_end && head.target_end <= head.data_begin);
    assert(head.data_begin <= len && head.end <= len);
    *ret_head = head;
    return 0;
}

/* The words behind which no other statement can stand, so that they decide at once. */
static bool at_reading(const struct parse *parse)
{
    static const char *const words[] = {"SELECT", "EXPLAIN", "SHOW",  "DESCRIBE",
                                        "DESC",   "EXISTS",  "CHECK", NULL};
    for (const char *const *word = words; *word; word++)
        if (at_word(parse, *word))
            return true;
    return at_char(parse, '(');
}

/* Is the current token one that more text could change? */
static bool is_cut(const struct parse *parse)
{
    const struct insert_lexer *lexer = &parse->lexer;
    const struct token *token = &parse->token;
    if (token->kind == TOKEN_END || token->kind == TOKEN_ERROR || token->end == lexer->len)
        return true; /* a quote or comment that is not closed yet, or nonsense */
    /* the beginning of a blank in UTF-8, perhaps */
    return (unsigned char)lexer->text[token->begin] >= 0x80 && lexer->len - token->begin < 4;
}

/* Behind a WITH, or DDL that another statement may run beside: INSERT INTO is looked for up to the end,
 * for any word before it, SELECT too, may be a name. */
static enum insert_kind find_insert(struct parse *parse, bool whole)
{
    bool inserts = false; /* the last token is INSERT */
    for (;;) {
        advance(parse);
        if (!whole && is_cut(parse))
            return INSERT_KIND_UNDECIDED;
        if (parse->token.kind == TOKEN_ERROR)
            return INSERT_KIND_UNREADABLE;
        if (parse->token.kind == TOKEN_END)
            return INSERT_KIND_OTHER;
        if (inserts && at_word(parse, "INTO"))
            return INSERT_KIND_INSERT;
        inserts = at_word(parse, "INSERT");
    }
}

enum insert_kind insert_head_kind(const char *text, size_t len, bool whole)
{
    struct parse parse = {.lexer = {.text = text, .len = len}};
    advance(&parse);
    if (!whole && is_cut(&parse))
        return INSERT_KIND_UNDECIDED;
    if (at_word(&parse, "INSERT"))
        return INSERT_KIND_INSERT;
    if (parse.token.kind == TOKEN_END || at_reading(&parse))
        return INSERT_KIND_OTHER;
    /* A blank or comment that only some servers know, say. */
    if (parse.token.kind != TOKEN_WORD)
        return INSERT_KIND_UNREADABLE;
    return find_insert(&parse, whole);
}

void insert_head_clear(struct insert_head *head)
{
    if (!head)
        return;
    free(head->database);
    free(head->table);
    free(head->format);
    *head = (struct insert_head){0};
}

size_t insert_head_rows(const char *text, size_t len, const struct insert_head *head)
{
    size_t at = head->data_begin;
    assert(at <= len);
    if (head->source != INSERT_FORMAT)
        return at;
    while (at < len && (text[at] == ' ' || text[at] == '\t' || text[at] == '\f'))
        at++;
    if (at < len && text[at] == '\r')
        at++;
    if (at < len && text[at] == '\n')
        at++;
    return at;
}

void insert_head_rewrite(const char *text, size_t len, const struct insert_head *head,
                         const char *database, const char *table, struct buf *out)
{
    size_t end = head->end < len ? head->end : len;
    assert(head->target_end <= end);
    buf_append(out, text, head->target_begin);
    /* `INSERT INTO"t"` needs no blank before the name; a backtick needs none either. */
    sql_table(out, database, table);
    buf_append(out, text + head->target_end, end - head->target_end);
}
