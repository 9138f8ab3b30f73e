# SPDX-License-Identifier: Apache-2.0
"""Two nodes on one ZooKeeper, each with a ClickHouse of its own."""
import pytest
from rest import Client

COLUMNS = "day Date, key UInt32"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
ROWS = b"2024-01-01\t1\n2024-01-02\t2\n"


@pytest.fixture(params=["18.16", "26.7"])
def pair(request, start_pair):
    engines, nodes = start_pair(request.param)
    for engine in engines:
        engine.make("t", COLUMNS, DEFINITION)
    return engines, nodes


def test_begin_here_commit_there(pair, xid):
    (engine, other), (first, second) = pair
    one, two = Client(first.url), Client(second.url)
    table = engine.table("t")
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    one.begin(xid).ok((200, 201))
    one.write(xid, statement, ROWS).ok()

    # The other node answers reads, and sends everything else to the owner.
    record = two.get(xid).ok()
    assert record["owner"] == "n1" and record["rows"] == 2
    assert [entry["xid"] for entry in two.list(owner="n1").ok()["transactions"]] == [xid]
    for verb in ("prepare", "commit", "rollback"):
        answer = getattr(two, verb)(xid).ok(307)
        assert answer.headers["Location"] == first.url + Client.path(xid, verb)
        assert "n1" in answer.body.decode()
    kept = two.prepare(xid, wait_ms=777).ok(307)
    assert kept.headers["Location"].endswith("wait_ms=777")
    assert two.get(xid)["state"] == "Initialized"

    # A write there is refused and names the owner.
    refusal = two.write(xid, statement, ROWS).fails("NOT_OWNER")
    assert refusal.status == 421
    assert "n1" in refusal.error["message"] and first.url in refusal.body.decode()
    # A large one too, before it has sent it all.
    two.write(xid, statement, b"2024-01-01\t1\n" * 500_000).fails("NOT_OWNER")

    follower = Client(second.url, follow=True)
    assert follower.prepare(xid).ok()["state"] == "Prepared"
    assert follower.commit(xid).ok()["state"] == "Committed"
    assert engine.count(table) == 2
    assert other.count(other.table("t")) == 0
    assert two.get(xid).ok()["state"] == "Committed"
    assert follower.commit(xid).ok()["replay"] is True
    assert engine.held() == other.held() == []


def test_rollback_there(pair, xid):
    (engine, other), (first, second) = pair
    one, follower = Client(first.url), Client(second.url, follow=True)
    one.begin(xid).ok((200, 201))
    one.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    assert follower.rollback(xid).ok()["state"] == "Aborted"
    assert engine.held() == []
    assert engine.count(engine.table("t")) == 0


def test_begin_of_a_transaction_that_the_other_owns(pair, xid):
    """An id is one transaction in the whole cluster."""
    _, (first, second) = pair
    one, two = Client(first.url), Client(second.url)
    one.begin(xid).ok((200, 201))
    answer = two.begin(xid)
    assert answer.status in (200, 307, 421), answer
    assert two.get(xid).ok()["owner"] == "n1"
    if answer.status == 200:
        assert answer["owner"] == "n1"


def test_each_node_owns_its_own(pair, xid):
    (engine, other), (first, second) = pair
    clients = Client(first.url), Client(second.url)
    for number, (client, each) in enumerate(zip(clients, (engine, other))):
        client.begin(f"{xid}.{number}").ok((200, 201))
        client.write(f"{xid}.{number}", f"INSERT INTO {each.table('t')} FORMAT TabSeparated", ROWS).ok()
    names = sorted(entry["xid"] for entry in clients[0].list().ok()["transactions"])
    assert names == [f"{xid}.0", f"{xid}.1"]
    for number in (0, 1):
        Client(clients[1 - number].host + f":{clients[1 - number].port}", follow=True).commit(f"{xid}.{number}").ok()
    assert engine.count(engine.table("t")) == other.count(other.table("t")) == 2


def test_nodes(pair):
    _, (first, second) = pair
    for server in (first, second):
        listed = Client(server.url).request("GET", "/v1/nodes").ok()["nodes"]
        assert sorted((node["node"], node["url"]) for node in listed) == [("n1", first.url), ("n2", second.url)]


def test_owner_is_gone(pair, xid):
    """Reads go on; the redirect still names the owner; when it is back the commit is possible."""
    (engine, _), (first, second) = pair
    one, two = Client(first.url), Client(second.url)
    one.begin(xid).ok((200, 201))
    one.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", ROWS).ok()
    one.prepare(xid).ok()
    assert first.stop() == 0
    assert two.get(xid).ok()["state"] == "Prepared"
    assert two.commit(xid).status in (307, 503)
    first.start()
    follower = Client(second.url, follow=True)
    assert follower.commit(xid).ok()["state"] == "Committed"
    assert engine.count(engine.table("t")) == 2
