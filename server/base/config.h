/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration: defaults, then a file, then flags; every key is a row of config.def and a member
 * of struct config. Read once at start, on the main thread; afterwards constant.
 */
#ifndef CHXA_BASE_CONFIG_H
#define CHXA_BASE_CONFIG_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum config_key {
#define CONFIG_GROUP(title)
#define CONFIG_TEXT(key, ...)   CONFIG_KEY_##key,
#define CONFIG_UINT(key, ...)   CONFIG_KEY_##key,
#define CONFIG_BOOL(key, ...)   CONFIG_KEY_##key,
#define CONFIG_CHOICE(key, ...) CONFIG_KEY_##key,
#include "base/config.def"
#undef CONFIG_GROUP
#undef CONFIG_TEXT
#undef CONFIG_UINT
#undef CONFIG_BOOL
#undef CONFIG_CHOICE
    CONFIG_KEY_COUNT
};

enum config_action {
    CONFIG_RUN,
    CONFIG_CHECK,   /* --check-config */
    CONFIG_VERSION, /* --version */
    CONFIG_HELP     /* --help */
};

enum config_source { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_FLAG };

/* Texts are never NULL; "" stands for none. A choice holds its index (log_level: enum log_level).
 */
struct config {
#define CONFIG_GROUP(title)
#define CONFIG_TEXT(key, ...)   char *key;
#define CONFIG_UINT(key, ...)   uint64_t key;
#define CONFIG_BOOL(key, ...)   bool key;
#define CONFIG_CHOICE(key, ...) unsigned key;
#include "base/config.def"
#undef CONFIG_GROUP
#undef CONFIG_TEXT
#undef CONFIG_UINT
#undef CONFIG_BOOL
#undef CONFIG_CHOICE
    char *
        clickhouse_password; /* read from clickhouse_password_file; "" without one. Never printed */
    enum config_action action;
    char *file;     /* --config, or "" */
    char *warnings; /* what is odd but usable, one a line; "" for none */
    struct {
        enum config_source source;
        unsigned line; /* in the file */
    } origin[CONFIG_KEY_COUNT];
};

/*
 * Reads flags and file. argv as main gets it. CHXA_E_INVALID_REQUEST: the message names everything
 * that is wrong, one problem a line, each with key, value, what is allowed, and where it stands.
 * *ret_config is filled as far as possible also then (defaults for what is wrong), for
 * config_print; clear it in every case. --help and --version are never errors.
 */
int config_load(int argc, char *const argv[], struct config *ret_config, struct error *error);
void config_clear(struct config *config);

/* What main does with it: loads, answers --help, --version and --check-config on stdout, prints
 * what is wrong on stderr. False: exit with *ret_exit (0, or 2 for a wrong configuration;
 * *ret_config is cleared). True: run. */
bool config_start(int argc, char *const argv[], struct config *ret_config, int *ret_exit);

/* Every key with its value and where that comes from, in the file's own format. */
void config_print(const struct config *config, FILE *out);
/* The --help text. */
void config_help(FILE *out);
/* A sample file: every key, commented out at its default, with its doc (deploy/chxad.conf). */
void config_sample(FILE *out);

#endif
