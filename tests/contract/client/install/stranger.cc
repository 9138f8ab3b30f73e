// SPDX-License-Identifier: Apache-2.0
// The same in C++: the header is C++ as well, and its names are C's.
#include <chxa/chxa.h>
#include <string>

int main()
{
    const char *urls[] = {"http://127.0.0.1:1"};
    chxa_client_options options;
    chxa_client *client = nullptr;
    chxa_error error;
    chxa_client_options_init(&options);
    options.urls = urls;
    options.n_urls = 1;
    options.write_mode = CHXA_WRITE_ROUND_ROBIN;
    options.deadline_ms = 300;
    if (chxa_client_open(&options, &client, &error) != CHXA_OK)
        return 1;
    chxa_txn *txn = nullptr;
    int code = chxa_start(client, "nothing", nullptr, &txn, &error);
    chxa_txn_free(txn);
    chxa_client_close(client);
    return std::string(chxa_error_name(code)) == "UNREACHABLE" ? 0 : 2;
}
