# SPDX-License-Identifier: Apache-2.0
"""What an operator does to a transaction in doubt, and what is kept of it."""
import itertools
import json
import shutil
import signal
import sqlite3
import threading
import time

import pytest
from rest import Client

COLUMNS = "day Date, key UInt32"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
ROWS = b"2024-01-01\t1\n2024-01-02\t2\n"


def post(client, xid, verb, body=None, **parameters):
    text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    return client.request("POST", Client.path(xid, verb, **parameters), text)


def prepared(client, engine, xid, table="t"):
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {engine.table(table)} FORMAT TabSeparated", ROWS).ok()
    return client.prepare(xid).ok()


# ---- why ----


@pytest.mark.parametrize("verb", ["commit", "rollback"])
@pytest.mark.parametrize("where", ["body", "parameter"])
def test_reason_is_kept(engine, client, node, xid, verb, where):
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    why = 'ticket 4711: "gone" €'
    answer = post(client, xid, verb, {"reason": why}) if where == "body" else post(client, xid, verb, reason=why)
    assert answer.ok()["given_reason"] == answer["reason"] == why
    # The first one is kept; a replay changes nothing.
    assert post(client, xid, verb, {"reason": "another"}).ok()["replay"] is True
    node.stop()
    node.start()
    for record in (client.get(xid).ok().json, client.list().ok()["transactions"][0]):
        assert record["given_reason"] == record["reason"] == why
        assert record["heuristic"] is record["abandoned_by"] is None and record["discarding"] is False


