# SPDX-License-Identifier: Apache-2.0
"""client/examples/file_sink.c, killed at every place of its code and of the library's: every source row once.

The program under test is the example itself, compiled with a call at each basic block (tests/lib/victim/kill_at.c). A
sweep kills a start at the K-th place that it comes to, for growing K; what is left goes on in the next start, whose source
has grown meanwhile. CHXA_SINK_KILLS (tests/run sink: 500) makes it visit every place, and more of the others.
"""
import itertools
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest

from rest import Client
from servers import BUILD, ServerFailed

COLUMNS = "n UInt64, text String"
DEFINITION = "ENGINE = MergeTree PARTITION BY n % 2 ORDER BY n"
# The first is traced in the example and the sink interface, the second in the whole library.
VICTIM, VICTIM_ALL = BUILD / "tests" / "victim_file_sink", BUILD / "tests" / "victim_all_file_sink"
KILLS = int(os.environ.get("CHXA_SINK_KILLS", "40"))
ROWS, ROWS_PER_CHECKPOINT = 25, 15  # of one start: a full checkpoint and one that is not
START_SECONDS = 150
MANY = KILLS > 100
if MANY:
    pytestmark = pytest.mark.big

_numbers = itertools.count(1)


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


class Job:
    """A source that grows, the program that copies it, and what must be true of the table at any time."""

    def __init__(self, folder, engine, table, node, victim):
        self.victim = victim
        self.folder = folder / f"sink{next(_numbers)}"
        self.folder.mkdir()
        self.engine, self.table, self.node = engine, table, node
        self.name = f"file.{self.folder.name}"
        self.source = self.folder / "rows.tsv"
        self.checkpoint = self.folder / "rows.checkpoint"
        self.log = self.folder / "kills.log"
        self.rows = 0
        self.starts = self.kills = 0

    def copied(self):
        """Rows before the last checkpoint."""
        if not self.checkpoint.exists():
            return 0
        offset = int(self.checkpoint.read_bytes().split()[1])
        return self.source.read_bytes()[:offset].count(b"\n")

    def grow(self):
        """So that a start has a whole checkpoint and another before it; and no more, for many never get that far."""
        left = self.rows - self.copied()
        with open(self.source, "a", encoding="ascii") as file:
            for _ in range(max(0, ROWS - left)):
                self.rows += 1
                file.write(f"{self.rows}\trow {self.rows}\n")

    def command(self):
        return [
            self.victim, self.node.url, self.name, f"INSERT INTO {self.table} FORMAT TabSeparated", self.source,
            self.checkpoint, str(ROWS_PER_CHECKPOINT),
        ]

    def spawn(self, **environment):
        self.starts += 1
        return subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "CHXA_KILL_LOG": str(self.log), **environment},
        )

    def start(self, **environment):
        """True: it was killed. False: it came to its end. Nothing else may happen."""
        return self.ended(self.spawn(**environment))

    def ended(self, process):
        try:
            output, _ = process.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            pytest.fail(f"it hangs: {output.decode()}\n{self.node.log_tail(40)}")
        assert process.returncode in (0, -signal.SIGKILL), output.decode()
        self.kills += process.returncode != 0
        return process.returncode != 0

    def places(self):
        """Where it was killed: addresses in the program."""
        return [line.split()[1] for line in self.log.read_text().splitlines() if line.startswith("killed")]

    def check_no_row_twice(self):
        count, distinct = map(int, self.engine.rows(f"SELECT count(), uniqExact(n) FROM {self.table}")[0])
        assert count == distinct <= self.rows

    def check_end(self):
        """It runs to its end, and every row is there once."""
        assert not self.start()
        texts = f"sum(text = concat('row ', toString(n)))"
        found = self.engine.rows(f"SELECT count(), uniqExact(n), min(n), max(n), {texts} FROM {self.table}")[0]
        assert found == [str(self.rows)] * 2 + ["1"] + [str(self.rows)] * 2, found
        sink = Client(self.node.url).sink(self.name).ok()
        assert sink["open"] == [], "the end leaves a transaction open"


@pytest.fixture
def victim():
    return VICTIM_ALL


@pytest.fixture
def job(folder, engine, table, start_node, victim):
    job = Job(folder, engine, table, start_node(engine, "sqlite"), victim)
    job.grow()
    yield job


