/* SPDX-License-Identifier: Apache-2.0
 *
 * What this ClickHouse can do, found by asking it: ch_caps of table.h. One request.
 * Threads: the loop's.
 */
#include "ch/table.h"

#include "base/mem.h"
#include "ch/sql.h"

#include <stdlib.h>
#include <string.h>

struct setting {
    const char *name, *value;
};

/*
 * A scratch table keeps every part as the INSERT left it, takes any number of them and drops what
 * it no longer needs at once. Seen on 26.7: a TTL drop of a whole part does not mind the size
 * limits of merges, only max_number_of_merges_with_ttl_in_pool stops it.
 */
static const struct setting scratch_settings[] = {
    {"max_bytes_to_merge_at_max_space_in_pool", "1"},
    {"max_bytes_to_merge_at_min_space_in_pool", "1"},
    {"max_number_of_merges_with_ttl_in_pool", "0"},
    {"min_age_to_force_merge_seconds", "0"},
    {"parts_to_delay_insert", "1000000000"},
    {"parts_to_throw_insert", "1000000000"},
    {"max_parts_in_total", "1000000000"},
    {"inactive_parts_to_delay_insert", "0"},
    {"inactive_parts_to_throw_insert", "0"},
    {"max_avg_part_size_for_too_many_parts", "0"},
    /* An INSERT like an earlier one into the same scratch table must not be swallowed. */
    {"non_replicated_deduplication_window", "0"},
    {"async_insert", "0"},
    {"prewarm_mark_cache", "0"},
    {"prewarm_primary_key_cache", "0"},
    {"old_parts_lifetime", "1"},
};

/* The scratch table's CREATE may use whatever its target uses. */
static const struct setting create_settings[] = {
    {"allow_suspicious_low_cardinality_types", "1"},
    {"allow_suspicious_fixed_string_types", "1"},
    {"allow_suspicious_indices", "1"},
    {"allow_suspicious_ttl_expressions", "1"},
    {"allow_suspicious_variant_types", "1"},
    {"allow_suspicious_primary_key", "1"},
    {"allow_suspicious_types_in_order_by", "1"},
    {"allow_suspicious_types_in_group_by", "1"},
    {"allow_suspicious_codecs", "1"},
    {"allow_deprecated_syntax_for_merge_tree", "1"},
    {"allow_minmax_index_for_json", "1"},
    {"allow_nonconst_timezone_arguments", "1"},
    {"allow_not_comparable_types_in_order_by", "1"},
    {"allow_introspection_functions", "1"},
    {"allow_statistics", "1"},
    {"allow_experimental_codecs", "1"},
    {"allow_experimental_low_cardinality_type", "1"},
    {"allow_experimental_data_skipping_indices", "1"},
    {"allow_experimental_map_type", "1"},
    {"allow_experimental_bigint_types", "1"},
    {"allow_experimental_geo_types", "1"},
    {"allow_experimental_object_type", "1"},
    {"allow_experimental_json_type", "1"},
    {"allow_experimental_variant_type", "1"},
    {"allow_experimental_dynamic_type", "1"},
    {"allow_experimental_bfloat16_type", "1"},
    {"allow_experimental_qbit_type", "1"},
    {"allow_experimental_time_time64_type", "1"},
    {"allow_experimental_nullable_tuple_type", "1"},
    {"allow_experimental_inverted_index", "1"},
    {"allow_experimental_full_text_index", "1"},
    {"allow_experimental_vector_similarity_index", "1"},
    {"allow_experimental_annoy_index", "1"},
    {"allow_experimental_usearch_index", "1"},
    {"allow_experimental_statistic", "1"},
    {"allow_experimental_statistics", "1"},
    {"allow_experimental_nlp_functions", "1"},
    {"allow_experimental_hash_functions", "1"},
    {"allow_experimental_time_series_aggregate_functions", "1"},
    {"allow_experimental_ts_to_grid_aggregate_function", "1"},
    {"enable_json_type", "1"},
    {"enable_variant_type", "1"},
    {"enable_dynamic_type", "1"},
    {"enable_qbit_type", "1"},
    {"enable_time_time64_type", "1"},
    {"enable_nullable_tuple_type", "1"},
    /* The columns are the target's as they are, not to be read again by today's defaults. */
    {"flatten_nested", "0"},
    {"data_type_default_nullable", "0"},
};

/* What is asked for besides those. */
static const char *const query_settings[] = {
    "async_insert", "insert_deduplicate", "database_atomic_wait_for_drop_and_detach_synchronously",
    "max_table_size_to_drop"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void ch_caps_clear(struct ch_caps *caps)
{
    free(caps->version);
    free(caps->scratch_settings);
    free(caps->create_params);
    *caps = (struct ch_caps){0};
}

void ch_caps_copy(const struct ch_caps *from, struct ch_caps *ret)
{
    *ret = *from;
    ret->version = mem_strdup(from->version);
    ret->scratch_settings = mem_strdup(from->scratch_settings);
    ret->create_params = mem_array(from->n_create_params, sizeof *ret->create_params);
    for (size_t i = 0; i < from->n_create_params; i++)
        ret->create_params[i] = from->create_params[i];
}

/* ---- the question ---- */

static void append_names(struct buf *sql, const struct setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sql_string(sql, settings[i].name);
        buf_puts(sql, ", ");
    }
}

