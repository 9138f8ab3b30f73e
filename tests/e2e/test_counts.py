# SPDX-License-Identifier: Apache-2.0
"""What a transaction costs in counts, which no busy machine changes: statements and store operations.

A node that has seen the table before is measured, as it is in life: the scratch table is there, and the table's
definition is known and was not touched for a while. A count that falls is written down here as the new bound.
"""
import collections
import re
import time

import pytest

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


def transaction(client, table, xid, writes):
    client.begin(xid).ok((200, 201))
    for number in range(writes):
        client.write(xid, f"INSERT INTO {table} (day, key, value) FORMAT TabSeparated", rows(number)).ok()
    client.prepare(xid).ok()
    assert client.commit(xid).ok()["state"] == "Committed"


@pytest.fixture
def warm_table(engine, client, xid):
    """A table that the node knows; and its scratch table has been used."""
    table = engine.make("t", COLUMNS, DEFINITION)
    time.sleep(SETTLED_SECONDS)
    transaction(client, table, f"{xid}:first", 2)
    return table


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
