# SPDX-License-Identifier: Apache-2.0
"""Sinks: a writer with an old epoch is fenced, what was committed last is known, recovery in one request; and a late
retry of what is forgotten."""
import itertools
import threading
import time

import pytest

from rest import Client

COLUMNS = "day Date, key UInt32"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
ROWS = b"2024-01-01\t1\n2024-01-02\t2\n"

_numbers = itertools.count(1)


@pytest.fixture
def sink():
    return f"job.{next(_numbers)}:0"


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


def insert(table):
    return f"INSERT INTO {table} FORMAT TabSeparated"


def begin(client, sink, xid, epoch, **fields):
    return client.begin(xid, sink=sink, epoch=epoch, **fields)


def written(client, table, sink, xid, epoch, prepare=False, **fields):
    begin(client, sink, xid, epoch, **fields).ok(201)
    client.write(xid, insert(table), ROWS).ok()
    if prepare:
        client.prepare(xid).ok()


def listed(answer):
    return {entry["xid"]: entry for entry in answer["transactions"]}


# ---- fencing ----


def test_a_zombie_is_fenced_everywhere(engine, table, client, sink):
    """The old epoch's writer wakes when the new one has begun: begin, write, prepare, commit all fail; the rest goes."""
    for xid in ("w", "p", "c", "done"):
        written(client, table, sink, xid, 1, prepare=xid == "done")
    begin(client, sink, "new", 2).ok(201)
    begin(client, sink, "late", 1).fails("FENCED")
    client.get("late").fails("TXN_NOT_FOUND")
    client.write("w", insert(table), ROWS).fails("FENCED")
    client.prepare("p").fails("FENCED")
    client.commit("c").fails("FENCED")
    for xid in ("w", "p", "c"):
        record = client.get(xid).ok()
        assert (record["state"], record["rows"], record["epoch"]) == ("Initialized", 2, 1)
        # Again, and in another order, it is the same.
        client.commit(xid).fails("FENCED")
        client.prepare(xid).fails("FENCED")
        client.write(xid, insert(table), ROWS).fails("FENCED")
        assert client.rollback(xid).ok()["state"] == "Aborted"
    assert client.commit("done").ok()["state"] == "Committed"
    client.write("new", insert(table), ROWS).ok()
    assert client.commit("new").ok()["state"] == "Committed"
    assert engine.count(table) == 4
    assert engine.held() == []
    assert client.sink(sink).ok()["epoch"] == 2


def test_begin_of_what_another_writer_began(client, sink):
    begin(client, sink, "x", 5).ok(201)
    assert begin(client, sink, "x", 5).ok(200)["replay"] is True
    begin(client, sink, "x", 4).fails("FENCED")
    begin(client, sink, "x", 6).fails("WRONG_STATE")
    begin(client, "another", "x", 5).fails("WRONG_STATE")
    client.begin("x").fails("WRONG_STATE")
    client.begin("y").ok(201)
    begin(client, sink, "y", 5).fails("WRONG_STATE")
    assert client.sink(sink).ok()["epoch"] == 5


def test_no_sink_no_fence(engine, table, client, sink):
    client.begin("free").ok(201)
    begin(client, sink, "x", 9).ok(201)
    begin(client, sink + "x", "y", 1).ok(201)
    for xid in ("free", "x", "y"):
        client.write(xid, insert(table), ROWS).ok()
        assert client.commit(xid).ok()["state"] == "Committed"
    assert engine.count(table) == 6


def test_fences_survive_a_restart(table, node, client, sink):
    written(client, table, sink, "old", 1)
    begin(client, sink, "new", 2).ok(201)
    assert node.stop() == 0
    node.start()
    client = Client(node.url)
    client.prepare("old").fails("FENCED")
    begin(client, sink, "older", 1).fails("FENCED")
    assert client.sink(sink).ok()["epoch"] == 2


# ---- the last committed checkpoint ----


def test_what_was_committed_last(table, client, sink):
    empty = client.sink(sink).ok()
    assert (empty["epoch"], empty["checkpoint"], empty["open"], empty["more"]) == (0, None, [], False)
    meta = {"offsets": [1, 2**53 + 1, "ü"], "deep": {"null": None}}
    written(client, table, sink, "a", 1, prepare=True, meta=meta)
    written(client, table, sink, "b", 1, prepare=True, meta=[0.5])
    written(client, table, sink, "gone", 1)
    state = client.sink(sink).ok()
    assert state["checkpoint"] is None
    assert sorted(entry["xid"] for entry in state["open"]) == ["a", "b", "gone"]
    client.rollback("gone").ok()
    # Out of order: the one that began last counts.
    client.commit("b").ok()
    client.commit("a").ok()
    state = client.sink(sink).ok()
    assert state["open"] == []
    assert (state["checkpoint"]["xid"], state["checkpoint"]["meta"], state["checkpoint"]["epoch"]) == ("b", [0.5], 1)
    assert abs(state["checkpoint"]["committed_ms"] / 1000 - time.time()) < 60
    written(client, table, sink, "c", 2, meta=meta)
    client.commit("c").ok()
    assert client.sink(sink).ok()["checkpoint"]["meta"] == meta
    # Forgotten transactions leave it.
    client.forget("c").ok()
    assert client.sink(sink).ok()["checkpoint"]["xid"] == "c"


