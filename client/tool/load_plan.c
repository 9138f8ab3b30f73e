/* SPDX-License-Identifier: Apache-2.0
 *
 * What a load is going to do: statement, compression and write id of each file.
 */
#include "load_plan.h"

#include "tool.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct suffix {
    const char *suffix, *name;
};
/* What a node decompresses; PROTOCOL.md lists them. */
static const struct suffix encodings[] = {
    {".gz", "gzip"}, {".zst", "zstd"}, {".lz4", "lz4"}, {".br", "br"}};
/* What no node does: sent as it is it would be taken for rows. */
static const struct suffix foreign[] = {{".xz", "xz"},   {".bz2", "bzip2"},  {".sz", "snappy"},
                                        {".zip", "zip"}, {".Z", "compress"}, {".lzma", "lzma"}};
static const struct suffix formats[] = {
    {".csv", "CSV"},         {".tsv", "TabSeparated"},   {".jsonl", "JSONEachRow"},
    {".parquet", "Parquet"}, {".ndjson", "JSONEachRow"}, {".orc", "ORC"},
    {".avro", "Avro"},       {".arrow", "Arrow"},        {".native", "Native"},
    {".bin", "RowBinary"}};

static const char *find(const struct suffix *list, size_t n, const char *text, size_t bytes,
                        size_t *ret_stem_bytes)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(list[i].suffix);
        if (bytes > length && strncasecmp(text + bytes - length, list[i].suffix, length) == 0) {
            *ret_stem_bytes = bytes - length;
            return list[i].name;
        }
    }
    return NULL;
}

const char *load_encoding_of(const char *path, size_t *ret_stem_bytes)
{
    *ret_stem_bytes = strlen(path);
    return find(encodings, sizeof encodings / sizeof encodings[0], path, *ret_stem_bytes,
                ret_stem_bytes);
}

const char *load_format_of(const char *path, size_t stem_bytes)
{
    size_t stem;
    return find(formats, sizeof formats / sizeof formats[0], path, stem_bytes, &stem);
}

char *load_write_id(const char *path, size_t number)
{
    const char *slash = strrchr(path, '/');
    const char *name = strcmp(path, "-") == 0 ? "stdin" : slash ? slash + 1 : path;
    char *id = tool_printf("%zu.%.200s", number, name);
    for (char *at = id; *at; at++)
        if (!isalnum((unsigned char)*at) && strchr("._:-", *at) == NULL)
            *at = '_';
    return id;
}

/* ---- the statement ---- */

static void quote(FILE *file, const char *name, size_t bytes)
{
    fputc('`', file);
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] == '`' || name[i] == '\\')
            fputc('\\', file);
        fputc(name[i], file);
    }
    fputc('`', file);
}

static bool is_word(const char *text)
{
    if (*text == '\0' || isdigit((unsigned char)*text))
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    return true;
}

/* A name with a quote in it is taken as it is: whoever writes `a.b`.c knows what a table is called. */
static char *statement(const char *table, const char *format)
{
    if (strpbrk(table, "`\""))
        return tool_printf("INSERT INTO %s FORMAT %s", table, format);
    char *memory = NULL;
    size_t bytes, database = strcspn(table, ".");
    FILE *file = open_memstream(&memory, &bytes);
    if (file == NULL)
        return tool_strdup("");
    fputs("INSERT INTO ", file);
    if (table[database] == '.') {
        quote(file, table, database);
        fputc('.', file);
        table += database + 1;
    }
    quote(file, table, strlen(table));
    fprintf(file, " FORMAT %s", format);
    fclose(file);
    return memory ? memory : tool_strdup("");
}

/* ---- the plan ---- */

struct maker {
    const struct tool_options *options;
    char *problem;
    size_t room;
};

static bool wrong(struct maker *maker, const char *before, const char *text, const char *after)
{
    snprintf(maker->problem, maker->room, "%s%.150s%s", before, text, after);
    return false;
}

static bool plan_file(struct maker *maker, const char *path, size_t number, struct load_file *file)
{
    const struct tool_options *options = maker->options;
    size_t stem;
    const char *encoding = load_encoding_of(path, &stem);
    const char *format = options->format ? options->format : load_format_of(path, stem);
    size_t foreign_stem;
    if (options->content_encoding == NULL &&
        find(foreign, sizeof foreign / sizeof foreign[0], path, strlen(path), &foreign_stem))
        return wrong(maker, "load: nodes do not decompress ", path,
                     ": decompress it into standard input, or say --content-encoding none");
    if (options->content_encoding)
        encoding =
            strcmp(options->content_encoding, "none") == 0 ? NULL : options->content_encoding;
    file->encoding = encoding;
    file->write_id =
        options->write_id ? tool_strdup(options->write_id) : load_write_id(path, number);
    if (options->query)
        file->query = tool_strdup(options->query);
    else if (format == NULL)
        return wrong(maker, "load: which format has ", path, "? say --format");
    else if (!is_word(format))
        return wrong(maker, "load: '", format, "' is no name of a format");
    else
        file->query = statement(options->table, format);
    return true;
}

bool load_plan_make(const struct tool_options *options, const char *const *operands,
                    size_t n_operands, struct load_plan *ret_plan, char *problem, size_t room)
{
    static const char *const standard_input = "-";
    struct maker maker = {options, problem, room};
    *ret_plan = (struct load_plan){0};
    if ((options->table == NULL) == (options->query == NULL))
        return wrong(&maker, "load: say --table and --format, or --query", "", "");
    if (options->query && options->format)
        return wrong(&maker, "load: --query has the format in it", "", "");
    if (options->table && *options->table == '\0')
        return wrong(&maker, "load: --table is empty", "", "");
    if (n_operands == 0) {
        operands = &standard_input;
        n_operands = 1;
    }
    if (n_operands > 1 && options->write_id)
        return wrong(&maker, "load: --write-id is for one file", "", "");
    ret_plan->files = tool_alloc(n_operands * sizeof *ret_plan->files);
    for (size_t i = 0; i < n_operands; i++) {
        ret_plan->files[ret_plan->n_files++] = (struct load_file){.path = operands[i]};
        if (!plan_file(&maker, operands[i], i + 1, &ret_plan->files[i]))
            return false;
    }
    return true;
}

void load_plan_clear(struct load_plan *plan)
{
    for (size_t i = 0; i < plan->n_files; i++) {
        free(plan->files[i].query);
        free(plan->files[i].write_id);
    }
    free(plan->files);
    *plan = (struct load_plan){0};
}
