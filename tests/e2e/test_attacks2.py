# SPDX-License-Identifier: Apache-2.0
"""Attacks on the ClickHouse-compatible endpoint: rows that should be staged must never reach the live table."""
import socket

import pytest
from front import ask
from rest import split_url

COLUMNS, DEFINITION = "n UInt64, s String", "ENGINE = MergeTree ORDER BY n"


@pytest.fixture
def store_name():
    return "sqlite"


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


def raw(url, request, timeout=20, shut=True):
    """Sends bytes, reads to the end of the connection."""
    with socket.create_connection(split_url(url), timeout=timeout) as connection:
        connection.sendall(request)
        if shut:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while True:
            piece = connection.recv(65536)
            if not piece:
                return answer
            answer += piece


def form(*parts):
    """multipart/form-data, as curl -F makes it."""
    body = b"".join(f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in parts)
    return {"Content-Type": "multipart/form-data; boundary=B"}, body + b"--B--\r\n"


# ---- statements that a server reads as an INSERT and a careless look does not ----

HIDDEN = {
    "nested comment": "/* /* */ INSERT INTO {t} VALUES (1, 'a')",
    "nested comment, closed": "/* /* */ */ INSERT INTO {t} VALUES (1, 'a')",
    "em space": "\u2003INSERT INTO {t} VALUES (1, 'a')",
    "zero width space": "\u200bINSERT INTO {t} VALUES (1, 'a')",
    "ideographic space": "\u3000INSERT INTO {t} VALUES (1, 'a')",
    "minus signs": "\u2212\u2212 x\nINSERT INTO {t} VALUES (1, 'a')",
    "alias": "WITH 1 AS select INSERT INTO {t} SELECT 1, 'a'",
    "alias in brackets": "WITH select AS (SELECT 1 AS n) INSERT INTO {t} SELECT 1, 'a'",
    "semicolon": ";INSERT INTO {t} VALUES (1, 'a')",
    "second": "SELECT 1; INSERT INTO {t} VALUES (1, 'a')",
    "second, with": "WITH 1 AS x SELECT x; INSERT INTO {t} VALUES (1, 'a')",
    "parallel": "CREATE TABLE IF NOT EXISTS {t} (n UInt8) ENGINE = Memory PARALLEL WITH INSERT INTO {t} SELECT 1, 'a'",
    "bracket": "(INSERT INTO {t} VALUES (1, 'a'))",
    "explain": "EXPLAIN SELECT 1 PARALLEL WITH INSERT INTO {t} SELECT 1, 'a'",
    "hash": "# x\nINSERT INTO {t} VALUES (1, 'a')",
    "slashes": "// x\nINSERT INTO {t} VALUES (1, 'a')",
    "heredoc": "WITH $a$ select $a$ AS x INSERT INTO {t} SELECT 1, 'a'",
    "dollar": "WITH 1 AS $select INSERT INTO {t} SELECT 1, 'a'",
    "nul": "\0INSERT INTO {t} VALUES (1, 'a')",
}


