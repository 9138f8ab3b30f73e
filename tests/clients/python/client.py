# SPDX-License-Identifier: Apache-2.0
"""clickhouse-connect, unchanged, against chxad: see tests/e2e/test_clients.py for what is expected of it.

Usage: client.py URL DATABASE. Prints one JSON object: what each step gave.
"""
import json
import sys
import urllib.parse
import urllib.request

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

url, database = sys.argv[1:]
parts = urllib.parse.urlsplit(url)
seen = {}


def rest(method, path):
    with urllib.request.urlopen(urllib.request.Request(url + path, method=method)) as answer:
        return json.load(answer)["state"]


def connect(xid=None, compress=True):
    client = clickhouse_connect.get_client(host=parts.hostname, port=parts.port, database=database, compress=compress)
    if xid:
        client.headers["X-Chxa-Transaction"] = xid
    return client


def count(client):
    return client.query("SELECT count() FROM t").result_rows[0][0]


def failure(call, *args, **more):
    try:
        call(*args, **more)
    except ClickHouseError as error:
        return {"typed": True, "type": type(error).__name__, "message": str(error)[:300]}
    return None


plain = connect()
seen["ping"] = plain.ping()
plain.command("CREATE TABLE t (n UInt64, s String) ENGINE = MergeTree ORDER BY n")

# one transaction: Native blocks under lz4, zstd and clear, and a raw format
rest("PUT", "/v1/transactions/python-1")
inside = connect("python-1")
inside.insert("t", [[1, "a"], [2, "b"]], column_names=["n", "s"])
connect("python-1", "zstd").insert("t", [[i, "zstd"] for i in range(10, 10_010)], column_names=["n", "s"])
connect("python-1", "gzip").insert("t", [[3, "gzip"]], column_names=["n", "s"])
connect("python-1", "br").insert("t", [[7, "br"]], column_names=["n", "s"])
connect("python-1", False).insert("t", [[4, "clear"]], column_names=["n", "s"])
inside.raw_insert("t", ["n", "s"], "5,raw\n6,raw\n", fmt="CSV")
inside.command("INSERT INTO t VALUES (8, 'command')")
seen["before_commit"] = count(inside)
seen["state"] = rest("POST", "/v1/transactions/python-1/commit")
seen["after_commit"] = count(plain)

# a rollback, by the settings of one insert
rest("PUT", "/v1/transactions/python-2")
second = connect("python-2")
summary = second.insert("t", [[20_000, "x"]], column_names=["n", "s"])
seen["summary_rows"] = summary.written_rows
rest("POST", "/v1/transactions/python-2/rollback")
seen["after_rollback"] = count(plain)

# a bad row
rest("PUT", "/v1/transactions/python-3")
third = connect("python-3")
seen["bad_row"] = failure(third.raw_insert, "t", ["n", "s"], "not a number,x\n", fmt="CSV")
third.insert("t", [[30_000, "good"]], column_names=["n", "s"])
rest("POST", "/v1/transactions/python-3/commit")
seen["after_bad"] = count(plain)
seen["no_transaction"] = failure(connect("nobody").insert, "t", [[1, ""]], column_names=["n", "s"])

plain.insert("t", [[40_000, "outside"]], column_names=["n", "s"])
seen["outside"] = count(plain)
print(json.dumps(seen))
