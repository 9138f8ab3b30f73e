/* SPDX-License-Identifier: Apache-2.0
 *
 * XID <-> transaction id: "xa<format id in decimal>:<gtrid in hex>:<bqual in hex>".
 *
 * The longest is 2 + 20 + 1 + 128 + 1 + 128 = 280 bytes, which is what an id may have. One to one: the decoder takes
 * exactly what the encoder writes, and nothing else (no leading zero, no "-0", no upper case).
 *
 * Pure; any thread.
 */
#include "client/include/chxa/xa_switch.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

_Static_assert(2 + 20 + 1 + 2 * MAXGTRIDSIZE + 1 + 2 * MAXBQUALSIZE <= CHXA_XID_BYTES_MAX,
               "every XID must have an id");
_Static_assert(LONG_MIN >= -0x7fffffffffffffff - 1, "a format id has 20 characters at most");

static char *hex_write(char *at, const char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        *at++ = digits[byte >> 4];
        *at++ = digits[byte & 15];
    }
    return at;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads digits up to the next other character into room; the number of bytes, or -1: an odd digit, or too many. */
static long hex_read(const char **at, char *bytes, long room)
{
    long n = 0;
    while (hex_digit(**at) >= 0) {
        int high = hex_digit((*at)[0]), low = hex_digit((*at)[1]);
        if (low < 0 || n == room)
            return -1;
        bytes[n++] = (char)(unsigned char)(high << 4 | low);
        *at += 2;
    }
    return n;
}

int chxa_xa_id_from_xid(const XID *xid, char ret_id[CHXA_XID_BYTES_MAX + 1])
{
    if (!xid || xid->formatID == -1 || xid->gtrid_length < 1 || xid->gtrid_length > MAXGTRIDSIZE ||
        xid->bqual_length < 0 || xid->bqual_length > MAXBQUALSIZE)
        return XAER_INVAL;
    int n = snprintf(ret_id, CHXA_XID_BYTES_MAX + 1, "xa%ld:", xid->formatID);
    assert(n > 3 && n <= 23);
    char *at = hex_write(ret_id + n, xid->data, (size_t)xid->gtrid_length);
    *at++ = ':';
    at = hex_write(at, xid->data + xid->gtrid_length, (size_t)xid->bqual_length);
    *at = 0;
    assert(at - ret_id <= (ptrdiff_t)CHXA_XID_BYTES_MAX);
    return XA_OK;
}

/* A format id as the encoder writes it, up to the ':'. */
static bool format_read(const char **at, long *ret_format)
{
    bool negative = **at == '-';
    const char *digits = *at + negative;
    if (*digits < '0' || *digits > '9' || (digits[0] == '0' && (negative || digits[1] != ':')))
        return false;
    unsigned long value = 0, max = negative ? (unsigned long)LONG_MAX + 1 : (unsigned long)LONG_MAX;
    for (; *digits >= '0' && *digits <= '9'; digits++) {
        unsigned long digit = (unsigned long)(*digits - '0');
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret_format = !negative ? (long)value : -(long)(value - 1) - 1;
    *at = digits;
    return *ret_format != -1;
}

int chxa_xa_id_to_xid(const char *id, XID *ret_xid)
{
    XID xid;
    memset(&xid, 0, sizeof xid);
    if (!id || strncmp(id, "xa", 2) != 0)
        return XAER_INVAL;
    const char *at = id + 2;
    if (!format_read(&at, &xid.formatID) || *at++ != ':')
        return XAER_INVAL;
    xid.gtrid_length = hex_read(&at, xid.data, MAXGTRIDSIZE);
    if (xid.gtrid_length < 1 || *at++ != ':')
        return XAER_INVAL;
    xid.bqual_length = hex_read(&at, xid.data + xid.gtrid_length, MAXBQUALSIZE);
    if (xid.bqual_length < 0 || *at != 0)
        return XAER_INVAL;
    *ret_xid = xid;
    return XA_OK;
}
