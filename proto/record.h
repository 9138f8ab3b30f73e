/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction's record: what the store keeps and what GET /v1/transactions/{xid} answers.
 *
 * Ownership: a struct owns every string and array it points to; chxa_*_clear frees them and zeroes
 * the struct, and accepts a zeroed or half-built one. No globals; each function may be called from
 * any thread on distinct objects.
 */
#ifndef CHXA_PROTO_RECORD_H
#define CHXA_PROTO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chxa_state {
#define CHXA_STATE(name, text, kind, what) CHXA_##name,
#include "states.def"
#undef CHXA_STATE
    CHXA_STATE_COUNT
};

enum chxa_state_kind { CHXA_KIND_NONE, CHXA_KIND_ACTIVE, CHXA_KIND_IN_DOUBT, CHXA_KIND_FINAL };

const char *chxa_state_name(enum chxa_state state);
enum chxa_state_kind chxa_state_kind(enum chxa_state state);
/* CHXA_STATE_COUNT when text names no state. Case matters. */
enum chxa_state chxa_state_from_name(const char *text);

#define CHXA_XID_BYTES_MAX  280u
#define CHXA_HASH_HEX_BYTES 64u
/* Of a body's hash that is not SHA-256; as many hex digits follow. */
#define CHXA_BODY_HASH_PREFIX    "poly1305:"
#define CHXA_BODY_HASH_BYTES_MAX (sizeof CHXA_BODY_HASH_PREFIX - 1 + CHXA_HASH_HEX_BYTES)

/* 1-280 characters of A-Z a-z 0-9 . _ : - (write ids, sink and node names follow the same rule),
 * but not "." or "..", which mean something else in a path, a URL and a znode. */
bool chxa_xid_valid(const char *xid);

/* How a decided transaction ended against its decision, because an operator said so. */
enum chxa_heuristic {
    CHXA_HEURISTIC_NONE,
    CHXA_HEURISTIC_ROLLED_BACK, /* Committed, and none of its parts was attached: XA_HEURRB */
    CHXA_HEURISTIC_MIXED,       /* some were attached, the others given up: XA_HEURMIX */
    CHXA_HEURISTIC_HAZARD,      /* its owner was lost: some may have been attached: XA_HEURHAZ */
    CHXA_HEURISTIC_COUNT
};
/* "rolled_back", "mixed", "hazard"; NULL for none. */
const char *chxa_heuristic_name(enum chxa_heuristic heuristic);
/* CHXA_HEURISTIC_COUNT when text names none. */
enum chxa_heuristic chxa_heuristic_from_name(const char *text);

/* Numbers of parts, both ends included. */
struct chxa_range {
    uint64_t first, last;
};

/* One staged part directory. */
struct chxa_part {
    char *name;         /* the name it is attached under: <partition id>_<number>_<number>_0 */
    char *partition_id; /* as ClickHouse names it */
    uint64_t number;    /* the per-node number; also the held directory's name */
    uint64_t rows;
    uint64_t bytes; /* of all its files */
    uint64_t inode; /* of the held directory; stays the same through ATTACH */
    uint32_t disk;  /* index into the target's roots */
    char checksum[CHXA_HASH_HEX_BYTES + 1]; /* SHA-256 of checksums.txt, lower-case hex */
};

/* The table a write goes to, as it was when the rows were staged. */
struct chxa_target {
    char *database;
    char *table;
    char *schema; /* structure fingerprint (server/ch/table.h); NULL in writes after the first to a
                     target */
    char **roots; /* per disk: absolute path of its root, no trailing slash; held parts are in
                     <root>/chxa */
    size_t n_roots;
};

/* One INSERT inside a transaction: all there, or not recorded. */
struct chxa_write {
    char *write_id; /* the client's, or made by the node; unique within the transaction */
    uint64_t seq;   /* order within the transaction, from 1 */
    int64_t time_ms;
    struct chxa_target target;
    char query_hash[CHXA_HASH_HEX_BYTES + 1]; /* SHA-256 of the statement as the client sent it */
    char body_hash[CHXA_BODY_HASH_BYTES_MAX +
                   1]; /* of the body: SHA-256 as hex, or poly1305:… (server/base/hash.h) */
    uint64_t body_bytes;
    uint64_t rows;
    uint64_t bytes;
    struct chxa_part *parts;
    size_t n_parts;
};

