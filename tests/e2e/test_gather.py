# SPDX-License-Identifier: Apache-2.0
"""Gathered writes: many small ones in one INSERT, and what is left of a transaction when that goes wrong."""
import collections
import os
import random
import threading
import time

import pytest

import servers

COLUMNS = "day Date, key UInt32, text String"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"


def tsv(first, rows, end=b"\n"):
    return b"\n".join(b"2024-01-01\t%d\tvalue" % key for key in range(first, first + rows)) + end


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


@pytest.fixture
def insert(table):
    return f"INSERT INTO {table} FORMAT TabSeparated"


def count(engine, table):
    return int(engine.value(f"SELECT count() FROM {table}"))


def keys(engine, table):
    return int(engine.value(f"SELECT uniqExact(key) FROM {table}"))


def test_many_writes_are_one_insert(engine, client, xid, table, insert):
    assert client.begin(xid, gather=True).ok(201)["gather"] is True
    for n in range(50):
        answer = client.write(xid, insert, tsv(n * 10, 10, b"" if n % 2 else b"\n"), write_id=f"w{n}").ok()
        assert answer["gathered"] is True and answer["replay"] is False, answer
        assert answer["body_bytes"] == len(tsv(n * 10, 10, b"" if n % 2 else b"\n"))
    assert count(engine, table) == 0
    client.prepare(xid).ok()
    record = client.get(xid).ok()
    assert record["gather"] is True
    assert len(record["writes"]) == 1 and record["rows"] == 500, record
    assert count(engine, table) == 0
    client.commit(xid).ok()
    assert (count(engine, table), keys(engine, table)) == (500, 500)


def test_one_phase(engine, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    assert client.commit(xid).ok()["rows"] == 10
    assert count(engine, table) == 10


def test_a_write_id_is_known_again(engine, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10), write_id="a").ok()
    again = client.write(xid, insert, tsv(0, 10), write_id="a").ok()
    assert again["gathered"] is True and again["replay"] is True, again
    client.write(xid, insert, tsv(1, 10), write_id="a").fails("WRITE_ID_REUSED")
    client.write(xid, insert + " ", tsv(0, 10), write_id="a").fails("WRITE_ID_REUSED")
    client.commit(xid).ok()
    assert count(engine, table) == 10


def test_refused_rows_end_the_transaction(engine, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    client.write(xid, insert, b"2024-01-01\tno number\tx\n").ok()
    refused = client.prepare(xid).fails("ROLLBACK_ONLY")
    assert "no number" in refused.error["message"] or "Cannot parse" in refused.error["message"], refused
    client.write(xid, insert, tsv(10, 10)).fails("ROLLBACK_ONLY")
    client.commit(xid).fails("ROLLBACK_ONLY")
    record = client.get(xid).ok()
    assert record["state"] == "Initialized" and "roll back" in record["reason"], record
    client.rollback(xid).ok()
    assert client.get(xid).ok()["reason"] == record["reason"]
    assert count(engine, table) == 0


def test_a_time_out_keeps_what_was_lost(engine, start_node, store_name, xid, insert):
    from rest import Client

    client = Client(start_node(engine, store_name, idle_timeout_ms=1000).url)
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, b"2024-01-01\tno number\tx\n").ok()
    client.prepare(xid).fails("ROLLBACK_ONLY")
    time.sleep(2)  # a GET is a request for it, too
    deadline = time.monotonic() + 20
    while (record := client.get(xid).ok())["state"] != "Aborted":
        assert time.monotonic() < deadline, record
        time.sleep(1.5)
    assert "time-out" in record["reason"] and "gathered writes" in record["reason"], record


def errors_counted(client):
    lines = client.request("GET", "/metrics").ok().body.decode().splitlines()
    return [line for line in lines if line.startswith("chxa_errors_total")]


def test_a_rollback_loses_nothing(engine, node, client, xid, table, insert):
    """It ends the INSERT that gathers: that is no failure, and nobody is told of one."""
    before = errors_counted(client)
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    client.rollback(xid).ok()
    record = client.get(xid).ok()
    assert record["state"] == "Aborted" and record["reason"] is None, record
    assert "level=warn" not in node.log_tail(4), node.log_tail(4)
    assert errors_counted(client) == before
    assert count(engine, table) == 0


