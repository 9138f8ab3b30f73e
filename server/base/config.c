/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the configuration; see config.h: the file, the flags, and what holds between keys. The
 * table and the checks of single values are in config_table.c, what is printed in config_print.c.
 * Problems are collected, not returned: a person wants to see all of them at once.
 */
#include "base/buf.h"
#include "base/config_table.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PASSWORD_BYTES_MAX 4096u
#define PROBLEMS_BYTES_MAX (64u << 10)

/* A load under way. */
struct loader {
    struct config *config;
    struct buf problems;
    struct buf warnings;
    unsigned line; /* of the file, while it is read */
};

static void problem(struct loader *loader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void problem(struct loader *loader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    /* values are quoted as they are, but one problem is one line */
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    buf_printf(&loader->problems, "%s%s", loader->problems.len ? "\n" : "", text);
    free(text);
}

static void set_defaults(struct config *config)
{
    for (size_t i = 0; i < config_n_rows; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->kind == KIND_TEXT) /* the default of node is none, which no check lets pass */
            *config_text(config, row) = mem_strdup(row->default_text);
        else if (row->kind == KIND_UINT)
            *config_number(config, row) = row->default_number;
        else if (row->kind != KIND_GROUP)
            free(config_set(config, row, row->default_text));
    }
    config->clickhouse_password = mem_strdup("");
    config->file = mem_strdup("");
    config->warnings = mem_strdup("");
}

/* ---- names ---- */

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[65];
    size_t n = strlen(b);
    if (n > 64 || strlen(a) > 64)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

/* The known key that is least far from name, or NULL when none is near. */
static const char *closest_key(const char *name)
{
    const char *closest = NULL;
    size_t distance = 3 + strlen(name) / 4;
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].kind == KIND_GROUP)
            continue;
        size_t d = edit_distance(name, config_rows[i].key);
        if (d < distance) {
            distance = d;
            closest = config_rows[i].key;
        }
    }
    return closest;
}

/* The row's index among the keys in *ret_key. */
static const struct config_row *row_of(const char *name, enum config_key *ret_key)
{
    unsigned key = 0;
    for (size_t i = 0; i < config_n_rows; i++) {
        if (config_rows[i].kind == KIND_GROUP)
            continue;
        if (strcmp(config_rows[i].key, name) == 0) {
            *ret_key = (enum config_key)key;
            return &config_rows[i];
        }
        key++;
    }
    return NULL;
}

static void unknown_key(struct loader *loader, const char *where, const char *name)
{
    const char *closest = closest_key(name);
    problem(loader, "%s: unknown key \"%s\"%s%s%s", where, name, closest ? "; did you mean \"" : "",
            closest ? closest : "", closest ? "\"?" : "");
}

/* ---- the file ---- */

static void set_from_file(struct loader *loader, const char *name, const char *value)
{
    struct config *config = loader->config;
    char *where = mem_printf("%s:%u", config->file, loader->line);
    enum config_key key;
    const struct config_row *row = row_of(name, &key);
    if (row == NULL) {
        unknown_key(loader, where, name);
    } else if (config->origin[key].source == CONFIG_FROM_FILE) {
        problem(loader, "%s: %s is given twice, here and in line %u", where, name,
                config->origin[key].line);
    } else {
        char *allowed = config_set(config, row, value);
        if (allowed)
            problem(loader, "%s: %s = \"%s\": must be %s", where, name, value, allowed);
        if (allowed == NULL) {
            config->origin[key].source = CONFIG_FROM_FILE;
            config->origin[key].line = loader->line;
        }
        free(allowed);
    }
    free(where);
}

static int on_pair(void *user, const char *section, const char *name, const char *value)
{
    struct loader *loader = user;
    if (*section)
        problem(loader, "%s:%u: %s stands in a section; sections are not used",
                loader->config->file, loader->line, name);
    else
        set_from_file(loader, name, value);
    return 1;
}

struct lines {
    FILE *file;
    struct loader *loader;
};

/* Gives inih one line, as fgets does: without leading blanks (inih would take the line for the rest
 * of the one before) and without a comment at its end. What inih could not read is named here. */
