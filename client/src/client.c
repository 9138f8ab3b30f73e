/* SPDX-License-Identifier: Apache-2.0
 *
 * A client: its options, copied and checked; its nodes, and in which order they are tried.
 *
 * The options never change after open and are read without the lock.
 */
#include "client/src/internal.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TIMEOUT_MS_MAX  86400000u /* a day */
#define REDIRECTS_MAX   50u
#define CONNECTIONS_MAX 10000u

/* ---- URLs ---- */

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr(".-_[]:", c) != NULL;
}

/* host[:port], lower case. False: empty, or with anything else in it. */
static bool authority_valid(const char *text)
{
    const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
    if (colon && bracket && colon < bracket)
        colon = NULL;
    if (*text == '\0' || colon == text || (*text == '[') != (bracket != NULL))
        return false;
    if (!bracket && colon && strchr(text, ':') != colon)
        return false;
    for (const char *c = text; *c; c++)
        if (!host_char(*c) || ((*c == '[' || *c == ']') && c != text && c != bracket))
            return false;
    if (colon == NULL)
        return bracket == NULL || bracket[1] == '\0';
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    return colon[1] >= '1' && colon[1] <= '9' && *end == '\0' && port <= 65535;
}

bool cx_url_cut(const char *url, char *ret_origin, size_t room)
{
    bool https = strncasecmp(url, "https://", 8) == 0;
    if (!https && strncasecmp(url, "http://", 7) != 0)
        return false;
    const char *scheme = https ? "https://" : "http://", *host = url + strlen(scheme);
    size_t len = strcspn(host, "/?#"), start = strlen(scheme);
    if (start + len + 1 > room || start + len > CHXA_URL_BYTES_MAX)
        return false;
    char origin[CHXA_URL_BYTES_MAX + 1];
    memcpy(origin, scheme, start);
    for (size_t i = 0; i < len; i++)
        origin[start + i] =
            (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] - 'A' + 'a' : host[i]);
    origin[start + len] = '\0';
    if (!authority_valid(origin + start))
        return false;
    const char *usual = https ? ":443" : ":80";
    size_t all = start + len, tail = strlen(usual);
    if (all > start + tail && strcmp(origin + all - tail, usual) == 0)
        origin[all - tail] = '\0';
    memcpy(ret_origin, origin, strlen(origin) + 1);
    return true;
}

bool cx_url_origin(const char *url, char *ret_origin, size_t room)
{
    char origin[CHXA_URL_BYTES_MAX + 1];
    if (url == NULL || !cx_url_cut(url, origin, sizeof origin))
        return false;
    const char *rest = strstr(url, "://") + 3;
    rest += strcspn(rest, "/?#");
    if ((*rest != '\0' && strcmp(rest, "/") != 0) || strlen(origin) + 1 > room)
        return false;
    memcpy(ret_origin, origin, strlen(origin) + 1);
    return true;
}

bool cx_url_is_https(const char *origin)
{
    return strncmp(origin, "https:", 6) == 0;
}

/* ---- options ---- */

void chxa_client_options_init(struct chxa_client_options *options)
{
    *options = (struct chxa_client_options){.size = sizeof *options,
                                            .connect_timeout_ms = 3000,
                                            .request_timeout_ms = 60000,
                                            .stall_timeout_ms = 60000,
                                            .deadline_ms = 120000,
                                            .redirects_max = 3,
                                            .connections_max = 64};
}

static bool duration_valid(unsigned ms)
{
    return ms >= 1 && ms <= TIMEOUT_MS_MAX;
}

