#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rows per second of the streaming write of libchxa, beside curl with the same file straight to ClickHouse.

Both load a TSV file into a MergeTree table of the same server, one after the other, several times; the table is emptied
in between. The streaming write appends small batches; its figure includes prepare and commit.

    tests/bench/stream.py [--engine 18|26] [--rows N] [--batch ROWS] [--rounds N]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

import servers  # noqa: E402

COLUMNS = "key UInt64, at DateTime, name String, value Float64"


def make_file(path, rows):
    with open(path, "w", encoding="ascii") as file:
        for key in range(rows):
            file.write(f"{key}\t2026-01-01 00:{key // 60 % 60:02}:{key % 60:02}\tname {key * 7919 % 100003}\t{key * 0.25}\n")


def curl(url, path):
    before = time.monotonic()
    answer = subprocess.run(
        ["curl", "-sS", "--fail-with-body", "-H", "Expect:", "--data-binary", f"@{path}", url],
        check=True, capture_output=True)
    assert not answer.stdout, answer.stdout
    return time.monotonic() - before


def stream(node, statement, path, batch):
    answer = subprocess.run(
        [servers.BUILD / "tests" / "bench_stream", node.url, statement, path, str(batch)], check=True, capture_output=True)
    times = json.loads(answer.stdout)
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", default="26", choices=["18", "26"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    folder = servers.Folder("chxa-bench-")
    started = []
    try:
        path = folder.path / "rows.tsv"
        make_file(path, wanted.rows)
        make = servers.ClickHouse18 if wanted.engine == "18" else servers.ClickHouse26
        clickhouse = make(folder.path / "clickhouse").start()
        started.append(clickhouse)
        node = servers.Chxad(folder.path / "chxad", "n1", f"sqlite:{folder.path}/chxa.db", clickhouse).start()
        started.append(node)
        clickhouse.query(f"CREATE TABLE default.bench ({COLUMNS}) ENGINE = MergeTree ORDER BY key")
        statement = "INSERT INTO default.bench FORMAT TabSeparated"
        direct_url = f"{clickhouse.url}/?query={urllib.parse.quote(statement)}"
        direct, parts = [], []
        for _ in range(wanted.rounds):
            for load in (lambda: direct.append(curl(direct_url, path)),
                         lambda: parts.append(stream(node, statement, path, wanted.batch))):
                clickhouse.query("TRUNCATE TABLE default.bench")
                load()
                assert int(clickhouse.value("SELECT count() FROM default.bench")) == wanted.rows
        size = path.stat().st_size / 1e6
        streamed = [sum(times.values()) / 1000 for times in parts]
        one, other = statistics.median(direct), statistics.median(streamed)
        print(f"ClickHouse {wanted.engine}: {wanted.rows} rows, {size:.0f} MB, batches of {wanted.batch} rows, median of {wanted.rounds}")
        print(f"  curl straight to ClickHouse: {one:.2f} s, {wanted.rows / one:,.0f} rows/s")
        print(f"  streaming write with prepare and commit: {other:.2f} s, {wanted.rows / other:,.0f} rows/s, {one / other:.2f} times curl")
        for step in parts[0]:
            print(f"    {step.removesuffix('_ms')}: {statistics.median(times[step] for times in parts):.0f} ms")
    finally:
        for server in reversed(started):
            server.stop()
        folder.remove()


if __name__ == "__main__":
    main()
