/* SPDX-License-Identifier: Apache-2.0
 *
 * "key=value key=value …" to client options.
 */
#include "client/src/xa_info.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define BLANKS " \t\r\n"

enum value_kind {
    VALUE_TEXT,
    VALUE_URLS,
    VALUE_MODE,
    VALUE_UINT,
    VALUE_UINT64,
    VALUE_SCAN,
    VALUE_YES,
    VALUE_SECRET
};

#define OPTION(field) offsetof(struct xa_info, options.field)

static const struct key {
    const char *name;
    enum value_kind kind;
    size_t offset; /* of the field in struct xa_info */
} keys[] = {
    {"url", VALUE_URLS, OPTION(urls)},
    {"write_mode", VALUE_MODE, OPTION(write_mode)},
    {"deadline_ms", VALUE_UINT, OPTION(deadline_ms)},
    {"connect_timeout_ms", VALUE_UINT, OPTION(connect_timeout_ms)},
    {"request_timeout_ms", VALUE_UINT, OPTION(request_timeout_ms)},
    {"nowait_ms", VALUE_UINT64, offsetof(struct xa_info, nowait_ms)},
    {"timeout_ms", VALUE_UINT64, offsetof(struct xa_info, timeout_ms)},
    {"scan", VALUE_SCAN, offsetof(struct xa_info, scan_all)},
    {"gather", VALUE_YES, offsetof(struct xa_info, gather)},
    {"user", VALUE_TEXT, OPTION(user)},
    {"password_file", VALUE_SECRET, OPTION(password)},
    {"bearer_token_file", VALUE_SECRET, OPTION(bearer_token)},
    {"ca_file", VALUE_TEXT, OPTION(ca_file)},
    {"cert_file", VALUE_TEXT, OPTION(cert_file)},
    {"key_file", VALUE_TEXT, OPTION(key_file)},
};
#define N_KEYS (sizeof keys / sizeof keys[0])

void cx_xa_info_wipe(struct xa_info *info)
{
    explicit_bzero(info, sizeof *info);
}

static int read_number(const char *value, uint64_t max, uint64_t *ret_number)
{
    uint64_t number = 0;
    if (!*value)
        return XAER_INVAL;
    for (; *value; value++) {
        if (*value < '0' || *value > '9' || number > (max - (uint64_t)(*value - '0')) / 10)
            return XAER_INVAL;
        number = number * 10 + (uint64_t)(*value - '0');
    }
    *ret_number = number;
    return XA_OK;
}

static int read_urls(char *value, struct xa_info *info)
{
    while (*value) {
        size_t len = strcspn(value, ",");
        if (len == 0 || info->options.n_urls == XA_INFO_URLS_MAX)
            return XAER_INVAL;
        info->urls[info->options.n_urls++] = value;
        value += len;
        if (*value == ',') {
            *value++ = 0;
            if (!*value)
                return XAER_INVAL;
        }
    }
    info->options.urls = info->urls;
    return info->options.n_urls ? XA_OK : XAER_INVAL;
}

static int read_mode(const char *value, enum chxa_write_mode *ret_mode)
{
    static const char *const names[] = {
        [CHXA_WRITE_RANDOM] = "random",
        [CHXA_WRITE_ROUND_ROBIN] = "round_robin",
        [CHXA_WRITE_FIRST] = "first",
    };
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            *ret_mode = (enum chxa_write_mode)i;
            return XA_OK;
        }
    }
    return XAER_INVAL;
}

/* The first line of a file, which must not be empty. One secret per string: a password or a token. */
static int read_secret(const char *path, struct xa_info *info)
{
    if (info->secret[0])
        return XAER_INVAL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return XAER_RMERR;
    size_t n = 0;
    ssize_t got;
    while (n < sizeof info->secret &&
           (got = read(file, info->secret + n, sizeof info->secret - n)) > 0)
        n += (size_t)got;
    close(file);
    size_t len = 0;
    while (len < n && info->secret[len] && info->secret[len] != '\n' && info->secret[len] != '\r')
        len++;
    if (len == 0 || len == sizeof info->secret)
        return XAER_RMERR;
    explicit_bzero(info->secret + len, sizeof info->secret - len);
    return XA_OK;
}

static int take(const struct key *key, char *value, struct xa_info *info)
{
    void *field = (char *)info + key->offset;
    uint64_t number;
    int code;
    switch (key->kind) {
    case VALUE_URLS:
        return read_urls(value, info);
    case VALUE_MODE:
        return read_mode(value, field);
    case VALUE_UINT:
        code = read_number(value, INT_MAX, &number);
        if (code == XA_OK)
            *(unsigned *)field = (unsigned)number;
        return code;
    case VALUE_UINT64:
        return read_number(value, INT64_MAX, field);
    case VALUE_SCAN:
        *(bool *)field = strcmp(value, "all") == 0;
        return *(bool *)field || strcmp(value, "in_doubt") == 0 ? XA_OK : XAER_INVAL;
    case VALUE_YES:
        *(bool *)field = strcmp(value, "yes") == 0;
        return *(bool *)field || strcmp(value, "no") == 0 ? XA_OK : XAER_INVAL;
    case VALUE_SECRET:
        code = read_secret(value, info);
        *(const char **)field = info->secret;
        return code;
    default:
        *(const char **)field = value;
        return *value ? XA_OK : XAER_INVAL;
    }
}

int cx_xa_info_parse(const char *text, struct xa_info *ret_info, const char **ret_why)
{
    struct xa_info *info = ret_info;
    memset(info, 0, sizeof *info);
    chxa_client_options_init(&info->options);
    info->nowait_ms = 1000;
    *ret_why = "xa_info is longer than 255 bytes";
    size_t len = text ? strnlen(text, MAXINFOSIZE) : MAXINFOSIZE;
    if (len == MAXINFOSIZE)
        return XAER_INVAL;
    memcpy(info->text, text, len + 1);
    unsigned seen = 0;
    for (char *word = info->text; *(word += strspn(word, BLANKS));) {
        char *next = word + strcspn(word, BLANKS);
        if (*next)
            *next++ = 0;
        char *value = strchr(word, '=');
        *ret_why = "xa_info has a word that is not key=value";
        if (!value)
            return XAER_INVAL;
        *value++ = 0;
        size_t i = 0;
        while (i < N_KEYS && strcmp(keys[i].name, word) != 0)
            i++;
        *ret_why = "xa_info has a key that is unknown, or there twice";
        if (i == N_KEYS || (seen & 1u << i))
            return XAER_INVAL;
        seen |= 1u << i;
        *ret_why = "xa_info has a key with a value that is not allowed";
        int code = take(&keys[i], value, info);
        if (code == XAER_RMERR)
            *ret_why = "a file named in xa_info cannot be read, or its first line is empty";
        if (code)
            return code;
        word = next;
    }
    *ret_why = "xa_info has no url";
    return info->options.n_urls ? XA_OK : XAER_INVAL;
}