def test_meta_at_prepare(table, node, client, sink):
    """Offsets that are known only at the barrier are stored with the promise, and published with the rows."""
    written(client, table, sink, "a", 1, meta={"offset": 1})
    assert client.prepare("a", meta={"offset": 2**53 + 1}).ok()["meta"] == {"offset": 2**53 + 1}
    # The first prepare counts.
    again = client.prepare("a", meta={"offset": 9}).ok()
    assert (again["replay"], again["meta"]) == (True, {"offset": 2**53 + 1})
    assert node.stop() == 0
    node.start()
    client = Client(node.url)
    assert client.get("a").ok()["meta"] == {"offset": 2**53 + 1}
    assert client.sink(sink).ok()["checkpoint"] is None
    client.commit("a").ok()
    assert client.sink(sink).ok()["checkpoint"]["meta"] == {"offset": 2**53 + 1}
    client.prepare("a", meta=3).fails("WRONG_STATE")
    # Without one, what begin gave stays; null is a value.
    written(client, table, sink, "b", 1, meta=[1])
    assert client.prepare("b").ok()["meta"] == [1]
    written(client, table, sink, "c", 1, meta=[1])
    assert client.prepare("c", meta=None).ok()["meta"] is None
    assert client.get("b").ok()["meta"] == [1]
    client.rollback("b").ok()
    client.commit("c").ok()
    assert client.sink(sink).ok()["checkpoint"]["meta"] is None


def test_meta_at_a_commit_in_one_phase(table, client, sink):
    written(client, table, sink, "a", 1, meta=1)
    client.commit("a", meta="x" * 17_000).fails("INVALID_REQUEST")
    client.commit("a", meta=2, other=3).fails("INVALID_REQUEST")
    assert client.commit("a", meta={"offset": 2}, reason="done").ok()["meta"] == {"offset": 2}
    assert client.commit("a", meta=3).ok()["replay"] is True
    assert client.sink(sink).ok()["checkpoint"]["meta"] == {"offset": 2}
    # What was prepared keeps what it promised; a rollback has no use for one.
    written(client, table, sink, "b", 1, prepare=True, meta=4)
    client.request("POST", client.path("b", "rollback"), b'{"meta": 5}').fails("INVALID_REQUEST")
    assert client.commit("b", meta=5).ok()["meta"] == 4
    assert client.sink(sink).ok()["checkpoint"]["meta"] == 4


def test_meta_of_a_prepare_that_fails(table, client, sink):
    written(client, table, sink, "old", 1, meta="begin")
    begin(client, sink, "new", 2).ok(201)
    client.prepare("old", meta="prepare").fails("FENCED")
    assert client.get("old").ok()["meta"] == "begin"
    for body in (b"[]", b'{"meta": 1, "x": 2}', b'{"Meta": 1}', b'{"meta": 1, "meta": 2}', b"{", b'{"meta": "\\u0000"}'):
        client.request("POST", client.path("new", "prepare"), body).fails("INVALID_REQUEST")
    client.prepare("new", meta="x" * 17_000).fails("INVALID_REQUEST")
    client.prepare("new", meta="x" * 30_000).fails("BODY_TOO_LARGE")
    assert client.get("new").ok()["state"] == "Initialized"
    assert client.prepare("new", meta=5).ok()["meta"] == 5


def test_a_late_retry_of_what_is_forgotten(table, client, sink):
    written(client, table, sink, "a", 3, prepare=True, meta={"offset": 7})
    client.commit("a").ok()
    begun_ms = client.get("a").ok()["created_ms"]
    client.forget("a").ok()
    paths = [("POST", "a", verb) for verb in ("commit", "prepare", "rollback", "writes")]
    for method, xid, verb in [*paths, ("GET", "a", ""), ("DELETE", "a", "")]:
        more = {"query": insert(table)} if verb == "writes" else {}
        plain = client.request(method, client.path(xid, verb, **more)).fails("TXN_NOT_FOUND")
        # The store is as old as this test's chxad, and nothing was purged.
        assert begun_ms - 60_000 < plain["history_starts_ms"] <= begun_ms
        assert "sink" not in plain.json
        answer = client.request(method, client.path(xid, verb, sink=sink, **more)).fails("TXN_NOT_FOUND")
        assert answer["sink"]["checkpoint"]["xid"] == "a"
        assert answer["sink"]["checkpoint"]["meta"] == {"offset": 7}
        client.request(method, client.path(xid, verb, sink="a/b", **more)).fails("INVALID_REQUEST")
        never = client.request(method, client.path(xid, verb, sink="never", **more)).fails("TXN_NOT_FOUND")
        assert never["sink"] == {"sink": "never", "epoch": 0, "checkpoint": None}


