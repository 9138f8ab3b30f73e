# SPDX-License-Identifier: Apache-2.0
"""chxad itself: its command line, its start and stop, its small endpoints, and what it says to strangers."""
import re
import signal
import subprocess
import threading
import time

import pytest
import servers
from rest import Client, read_response

CHXAD = servers.BUILD / "chxad"


def run(*words):
    return subprocess.run(
        [str(CHXAD), *map(str, words)], capture_output=True, text=True, timeout=20, check=False
    )


def test_version_and_help():
    version = run("--version")
    assert version.returncode == 0 and re.fullmatch(r"chxad \d+\.\d+\.\d+\n", version.stdout)
    help_text = run("--help")
    assert help_text.returncode == 0
    for key in ("node", "listen", "advertise", "store", "cluster", "clickhouse", "idle_timeout_ms", "retention_ms"):
        assert f"--{key}" in help_text.stdout


def test_check_config(tmp_path):
    good = run("--check-config", "--node", "n1", "--store", f"sqlite:{tmp_path}/x.db")
    assert good.returncode == 0, good
    assert "n1" in good.stdout
    file = tmp_path / "chxad.conf"
    file.write_text("# a comment\nnode = from-file\nlisten = 127.0.0.1:0\n")
    good = run("--check-config", "--config", file)
    assert good.returncode == 0 and "from-file" in good.stdout, good
    good = run("--check-config", "--config", file, "--node", "from-flag")
    assert "from-flag" in good.stdout and "from-file" not in good.stdout
    for bad in ("nodes = n1\n", "node = n1\nidle_timeout_ms = soon\n", "node = n1\nidle_timeout_ms = 1\n", "node\n"):
        file.write_text(bad)
        answer = run("--check-config", "--config", file)
        assert answer.returncode != 0, bad
        assert str(file) in answer.stdout + answer.stderr, answer
    assert run("--nodes", "n1").returncode != 0
    assert run("--check-config", "--config", tmp_path / "missing").returncode != 0


def test_does_not_start_without_its_port(engine, node, folder):
    answer = run(
        "--node", "n2", "--listen", node.address, "--store", f"sqlite:{folder}/other.db",
        "--clickhouse", engine.server.url,
    )  # fmt: skip
    assert answer.returncode != 0
    assert node.address in answer.stdout + answer.stderr


def test_two_nodes_on_one_sqlite_file(engine, node, store_name, folder):
    """The embedded store is for one node: a second one never serves, and says why."""
    if store_name != "sqlite":
        pytest.skip("SQLite only")
    second = servers.Chxad(node.folder.with_name(node.folder.name + "-second"), "n2", node.store, engine.server)
    second.spawn()
    try:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline and second.process.poll() is None:
            assert not second.is_up()
            time.sleep(0.05)
        assert re.search(r"n1|lock|another|other", second.log_tail()), second.log_tail()
        Client(node.url).request("GET", "/readyz").ok()
    finally:
        second.stop()


def test_small_endpoints(engine, client):
    client.request("GET", "/healthz").ok()
    client.request("GET", "/readyz").ok()
    nodes = client.request("GET", "/v1/nodes").ok()["nodes"]
    assert [entry["node"] for entry in nodes] == ["n1"]
    metrics = client.request("GET", "/metrics").ok()
    assert metrics.headers["Content-Type"].startswith("text/plain")
    text = metrics.body.decode()
    # Prometheus text: every sample belongs to a family with HELP and TYPE.
    families = set(re.findall(r"^# TYPE (\w+) (?:counter|gauge|histogram|summary)$", text, re.M))
    assert families and families == set(re.findall(r"^# HELP (\w+) .+$", text, re.M))
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = re.fullmatch(r'(\w+)(\{[^}]*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)', line)
        assert found, line
        name = found.group(1)
        assert name in families or re.sub(r"_(bucket|sum|count)$", "", name) in families, line


def test_metrics_move(engine, client, xid):
    def value(pattern):
        text = client.request("GET", "/metrics").body.decode()
        return sum(float(number) for number in re.findall(rf"^{pattern} (\S+)$", text, re.M))

    before = value(r"chxa_\w*\{?.*")
    client.begin(xid).ok((200, 201))
    client.commit(xid).ok()
    assert value(r"chxa_\w*\{?.*") != before


