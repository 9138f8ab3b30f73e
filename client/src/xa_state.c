/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances, branches and associations. See xa_state.h.
 */
#include "client/src/xa_state.h"

#include "client/src/internal.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct thread {
    struct xa_open *opens;
    struct chxa_error error;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of instances and branches */
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;  /* some branch is no longer busy */
static struct xa_instance *instances;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

/* ---- branches; all with the lock -------------------------------------------------------------------------------- */

static struct xa_branch_entry **bucket(struct xa_instance *instance, const char *id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return &instance->buckets[hash % (sizeof instance->buckets / sizeof instance->buckets[0])];
}

static struct xa_branch_entry *branch_find(struct xa_instance *instance, const char *id)
{
    struct xa_branch_entry *branch = *bucket(instance, id);
    while (branch && strcmp(branch->id, id) != 0)
        branch = branch->next;
    return branch;
}

static void branch_remove(struct xa_instance *instance, struct xa_branch_entry *branch)
{
    assert(!branch->busy && branch->associations == 0 && !branch->migrating);
    struct xa_branch_entry **at = bucket(instance, branch->id);
    while (*at != branch)
        at = &(*at)->next;
    *at = branch->next;
    instance->n_branches--;
    free(branch);
}

/* A prepared branch's entry only saves a redirect: some other process may have ended it long ago. */
static bool make_room(struct xa_instance *instance)
{
    if (instance->n_branches < XA_BRANCHES_MAX)
        return true;
    for (size_t i = 0; i < sizeof instance->buckets / sizeof instance->buckets[0]; i++) {
        for (struct xa_branch_entry *branch = instance->buckets[i]; branch; branch = branch->next) {
            if (branch->state == XA_BRANCH_PREPARED && !branch->busy) {
                branch_remove(instance, branch);
                return true;
            }
        }
    }
    return false;
}

static struct xa_branch_entry *branch_add(struct xa_instance *instance, const char *id)
{
    struct xa_branch_entry *branch =
        make_room(instance) ? cx_alloc(sizeof *branch) : (struct xa_branch_entry *)NULL;
    if (!branch)
        return NULL;
    assert(strlen(id) <= CHXA_XID_BYTES_MAX);
    memcpy(branch->id, id, strlen(id) + 1);
    struct xa_branch_entry **at = bucket(instance, id);
    branch->next = *at;
    *at = branch;
    instance->n_branches++;
    return branch;
}

static enum xa_branch branch_state(const struct xa_branch_entry *branch)
{
    return branch ? branch->state : XA_BRANCH_ELSEWHERE;
}

/* The branch when no other thread's call for it is under way. False: there is one, and we must not wait. */
static bool branch_wait(struct xa_instance *instance, const char *id, bool nowait,
                        struct xa_branch_entry **ret_branch)
{
    struct xa_branch_entry *branch;
    while ((branch = branch_find(instance, id)) && branch->busy) {
        if (nowait)
            return false;
        pthread_cond_wait(&given, &lock);
    }
    *ret_branch = branch;
    return true;
}

static void branch_give(struct xa_instance *instance, struct xa_branch_entry *branch)
{
    assert(branch->busy);
    branch->busy = false;
    pthread_cond_broadcast(&given);
    if (branch->state == XA_BRANCH_ELSEWHERE)
        branch_remove(instance, branch);
}

/* ---- associations; all with the lock ---------------------------------------------------------------------------- */

static struct xa_association_entry **association_of(struct xa_association_entry **list,
                                                    const struct xa_branch_entry *branch)
{
    while (*list && (*list)->branch != branch)
        list = &(*list)->next;
    return list;
}

static enum xa_association association_state(struct xa_open *open,
                                             const struct xa_branch_entry *branch)
{
    const struct xa_association_entry *own =
        branch ? *association_of(&open->associations, branch) : NULL;
    if (own)
        return own->suspended ? XA_SUSPENDED : XA_ASSOCIATED;
    return branch && branch->migrating ? XA_MIGRATING : XA_NOT_ASSOCIATED;
}

struct xa_association_entry *cx_xa_state_active(struct xa_open *open)
{
    struct xa_association_entry *at = open->associations;
    while (at && at->suspended)
        at = at->next;
    return at;
}