def test_a_hidden_insert_does_not_reach_the_table(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    through = []
    for name, text in HIDDEN.items():
        text = text.format(t=table)
        replies = [ask(node.url, chxa_txn=xid, body=text.encode())]
        if "\0" not in text:
            replies += [ask(node.url, chxa_txn=xid, query=text), ask(node.url, chxa_txn=xid, query=text[:5], body=text[5:].encode())]
        if engine.count(table):
            through.append((name, replies))
            engine.query(f"TRUNCATE TABLE {table}")
    assert not through


TARGETS = ("/", "/x", "/x/", "//", "/?", "/play", "/replicas_status", "/v1x", "http://h/x")
METHODS = ("POST", "PUT", "GET", "HEAD", "DELETE", "OPTIONS", "PATCH")


def test_another_path_or_method_does_not_reach_the_table(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    through = []
    text = f"INSERT INTO {table} VALUES (1, 'a')"
    plus = text.replace(" ", "+")
    for method in METHODS:
        for target in TARGETS:
            mark = "&" if "?" in target else "?"
            head = f"{method} {target}{mark}chxa_txn={xid}"
            tail = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length:"
            answers = [raw(node.url, f"{head}&query={plus} {tail} 0\r\n\r\n".encode())]
            if method not in ("GET", "HEAD"):
                answers.append(raw(node.url, f"{head} {tail} {len(text)}\r\n\r\n{text}".encode()))
            if engine.count(table):
                through.append((method, target, answers))
                engine.query(f"TRUNCATE TABLE {table}")
    assert not through


TWICE = ("query=&query={s}", "query=+&query={s}", "query={s}&query=", "query=/*&query=*/{s}", "query=SELECT+1+/*&query=*/;{s}", "%71uery=+&query={s}")


def test_a_query_given_twice(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    for pairs in TWICE:
        pairs = pairs.format(s=f"INSERT+INTO+{table}+VALUES+(1,'a')")
        answer = raw(node.url, f"POST /?chxa_txn={xid}&{pairs} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400"), answer
    assert engine.count(table) == 0


def test_names_of_ours_that_are_not(engine, node, table):
    """A misspelt or empty name must not make it a write outside of a transaction."""
    insert = f"INSERT INTO {table} VALUES (1, 'a')"
    for parameters, headers in (({"chxa_txn": ""}, {}), ({"chxa_tnx": "a"}, {}), ({"CHXA_TXN": "a"}, {}), ({}, {"X-Chxa-Txn": "a"}), ({}, {"X-Chxa-Transaction": ""})):
        reply = ask(node.url, body=insert, headers=headers, **parameters)
        assert reply.status == 400 and reply.exception == 36, reply
    assert engine.count(table) == 0


def test_a_form(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    insert = f"INSERT INTO {table} VALUES (1, 'a')"
    headers, body = form(("query", insert))
    reply = ask(node.url, chxa_txn=xid, headers=headers, body=body)
    assert engine.count(table) == 0, reply
    reply = ask(node.url, chxa_txn=xid, headers=headers, body=body, query=" ")
    assert engine.count(table) == 0, reply
    headers["Content-Type"] = headers["Content-Type"].upper().replace("BOUNDARY=B", "boundary=B")
    reply = ask(node.url, chxa_txn=xid, headers=headers, body=body)
    assert engine.count(table) == 0, reply


def test_reads_only_cannot_write(engine, start_node, table):
    node = start_node(engine, "sqlite", passthrough="reads")
    insert = f"INSERT INTO {table} VALUES (1, 'a')"
    plus = insert.replace(" ", "+")
    for method in METHODS:
        for extra in ("", "&readonly=0&readonly=0", "&%72eadonly=0", "&READONLY=0", "&profile=default", "&session_id=s"):
            answer = raw(node.url, f"{method} /?query={plus}{extra} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
            assert engine.count(table) == 0, (method, extra, answer)
    headers, body = form(("readonly", "0"), ("query", insert))
    for parameters in ({}, {"query": insert}, {"query": insert, "readonly": 0}):
        reply = ask(node.url, headers=headers, body=body, **parameters)
        assert engine.count(table) == 0, reply
    headers, body = form(("readonly", "0"))
    reply = ask(node.url, headers=headers, body=body, query=insert)
    assert engine.count(table) == 0, reply


def test_a_body_behind_a_query_that_selects(engine, node, client, table, xid):
    """ClickHouse reads the two as one statement; rows must not be lost without a word."""
    client.begin(xid).ok(201)
    reply = ask(node.url, chxa_txn=xid, query=f"INSERT INTO {table} SELECT number, 'a'", body=b" FROM numbers(3)")
    client.commit(xid).ok()
    assert engine.count(table) == (3 if reply.status == 200 else 0), reply


def test_a_transaction_named_twice(engine, node, client, table, xid):
    client.begin(xid).ok(201)
    client.begin(xid + "b").ok(201)
    statement = f"INSERT+INTO+{table}+VALUES+(1,'a')"
    for target, header in ((f"chxa_txn={xid}&chxa_txn={xid}b", ""), (f"chxa_txn=&chxa_txn={xid}b", ""), ("a=1", f"X-Chxa-Transaction: {xid}\r\nX-Chxa-Transaction: {xid}b\r\n")):
        answer = raw(node.url, f"POST /?{target}&query={statement} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 400"), answer
    assert engine.count(table) == 0


def test_odd_answer_headers(engine, only_26, node):
    for name in ("X-\u00e9", "X\u0001", "", " ", "X:Y", "X\r\nY", "Content-Length", "Connection", "X-Chxa-Replay"):
        ask(node.url, body=("SELECT 1 SETTINGS http_response_headers = $$" + "{'" + name + "': 'v'}$$").encode())
        ask(node.url, body=("SELECT 1 SETTINGS http_response_headers = $$" + "{'X-A': 'v" + name + "'}$$").encode())
    ask(node.url, body=b"SELECT 1").ok()


def test_an_answer_that_breaks_off_is_seen_by_an_old_client(engine, only_26, node):
    """HTTP/1.0 has no chunks: a clean end of the connection would be the end of the answer."""
    query = "SELECT throwIf(number = 3000000), number FROM numbers(4000000) SETTINGS max_block_size = 1000, max_threads = 1, http_write_exception_in_output_format = 0"
    with pytest.raises(ConnectionResetError):
        raw(node.url, f"POST / HTTP/1.0\r\nContent-Length: {len(query)}\r\n\r\n{query}".encode(), shut=False)
