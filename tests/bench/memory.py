# SPDX-License-Identifier: Apache-2.0
"""What a chxad holds and pays for what is open, and how it starts with much to remember. No other side: figures alone."""
import contextlib
import sqlite3
import subprocess
import time

from lab import TICKS, cpu_ticks, load, load_command
from rounds import Cell

SESSION_MS = 4000
WRITERS = 16


class Crowd:
    """Each method runs a scenario with a new chxad once; what it finds besides is in the attributes."""

    def __init__(self, lab, engine, store, size):
        self.lab, self.engine, self.store = lab, engine, store
        self.transactions = size.pick(smoke=160, short=10_000, full=10_000) // WRITERS
        self.connections = size.pick(smoke=50, short=5000, full=5000)
        self.finished = size.pick(smoke=1000, short=100_000, full=1_000_000)
        self.idle_s = size.pick(smoke=0.2, short=3, full=10)
        self.cpu_percent = self.fresh_bytes = 0

    def _node(self):
        node = self.lab.node(self.engine, self.store, fresh=True, session_timeout_ms=SESSION_MS, http_keep_alive_ms=600_000)
        load("empty", node.url, writers=WRITERS, transactions=10)
        return node

    def _idle_percent(self, node):
        """Of one processor."""
        before = cpu_ticks(node)
        time.sleep(self.idle_s)
        return (cpu_ticks(node) - before) / TICKS / self.idle_s * 100

    def open_bytes(self):
        node = self._node()
        before = node.memory_bytes()
        load("begin", node.url, writers=WRITERS, transactions=self.transactions)
        grown = (node.memory_bytes() - before) / (self.transactions * WRITERS)
        self.cpu_percent = self._idle_percent(node)
        return grown

    def restart_seconds(self):
        node = self._node()
        before = node.memory_bytes()
        load("prepared", node.url, writers=WRITERS, transactions=self.transactions)
        node.kill()
        if self.store == "zookeeper":
            time.sleep(SESSION_MS / 1000 + 1)  # a killed node's lock lives so long
        started = time.monotonic()
        node.spawn()
        node.wait_up()
        seconds = time.monotonic() - started
        self.fresh_bytes = (node.memory_bytes() - before) / (self.transactions * WRITERS)
        return seconds

    def connection_bytes(self):
        node = self._node()
        before = node.memory_bytes()
        command = load_command("idle", node.url, transactions=self.connections)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idle:
            assert idle.stdout.readline() == "connected\n", "the connections were not served"
            grown = (node.memory_bytes() - before) / self.connections
            self.connections_cpu_percent = self._idle_percent(node)
            idle.stdin.close()
        return grown

    def begin_ms(self):
        node = self._node()
        return load("begin", node.url, transactions=300)["begin"]["median_ms"]

    def begin_ms_with_history(self):
        node = self._node()
        node.stop()
        with contextlib.closing(sqlite3.connect(node.store.split(":", 1)[1])) as db:
            xid = db.execute("SELECT xid FROM txns WHERE NOT unfinished LIMIT 1").fetchone()[0]
            db.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)"
                " INSERT INTO txns SELECT 'done-' || (i * 7919 % 1000003) || '-' || i, version, 0, owner,"
                " replace(record, ?2, 'done-' || (i * 7919 % 1000003) || '-' || i) FROM n, txns WHERE xid = ?2",
                (self.finished, xid))  # fmt: skip
            db.commit()
        node.start()
        return load("begin", node.url, transactions=300)["begin"]["median_ms"]


def memory(lab, engine, store, size):
    """Memory and processor time of 10 000 open transactions and 5000 idle connections; a start with 10 000 in doubt; begin
    beside a million finished records."""
    crowd = Crowd(lab, engine, store, size)
    each = dict(unit="bytes", reach=4096, more=False)

    def cell(case, label, ours, theirs=None, **more):
        return Cell(case, engine, store, label, 1, ours, theirs, processor=False, **more)

    count = crowd.transactions * WRITERS
    yield cell("memory-open", f"{count} open, each", crowd.open_bytes, **each)
    yield cell("memory-idle", f"{count} open, nothing to do", lambda: crowd.cpu_percent, unit="% of a processor", more=False)
    yield cell("memory-restart", f"{count} in doubt", crowd.restart_seconds, unit="s", reach=5, more=False)
    yield cell("memory-prepared", f"{count} in doubt, each, after the start", lambda: crowd.fresh_bytes, **each)
    yield cell("memory-connections", f"{crowd.connections} idle, each", crowd.connection_bytes, unit="bytes", more=False)
    yield cell("memory-idle", f"{crowd.connections} idle connections", lambda: crowd.connections_cpu_percent,
               unit="% of a processor", more=False)  # fmt: skip
    if store == "sqlite":
        yield cell("memory-history", f"begin, {crowd.finished} finished ÷ none", crowd.begin_ms_with_history, crowd.begin_ms,
                   unit="ms", more=False)  # fmt: skip
