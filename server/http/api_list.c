/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /v1/transactions: the list, its filters, its pages.
 *
 * The filter by table needs the writes, which the store's list does not read: the page's records are
 * then read one by one, a few at a time, and those without a write to the table left out; as are those that cannot be
 * read, of which fsck tells.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "http/api_private.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_DEFAULT      100u
#define PAGE_MAX          1000u
#define PAGE_MAX_BY_TABLE 200u
#define GETS_AT_ONCE      16u
#define TABLE_NAME_MAX    (2 * 1024u + 1)
#define IN_DOUBT          (1u << CHXA_PREPARED | 1u << CHXA_COMMITTING | 1u << CHXA_ABORTING)
#define UNFINISHED        (IN_DOUBT | 1u << CHXA_INITIALIZED)

/* ---- one record ---- */

static long long age(int64_t now_ms, int64_t since_ms)
{
    return now_ms > since_ms ? (long long)(now_ms - since_ms) : 0;
}

int api_record_text(const struct chxa_record *record, bool whole, char **ret_text)
{
    char *text = NULL;
    int code = chxa_record_to_api_json(record, whole, whole, &text);
    if (code)
        return code;
    int64_t now_ms = clock_wall_ms();
    *ret_text =
        mem_printf("{\"age_ms\":%lld,\"in_state_ms\":%lld,%s", age(now_ms, record->created_ms),
                   age(now_ms, record->changed_ms), text + 1);
    free(text);
    return 0;
}

/* ---- a page ---- */

struct page {
    struct api_call *call;
    struct chxa_record *records;
    bool *is_left_out;
    size_t n_records, next_get, gets;
    char *next;
    int code;
};

static void page_answer(struct page *page)
{
    struct buf body = {0};
    const char *between = "";
    buf_puts(&body, "{\"transactions\":[");
    for (size_t i = 0; i < page->n_records && page->code == 0; i++) {
        char *text = NULL;
        if (page->is_left_out[i])
            continue;
        page->code = api_record_text(&page->records[i], false, &text);
        if (page->code == 0)
            buf_printf(&body, "%s%s", between, text);
        between = ",";
        free(text);
    }
    /* A page token is for URLs: nothing in it needs escaping. */
    if (page->next)
        buf_printf(&body, "],\"next\":\"%s\"}", page->next);
    else
        buf_puts(&body, "],\"next\":null}");
    api_answer_text(page->call, 200, page->code, buf_take(&body));
    for (size_t i = 0; i < page->n_records; i++)
        chxa_record_clear(&page->records[i]);
    free(page->records);
    free(page->is_left_out);
    free(page->next);
    free(page);
}

/* ---- by table ---- */

/* name: "table", or "database.table". */
static bool writes_to(const struct chxa_record *record, const char *name)
{
    for (size_t i = 0; i < record->n_writes; i++) {
        const struct chxa_target *target = &record->writes[i].target;
        size_t len = strlen(target->database);
        if (strcmp(target->table, name) == 0 ||
            (strncmp(name, target->database, len) == 0 && name[len] == '.' &&
             strcmp(name + len + 1, target->table) == 0))
            return true;
    }
    return false;
}

static void get_more(struct page *page);

struct page_get {
    struct page *page;
    size_t i;
};

static void one_got(void *arg, const struct store_result *result)
{
    struct page_get *get = arg;
    struct page *page = get->page;
    const char *name = http_request_param(page->call->request, "table");
    if (result->code == 0 || result->code == CHXA_E_TXN_NOT_FOUND ||
        result->code == CHXA_E_INVALID_RECORD)
        page->is_left_out[get->i] = result->code || !writes_to(result->record, name);
    else
        page->code = result->code;
    free(get);
    page->gets--;
    get_more(page);
}

static void get_more(struct page *page)
{
    while (page->code == 0 && page->gets < GETS_AT_ONCE && page->next_get < page->n_records) {
        struct page_get *get = mem_alloc(sizeof *get);
        *get = (struct page_get){page, page->next_get++};
        page->gets++;
        store_get(coord_store(page->call->api->coord), page->records[get->i].xid, one_got, get);
    }
    if (page->gets == 0)
        page_answer(page);
}

