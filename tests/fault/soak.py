#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The soak: sinks write numbered rows while everything is killed, stopped, cut off and restarted.

    tests/fault/soak.py [--minutes N] [--seed S] [--pairs 18.16/zookeeper,26.7/sqlite,…]

For each pair of engine and store in turn: chxad, ClickHouse (18.16: with a second replica), ZooKeeper, and a
proxy before ClickHouse and before ZooKeeper. A round lasts up to two minutes; then everything is healed, every
transaction is resolved, and the rows are counted: none missing, none twice, none of what was rolled back;
every named sink's checkpoint is what it committed last; nothing held, nothing detached, nothing unfinished.
In the first half of the rounds chxad itself is only stopped and cut off, never killed, so that what it leaks
shows in its memory and descriptors.

The seed chooses what is done; when it meets what, the machine decides. A run that fails keeps its folder.
"""
import argparse
import faulthandler
import heapq
import http.client
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "e2e"), str(TESTS / "fault")]

import servers  # noqa: E402
from proxy import Proxy  # noqa: E402
from rest import Client  # noqa: E402
from soak_sinks import ABORT, COMMIT, Ledger, NamedSink, Sink  # noqa: E402
from tables import Engine  # noqa: E402

PAIRS = [("18.16", "zookeeper"), ("26.7", "sqlite"), ("26.7", "zookeeper"), ("18.16", "sqlite")]
ROUND_SECONDS = 120
HEAL_SECONDS = 180
SINKS = 8
DESCRIPTORS_MAX = 512
GROWTH_BYTES_MAX = 64 << 20  # of chxad over the rounds in which it is not killed
CHXAD = {
    "session_timeout_ms": 4000,
    "store_timeout_ms": 3000,
    "clickhouse_timeout_ms": 20000,
    "commit_retry_ms": 200,
    "idle_timeout_ms": 20000,
    "http_body_idle_timeout_ms": 5000,
    "scratch_idle_ms": 10000,
    "attach_parts_max": 5,
}
# What the proxy sees go by when something begins whose answer is then lost, or that is lost itself.
TRIGGERS = {
    "ch_proxy": ("ATTACH", "ATTACH", "INSERT", "system.processes", "CREATE"),
    "zk_proxy": ("Committing", "Committed", "Prepared", "Aborting", "/w-"),
    "replication_proxy": ("/log/log-", "/log/log-", "/block_numbers/"),
}


class Chxad(servers.Chxad):
    """On one port for life, so that clients find it again."""

    def __init__(self, folder, store, clickhouse):
        super().__init__(folder, "n1", store, clickhouse, {**CHXAD, "listen": f"127.0.0.1:{servers.free_port()}"})
        self.address = self.options["listen"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class World:
    """One pair's servers, tables and proxies: before ClickHouse, and before ZooKeeper for chxad and for ClickHouse."""

    def __init__(self, folder, engine, store, seed):
        self.folder = folder
        folder.mkdir(parents=True)
        self.zookeeper = self.second = self.zk_proxy = self.replication_proxy = None
        if "18.16" == engine or store == "zookeeper":
            self.zookeeper = servers.ZooKeeper(folder / "zookeeper").start()
        if engine == "18.16":
            self.replication_proxy = Proxy(self.zookeeper.port)
            self.clickhouse = servers.ClickHouse18(folder / "ch", self.replication_proxy, "r1").start()
            self.second = servers.ClickHouse18(folder / "ch2", self.zookeeper, "r2").start()
        else:
            self.clickhouse = servers.ClickHouse26(folder / "ch").start()
        self.ch_proxy = Proxy(self.clickhouse.http_port)
        if store == "zookeeper":
            self.zk_proxy = Proxy(self.zookeeper.port)
            uri = f"zookeeper:127.0.0.1:{self.zk_proxy.port}/soak"
        else:
            uri = f"sqlite:{folder}/chxa.db"
        self.engine = Engine(self.clickhouse, "soak")
        self.names = []
        if self.second:
            wait_for("ZooKeeper serves", 60, self.is_zookeeper_serving)
        self.make_tables()
        self.chxad = Chxad(folder / "chxad", uri, self.ch_proxy)
        self.chxad.spawn()
        self.chxad.wait_up()

    def make_tables(self):
        columns = "d Date, txn UInt64, n UInt64, s String"
        self.engine.create()
        definitions = {
            "flat": "ENGINE = MergeTree ORDER BY n",
            "parted": "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY n",
        }
        if self.second:
            definitions["replicated"] = (
                "ENGINE = ReplicatedMergeTree('/tables/soak', '{replica}') PARTITION BY toYYYYMM(d) ORDER BY n"
            )
            other = Engine(self.second, "soak")
            other.create()
            other.make("replicated", columns, definitions["replicated"])
        else:
            definitions["disks"] = (
                "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY n SETTINGS storage_policy = 'two_disks'"
            )
        for name, definition in definitions.items():
            self.engine.make(name, columns, definition)
            self.names.append(name)

    def is_zookeeper_serving(self):
        """It answers "imok" a little before it takes clients."""
        return self.clickhouse.rows("SELECT count() FROM system.zookeeper WHERE path = '/'")

    @property
    def tables(self):
        return [self.engine.table(name) for name in self.names]

    def stop(self):
        proxies = (self.ch_proxy, self.zk_proxy, self.replication_proxy)
        for server in (self.chxad, *proxies, self.clickhouse, self.second, self.zookeeper):
            if server is not None:
                server.stop()


