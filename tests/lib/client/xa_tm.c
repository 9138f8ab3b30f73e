/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction manager to be driven by a test: it reads calls from its standard input, makes them through chxa_xa_switch, and writes
 * what they return, one line each. It has no log of its own; the test is the TM's memory.
 *
 *   THREAD WORD …   THREAD is a digit: each is a thread of its own, started when first named
 *
 *   0 open xa_info…             0 close
 *   0 start GTRID BQUAL FLAGS   likewise end, prepare, commit, rollback, forget
 *   0 recover COUNT FLAGS       "3 gtrid:bqual gtrid:bqual gtrid:bqual"
 *   0 complete FLAGS
 *   0 write TABLE FIRST N       rows FIRST … FIRST+N-1 in the current association
 *   0 leave                     ends the thread
 *   0 error                     the last error's name and message
 *
 * FLAGS are the standard's names, joined by '|', or 0. All calls are made for rmid 1, with format id 4711.
 */
#include "chxa/xa_switch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT      4711
#define THREADS     10
#define LINE_BYTES  4096
#define WORDS_MAX   16
#define RECOVER_MAX 10000

/* ---- names ---- */

#define NAME(value)                                                                                \
    {                                                                                              \
#value, (long)(value)                                                                      \
    }

struct named {
    const char *name;
    long value;
};

static const struct named codes[] = {
    NAME(XA_OK),         NAME(XA_RDONLY),     NAME(XA_RETRY),      NAME(XA_HEURMIX),
    NAME(XA_HEURRB),     NAME(XA_HEURCOM),    NAME(XA_HEURHAZ),    NAME(XA_NOMIGRATE),
    NAME(XA_RBROLLBACK), NAME(XA_RBCOMMFAIL), NAME(XA_RBDEADLOCK), NAME(XA_RBINTEGRITY),
    NAME(XA_RBOTHER),    NAME(XA_RBPROTO),    NAME(XA_RBTIMEOUT),  NAME(XA_RBTRANSIENT),
    NAME(XAER_ASYNC),    NAME(XAER_RMERR),    NAME(XAER_NOTA),     NAME(XAER_INVAL),
    NAME(XAER_PROTO),    NAME(XAER_RMFAIL),   NAME(XAER_DUPID),    NAME(XAER_OUTSIDE)};

static const struct named flag_names[] = {NAME(TMASYNC),   NAME(TMONEPHASE),   NAME(TMFAIL),
                                          NAME(TMNOWAIT),  NAME(TMRESUME),     NAME(TMSUCCESS),
                                          NAME(TMSUSPEND), NAME(TMMULTIPLE),   NAME(TMJOIN),
                                          NAME(TMMIGRATE), NAME(TMSTARTRSCAN), NAME(TMENDRSCAN)};

static const char *code_name(int code)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].value == code)
            return codes[i].name;
    }
    return "?";
}

static long flags_of(const char *text)
{
    long flags = 0;
    while (*text && strcmp(text, "0") != 0) {
        size_t len = strcspn(text, "|"), i = 0;
        while (strncmp(flag_names[i].name, text, len) != 0 || flag_names[i].name[len])
            if (++i == sizeof flag_names / sizeof flag_names[0])
                abort();
        flags |= flag_names[i].value;
        text += len + (text[len] == '|');
    }
    return flags;
}

/* ---- calls ---- */

static XID xid_of(const char *gtrid, const char *bqual)
{
    XID xid;
    memset(&xid, 0, sizeof xid);
    size_t g = strlen(gtrid), b = strlen(bqual);
    if (g > MAXGTRIDSIZE || b > MAXBQUALSIZE)
        abort();
    xid.formatID = FORMAT;
    xid.gtrid_length = (long)g;
    xid.bqual_length = (long)b;
    memcpy(xid.data, gtrid, g);
    memcpy(xid.data + g, bqual, b);
    return xid;
}

static void recover(long count, long flags, FILE *out)
{
    static XID xids[RECOVER_MAX];
    int n = chxa_xa_switch.xa_recover_entry(xids, count, 1, flags);
    if (n < 0) {
        fprintf(out, "%s", code_name(n));
        return;
    }
    fprintf(out, "%d", n);
    for (int i = 0; i < n; i++) {
        if (xids[i].formatID == FORMAT)
            fprintf(out, " %.*s:%.*s", (int)xids[i].gtrid_length, xids[i].data,
                    (int)xids[i].bqual_length, xids[i].data + xids[i].gtrid_length);
        else
            fprintf(out, " other:%ld", xids[i].formatID);
    }
}

