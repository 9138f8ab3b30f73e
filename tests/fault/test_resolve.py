# SPDX-License-Identifier: Apache-2.0
"""kill -9 in each step of what an operator does to a blocked commit, and of an owner that comes back to obey: what is given
up is in no table and in no detached/, what is not is there once, and the rows that were given up are set aside.
"""
import itertools
import time

import pytest

import servers
from rest import Client
from tables import Engine
from test_blocked import COLUMNS, DEFINITION, Half
from life import Life, abandon, store_uri
from test_crash import PAIRS, rows_of

_numbers = itertools.count(1)


def lost_parts(engine):
    """Numbers of the parts in lost/."""
    steps = [path.split("/") for path in engine.held()]
    return [path[2] for path in steps if path[0] == "lost" and len(path) == 3 and path[2].isdigit()]


def discard(client, xid):
    target = Client.path(xid, "resolve", reason="dropped on purpose")
    return client.request("POST", target, b'{"action": "discard"}')


class Two:
    """A prepared transaction over two tables, of which one is replaced by another of the same name."""

    def __init__(self, engine, store, folder):
        self.engine = engine
        run = next(_numbers)
        self.names = [f"stays{run}", f"goes{run}"]
        self.tables = [engine.make(name, COLUMNS, DEFINITION) for name in self.names]
        self.xid = f"two:{run}"
        self.life = Life(folder / "chxad", store, engine)
        client = self.life.client
        client.begin(self.xid).ok(201)
        for table in self.tables:
            client.write(self.xid, f"INSERT INTO {table} FORMAT CSV", rows_of(0, 20)).ok()
        client.prepare(self.xid).ok()
        engine.query(f"DROP TABLE {self.tables[1]}" + ("" if engine.is_old else " SYNC"))
        engine.make(self.names[1], "other String", "ENGINE = MergeTree ORDER BY other")
        client.commit(self.xid).fails("BLOCKED")

    def check(self):
        record = self.life.client.get(self.xid).ok()
        assert record["state"] == "Committed" and record["heuristic"] == "mixed", record
        assert (record["discarded_parts"], record["discarded_rows"]) == (3, 20), record
        got = self.engine.value(f"SELECT count(), uniqExact(a), sum(a) FROM {self.tables[0]}").split()
        assert got == ["20", "20", "190"], self.life.server.log_tail(40)
        assert self.engine.count(self.tables[1]) == 0
        for name in self.names:
            assert self.engine.detached(name) == []
        assert self.engine.held_parts() == [] and len(lost_parts(self.engine)) == 3


@pytest.fixture
def home(engine, folder):
    home = folder / f"resolve-{next(_numbers)}"
    home.mkdir()
    yield home
    engine.clean_held()


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
@pytest.mark.parametrize("step", ["resolve", "discard", "retreat", "record", "clear"])
def test_kill_while_discarding(engine, store_name, lab, home, step):
    """Asked once: after the wish is recorded it is carried out whoever dies; before, the operator asks again."""
    for place in ("before", "sent", "after"):
        if (step, place) == ("discard", "sent"):
            continue  # it has no effect of its own
        folder = home / place
        folder.mkdir()
        two = Two(engine, store_uri(store_name, lab, folder), folder)
        life = two.life
        assert life.server.stop() == 0
        life.server.extra = {"CHXA_FAULT": f"commit.{step}:{place}:1"}
        life.start()
        for _ in range(4):  # a first death may be of the blocked retry that the restart began with
            two.life.call(lambda c: discard(c, two.xid))
        assert life.deaths == 1, f"{step}:{place}\n{life.server.log_tail(40)}"
        two.check()
        life.restart()
        two.check()
        life.stop()
        engine.clean_held()


@pytest.fixture
def other(lab, engine_name, folder):
    """A second node's ClickHouse."""
    other = Engine(lab.clickhouse("18.16", "r2" if engine_name == "18.16" else "r1"), f"other{next(_numbers)}")
    other.clean_held()
    yield other
    other.clean_held()


REPLICATED = "ENGINE = ReplicatedMergeTree('/tables/resolve%d', '{replica}') PARTITION BY toYYYYMM(d) ORDER BY a"