class Chaos:
    """Breaks one thing after the other, several at a time, and mends each after a while.

    Runs in the main thread: a server ends with the thread that started it (PR_SET_PDEATHSIG).
    """

    def __init__(self, world, seed, ledger, spare_chxad):
        self.world = world
        self.random = random.Random(seed)
        self.ledger = ledger
        self.broken = set()
        self.mending = []  # heap of (when, number, what, how)
        self.next_look = 0
        self.memory = []
        self.descriptors = 0
        self.servers = {"chxad": world.chxad, "clickhouse": world.clickhouse}
        if world.zookeeper:
            self.servers["zookeeper"] = world.zookeeper
        if world.second:
            self.servers["replica"] = world.second
        self.events = self.choose_events(spare_chxad)

    def choose_events(self, spare_chxad):
        events = []
        for name in self.servers:
            if name != "chxad" or not spare_chxad:
                events += [(self.kill, name)] * 3
            events += [(self.freeze, name)] * 2
        if not spare_chxad:
            events += [(self.kill, "chxad"), (self.kill_both, "clickhouse")] * 4 + [(self.terminate, "chxad")] * 2
        for name in ("ch_proxy", "zk_proxy", "replication_proxy"):
            if getattr(self.world, name):
                events += [(self.disturb, name)] * 4
        return events

    def run(self, seconds):
        until = time.monotonic() + seconds
        quiet_until = 0
        while time.monotonic() < until and not self.ledger.faults:
            self.watch()
            now = time.monotonic()
            while self.mending and self.mending[0][0] <= now:
                self.mend_next()
            if now >= quiet_until:
                do, name = self.random.choice(self.events)
                if name not in self.broken:
                    do(name)
                # Now and then a calm, so that commits finish and merges run.
                quiet_until = now + self.random.choice((0.1, 0.5, 1, 1, 2, 2, 4, 8))
            time.sleep(0.05)
        while self.mending:
            self.mend_next()

    def later(self, seconds, name, how):
        self.broken.add(name)
        heapq.heappush(self.mending, (time.monotonic() + seconds, len(self.mending) + id(how), name, how))

    def mend_next(self):
        _, _, name, how = heapq.heappop(self.mending)
        how()
        self.broken.discard(name)
        self.ledger.note(f"mended {name}")

    def done(self, what):
        self.ledger.count(what)
        self.ledger.note(what)

    def start_again(self, name):
        server = self.servers[name]

        def start():
            if server.process.poll() is not None:
                server.spawn()

        return start

    def kill(self, name):
        self.servers[name].kill()
        self.done(f"kill {name}")
        self.later(self.random.choice((0, 0.2, 1, 3, 8)), name, self.start_again(name))

    def kill_both(self, name):
        if "chxad" in self.broken:
            return
        for victim in ("chxad", name):
            self.servers[victim].process.send_signal(signal.SIGKILL)
        for victim in ("chxad", name):
            self.servers[victim].process.wait()
            self.later(self.random.choice((0, 1, 3)), victim, self.start_again(victim))
        self.done("kill chxad and clickhouse")

    def terminate(self, name):
        server = self.servers[name]
        if not server.is_up():
            return  # it may not yet listen to signals
        server.process.terminate()
        self.done(f"terminate {name}")

        def start():
            try:
                status = server.process.wait(60)
            except subprocess.TimeoutExpired:
                self.ledger.fault(f"{name} does not end on SIGTERM")
                server.kill()
            else:
                if status != 0:
                    self.ledger.fault(f"{name} ended with {status} on SIGTERM: {server.log_tail(20)}")
            server.spawn()

        self.later(self.random.choice((0, 1, 4)), name, start)

    def freeze(self, name):
        process = self.servers[name].process
        process.send_signal(signal.SIGSTOP)
        self.done(f"stop {name}")
        self.later(self.random.choice((0.2, 1, 3, 7)), name, lambda: process.send_signal(signal.SIGCONT))

    def disturb(self, name):
        proxy = getattr(self.world, name)
        mode = self.random.choice(("cut", "swallow", "drop", "refuse", "trigger"))
        if mode == "trigger":
            mode = f"{self.random.choice(('swallow', 'drop'))}-on {self.random.choice(TRIGGERS[name])}"
        self.done(f"{name} {mode}")
        proxy.tell(mode)
        if mode == "cut":
            return

        def mend():
            proxy.tell("pass")
            # Connections that hang in between are reset, or left to the deadlines.
            if self.random.random() < 0.7:
                proxy.tell("cut")

        self.later(self.random.choice((0.2, 1, 3, 7)), name, mend)

    # ---- watching ----

    def watch(self):
        """Nobody may end by himself; ClickHouse may, and is helped as an operator would."""
        for name, server in self.servers.items():
            if name in self.broken:
                continue
            if server.process.poll() is None:
                continue
            tail = server.log_tail(100)
            if name in ("clickhouse", "replica"):
                self.done(f"{name} ended by itself")
                self.ledger.note(tail)
                if "doesn't look like the set of parts in ZooKeeper" in tail:
                    flags = server.folder / "data" / "flags"
                    flags.mkdir(exist_ok=True)
                    (flags / "force_restore_data").touch()
                    self.done("force_restore_data")
                time.sleep(0.3)
                server.spawn()
            else:
                self.ledger.fault(f"{name} ended by itself with {server.process.returncode}: {tail}")
                server.spawn()
        self.sample()
        if self.world.second and time.monotonic() > self.next_look:
            self.next_look = time.monotonic() + 3
            for name in ("clickhouse", "replica"):
                if name not in self.broken:
                    self.look_for_table(name)
            if not self.broken & {"chxad", "clickhouse", "zk_proxy", "zookeeper"}:
                self.look_for_stray_parts()

    def look_for_table(self, name):
        """18.16 that starts while ZooKeeper fails in between may serve without a table: only a restart helps."""
        server = self.servers[name]
        try:
            exists = server.query("EXISTS TABLE soak.replicated", timeout=1).strip() == "1"
        except (OSError, servers.ClickHouseError, http.client.HTTPException):
            return
        if not exists:
            self.kill(name)
            self.done(f"{name} started without its table")

    def look_for_stray_parts(self):
        """What the reason of such a transaction tells the operator to do (op/commit.c, confirm)."""
        client = Client(self.world.chxad.url, timeout=1)
        try:
            for txn in client.list(state="Committing").ok()["transactions"]:
                if "SYSTEM RESTART REPLICA" in (client.get(txn["xid"]).ok()["reason"] or ""):
                    self.world.clickhouse.query("SYSTEM RESTART REPLICA soak.replicated", timeout=20)
                    self.done("system restart replica")
                    return
        except (OSError, AssertionError, servers.ClickHouseError, http.client.HTTPException) as error:
            self.ledger.note(f"looking for stray parts: {error}"[:200])

    def sample(self):
        chxad = self.world.chxad
        if "chxad" in self.broken or (self.memory and time.monotonic() - self.memory[-1][0] < 1):
            return
        try:
            self.memory.append((time.monotonic(), chxad.process.pid, chxad.memory_bytes()))
            self.descriptors = max(self.descriptors, chxad.descriptors())
        except (OSError, AttributeError):
            pass


