# SPDX-License-Identifier: Apache-2.0
"""Every cell of the state table over HTTP, every request twice, and the identities of a write."""
import contextlib
import os
import subprocess
import threading
import time

import pytest
from rest import Client

COLUMNS = "day Date, key UInt32"
DEFINITION = "ENGINE = MergeTree PARTITION BY day ORDER BY key"
ROWS = b"2024-01-01\t1\n2024-01-02\t2\n"
EVENTS = ("begin", "write", "prepare", "commit", "rollback")

# What the request answers in each state: (status, state after it, replay) or the error's code.
# From design.md, section 2.
CELLS = {
    "Unknown": {
        "begin": ((200, 201), "Initialized", False),
        "write": "TXN_NOT_FOUND",
        "prepare": "TXN_NOT_FOUND",
        "commit": "TXN_NOT_FOUND",
        "rollback": "TXN_NOT_FOUND",
    },
    "Initialized": {
        "begin": (200, "Initialized", True),
        "write": (200, "Initialized", False),
        "prepare": (200, "Prepared", False),
        "commit": (200, "Committed", False),
        "rollback": (200, "Aborted", False),
    },
    "Prepared": {
        "begin": "WRONG_STATE",
        "write": "WRONG_STATE",
        "prepare": (200, "Prepared", True),
        "commit": (200, "Committed", False),
        "rollback": (200, "Aborted", False),
    },
    "Committing": {
        "begin": "WRONG_STATE",
        "write": "WRONG_STATE",
        "prepare": "WRONG_STATE",
        "commit": "BLOCKED",
        "rollback": "WRONG_STATE",
    },
    "Committed": {
        "begin": "WRONG_STATE",
        "write": "WRONG_STATE",
        "prepare": "WRONG_STATE",
        "commit": (200, "Committed", True),
        "rollback": "WRONG_STATE",
    },
    "Aborting": {
        "begin": "WRONG_STATE",
        "write": "WRONG_STATE",
        "prepare": "WRONG_STATE",
        "commit": "WRONG_STATE",
        "rollback": (202, "Aborting", True),
    },
    "Aborted": {
        "begin": "WRONG_STATE",
        "write": "WRONG_STATE",
        "prepare": "WRONG_STATE",
        "commit": "WRONG_STATE",
        "rollback": (200, "Aborted", True),
    },
}


def send(client, event, xid, table, wait_ms=None):
    if event == "begin":
        return client.begin(xid)
    if event == "write":
        return client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", ROWS)
    return getattr(client, event)(xid, wait_ms=wait_ms)


@contextlib.contextmanager
def undeletable(path):
    """A folder that nobody can remove files from: the immutable flag (root), or its permissions."""
    if os.getuid() == 0:
        if subprocess.run(["chattr", "+i", path], capture_output=True, check=False).returncode != 0:
            pytest.skip("this filesystem has no immutable flag")
        try:
            yield
        finally:
            subprocess.run(["chattr", "-i", path], check=True)
    else:
        path.chmod(0o500)
        try:
            yield
        finally:
            path.chmod(0o700)


@contextlib.contextmanager
def transaction_in(state, engine, client, xid, table):
    """Brings a transaction into that state, and cleans up what was broken for it."""
    with contextlib.ExitStack() as stack:
        if state != "Unknown":
            client.begin(xid).ok((200, 201))
            client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
        if state in ("Prepared", "Committing", "Committed"):
            client.prepare(xid).ok()
        if state == "Committed":
            client.commit(xid).ok()
        elif state == "Aborted":
            client.rollback(xid).ok()
        elif state == "Committing":
            # A commit that cannot be finished: another table stands under the target's name.
            engine.query(f"RENAME TABLE {table} TO {engine.table('away')}")
            engine.query(f"CREATE TABLE {table} (other String) ENGINE = MergeTree PARTITION BY other ORDER BY other")
            client.commit(xid).fails("BLOCKED")

            def put_back():
                engine.query(f"DROP TABLE {table}" + ("" if engine.is_old else " SYNC"))
                engine.query(f"RENAME TABLE {engine.table('away')} TO {table}")

            stack.callback(put_back)
        elif state == "Aborting":
            # A rollback that cannot delete: the transaction's held folder is locked.
            held = [root / "chxa" / path for root in engine.roots() for path in _held_folders(root)]
            assert len(held) == 1
            stack.enter_context(undeletable(held[0]))
            answer = client.rollback(xid, wait_ms=0)
            assert answer.status in (202, 500), answer
            deadline = time.monotonic() + 10
            while client.get(xid)["state"] != "Aborting" and time.monotonic() < deadline:
                time.sleep(0.02)
        yield


