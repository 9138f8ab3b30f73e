# SPDX-License-Identifier: Apache-2.0
"""What clickhouse-go, clickhouse-rs and Vector put on the wire, byte for byte, and the corners of HTTP that clients reach."""
import gzip
import json
import os
import signal
import socket
import threading
import time

import pytest
from front import ask, native
from rest import split_url

COLUMNS, DEFINITION = "n UInt64, s String", "ENGINE = MergeTree ORDER BY n"


@pytest.fixture
def store_name():
    return "sqlite"


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


class Wire:
    """A connection on which bytes are sent as they are."""

    def __init__(self, url):
        self.socket = socket.create_connection(split_url(url), timeout=60)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *pieces, pause=0):
        for piece in pieces:
            self.socket.sendall(piece if isinstance(piece, bytes) else piece.encode())
            time.sleep(pause)

    def line(self):
        while b"\r\n" not in self.rest:
            more = self.socket.recv(65536)
            assert more, f"closed behind {self.rest!r}"
            self.rest += more
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line

    def answer(self):
        """(status, headers, body) of one answer with a length or in chunks."""
        status = int(self.line().split(b" ")[1])
        headers = {}
        while line := self.line():
            name, value = line.decode().split(": ", 1)
            headers[name.lower()] = value
        if status < 200:
            return status, headers, b""
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.line(), 16):
                body += self.take(size)
                self.line()
            self.line()
        else:
            body = self.take(int(headers.get("content-length", 0)))
        return status, headers, body

    def take(self, size):
        while len(self.rest) < size:
            more = self.socket.recv(65536)
            assert more, "closed in a body"
            self.rest += more
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def rows(first, n):
    return "".join(f"{i}\trow {i}\n" for i in range(first, first + n)).encode()


# ---- clickhouse-go ----


def native_format(lab, first, n):
    """A block in the format Native, as go sends it."""
    reply = ask(
        lab.clickhouse("26.7").url,
        body=f"SELECT number + {first} AS n, concat('go ', toString(number)) AS s FROM numbers({n}) FORMAT Native",
    )
    return reply.ok().body


