/* SPDX-License-Identifier: Apache-2.0
 *
 * chxa load: files, or standard input, into a table through one transaction: begin, one write per file, prepare, commit.
 *
 * Ctrl-C (and SIGTERM) before the commit is asked for: the upload is broken off and the transaction rolled back. After that it is
 * too late, and said so. A second Ctrl-C ends the process where it is; the transaction is then left to its time-out, or
 * stays Prepared. The same command with the same --txn goes on: what is staged is not staged twice (write ids), what is
 * decided is waited for.
 */
#include "advice.h"
#include "ask.h"
#include "load_plan.h"
#include "progress.h"
#include "text.h"
#include "view.h"
#include "waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

struct load {
    struct tool *tool;
    const struct load_plan *plan;
    struct chxa_txn *txn;
    char *xid, *owner_url; /* kept when txn is freed */
    struct progress progress;
    /* the file being read */
    int fd;
    uint64_t sent;
    /* totals */
    uint64_t rows, bytes, parts, body_bytes, replays;
    int64_t started_ms;
};

/* ---- the body ---- */

static ptrdiff_t read_body(void *context, void *buffer, size_t room)
{
    struct load *load = context;
    while (true) {
        if (interrupted)
            return -1;
        ssize_t n = read(load->fd, buffer, room);
        if (n > 0) {
            load->sent += (uint64_t)n;
            progress_set(&load->progress, load->sent);
        }
        if (n == 0)
            progress_say(&load->progress, "sent; waiting for ClickHouse");
        if (n >= 0 || errno != EINTR)
            return n;
    }
}

static int rewind_body(void *context)
{
    struct load *load = context;
    if (lseek(load->fd, 0, SEEK_SET) != 0)
        return -1;
    load->sent = 0;
    return 0;
}

/* Its size, or 0 where that is not known. */
static int open_file(const char *path, uint64_t *ret_size)
{
    struct stat status;
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    *ret_size = 0;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        if (S_ISDIR(status.st_mode)) {
            close(fd);
            errno = EISDIR;
            return -1;
        }
        if (S_ISREG(status.st_mode))
            *ret_size = (uint64_t)status.st_size;
    }
    return fd;
}

/* ---- one file ---- */

static const char *name_of(const struct load_file *file)
{
    return strcmp(file->path, "-") == 0 ? "standard input" : file->path;
}

static void add_result(struct load *load, const struct load_file *file,
                       const struct chxa_written *written)
{
    load->rows += written->rows;
    load->bytes += written->bytes;
    load->parts += written->parts;
    load->body_bytes += load->sent;
    load->replays += written->replay;
    if (load->tool->document) {
        char *path = text_safe(file->path);
        json_t *entry =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "file", path, "write_id", file->write_id,
                      "rows", (json_int_t)written->rows, "bytes", (json_int_t)written->bytes,
                      "parts", (json_int_t)written->parts, "replay", written->replay);
        free(path);
        json_array_append_new(json_object_get(load->tool->document, "files"), tool_json(entry));
    } else if (written->replay) {
        tool_complain("%s: staged before; not staged again", name_of(file));
    }
}

/* Before anything is begun: can each file be read? What is no file (a pipe) is opened when its turn comes. */
static int check_files(const struct load_plan *plan)
{
    for (size_t i = 0; i < plan->n_files; i++) {
        const char *path = plan->files[i].path;
        struct stat status;
        int number = 0;
        if (strcmp(path, "-") == 0)
            continue;
        if (stat(path, &status) != 0 || access(path, R_OK) != 0)
            number = errno;
        else if (S_ISDIR(status.st_mode))
            number = EISDIR;
        if (number) {
            tool_complain("cannot read %s: %s; nothing was loaded", path, strerror(number));
            return TOOL_FAILED;
        }
    }
    return TOOL_OK;
}

static int load_one(struct load *load, const struct load_file *file)
{
    uint64_t size;
    load->fd = open_file(file->path, &size);
    if (load->fd < 0) {
        tool_complain("cannot read %s: %s", file->path, strerror(errno));
        return TOOL_FAILED;
    }
    const char *slash = strrchr(file->path, '/');
    char *label = text_safe(slash ? slash + 1 : name_of(file));
    load->sent = 0;
    progress_start(&load->progress, label, size);
    struct chxa_written written;
    struct chxa_error error;
    int code = chxa_write_from(load->txn, file->query, read_body, size ? rewind_body : NULL, load,
                               file->encoding, file->write_id, load->tool->options->views_skip,
                               &written, &error);
    progress_end(&load->progress);
    if (load->fd != STDIN_FILENO)
        close(load->fd);
    int rc = TOOL_OK;
    if (code == CHXA_OK)
        add_result(load, file, &written);
    else
        rc = interrupted ? TOOL_INTERRUPTED : ask_failed(load->tool, name_of(file), &error);
    load->progress.label = load->xid;
    free(label);
    return rc;
}

/* ---- the transaction ---- */

