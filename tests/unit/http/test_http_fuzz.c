/* SPDX-License-Identifier: Apache-2.0
 *
 * Replays the fuzz corpus of server/http: every file, and every file cut at every place.
 */
#include "../../fuzz/fuzz_http.c"
#include "lib/suite.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>

#define CORPUS CHXA_SOURCE_DIR "/tests/fuzz/corpus/http"

static size_t file_read(const char *name, uint8_t *into, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", CORPUS, name);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t len = fread(into, 1, size, file);
    fclose(file);
    return len;
}

START_TEST(fuzz_corpus)
{
    static uint8_t data[65536];
    DIR *dir = opendir(CORPUS);
    ck_assert_ptr_nonnull(dir);
    int files = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        size_t len = file_read(entry->d_name, data, sizeof data);
        for (size_t cut = 0; cut <= len; cut++)
            LLVMFuzzerTestOneInput(data, cut);
        files++;
    }
    closedir(dir);
    ck_assert_int_ge(files, 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_fuzz");
    TCase *tcase = tcase_create("corpus");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, fuzz_corpus);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