def wait_for(what, seconds, is_so):
    """Waits until is_so() returns something; raises with the last refusal's words past the deadline."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        try:
            if is_so():
                return
        except (OSError, AssertionError, servers.ClickHouseError, http.client.HTTPException) as error:
            last = error
        time.sleep(0.2)
    raise AssertionError(f"{what}: not so after {seconds} s; {last}")


class Check:
    """Everything healed and resolved: is every row where its transaction says?"""

    def __init__(self, world, ledger, watch):
        self.world = world
        self.ledger = ledger
        self.watch = watch
        self.client = Client(world.chxad.url, timeout=30)

    def heal(self):
        world = self.world
        for server in (world.zookeeper, world.clickhouse, world.second):
            if server:
                wait_for(f"{server.name} is up", HEAL_SECONDS, lambda: self.watch() or server.is_up())
        wait_for("chxad is ready", HEAL_SECONDS, lambda: self.client.request("GET", "/readyz").status == 200)

    def unfinished(self):
        self.watch()
        found = self.client.list(unfinished=1).ok()["transactions"]
        assert not found, f"{len(found)} unfinished: {found[:3]}"
        return True

    def run(self, sinks):
        self.heal()
        # Those that nobody came back for end by the idle time-out.
        wait_for("no transaction is unfinished", HEAL_SECONDS, self.unfinished)
        for name in self.world.names:
            self.rows(self.world.engine, name)
        if self.world.second:
            other = Engine(self.world.second, "soak")
            total = self.world.engine.count(self.world.engine.table("replicated"))
            wait_for("the replica has the same", 60, lambda: other.count(other.table("replicated")) == total)
            self.rows(other, "replicated")
        wait_for("nothing is held", 30, self.nothing_held)
        for name in self.world.names:
            self.detached(name)
        self.scratch()
        for sink in sinks:
            if isinstance(sink, NamedSink):
                sink.check_checkpoint(self.client)

    def rows(self, engine, name):
        table = engine.table(name)
        found = {}
        for txn, count, different, total in engine.rows(
            f"SELECT txn, count(), uniqExact(n), sum(n) FROM {table} GROUP BY txn"
        ):
            found[int(txn)] = (int(count), int(different), int(total))
        wrong = []
        for txn in self.ledger.txns:
            want = txn.rows.get(table, (0, 0)) if txn.fate == COMMIT else (0, 0)
            count, different, total = found.pop(txn.number, (0, 0, 0))
            if (count, different, total) != (want[0], want[0], want[1]):
                wrong.append(f"{txn.xid} ({txn.fate}) in {name}: {count} rows, {different} different, not {want[0]}")
        wrong += [f"rows of a transaction that never was: {number}" for number in found]
        for text in wrong[:10]:
            self.ledger.fault(text)

    def nothing_held(self):
        held = self.world.engine.held()
        assert not held, f"held: {held[:10]}"
        return True

    def detached(self, name):
        """Plain tables have nothing; a replica sets its own unexpected parts aside, but none of ours."""
        for entry in self.world.engine.detached(name):
            if name != "replicated" or "1000000" in entry:
                self.ledger.fault(f"{name}/detached/{entry}")
            else:
                self.ledger.count("parts that ClickHouse set aside")
                self.ledger.note(f"set aside: {name}/detached/{entry}")

    def scratch(self):
        def few():
            names = self.world.engine.scratch_tables()
            assert len(names) <= 3 * SINKS * 3, names
            return True

        wait_for("scratch tables are dropped", 60, few)


def run_pair(folder, engine, store, seconds, seed, ledger):
    """Rounds of chaos and checks on one pair."""
    print(f"{engine}/{store}: seed {seed}", flush=True)
    world = World(folder, engine, store, seed)
    try:
        rounds = max(2, round(seconds / ROUND_SECONDS))
        memory, descriptors = [], 0
        for number in range(rounds):
            stop = threading.Event()
            spare_chxad = number < (rounds + 1) // 2
            chaos = Chaos(world, f"{seed}/{number}", ledger, spare_chxad)
            first_sink = number * SINKS
            kinds = (Sink, NamedSink)
            sinks = [
                kinds[n % 2](first_sink + n, world.chxad.url, world.tables, ledger, stop) for n in range(SINKS)
            ]
            for sink in sinks:
                sink.start()
            chaos.run(seconds / rounds)
            stop.set()
            until = time.monotonic() + 300
            while any(sink.is_alive() for sink in sinks) and time.monotonic() < until:
                chaos.watch()
                time.sleep(0.2)
            for sink in sinks:
                if sink.is_alive():
                    ledger.fault(f"{sink.name} does not end")
            try:
                Check(world, ledger, chaos.watch).run(sinks)
                if not spare_chxad:
                    world.chxad.kill()
                    world.chxad.spawn()
                    Check(world, ledger, chaos.watch).run(sinks)
            except (AssertionError, OSError, servers.ClickHouseError) as error:
                ledger.fault(f"the check ended by {type(error).__name__}: {error}")
            descriptors = max(descriptors, chaos.descriptors)
            if spare_chxad:
                memory += chaos.memory
            print(f"  round {number + 1}/{rounds}: {summary(ledger)}", flush=True)
            if ledger.faults:
                break
        judge_memory(memory, descriptors, ledger)
    finally:
        world.stop()


def judge_memory(memory, descriptors, ledger):
    """Of the rounds in one life of chxad: the last tenth of the samples against the second."""
    if descriptors > DESCRIPTORS_MAX:
        ledger.fault(f"chxad had {descriptors} open descriptors")
    if len(memory) < 40:
        return
    tenth = len(memory) // 10
    early = max(sample[2] for sample in memory[tenth : 2 * tenth])
    late = max(sample[2] for sample in memory[-tenth:])
    print(f"  chxad's memory: {early >> 20} MiB early, {late >> 20} MiB late; descriptors: at most {descriptors}")
    if late - early > GROWTH_BYTES_MAX:
        ledger.fault(f"chxad grew from {early} to {late} bytes")


def summary(ledger):
    fates = {COMMIT: 0, ABORT: 0}
    rows = 0
    for txn in ledger.txns:
        fates[txn.fate] = fates.get(txn.fate, 0) + 1
        if txn.fate == COMMIT:
            rows += sum(count for count, _ in txn.rows.values())
    return f"{len(ledger.txns)} transactions ({fates[COMMIT]} committed, {rows} rows), {len(ledger.faults)} faults"


def ended_early(*_):
    os.environ["CHXA_TEST_KEEP"] = "1"
    sys.exit(143)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(1, 10**6)))
    parser.add_argument("--pairs", default=",".join("/".join(pair) for pair in PAIRS))
    arguments = parser.parse_args()
    pairs = [tuple(pair.split("/")) for pair in arguments.pairs.split(",")]
    signal.signal(signal.SIGTERM, ended_early)
    faulthandler.register(signal.SIGUSR1)  # where each thread is
    folder = servers.Folder("chxa-soak-")
    print(f"soak: {arguments.minutes} minutes, seed {arguments.seed}, in {folder.path}", flush=True)
    failed = 0
    for engine, store in pairs:
        home = folder.path / f"{engine}-{store}"
        home.parent.mkdir(exist_ok=True)
        seed = f"{arguments.seed}.{engine}.{store}"
        with open(folder.path / f"{engine}-{store}.log", "w") as log:
            ledger = Ledger(seed, log)
            run_pair(home, engine, store, arguments.minutes * 60 / len(pairs), seed, ledger)
        print(f"{'failed' if ledger.faults else 'passed'}: {engine}/{store}: {summary(ledger)}")
        for what in sorted(ledger.counts):
            print(f"  {ledger.counts[what]:7} {what}")
        if ledger.faults:
            failed += 1
            for text in ledger.faults[:20]:
                print(f"  FAULT {text[:2000]}")
            os.environ["CHXA_TEST_KEEP"] = "1"
            print(
                f"  again: tests/fault/soak.py --minutes {arguments.minutes} --seed {arguments.seed} "
                f"--pairs {arguments.pairs}\n  logs: {folder.path}"
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
