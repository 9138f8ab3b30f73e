/* SPDX-License-Identifier: Apache-2.0
 *
 * Markers of held parts: see held_markers.h, and held_mark, held_note_sent, held_unmark in
 * part_files.h. Threads: any worker.
 *
 * What is durable when: `moved` need not be, for recovery asks only whether ClickHouse could have been asked
 * (core/part_plan.h); a power cut that takes the marker along finds the part held or in detached/, where it is
 * told by its inode. `sent` is durable before the ALTER goes out, and by the same fsync so is that the parts have left the
 * folder. That a part is no longer sent, when it is marked anew, is durable at once.
 */
#include "ch/held_markers.h"

#include "base/mem.h"
#include "ch/part_dirs.h"
#include "ch/part_files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIGITS_MAX 19u /* of a part's number: below 2^63 */

/* ---- names ---- */

static bool number_parse(const char **text, uint64_t *ret_number)
{
    size_t digits = strspn(*text, "0123456789");
    if (digits == 0 || digits > DIGITS_MAX)
        return false;
    *ret_number = strtoull(*text, NULL, 10);
    *text += digits;
    return true;
}

bool held_marker_parse(const char *name, struct part_run *ret_run, bool *ret_sent)
{
    struct part_run run;
    if (!number_parse(&name, &run.first))
        return false;
    run.last = run.first;
    if (*name == '-') {
        name++;
        if (!number_parse(&name, &run.last) || run.last <= run.first)
            return false;
    }
    bool sent = strcmp(name, SENT_SUFFIX) == 0;
    if (!sent && strcmp(name, MARKER_SUFFIX) != 0)
        return false;
    *ret_run = run;
    *ret_sent = sent;
    return true;
}

/* ---- reading ---- */

/* One file each. */
struct marker_list {
    struct marker_file {
        struct part_run run;
        bool sent;
    } * files;
    size_t n_files;
};

static int list_visit(void *arg, int dir, const char *name)
{
    struct marker_list *list = arg;
    struct marker_file file;
    (void)dir;
    if (!held_marker_parse(name, &file.run, &file.sent))
        return 0;
    size_t n = list->n_files;
    if ((n & (n - 1)) == 0)
        list->files = mem_realloc(list->files, (n ? n * 2 : 1) * sizeof *list->files);
    list->files[list->n_files++] = file;
    return 0;
}

