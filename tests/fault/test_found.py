# SPDX-License-Identifier: Apache-2.0
"""Faults that the soak found, each made small."""
import time

import pytest

from proxy import Proxy
from rest import Client
import servers


@pytest.fixture
def node(engine, store_name, lab, folder, request):
    home = folder / request.node.name.replace("/", "-")
    home.mkdir()
    if store_name == "sqlite":
        store = f"sqlite:{home}/chxa.db"
    else:
        store = f"zookeeper:{lab.zookeeper.address}/{home.name.translate(str.maketrans('[]', '--'))}"
    server = servers.Chxad(home / "chxad", "n1", store, engine.server).start()
    yield server
    assert server.stop() == 0, server.log_tail(40)


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_who_does_not_wait_learns_of_the_end(node, engine):
    """wait_ms=0 on a finished transaction, which is no longer in memory: 200, not for ever "no answer yet"."""
    table = engine.make("t", "d Date, a UInt64", "ENGINE = MergeTree ORDER BY a")
    client = Client(node.url)
    for xid, end in (("c", client.commit), ("r", client.rollback)):
        client.begin(xid).ok(201)
        client.write(xid, f"INSERT INTO {table} FORMAT CSV", b"2024-01-01,1\n").ok()
        client.prepare(xid).ok()
        end(xid, wait_ms=30000).ok()
        answer = end(xid, wait_ms=0).ok()
        assert answer["replay"] is True
    client.commit("nobody", wait_ms=0).fails("TXN_NOT_FOUND")


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_the_store_away_is_no_idle_time(lab, engine, folder):
    """Longer away than idle_timeout_ms: nobody could be heard meanwhile, so nothing is idle when it is back."""
    table = engine.make("t", "a UInt64", "ENGINE = MergeTree ORDER BY a")
    proxy = Proxy(lab.zookeeper.port)
    options = {"idle_timeout_ms": 2000, "session_timeout_ms": 1500, "store_timeout_ms": 10000}
    store = f"zookeeper:127.0.0.1:{proxy.port}/away"
    node = servers.Chxad(folder / "away", "n1", store, engine.server, options).start()
    try:
        client = Client(node.url, timeout=20)
        client.begin("a").ok(201)
        client.write("a", f"INSERT INTO {table} FORMAT CSV", b"1\n", write_id="w1").ok()
        client.begin("left").ok(201)
        proxy.tell("refuse")
        time.sleep(4)
        proxy.tell("pass")
        deadline = time.monotonic() + 30
        answer = client.write("a", f"INSERT INTO {table} FORMAT CSV", b"2\n", write_id="w2")
        while answer.status == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
            answer = client.write("a", f"INSERT INTO {table} FORMAT CSV", b"2\n", write_id="w2")
        answer.ok()
        client.commit("a").ok()
        assert engine.count(table) == 2
        # And what nobody comes back for still ends.
        while client.get("left").ok()["state"] != "Aborted" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.get("left").ok()["reason"] == "idle time-out"
    finally:
        node.stop()
        proxy.stop()
