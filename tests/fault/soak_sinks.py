# SPDX-License-Identifier: Apache-2.0
"""The soak's clients: sinks that write numbered rows in transactions and keep the retry rules of PROTOCOL.md.

A sink remembers what it was promised and what it decided (its own durable memory: a Ledger). It dies and comes
back at random places, loses patience, cuts its bodies short, sends things twice. What it remembers at the end
says for each row whether it must be in its table once or not at all.
"""
import http.client
import json
import random
import socket
import threading
import time
import urllib.parse

from rest import Client

OPEN, COMMIT, ABORT = "open", "commit", "abort"
DAYS = ("2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01")
STUCK_SECONDS = 240


class Final(Exception):
    """An answer that no retry changes."""

    def __init__(self, answer):
        super().__init__(repr(answer))
        self.answer = answer


class Died(Exception):
    """The client's process ends here; what it had not written down is forgotten."""


class Txn:
    def __init__(self, number, xid, sink):
        self.number = number
        self.xid = xid
        self.sink = sink
        self.rows = {}  # table → (count, sum) of the acknowledged writes
        self.fate = OPEN
        self.ended = False  # chxad confirmed the fate
        self.asked = None  # "one-phase": a commit was sent before anything was promised
        self.epoch = None  # of a named sink
        self.meta = None  # what the sink's checkpoint must have once this was committed last
        self.spoilt = False  # by rows that ClickHouse refuses, in a write that was answered: may not be committed
        self.gather = False  # its small writes are answered before they are staged

    def add(self, table, first, count):
        before = self.rows.get(table, (0, 0))
        self.rows[table] = (before[0] + count, before[1] + sum(range(first, first + count)))


class Ledger:
    """All sinks' memory, and what went against the protocol."""

    def __init__(self, seed, log):
        self.seed = seed
        self.lock = threading.Lock()
        self.txns = []
        self.log = log
        self.counts = {}
        self.faults = []

    def new(self, sink):
        with self.lock:
            txn = Txn(len(self.txns) + 1, f"soak:{self.seed}:{len(self.txns) + 1}", sink)
            self.txns.append(txn)
            return txn

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def note(self, text):
        with self.lock:
            print(f"{time.time():.3f} {text}", file=self.log, flush=True)

    def fault(self, text):
        self.note(f"FAULT {text}")
        with self.lock:
            self.faults.append(text)

    def decide(self, txn, fate):
        """The decision, durable before anybody is told of it."""
        assert txn.fate in (OPEN, fate), (txn.xid, txn.fate, fate)
        txn.fate = fate
        self.note(f"{txn.xid} decided {fate}")


def body_of(txn, first, count, days):
    return "".join(f"{days[n % len(days)]},{txn.number},{n},x{n}\n" for n in range(first, first + count)).encode()


