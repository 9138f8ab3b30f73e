/* SPDX-License-Identifier: Apache-2.0
 *
 * See hex.h.
 */
#include "base/hex.h"

int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}
