/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON text to objects and back, on jansson, with this project's error codes: parsing, and building
 * with one error at the end instead of one per field. Internal to proto/. Strings given are valid
 * UTF-8 (record_check.h), so a failed call means no memory.
 */
#ifndef CHXA_PROTO_JSON_TEXT_H
#define CHXA_PROTO_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Parses text with jansson's flags into *ret_value (for the caller to decref).
 * CHXA_E_INVALID_RECORD; CHXA_E_NO_MEMORY. (jansson 2.14 takes some failed allocations in its
 * parser for bad syntax, and trips over its own assertion at others: nothing to be done here.)
 */
int json_parse(const char *text, size_t text_bytes, size_t flags, json_t **ret_value);

struct json_build {
    json_t *object; /* NULL once something failed */
};

void json_build_start(struct json_build *build);
/* Takes value over, also on failure; a NULL value is a failure. */
void json_build_put(struct json_build *build, const char *key, json_t *value);
/* Numbers above 2^63-1 are cut there (totals; everything else was checked before). */
void json_build_number(struct json_build *build, const char *key, uint64_t number);
void json_build_bool(struct json_build *build, const char *key, bool value);
/* NULL is put as null when `always`, else left out. */
void json_build_text(struct json_build *build, const char *key, const char *text, bool always);
/* Appends value (taken over) to array; false when there is no memory. */
bool json_build_append(json_t *array, json_t *value);
/* The compact text (malloc'd) in *ret_text, or CHXA_E_NO_MEMORY. Frees the object. extra, if not
 * NULL, is a JSON text that becomes the last member, `extra_key`, exactly as it is. */
int json_build_finish(struct json_build *build, const char *extra_key, const char *extra,
                      char **ret_text);

#endif
