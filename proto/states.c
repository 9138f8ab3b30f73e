/* SPDX-License-Identifier: Apache-2.0
 *
 * The state names behind record.h, generated from states.def.
 */
#include "record.h"

#include <string.h>

struct state_row {
    const char *name;
    enum chxa_state_kind kind;
};

static const struct state_row rows[CHXA_STATE_COUNT] = {
#define CHXA_STATE(name, text, kind, what) [CHXA_##name] = {text, CHXA_KIND_##kind},
#include "states.def"
#undef CHXA_STATE
};

const char *chxa_state_name(enum chxa_state state)
{
    return (unsigned)state < CHXA_STATE_COUNT ? rows[state].name : "?";
}

enum chxa_state_kind chxa_state_kind(enum chxa_state state)
{
    return (unsigned)state < CHXA_STATE_COUNT ? rows[state].kind : CHXA_KIND_NONE;
}

enum chxa_state chxa_state_from_name(const char *text)
{
    for (unsigned i = 0; i < CHXA_STATE_COUNT; i++)
        if (strcmp(rows[i].name, text) == 0)
            return (enum chxa_state)i;
    return CHXA_STATE_COUNT;
}

static const char *const heuristic_names[CHXA_HEURISTIC_COUNT] = {NULL, "rolled_back", "mixed",
                                                                  "hazard"};

const char *chxa_heuristic_name(enum chxa_heuristic heuristic)
{
    return heuristic_names[heuristic];
}

enum chxa_heuristic chxa_heuristic_from_name(const char *text)
{
    for (int i = CHXA_HEURISTIC_NONE + 1; i < CHXA_HEURISTIC_COUNT; i++)
        if (strcmp(heuristic_names[i], text) == 0)
            return (enum chxa_heuristic)i;
    return CHXA_HEURISTIC_COUNT;
}
