# SPDX-License-Identifier: Apache-2.0
"""Memory for bodies is one budget over all connections (body_memory_bytes_max): past it they wait unread, or are refused."""
import ctypes
import re
import threading
import time
import urllib.parse

import pytest
from front import ask
from rest import Client, read_response

MB = 1 << 20
# What one streaming write may hold (ch_upload_memory in server/ch/ch_http.h).
UPLOAD = 512 * 1024 + 128 * 1024 + 128 * 1024
COLUMNS = ", ".join(f"c{i} UInt64" for i in range(16))
DEFINITION = "ENGINE = MergeTree PARTITION BY tuple() ORDER BY tuple()"
ROW = b"".join(i.to_bytes(8, "little") for i in range(16))


@pytest.fixture
def store_name():
    return "sqlite"


def metric(node, name):
    text = ask(node.url, method="GET", path="/metrics").ok().body.decode()
    return sum(float(value) for value in re.findall(rf"^chxa_{name}(?:{{[^}}]*}})? (\S+)$", text, re.M))


def every(count, run):
    failures = []

    def guarded(i):
        try:
            run(i)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads, failures


def pieces(total):
    piece = ROW * (MB // 4 // len(ROW))
    for _ in range(total // len(piece)):
        yield piece


def test_sixty_four_bodies_wait_for_memory(engine, start_node, store_name, xid):
    """Half of them at each interface, all at once, in memory for seventeen."""
    most = 16 * MB
    node = start_node(engine, store_name, body_memory_bytes_max=most)
    client = Client(node.url)
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok(201)
    statement = f"INSERT INTO {table} FORMAT RowBinary"

    def write(i):
        body = pieces(2 * MB) if i % 4 < 2 else b"".join(pieces(2 * MB))
        if i % 2:
            client.write(xid, statement, body).ok()
        else:
            ask(node.url, chxa_txn=xid, query=statement, body=body).ok()

    threads, failures = every(64, write)
    held = []
    while any(thread.is_alive() for thread in threads):
        held.append(metric(node, "body_memory_bytes"))
        time.sleep(0.05)
    assert failures == []
    assert 0 < max(held) <= most + UPLOAD
    assert metric(node, "body_memory_short_total") > 0
    assert metric(node, "body_memory_bytes") == 0
    assert node.memory_peak_bytes() < 64 * MB
    client.commit(xid).ok()
    assert engine.count(table) == 64 * 2 * MB // len(ROW)


def wide_zstd(data, window_log):
    """A zstd frame that asks for a window of 2^window_log bytes, whatever is in it."""
    zstd = ctypes.CDLL("libzstd.so.1")

    class Buffer(ctypes.Structure):
        _fields_ = [("at", ctypes.c_char_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t)]

    zstd.ZSTD_createCCtx.restype = ctypes.c_void_p
    zstd.ZSTD_compressStream2.restype = ctypes.c_size_t
    context = ctypes.c_void_p(zstd.ZSTD_createCCtx())
    assert not zstd.ZSTD_isError(zstd.ZSTD_CCtx_setParameter(context, 101, window_log))
    space = ctypes.create_string_buffer(len(data) + 1024)
    out = Buffer(ctypes.cast(space, ctypes.c_char_p), len(space), 0)
    for part, directive in ((data, 0), (b"", 2)):
        source = Buffer(part, len(part), 0)
        left = zstd.ZSTD_compressStream2(context, ctypes.byref(out), ctypes.byref(source), directive)
        assert left == 0 or directive == 0
    zstd.ZSTD_freeCCtx(context)
    return space.raw[: out.pos]


def test_windows_of_packed_bodies_count(engine, start_node, store_name, xid):
    """Eight bodies want 32 MiB each to be unpacked, there is room for three: the others wait, or are refused and may come again."""
    node = start_node(engine, store_name, body_memory_bytes_max=104 * MB)
    client = Client(node.url)
    table = engine.make("t", "n UInt64", "ENGINE = MergeTree ORDER BY n")
    client.begin(xid).ok(201)
    rows = b"".join(b"%d\n" % n for n in range(30_000))
    body = wide_zstd(rows, 25)
    query = urllib.parse.urlencode({"chxa_txn": xid, "query": f"INSERT INTO {table} FORMAT TSV"})
    head = f"POST /?{query} HTTP/1.1\r\nHost: x\r\nContent-Encoding: zstd\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    half = len(body) // 2
    connections = [client.raw() for _ in range(8)]
    for connection in connections:
        connection.sendall(head + body[:half])
    deadline = time.monotonic() + 20
    while metric(node, "body_memory_short_total") == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    assert metric(node, "body_memory_short_total") > 0
    assert 3 * 32 * MB < metric(node, "body_memory_bytes") < 104 * MB
    taken = 0
    for connection in connections:
        connection.sendall(body[half:])
    for connection in connections:
        answer = read_response(connection)
        connection.close()
        if answer.status == 503:
            assert answer.headers["Retry-After"] and b"body_memory_bytes_max" in answer.body, answer
        else:
            assert answer.status == 200, answer
            taken += 1
    assert taken >= 3
    headers = {"Content-Encoding": "zstd"}
    ask(node.url, chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV", body=body, headers=headers).ok()
    # more than there will ever be
    refused = ask(
        node.url, chxa_txn=xid, query=f"INSERT INTO {table} FORMAT TSV", body=wide_zstd(rows, 27), headers=headers
    )
    assert refused.status == 415, refused
    assert metric(node, "body_memory_bytes") == 0
    client.commit(xid).ok()
    assert engine.count(table) == (taken + 1) * 30_000


def test_what_is_passed_through_counts(engine, start_node, store_name, xid):
    """Bodies that ClickHouse does not take to their end hold memory; more of them than fit are refused, a ping is not."""
    node = start_node(engine, store_name, body_memory_bytes_max=16 * MB)
    client = Client(node.url)
    connections = [client.raw() for _ in range(30)]
    for connection in connections:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nSELECT \r\n")
    deadline = time.monotonic() + 20
    while metric(node, "body_memory_short_total") == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ask(node.url, method="GET", path="/ping").ok().body == b"Ok.\n"
    assert metric(node, "body_memory_bytes") <= 16 * MB
    answers = []
    for connection in connections:
        connection.sendall(b"1\r\n1\r\n0\r\n\r\n")
        answers.append(read_response(connection))
        connection.close()
    statuses = {answer.status for answer in answers}
    assert statuses == {200, 503}
    assert sum(answer.status == 200 for answer in answers) >= 16
    assert metric(node, "body_memory_bytes") == 0
