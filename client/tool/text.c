/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for people: harmless, measured, wrapped.
 */
#include "text.h"

#include "tool.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>
#include <wctype.h>

void text_init(void)
{
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        /* Servers often have no locale set; their terminals show UTF-8 all the same. */
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

/* ---- harmless ---- */

/* Beside control characters: what changes the direction or the lines of other text. */
static bool is_harmless(wchar_t c)
{
    bool is_unseen = (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
                     (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c == 0x061c;
    return !is_unseen && !iswcntrl((wint_t)c) && iswprint((wint_t)c);
}

/* One character at text: its bytes, and in *ret_char what it is; 0 bytes when it is no character. */
static size_t decode(const char *text, wchar_t *ret_char)
{
    mbstate_t state = {0};
    size_t bytes = mbrtowc(ret_char, text, strlen(text), &state);
    return bytes == (size_t)-1 || bytes == (size_t)-2 ? 0 : bytes;
}

static void put_escape(FILE *file, const char *text, size_t bytes, wchar_t c)
{
    if (bytes == 1 && c == L'\n')
        fputs("\\n", file);
    else if (bytes == 1 && c == L'\t')
        fputs("\\t", file);
    else if (bytes > 1)
        fprintf(file, "\\u{%lx}", (unsigned long)c);
    else
        fprintf(file, "\\x%02x", (unsigned)(unsigned char)*text);
}

void text_put(FILE *file, const char *text)
{
    while (text && *text) {
        wchar_t c = 0;
        size_t bytes = decode(text, &c);
        if (bytes > 0 && is_harmless(c))
            fwrite(text, 1, bytes, file);
        else
            put_escape(file, text, bytes, c);
        text += bytes ? bytes : 1;
    }
}

char *text_safe(const char *text)
{
    char *memory = NULL;
    size_t bytes;
    FILE *file = open_memstream(&memory, &bytes);
    if (file != NULL) {
        text_put(file, text);
        fclose(file);
    }
    return memory ? memory : tool_strdup("");
}

/* ---- width ---- */

static size_t char_width(wchar_t c)
{
    int width = wcwidth(c);
    return width < 0 ? 1 : (size_t)width;
}

size_t text_fit(const char *safe, size_t width)
{
    size_t at = 0, columns = 0;
    while (safe[at]) {
        wchar_t c = L'?';
        size_t bytes = decode(safe + at, &c);
        columns += char_width(c);
        if (columns > width)
            break;
        at += bytes ? bytes : 1;
    }
    return at;
}

size_t text_width(const char *safe)
{
    size_t columns = 0;
    while (*safe) {
        wchar_t c = L'?';
        size_t bytes = decode(safe, &c);
        columns += char_width(c);
        safe += bytes ? bytes : 1;
    }
    return columns;
}

/* ---- wrapping ---- */

/* How much of a line's rest goes onto a line of `room` columns: up to a space, if there is one. */
static size_t line_bytes(const char *text, size_t room)
{
    size_t fits = text_fit(text, room);
    if (text[fits] == '\0' || text[fits] == ' ')
        return fits;
    size_t space = fits;
    while (space > 0 && text[space] != ' ')
        space--;
    if (space > 0)
        return space;
    return fits ? fits : 1;
}

/* A line without a newline in it. */
static void wrap_line(FILE *file, const char *text, size_t indent, size_t room)
{
    while (true) {
        size_t bytes = room ? line_bytes(text, room) : strlen(text);
        fwrite(text, 1, bytes, file);
        fputc('\n', file);
        text += bytes;
        text += strspn(text, " ");
        if (*text == '\0')
            break;
        fprintf(file, "%*s", (int)indent, "");
    }
}

void text_wrap(FILE *file, const char *label, const char *text, unsigned width)
{
    size_t indent = text_width(label);
    size_t room = width == 0 ? 0 : width > indent + 20 ? width - indent : 20;
    char *copy = tool_strdup(text), *line = copy;
    fputs(label, file);
    while (true) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        char *safe = text_safe(line);
        wrap_line(file, safe, indent, room);
        free(safe);
        if (end == NULL || end[1 + strspn(end + 1, "\n")] == '\0')
            break;
        line = end + 1;
        fprintf(file, "%*s", (int)indent, "");
    }
    free(copy);
}

/* ---- numbers ---- */

void text_duration(int64_t ms, char *ret_text, size_t room)
{
    int64_t seconds = ms > 0 ? ms / 1000 : 0;
    int64_t minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
    if (days > 0)
        snprintf(ret_text, room, "%" PRId64 "d %" PRId64 "h", days, hours % 24);
    else if (hours > 0)
        snprintf(ret_text, room, "%" PRId64 "h %" PRId64 "m", hours, minutes % 60);
    else if (minutes > 0)
        snprintf(ret_text, room, "%" PRId64 "m", minutes);
    else
        snprintf(ret_text, room, "%" PRId64 "s", seconds);
}

void text_count(uint64_t count, char *ret_text, size_t room)
{
    char digits[24], text[40];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, count);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[at++] = ' ';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    snprintf(ret_text, room, "%s", text);
}

void text_bytes(uint64_t bytes, char *ret_text, size_t room)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    snprintf(ret_text, room, unit > 0 && value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void text_time(int64_t unix_ms, char *ret_text, size_t room)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(ret_text, room, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(ret_text, room, "%" PRId64, unix_ms);
}

bool text_is_shell_word(const char *text)
{
    return *text != '\0' && *text != '-' &&
           strspn(text,
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-@%+,") ==
               strlen(text);
}
