/* SPDX-License-Identifier: Apache-2.0
 *
 * See held_lock.h. flock(2) is released by the kernel however the process ends.
 */
#include "ch/held_lock.h"

#include "base/mem.h"
#include "ch/part_files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENTITY_BYTES_MAX 256u
#define BOOT_ID_BYTES      36u /* a UUID as text */

static int failed(struct error *error, const char *path)
{
    return error_set(error, CHXA_E_IO_FAILED,
                     "%s: %s (chxad must run on ClickHouse's machine, as its user)", path,
                     strerror(errno));
}

static bool holds_transactions(const char *root)
{
    char **names = NULL;
    size_t n = 0;
    struct error ignored = {0};
    int code = held_list(root, &names, &n, &ignored);
    for (size_t i = 0; code == 0 && i < n; i++)
        free(names[i]);
    free(names);
    error_clear(&ignored);
    return code != 0 || n != 0;
}

/* The file's one line: "<cluster>/<node> <epoch> <boot id>". */
struct owner_line {
    char identity[IDENTITY_BYTES_MAX];
    uint64_t epoch;
    char boot_id[BOOT_ID_BYTES + 1];
};

/* "" where the kernel does not say: then no restart is ever noticed. */
static void read_boot_id(char ret_id[BOOT_ID_BYTES + 1])
{
    ret_id[0] = '\0';
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, ret_id, BOOT_ID_BYTES);
    ret_id[len > 0 ? len : 0] = '\0';
    close(fd);
}

static int read_line(int fd, struct owner_line *ret_line)
{
    char text[IDENTITY_BYTES_MAX + 64] = "";
    ssize_t len = pread(fd, text, sizeof text - 1, 0);
    if (len < 0)
        return -1;
    struct owner_line line = {.epoch = 0};
    unsigned long long epoch = 0;
    if (sscanf(text, "%255s %llu %36s", line.identity, &epoch, line.boot_id) >= 1)
        line.epoch = epoch;
    *ret_line = line;
    return 0;
}

static bool write_line(int fd, const struct owner_line *line)
{
    char *text =
        mem_printf("%s %llu %s\n", line->identity, (unsigned long long)line->epoch, line->boot_id);
    size_t want = strlen(text);
    bool ok = ftruncate(fd, 0) == 0 && pwrite(fd, text, want, 0) == (ssize_t)want && fsync(fd) == 0;
    free(text);
    return ok;
}

/* The file is open and locked: is it ours, or free to take? */
static int claim(int fd, const char *root, const char *path, const char *identity, uint64_t epoch,
                 struct held_history *ret_history, struct error *error)
{
    struct owner_line before, now = {.epoch = epoch};
    if (read_line(fd, &before) != 0)
        return failed(error, path);
    bool ours = strcmp(before.identity, identity) == 0;
    if (!ours && before.identity[0] != '\0' && holds_transactions(root))
        return error_set(
            error, CHXA_E_NOT_READY,
            "%s/chxa holds transactions of node %s, this is %s: set node and cluster to that, or "
            "end them there and remove %s",
            root, before.identity, identity, path);
    assert(strlen(identity) < sizeof now.identity);
    memcpy(now.identity, identity, strlen(identity) + 1);
    read_boot_id(now.boot_id);
    bool rebooted = ours && before.boot_id[0] && strcmp(before.boot_id, now.boot_id) != 0;
    if (rebooted) /* noted by held_lock_booted, once it is seen to */
        memcpy(now.boot_id, before.boot_id, sizeof now.boot_id);
    if (!write_line(fd, &now))
        return failed(error, path);
    if (ours && before.epoch >= epoch)
        ret_history->store_behind = true;
    if (rebooted)
        ret_history->rebooted = true;
    return 0;
}

/*
 * ClickHouse made these folders, so they tell its user. Root could stage rows beside it, but
 * ClickHouse could not read them, and that would come out only after the decision.
 */
static int check_user(const char *root, struct error *error)
{
    static const char *const folders[] = {"store", "data"};
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof folders / sizeof *folders; i++) {
        char *path = mem_printf("%s/%s", root, folders[i]);
        struct stat found;
        if (stat(path, &found) == 0 && found.st_uid != geteuid())
            code = error_set(error, CHXA_E_IO_FAILED,
                             "%s is user %u's, chxad runs as user %u: it must run as the user that "
                             "ClickHouse runs as",
                             path, (unsigned)found.st_uid, (unsigned)geteuid());
        free(path);
    }
    return code;
}

int held_lock_booted(int fd, struct error *error)
{
    struct owner_line line;
    if (read_line(fd, &line) != 0)
        return failed(error, "chxa/owner");
    read_boot_id(line.boot_id);
    return write_line(fd, &line) ? 0 : failed(error, "chxa/owner");
}

int held_lock(const char *root, const char *identity, uint64_t epoch, int *ret_fd,
              struct held_history *ret_history, struct error *error)
{
    char *folder = mem_printf("%s/chxa", root);
    char *path = mem_printf("%s/owner", folder);
    int fd = -1;
    int code = check_user(root, error);
    if (code)
        goto out;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        code = failed(error, folder);
        goto out;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        code = failed(error, path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        code = error_set(error, CHXA_E_NOT_READY,
                         "%s is locked: another chxad already serves this ClickHouse", path);
    } else {
        code = claim(fd, root, path, identity, epoch, ret_history, error);
    }
out:
    if (code == 0)
        *ret_fd = fd;
    else if (fd >= 0)
        close(fd);
    free(folder);
    free(path);
    return code;
}