def test_what_fails_before_an_answer_harms_nothing(engine, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    client.write(xid, f"INSERT INTO {engine.table('missing')} FORMAT TabSeparated", tsv(0, 10)).fails("TARGET_NOT_FOUND")
    client.write(xid, insert, tsv(0, 10)).ok()
    client.commit(xid).ok()
    assert count(engine, table) == 10


def test_a_restart_ends_it(engine, start_node, store_name, xid, table, insert):
    from rest import Client

    node = start_node(engine, store_name, session_timeout_ms=2000)
    client = Client(node.url)
    client.begin(xid, gather=True).ok(201)
    client.begin(f"{xid}.prepared", gather=True).ok(201)
    for name in (xid, f"{xid}.prepared"):
        client.write(name, insert, tsv(0, 10), write_id="a").ok()
    client.prepare(f"{xid}.prepared").ok()
    node.kill()
    node.start()
    client = Client(node.url)
    assert client.begin(xid, gather=True).ok()["replay"] is True
    assert "started anew" in client.get(xid).ok()["reason"]
    client.prepare(xid).fails("ROLLBACK_ONLY")
    client.commit(xid).fails("ROLLBACK_ONLY")
    client.write(xid, insert, tsv(0, 10), write_id="a").fails("ROLLBACK_ONLY")
    client.rollback(xid).ok()
    client.commit(f"{xid}.prepared").ok()
    assert count(engine, table) == 10


def test_an_insert_ends_after_a_pause(engine, start_node, store_name, xid, table, insert):
    from rest import Client

    client = Client(start_node(engine, store_name, gather_idle_ms=100).url)
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    deadline = time.monotonic() + 20
    while not client.get(xid).ok()["writes"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    client.write(xid, insert, tsv(10, 10)).ok()
    client.prepare(xid).ok()
    assert [write["rows"] for write in client.get(xid).ok()["writes"]] == [10, 10]
    client.commit(xid).ok()
    assert keys(engine, table) == 20


def test_what_cannot_be_joined_keeps_its_place(engine, client, xid, insert):
    """The last row of a key wins: so the order of the writes shows."""
    table = engine.make("r", COLUMNS, "ENGINE = ReplacingMergeTree PARTITION BY day ORDER BY key")
    joined = f"INSERT INTO {table} FORMAT TabSeparated"
    client.begin(xid, gather=True).ok(201)
    client.write(xid, joined, b"2024-01-01\t1\tfirst\n").ok()
    assert client.write(xid, joined, b"2024-01-01\t1\tsecond\\\\n").ok().json.get("gathered")
    alone = client.write(xid, f"INSERT INTO {table} VALUES", b"('2024-01-01', 1, 'third')").ok()
    assert "gathered" not in alone.json and alone["rows"] == 1
    client.write(xid, joined, b"2024-01-01\t1\tfourth\n").ok()
    large = b"2024-01-01\t1\tlarge\n" * 500000
    assert client.write(xid, joined, large).ok()["body_bytes"] == len(large)
    client.write(xid, joined, b"2024-01-01\t2\tother\n2024-01-01\t1\tlast\n").ok()
    client.prepare(xid).ok()
    writes = client.get(xid).ok()["writes"]
    assert [write["seq"] for write in writes] == [1, 2, 3, 4, 5], writes
    client.commit(xid).ok()
    engine.query(f"OPTIMIZE TABLE {table} FINAL")
    assert engine.value(f"SELECT text FROM {table} WHERE key = 1") == "last"


def test_many_writers_and_few_places(engine, start_node, store_name, xid, table, insert):
    """More transactions than INSERTs may be open: nobody waits for ever, and no row is lost or doubled."""
    from rest import Client

    node = start_node(engine, store_name, gathers_max=2)
    failures = []

    def work(number):
        try:
            client = Client(node.url)
            name = f"{xid}.{number}"
            client.begin(name, gather=True).ok(201)
            for n in range(10):
                client.write(name, insert, tsv(number * 1000 + n * 10, 10)).ok()
            client.commit(name).ok()
        except BaseException as error:  # noqa: B902
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    assert (count(engine, table), keys(engine, table)) == (800, 800)


MARK = b"\xef\xbb\xbf"


def native(*rows):
    """One block of both columns; without a row the empty one that ends the reading."""
    if not rows:
        return b"\0\0"
    columns = b"".join(b"\1" + name + b"\6String" + b"".join(bytes([len(row)]) + row for row in rows) for name in (b"a", b"b"))
    return bytes([2, len(rows)]) + columns


# Bodies of which a server reads other rows in the middle of an INSERT than at its beginning, or that hide the next one's.
APART = {
    "TabSeparated": [
        MARK + b"1\tx\n", b"a\tb\n1\tx\n", b"b\ta\n", b"A\tb\n", b"1\tx\r\n", b"1\tx\n2\ty\r\n", b"1\t\0", b"1\tx\\\\\n", b"1\tx\\\n2",
    ],
    "TSKV": [MARK + b"a=1\tb=2\n", b"a=1\n\n", b"\nb=1", b"a=1\tb=\\\\"],
    "CSV": [
        MARK + b"1,x\n", b"a,b\n1,x\n", b'"b" , "a"\n1,x\n', b"1,x\r\n", b"1,x\r", b"1,x\n\r", b"1,x'y\n2,'abc\n", b"1,'abc", b'1,"abc',
        b'1,"a\n""\nb"', b"1,p'\n2,r's\n", b"1,x,\n", b"1,x\n ",
    ],
    "JSONEachRow": [MARK + b'{"a":"1"}', b'{"a":"1"};{"a":"2"}', b'[{"a":"1"}]', b'{"a":"1"},{"b":"}"}', b'{"a":"1"} {}', b'{"a":"1"};'],
    "Native": [native(b"1") + native(), native(), native(b"1"), native(b"2") + native(b"3")],
    "RowBinary": [b"\x011\x01x", b"\x011\x00\x00\x00"],
}
PIECES = {
    "TabSeparated": [b"a", b"b", b"'", b'"', b" ", b"\t", b"\t", b"\t", b"\n", b"\n", b"\r\n", b"\\n", b"\\\\", b"\\", b"\0", b"", b"\\N"],
    "TSKV": [b"a=", b"b=", b"x", b"\t", b"\n", b"\\\\", b"\\n", b"\r", b"=", b"\0", b" ", b"a=1\tb=2\n"],
    "CSV": [b"a", b"b", b"'", b'"', b'"', b" ", b"\t", b",", b",", b",", b"\n", b"\n", b"\r\n", b"\r", b"\\", b"\0", b'"a","b"\n', b"'x,y'", b'""', b";"],
    "JSONEachRow": [b'{"a":"x"}', b'{"b":"}{"}', b"{}", b",", b"\n", b" ", b'{"a":"\\""}', b'{"a":"y","b":"\\\\"}', b"\r\n", b";", b"]", b'{"a":"\0"}'],
    "RowBinary": [b"\0", b"\0", b"\x01x", b"\x01\n", b"\x02\\\n", b"\x01\r", b"\x03 a "],
    "Native": [native(b"1"), native(b""), native(b"2", b"3"), native()],
}
ROUNDS = int(os.environ.get("CHXA_GATHER_ROUNDS", "1"))


def random_body(chance, kind):
    return b"".join(chance.choice(PIECES[kind]) for _ in range(chance.randrange(1, 9)))


def accepted_alone(engine, table, kind, bodies):
    """Those that ClickHouse takes one by one, and their rows."""
    taken = []
    for body in bodies:
        try:
            engine.server.query(f"INSERT INTO {table} FORMAT {kind}", body)
            taken.append(body)
        except servers.ClickHouseError:
            pass
    return taken, rows_of(engine, table)


def rows_of(engine, table):
    rows = collections.Counter(map(tuple, engine.rows(f"SELECT a, b FROM {table}")))
    engine.query(f"TRUNCATE TABLE {table}")
    return rows


def written(client, xid, statement, bodies):
    """How many of them were gathered; None when ClickHouse refused them together."""
    client.begin(xid, gather=True).ok(201)
    answers = [client.write(xid, statement, body) for body in bodies]
    end = client.commit(xid)
    if end.status != 200:
        end.fails("ROLLBACK_ONLY")
        client.rollback(xid).ok()
        return None
    return sum("gathered" in answer.ok().json for answer in answers)


@pytest.mark.parametrize("store_name", ["sqlite"])
@pytest.mark.parametrize("kind", PIECES)
def test_rows_are_those_of_the_bodies_alone(engine, client, xid, kind):
    """Bodies that ClickHouse accepts one by one are the same rows when they are gathered, or, seldom, refused."""
    alone, target = [engine.make(name, "a String, b String", "ENGINE = MergeTree ORDER BY a") for name in ("alone", "target")]
    gathered, refused, groups = 0, 0, ROUNDS * 6
    for number in range(groups):
        chance = random.Random(f"{kind} {number}")
        bodies = chance.sample(APART[kind], 2) + [random_body(chance, kind) for _ in range(7)]
        chance.shuffle(bodies)
        bodies, once = accepted_alone(engine, alone, kind, bodies)
        n = written(client, f"{xid}.{number}", f"INSERT INTO {target} FORMAT {kind}", bodies)
        together = rows_of(engine, target)
        gathered, refused = gathered + (n or 0), refused + (n is None)
        assert n is None or once == together, (number, once - together, together - once, bodies)
    assert (gathered == 0) is (kind == "Native") and refused * 4 <= groups, (gathered, refused, groups)


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_settings_that_bodies_do_not_share(engine, client, xid, table):
    client.begin(xid, gather=True).ok(201)
    statement = f"INSERT INTO {table} FORMAT CSV"
    rows = b"2024-01-01,%d,x\n"
    assert client.write(xid, statement, rows % 1, max_threads="1").ok().json.get("gathered")
    alone = client.write(xid, statement, rows % 2 + b"broken\n", input_format_allow_errors_num="1").ok()
    assert alone["rows"] == 1
    if not engine.is_old:
        clause = f"INSERT INTO {table} SETTINGS input_format_csv_skip_first_lines = 1 FORMAT CSV"
        assert client.write(xid, clause, rows % 9 + rows % 3).ok()["rows"] == 1
    # A line behind the head is the first row.
    assert "gathered" not in client.write(xid, f"INSERT INTO {table} (key) FORMAT TSV\n\n4", b"").json
    client.rollback(xid).ok()
