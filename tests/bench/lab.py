# SPDX-License-Identifier: Apache-2.0
"""The servers of a benchmark, each started when a comparison first asks for it, and the compiled load generator."""
import itertools
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import servers  # noqa: E402

COLUMNS = "key UInt64, at DateTime, name String, value Float64"
# As an INSERT finds it that is not yet slowed down: what ClickHouse does about too many parts is not compared here.
MANY_PARTS = "parts_to_delay_insert = 1000000, parts_to_throw_insert = 1000000"
NO_MERGES = "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
TICKS = os.sysconf("SC_CLK_TCK")
ENGINES = {"18": "18.16", "26": "26.7"}


class LoadFailed(Exception):
    pass


class Lab:
    """folder is removed by who made it; stop() ends what was started."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self.names = itertools.count(1)

    def _once(self, key, make):
        if key not in self.running:
            self.running[key] = make().start()
        return self.running[key]

    @property
    def zookeeper(self):
        return self._once("zookeeper", lambda: servers.ZooKeeper(self.folder / "zookeeper"))

    def clickhouse(self, engine):
        def make():
            # Replicated tables are not measured; 18.16 wants no ZooKeeper then.
            return servers.ClickHouse18(self.folder / "ch18") if engine == "18" else servers.ClickHouse26(self.folder / "ch26")

        server = self._once(f"clickhouse {engine}", make)
        server.query("CREATE DATABASE IF NOT EXISTS bench")
        return server

    def store(self, kind, name):
        """The setting `store` for a store of its own."""
        return f"sqlite:{self.folder}/{name}.db" if kind == "sqlite" else f"zookeeper:{self.zookeeper.address}/{name}"

    def make_node(self, engine, store, **options):
        """A chxad with a store and a place of its own, not started."""
        name = f"n{next(self.names)}"
        options = {"log_level": "warn", **options}
        return servers.Chxad(self.folder / name, name, self.store(store, name), self.clickhouse(engine), options)

    def node(self, engine, store, fresh=False, **options):
        """The one that the comparisons share, or a new one. A ClickHouse has one chxad: another is stopped first."""
        key, wanted = f"chxad {engine}", (store, options)
        if key in self.running and (fresh or self.running[key].wanted != wanted):
            self.running.pop(key).stop()
        node = self._once(key, lambda: self.make_node(engine, store, **options))
        node.wanted = wanted
        return node

    def cpu_seconds(self):
        """What the servers have used so far."""
        ticks = 0
        for server in self.running.values():
            ticks += cpu_ticks(server)
        return ticks / TICKS

    def stop(self):
        for server in reversed(list(self.running.values())):
            server.stop()
        self.running = {}

    # ---- tables ----

    def table(self, engine, columns=COLUMNS, order="key", settings=MANY_PARTS):
        """A new table; Table.insert is the head of the INSERT into it."""
        clickhouse = self.clickhouse(engine)
        name = f"bench.t{next(self.names)}"
        text = f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree PARTITION BY tuple() ORDER BY {order}"
        clickhouse.query(f"{text} SETTINGS {settings}")
        return Table(clickhouse, name)


def cpu_ticks(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


class Table:
    def __init__(self, clickhouse, name):
        self.clickhouse = clickhouse
        self.name = name

    def insert(self, text="TabSeparated"):
        return f"INSERT INTO {self.name} FORMAT {text}"

    def empty(self):
        self.clickhouse.query(f"TRUNCATE TABLE {self.name}")

    def drop(self):
        self.clickhouse.query(f"DROP TABLE {self.name}")

    def must_hold(self, rows):
        found = int(self.clickhouse.value(f"SELECT count() FROM {self.name}"))
        if found != rows:
            raise LoadFailed(f"{self.name} holds {found} rows, not {rows}")

    def parts(self):
        return [row[0] for row in self.clickhouse.rows(
            f"SELECT name FROM system.parts WHERE active AND database = 'bench' AND table = '{self.name[6:]}' ORDER BY name"
        )]  # fmt: skip


def load_command(kind, url, query=None, **options):
    command = [str(servers.BUILD / "tests" / "bench_load"), kind, "--url", url]
    if query is not None:
        command += ["--query", query]
    for key, value in options.items():
        command += [f"--{key.replace('_', '-')}", str(value)]
    return command


def run_json(command):
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LoadFailed(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def load(kind, url, query=None, **options):
    """Runs bench_load; returns what it printed."""
    return run_json(load_command(kind, url, query, **options))


def with_settings(url, settings):
    return f"{url}/?{urllib.parse.urlencode(settings)}"
