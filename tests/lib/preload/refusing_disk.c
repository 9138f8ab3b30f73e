/* SPDX-License-Identifier: Apache-2.0
 *
 * For LD_PRELOAD: a disk that refuses to keep a file of the held area, once, when the file that REFUSING_DISK names
 * says how:
 *
 *   refuse  fsync fails with EIO, and says yes the next time, as Linux does
 *   kill    … and the process is killed before it learns of it
 *   forget  … and the file's pages are dropped from memory: what is read from then on is what is on disk, zeros
 *
 * tests/fault/test_refused_sync.py
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_held_file(int fd)
{
    char link[64], path[4096];
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0 || fstat(fd, &status) != 0)
        return false;
    path[len] = '\0';
    return S_ISREG(status.st_mode) && strstr(path, "/chxa/t-") != NULL && strstr(path, ".bin");
}

static void forget(int fd)
{
    char link[64], zeros[4096] = {0};
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int file = open(link, O_WRONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) != 0)
        abort();
    for (off_t at = 0; at < status.st_size; at += (off_t)sizeof zeros) {
        size_t left = (size_t)(status.st_size - at);
        if (pwrite(file, zeros, left < sizeof zeros ? left : sizeof zeros, at) < 0)
            abort();
    }
    close(file);
}

/* Reads the order, and takes it away. */
static bool ordered(char order[16])
{
    const char *path = getenv("REFUSING_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return false;
    ssize_t len = read(file, order, 15);
    close(file);
    order[len > 0 ? len : 0] = '\0';
    return unlink(path) == 0;
}

int fsync(int fd)
{
    char order[16];
    if (is_held_file(fd) && ordered(order)) {
        if (strcmp(order, "forget") == 0)
            forget(fd);
        if (strcmp(order, "refuse") != 0)
            raise(SIGKILL);
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

/* While there is an order, the files are asked one by one. */
int syncfs(int fd)
{
    const char *path = getenv("REFUSING_DISK");
    if (path && access(path, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_syncfs, fd);
}
