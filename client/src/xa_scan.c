/* SPDX-License-Identifier: Apache-2.0
 *
 * What xa_recover lists: every branch whose id is one of ours, whoever began it, for the TM knows its own by their format and gtrid.
 *
 * In doubt are Prepared, Committing and Aborting: until the end is reached, a TM may still have to ask for it. What an operator ended is finished
 * for the nodes, and in the long list of all that is finished within the retention; so that is only gone through when xa_info says scan=all.
 */
#include "client/src/internal.h"
#include "client/src/xa_state.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX    "xa"
#define XIDS_MAX  1000000u
#define PAGE_PATH "/v1/transactions?state=Committed,Aborted&limit=1000"

void cx_xa_scan_clear(struct xa_scan *scan)
{
    free(scan->xids);
    memset(scan, 0, sizeof *scan);
}

static int scan_add(struct xa_scan *scan, size_t *room, const char *id, struct chxa_error *error)
{
    XID xid;
    if (!id || chxa_xa_id_to_xid(id, &xid))
        return 0; /* not ours */
    if (scan->n == XIDS_MAX)
        return cx_fail(error, CHXA_ERR_INVALID_REQUEST, "more than %u branches", XIDS_MAX);
    if (scan->n == *room) {
        size_t grown_room = *room ? 2 * *room : 64;
        void *grown = cx_realloc(scan->xids, grown_room * sizeof *scan->xids);
        if (!grown)
            return cx_no_memory(error);
        scan->xids = grown;
        *room = grown_room;
    }
    scan->xids[scan->n++] = xid;
    return 0;
}

static int add_in_doubt(struct xa_open *open, struct xa_scan *scan, size_t *room,
                        struct chxa_error *error)
{
    struct chxa_filter filter;
    struct chxa_txn_record *records = NULL;
    size_t n = 0;
    chxa_filter_init(&filter);
    filter.xid_prefix = PREFIX;
    filter.in_doubt_only = true;
    int code = chxa_recover(open->instance->client, &filter, &records, &n, error);
    if (code)
        return code;
    for (size_t i = 0; code == 0 && i < n; i++)
        code = scan_add(scan, room, records[i].xid, error);
    chxa_records_free(records, n);
    return code;
}

/* An operator's: it did not end as was decided, or somebody gave a reason, which a TM never does. */
static bool by_operator(const json_t *record)
{
    return json_is_string(json_object_get(record, "heuristic")) ||
           json_is_string(json_object_get(record, "given_reason"));
}

/* One page of what is finished; *token goes on to the next one's, or NULL. */
static int add_page(struct xa_open *open, struct xa_scan *scan, size_t *room, char **token,
                    struct chxa_error *error)
{
    struct cx_buf path = {0};
    char *body = NULL;
    size_t bytes = 0;
    cx_buf_puts(&path, PAGE_PATH);
    if (*token) {
        cx_buf_puts(&path, "&page=");
        cx_buf_uri(&path, *token);
    }
    int code = path.failed ? cx_no_memory(error)
                           : chxa_request(open->instance->client, NULL, "GET", path.data, NULL,
                                          &body, &bytes, error);
    json_t *page = code ? NULL : json_loadb(body, bytes, 0, NULL);
    const json_t *list = json_object_get(page, "transactions");
    const char *next = json_string_value(json_object_get(page, "next"));
    if (code == 0 && !json_is_array(list))
        code = cx_fail(error, CHXA_ERR_BAD_ANSWER, "the answer is no list of transactions");
    for (size_t i = 0; code == 0 && i < json_array_size(list); i++) {
        const json_t *record = json_array_get(list, i);
        if (by_operator(record))
            code = scan_add(scan, room, json_string_value(json_object_get(record, "xid")), error);
    }
    if (code == 0 && next && *token && strcmp(next, *token) == 0)
        code = cx_fail(error, CHXA_ERR_BAD_ANSWER, "the list has no end");
    free(*token);
    *token = code ? NULL : cx_strdup(next);
    if (code == 0 && next && !*token)
        code = cx_no_memory(error);
    json_decref(page);
    chxa_free(body);
    cx_buf_clear(&path);
    return code;
}

int cx_xa_scan_start(struct xa_open *open, struct chxa_error *error)
{
    struct xa_scan scan = {.open = true};
    size_t room = 0;
    char *token = NULL;
    cx_xa_scan_clear(&open->scan);
    memset(error, 0, sizeof *error);
    int code = add_in_doubt(open, &scan, &room, error);
    if (code == 0 && open->instance->scan_all) {
        do {
            code = add_page(open, &scan, &room, &token, error);
        } while (code == 0 && token);
    }
    if (code) {
        cx_xa_scan_clear(&scan);
        return error->xa_code == XAER_RMFAIL ? XAER_RMFAIL : XAER_RMERR;
    }
    open->scan = scan;
    return XA_OK;
}
