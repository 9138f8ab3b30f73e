# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step of every operation: before it, with its effect under way, after it.

A first run notes every fault point that a whole scenario visits, and holds them against the tables of steps in
server/op. Then the scenario runs once for each of them; chxad dies there, is started again, and the client does
what any client does: it sends the same request again. At the end every committed row must be there once, every
rolled-back row nowhere, nothing held, nothing detached, nothing unfinished; and one more restart changes nothing.
"""
import http.client
import itertools
import os
import re
import signal
import time

import pytest

import servers
from rest import Client
from servers import ROOT

PLACES = ("before", "sent", "after")
# Steps that have no effect to be under way, or that only a blocked or repeated request reaches.
WITHOUT_SENT = {
    "write.admit", "write.compare", "write.target", "write.scratch", "rollback.drain", "prepare.drain",
    "prepare.limits", "prepare.check", "commit.target", "commit.quiet", "commit.check", "commit.look",
    "commit.verify", "commit.confirm", "commit.settle", "recover.probe", "recover.disks", "recover.lock", "recover.pool", "recover.list",
    "recover.history", "recover.load", "recover.folders", "recover.judge", "recover.clean", "recover.resume",
    "sink_recover.list", "sink_recover.owners", "sink_recover.read", "abandon.read",
    "fsck.list", "fsck.load", "fsck.tables", "fsck.look", "fsck.judge", "fsck.recheck",
}
# Reached by test_blocked only: a commit that ClickHouse refuses.
WHEN_BLOCKED = {"commit.retreat", "commit.block", "commit.mend", "commit.resolve", "commit.discard"}
# "sent" of a step that does nothing unless there is something to do.
IDLE = {"commit.mend:sent"}

_numbers = itertools.count(1)


def steps_in_code():
    """{"commit.attach", …} from the tables in server/op."""
    found = set()
    for path in sorted((ROOT / "server" / "op").glob("*.c")):
        text = path.read_text()
        for name, table in re.findall(r"struct op_step (\w+)_steps\[\] = \{(.*?)\n\};", text, re.S):
            found |= {f"{name}.{step}" for step in re.findall(r'\{"(\w+)",', table)}
    return found


class Chxad(servers.Chxad):
    """chxad with a fault in its environment."""

    extra = {}

    def environment(self):
        return {**super().environment(), **self.extra}


class Life:
    """chxad, restarted whenever it is found dead; the client's view of it."""

    def __init__(self, folder, store, engine, fault=None, trace=None):
        options = {"session_timeout_ms": 1000, "commit_retry_ms": 50}
        self.server = Chxad(folder, "n1", store, engine.server, options)
        self.server.extra = {"CHXA_FAULT": fault} if fault else {}
        if trace:
            self.server.extra["CHXA_FAULT_TRACE"] = str(trace)
        self.deaths = 0
        self.start()

    def start(self):
        """Starts it; when it dies while starting (a fault point of recovery), starts it again."""
        self.server.spawn()
        try:
            self.server.wait_up()
        except servers.ServerFailed:
            if self.server.process.poll() != -signal.SIGKILL or not self.server.extra:
                raise
            self.buried()
            return
        self.client = Client(self.server.url, timeout=30)

    def buried(self):
        """It died by its fault: once is enough."""
        status = self.server.process.wait(30)
        assert status == -signal.SIGKILL, f"ended with {status}:\n{self.server.log_tail(40)}"
        self.deaths += 1
        self.server.extra = {}
        self.start()

    def call(self, do):
        """Sends a request until it is answered; what was sent before a death is sent again."""
        for _ in range(3):
            try:
                return do(self.client)
            except (OSError, http.client.HTTPException):
                self.buried()
        raise AssertionError("no answer")

    def restart(self):
        assert self.server.stop() == 0, self.server.log_tail(40)
        self.start()

    def stop(self):
        assert self.server.stop() == 0, self.server.log_tail(40)


def rows_of(first, n):
    return "".join(f"2024-0{1 + i % 3}-01,{first + i},x\n" for i in range(n)).encode()


def transaction(life, engine, tables, xid, first, end):
    """Begins, writes to each table, and ends as asked; returns nothing: the tables tell."""
    life.call(lambda c: c.begin(xid)).ok((200, 201))
    for number, table in enumerate(tables):
        statement = f"INSERT INTO {table} FORMAT CSV"
        body = rows_of(first, 20)
        # A begun transaction survives; a write that died is sent again with the same id.
        life.call(lambda c: c.write(xid, statement, body, write_id=f"w{number}")).ok()
    for verb in end:
        life.call(lambda c: getattr(c, verb)(xid)).ok()


def sink(life, tables, run):
    """A writer that prepared two transactions, left one open, and comes back with a newer epoch."""
    name = f"sink:{run}"
    for number, (xid, first, verbs) in enumerate((("yes", 200, ["prepare"]), ("no", 3000, ["prepare"]), ("open", 4000, []))):
        xid = f"{xid}:{run}"
        life.call(lambda c: c.begin(xid, sink=name, epoch=1, meta={"number": number})).ok((200, 201))
        for table in tables:
            statement, body = f"INSERT INTO {table} FORMAT CSV", rows_of(first, 20)
            life.call(lambda c: c.write(xid, statement, body, write_id=table.replace("`", ""))).ok()
        for verb in verbs:
            life.call(lambda c: getattr(c, verb)(xid)).ok()
    answer = life.call(lambda c: c.recover(name, 2, [f"yes:{run}"])).ok()
    assert answer["complete"] is True and answer["epoch"] == 2, answer
    assert answer["checkpoint"]["xid"] == f"yes:{run}" and answer["checkpoint"]["meta"] == {"number": 0}, answer
    life.call(lambda c: c.begin(f"late:{run}", sink=name, epoch=1)).fails("FENCED")
    for xid, state in (("yes", "Committed"), ("no", "Aborted"), ("open", "Aborted")):
        assert life.call(lambda c: c.get(f"{xid}:{run}")).ok()["state"] == state


