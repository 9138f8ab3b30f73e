# SPDX-License-Identifier: Apache-2.0
"""Real data in every format: the flights of the npm package vega-datasets.

flights-3m.parquet holds three million flights (date, delay, distance, origin, destination);
flights-200k.json two hundred thousand (delay, distance, time). ClickHouse 26.7 turns the Parquet file
into the other formats, once per run; both engines then load the same bytes.
"""
from servers import VEGA

FLIGHTS = VEGA / "flights-3m.parquet"
FLIGHTS_200K = VEGA / "flights-200k.json"
AIRPORTS = VEGA / "airports.csv"
BIRDSTRIKES = VEGA / "birdstrikes.csv"

FLIGHTS_COLUMNS = "date DateTime, delay Int32, distance UInt32, origin String, destination String"
FLIGHTS_TABLE = "ENGINE = MergeTree PARTITION BY toYYYYMM(date) ORDER BY (origin, date)"
FLIGHTS_200K_COLUMNS = "delay Int32, distance UInt32, time Float64"
AIRPORTS_COLUMNS = (
    "iata String, name String, city String, state String, country String, latitude Float64, longitude Float64"
)


class Flights:
    """Files of flights in a folder, made when first wanted."""

    def __init__(self, folder, clickhouse26):
        self.folder = folder
        self.clickhouse = clickhouse26

    def file(self, form, rows=3_000_000):
        """Path of the first `rows` flights in that format."""
        if form == "Parquet" and rows == 3_000_000:
            return FLIGHTS
        path = self.folder / f"flights-{rows}.{form}"
        if not path.exists():
            if self.clickhouse.value("EXISTS TABLE default.flights_source") == "0":
                self.clickhouse.query(
                    f"CREATE TABLE default.flights_source ({FLIGHTS_COLUMNS}) ENGINE = Memory"
                )
                with open(FLIGHTS, "rb") as body:
                    self.clickhouse.query("INSERT INTO default.flights_source FORMAT Parquet", body=body)
            data = self.clickhouse.query(
                f"SELECT * FROM default.flights_source LIMIT {rows} FORMAT {form}",
                settings={"max_threads": 1},
                raw=True,
            )
            path.write_bytes(data)
        return path


def flights_200k_lines():
    """flights-200k.json, one object per line."""
    text = FLIGHTS_200K.read_bytes().strip()
    assert text.startswith(b"[{") and text.endswith(b"}]")
    return text[1:-1].replace(b"},{", b"}\n{") + b"\n"