static char *next_line(char *line, int bytes, void *stream)
{
    struct lines *lines = stream;
    struct loader *loader = lines->loader;
    if (fgets(line, bytes, lines->file) == NULL)
        return NULL;
    loader->line++;
    size_t len = strlen(line);
    if (len > 0 && line[len - 1] != '\n' && len + 1 == (size_t)bytes) {
        int c;
        while ((c = fgetc(lines->file)) != EOF && c != '\n')
            ;
        problem(loader, "%s:%u: the line is too long (at most %d bytes)", loader->config->file,
                loader->line, bytes - 3);
        line[0] = '\0';
    }
    size_t blanks = strspn(line, " \t");
    memmove(line, line + blanks, strlen(line + blanks) + 1);
    for (char *at = line; (at = strchr(at, '#')) != NULL; at++) {
        if (at == line || at[-1] == ' ' || at[-1] == '\t') {
            *at = '\0';
            break;
        }
    }
    bool blank = line[strspn(line, " \t\r\n")] == '\0';
    if (!blank && strchr(";[", line[0]) == NULL && strpbrk(line, "=:") == NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        problem(loader, "%s:%u: \"%s\" is not of the form key = value", loader->config->file,
                loader->line, line);
        blank = true;
    }
    if (blank)
        line[0] = '\0';
    return line;
}

/* Debian's inih has its limits as variables; upstream's are constants, and lines of 200 bytes are
 * its longest. Weak: NULL where they are not there. */
extern int ini_max_line __attribute__((weak));
extern int ini_initial_alloc __attribute__((weak));
extern bool ini_use_stack __attribute__((weak));

static void read_file(struct loader *loader)
{
    if (&ini_max_line && &ini_initial_alloc && &ini_use_stack) {
        ini_use_stack = false;
        ini_max_line = (int)CONFIG_TEXT_BYTES_MAX + 128;
        ini_initial_alloc = ini_max_line;
    }
    const char *path = loader->config->file;
    struct lines lines = {.file = fopen(path, "re"), .loader = loader};
    struct stat status;
    if (lines.file == NULL) {
        problem(loader, "%s: cannot be read: %s", path, strerror(errno));
        return;
    }
    if (fstat(fileno(lines.file), &status) == 0 && S_ISDIR(status.st_mode))
        problem(loader, "%s: is a directory", path);
    else if (ini_parse_stream(next_line, &lines, on_pair, loader) != 0 && loader->problems.len == 0)
        problem(loader, "%s: is not of the form key = value", path);
    fclose(lines.file);
}

/* ---- the flags ---- */

static void set_from_flag(struct loader *loader, const char *name, const char *value)
{
    enum config_key key = CONFIG_KEY_COUNT;
    const struct config_row *row = row_of(name, &key);
    assert(row != NULL); /* the caller looked */
    char *allowed = config_set(loader->config, row, value);
    if (allowed)
        problem(loader, "--%s \"%s\": must be %s", name, value, allowed);
    else
        loader->config->origin[key].source = CONFIG_FROM_FLAG;
    free(allowed);
}

/* One of --help, --version, --check-config: sets the action. The weightier one wins. */
static bool take_action(struct config *config, const char *arg)
{
    enum config_action action =
        strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0                       ? CONFIG_HELP
        : strcmp(arg, "--version") == 0                                            ? CONFIG_VERSION
        : strcmp(arg, "--check-config") == 0 || strcmp(arg, "--check_config") == 0 ? CONFIG_CHECK
                                                                                   : CONFIG_RUN;
    if (action > config->action)
        config->action = action;
    return action != CONFIG_RUN;
}

/* Walks the flags: first pass (set == false) takes --config and the actions, the second sets keys,
 * so that flags win over the file wherever --config stands. */
static void read_flags(struct loader *loader, int argc, char *const argv[], bool set)
{
    for (int i = 1; i < argc; i++) {
        if (take_action(loader->config, argv[i]))
            continue;
        if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0') {
            if (set)
                problem(loader, "\"%s\": not a flag; they look like --key VALUE (see --help)",
                        argv[i]);
            continue;
        }
        char *name = mem_strdup(argv[i] + 2);
        char *equals = strchr(name, '=');
        const char *value = equals ? equals + 1 : NULL;
        if (equals)
            *equals = '\0';
        for (char *at = name; *at; at++)
            if (*at == '-')
                *at = '_';
        enum config_key key;
        bool is_file = strcmp(name, "config") == 0;
        bool known = is_file || row_of(name, &key) != NULL;
        bool next_is_value = i + 1 < argc && (known || strncmp(argv[i + 1], "--", 2) != 0);
        if (value == NULL && next_is_value)
            value = argv[++i];
        if (!known) {
            char *where = mem_printf("--%s", name);
            if (set)
                unknown_key(loader, where, name);
            free(where);
        } else if (value == NULL) {
            if (set)
                problem(loader, "--%s: its value is missing", name);
        } else if (is_file && !set) {
            mem_replace(&loader->config->file, value);
        } else if (!is_file && set) {
            set_from_flag(loader, name, value);
        }
        free(name);
    }
}

/* ---- what holds between keys ---- */

