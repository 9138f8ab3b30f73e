/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of chxa: commands, options in every form, durations, what is refused and why; and the plan of a load.
 */
#include "client/tool/args.h"
#include "client/tool/load_plan.h"
#include "client/tool/tool.h"
#include "lib/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct tool_args args;
static char *argv_[32];

static bool parse(const char *line)
{
    static char words[1000];
    int argc = 0;
    tool_args_clear(&args);
    snprintf(words, sizeof words, "%s", line);
    argv_[argc++] = (char *)(uintptr_t) "chxa";
    for (char *word = words; *word;) {
        size_t bytes = strcspn(word, " ");
        bool more = word[bytes] == ' ';
        word[bytes] = '\0';
        argv_[argc++] = word;
        word += bytes + more;
    }
    return tool_args_parse(argc, argv_, &args);
}

static void refused(const char *line, const char *why)
{
    ck_assert_msg(!parse(line), "%s was taken", line);
    ck_assert_msg(strstr(args.problem, why), "%s: %s, not %s", line, args.problem, why);
}

START_TEST(commands_and_operands)
{
    ck_assert(parse("list"));
    ck_assert_int_eq(args.command, TOOL_CMD_list);
    ck_assert(parse("--json commit a b -- -c"));
    ck_assert_int_eq(args.command, TOOL_CMD_commit);
    ck_assert_uint_eq(args.operands.n, 3);
    ck_assert_str_eq(args.operands.items[2], "-c");
    ck_assert(args.options.json);
    ck_assert(parse("commit -"));
    ck_assert_str_eq(args.operands.items[0], "-");
    ck_assert(parse("sinks"));
    ck_assert(parse("load a b"));
    ck_assert(parse("--version"));
    ck_assert(args.version);
    ck_assert(parse("commit --help"));
    ck_assert(parse("-h"));
    refused("", "which command");
    refused("lst", "no command 'lst'");
    refused("commit", "commit of what");
    refused("list x", "list takes no argument: x");
    refused("sinks a b", "one argument is enough");
    tool_args_clear(&args);
}
END_TEST

START_TEST(options_in_every_form)
{
    ck_assert(parse("list --state=Prepared -sCommitting -s Aborting --age 10m -dbq"));
    ck_assert_uint_eq(args.options.state.n, 3);
    ck_assert_str_eq(args.options.state.items[0], "Prepared");
    ck_assert_str_eq(args.options.state.items[1], "Committing");
    ck_assert_str_eq(args.options.state.items[2], "Aborting");
    ck_assert(args.options.older_than.given);
    ck_assert_uint_eq(args.options.older_than.value, 600000);
    ck_assert(args.options.in_doubt && args.options.blocked && args.options.quiet);
    ck_assert(parse("list --older-than=90 -u http://a -u http://b"));
    ck_assert_uint_eq(args.options.older_than.value, 90000);
    ck_assert_uint_eq(args.options.url.n, 2);
    ck_assert(parse("list --sink="));
    ck_assert_str_eq(args.options.sink, "");
    refused("list --sink", "--sink wants a value");
    refused("list --json=1", "--json takes no value");
    refused("list --stat x", "no option --stat");
    refused("list -Z", "no option -Z");
    refused("list --limit ten", "not a number");
    refused("list --limit 12345678901234567", "not a number");
    refused("list --age ten", "not a duration");
    refused("list --force", "list does not take --force");
    refused("forget x --force", "forget does not take --force");
    refused("commit x --prepare-only", "does not take --prepare-only");
    tool_args_clear(&args);
}
END_TEST

START_TEST(durations)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"0", 0},          {"90", 90000},     {"250ms", 250},
                {"90s", 90000},    {"10m", 600000},   {"1h30m", 5400000},
                {"2d", 172800000}, {"1w", 604800000}, {"1d1h1m1s1ms", 90061001}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ms = 1;
        ck_assert_msg(tool_duration_parse(good[i].text, &ms), "%s", good[i].text);
        ck_assert_uint_eq(ms, good[i].ms);
    }
    static const char *const bad[] = {
        "",      "m",    "-1m",  "1.5h",          "10 m",          "10M",
        "30m1h", "1m30", "1h1h", "9999999999999", "999999999999w", "1x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ms = 7;
        ck_assert_msg(!tool_duration_parse(bad[i], &ms), "%s", bad[i]);
        ck_assert_uint_eq(ms, 7);
    }
}
END_TEST

