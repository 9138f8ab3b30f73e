# SPDX-License-Identifier: Apache-2.0
"""A commit that died half way and finds its table altered or replaced: it stays Committing with the reason, is never
reported as Committed, survives kill -9 in each step of being blocked, and ends once the table is put right.
"""
import http.client
import itertools
import shutil
import signal
import time

import pytest

from life import Life, store_uri
from test_crash import PAIRS, rows_of

_numbers = itertools.count(1)
COLUMNS = "d Date, a UInt64, s String"
DEFINITION = "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY a"


class Half:
    """A transaction whose commit was killed when its parts stood in detached/, not yet attached."""

    def __init__(self, engine, store, folder, definition=DEFINITION):
        self.engine = engine
        self.name = f"half{next(_numbers)}"
        self.table = engine.make(self.name, COLUMNS, definition)
        self.xid = f"half:{self.name}"
        self.life = Life(folder / "chxad", store, engine, fault="commit.move:after")
        self.life.client.begin(self.xid).ok(201)
        self.life.client.write(self.xid, f"INSERT INTO {self.table} FORMAT CSV", rows_of(0, 20)).ok()
        self.life.client.prepare(self.xid).ok()
        self.die(lambda: self.life.client.commit(self.xid))

    def die(self, call):
        """Makes the call that kills chxad; leaves it dead."""
        with pytest.raises((OSError, http.client.HTTPException)):
            call()
        assert self.life.server.process.wait(30) == -signal.SIGKILL

    def start(self, fault=None):
        """Starts chxad again; with a fault it must die of it while it recovers."""
        self.life.server.extra = {"CHXA_FAULT": fault} if fault else {}
        if fault:
            self.life.server.spawn()
            assert self.life.server.process.wait(30) == -signal.SIGKILL, self.life.server.log_tail(30)
        else:
            self.life.start()

    def replace(self, columns, definition):
        self.engine.query(f"RENAME TABLE {self.table} TO {self.engine.table(self.name + '_away')}")
        self.engine.query(f"CREATE TABLE {self.table} ({columns}) {definition}")

    def put_back(self):
        self.engine.query(f"DROP TABLE {self.table}" + ("" if self.engine.is_old else " SYNC"))
        self.engine.query(f"RENAME TABLE {self.engine.table(self.name + '_away')} TO {self.table}")

    def state(self):
        return self.life.client.get(self.xid).ok()["state"]

    def ends_well(self):
        deadline = time.monotonic() + 30
        while self.life.client.commit(self.xid).status != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert self.state() == "Committed", self.life.server.log_tail(40)
        got = self.engine.value(f"SELECT count(), uniqExact(a), sum(a) FROM {self.table}").split()
        assert got == ["20", "20", "190"], self.life.server.log_tail(40)
        assert self.engine.detached(self.name) == []
        assert [path for path in self.engine.held() if path != "owner"] == []
        self.life.stop()


@pytest.fixture
def half(engine, store_name, lab, folder):
    home = folder / f"half-{next(_numbers)}"
    home.mkdir()
    half = Half(engine, store_uri(store_name, lab, home), home)
    yield half
    half.life.server.kill()
    for root in engine.roots():  # what stays blocked is not the next test's
        for path in (root / "chxa").glob("t-*"):
            shutil.rmtree(path)


REPLACED = {
    "altered": ("other String", "ENGINE = MergeTree PARTITION BY other ORDER BY other"),
    "the same structure": (COLUMNS, DEFINITION),
}


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
@pytest.mark.parametrize("how", REPLACED)
def test_another_table_under_the_name(half, how):
    """The parts are in the other table's detached/: nowhere to be seen here, and yet not attached."""
    half.replace(*REPLACED[how])
    half.start()
    half.life.client.commit(half.xid).fails("BLOCKED")
    record = half.life.client.get(half.xid).ok()
    assert record["state"] == "Committing" and record["blocked"] and record["reason"]
    half.put_back()
    half.ends_well()


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
def test_deleted_from_detached_while_nobody_runs(half):
    """Moved, and never given to ClickHouse: what is gone is lost, not merged away. Put back, it is attached."""
    detached = next(path / "detached" for path in half.engine.paths(half.name))
    part = next(detached.iterdir())
    part.rename(half.life.server.folder / part.name)
    for _ in range(2):
        half.start()
        half.life.client.commit(half.xid).fails("BLOCKED")
        record = half.life.client.get(half.xid).ok()
        assert record["state"] == "Committing" and "hazard: 1 parts" in record["reason"]
        half.life.stop()
    (half.life.server.folder / part.name).rename(detached / part.name)
    half.start()
    half.ends_well()


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
@pytest.mark.parametrize(
    "fault",  # "block" ends in waiting: it has no after
    ["retreat:before", "retreat:sent", "retreat:after", "block:before", "block:sent"],
)
def test_kill_while_blocked(half, fault):
    """A type changed under the staged parts; killed while the parts are moved back and the reason is recorded."""
    half.engine.query(f"ALTER TABLE {half.table} MODIFY COLUMN s FixedString(3)")
    half.start(f"commit.{fault}")
    half.start()
    half.life.client.commit(half.xid).fails("BLOCKED")
    assert half.state() == "Committing"
    assert half.engine.detached(half.name) == []  # where nobody else touches them
    assert len(half.engine.held_parts()) == 3
    if half.engine.is_old:  # 26.7 remembers every ALTER of a column, also one that was undone
        half.engine.query(f"ALTER TABLE {half.table} MODIFY COLUMN s String")
        half.ends_well()


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
@pytest.mark.parametrize("prefix", ["attaching_", "ignored_"])
@pytest.mark.parametrize("place", ["before", "sent", "after"])
def test_kill_while_mending(half, prefix, place):
    """What a ClickHouse that died leaves in detached/ is renamed back, once."""
    for path in half.engine.paths(half.name):
        for part in (path / "detached").iterdir():
            part.rename(part.with_name(prefix + part.name))
    half.start(f"commit.mend:{place}")
    half.start()
    half.ends_well()
