# SPDX-License-Identifier: Apache-2.0
"""Which setting moves which figure: a load under one value of a setting, beside the same load under the defaults."""
from lab import MANY_PARTS, NO_MERGES, load
from parts import BODY_COLUMNS, MB
from rounds import Cell


class Loads:
    """Each runs one kind of load on a chxad of its own and returns a figure of which more is better."""

    def __init__(self, lab, engine, store, size):
        self.lab, self.engine, self.store, self.size = lab, engine, store, size
        self.table = lab.table(engine, settings=f"{MANY_PARTS}, {NO_MERGES}")
        self.wide = lab.table(engine, BODY_COLUMNS, "tuple()", f"{MANY_PARTS}, {NO_MERGES}")

    def _node(self, options):
        node = self.lab.node(self.engine, self.store, fresh=True, **options)
        load("write", node.url, self.table.insert(), writers=self.size.pick(smoke=1, short=16, full=16), rows=10)
        self.table.empty()
        return node

    def writes(self, options):
        """16 writers, 1000 rows a batch"""
        batches = self.size.pick(smoke=2, short=30, full=60)
        answer = load("write", self._node(options).url, self.table.insert(), writers=16, batches=batches, rows=1000)
        return 16 * batches * 1000 / answer["seconds"]

    def commits(self, options):
        """commits of 1000 parts"""
        batches = self.size.pick(smoke=10, short=1000, full=1000)
        answer = load("commit", self._node(options).url, self.table.insert(), batches=batches, rows=10)
        return 1000 / answer["commit"]["median_ms"]

    def prepares(self, options):
        """prepares of 10 parts, 16 at once"""
        times, parts = self.size.pick(smoke=1, short=4, full=10), self.size.pick(smoke=1, short=10, full=10)
        answer = load("commit", self._node(options).url, self.table.insert(), writers=16, transactions=times, batches=parts, rows=10)
        return 16 * 1000 / answer["prepare"]["median_ms"]

    def empties(self, options):
        """empty transactions, 64 at once"""
        times = self.size.pick(smoke=2, short=30, full=100)
        return 64 * times / load("empty", self._node(options).url, writers=64, transactions=times)["seconds"]

    def bodies(self, options):
        """one big body"""
        bytes_ = self.size.pick(smoke=4, short=500, full=2000) * MB // 128 * 128
        node = self._node(options)
        self.wide.empty()
        return bytes_ / MB / (load("txn-body", node.url, self.wide.insert("RowBinary"), bytes=bytes_)["write"]["sum_ms"] / 1000)


# setting, values beside its default, load
SETTINGS = (
    ("upload_buffer_bytes", (16_384, 65_536, 1_048_576, 4_194_304), Loads.bodies),
    ("threads", (1, 4, 64), Loads.writes),
    ("clickhouse_connections_max", (2, 4, 16), Loads.writes),
    ("scratch_tables_max", (1, 4), Loads.writes),
    ("scratch_parts_max", (1, 10, 1000), Loads.writes),
    ("attach_parts_max", (1, 10, 1000), Loads.commits),
    ("sync_files_max", (0, 10, 10_000), Loads.prepares),
    ("fsync", ("false",), Loads.prepares),
    ("fsync", ("false",), Loads.empties),
)
UNITS = {
    Loads.writes: "rows/s", Loads.commits: "/s", Loads.prepares: "/s", Loads.empties: "transactions/s", Loads.bodies: "MB/s",
}  # fmt: skip


def tuning(lab, engine, store, size):
    """The settings that could matter, each at other values than its default, beside the default."""
    loads, seen = Loads(lab, engine, store, size), set()
    for setting, values, run in SETTINGS:
        if size.name == "smoke" and run in seen:
            continue
        seen.add(run)
        for value in values[: size.pick(smoke=1, short=9, full=9)]:
            yield Cell("tuning", engine, store, f"{setting} = {value}: {run.__doc__}", 0 if value == "false" else value,
                       lambda s=setting, v=value, r=run: r(loads, {s: v}), lambda r=run: r(loads, {}),
                       unit=UNITS[run], series=setting)  # fmt: skip