def test_strangers(engine, client, xid):
    client.request("GET", "/v2/transactions").fails("ROUTE_NOT_FOUND")
    client.request("GET", "/v1/transactions/a/b/c").fails("ROUTE_NOT_FOUND")
    answer = client.request("PATCH", f"/v1/transactions/{xid}", b"").fails("METHOD_NOT_ALLOWED")
    assert {"GET", "PUT", "DELETE"} <= set(re.findall(r"\w+", answer.headers["Allow"]))
    client.request("PUT", f"/v1/transactions/{xid}", b"{not json").fails("INVALID_REQUEST")
    client.request("PUT", f"/v1/transactions/{xid}", b"[]").fails("INVALID_REQUEST")
    client.request("PUT", f"/v1/transactions/{xid}", b'{"timeout_ms": "soon"}').fails("INVALID_REQUEST")
    client.request("PUT", f"/v1/transactions/{xid}", b'{"timeout_ms": -1}').fails("INVALID_REQUEST")
    client.get(xid).fails("TXN_NOT_FOUND")
    client.request("GET", "/" + "x" * 2_000_000).fails("URI_TOO_LONG")
    client.request("GET", "/healthz", headers={"X-Long": "x" * 2_000_000}).fails("HEADERS_TOO_LARGE")
    for garbage in (b"\r\n\r\nhello\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET /healthz\r\n\r\n",
                    b"GET /healthz HTTP/1.1\nHost: x\n\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):  # fmt: skip
        with client.raw() as connection:
            connection.sendall(garbage)
            answer = read_response(connection)
            assert answer is None or 400 <= answer.status < 506, (garbage, answer)
    client.request("GET", "/healthz").ok()


def test_forget_only_what_is_finished(engine, client, xid):
    client.begin(xid).ok((200, 201))
    client.forget(xid).fails("WRONG_STATE")
    client.prepare(xid).ok()
    client.forget(xid).fails("WRONG_STATE")
    client.rollback(xid).ok()
    client.forget(xid).ok((200, 204))


def test_not_ready_without_clickhouse(lonely):
    """Alive but not ready: says so to everybody, and ends when told to."""
    client = Client(lonely.url)
    client.request("GET", "/readyz").fails("NOT_READY")
    client.begin("x").fails("NOT_READY")
    client.request("GET", "/metrics").ok()
    assert not lonely.is_up()
    assert lonely.stop() == 0


def test_clickhouse_falls_silent(engine, store_name, start_node):
    """/readyz says it after a while, and says when it is back; what needs no ClickHouse is served."""
    if store_name != "sqlite":
        pytest.skip("the store does not matter")
    client = Client(start_node(engine, store_name, clickhouse_down_ms=1000).url)
    assert "chxa_clickhouse_up 1" in client.request("GET", "/metrics").body.decode()
    engine.server.process.send_signal(signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 20
        while client.request("GET", "/readyz").status == 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "ClickHouse has not answered for" in client.request("GET", "/readyz").fails("NOT_READY").error["message"]
        assert "chxa_clickhouse_up 0" in client.request("GET", "/metrics").body.decode()
        client.begin("x").ok(201)
        client.rollback("x").ok()
    finally:
        engine.server.process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 20
    while client.request("GET", "/readyz").status != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    client.request("GET", "/readyz").ok()


def test_sigterm_lets_a_write_finish(engine, node, client, xid):
    """What runs is finished; a new connection is refused; the exit status is 0."""
    table = engine.make("t", "key UInt64", "ENGINE = MergeTree ORDER BY key PARTITION BY tuple()")
    client.begin(xid).ok((200, 201))
    answers = []

    def body():
        for block in range(20):
            yield b"".join(b"%d\n" % key for key in range(block * 1000, block * 1000 + 1000))
            time.sleep(0.05)

    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    thread = threading.Thread(target=lambda: answers.append(client.write(xid, statement, body(), write_id="w")))
    thread.start()
    time.sleep(0.3)
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(20) == 0
    thread.join()
    node.start()
    again = Client(node.url)
    record = again.get(xid).ok()
    assert record["state"] == "Initialized"
    written = answers and answers[0].status == 200
    assert [write["rows"] for write in record["writes"]] == ([20_000] if written else [])
    again.commit(xid).ok()
    assert engine.count(table) == (20_000 if written else 0)
