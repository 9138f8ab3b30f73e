/* SPDX-License-Identifier: Apache-2.0
 *
 * The xa_info string (chxa/xa_switch.h lists its keys). Pure but for reading the files of secrets; any thread.
 */
#ifndef CHXA_CLIENT_XA_INFO_H
#define CHXA_CLIENT_XA_INFO_H

#include "client/include/chxa/xa_switch.h"

#define XA_INFO_URLS_MAX         64u
#define XA_INFO_SECRET_BYTES_MAX 1024u

/* Pointers into itself: do not copy. */
struct xa_info {
    struct chxa_client_options options;
    uint64_t nowait_ms;
    uint64_t timeout_ms;
    bool scan_all, gather;
    const char *urls[XA_INFO_URLS_MAX];
    char text[MAXINFOSIZE]; /* the string, cut into words */
    char secret[XA_INFO_SECRET_BYTES_MAX + 1];
};

/*
 * XA_OK; XAER_INVAL (and why: static text in *ret_why), XAER_RMERR (a file that cannot be read). The caller wipes *ret_info with
 * cx_xa_info_wipe in either case, once the client is open.
 */
int cx_xa_info_parse(const char *text, struct xa_info *ret_info, const char **ret_why);
void cx_xa_info_wipe(struct xa_info *info);

#endif
