# SPDX-License-Identifier: Apache-2.0
"""Targets that cannot be staged: refused at the first write, with a reason that says what to do."""
import pytest

COLUMNS = "key UInt32, value String"
DEFINITION = "ENGINE = MergeTree PARTITION BY key % 2 ORDER BY key"


@pytest.fixture
def store_name(engine_name):
    """The store does not see what is looked at here: one for each engine is enough."""
    return {"18.16": "zookeeper", "26.7": "sqlite"}[engine_name]


@pytest.fixture
def refused(engine, client, xid):
    """refused(target, code, *words): the write is refused so, and the transaction goes on."""
    good = engine.make("good", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))

    def check(target, code, *words):
        answer = client.write(xid, f"INSERT INTO {target} FORMAT TabSeparated", b"1\tx\n").fails(code)
        message = answer.error["message"]
        assert len(message) > 30, message
        for word in words:
            assert word.lower() in message.lower(), message
        return message

    yield check
    client.write(xid, f"INSERT INTO {good} FORMAT TabSeparated", b"1\tx\n2\ty\n").ok()
    client.prepare(xid).ok()
    client.commit(xid).ok()
    assert engine.count(good) == 2
    assert engine.held() == []


def test_missing_table(engine, refused):
    refused(engine.table("nothing"), "TARGET_NOT_FOUND", "nothing")
    refused("`no such db`.t", "TARGET_NOT_FOUND", "no such db")


def test_distributed(engine, refused):
    base = engine.make("base", COLUMNS, DEFINITION)
    engine.query(
        f"CREATE TABLE {engine.table('dist')} ({COLUMNS}) ENGINE = Distributed('test', '{engine.database}', 'base')"
    )
    refused(engine.table("dist"), "TARGET_UNSUPPORTED", "Distributed", "dist")
    assert engine.count(base) == 0


def test_buffer(engine, refused):
    base = engine.make("base", COLUMNS, DEFINITION)
    engine.query(
        f"CREATE TABLE {engine.table('buffer')} ({COLUMNS}) "
        f"ENGINE = Buffer('{engine.database}', 'base', 1, 1, 1, 1, 1, 1, 1)"
    )
    refused(engine.table("buffer"), "TARGET_UNSUPPORTED", "Buffer")
    assert engine.count(base) == 0


@pytest.mark.parametrize("kind", ["Memory", "Log", "TinyLog", "StripeLog", "Null"])
def test_not_a_merge_tree(engine, refused, kind):
    engine.make("other", COLUMNS, f"ENGINE = {kind}")
    refused(engine.table("other"), "TARGET_UNSUPPORTED", kind)


def test_view(engine, refused):
    engine.make("base", COLUMNS, DEFINITION)
    engine.query(f"CREATE VIEW {engine.table('view')} AS SELECT * FROM {engine.table('base')}")
    refused(engine.table("view"), "TARGET_UNSUPPORTED", "view")


def test_table_with_a_materialized_view(engine, refused, client, xid):
    base = engine.make("base", COLUMNS, DEFINITION)
    engine.make("sums", "key UInt32, n UInt64", "ENGINE = SummingMergeTree ORDER BY key PARTITION BY tuple()")
    engine.query(
        f"CREATE MATERIALIZED VIEW {engine.table('mv')} TO {engine.table('sums')} AS "
        f"SELECT key, toUInt64(1) AS n FROM {base}"
    )
    refused(base, "TARGET_HAS_VIEWS", "mv", "views=skip")
    # Unless the client says that it does not want them.
    skipped = f"{xid}.skip"
    client.begin(skipped).ok((200, 201))
    client.write(skipped, f"INSERT INTO {base} FORMAT TabSeparated", b"1\tx\n", views="skip").ok()
    client.commit(skipped).ok()
    assert engine.count(base) == 1
    assert engine.count(engine.table("sums")) == 0


@pytest.mark.parametrize("skip", [False, True])
def test_a_materialized_view_is_made_before_prepare(engine, client, xid, skip):
    """It would silently go without these rows; who said views=skip has said so."""
    base = engine.make("base", COLUMNS, DEFINITION)
    engine.make("sums", "key UInt32, n UInt64", "ENGINE = SummingMergeTree ORDER BY key PARTITION BY tuple()")
    client.begin(xid).ok((200, 201))
    more = {"views": "skip"} if skip else {}
    client.write(xid, f"INSERT INTO {base} (key) FORMAT TabSeparated", b"1\n", **more).ok()
    engine.query(
        f"CREATE MATERIALIZED VIEW {engine.table('mv')} TO {engine.table('sums')} AS "
        f"SELECT key, toUInt64(1) AS n FROM {base}"
    )
    if skip:
        client.commit(xid).ok()
        assert engine.count(base) == 1
    else:
        assert "mv" in client.prepare(xid).fails("SCHEMA_CHANGED").error["message"]
        assert "mv" in client.commit(xid).fails("SCHEMA_CHANGED").error["message"]
        client.rollback(xid).ok()


def test_materialized_view_itself(engine, refused):
    base = engine.make("base", COLUMNS, DEFINITION)
    engine.query(
        f"CREATE MATERIALIZED VIEW {engine.table('mv')} ENGINE = MergeTree ORDER BY key PARTITION BY tuple() AS "
        f"SELECT * FROM {base}"
    )
    refused(engine.table("mv"), "TARGET_UNSUPPORTED", "view")


def test_table_function(engine, client, xid):
    base = engine.make("base", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    for target in (
        f"FUNCTION remote('127.0.0.1:{engine.server.tcp_port}', {engine.database}, base)",
        "FUNCTION file('x.csv', 'CSV', 'key UInt32, value String')",
    ):
        answer = client.write(xid, f"INSERT INTO {target} FORMAT TabSeparated", b"1\tx\n")
        assert answer.code in ("INVALID_QUERY", "TARGET_UNSUPPORTED"), answer
        assert "function" in answer.error["message"].lower()
    client.rollback(xid).ok()
    assert engine.count(base) == 0


def test_system_table(engine, refused):
    refused("system.one", "TARGET_UNSUPPORTED", "one")