static void listed(void *arg, const struct store_list_result *result)
{
    struct api_call *call = arg;
    if (result->code) {
        api_answer_error(call, result->code, "%s", chxa_error_text(result->code));
        return;
    }
    struct page *page = mem_alloc(sizeof *page);
    page->call = call;
    page->next = mem_strdup(result->next);
    page->n_records = result->n_records;
    page->records = mem_array(page->n_records, sizeof *page->records);
    page->is_left_out = mem_array(page->n_records, sizeof *page->is_left_out);
    for (size_t i = 0; i < page->n_records; i++) {
        page->records[i] = result->records[i];
        result->records[i] = (struct chxa_record){0};
    }
    if (http_request_param(call->request, "table"))
        get_more(page);
    else
        page_answer(page);
}

/* ---- the request ---- */

/* "Prepared,Committing" → bits. False: a name is none. */
static bool read_states(const char *text, unsigned *ret_states)
{
    while (text && *text) {
        size_t len = strcspn(text, ",");
        char *name = mem_strndup(text, len);
        enum chxa_state state = chxa_state_from_name(name);
        free(name);
        if (state == CHXA_STATE_COUNT)
            return false;
        *ret_states |= 1u << state;
        text += len + (text[len] == ',');
    }
    return true;
}

/* False: nothing can have all of these. */
static bool narrow(struct store_filter *filter, bool in_doubt, bool blocked)
{
    unsigned all = filter->states ? filter->states : ~0u;
    if (in_doubt)
        all &= IN_DOUBT;
    if (blocked)
        all &= 1u << CHXA_COMMITTING;
    if (in_doubt || blocked || filter->states)
        filter->states = all;
    filter->blocked = blocked;
    /* Those in the index of unfinished ones are found fast. */
    if (filter->states && (filter->states & ~UNFINISHED) == 0)
        filter->unfinished = true;
    return all != 0;
}

static void list_with(struct api_call *call, struct store_filter *filter, bool in_doubt,
                      bool blocked)
{
    const char *table = http_request_param(call->request, "table");
    if (!read_states(http_request_param(call->request, "state"), &filter->states))
        api_answer_error(
            call, CHXA_E_INVALID_REQUEST,
            "state must be a list of states, like Prepared,Committing, in their exact spelling");
    else if (table && (*table == '\0' || strlen(table) > TABLE_NAME_MAX))
        api_answer_error(call, CHXA_E_INVALID_REQUEST, "table must be a table's name");
    else if (!narrow(filter, in_doubt, blocked))
        listed(call, &(struct store_list_result){0});
    else
        store_list(coord_store(call->api->coord), filter, listed, call);
}

void api_list(struct api_call *call)
{
    static const char *const known[] = {"state",         "owner",   "sink",       "table",
                                        "older_than_ms", "page",    "unfinished", "limit",
                                        "in_doubt",      "blocked", NULL};
    struct http_request *request = call->request;
    uint64_t limit = PAGE_DEFAULT, older_than_ms = 0, unfinished = 0, in_doubt = 0, blocked = 0;
    if (!api_params_known(call, known) || !api_param_number(call, "limit", 1, PAGE_MAX, &limit) ||
        !api_param_number(call, "older_than_ms", 0, INT64_MAX / 2, &older_than_ms) ||
        !api_param_number(call, "unfinished", 0, 1, &unfinished) ||
        !api_param_number(call, "in_doubt", 0, 1, &in_doubt) ||
        !api_param_number(call, "blocked", 0, 1, &blocked))
        return;
    if (http_request_param(request, "table") && limit > PAGE_MAX_BY_TABLE)
        limit = PAGE_MAX_BY_TABLE;
    struct store_filter filter = {
        .owner = http_request_param(request, "owner"),
        .sink = http_request_param(request, "sink"),
        .after = http_request_param(request, "page"),
        .unfinished = unfinished != 0,
        .skip_unreadable = true, /* fsck tells of them */
        .limit = limit,
        .created_before_ms = older_than_ms ? clock_wall_ms() - (int64_t)older_than_ms : 0,
    };
    if (older_than_ms && filter.created_before_ms < 1)
        filter.created_before_ms = 1;
    list_with(call, &filter, in_doubt != 0, blocked != 0);
}
