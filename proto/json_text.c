/* SPDX-License-Identifier: Apache-2.0
 *
 * See json_text.h.
 */
#include "json_text.h"

#include "errors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int json_parse(const char *text, size_t text_bytes, size_t flags, json_t **ret_value)
{
    json_error_t why;
    json_t *value = json_loadb(text, text_bytes, flags, &why);
    if (value) {
        *ret_value = value;
        return 0;
    }
    /* Where an allocation failed in its parser, jansson often says nothing at all. */
    bool memory = json_error_code(&why) == json_error_unknown ||
                  json_error_code(&why) == json_error_out_of_memory;
    return memory ? CHXA_E_NO_MEMORY : CHXA_E_INVALID_RECORD;
}

void json_build_start(struct json_build *build)
{
    build->object = json_object();
}

void json_build_put(struct json_build *build, const char *key, json_t *value)
{
    if (build->object == NULL) {
        json_decref(value);
        return;
    }
    if (json_object_set_new(build->object, key, value) != 0) {
        json_decref(build->object);
        build->object = NULL;
    }
}

void json_build_number(struct json_build *build, const char *key, uint64_t number)
{
    uint64_t top = (uint64_t)INT64_MAX;
    json_build_put(build, key, json_integer((json_int_t)(number > top ? top : number)));
}

void json_build_bool(struct json_build *build, const char *key, bool value)
{
    json_build_put(build, key, json_boolean(value));
}

void json_build_text(struct json_build *build, const char *key, const char *text, bool always)
{
    if (text)
        json_build_put(build, key, json_string(text));
    else if (always)
        json_build_put(build, key, json_null());
}

bool json_build_append(json_t *array, json_t *value)
{
    return json_array_append_new(array, value) == 0;
}

/* Into a buffer of ours: json_dumps of jansson 2.14 loses text without a word when an allocation
 * fails, and half a record must not reach the store. */
static char *dump(const json_t *object)
{
    size_t bytes = json_dumpb(object, NULL, 0, JSON_COMPACT);
    char *text = bytes ? malloc(bytes + 1) : NULL;
    if (text == NULL)
        return NULL;
    if (json_dumpb(object, text, bytes, JSON_COMPACT) != bytes) {
        free(text);
        return NULL;
    }
    text[bytes] = '\0';
    return text;
}

int json_build_finish(struct json_build *build, const char *extra_key, const char *extra,
                      char **ret_text)
{
    if (build->object == NULL)
        return CHXA_E_NO_MEMORY;
    char *text = dump(build->object);
    json_decref(build->object);
    build->object = NULL;
    if (text == NULL)
        return CHXA_E_NO_MEMORY;
    if (extra) {
        size_t len = strlen(text);
        assert(len > 2 && text[len - 1] == '}'); /* there is a member before it */
        size_t key_len = strlen(extra_key);
        size_t extra_len = strlen(extra);
        char *longer = realloc(text, len + key_len + extra_len + 5);
        if (longer == NULL) {
            free(text);
            return CHXA_E_NO_MEMORY;
        }
        text = longer;
        char *at = text + len - 1;
        *at++ = ',';
        *at++ = '"';
        memcpy(at, extra_key, key_len);
        at += key_len;
        *at++ = '"';
        *at++ = ':';
        memcpy(at, extra, extra_len);
        at += extra_len;
        *at++ = '}';
        *at = '\0';
    }
    *ret_text = text;
    return 0;
}
