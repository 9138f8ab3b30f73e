# SPDX-License-Identifier: Apache-2.0
"""Nothing visible before the commit, everything after; nothing left anywhere after a rollback."""
import threading
import time

import pytest
from rest import Client
from tables import assert_nothing_left, quoted

COLUMNS = "day Date, key UInt32, value String"
BY_DAY = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
BY_RANGE = "ENGINE = MergeTree PARTITION BY intDiv(key, 1000) ORDER BY key"


def rows(first, count, days=3):
    """TSV rows over `days` partitions."""
    return "".join(
        f"2024-01-{1 + key % days:02d}\t{key}\tvalue {key}\n" for key in range(first, first + count)
    ).encode()


def test_nothing_before_everything_after(engine, client, xid):
    table = engine.make("t", COLUMNS, BY_DAY)
    engine.query(f"INSERT INTO {table} FORMAT TabSeparated", body=rows(0, 10))
    before = engine.fingerprint(table)

    assert client.begin(xid).ok((200, 201))["state"] == "Initialized"
    written = client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", rows(100, 90)).ok()
    assert written["rows"] == 90
    assert engine.fingerprint(table) == before
    assert engine.detached("t") == []
    assert len(engine.held_parts()) == 3

    prepared = client.prepare(xid).ok()
    assert prepared["state"] == "Prepared" and prepared["rows"] == 90 and prepared["parts"] == 3
    assert engine.fingerprint(table) == before
    assert engine.detached("t") == []

    committed = client.commit(xid).ok()
    assert committed["state"] == "Committed"
    assert engine.count(table) == 100
    engine.query(f"CREATE TABLE {engine.table('expected')} ({COLUMNS}) {BY_DAY}")
    engine.query(f"INSERT INTO {engine.table('expected')} FORMAT TabSeparated", body=rows(0, 10))
    engine.query(f"INSERT INTO {engine.table('expected')} FORMAT TabSeparated", body=rows(100, 90))
    assert engine.fingerprint(table) == engine.fingerprint(engine.table("expected"))
    assert engine.held() == []

    record = client.get(xid).ok()
    assert record["state"] == "Committed" and record["rows"] == 90
    assert [write["table"] for write in record["writes"]] == ["t"]
    assert record["owner"] == "n1"


def test_one_phase_commit(engine, client, xid):
    table = engine.make("t", COLUMNS, BY_DAY)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", rows(0, 30)).ok()
    assert client.commit(xid).ok()["state"] == "Committed"
    assert engine.count(table) == 30


@pytest.mark.parametrize("prepared", [False, True])
def test_rollback_leaves_nothing(engine, client, node, xid, prepared):
    table = engine.make("t", COLUMNS, BY_DAY)
    other = engine.make("u", COLUMNS, BY_RANGE)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", rows(0, 300)).ok()
    client.write(xid, f"INSERT INTO {other} FORMAT TabSeparated", rows(0, 3000)).ok()
    if prepared:
        client.prepare(xid).ok()
    assert engine.held_parts() != []
    assert client.rollback(xid).ok()["state"] == "Aborted"
    assert_nothing_left(engine, ["t", "u"])
    assert client.get(xid).ok()["state"] == "Aborted"

    # The index: no open transaction; the finished one can be forgotten, and is then unknown.
    open_states = ("Initialized", "Prepared", "Committing", "Aborting")
    for state in open_states:
        assert client.list(state=state).ok()["transactions"] == []
    client.forget(xid).ok((200, 204))
    client.get(xid).fails("TXN_NOT_FOUND")
    assert client.list().ok()["transactions"] == []

    # Scratch tables hold nothing of value; a stopped node leaves none.
    assert node.stop() == 0
    assert engine.scratch_tables() == []


def test_idle_scratch_tables_go(engine, store_name, start_node, xid):
    node = start_node(engine, store_name, scratch_idle_ms=200)
    client = Client(node.url)
    table = engine.make("t", COLUMNS, BY_DAY)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", rows(0, 300)).ok()
    deadline = time.monotonic() + 15
    while engine.scratch_tables() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert engine.scratch_tables() == []
    # The held parts do not depend on them.
    client.commit(xid).ok()
    assert engine.count(table) == 300


