/* SPDX-License-Identifier: Apache-2.0
 *
 * A cutproxy (tests/lib/cutproxy.c) between a test's store and the real ZooKeeper, driven over its
 * standard input. Blocking, on the test's thread; the program stands beside the test's own.
 */
#ifndef CHXA_TESTS_CONTRACT_STORE_PROXY_LAB_H
#define CHXA_TESTS_CONTRACT_STORE_PROXY_LAB_H

#include "contract/store/store_lab.h"

#include <signal.h>
#include <sys/wait.h>

struct proxy_lab {
    pid_t pid;
    FILE *commands;
    FILE *answers;
    char address[64]; /* for the store */
};

static inline void proxy_open(struct proxy_lab *proxy, const char *target)
{
    char program[4096];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 16);
    ck_assert_int_gt(n, 0);
    program[n] = '\0';
    char *slash = strrchr(program, '/');
    snprintf(slash, 16, "/cutproxy");
    int in[2], out[2];
    ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    proxy->pid = fork();
    ck_assert_int_ge(proxy->pid, 0);
    if (proxy->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl(program, program, target, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    proxy->commands = fdopen(in[1], "w");
    proxy->answers = fdopen(out[0], "r");
    char line[64] = "";
    int port = 0;
    ck_assert_msg(fgets(line, sizeof line, proxy->answers) && sscanf(line, "port %d", &port) == 1,
                  "cutproxy does not start");
    snprintf(proxy->address, sizeof proxy->address, "127.0.0.1:%d", port);
}

static inline void proxy_do(struct proxy_lab *proxy, const char *command)
{
    char answer[128];
    fprintf(proxy->commands, "%s\n", command);
    fflush(proxy->commands);
    ck_assert_ptr_nonnull(fgets(answer, sizeof answer, proxy->answers));
    ck_assert_msg(strncmp(answer, "ok ", 3) == 0, "%s", answer);
}

static inline bool proxy_mode_is(struct proxy_lab *proxy, const char *mode)
{
    char answer[128], expected[64];
    snprintf(expected, sizeof expected, "ok stat %s\n", mode);
    fputs("stat\n", proxy->commands);
    fflush(proxy->commands);
    ck_assert_ptr_nonnull(fgets(answer, sizeof answer, proxy->answers));
    return strcmp(answer, expected) == 0;
}

static inline void proxy_close(struct proxy_lab *proxy)
{
    fclose(proxy->commands); /* ends it */
    fclose(proxy->answers);
    waitpid(proxy->pid, NULL, 0);
}

#endif