/* Both tables. The association's word comes first, except that nobody can be associated with what does not exist. */
static int check(struct xa_open *open, const struct xa_branch_entry *branch, enum xa_event event,
                 enum xa_branch *ret_next)
{
    const struct xa_association_entry *active = cx_xa_state_active(open);
    enum xa_association now = association_state(open, branch), next;
    int code = cx_xa_table_associate(now, active && active->branch != branch, event, &next);
    if (code && !branch && event >= XA_EVENT_RESUME)
        return XAER_NOTA;
    if (code)
        return code;
    bool others = branch && branch->associations > (now != XA_NOT_ASSOCIATED);
    return cx_xa_table_branch(branch_state(branch), others, event, ret_next);
}

/* Takes an association out: this thread's own, or one that migrates. */
static struct xa_association_entry *association_take(struct xa_open *open,
                                                     struct xa_branch_entry *branch)
{
    struct xa_association_entry **at = association_of(&open->associations, branch);
    if (!*at)
        at = &branch->migrating;
    struct xa_association_entry *association = *at;
    assert(association && association->branch == branch);
    *at = association->next;
    association->next = NULL;
    return association;
}

/* Frees one that was taken out. Its branch goes to what comes when the last is gone. */
static void association_drop(struct xa_association_entry *association)
{
    struct xa_branch_entry *branch = association->branch;
    assert(branch->associations > 0);
    branch->associations--;
    if (branch->associations == 0 && branch->state == XA_BRANCH_ACTIVE)
        branch->state = XA_BRANCH_IDLE;
    if (branch->associations == 0 && branch->state == XA_BRANCH_DOOMED)
        branch->state = XA_BRANCH_ROLLBACK_ONLY;
    chxa_txn_free(association->txn);
    free(association);
}

/* ---- instances -------------------------------------------------------------------------------------------------- */

static void instance_free(struct xa_instance *instance)
{
    for (size_t i = 0; i < sizeof instance->buckets / sizeof instance->buckets[0]; i++) {
        while (instance->buckets[i]) {
            struct xa_branch_entry *branch = instance->buckets[i];
            while (branch->migrating) {
                struct xa_association_entry *association = branch->migrating;
                branch->migrating = association->next;
                association_drop(association);
            }
            branch_remove(instance, branch);
        }
    }
    chxa_client_close(instance->client);
    explicit_bzero(instance, sizeof *instance);
    free(instance);
}

static int instance_make(const char *text, struct xa_instance **ret_instance, const char **ret_why)
{
    struct xa_info *info = cx_alloc(sizeof *info);
    struct xa_instance *instance = cx_alloc(sizeof *instance);
    int code = XAER_RMERR;
    *ret_why = "out of memory";
    if (info && instance)
        code = cx_xa_info_parse(text, info, ret_why);
    if (code == XA_OK) {
        instance->deadline_ms = info->options.deadline_ms;
        instance->nowait_ms = info->nowait_ms;
        instance->timeout_ms = info->timeout_ms;
        instance->gather = info->gather;
        instance->scan_all = info->scan_all;
        memcpy(instance->info, text, strlen(text) + 1);
        *ret_why = NULL; /* the client's own message says it */
        int opened = chxa_client_open(&info->options, &instance->client, cx_xa_state_error());
        if (opened)
            code = opened == CHXA_ERR_NO_MEMORY ? XAER_RMERR : XAER_INVAL;
    }
    if (info)
        cx_xa_info_wipe(info);
    free(info);
    if (code == XA_OK)
        *ret_instance = instance;
    else
        free(instance);
    return code;
}

static int instance_use(const char *text, struct xa_instance **ret_instance, const char **ret_why)
{
    struct xa_instance *instance;
    for (instance = instances; instance; instance = instance->next) {
        if (strcmp(instance->info, text) == 0)
            break;
    }
    if (!instance) {
        int code = instance_make(text, &instance, ret_why);
        if (code)
            return code;
        instance->next = instances;
        instances = instance;
    }
    instance->opens++;
    *ret_instance = instance;
    return XA_OK;
}