# ---- recover ----


def test_recover(engine, table, client, sink):
    written(client, table, sink, "decided", 1, prepare=True, meta=1)
    written(client, table, sink, "undecided", 1, prepare=True, meta=2)
    written(client, table, sink, "open", 1)
    written(client, table, sink + "x", "other", 1, prepare=True)
    answer = client.recover(sink, 2, ["decided"]).ok()
    assert (answer["sink"], answer["epoch"], answer["complete"]) == (sink, 2, True)
    assert answer["checkpoint"]["xid"] == "decided" and answer["checkpoint"]["meta"] == 1
    entries = listed(answer)
    assert {xid: (e["action"], e["state"], e["pending"]) for xid, e in entries.items()} == {
        "decided": ("commit", "Committed", False),
        "undecided": ("rollback", "Aborted", False),
        "open": ("rollback", "Aborted", False),
    }
    assert engine.count(table) == 2
    assert client.get("other").ok()["state"] == "Prepared"
    # Again: the same end, nothing done twice.
    again = client.recover(sink, 2, ["decided"]).ok()
    assert again["complete"] is True and listed(again)["decided"]["state"] == "Committed"
    assert engine.count(table) == 2
    client.recover(sink, 1, ["undecided"]).fails("FENCED")
    begin(client, sink, "late", 1).fails("FENCED")
    # The new writer's own work is not touched by its own request, sent again or late.
    written(client, table, sink, "mine", 2, prepare=True)
    late = client.recover(sink, 2, ["decided"]).ok()
    assert listed(late)["mine"]["action"] == "none"
    assert client.get("mine").ok()["state"] == "Prepared"
    assert client.recover(sink, 2, ["mine"]).ok()["complete"] is True
    assert client.sink(sink).ok()["checkpoint"]["xid"] == "mine"


def test_recover_tells_what_does_not_end(table, client, sink):
    written(client, table, sink, "never-prepared", 1)
    written(client, table, sink, "aborted", 1)
    client.rollback("aborted").ok()
    client.begin("foreign").ok(201)
    answer = client.recover(sink, 2, ["never-prepared", "aborted", "foreign", "unknown", "aborted"]).ok()
    assert answer["complete"] is False
    assert [entry["xid"] for entry in answer["transactions"]] == ["never-prepared", "aborted", "foreign", "unknown"]
    entries = listed(answer)
    assert {xid: entry["error"]["code"] for xid, entry in entries.items()} == {
        "never-prepared": "FENCED", "aborted": "WRONG_STATE", "foreign": "INVALID_REQUEST", "unknown": "TXN_NOT_FOUND",
    }
    assert answer["history_starts_ms"] > 0
    assert client.get("foreign").ok()["state"] == "Initialized"
    # Not listed, it is rolled back.
    assert listed(client.recover(sink, 2, []).ok())["never-prepared"]["state"] == "Aborted"
    assert client.recover(sink, 2).ok()["transactions"] == []


def test_recover_refuses(client, sink):
    for body in (b"", b"[]", b"{}", b'{"epoch": -1}', b'{"epoch": "1"}', b'{"epoch": 1, "commit": "x"}',
                 b'{"epoch": 1, "x": 1}', b'{"epoch": 1, "epoch": 2}', b"{"):
        client.request("POST", f"/v1/sinks/{sink}/recover", body).fails("INVALID_REQUEST")
    for xid in ("a/b", "", 1, None):
        client.recover(sink, 1, [xid]).fails("INVALID_XID")
    client.recover(sink, 1, ["x"] * 10_001).fails("INVALID_REQUEST")
    client.request("POST", f"/v1/sinks/{sink}/recover?wait=1", b'{"epoch": 1}').fails("INVALID_REQUEST")
    client.request("GET", "/v1/sinks/a%20b").fails("INVALID_REQUEST")
    client.request("GET", "/v1/sinks/" + "x" * 281).fails("INVALID_REQUEST")
    client.request("PUT", f"/v1/sinks/{sink}").fails("METHOD_NOT_ALLOWED")
    assert client.sink(sink).ok()["epoch"] == 0