def lines(victim, places):
    """function and line of each address, as addr2line has them."""
    answer = subprocess.run(
        ["addr2line", "-f", "-e", victim, *places], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return set(zip(answer[::2], (re.sub(r" \(disc.*", "", place.rsplit("/", 1)[-1]) for place in answer[1::2])))


def say(job, what):
    where = lines(job.victim, job.places())
    functions = {function for function, _ in where}
    print(f"\n{what}: {job.kills} kills in {job.starts} starts, at {len(where)} lines of {len(functions)} functions, {job.rows} rows")
    return functions


def test_it_copies(job):
    job.check_end()
    assert job.checkpoint.read_bytes().startswith(b"2 ")
    # Nothing new: nothing happens. A line without its end is left for later.
    job.check_end()
    with open(job.source, "a", encoding="ascii") as file:
        file.write(f"{job.rows + 1}\trow")
    job.check_end()
    assert job.checkpoint.read_bytes().startswith(b"2 ")
    with open(job.source, "a", encoding="ascii") as file:
        file.write(f" {job.rows + 1}\n")
    job.rows += 1
    job.check_end()
    assert job.checkpoint.read_bytes().startswith(b"3 ")


def count_places(job):
    """Of a start that has something to restore."""
    assert not job.start()
    job.grow()
    assert not job.start()
    return int(job.log.read_text().split()[-1])


def random_place(rng, places):
    """Not only at the first visit, either."""
    return {"CHXA_KILL_PLACE": str(rng.randint(1, places)), "CHXA_KILL_VISIT": str(rng.choice((1, 1, 2, 3, 5, 9)))}


def sweep(job, places):
    for place in places:
        job.grow()
        job.start(CHXA_KILL_PLACE=str(place))
        job.check_no_row_twice()
    functions = say(job, "swept")
    assert job.kills >= len(places) * 0.7
    job.check_end()
    return functions


@pytest.mark.parametrize("victim", [VICTIM], ids=["near"])
def test_killed_at_every_place(job, engine_name):
    """All five stages. In an ordinary run each engine has its quarter of the places."""
    places = count_places(job)
    step = 1 if MANY else 4 if KILLS >= 40 else 16
    functions = sweep(job, range(1 + step // 2 * (engine_name == "26.7"), places + 1, step))
    stages = {"chxa_sink_open", "restore", "chxa_sink_write", "chxa_sink_snapshot", "prepare", "save",
              "chxa_sink_notify_complete", "commit_one", "chxa_sink_close"}
    assert not MANY or stages <= functions, stages - functions


def test_killed_in_the_library(job):
    """With a request half sent, or an answer half read."""
    places = count_places(job)
    wanted = max(1, KILLS // 4)
    sweep(job, range(1 + places // wanted // 2, places + 1, places // wanted))


def test_killed_at_any_time(job):
    """Twice in a row without progress, at a later visit, and by the clock."""
    places = count_places(job)
    rng = random.Random(1)
    for index in range(max(1, KILLS // 4)):
        if rng.random() < 0.7:
            job.grow()
        if index % 4:
            job.start(**random_place(rng, places))
        else:
            process = job.spawn()
            time.sleep(rng.uniform(0, 0.3))
            process.kill()
            job.ended(process)
        job.check_no_row_twice()
    say(job, "at random")
    job.check_end()


class Killer(threading.Thread):
    """Kills chxad now and then, and starts it again."""

    def __init__(self, node, seed):
        super().__init__()
        self.node, self.rng = node, random.Random(seed)
        self.over = threading.Event()
        self.kills, self.failure = 0, None

    def run(self):
        try:
            while not self.over.wait(self.rng.uniform(0.1, 3)):
                self.node.kill()
                self.kills += 1
                self.over.wait(self.rng.uniform(0, 0.2))
                self.node.start()
        except ServerFailed as failure:
            self.failure = failure

    def stop(self):
        self.over.set()
        self.join()
        assert self.failure is None, self.failure
        # A server dies with the thread that started it: the last one is the main thread's.
        self.node.kill()
        self.node.start()


def test_killed_with_its_server(job):
    """chxad dies, too."""
    places = count_places(job)
    rng = random.Random(2)
    killer = Killer(job.node, 3)
    killer.start()
    try:
        for _ in range(max(1, KILLS // 8)):
            job.grow()
            job.start(**random_place(rng, places))
    finally:
        killer.stop()
    say(job, f"with {killer.kills} kills of chxad")
    job.check_end()