def _held_folders(root):
    area = root / "chxa"
    return sorted(entry.name for entry in area.iterdir() if entry.is_dir()) if area.is_dir() else []


@pytest.mark.parametrize("state", CELLS)
def test_every_cell(engine, client, xid, state):
    """One transaction per cell; the request is sent twice and must have one effect."""
    for number, event in enumerate(EVENTS):
        table = engine.make(f"t{number}", COLUMNS, DEFINITION)
        name = f"{xid}.{event}"
        expected = CELLS[state][event]
        with transaction_in(state, engine, client, name, table):
            answer = send(client, event, name, table, wait_ms=200 if state == "Aborting" else None)
            if isinstance(expected, str):
                answer.fails(expected)
                if expected == "WRONG_STATE":
                    assert state in answer.error["message"], answer
                if state != "Unknown":
                    assert client.get(name).ok()["state"] == state
            else:
                status, after, replay = expected
                if state == "Aborting" and answer.status == 500:
                    answer.fails("IO_FAILED")
                else:
                    answer.ok(status)
                    if event != "write":
                        assert answer["state"] == after, answer
                    if state != "Aborting":
                        assert answer["replay"] is replay, answer
                assert client.get(name).ok()["state"] == after
                if event != "write":
                    again = send(client, event, name, table, wait_ms=200)
                    if state != "Aborting":
                        assert again.ok()["replay"] is True and again["state"] == after
        # Whatever happened, it can be ended, and the rows are there once or not at all.
        if state == "Committing":
            _wait_for(client, name, "Committed")
        if state == "Aborting":
            _wait_for(client, name, "Aborted")
        last = client.get(name)
        if last.status == 200 and last["state"] in ("Initialized", "Prepared"):
            client.rollback(name).ok()
        committed = last.status == 200 and client.get(name)["state"] == "Committed"
        assert engine.count(table) == (2 if committed else 0)
    assert engine.held() == []


def _wait_for(client, xid, state, seconds=20):
    """Until it gets there by itself or by our asking again."""
    deadline = time.monotonic() + seconds
    verb = client.commit if state == "Committed" else client.rollback
    while time.monotonic() < deadline:
        if verb(xid).status == 200:
            break
        time.sleep(0.1)
    assert client.get(xid).ok()["state"] == state


def test_every_request_twice(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"

    first, second = client.begin(xid).ok((200, 201)), client.begin(xid).ok()
    assert (first["replay"], second["replay"]) == (False, True)
    assert first["created_ms"] == second["created_ms"]

    first = client.write(xid, statement, ROWS, write_id="w1").ok()
    second = client.write(xid, statement, ROWS, write_id="w1").ok()
    assert (first["replay"], second["replay"]) == (False, True)
    assert first["rows"] == second["rows"] == 2
    assert first["seq"] == second["seq"] == 1

    for verb, state in ((client.prepare, "Prepared"), (client.commit, "Committed")):
        first, second = verb(xid).ok(), verb(xid).ok()
        assert (first["replay"], second["replay"]) == (False, True)
        assert first["state"] == second["state"] == state
        assert first["rows"] == second["rows"] == 2
    assert engine.count(table) == 2

    client.forget(xid).ok((200, 204))
    client.forget(xid).fails("TXN_NOT_FOUND")
    assert engine.count(table) == 2


def test_write_id(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client.begin(xid).ok((200, 201))
    client.write(xid, statement, ROWS, write_id="w1").ok()
    # Another body, another statement: not the same write.
    client.write(xid, statement, ROWS + b"2024-01-03\t3\n", write_id="w1").fails("WRITE_ID_REUSED")
    client.write(xid, statement.replace("TabSeparated", "CSV"), ROWS, write_id="w1").fails("WRITE_ID_REUSED")
    # The same body under another id is another write.
    client.write(xid, statement, ROWS, write_id="w2").ok()
    # Without an id each request is a write of its own.
    client.write(xid, statement, ROWS).ok()
    client.write(xid, statement, ROWS).ok()
    client.commit(xid).ok()
    assert engine.count(table) == 8


def test_same_write_id_at_the_same_time(engine, client, xid):
    """A client that gave up and sent again while the first is still running: one write."""
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    body = b"".join(b"2024-01-01\t%d\n" % key for key in range(20_000))
    client.begin(xid).ok((200, 201))
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.write(xid, statement, body, write_id="w")))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Those that met the first one still running may be told to come back; nobody is told a lie.
    assert {answer.status for answer in answers} <= {200, 503}
    assert sum(answer.status == 200 and not answer["replay"] for answer in answers) == 1
    assert client.write(xid, statement, body, write_id="w").ok()["replay"] is True
    client.commit(xid).ok()
    assert engine.count(table) == 20_000


