/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of keys, and the checks of single values; see config_table.h.
 */
#include "base/config_table.h"

#include "base/mem.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static config_check config_check_address, config_check_base_url, config_check_base_url_or_none,
    config_check_store, config_check_word, config_check_path_or_none, config_check_database;

const struct config_row config_rows[] = {
#define CONFIG_GROUP(title) {KIND_GROUP, title, 0, NULL, 0, 0, 0, NULL, NULL, NULL, NULL},
#define CONFIG_TEXT(key, value, check, doc)                                                        \
    {KIND_TEXT, #key, offsetof(struct config, key), value, 0, 0, 0,                                \
     NULL,      NULL, config_check_##check,         doc},
#define CONFIG_UINT(key, value, min, max, unit, doc)                                               \
    {KIND_UINT, #key, offsetof(struct config, key), NULL, value, min, max, unit, NULL, NULL, doc},
#define CONFIG_BOOL(key, value, doc)                                                               \
    {KIND_BOOL, #key, offsetof(struct config, key), value, 0, 0, 0, NULL, NULL, NULL, doc},
#define CONFIG_CHOICE(key, value, choices, doc)                                                    \
    {KIND_CHOICE, #key, offsetof(struct config, key), value, 0, 0, 0, NULL, choices, NULL, doc},
#include "base/config.def"
#undef CONFIG_GROUP
#undef CONFIG_TEXT
#undef CONFIG_UINT
#undef CONFIG_BOOL
#undef CONFIG_CHOICE
};
const size_t config_n_rows = sizeof config_rows / sizeof config_rows[0];

static bool made_of(const char *text, size_t bytes_max, const char *more)
{
    if (*text == '\0' || strlen(text) > bytes_max)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && strchr(more, *text) == NULL)
            return false;
    return true;
}

const char *config_check_name(const char *value)
{
    if (made_of(value, 64, "_.-") && strcmp(value, ".") != 0 && strcmp(value, "..") != 0)
        return NULL;
    return "1-64 characters of A-Z a-z 0-9 _ . -";
}

static const char *config_check_word(const char *value)
{
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f)
            return "a word without blanks";
    return *value ? NULL : "a word without blanks";
}

static const char *config_check_database(const char *value)
{
    bool good = made_of(value, 64, "_") && !isdigit((unsigned char)*value);
    return good ? NULL : "1-64 characters of A-Z a-z 0-9 _, not beginning with a digit";
}

static bool is_port(const char *text)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 5)
        return false;
    return strtoul(text, NULL, 10) <= 65535;
}

/* host:port or [v6]:port */
static bool is_address(const char *value)
{
    const char *colon = strrchr(value, ':');
    if (colon == NULL || colon == value || !is_port(colon + 1))
        return false;
    size_t len = (size_t)(colon - value);
    if (value[0] == '[')
        return len > 2 && value[len - 1] == ']' &&
               strspn(value + 1, "0123456789abcdefABCDEF:.%") == len - 2;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)value[i]) && strchr("_.-", value[i]) == NULL)
            return false;
    return true;
}

static const char *config_check_address(const char *value)
{
    return is_address(value) ? NULL : "host:port or [IPv6]:port, the port from 0 to 65535";
}

static const char *config_check_base_url(const char *value)
{
    static const char allowed[] = "http://host:port or https://host:port, without a path";
    const char *host = strncmp(value, "http://", 7) == 0    ? value + 7
                       : strncmp(value, "https://", 8) == 0 ? value + 8
                                                            : "";
    if (*host == '\0' || strlen(value) > 1024)
        return allowed;
    for (const char *at = host; *at; at++)
        if (!isalnum((unsigned char)*at) && strchr("_.-:[]%", *at) == NULL)
            return allowed;
    return NULL;
}

static const char *config_check_base_url_or_none(const char *value)
{
    return *value ? config_check_base_url(value) : NULL;
}

static const char *config_check_path_or_none(const char *value)
{
    (void)value; /* opened when all is read */
    return NULL;
}

/* "host:port,host:port/chroot", the part after zookeeper: */
static bool is_zookeeper(const char *value)
{
    size_t hosts = strcspn(value, "/");
    char *list = mem_strndup(value, hosts);
    bool good = hosts > 0;
    for (char *at = list, *comma; good && at; at = comma ? comma + 1 : NULL) {
        comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        good = is_address(at) || made_of(at, 255, "_.-"); /* the port is 2181 then */
    }
    free(list);
    const char *chroot = value + hosts;
    if (!good || *chroot == '\0')
        return good;
    size_t len = strlen(chroot);
    return len > 1 && chroot[len - 1] != '/' && strstr(chroot, "//") == NULL &&
           strstr(chroot, "/.") == NULL && strspn(chroot, "/") == 1;
}

static const char *config_check_store(const char *value)
{
    if (strncmp(value, "sqlite:/", 8) == 0 && value[8] != '\0')
        return NULL;
    if (strncmp(value, "zookeeper:", 10) == 0 && is_zookeeper(value + 10))
        return NULL;
    return "sqlite:/absolute/path or zookeeper:host:port[,host:port…][/path]";
}

static bool parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    uint64_t number = strtoull(text, NULL, 10);
    if (errno != 0 || number < min || number > max)
        return false;
    *ret = number;
    return true;
}

/* The index of text in "a|b|c", or -1. */
static int parse_choice(const char *text, const char *choices)
{
    size_t len = strlen(text);
    int index = 0;
    for (const char *at = choices;; index++) {
        size_t word = strcspn(at, "|");
        if (word == len && memcmp(at, text, len) == 0)
            return index;
        if (at[word] == '\0')
            return -1;
        at += word + 1;
    }
}

char **config_text(const struct config *config, const struct config_row *row)
{
    return (char **)((char *)(uintptr_t)config + row->offset);
}

uint64_t *config_number(const struct config *config, const struct config_row *row)
{
    return (uint64_t *)((char *)(uintptr_t)config + row->offset);
}

bool *config_bool(const struct config *config, const struct config_row *row)
{
    return (bool *)((char *)(uintptr_t)config + row->offset);
}

unsigned *config_choice(const struct config *config, const struct config_row *row)
{
    return (unsigned *)((char *)(uintptr_t)config + row->offset);
}

/* Sets the member, or says (for the caller to free) what would be allowed. */
char *config_set(struct config *config, const struct config_row *row, const char *value)
{
    switch (row->kind) {
    case KIND_GROUP:
        break;
    case KIND_TEXT: {
        if (strlen(value) > CONFIG_TEXT_BYTES_MAX)
            return mem_printf("at most %u bytes", CONFIG_TEXT_BYTES_MAX);
        const char *allowed = row->check(value);
        if (allowed)
            return mem_strdup(allowed);
        mem_replace(config_text(config, row), value);
        return NULL;
    }
    case KIND_UINT:
        if (parse_number(value, row->min, row->max, config_number(config, row)))
            return NULL;
        return mem_printf("a whole number from %" PRIu64 " to %" PRIu64 " (%s)", row->min, row->max,
                          row->unit);
    case KIND_BOOL:
        if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
            return mem_strdup("true or false");
        *config_bool(config, row) = strcmp(value, "true") == 0;
        return NULL;
    case KIND_CHOICE: {
        int index = parse_choice(value, row->choices);
        if (index < 0)
            return mem_printf("one of %s", row->choices);
        *config_choice(config, row) = (unsigned)index;
        return NULL;
    }
    }
    assert(!"not a group");
    return NULL;
}
