# SPDX-License-Identifier: Apache-2.0
"""Faults that the soak found, each made small."""
import pytest

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
