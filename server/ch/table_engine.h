/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_full, the engine clause as system.tables gives it, taken apart and put together. Pure; any
 * thread. Internal to the table files; table_engine_plain is in table.h.
 *
 * The text is scanned with respect to quotes and parentheses. What a user may have put into it is a
 * comment, a name or a string that reads like a keyword; those never are at the top level.
 */
#ifndef CHXA_CH_TABLE_ENGINE_H
#define CHXA_CH_TABLE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

/* The engine's name at the head (malloc'd), and its arguments without the parentheses ("" when
 * there are none). False when the text cannot be understood. */
bool table_engine_split(const char *engine_full, char **ret_name, char **ret_arguments);

/* MergeTree(date, key, granularity): arguments, and no clause behind them. */
bool table_engine_is_old_syntax(const char *engine_plain);

/*
 * The engine clause of a scratch table: engine_plain with the SETTINGS of `settings` ("name =
 * value, …") in place of those of the same name, and without the settings in dropped
 * (NULL-terminated). Old-syntax engines cannot carry settings and stay as they are. malloc'd.
 */
char *table_engine_with_settings(const char *engine_plain, const char *settings,
                                 const char *const *dropped);

#endif