@pytest.mark.parametrize("method", [None, "LZ4", "ZSTD"])
def test_go(engine, lab, node, client, table, xid, method):
    with Wire(node.url) as wire:
        agent = "Host: chxa\r\nUser-Agent: clickhouse-go/2.40 (lv:go/1.24; os:linux)\r\nX-Clickhouse-User: default\r\n"
        question = "SELECT timezone(), version()"
        wire.send(
            f"POST /?database={engine.database}&default_format=Native HTTP/1.1\r\n{agent}Content-Length: {len(question)}\r\n"
            f"Accept-Encoding: gzip\r\n\r\n{question}"
        )
        status, headers, body = wire.answer()
        if headers.get("content-encoding") == "gzip":  # newer servers
            body = gzip.decompress(body)
        assert status == 200 and b"timezone" in body
        wire.send(
            f"POST /?database={engine.database}&default_format=Native HTTP/1.1\r\n{agent}Content-Length: 16\r\n\r\nDESCRIBE TABLE t"
        )
        assert wire.answer()[0] == 200
        client.begin(xid).ok(201)
        packing = "&compress=1&decompress=1" if method else ""
        wire.send(
            f"POST /?chxa_txn={xid}&database={engine.database}&default_format=Native{packing}"
            f"&query=INSERT+INTO+t+%28n%2C+s%29+FORMAT+Native&query_id=go-1 HTTP/1.1\r\n{agent}"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        for first in (0, 1000):
            block = native_format(lab, first, 1000)
            wire.send(chunk(native(lab.clickhouse("26.7"), method, block) if method else block))
        wire.send(LAST)
        status, headers, body = wire.answer()
        assert (status, body) == (200, b"") and headers["x-clickhouse-query-id"] == "go-1", body
        assert json.loads(headers["x-clickhouse-summary"])["written_rows"] == "2000"
    assert engine.count(table) == 0
    client.commit(xid).ok()
    assert engine.count(table) == 2000


# ---- clickhouse-rs ----


def row_binary(first, n):
    out = b""
    for i in range(first, first + n):
        text = f"rust {i}".encode()
        out += i.to_bytes(8, "little") + bytes([len(text)]) + text
    return out


def rust_head(engine, xid):
    return (
        f"POST /?chxa_txn={xid}&database={engine.database}&query=INSERT+INTO+t%28%60n%60%2C%60s%60%29+FORMAT+RowBinary&decompress=1 "
        "HTTP/1.1\r\nhost: chxa\r\nuser-agent: clickhouse-rs/0.14\r\ntransfer-encoding: chunked\r\n\r\n"
    )


def test_rust(engine, lab, node, client, table, xid):
    client.begin(xid).ok(201)
    with Wire(node.url) as wire:
        wire.send(rust_head(engine, xid))
        for first in range(0, 300, 100):
            wire.send(chunk(native(lab.clickhouse("26.7"), "LZ4", row_binary(first, 100))))
        wire.send(LAST)
        assert wire.answer()[0] == 200
    client.commit(xid).ok()
    assert engine.count(table) == 300


@pytest.mark.parametrize("where", ["between chunks", "in a chunk", "in a block"])
def test_rust_cancels_by_breaking_off(engine, lab, node, client, table, xid, where):
    client.begin(xid).ok(201)
    block = native(lab.clickhouse("26.7"), "LZ4", row_binary(0, 100))
    with Wire(node.url) as wire:
        wire.send(rust_head(engine, xid), chunk(block))
        if where == "in a chunk":
            wire.send(chunk(block)[: len(block) // 2])
        elif where == "in a block":
            wire.send(chunk(block[: len(block) // 2]))
    deadline = time.monotonic() + 20
    while client.get(xid).json.get("rows", 0) != 0 or node_writes(node):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client.commit(xid).ok()
    assert engine.count(table) == 0


def node_writes(node):
    text = ask(node.url, method="GET", path="/metrics").body.decode()
    return any(line.startswith("chxa_writes_in_flight") and not line.endswith(" 0") for line in text.splitlines())


# ---- Vector ----


def test_vector(engine, node, client, table, xid):
    assert ask(node.url, method="GET", path="/?query=SELECT%201").ok().body == b"1\n"
    client.begin(xid).ok(201)
    lines = b"".join(json.dumps({"n": i, "s": "vector"}).encode() + b"\n" for i in range(500))
    target = (
        "/?input_format_import_nested_json=1&input_format_skip_unknown_fields=0&date_time_input_format=best_effort"
        f"&param_database={engine.database}&param_table=t"
        "&query=INSERT+INTO+%7Bdatabase%3AIdentifier%7D.%7Btable%3AIdentifier%7D+FORMAT+JSONEachRow"
    )
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip", "X-Chxa-Transaction": xid, "X-Chxa-Write-Id": "batch-1"}
    for _ in range(2):  # it retries without any sign that it does
        ask(node.url, path=target, body=gzip.compress(lines, mtime=0), headers=headers).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 500


# ---- HTTP ----


def insert(engine, xid, more=""):
    return f"POST /?chxa_txn={xid}&database={engine.database}&query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\nHost: a\r\n{more}"


def test_chunk_extensions_trailers_and_a_second_request(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    with Wire(node.url) as wire:
        wire.send(
            insert(engine, xid, "Transfer-Encoding: chunked\r\n\r\n"),
            b'4;name="a;b"\r\n1\ta\n\r\n4\r\n2\tb\n\r\n0\r\nX-Sum: 1\r\n\r\n',
            "GET /ping HTTP/1.1\r\nHost: a\r\n\r\nGET /ping HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        assert wire.answer()[0] == 200
        assert wire.answer()[2] == b"Ok.\n" and wire.answer()[2] == b"Ok.\n"
    client.commit(xid).ok()
    assert engine.count(table) == 2


def test_a_dribbled_body(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    body = rows(0, 5)
    with Wire(node.url) as wire:
        wire.send(insert(engine, xid, f"Content-Length: {len(body)}\r\n\r\n"))
        wire.send(*[body[i : i + 1] for i in range(len(body))], pause=0.002)
        assert wire.answer()[0] == 200
    client.commit(xid).ok()
    assert engine.count(table) == 5


def test_a_half_close_behind_the_request(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    for request in (insert(engine, xid, "Content-Length: 4\r\n\r\n1\ta\n"), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nSELECT 1"):
        with Wire(node.url) as wire:
            wire.send(request)
            wire.socket.shutdown(socket.SHUT_WR)
            assert wire.answer()[0] == 200
    client.commit(xid).ok()
    assert engine.count(table) == 1


def test_expect_100_continue(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    with Wire(node.url) as wire:
        wire.send(insert(engine, xid, "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n"))
        assert wire.answer()[0] == 100
        wire.send("1\ta\n")
        assert wire.answer()[0] == 200
        wire.send("POST /?chxa_txn=nobody&query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert wire.answer()[0] == 404  # at once, without the body
    with Wire(node.url) as wire:
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nExpect: 100-continue\r\n\r\n")
        assert wire.answer()[0] == 100
        wire.send("SELECT 1")
        assert wire.answer()[2] == b"1\n"
    client.commit(xid).ok()


def test_smuggling_is_refused(node):
    both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /ping HTTP/1.1\r\n\r\n"
    twice = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\nContent-Length: 9\r\n\r\nSELECT 1"
    for request in (both, twice):
        with Wire(node.url) as wire:
            wire.send(request)
            assert wire.answer()[0] == 400
            assert wire.rest == b"" and wire.socket.recv(10) == b""  # and nothing behind it was answered


def test_http_1_0(node):
    with Wire(node.url) as wire:
        wire.send("POST / HTTP/1.0\r\nContent-Length: 34\r\n\r\nSELECT number FROM numbers(100000)")
        everything = b""
        while more := wire.socket.recv(65536):
            everything += more
        head, body = everything.split(b"\r\n\r\n", 1)
        assert b"chunked" not in head and body == b"".join(b"%d\n" % i for i in range(100_000))


def test_long_urls(node):
    assert ask(node.url, query="SELECT 1" + " " * 10_000).ok().body == b"1\n"
    assert ask(node.url, query="SELECT 1" + " " * 2_000_000).status == 414


def test_fifty_fast_clients_and_a_slow_clickhouse(engine, node, client, table, xid):
    """Back-pressure from end to end: what cannot be taken is not read."""
    client.begin(xid).ok(201)
    before = node.memory_peak_bytes()
    os.kill(engine.server.process.pid, signal.SIGSTOP)
    stop = threading.Event()

    def push(staged):
        with Wire(node.url) as wire:
            wire.socket.settimeout(1)
            words = insert(engine, xid) if staged else f"POST /?database={engine.database}&query=INSERT+INTO+t+FORMAT+TSV HTTP/1.1\r\nHost: a\r\n"
            wire.send(words + "Transfer-Encoding: chunked\r\n\r\n")
            piece = chunk(rows(0, 5_000))
            try:
                for _ in range(500):
                    if stop.is_set():
                        break
                    wire.send(piece)
            except (TimeoutError, OSError):
                pass

    try:
        threads = [threading.Thread(target=push, args=(i % 2 == 0,)) for i in range(50)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        stop.set()
        for thread in threads:
            thread.join()
        grown = node.memory_peak_bytes() - before
    finally:
        os.kill(engine.server.process.pid, signal.SIGCONT)
    assert grown < 64 << 20, grown
    client.rollback(xid).ok((200, 202))