def test_commit_by_many_at_once(engine, client, xid):
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
    client.prepare(xid).ok()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.commit(xid))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.ok()["state"] for answer in answers] == ["Committed"] * 8
    assert engine.count(table) == 2


def test_commit_and_rollback_race(engine, client, xid):
    """Exactly one wins, and everybody is told which."""
    table = engine.make("t", COLUMNS, DEFINITION)
    for attempt in range(5):
        name = f"{xid}.{attempt}"
        before = engine.count(table)
        client.begin(name).ok((200, 201))
        client.write(name, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
        client.prepare(name).ok()
        answers = {}
        threads = [
            threading.Thread(target=lambda verb=verb: answers.update({verb: getattr(client, verb)(name)}))
            for verb in ("commit", "rollback")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer.status for answer in answers.values()) == [200, 409], answers
        won = "Committed" if answers["commit"].status == 200 else "Aborted"
        assert client.get(name).ok()["state"] == won
        assert engine.count(table) - before == (2 if won == "Committed" else 0)
    assert engine.held() == []


def test_wait_ms(engine, client, xid):
    """Past wait_ms the answer is 202 and the state; the commit goes on by itself."""
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
    # Not waited for at all, so the decision may not even be recorded yet.
    answer = client.commit(xid, wait_ms=0).ok((200, 202))
    assert answer["state"] in ("Initialized", "Committing", "Committed")
    deadline = time.monotonic() + 10
    while client.get(xid).ok()["state"] != "Committed" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.get(xid)["state"] == "Committed"
    assert engine.count(table) == 2
    client.commit(xid, wait_ms="soon").fails("INVALID_REQUEST")
    client.commit(xid, wait_ms=-1).fails("INVALID_REQUEST")


def test_list_filters_and_pages(engine, client, xid):
    names = [f"{xid}.{number:02d}" for number in range(7)]
    for name in names:
        client.begin(name).ok((200, 201))
    for name in names[:3]:
        client.prepare(name).ok()
    client.commit(names[0]).ok()
    client.rollback(names[6]).ok()

    def listed(**filters):
        return sorted(entry["xid"] for entry in client.list(**filters).ok()["transactions"])

    assert listed() == names
    assert listed(state="Prepared") == names[1:3]
    assert listed(state="Initialized") == names[3:6]
    assert listed(state="Committed") == names[:1]
    assert listed(state="Aborted") == names[6:]
    assert listed(owner="n1") == names
    assert listed(owner="somebody") == []
    assert listed(older_than_ms=3_600_000) == []
    client.list(state="Sleeping").fails("INVALID_REQUEST")


def test_begin_with_fields(engine, client, xid):
    meta = {"offsets": {"topic-0": 12345678901234567, "ü": None}, "text": "a\"b\\c\n"}
    client.begin(xid, timeout_ms=60_000, meta=meta).ok((200, 201))
    record = client.get(xid).ok()
    assert record["meta"] == meta
    assert record["timeout_ms"] == 60_000


@pytest.mark.parametrize(
    "name", ["a", "A.b_c:d-9", "x" * 280, "0", "-", "_", "...", "job/1".replace("/", ":")]
)
def test_good_xids(engine, client, name):
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(name).ok((200, 201))
    client.write(name, f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
    assert client.get(name).ok()["xid"] == name
    client.commit(name).ok()
    assert engine.count(table) == 2


@pytest.mark.parametrize("name", ["x" * 281, "a b", "a%b", "ü", "a'b", "a`b", "a\\b", "a\nb", "a;b", "a*"])
def test_bad_xids(engine_name, store_name, client, name):
    for answer in (client.begin(name), client.commit(name), client.get(name)):
        answer.fails("INVALID_XID")


def test_idle_timeout_aborts_only_what_is_not_prepared(engine, store_name, start_node, xid):
    client = Client(start_node(engine, store_name, idle_timeout_ms=500).url)
    table = engine.make("t", COLUMNS, DEFINITION)
    for name in ("open", "prepared"):
        client.begin(f"{xid}.{name}").ok((200, 201))
        client.write(f"{xid}.{name}", f"INSERT INTO {table} FORMAT TabSeparated", ROWS).ok()
    client.prepare(f"{xid}.prepared").ok()
    deadline = time.monotonic() + 10
    while client.get(f"{xid}.open")["state"] != "Aborted" and time.monotonic() < deadline:
        time.sleep(0.1)
    record = client.get(f"{xid}.open").ok()
    assert record["state"] == "Aborted" and record["reason"]
    client.commit(f"{xid}.open").fails("WRONG_STATE")
    time.sleep(1)
    assert client.get(f"{xid}.prepared").ok()["state"] == "Prepared"
    client.commit(f"{xid}.prepared").ok()
    assert engine.count(table) == 2


def test_restart_keeps_what_was_prepared(engine, store_name, start_node, xid):
    """A stop and a start between prepare and commit, and one between begin and write."""
    node = start_node(engine, store_name)
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client = Client(node.url)
    for name in ("prepared", "open", "done"):
        client.begin(f"{xid}.{name}").ok((200, 201))
        client.write(f"{xid}.{name}", statement, ROWS, write_id="w").ok()
    client.prepare(f"{xid}.prepared").ok()
    client.commit(f"{xid}.done").ok()

    assert node.stop() == 0
    node.start()
    client = Client(node.url)
    assert client.get(f"{xid}.prepared").ok()["state"] == "Prepared"
    assert client.commit(f"{xid}.prepared").ok()["state"] == "Committed"
    assert client.commit(f"{xid}.done").ok()["replay"] is True
    assert client.get(f"{xid}.open").ok()["state"] == "Initialized"
    assert client.write(f"{xid}.open", statement, ROWS, write_id="w").ok()["replay"] is True
    client.write(f"{xid}.open", statement, ROWS, write_id="w2").ok()
    client.commit(f"{xid}.open").ok()
    assert engine.count(table) == 2 + 2 + 4
    assert engine.held() == []


def test_killed_and_started_again(engine, store_name, start_node, xid):
    """kill -9: what was acknowledged is there, what was not is gone."""
    node = start_node(engine, store_name, session_timeout_ms=1000)
    table = engine.make("t", COLUMNS, DEFINITION)
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client = Client(node.url)
    for name in ("prepared", "aborted"):
        client.begin(f"{xid}.{name}").ok((200, 201))
        client.write(f"{xid}.{name}", statement, ROWS).ok()
        client.prepare(f"{xid}.{name}").ok()
    node.kill()
    node.start()
    client = Client(node.url)
    assert client.get(f"{xid}.prepared").ok()["state"] == "Prepared"
    client.rollback(f"{xid}.aborted").ok()
    client.commit(f"{xid}.prepared").ok()
    assert engine.count(table) == 2
    assert engine.held() == []
    assert engine.detached("t") == []


def test_limits_of_parts(engine, store_name, start_node, xid):
    """Over all writes of a transaction, and in one partition; what went too far leaves nothing."""
    limits = {"parts_per_transaction_max": 3, "parts_per_partition_max": 2}
    client = Client(start_node(engine, store_name, **limits).url)
    table = engine.make("t", "a UInt32", "ENGINE = MergeTree PARTITION BY a % 2 ORDER BY a")
    statement = f"INSERT INTO {table} FORMAT TabSeparated"
    client.begin(xid).ok((200, 201))
    assert client.write(xid, statement, b"1\n2\n").ok()["parts"] == 2
    client.write(xid, statement, b"3\n4\n").fails("TOO_MANY_PARTS")
    client.write(xid, statement, b"3\n").ok()
    assert len(engine.held_parts()) == 3
    client.commit(xid).ok()
    assert engine.count(table) == 3
    client.begin(f"{xid}.2").ok((200, 201))
    for row in (b"1\n", b"3\n", b"5\n"):
        client.write(f"{xid}.2", statement, row).ok()
    refused = client.prepare(f"{xid}.2").fails("TOO_MANY_PARTS")
    assert "parts_per_partition_max" in refused.error["message"]
    client.rollback(f"{xid}.2").ok()
    assert engine.count(table) == 3
