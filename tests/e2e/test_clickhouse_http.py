# SPDX-License-Identifier: Apache-2.0
"""The ClickHouse-compatible endpoint, at the level of HTTP: what a client sends by hand, staged or passed through."""
import gzip
import itertools
import json
import os
import random
import signal
import socket
import struct
import time
import uuid

import pytest
from front import NATIVE, PACKINGS, ask, native, packed
from rest import Client, split_url

COLUMNS, DEFINITION = "n UInt64, s String", "ENGINE = MergeTree ORDER BY n"


@pytest.fixture
def store_name():
    return "sqlite"


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


def rows(first, n):
    return "".join(f"{i}\trow {i}\n" for i in range(first, first + n)).encode()


def numbers(engine, table):
    return [int(row[0]) for row in engine.rows(f"SELECT n FROM {table} ORDER BY n")]


# ---- a person with curl ----


def test_the_whole_job_by_hand(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    ask(node.url, query=f"INSERT INTO {table} FORMAT TSV", chxa_txn=xid, body=rows(0, 3)).ok()
    ask(node.url, headers={"X-Chxa-Transaction": xid}, body=f"INSERT INTO {table} FORMAT TSV\n".encode() + rows(3, 3)).ok()
    ask(node.url, chxa_txn=xid, query=f"INSERT INTO {table}", body=b"FORMAT TSV\n" + rows(6, 1)).ok()
    ask(node.url, chxa_txn=xid, query=f"INSERT INTO {table} VALUES (7, 'x')").ok()
    ask(node.url, chxa_txn=xid, body=f"INSERT INTO {table} (n, s) VALUES (8, 'a;b'), (9, 'c')").ok()
    ask(node.url, chxa_txn=xid, body=f"INSERT INTO {table} SELECT number + 10, 'sel' FROM numbers(5)").ok()
    ask(node.url, method="PUT", chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV", body=rows(15, 1)).ok()
    assert engine.count(table) == 0
    assert ask(node.url, chxa_txn=xid, query=f"SELECT count() FROM {table}").ok().body == b"0\n"
    client.commit(xid).ok()
    assert numbers(engine, table) == list(range(16))


def test_rollback_leaves_nothing(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    ask(node.url, query=f"INSERT INTO {table} FORMAT TSV", chxa_txn=xid, body=rows(0, 3)).ok()
    client.rollback(xid).ok()
    assert engine.count(table) == 0 and engine.held() == []


def test_the_answer_of_a_write(node, client, table, xid):
    client.begin(xid).ok(201)
    query_id = str(uuid.uuid4())
    reply = ask(node.url, query=f"INSERT INTO {table} FORMAT TSV", chxa_txn=xid, query_id=query_id, body=rows(0, 7)).ok()
    assert reply.body == b""
    assert reply.headers["X-ClickHouse-Query-Id"] == query_id
    summary = json.loads(reply.headers["X-ClickHouse-Summary"])
    assert summary["written_rows"] == "7" and int(summary["written_bytes"]) > 0
    assert reply.headers["X-Chxa-Transaction"] == xid


def test_the_answer_of_a_gathered_write(engine, node, client, table, xid):
    """Packed or not: the body is decoded here. Nothing is known yet that a summary could say."""
    client.begin(xid, gather=True).ok(201)
    statement = f"INSERT INTO {table} FORMAT TSV"
    packings = {"clear": (rows(0, 3), {}), "gzip": (gzip.compress(rows(3, 3)), {"Content-Encoding": "gzip"})}
    for name, (body, headers) in packings.items():
        reply = ask(node.url, query=statement, chxa_txn=xid, chxa_write_id=name, body=body, headers=headers).ok()
        assert reply.body == b"" and reply.headers["X-Chxa-Gathered"] == "true"
        assert "X-ClickHouse-Summary" not in reply.headers and "X-Chxa-Replay" not in reply.headers
    again = ask(node.url, query=statement, chxa_txn=xid, chxa_write_id="clear", body=rows(0, 3)).ok()
    assert again.headers["X-Chxa-Gathered"] == again.headers["X-Chxa-Replay"] == "true"
    client.commit(xid).ok()
    assert numbers(engine, table) == list(range(6))
    assert len(client.get(xid).ok()["writes"]) == 1


# ---- packings ----


def send_packed(node, xid, name, statement, data, in_url):
    text = b"" if in_url else statement.encode() + b"\n"
    headers, parameters, body = packed(name, text + data)
    if in_url:
        parameters["query"] = statement
    return ask(node.url, body=body, headers=headers, chxa_txn=xid, **parameters)


@pytest.mark.parametrize("in_url", [True, False], ids=["url", "body"])
@pytest.mark.parametrize("name", PACKINGS)
def test_packed(engine, node, client, table, xid, name, in_url):
    client.begin(xid).ok(201)
    send_packed(node, xid, name, f"INSERT INTO {table} FORMAT TSV", rows(0, 30_000), in_url).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 30_000
    assert engine.value(f"SELECT sum(n) FROM {table}") == str(sum(range(30_000)))


@pytest.mark.parametrize("in_url", [True, False], ids=["url", "body"])
@pytest.mark.parametrize("method", NATIVE)
def test_native_blocks(engine, lab, node, client, table, xid, method, in_url):
    statement = f"INSERT INTO {table} FORMAT TSV"
    text = b"" if in_url else statement.encode() + b"\n"
    body = native(lab.clickhouse("26.7"), method, text + rows(0, 10_000))
    client.begin(xid).ok(201)
    parameters = {"query": statement} if in_url else {}
    ask(node.url, body=body, chxa_txn=xid, decompress=1, **parameters).ok()
    # damaged, and cut: nothing of it stays
    damaged = bytearray(body)
    damaged[len(body) // 2] ^= 1
    assert ask(node.url, body=bytes(damaged), chxa_txn=xid, decompress=1, **parameters).exception == 89
    assert ask(node.url, body=body[:-1], chxa_txn=xid, decompress=1, **parameters).exception == 33
    client.commit(xid).ok()
    assert engine.count(table) == 10_000


@pytest.mark.parametrize("name", [name for name in PACKINGS if name != "clear"])
def test_packed_and_cut_short(engine, node, client, table, xid, name):
    """HTTP says it is whole; its compression says it is not."""
    client.begin(xid).ok(201)
    statement = f"INSERT INTO {table} FORMAT TSV"
    headers, parameters, body = packed(name, rows(0, 30_000))
    for keep in (len(body) - 1, len(body) // 2):
        reply = ask(node.url, body=body[:keep], headers=headers, chxa_txn=xid, query=statement, **parameters)
        assert reply.status == 400 and reply.exception == 33, reply
    reply = ask(node.url, body=b"INSERT nonsense" + body, headers=headers, chxa_txn=xid, query=statement, **parameters)
    assert reply.exception in (33, 89)
    send_packed(node, xid, name, statement, rows(0, 10), True).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 10


def test_an_unknown_packing_is_refused(node, client, table, xid):
    client.begin(xid).ok(201)
    for encoding in ("snappy", "gzip, gzip"):
        reply = ask(node.url, body=b"x", headers={"Content-Encoding": encoding}, chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV")
        assert reply.status == 415 and reply.exception == 89


def test_a_bomb_costs_no_memory(engine, node, client, table, xid):
    """200 MB of a few hundred kB: staged, in bounded memory."""
    client.begin(xid).ok(201)
    line = b"1\t" + b"x" * 998 + b"\n"
    body = gzip.compress(line * 200_000)
    ask(node.url, body=body, headers={"Content-Encoding": "gzip"}, chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV").ok()
    assert node.memory_peak_bytes() < 64 << 20
    client.commit(xid).ok()
    assert engine.count(table) == 200_000


# ---- dribbles ----


def dribble(url, head, pieces, pause=0.01):
    host, port = split_url(url)
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(head)
        for piece in pieces:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(pause)
        connection.sendall(b"0\r\n\r\n")
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
        return answer


def test_a_statement_in_crumbs(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    text = f"/* a comment */ INSERT INTO {table}\nFORMAT TSV\n".encode() + rows(0, 2)
    head = f"POST /?chxa_txn={xid} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    answer = dribble(node.url, head, [text[i : i + 1] for i in range(len(text))], 0.002)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    client.commit(xid).ok()
    assert numbers(engine, table) == [0, 1]


# ---- errors ----


def test_errors_are_clickhouses(engine, node, client, table, xid):
    client.begin(xid).ok(201)

    def refused(number, status, body=b"", **parameters):
        reply = ask(node.url, body=body, **{"chxa_txn": xid, **parameters})
        assert reply.exception == number and reply.status == status, reply
        return reply

    bad = refused(27, 422, rows(0, 2) + b"not a number\tx\n", query=f"INSERT INTO {table} FORMAT TSV")
    assert b"chxa`" not in bad.body
    refused(60, 422, rows(0, 1), query=f"INSERT INTO {engine.table('none')} FORMAT TSV")
    refused(62, 400, b"", query=f"INSERT INTO {table}")
    refused(62, 400, b"", query=f"INSERT INTO {table} SELECT 1, '2'; DROP TABLE {table}")
    refused(452, 400, rows(0, 1), query=f"INSERT INTO {table} SETTINGS async_insert = 1 FORMAT TSV")
    refused(48, 422, rows(0, 1), query="INSERT INTO FUNCTION null('n UInt64') FORMAT TSV")
    refused(649, 404, rows(0, 1), query=f"INSERT INTO {table} FORMAT TSV", chxa_txn="nobody")
    refused(36, 400, rows(0, 1), query=f"INSERT INTO {table} FORMAT TSV", chxa_txn="no/body")
    refused(36, 400, rows(0, 1), query=f"INSERT INTO {table} FORMAT TSV", chxa_write_id="a b")
    reply = ask(node.url, headers={"X-Chxa-Transaction": "other"}, chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV", body=rows(0, 1))
    assert reply.exception == 36
    client.prepare(xid).ok()
    refused(649, 409, rows(0, 1), query=f"INSERT INTO {table} FORMAT TSV")
    client.rollback(xid).ok()
    assert engine.count(table) == 0


def test_a_truncated_body_leaves_nothing(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    host, port = split_url(node.url)
    for head in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
        with socket.create_connection((host, port), timeout=20) as connection:
            body = b"5\r\n1\ta\n2" if "chunked" in head else rows(0, 5)
            connection.sendall(
                f"POST /?chxa_txn={xid}&query=INSERT+INTO+{engine.database}.t+FORMAT+TSV HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n".encode() + body
            )
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 400") and b"Code: 33." in answer, answer
    client.commit(xid).ok()
    assert engine.count(table) == 0


# ---- ids, replay, settings, parameters ----


def test_the_same_query_id_is_one_write(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    query = {"query": f"INSERT INTO {table} FORMAT TSV", "chxa_txn": xid}
    first = ask(node.url, body=rows(0, 3), query_id="q 1/ü", **query).ok()
    again = ask(node.url, body=rows(0, 3), query_id="q 1/ü", **query).ok()
    assert "X-Chxa-Replay" not in first.headers and again.headers["X-Chxa-Replay"] == "true"
    assert again.headers["X-ClickHouse-Summary"] == first.headers["X-ClickHouse-Summary"]
    assert ask(node.url, body=rows(0, 4), query_id="q 1/ü", **query).exception == 36
    ask(node.url, body=rows(3, 1), chxa_write_id="w1", query_id="q 1/ü", **query).ok()
    ask(node.url, body=rows(3, 1), headers={"X-Chxa-Write-Id": "w1"}, **query).ok()
    client.commit(xid).ok()
    assert numbers(engine, table) == [0, 1, 2, 3]


def test_dangerous_settings_are_overridden(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    ask(
        node.url,
        query=f"INSERT INTO {table} FORMAT TSV",
        body=rows(0, 3),
        chxa_txn=xid,
        async_insert=1,
        wait_for_async_insert=0,
        insert_deduplication_token="x",
        send_progress_in_http_headers=1,
        wait_end_of_query=0,
        session_id="s",
        client_protocol_version=54460,
        default_format="Native",
        readonly=0,
        max_threads=1,
    ).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 3


def test_default_database(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    ask(node.url, query="INSERT INTO t FORMAT TSV", body=rows(0, 1), chxa_txn=xid, database=engine.database).ok()
    ask(node.url, query="INSERT INTO t FORMAT TSV", body=rows(1, 1), chxa_txn=xid, headers={"X-ClickHouse-Database": engine.database}).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 2


def test_a_target_named_by_parameters(engine, node, client, table, xid):
    """As Vector does; 18.16 knows no parameters at all."""
    client.begin(xid).ok(201)
    parameters = {
        "query": "INSERT INTO {database:Identifier}.{table:Identifier} FORMAT JSONEachRow",
        "param_database": engine.database,
        "param_table": "t",
        "chxa_txn": xid,
    }
    ask(node.url, body=b'{"n": 1, "s": "a"}\n', **parameters).ok()
    del parameters["param_table"]
    assert ask(node.url, body=b'{"n": 1, "s": "a"}\n', **parameters).exception == 62
    client.commit(xid).ok()
    assert engine.count(table) == 1


def test_parameters_of_a_select(engine, node, client, table, xid, only_26):
    client.begin(xid).ok(201)
    ask(node.url, body=f"INSERT INTO {table} SELECT {{x:UInt64}}, 'p'", param_x=5, chxa_txn=xid).ok()
    client.commit(xid).ok()
    assert numbers(engine, table) == [5]


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_a_long_statement_in_the_body(engine, node, client, table, xid, size):
    client.begin(xid).ok(201)
    values = ", ".join(f"({i}, 'value')" for i in range(size // 16))
    ask(node.url, chxa_txn=xid, body=f"INSERT INTO {table} VALUES {values}").ok()
    text = "x" * size
    ask(node.url, chxa_txn=xid, body=f"INSERT INTO {table} SELECT 1, '{text}'").ok()
    client.commit(xid).ok()
    assert engine.count(table) == size // 16 + 1


def test_views_are_refused_or_skipped(engine, node, client, table, xid):
    engine.query(f"CREATE MATERIALIZED VIEW {engine.table('v')} ENGINE = MergeTree ORDER BY n AS SELECT n FROM {table}")
    client.begin(xid).ok(201)
    query = {"query": f"INSERT INTO {table} FORMAT TSV", "chxa_txn": xid}
    assert ask(node.url, body=rows(0, 1), **query).exception == 48
    ask(node.url, body=rows(0, 1), chxa_views="skip", **query).ok()
    ask(node.url, body=rows(1, 1), headers={"X-Chxa-Views": "skip"}, **query).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 2 and engine.count(engine.table("v")) == 0


# ---- what passes through ----

# Of one hop, of the moment, or of the server's mood.
MOODS = {"Date", "Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length", "X-ClickHouse-Query-Id", "X-ClickHouse-Summary", "X-ClickHouse-Exception-Tag"}


def same(direct, passed):
    assert passed.status == direct.status, (direct, passed)
    assert passed.body == direct.body, (direct, passed)

    def kept(reply):
        return sorted((name, value) for name, value in reply.headers.items() if name not in MOODS)

    assert kept(passed) == kept(direct)


def test_reads_are_as_from_clickhouse(engine, node, table):
    engine.query(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    requests = [
        {"method": "GET", "path": "/ping"},
        {"method": "GET", "path": "/"},
        {"method": "HEAD", "path": "/ping"},
        {"method": "GET", "path": "/replicas_status"},
        {"method": "GET", "path": "/no/such/thing"},
        {"method": "GET", "query": "SELECT 1"},
        {"query": f"SELECT * FROM {table} ORDER BY n FORMAT JSONEachRow"},
        {"body": f"SELECT * FROM {table} ORDER BY n FORMAT Native"},
        {"body": f"SELECT * FROM {table} ORDER BY n", "default_format": "TSVWithNames"},
        {"body": "SELECT 1 FORMAT TSV", "compress": 1},
        {"body": "SELECT number FROM numbers(100000)", "headers": {"Accept-Encoding": "gzip"}, "enable_http_compression": 1},
        {"body": "SELECT nonsense"},
        {"body": "SELECT 1", "headers": {"X-ClickHouse-User": "nobody", "X-ClickHouse-Key": "no"}},
        {"body": "SELECT number FROM numbers(300000)", "buffer_size": 1000000, "wait_end_of_query": 1},
        {"body": b"", "query": "SELECT 1"},
        {"body": iter([b"SELECT ", b"17"])},
    ]
    for request in requests:
        again = dict(request)
        if not isinstance(request.get("body"), (str, bytes, type(None))):
            request["body"], again["body"] = iter([b"SELECT ", b"17"]), iter([b"SELECT ", b"17"])
        same(ask(engine.server.url, **request), ask(node.url, **again))


def test_our_own_words_do_not_reach_clickhouse(node, client, xid):
    """ClickHouse refuses unknown settings."""
    assert ask(node.url, query="SELECT 1", chxa_txn=xid, chxa_write_id="x", chxa_views="skip").ok().body == b"1\n"
    assert ask(node.url, body="SELECT 1", **{"chxa%5ftxn": "x"}).status in (200, 404, 500)
    assert ask(node.url, path="/?chxa_txn=x&query=SELECT+1&chxa_views=skip&max_threads=1").ok().body == b"1\n"


def test_statements_pass_through(engine, node):
    full = engine.table("made")
    ask(node.url, body=f"CREATE TABLE {full} (a UInt8) ENGINE = MergeTree ORDER BY a").ok()
    ask(node.url, query=f"INSERT INTO {full} FORMAT TSV", body=b"1\n2\n").ok()
    ask(node.url, body=f"INSERT INTO {full} FORMAT TSV\n3\n").ok()
    assert engine.count(full) == 3
    bad = ask(node.url, query=f"INSERT INTO {full} FORMAT TSV", body=b"x\n")
    assert bad.exception == 27
    ask(node.url, body=f"DROP TABLE {full}").ok()


@pytest.mark.memory
def test_a_big_answer_streams(engine, node):
    n = 30_000_000
    before = node.memory_peak_bytes()
    reply = ask(node.url, body=f"SELECT number FROM numbers({n}) FORMAT RowBinary").ok()
    assert len(reply.body) == 8 * n
    assert node.memory_peak_bytes() - before < 8 << 20


def test_a_big_body_streams(engine, node, table):
    before = node.memory_peak_bytes()
    chunk = rows(0, 20_000)
    ask(node.url, query=f"INSERT INTO {table} FORMAT TSV", body=itertools.repeat(chunk, 400)).ok()
    assert engine.count(table) == 8_000_000
    assert node.memory_peak_bytes() - before < 8 << 20


def test_an_error_in_the_middle_of_a_body(engine, node, table):
    body = itertools.chain([b"bad\n"], itertools.repeat(rows(0, 10_000), 300))
    host, port = split_url(node.url)
    reply = None
    try:
        reply = ask(node.url, query=f"INSERT INTO {table} FORMAT TSV", body=body)
    except (BrokenPipeError, ConnectionResetError):
        pass  # as with ClickHouse itself: a client that goes on sending may miss the answer
    if reply is not None:
        assert reply.exception == 27


def test_a_client_that_goes_away_ends_its_query(engine, node, only_26):
    """A reset. (A client that only shuts its side may still read; ClickHouse takes it so, too.)"""
    host, port = split_url(node.url)
    mark = uuid.uuid4().hex
    with socket.create_connection((host, port), timeout=20) as connection:
        body = f"SELECT '{mark}', sum(number) FROM numbers(100000000000) GROUP BY number % 3 FORMAT Null SETTINGS max_threads = 1"
        connection.sendall(f"POST /?cancel_http_readonly_queries_on_client_close=1&readonly=2 HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        running = f"SELECT count() FROM system.processes WHERE query LIKE '%{mark}%' AND query NOT LIKE '%processes%'"
        wait_until(lambda: engine.value(running) == "1")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: engine.value(running) == "0")


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_clickhouse_is_away(engine, node):
    """Stopped dead: a request waits; nothing else in chxad does."""
    os.kill(engine.server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):
            ask(node.url, method="GET", path="/ping", timeout=2)
        assert ask(node.url, method="GET", path="/healthz").status == 200
    finally:
        os.kill(engine.server.process.pid, signal.SIGCONT)
    assert ask(node.url, method="GET", path="/ping").ok().body == b"Ok.\n"


# ---- passthrough = reads, none ----


def test_only_reads_pass(engine, start_node, table, xid):
    node = start_node(engine, "sqlite", passthrough="reads")
    client = Client(node.url)
    assert ask(node.url, body="SELECT 1").ok().body == b"1\n"
    assert ask(node.url, body="SELECT 1", max_threads=1).ok().body == b"1\n"
    for query in (f"INSERT INTO {table} VALUES (1, 'x')", f"DROP TABLE {table}", "CREATE DATABASE x"):
        for parameters in ({}, {"readonly": 0}, {"%72eadonly": 0}):
            reply = ask(node.url, body=query, **parameters)
            assert reply.status >= 400 and reply.exception in (164, 115), reply
    client.begin(xid).ok(201)
    ask(node.url, body=f"INSERT INTO {table} VALUES (1, 'x')", chxa_txn=xid).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 1


def test_nothing_passes(engine, start_node, table, xid):
    node = start_node(engine, "sqlite", passthrough="none")
    client = Client(node.url)
    assert ask(node.url, method="GET", path="/ping").ok().body == b"Ok.\n"
    assert ask(node.url, method="GET", path="/").ok().body == b"Ok.\n"
    for request in ({"body": "SELECT 1"}, {"method": "GET", "query": "SELECT 1"}, {"method": "GET", "path": "/replicas_status"}):
        assert ask(node.url, **request).status >= 400
    client.begin(xid).ok(201)
    assert ask(node.url, body="SELECT 1", chxa_txn=xid).exception == 164
    ask(node.url, body=f"INSERT INTO {table} VALUES (1, 'x')", chxa_txn=xid).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 1


# ---- implicit transactions ----


@pytest.fixture
def implicit(engine, start_node):
    return start_node(engine, "sqlite", implicit_transactions="true")


def test_an_insert_is_a_transaction_of_its_own(engine, implicit, table):
    ask(implicit.url, query=f"INSERT INTO {table} FORMAT TSV", body=rows(0, 3)).ok()
    ask(implicit.url, body=f"INSERT INTO {table} FORMAT TSV\n".encode() + rows(3, 1)).ok()
    assert numbers(engine, table) == [0, 1, 2, 3]
    assert ask(implicit.url, body=f"SELECT count() FROM {table}").ok().body == b"4\n"
    ask(implicit.url, body=f"CREATE TABLE {engine.table('u')} (a UInt8) ENGINE = Memory").ok()


def test_an_insert_of_any_size_is_atomic(engine, implicit, table):
    """Two blocks are in ClickHouse when the bad row comes."""
    body = rows(0, 1_500_000) + b"bad\trow\n"
    reply = ask(implicit.url, query=f"INSERT INTO {table} FORMAT TSV", body=body)
    assert reply.exception == 27
    assert engine.count(table) == 0
    assert Client(implicit.url).request("GET", "/v1/transactions").json["transactions"] == []


def test_a_failed_insert_leaves_its_query_id_free(engine, implicit, table):
    query = {"query": f"INSERT INTO {table} FORMAT TSV", "query_id": "twice"}
    assert ask(implicit.url, body=b"bad\trow\n", **query).exception == 27
    assert ask(implicit.url, body=b"x", headers={"Content-Encoding": "gzip"}, **query).exception in (33, 89)
    assert ask(implicit.url, body=b"1\ta\n", **{"no such!": 1}, **query).exception == 36
    ask(implicit.url, body=rows(0, 2), **query).ok()
    assert engine.count(table) == 2
    assert ask(implicit.url, query=f"INSERT INTO {engine.table('none')} FORMAT TSV", body=b"1").exception == 60
    engine.query(f"CREATE TABLE {engine.table('m')} (n UInt8) ENGINE = Memory")
    assert ask(implicit.url, query=f"INSERT INTO {engine.table('m')} FORMAT TSV", body=b"1\n").exception == 48
    states = [t["state"] for t in Client(implicit.url).request("GET", "/v1/transactions").json["transactions"]]
    assert states == ["Committed"]


def test_an_insert_with_a_query_id_may_be_repeated(engine, implicit, table):
    query = {"query": f"INSERT INTO {table} FORMAT TSV", "query_id": "once"}
    first = ask(implicit.url, body=rows(0, 3), **query).ok()
    again = ask(implicit.url, body=rows(0, 3), **query).ok()
    assert again.headers["X-Chxa-Replay"] == "true"
    assert json.loads(again.headers["X-ClickHouse-Summary"]) == json.loads(first.headers["X-ClickHouse-Summary"])
    assert engine.count(table) == 3


def test_many_clients_at_once(engine, implicit, table):
    from concurrent.futures import ThreadPoolExecutor

    def one(i):
        ask(implicit.url, query=f"INSERT INTO {table} FORMAT TSV", query_id=f"q{i}", body=rows(i * 10, 10)).ok()
        return ask(implicit.url, body="SELECT 1").ok()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(64)))
    assert engine.count(table) == 640


# ---- nonsense ----


def test_random_bodies_do_no_harm(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    chance = random.Random(5)
    for _ in range(150):
        body = bytes(chance.choice(b"INSERT INTO t VALUES(1);'`\"/*-#\x00\xff\n") for _ in range(chance.randrange(200)))
        encoding = chance.choice(["gzip", "lz4", "zstd", "br", "deflate", None, None])
        headers = {"Content-Encoding": encoding} if encoding else {}
        ask(node.url, body=body, headers=headers, chxa_txn=xid, **chance.choice([{}, {"decompress": 1}]))
    assert ask(node.url, method="GET", path="/ping").ok().body == b"Ok.\n"
    client.commit(xid).ok()
    assert engine.count(table) == 0
