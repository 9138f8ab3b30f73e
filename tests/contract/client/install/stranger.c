/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that knows libchxa by its installed header only.
 */
#include <chxa/chxa.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *urls[] = {"http://127.0.0.1:1"};
    struct chxa_client_options options;
    struct chxa_client *client = NULL;
    struct chxa_error error;
    (void)argv;
    if (argc > 1) {
        printf("%s\n", chxa_version());
        return 0;
    }
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 1;
    options.deadline_ms = 300;
    if (chxa_client_open(&options, &client, &error) != 0)
        return 1;
    int code = chxa_rollback(client, "nothing", NULL, NULL, 0, &error);
    chxa_client_close(client);
    return code == CHXA_ERR_UNREACHABLE && strcmp(chxa_error_name(code), "UNREACHABLE") == 0 ? 0
                                                                                             : 2;
}
