# SPDX-License-Identifier: Apache-2.0
"""What others do to the node behind its back, or through it, and must not get: rows of somebody else's write, a
second statement, a false Committed, a dead server."""
import shutil
import socket
import threading
import time

import pytest
from rest import Client

COLUMNS = "key UInt32"
DEFINITION = "ENGINE = MergeTree ORDER BY key PARTITION BY tuple()"


def scratch_tables(engine):
    return [name for (name,) in engine.rows("SELECT name FROM system.tables WHERE database = 'chxa'")]


def test_write_into_a_scratch_table(engine, client, xid):
    """The rows would be taken for those of the write that has that table."""
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"1\n").ok()
    other = f"{xid}.other"
    client.begin(other).ok((200, 201))
    scratch = scratch_tables(engine)
    assert scratch
    for name in scratch:
        answer = client.write(other, f"INSERT INTO chxa.{name} FORMAT TabSeparated", b"666\n")
        assert "own database" in answer.fails("TARGET_UNSUPPORTED").error["message"]
        client.write(other, f"INSERT INTO {name} FORMAT TabSeparated", b"666\n", database="chxa").fails(
            "TARGET_UNSUPPORTED"
        )
    client.commit(other).ok()
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"2\n").ok()
    client.commit(xid).ok()
    assert engine.value(f"SELECT count(), sum(key) FROM {table}") == "2\t3"


def test_scratch_table_is_optimized(engine, client, xid):
    """A merge of it holds the rows of earlier writes, of whatever transaction."""
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    other = f"{xid}.other"
    for name in (other, xid):
        client.begin(name).ok((200, 201))
    for key in (100, 200):
        client.write(other, statement, b"%d\n" % key).ok()
    for name in scratch_tables(engine):
        engine.query(f"OPTIMIZE TABLE chxa.{name} FINAL")
    client.rollback(other).ok()
    for key in range(3):
        answer = client.write(xid, statement, b"%d\n" % key, write_id=str(key))
        while answer.status != 200:
            assert "scratch table" in answer.fails("IO_FAILED").error["message"]
            answer = client.write(xid, statement, b"%d\n" % key, write_id=str(key))
    client.commit(xid).ok()
    assert engine.value(f"SELECT count(), sum(key) FROM {table}") == "3\t3"


@pytest.mark.parametrize("second", ["INSERT INTO {live} SELECT 6", "DROP TABLE {live}"])
def test_second_statement(engine, client, xid, second):
    table = engine.make("t", COLUMNS, DEFINITION)
    live = engine.make("live", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} SELECT 5 PARALLEL WITH {second.format(live=live)}").fails("INVALID_QUERY")
    client.commit(xid).ok()
    assert engine.count(live) == 0
    assert engine.count(table) == 0


def test_attached_table_is_dropped_while_the_commit_is_blocked(engine, store_name, start_node, xid):
    """Its folder cannot be made durable any more, and need not be."""
    client = Client(start_node(engine, store_name, commit_retry_ms=100).url)
    first = engine.make("first", COLUMNS, DEFINITION)
    second = engine.make("second", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    for table in (first, second):
        client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"1\n").ok()
    client.prepare(xid).ok()
    engine.query(f"RENAME TABLE {second} TO {engine.table('away')}")
    client.commit(xid).fails("BLOCKED")
    assert engine.count(first) == 1
    engine.query(f"DROP TABLE {first}" + ("" if engine.is_old else " SYNC"))
    engine.query(f"RENAME TABLE {engine.table('away')} TO {second}")
    deadline = time.monotonic() + 20
    while client.get(xid)["state"] != "Committed" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert client.get(xid)["state"] == "Committed"
    assert engine.count(second) == 1
    assert engine.held() == []


class Proxy:
    """Between chxad and ClickHouse; before the first bytes that hold `words` go on, it calls hook."""

    def __init__(self, port, words, hook):
        self.port, self.words, self.hook = port, words, hook
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, False), daemon=True).start()

    def pump(self, source, to, look):
        before = b""
        try:
            while chunk := source.recv(65536):
                if look and self.hook and self.words in before + chunk:
                    hook, self.hook = self.hook, None
                    hook()
                before = chunk[-len(self.words) :]
                to.sendall(chunk)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


@pytest.mark.parametrize("stolen", ["first", "middle", "last", "all"])
def test_part_deleted_from_detached_before_its_attach(engine, store_name, start_node, xid, stolen):
    """Somebody tidies up detached/ in the middle of a commit: rows are lost, and Committed would be a lie."""
    table = engine.make("t", COLUMNS, DEFINITION)
    detached = engine.paths("t")[0] / "detached"

    def steal():
        names = sorted(entry.name for entry in detached.iterdir())
        assert len(names) == 5
        for name in {"first": names[:1], "middle": names[2:3], "last": names[4:], "all": names}[stolen]:
            shutil.rmtree(detached / name)

    proxy = Proxy(engine.server.http_port, b"ATTACH PART", steal)
    client = Client(start_node(engine, store_name, clickhouse=proxy.url, commit_retry_ms=50).url)
    client.begin(xid).ok((200, 201))
    for key in range(5):
        client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"%d\n" % key).ok()
    client.prepare(xid).ok()
    assert "hazard" in client.commit(xid).fails("BLOCKED").error["message"]
    time.sleep(0.5)  # tries again meanwhile
    assert client.get(xid)["state"] == "Committing"
    assert client.get(xid)["blocked"] is True
    assert client.commit(xid).fails("BLOCKED")
    assert engine.detached("t") == []
    proxy.close()
