# SPDX-License-Identifier: Apache-2.0
"""Gathered writes where things go wrong or are short: clients that go away, few connections, little memory, stops, time-outs, ClickHouse cut off."""
import gzip
import re
import socket
import threading
import time

import pytest
from front import ask
from rest import Client

COLUMNS = "day Date, key UInt32, text String"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"


@pytest.fixture
def store_name():
    return "sqlite"


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


@pytest.fixture
def insert(table):
    return f"INSERT INTO {table} FORMAT TabSeparated"


def tsv(first, rows, text="value"):
    return "".join(f"2024-01-01\t{key}\t{text}\n" for key in range(first, first + rows)).encode()


def keys(engine, table):
    return engine.value(f"SELECT count(), uniqExact(key) FROM {table}").split()


def at_once(count, run):
    failures = []

    def guarded(number):
        try:
            run(number)
        except BaseException as failure:  # noqa: B902 - for the test
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def request_bytes(client, xid, insert, body, write_id, said=None):
    target = Client.path(xid, "writes", query=insert, write_id=write_id)
    return f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {said or len(body)}\r\n\r\n".encode() + body


def test_clients_that_go_away(engine, client, xid, table, insert):
    """In the middle of a body: nothing of it. Behind it: all of it, once, and it is known again."""
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    for n, (first, said) in enumerate(((100, 10**5), (200, None))):
        with socket.create_connection((client.host, client.port)) as connection:
            connection.sendall(request_bytes(client, xid, insert, tsv(first, 10), f"gone{n}", said))
            time.sleep(0.1)
    client.write(xid, insert, tsv(10, 10)).ok()
    again = client.write(xid, insert, tsv(200, 10), write_id="gone1").ok()
    assert again["replay"] is True
    assert client.write(xid, insert, tsv(100, 10), write_id="gone0").ok()["replay"] is False
    client.commit(xid).ok()
    assert keys(engine, table) == ["40", "40"]


def test_pipelined_and_chunked(engine, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    requests = b"".join(request_bytes(client, xid, insert, tsv(n * 10, 10), f"p{n}") for n in range(20))
    with socket.create_connection((client.host, client.port)) as connection:
        connection.sendall(requests)
        answer = b""
        while answer.count(b'"gathered":true') < 20:
            piece = connection.recv(65536)
            assert piece, answer
            answer += piece
    chunks = [tsv(1000, 5), tsv(1005, 5)[:-1]]
    assert client.write(xid, insert, iter(chunks)).ok()["gathered"] is True
    coded = client.write(xid, insert, gzip.compress(tsv(2000, 5)), headers={"Content-Encoding": "gzip"})
    assert coded.status == 200 and "gathered" not in coded.json
    client.prepare(xid).ok()
    client.commit(xid).ok()
    assert keys(engine, table) == ["215", "215"]


def test_the_clickhouse_endpoint(engine, node, client, xid, table, insert):
    client.begin(xid, gather=True).ok(201)
    ask(node.url, query=insert, chxa_txn=xid, body=tsv(0, 10)).ok()
    ask(node.url, chxa_txn=xid, body=(insert + "\n").encode() + tsv(10, 10)).ok()
    ask(node.url, chxa_txn=xid, body=f"INSERT INTO {table} VALUES ('2024-01-01', 20, 'x')").ok()
    ask(node.url, query=f"INSERT INTO {table} FORMAT JSONEachRow", chxa_txn=xid, body=b'{"day":"2024-01-01","key":21}').ok()
    assert ask(node.url, query=insert, body=tsv(22, 1)).ok()  # a transaction of its own
    client.commit(xid).ok()
    assert keys(engine, table) == ["23", "23"]


def test_few_connections_and_scratch_tables(engine, start_node, store_name, xid):
    """INSERTs that stay open must not keep the others out."""
    node = start_node(engine, store_name, clickhouse_connections_max=2, scratch_tables_max=1, gather_idle_ms=50, gather_age_ms=300)
    client = Client(node.url)
    tables = [engine.make(f"few{n}", COLUMNS, DEFINITION) for n in range(3)]
    began = time.monotonic()

    def work(number):
        name = f"{xid}.{number}"
        client.begin(name, gather=number % 2 == 0).ok(201)
        for n in range(3):
            for table in tables:
                client.write(name, f"INSERT INTO {table} FORMAT TSV", tsv(number * 1000 + n * 10, 10)).ok()
        client.commit(name).ok()

    at_once(4, work)
    assert time.monotonic() - began < 60
    for table in tables:
        assert keys(engine, table) == ["120", "120"]


def test_little_memory(engine, start_node, store_name, xid):
    """Bodies that wait for an INSERT leave it the memory to begin with."""
    node = start_node(engine, store_name, body_memory_bytes_max=16 << 20, gather_idle_ms=2000)
    client = Client(node.url)
    table = engine.make("t", COLUMNS, DEFINITION)
    text = "x" * 1000
    began = time.monotonic()

    def work(number):
        name = f"{xid}.{number}"
        client.begin(name, gather=True).ok(201)
        for n in range(2):
            client.write(name, f"INSERT INTO {table} FORMAT TSV", tsv(number * 10000 + n * 1000, 990, text)).ok()
        client.commit(name).ok()

    at_once(24, work)
    assert time.monotonic() - began < 40
    assert keys(engine, table) == ["47520", "47520"]
    answer = ask(node.url, method="GET", path="/metrics").ok().body.decode()
    assert re.search(r"^chxa_body_memory_bytes 0$", answer, re.M), re.findall(r"^chxa_body_memory.*", answer, re.M)


def test_a_stop_stages_what_was_answered(engine, start_node, store_name, xid, insert):
    node = start_node(engine, store_name, gather_idle_ms=20000)
    client = Client(node.url)
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, tsv(0, 10)).ok()
    began = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - began < 5
    node.start()
    client = Client(node.url)
    assert len(client.get(xid).ok()["writes"]) == 1
    client.prepare(xid).fails("ROLLBACK_ONLY")  # nobody knows that all of them are there
    client.rollback(xid).ok()