def test_two_tables_many_partitions_in_parallel(engine, client, xid):
    """8 connections, 5 writes each, alternating between two tables with several partitions each."""
    tables = [engine.make("t", COLUMNS, BY_DAY), engine.make("u", COLUMNS, BY_RANGE)]
    client.begin(xid).ok((200, 201))
    failures = []

    def writer(number):
        try:
            for i in range(5):
                first = (number * 5 + i) * 1000
                table = tables[(number + i) % 2]
                client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", rows(first, 1000)).ok()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [engine.count(table) for table in tables] == [0, 0]

    record = client.get(xid).ok()
    assert record["rows"] == 40_000 and len(record["writes"]) == 40
    assert [write["seq"] for write in record["writes"]] == list(range(1, 41))

    client.prepare(xid).ok()
    client.commit(xid).ok()
    assert [engine.count(table) for table in tables] == [20_000, 20_000]
    keys = "SELECT count(), uniqExact(key), sum(key) FROM (SELECT key FROM {} UNION ALL SELECT key FROM {})"
    assert engine.value(keys.format(*tables)) == f"40000\t40000\t{sum(range(40_000))}"
    assert engine.held() == []
    assert engine.detached("t") == engine.detached("u") == []


def test_two_transactions_at_once(engine, client, xid):
    """Each sees only its own rows; one is committed, the other rolled back."""
    table = engine.make("t", COLUMNS, BY_DAY)
    kept, dropped = xid + ".kept", xid + ".dropped"
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    for name in (kept, dropped):
        client.begin(name).ok((200, 201))
    for i in range(4):
        client.write(kept, statement, rows(i * 100, 100)).ok()
        client.write(dropped, statement, rows(1000 + i * 100, 100)).ok()
    client.rollback(dropped).ok()
    client.commit(kept).ok()
    assert engine.value(f"SELECT count(), min(key), max(key) FROM {table}") == "400\t0\t399"


def test_insert_select_and_values(engine, client, xid):
    source = engine.make("source", COLUMNS, BY_DAY)
    table = engine.make("t", COLUMNS, BY_DAY)
    engine.query(f"INSERT INTO {source} FORMAT TabSeparated", body=rows(0, 500))
    client.begin(xid).ok((200, 201))
    selected = client.write(xid, f"INSERT INTO {table} SELECT * FROM {source} WHERE key < 100").ok()
    assert selected["rows"] == 100
    client.write(xid, f"INSERT INTO {table} (day, key) VALUES ('2024-05-05', 7), ('2024-05-05', 8)").ok()
    client.write(xid, f"INSERT INTO {table} VALUES", b"('2024-06-06', 9, 'x;y')").ok()
    client.commit(xid).ok()
    assert engine.count(table) == 103
    assert engine.value(f"SELECT value FROM {table} WHERE key = 9 AND day = '2024-06-06'") == "x;y"


def test_write_without_rows(engine, client, xid):
    table = engine.make("t", COLUMNS, BY_DAY)
    client.begin(xid).ok((200, 201))
    assert client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"").ok()["rows"] == 0
    client.write(xid, f"INSERT INTO {table} SELECT * FROM {table} WHERE 0").ok()
    assert client.commit(xid).ok()["state"] == "Committed"
    assert engine.count(table) == 0


def test_transaction_without_writes(engine, client, xid):
    client.begin(xid).ok((200, 201))
    assert client.prepare(xid).ok()["state"] == "Prepared"
    assert client.commit(xid).ok()["state"] == "Committed"


def test_table_in_the_default_database(engine, client, xid):
    """A statement that names no database means the service account's."""
    name = f"plain_{engine.database}"
    engine.query(f"CREATE TABLE {quoted(name)} ({COLUMNS}) {BY_DAY}")
    try:
        client.begin(xid).ok((200, 201))
        client.write(xid, f"INSERT INTO {name} FORMAT TabSeparated", rows(0, 10)).ok()
        client.commit(xid).ok()
        assert engine.count(name) == 10
    finally:
        engine.query(f"DROP TABLE {quoted(name)}")