/* An id that says in lists where it comes from. */
static char *make_xid(const struct load_plan *plan)
{
    uint64_t random = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &random, sizeof random) != (ssize_t)sizeof random)
            random = 0;
        close(fd);
    }
    if (random == 0)
        random = (uint64_t)progress_clock_ms() << 20 | (uint64_t)getpid();
    char *name = load_write_id(plan->files[0].path, 0);
    char *xid = tool_printf("load:%.100s:%016" PRIx64, name + 2, random);
    free(name);
    return xid;
}

static int begin(struct load *load)
{
    const struct tool_options *options = load->tool->options;
    struct chxa_start_options start;
    struct chxa_error error;
    chxa_start_options_init(&start);
    start.timeout_ms = options->timeout.value;
    start.sink = options->sink;
    start.epoch = options->epoch.value;
    start.meta = options->meta;
    waiting_begin();
    int code = chxa_start(load->tool->client, load->xid, &start, &load->txn, &error);
    waiting_end();
    if (code != CHXA_OK)
        return ask_failed(load->tool, load->xid, &error);
    load->owner_url = tool_strdup(chxa_txn_owner_url(load->txn));
    return TOOL_OK;
}

/* Nothing of it is to stay: unless it was decided, which cannot be taken back. */
static void roll_back(struct load *load)
{
    struct chxa_error error;
    progress_say(&load->progress, "rolling back");
    int code =
        chxa_rollback(load->tool->client, load->xid, load->owner_url,
                      interrupted ? "chxa load was interrupted" : "chxa load failed", 0, &error);
    progress_end(&load->progress);
    if (code == CHXA_OK)
        tool_complain("%s is rolled back; nothing was loaded", load->xid);
    else
        tool_complain("%s is not rolled back: %s: %s; chxa show %s tells its state", load->xid,
                      chxa_error_name(error.code), error.message, load->xid);
}

static int stage(struct load *load)
{
    int rc = TOOL_OK;
    for (size_t i = 0; i < load->plan->n_files && rc == TOOL_OK; i++)
        rc = load_one(load, &load->plan->files[i]);
    if (rc == TOOL_OK && interrupted)
        rc = TOOL_INTERRUPTED;
    if (rc != TOOL_OK)
        return rc;
    struct chxa_error error;
    (void)!chxa_end(load->txn, &error);
    progress_say(&load->progress, "preparing");
    if (chxa_prepare(load->tool->client, load->xid, load->owner_url, NULL, 0, &error) != CHXA_OK) {
        progress_end(&load->progress);
        return ask_failed(load->tool, load->xid, &error);
    }
    progress_end(&load->progress);
    return interrupted ? TOOL_INTERRUPTED : TOOL_OK;
}

static int publish(struct load *load)
{
    struct chxa_error error;
    progress_say(&load->progress, "committing");
    (void)!chxa_commit(load->tool->client, load->xid, load->owner_url, false, 0, &error);
    progress_end(&load->progress);
    if (error.code == CHXA_OK) {
        if (interrupted)
            tool_complain("too late to stop: %s was being committed, and is", load->xid);
        return TOOL_OK;
    }
    int rc = ask_failed(load->tool, load->xid, &error);
    tool_complain("%s is prepared and its commit was asked for: do not load again; repeat the same "
                  "command with --txn %s, or chxa commit %s",
                  load->xid, load->xid, load->xid);
    return rc;
}

/* ---- resuming ---- */

static bool has_write(const json_t *record, const char *write_id)
{
    size_t i;
    const json_t *write;
    json_array_foreach(json_object_get(record, "writes"), i,
                       write) if (strcmp(view_text(write, "write_id"), write_id) == 0) return true;
    return false;
}

/*
 * With --txn the transaction may be there already. *ret_state: "" when it is not, or is open. TOOL_REFUSED when it is past
 * writing and holds other files than these; or when it gathers, so that it would not know a file again.
 */
static int look_before(struct load *load, char *ret_state, size_t room)
{
    struct chxa_error error;
    json_t *record;
    *ret_state = '\0';
    char *path = ask_txn_path(load->xid, "");
    int rc = ask(load->tool, NULL, "GET", path, NULL, &record, &error);
    free(path);
    if (rc == TOOL_NOT_FOUND) {
        rc = TOOL_OK;
    } else if (rc != TOOL_OK) {
        ask_failed(load->tool, load->xid, &error);
    } else if (json_is_true(json_object_get(record, "gather"))) {
        tool_complain("%s was begun with gather, and would not know a file again; nothing was "
                      "loaded: another id is wanted",
                      load->xid);
        rc = TOOL_REFUSED;
    } else if (strcmp(advice_state(record), "Initialized") != 0) {
        snprintf(ret_state, room, "%s", advice_state(record));
        load->owner_url = tool_strdup(view_text(record, "owner_url"));
        load->rows = (uint64_t)view_number(record, "rows");
        load->bytes = (uint64_t)view_number(record, "bytes");
        load->parts = (uint64_t)view_number(record, "parts");
        load->replays = load->plan->n_files;
        for (size_t i = 0; i < load->plan->n_files && rc == TOOL_OK; i++)
            if (!has_write(record, load->plan->files[i].write_id)) {
                tool_complain("%s is %s, and %s is not in it: another id is wanted", load->xid,
                              advice_state(record), load->plan->files[i].path);
                rc = TOOL_REFUSED;
            }
    }
    json_decref(record);
    return rc;
}

