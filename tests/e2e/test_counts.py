# SPDX-License-Identifier: Apache-2.0
"""What a transaction costs in counts, which no busy machine changes: statements, store operations, system calls.

A node that has seen the table before is measured, as it is in life: the scratch table is there, and the table's
definition is known and was not touched for a while. A count that falls is written down here as the new bound.
"""
import collections
import re
import shutil
import signal
import subprocess
import time

import pytest
from rest import Client

COLUMNS = "day Date, key UInt32, value String"
DEFINITION = "ENGINE = MergeTree PARTITION BY tuple() ORDER BY key"
SETTLED_SECONDS = 1.2  # of a definition's file: above what table_stamp.c waits for
WRITES = 20


def rows(number):
    return f"2024-01-01\t{number}\tvalue {number}\n".encode()


def counters(client, name):
    """{first label: sum} of a counter with two labels."""
    found = collections.Counter()
    text = client.request("GET", "/metrics").ok().body.decode()
    for first, value in re.findall(rf'^chxa_{name}\{{\w+="([^"]*)",[^}}]*\}} (\d+)', text, re.M):
        found[first] += int(value)
    return found


def transaction(client, table, xid, writes, **fields):
    client.begin(xid, **fields).ok((200, 201))
    for number in range(writes):
        client.write(xid, f"INSERT INTO {table} (day, key, value) FORMAT TabSeparated", rows(number)).ok()
    client.prepare(xid).ok()
    assert client.commit(xid).ok()["state"] == "Committed"


def make_warm(engine, client, xid):
    """A table that the node knows; and its scratch table has been used."""
    table = engine.make("t", COLUMNS, DEFINITION)
    time.sleep(SETTLED_SECONDS)
    transaction(client, table, f"{xid}:first", 2)
    return table


@pytest.fixture
def warm_table(engine, client, xid):
    return make_warm(engine, client, xid)


def least(client, name, work):
    """The least that three runs of work(number) added to a counter: the node looks after ClickHouse besides."""
    runs = []
    for number in range(3):
        before = counters(client, name)
        work(number)
        runs.append(counters(client, name) - before)
    return min(runs, key=lambda run: run.total())


@pytest.mark.parametrize("writes", (1, WRITES))
def test_statements(client, xid, warm_table, writes):
    sent = least(
        client,
        "clickhouse_statements_total",
        lambda number: transaction(client, warm_table, f"{xid}:{number}", writes),
    )
    # The SELECTs: whether a view reads from the table, at the first write and at prepare.
    assert sent == {"insert": writes, "select": 2, "alter": 1}


def test_statements_after_an_alter(engine, client, xid, warm_table):
    """The definition is asked for again once it may have changed, and not before."""
    engine.query(f"ALTER TABLE {warm_table} ADD COLUMN more UInt8")
    before = counters(client, "clickhouse_statements_total")
    transaction(client, warm_table, xid, 2)
    sent = counters(client, "clickhouse_statements_total") - before
    # Within a second of an ALTER nothing is believed: asked at the first write, at prepare and at commit. The new
    # scratch table takes two questions more.
    assert sent["select"] in (4, 5)
    del sent["select"]
    assert sent == {"insert": 2, "alter": 1, "create": 1}


@pytest.mark.parametrize("writes", (1, WRITES))
def test_store_operations(client, xid, warm_table, writes):
    before = counters(client, "store_operations_total")
    transaction(client, warm_table, xid, writes)
    done = counters(client, "store_operations_total") - before
    # cas: Prepared, Committing, Committed.
    assert done == {"create": 1, "add_write": writes, "cas": 3}


def test_gathered_writes(client, xid, warm_table):
    """One INSERT and one record, however many writes."""
    work = lambda number: transaction(client, warm_table, f"{xid}:{number}", WRITES, gather=True)
    sent = least(client, "clickhouse_statements_total", work)
    assert sent == {"insert": 1, "select": 2, "alter": 1}
    before = counters(client, "store_operations_total")
    work(4)
    assert counters(client, "store_operations_total") - before == {"create": 1, "add_write": 1, "cas": 3}


# ---- system calls ----

# Kind: names; at most so many in a transaction of one write of one part; and for each write more.
KINDS = {
    "sync": (("fsync", "fdatasync", "syncfs"), 10, 1.2),
    "rename": (("rename", "renameat", "renameat2"), 2, 1),
    "link": (("link", "linkat"), 10, 10),
    "mkdir": (("mkdir", "mkdirat"), 2, 1),
    "unlink": (("unlink", "unlinkat", "rmdir"), 4, 0.2),
    "list": (("getdents64",), 22, 6.2),
    "open": (("open", "openat"), 58, 18.5),
    # A file is looked at for its size; of the scratch table's parts the new one and one other.
    "stat": (("stat", "lstat", "fstat", "newfstatat", "statx"), 30, 20.5),
    # With the loop's and the threads' own, whose number a busy machine changes a little.
    "all": (None, 580, 170),
}