@pytest.mark.parametrize(
    "engine_name,store_name,replicated",
    [("18.16", "zookeeper", False), ("18.16", "zookeeper", True), ("26.7", "zookeeper", False)],
)
@pytest.mark.parametrize(
    "fault", [None, "commit.look:after", "commit.retreat:before", "commit.retreat:sent", "commit.retreat:after",
              "commit.clear:before", "commit.clear:sent", "commit.clear:after"],
)
def test_owner_returns_with_parts_in_detached(engine, store_name, replicated, other, lab, home, fault):
    """It died in a commit when its parts stood in detached/; an operator gave it up; it comes back, and dies again."""
    definition = REPLICATED % next(_numbers) if replicated else DEFINITION
    store = store_uri(store_name, lab, home)
    half = Half(engine, store, home, definition)
    n2 = servers.Chxad(home / "n2", "n2", store, other.server, {"session_timeout_ms": 1000})
    n2.start()
    try:
        answer = abandon(Client(n2.url), half.xid).ok()
        assert answer["state"] == "Committed" and answer["heuristic"] == "hazard", answer
        assert len(engine.detached(half.name)) == 3
        if fault:
            half.start(fault)
        half.start()
        for _ in range(100):
            if len(lost_parts(engine)) == 3:
                break
            time.sleep(0.1)
        assert len(lost_parts(engine)) == 3 and engine.held_parts() == [], half.life.server.log_tail(40)
        assert engine.detached(half.name) == [] and engine.count(half.table) == 0
        assert half.life.client.commit(half.xid).ok()["heuristic"] == "hazard"
        half.life.restart()
        assert engine.count(half.table) == 0 and len(lost_parts(engine)) == 3
        half.life.stop()
    finally:
        n2.stop()


def convert(client, xid):
    return client.request("POST", Client.path(xid, "resolve", reason="altered"), b'{"action": "convert"}')


class Altered:
    """A transaction of two writes whose commit is blocked by an ALTER."""

    def __init__(self, engine, store, folder, fault):
        self.engine = engine
        run = next(_numbers)
        self.name = f"altered{run}"
        self.table = engine.make(self.name, COLUMNS, DEFINITION)
        self.xid = f"altered:{run}"
        self.life = Life(folder / "chxad", store, engine)
        client = self.life.client
        client.begin(self.xid).ok(201)
        for first in (0, 20):
            client.write(self.xid, f"INSERT INTO {self.table} FORMAT CSV", rows_of(first, 20)).ok()
        client.prepare(self.xid).ok()
        engine.query(f"ALTER TABLE {self.table} MODIFY COLUMN s FixedString(3)")
        client.commit(self.xid).fails("BLOCKED")
        assert self.life.server.stop() == 0
        self.life.server.extra = {"CHXA_FAULT": fault}
        self.life.start()

    def check(self):
        record = self.life.client.get(self.xid).ok()
        assert record["state"] == "Committed" and record["heuristic"] is None, record
        assert record["converted_to"] == f"{self.xid}:converted", record
        got = self.engine.value(f"SELECT count(), uniqExact(a), sum(a) FROM {self.table}").split()
        assert got == ["40", "40", str(sum(range(40)))], self.life.server.log_tail(60)
        assert self.engine.detached(self.name) == [] and self.engine.held_parts() == []
        assert self.life.client.list(unfinished=1).ok()["transactions"] == []


CONVERT_STEPS = ["clean", "forget", "begin", "target", "create", "fill", "attach", "write", "drop", "prepare", "record"]


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
@pytest.mark.parametrize("fault", [f"convert.{step}" for step in CONVERT_STEPS] + ["commit.follow", "commit.record"])
def test_kill_while_converting(engine, store_name, lab, home, fault):
    """The operator asks until it is answered; every row is there once, whichever step it died in."""
    for place in ("before", "sent", "after"):
        if (fault, place) in {("convert.target", "sent"), ("convert.record", "after"), ("commit.follow", "sent")}:
            continue  # no effect of its own, or the last: it ends there
        folder = home / place
        folder.mkdir()
        altered = Altered(engine, store_uri(store_name, lab, folder), folder, f"{fault}:{place}:1")
        life = altered.life
        for _ in range(5):
            if life.call(lambda c: convert(c, altered.xid)).status == 200:
                break
        assert life.deaths == 1, f"{fault}:{place}\n{life.server.log_tail(40)}"
        altered.check()
        life.restart()
        altered.check()
        assert [name for name in engine.scratch_tables()] == [], life.server.log_tail(40)
        life.stop()
        engine.clean_held()
