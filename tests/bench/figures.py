# SPDX-License-Identifier: Apache-2.0
"""Figures 6, 7 and 8 of article 001, and the streaming write: rows a second through chxad against INSERTs straight to
ClickHouse. The same batches of the same bytes over as many kept connections, into the same table, emptied in between."""
import os

from lab import load, with_settings
from rounds import Cell

WRITERS = 4  # where another thing is varied


class Sides:
    """Runs a load of `writers` x `transactions` x `batches` x `rows` on either side; returns rows a second."""

    def __init__(self, lab, engine, store):
        self.clickhouse = lab.clickhouse(engine)
        self.node = lab.node(engine, store)
        self.table = lab.table(engine)
        # Whatever is made at a first use is made now.
        for side in (self.direct, self.write, self.gather, self.stream):
            side(writers=16, batches=1, rows=10)

    def _run(self, kind, url, size, **options):
        self.table.empty()
        os.sync()  # what the other side left unwritten is not this one's to wait for
        size = {"transactions": 1, **size}
        times = load(kind, url, self.table.insert(), **size, **options)
        rows = size["writers"] * size["transactions"] * size["batches"] * size["rows"]
        self.table.must_hold(rows)
        return rows / times["seconds"]

    def direct(self, **size):
        return self._run("direct", self.clickhouse.url, size)

    def async_insert(self, **size):
        url = with_settings(self.clickhouse.url, {"async_insert": 1, "wait_for_async_insert": 1})
        return self._run("direct", url, size)

    def write(self, **size):
        return self._run("write", self.node.url, size)

    def gather(self, **size):
        return self._run("gather", self.node.url, size)

    def stream(self, **size):
        return self._run("stream", self.node.url, size)

    def sink(self, interval_ms, name, **size):
        return self._run("sink", self.node.url, size, interval_ms=interval_ms, name=name)


def fig6(lab, engine, store, size):
    """Throughput against the number of writers, each with transactions of 100 batches of 10 000 rows: gathered, and each write staged before its answer."""
    sides = Sides(lab, engine, store)
    for case, ours in (("fig6-gather", sides.gather), ("fig6", sides.write)):
        for writers in size.pick(smoke=(2,), short=(1, 4, 16), full=(1, 2, 4, 8, 16)):
            load_size = dict(writers=writers, batches=size.pick(smoke=2, short=20, full=100), rows=10_000)
            yield Cell(case, engine, store, f"{writers} writers", writers,
                       lambda s=load_size, ours=ours: ours(**s), lambda s=load_size: sides.direct(**s), reach=1.0)  # fmt: skip


# rows of a batch: batches of each writer
FIG7 = {
    "smoke": {100: 3},
    "short": {100: 100, 1000: 200, 10_000: 40, 100_000: 10},
    "full": {100: 300, 1000: 200, 10_000: 60, 100_000: 10},
}


def fig7(lab, engine, store, size):
    """Throughput against the rows of a batch: one write for each, gathered and not, and all through one streaming write."""
    sides = Sides(lab, engine, store)
    for case, ours in (("fig7-gather", sides.gather), ("fig7", sides.write)):
        for rows, batches in size.pick(**FIG7).items():
            load_size = dict(writers=WRITERS, batches=batches, rows=rows)
            yield Cell(case, engine, store, f"{rows} rows a batch", rows,
                       lambda s=load_size, ours=ours: ours(**s), lambda s=load_size: sides.direct(**s),
                       reach=0.8 if rows < 1000 else 1.0)  # fmt: skip
    for rows, batches in size.pick(**FIG7).items():
        load_size = dict(writers=WRITERS, batches=batches, rows=rows)
        yield Cell("fig7-stream", engine, store, f"{rows} rows a batch, streamed", rows,
                   lambda s=load_size: sides.stream(**s), lambda s=load_size: sides.direct(**s),
                   reach=6.0 if rows == 1000 else None)  # fmt: skip


def fig8(lab, engine, store, size):
    """Total time of a load through the sink interface against its checkpoint interval, beside plain INSERTs of the batches."""
    sides = Sides(lab, engine, store)
    rows = 10_000
    # Loads that take plain INSERTs longer than the interval, on this machine.
    rate = sides.direct(writers=WRITERS, batches=size.pick(smoke=1, short=10, full=50), rows=rows)
    for interval_s in size.pick(smoke=(1,), short=(1, 3), full=(1, 5, 15, 60)):
        seconds = size.pick(smoke=0.1, short=4, full=max(10, 1.25 * interval_s))
        load_size = dict(writers=WRITERS, batches=max(1, int(rate * seconds / rows / WRITERS)), rows=rows)
        total = load_size["batches"] * WRITERS * rows

        def sink(s=load_size, interval_ms=interval_s * 1000, total=total):
            return total / sides.sink(interval_ms, f"bench{next(lab.names)}", **s)

        def direct(s=load_size, total=total):
            return total / sides.direct(**s)

        yield Cell("fig8", engine, store, f"a checkpoint each {interval_s} s", interval_s, sink, direct, unit="s",
                   reach=1.05, more=False)  # fmt: skip


def stream(lab, engine, store, size):
    """Streaming writes beside small INSERTs, plain ones and (26.7) ClickHouse's own async_insert, which waits for its flush."""
    sides = Sides(lab, engine, store)
    for rows in size.pick(smoke=(100,), short=(1000,), full=(100, 1000)):
        for writers in size.pick(smoke=(2,), short=(1, 16), full=(1, 4, 16)):
            batches = size.pick(smoke=3, short=100, full=300) // (1 if writers < 16 else 2)
            load_size = dict(writers=writers, batches=batches, rows=rows)
            label, series = f"{writers} writers, {rows} rows a batch", f"{rows} rows a batch"
            ours = lambda s=load_size: sides.stream(**s)
            yield Cell("stream-plain", engine, store, label, writers, ours, lambda s=load_size: sides.direct(**s),
                       series=series)  # fmt: skip
            if engine != "18":
                yield Cell("stream-async", engine, store, label, writers, ours, lambda s=load_size: sides.async_insert(**s),
                           series=series)  # fmt: skip
