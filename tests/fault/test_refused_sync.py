# SPDX-License-Identifier: Apache-2.0
"""A disk refuses to keep a held file, and Linux says yes the next time: prepare must not believe that, whoever was
killed in between."""
import signal

import pytest

import servers
from life import Chxad, store_uri
from rest import Client

ROWS = 3000


class Refusing:
    """chxad on a disk that refuses when it is told to."""

    def __init__(self, home, store, engine):
        self.server = Chxad(home, "n1", store, engine.server)
        self.order = home / "refuse"
        self.server.extra = {
            "LD_PRELOAD": str(servers.BUILD / "tests" / "refusing_disk.so"),
            "REFUSING_DISK": str(self.order),
        }

    def start(self):
        self.server.spawn()
        self.server.wait_up()
        return Client(self.server.url, timeout=20)

    def killed(self):
        assert self.server.process.wait(20) == -signal.SIGKILL
        return self.start()


@pytest.fixture
def node(engine, store_name, lab, folder, request):
    home = folder / request.node.name.translate(str.maketrans("[]/", "---"))
    home.mkdir()
    node = Refusing(home, store_uri(store_name, lab, home), engine)
    yield node
    assert node.server.stop() == 0, node.server.log_tail(40)


def staged(node, engine, xid):
    table = engine.make("t", "d Date, a UInt64, s String", "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY a")
    client = node.start()
    client.begin(xid).ok(201)
    rows = "".join(f"2024-0{1 + n % 3}-01,{n},{'x' * (n % 50)}\n" for n in range(ROWS)).encode()
    client.write(xid, f"INSERT INTO {table} FORMAT CSV", rows).ok()
    return table, client


def files_of(engine):
    """{"t-xid/17/a.bin": inode}"""
    areas = [root / "chxa" for root in engine.roots()]
    return {
        str(path.relative_to(area)): path.stat().st_ino for area in areas for path in area.rglob("*")
        if path.is_file() and "/t-" in str(path)
    }


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_refused(node, engine):
    """Thrown away at once; the client rolls back and replays."""
    table, client = staged(node, engine, "refused")
    node.order.write_text("refuse")
    client.prepare("refused").fails("PARTS_LOST")
    client.prepare("refused").fails("PARTS_LOST")
    assert not node.order.exists() and not engine.held_parts()
    client.rollback("refused").ok()
    assert engine.count(table) == 0 and not engine.held()


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_killed_before_it_learns_of_it(node, engine):
    """No second fsync of the same file is believed: the rows, still in memory, are written anew."""
    table, client = staged(node, engine, "renewed")
    before = files_of(engine)
    node.order.write_text("kill")
    with pytest.raises(OSError):
        client.prepare("renewed")
    client = node.killed()
    client.prepare("renewed").ok()
    after = files_of(engine)
    assert before.keys() == after.keys() and len(before) > 10
    assert not set(before.values()) & set(after.values()), "a file is still the refused one"
    client.commit("renewed").ok()
    assert engine.value(f"SELECT count(), sum(a) FROM {table}").split() == [str(ROWS), str(sum(range(ROWS)))]
    assert not engine.held() and not engine.detached("t")


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_killed_and_the_rows_are_no_longer_in_memory(node, engine):
    table, client = staged(node, engine, "forgotten")
    node.order.write_text("forget")
    with pytest.raises(OSError):
        client.prepare("forgotten")
    client = node.killed()
    client.prepare("forgotten").fails("PARTS_LOST")
    client.commit("forgotten").fails("PARTS_LOST")
    client.rollback("forgotten").ok()
    assert engine.count(table) == 0 and not engine.held()


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_killed_while_it_writes_anew(node, engine):
    table, client = staged(node, engine, "again")
    for _ in range(3):
        node.order.write_text("kill")
        with pytest.raises(OSError):
            client.prepare("again")
        client = node.killed()
    client.commit("again").ok()
    assert engine.count(table) == ROWS and not engine.held()
