# SPDX-License-Identifier: Apache-2.0
"""Time-outs, retention and the beginning of history of a running chxad, whose clocks the test sets.

The build with fault points reads both clocks' offsets from a file (server/base/clock.h).
"""
import itertools
import time

import pytest

import servers
from rest import Client
from tables import assert_nothing_left

MINUTE = 60_000
YEAR = 365 * 24 * 60 * MINUTE
OPTIONS = {"idle_timeout_ms": 10 * MINUTE, "transaction_timeout_ms": 60 * MINUTE, "commit_retry_ms": 50}

_numbers = itertools.count(1)


class Chxad(servers.Chxad):
    """chxad with clocks of its own."""

    def environment(self):
        return {**super().environment(), "CHXA_CLOCK_FILE": str(self.folder / "clock")}

    def set_clocks(self, wall_ms=0, monotonic_ms=0):
        new = self.folder / "clock.new"
        new.write_text(f"{wall_ms} {monotonic_ms}\n")
        new.rename(self.folder / "clock")
        time.sleep(0.8)  # it looks again, and the sweep comes by twice

    def pass_time(self, ms):
        """Both clocks go on, as they do."""
        self.set_clocks(ms, ms)


@pytest.fixture
def start(engine, store_name, lab, folder):
    """start(**options): a chxad on a store of its own."""
    started = []

    def start(**options):
        number = next(_numbers)
        home = folder / f"clock-{number}"
        home.mkdir()
        store = f"sqlite:{home}/chxa.db"
        if store_name == "zookeeper":
            store = f"zookeeper:{lab.zookeeper.address}/clock-{home.parent.name}-{number}"
        server = Chxad(home / "n1", "n1", store, engine.server, {**OPTIONS, **options})
        started.append(server)
        return server.start()

    yield start
    for server in started:
        assert server.stop() == 0, server.log_tail(40)


@pytest.fixture
def table(engine):
    return engine.make("t", "a UInt64", "ENGINE = MergeTree ORDER BY a")


def written(client, table, xid, **fields):
    client.begin(xid, **fields).ok(201)
    client.write(xid, f"INSERT INTO {table} FORMAT CSV", b"1\n2\n", write_id="w").ok()
    return xid


def ends_as(client, xid, state, reason):
    answer = client.get(xid).ok()
    deadline = time.monotonic() + 20
    while answer["state"] == "Aborting" and time.monotonic() < deadline:
        time.sleep(0.05)
        answer = client.get(xid).ok()
    assert (answer["state"], answer["reason"]) == (state, reason)


@pytest.mark.parametrize("engine_name", ["26.7"])
@pytest.mark.parametrize("store_name", ["sqlite"])
class TestTimeouts:
    def test_idle(self, start, engine, table):
        server = start()
        client = Client(server.url)
        written(client, table, "x")
        server.pass_time(10 * MINUTE - 10_000)
        assert client.get("x").ok()["state"] == "Initialized"  # looking does not keep it alive
        server.pass_time(10 * MINUTE + 10_000)
        ends_as(client, "x", "Aborted", "idle time-out")
        client.commit("x").fails("WRONG_STATE")
        assert_nothing_left(engine, ["t"])

    def test_total(self, start, engine, table):
        """Kept busy by writes, until the limit; one that asked for less ends before."""
        server = start()
        client = Client(server.url)
        written(client, table, "x")
        written(client, table, "less", timeout_ms=20 * MINUTE)
        assert client.begin("more", timeout_ms=YEAR).ok(201)["timeout_ms"] == 60 * MINUTE
        for minute in range(5, 60, 5):
            server.pass_time(minute * MINUTE)
            client.write("x", f"INSERT INTO {table} FORMAT CSV", b"3\n").ok()
            if minute < 20:
                client.write("less", f"INSERT INTO {table} FORMAT CSV", b"3\n").ok()
        ends_as(client, "less", "Aborted", "transaction time-out")
        server.pass_time(59 * MINUTE)
        assert client.get("x").ok()["state"] == "Initialized"
        server.pass_time(60 * MINUTE)
        ends_as(client, "x", "Aborted", "transaction time-out")
        assert_nothing_left(engine, ["t"])

    def test_prepared_lives_for_years(self, start, engine, table):
        server = start()
        client = Client(server.url)
        client.prepare(written(client, table, "x", timeout_ms=1000)).ok()
        for years in (1, 2, 10):
            server.pass_time(years * YEAR)
            assert client.get("x").ok()["state"] == "Prepared"
        assert server.stop() == 0
        server.start()  # the clocks stay years ahead
        time.sleep(0.6)
        client.commit("x").ok()
        assert engine.count(table) == 2

    def test_the_wall_clock_is_set(self, start, table):
        """NTP sets it, by years, both ways: nothing young ends, and nothing old lives on."""
        server = start()
        client = Client(server.url)
        written(client, table, "x")
        for years in (1, -1):
            server.set_clocks(years * YEAR, 0)
            assert client.get("x").ok()["state"] == "Initialized"
        server.set_clocks(-YEAR, 10 * MINUTE + 1000)
        ends_as(client, "x", "Aborted", "idle time-out")
        # Begun in what is now the future: it has its time once more after a restart, not for ever.
        written(client, table, "y")
        server.set_clocks(-2 * YEAR, 10 * MINUTE + 1000)
        assert server.stop() == 0
        server.start()
        server.set_clocks(-2 * YEAR, 15 * MINUTE)
        assert client.get("y").ok()["state"] == "Initialized"
        server.set_clocks(-2 * YEAR, 22 * MINUTE)
        ends_as(client, "y", "Aborted", "idle time-out")

    def test_age_counts_over_a_restart(self, start, table):
        server = start()
        client = Client(server.url)
        written(client, table, "old")
        assert server.stop() == 0
        (server.folder / "clock").write_text(f"{61 * MINUTE} {61 * MINUTE}\n")
        server.start()
        time.sleep(0.8)
        ends_as(client, "old", "Aborted", "transaction time-out")


@pytest.mark.parametrize("engine_name", ["26.7"])
def test_retention_and_history(start, table):
    """Finished records go when their time is over; a late retry is then told where the history begins, also by a
    process that began later."""
    retention = 10 * MINUTE
    server = start(retention_ms=retention)  # looks every half minute: started anew, it looks at once
    client = Client(server.url)
    made_ms = client.get("never").fails("TXN_NOT_FOUND")["history_starts_ms"]
    assert made_ms > 0
    client.commit(written(client, table, "old")).ok()
    finished_ms = client.get("old").ok()["changed_ms"]
    assert finished_ms >= made_ms
    server.pass_time(5 * MINUTE)
    client.commit(written(client, table, "new")).ok()
    client.prepare(written(client, table, "open")).ok()
    server.pass_time(11 * MINUTE)
    assert server.stop() == 0
    server.start()
    deadline = time.monotonic() + 20
    while client.get("old").status == 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    starts_ms = client.commit("old").fails("TXN_NOT_FOUND")["history_starts_ms"]
    assert finished_ms < starts_ms <= finished_ms + 5 * MINUTE, "it begins behind the last that went"
    assert client.commit("new").ok()["replay"] is True
    assert client.get("open").ok()["state"] == "Prepared"
    # More retention and another process bring nothing back, and say so.
    assert server.stop() == 0
    server.options["retention_ms"] = YEAR
    server.start()
    assert client.commit("old").fails("TXN_NOT_FOUND")["history_starts_ms"] == starts_ms
    client.rollback("open").ok()