static char *caps_sql(void)
{
    struct buf sql = {0};
    buf_puts(&sql, "SELECT 'version' AS kind, version() AS name"
                   " UNION ALL SELECT concat('column ', table), name FROM system.columns"
                   " WHERE database = 'system' AND table IN ('tables', 'disks')"
                   " UNION ALL SELECT 'table', name FROM system.tables"
                   " WHERE database = 'system' AND name IN ('disks', 'mutations')"
                   " UNION ALL SELECT 'merge_tree', name FROM system.merge_tree_settings"
                   " WHERE name IN (");
    append_names(&sql, scratch_settings, COUNT(scratch_settings));
    buf_puts(&sql, "'') UNION ALL SELECT 'setting', name FROM system.settings WHERE name IN (");
    append_names(&sql, create_settings, COUNT(create_settings));
    for (size_t i = 0; i < COUNT(query_settings); i++) {
        sql_string(&sql, query_settings[i]);
        buf_puts(&sql, ", ");
    }
    buf_puts(&sql, "'') FORMAT TSV");
    return buf_take(&sql);
}

/* ---- the answer ---- */

/* True when the answer has the line "kind\tname". */
static bool has_line(const char *body, const char *kind, const char *name)
{
    size_t kind_len = strlen(kind), name_len = strlen(name);
    for (const char *line = body; *line;) {
        size_t len = strcspn(line, "\n");
        if (len == kind_len + 1 + name_len && strncmp(line, kind, kind_len) == 0 &&
            line[kind_len] == '\t' && strncmp(line + kind_len + 1, name, name_len) == 0)
            return true;
        line += len;
        if (*line)
            line++;
    }
    return false;
}

static char *version_of(const char *body)
{
    static const char kind[] = "version\t";
    for (const char *line = body; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, kind, strlen(kind)) == 0)
            return mem_strndup(line + strlen(kind), strcspn(line + strlen(kind), "\n"));
    }
    return NULL;
}

static char *settings_known(const char *body)
{
    struct buf text = {0};
    for (size_t i = 0; i < COUNT(scratch_settings); i++)
        if (has_line(body, "merge_tree", scratch_settings[i].name))
            buf_printf(&text, "%s%s = %s", text.len ? ", " : "", scratch_settings[i].name,
                       scratch_settings[i].value);
    return buf_take(&text);
}

static void caps_read(const char *body, struct ch_caps *caps)
{
    caps->version = version_of(body);
    caps->has_data_paths = has_line(body, "column tables", "data_paths");
    caps->has_uuid = has_line(body, "column tables", "uuid");
    caps->has_unique_key = has_line(body, "column tables", "unique_key");
    caps->has_disks = has_line(body, "table", "disks") && has_line(body, "column disks", "type");
    caps->has_disk_encrypted = has_line(body, "column disks", "is_encrypted");
    caps->has_disk_cache = has_line(body, "column disks", "cache_path");
    caps->has_mutations = has_line(body, "table", "mutations");
    caps->has_insert_settings = has_line(body, "setting", "async_insert");
    caps->has_drop_sync =
        has_line(body, "setting", "database_atomic_wait_for_drop_and_detach_synchronously");
    caps->has_drop_limits = has_line(body, "setting", "max_table_size_to_drop");
    caps->has_insert_deduplicate = has_line(body, "setting", "insert_deduplicate");
    caps->scratch_settings = settings_known(body);
    caps->create_params = mem_array(COUNT(create_settings), sizeof *caps->create_params);
    for (size_t i = 0; i < COUNT(create_settings); i++)
        if (has_line(body, "setting", create_settings[i].name))
            caps->create_params[caps->n_create_params++] =
                (struct ch_param){create_settings[i].name, create_settings[i].value};
}

struct caps_probe {
    ch_caps_cb *done;
    void *arg;
};

static void caps_answered(void *arg, const struct ch_answer *answer)
{
    struct caps_probe probe = *(struct caps_probe *)arg;
    free(arg);
    struct ch_caps caps = {0};
    struct error error = {0};
    int code = answer->code;
    if (code != 0) {
        error_move(&error, answer->error);
    } else {
        caps_read(answer->body, &caps);
        if (caps.version == NULL)
            code = error_set(&error, CHXA_E_CLICKHOUSE_UNKNOWN,
                             "ClickHouse's answer to the question for its version holds none");
    }
    probe.done(probe.arg, code, &error, &caps);
    ch_caps_clear(&caps);
    error_clear(&error);
}

void ch_caps_probe(struct ch_client *client, uint64_t timeout_ms, ch_caps_cb *done, void *arg)
{
    struct caps_probe *probe = mem_alloc(sizeof *probe);
    *probe = (struct caps_probe){done, arg};
    char *sql = caps_sql();
    struct ch_statement statement = {.sql = sql, .timeout_ms = timeout_ms};
    ch_query(client, &statement, caps_answered, probe);
    free(sql);
}