struct chxa_record {
    char *xid;
    enum chxa_state state;
    char *owner;         /* node name */
    char *owner_url;     /* where that node is reached; what redirects name */
    uint64_t node_epoch; /* the owner's epoch when this version was written */
    char *op_id;         /* the operation that wrote this version; recognises our own lost write */
    int64_t version;     /* the store's; not part of the encoded text */
    int64_t created_ms;  /* wall clock, Unix milliseconds, like every *_ms time here */
    int64_t changed_ms;  /* when state last changed */
    int64_t
        timeout_ms; /* total, counted from created_ms, while Initialized; 0: the node's setting */
    char *sink;     /* or NULL */
    uint64_t sink_epoch;
    char *meta;   /* the client's JSON text, or NULL */
    bool gather;  /* its small writes are put into INSERTs together, and answered before those are
                     staged: while Initialized it lives and dies with the process that began it */
    char *reason; /* why it is in this state, or what blocks it; or NULL. Any bytes: what is not
                     UTF-8 is replaced, what is over 8 KiB is cut when encoded */
    bool blocked; /* Committing, and an operator must look */
    char *given_reason; /* what was said with the request that decided its end, or NULL; kept to the
                           end. Any bytes, like reason */
    char *abandoned_by; /* the node through which it was ended for its lost owner, or NULL */
    char *converted_to; /* the transaction that its discarded parts were converted to, or NULL */
    bool discarding;    /* Committing: an operator said that what cannot be attached is given up */
    enum chxa_heuristic heuristic;
    struct chxa_range *discarded; /* its parts with these numbers were given up; ascending */
    size_t n_discarded;
    struct chxa_write
        *writes; /* ordered by seq; not encoded with the record (one store entry each) */
    size_t n_writes;
};

void chxa_part_clear(struct chxa_part *part);
void chxa_target_clear(struct chxa_target *target);
void chxa_write_clear(struct chxa_write *write);
void chxa_record_clear(struct chxa_record *record);

/* Deep copies; on failure (CHXA_E_NO_MEMORY) *ret is zeroed. The record's copy has no writes. */
int chxa_write_copy(const struct chxa_write *from, struct chxa_write *ret);
int chxa_record_copy(const struct chxa_record *from, struct chxa_record *ret);

/* True when the part of that number was given up. */
bool chxa_record_discards(const struct chxa_record *record, uint64_t number);
/* Makes these the record's discarded parts; of the record's own writes, which must be there. 0, or
 * CHXA_E_NO_MEMORY: unchanged. */
int chxa_record_set_discarded(struct chxa_record *record, const uint64_t *numbers,
                              size_t n_numbers);

uint64_t chxa_record_rows(const struct chxa_record *record);
uint64_t chxa_record_bytes(const struct chxa_record *record);
size_t chxa_record_parts(const struct chxa_record *record);

/*
 * JSON text to and from records. Encoding checks the object (every required field present, ids
 * valid) and decoding checks the text the same way: CHXA_E_INVALID_RECORD, never a half-read
 * object; CHXA_E_NO_MEMORY. *ret_text is a malloc'd NUL-terminated string for the caller to free;
 * decoded objects are for the caller to clear. Unknown fields are ignored, so that an older node
 * can read a newer record; a newer "format" number is refused.
 */
int chxa_record_encode(const struct chxa_record *record, char **ret_text);
int chxa_record_decode(const char *text, size_t text_bytes, struct chxa_record *ret_record);
int chxa_write_encode(const struct chxa_write *write, char **ret_text);
int chxa_write_decode(const char *text, size_t text_bytes, struct chxa_write *ret_write);

/*
 * What the REST API answers: the record with its writes (parts listed when with_parts) and totals;
 * without the fields that only the store needs. Same errors as encode. Totals are left out when
 * the record has no writes and with_writes is false (a list's records come without their writes).
 */
int chxa_record_to_api_json(const struct chxa_record *record, bool with_writes, bool with_parts,
                            char **ret_text);
/* The same without writes, with totals and "replay": what begin, prepare, commit and rollback
 * answer. */
int chxa_record_to_answer_json(const struct chxa_record *record, bool replay, char **ret_text);
/* What a write answers: the write with the number of its parts, "xid" and "replay". */
int chxa_write_to_answer_json(const char *xid, const struct chxa_write *write, bool replay,
                              char **ret_text);
/* What a gathered write answers, of which no more is known yet than that it was taken. */
int chxa_gathered_to_answer_json(const char *xid, const char *write_id, uint64_t body_bytes,
                                 bool replay, char **ret_text);

#endif
