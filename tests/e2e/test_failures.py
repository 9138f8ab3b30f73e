# SPDX-License-Identifier: Apache-2.0
"""A write that goes wrong is refused as a whole, and the transaction goes on.

Each test ends the same way: a good write and a commit, after which the table holds exactly the rows of
the good writes.
"""
import socket
import struct
import time
import urllib.parse

import pytest
from rest import Client, read_response

COLUMNS = "key UInt64"
DEFINITION = "ENGINE = MergeTree PARTITION BY key % 2 ORDER BY key"
# More than one block of 1048576 rows.
MANY = 2_500_000


class Writes:
    """A transaction with one table, and the check at the end."""

    def __init__(self, engine, client, xid):
        self.engine, self.client, self.xid = engine, client, xid
        self.table = engine.make("t", COLUMNS, DEFINITION)
        self.statement = f"INSERT INTO {self.table} FORMAT TabSeparated"
        client.begin(xid).ok((200, 201))
        client.write(xid, self.statement, b"1\n2\n").ok()

    def target(self):
        return Client.path(self.xid, "writes", query=self.statement)

    def finish(self):
        record = self.client.get(self.xid).ok()
        assert record["state"] == "Initialized"
        assert [write["rows"] for write in record["writes"]] == [2]
        assert len(self.engine.held_parts()) == 2
        self.client.write(self.xid, self.statement, b"3\n4\n5\n").ok()
        self.client.prepare(self.xid).ok()
        self.client.commit(self.xid).ok()
        assert self.engine.value(f"SELECT groupArray(key) FROM (SELECT key FROM {self.table} ORDER BY key)") == (
            "[1,2,3,4,5]"
        )
        assert self.engine.held() == []
        assert self.engine.detached("t") == []


@pytest.fixture
def writes(engine, client, xid):
    writes = Writes(engine, client, xid)
    yield writes
    writes.finish()


def test_bad_row(writes):
    answer = writes.client.write(writes.xid, writes.statement, b"10\nnot a number\n11\n")
    answer.fails("CLICKHOUSE_REJECTED")
    # ClickHouse's own words, whole.
    assert "Code: 27" in answer.error["message"]


def test_bad_row_in_the_third_block(writes):
    body = b"".join(b"%d\n" % key for key in range(MANY)) + b"not a number\n"
    answer = writes.client.write(writes.xid, writes.statement, body)
    answer.fails("CLICKHOUSE_REJECTED")


def test_exception_in_the_middle_of_a_select(writes):
    """throwIf over more than one block: the first blocks are in the scratch table already."""
    statement = (
        f"INSERT INTO {writes.table} SELECT throwIf(number = {MANY} - 1) + number FROM numbers({MANY})"
        if not writes.engine.is_old
        else f"INSERT INTO {writes.table} SELECT toUInt64(if(number = {MANY} - 1, 'x', '7')) FROM numbers({MANY})"
    )
    writes.client.write(writes.xid, statement).fails("CLICKHOUSE_REJECTED")


def test_the_machine_has_restarted(engine, store_name, start_node):
    """What was written and not prepared may be damaged by a power cut: it is rolled back. What was prepared stays."""
    node = start_node(engine, store_name, session_timeout_ms=1000)
    client = Client(node.url)
    table = engine.make("t", "key UInt64", "ENGINE = MergeTree ORDER BY key PARTITION BY tuple()")
    for xid in ("written", "prepared", "begun"):
        client.begin(xid).ok(201)
        if xid != "begun":
            client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"1\n").ok()
    client.prepare("prepared").ok()
    assert node.stop() == 0
    for owner in (root / "chxa" / "owner" for root in engine.roots()):
        line = owner.read_text().split()
        owner.write_text(f"{line[0]} {line[1]} 00000000-0000-0000-0000-000000000000\n")
    node.start()
    deadline = time.monotonic() + 20
    while client.get("written").ok()["state"] == "Aborting" and time.monotonic() < deadline:
        time.sleep(0.05)
    record = client.get("written").ok()
    assert (record["state"], record["reason"]) == ("Aborted", "the machine has restarted before this was prepared")
    assert client.get("prepared").ok()["state"] == "Prepared"
    # Seen to once: what is written from now on lives through a restart of the process.
    client.write("begun", f"INSERT INTO {table} FORMAT TabSeparated", b"2\n").ok()
    assert node.stop() == 0
    node.start()
    for xid in ("begun", "prepared"):
        client.commit(xid).ok()
    assert engine.count(table) == 2
    assert engine.held() == []


