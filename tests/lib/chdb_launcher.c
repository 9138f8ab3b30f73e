/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the ClickHouse engine of the npm package @chdb/lib-linux-x64-gnu as a server of its own:
 * loads libchdb.so and calls its command line with the arguments given. With SYSTEM START LISTEN in
 * --query it is a real HTTP server of that version.
 *
 *     chdb_launcher /path/to/libchdb.so --path=DIR --http_port=P … --query "…"
 *
 * It ends with the process that started it, so that a killed test run leaves no server behind, and
 * on SIGTERM at once: what is on disk then is what a crash would leave, which ClickHouse has to
 * cope with anyway.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct chdb_result;
typedef struct chdb_result *chdb_query_cmdline_fn(int argc, char **argv);

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: chdb_launcher LIBCHDB ARGUMENT…\n");
        return 2;
    }
    const pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        perror("chdb_launcher: prctl");
        return 1;
    }
    /* The parent may have died before the call above. */
    if (getppid() != parent)
        return 1;

    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "chdb_launcher: %s\n", dlerror());
        return 1;
    }
    void *symbol = dlsym(library, "chdb_query_cmdline");
    if (symbol == NULL) {
        fprintf(stderr, "chdb_launcher: %s has no chdb_query_cmdline\n", argv[1]);
        return 1;
    }
    /* A cast from void * to a function pointer is not ISO C; POSIX has dlsym work this way. */
    chdb_query_cmdline_fn *run = NULL;
    *(void **)&run = symbol;

    argv[1] = argv[0];
    run(argc - 1, argv + 1);
    /* No static destructors of a library that may still have threads. */
    fflush(NULL);
    _exit(0);
}
