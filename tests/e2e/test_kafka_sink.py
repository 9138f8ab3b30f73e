# SPDX-License-Identifier: Apache-2.0
"""client/examples/kafka_sink.c, killed again and again: rows and offsets never disagree, and every message is a row once.

Kafka is librdkafka's mock cluster, in a process of its own (tests/lib/victim/kafka_mock.c); the program under test is the
example, which dies at any place that a test names (tests/lib/victim/kill_at.c).
"""
import itertools
import os
import random
import signal
import subprocess
import time

import pytest

from rest import Client
from servers import BUILD

COLUMNS = "partition Int32, offset Int64, text String"
DEFINITION = "ENGINE = MergeTree PARTITION BY partition ORDER BY offset"
VICTIM, VICTIM_ALL = BUILD / "tests" / "victim_kafka_sink", BUILD / "tests" / "victim_all_kafka_sink"
MOCK = BUILD / "tests" / "kafka_mock"
KILLS = int(os.environ.get("CHXA_SINK_KILLS", "150")) // 5 + 1
PARTITIONS = 3
SECONDS = 60
# One engine is enough: what differs is Kafka.
pytestmark = [pytest.mark.parametrize("engine_name", ["26.7"])] + [pytest.mark.big] * (KILLS > 50)

_numbers = itertools.count(1)


class Kafka:
    def __init__(self):
        self.topic = f"topic{next(_numbers)}"
        self.process = subprocess.Popen(
            [MOCK, self.topic, str(PARTITIONS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.brokers = self.process.stdout.readline().split()[1]
        self.messages = 0

    def produce(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        self.messages = int(self.process.stdout.readline().split()[1])

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
        self.process.stdout.close()

    def ends(self):
        """The offset behind the last message of each partition."""
        return {str(p): (self.messages + PARTITIONS - 1 - p) // PARTITIONS for p in range(PARTITIONS)}


@pytest.fixture
def kafka():
    if not MOCK.exists():
        pytest.skip("built without librdkafka")
    kafka = Kafka()
    yield kafka
    kafka.close()


class Job:
    def __init__(self, folder, engine, table, node, kafka):
        self.engine, self.table, self.node, self.kafka = engine, table, node, kafka
        self.name = f"kafka.{kafka.topic}"
        self.client = Client(node.url)
        self.log = folder / f"{kafka.topic}.log"

    def spawn(self, victim=VICTIM_ALL, **environment):
        return subprocess.Popen(
            [victim, self.node.url, self.name, f"INSERT INTO {self.table} FORMAT TabSeparated", self.kafka.brokers,
             self.kafka.topic, "10", "100"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "CHXA_KILL_LOG": str(self.log), **environment},
        )

    def offsets(self):
        checkpoint = self.client.sink(self.name).ok()["checkpoint"]
        return checkpoint["meta"] if checkpoint else {}

    def settle(self):
        """Waits until what was decided is done: a commit goes on when its client is dead."""
        deadline = time.monotonic() + SECONDS
        while any(txn["state"] == "Committing" for txn in self.client.sink(self.name).ok()["open"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def check(self):
        """The rows are exactly the messages before the offsets."""
        self.settle()
        rows = self.engine.rows(
            "SELECT toString(partition), count(), uniqExact(offset), min(offset), max(offset) "
            f"FROM {self.table} GROUP BY partition ORDER BY partition"
        )
        offsets = {partition: next for partition, next in self.offsets().items() if next}
        assert {row[0] for row in rows} == set(offsets), (rows, offsets)
        for partition, count, distinct, first, last in rows:
            assert [count, distinct, first, last] == [str(offsets[partition])] * 2 + ["0", str(offsets[partition] - 1)]

    def wait_for_end(self, process):
        deadline = time.monotonic() + SECONDS
        while self.offsets() != self.kafka.ends():
            if process.poll() is not None:
                return
            assert time.monotonic() < deadline, (self.offsets(), self.kafka.ends())
            time.sleep(0.02)
        process.terminate()

    def run(self, victim=VICTIM_ALL, **environment):
        """Until it is killed, or has copied all there is."""
        process = self.spawn(victim, **environment)
        self.wait_for_end(process)
        output, _ = process.communicate(timeout=SECONDS)
        # SIGTERM: before it was waited for.
        assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM), output.decode()
        return process.returncode == -signal.SIGKILL


@pytest.fixture
def job(folder, engine, start_node, kafka):
    return Job(folder, engine, engine.make("k", COLUMNS, DEFINITION), start_node(engine, "sqlite"), kafka)


def test_it_copies_and_resumes(job, kafka):
    kafka.produce(100)
    assert not job.run()
    job.check()
    # Nothing was committed to Kafka; the next start knows where it is all the same.
    kafka.produce(31)
    assert not job.run()
    job.check()
    assert job.engine.count(job.table) == 131
    texts = job.engine.value(f"SELECT uniqExact(text) FROM {job.table}")
    assert texts == "131"


def test_killed(job, kafka):
    places = {}
    for victim in (VICTIM, VICTIM_ALL):
        kafka.produce(30)
        assert not job.run(victim)
        places[victim] = int(job.log.read_text().split()[-1])
    rng = random.Random(4)
    kills = 0
    for index in range(KILLS * 2):
        if rng.random() < 0.8:
            kafka.produce(rng.randint(1, 40))
        if index % 6 == 5:
            process = job.spawn()
            time.sleep(rng.uniform(0, 0.5))
            process.kill()
            process.communicate(timeout=SECONDS)
            kills += process.returncode != 0
        else:
            victim = rng.choice((VICTIM, VICTIM_ALL))
            place = 1 + (index * 7919 % places[victim])
            kills += job.run(victim, CHXA_KILL_PLACE=str(place), CHXA_KILL_VISIT=rng.choice("1123"))
        if rng.random() < 0.7: # else the next start finds a commit that is not done yet
            job.check()
        if kills >= KILLS:
            break
    print(f"\n{kills} kills of the Kafka sink in {index + 2} starts, {kafka.messages} messages")
    assert kills >= KILLS
    assert not job.run()
    job.check()
    assert job.engine.count(job.table) == kafka.messages


def in_function(name):
    """Environment of a start that dies when it gets into that function."""
    lines = subprocess.run(["nm", "-S", VICTIM], check=True, capture_output=True, text=True).stdout.splitlines()
    [(start, size)] = [line.split()[:2] for line in lines if line.endswith(f" {name}")]
    return {"CHXA_KILL_FROM": f"0x{start}", "CHXA_KILL_TO": hex(int(start, 16) + int(size, 16))}


def test_killed_while_its_commit_is_blocked(job, kafka):
    """Decided, and not done for a while: the next start must wait for it before it asks where to go on."""
    kafka.produce(30)
    assert not job.run()
    kafka.produce(25)
    assert job.run(VICTIM, **in_function("chxa_sink_notify_complete"))
    [xid] = [txn["xid"] for txn in job.client.sink(job.name).ok()["open"] if txn["state"] == "Prepared"]
    away = job.engine.table("away")
    job.engine.query(f"RENAME TABLE {job.table} TO {away}")
    job.client.commit(xid, wait_ms=0)
    process = job.spawn()
    time.sleep(1)
    assert process.poll() is None
    job.engine.query(f"RENAME TABLE {away} TO {job.table}")
    job.wait_for_end(process)
    process.communicate(timeout=SECONDS)
    job.check()
    assert job.engine.count(job.table) == kafka.messages