/* ---- the command ---- */

static int report(struct load *load, int rc, const char *state)
{
    struct tool *tool = load->tool;
    int64_t took = progress_clock_ms() - load->started_ms;
    if (tool->document) {
        tool_json_set(tool->document, "xid", json_string(load->xid));
        tool_json_set(tool->document, "state", rc == TOOL_OK ? json_string(state) : json_null());
        tool_json_set(tool->document, "rows", json_integer((json_int_t)load->rows));
        tool_json_set(tool->document, "bytes", json_integer((json_int_t)load->bytes));
        tool_json_set(tool->document, "parts", json_integer((json_int_t)load->parts));
        tool_json_set(tool->document, "took_ms", json_integer(took));
        return rc;
    }
    if (rc != TOOL_OK)
        return rc;
    char rows[32], rate[32], size[24];
    text_count(load->rows, rows, sizeof rows);
    text_count(load->rows * 1000 / (uint64_t)(took > 0 ? took : 1), rate, sizeof rate);
    text_bytes(load->body_bytes, size, sizeof size);
    const char *done = strcmp(state, "Prepared") == 0 ? "prepared" : "committed";
    printf("%s: %s%s%s, %s row%s, %s, in %.1f s (%s rows/s)\n", load->xid,
           tool->colour ? "\033[32m" : "", done, tool->colour ? "\033[0m" : "", rows,
           load->rows == 1 ? "" : "s", size, (double)took / 1000, rate);
    if (strcmp(state, "Prepared") == 0)
        printf("    next: chxa commit %s publishes it, chxa rollback %s drops it\n", load->xid,
               load->xid);
    return rc;
}

static int dry_run(struct load *load)
{
    for (size_t i = 0; i < load->plan->n_files; i++) {
        const struct load_file *file = &load->plan->files[i];
        char *sentence = tool_printf("would send %s as write %s%s%s: %s", file->path,
                                     file->write_id, file->encoding ? ", compressed with " : "",
                                     file->encoding ? file->encoding : "", file->query);
        ask_report(load->tool, load->xid, "load", TOOL_OK, sentence, NULL, NULL);
        free(sentence);
    }
    return TOOL_OK;
}

/* The first signal asks for an orderly end, the second one ends the process. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int run(struct load *load)
{
    const struct tool_options *options = load->tool->options;
    char state[24] = "";
    int rc = options->txn ? look_before(load, state, sizeof state) : TOOL_OK;
    if (rc != TOOL_OK)
        return report(load, rc, "");
    if (strcmp(state, "Aborted") == 0 || strcmp(state, "Aborting") == 0) {
        tool_complain("%s was rolled back: another id is wanted", load->xid);
        return report(load, TOOL_REFUSED, "");
    }
    if (*state == '\0') {
        catch_signals();
        rc = begin(load);
        if (rc != TOOL_OK)
            return report(load, rc, "");
        rc = stage(load);
        if (rc != TOOL_OK) {
            /* With --txn a failed load can go on where it was; without, nobody knows the id. */
            if (rc == TOOL_INTERRUPTED || options->txn == NULL)
                roll_back(load);
            else
                tool_complain(
                    "%s is left as it is: the same command resumes it, chxa rollback %s drops it",
                    load->xid, load->xid);
            return report(load, rc, "");
        }
    }
    if (options->prepare_only && (*state == '\0' || strcmp(state, "Prepared") == 0))
        return report(load, TOOL_OK, "Prepared");
    return report(load, publish(load), "Committed");
}

int tool_cmd_load(struct tool *tool)
{
    const struct tool_options *options = tool->options;
    struct load_plan plan;
    char problem[300];
    if (!load_plan_make(options, tool->operands, tool->n_operands, &plan, problem,
                        sizeof problem)) {
        load_plan_clear(&plan);
        return tool_usage_error("%s", problem);
    }
    struct load load = {
        .tool = tool,
        .plan = &plan,
        .xid = options->txn ? tool_strdup(options->txn) : make_xid(&plan),
        .started_ms = progress_clock_ms(),
    };
    load.progress.label = load.xid;
    load.progress.shown = isatty(STDERR_FILENO) && !options->no_progress && !options->json;
    if (tool->document)
        tool_json_set(tool->document, "files", json_array());
    int rc = check_files(&plan);
    if (rc == TOOL_OK)
        rc = options->dry_run ? dry_run(&load) : run(&load);
    else
        report(&load, rc, "");
    chxa_txn_free(load.txn);
    free(load.xid);
    free(load.owner_url);
    load_plan_clear(&plan);
    return rc;
}
