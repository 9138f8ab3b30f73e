# SPDX-License-Identifier: Apache-2.0
"""The sink interface of libchxa, call by call: what is committed when, what is rolled back, and what is refused.

Each test plays the checkpointing engine around a sink: it keeps states, completes checkpoints or gives them up, and lets
writers die. tests/lib/victim/sink_drive.c makes the calls.
"""
import itertools
import json
import subprocess

import pytest

from rest import Client
from servers import BUILD
from tables import Engine

PROGRAM = BUILD / "tests" / "sink_drive"
DEFINITION = "ENGINE = MergeTree ORDER BY n"

_numbers = itertools.count(1)


class Answer(dict):
    def ok(self):
        assert self["code"] == 0, self
        return self

    def fails(self, name, text=""):
        assert self["name"] == name and text in self["message"], self
        return self


class Writer:
    """A process with one client, and sinks in it."""

    def __init__(self, *urls):
        self.process = subprocess.Popen([PROGRAM, *urls], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        return Answer(json.loads(line))

    def die(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        if self.process.poll() is None:
            self.process.communicate(timeout=60)
            assert self.process.returncode == 0


class Sink:
    """One sink in one writer."""

    def __init__(self, writer, name, table, slot=0):
        self.writer, self.name, self.table, self.slot = writer, name, table, slot

    def open(self, state="", epoch=0, pending_max=""):
        insert = f"INSERT INTO {self.table} FORMAT TabSeparated"
        return self.writer("open", self.slot, self.name, epoch, insert, state, pending_max)

    def write(self, first, last):
        return self.writer("write", self.slot, first, last)

    def snapshot(self, checkpoint, meta=""):
        return self.writer("snapshot", self.slot, checkpoint, meta)

    def complete(self, checkpoint):
        return self.writer("complete", self.slot, checkpoint)

    def close(self):
        return self.writer("close", self.slot)


@pytest.fixture
def store_name():
    return "sqlite"


@pytest.fixture
def start_writer():
    writers = []

    def start(*urls):
        writers.append(Writer(*urls))
        return writers[-1]

    yield start
    for writer in writers:
        writer.end()


@pytest.fixture
def make(engine, node, start_writer):
    """make(): a sink in a new writer; make(sink): another writer of the same sink."""
    table = engine.make("t", "n UInt64", DEFINITION)

    def make(like=None):
        return Sink(start_writer(node.url), like.name if like else f"job.{next(_numbers)}", table)

    return make


def numbers(engine, sink):
    return [int(row[0]) for row in engine.rows(f"SELECT n FROM {sink.table} ORDER BY n")]


def open_of(client, sink):
    return {entry["xid"]: entry["state"] for entry in client.sink(sink.name).ok()["open"]}


def test_five_stages(engine, client, make):
    sink = make()
    assert sink.open().ok()["epoch"] == 1
    sink.write(1, 5).ok()
    first = sink.snapshot(1, '{"offset": 5}').ok()
    assert first["pending"] == 1 and numbers(engine, sink) == []
    assert sorted(open_of(client, sink).values()) == ["Initialized", "Prepared"]
    sink.write(6, 7).ok()
    assert sink.complete(1).ok()["pending"] == 0
    assert numbers(engine, sink) == [1, 2, 3, 4, 5]
    last = sink.writer("last", sink.name).ok()
    assert json.loads(last["meta"]) == {"offset": 5} and last["xid"].startswith(f"{sink.name}:1:1:")
    sink.close().ok()
    assert open_of(client, sink) == {} and numbers(engine, sink) == [1, 2, 3, 4, 5]
    assert len(first["state"]) / 2 < 60 + 50


def test_several_wait_and_are_committed_in_order(engine, client, make):
    sink = make()
    sink.open().ok()
    for checkpoint in range(1, 6):
        sink.write(checkpoint, checkpoint).ok()
        sink.snapshot(checkpoint * 10, str(checkpoint)).ok()
    sink.complete(9).ok()
    sink.writer("aborted", 0, 10).ok()
    assert numbers(engine, sink) == []
    # 10 was given up and 20 never heard of: 30 subsumes them.
    assert sink.complete(30).ok()["pending"] == 2
    assert numbers(engine, sink) == [1, 2, 3]
    assert sink.writer("last", sink.name)["meta"] == "3"
    for again in (30, 10, 35):
        assert sink.complete(again).ok()["pending"] == 2
    assert sink.complete(1000).ok()["pending"] == 0
    assert numbers(engine, sink) == [1, 2, 3, 4, 5]


def test_empty_checkpoints(engine, client, make):
    sink = make()
    sink.open().ok()
    empty = sink.snapshot(1).ok()
    assert empty["pending"] == 0
    sink.write(1, 1).ok()
    sink.snapshot(2).ok()
    state = sink.snapshot(3).ok()
    assert state["pending"] == 1 and len(open_of(client, sink)) == 2
    sink.complete(1).ok()
    assert numbers(engine, sink) == []
    # What waits is in the state of an empty checkpoint, too.
    sink.writer.die()
    again = make(sink)
    again.open(state["state"]).ok()
    assert numbers(engine, sink) == [1]
    again.snapshot(4).ok()
    again.close().ok()
    assert open_of(client, sink) == {}
    make(sink).open(empty["state"]).fails("STATE_REFUSED", "is old")


def test_checkpoints_must_grow(make):
    sink = make()
    sink.open().ok()
    sink.snapshot(5).ok()
    sink.snapshot(5).fails("INVALID_REQUEST")
    sink.snapshot(4).fails("INVALID_REQUEST")
    sink.write(1, 1).ok()
    sink.snapshot(6, "{").fails("INVALID_REQUEST", "meta")
    sink.snapshot(6).ok()


def test_restore_commits_and_rolls_back(engine, client, make):
    """Of three snapshots the second was stored: the first two are committed, the third and the open one rolled back."""
    sink = make()
    sink.open().ok()
    states = []
    for checkpoint in (1, 2, 3):
        sink.write(checkpoint, checkpoint).ok()
        states.append(sink.snapshot(checkpoint).ok()["state"])
    sink.write(4, 4).ok()
    sink.writer.die()
    restored = make(sink)
    assert restored.open(states[1]).ok()["epoch"] == 2
    assert numbers(engine, sink) == [1, 2]
    assert list(open_of(client, sink).values()) == ["Initialized"]
    restored.write(3, 4).ok()
    state = restored.snapshot(3).ok()["state"]
    restored.writer.die()
    # Restored twice from the same state, it is committed once.
    for epoch in (3, 4):
        again = make(sink)
        assert again.open(state).ok()["epoch"] == epoch
        again.writer.die()
    assert numbers(engine, sink) == [1, 2, 3, 4]


def test_an_old_state_is_refused(engine, make):
    sink = make()
    sink.open().ok()
    sink.write(1, 1).ok()
    old = sink.snapshot(1).ok()["state"]
    sink.complete(1).ok()
    sink.write(2, 2).ok()
    new = sink.snapshot(2).ok()["state"]
    sink.complete(2).ok()
    sink.writer.die()
    make(sink).open(old).fails("STATE_REFUSED", "is old")
    again = make(sink)
    again.open(new).ok()
    again.write(3, 3).ok()
    newest = again.snapshot(3).ok()["state"]
    again.complete(3).ok()
    again.writer.die()
    make(sink).open(new).fails("STATE_REFUSED", "is old")
    # Without a state it begins anew, knowingly.
    make(sink).open().ok()
    make(sink).open(newest).ok()
    assert numbers(engine, sink) == [1, 2, 3]


def test_states_that_are_none(client, make):
    sink, other = make(), make()
    sink.open().ok()
    sink.write(1, 1).ok()
    state = sink.snapshot(1).ok()["state"]
    sink.writer.die()
    other.open(state).fails("STATE_REFUSED", "another sink")
    again = make(sink)
    again.open(state[:-2]).fails("STATE_REFUSED", "damaged")
    again.open("00").fails("STATE_REFUSED", "no state")
    again.open(state[:8] + "02" + state[10:]).fails("STATE_REFUSED", "newer version")
    again.open(state, epoch=1).fails("INVALID_REQUEST", "epoch")
    # Nothing was touched: the state is still good.
    assert "Prepared" in open_of(client, sink).values()
    assert again.open(state, epoch=7).ok()["epoch"] == 7


def test_a_zombie(engine, client, make):
    """The old writer lives on: it cannot write, prepare or begin; what it had promised, it may still commit."""
    old = make()
    old.open().ok()
    old.write(1, 1).ok()
    state = old.snapshot(1).ok()["state"]
    old.write(2, 2).ok()
    new = make(old)
    new.open(state).ok()
    assert numbers(engine, old) == [1]
    old.complete(1).ok()
    assert old.snapshot(2)["code"] != 0
    old.write(3, 3).fails("FAILED_BEFORE")
    old.snapshot(3).fails("FAILED_BEFORE")
    old.close()
    new.write(2, 2).ok()
    new.snapshot(2).ok()
    new.complete(2).ok()
    assert numbers(engine, old) == [1, 2]


def test_two_starts_with_one_epoch(engine, client, make):
    """The same number given twice: they share no transaction, and the one that came first finds its own rolled back."""
    first, second = make(), None
    first.open(epoch=3).ok()
    first.write(1, 1).ok()
    first.snapshot(1).ok()
    first.write(2, 2).ok()
    second = make(first)
    assert second.open(epoch=3).ok()["epoch"] == 3
    assert list(open_of(client, first).values()) == ["Initialized"]
    first.complete(1).fails("ROLLED_BACK")
    first.complete(1).fails("ROLLED_BACK")
    first.snapshot(2).fails("WRONG_STATE")
    second.write(1, 2).ok()
    second.snapshot(1).ok()
    second.complete(1).ok()
    assert numbers(engine, first) == [1, 2]


def test_sinks_touch_only_their_own(engine, client, make):
    a, b = make(), make()
    b.name = f"{a.name}:1"
    a.open().ok()
    b.open().ok()
    for sink in (a, b):
        sink.write(1, 1).ok()
    state = b.snapshot(1).ok()["state"]
    make(a).open().ok()
    assert sorted(open_of(client, b).values()) == ["Initialized", "Prepared"]
    make(a).open(state).fails("STATE_REFUSED", "another sink")
    b.complete(1).ok()
    assert numbers(engine, a) == [1]


def test_rolled_back_by_an_operator(engine, client, make):
    """A prepared transaction that somebody aborts is told, at notify and at restore; nothing after it is committed."""
    sink = make()
    sink.open().ok()
    for checkpoint in (1, 2, 3):
        sink.write(checkpoint, checkpoint).ok()
        state = sink.snapshot(checkpoint).ok()["state"]
    sink.complete(1).ok()
    second = next(xid for xid in open_of(client, sink) if f"{sink.name}:1:2:" in xid)
    client.rollback(second).ok()
    assert sink.complete(3).fails("ROLLED_BACK")["pending"] == 2
    assert numbers(engine, sink) == [1]
    sink.writer.die()
    make(sink).open(state).fails("ROLLED_BACK")


def test_forgotten(engine, client, make):
    """A committed one that is forgotten is known by what the sink committed last; one that is not is no success."""
    sink = make()
    sink.open().ok()
    for checkpoint in (1, 2):
        sink.write(checkpoint, checkpoint).ok()
        state = sink.snapshot(checkpoint).ok()["state"]
    xids = sorted(xid for xid, what in open_of(client, sink).items() if what == "Prepared")
    for xid in xids:
        client.commit(xid).ok()
        client.forget(xid).ok()
    assert sink.complete(2).ok()["pending"] == 0
    sink.writer.die()
    again = make(sink)
    again.open(state).ok()
    again.write(3, 3).ok()
    lost = again.snapshot(3).ok()["state"]
    [xid] = [xid for xid, what in open_of(client, sink).items() if what == "Prepared"]
    client.rollback(xid).ok()
    client.forget(xid).ok()
    again.complete(3).fails("TXN_NOT_FOUND")
    again.writer.die()
    make(sink).open(lost).fails("TXN_NOT_FOUND", "a person must look")
    assert numbers(engine, sink) == [1, 2]


def test_too_many_wait(engine, make):
    sink = make()
    sink.open(pending_max=2).ok()
    for checkpoint in (1, 2):
        sink.write(checkpoint, checkpoint).ok()
        sink.snapshot(checkpoint).ok()
    sink.write(3, 3).ok()
    sink.snapshot(3).fails("BUSY")
    sink.complete(1).ok()
    assert sink.snapshot(3).ok()["pending"] == 2
    sink.complete(3).ok()
    assert numbers(engine, sink) == [1, 2, 3]


def test_options_are_checked(make):
    sink = make()
    for name in ("", "a b", "x" * 201, ".."):
        Sink(sink.writer, name, sink.table).open().fails("INVALID_REQUEST")
    for pending_max in (0, 10_001):
        sink.open(pending_max=pending_max).fails("INVALID_REQUEST")


def test_the_server_is_away(engine, node, client, make, monkeypatch):
    """A snapshot that fails because nobody answers is repeated and goes on where it stopped; so is a notify."""
    monkeypatch.setenv("CHXA_DEADLINE_MS", "1500")
    sink = make()
    sink.open().ok()
    sink.write(1, 3).ok()
    assert node.stop() == 0
    refused = sink.snapshot(1)
    assert refused["code"] != 0
    node.start()
    if refused["name"] in ("UNREACHABLE", "LOST", "NOT_READY"):
        again = sink.snapshot(1)
        if again["code"] == 0:
            assert node.stop() == 0
            assert sink.complete(1)["code"] != 0
            node.start()
            sink.complete(1).ok()
            assert numbers(engine, sink) == [1, 2, 3]
            return
    # The stream could not keep the rows: then it says so, and nothing of them is there.
    sink.snapshot(2).fails("FAILED_BEFORE")
    assert numbers(engine, sink) == []


def test_the_target_is_altered(engine, client, make):
    sink = make()
    sink.open().ok()
    sink.write(1, 3).ok()
    first = sink.snapshot(1).ok()["state"]
    sink.write(4, 4).ok()
    sink.complete(1).ok()
    engine.query(f"DROP TABLE {sink.table}")
    assert sink.snapshot(2)["code"] != 0
    sink.write(5, 5).fails("FAILED_BEFORE")
    sink.close().ok()
    assert open_of(client, sink) == {}
    engine.make("t", "n UInt64", DEFINITION)
    again = make(sink)
    again.open(first).ok()
    again.write(4, 5).ok()
    again.snapshot(2).ok()
    again.complete(2).ok()
    assert numbers(engine, sink) == [4, 5]


@pytest.mark.parametrize("engine_name", ["18.16"])
def test_two_nodes(lab, engine, start_node, start_writer):
    """Prepared at one node, restored through the other; each start stays at one node."""
    table = engine.make("t", "n UInt64", DEFINITION)
    other = Engine(lab.clickhouse("18.16", "r2"), engine.database)
    other.create()
    other.make("t", "n UInt64", DEFINITION)
    nodes = [start_node(engine, "zookeeper", "n1"), start_node(other, "zookeeper", "n2")]
    urls = [node.url for node in nodes]
    sink = Sink(start_writer(*urls), "two", table)
    sink.open().ok()
    for checkpoint in (1, 2, 3):
        sink.write(checkpoint, checkpoint).ok()
        state = sink.snapshot(checkpoint).ok()["state"]
    owners = {entry["owner"] for entry in Client(urls[0]).sink("two").ok()["open"]}
    assert owners == {"n1"}
    sink.writer.die()
    again = Sink(start_writer(*reversed(urls)), "two", table)
    again.open(state).ok()
    assert numbers(engine, sink) == [1, 2, 3]
    again.write(4, 4).ok()
    again.snapshot(4).ok()
    again.complete(4).ok()
    assert numbers(other, sink) == [4]
    again.close().ok()
    other.drop()
