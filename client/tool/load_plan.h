/* SPDX-License-Identifier: Apache-2.0
 *
 * What a load is going to do, told from its options and its files' names. Pure, but for the allocation.
 */
#ifndef CHXA_TOOL_LOAD_PLAN_H
#define CHXA_TOOL_LOAD_PLAN_H

#include "args.h"

struct load_file {
    const char *path;     /* "-": standard input */
    char *query;          /* the INSERT's head */
    const char *encoding; /* Content-Encoding, or NULL */
    char *write_id;
};

struct load_plan {
    struct load_file *files;
    size_t n_files;
};

/* False: the command line is wrong, and problem says why. Free with load_plan_clear in either case. */
bool load_plan_make(const struct tool_options *options, const char *const *operands,
                    size_t n_operands, struct load_plan *ret_plan, char *problem, size_t room);
void load_plan_clear(struct load_plan *plan);

/* "gzip" for "a.csv.gz"; NULL when the suffix is none of a compression. *ret_stem_bytes: the name without it. */
const char *load_encoding_of(const char *path, size_t *ret_stem_bytes);
/* ClickHouse's name of the format for a suffix: "CSV" for "a.csv"; NULL when unknown. */
const char *load_format_of(const char *path, size_t stem_bytes);
/* An id out of a file's name: what an id may not hold becomes '_'. Free with free(). */
char *load_write_id(const char *path, size_t number);

#endif
