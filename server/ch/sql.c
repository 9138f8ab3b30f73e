/* SPDX-License-Identifier: Apache-2.0
 *
 * See sql.h. Both reference engines read backslash escapes inside backticks and single quotes.
 */
#include "ch/sql.h"

#include "base/hex.h"

#include <string.h>
#include <strings.h>

static void append_quoted(struct buf *out, const char *text, char quote)
{
    const char special[] = {quote, '\\', '\0'};

    buf_append(out, &quote, 1);
    while (*text) {
        size_t plain = strcspn(text, special);
        buf_append(out, text, plain);
        text += plain;
        if (*text) {
            const char escaped[] = {'\\', *text++};
            buf_append(out, escaped, sizeof escaped);
        }
    }
    buf_append(out, &quote, 1);
}

void sql_identifier(struct buf *out, const char *name)
{
    append_quoted(out, name, '`');
}

void sql_string(struct buf *out, const char *text)
{
    append_quoted(out, text, '\'');
}

void sql_table(struct buf *out, const char *database, const char *table)
{
    sql_identifier(out, database);
    buf_append(out, ".", 1);
    sql_identifier(out, table);
}

/* Value of the one-letter escape behind a backslash; -1: not one. */
static int escape_value(char c)
{
    static const char letters[] = "abfnrtv0e\\'\"`/";
    static const char values[] = "\a\b\f\n\r\t\v\0\033\\'\"`/";
    const char *at = memchr(letters, c, sizeof letters - 1);
    return at ? values[at - letters] : -1;
}

size_t sql_tsv_unescape(char *field)
{
    char *to = field;
    const char *from = field;

    while (*from) {
        if (from[0] != '\\' || !from[1]) {
            *to++ = *from++;
            continue;
        }
        int value = escape_value(from[1]);
        int high = from[1] == 'x' ? hex_value(from[2]) : -1;
        int low = high >= 0 ? hex_value(from[3]) : -1;
        if (value >= 0) {
            *to++ = (char)value;
            from += 2;
        } else if (low >= 0) {
            *to++ = (char)(high * 16 + low);
            from += 4;
        } else {
            /* Not an escape we know (\N and the like): both characters stay. */
            *to++ = *from++;
            *to++ = *from++;
        }
    }
    *to = '\0';
    return (size_t)(to - field);
}

const char *sql_verb(const char *sql)
{
    static const char *const verbs[] = {"select", "insert",   "alter", "create", "drop",
                                        "exists", "truncate", "show",  "kill",   "system"};
    sql += strspn(sql, " \t\r\n(");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        size_t len = strlen(verbs[i]);
        if (strncasecmp(sql, verbs[i], len) == 0 && strchr(" \t\r\n(", sql[len]) != NULL)
            return verbs[i];
    }
    return "other";
}
