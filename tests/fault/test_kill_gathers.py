# SPDX-License-Identifier: Apache-2.0
"""Writers whose small writes are gathered, while chxad and ClickHouse are killed, stopped and cut off from each other.

A writer numbers its rows, commits some writes at a time, and when it is told ROLLBACK_ONLY rolls back and writes from its
last commit on: in the end each row is there exactly once.

CHXA_GATHER_KILL_SECONDS: of trouble for each pair (default 10). CHXA_KILL_SEED: to have a run again.
"""
import http.client
import itertools
import os
import random
import signal
import threading
import time

import pytest

from proxy import Proxy
import servers
from rest import Client
from tables import Engine

SECONDS = float(os.environ.get("CHXA_GATHER_KILL_SECONDS", "10"))
SEED = os.environ.get("CHXA_KILL_SEED") or str(random.SystemRandom().randrange(10**6))
WRITERS = 6
STUCK_SECONDS = 120
COLUMNS = "writer UInt16, n UInt32, text String"
OPTIONS = {
    "session_timeout_ms": 1000, "store_timeout_ms": 3000, "clickhouse_timeout_ms": 8000, "commit_retry_ms": 50,
    "gather_idle_ms": 100, "gather_age_ms": 1000, "gathers_max": 4,
}

_numbers = itertools.count(1)


class Writer(threading.Thread):
    def __init__(self, number, url, tables, stop):
        super().__init__(daemon=True)
        self.number, self.url, self.tables, self.stop = number, url, tables, stop
        self.random = random.Random(f"{SEED}/{number}")
        self.committed = 0  # rows, in each table
        self.commits = self.lost = self.gathered = 0
        self.failure = None

    def run(self):
        try:
            for attempt in itertools.count():
                if self.stop.is_set():
                    break
                self.transaction(f"w{self.number}:{attempt}")
        except BaseException as failure:  # noqa: B902 - for the test
            self.failure = failure

    def ask(self, do):
        """Again and again, until it is answered for good."""
        deadline = time.monotonic() + STUCK_SECONDS
        while True:
            last = None
            try:
                last = do(Client(self.url, timeout=self.random.choice((0.3, 2, 20))))
                if last.status < 300 and last.status != 202 or last.status >= 400 and not last.error["retryable"]:
                    return last
            except (OSError, http.client.HTTPException) as error:
                last = error
            assert time.monotonic() < deadline, f"no end: {last!r}"
            time.sleep(0.05)

    def transaction(self, xid):
        """Some rows into every table; all or none."""
        first, next_row = self.committed, self.committed
        asked = [self.ask(lambda c: c.begin(xid, gather=True))]
        for n in range(self.random.choice((1, 5, 20))):
            rows = self.random.choice((1, 10, 100))
            body = "".join(f"{self.number}\t{key}\tx\n" for key in range(next_row, next_row + rows)).encode()
            for which, table in enumerate(self.tables):
                statement = f"INSERT INTO {table} FORMAT TSV"
                asked.append(self.ask(lambda c: c.write(xid, statement, body, write_id=f"{n}.{which}")))
                if asked[-1].status >= 300:
                    break
                self.gathered += "gathered" in asked[-1].json
            if asked[-1].status >= 300:
                break
            next_row += rows
        if asked[-1].status < 300 and self.random.random() < 0.5:
            asked.append(self.ask(lambda c: c.prepare(xid)))
        if asked[-1].status < 300:
            asked.append(self.ask(lambda c: c.commit(xid)))
        if asked[-1].status < 300:
            self.committed, self.commits = next_row, self.commits + 1
            return
        # Nothing but what ends it may be said, and only before it was decided.
        assert asked[-1].code in ("ROLLBACK_ONLY", "CLICKHOUSE_REJECTED", "PARTS_LOST"), (xid, first, asked[-1])
        self.lost += 1
        self.ask(lambda c: c.rollback(xid)).ok()


