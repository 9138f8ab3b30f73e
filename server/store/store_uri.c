/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands behind "zookeeper:" in a store's URI: host[:port],host[:port]…[/chroot]. Pure.
 */
#include "store/store_impl.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define PORT_DEFAULT   2181u
#define HOST_BYTES_MAX 255u
#define HOSTS_MAX      64u

static bool host_valid(const char *host, size_t len)
{
    if (len == 0 || len > HOST_BYTES_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (host[i] <= ' ' || host[i] > '~' || strchr("/,@[]\"'\\", host[i]))
            return false;
    return true;
}

/* Digits only, 1-65535; an empty text gives the default. */
static bool port_parse(const char *text, size_t len, unsigned *ret_port)
{
    unsigned port = 0;
    if (len == 0 || len > 5)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    *ret_port = port;
    return port >= 1 && port <= 65535;
}

/* One host[:port], an IPv6 address in brackets. Appends "host:port". */
static bool server_parse(const char *text, size_t len, struct buf *hosts)
{
    const char *end = text + len;
    const char *host = text, *host_end;
    if (len && text[0] == '[') {
        host_end = memchr(text, ']', len);
        if (host_end == NULL || !host_valid(text + 1, (size_t)(host_end - text) - 1))
            return false;
        host_end++;
    } else {
        host_end = memchr(text, ':', len);
        if (host_end == NULL)
            host_end = end;
        if (!host_valid(host, (size_t)(host_end - host)))
            return false;
    }
    unsigned port = PORT_DEFAULT;
    if (host_end < end &&
        (*host_end != ':' || !port_parse(host_end + 1, (size_t)(end - host_end) - 1, &port)))
        return false;
    return buf_printf(hosts, "%s%.*s:%u", hosts->len ? "," : "", (int)(host_end - host), host,
                      port);
}

static bool hosts_parse(const char *text, size_t len, struct buf *hosts)
{
    unsigned n_hosts = 0;
    const char *end = text + len;
    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma ? comma : end;
        if (++n_hosts > HOSTS_MAX || !server_parse(text, (size_t)(stop - text), hosts))
            return false;
        if (comma == NULL)
            return true;
        text = comma + 1;
    }
}

/* /a/b; no empty, "." or ".." step, visible ASCII. */
static bool chroot_valid(const char *chroot)
{
    const char *at = chroot;
    while (*at == '/') {
        const char *step = ++at;
        while (*at && *at != '/')
            if (*at <= ' ' || *at++ > '~')
                return false;
        size_t len = (size_t)(at - step);
        if (len == 0 || len > 255 || (len == 1 && step[0] == '.') ||
            (len == 2 && step[0] == '.' && step[1] == '.'))
            return false;
    }
    return *at == '\0';
}

int store_uri_zookeeper(const char *location, char **ret_hosts, char **ret_chroot,
                        struct error *error)
{
    const char *slash = strchr(location, '/');
    size_t len = slash ? (size_t)(slash - location) : strlen(location);
    struct buf hosts = {0};
    char *chroot = mem_strdup(slash ? slash : "/chxa");
    size_t chroot_len = strlen(chroot);
    if (chroot[chroot_len - 1] == '/')
        chroot[chroot_len - 1] = '\0'; /* "/" is the root, "/a/" is "/a" */
    int code = 0;
    if (!hosts_parse(location, len, &hosts))
        code = error_set(error, CHXA_E_INVALID_REQUEST,
                         "zookeeper: needs host:port,host:port…, not \"%.*s\"", (int)len, location);
    else if (strlen(chroot) > 512 || !chroot_valid(chroot))
        code = error_set(error, CHXA_E_INVALID_REQUEST, "\"%s\" is no path of ZooKeeper", slash);
    if (code) {
        free(chroot);
        buf_clear(&hosts);
        return code;
    }
    *ret_hosts = buf_take(&hosts);
    *ret_chroot = chroot;
    return 0;
}
