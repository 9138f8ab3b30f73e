# SPDX-License-Identifier: Apache-2.0
"""What a commit costs beside the ALTER in it; what a body of gigabytes costs on its way through."""
import pathlib

from lab import MANY_PARTS, NO_MERGES, load, with_settings
from rounds import Cell

ROWS = 10  # in each part


class Commits:
    """`times` commits of `parts` parts each, against as many ALTERs with the same ATTACHes: median milliseconds of one."""

    def __init__(self, lab, engine, store, parts, times):
        self.lab = lab
        self.parts = parts
        self.times = times
        self.clickhouse = lab.clickhouse(engine)
        self.node = lab.node(engine, store)
        self.table = lab.table(engine, settings=f"{MANY_PARTS}, {NO_MERGES}")
        # The parts that the ALTERs attach: made once, detached again after each round.
        self.raw = lab.table(engine, settings=f"{MANY_PARTS}, {NO_MERGES}")
        load("direct", self.clickhouse.url, self.raw.insert(), batches=parts * times, rows=ROWS)

    def ours(self):
        self.table.empty()
        answer = load("commit", self.node.url, self.table.insert(), transactions=self.times, batches=self.parts, rows=ROWS)
        self.table.must_hold(self.times * self.parts * ROWS)
        return answer["commit"]["median_ms"]

    def theirs(self):
        names = self.raw.parts()
        self.clickhouse.query(f"ALTER TABLE {self.raw.name} DETACH PARTITION tuple()")
        lines = []
        for first in range(0, len(names), self.parts):
            attaches = ", ".join(f"ATTACH PART '{name}'" for name in names[first : first + self.parts])
            lines.append(f"ALTER TABLE {self.raw.name} {attaches}\n")
        file = pathlib.Path(self.lab.folder) / "statements"
        file.write_text("".join(lines))
        # A thousand ATTACHes are more text than ClickHouse takes unasked.
        answer = load("statements", with_settings(self.clickhouse.url, {"max_query_size": 10_000_000}), file=file)
        self.raw.must_hold(self.times * self.parts * ROWS)
        return answer["statement"]["median_ms"]


def commit(lab, engine, store, size):
    """Commit of 1, 10, 100 and 1000 parts against one raw ALTER with the same ATTACHes."""
    for parts in size.pick(smoke=(10,), short=(1, 10, 100, 1000), full=(1, 10, 100, 1000)):
        sides = Commits(lab, engine, store, parts, times=max(1, size.pick(smoke=20, short=200, full=400) // parts))
        yield Cell("commit", engine, store, f"{parts} parts", parts, sides.ours, sides.theirs, unit="ms",
                   reach=1.2 if parts == 100 else None, more=False, processor=False)  # fmt: skip


MB = 1_000_000
BODY_COLUMNS = ", ".join(f"c{i} UInt64" for i in range(16))


class Bodies:
    """One INSERT of so many bytes; megabytes a second. Constant columns: neither parsing nor the disk is what is measured."""

    def __init__(self, lab, engine, store, size):
        self.bytes = size // 128 * 128
        self.clickhouse = lab.clickhouse(engine)
        self.node = lab.node(engine, store, fresh=True)
        self.table = lab.table(engine, BODY_COLUMNS, "tuple()", f"{MANY_PARTS}, {NO_MERGES}")
        self.peak = 0

    def _run(self, kind, url):
        self.table.empty()
        answer = load(kind, url, self.table.insert("RowBinary"), bytes=self.bytes)
        self.table.must_hold(self.bytes // 128)
        self.peak = self.node.memory_peak_bytes()
        return self.bytes / MB / (answer["write"]["sum_ms"] / 1000)

    def ours(self):
        return self._run("txn-body", self.node.url)

    def theirs(self):
        return self._run("body", self.clickhouse.url)


def body(lab, engine, store, size):
    """One body of 10 GB (1 GB in a short run) through chxad, beside the same bytes straight to ClickHouse; chxad's memory."""
    bytes_ = size.pick(smoke=4 * MB, short=1000 * MB, full=10_000 * MB)
    sides = Bodies(lab, engine, store, bytes_)
    label = f"{bytes_ / 1000 / MB:g} GB"
    yield Cell("body", engine, store, label, 1, sides.ours, sides.theirs, unit="MB/s", reach=0.9)
    yield Cell("body-memory", engine, store, label, 1, lambda: sides.peak / (1 << 20), unit="MiB", reach=64, more=False)
