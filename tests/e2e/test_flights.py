# SPDX-License-Identifier: Apache-2.0
"""Real data in every format, through a transaction, equal to a direct INSERT of the same bytes."""
import pytest
from data import (
    AIRPORTS,
    AIRPORTS_COLUMNS,
    BIRDSTRIKES,
    FLIGHTS_200K,
    FLIGHTS_200K_COLUMNS,
    FLIGHTS_COLUMNS,
    FLIGHTS_TABLE,
    Flights,
    flights_200k_lines,
)


@pytest.fixture(scope="session")
def flights(folder, lab):
    (folder / "flights").mkdir()
    return Flights(folder / "flights", lab.clickhouse("26.7"))


def load(engine, client, xid, table, statement, opener, rows):
    """Loads the same bytes directly into `expected` and in a transaction into `table`; compares."""
    target, expected = engine.table(table), engine.table("expected")
    with opener() as body:
        engine.query(statement.format(expected), body=body)

    client.begin(xid).ok((200, 201))
    with opener() as body:
        written = client.write(xid, statement.format(target), body).ok()
    assert written["rows"] == rows
    assert engine.count(target) == 0
    client.prepare(xid).ok()
    assert engine.count(target) == 0
    assert client.commit(xid).ok()["state"] == "Committed"

    assert engine.count(target) == rows
    assert engine.fingerprint(target) == engine.fingerprint(expected)
    assert engine.detached(table) == []
    assert engine.held() == []


@pytest.mark.parametrize("form", ["CSV", "TabSeparated", "JSONEachRow", "RowBinary", "Native", "TSVWithNames"])
def test_flights(engine, client, xid, flights, form):
    for name in ("flights", "expected"):
        engine.make(name, FLIGHTS_COLUMNS, FLIGHTS_TABLE)
    path = flights.file(form, 200_000)
    statement = "INSERT INTO {} FORMAT " + form
    load(engine, client, xid, "flights", statement, lambda: open(path, "rb"), 200_000)


@pytest.mark.parametrize("form", ["Native", "RowBinary"])
def test_three_million_flights(engine, client, xid, flights, form):
    for name in ("flights", "expected"):
        engine.make(name, FLIGHTS_COLUMNS, FLIGHTS_TABLE)
    path = flights.file(form)
    statement = "INSERT INTO {} FORMAT " + form
    load(engine, client, xid, "flights", statement, lambda: open(path, "rb"), 3_000_000)


def test_parquet_file_as_it_comes(only_26, engine, client, xid, flights):
    for name in ("flights", "expected"):
        engine.make(name, FLIGHTS_COLUMNS, FLIGHTS_TABLE)
    path = flights.file("Parquet")
    statement = "INSERT INTO {} FORMAT Parquet"
    load(engine, client, xid, "flights", statement, lambda: open(path, "rb"), 3_000_000)


def test_json_file_as_it_comes(engine, client, xid, folder):
    """The file is one JSON array, which 26.7 takes as JSONEachRow and 18.16 does not."""
    for name in ("flights", "expected"):
        engine.make(name, FLIGHTS_200K_COLUMNS, "ENGINE = MergeTree PARTITION BY tuple() ORDER BY distance")
    path = FLIGHTS_200K
    if engine.is_old:
        path = folder / "flights-200k.jsonl"
        path.write_bytes(flights_200k_lines())
    statement = "INSERT INTO {} FORMAT JSONEachRow"
    load(engine, client, xid, "flights", statement, lambda: open(path, "rb"), 200_000)


def test_csv_file_with_a_header(engine, client, xid):
    for name in ("airports", "expected"):
        engine.make(name, AIRPORTS_COLUMNS, "ENGINE = MergeTree PARTITION BY country ORDER BY iata")
    statement = "INSERT INTO {} FORMAT CSVWithNames"
    load(engine, client, xid, "airports", statement, lambda: open(AIRPORTS, "rb"), 3376)


def test_csv_file_with_quotes_and_empty_fields(engine, client, xid):
    """14 columns of text, some quoted with commas inside, partitioned by one of them."""
    columns = ", ".join(f"c{i} String" for i in range(13)) + ", c13 Nullable(Float64)"
    for name in ("birdstrikes", "expected"):
        engine.make(name, columns, "ENGINE = MergeTree PARTITION BY c6 ORDER BY (c0, c3)")
    header, _, rest = BIRDSTRIKES.read_bytes().partition(b"\n")
    assert header.count(b",") == 13

    class Opener:
        def __enter__(self):
            return rest

        def __exit__(self, *_):
            return None

    statement = "INSERT INTO {} FORMAT CSV"
    rows = len(rest.splitlines())
    load(engine, client, xid, "birdstrikes", statement, Opener, rows)
