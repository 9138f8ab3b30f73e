/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operator may safely do about a transaction: told from its record, whether its node is alive, and what its sink
 * committed last. Pure.
 */
#ifndef CHXA_TOOL_ADVICE_H
#define CHXA_TOOL_ADVICE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct advice_facts {
    const json_t *record; /* a Transaction of openapi.yaml */
    bool owner_known;     /* the list of nodes could be read */
    bool owner_live;      /* and has the owner as live */
    const json_t *sink;   /* a SinkState of its sink, or NULL */
};

struct advice {
    char *why;  /* why it is as it is; "" when there is nothing to say. Owned */
    char *next; /* what is safe to do, with the command; "" when nothing is to be done. Owned */
    const char *colour; /* SGR number of its line, or NULL */
};

/* Prepared, Committing or Aborting. */
bool advice_in_doubt(const json_t *record);
/* "Initialized"…; never NULL. */
const char *advice_state(const json_t *record);

void advice_make(const struct advice_facts *facts, struct advice *ret_advice);
void advice_clear(struct advice *advice);

#endif
