/* SPDX-License-Identifier: Apache-2.0
 *
 * URLs of requests to ClickHouse. Pure; any thread.
 */
#ifndef CHXA_CH_CH_URL_H
#define CHXA_CH_CH_URL_H

#include "base/buf.h"
#include "base/error.h"

/* Checks http://host[:port][/] or https://…, nothing behind it, and gives it (for the caller to
 * free) with a slash at the end. Error: CHXA_E_INVALID_REQUEST. */
int ch_url_base(const char *text, char **ret_url, struct error *error);
/* Appends &name=value, percent-encoded. */
void ch_url_param(struct buf *url, const char *name, const char *value);

#endif
