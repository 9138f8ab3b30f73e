/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node's answer to one of our calls is to a transaction manager. Pure; any thread.
 *
 * What leads every line: a TM that is told something final never asks again. So final codes are given for
 * what is certain, and all else is XAER_RMFAIL, which makes it ask again. In particular commit never answers XAER_RMERR, which would
 * say that the rows are gone for ever.
 */
#ifndef CHXA_CLIENT_XA_ANSWER_H
#define CHXA_CLIENT_XA_ANSWER_H

#include "client/src/xa_table.h"

/*
 * Of START, JOIN, PREPARE, COMMIT, COMMIT_ONE, ROLLBACK or FORGET. heuristic, when the state is Committed, and timed_out, when it is
 * Aborted, are what the record says. nowait: TMNOWAIT was set.
 */
int cx_xa_answer_code(enum xa_event event, const struct chxa_error *error,
                      enum xa_heuristic heuristic, bool timed_out, bool nowait);

/* Would the record's heuristic or reason change the code? Then fetch the record first. */
bool cx_xa_answer_wants_record(enum xa_event event, const struct chxa_error *error);

#endif