def test_syntax_error(writes):
    writes.client.write(writes.xid, f"INSERT INTO {writes.table} FORMAT NoSuchFormat", b"1\n").fails(
        "CLICKHOUSE_REJECTED"
    )
    for statement in ("", "SELECT 1", "DROP TABLE " + writes.table, "INSERT", "INSERT INTO", ";"):
        answer = writes.client.write(writes.xid, statement, b"").fails("INVALID_QUERY")
        assert (answer["xid"], answer["state"]) == (writes.xid, "Initialized")
    writes.client.write(writes.xid, f"INSERT INTO {writes.table} VALUES (1); DROP TABLE {writes.table}").fails(
        "INVALID_QUERY"
    )


def test_settings_that_break_atomicity(writes):
    for setting in ("async_insert = 1", "wait_for_async_insert=0", "timeout_overflow_mode = 'break'", "insert_deduplication_token = 'x'"):
        statement = f"INSERT INTO {writes.table} SETTINGS {setting} FORMAT TabSeparated"
        answer = writes.client.write(writes.xid, statement, b"10\n").fails("SETTING_REFUSED")
        assert (answer["xid"], answer["state"], answer["owner"]) == (writes.xid, "Initialized", "n1")


def head(writes, *headers, method="POST"):
    lines = [f"{method} {writes.target()} HTTP/1.1", "Host: chxa", *headers, "", ""]
    return "\r\n".join(lines).encode()


# How a body can stop short. Each: the bytes after the head, and what stands in the head.
CUTS = {
    "content-length": (("Content-Length: 100",), b"10\n11\n"),
    "content-length, at a row's end after one byte less": (("Content-Length: 7",), b"10\n11\n"),
    "no last chunk": (("Transfer-Encoding: chunked",), b"6\r\n10\n11\n\r\n"),
    "inside a chunk": (("Transfer-Encoding: chunked",), b"60\r\n10\n11\n"),
    "inside a chunk's size": (("Transfer-Encoding: chunked",), b"6\r\n10\n11\n\r\n1"),
    "after a chunk's size": (("Transfer-Encoding: chunked",), b"6\r\n10\n11\n\r\n5\r\n"),
    "before the chunk's line end": (("Transfer-Encoding: chunked",), b"6\r\n10\n11\n"),
    "after the last chunk, before the final line": (("Transfer-Encoding: chunked",), b"6\r\n10\n11\n\r\n0\r\n"),
    "nothing at all": (("Content-Length: 6",), b""),
}


@pytest.mark.parametrize("cut", CUTS)
def test_body_cut_short_then_half_closed(writes, cut):
    """The client shuts its side down and still listens: it is told that nothing was kept."""
    headers, body = CUTS[cut]
    with writes.client.raw() as connection:
        connection.sendall(head(writes, *headers) + body)
        connection.shutdown(socket.SHUT_WR)
        answer = read_response(connection)
    assert answer is not None
    answer.check_error_form()
    answer.fails("BODY_TRUNCATED")