START_TEST(exit_codes)
{
    ck_assert_int_eq(tool_exit_worse(TOOL_OK, TOOL_OK), TOOL_OK);
    ck_assert_int_eq(tool_exit_worse(TOOL_REFUSED, TOOL_UNKNOWN), TOOL_UNKNOWN);
    ck_assert_int_eq(tool_exit_worse(TOOL_UNREACHABLE, TOOL_FINDINGS), TOOL_UNREACHABLE);
    ck_assert_int_eq(tool_exit_worse(TOOL_OK, TOOL_DECLINED), TOOL_DECLINED);
}
END_TEST

static struct load_plan plan;
static char problem[300];

static bool make(const char *line)
{
    load_plan_clear(&plan);
    ck_assert_msg(parse(line), "%s", args.problem);
    return load_plan_make(&args.options, args.operands.items, args.operands.n, &plan, problem,
                          sizeof problem);
}

START_TEST(load_plans)
{
    ck_assert(make("load --table db.t /x/flights-1.csv.gz b.parquet"));
    ck_assert_uint_eq(plan.n_files, 2);
    ck_assert_str_eq(plan.files[0].query, "INSERT INTO `db`.`t` FORMAT CSV");
    ck_assert_str_eq(plan.files[0].encoding, "gzip");
    ck_assert_str_eq(plan.files[0].write_id, "1.flights-1.csv.gz");
    ck_assert_str_eq(plan.files[1].query, "INSERT INTO `db`.`t` FORMAT Parquet");
    ck_assert_ptr_null(plan.files[1].encoding);
    ck_assert(make("load --table a`b --format CSVWithNames -"));
    ck_assert_str_eq(plan.files[0].query, "INSERT INTO a`b FORMAT CSVWithNames");
    ck_assert(make("load --table t --format TSV --content-encoding none x.gz"));
    ck_assert_ptr_null(plan.files[0].encoding);
    ck_assert(make("load --table t --format TSV"));
    ck_assert_str_eq(plan.files[0].path, "-");
    ck_assert_str_eq(plan.files[0].write_id, "1.stdin");
    ck_assert(make("load --query INSERT"));
    ck_assert(make("load --table t --format TSV --write-id w x"));
    ck_assert_str_eq(plan.files[0].write_id, "w");
    ck_assert(!make("load x"));
    ck_assert(!make("load --query q --table t x"));
    ck_assert(!make("load --query q --format TSV x"));
    ck_assert(!make("load --table t x.unknown"));
    ck_assert_ptr_nonnull(strstr(problem, "which format"));
    ck_assert(!make("load --table t --format TSV x.tsv.xz"));
    ck_assert_ptr_nonnull(strstr(problem, "do not decompress"));
    ck_assert(make("load --table t --format TSV --content-encoding none x.bz2"));
    ck_assert(make("load --table t x.tsv.ZST"));
    ck_assert_str_eq(plan.files[0].encoding, "zstd");
    ck_assert(!make("load --table t -"));
    ck_assert(!make("load --table t --format a;b x"));
    ck_assert(!make("load --table t --format TSV --write-id w x y"));
    load_plan_clear(&plan);
    char *id = load_write_id("/a/b c'\xc3\xa4.tsv", 3);
    ck_assert_str_eq(id, "3.b_c___.tsv");
    free(id);
    tool_args_clear(&args);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("args");
    TCase *t = tcase_create("args");
    args.command = TOOL_CMD_COUNT;
    tcase_add_test(t, commands_and_operands);
    tcase_add_test(t, options_in_every_form);
    tcase_add_test(t, durations);
    tcase_add_test(t, exit_codes);
    tcase_add_test(t, load_plans);
    suite_add_tcase(s, t);
    return suite_run(s);
}
