/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a test program's main.
 */
#ifndef CHXA_TESTS_LIB_SUITE_H
#define CHXA_TESTS_LIB_SUITE_H

#include <check.h>

/* Runs every test of the suite, each in a process of its own, and frees it: the program's exit status. */
static inline int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}

#endif
