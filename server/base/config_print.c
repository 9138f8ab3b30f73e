/* SPDX-License-Identifier: Apache-2.0
 *
 * What the configuration prints: --check-config, --help, and the sample file.
 */
#include "base/config_table.h"

#include <inttypes.h>
#include <string.h>

static void print_value(const struct config *config, const struct config_row *row, FILE *out)
{
    switch (row->kind) {
    case KIND_GROUP:
        break;
    case KIND_TEXT:
        fputs(*config_text(config, row), out);
        break;
    case KIND_UINT:
        fprintf(out, "%" PRIu64, *config_number(config, row));
        break;
    case KIND_BOOL:
        fputs(*config_bool(config, row) ? "true" : "false", out);
        break;
    case KIND_CHOICE: {
        const char *word = row->choices;
        for (unsigned i = *config_choice(config, row); i > 0; i--)
            word = strchr(word, '|') + 1;
        fprintf(out, "%.*s", (int)strcspn(word, "|"), word);
        break;
    }
    }
}

void config_print(const struct config *config, FILE *out)
{
    unsigned key = 0;
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].kind == KIND_GROUP)
            continue;
        fprintf(out, "%s = ", config_rows[i].key);
        print_value(config, &config_rows[i], out);
        if (config->origin[key].source == CONFIG_FROM_DEFAULT)
            fputs("  # default\n", out);
        else if (config->origin[key].source == CONFIG_FROM_FLAG)
            fputs("  # flag\n", out);
        else
            fprintf(out, "  # %s:%u\n", config->file, config->origin[key].line);
        key++;
    }
}

/* "default 5, 1 to 10 ms" */
static void print_range(const struct config_row *row, FILE *out)
{
    if (row->kind == KIND_UINT)
        fprintf(out, "default %" PRIu64 ", from %" PRIu64 " to %" PRIu64 " %s", row->default_number,
                row->min, row->max, row->unit);
    else
        fprintf(out, "default %s%s%s", *row->default_text ? row->default_text : "none",
                row->kind == KIND_CHOICE ? ", one of " : "",
                row->kind == KIND_CHOICE ? row->choices : "");
    if (row->kind == KIND_BOOL)
        fputs(", or the other of true and false", out);
}

void config_help(FILE *out)
{
    fputs(
        "chxad: two-phase-commit coordinator for the ClickHouse server beside it\n\n"
        "usage: chxad --node NAME [--config FILE] [--KEY VALUE | --KEY=VALUE]...\n\n"
        "  --config FILE   read `key = value` lines; flags win over it\n"
        "  --check-config  print what would be used and what is wrong, and exit (2: something is)\n"
        "  --version       print the version and exit\n"
        "  --help          print this and exit\n\n"
        "Dashes in a flag stand for underscores.\n",
        out);
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->kind == KIND_GROUP) {
            fprintf(out, "\n%s\n", row->key);
            continue;
        }
        fprintf(out, "  --%s\n      %s (", row->key, row->doc);
        print_range(row, out);
        fputs(")\n", out);
    }
}

void config_sample(FILE *out)
{
    fputs("# SPDX-License-Identifier: Apache-2.0\n"
          "# Configuration of chxad: every key, at its default. `chxad --config FILE "
          "--check-config`\n"
          "# says what would be used. This file is generated from server/base/config.def, and a "
          "test\n"
          "# holds it to that.\n",
          out);
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->kind == KIND_GROUP) {
            fprintf(out, "\n# ---- %s ----\n", row->key);
            continue;
        }
        fprintf(out, "\n# %s\n# (", row->doc);
        print_range(row, out);
        if (row->kind == KIND_UINT)
            fprintf(out, ")\n#%s = %" PRIu64 "\n", row->key, row->default_number);
        else
            fprintf(out, ")\n#%s =%s%s\n", row->key, *row->default_text ? " " : "",
                    row->default_text);
    }
}
