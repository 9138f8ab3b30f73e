# SPDX-License-Identifier: Apache-2.0
"""What a commit costs beside the ALTER in it."""
import pathlib

from lab import NO_MERGES, load
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
        self.table = lab.table(engine, settings=NO_MERGES)
        # The parts that the ALTERs attach: made once, detached again after each round.
        self.raw = lab.table(engine, settings=NO_MERGES)
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
        answer = load("statements", with_long_statements(self.clickhouse.url), file=file)
        self.raw.must_hold(self.times * self.parts * ROWS)
        return answer["statement"]["median_ms"]


def with_long_statements(url):
    """A thousand ATTACHes are more text than ClickHouse takes unasked."""
    return f"{url}/?max_query_size=10000000"


def commit(lab, engine, store, size):
    """Commit of 1, 10, 100 and 1000 parts against one raw ALTER with the same ATTACHes."""
    for parts in size.pick(smoke=(10,), short=(1, 10, 100, 1000), full=(1, 10, 100, 1000)):
        sides = Commits(lab, engine, store, parts, times=max(1, size.pick(smoke=10, short=200, full=400) // parts))
        yield Cell("commit", engine, store, f"{parts} parts", parts, sides.ours, sides.theirs, unit="ms",
                   reach=1.2 if parts == 100 else None, more=False)  # fmt: skip
