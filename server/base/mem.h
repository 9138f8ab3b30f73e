/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocation for the server: every size is bounded by a configured limit before it gets here, so
 * running out of memory is a fault of the machine and ends the process (the store and the disk are
 * the state; a restart recovers). libchxa and proto/ do not use this: they return CHXA_E_NO_MEMORY.
 */
#ifndef CHXA_BASE_MEM_H
#define CHXA_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>

void *mem_alloc(size_t bytes); /* zeroed; never NULL */
void *mem_array(size_t count, size_t bytes);
void *mem_realloc(void *old, size_t bytes);
char *mem_strdup(const char *text); /* NULL gives NULL */
char *mem_strndup(const char *text, size_t bytes);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *mem_vprintf(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Frees a text of ours that stands in a const member. */
void mem_free_text(const char *text);
/* Replaces *slot with a copy of text, freeing what was there. */
void mem_replace(char **slot, const char *text);

#endif
