# SPDX-License-Identifier: Apache-2.0
"""What a transaction asks of the store, counted: these numbers do not depend on the machine, and more of them is slower."""
import re
import threading

from rest import Client

KINDS = ("create", "cas", "add_write", "get", "remove", "sink_raise", "abandon")


def counts(client):
    """Requests to the store by kind, and its commits."""
    text = client.request("GET", "/metrics").ok().body.decode()
    found = dict.fromkeys(KINDS, 0)
    for kind, number in re.findall(r'^chxa_store_operations_total\{kind="(\w+)",result="\w+"\} (\d+)', text, re.M):
        if kind in found:  # lists are the retention's
            found[kind] += int(number)
    found["commits"] = int(re.search(r"^chxa_store_commits_total (\d+)", text, re.M)[1])
    return found


def spent(client, before):
    return {kind: number - before[kind] for kind, number in counts(client).items() if number != before[kind]}


def test_one_after_the_other(engine, client, xid):
    table = engine.make("t", "a UInt64", "ENGINE = MergeTree ORDER BY a")
    client.begin(f"{xid}.warm").ok(201)
    client.rollback(f"{xid}.warm").ok()

    before = counts(client)
    for number in range(10):
        client.begin(f"{xid}.{number}").ok(201)
        client.prepare(f"{xid}.{number}").ok()
        client.commit(f"{xid}.{number}").ok()
    assert spent(client, before) == {"create": 10, "cas": 30, "commits": 40}

    before = counts(client)
    client.begin(f"{xid}.rows").ok(201)
    for number in range(3):
        client.write(f"{xid}.rows", f"INSERT INTO {table} FORMAT CSV", b"%d\n" % number).ok()
    client.prepare(f"{xid}.rows").ok()
    client.commit(f"{xid}.rows").ok()
    assert spent(client, before) == {"create": 1, "add_write": 3, "cas": 3, "commits": 7}

    before = counts(client)
    client.begin(f"{xid}.back").ok(201)
    client.rollback(f"{xid}.back").ok()
    assert spent(client, before) == {"create": 1, "cas": 2, "commits": 3}


def test_at_once(engine, client, node, xid):
    """Many at a time ask no more of the store; how they share its commits, tests/contract/store/test_store_batch.c counts."""
    writers, each = 16, 10
    client.begin(f"{xid}.warm").ok(201)
    client.rollback(f"{xid}.warm").ok()
    before = counts(client)
    wrong = []

    def work(writer):
        mine = Client(node.url)
        try:
            for number in range(each):
                mine.begin(f"{xid}.{writer}.{number}").ok(201)
                mine.prepare(f"{xid}.{writer}.{number}").ok()
                mine.commit(f"{xid}.{writer}.{number}").ok()
        except AssertionError as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    now = spent(client, before)
    commits = now.pop("commits")
    total = writers * each
    assert now == {"create": total, "cas": 3 * total}
    assert commits <= 4 * total
