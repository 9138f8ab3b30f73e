# SPDX-License-Identifier: Apache-2.0
"""libchxa against real servers, through the program of tests/contract/client, which makes one call per command."""
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from servers import BUILD

COLUMNS = "key UInt64, text String"
DEFINITION = "ENGINE = MergeTree PARTITION BY key % 2 ORDER BY key"
RANDOM, ROUND_ROBIN, FIRST = 0, 1, 2
PROGRAM = BUILD / "tests" / "contract_client_test_client"


class Answer(dict):
    def ok(self):
        assert self["code"] == 0 and self["same"], self
        return self

    def fails(self, name):
        assert self["name"] == name and self["same"], self
        assert self["message"], self
        return self


class Driver:
    """A process with one client in it."""

    def __init__(self, *command):
        self.process = subprocess.Popen([*command, PROGRAM, "drive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, *words):
        line = "\t".join("" if word is None else str(int(word) if isinstance(word, bool) else word) for word in words)
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait()}"
        return Answer(json.loads(line))

    def __call__(self, *words):
        self.send(*words)
        return self.receive()

    def close(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=30)
        self.process.stdout.close()
        return status


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    if driver.process.poll() is None:
        assert driver.close() == 0


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


@pytest.fixture
def opened(driver, node):
    driver("open", node.url, FIRST, 20000).ok()
    return driver


def insert(table):
    return f"INSERT INTO {table} FORMAT TabSeparated"


def test_life(opened, node, engine, table, xid):
    """Start, write in both ways, prepare with offsets, commit; each of them twice where that is allowed."""
    call = opened
    begun = call("start", xid, None, None, '{"offset": 1}').ok()
    assert begun["xid"] == xid and begun["url"] == node.url and begun["state"] == "Initialized"
    first = call("write", insert(table), 0, 1000, "a").ok()
    assert first["seq"] == 1 and first["parts"] == 2 and not first["replay"]
    assert call("write", insert(table), 0, 1000, "a").ok()["replay"]
    call("write", insert(table), 0, 999, "a").fails("WRITE_ID_REUSED")
    call("write_from", insert(table), 1000, 50000, True).ok()
    call("write_from", insert(table), 50000, 60000, False).ok()
    call("write", f"INSERT INTO {table} FORMAT JSONEachRow", 0, 10).fails("CLICKHOUSE_REJECTED")
    call("write", f"INSERT INTO {engine.table('nowhere')} FORMAT TSV", 0, 10).fails("TARGET_NOT_FOUND")
    given_up = call("write_from", insert(table), 0, 1000, True, 100).fails("CANCELLED")
    assert given_up["known"] and not given_up["retryable"]
    assert engine.count(table) == 0
    call("end").ok()
    call("write", insert(table), 0, 10).fails("MISUSE")
    call("commit", xid).fails("WRONG_STATE")
    for _ in range(2):
        assert call("prepare", xid, begun["url"], '{"offset": 17, "big": 9007199254740993}').ok()["state"] == "Prepared"
    record = call("get", xid).ok()["record"]
    assert record["writes"] == 3 and record["state"] == "Prepared"
    assert json.loads(record["meta"]) == {"offset": 17, "big": 9007199254740993}
    call("join", xid).fails("WRONG_STATE")
    for _ in range(2):
        assert call("commit", xid).ok()["state"] == "Committed"
    assert engine.value(f"SELECT count(), uniqExact(key), max(key) FROM {table}").split("\t") == ["60000", "60000", "59999"]
    call("rollback", xid).fails("WRONG_STATE")
    call("forget", xid).ok()
    call("forget", xid).ok()
    call("get", xid).fails("TXN_NOT_FOUND")
    call("commit", xid).fails("TXN_NOT_FOUND")
    assert call("rollback", xid).ok()["state"] == "Unknown"


def test_one_phase_join_and_rollback(opened, engine, table, xid):
    call = opened
    made = call("start", None).ok()["xid"]
    assert len(made) == 32
    call("write", insert(table), 0, 10).ok()
    call("free")
    assert call("join", made).ok()["xid"] == made
    call("write", insert(table), 10, 20).ok()
    call("commit", made, None, True).ok()
    assert engine.count(table) == 20
    call("free")
    call("start", xid).ok()
    call("write", insert(table), 0, 10).ok()
    call("prepare", xid).ok()
    call("rollback", xid).ok()
    call("rollback", xid).ok()
    refused = call("commit", xid).fails("ROLLED_BACK")
    assert refused["state"] == "Aborted" and refused["xa"] == 6
    assert engine.count(table) == 20
    assert engine.held_parts() == []


def test_arguments(opened, node, xid):
    """What is wrong is said before anything is sent."""
    call = opened
    for wrong in ("a b", "x" * 281, ".", "ü"):
        assert call("start", wrong).fails("INVALID_XID")["attempts"] == 0
        assert call("commit", wrong).fails("INVALID_XID")["attempts"] == 0
    assert call("start", xid, None, None, "{no json").fails("INVALID_REQUEST")["attempts"] == 0
    assert call("prepare", xid, "ftp://x").fails("INVALID_REQUEST")["attempts"] == 0
    assert call("prepare", xid, node.url + "/path").fails("INVALID_REQUEST")["attempts"] == 0
    call("close")
    for urls in ("", "127.0.0.1:1", "http://user@host", "http://host/path", "ftp://host", "http://h:0", "http://h:99999"):
        call("open", urls, FIRST).fails("INVALID_REQUEST")
    call("open", node.url, 7).fails("INVALID_REQUEST")


def test_recover_lists(opened, engine, table, xid):
    call = opened
    for number in range(7):
        call("start", f"{xid}-{number}", "s.1" if number % 2 else None, 1 if number % 2 else None).ok()
        call("free")
        if number >= 3:
            call("prepare", f"{xid}-{number}").ok()
    ids = lambda answer: [record["xid"] for record in answer.ok()["records"]]
    assert ids(call("recover", f"{xid}-")) == [f"{xid}-{n}" for n in range(7)]
    assert ids(call("recover", f"{xid}-", None, None, True)) == [f"{xid}-{n}" for n in range(3, 7)]
    assert ids(call("recover", f"{xid}-", "s.1", None, False, True)) == [f"{xid}-3", f"{xid}-5"]
    assert ids(call("recover", None, None, "nobody")) == []
    assert ids(call("recover", f"{xid}-", None, None, False, False, 3600000)) == []
    for number in range(7):
        call("rollback", f"{xid}-{number}").ok()


def test_request(opened, node, xid):
    call = opened
    assert call("request", None, "GET", "/healthz").ok()["body"] == "ok\n"
    listed = call("request", None, "GET", "/v1/nodes").ok()
    assert listed["status"] == 200 and json.loads(listed["body"])["nodes"]
    missing = call("request", node.url, "GET", f"/v1/transactions/{xid}").fails("TXN_NOT_FOUND")
    assert json.loads(missing["body"])["error"]["code"] == "TXN_NOT_FOUND" and missing["status"] == 404
    call("request", None, "GET", "/v1/nowhere").fails("ROUTE_NOT_FOUND")
    call("request", None, "get", "/v1/nodes").fails("INVALID_REQUEST")
    call("request", None, "GET", "no slash").fails("INVALID_REQUEST")


def test_sink_entry(opened, engine, table, xid):
    call, sink = opened, f"job.{xid}"
    empty = call("last_committed", sink).ok()
    assert empty["last"] == "" and empty["epoch"] == 0 and empty["meta"] is None
    for number in (1, 2, 3):
        call("start", f"{xid}-{number}", sink, 4).ok()
        call("write", insert(table), number * 10, number * 10 + 10).ok()
        call("free")
        if number < 3:
            call("prepare", f"{xid}-{number}", None, f'{{"offset":{number}}}').ok()
    call("sink_recover", sink, 3, 10000, f"{xid}-1").fails("FENCED")
    for _ in range(2):
        call("sink_recover", sink, 5, 10000, f"{xid}-1").ok()
    last = call("last_committed", sink).ok()
    assert last["last"] == f"{xid}-1" and last["epoch"] == 5 and json.loads(last["meta"]) == {"offset": 1}
    assert call("get", f"{xid}-2").ok()["record"]["state"] == "Aborted"
    assert call("get", f"{xid}-3").ok()["record"]["state"] == "Aborted"
    assert engine.count(table) == 10
    call("start", f"{xid}-4", sink, 4).fails("FENCED")
    call("sink_recover", sink, 6, 10000, f"{xid}-2").fails("ROLLED_BACK")


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_node_restarted_in_between(opened, node, engine, table, xid):
    """A node killed after prepare: the commit waits for it, and finishes."""
    call = opened
    call("start", xid).ok()
    call("write", insert(table), 0, 1000).ok()
    call("prepare", xid).ok()
    node.kill()
    refused = call("commit", xid, None, False, 1500).fails("UNREACHABLE")
    assert refused["known"] and refused["retryable"] and refused["attempts"] > 2
    call.send("commit", xid)
    time.sleep(1)
    node.start()
    assert call.receive().ok()["attempts"] > 1
    assert engine.count(table) == 1000


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_deadline(opened, node, engine, table, xid):
    """No call takes longer than it was told to, whatever the node does."""
    call = opened
    call("start", xid).ok()
    call("prepare", xid).ok()
    node.process.send_signal(19)  # SIGSTOP
    try:
        for words in (("commit", xid, None, False, 1000), ("prepare", xid, None, None, 1000), ("rollback", xid, None, None, 1000)):
            before = time.monotonic()
            answer = call(*words)
            took = time.monotonic() - before
            assert answer["name"] == "LOST" and answer["retryable"], answer
            assert 0.7 < took < 4, took
    finally:
        node.process.send_signal(18)
    call("rollback", xid).ok()


def test_stream(opened, engine, table, xid):
    """Ten thousand appends, few writes; cut by rows; ended by silence; nothing seen before the commit."""
    call = opened
    call("start", xid).ok()
    call("stream_open", insert(table), None, 100000).ok()
    call("end").fails("MISUSE")
    call("append", 0, 250000, 25).ok()
    call("flush").ok()
    totals = call("totals").ok()
    assert totals["writes"] == 3 and totals["rows"] == 250000 and totals["retries"] == 0
    call("append", 250000, 250010).ok()
    deadline = time.monotonic() + 10
    while call("totals")["writes"] < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert call("get", xid).ok()["record"]["writes"] == 4
    call("append", 250010, 250020).ok()
    call("stream_abort").ok()
    call("stream_open", insert(table)).ok()
    call("append", 250010, 300000, 1000).ok()
    call("stream_close").ok()
    call("end").ok()
    call("prepare", xid).ok()
    assert engine.count(table) == 0
    call("commit", xid).ok()
    assert engine.value(f"SELECT count(), uniqExact(key), max(key) FROM {table}").split("\t") == ["300000", "300000", "299999"]


def test_stream_refused(opened, engine, table, xid):
    """ClickHouse's own words come with the next call, and nothing of the write stays."""
    call = opened
    call("start", xid).ok()
    call("stream_open", f"INSERT INTO {table} FORMAT JSONEachRow").ok()
    call("append", 0, 10).ok()
    refused = call("flush").fails("CLICKHOUSE_REJECTED")
    assert "JSON" in refused["message"] or "parse" in refused["message"].lower()
    call("append", 0, 10).fails("FAILED_BEFORE")
    call("stream_close").fails("FAILED_BEFORE")
    call("stream_open", f"INSERT INTO {engine.table('nowhere')} FORMAT TSV").ok()
    code = "OK"
    for _ in range(50):
        code = call("append", 0, 100000, 100000)["name"]
        if code != "OK":
            break
    assert code == "TARGET_NOT_FOUND"
    call("stream_abort").ok()
    call("stream_open", insert(table)).ok()
    call("append", 0, 10).ok()
    call("stream_close").ok()
    call("end").ok()
    call("commit", xid, None, True).ok()
    assert engine.count(table) == 10


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_stream_over_a_restart(opened, node, engine, table, xid):
    """The node dies under a write that is kept in memory: it is sent again, and is there once."""
    call = opened
    call("start", xid).ok()
    call("stream_open", insert(table), None, None, 20000).ok()
    call("append", 0, 50000, 100).ok()
    time.sleep(0.3)
    node.kill()
    node.start()
    call("append", 50000, 60000, 100).ok()
    call("flush").ok()
    assert call("totals").ok()["retries"] > 0
    call("stream_close").ok()
    call("end").ok()
    call("prepare", xid).ok()
    call("commit", xid).ok()
    assert engine.value(f"SELECT count(), uniqExact(key) FROM {table}").split("\t") == ["60000", "60000"]


@pytest.mark.parametrize("store_name", ["sqlite"])
@pytest.mark.parametrize("engine_name", ["18.16"])
def test_under_valgrind(node, engine, table, xid):
    """No error and no leak with a real server either."""
    if not shutil.which("valgrind"):
        pytest.skip("no valgrind")
    call = Driver("valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect", "--error-exitcode=9")
    call("open", node.url, FIRST, 60000).ok()
    call("start", xid).ok()
    call("write", insert(table), 0, 1000).ok()
    call("write", f"INSERT INTO {table} FORMAT JSONEachRow", 0, 10).fails("CLICKHOUSE_REJECTED")
    call("stream_open", insert(table), None, 2000).ok()
    call("append", 1000, 6000, 100).ok()
    call("stream_close").ok()
    call("stream_open", insert(table)).ok()
    call("append", 6000, 7000, 100).ok()
    call("stream_abort").ok()
    call("end").ok()
    call("prepare", xid, None, '{"offset": 6000}').ok()
    call("recover", xid).ok()
    call("get", xid).ok()
    call("commit", xid).ok()
    call("get", "nothing").fails("TXN_NOT_FOUND")
    assert call.close() == 0
    assert engine.count(table) == 6000


class CuttingProxy:
    """In front of a node: resets one connection when so many bytes have gone one way in all, and none after that."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.node, self.way, self.left, self.cuts = None, "up", -1, 0
        self.lock = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def cut_after(self, way, size):
        with self.lock:
            self.way, self.left, self.cuts = way, size, 0

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.node.address.split(":")
            there = socket.create_connection((host, int(port)))
            for way, source, to in (("up", client, there), ("down", there, client)):
                threading.Thread(target=self.copy, args=(way, source, to), daemon=True).start()

    def allowed(self, way, data):
        with self.lock:
            if way != self.way or self.left < 0:
                return data
            part, self.left = data[: self.left], self.left - len(data)
            self.cuts += self.left < 0
            return part

    def copy(self, way, source, to):
        try:
            while data := source.recv(65536):
                part = self.allowed(way, data)
                to.sendall(part)
                if len(part) < len(data):
                    for one in (source, to):
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        one.shutdown(socket.SHUT_RDWR)
                    break
        except OSError:
            pass
        # The other direction's thread sees the end by itself.
        for one in (source, to):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()


@pytest.mark.parametrize("way, step", [("up", 333), ("down", 222)])
def test_cut_anywhere(driver, engine_name, engine, table, start_node, xid, way, step):
    """The connection breaks once, after 0, 1 step, 2 steps … bytes: every life ends well, and every row is there once."""
    proxy, call = CuttingProxy(), driver
    proxy.node = start_node(engine, "sqlite", advertise=proxy.url)
    call("open", proxy.url, FIRST, 20000).ok()
    lives = 0
    while True:
        first = lives * 1000
        proxy.cut_after(way, lives * step)
        call("start", f"{xid}-{lives}").ok()
        call("write", insert(table), first, first + 100).ok()
        call("write_from", insert(table), first + 100, first + 200, True).ok()
        call("stream_open", insert(table), None, 50).ok()
        call("append", first + 200, first + 300, 10).ok()
        call("stream_close").ok()
        call("free")
        call("prepare", f"{xid}-{lives}").ok()
        call("commit", f"{xid}-{lives}").ok()
        lives += 1
        if proxy.cuts == 0:
            break
    assert lives > 10
    assert engine.value(f"SELECT count(), uniqExact(key) FROM {table}").split("\t") == [str(lives * 300)] * 2
    proxy.listener.close()


class TlsProxy:
    """TLS in front of a node, with the credentials that it wants; what it was sent is kept."""

    def __init__(self, node, folder, client_certificates=False):
        folder.mkdir()
        self.certificate, self.key = folder / "certificate.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext",
             "subjectAltName=IP:127.0.0.1", "-keyout", self.key, "-out", self.certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if client_certificates:
            context.load_verify_locations(self.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        self.node, self.heads = node, []
        self.listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.url = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except ssl.SSLError:
                continue
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        host, port = self.node.address.split(":")
        with connection, socket.create_connection((host, int(port))) as there:
            threading.Thread(target=self.copy, args=(there, connection), daemon=True).start()
            while data := connection.recv(65536):
                self.heads.append(data.split(b"\r\n\r\n")[0])
                there.sendall(data)

    @staticmethod
    def copy(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
        except OSError:
            pass

    def close(self):
        self.listener.close()


@pytest.mark.parametrize("store_name", ["sqlite"])
@pytest.mark.parametrize("engine_name", ["18.16"])
def test_tls(driver, node, engine, table, xid, tmp_path):
    """Certificates are verified, credentials go along, and nothing goes from https to http."""
    call, tls = driver, TlsProxy(node, tmp_path / "tls")
    call("open", tls.url, FIRST, 1000).ok()
    refused = call("start", xid).fails("UNREACHABLE")
    assert "certificate" in refused["message"] and not refused["retryable"] and refused["attempts"] == 1
    call("close")
    call("open", f"{tls.url},{node.url}", FIRST, 5000).ok()
    assert call("start", xid).ok()["url"] == node.url  # the next node, at once
    call("free")
    call("rollback", xid).ok()
    call("forget", xid).ok()
    call("close")
    call("open", tls.url, FIRST, 5000, None, None, None, tls.certificate, "anna", "secret").ok()
    assert call("start", xid).ok()["url"] == tls.url  # the node names its plain address
    call("write", insert(table), 0, 100000).ok()
    call("stream_open", insert(table)).ok()
    call("append", 100000, 200000, 100).ok()
    call("stream_close").ok()
    call("prepare", xid, node.url).fails("INVALID_REQUEST")
    call("prepare", xid, tls.url).ok()
    call("commit", xid).ok()
    assert engine.count(table) == 200000
    heads = [head for head in tls.heads if b" HTTP/1.1" in head]
    assert heads and all(b"Authorization: Basic YW5uYTpzZWNyZXQ=" in head for head in heads)
    tls.close()


@pytest.mark.parametrize("store_name", ["sqlite"])
@pytest.mark.parametrize("engine_name", ["18.16"])
def test_client_certificate(driver, node, engine, xid, tmp_path):
    call, tls = driver, TlsProxy(node, tmp_path / "tls", client_certificates=True)
    call("open", tls.url, FIRST, 1500, None, None, None, tls.certificate).ok()
    assert call("start", xid)["code"] < 0
    call("close")
    call("open", tls.url, FIRST, 5000, None, None, None, tls.certificate, None, None, tls.certificate, tls.key).ok()
    call("start", xid).ok()
    call("commit", xid, None, True).ok()
    tls.close()


@pytest.fixture(params=["18.16", "26.7"])
def pair(request, start_pair):
    engines, nodes = start_pair(request.param)
    for engine in engines:
        engine.make("t", COLUMNS, DEFINITION)
    return engines, nodes


def test_two_nodes(pair, driver, xid):
    """Spread by round robin, pinned to the owner, found through the other node, recovered at both."""
    (one, two), (n1, n2) = pair
    call = driver
    call("open", f"{n1.url},{n2.url}", ROUND_ROBIN, 20000).ok()
    owners = {}
    for number in range(4):
        begun = call("start", f"{xid}-{number}", "both", 1).ok()
        owners[number] = begun["url"]
        table = (one if begun["url"] == n1.url else two).table("t")
        call("write", insert(table), number * 100, number * 100 + 100).ok()
        call("free")
    assert sorted(owners.values()) == sorted([n1.url, n2.url] * 2)
    # Without knowing the owner, or with a wrong idea of it.
    call("prepare", f"{xid}-0").ok()
    call("prepare", f"{xid}-1", n1.url if owners[1] == n2.url else n2.url).ok()
    assert call("prepare", f"{xid}-2", owners[2]).ok()["owner_url"] == owners[2]
    call("close")
    call("open", n1.url, FIRST, 20000, 0).ok()
    theirs = next(number for number in (0, 1) if owners[number] == n2.url)
    call("commit", f"{xid}-{theirs}").fails("REDIRECTS")
    call("close")
    call("open", f"{n1.url},{n2.url}", FIRST, 20000).ok()
    call("sink_recover", "both", 2, 15000, f"{xid}-0", f"{xid}-1").ok()
    assert [call("get", f"{xid}-{n}").ok()["record"]["state"] for n in range(4)] == ["Committed"] * 2 + ["Aborted"] * 2
    assert one.count(one.table("t")) + two.count(two.table("t")) == 200
    # The first node away: the next one serves, and its own transactions go on.
    n1.kill()
    begun = call("start", f"{xid}-9").ok()
    assert begun["url"] == n2.url
    call("write", insert(two.table("t")), 1000, 1100).ok()
    call("commit", f"{xid}-9", begun["url"], True).ok()
    n1.start()