static void instance_unuse(struct xa_instance *instance)
{
    assert(instance->opens > 0);
    if (--instance->opens > 0)
        return;
    struct xa_instance **at = &instances;
    while (*at != instance)
        at = &(*at)->next;
    *at = instance->next;
    instance_free(instance);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* With the lock. doom: the thread ends in the middle of its work. */
static void open_free(struct xa_open *open, bool doom)
{
    while (open->associations) {
        struct xa_association_entry *association = open->associations;
        open->associations = association->next;
        if (doom && association->branch->state == XA_BRANCH_ACTIVE)
            association->branch->state = XA_BRANCH_DOOMED;
        association_drop(association);
    }
    cx_xa_scan_clear(&open->scan);
    instance_unuse(open->instance);
    free(open);
}

static void thread_ends(void *arg)
{
    struct thread *thread = arg;
    pthread_mutex_lock(&lock);
    while (thread->opens) {
        struct xa_open *open = thread->opens;
        thread->opens = open->next;
        open_free(open, true);
    }
    pthread_mutex_unlock(&lock);
    free(thread);
}

static void key_make(void)
{
    key_made = pthread_key_create(&key, thread_ends) == 0;
}

static struct thread *thread_find(bool make)
{
    pthread_once(&key_once, key_make);
    if (!key_made)
        return NULL;
    struct thread *thread = pthread_getspecific(key);
    if (thread || !make)
        return thread;
    thread = cx_alloc(sizeof *thread);
    if (thread && pthread_setspecific(key, thread)) {
        free(thread);
        thread = NULL;
    }
    return thread;
}

struct chxa_error *cx_xa_state_error(void)
{
    struct thread *thread = thread_find(true);
    return thread ? &thread->error : NULL;
}

struct xa_open *cx_xa_state_open_find(int rmid)
{
    struct thread *thread = thread_find(false);
    struct xa_open *open = thread ? thread->opens : NULL;
    while (open && open->rmid != rmid)
        open = open->next;
    return open;
}

int cx_xa_state_open(const char *info, int rmid, const char **ret_why)
{
    struct thread *thread = thread_find(true);
    *ret_why = "out of memory";
    if (!thread)
        return XAER_RMERR;
    if (cx_xa_state_open_find(rmid))
        return XA_OK;
    struct xa_open *open = cx_alloc(sizeof *open);
    if (!open)
        return XAER_RMERR;
    open->rmid = rmid;
    pthread_mutex_lock(&lock);
    int code = instance_use(info, &open->instance, ret_why);
    pthread_mutex_unlock(&lock);
    if (code) {
        free(open);
        return code;
    }
    open->next = thread->opens;
    thread->opens = open;
    return XA_OK;
}

int cx_xa_state_close(int rmid)
{
    struct xa_open *open = cx_xa_state_open_find(rmid);
    if (!open)
        return XA_OK;
    if (cx_xa_state_active(open))
        return XAER_PROTO;
    struct thread *thread = thread_find(false);
    struct xa_open **at = &thread->opens;
    while (*at != open)
        at = &(*at)->next;
    *at = open->next;
    pthread_mutex_lock(&lock);
    open_free(open, false);
    pthread_mutex_unlock(&lock);
    if (!thread->opens) {
        pthread_setspecific(key, NULL);
        free(thread);
    }
    return XA_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

void cx_xa_state_mark_rows(struct xa_association_entry *active)
{
    pthread_mutex_lock(&lock);
    active->branch->may_have_rows = true;
    pthread_mutex_unlock(&lock);
}

int cx_xa_state_start_begin(struct xa_open *open, const char *id, enum xa_event event, bool nowait,
                            struct xa_association_entry **ret_association)
{
    assert(event == XA_EVENT_START || event == XA_EVENT_JOIN);
    struct xa_association_entry *association = cx_alloc(sizeof *association);
    if (!association)
        return XAER_RMERR;
    pthread_mutex_lock(&lock);
    struct xa_branch_entry *branch = NULL;
    enum xa_branch next;
    int code = branch_wait(open->instance, id, nowait, &branch) ? XA_OK : XA_RETRY;
    if (code == XA_OK)
        code = check(open, branch, event, &next);
    if (code == XA_OK && !branch && !(branch = branch_add(open->instance, id)))
        code = XAER_RMFAIL;
    if (code == XA_OK) {
        branch->busy = true;
        association->branch = branch;
        *ret_association = association;
    }
    pthread_mutex_unlock(&lock);
    if (code)
        free(association);
    return code;
}

void cx_xa_state_start_end(struct xa_open *open, struct xa_association_entry *association,
                           struct chxa_txn *txn)
{
    struct xa_branch_entry *branch = association->branch;
    pthread_mutex_lock(&lock);
    if (txn) {
        association->txn = txn;
        association->next = open->associations;
        open->associations = association;
        branch->associations++;
        /* Other threads may have ended their associations meanwhile, and failed. */
        bool doomed = branch->state == XA_BRANCH_DOOMED || branch->state == XA_BRANCH_ROLLBACK_ONLY;
        branch->state = doomed ? XA_BRANCH_DOOMED : XA_BRANCH_ACTIVE;
    } else {
        free(association);
    }
    branch_give(open->instance, branch);
    pthread_mutex_unlock(&lock);
}

int cx_xa_state_resume(struct xa_open *open, const char *id)
{
    pthread_mutex_lock(&lock);
    struct xa_branch_entry *branch = branch_find(open->instance, id);
    enum xa_branch next;
    int code = check(open, branch, XA_EVENT_RESUME, &next);
    if (code == XA_OK || code == XA_RBROLLBACK) {
        struct xa_association_entry *association = association_take(open, branch);
        if (code == XA_OK) {
            association->suspended = false;
            association->next = open->associations;
            open->associations = association;
        } else {
            association_drop(association);
        }
        branch->state = next;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* The association ends here. False: a stream is still open in it. */
static bool dissociate(struct xa_open *open, struct xa_branch_entry *branch,
                       struct chxa_error *error)
{
    struct xa_association_entry *own = *association_of(&open->associations, branch);
    if (!own)
        own = branch->migrating;
    if (chxa_end(own->txn, error) != CHXA_OK)
        return false;
    const char *url = chxa_txn_owner_url(own->txn);
    size_t len = url ? strlen(url) : 0;
    if (len > 0 && len <= CHXA_URL_BYTES_MAX)
        memcpy(branch->owner_url, url, len + 1);
    association_drop(association_take(open, branch));
    return true;
}

static void suspend(struct xa_open *open, struct xa_branch_entry *branch, bool migrate)
{
    struct xa_association_entry *association = association_take(open, branch);
    struct xa_association_entry **list = migrate ? &branch->migrating : &open->associations;
    association->suspended = true;
    association->next = *list;
    *list = association;
}

int cx_xa_state_end(struct xa_open *open, const char *id, enum xa_event event,
                    struct chxa_error *error)
{
    assert(event >= XA_EVENT_SUSPEND && event <= XA_EVENT_FAIL);
    pthread_mutex_lock(&lock);
    struct xa_branch_entry *branch = branch_find(open->instance, id);
    enum xa_branch next;
    int code = check(open, branch, event, &next);
    if (code == XA_OK || code == XA_RBROLLBACK) {
        bool keep = code == XA_OK && (event == XA_EVENT_SUSPEND || event == XA_EVENT_MIGRATE);
        if (keep)
            suspend(open, branch, event == XA_EVENT_MIGRATE);
        else if (!dissociate(open, branch, error))
            code = XAER_PROTO;
        if (code != XAER_PROTO)
            branch->state = next;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int cx_xa_state_take(struct xa_open *open, const char *id, enum xa_event event, bool nowait,
                     struct xa_branch_entry **ret_branch, enum xa_branch *ret_next)
{
    assert(event >= XA_EVENT_PREPARE);
    pthread_mutex_lock(&lock);
    struct xa_branch_entry *branch = NULL;
    int code = branch_wait(open->instance, id, nowait, &branch) ? XA_OK : XA_RETRY;
    if (code == XA_OK)
        code = check(open, branch, event, ret_next);
    if (code == XA_OK && !branch && !(branch = branch_add(open->instance, id)))
        code = XAER_RMFAIL;
    if (code == XA_OK) {
        branch->busy = true;
        *ret_branch = branch;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void cx_xa_state_give(struct xa_open *open, struct xa_branch_entry *branch, enum xa_branch state)
{
    pthread_mutex_lock(&lock);
    assert(branch->associations == 0);
    branch->state = state;
    branch_give(open->instance, branch);
    pthread_mutex_unlock(&lock);
}
