/* SPDX-License-Identifier: Apache-2.0
 *
 * See ch_url.h.
 */
#include "ch/ch_url.h"

#include "base/mem.h"

#include <string.h>

#define ALPHANUMERIC "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

/* Length of host at the start of text (a name, an IPv4 address, an IPv6 one in brackets); 0: none.
 */
static size_t host_length(const char *text)
{
    if (*text != '[')
        return strspn(text, ALPHANUMERIC "-._");
    size_t inner = strspn(text + 1, "0123456789abcdefABCDEF:.");
    return inner && text[1 + inner] == ']' ? inner + 2 : 0;
}

int ch_url_base(const char *text, char **ret_url, struct error *error)
{
    const char *rest = strncmp(text, "http://", 7) == 0    ? text + 7
                       : strncmp(text, "https://", 8) == 0 ? text + 8
                                                           : NULL;
    size_t host = rest ? host_length(rest) : 0;
    bool good = host > 0;
    if (good) {
        rest += host;
        if (*rest == ':') {
            size_t digits = strspn(rest + 1, "0123456789");
            good = digits >= 1 && digits <= 5;
            rest += 1 + digits;
        }
    }
    if (!good || (strcmp(rest, "") != 0 && strcmp(rest, "/") != 0))
        return error_set(error, CHXA_E_INVALID_REQUEST,
                         "the URL of ClickHouse must be http://host:port or https://host:port, "
                         "with nothing behind it: %s",
                         text);
    *ret_url = mem_printf("%.*s/", (int)(rest - text), text);
    return 0;
}

static void percent_encode(struct buf *out, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    while (*text) {
        size_t len = strspn(text, ALPHANUMERIC "-_.");
        buf_append(out, text, len);
        text += len;
        if (*text) {
            unsigned char c = (unsigned char)*text++;
            const char escaped[] = {'%', hex[c >> 4], hex[c & 15]};
            buf_append(out, escaped, sizeof escaped);
        }
    }
}

void ch_url_param(struct buf *url, const char *name, const char *value)
{
    buf_puts(url, "&");
    percent_encode(url, name);
    buf_puts(url, "=");
    percent_encode(url, value);
}
