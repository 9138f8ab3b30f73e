/* SPDX-License-Identifier: Apache-2.0
 *
 * See held_lock.h. flock(2) is released by the kernel however the process ends.
 */
#include "ch/held_lock.h"

#include "base/mem.h"
#include "ch/part_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDENTITY_BYTES_MAX 256u

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

/* The file is open and locked: is it ours, or free to take? It holds "<identity> <epoch>". */
static int claim(int fd, const char *root, const char *path, const char *identity, uint64_t epoch,
                 bool *ret_store_behind, struct error *error)
{
    char there[IDENTITY_BYTES_MAX] = "";
    ssize_t len = pread(fd, there, sizeof there - 1, 0);
    if (len < 0)
        return failed(error, path);
    there[strcspn(there, "\n")] = '\0';
    char *space = strchr(there, ' ');
    uint64_t noted = space ? strtoull(space + 1, NULL, 10) : 0;
    if (space)
        *space = '\0';
    bool ours = strcmp(there, identity) == 0;
    if (!ours && there[0] != '\0' && holds_transactions(root))
        return error_set(
            error, CHXA_E_NOT_READY,
            "%s/chxa holds transactions of node %s, this is %s: set node and cluster to that, or "
            "end them there and remove %s",
            root, there, identity, path);
    char *line = mem_printf("%s %llu\n", identity, (unsigned long long)epoch);
    size_t want = strlen(line);
    bool ok = ftruncate(fd, 0) == 0 && pwrite(fd, line, want, 0) == (ssize_t)want && fsync(fd) == 0;
    free(line);
    if (!ok)
        return failed(error, path);
    if (ours && noted >= epoch)
        *ret_store_behind = true;
    return 0;
}

int held_lock(const char *root, const char *identity, uint64_t epoch, int *ret_fd,
              bool *ret_store_behind, struct error *error)
{
    char *folder = mem_printf("%s/chxa", root);
    char *path = mem_printf("%s/owner", folder);
    int code = 0, fd = -1;
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
        code = claim(fd, root, path, identity, epoch, ret_store_behind, error);
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
