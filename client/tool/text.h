/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for people. What comes from a node, a file name or the command line may hold anything, also what makes a terminal
 * do things: it is printed through these functions only. They pass what has a shape on the screen and write all else as
 * \n, \x1b, \u{202e}. Widths are in columns of a terminal, by the locale (text_init).
 */
#ifndef CHXA_TOOL_TEXT_H
#define CHXA_TOOL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The character set of the environment, or UTF-8. Once, at the start. */
void text_init(void);

/* A harmless copy; free with free(). NULL is "". */
char *text_safe(const char *text);
/* Columns of a string that text_safe returned. */
size_t text_width(const char *safe);
/* The longest beginning of `safe` that is at most `width` columns, in bytes. */
size_t text_fit(const char *safe, size_t width);

/* Prints text harmlessly. */
void text_put(FILE *file, const char *text);
/* Prints `label` and then text, wrapped at spaces to `width` columns (0: no wrapping); further lines are indented to the
 * width of the label. A newline in the text begins a line. Ends with a newline. */
void text_wrap(FILE *file, const char *label, const char *text, unsigned width);

/* "14s", "5m", "2h 13m", "3d 4h"; negative is "0s". */
void text_duration(int64_t ms, char *ret_text, size_t room);
/* "12 345 678" */
void text_count(uint64_t count, char *ret_text, size_t room);
/* "817 B", "1.4 MB", "12 GB": powers of 1000. */
void text_bytes(uint64_t bytes, char *ret_text, size_t room);
/* "2026-11-30 03:04:05 UTC" */
void text_time(int64_t unix_ms, char *ret_text, size_t room);

/* True when text may be pasted into a shell as one word without quotes. */
bool text_is_shell_word(const char *text);

#endif
