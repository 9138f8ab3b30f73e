/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit protocol of chxa, for the model checker spin: one transaction of two parts, its client, two
 * processes of its node (the second one starts while the first still lives, cut off from the store or only
 * asleep), the store, the disk, and ClickHouse. tests/model/run checks it.
 *
 * How to read it: every step of the code is one option of the `do` loop in Node, guarded by the step's name
 * and made in one go (d_step); the comment behind it names the source. All else that can happen is in
 * ClickHouse, World and Client. Between any two steps anything may happen, as often as it likes:
 *   - a process of the node dies, sleeps (is just not run) or loses its session with the store;
 *   - a change in the store loses its answer, is not made, or is made late;
 *   - ClickHouse dies, refuses an ATTACH, forgets to answer; a replicated table swallows a part as a duplicate;
 *   - the client stops waiting, asks again, dies and comes back to resolve what it prepared.
 * At some moment World may say `calm`: from then on nothing goes wrong any more (who died is started again). Then
 * all that is left must run to an end without being asked, and the end must be right (see World).
 *
 * What is checked, by asserts where it would happen:
 *   set_record   no commit after an abort nor the reverse; nothing is decided that nobody asked for, so a Prepared
 *                transaction is never ended by a timer, and "known: not done" is never a lie;
 *   committed    Committed, recorded or answered: every part is in its table, or was and is merged; every write is
 *                there exactly once, an acknowledged one in any case;
 *   aborted      nothing of it can be seen;
 *   ClickHouse   a part becomes visible only after Committing was recorded;
 *   tell         what the client is told agrees with the store;
 *   plan         no part is ever taken for vanished, but for one that was taken away;
 *   World        after `calm` everything comes to its end by itself, nobody waits for ever, nothing is left over;
 *   ends         … and nobody runs in circles instead (only with LIVENESS, it takes twice the time).
 * A part cannot be in two places: it is one directory with one inode, and all that chxa and ClickHouse do with it
 * are renames. What could double rows is the same write recorded twice; that is why writes are retried here.
 *
 * A replicated target (REPLICATED) is given clones, op/commit_confirm.c: when its ZooKeeper fails it within an ATTACH, the part
 * may be attached all the same, stand in the table's folder unknown to ZooKeeper (319), or be taken out and deleted (244). An
 * owner that is taken for lost (OWNER_LOST) only slept or was cut off: an operator ends its transaction at another node.
 *
 * Left out, and why: a second transaction (transactions share no part, no record and no ALTER); begin (one creation
 * in the store; the model starts behind it); several targets (they are done one after the other, like batches); the
 * schema check (it leads into the same retreat as a refused ATTACH); power cuts (what is durable when: the crash
 * tests); forget and purge (no xid is used again); what else a stranger does to detached/ or to the table.
 *
 * Abstractions: a record's version is its state (a state never comes back, and add_write keeps the version); the epoch
 * is "is it still the newest"; the server sees the end of a session at once, the process that had it any time later.
 *
 * In a table's detached/ somebody may tidy up (STRANGER) before ClickHouse was asked for a part: that commit stays in doubt, and
 * says so, for ever; it is not Committed.
 *
 * How large: SMALL is without a second process and without lost answers of the store; BATCHES and SWALLOW add an ALTER
 * for each part and ClickHouse's deduplication of parts. `run` checks the whole without these two, and SMALL with both.
 *
 * Mistakes, which `run` makes one at a time to see that they are found:
 *   EARLY_ATTACH      parts are attached before the decision is recorded
 *   NO_EPOCH          a change in the store does not check the node's epoch
 *   LATE_MARKER       the marker is left after the part was moved (with NO_SENT: the one that says sent is made anew if need be)
 *   NO_SENT           STRANGER: the marker, said it sent or not, is taken for the proof that a part that is nowhere was attached
 *   LATE_SENT         the marker says sent once the ALTER was answered, not before it goes out
 *   NO_LOOK           recovery attaches without looking, and takes "no such part" for "attached already"
 *   EARLY_ANSWER      the client hears Committed before it is recorded
 *   ROLLBACK_DECIDED  a rollback is let through in Committing
 *   TIMEOUT_PREPARED  the timer ends Prepared as it ends Initialized
 *   NO_QUIET          recovery does not wait until no ALTER of ours runs
 *   NO_FLOCK          the held area is not locked against a second process
 *   UNKNOWN_FAILED    a lost answer of the store is taken for "not done"
 *   NO_VERIFY         ClickHouse's OK is taken for the proof that the parts are attached
 *   NO_IGNORED        a part that ClickHouse renamed to ignored_… is not searched for
 *   BLIND_RETRY       a write is admitted before the record in doubt was read again
 *   LEAVE_UNNAMED     after Committed, what no record names (of a write that failed) stays in the folder for ever
 *   TRUST_TABLE       REPLICATED: a part in the table's folder is taken for attached, without asking ZooKeeper
 *   NO_CLONE          REPLICATED: the replica is given the held part itself
 *   EARLY_LET_GO      REPLICATED: the held part is let go before its clone is attached for sure
 *   BLIND_REDO        REPLICATED: a clone unknown to ZooKeeper is replaced without looking where it is by now
 *   SLEEPY_OWNER      OWNER_LOST: an owner that wakes goes on attaching without asking whether it still is the owner
 *   ABANDON_ALIVE     OWNER_LOST: an operator ends it though the owner holds its lock
 *
 * Assumptions, which `run` drops one at a time: each is needed, so it had better be true.
 *   QUEUED_ALTER      what was sent to ClickHouse is in system.processes, or will never run. (It may wait for a
 *                     thread while another connection is answered.)
 *   STRANDED          a process whose node lock another one has got while it lived ends itself. (It keeps the held
 *                     area's lock, for which the other one waits: op/coord.c, STORE_REFUSED.)
 */

/* ---- the store ---- */

#define INITIALIZED 1
#define PREPARED    2
#define COMMITTING  3
#define COMMITTED   4
#define ABORTING    5
#define ABORTED     6
#define WRITE0      8 /* not a state: the change "add the write that has part 0" */
#define WRITE1      9

#define NOBODY      2

byte state = INITIALIZED; /* the record's */
byte writer = NOBODY;     /* whose change made it: the operation id in the record */
bool recorded[2];         /* the write that has this part is in the store */

/* A change under way that its sender does not wait for any more (connection lost). */
byte late_change, late_from, late_by = NOBODY;
bool late_valid;          /* its epoch still is the newest */

byte lock = NOBODY;       /* the node's ephemeral lock */
byte flock = NOBODY;      /* <root>/chxa/owner: ch/held_lock.c */

/* ---- the disk ---- */

#define NOWHERE   0 /* not staged, or removed */
#define HELD      1 /* in the held area */
#define DETACHED  2 /* detached/N */
#define ATTACHING 3 /* detached/attaching_N: ClickHouse 26 while it attaches, and after it died then */
#define IGNORED   4 /* detached/ignored_…: a replicated table found it without its entry in ZooKeeper */
#define RENAMED   5 /* in the table's folder, visible, but a replicated table has not yet committed it */
#define ACTIVE    6
#define MERGED    7 /* was active; the directory is gone */
/* REPLICATED; the place is that of the clone, once there is one: */
#define DOUBTFUL  8 /* visible, but ZooKeeper does not know it: will be IGNORED */
#define OUT       9 /* the clone is made and marked, still in the held area */
#define GONE     10 /* the replica deleted it */

byte place[2];
bool marker[2];
bool asked[2];     /* … and it says "sent": ClickHouse may have been asked for the part */
bool stolen;       /* STRANGER: somebody took a part away from detached/ */
bool kept[2];      /* REPLICATED: there is a clone, and the held part stays for its sake */
byte n_staged;     /* parts linked so far */
bool same_write;   /* part 1 is a second try of part 0's write: both together would be doubled rows */

/* ---- ClickHouse ---- */

#if defined(NO_QUIET) || defined(NO_FLOCK) || defined(QUEUED_ALTER)
#define ALTERS 2
#else
#define ALTERS 1 /* quiet sees to it */
#endif

bool clickhouse_up = true;
typedef alter {
    bool runs;
    bool left[2];  /* parts still to attach */
    bool begun;    /* it has taken the first of them */
    bool queued;   /* QUEUED_ALTER: not yet in system.processes */
    bool no_dedup;
    byte client;   /* who waits for its answer; NOBODY: gone away, the ALTER goes on */
};
alter alters[ALTERS];

/* ---- the node's processes ---- */

mtype = {
    DOWN, LOAD, IDLE,
    WRITE_LINK, WRITE_RECORD,
    PREPARE_RECORD,
    DECIDE, QUIET, LOOK_DETACHED, LOOK_TABLE, LOOK_HELD, LOOK,
    MEND, MARK, MOVE, SEND, ATTACH, ATTACH_WAIT, MARK_LATE, SEND_LATE, HAZARD, CONFIRM, SETTLE, RETREAT, UNMARK, RECORD, RELOAD, CLEAR,
    ABORT_DECIDE, ABORT_CLEAR, ABORT_RECORD, ABORT_RELOAD
};

/* core/part_plan.h */
#define TODO_RENAME 1
#define TODO_ATTACH 2
#define TODO_DONE   3
#define TODO_MOVE   4
#define TODO_STOP   5 /* vanished */

typedef process {
    mtype at;         /* the step that is next */
    byte state;       /* the record in memory */
    bool recorded[2];
    bool stale;       /* … may be older than the store's */
    bool sent;        /* the step's change had no answer: reading back */
    byte serves;      /* the request that the running operation answers */
    byte k;           /* part at which the step is */
    byte todo[2];
    bool batch[2];    /* parts of the ALTER */
    bool unsure, verifying, rejected, no_dedup;
    bool sure[2];     /* REPLICATED: ClickHouse's OK or ZooKeeper says that it is attached */
    bool displaced;   /* the lock was lost since the record was read: another may have ended it */
    byte answer;      /* of ClickHouse to its ALTER: OK or REFUSED */
};
process node[2];

/* scratch for a single step */
hidden byte i, change, moved;

#define N node[me] /* in Node, and in what it calls */

/* ---- the client ---- */

#define NONE     0
#define WRITE    1
#define PREPARE  2
#define COMMIT   3
#define ROLLBACK 4

#define OK       1 /* done, or done before */
#define REFUSED  2 /* 409: the state does not allow it */
#define NOT_DONE 3 /* outcome known: it did not happen */
#define UNKNOWN  4 /* outcome unknown: lost, 202, BLOCKED */

byte request;     /* not yet taken by a process */
bool second;      /* a WRITE is of the second write id */
byte answer;
bool client_done;

/* ---- what must hold ---- */

bool calm, over;
byte decision;              /* COMMITTING or ABORTING, once recorded */
bool acknowledged[2];       /* the client was told that this write is in */
bool may_commit, may_abort; /* the client asked for it, and was not told that it did not happen */
bool loose;                 /* … nor can it be told any more: an earlier request has no answer */
bool abandoned;             /* by an operator, at another node: decided to commit, it is a heuristic outcome */

#define in_detached(i) (place[i] == DETACHED || place[i] == ATTACHING || place[i] == IGNORED)
#define attached(i) (place[i] == ACTIVE || place[i] == MERGED)
#define visible(i)  (place[i] >= RENAMED && place[i] <= DOUBTFUL)
#define decided_to_commit (state == COMMITTING || state == COMMITTED)
#define decided_to_abort  (state == ABORTING || state == ABORTED)

inline committed()
{
    assert(abandoned || !recorded[0] || attached(0));
    assert(abandoned || !recorded[1] || attached(1));
    assert(recorded[0] || !visible(0));
    assert(recorded[1] || !visible(1));
    assert(!acknowledged[0] || recorded[0] || (same_write && recorded[1]));
    assert(!acknowledged[1] || (recorded[1] && !same_write));
    assert(!(same_write && visible(0) && visible(1)))
}

inline aborted()
{
    assert(!visible(0) && !visible(1))
}

#ifdef LIVENESS
/* Whoever asks, in whatever order: when nothing goes wrong any more, it ends (and ends well: World). */
ltl ends { [] (calm -> <> over) }
#endif

/* The one place where the record changes. */
inline set_record(change, who)
{
    if
    :: change == WRITE0 -> recorded[0] = true
    :: change == WRITE1 -> recorded[1] = true
    :: else ->
        if
        :: change == COMMITTING ->
            assert(decision != ABORTING && may_commit);
            decision = COMMITTING
        :: change == ABORTING ->
            /* the client wants it; or the timer, which may end Initialized only */
            assert(decision != COMMITTING && (may_abort || state == INITIALIZED));
            decision = ABORTING
        :: change == COMMITTED -> assert(decision == COMMITTING); committed()
        :: change == ABORTED -> assert(decision == ABORTING); aborted()
        :: else -> skip
        fi;
        state = change;
        writer = who; /* of interest only while somebody reads back */
        /* What does not matter any more is forgotten: fewer states. */
        if
        :: decision != 0 -> may_commit = false; may_abort = false; n_staged = 2
        :: else -> skip
        fi;
        if
        :: state >= COMMITTED -> acknowledged[0] = false; acknowledged[1] = false
        :: else -> skip
        fi
    fi
}

/* The operation's answer, if a client still waits for it. */
inline tell(me, what)
{
    if
    :: N.serves == NONE -> skip
    :: else ->
        if
        :: what == OK && N.serves == WRITE -> acknowledged[second] = true
        :: what == OK && N.serves == PREPARE ->
            /* (an owner that does not yet know that it was taken for lost repeats what was so) */
            assert(state != INITIALIZED && (!decided_to_abort || abandoned))
        :: what == OK && N.serves == COMMIT -> assert(state == COMMITTED); committed()
        :: what == OK && N.serves == ROLLBACK -> assert(state == ABORTED); aborted()
        :: what == REFUSED && N.serves == COMMIT -> assert(decided_to_abort)
        :: what == REFUSED && N.serves == ROLLBACK -> assert(decided_to_commit)
        :: what == NOT_DONE && N.serves == COMMIT && !loose ->
            assert(!decided_to_commit);
            may_commit = false
        :: what == NOT_DONE && N.serves == ROLLBACK && !loose -> may_abort = false
        :: else -> skip
        fi;
        answer = what;
        N.serves = NONE
    fi
}

/* ---- changes in the store: store/store_settle.c, op/coord.c (txn_store_state), op/write.c (record) ---- */

#define DONE        1
#define CONFLICT    2
#define UNAVAILABLE 3 /* known: not done */
#define LOST        4 /* unknown, and the deadline has passed */

inline change_wanted(me)
{
    if
    :: N.at == WRITE_RECORD && N.k == 0 -> change = WRITE0
    :: N.at == WRITE_RECORD && N.k == 1 -> change = WRITE1
    :: N.at == PREPARE_RECORD -> change = PREPARED
    :: N.at == DECIDE -> change = COMMITTING
    :: N.at == RECORD -> change = COMMITTED
    :: N.at == ABORT_DECIDE -> change = ABORTING
    :: N.at == ABORT_RECORD -> change = ABORTED
    fi
}

/* The end of an operation that did not get its change. */
inline not_stored(me, result)
{
    N.stale = (result != UNAVAILABLE);
    N.at = IDLE;
    if
    :: result == LOST -> tell(me, UNKNOWN)
    :: else -> tell(me, NOT_DONE)
    fi
}

inline stored(me, result)
{
    N.sent = false;
    writer = (writer == me -> NOBODY : writer);
    if
    :: N.at == WRITE_RECORD && result == DONE -> /* write_recorded */
        N.recorded[N.k] = true;
        N.at = IDLE;
        tell(me, OK)
    :: N.at == WRITE_RECORD && result != DONE ->
        if
        :: result == LOST -> skip /* the parts stay: the record may name them */
        :: else -> place[N.k] = NOWHERE
        fi;
        not_stored(me, result)
    :: N.at == PREPARE_RECORD && result == DONE -> /* prepare_recorded */
        N.state = PREPARED;
        N.at = IDLE;
        tell(me, OK)
    :: N.at == DECIDE && result == DONE -> /* commit_decided */
        N.state = COMMITTING;
#ifdef EARLY_ATTACH
        N.at = RECORD
#else
        N.at = QUIET
#endif
    :: N.at == ABORT_DECIDE && result == DONE -> /* rollback_decided */
        N.state = ABORTING;
        N.at = ABORT_CLEAR
    :: (N.at == PREPARE_RECORD || N.at == DECIDE || N.at == ABORT_DECIDE) && result != DONE ->
        not_stored(me, result)
    :: N.at == RECORD && result == DONE -> /* commit_recorded */
        N.state = COMMITTED;
        N.at = CLEAR
    :: N.at == RECORD && result != DONE -> N.at = RELOAD
    :: N.at == ABORT_RECORD && result == DONE -> /* rollback_recorded */
        N.state = ABORTED;
        N.at = IDLE;
        tell(me, OK)
    :: N.at == ABORT_RECORD && result != DONE -> N.at = ABORT_RELOAD
    fi
}

#define changes_store(p) \
    (p.at == WRITE_RECORD || p.at == PREPARE_RECORD || p.at == DECIDE || p.at == RECORD || \
     p.at == ABORT_DECIDE || p.at == ABORT_RECORD)
/* A read of the store is preceded by a sync in the same session, so it sees what became of an earlier change of
 * that session; and what an earlier session sent can not happen any more: the epoch. */
#define reads_store(me) (lock == me && (late_change == 0 || !late_valid))

inline take_record(me) /* txn_take_record */
{
    N.state = state;
    N.recorded[0] = recorded[0];
    N.recorded[1] = recorded[1];
    N.displaced = false;
    N.stale = false
}

inline all_held(me) /* op/prepare.c: drain, limits, check, sync */
{
    assert(!N.recorded[0] || place[0] == HELD);
    assert(!N.recorded[1] || place[1] == HELD)
}

/* ---- what is left to do: core/part_plan.c ---- */

#define to_do(i) (N.todo[i] != 0 && N.todo[i] != TODO_DONE)
#ifdef NO_SENT
#define may_be_attached(i) marker[i]
#elif defined(REPLICATED)
#define may_be_attached(i) marker[i] /* it names the clone; `confirm` asks what became of that */
#else
#define may_be_attached(i) asked[i]
#endif
#define to_rename(i) (N.batch[i] && N.todo[i] == TODO_RENAME)
#define to_move(i) (N.batch[i] && N.todo[i] == TODO_MOVE)
#define batch_left ((N.batch[0] && to_do(0)) || (N.batch[1] && to_do(1)))

inline forget_look(me)
{
    N.todo[0] = 0;
    N.todo[1] = 0;
    N.batch[0] = false;
    N.batch[1] = false;
    N.verifying = false;
    N.rejected = false;
    N.k = 0
}

inline look_again(me, unsure_)
{
    forget_look(me);
    N.unsure = unsure_;
    N.at = QUIET
}

/* commit_block: tell who waits, try again later */
inline block(me)
{
    tell(me, UNKNOWN);
    look_again(me, true)
}

inline commit_attached_all(me)
{
    forget_look(me);
    N.no_dedup = false;
#if defined(REPLICATED) && !defined(TRUST_TABLE) && !defined(NO_CLONE)
    N.at = CONFIRM
#elif defined(EARLY_ATTACH)
    N.at = (N.state == COMMITTING -> RECORD : DECIDE)
#else
    N.at = RECORD
#endif
}

#ifdef NO_IGNORED
#define displaced(i) (place[i] == ATTACHING)
#else
#define displaced(i) (place[i] == ATTACHING || place[i] == IGNORED)
#endif

#ifdef SMALL
#define second_process false
#define may_lose_answers false
#else
#define second_process (node[0].at != DOWN)
#define may_lose_answers !calm
#endif

/* Otherwise it makes no difference: fewer states. */
#ifdef OWNER_LOST
#define is_abandonable true
#else
#define is_abandonable false
#endif
/* commit_may_act: this process is the owner still, and the record was read since it became it. */
#ifdef SLEEPY_OWNER
#define may_act(me) true
#else
#define may_act(me) (lock == me && !N.displaced)
#endif
#ifdef NO_CLONE
#define clones false
#elif defined(REPLICATED)
#define clones true
#else
#define clones false
#endif
#define shows(a) (alters[a].runs && !alters[a].queued) /* in system.processes */
#ifdef NO_QUIET
#define is_quiet true
#else
#define is_quiet (!shows(0) && !shows(ALTERS - 1))
#endif

#ifdef NO_FLOCK
#define may_take_flock true
#else
#define may_take_flock (flock == NOBODY)
#endif

inline plan(me, i)
{
    if
    :: N.recorded[i] && N.todo[i] == 0 ->
        if
        :: place[i] == HELD || place[i] == OUT -> N.todo[i] = TODO_MOVE
        /* nowhere: attached and merged since; of a clone it is for `confirm` to say */
        :: place[i] != HELD && place[i] != OUT && may_be_attached(i) -> N.todo[i] = TODO_DONE
        :: else ->
            /* Only a stranger makes parts vanish; else it is a false alarm. */
            assert(stolen && place[i] == NOWHERE);
            N.todo[i] = TODO_STOP
        fi
    :: else -> skip
    fi
}

inline note_sent(me) /* op/commit_attach.c */
{
    asked[0] = asked[0] || N.batch[0];
    asked[1] = asked[1] || N.batch[1]
}

inline move_out(me, i) /* held_move_out, part_move */
{
    if
    :: N.batch[i] && N.todo[i] == TODO_MOVE ->
        if
        :: place[i] == HELD || place[i] == OUT -> place[i] = DETACHED; moved = true
        :: place[i] == DETACHED -> moved = true
        :: else -> moved = false
        fi
    :: else -> moved = true
    fi
}

#define waits_for_alter(me) \
    ((alters[0].runs && alters[0].client == me) || (alters[ALTERS - 1].runs && alters[ALTERS - 1].client == me))

inline rename(to, from)
{
    lock = (lock == from -> to : lock);
    flock = (flock == from -> to : flock);
    writer = (writer == from -> to : writer);
    late_by = (late_by == from -> to : late_by);
    for (i : 0 .. ALTERS - 1) {
        alters[i].client = (alters[i].client == from -> to : alters[i].client)
    }
    i = 0
}

inline leave(me)
{
    forget_look(me);
    N.at = DOWN;
    N.state = 0;
    N.recorded[0] = false;
    N.recorded[1] = false;
    N.stale = false;
    N.sent = false;
    N.serves = NONE;
    N.unsure = false;
    N.no_dedup = false;
    N.sure[0] = false;
    N.sure[1] = false;
    N.displaced = false;
    N.answer = NONE
}

#define copied(field) node[to].field = node[from].field

inline copy(to, from)
{
    copied(at); copied(state); copied(recorded[0]); copied(recorded[1]); copied(stale); copied(sent);
    copied(serves); copied(k); copied(todo[0]); copied(todo[1]); copied(batch[0]); copied(batch[1]);
    copied(unsure); copied(verifying); copied(rejected); copied(no_dedup); copied(answer);
    copied(sure[0]); copied(sure[1]); copied(displaced)
}

/* The folder goes, with what is in it. Of an abandoned transaction what stands in detached/ goes too. */
inline set_aside(i)
{
    place[i] = (place[i] == HELD || place[i] == OUT || (abandoned && in_detached(i)) -> NOWHERE : place[i]);
    marker[i] = false;
    asked[i] = false;
    kept[i] = false
}

/* ---- a process of the node ---- */

proctype Node(byte me)
{
end:
    do
    /* -- start: store_open, then op/recover.c -- */

    /* store_zookeeper.c lock_take: lock and epoch in one multi. The second process is started while the first one
     * still lives, but has lost its session. */
    :: d_step { N.at == DOWN && lock == NOBODY && (me == 0 || (second_process && !calm)) ->
        lock = me; late_valid = false; N.at = LOAD }
    /* … and again, after the session was lost; then recovery from "list" on, and take_loaded */
    :: d_step { N.at != DOWN && N.at != LOAD && lock == NOBODY ->
        lock = me; late_valid = false;
        if
        :: N.at == IDLE ->
            take_record(me);
            if
            :: state == COMMITTED && abandoned -> N.at = CLEAR /* must_obey */
            :: state == ABORTED -> set_aside(0); set_aside(1) /* judge, clean */
            :: else -> skip
            fi
        :: else -> N.displaced = is_abandonable
        fi }
    /* recover.c: probe, disks, lock, pool; list, load, folders, judge, clean; resume */
    :: d_step { N.at == LOAD && clickhouse_up && may_take_flock && reads_store(me) ->
        flock = me;
        take_record(me);
        N.at = IDLE;
        if
        :: state == COMMITTED && abandoned -> N.at = CLEAR /* must_obey */
        :: state == ABORTED ->
            for (i : 0 .. 1) {
                set_aside(i)
            }
#ifndef LEAVE_UNNAMED
        :: state == COMMITTED && !abandoned ->
            for (i : 0 .. 1) {
                assert(!(recorded[i] && (place[i] == HELD || place[i] == OUT || kept[i])));
                set_aside(i)
            }
#else
        :: state == COMMITTED && !abandoned ->
            /* only_empty: a part that the record names would be a hazard */
            assert(!(recorded[0] && place[0] == HELD) && !(recorded[1] && place[1] == HELD));
            if
            :: place[0] != HELD && place[1] != HELD -> marker[0] = false; marker[1] = false
            :: else -> skip
            fi
#endif
        :: else -> skip
        fi;
        i = 0 }

    /* -- between operations: op/txn.c -- */

    /* pump_one: a record in doubt is read before anything else */
    :: d_step { N.at == IDLE && N.stale && reads_store(me) -> take_record(me) }
    /* resume_decided */
    :: d_step { N.at == IDLE && !N.stale && N.state == COMMITTING -> N.unsure = true; N.at = QUIET }
    :: d_step { N.at == IDLE && !N.stale && N.state == ABORTING -> N.at = ABORT_CLEAR }
    /* answer_waiter, core/txn_state.c */
#ifdef BLIND_RETRY
    :: d_step { N.at == IDLE && (!N.stale || request == WRITE) && request != NONE &&
#else
    :: d_step { N.at == IDLE && !N.stale && request != NONE &&
#endif
                N.state != COMMITTING && N.state != ABORTING ->
        N.serves = request;
        request = NONE;
        if
        :: N.serves == WRITE && N.state == INITIALIZED ->
            /* op/write.c admit, compare: is the write id known? */
            if
            :: (!second && (N.recorded[0] || (same_write && N.recorded[1]))) ||
               (second && !same_write && N.recorded[1]) -> tell(me, OK)
            :: n_staged == 2 -> tell(me, NOT_DONE) /* the model has no more parts */
            :: else -> N.at = WRITE_LINK
            fi
        :: N.serves == PREPARE && N.state == INITIALIZED -> all_held(me); N.at = PREPARE_RECORD
        :: N.serves == PREPARE && N.state == PREPARED -> tell(me, OK)
        :: N.serves == COMMIT && (N.state == INITIALIZED || N.state == PREPARED) ->
            all_held(me);
#ifdef EARLY_ATTACH
            N.at = QUIET
#else
            N.at = DECIDE
#endif
        :: N.serves == COMMIT && N.state == COMMITTED -> tell(me, OK)
        :: N.serves == ROLLBACK && (N.state == INITIALIZED || N.state == PREPARED) ->
            N.at = ABORT_DECIDE
        :: N.serves == ROLLBACK && N.state == ABORTED -> tell(me, OK)
        :: else -> tell(me, REFUSED)
        fi }
    /* … and a request that finds the decided operation running: it joins, or is refused */
    :: d_step { N.at != IDLE && request != NONE && (N.state == COMMITTING || N.state == ABORTING) ->
        N.serves = request;
        request = NONE;
        if
        :: N.serves == COMMIT && N.state == COMMITTING -> skip
        :: N.serves == ROLLBACK && N.state == ABORTING -> skip
#ifdef ROLLBACK_DECIDED
        :: N.serves == ROLLBACK && N.state == COMMITTING -> forget_look(me); N.at = ABORT_DECIDE
#endif
        :: else -> tell(me, REFUSED)
        fi }
    /* op/coord.c sweep: idle or total time-out */
#ifdef TIMEOUT_PREPARED
    :: d_step { N.at == IDLE && !N.stale && (N.state == INITIALIZED || N.state == PREPARED) ->
#else
    :: d_step { N.at == IDLE && !N.stale && N.state == INITIALIZED ->
#endif
        N.at = ABORT_DECIDE }

    /* -- op/write.c -- */

    /* link: rows are in a scratch table only, until here */
    :: d_step { N.at == WRITE_LINK ->
        if
        :: n_staged == 2 -> N.at = IDLE; tell(me, NOT_DONE) /* only when a mistake was switched on */
        :: else ->
            same_write = (n_staged == 1 && !second);
            N.k = n_staged;
            place[N.k] = HELD;
            n_staged++;
            N.at = WRITE_RECORD
        fi }

    /* -- a change in the store, whatever the step: outcomes see stored() -- */

    /* made or refused, and answered; add_write checks the version too, and leaves it */
    :: d_step { changes_store(N) && !N.sent && lock == me ->
        if
        :: N.state == state -> change_wanted(me); set_record(change, NOBODY); stored(me, DONE)
        :: else -> stored(me, CONFLICT)
        fi;
        change = 0 }
    /* sent, and the answer is lost: World decides what becomes of it */
    :: d_step { changes_store(N) && !N.sent && lock == me && late_change == 0 && may_lose_answers ->
        change_wanted(me);
        late_change = change; late_from = N.state; late_by = me; late_valid = true;
        N.sent = true;
        change = 0 }
    /* read back: compare() of store_settle.c */
    :: d_step { changes_store(N) && N.sent && reads_store(me) ->
        change_wanted(me);
        if
        :: N.at == WRITE_RECORD && recorded[N.k] -> stored(me, DONE)
        :: N.at != WRITE_RECORD && state == change && writer == me -> stored(me, DONE)
        :: else ->
            if
            :: state == N.state -> N.sent = false /* not there, and nobody else was: again */
            :: else -> stored(me, CONFLICT)
            fi
        fi;
        change = 0 }
    /* the deadline has passed */
    :: d_step { changes_store(N) && !calm ->
        if
#ifndef UNKNOWN_FAILED
        :: N.sent -> stored(me, LOST)
#endif
        :: else -> /* record: "wait_and_retry" */
            if
            :: N.at == RECORD || N.at == ABORT_RECORD -> N.sent = false
            :: else -> stored(me, UNAVAILABLE)
            fi
        fi }

    /* -- op/commit.c; decide and record are changes in the store, see above -- */

    /* quiet, check: needs ClickHouse; if unsure, wait until no ALTER of ours runs */
    :: d_step { (N.at == QUIET || N.at == MARK || N.at == MOVE || N.at == SEND || N.at == ATTACH) && lock == me && N.displaced && !may_act(me) ->
        forget_look(me);
        N.unsure = true;
        N.at = RELOAD }
    :: d_step { N.at == QUIET && may_act(me) && clickhouse_up && (!N.unsure || is_quiet) ->
#ifdef NO_LOOK
        if
        :: N.unsure ->
            for (i : 0 .. 1) {
                N.todo[i] = (N.recorded[i] -> TODO_MOVE : 0);
                N.batch[i] = N.recorded[i]
            }
            N.at = MARK
        :: else -> N.at = LOOK
        fi;
#else
        N.at = LOOK;
#endif
        i = 0;
        N.unsure = false }
    /* look, verify: ch/part_held.c part_places_read lists detached/ (not in one go: a name that changes meanwhile
     * may be missed), then the table's folder, then asks for held part and marker. As nobody else moves parts
     * now (quiet, flock), it is as good as one step. */
    :: d_step { N.at == LOOK ->
        for (i : 0 .. 1) {
            N.todo[i] = (N.recorded[i] && displaced(i) -> TODO_RENAME : 0)
        }
        i = 0;
        N.at = LOOK_DETACHED }
    :: d_step { N.at == LOOK_DETACHED ->
        for (i : 0 .. 1) {
            N.todo[i] = (N.recorded[i] && place[i] == DETACHED -> TODO_ATTACH : N.todo[i])
        }
        i = 0;
        N.at = LOOK_TABLE }
    :: d_step { N.at == LOOK_TABLE ->
        for (i : 0 .. 1) {
            N.todo[i] = (N.recorded[i] && visible(i) && place[i] != MERGED -> TODO_DONE : N.todo[i])
        }
        i = 0;
        N.at = LOOK_HELD }
    :: d_step { N.at == LOOK_HELD ->
        i = 0;
        plan(me, 0);
        plan(me, 1);
        if
        :: N.todo[0] == TODO_STOP || N.todo[1] == TODO_STOP -> N.k = 0; N.at = RETREAT /* block_vanished */
        :: else ->
        if
        :: !to_do(0) && !to_do(1) ->
#ifdef REPLICATED
            for (i : 0 .. 1) { /* trust_answer */
                N.sure[i] = N.sure[i] || (N.verifying && N.batch[i] && !N.rejected)
            }
            i = 0;
#endif
            commit_attached_all(me)
        :: else ->
            if
            :: !N.verifying -> /* commit_looked: the next batch, all that is left (or one part only) */
                N.batch[0] = to_do(0);
                N.batch[1] = to_do(1);
                N.at = (to_rename(0) || to_rename(1) -> MEND : (to_move(0) || to_move(1) -> MARK : SEND))
            :: N.verifying && !batch_left -> /* commit_verified: trust_answer, settle; the next batch */
#ifdef REPLICATED
                for (i : 0 .. 1) {
                    N.sure[i] = N.sure[i] || (N.batch[i] && !N.rejected);
                    kept[i] = kept[i] && !N.sure[i]
                }
                i = 0;
#endif
                look_again(me, false)
            :: N.verifying && batch_left && !N.rejected && !N.no_dedup ->
                N.no_dedup = true;
                look_again(me, false)
            :: else -> N.k = 0; N.at = RETREAT
            fi
        fi
        fi }
#ifdef BATCHES /* attach_parts_max = 1 */
    :: d_step { (N.at == MEND || N.at == MARK) && N.batch[0] && N.batch[1] ->
        N.batch[1] = false;
        N.at = (to_rename(0) -> MEND : (to_move(0) -> MARK : SEND)) }
#endif
    /* mend: attaching_N and ignored_… back to N */
    :: d_step { N.at == MEND ->
        moved = true;
        for (i : 0 .. 1) {
            if
            :: N.batch[i] && N.todo[i] == TODO_RENAME && in_detached(i) -> place[i] = DETACHED
            :: N.batch[i] && N.todo[i] == TODO_RENAME && !in_detached(i) -> moved = false
            :: else -> skip
            fi
        }
        i = 0;
        if
        :: moved -> N.at = (to_move(0) || to_move(1) -> MARK : SEND)
        :: else -> block(me)
        fi;
        moved = false }
    /* mark, move (one by one), or with LATE_MARKER the other way round */
#ifdef LATE_MARKER
    :: d_step { N.at == MARK -> N.k = (to_move(0) -> 0 : 1); N.at = MOVE }
    :: d_step { N.at == MARK_LATE ->
        marker[0] = marker[0] || (N.batch[0] && N.todo[0] == TODO_MOVE);
        marker[1] = marker[1] || (N.batch[1] && N.todo[1] == TODO_MOVE);
        N.at = SEND }
#else
    :: d_step { N.at == MARK && may_act(me) ->
        for (i : 0 .. 1) {
            if
            :: to_move(i) && clones -> /* held_clone: the clone, then the marker that names it */
                marker[i] = true;
                kept[i] = true;
                N.sure[i] = false;
                place[i] = (place[i] == HELD -> OUT : place[i])
            :: to_move(i) && !clones -> marker[i] = true; asked[i] = false
            :: else -> skip
            fi
        }
        i = 0;
#ifdef EARLY_LET_GO
        kept[0] = false;
        kept[1] = false;
#endif
        N.k = (to_move(0) -> 0 : 1);
        N.at = MOVE }
#endif
    :: d_step { N.at == MOVE && may_act(me) ->
        move_out(me, N.k);
#ifdef NO_LOOK
        moved = true;
#endif
        if
        :: !moved -> block(me)
        :: moved && N.k == 0 && to_move(1) -> N.k = 1
        :: else ->
            N.k = 0;
#ifdef LATE_MARKER
            N.at = MARK_LATE
#else
            N.at = SEND
#endif
        fi;
        moved = false }
    /* send: the markers say so */
#if defined(REPLICATED) || defined(LATE_SENT)
    :: d_step { N.at == SEND && may_act(me) -> N.at = ATTACH }
#else
    :: d_step { N.at == SEND && may_act(me) -> note_sent(me); N.at = ATTACH }
#endif
    /* attach: ALTER TABLE … ATTACH PART …, ATTACH PART … */
    :: d_step { N.at == ATTACH && !clickhouse_up -> look_again(me, true) }
    :: d_step { N.at == ATTACH && may_act(me) && clickhouse_up && (!alters[0].runs || !alters[ALTERS - 1].runs) ->
        assert(!abandoned);
        i = (alters[0].runs -> ALTERS - 1 : 0);
        alters[i].runs = true;
        alters[i].left[0] = N.batch[0];
        alters[i].left[1] = N.batch[1];
        alters[i].no_dedup = N.no_dedup;
        alters[i].client = me;
#ifdef QUEUED_ALTER
        alters[i].queued = true;
#endif
        i = 0;
        N.at = ATTACH_WAIT }
    /* … the answer, whatever it says: verify */
    :: d_step { N.at == ATTACH_WAIT && N.answer != NONE ->
        N.rejected = (N.answer == REFUSED);
        N.answer = NONE;
#ifdef LATE_SENT
        note_sent(me);
#endif
#ifdef NO_LOOK
        /* "no such part": it was attached before */
        commit_attached_all(me);
#elif defined(NO_VERIFY)
        if
        :: N.rejected -> N.verifying = true; N.at = LOOK
        :: else -> commit_attached_all(me)
        fi;
#else
        N.verifying = true;
        N.at = LOOK;
#endif
        N.todo[0] = 0;
        N.todo[1] = 0 }
    /* … connection lost, ClickHouse dead */
    :: d_step { N.at == ATTACH_WAIT && N.answer == NONE && !waits_for_alter(me) -> look_again(me, true) }
    /* … deadline: the ALTER goes on */
    :: d_step { N.at == ATTACH_WAIT && N.answer == NONE && waits_for_alter(me) && !calm ->
        for (i : 0 .. ALTERS - 1) {
            alters[i].client = (alters[i].client == me -> NOBODY : alters[i].client)
        }
        i = 0;
        look_again(me, true) }
#ifdef REPLICATED
    /* op/commit_confirm.c confirm: needs ClickHouse, and ZooKeeper behind it; a stray is waited for. What ZooKeeper does
     * not have, and is no stray, is lost */
    :: d_step { N.at == CONFIRM && clickhouse_up && place[0] != DOUBTFUL && place[1] != DOUBTFUL ->
        for (i : 0 .. 1) {
            N.sure[i] = N.sure[i] || attached(i);
            N.batch[i] = N.recorded[i] && kept[i] && !N.sure[i] /* to be redone */
        }
        i = 0;
        N.at = SETTLE }
    /* settle: the held part is let go, or the marker removed, so that a clone is made anew */
    :: d_step { N.at == SETTLE ->
        moved = false; /* look again? */
        for (i : 0 .. 1) {
            if
#ifdef BLIND_REDO
            :: N.batch[i] ->
#else
            :: N.batch[i] && in_detached(i) -> moved = true /* set aside meanwhile: it can be attached */
            :: N.batch[i] && !in_detached(i) ->
#endif
                /* If that clone is not dead, its rows will be there twice. */
                assert(place[i] == GONE);
                place[i] = HELD;
                marker[i] = false;
                kept[i] = false;
                moved = true
            :: else -> kept[i] = kept[i] && !N.sure[i]
            fi
        }
        i = 0;
        if
        :: moved -> look_again(me, true)
        :: else -> forget_look(me); N.at = RECORD
        fi;
        moved = false }
#endif
    /* retreat: what is not attached goes back into the held area; then its marker goes */
    :: d_step { N.at == RETREAT ->
        if
        :: N.k == 2 && N.todo[0] != TODO_STOP && N.todo[1] != TODO_STOP -> block(me)
        :: N.k == 2 && (N.todo[0] == TODO_STOP || N.todo[1] == TODO_STOP) ->
            forget_look(me); /* it would look again for ever */
            N.unsure = true;
            N.at = HAZARD
        :: N.k < 2 && (N.todo[N.k] == TODO_RENAME || N.todo[N.k] == TODO_ATTACH) && in_detached(N.k) ->
            place[N.k] = (kept[N.k] -> OUT : HELD);
            N.at = UNMARK
        :: else -> N.k++
        fi }
    :: d_step { N.at == UNMARK ->
        place[N.k] = HELD;
        marker[N.k] = false;
        asked[N.k] = false;
        kept[N.k] = false;
        N.k++;
        N.at = RETREAT }
    :: d_step { N.at == HAZARD && N.serves != NONE -> tell(me, UNKNOWN) }
#ifdef EARLY_ANSWER
    :: d_step { N.at == RECORD && N.serves == COMMIT -> tell(me, OK) }
#endif
    /* commit_reloaded: all from the beginning, with what the store has now */
    :: d_step { N.at == RELOAD && reads_store(me) ->
        take_record(me);
        N.at = (state == COMMITTED -> CLEAR : (state == ABORTED -> ABORT_CLEAR : QUIET)) }
    /* clear: the folder with the markers, and with parts that no record names; then the answer. (Abandoned: op/resolve.c,
     * "obey": quiet, look, retreat, and what is held is set aside.) */
    :: d_step { N.at == CLEAR && (!abandoned || (clickhouse_up && is_quiet)) ->
        for (i : 0 .. 1) {
            assert(abandoned || !((place[i] == HELD || place[i] == OUT || kept[i]) && recorded[i]));
            set_aside(i)
        }
        i = 0;
        N.at = IDLE;
        tell(me, OK) }

    /* -- op/rollback.c; decide and record are changes in the store, see above -- */

    :: d_step { N.at == ABORT_CLEAR ->
        for (i : 0 .. 1) {
            set_aside(i)
        }
        i = 0;
        N.at = ABORT_RECORD }
    :: d_step { N.at == ABORT_RELOAD && reads_store(me) ->
        take_record(me);
        if
        :: state == ABORTED -> N.at = IDLE; tell(me, OK)
        :: else -> N.at = ABORT_RECORD
        fi }

    /* -- the process dies -- */

    /* (`calm`: somebody ends the one that was replaced) */
#ifdef STRANDED
    :: d_step { N.at != DOWN && !calm ->
#else
    :: d_step { N.at != DOWN && (!calm || lock == 1 - me) ->
#endif
        answer = (N.serves != NONE -> UNKNOWN : answer); /* connection reset */
        leave(me);
        rename(NOBODY, me);
        /* The survivor is called 0: half as many states. */
        if
        :: me == 0 && node[1].at != DOWN -> copy(0, 1); leave(1); rename(0, 1)
        :: else -> skip
        fi }
    od
}

/* ---- ClickHouse: one ALTER … ATTACH PART, part after part ---- */

inline alter_ends(a, how)
{
    if
    :: alters[a].client != NOBODY -> node[alters[a].client].answer = how
    :: else -> skip
    fi;
    alters[a].runs = false;
    alters[a].left[0] = false;
    alters[a].left[1] = false;
    alters[a].begun = false;
    alters[a].queued = false;
    alters[a].no_dedup = false;
    alters[a].client = NOBODY
}

#define runs(a) (clickhouse_up && alters[a].runs)
#define first(a) (alters[a].left[0] -> 0 : 1)
#define has_more(a) (alters[a].left[0] || alters[a].left[1])

proctype ClickHouse(byte a)
{
end:
    do
    :: d_step { runs(a) && !has_more(a) -> alter_ends(a, OK) }
    :: d_step { runs(a) && has_more(a) && !alters[a].begun ->
        alters[a].queued = false;
        if
        :: place[first(a)] == DETACHED -> place[first(a)] = ATTACHING; alters[a].begun = true
        :: else -> alter_ends(a, REFUSED) /* no such part */
        fi }
    :: d_step { runs(a) && alters[a].begun && place[first(a)] != RENAMED ->
        if
        :: place[first(a)] == ATTACHING ->
            assert(decision == COMMITTING);
            place[first(a)] = RENAMED
        :: else -> alter_ends(a, REFUSED) /* renamed under its feet */
        fi }
    :: d_step { runs(a) && alters[a].begun && place[first(a)] == RENAMED ->
        place[first(a)] = ACTIVE;
        alters[a].begun = false;
        alters[a].left[first(a)] = false }
    /* it refuses a part (damaged, too many parts, out of memory …) and puts it back */
    :: d_step { runs(a) && has_more(a) && !calm && (!alters[a].begun || place[first(a)] == ATTACHING) ->
        place[first(a)] = (alters[a].begun -> DETACHED : place[first(a)]);
        alter_ends(a, REFUSED) }
    /* it takes it for a duplicate, puts it back, and says nothing */
#ifdef SWALLOW
    :: d_step { runs(a) && !calm && alters[a].begun && place[first(a)] == ATTACHING && !alters[a].no_dedup ->
        place[first(a)] = DETACHED;
        alters[a].begun = false;
        alters[a].left[first(a)] = false }
#endif
#ifdef REPLICATED
    /* ZooKeeper is lost between the rename and the commit there; the answer is an exception, in any case */
    :: d_step { runs(a) && !calm && alters[a].begun && place[first(a)] == RENAMED ->
        place[first(a)] = DOUBTFUL; /* 319 */
        alter_ends(a, REFUSED) }
    :: d_step { runs(a) && !calm && alters[a].begun && place[first(a)] == RENAMED ->
        place[first(a)] = GONE; /* 244 */
        alter_ends(a, REFUSED) }
    :: d_step { runs(a) && !calm && alters[a].begun && place[first(a)] == RENAMED ->
        place[first(a)] = ACTIVE; /* only the answer was lost */
        alter_ends(a, REFUSED) }
#endif
    od
}

inline clickhouse_dies(renamed_becomes)
{
    clickhouse_up = false;
    for (i : 0 .. ALTERS - 1) {
        alter_ends(i, NONE)
    }
    for (i : 0 .. 1) {
        place[i] = (place[i] == RENAMED -> renamed_becomes : place[i])
    }
    i = 0
}

#define clean \
    (!marker[0] && !marker[1] && !kept[0] && !kept[1] && place[0] != HELD && place[1] != HELD && place[0] != OUT && \
     place[1] != OUT)
#define hands_out(p) \
    (p.at == LOOK || p.at == LOOK_DETACHED || p.at == LOOK_TABLE || p.at == LOOK_HELD || p.at == MEND || p.at == MARK || \
     p.at == MOVE || p.at == SEND)
proctype World()
{
    do
    /* ClickHouse dies: a part it had renamed is there (plain), or was not committed (replicated) */
    :: d_step { clickhouse_up && !calm -> clickhouse_dies(ACTIVE) }
    :: d_step { clickhouse_up && !calm && (place[0] == RENAMED || place[1] == RENAMED) ->
        clickhouse_dies(IGNORED) }
    :: d_step { !clickhouse_up -> clickhouse_up = true }
    :: d_step { place[0] == ACTIVE -> place[0] = MERGED }
    :: d_step { place[1] == ACTIVE -> place[1] = MERGED }
#ifdef STRANGER
    /* Somebody tidies up detached/. (What he takes between the last look and the end of the ALTER, ClickHouse complains of,
     * unless one of the two dies in it: find_stolen; left out.) */
    :: d_step { place[0] == DETACHED && !asked[0] && !calm && !hands_out(node[0]) && !hands_out(node[1]) ->
        place[0] = NOWHERE; stolen = true }
    :: d_step { place[1] == DETACHED && !asked[1] && !calm && !hands_out(node[0]) && !hands_out(node[1]) ->
        place[1] = NOWHERE; stolen = true }
#endif
#ifdef REPLICATED
    /* the table is loaded anew: what ZooKeeper does not know is set aside */
    :: d_step { place[0] == DOUBTFUL -> assert(state != COMMITTED); place[0] = IGNORED }
    :: d_step { place[1] == DOUBTFUL -> assert(state != COMMITTED); place[1] = IGNORED }
#endif
#ifdef OWNER_LOST
    /* op/abandon.c, at another node: one change that proves that the lock is free, and raises the owner's epoch */
#ifdef ABANDON_ALIVE
    :: d_step { !abandoned && !calm && state < COMMITTED ->
#else
    :: d_step { lock == NOBODY && !abandoned && !calm && state != COMMITTED && state != ABORTED ->
#endif
        late_valid = false;
        abandoned = true;
        if
        :: state == COMMITTING -> set_record(COMMITTED, NOBODY)
        :: else ->
            may_abort = true;
            decision = ABORTING;
            set_record(ABORTED, NOBODY)
        fi }
#endif
    /* a change whose answer was lost: made now, unless its session and epoch are gone, or never */
    :: d_step { late_change != 0 ->
        if
#ifdef NO_EPOCH
        :: state == late_from ->
#else
        :: late_valid && state == late_from ->
#endif
            set_record(late_change, late_by)
        :: else -> skip
        fi;
        late_change = 0; late_from = 0; late_by = NOBODY; late_valid = false }
    :: d_step { late_change != 0 ->
        late_change = 0; late_from = 0; late_by = NOBODY; late_valid = false }
    /* the session of the lock's holder expires; it need not notice */
    :: d_step { lock != NOBODY && !calm ->
        if
        :: node[lock].at == LOAD -> leave(lock) /* it has done nothing yet: as good as never started */
        :: else -> skip
        fi;
        lock = NOBODY }
    :: d_step { !calm -> calm = true }
    /* nothing can happen any more */
    :: timeout ->
        assert(calm && client_done);
        assert(state == COMMITTED || state == ABORTED || (stolen && state == COMMITTING));
        if
        :: state == COMMITTED -> committed()
        :: state == ABORTED -> aborted()
        :: else -> skip
        fi;
        /* An operation that was under way when its transaction was abandoned leaves the folder to the next start. */
        assert(clean || abandoned || stolen);
        assert(!in_detached(0) && !in_detached(1));
        assert(!alters[0].runs && !alters[ALTERS - 1].runs);
        assert(lock != NOBODY && request == NONE);
        assert(node[lock].at == IDLE || (stolen && node[lock].at == HAZARD));
        over = true;
        break
    od
}

/* ---- the client: a sink, or a transaction manager ---- */

inline ask(what)
{
    d_step {
        request = what;
        may_commit = may_commit || (what == COMMIT && decision == 0);
        may_abort = may_abort || (what == ROLLBACK && decision == 0)
    };
    if
    :: d_step { answer != NONE ->
        got = answer;
        answer = NONE;
        loose = loose || (got == UNKNOWN && decision == 0 && what >= COMMIT) }
    /* it stops waiting, or dies and comes back; what it asked for may still be done */
    :: d_step { !calm ->
        request = NONE;
        answer = NONE;
        node[0].serves = NONE;
        node[1].serves = NONE;
        loose = loose || (decision == 0 && what >= COMMIT);
        got = UNKNOWN }
    fi
}

proctype Client()
{
    byte got;
    bool prepared;

writing:
    ask(WRITE);
    if
    :: d_step { got == OK && !second -> got = NONE; second = true }; goto writing
    :: d_step { got == OK -> got = NONE; second = false }
    :: d_step { (got == NOT_DONE && n_staged < 2) || got == UNKNOWN -> got = NONE }; goto writing
    :: d_step { got != OK -> got = NONE; second = false }; goto roll_back
    :: d_step { got != OK -> got = NONE; second = false }; goto finished /* gone for ever: the timer's business */
    fi;
    if
    :: skip
    :: goto commit
    :: goto roll_back
    :: goto finished
    fi;
preparing:
    ask(PREPARE);
    if
    :: d_step { got == OK -> got = NONE; prepared = true }
    :: d_step { got == NOT_DONE || got == UNKNOWN -> got = NONE }; goto preparing
    :: d_step { got != OK -> got = NONE }; goto roll_back
    fi;
    /* checkpoint complete, or not; it may have died and asked again since */
    if
    :: goto commit
    :: goto roll_back
    fi;
commit:
    ask(COMMIT);
    if
    :: d_step { got == OK -> got = NONE; prepared = false }; goto finished
    :: d_step { got == REFUSED -> assert(!prepared || abandoned); got = NONE }; goto finished
    :: d_step { got == NOT_DONE || got == UNKNOWN -> got = NONE }; goto commit
    /* it has been told so; or an impatient operator tries */
    :: d_step { got == NOT_DONE || got == UNKNOWN -> got = NONE; prepared = false }
    fi;
roll_back:
    ask(ROLLBACK);
    if
    :: d_step { got == OK || got == REFUSED -> got = NONE }
    :: d_step { got == NOT_DONE || got == UNKNOWN -> got = NONE }; goto roll_back
    fi;
finished:
    client_done = true
}

init
{
    atomic {
        node[0].at = DOWN;
        node[1].at = DOWN;
        alters[0].client = NOBODY;
        alters[ALTERS - 1].client = NOBODY;
        run Node(0);
        run Node(1);
        run ClickHouse(0);
#if ALTERS == 2
        run ClickHouse(1);
#endif
        run World();
        run Client()
    }
}
