# SPDX-License-Identifier: Apache-2.0
"""Every kind of table: engines, partition keys, old syntax, disks, many columns, kinds of columns, names.

Each test loads the same rows directly into one table and in a transaction into its twin, and compares.
"""
import pytest
from tables import Engine, quoted


@pytest.fixture
def store_name(engine_name):
    """The store does not see what is looked at here: one for each engine is enough."""
    return {"18.16": "zookeeper", "26.7": "sqlite"}[engine_name]


DAYS = "".join(
    f"2024-{1 + key % 3:02d}-{1 + key % 28:02d}\t{key % 40}\t{key}\t{1 if key % 3 else -1}\n" for key in range(1000)
).encode()
DAY_COLUMNS = "day Date, key UInt32, value UInt64, sign Int8"

ENGINES = {
    "MergeTree": "MergeTree",
    "ReplacingMergeTree": "ReplacingMergeTree",
    "ReplacingMergeTree with version": "ReplacingMergeTree(value)",
    "SummingMergeTree": "SummingMergeTree",
    "SummingMergeTree of columns": "SummingMergeTree((value))",
    "CollapsingMergeTree": "CollapsingMergeTree(sign)",
    "VersionedCollapsingMergeTree": "VersionedCollapsingMergeTree(sign, value)",
}

PARTITIONS = {
    "none": "",
    "tuple()": "PARTITION BY tuple()",
    "date function": "PARTITION BY toYYYYMM(day)",
    "date": "PARTITION BY day",
    "number": "PARTITION BY key",
    "negative number": "PARTITION BY toInt32(key % 2) - 1",
    "string": "PARTITION BY toString(key % 7)",
    "tuple": "PARTITION BY (toYYYYMM(day), key % 3)",
    "tuple with a string": "PARTITION BY (toString(key % 3), toMonday(day))",
}


def twins(engine, client, xid, columns, definition, statement, bodies, select="*", final=True, **options):
    """Makes `t` and `expected`, loads each body into both, commits, compares."""
    table = engine.make("t", columns, definition)
    expected = engine.make("expected", columns, definition)
    client.begin(xid).ok((200, 201))
    for body in bodies:
        if callable(statement):
            engine.query(statement(expected))
            client.write(xid, statement(table), **options).ok()
        else:
            engine.query(statement.format(expected), body=body)
            client.write(xid, statement.format(table), body, **options).ok()
    assert engine.count(table) == 0
    client.prepare(xid).ok()
    assert engine.count(table) == 0
    client.commit(xid).ok()
    suffix = " FINAL" if final else ""
    assert engine.count(table) > 0
    assert engine.fingerprint(table + suffix, select) == engine.fingerprint(expected + suffix, select)
    assert engine.detached("t") == []
    assert engine.held() == []
    # The table is an ordinary one afterwards: it merges and takes rows.
    engine.query(f"OPTIMIZE TABLE {table} FINAL")
    engine.query(f"OPTIMIZE TABLE {expected} FINAL")
    assert engine.fingerprint(table + suffix, select) == engine.fingerprint(expected + suffix, select)
    return table