def test_recover_without_waiting(engine, table, client, sink):
    written(client, table, sink, "a", 1, prepare=True)
    written(client, table, sink, "b", 1)
    answer = client.recover(sink, 2, ["a"], wait_ms=0).ok((200, 202))
    assert (answer.status == 202) == any(entry["pending"] for entry in answer["transactions"])
    assert answer["complete"] is (answer.status == 200)
    assert client.recover(sink, 2, ["a", "b"]).ok()["transactions"][0]["state"] == "Committed"
    assert client.get("b").ok()["state"] in ("Aborting", "Aborted")
    assert engine.count(table) == 2


def test_recover_many(engine, table, client, sink):
    """More than a page of the store's list; and the new writer begins meanwhile."""
    for number in range(60):
        begin(client, sink, f"m{number}", 1).ok(201)
    written(client, table, sink, "a", 1, prepare=True)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.recover(sink, 2, ["a"])))
    thread.start()
    begin(client, sink, "new", 2).ok(201)
    thread.join()
    assert answers[0].ok()["complete"] is True
    assert sum(entry["state"] == "Aborted" for entry in answers[0]["transactions"]) == 60
    assert [entry["xid"] for entry in client.sink(sink).ok()["open"]] == ["new"]
    assert engine.count(table) == 2


# ---- two nodes ----


@pytest.fixture
def pair(start_pair):
    engines, nodes = start_pair()
    for engine in engines:
        engine.make("t", COLUMNS, DEFINITION)
    return engines, nodes, [Client(node.url) for node in nodes]


def recover_everywhere(client, sink, epoch, commit):
    """What a client does: the same request at each node that owns some of it."""
    answer = client.recover(sink, epoch, commit).ok()
    urls = {entry["owner_url"] for entry in answer["transactions"] if entry.get("error", {}).get("code") == "NOT_OWNER"}
    for url in urls:
        Client(url).recover(sink, epoch, commit)
    return client.recover(sink, epoch, commit).ok()


def test_a_zombie_at_the_other_node(pair, sink):
    engines, _, (one, two) = pair
    table = engines[0].table("t")
    for xid in ("w", "p", "c", "done"):
        written(one, table, sink, xid, 1, prepare=xid == "done")
    begin(two, sink, "new", 2).ok(201)
    one.write("w", insert(table), ROWS).fails("FENCED")
    one.prepare("p").fails("FENCED")
    one.commit("c").fails("FENCED")
    begin(one, sink, "late", 1).fails("FENCED")
    assert one.commit("done").ok()["state"] == "Committed"
    # Both nodes see both halves of the entry, and go on with it.
    for client in (one, two):
        state = client.sink(sink).ok()
        assert (state["epoch"], state["checkpoint"]["xid"]) == (2, "done")
    two.write("new", insert(engines[1].table("t")), ROWS).ok()
    assert two.commit("new").ok()["state"] == "Committed"
    assert one.sink(sink).ok()["checkpoint"]["xid"] == "new"


def test_recover_over_two_nodes(pair, sink):
    engines, nodes, (one, two) = pair
    for client, engine, name in ((one, engines[0], "1"), (two, engines[1], "2")):
        written(client, engine.table("t"), sink, f"yes{name}", 1, prepare=True)
        written(client, engine.table("t"), sink, f"no{name}", 1, prepare=True)
    first = one.recover(sink, 2, ["yes1", "yes2"]).ok()
    entries = listed(first)
    assert first["complete"] is False
    assert entries["yes1"]["state"] == "Committed" and entries["no1"]["state"] == "Aborted"
    for xid in ("yes2", "no2"):
        assert entries[xid]["error"]["code"] == "NOT_OWNER"
        assert (entries[xid]["owner"], entries[xid]["owner_url"], entries[xid]["state"]) == ("n2", nodes[1].url, "Prepared")
    last = recover_everywhere(one, sink, 2, ["yes1", "yes2"])
    assert last["complete"] is True
    assert [engine.count(engine.table("t")) for engine in engines] == [2, 2]
    assert two.get("no2").ok()["state"] == "Aborted"
    assert two.sink(sink).ok()["open"] == []


def test_recover_while_the_other_node_is_away(pair, sink):
    engines, nodes, (one, two) = pair
    written(two, engines[1].table("t"), sink, "yes", 1, prepare=True)
    written(two, engines[1].table("t"), sink, "never", 1)
    assert nodes[1].stop() == 0
    answer = one.recover(sink, 2, ["yes"]).ok()
    assert answer["complete"] is False
    assert {entry["error"]["code"] for entry in answer["transactions"]} == {"NOT_OWNER"}
    nodes[1].start()
    two = Client(nodes[1].url)
    two.commit("never").fails("FENCED")
    assert recover_everywhere(one, sink, 2, ["yes"])["complete"] is True
    assert engines[1].count(engines[1].table("t")) == 2