class Trouble:
    """In the main thread: a server ends with the thread that started it."""

    def __init__(self, clickhouse, chxad, proxy, chance):
        self.clickhouse, self.chxad, self.proxy, self.chance = clickhouse, chxad, proxy, chance
        self.done = []

    def kill(self, server):
        server.process.kill()
        server.process.wait()
        time.sleep(self.chance.choice((0, 0.3, 1.5)))
        server.spawn()

    def freeze(self, server):
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.choice((0.2, 2)))
        server.process.send_signal(signal.SIGCONT)

    def lose(self, mode):
        self.proxy.tell(mode)
        time.sleep(self.chance.choice((0.05, 0.5)))
        self.proxy.tell("pass")
        self.proxy.tell("cut")

    def next(self):
        acts = [(self.kill, self.chxad), (self.kill, self.clickhouse), (self.freeze, self.clickhouse), (self.freeze, self.chxad)]
        acts += [(self.lose, mode) for mode in ("cut", "swallow", "drop", "refuse", "swallow-on INSERT", "drop-on INSERT")]
        do, what = self.chance.choice(acts)
        self.done.append(f"{do.__name__} {getattr(what, 'name', what)}")
        do(what)


@pytest.mark.big
@pytest.mark.parametrize("engine_name,store_name", [("18.16", "zookeeper"), ("26.7", "sqlite")])
def test_every_row_once(folder, engine_name, store_name):
    home = folder / f"gathers-{next(_numbers)}"
    home.mkdir()
    chance = random.Random(f"{SEED}/{engine_name}")
    zookeeper = servers.ZooKeeper(home / "zookeeper").start() if "18.16" == engine_name or store_name == "zookeeper" else None
    clickhouse = (servers.ClickHouse18(home / "ch", zookeeper, "r1") if engine_name == "18.16" else servers.ClickHouse26(home / "ch")).start()
    proxy = Proxy(clickhouse.http_port)
    store = f"sqlite:{home}/chxa.db" if store_name == "sqlite" else f"zookeeper:{zookeeper.address}/gathers"
    chxad = servers.Chxad(home / "chxad", "n1", store, proxy, {**OPTIONS, "listen": f"127.0.0.1:{servers.free_port()}"})
    chxad.address = chxad.options["listen"]
    running = [server for server in (chxad.start(), proxy, clickhouse, zookeeper) if server]
    try:
        engine = Engine(clickhouse, "g")
        engine.create()
        tables = [engine.make(name, COLUMNS, "ENGINE = MergeTree PARTITION BY n % 3 ORDER BY n") for name in ("one", "two")]
        stop = threading.Event()
        writers = [Writer(number, chxad.url, tables, stop) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        trouble, until = Trouble(clickhouse, chxad, proxy, chance), time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(chance.choice((0.05, 0.3, 1)))
            trouble.next()
        clickhouse.wait_up()
        stop.set()
        for writer in writers:
            writer.join(2 * STUCK_SECONDS)
        told = f"seed {SEED}: {trouble.done}\n{chxad.log_tail(60)}"
        assert [writer.failure for writer in writers] == [None] * WRITERS, told
        assert not any(writer.is_alive() for writer in writers), told
        print([(writer.commits, writer.lost, writer.gathered, writer.committed) for writer in writers], trouble.done)
        assert sum(writer.commits for writer in writers) and sum(writer.gathered for writer in writers), told
        for table in tables:
            found = {int(row[0]): row[1:] for row in engine.rows(f"SELECT writer, count(), uniqExact(n), max(n) + 1 FROM {table} GROUP BY writer")}
            for writer in writers:
                want = [str(writer.committed)] * 3 if writer.committed else None
                assert found.pop(writer.number, None) == want, (table, writer.number, told)
            assert not found, told
        assert engine.held_parts() == [], told
        assert Client(chxad.url).list(unfinished=1).ok()["transactions"] == [], told
    finally:
        for server in running:
            server.stop()