def test_its_time_is_over_while_an_insert_is_open(engine, client, xid, table, insert):
    client.begin(xid, gather=True, timeout_ms=1000).ok(201)
    deadline = time.monotonic() + 20
    n = 0
    while (answer := client.write(xid, insert, tsv(n, 1))).status == 200:
        n += 1
        assert time.monotonic() < deadline
        time.sleep(0.02)
    answer.fails("WRONG_STATE")
    while client.get(xid).ok()["state"] != "Aborted":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert engine.count(table) == 0 and engine.held_parts() == []


def test_begun_again(engine, client, xid, table, insert):
    """The same id a second time: nothing of the first is known."""
    for first in (0, 100):
        client.begin(xid, gather=True).ok(201)
        answer = client.write(xid, insert, tsv(first, 10), write_id="same").ok()
        assert answer["replay"] is False
        client.rollback(xid).ok()
        client.request("DELETE", client.path(xid)).ok((200, 204))
    client.begin(xid, gather=False).ok(201)
    assert "gathered" not in client.write(xid, insert, tsv(0, 10), write_id="same").ok().json
    client.commit(xid).ok()
    assert engine.count(table) == 10


def test_what_a_begin_may_say(client, xid):
    client.begin(xid, gather="yes").fails("INVALID_REQUEST")
    client.begin(xid, gather=None).fails("INVALID_REQUEST")
    assert client.begin(xid).ok(201).json.get("gather") in (None, False)
    assert client.begin(xid, gather=True).ok().json.get("gather") in (None, False)


def test_rolled_back_among_writes(engine, client, xid, table, insert):
    """Writers that do not know of it: each is answered, and nothing stays."""
    client.begin(xid, gather=True).ok(201)
    codes = []

    def work(number):
        if number == 0:
            time.sleep(0.05)
            client.rollback(xid).ok()
            return
        for n in range(40):
            answer = client.write(xid, f"{insert}{' ' * (number % 3)}", tsv(number * 1000 + n, 1))
            codes.append(answer.code)
            if answer.code:
                break

    at_once(6, work)
    assert set(codes) <= {None, "WRONG_STATE", "ROLLBACK_ONLY"}, codes
    assert engine.count(table) == 0 and engine.held_parts() == []


def test_one_table_stays_in_order(engine, client, xid):
    """Statements that differ, ordinary writes and gathered ones, one after the other: the last row of a key wins."""
    table = engine.make("r", COLUMNS, "ENGINE = ReplacingMergeTree PARTITION BY day ORDER BY key")
    client.begin(xid, gather=True).ok(201)
    heads = (f"INSERT INTO {table} FORMAT TSV", f"INSERT INTO {table} (day, key, text) FORMAT TSV", f"insert into {table} format CSV")
    for n in range(60):
        head = heads[n * 7 % 5 % 3]
        body = tsv(1, 1, f"n{n}")
        client.write(xid, head, body.replace(b"\t", b",") if "CSV" in head else body, max_threads=str(1 + n % 2)).ok()
        if n % 13 == 0:
            client.write(xid, f"INSERT INTO {table} VALUES", f"('2024-01-01', 1, 'n{n}')".encode()).ok()
    client.commit(xid).ok()
    engine.query(f"OPTIMIZE TABLE {table} FINAL")
    assert engine.value(f"SELECT text FROM {table}") == "n59"


def test_concurrent_mix_in_one_transaction(engine, client, xid, table, insert):
    """Ordinary writes come to their turn although others gather all the time."""
    client.begin(xid, gather=True).ok(201)
    stop = threading.Event()
    took, rows = [], []

    def work(number):
        if number:
            n = 0
            while not stop.is_set():
                client.write(xid, insert, tsv(number * 100000 + n, 1)).ok()
                rows.append(1)
                n += 1
            return
        try:
            for n in range(4):
                began = time.monotonic()
                client.write(xid, f"INSERT INTO {table} VALUES", f"('2024-01-01', {n}, 'alone')".encode()).ok()
                took.append(time.monotonic() - began)
                rows.append(1)
        finally:
            stop.set()

    at_once(5, work)
    assert max(took) < 10, took
    client.commit(xid).ok()
    assert keys(engine, table) == [str(len(rows))] * 2


def test_who_does_not_wait_hears_of_it(engine, client, xid, insert):
    """A commit that is answered 202 at once, and asked again: not 202 for ever."""
    client.begin(xid, gather=True).ok(201)
    client.write(xid, insert, b"2024-01-01\tno number\tx\n").ok()
    deadline = time.monotonic() + 20
    while (answer := client.commit(xid, wait_ms=0)).status == 202:
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
    answer.fails("ROLLBACK_ONLY")
    client.prepare(xid, wait_ms=0).fails("ROLLBACK_ONLY")
    client.rollback(xid).ok()