@pytest.mark.parametrize("cut", ["content-length", "no last chunk", "inside a chunk"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_client_vanishes(writes, cut, how):
    headers, body = CUTS[cut]
    connection = writes.client.raw()
    connection.sendall(head(writes, *headers) + body)
    # Late enough that the write has begun.
    time.sleep(0.2)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    time.sleep(0.2)


def test_client_vanishes_in_a_large_body(writes):
    """After several blocks have reached ClickHouse."""
    connection = writes.client.raw()
    connection.sendall(head(writes, "Transfer-Encoding: chunked"))
    block = b"".join(b"%d\n" % key for key in range(100, 100_100))
    for _ in range(25):
        connection.sendall(b"%x\r\n" % len(block) + block + b"\r\n")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    time.sleep(0.5)


def test_client_vanishes_before_the_answer(engine, client, xid):
    """The body was whole: the write may or may not be kept, and its write_id tells which."""
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client.begin(xid).ok((200, 201))
    target = Client.path(xid, "writes", query=statement, write_id="w")
    connection = client.raw()
    connection.sendall(f"POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n1\n2\n".encode())
    connection.close()
    answer = client.write(xid, statement, b"1\n2\n", write_id="w")
    while answer.status == 503:
        time.sleep(0.05)
        answer = client.write(xid, statement, b"1\n2\n", write_id="w")
    answer.ok()
    client.commit(xid).ok()
    assert engine.value(f"SELECT count(), sum(key) FROM {table}") == "2\t3"


# Bodies and heads that HTTP does not allow. Each is answered 4xx and the connection closed.
BROKEN = {
    "chunk size that is none": (("Transfer-Encoding: chunked",), b"xyz\r\n10\n\r\n0\r\n\r\n"),
    "chunk longer than its size": (("Transfer-Encoding: chunked",), b"2\r\n10\n11\n\r\n0\r\n\r\n"),
    "both lengths": (("Content-Length: 3", "Transfer-Encoding: chunked"), b"3\r\n10\n\r\n0\r\n\r\n"),
    "two different lengths": (("Content-Length: 3", "Content-Length: 6"), b"10\n11\n"),
    "negative length": (("Content-Length: -3",), b"10\n"),
    "length that is none": (("Content-Length: 3x",), b"10\n"),
    "huge length": (("Content-Length: 99999999999999999999999",), b"10\n"),
    "unknown coding": (("Transfer-Encoding: gzip",), b"10\n"),
    "neither length": ((), b"10\n"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_framing(writes, fault):
    headers, body = BROKEN[fault]
    with writes.client.raw() as connection:
        connection.sendall(head(writes, *headers) + body)
        answer = read_response(connection)
        assert answer is not None and 400 <= answer.status < 500, answer
        answer.check_error_form()
        if fault == "neither length":
            answer.fails("LENGTH_REQUIRED")


def test_slow_and_idle_bodies(engine, store_name, start_node, xid):
    client = Client(start_node(engine, store_name, http_body_idle_timeout_ms=500).url)
    writes = Writes(engine, client, xid)
    # Dribbled, but never idle: fine.
    with client.raw() as connection:
        connection.sendall(head(writes, "Content-Length: 12"))
        for byte in b"not a number":
            connection.sendall(bytes([byte]))
            time.sleep(0.06)
        read_response(connection).fails("CLICKHOUSE_REJECTED")
    # Idle: 408, and nothing kept.
    with client.raw() as connection:
        connection.sendall(head(writes, "Content-Length: 100") + b"10\n")
        answer = read_response(connection)
        answer.check_error_form()
        answer.fails("REQUEST_TIMEOUT")
    writes.finish()


def test_expect_100_continue(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client.begin(xid).ok((200, 201))
    request = (
        f"POST {Client.path(xid, 'writes', query=statement)} HTTP/1.1\r\nHost: x\r\n"
        "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    ).encode()
    with client.raw() as connection:
        connection.sendall(request)
        connection.settimeout(10)
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"1\n2\n")
        read_response(connection).ok()
    # A request that cannot succeed is told so before it sends its body.
    with client.raw() as connection:
        connection.sendall(request.replace(xid.replace(":", "%3A").encode(), b"nobody").replace(xid.encode(), b"nobody"))
        read_response(connection).fails("TXN_NOT_FOUND")
    client.commit(xid).ok()
    assert engine.count(table) == 2


def test_keep_alive_and_pipelining(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = urllib.parse.quote(f"INSERT INTO {table} FORMAT TabSeparated")
    client.begin(xid).ok((200, 201))
    one = f"POST /v1/transactions/{xid}/writes?query={statement} HTTP/1.1\r\nHost: x\r\n"
    with client.raw() as connection:
        # Two writes, a chunked one with extensions and a trailer among them, and a commit, in one packet.
        connection.sendall(
            (
                one
                + "Content-Length: 2\r\n\r\n1\n"
                + one
                + "Transfer-Encoding: chunked\r\n\r\n1;a=b\r\n2\r\n1\r\n\n\r\n0\r\nX-Trailer: 1\r\n\r\n"
                + f"POST /v1/transactions/{xid}/commit HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            ).encode()
        )
        answers = []
        reader = connection.makefile("rb")
        for _ in range(3):
            answers.append(_read_one(reader))
        assert [status for status, _ in answers] == [200, 200, 200], answers
        # And it is still open.
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _read_one(reader)[0] == 200
    assert engine.value(f"SELECT count(), sum(key) FROM {table}") == "2\t3"


def _read_one(reader):
    """One response off a buffered stream that holds several."""
    status = int(reader.readline().split()[1])
    length = 0
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return status, reader.read(length)


def test_half_close_after_a_complete_request(engine, client, xid):
    """The answer still arrives, and a decided commit is not cancelled."""
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"1\n").ok()
    with client.raw() as connection:
        connection.sendall(
            f"POST {Client.path(xid, 'commit')} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        assert read_response(connection).ok()["state"] == "Committed"
    assert engine.count(table) == 1


def test_commit_goes_on_without_its_client(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"1\n").ok()
    client.prepare(xid).ok()
    connection = client.raw()
    connection.sendall(
        f"POST {Client.path(xid, 'commit')} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
    )
    connection.close()
    deadline = time.monotonic() + 10
    while client.get(xid).ok()["state"] != "Committed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.get(xid)["state"] == "Committed"
    assert engine.count(table) == 1


def test_body_larger_than_allowed(engine, store_name, start_node, xid):
    client = Client(start_node(engine, store_name, body_bytes_max=1000).url)
    writes = Writes(engine, client, xid)
    body = b"10\n" * 1000
    client.write(xid, writes.statement, body).fails("BODY_TOO_LARGE")
    with client.raw() as connection:
        chunks = b"".join(b"3\r\n10\n\r\n" for _ in range(1000)) + b"0\r\n\r\n"
        connection.sendall(head(writes, "Transfer-Encoding: chunked") + chunks)
        read_response(connection).fails("BODY_TOO_LARGE")
    writes.finish()


def test_clickhouse_goes_away_and_comes_back(start_node, xid, folder, engine_name, store_name):
    """A ClickHouse of its own, stopped between write and commit."""
    import servers
    from tables import Engine

    if engine_name == "18.16":
        server = servers.ClickHouse18(folder / f"away-{xid.replace(':', '-')}-18")
    else:
        server = servers.ClickHouse26(folder / f"away-{xid.replace(':', '-')}-26")
    server.start()
    try:
        engine = Engine(server, "away")
        engine.create()
        client = Client(start_node(engine, store_name, commit_retry_ms=200).url)
        table = engine.make("t", COLUMNS, DEFINITION)
        statement = f"INSERT INTO {table} FORMAT TabSeparated"
        client.begin(xid).ok((200, 201))
        client.write(xid, statement, b"1\n2\n").ok()
        server.kill()
        assert client.write(xid, statement, b"3\n").code in ("CLICKHOUSE_UNAVAILABLE", "CLICKHOUSE_UNKNOWN")
        client.commit(xid, wait_ms=300)
        assert client.get(xid).ok()["state"] in ("Initialized", "Prepared", "Committing")
        server.spawn()
        server.wait_up()
        deadline = time.monotonic() + 30
        while client.commit(xid).status != 200 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert client.get(xid)["state"] == "Committed"
        assert engine.value(f"SELECT count(), sum(key) FROM {table}") == "2\t3"
    finally:
        server.stop()
