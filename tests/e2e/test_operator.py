# SPDX-License-Identifier: Apache-2.0
"""What an operator does to a transaction in doubt, and what is kept of it."""
import json

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
    post(client, xid, "commit", b"{" + b" " * 20000).fails("BODY_TOO_LARGE")
    client.rollback(xid).ok()