class Sink(threading.Thread):
    """One writer with a pause between transactions; stops when told to, with nothing left open."""

    gathers = 0.4  # of its transactions

    def __init__(self, number, url, tables, ledger, stop):
        super().__init__(name=f"sink{number}", daemon=True)
        self.number = number
        self.url = url
        self.tables = tables
        self.ledger = ledger
        self.stop = stop
        self.random = random.Random(f"{ledger.seed}/sink{number}")
        self.next_row = 1
        self.later = []  # (when, txn): left by a client that died

    def run(self):
        try:
            while not self.stop.is_set() or self.later:
                now = time.monotonic()
                due = [entry for entry in self.later if entry[0] <= now or self.stop.is_set()]
                for entry in due:
                    self.later.remove(entry)
                    self.resolve(entry[1])
                if not self.stop.is_set():
                    self.transaction()
                    time.sleep(self.random.random() * 0.1)
        except BaseException as error:  # noqa: B902 - whatever it is, the run must fail and say so
            self.ledger.fault(f"{self.name} ended by {type(error).__name__}: {error}")
            raise

    # ---- asking ----

    def call(self, txn, what, do):
        """Sends a request until it is answered for good: 2xx, or an error that is not retryable (Final)."""
        pause, since, told = 0.1, time.monotonic(), False
        while True:
            timeout = self.random.choice((0.2, 1, 3, 20))
            try:
                answer = do(Client(self.url, timeout=timeout))
            except (OSError, http.client.HTTPException) as error:
                self.ledger.count("answers lost")
                last = f"{type(error).__name__} {error}"
            except AssertionError as error:
                self.ledger.fault(f"{txn.xid} {what}: an answer that the contract does not know: {error}")
                last = str(error)
            else:
                if answer.status == 202:
                    self.ledger.count("202")
                elif answer.status < 300:
                    return answer
                elif not answer.error["retryable"]:
                    raise Final(answer)
                else:
                    self.ledger.count(answer.code)
                last = repr(answer)
            if time.monotonic() - since > STUCK_SECONDS and not told:
                told = True
                self.ledger.fault(f"{txn.xid} {what}: no end after {STUCK_SECONDS} s, last {last}")
            if told and self.stop.is_set():
                raise Died
            time.sleep(pause * (0.5 + self.random.random() / 2))
            pause = min(pause * 2, 2)

    def chance(self, probability):
        return self.random.random() < probability

    def may_die(self, probability):
        if self.chance(probability):
            raise Died

    # ---- a transaction ----

    def transaction(self):
        txn = self.ledger.new(self.name)
        txn.gather = self.chance(self.gathers)
        dies = self.random.choice((0, 0, 0, 0.15))
        try:
            self.begin(txn)
            if self.chance(0.15):
                self.write_at_once(txn)
            else:
                for number in range(self.random.choice((1, 1, 2, 3, 8))):
                    self.may_die(dies)
                    self.write(txn, f"w{number}")
            self.may_die(dies)
            self.end(txn, dies)
        except Died:
            self.ledger.count("clients died")
            self.ledger.note(f"{txn.xid} client died, fate {txn.fate}")
            self.come_back(txn)
        except Final as final:
            self.refused(txn, final.answer)

    def begin(self, txn):
        self.call(txn, "begin", lambda c: c.begin(txn.xid, gather=txn.gather))

    def prepare(self, txn):
        self.call(txn, "prepare", lambda c: c.prepare(txn.xid))

    def come_back(self, txn):
        """Its next life looks after what it left, some time."""
        self.later.append((time.monotonic() + self.random.random() * 20, txn))

    def write(self, txn, write_id):
        table = self.random.choice(self.tables)
        count = self.random.choice((1, 5, 40, 200))
        with self.ledger.lock:
            first, self.next_row = self.next_row, self.next_row + count
        days = DAYS[: self.random.choice((1, 2, 4))]
        body = body_of(txn, first, count, days)
        statement = f"INSERT INTO {table} FORMAT CSV"
        if self.chance(0.05):
            self.cut_short(txn, statement, body, write_id)
        if self.chance(0.01 if txn.gather else 0.05):
            self.bad_rows(txn, statement)
        chunked = self.chance(0.3)

        def send(client):
            whole = iter([body[: len(body) // 2], body[len(body) // 2 :]]) if chunked else body
            return client.write(txn.xid, statement, whole, write_id=write_id)

        answer = self.call(txn, "write", send)
        if self.chance(0.05):
            answer = self.call(txn, "write again", send)
            if not answer["replay"]:
                self.ledger.fault(f"{txn.xid} {write_id}: a repeated write is no replay: {answer!r}")
        if "gathered" in answer.json:
            self.ledger.count("writes gathered")
            if not txn.gather or answer["body_bytes"] != len(body):
                self.ledger.fault(f"{txn.xid} {write_id}: {len(body)} bytes sent, {answer!r}")
        elif answer["rows"] != count:
            self.ledger.fault(f"{txn.xid} {write_id}: {count} rows sent, {answer!r}")
        txn.add(table, first, count)
        self.ledger.count("writes")

    def write_at_once(self, txn):
        """Several writes of one transaction, side by side."""
        problems = []

        def one(write_id):
            try:
                self.write(txn, write_id)
            except Exception as problem:  # noqa: B902 - handed to the sink
                problems.append(problem)

        threads = [threading.Thread(target=one, args=(f"p{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]

    def cut_short(self, txn, statement, body, write_id):
        """The client dies in the middle of a body; the real one sends all of it again."""
        query = urllib.parse.urlencode({"query": statement, "write_id": write_id})
        head = f"POST {Client.path(txn.xid, 'writes')}?{query} HTTP/1.1\r\nHost: soak\r\n"
        host, port = urllib.parse.urlsplit(self.url).netloc.split(":")
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
                time.sleep(self.random.random() * 0.1)
        except OSError:
            pass
        self.ledger.count("bodies cut short")

    def bad_rows(self, txn, statement):
        try:
            answer = self.call(txn, "bad write", lambda c: c.write(txn.xid, statement, b"2024-01-01,1,1,x\nno date\n", "bad"))
            if "gathered" in answer.json:
                self.ledger.count("transactions spoilt")
                txn.spoilt = True
                return
            self.ledger.fault(f"{txn.xid}: bad rows were accepted: {answer!r}")
        except Final as final:
            if final.answer.code != "CLICKHOUSE_REJECTED":
                raise
        self.ledger.count("writes refused")

    def end(self, txn, dies):
        way = self.random.random()
        if way < 0.5:
            self.prepare(txn)
            self.may_die(dies)
            self.ledger.decide(txn, COMMIT if self.chance(0.85) else ABORT)
            self.may_die(dies)
        elif way < 0.85:
            txn.asked = "one-phase"
        else:
            self.ledger.decide(txn, ABORT)
        if self.chance(dies):
            self.give_up_waiting(txn)
        self.finish(txn)

    def give_up_waiting(self, txn):
        """Sends the decision and dies before the answer."""
        try:
            client = Client(self.url, timeout=0.05)
            client.rollback(txn.xid) if txn.fate == ABORT else client.commit(txn.xid)
        except (OSError, http.client.HTTPException):
            pass
        raise Died

    def finish(self, txn):
        if txn.fate == ABORT:
            self.roll_back(txn)
            return
        wait_ms = self.random.choice((None, None, 0, 100))
        self.call(txn, "commit", lambda c: c.commit(txn.xid, wait_ms))
        if txn.spoilt:
            self.ledger.fault(f"{txn.xid} was committed with rows that ClickHouse refuses")
        if txn.fate == OPEN:
            self.ledger.decide(txn, COMMIT)
        self.ended(txn)

    def roll_back(self, txn):
        try:
            self.call(txn, "rollback", lambda c: c.rollback(txn.xid))
        except Final as final:
            if final.answer.code != "TXN_NOT_FOUND":
                raise
        self.ended(txn)

    def ended(self, txn):
        txn.ended = True
        self.ledger.note(f"{txn.xid} ended {txn.fate} {json.dumps(txn.rows)}")

    def resolve(self, txn):
        """A new life of a client that died: presumed abort, unless it had decided or asked for a commit."""
        try:
            if txn.fate == OPEN and txn.asked is None:
                self.ledger.decide(txn, ABORT)
                if self.chance(0.3):
                    # Nobody comes back: the time-out ends it, unless it was prepared.
                    state = self.call(txn, "get", lambda c: c.get(txn.xid))["state"]
                    if state == "Initialized":
                        self.ledger.count("left to the time-out")
                        return
            self.finish(txn)
        except Died:
            pass
        except Final as final:
            if final.answer.code == "TXN_NOT_FOUND" and txn.fate == ABORT:
                self.ended(txn)
            else:
                self.refused(txn, final.answer)

    def refused(self, txn, answer):
        """A final refusal. Before the decision: the transaction must be gone. After it: a fault of the server."""
        self.ledger.note(f"{txn.xid} refused {answer!r}")
        self.ledger.count(f"refused {answer.code}")
        if txn.fate != OPEN:
            self.ledger.fault(f"{txn.xid} decided {txn.fate}, but {answer!r}")
            return
        error = answer.json
        # By a time-out; it is refused from the moment that the roll-back begins, before that is recorded.
        over = error.get("state") in ("Aborted", "Aborting") or ": rollback of " in answer.error["message"]
        expired = answer.code == "WRONG_STATE" and over
        never_begun = answer.code == "TXN_NOT_FOUND" and not txn.rows and txn.asked
        # 18.16 may start without a table when ZooKeeper fails in between.
        no_table = answer.code == "TARGET_NOT_FOUND" or "no longer exists" in answer.error["message"]
        lost = answer.code == "ROLLBACK_ONLY" and txn.gather
        if not expired and not never_begun and not no_table and not lost and answer.code != "CLICKHOUSE_REJECTED":
            self.ledger.fault(f"{txn.xid} refused: {answer!r}")
        self.ledger.decide(txn, ABORT)
        self.resolve(txn)


class NamedSink(Sink):
    """A sink with a name and an epoch, as of a stream processor: what it left behind it recovers at once, in one
    request; and its checkpoint is what it committed last."""

    def __init__(self, number, url, tables, ledger, stop):
        super().__init__(number, url, tables, ledger, stop)
        self.sink = f"sink:{ledger.seed}:{number}"
        self.epoch = 1

    def begin(self, txn):
        txn.epoch, txn.meta = self.epoch, {"begun": txn.number}
        self.call(txn, "begin", lambda c: c.begin(txn.xid, sink=self.sink, epoch=txn.epoch, meta=txn.meta, gather=txn.gather))

    def prepare(self, txn):
        if self.chance(0.5):
            # The first prepare counts, and every retry says the same.
            txn.meta = {"prepared": txn.number}
            self.call(txn, "prepare", lambda c: c.prepare(txn.xid, meta=txn.meta))
        else:
            super().prepare(txn)

    def come_back(self, txn):
        """Presumed abort, except for what was decided, or may have been: that is listed."""
        if txn.fate == OPEN and txn.asked is None:
            self.ledger.decide(txn, ABORT)
        commit = [] if txn.fate == ABORT else [txn.xid]
        self.epoch += 1
        since = time.monotonic()
        while True:
            answer = self.call(txn, "recover", lambda c: c.recover(self.sink, self.epoch, commit))
            errors = {entry["xid"]: entry["error"] for entry in answer["transactions"] if "error" in entry}
            error = errors.get(txn.xid)
            if answer["complete"] or (error and not error["retryable"] and commit):
                break
            if time.monotonic() - since > STUCK_SECONDS:
                self.ledger.fault(f"{txn.xid} recover: no end after {STUCK_SECONDS} s, last {answer!r}")
                return
            time.sleep(0.2)
        self.ledger.count("recovered")
        self.recovered(txn, error, answer)

    def recovered(self, txn, error, answer):
        if error is None:
            if txn.fate == OPEN:
                self.ledger.decide(txn, COMMIT)
            self.check_state(txn, answer)
            self.ended(txn)
        elif txn.fate == OPEN and error["code"] in ("FENCED", "WRONG_STATE", "ROLLBACK_ONLY")[: 3 if txn.gather else 2]:
            # Never prepared: the old life's commit has come too late, and stays too late.
            self.ledger.count(f"recover: {error['code']}")
            self.ledger.decide(txn, ABORT)
            self.resolve(txn)
        else:
            self.ledger.fault(f"{txn.xid} decided {txn.fate}, but recover answers {answer!r}")

    def check_state(self, txn, answer):
        for entry in answer["transactions"]:
            want = "Committed" if entry["xid"] == txn.xid and txn.fate == COMMIT else "Aborted"
            if entry["state"] != want:
                self.ledger.fault(f"{entry['xid']} is not {want} after recover: {answer!r}")

    def expected_checkpoint(self):
        """The last that it began and committed: (xid, epoch, meta), or None."""
        mine = [txn for txn in self.ledger.txns if txn.sink == self.name and txn.fate == COMMIT]
        return (mine[-1].xid, mine[-1].epoch, mine[-1].meta) if mine else None

    def check_checkpoint(self, client):
        answer = client.sink(self.sink).ok()
        found = answer["checkpoint"]
        if found is not None:
            found = (found["xid"], found["epoch"], found["meta"])
        if found != self.expected_checkpoint():
            self.ledger.fault(f"the checkpoint of {self.sink} is {found}, not {self.expected_checkpoint()}")
        if answer["open"]:
            self.ledger.fault(f"{self.sink} has open transactions: {answer!r}")