def leave_lost(folder, store, engine):
    """A node n2 that prepared a transaction and is gone for good."""
    server = Chxad(folder / "n2", "n2", store, engine.server, {"session_timeout_ms": 1000})
    server.start()
    client = Client(server.url, timeout=30)
    client.begin("lost").ok(201)
    client.prepare("lost").ok()
    server.kill()


def abandon(client, xid):
    """Until the lock of the dead owner is gone."""
    for _ in range(300):
        answer = client.request("POST", client.path(xid, "abandon", reason="gone"))
        if answer.code != "OWNER_ALIVE":
            return answer
        time.sleep(0.1)
    raise AssertionError(answer)


def scenario(life, engine, tables, lost=False):
    """lost: a node left a transaction (leave_lost)."""
    run = next(_numbers)
    if lost:
        assert life.call(lambda c: abandon(c, "lost")).ok()["state"] == "Aborted"
    transaction(life, engine, tables, f"two-phase:{run}", 0, ("prepare", "commit"))
    transaction(life, engine, tables, f"rolled-back:{run}", 1000, ("rollback",))
    transaction(life, engine, tables, f"prepared-then-rolled-back:{run}", 2000, ("prepare", "rollback"))
    transaction(life, engine, tables, f"one-phase:{run}", 100, ("commit",))
    sink(life, tables, run)
    assert life.call(lambda c: c.request("GET", "/v1/fsck")).ok()["findings"] == []


def check(life, engine, names, tables):
    for name, table in zip(names, tables):
        got = engine.value(f"SELECT count(), sum(a), min(a), max(a), uniqExact(a) FROM {table}")
        want = f"60\t{sum(range(20)) + sum(range(100, 120)) + sum(range(200, 220))}\t0\t219\t60"
        assert "\t".join(got.split()) == want, f"{table}: {got!r}, not {want!r}\n{life.server.log_tail(60)}"
        assert engine.detached(name) == []
    held = [path for path in engine.held() if path != "owner"]
    assert held == [], life.server.log_tail(60)
    unfinished = life.call(lambda c: c.list(unfinished=1)).ok()["transactions"]
    assert unfinished == []


def make_tables(engine):
    run = next(_numbers)
    names = [f"a{run}", f"b{run}"]
    columns = "d Date, a UInt64, s String"
    return names, [
        engine.make(names[0], columns, "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY a"),
        engine.make(names[1], columns, "ENGINE = MergeTree ORDER BY a"),
    ]


def store_uri(store_name, lab, folder):
    if store_name == "sqlite":
        return f"sqlite:{folder}/chxa.db"
    return f"zookeeper:{lab.zookeeper.address}/fault-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def visited(engine, store_name, lab, folder):
    """Every place that a scenario without a fault visits."""
    home = folder / f"trace-{next(_numbers)}"
    home.mkdir()
    trace = home / "trace"
    names, tables = make_tables(engine)
    store = store_uri(store_name, lab, home)
    leave_lost(home, store, engine)
    life = Life(home / "chxad", store, engine, trace=trace)
    scenario(life, engine, tables, lost=True)
    life.call(lambda c: c.write("nobody", "INSERT INTO t FORMAT CSV", b"")).fails("TXN_NOT_FOUND")
    check(life, engine, names, tables)
    life.stop()
    assert life.deaths == 0
    return {line for line in trace.read_text().split() if line.rsplit(":", 1)[1] in PLACES}


# Two of the four pairs meet both engines and both stores; the rest is the same code.
PAIRS = [("18.16", "zookeeper"), ("26.7", "sqlite")]


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
def test_every_step_of_the_tables_is_visited(visited):
    steps = {place.rsplit(":", 1)[0] for place in visited}
    assert steps >= steps_in_code() - WHEN_BLOCKED
    for step in steps_in_code() - WHEN_BLOCKED - WITHOUT_SENT:
        assert f"{step}:sent" in visited, step


@pytest.mark.big
@pytest.mark.parametrize("engine_name,store_name", PAIRS)
def test_kill_at_every_place(visited, engine, store_name, lab, folder):
    for place in sorted(visited):
        # ZooKeeper keeps the dead one's lock for a second each time: once a place must do there.
        for nth in (1,) if store_name == "zookeeper" else (1, 2):
            home = folder / f"crash-{next(_numbers)}"
            home.mkdir()
            names, tables = make_tables(engine)
            store = store_uri(store_name, lab, home)
            lost = place.startswith("abandon.")
            if lost:
                leave_lost(home, store, engine)
            life = Life(home / "chxad", store, engine, fault=f"{place}:{nth}")
            scenario(life, engine, tables, lost)
            assert life.deaths == 1 or nth == 2, f"{place} was not visited"
            check(life, engine, names, tables)
            life.restart()
            check(life, engine, names, tables)
            life.stop()
            for table in tables:
                engine.query(f"DROP TABLE {table}")
