/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the configuration share: the table of keys, and one value's way in. Private to
 * server/base/config*.c.
 */
#ifndef CHXA_BASE_CONFIG_TABLE_H
#define CHXA_BASE_CONFIG_TABLE_H

#include "base/config.h"

#include <stddef.h>

#define CONFIG_TEXT_BYTES_MAX 4096u

enum config_kind { KIND_GROUP, KIND_TEXT, KIND_UINT, KIND_BOOL, KIND_CHOICE };

/* NULL: good; else what would be. */
typedef const char *config_check(const char *value);

struct config_row {
    enum config_kind kind;
    const char *key; /* of a group: its title */
    size_t offset;
    const char *default_text; /* of a number: NULL */
    uint64_t default_number, min, max;
    const char *unit;
    const char *choices;
    config_check *check;
    const char *doc;
};

/* The rows of config.def in their order, groups included. */
extern const struct config_row config_rows[];
extern const size_t config_n_rows;

/* The row's member. */
char **config_text(const struct config *config, const struct config_row *row);
uint64_t *config_number(const struct config *config, const struct config_row *row);
bool *config_bool(const struct config *config, const struct config_row *row);
unsigned *config_choice(const struct config *config, const struct config_row *row);

/* Sets the member; or changes nothing and says, for the caller to free, what would be allowed. */
char *config_set(struct config *config, const struct config_row *row, const char *value);

/* What a name must be (node, cluster). */
config_check config_check_name;

#endif
