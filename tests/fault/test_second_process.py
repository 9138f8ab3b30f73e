# SPDX-License-Identifier: Apache-2.0
"""Two chxad with one node name: the second is refused while the first lives; a first that was only asleep changes
nothing when it wakes after its ZooKeeper session ended, and ends."""
import signal
import time

import pytest

import servers
from rest import Client

OPTIONS = {"session_timeout_ms": 1500, "commit_retry_ms": 50}


@pytest.fixture
def pair(engine, lab, folder, request):
    home = folder / request.node.name.translate(str.maketrans("[]/", "---"))
    store = f"zookeeper:{lab.zookeeper.address}/{home.name}"
    first, second = (servers.Chxad(home / name, "n1", store, engine.server, OPTIONS) for name in ("first", "second"))
    first.start()
    yield first, second
    for server in (first, second):
        if server.process is not None:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            server.stop()


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_second_is_not_ready_while_the_first_lives(pair):
    first, second = pair
    second.spawn()
    time.sleep(4)
    assert Client(first.url, timeout=10).request("GET", "/readyz").ok()
    assert second.process.poll() is None and not second.is_up(), second.log_tail()
    first.stop()
    second.wait_up()


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_first_that_slept_changes_nothing(pair, engine):
    """The first sleeps in the middle of a transaction; the second takes over and ends it; the first wakes."""
    first, second = pair
    table = engine.make("t", "a UInt64", "ENGINE = MergeTree ORDER BY a")
    client = Client(first.url, timeout=20)
    for xid in ("kept", "lost"):
        client.begin(xid).ok(201)
        client.write(xid, f"INSERT INTO {table} FORMAT CSV", b"1\n", write_id="w").ok()
    client.prepare("kept").ok()
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(4)
    second.spawn()
    time.sleep(4)
    # The held area is locked by the sleeper's process: the second waits rather than share it.
    assert not second.is_up()
    first.process.send_signal(signal.SIGCONT)
    # Awake, it finds its place taken, and ends; the kernel frees the held area.
    assert first.process.wait(20) == 1, first.log_tail()
    assert "taken this node's place" in first.log_tail(5)
    second.wait_up()
    client = Client(second.url, timeout=20)
    client.commit("kept").ok()
    client.rollback("lost").ok()
    assert engine.value(f"SELECT count() FROM {table}") == "1"
    assert engine.held() == []