static void write_rows(const char *table, long first, long n, FILE *out)
{
    struct chxa_txn *txn;
    struct chxa_error error;
    int code = chxa_xa_txn(1, &txn);
    if (code) {
        fprintf(out, "%s", code_name(code));
        return;
    }
    char query[512], *rows = NULL;
    size_t bytes = 0;
    snprintf(query, sizeof query, "INSERT INTO %s FORMAT TSV", table);
    FILE *text = open_memstream(&rows, &bytes);
    for (long i = first; i < first + n; i++)
        fprintf(text, "%ld\n", i);
    fclose(text);
    code = chxa_write(txn, query, rows, bytes, NULL, false, NULL, &error);
    free(rows);
    fprintf(out, "%s", code ? chxa_error_name(code) : "OK");
}

static int branch_call(char **words, int n)
{
    if (n != 4)
        abort();
    XID xid = xid_of(words[1], words[2]);
    long flags = flags_of(words[3]);
    struct {
        const char *name;
        int (*entry)(XID *xid, int rmid, long flags);
    } entries[] = {
        {"start", chxa_xa_switch.xa_start_entry},       {"end", chxa_xa_switch.xa_end_entry},
        {"prepare", chxa_xa_switch.xa_prepare_entry},   {"commit", chxa_xa_switch.xa_commit_entry},
        {"rollback", chxa_xa_switch.xa_rollback_entry}, {"forget", chxa_xa_switch.xa_forget_entry}};
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        if (strcmp(entries[i].name, words[0]) == 0)
            return entries[i].entry(&xid, 1, flags);
    }
    abort();
}

static void run(char *line, FILE *out)
{
    char *words[WORDS_MAX];
    int n = 0, handle = 1, retval = 0;
    if (strncmp(line, "open ", 5) == 0) {
        fprintf(out, "%s", code_name(chxa_xa_switch.xa_open_entry(line + 5, 1, TMNOFLAGS)));
        return;
    }
    while (n < WORDS_MAX && *(line += strspn(line, " ")) != 0) {
        words[n++] = line;
        line += strcspn(line, " ");
        if (*line)
            *line++ = 0;
    }
    if (n == 0)
        abort();
    if (strcmp(words[0], "close") == 0) {
        char none[] = "";
        fprintf(out, "%s", code_name(chxa_xa_switch.xa_close_entry(none, 1, TMNOFLAGS)));
    } else if (strcmp(words[0], "recover") == 0 && n == 3) {
        recover(strtol(words[1], NULL, 10), flags_of(words[2]), out);
    } else if (strcmp(words[0], "complete") == 0 && n == 2) {
        fprintf(
            out, "%s",
            code_name(chxa_xa_switch.xa_complete_entry(&handle, &retval, 1, flags_of(words[1]))));
    } else if (strcmp(words[0], "write") == 0 && n == 4) {
        write_rows(words[1], strtol(words[2], NULL, 10), strtol(words[3], NULL, 10), out);
    } else if (strcmp(words[0], "error") == 0) {
        const struct chxa_error *error = chxa_xa_last_error();
        fprintf(out, "%s %.200s", chxa_error_name(error->code), error->message);
    } else {
        fprintf(out, "%s", code_name(branch_call(words, n)));
    }
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    bool runs, busy, leaves;
    char line[LINE_BYTES];
};

static struct worker workers[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    pthread_mutex_lock(&lock);
    while (!worker->leaves) {
        if (!worker->busy) {
            pthread_cond_wait(&turn, &lock);
            continue;
        }
        run(worker->line, stdout);
        printf("\n");
        fflush(stdout);
        worker->busy = false;
        pthread_cond_broadcast(&turn);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void worker_leave(struct worker *worker)
{
    pthread_mutex_lock(&lock);
    worker->leaves = true;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
    pthread_join(worker->thread, NULL);
    memset(worker, 0, sizeof *worker);
}

static void worker_do(struct worker *worker, const char *line)
{
    if (!worker->runs && pthread_create(&worker->thread, NULL, worker_main, worker))
        abort();
    worker->runs = true;
    pthread_mutex_lock(&lock);
    snprintf(worker->line, sizeof worker->line, "%s", line);
    worker->busy = true;
    pthread_cond_broadcast(&turn);
    while (worker->busy)
        pthread_cond_wait(&turn, &lock);
    pthread_mutex_unlock(&lock);
}

int main(void)
{
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] < '0' || line[0] > '9' || line[1] != ' ')
            abort();
        struct worker *worker = &workers[line[0] - '0'];
        if (strcmp(line + 2, "leave") == 0) {
            if (worker->runs)
                worker_leave(worker);
            printf("left\n");
            fflush(stdout);
        } else {
            worker_do(worker, line + 2);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        if (workers[i].runs)
            worker_leave(&workers[i]);
    }
    return EXIT_SUCCESS;
}
