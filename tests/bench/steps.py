# SPDX-License-Identifier: Apache-2.0
"""Times begin, write, prepare and commit next to the ClickHouse statements inside them.

    /usr/bin/python3 tests/bench/steps.py [ROWS [TRANSACTIONS]]

One write of ROWS rows (1000) into one partition per transaction; medians in milliseconds over TRANSACTIONS (50) of
them, one after the other, each request on a connection that is kept. The direct INSERT is into an equal table whose
merges are off, as they are in a scratch table; the ATTACH is of one part that was detached before.
"""
import http.client
import pathlib
import statistics
import sys
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import servers  # noqa: E402

COLUMNS = "day Date, key UInt64, value String"
DEFINITION = "ENGINE = MergeTree PARTITION BY tuple() ORDER BY key"
NO_MERGES = (
    " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
)


class Connection:
    """One kept connection; call() sends a request and returns its milliseconds."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)

    def call(self, method, target, body=b""):
        started = time.perf_counter()
        self.connection.request(method, target, body)
        response = self.connection.getresponse()
        answer = response.read()
        took = (time.perf_counter() - started) * 1000
        assert response.status < 300, answer
        return took

    def statement(self, text, body=b""):
        return self.call("POST", "/?" + urllib.parse.urlencode({"query": text}), body)


def measure_direct(clickhouse, body, repeats):
    direct = Connection(clickhouse.url)
    clickhouse.query(f"CREATE TABLE bench.direct ({COLUMNS}) {DEFINITION}{NO_MERGES}")
    inserts = [
        direct.statement("INSERT INTO bench.direct FORMAT TabSeparated", body) for _ in range(repeats)
    ]
    # Parts to attach: those of the table, detached all at once.
    names = [row[0] for row in clickhouse.rows(
        "SELECT name FROM system.parts WHERE active AND database = 'bench' AND table = 'direct'"
    )]  # fmt: skip
    clickhouse.query("ALTER TABLE bench.direct DETACH PARTITION tuple()")
    attaches = [direct.statement(f"ALTER TABLE bench.direct ATTACH PART '{name}'") for name in names]
    return inserts, attaches


def measure_chxa(node, body, repeats):
    client = Connection(node.url)
    times = {"begin": [], "write": [], "prepare": [], "commit": []}
    query = urllib.parse.urlencode({"query": "INSERT INTO bench.staged FORMAT TabSeparated"})
    for number in range(repeats):
        path = f"/v1/transactions/bench.{number}"
        times["begin"].append(client.call("PUT", path))
        times["write"].append(client.call("POST", f"{path}/writes?{query}", body))
        times["prepare"].append(client.call("POST", f"{path}/prepare"))
        times["commit"].append(client.call("POST", f"{path}/commit"))
    return times


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    body = "".join(f"2024-01-01\t{key}\tvalue {key}\n" for key in range(rows)).encode()
    folder = servers.Folder("chxa-bench-")
    started = []

    def start(server):
        started.append(server)
        return server.start()

    try:
        zookeeper = start(servers.ZooKeeper(folder.path / "zookeeper"))
        engines = [
            start(servers.ClickHouse18(folder.path / "ch18", zookeeper)),
            start(servers.ClickHouse26(folder.path / "ch26")),
        ]
        print(f"medians in ms over {repeats} transactions of one write of {rows} rows")
        heads = ("engine", "store", "INSERT", "ATTACH", "begin", "write", "prepare", "commit")
        print("%-7s %-10s" % heads[:2] + "".join("%9s" % head for head in heads[2:]))
        for clickhouse in engines:
            clickhouse.query("CREATE DATABASE bench")
            clickhouse.query(f"CREATE TABLE bench.staged ({COLUMNS}) {DEFINITION}")
            inserts, attaches = measure_direct(clickhouse, body, repeats)
            for store in (f"sqlite:{folder.path}/{clickhouse.name}.db",
                          f"zookeeper:{zookeeper.address}/bench-{clickhouse.name}"):  # fmt: skip
                home = folder.path / f"{clickhouse.name}-{store.split(':')[0]}"
                node = start(servers.Chxad(home, "n1", store, clickhouse))
                times = measure_chxa(node, body, repeats)
                node.stop()
                columns = [inserts, attaches, *times.values()]
                print("%-7s %-10s" % (clickhouse.engine, store.split(":")[0])
                      + "".join("%9.2f" % statistics.median(column) for column in columns))  # fmt: skip
    finally:
        for server in reversed(started):
            server.stop()
        folder.remove()


if __name__ == "__main__":
    main()
