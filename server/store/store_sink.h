/* SPDX-License-Identifier: Apache-2.0
 *
 * What a change does to its sink's entry, once for all stores, and the text of an entry: one line
 * of JSON, {"format": 1, "epoch": …, "xid": …, …}, and behind it the checkpoint's meta as it is
 * (not escaped: it may be large). Pure; any thread. Included by the files of this folder only.
 */
#ifndef CHXA_STORE_STORE_SINK_H
#define CHXA_STORE_STORE_SINK_H

#include "store/store_impl.h"

/* Has the change something to do with a sink? */
bool store_op_has_sink(const struct store_op *op);

/*
 * What the change makes of the sink (zeroed when there is no entry): 0, and *ret_changed says
 * whether *sink is another now, to be stored in the same atomic step as the change; when it is not,
 * the step must still fail if the entry was changed meanwhile. CHXA_E_FENCED: *sink is as it was.
 */
int store_sink_apply(const struct store_op *op, struct store_sink *sink, bool *ret_changed);

/* For the caller to free. */
char *store_sink_encode(const struct store_sink *sink);
/* CHXA_E_INVALID_RECORD: no entry of ours. *ret_sink is for store_sink_clear. */
int store_sink_decode(const char *text, size_t text_bytes, struct store_sink *ret_sink);
struct store_sink store_sink_copy(const struct store_sink *sink);

#endif
