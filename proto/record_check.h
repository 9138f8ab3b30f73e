/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a record or a write well-formed. Called where one is encoded and where one is decoded,
 * so neither a fault of ours nor a foreign hand in the store goes further. Pure; any thread.
 */
#ifndef CHXA_PROTO_RECORD_CHECK_H
#define CHXA_PROTO_RECORD_CHECK_H

#include "record.h"

#define CHXA_NUMBER_MAX          ((uint64_t)INT64_MAX) /* what jansson and every other reader can hold */
#define CHXA_RECORD_TEXT_MAX     (1u << 20)            /* a znode holds 1 MiB */
#define CHXA_WRITE_TEXT_MAX      (256u << 20)          /* split over entries by the stores */
#define CHXA_NAME_BYTES_MAX      1024u                 /* database, table */
#define CHXA_PART_NAME_BYTES_MAX 255u                  /* one file name */
#define CHXA_URL_BYTES_MAX       2048u
#define CHXA_OP_ID_BYTES_MAX     512u
#define CHXA_META_BYTES_MAX      (256u << 10)
#define CHXA_REASON_BYTES_MAX    8192u  /* a longer one is cut when encoded */
#define CHXA_DISCARDED_MAX       10000u /* ranges */
#define CHXA_SCHEMA_BYTES_MAX    (16u << 20)
#define CHXA_ROOT_BYTES_MAX      4096u
#define CHXA_ROOTS_MAX           1024u
#define CHXA_PARTS_PER_WRITE_MAX 1000000u

/* 0, CHXA_E_INVALID_RECORD, or CHXA_E_NO_MEMORY (meta is parsed). Writes in a record are not
 * looked at. */
int chxa_record_check(const struct chxa_record *record);
/* 0 or CHXA_E_INVALID_RECORD. */
int chxa_write_check(const struct chxa_write *write);

/* Length of the valid UTF-8 sequence (RFC 3629) at text, 0 when there is none; the text ends at
 * NUL. */
size_t chxa_utf8_step(const char *text);

/* A copy of text (malloc'd, for the caller) as it can stand in JSON: bytes that are no UTF-8 become
 * '?', what is over bytes_max is cut. CHXA_E_NO_MEMORY. */
int chxa_text_repair(const char *text, size_t bytes_max, char **ret_text);

#endif