/* Fit for a header line. */
static bool text_valid(const char *text)
{
    for (; text && *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static const char *what_is_wrong(const struct chxa_client_options *options)
{
    if (options->urls == NULL || options->n_urls == 0 || options->n_urls > CX_URLS_MAX)
        return "urls: 1 to 64 are needed";
    if ((unsigned)options->write_mode > CHXA_WRITE_FIRST)
        return "write_mode: not one of the three";
    if (!duration_valid(options->connect_timeout_ms) ||
        !duration_valid(options->request_timeout_ms) ||
        !duration_valid(options->stall_timeout_ms) || !duration_valid(options->deadline_ms))
        return "a time-out or the deadline is not between 1 ms and a day";
    if (options->redirects_max > REDIRECTS_MAX)
        return "redirects_max: at most 50";
    if (options->connections_max < 1 || options->connections_max > CONNECTIONS_MAX)
        return "connections_max: 1 to 10000";
    if (options->bearer_token && (options->user || options->password))
        return "bearer_token: not together with user and password";
    if (options->user && strchr(options->user, ':'))
        return "user: has a colon";
    if (options->password && !options->user)
        return "password: without user";
    if (options->key_file && !options->cert_file)
        return "key_file: without cert_file";
    if (!text_valid(options->user) || !text_valid(options->password) ||
        !text_valid(options->bearer_token) || !text_valid(options->user_agent))
        return "a credential or user_agent has a control character";
    return NULL;
}

static bool copy(const char **ret_copy, const char *text)
{
    *ret_copy = cx_strdup(text);
    return text == NULL || *ret_copy != NULL;
}

static bool copy_options(struct chxa_client *client, const struct chxa_client_options *from)
{
    struct chxa_client_options *to = &client->options;
    *to = *from;
    to->urls = NULL;
    to->user = to->password = to->bearer_token = NULL;
    to->ca_file = to->cert_file = to->key_file = to->user_agent = NULL;
    struct cx_buf agent = {0};
    if (from->user_agent)
        cx_buf_puts(&agent, from->user_agent);
    cx_buf_printf(&agent, "%slibchxa/%s", from->user_agent ? " " : "", CHXA_VERSION);
    client->agent = agent.data;
    return !agent.failed && copy(&to->user, from->user) && copy(&to->password, from->password) &&
           copy(&to->bearer_token, from->bearer_token) && copy(&to->ca_file, from->ca_file) &&
           copy(&to->cert_file, from->cert_file) && copy(&to->key_file, from->key_file);
}

static int copy_urls(struct chxa_client *client, const struct chxa_client_options *options,
                     struct chxa_error *error)
{
    client->only_https = true;
    for (size_t i = 0; i < options->n_urls; i++) {
        char origin[CHXA_URL_BYTES_MAX + 1];
        if (!cx_url_origin(options->urls[i], origin, sizeof origin))
            return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                           "urls[%zu]: not http://host:port or https://host:port", i);
        client->urls[i] = cx_strdup(origin);
        if (client->urls[i] == NULL)
            return cx_no_memory(error);
        client->only_https = client->only_https && cx_url_is_https(origin);
    }
    return 0;
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void curl_start(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- open, close ---- */

static void client_free(struct chxa_client *client)
{
    struct chxa_client_options *options = &client->options;
    const char *const secrets[] = {options->password, options->bearer_token};
    cx_http_free_easies(client);
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
        if (secrets[i])
            cx_wipe((void *)(uintptr_t)secrets[i], strlen(secrets[i]));
    const char *const texts[] = {options->user,    options->password,  options->bearer_token,
                                 options->ca_file, options->cert_file, options->key_file};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free((void *)(uintptr_t)texts[i]);
    for (size_t i = 0; i < CX_URLS_MAX; i++)
        free(client->urls[i]);
    free(client->agent);
    free(client);
}

int chxa_client_open(const struct chxa_client_options *options, struct chxa_client **ret_client,
                     struct chxa_error *error)
{
    struct chxa_error local;
    error = cx_error_start(error, &local);
    if (options == NULL || ret_client == NULL || options->size < sizeof *options)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST,
                       "options must come from chxa_client_options_init");
    const char *wrong = what_is_wrong(options);
    if (wrong)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "%s", wrong);
    pthread_once(&curl_once, curl_start);
    if (curl_ready != CURLE_OK)
        return cx_fail(error, CHXA_ERR_NO_MEMORY, "libcurl cannot be started");
    struct chxa_client *client = cx_alloc(sizeof *client);
    if (client == NULL)
        return cx_no_memory(error);
    int code = copy_urls(client, options, error);
    if (code == 0 && (!copy_options(client, options) || cx_cond_init(&client->freed)))
        code = cx_no_memory(error);
    if (code) {
        client_free(client);
        return code;
    }
    pthread_mutex_init(&client->lock, NULL);
    cx_random(&client->next_url, sizeof client->next_url);
    *ret_client = client;
    return cx_done(error);
}

void chxa_client_close(struct chxa_client *client)
{
    int saved = errno;
    if (client) {
        pthread_mutex_destroy(&client->lock);
        pthread_cond_destroy(&client->freed);
        client_free(client);
    }
    errno = saved;
}

/* ---- choices ---- */

void cx_client_order(struct chxa_client *client, bool begins, unsigned order[CX_URLS_MAX])
{
    unsigned n = (unsigned)client->options.n_urls, first = 0;
    enum chxa_write_mode mode = client->options.write_mode;
    if (mode == CHXA_WRITE_RANDOM || (mode == CHXA_WRITE_ROUND_ROBIN && !begins)) {
        cx_random(&first, sizeof first);
    } else if (mode == CHXA_WRITE_ROUND_ROBIN) {
        pthread_mutex_lock(&client->lock);
        first = client->next_url++;
        pthread_mutex_unlock(&client->lock);
    }
    for (unsigned i = 0; i < n; i++)
        order[i] = (first % n + i) % n;
}

uint64_t cx_client_deadline(const struct chxa_client *client, uint64_t deadline_ms)
{
    return cx_deadline(cx_now_ms(), deadline_ms ? deadline_ms : client->options.deadline_ms);
}