def counted(node, work):
    """System calls of the node while work() runs, by kind."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    path = node.folder / "strace.txt"
    command = ["strace", "-f", "-c", "-U", "name,calls", "-o", path, "-p", str(node.process.pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = tracer.stderr.readline()
    if "attached" not in said:
        tracer.kill()
        tracer.wait()
        pytest.skip(f"system calls cannot be traced here: {said.strip()}")
    work()
    tracer.send_signal(signal.SIGINT)
    tracer.communicate()
    calls = {name: int(number) for name, number in re.findall(r"^(\w+)\s+(\d+)$", path.read_text(), re.M)}
    calls.pop("total")
    return {
        kind: sum(calls.values() if names is None else (calls.get(name, 0) for name in names))
        for kind, (names, _, _) in KINDS.items()
    }


@pytest.mark.parametrize("store_name", ("sqlite",))
def test_system_calls(engine, store_name, start_node, xid):
    """Of a transaction of one write, and of each write more."""
    # 0: how much waits to be written on this machine does not matter.
    node = start_node(engine, store_name, sync_files_max=0)
    client = Client(node.url)
    table = make_warm(engine, client, xid)
    one = counted(node, lambda: transaction(client, table, f"{xid}:1", 1))
    many = counted(node, lambda: transaction(client, table, f"{xid}:2", 1 + WRITES))
    each = {kind: (many[kind] - one[kind]) / WRITES for kind in KINDS}
    too_many = {
        kind: (one[kind], each[kind])
        for kind, (_, one_max, each_max) in KINDS.items()
        if one[kind] > one_max or each[kind] > each_max
    }
    assert not too_many, f"{too_many}; a transaction of one write: {one}; each write more: {each}"


# Of each gathered write at most so many; its connection is made, and ended, among them.
GATHERED_KINDS = {kind: 0.1 for kind in KINDS} | {"all": 30}


@pytest.mark.parametrize("store_name", ("sqlite",))
def test_system_calls_of_a_gathered_write(engine, store_name, start_node, xid):
    """It touches no file."""
    node = start_node(engine, store_name, sync_files_max=0)
    client = Client(node.url)
    table = make_warm(engine, client, xid)
    transaction(client, table, f"{xid}:0", 1, gather=True)
    one = counted(node, lambda: transaction(client, table, f"{xid}:1", 1, gather=True))
    many = counted(node, lambda: transaction(client, table, f"{xid}:2", 1 + WRITES, gather=True))
    each = {kind: (many[kind] - one[kind]) / WRITES for kind in KINDS}
    assert all(each[kind] <= most for kind, most in GATHERED_KINDS.items()), each


# In a commit of one part at most so many; for each part more; and for each ALTER more.
COMMIT_KINDS = {
    "sync": (5, 0, 1),
    "rename": (2, 1, 1),
    "link": (0, 0, 0),
    "mkdir": (0, 0, 0),
    "unlink": (3, 0, 1),
    "list": (14, 0.1, 10),
    "open": (34, 0.1, 25),
    "stat": (15, 4, 10),
    # With the loop's and the threads' own, whose number a busy machine changes a little.
    "all": (320, 8, 200),
}
COMMIT_PARTS = 60


@pytest.mark.parametrize("store_name", ("sqlite",))
@pytest.mark.parametrize("attach_parts_max", (100, 10))
def test_system_calls_of_a_commit(engine, store_name, start_node, xid, attach_parts_max):
    """One marker for all parts of an ALTER; and for each ALTER its own parts are looked at, not all of them."""
    node = start_node(engine, store_name, attach_parts_max=attach_parts_max)
    client = Client(node.url)
    table = make_warm(engine, client, xid)
    found = []
    for parts in (1, 1 + COMMIT_PARTS):
        name = f"{xid}:{parts}"
        client.begin(name).ok(201)
        for number in range(parts):
            client.write(name, f"INSERT INTO {table} (day, key, value) FORMAT TabSeparated", rows(number)).ok()
        client.prepare(name).ok()
        found.append(counted(node, lambda: client.commit(name).ok()))
    one, many = found
    alters = COMMIT_PARTS // attach_parts_max
    too_many = {
        kind: (one[kind], many[kind])
        for kind, (one_max, part_max, alter_max) in COMMIT_KINDS.items()
        if one[kind] > one_max or many[kind] > one[kind] + COMMIT_PARTS * part_max + alters * alter_max
    }
    assert not too_many, f"{too_many}; a commit of one part: {one}; of {1 + COMMIT_PARTS}: {many}"
