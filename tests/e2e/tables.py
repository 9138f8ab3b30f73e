# SPDX-License-Identifier: Apache-2.0
"""What the tests look at in ClickHouse and on its disks: contents, hashes, detached parts, held parts."""
import pathlib
import shutil


def quoted(name):
    """An identifier as both engines take it."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Engine:
    """A ClickHouse server and the database that one test works in."""

    def __init__(self, server, database):
        self.server = server
        self.database = database
        self.name = server.engine
        self.is_old = server.engine == "18.16"
        self.query = server.query
        self.rows = server.rows
        self.value = server.value

    def create(self):
        self.query(f"CREATE DATABASE {quoted(self.database)}")

    def drop(self):
        if self.is_old:
            self.query(f"DROP DATABASE IF EXISTS {quoted(self.database)}")
        else:
            self.query(f"DROP DATABASE IF EXISTS {quoted(self.database)} SYNC")

    def clean_held(self):
        """Once no chxad runs: what a failed test left in the held areas is not the next one's business."""
        for root in self.roots():
            shutil.rmtree(root / "chxa", ignore_errors=True)

    def table(self, name):
        """The quoted full name of a table in this test's database."""
        return f"{quoted(self.database)}.{quoted(name)}"

    def make(self, name, columns, definition):
        """CREATE TABLE name (columns) definition; returns the quoted full name."""
        full = self.table(name)
        self.query(f"CREATE TABLE {full} ({columns}) {definition}")
        return full

    def count(self, table):
        return int(self.value(f"SELECT count() FROM {table}"))

    def fingerprint(self, table, columns="*"):
        """Count and two hashes over all rows, independent of their order."""
        return self.value(
            f"SELECT count(), sum(cityHash64({columns})), groupBitXor(cityHash64({columns})) FROM {table}"
        )

    def paths(self, name, database=None):
        """The table's folders, one per disk."""
        column = "data_path" if self.is_old else "arrayJoin(data_paths)"
        text = self.query(
            f"SELECT {column} FROM system.tables WHERE database = {literal(database or self.database)} "
            f"AND name = {literal(name)} FORMAT TSVRaw"
        )
        return [pathlib.Path(line) for line in text.splitlines()]

    def detached(self, name):
        """Names of what is in detached/, over all disks."""
        found = []
        for path in self.paths(name):
            if (path / "detached").is_dir():
                found += sorted(entry.name for entry in (path / "detached").iterdir())
        return found

    def roots(self):
        """The disks' root folders."""
        data = self.server.folder / "data"
        return [data] + [d for d in (self.server.folder / "disk1", self.server.folder / "disk2") if d.is_dir()]

    def held(self):
        """Folders and files of the held areas, as paths relative to them; without the node's own mark."""
        found = []
        for root in self.roots():
            area = root / "chxa"
            if area.is_dir():
                found += sorted(str(entry.relative_to(area)) for entry in area.rglob("*"))
        return [path for path in found if path != "owner"]

    def held_parts(self):
        """Held part folders: <transaction folder>/<number>."""
        return [path for path in self.held() if path.count("/") == 1 and path.split("/")[1].isdigit()]

    def scratch_tables(self):
        return [
            row[0]
            for row in self.rows("SELECT name FROM system.tables WHERE database = 'chxa' ORDER BY name")
        ]

    def scratch_rows(self):
        return sum(self.count(f"chxa.{quoted(name)}") for name in self.scratch_tables())

    def active_parts(self, name):
        return int(
            self.value(
                f"SELECT count() FROM system.parts WHERE active AND database = {literal(self.database)} "
                f"AND table = {literal(name)}"
            )
        )


def assert_nothing_left(engine, names):
    """After a rollback, or before any commit: no rows, nothing in detached/, nothing held."""
    for name in names:
        assert engine.count(engine.table(name)) == 0
        assert engine.detached(name) == []
    assert engine.held() == []