static void read_password(struct loader *loader)
{
    const char *path = loader->config->clickhouse_password_file;
    if (*path == '\0')
        return;
    FILE *file = fopen(path, "re");
    struct stat status;
    if (file == NULL || fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode)) {
        problem(loader, "clickhouse_password_file = \"%s\": cannot be read: %s", path,
                file ? "not a regular file" : strerror(errno));
        if (file)
            fclose(file);
        return;
    }
    char text[PASSWORD_BYTES_MAX + 2];
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    if (len > PASSWORD_BYTES_MAX || strlen(text) != len) {
        problem(loader, "clickhouse_password_file = \"%s\": must hold a text of at most %u bytes",
                path, PASSWORD_BYTES_MAX);
        return;
    }
    if (len > 0 && text[len - 1] == '\n')
        text[--len] = '\0';
    if (len > 0 && text[len - 1] == '\r')
        text[--len] = '\0';
    mem_replace(&loader->config->clickhouse_password, text);
    if (strpbrk(text, "\r\n"))
        problem(loader, "clickhouse_password_file = \"%s\": must hold one line", path);
    if (status.st_mode & (S_IROTH | S_IWOTH))
        buf_printf(&loader->warnings,
                   "clickhouse_password_file = \"%s\": every user of this machine can read it "
                   "(chmod 600)\n",
                   path);
}

static void check_together(struct loader *loader)
{
    const struct config *config = loader->config;
    if (*config->node == '\0' && config->origin[CONFIG_KEY_node].source == CONFIG_FROM_DEFAULT)
        problem(loader, "node: must be given, with --node or in the file: %s",
                config_check_name(""));
    bool wildcard =
        strncmp(config->listen, "0.0.0.0:", 8) == 0 || strncmp(config->listen, "[::]:", 5) == 0;
    if (wildcard && *config->advertise == '\0')
        problem(
            loader,
            "advertise: must be given when listen is \"%s\": clients cannot be redirected there",
            config->listen);
    if (config->wait_ms_default > config->wait_ms_max)
        problem(loader, "wait_ms_default = %" PRIu64 ": must not be above wait_ms_max = %" PRIu64,
                config->wait_ms_default, config->wait_ms_max);
    if (config->http_head_bytes_max < config->http_url_bytes_max)
        problem(loader,
                "http_head_bytes_max = %" PRIu64
                ": must not be below http_url_bytes_max = %" PRIu64,
                config->http_head_bytes_max, config->http_url_bytes_max);
    if (!config->fsync)
        buf_puts(&loader->warnings, "fsync = false: a power cut loses prepared transactions\n");
}

int config_load(int argc, char *const argv[], struct config *ret_config, struct error *error)
{
    *ret_config = (struct config){0};
    set_defaults(ret_config);
    struct loader loader = {.config = ret_config, .problems = {.bytes_max = PROBLEMS_BYTES_MAX}};
    read_flags(&loader, argc, argv, false);
    if (ret_config->action == CONFIG_HELP || ret_config->action == CONFIG_VERSION)
        return 0;
    if (*ret_config->file)
        read_file(&loader);
    read_flags(&loader, argc, argv, true);
    read_password(&loader);
    check_together(&loader);

    mem_replace(&ret_config->warnings, buf_str(&loader.warnings));
    buf_clear(&loader.warnings);
    int code = 0;
    if (loader.problems.len)
        code = error_set(error, CHXA_E_INVALID_REQUEST, "%s", buf_str(&loader.problems));
    buf_clear(&loader.problems);
    return code;
}

void config_clear(struct config *config)
{
    for (size_t i = 0; i < config_n_rows; i++)
        if (config_rows[i].kind == KIND_TEXT)
            free(*config_text(config, &config_rows[i]));
    if (config->clickhouse_password)
        explicit_bzero(config->clickhouse_password, strlen(config->clickhouse_password));
    free(config->clickhouse_password);
    free(config->file);
    free(config->warnings);
    *config = (struct config){0};
}

bool config_start(int argc, char *const argv[], struct config *ret_config, int *ret_exit)
{
    struct error error = {0};
    int code = config_load(argc, argv, ret_config, &error);
    bool run = false;
    switch (ret_config->action) {
    case CONFIG_HELP:
        config_help(stdout);
        break;
    case CONFIG_VERSION:
        puts("chxad " CHXA_VERSION);
        break;
    case CONFIG_CHECK:
        config_print(ret_config, stdout);
        fflush(stdout);
        fputs(ret_config->warnings, stderr);
        break;
    case CONFIG_RUN:
        run = code == 0;
    }
    if (code != 0)
        fprintf(stderr, "chxad: the configuration is wrong:\n%s\n", error_message(&error));
    error_clear(&error);
    if (!run) {
        *ret_exit = code != 0 ? 2 : 0;
        config_clear(ret_config);
    }
    return run;
}