def test_reason_of_a_one_phase_commit(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    assert post(client, xid, "commit", {"reason": "at once"}).ok()["given_reason"] == "at once"


def test_no_reason(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    record = post(client, xid, "commit", {}).ok()
    assert record["given_reason"] is record["reason"] is None


@pytest.mark.parametrize(
    "body",
    [b"x", b"[]", b'{"reason": 1}', b'{"reason": ""}', b'{"reason": null}', b'{"reasons": "x"}', b'{"action": "retry"}',
     b'{"reason": "a\\u0000b"}', b'{"reason": "a\\nb"}', json.dumps({"reason": "x" * 1025}).encode(), b'{"reason": "\xff"}'],
)
def test_bad_reason(engine, client, xid, body):
    """It is refused before anything is done."""
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    for verb in ("commit", "rollback"):
        post(client, xid, verb, body).fails("INVALID_REQUEST")
    assert client.get(xid).ok()["state"] == "Prepared"
    # meta_bytes_max, for a commit in one phase, and 16 KiB for the rest
    post(client, xid, "commit", b"{" + b" " * 2 * 16384).fails("BODY_TOO_LARGE")
    post(client, xid, "rollback", b"{" + b" " * 16384).fails("BODY_TOO_LARGE")
    client.rollback(xid).ok()


# ---- resolve ----


@pytest.fixture
def blocked(engine, node, client, xid):
    """A transaction over two tables whose commit is blocked: one of them is gone."""
    for name in ("good", "gone"):
        engine.make(name, COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    for name in ("good", "gone"):
        client.write(xid, f"INSERT INTO {engine.table(name)} FORMAT TabSeparated", ROWS).ok()
    client.prepare(xid).ok()
    engine.query(f"RENAME TABLE {engine.table('gone')} TO {engine.table('away')}")
    client.commit(xid).fails("BLOCKED")
    assert client.get(xid).ok()["blocked"] is True
    return xid


def lost(engine):
    """Parts in lost/: (transaction folder, number)."""
    found = [path.split("/") for path in engine.held() if path.startswith("lost/")]
    return sorted((steps[1], steps[2]) for steps in found if len(steps) == 3 and steps[2].isdigit())


def clear_lost(engine):
    engine.clean_held()


def test_retry(engine, client, blocked):
    post(client, blocked, "resolve", {"action": "retry"}).fails("BLOCKED")
    engine.query(f"RENAME TABLE {engine.table('away')} TO {engine.table('gone')}")
    answer = post(client, blocked, "resolve", {"action": "retry", "reason": "table is back"}).ok()
    assert answer["state"] == "Committed" and answer["heuristic"] is None and answer["discarded_parts"] == 0
    assert engine.count(engine.table("gone")) == engine.count(engine.table("good")) == 2
    assert post(client, blocked, "resolve", {"action": "retry"}).ok()["replay"] is True
    assert engine.held() == []


def test_discard_some(engine, node, client, blocked):
    why = "the table was dropped on purpose"
    answer = post(client, blocked, "resolve", {"action": "discard", "reason": why}).ok()
    assert answer["state"] == "Committed" and answer["heuristic"] == "mixed"
    assert answer["given_reason"] == why and answer["discarding"] is False and answer["blocked"] is False
    assert (answer["discarded_parts"], answer["discarded_rows"]) == (2, 2)
    assert engine.count(engine.table("good")) == 2
    assert len(lost(engine)) == 2 and engine.held_parts() == []
    # It stays so: for who commits again, who asks, and after a restart.
    node.stop()
    node.start()
    for replay in (client.commit(blocked).ok(), post(client, blocked, "resolve", {"action": "discard", "reason": "x"}).ok()):
        assert replay["replay"] is True and replay["heuristic"] == "mixed" and replay["given_reason"] == why
    record = client.get(blocked).ok()
    parts = {write["table"]: {part["discarded"] for part in write["parts"]} for write in record["writes"]}
    assert parts == {"good": {False}, "gone": {True}}
    assert client.list(state="Committed").ok()["transactions"][0]["heuristic"] == "mixed"
    client.rollback(blocked).fails("WRONG_STATE")
    # Nobody attaches it later.
    engine.query(f"RENAME TABLE {engine.table('away')} TO {engine.table('gone')}")
    assert client.commit(blocked).ok()["replay"] is True
    assert engine.count(engine.table("gone")) == 0 and engine.detached("gone") == []
    clear_lost(engine)


def test_discard_all(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    engine.query(f"DROP TABLE {engine.table('t')}" + ("" if engine.is_old else " SYNC"))
    # The same name, another table: also when it looks the same.
    engine.make("t", "day Date, key String", DEFINITION)
    client.commit(xid).fails("BLOCKED")
    answer = post(client, xid, "resolve", {"action": "discard", "reason": "recreated"}).ok()
    assert answer["heuristic"] == "rolled_back" and answer["discarded_rows"] == 2
    assert engine.count(engine.table("t")) == 0 and engine.detached("t") == []
    assert len(lost(engine)) == 2
    clear_lost(engine)


@pytest.mark.parametrize("replicated", [False, True])
def test_discard_what_clickhouse_refuses(engine, client, xid, replicated):
    """One part is damaged: it is given up, and the others are attached."""
    if replicated and not engine.is_old:
        pytest.skip("no replicated tables in this 26.7")
    name = xid.replace(":", "-")
    engine.make("t", COLUMNS, DEFINITION.replace("MergeTree", f"ReplicatedMergeTree('/tables/{name}', '{{replica}}')") if replicated else DEFINITION)
    client.begin(xid).ok((200, 201))
    for key in range(3):
        client.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", b"2024-01-01\t%d\n" % key).ok()
    client.prepare(xid).ok()
    damaged = sorted(engine.held_parts())[1]
    for root in engine.roots():
        for name in ("columns.txt", "checksums.txt", "count.txt"):
            path = root / "chxa" / damaged / name
            if path.exists():
                path.unlink()
                path.write_bytes(b"rubbish\n")
    client.commit(xid).fails("BLOCKED")
    answer = post(client, xid, "resolve", {"action": "discard", "reason": "disk error"}).ok()
    assert answer["heuristic"] == "mixed" and answer["discarded_parts"] == 1, answer
    assert sorted(engine.value(f"SELECT key FROM {engine.table('t')} ORDER BY key").split()) == ["0", "2"]
    assert lost(engine) == [tuple(damaged.split("/"))]
    clear_lost(engine)


def test_discard_what_vanished(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    gone = sorted(engine.held_parts())[0]
    for root in engine.roots():
        path = root / "chxa" / gone
        if path.exists():
            shutil.rmtree(path)
    client.commit(xid).fails("BLOCKED")
    answer = post(client, xid, "resolve", {"action": "discard", "reason": "rm -r"}).ok()
    assert answer["heuristic"] == "mixed" and answer["discarded_parts"] == 1
    assert engine.count(engine.table("t")) == 1
    clear_lost(engine)


def test_resolve_is_refused(engine, client, xid):
    """Where nothing is blocked there is nothing to give up."""
    engine.make("t", COLUMNS, DEFINITION)
    discard, retry = {"action": "discard", "reason": "x"}, {"action": "retry"}
    for body in (discard, retry):
        post(client, xid, "resolve", body).fails("TXN_NOT_FOUND")
    prepared(client, engine, xid)
    for body in (discard, retry):
        post(client, xid, "resolve", body).fails("WRONG_STATE")
    for body in ({}, None, {"action": "convert!"}, {"action": "discard"}, {"action": 1}, {"action": "retry", "x": 1}):
        post(client, xid, "resolve", body).fails("INVALID_REQUEST")
    assert client.get(xid).ok()["state"] == "Prepared"
    client.rollback(xid).ok()
    for body in (discard, retry):
        post(client, xid, "resolve", body).fails("WRONG_STATE")


# ---- convert ----

WIDE = "day Date, key UInt32, name String"
WIDE_ROWS = b"2024-01-01\t1\tabc\n2024-01-01\t2\tabd\n2024-02-02\t3\tabe\n"


def wide(client, engine, xid, definition=DEFINITION):
    """A prepared transaction of two writes, into a table that has a row already."""
    engine.make("w", WIDE, definition)
    engine.query(f"INSERT INTO {engine.table('w')} VALUES ('2024-01-01', 9, 'old')")
    client.begin(xid).ok((200, 201))
    for rows in (WIDE_ROWS, b"2024-01-01\t4\tabf\n"):
        client.write(xid, f"INSERT INTO {engine.table('w')} FORMAT TabSeparated", rows).ok()
    client.prepare(xid).ok()


@pytest.mark.parametrize(
    "alter,select,expected",
    [
        ("MODIFY COLUMN name FixedString(4)", "toString(key), toString(name)", "1\tabc 2\tabd 3\tabe 4\tabf 9\told"),
        ("DROP COLUMN name", "key", "1 2 3 4 9"),
        ("MODIFY COLUMN key UInt64", "key, name", "1\tabc 2\tabd 3\tabe 4\tabf 9\told"),
    ],
)
def test_convert(engine, node, client, xid, alter, select, expected):
    definition = DEFINITION.replace("ORDER BY key", "ORDER BY day")
    wide(client, engine, xid, definition)
    engine.query(f"ALTER TABLE {engine.table('w')} {alter}")
    client.commit(xid).fails("BLOCKED")
    answer = post(client, xid, "resolve", {"action": "convert", "reason": "ALTER of Tuesday"}).ok()
    assert answer["state"] == "Committed" and answer["heuristic"] is None, answer
    assert answer["converted_to"] == f"{xid}:converted" and answer["given_reason"] == "ALTER of Tuesday"
    assert answer["discarded_rows"] == 4

    def rows():
        text = engine.query(f"SELECT {select} FROM {engine.table('w')} ORDER BY key FORMAT TabSeparated")
        return " ".join(line.replace("\\0", "") for line in text.splitlines())

    assert rows() == expected
    other = client.get(f"{xid}:converted").ok()
    assert other["state"] == "Committed" and other["rows"] == 4 and other["meta"] == {"converts": xid}
    assert engine.held_parts() == [] and engine.detached("w") == [] and len(lost(engine)) == 3
    node.stop()
    node.start()
    for verb in ("commit", "resolve"):
        body = {"action": "convert"} if verb == "resolve" else None
        assert post(client, xid, verb, body).ok()["replay"] is True
    assert rows() == expected
    assert set(fsck(client)) == {"set_aside"}
    engine.clean_held()


def test_convert_is_refused(engine, client, xid):
    """Where it cannot be told what the rows would become, or there is nothing to convert; and nothing is left of the try."""
    definition = DEFINITION.replace("ORDER BY key", "ORDER BY day")
    wide(client, engine, xid, definition)
    table = engine.table("w")
    post(client, xid, "resolve", {"action": "convert"}).fails("WRONG_STATE")  # not blocked
    engine.query(f"ALTER TABLE {table} DROP COLUMN name")
    engine.query(f"ALTER TABLE {table} ADD COLUMN title String")
    client.commit(xid).fails("BLOCKED")
    answer = post(client, xid, "resolve", {"action": "convert"}).fails("BLOCKED")
    assert "renamed" in answer.error["message"]
    engine.query(f"RENAME TABLE {table} TO {engine.table('away')}")
    post(client, xid, "resolve", {"action": "convert"}).fails("BLOCKED")
    record = client.get(xid).ok()
    assert record["state"] == "Committing" and record["converted_to"] is None and record["blocked"] is True
    assert client.get(f"{xid}:converted").ok()["state"] == "Aborted"
    assert {path.split("/")[0] for path in engine.held_parts()} == {f"t-{xid}"}
    assert engine.count(engine.table("away")) == 1
    post(client, xid, "resolve", {"action": "discard", "reason": "x"}).ok()
    engine.clean_held()


def test_convert_what_does_not_fit(engine, client, xid):
    """A value that the new type cannot hold: ClickHouse says so, and the transaction stays as it was."""
    definition = DEFINITION.replace("ORDER BY key", "ORDER BY day")
    wide(client, engine, xid, definition)
    engine.query(f"TRUNCATE TABLE {engine.table('w')}")
    engine.query(f"ALTER TABLE {engine.table('w')} MODIFY COLUMN name FixedString(2)")
    client.commit(xid).fails("BLOCKED")
    post(client, xid, "resolve", {"action": "convert"}).fails("BLOCKED")
    assert client.get(xid).ok()["state"] == "Committing" and engine.count(engine.table("w")) == 0
    engine.query(f"ALTER TABLE {engine.table('w')} MODIFY COLUMN name FixedString(3)")
    assert post(client, xid, "resolve", {"action": "convert"}).ok()["heuristic"] is None
    assert engine.count(engine.table("w")) == 4
    engine.clean_held()


# ---- abandon ----


@pytest.fixture(params=["18.16", "26.7"])
def pair(request, start_pair):
    """The owner n1, and clients of it and of the other node."""
    (engine, _), nodes = start_pair(request.param, session_timeout_ms=2000)
    engine.make("t", COLUMNS, DEFINITION)
    return engine, nodes[0], Client(nodes[0].url), Client(nodes[1].url)


def abandon(client, xid, reason="n1 burnt down"):
    """As soon as the dead owner's session is over."""
    deadline = time.monotonic() + 30
    while True:
        answer = post(client, xid, "abandon", {"reason": reason})
        if answer.code != "OWNER_ALIVE" or time.monotonic() > deadline:
            return answer
        time.sleep(0.2)


def test_abandon(pair, xid):
    engine, node, one, two = pair
    one.begin(f"{xid}.open").ok((200, 201))
    one.write(f"{xid}.open", f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    prepared(one, engine, xid)
    prepared(one, engine, f"{xid}.kept")
    prepared(one, engine, f"{xid}.done")
    one.commit(f"{xid}.done").ok()
    for client in (one, two):
        post(client, xid, "abandon", {"reason": "too early"}).fails("OWNER_ALIVE")
        post(client, f"{xid}.none", "abandon", {"reason": "x"}).fails("TXN_NOT_FOUND")
        post(client, xid, "abandon", {}).fails("INVALID_REQUEST")
    redirected = post(two, xid, "resolve", {"action": "retry"}).ok(307)
    assert redirected.headers["Location"] == node.url + Client.path(xid, "resolve")
    assert one.get(xid).ok()["state"] == "Prepared"
    node.kill()
    for name in (xid, f"{xid}.open"):
        answer = abandon(two, name).ok()
        assert answer["state"] == "Aborted" and answer["heuristic"] is None and answer["rows"] == 2
        assert answer["abandoned_by"] == "n2" and answer["given_reason"] == answer["reason"] == "n1 burnt down"
        assert post(two, name, "abandon", {"reason": "again"}).ok()["replay"] is True
        assert two.get(name).ok()["owner"] == "n1"
    post(two, f"{xid}.done", "abandon", {"reason": "x"}).fails("WRONG_STATE")
    # The one that came back obeys, and still has what nobody gave up.
    node.start()
    assert engine.count(engine.table("t")) == 2 and engine.detached("t") == []
    one.commit(xid).fails("WRONG_STATE")
    assert {folder for folder, _ in lost(engine)} == {f"t-{xid}", f"t-{xid}.open"}
    assert len(lost(engine)) == 4
    assert {path.split("/")[0] for path in engine.held_parts()} == {f"t-{xid}.kept"}
    one.commit(f"{xid}.kept").ok()
    assert engine.count(engine.table("t")) == 4


def test_abandon_a_decided_commit(pair, xid):
    """It was promised, so it is not aborted; nobody knows what of it is there, and it says so."""
    engine, node, one, two = pair
    prepared(one, engine, xid)
    engine.query(f"RENAME TABLE {engine.table('t')} TO {engine.table('away')}")
    one.commit(xid).fails("BLOCKED")
    node.kill()
    engine.query(f"RENAME TABLE {engine.table('away')} TO {engine.table('t')}")
    answer = abandon(two, xid).ok()
    assert answer["state"] == "Committed" and answer["heuristic"] == "hazard" and answer["discarded_rows"] == 2
    assert two.commit(xid).ok()["heuristic"] == "hazard"
    node.start()
    deadline = time.monotonic() + 20
    while not lost(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(lost(engine)) == 2 and engine.held_parts() == []
    assert engine.count(engine.table("t")) == 0 and engine.detached("t") == []
    replay = one.commit(xid).ok()
    assert replay["replay"] is True and replay["heuristic"] == "hazard"


def test_abandoned_while_the_owner_sleeps(pair, xid):
    """It wakes with all of it in memory, and obeys without a restart."""
    engine, node, one, two = pair
    prepared(one, engine, xid)
    prepared(one, engine, f"{xid}.2")
    engine.query(f"RENAME TABLE {engine.table('t')} TO {engine.table('away')}")
    one.commit(f"{xid}.2").fails("BLOCKED")
    node.process.send_signal(signal.SIGSTOP)
    try:
        assert abandon(two, xid).ok()["state"] == "Aborted"
        assert abandon(two, f"{xid}.2").ok()["heuristic"] == "hazard"
    finally:
        engine.query(f"RENAME TABLE {engine.table('away')} TO {engine.table('t')}")
        node.process.send_signal(signal.SIGCONT)
    answer = one.commit(xid)
    assert answer.code in ("WRONG_STATE", "STORE_CONFLICT", "STORE_UNAVAILABLE", "NOT_READY"), answer
    deadline = time.monotonic() + 30
    while len(lost(engine)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(lost(engine)) == 4 and engine.held_parts() == []
    assert engine.count(engine.table("t")) == 0 and engine.detached("t") == []
    one.commit(xid).fails("WRONG_STATE")
    assert one.commit(f"{xid}.2").ok()["heuristic"] == "hazard"


def test_nobody_else_to_ask(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    prepared(client, engine, xid)
    post(client, xid, "abandon", {"reason": "x"}).fails("OWNER_ALIVE")
    client.rollback(xid).ok()
    post(client, xid, "abandon", {"reason": "x"}).fails("WRONG_STATE")


# ---- the list ----


def listed(client, **filters):
    """Ids over all pages, each page small."""
    found, page = [], {}
    for _ in range(100):
        answer = client.list(limit=2, **filters, **page).ok()
        found += [entry["xid"].split(".")[-1] for entry in answer["transactions"]]
        if answer["next"] is None:
            return sorted(found)
        page = {"page": answer["next"]}
    raise AssertionError("no last page")


def test_filters(engine, client, xid):
    for name in ("t", "u", "gone"):
        engine.make(name, COLUMNS, DEFINITION)
    client.begin(f"{xid}.begun").ok((200, 201))
    prepared(client, engine, f"{xid}.promised")
    time.sleep(0.3)
    prepared(client, engine, f"{xid}.other", table="u")
    prepared(client, engine, f"{xid}.done")
    client.commit(f"{xid}.done").ok()
    prepared(client, engine, f"{xid}.stuck", table="gone")
    engine.query(f"DROP TABLE {engine.table('gone')}")
    client.commit(f"{xid}.stuck").fails("BLOCKED")
    everything = ["begun", "done", "other", "promised", "stuck"]
    for filters, expected in (
        ({}, everything),
        ({"in_doubt": 1}, ["other", "promised", "stuck"]),
        ({"blocked": 1}, ["stuck"]),
        ({"blocked": 1, "in_doubt": 1, "unfinished": 1}, ["stuck"]),
        ({"state": "Prepared,Committed"}, ["done", "other", "promised"]),
        ({"state": "Prepared,Committed", "in_doubt": 1}, ["other", "promised"]),
        ({"state": "Committed", "in_doubt": 1}, []),
        ({"state": "Prepared", "blocked": 1}, []),
        ({"table": "t"}, ["done", "promised"]),
        ({"table": f"{engine.database}.t"}, ["done", "promised"]),
        ({"table": f"{engine.database}x.t"}, []),
        ({"table": "T"}, []),
        ({"table": "gone", "blocked": 1}, ["stuck"]),
        ({"table": "u", "state": "Prepared", "owner": "n1"}, ["other"]),
        ({"older_than_ms": 300}, ["begun", "promised"]),
        ({"older_than_ms": 300, "table": "t"}, ["promised"]),
        ({"older_than_ms": 3600000}, []),
        ({"owner": "n2"}, []),
        ({"sink": "none"}, []),
    ):
        if "older_than_ms" in filters and filters["older_than_ms"] < 1000:
            found = listed(client, **filters)
            assert set(expected) <= set(found), (filters, found)
        else:
            assert listed(client, **filters) == expected, filters
    for wrong in ({"in_doubt": 2}, {"blocked": "yes"}, {"table": ""}, {"tables": "t"}, {"state": "prepared"}):
        client.list(**wrong).fails("INVALID_REQUEST")
    stuck = client.list(blocked=1).ok()["transactions"][0]
    assert stuck["blocked"] and stuck["reason"] and stuck["age_ms"] >= stuck["in_state_ms"] >= 0
    assert client.get(f"{xid}.promised").ok()["age_ms"] >= 300
    for name in ("begun", "promised", "other"):
        client.rollback(f"{xid}.{name}").ok()
    post(client, f"{xid}.stuck", "resolve", {"action": "discard", "reason": "dropped"}).ok()
    clear_lost(engine)


# ---- fsck ----


def fsck(client, **parameters):
    """Findings by kind: those of this transaction test, without what other tests left in detached/."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    answer = client.request("GET", "/v1/fsck" + (f"?{query}" if query else "")).ok()
    found = {}
    for finding in answer["findings"]:
        assert finding["meaning"] and finding["mend"] and finding["message"], finding
        found.setdefault(finding["kind"], []).append(finding)
    return found


def test_fsck_finds_nothing(engine, client, xid):
    engine.make("t", COLUMNS, DEFINITION)
    client.begin(f"{xid}.open").ok((200, 201))
    client.write(f"{xid}.open", f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    prepared(client, engine, xid)
    prepared(client, engine, f"{xid}.done")
    client.commit(f"{xid}.done").ok()
    assert fsck(client) == {}
    answer = client.request("GET", "/v1/fsck").ok()
    assert answer["node"] == "n1" and answer["transactions"] == 2 and answer["folders"] == 2 and answer["tables"] >= 1
    assert answer["truncated"] is False


def test_fsck_finds_what_is_wrong(engine, client, xid):
    """Each thing that can be out of order, made by hand."""
    engine.make("t", COLUMNS, DEFINITION)
    engine.make("gone", COLUMNS, DEFINITION)
    for name in ("missing", "marked", "aborted", "detached"):
        prepared(client, engine, f"{xid}.{name}")
    prepared(client, engine, f"{xid}.stuck", table="gone")
    engine.query(f"DROP TABLE {engine.table('gone')}")
    client.commit(f"{xid}.stuck").fails("BLOCKED")
    root = next(root for root in engine.roots() if (root / "chxa").is_dir())
    area = root / "chxa"
    held = {name: sorted((area / f"t-{xid}.{name}").iterdir()) for name in ("missing", "marked", "detached")}
    shutil.rmtree(held["missing"][0])
    held["marked"][1].with_name(held["marked"][1].name + ".moved").touch()
    client.rollback(f"{xid}.aborted").ok()
    for name in ("aborted", "orphan"):
        (area / f"t-{xid}.{name}").mkdir()
    (area / ("t-" + "x" * 200 + "~" + "0" * 32)).mkdir()
    (area / "lost").mkdir()
    shutil.copytree(held["detached"][0], area / "lost" / f"t-{xid}.old" / held["detached"][0].name)
    (area / "notes.txt").touch()
    number = held["detached"][1].name
    stray = engine.paths("t")[0] / "detached" / f"attaching_20240102_{number}_{number}_0"
    shutil.copytree(held["detached"][1], stray)
    engine.query("CREATE TABLE chxa.s_1_1 (a UInt8) ENGINE = MergeTree ORDER BY a")

    found = fsck(client)
    about = lambda kind: [finding.get("xid", "").split(".")[-1] for finding in found[kind]]
    assert about("missing_part") == ["missing"] and found["missing_part"][0]["path"] == str(held["missing"][0])
    assert about("stray_marker") == ["marked"]
    assert about("blocked") == ["stuck"] and "resolve" in found["blocked"][0]["mend"]
    assert about("detached_part") == ["detached"] and found["detached_part"][0]["path"] == str(stray)
    assert about("finished_folder") == ["aborted"]
    assert about("orphan_folder") == ["orphan"]
    assert len(found["unknown_folder"]) == 1
    assert [finding["path"] for finding in found["strange_entry"]] == [str(area / "notes.txt")]
    aside = found["set_aside"][0]
    assert aside["path"] == str(area / "lost" / f"t-{xid}.old") and aside["bytes"] > 0 and aside["age_ms"] >= 0
    assert [finding["path"] for finding in found["scratch_table"]] == ["chxa.s_1_1"]
    assert set(found) == {
        "missing_part", "stray_marker", "blocked", "detached_part", "finished_folder", "orphan_folder", "unknown_folder",
        "strange_entry", "set_aside", "scratch_table",
    }
    assert client.request("GET", "/v1/fsck?limit=1").ok()["truncated"] is True
    for wrong in ("limit=0", "limit=10001", "x=1"):
        client.request("GET", f"/v1/fsck?{wrong}").fails("INVALID_REQUEST")

    # What was set aside goes by name, and nothing else does.
    for wrong in ("", "?name=", "?name=..", "?name=t-..%2Fx", "?name=owner", f"?name=t-{xid}.old&x=1"):
        client.request("DELETE", "/v1/lost" + wrong).fails("INVALID_REQUEST")
    client.request("DELETE", f"/v1/lost?name=t-{xid}.stuck").fails("ROUTE_NOT_FOUND")
    assert client.request("DELETE", f"/v1/lost?name=t-{xid}.old").ok()["removed"] == 1
    assert "set_aside" not in fsck(client)
    client.request("DELETE", f"/v1/lost?name=t-{xid}.old").fails("ROUTE_NOT_FOUND")

    # It changed nothing: what it says mends it, mends it.
    shutil.rmtree(stray)
    (area / "notes.txt").unlink()
    held["marked"][1].with_name(held["marked"][1].name + ".moved").unlink()
    for name in ("missing", "marked", "detached"):
        client.rollback(f"{xid}.{name}").ok()
    post(client, f"{xid}.stuck", "resolve", {"action": "discard", "reason": "dropped"}).ok()
    engine.clean_held()
    engine.query("DROP TABLE chxa.s_1_1")


def test_fsck_is_not_confused_by_work(engine, client, xid):
    """Transactions begin, write and end all the time: nothing of that is a finding."""
    engine.make("t", COLUMNS, DEFINITION)
    done = threading.Event()
    failed = []

    def work(number):
        try:
            for i in itertools.count():
                if done.is_set():
                    return
                prepared(client, engine, f"{xid}.{number}.{i}")
                client.commit(f"{xid}.{number}.{i}").ok()
        except BaseException as error:  # noqa: B902 - told below
            failed.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(20):
            assert fsck(client) == {}
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert not failed, failed


@pytest.mark.parametrize("store_name", ["sqlite"])
def test_a_record_that_cannot_be_read(engine, node, client, xid):
    """One damaged record keeps nobody else from work, and is told."""
    engine.make("t", COLUMNS, DEFINITION)
    for name in ("a", "bad", "c", "worse"):
        prepared(client, engine, f"{xid}.{name}")
    node.stop()
    database = sqlite3.connect(node.store.removeprefix("sqlite:"))
    with database:
        database.execute("UPDATE txns SET record = '{\"format\": 99}' WHERE xid = ?", [f"{xid}.bad"])
        database.execute("UPDATE writes SET body = '{\"format\": 99}' WHERE xid = ?", [f"{xid}.worse"])
    database.close()
    node.start()
    # Its writes are looked at only where they are asked for.
    assert listed(client) == ["a", "c", "worse"]
    assert listed(client, table="t") == ["a", "c"]
    for name in ("bad", "worse"):
        client.get(f"{xid}.{name}").fails("INVALID_RECORD")
    found = fsck(client)
    assert [finding["xid"] for finding in found["unreadable_record"]] == [f"{xid}.bad", f"{xid}.worse"]
    for name in ("a", "c"):
        client.commit(f"{xid}.{name}").ok()
    assert engine.count(engine.table("t")) == 4
    assert {path.split("/")[0] for path in engine.held_parts()} == {f"t-{xid}.bad", f"t-{xid}.worse"}  # left alone
    engine.clean_held()