@pytest.mark.parametrize("kind", ENGINES)
def test_engines(engine, client, xid, kind):
    definition = f"ENGINE = {ENGINES[kind]} PARTITION BY toYYYYMM(day) ORDER BY (key, day)"
    half = DAYS.index(b"\n", len(DAYS) // 2) + 1
    twins(
        engine, client, xid, DAY_COLUMNS, definition,
        "INSERT INTO {} FORMAT TabSeparated", [DAYS[:half], DAYS[half:]],
        final=kind != "MergeTree",
    )  # fmt: skip


def test_aggregating(engine, client, xid):
    """Aggregate states come from an INSERT SELECT."""
    columns = "day Date, key UInt64, total AggregateFunction(sum, UInt64), seen AggregateFunction(uniq, String)"
    definition = "ENGINE = AggregatingMergeTree PARTITION BY toYYYYMM(day) ORDER BY key"
    twins(
        engine, client, xid, columns, definition,
        lambda table: f"INSERT INTO {table} SELECT toDate('2024-01-01') + number % 60 AS day, number % 10 AS key, "
        "sumState(toUInt64(number)), uniqState(toString(number)) FROM numbers(10000) GROUP BY day, key",
        [None, None], select="day, key", final=True,
    )  # fmt: skip
    merged = "SELECT key, sumMerge(total), uniqMerge(seen) FROM {} GROUP BY key ORDER BY key"
    assert engine.query(merged.format(engine.table("t"))) == engine.query(merged.format(engine.table("expected")))


@pytest.mark.parametrize("key", PARTITIONS)
def test_partition_keys(engine, client, xid, key):
    definition = f"ENGINE = MergeTree {PARTITIONS[key]} ORDER BY (key, day)"
    twins(
        engine, client, xid, DAY_COLUMNS, definition, "INSERT INTO {} FORMAT TabSeparated", [DAYS, DAYS],
        final=False,
    )  # fmt: skip


def test_nullable_and_odd_partition_values(engine, client, xid):
    """Quotes, slashes, unicode and emptiness in the values that become partition ids."""
    values = ["", "a/b", "..", "ü", "'", "\\\\", "`", " ", "%2F", "x" * 300]
    body = "".join(f"{i}\t{value}\n" for i, value in enumerate(values)).encode()
    twins(
        engine, client, xid, "key UInt32, name String",
        "ENGINE = MergeTree PARTITION BY name ORDER BY key",
        "INSERT INTO {} FORMAT TabSeparated", [body], final=False,
    )  # fmt: skip


def test_old_syntax(only_18, engine, client, xid):
    for number, definition in enumerate(
        (
            "ENGINE = MergeTree(day, (key, day), 8192)",
            "ENGINE = ReplacingMergeTree(day, (key, day), 8192, value)",
            "ENGINE = SummingMergeTree(day, (key, day), 8192)",
            "ENGINE = MergeTree(day, intHash32(key), (key, intHash32(key)), 8192)",
        )
    ):
        twins(
            engine, client, f"{xid}.{number}", DAY_COLUMNS, definition,
            "INSERT INTO {} FORMAT TabSeparated", [DAYS, DAYS], final="Merge" in definition[15:],
        )  # fmt: skip
        engine.query(f"DROP TABLE {engine.table('t')}")
        engine.query(f"DROP TABLE {engine.table('expected')}")


@pytest.mark.parametrize("store_name", ["sqlite", "zookeeper"])
def test_replicated_with_two_replicas(lab, start_node, store_name, xid):
    """Committed on one replica, fetched by the other; 18.16, where replication can be had here."""
    from rest import Client

    first, second = (Engine(lab.clickhouse("18.16", replica), "replicated") for replica in ("r1", "r2"))
    try:
        for engine in (first, second):
            engine.create()
            engine.make(
                "t", DAY_COLUMNS,
                f"ENGINE = ReplicatedMergeTree('/tables/{xid.replace(':', '-')}/t', '{{replica}}') "
                "PARTITION BY toYYYYMM(day) ORDER BY key",
            )  # fmt: skip
        first.make("expected", DAY_COLUMNS, "ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY key")
        client = Client(start_node(first, store_name).url)
        statement = "INSERT INTO {} FORMAT TabSeparated"
        client.begin(xid).ok((200, 201))
        for _ in range(3):
            # The same rows three times: replicated tables drop repeated blocks of an INSERT, a commit must not.
            client.write(xid, statement.format(first.table("t")), DAYS).ok()
            first.query(statement.format(first.table("expected")), body=DAYS)
        client.prepare(xid).ok()
        assert first.count(first.table("t")) == second.count(second.table("t")) == 0
        client.commit(xid).ok()
        assert first.count(first.table("t")) == 3000
        second.query(f"SYSTEM SYNC REPLICA {second.table('t')}")
        expected = first.fingerprint(first.table("expected"))
        assert first.fingerprint(first.table("t")) == expected
        assert second.fingerprint(second.table("t")) == expected
        assert first.detached("t") == second.detached("t") == []

        rolled_back = f"{xid}.rollback"
        client.begin(rolled_back).ok((200, 201))
        client.write(rolled_back, statement.format(first.table("t")), DAYS).ok()
        client.rollback(rolled_back).ok()
        assert first.count(first.table("t")) == second.count(second.table("t")) == 3000
    finally:
        for engine in (first, second):
            engine.drop()


def test_two_disks(only_26, engine, client, xid):
    """A storage policy of two disks: parts land on both, and each is committed on its own."""
    definition = (
        "ENGINE = MergeTree PARTITION BY key ORDER BY value SETTINGS storage_policy = 'two_disks'"
    )
    table = twins(
        engine, client, xid, DAY_COLUMNS, definition, "INSERT INTO {} FORMAT TabSeparated", [DAYS, DAYS],
        final=False,
    )  # fmt: skip
    engine.query(f"TRUNCATE TABLE {table}")
    other = f"{xid}.disks"
    client.begin(other).ok((200, 201))
    client.write(other, f"INSERT INTO {table} FORMAT TabSeparated", DAYS).ok()
    # Held on the disk where ClickHouse put each part.
    held = {root.name for root in engine.roots() if any((root / "chxa").glob("t-*/*"))}
    assert held == {"disk1", "disk2"}
    client.commit(other).ok()
    disks = engine.value(
        f"SELECT arraySort(groupUniqArray(disk_name)) FROM system.parts WHERE active AND table = 't' "
        f"AND database = '{engine.database}'"
    )
    assert disks == "['first','second']"
    third = f"{xid}.rollback"
    client.begin(third).ok((200, 201))
    client.write(third, f"INSERT INTO {table} FORMAT TabSeparated", DAYS).ok()
    client.rollback(third).ok()
    assert engine.held() == []
    assert engine.count(table) == 1000


def test_two_hundred_columns(engine, client, xid):
    columns = ", ".join(f"c{i} {('UInt32', 'String', 'Float64', 'Nullable(Int8)')[i % 4]}" for i in range(200))
    row = "\t".join(("7", "text", "1.5", "\\N")[i % 4] for i in range(200)) + "\n"
    body = "".join(str(i) + row[1:] for i in range(500)).encode()
    twins(
        engine, client, xid, columns, "ENGINE = MergeTree PARTITION BY c0 % 3 ORDER BY c0",
        "INSERT INTO {} FORMAT TabSeparated", [body, body],
        select="*" if not engine.is_old else ", ".join(f"c{i}" for i in range(200) if i % 4 != 3), final=False,
    )  # fmt: skip


def test_kinds_of_columns(engine, client, xid):
    columns = (
        "key UInt32, given String DEFAULT concat('d', toString(key)), made UInt64 MATERIALIZED key * 2, "
        "alias String ALIAS concat('a', given), maybe Nullable(String), list Array(UInt16), lists Array(Array(String)), "
        "nested Nested(name String, value Float64), choice Enum8('a' = 1, 'b' = 2), fixed FixedString(4), "
        "pair Tuple(UInt8, String), amount Decimal(18, 4), id UUID, time DateTime"
    )
    if not engine.is_old:
        columns += (
            ", low LowCardinality(String), low_maybe LowCardinality(Nullable(String)), map Map(String, UInt32), "
            "json JSON, dynamic Dynamic, variant Variant(UInt32, String), fine DateTime64(6), big Int256, ip IPv6, "
            "flag Bool, packed String CODEC(ZSTD(3)), old String TTL time + INTERVAL 1000 YEAR, "
            "INDEX by_given given TYPE bloom_filter GRANULARITY 1, CONSTRAINT positive CHECK key > 0, "
            "PROJECTION by_time (SELECT key, time ORDER BY time)"
        )
    line = (
        '{{"key":{0},"maybe":{1},"list":[{0},2],"lists":[["x"],[]],"nested.name":["n"],"nested.value":[0.5],'
        '"choice":"b","fixed":"abcd","pair":[{0},"p"],"amount":"1.2345",'
        '"id":"61f0c404-5cb3-11e7-907b-a6006ad3dba0","time":"2024-01-01 00:00:{0:02d}"'
    )
    if engine.is_old:
        line = line.replace('"pair":[{0},"p"],', "").replace('"amount":"1.2345",', '"amount":1.2345,')
    else:
        line += (
            ',"low":"l","low_maybe":null,"map":{{"k":{0}}},"json":{{"a":{{"b":[{0},"x"]}},"c":null}},"dynamic":{0},'
            '"variant":"v","fine":"2024-01-01 00:00:00.123456","big":"-1234567890123456789012345678901234567890",'
            '"ip":"::1","flag":true,"packed":"zzzz","old":"o"'
        )
    line += "}}\n"
    # Without the columns that have a default, which 18.16 computes only for columns that the INSERT does not name.
    given = "key, maybe, list, lists, nested.name, nested.value, choice, fixed, amount, id, time"
    if not engine.is_old:
        given += ", pair, low, low_maybe, map, json, dynamic, variant, fine, big, ip, flag, packed, old"
    statement = f"INSERT INTO {{}} ({given}) FORMAT JSONEachRow"
    body = "".join(line.format(i, "null" if i % 2 else '"m"') for i in range(1, 51)).encode()
    select = "key, given, made, alias, list, lists, nested.name, nested.value, choice, fixed, pair, toString(id), time"
    if not engine.is_old:
        select += ", low, map, fine, big, ip, flag, packed, old, toString(json), toString(dynamic), toString(variant)"
    definition = "ENGINE = MergeTree PARTITION BY key % 3 ORDER BY key"
    table = twins(
        engine, client, xid, columns, definition, statement, [body], select=select,
        final=False,
    )  # fmt: skip
    assert engine.value(f"SELECT given, made, alias, maybe FROM {table} WHERE key = 7") == "d7\t14\tad7\t\\N"


def test_low_cardinality_on_18(only_18, engine, client, xid):
    """Experimental there; a column of it is staged all the same."""
    if engine.value("SELECT count() FROM system.settings WHERE name = 'allow_experimental_low_cardinality_type'") == "0":
        pytest.skip("this server has no such setting")
    settings = {"allow_experimental_low_cardinality_type": 1}
    definition = "(key UInt32, low LowCardinality(String)) ENGINE = MergeTree ORDER BY key PARTITION BY low"
    for name in ("t", "expected"):
        engine.query(f"CREATE TABLE {engine.table(name)} {definition}", settings=settings)
    body = "".join(f"{i}\tvalue {i % 3}\n" for i in range(100)).encode()
    engine.query(f"INSERT INTO {engine.table('expected')} FORMAT TabSeparated", body=body)
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {engine.table('t')} FORMAT TabSeparated", body).ok()
    client.commit(xid).ok()
    hashed = "key, toString(low)"
    assert engine.fingerprint(engine.table("t"), hashed) == engine.fingerprint(engine.table("expected"), hashed)


def test_column_list_and_its_order(engine, client, xid):
    table = engine.make("t", "a UInt32, b String DEFAULT 'b', c UInt32", "ENGINE = MergeTree ORDER BY a PARTITION BY c")
    client.begin(xid).ok((200, 201))
    client.write(xid, f"INSERT INTO {table} (c, a) FORMAT TabSeparated", b"1\t10\n2\t20\n").ok()
    client.write(xid, f"insert\ninto table {table}(a,c)values", b"(30,3)").ok()
    client.commit(xid).ok()
    assert engine.query(f"SELECT a, b, c FROM {table} ORDER BY a") == "10\tb\t1\n20\tb\t2\n30\tb\t3\n"


ODD_NAMES = ["back`tick", 'double"quote', "single'quote", "dot.dot", "two words", "ünïcödé 表", "semi;colon", "back\\slash",
             "percent%2F", "INSERT", "a-b", "1st"]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_need_quoting(engine, client, xid, name):
    """The same odd name for the database, the table and a column."""
    odd = Engine(engine.server, f"{name} {engine.database}")
    odd.create()
    try:
        table = odd.make(
            name, f"{quoted(name)} UInt32, {quoted(name + '.x')} String",
            f"ENGINE = MergeTree PARTITION BY {quoted(name)} % 2 ORDER BY {quoted(name)}",
        )  # fmt: skip
        client.begin(xid).ok((200, 201))
        columns = f"({quoted(name)}, {quoted(name + '.x')})"
        client.write(xid, f"INSERT INTO {table} {columns} FORMAT TabSeparated", b"1\tx\n2\ty\n").ok()
        client.write(xid, f"INSERT INTO {table} FORMAT TabSeparated", b"3\tz\n").ok()
        record = client.get(xid).ok()
        assert record["writes"][0]["table"] == name and record["writes"][0]["database"] == odd.database
        client.prepare(xid).ok()
        client.commit(xid).ok()
        assert odd.value(f"SELECT count(), sum({quoted(name)}) FROM {table}") == "3\t6"
        assert odd.detached(name) == []
    finally:
        odd.drop()


def test_name_in_double_quotes(engine, client, xid):
    table = engine.make("a b", "key UInt32", "ENGINE = MergeTree ORDER BY key PARTITION BY tuple()")
    client.begin(xid).ok((200, 201))
    client.write(xid, f'INSERT INTO "{engine.database}"."a b" ("key") FORMAT TabSeparated', b"1\n").ok()
    client.write(xid, f"INSERT /* to */ INTO {engine.database} . -- a comment\n \"a b\" FORMAT TabSeparated", b"2\n").ok()
    client.commit(xid).ok()
    assert engine.count(table) == 2


def test_table_altered_between_write_and_prepare(engine, client, xid):
    """Harmless: a column more. Not harmless: a column of another type."""
    table = engine.make("t", "a UInt32, b UInt32", "ENGINE = MergeTree ORDER BY a PARTITION BY tuple()")
    statement = f"INSERT INTO {table} (a, b) FORMAT TabSeparated"
    client.begin(f"{xid}.more").ok((200, 201))
    client.write(f"{xid}.more", statement, b"1\t1\n").ok()
    engine.query(f"ALTER TABLE {table} ADD COLUMN c String DEFAULT 'c'")
    client.prepare(f"{xid}.more").ok()
    client.commit(f"{xid}.more").ok()
    assert engine.query(f"SELECT a, b, c FROM {table}") == "1\t1\tc\n"

    client.begin(f"{xid}.type").ok((200, 201))
    client.write(f"{xid}.type", statement, b"2\t2\n").ok()
    engine.query(f"ALTER TABLE {table} MODIFY COLUMN b String")
    answer = client.prepare(f"{xid}.type").fails("SCHEMA_CHANGED")
    assert "b" in answer.error["message"]
    assert client.rollback(f"{xid}.type").ok()["state"] == "Aborted"
    assert engine.count(table) == 1
