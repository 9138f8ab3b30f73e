# SPDX-License-Identifier: Apache-2.0
"""chxa, the operator's command: every command, filter and exit code, its document, its questions, a person at a terminal."""
import gzip
import itertools
import os
import signal
import socket
import subprocess
import threading
import time

import openapi_check
import pytest
import servers
from rest import Client
from tool import Terminal, Tool

COLUMNS = "day Date, key UInt32"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
ROWS = b"2024-01-01\t1\n2024-01-02\t2\n"

# Most of the tool does not depend on the engine or the store.
once = pytest.mark.parametrize("engine_name, store_name", [("26.7", "sqlite")])

_numbers = itertools.count(1)


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


@pytest.fixture
def tool(node):
    return Tool(node.url)


@pytest.fixture
def make(client, table):
    """make(state, **begin): a transaction in that state with two rows; returns its id."""

    def make(state, table=table, **fields):
        xid = f"op:{next(_numbers)}"
        client.begin(xid, **fields).ok(201)
        client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
        if state in ("Prepared", "Committed"):
            client.prepare(xid).ok()
        if state == "Committed":
            client.commit(xid).ok()
        if state == "Aborted":
            client.rollback(xid).ok()
        assert client.get(xid)["state"] == state
        return xid

    return make


def ids(document):
    return [record["xid"] for record in document["transactions"]]


# ---- list and show ----


def test_list_says_what_is_in_doubt(tool, make, client):
    open_, prepared = make("Initialized"), make("Prepared", sink="job.1", epoch=3)
    done = make("Committed")
    lines = tool("list").out
    assert open_ in lines and prepared in lines and done not in lines
    row = next(line for line in lines.splitlines() if line.startswith(prepared))
    assert row.split()[:3] == [prepared, "Prepared", "0s"] or row.split()[1] == "Prepared"
    assert " 2 " in row and "n1" in row and "job.1" in row
    assert f"chxa commit {prepared}" in lines and f"chxa rollback {prepared}" in lines
    assert "2 transactions, 1 in doubt, 0 blocked" in lines
    assert "\x1b" not in lines

    document = tool.json("list")
    assert set(ids(document)) == {open_, prepared} and document["in_doubt"] == 1
    entry = next(record for record in document["transactions"] if record["xid"] == prepared)
    assert entry["rows"] == 2 and entry["in_doubt"] and entry["owner_live"] is True
    assert entry["sink"] == "job.1" and "job.1" in entry["next"]
    assert set(ids(tool.json("list", "--all"))) == {open_, prepared, done}


@once
def test_filters(tool, make, engine, client):
    other = engine.make("other", COLUMNS, DEFINITION)
    open_, prepared = make("Initialized"), make("Prepared", sink="job.1", epoch=3)
    elsewhere = make("Prepared", table=other)
    done = make("Committed")
    assert ids(tool.json("list", "--state", "Committed")) == [done]
    assert set(ids(tool.json("list", "-s", "Prepared,Initialized"))) == {open_, prepared, elsewhere}
    assert set(ids(tool.json("list", "-s", "Prepared", "-s", "Committed"))) == {done, prepared, elsewhere}
    assert ids(tool.json("list", "--sink", "job.1")) == [prepared]
    assert ids(tool.json("list", "--sink", "job.2")) == []
    assert set(ids(tool.json("list", "--owner", "n1"))) == {open_, prepared, elsewhere}
    assert ids(tool.json("list", "--owner", "n2")) == []
    assert ids(tool.json("list", "--older-than", "1h")) == []
    assert set(ids(tool.json("list", "--age", "0ms"))) == {open_, prepared, elsewhere}
    assert set(ids(tool.json("list", "--in-doubt"))) == {prepared, elsewhere}
    assert ids(tool.json("list", "--blocked")) == []
    assert ids(tool.json("list", "--table", f"{engine.database}.other")) == [elsewhere]
    assert ids(tool.json("list", "--table", "other")) == [elsewhere]
    assert ids(tool.json("list", "--in-doubt", "-s", "Prepared,Committed", "--table", "other")) == [elsewhere]
    assert tool("list", "--blocked").out == "no transaction\n"
    assert ids(tool.json("list", "--limit", "1", "--in-doubt")) == [prepared]
    assert set(tool("list", "-q", "--in-doubt").out.split()) == {prepared, elsewhere}
    # What only the library or the node finds wrong is as wrong.
    words = ("load", "--table", f"{engine.database}.other", "--format", "CSV", "--meta")
    assert "INVALID_REQUEST" in tool(*words, "{", exit=2).err
    assert tool.json(*words, "{", exit=2)["error"]["code"] == "INVALID_REQUEST"


