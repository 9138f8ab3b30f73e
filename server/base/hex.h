/* SPDX-License-Identifier: Apache-2.0
 *
 * Hexadecimal digits. Pure; any thread.
 */
#ifndef CHXA_BASE_HEX_H
#define CHXA_BASE_HEX_H

/* 0-15 for a digit of either case, -1 for any other character. Not isxdigit: no locale. */
int hex_value(char c);

#endif