/* 0 or negative errno. */
static int list_read(int held, struct marker_list *ret_list)
{
    struct marker_list list = {0};
    int again = openat(held, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = again < 0 ? -errno : dirs_each(again, list_visit, &list);
    if (result == 0)
        *ret_list = list;
    else
        free(list.files);
    return result;
}

int held_markers_read(int held, struct held_markers *ret_markers)
{
    struct marker_list list;
    int result = list_read(held, &list);
    if (result != 0)
        return result;
    struct held_markers markers = {0};
    if (list.n_files) {
        markers.moved = mem_array(list.n_files, sizeof *markers.moved);
        markers.sent = mem_array(list.n_files, sizeof *markers.sent);
        markers.single = mem_array(list.n_files, sizeof *markers.single);
    }
    for (size_t i = 0; i < list.n_files; i++) {
        const struct marker_file *file = &list.files[i];
        if (file->sent)
            markers.sent[markers.n_sent++] = file->run;
        else if (file->run.first < file->run.last)
            markers.moved[markers.n_moved++] = file->run;
        else
            markers.single[markers.n_single++] = file->run;
    }
    free(list.files);
    markers.n_moved = part_run_join(markers.moved, markers.n_moved);
    markers.n_single = part_run_join(markers.single, markers.n_single);
    markers.n_sent = part_run_join(markers.sent, markers.n_sent);
    *ret_markers = markers;
    return 0;
}

void held_markers_clear(struct held_markers *markers)
{
    free(markers->moved);
    free(markers->sent);
    free(markers->single);
    *markers = (struct held_markers){0};
}

/* ---- changing ---- */

/* 0 or negative errno. It may be there already. */
static int marker_create(int held, struct part_run run, bool sent)
{
    int fd = openat(held, held_run_name(run, sent).text,
                    O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int marker_rename(int held, struct part_run from, bool from_sent, struct part_run to,
                         bool to_sent)
{
    return renameat(held, held_run_name(from, from_sent).text, held,
                    held_run_name(to, to_sent).text) == 0
               ? 0
               : -errno;
}

/* What the file says of the parts before and behind the run, two files say at the end. */
static int marker_cut(int held, const struct marker_file *file, struct part_run parts, bool durable)
{
    struct part_run before = {file->run.first, parts.first - 1};
    struct part_run behind = {parts.last + 1, file->run.last};
    bool any_before = file->run.first < parts.first;
    bool any_behind = file->run.last > parts.last;
    if (!any_before && !any_behind)
        return unlinkat(held, held_run_name(file->run, file->sent).text, 0) == 0 ? 0 : -errno;
    int result = any_before && any_behind ? marker_create(held, before, file->sent) : 0;
    if (result == 0 && any_before && any_behind && durable && fsync(held) != 0)
        result = -errno;
    if (result == 0)
        result =
            marker_rename(held, file->run, file->sent, any_behind ? behind : before, file->sent);
    return result;
}

int held_markers_take(int held, struct part_run parts, bool sent_only, bool durable, bool *ret_any)
{
    struct marker_list list;
    int result = list_read(held, &list);
    if (result != 0)
        return result;
    bool any = false;
    for (size_t i = 0; result == 0 && i < list.n_files; i++) {
        const struct marker_file *file = &list.files[i];
        if (file->run.last < parts.first || file->run.first > parts.last ||
            (sent_only && !file->sent))
            continue;
        any = true;
        result = marker_cut(held, file, parts, durable);
        if (result == -ENOENT)
            result = 0;
    }
    free(list.files);
    *ret_any = any;
    return result;
}

/* 0 or negative errno. What was sent at an earlier try, and moved back, is sent no more. */
static int mark_all(int held, const struct part_run *runs, size_t n, bool durable)
{
    bool any = false, any_at_all = false;
    int number = 0;
    for (size_t i = 0; number == 0 && i < n; i++) {
        number = held_markers_take(held, runs[i], true, durable, &any);
        any_at_all = any_at_all || any;
        if (number == 0)
            number = marker_create(held, runs[i], false);
    }
    if (number == 0 && any_at_all && durable && fsync(held) != 0)
        number = -errno;
    return number;
}

/* 0 or negative errno. */
static int note_all_sent(int held, const struct part_run *runs, size_t n, bool durable)
{
    int number = 0;
    for (size_t i = 0; number == 0 && i < n; i++) {
        number = marker_rename(held, runs[i], false, runs[i], true);
        if (number == -ENOENT)
            number = marker_create(held, runs[i], true);
    }
    /* Also when they were there: an earlier try may have ended before they were durable. A marker is
     * empty: its name is all of it. */
    if (number == 0 && durable && fsync(held) != 0)
        number = -errno;
    return number;
}

int held_mark(const char *root, const char *xid, const struct part_run *runs, size_t n,
              bool fsync_it, struct error *error)
{
    int held = -1;
    int result = dirs_need_held(root, xid, &held, error);
    if (result != 0)
        return result;
    int number = mark_all(held, runs, n, fsync_it);
    dirs_close(&held);
    return number == 0 ? 0 : dirs_failed(error, number, "mark as moved under", root, HELD_AREA);
}

int held_note_sent(const char *root, const char *xid, const struct part_run *runs, size_t n,
                   bool fsync_it, struct error *error)
{
    int held = -1;
    int result = dirs_need_held(root, xid, &held, error);
    if (result != 0)
        return result;
    int number = note_all_sent(held, runs, n, fsync_it);
    dirs_close(&held);
    return number == 0 ? 0 : dirs_failed(error, number, "mark as sent under", root, HELD_AREA);
}

int held_unmark(const char *root, const char *xid, const struct chxa_part *part, bool fsync_it,
                struct error *error)
{
    int held = -1;
    bool any;
    int result = dirs_open_held(root, xid, false, &held, error);
    if (result != 0 || held < 0)
        return result;
    int number = held_markers_take(held, (struct part_run){part->number, part->number}, false,
                                   fsync_it, &any);
    if (number == 0 && fsync_it && fsync(held) != 0)
        number = -errno;
    dirs_close(&held);
    return number == 0 ? 0
                       : dirs_failed(error, number, "remove a marker under", root,
                                     held_marker_name(part->number).text);
}