@once
def test_a_long_list_comes_in_pages(tool, client):
    wanted = [f"page:{number:04}" for number in range(1050)]
    client.begin("zz:oldest").ok(201)
    time.sleep(0.01)
    for xid in wanted:
        client.begin(xid).ok(201)
    assert tool("list", "-q", "--limit", "1").out != "zz:oldest\n"  # it is on the second page
    client.rollback(wanted[0]).ok()
    for xid in wanted[1:100]:
        client.rollback(xid).ok()
    assert tool("list", "-q", "--limit", "1").out == "zz:oldest\n"
    client.rollback("zz:oldest").ok()
    for xid in wanted[:100]:
        client.forget(xid).ok()
        client.begin(xid).ok(201)
    assert sorted(tool("list", "-q").out.split()) == wanted
    assert sorted(ids(tool.json("list"))) == wanted
    lines = tool("list").out.splitlines()
    assert len([line for line in lines if line.startswith("page:")]) == 1050
    assert lines[-1] == "1050 transactions, 0 in doubt, 0 blocked"
    assert len(ids(tool.json("list", "--limit", "1001"))) == 1001
    # A reader that has seen enough is no error of ours, and no hanging either.
    process = tool.start("list", "-q", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    process.wait(20)


def test_show(tool, make, client, engine):
    xid = make("Prepared", sink="job.1", epoch=3, meta={"offset": 4711})
    text = tool("show", xid).out
    for wanted in (xid, "Prepared", "n1", "job.1, epoch 3", '{"offset":4711}', f"{engine.database}.t", f"chxa commit {xid}"):
        assert wanted in text, text
    parts = tool("show", xid, "--parts").out
    for part in client.get(xid)["writes"][0]["parts"]:
        assert part["name"] in parts and part["name"] not in text
    record = tool.json("show", xid)["transactions"][0]
    assert record["rows"] == 2 and record["writes"][0]["rows"] == 2 and record["meta"] == {"offset": 4711}
    missing = tool("show", "no-such", exit=4)
    assert "TXN_NOT_FOUND" in missing.err and "chxa sinks" in missing.err  # and what may be done about it
    assert ids(tool.json("show", "no-such", xid, exit=4)) == [xid]


# ---- ending ----


def test_commit(tool, make, client, engine, table):
    xid = make("Prepared")
    assert "committed" in tool("commit", xid, "--reason", "checkpoint 7 completed").out
    assert engine.count(table) == 2
    assert client.get(xid)["given_reason"] == "checkpoint 7 completed"
    tool("commit", xid)
    assert tool.json("commit", xid)["results"][0]["state"] == "Committed"
    tool("rollback", xid, "--force", exit=5)
    assert engine.count(table) == 2

    open_ = make("Initialized")
    for words in ((), ("--reason", "x")):
        refused = tool("commit", open_, *words, exit=5)
        assert "Initialized" in refused.err
    assert client.get(open_)["state"] == "Initialized"
    tool("commit", open_, "--one-phase")
    assert engine.count(table) == 4
    tool("commit", make("Aborted"), exit=5)
    assert tool.json("commit", "no-such", exit=4)["results"][0]["error"]["code"] == "TXN_NOT_FOUND"


def test_rollback_of_what_is_prepared_wants_force(tool, make, client, engine, table):
    xid = make("Prepared")
    declined = tool("rollback", xid, exit=8)
    assert "--force" in declined.err and "Prepared" in declined.err
    tool("rollback", xid, "--yes", exit=8)
    assert client.get(xid)["state"] == "Prepared"
    assert tool.json("rollback", xid, exit=8)["results"][0]["error"] is None
    assert "rolled back" in tool("rollback", xid, "--force", "--reason", "checkpoint 8 failed").out
    record = client.get(xid)
    assert record["state"] == "Aborted" and record["given_reason"] == "checkpoint 8 failed"
    assert engine.count(table) == 0 and engine.held() == []
    tool("rollback", xid)
    # What is still being written was promised nothing.
    open_ = make("Initialized")
    tool("rollback", open_)
    assert client.get(open_)["state"] == "Aborted"
    tool("rollback", "no-such", exit=4)


@once
def test_forget(tool, make, client):
    xid = make("Prepared")
    tool("forget", xid, exit=5)
    done = make("Committed")
    tool("forget", done)
    client.get(done).fails("TXN_NOT_FOUND")
    tool("forget", done, exit=4)
    assert client.get(xid)["state"] == "Prepared"


@once
def test_several_and_from_standard_input(tool, make, client, engine, table):
    one, two, open_ = make("Prepared"), make("Prepared"), make("Initialized")
    listed = tool("list", "-q", "--in-doubt").out
    assert set(listed.split()) == {one, two}
    tool("commit", "-", input=listed.encode())
    assert engine.count(table) == 4
    # The worst end of all is the end.
    document = tool.json("commit", one, "no-such", open_, exit=5)
    assert [result["exit"] for result in document["results"]] == [0, 4, 5]
    three = make("Prepared")
    tool("rollback", "-", input=f"{three}\n".encode(), exit=8)
    tool("rollback", "-", "--force", input=f"{three}\n\n  {three}\n".encode())
    tool("commit", "-", input=b"not/an/id\n", exit=2)


@once
def test_dry_run_changes_nothing(tool, make, client, node):
    made = [make("Initialized"), make("Prepared", sink="job.1", epoch=3), make("Committed")]

    def records():
        ages = ("age_ms", "in_state_ms")
        return [{key: value for key, value in client.get(xid).json.items() if key not in ages} for xid in made]

    before = records()
    sink = client.sink("job.1").json
    for command, codes in (("commit", [5, 0, 0]), ("rollback", [0, 0, 5]), ("forget", [5, 5, 0])):
        document = tool.json(command, "-n", "-f" if command == "rollback" else "-y", *made, exit=5)
        assert [result["exit"] for result in document["results"]] == codes
    tool("commit", "--one-phase", "--dry-run", made[0])
    tool("resolve", "--discard", "--reason", "x", "-n", "-f", made[1], exit=5)
    tool("abandon", "--reason", "x", "-n", "-f", made[1])
    plan = tool.json("recover", "job.1", "--dry-run")
    assert plan["plan"] == [{"xid": made[1], "state": "Prepared", "action": "rollback"}] and plan["epoch"] == 4
    tool("load", "--table", "db.t", "--format", "CSV", "-n", "/etc/hostname")
    assert records() == before
    assert client.sink("job.1").json == sink


# ---- sinks and nodes ----


def test_recover(tool, make, client, engine, table):
    done = make("Committed", sink="job.1", epoch=3, meta={"offset": 1})
    keep, drop = make("Prepared", sink="job.1", epoch=3), make("Prepared", sink="job.1", epoch=3)
    open_ = make("Initialized", sink="job.1", epoch=3)
    other = make("Prepared", sink="job.2", epoch=1)

    # Without a sink: what is prepared, and nothing is done.
    assert set(ids(tool.json("recover"))) == {keep, drop, other}
    assert ids(tool.json("recover", "--sink", "job.2")) == [other]
    assert client.get(keep)["state"] == "Prepared"

    sink = tool.json("sinks", "job.1")["sink"]
    assert sink["checkpoint"]["xid"] == done and sink["checkpoint"]["meta"] == {"offset": 1}
    assert "offset" in tool("sinks", "job.1").out
    declined = tool("recover", "job.1", "--commit", keep, exit=8)
    assert f"commit    {keep}" in declined.out and f"rollback  {drop}" in declined.out
    assert client.get(drop)["state"] == "Prepared" and client.sink("job.1")["epoch"] == 3

    document = tool.json("recover", "job.1", "--commit", keep, "--force")
    assert document["epoch"] == 4
    states = {xid: client.get(xid)["state"] for xid in (keep, drop, open_, other)}
    assert states == {keep: "Committed", drop: "Aborted", open_: "Aborted", other: "Prepared"}
    assert engine.count(table) == 4
    client.begin("late", sink="job.1", epoch=3).fails("FENCED")
    # An epoch that has passed fences nobody, and is told so.
    fenced = tool("recover", "job.1", "--epoch", "2", "--force", exit=5).err
    assert "FENCED" in fenced and "without --epoch" in fenced and "run the same again" not in fenced
    # Again: nothing is open.
    assert "nothing was open" in tool("recover", "job.1").out


@once
def test_sinks(tool, make):
    make("Prepared", sink="job.1", epoch=3)
    make("Initialized", sink="job.2", epoch=1)
    make("Committed", sink="job.3", epoch=1)
    make("Prepared")
    sinks = {entry["sink"]: entry for entry in tool.json("sinks")["sinks"]}
    assert set(sinks) == {"job.1", "job.2"}
    assert (sinks["job.1"]["in_doubt"], sinks["job.2"]["in_doubt"], sinks["job.1"]["epoch"]) == (1, 0, 3)
    every = {entry["sink"]: entry for entry in tool.json("sinks", "--all")["sinks"]}
    assert every["job.3"]["open"] == 0 and every["job.3"]["checkpoint"]["epoch"] == 1
    assert "job.1" in tool("sinks").out
    tool("sinks", "nobody", exit=4)
    # A wrong name is no new sink.
    assert "--epoch 1" in tool("recover", "nobody", "--force", exit=4).err
    tool("sinks", "nobody", exit=4)


@pytest.fixture
def pair(start_pair):
    engines, nodes = start_pair(session_timeout_ms=2000)
    for engine in engines:
        engine.make("t", COLUMNS, DEFINITION)
    return engines, nodes


def prepared_at(node, engine, xid):
    client = Client(node.url)
    client.begin(xid).ok(201)
    client.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    client.prepare(xid).ok()


def wait_dead(tool, name, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        nodes = {node["node"]: node for node in tool.json("nodes")["nodes"]}
        if not nodes[name]["live"]:
            return nodes[name]
        time.sleep(0.3)
    raise AssertionError("it is live still")


def test_a_dead_node(pair):
    (one, two), (first, second) = pair
    for xid, node, engine in (("a", first, one), ("b", second, two), ("c", second, two)):
        prepared_at(node, engine, xid)
    tool = Tool(first.url, second.url)
    nodes = {node["node"]: node for node in tool.json("nodes")["nodes"]}
    assert nodes["n2"]["live"] and nodes["n2"]["ready"] and nodes["n2"]["in_doubt"] == 2
    # Asked at the other node, done by the owner.
    Tool(first.url)("commit", "c")
    assert two.count(two.table("t")) == 2

    second.kill()
    second.process.returncode = 0  # start_node's closing look
    dead = wait_dead(tool, "n2")
    assert dead["in_doubt"] == 1 and not dead["ready"]
    assert "DOWN" in tool("nodes").out
    entry = tool.json("list", "--owner", "n2")["transactions"][0]
    assert entry["owner_live"] is False and "n2 is down" in entry["why"] and "chxa abandon b" in entry["next"]
    assert "DOWN" in tool("show", "b").out
    # Its owner alone can commit it: nothing was done, and so it says.
    tool("commit", "b", "--deadline", "2s", exit=6)
    tool("commit", "a")
    # Any node that lives will do.
    Tool(second.url, first.url)("list")
    tool("abandon", "b", "--reason", "its disk is gone", exit=8)
    assert tool.json("show", "b")["transactions"][0]["state"] == "Prepared"
    document = tool.json("abandon", "b", "--reason", "its disk is gone", "--force")
    assert document["results"][0]["state"] == "Aborted"
    record = tool.json("show", "b")["transactions"][0]
    assert record["given_reason"] == "its disk is gone" and record["abandoned_by"] == "n1"


@once
def test_an_owner_that_lives_is_not_abandoned(tool, make, client):
    xid = make("Prepared")
    refused = tool.json("abandon", xid, "--reason", "in haste", "--force", exit=5)
    assert refused["results"][0]["error"]["code"] in ("OWNER_ALIVE", "UNKNOWN_CODE")
    assert client.get(xid)["state"] == "Prepared"


# ---- a commit that is blocked ----


def test_blocked(tool, make, client, engine, table):
    xid = make("Prepared")
    engine.query(f"DROP TABLE {table}")
    failed = tool("commit", xid, "--deadline", "3s", exit=3)
    assert "BLOCKED" in failed.err
    record = tool.json("list", "--blocked")["transactions"][0]
    assert record["xid"] == xid and record["blocked"] and record["why"]
    assert f"chxa resolve {xid} --retry" in record["next"] and f"chxa resolve {xid} --discard" in record["next"]
    assert "--convert" not in record["next"]  # there is no table to convert them for
    assert "Committing, blocked" in tool("list").out
    tool("rollback", xid, "--force", exit=5)
    tool("resolve", xid, exit=2)
    tool("resolve", xid, "--retry", "--discard", exit=2)
    tool("resolve", xid, "--discard", exit=2)
    tool("resolve", xid, "--discard", "--reason", "the table is gone", exit=8)
    tool("resolve", xid, "--discard", "--reason", "the table is gone", "--force")
    document = tool.json("show", xid)["transactions"][0]
    assert document["state"] == "Committed" and document["heuristic"] == "rolled_back"
    assert document["given_reason"] == "the table is gone" and "gave rows up" in document["why"]
    assert "given up" in tool("show", xid, "--parts").out
    # What was given up is kept, and fsck says so, until it is cleared.
    found = tool("fsck", exit=7).out
    assert "set_aside" in found and "chxa clear " in found
    finding = tool.json("fsck", exit=7)["nodes"][0]["findings"][0]
    name = finding["path"].rsplit("/", 1)[1]
    tool("clear", name, exit=8)
    assert " old)" in tool("clear", name, "--dry-run").out
    tool("clear", name + "x", "--dry-run", exit=4)
    tool("fsck", exit=7)
    assert tool.json("clear", name, "--force")["results"][0]["exit"] == 0
    tool("fsck")
    tool("clear", name, "--force", exit=4)
    tool("clear", name, "--node", "nobody", exit=2)
    tool("resolve", xid, "--retry", exit=5)


@once
def test_retry_after_mending(tool, make, engine, table):
    xid = make("Prepared")
    engine.query(f"RENAME TABLE {table} TO {engine.table('away')}")
    tool("commit", xid, "--deadline", "2s", exit=3)
    engine.query(f"RENAME TABLE {engine.table('away')} TO {table}")
    tool("resolve", xid, "--retry")
    tool("commit", xid)
    assert engine.count(table) == 2


@pytest.mark.skipif(
    "convert" not in openapi_check.spec()["components"]["schemas"]["Resolve"]["properties"]["action"]["enum"],
    reason="this chxad does not convert",
)
def test_convert(tool, make, engine):
    table = engine.make("by_day", COLUMNS, "ENGINE = MergeTree PARTITION BY day ORDER BY day")
    xid = make("Prepared", table=table)
    engine.query(f"ALTER TABLE {table} ADD COLUMN more UInt8 DEFAULT 7, MODIFY COLUMN key String")
    tool("commit", xid, "--deadline", "2s", exit=3)
    assert f"chxa resolve {xid} --convert" in tool("list").out
    tool("resolve", xid, "--convert", "--reason", "key is a String now")
    record = tool.json("show", xid)["transactions"][0]
    assert record["state"] == "Committed" and record["heuristic"] is None
    assert record["converted_to"] == f"{xid}:converted"
    assert engine.rows(f"SELECT key, more FROM {table} ORDER BY key") == [["1", "7"], ["2", "7"]]
    assert "converted" in tool("show", xid, "--parts").out
    tool("commit", xid)


# ---- fsck ----


def test_fsck(tool, make, engine):
    make("Prepared")
    assert "nothing out of order" in tool("fsck").out
    assert tool.json("fsck")["nodes"][0]["findings"] == []
    tool("fsck", "--node", "n1")
    tool("fsck", "--node", "nobody", exit=2)
    root = engine.roots()[0]
    victim = next(path for path in engine.held_parts() if (root / "chxa" / path).is_dir())
    (root / "chxa" / victim).rename(root / "stolen")
    try:
        found = tool("fsck", exit=7)
        assert "means:" in found.out and "mend it:" in found.out
        assert tool.json("fsck", exit=7)["nodes"][0]["findings"]
        # Looking mends nothing.
        assert not (root / "chxa" / victim).exists()
    finally:
        (root / "stolen").rename(root / "chxa" / victim)
    tool("fsck")


# ---- what is wrong from the start ----


@once
def test_usage(tool):
    nowhere = Tool("http://127.0.0.1:1")  # nothing is sent
    for words in (
        (),
        ("lst",),
        ("list", "--no-such"),
        ("list", "x"),
        ("commit",),
        ("commit", "a/b"),
        ("commit", ".."),
        ("list", "--older-than", "soon"),
        ("list", "--deadline", "0"),
        ("list", "--state", "Prepard"),
        ("list", "-s", "Prepared,"),
        ("list", "-s", ""),
        ("list", "--json", "-s", "prepared"),
        ("recover", "job.1", "--blocked"),
        ("clear", "../t-x"),
        ("clear", "x", "--dry-run"),
        ("rollback", "x", "--reason", "two\nlines"),
        ("rollback", "x", "--reason", "x" * 1025),
        ("abandon", "x"),
        ("load", "x"),
        ("load", "--table", "t", "x.what"),
        ("recover", "--force"),
        ("help", "nothing"),
        ("list", "-u", "ftp://x"),
        ("list", "--password-file", "/no/such/file"),
    ):
        done = nowhere(*words, exit=2)
        assert done.err.startswith("chxa: "), done
    for command in ("list", "load", "help"):
        assert f"chxa {command}" in nowhere("help", command).out
        assert nowhere("help", command).out == nowhere(command, "--help").out
    assert "A stuck checkpoint" in nowhere("--help").out
    assert nowhere("--version").out.startswith("chxa ")


@once
def test_nobody_there(tool, engine):
    port = servers.free_port()
    nowhere = Tool(f"http://127.0.0.1:{port}")
    for words in (("list",), ("show", "x"), ("commit", "x"), ("nodes",), ("fsck",), ("sinks", "s"), ("recover", "s", "-f")):
        done = nowhere(*words, "--deadline", "1s", exit=6)
        assert "UNREACHABLE" in done.err, done
    assert nowhere.json("list", "--deadline", "1s", exit=6)["error"]["code"] == "UNREACHABLE"
    assert nowhere.json("commit", "x", "--deadline", "1s", exit=6)["results"][0]["exit"] == 6
    # A ClickHouse is no chxad, and that is said.
    wrong = Tool(engine.server.url)("list", "--deadline", "2s", exit=1)
    assert "--url" in wrong.err or "no chxad" in wrong.err
    # --url wins over the environment; a URL may do without its scheme.
    nowhere("list", "--url", tool.environment["CHXA_URL"].removeprefix("http://"))


def test_every_node_that_was_tried_is_named():
    ports = [servers.free_port() for _ in range(3)]
    error = Tool(*(f"http://127.0.0.1:{port}" for port in ports))("list", "--deadline", "1s", exit=6).err
    assert all(error.count(f"http://127.0.0.1:{port}: ") == 1 for port in ports), error


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_a_node_that_is_not_ready_has_its_row(lonely):
    """It waits for its ClickHouse, so nobody can list the nodes: those that were named say how they are."""
    nobody = f"http://127.0.0.1:{servers.free_port()}"
    tool = Tool(lonely.url, nobody)
    done = tool("nodes", "--deadline", "1s", exit=6)
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[1:3] + line[5:6] for line in lines if line[0] == "?"] == [["?", "no", lonely.url], ["?", "no", nobody]]
    why = [line for line in done.out.splitlines() if "why:" in line]
    assert "ClickHouse" in why[0] and nobody in why[1]
    assert "NOT_READY" in done.err
    nodes = tool.json("nodes", "--deadline", "1s", exit=6)["nodes"]
    assert [(node["url"], node["live"], node["ready"]) for node in nodes] == [(lonely.url, None, False), (nobody, None, False)]
    assert "ClickHouse" in nodes[0]["why"] and nodes[0]["in_doubt"] is None


@once
def test_nothing_of_a_record_reaches_the_terminal(tool, client, make):
    nasty = "\x1b]0;owned\x07 \x9b31m \u202e \x1b[2J"
    xid = make("Prepared", meta={"key\x1b[31m": nasty}, sink="job.1", epoch=1)
    for words in (("show", xid), ("list",), ("sinks", "job.1")):
        out = tool(*words).out
        assert not any(character in out for character in "\x1b\x07\x9b\u202e"), repr(out)
    tool("rollback", "x\x1b[31m", exit=2)
    assert "\x1b" not in tool("show", "x\x1b[31m", exit=2).err
    record = tool.json("show", xid)["transactions"][0]
    assert record["meta"] == {"key\x1b[31m": nasty}


# ---- load ----


def test_load(tool, client, engine, table, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(ROWS * 1000)
    done = tool("load", "--table", f"{engine.database}.t", path)
    assert "committed" in done.out and "2 000 rows" in done.out and done.err == ""
    assert engine.count(table) == 2000
    (tmp_path / "more.tsv.gz").write_bytes(gzip.compress(ROWS))
    document = tool.json("load", "--table", f"{engine.database}.t", path, tmp_path / "more.tsv.gz", "--meta", '{"a": 1}')
    assert document["rows"] == 2002 and len(document["files"]) == 2 and document["state"] == "Committed"
    assert engine.count(table) == 4002
    record = client.get(document["xid"]).ok()
    assert record["meta"] == {"a": 1} and len(record["writes"]) == 2
    # From standard input, with the whole statement.
    tool("load", "--query", f"INSERT INTO {table} (key, day) FORMAT CSV", input=b"7,2024-01-01\n")
    assert engine.value(f"SELECT count() FROM {table} WHERE key = 7") == "1"
    # Prepared only: nobody sees it before the commit.
    prepared = tool.json("load", "--table", f"{engine.database}.t", path, "--prepare-only", "--txn", "nightly:1")
    assert prepared["state"] == "Prepared" and prepared["xid"] == "nightly:1"
    assert engine.count(table) == 4003
    tool("commit", "nightly:1")
    assert engine.count(table) == 6003
    # The same again: done is done.
    again = tool.json("load", "--table", f"{engine.database}.t", path, "--txn", "nightly:1")
    assert again["state"] == "Committed"
    assert engine.count(table) == 6003
    # Another file under that id is another load.
    tool("load", "--table", f"{engine.database}.t", tmp_path / "more.tsv.gz", "--txn", "nightly:1", exit=5)
    # One that gathers keeps no file's write id: a load that was repeated would double its rows.
    client.begin("nightly:2", gather=True).ok(201)
    refused = tool("load", "--table", f"{engine.database}.t", path, "--txn", "nightly:2", exit=5)
    assert "gather" in refused.err
    client.rollback("nightly:2").ok()


@once
def test_a_load_that_fails_leaves_nothing(tool, client, engine, table, tmp_path):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_bytes(b"2024-01-01,1\n")
    bad.write_bytes(b"2024-01-01,1\nnot a date,2\n")
    failed = tool.json("load", "--table", f"{engine.database}.t", good, bad, exit=1)
    assert failed["error"]["code"] == "CLICKHOUSE_REJECTED"
    assert client.get(failed["xid"])["state"] == "Aborted"
    tool("load", "--table", f"{engine.database}.no_such", good, exit=1)
    # What cannot be read is found before anything is begun.
    begun = len(tool.json("list", "--all")["transactions"])
    for words in ((good, tmp_path / "missing.csv"), ("--format", "CSV", good, tmp_path), ("-n", tmp_path / "missing.csv")):
        refused = tool("load", "--table", f"{engine.database}.t", *words, exit=1)
        assert "cannot read" in refused.err and "nothing was loaded" in refused.err
    tool.json("load", "--table", f"{engine.database}.t", tmp_path / "missing.csv", exit=1)
    assert len(tool.json("list", "--all")["transactions"]) == begun
    assert engine.count(table) == 0 and engine.held() == []

    # With an id it is resumed where it was: what is staged is not staged again.
    words = ("load", "--table", f"{engine.database}.t", good, bad, "--txn", "two-files")
    tool(*words, exit=1)
    assert client.get("two-files")["state"] == "Initialized"
    bad.write_bytes(b"2024-01-01,2\n")
    document = tool.json(*words)
    assert [entry["replay"] for entry in document["files"]] == [True, False]
    assert engine.count(table) == 2
    # Rolled back is rolled back.
    client.begin("gone").ok(201)
    client.rollback("gone").ok()
    tool("load", "--table", f"{engine.database}.t", good, "--txn", "gone", exit=5)


@once
def test_ctrl_c_rolls_back(tool, client, engine, table):
    process = tool.start(
        "load", "--table", f"{engine.database}.t", "--format", "TSV", "--txn", "stopped",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    process.stdin.write(ROWS * 10000)
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while client.get("stopped").status != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    # It hears it at its next read.
    out, err = process.communicate(ROWS, timeout=30)
    assert process.returncode == 130, (out, err)
    assert b"rolled back" in err
    assert client.get("stopped")["state"] == "Aborted"
    assert engine.count(table) == 0


# ---- a person at a terminal ----


class Slow:
    """A proxy before a node that lets only so many bytes through per second."""

    def __init__(self, rate):
        self.rate = rate
        self.target = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            for source, sink, rate in ((connection, server, self.rate), (server, connection, None)):
                threading.Thread(target=self.carry, args=(source, sink, rate), daemon=True).start()

    @staticmethod
    def carry(source, sink, rate):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
                if rate:
                    time.sleep(len(data) / rate)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()

    def close(self):
        self.listener.close()


@pytest.fixture
def terminal(tool):
    terminal = Terminal(tool)
    yield terminal
    terminal.close()


@once
def test_a_person_lists_shows_and_rolls_back(terminal, make, client):
    xid, other = make("Prepared", sink="orders.3", epoch=2, meta={"offset": 17}), make("Prepared")
    code, screen = terminal.run("chxa list")
    assert code == 0 and xid in screen and f"chxa rollback {xid}" in screen and "2 in doubt" in screen
    assert max(map(len, screen.splitlines())) <= 100
    assert "\x1b[33m" in terminal.screen(colours=True)
    assert "\x1b[33m" not in (terminal.run("chxa list --no-color") and terminal.screen(colours=True))
    assert "\x1b[33m" not in (terminal.run("NO_COLOR=1 chxa list") and terminal.screen(colours=True))
    code, screen = terminal.run(f"chxa show {xid}")
    assert code == 0 and '"offset":17' in screen

    # It asks; a wrong answer, no answer and a Ctrl-D all leave it alone.
    for answer in ("yes", "", xid[:-1]):
        terminal.begin(f"chxa rollback {xid}")
        terminal.wait(rf"{xid}: it is Prepared, 2 rows.*\n?.*Type the id to roll it back:")
        terminal.type(answer)
        assert terminal.end() == 8
        assert client.get(xid)["state"] == "Prepared"
    terminal.begin(f"chxa rollback {xid}")
    terminal.wait(r"Type the id")
    terminal.key("C-d")
    assert terminal.end() == 8
    assert client.get(xid)["state"] == "Prepared"

    # The right one does it.
    terminal.begin(f"chxa rollback {xid} --reason 'the job is gone'")
    terminal.wait(r"Type the id")
    terminal.type(xid)
    assert terminal.end() == 0
    assert f"{xid}: rolled back" in terminal.screen()
    assert client.get(xid)["given_reason"] == "the job is gone"
    assert client.get(other)["state"] == "Prepared"


def test_a_person_who_waits_is_told():
    silent = socket.create_server(("127.0.0.1", 0))  # accepts, and never answers
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    terminal = Terminal(Tool(url), columns=140)
    try:
        terminal.begin("chxa list --deadline 5s")
        terminal.wait(rf"^chxa: no answer yet from {url}; waiting for 5s at most")
        assert terminal.end() == 3
        assert terminal.screen().count("no answer yet") == 1
        assert "no answer yet" not in terminal.run("chxa list --deadline 4s 2> /dev/null")[1].replace("2> /dev/null", "")
    finally:
        terminal.close()
        silent.close()


@once
def test_a_narrow_terminal(tool, make, client):
    long = "a-transaction-with-a-long-name." + "x" * 60
    client.begin(long, sink="a-sink-with-a-long-name.11", epoch=1).ok(201)
    make("Prepared", sink="s", epoch=1)
    terminal = Terminal(tool, columns=48)
    try:
        code, screen = terminal.run("chxa list")
        assert code == 0
        assert long in screen.replace("\n", ""), screen
        assert max(len(line) for line in screen.splitlines()) <= 48
    finally:
        terminal.close()


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_a_load_shows_its_progress(engine, table, start_node, tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_bytes(ROWS * 400_000)
    slow = Slow(2_000_000)
    node = start_node(engine, "sqlite", advertise=slow.url)
    slow.target = ("127.0.0.1", int(node.url.rsplit(":", 1)[1]))
    terminal = Terminal(Tool(slow.url))
    try:
        terminal.begin(f"chxa load --table {engine.database}.t {path}")
        terminal.wait(r"rows\.tsv \[#+\.+\] +[1-9]\d?%  [\d.]+ [kM]B  [\d.]+ [kM]B/s  \d+s left")
        assert terminal.end(60) == 0
        screen = terminal.screen()
        assert "800 000 rows" in screen and "%" not in screen
        assert engine.count(table) == 800_000

        # Ctrl-C: gone, and the line with it.
        terminal.begin(f"chxa load --table {engine.database}.t {path}")
        terminal.wait(r"\d+%")
        terminal.key("C-c")
        assert terminal.end(60) == 130
        assert "rolled back; nothing was loaded" in terminal.screen()
        assert engine.count(table) == 800_000
        assert Tool(node.url).json("list")["transactions"] == []
    finally:
        terminal.close()
        slow.close()


# ---- completion ----


@once
def test_bash_completion(tool, make):
    xid = make("Prepared")

    def complete(*words):
        script = f"""
            source {servers.ROOT}/deploy/completion/chxa.bash
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _chxa
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        environment = {**tool.environment, "PATH": f"{servers.BUILD}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", script, "-", *words], capture_output=True, text=True, env=environment)
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("chxa", "ro") == ["rollback"]
    assert "--in-doubt" in complete("chxa", "list", "--")
    assert complete("chxa", "list", "--state", "Prep") == ["Prepared"]
    assert complete("chxa", "list", "--state", "=", "Comm") == ["Committing", "Committed"]
    assert complete("chxa", "forget", "--fo") == []
    assert complete("chxa", "commit", xid[:3]) == [xid]
    assert complete("chxa", "list", "--owner", "n") == []


@once
def test_zsh_completion(tool, make):
    xid = make("Prepared")
    terminal = Terminal(tool, shell="zsh -f")
    try:
        terminal.type(f"fpath=({servers.ROOT}/deploy/completion $fpath); autoload -U compinit; compinit -D -u; clear")
        terminal.wait(r"\A\$ *\n*\Z")
        for typed, wanted in (
            ("chxa rollb", "chxa rollback"),
            ("chxa list --in-d", "chxa list --in-doubt"),
            ("chxa list --state Prep", "chxa list --state Prepared"),
            (f"chxa show {xid[:3]}", f"chxa show {xid}"),
        ):
            terminal.type(typed, enter=False)
            terminal.key("Tab")
            terminal.wait(rf"^\$ {wanted}")
            terminal.key("C-u")
    finally:
        terminal.close()


@once
def test_the_manual_formats(tool, tmp_path):
    for page in ("chxa.1", "chxad.8", "chxad.conf.5"):
        done = subprocess.run(
            ["man", "--warnings", "-l", servers.ROOT / "deploy" / "man" / page],
            capture_output=True, text=True, env={**servers.ENVIRONMENT, "MANWIDTH": "80", "MANROFFOPT": "-ww"},
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80
