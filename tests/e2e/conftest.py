# SPDX-License-Identifier: Apache-2.0
"""Servers for the end-to-end tests.

ClickHouse and ZooKeeper start once, when the first test wants them, and are shared. chxad starts anew
for each test, with a store of its own (a file, or a path in ZooKeeper) and a database of its own in
ClickHouse, so that a test sees nothing of the others and every test also starts and stops the server.
"""
import faulthandler
import itertools
import os
import pathlib
import signal
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import servers  # noqa: E402
from rest import Client  # noqa: E402
from tables import Engine  # noqa: E402

ENGINES = ("18.16", "26.7")
STORES = ("sqlite", "zookeeper")
TEST_SECONDS = 180

_numbers = itertools.count(1)


class TestTooSlow(Exception):
    pass


def pytest_configure():
    """A run that is told to end (by its time limit, say) stops its servers and removes its folders."""

    def terminated(*_):
        raise KeyboardInterrupt("SIGTERM")

    signal.signal(signal.SIGTERM, terminated)


@pytest.fixture(autouse=True)
def time_limit(request):
    """No test hangs the run: past its limit it fails where it stands."""
    seconds = 800 if request.node.get_closest_marker("big") else TEST_SECONDS

    def too_slow(*_):
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise TestTooSlow(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def folder():
    folder = servers.Folder("chxa-e2e-")
    yield folder.path
    folder.remove()


class Lab:
    """Starts each server when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}

    def _once(self, name, make):
        if name not in self.running:
            self.running[name] = make().start()
        server = self.running[name]
        assert server.process.poll() is None, f"{name} died:\n{server.log_tail()}"
        return server

    @property
    def zookeeper(self):
        return self._once("zookeeper", lambda: servers.ZooKeeper(self.folder / "zookeeper"))

    def clickhouse(self, engine, replica="r1"):
        if engine == "18.16":
            zookeeper = self.zookeeper
            make = lambda: servers.ClickHouse18(self.folder / f"ch18-{replica}", zookeeper, replica)
        else:
            make = lambda: servers.ClickHouse26(self.folder / f"ch26-{replica}")
        return self._once(f"{engine} {replica}", make)

    def stop(self):
        for server in reversed(list(self.running.values())):
            server.stop()


@pytest.fixture(scope="session")
def lab(folder):
    lab = Lab(folder)
    yield lab
    lab.stop()


@pytest.fixture(params=ENGINES)
def engine_name(request):
    return request.param


@pytest.fixture(params=STORES)
def store_name(request):
    return request.param


@pytest.fixture
def engine(lab, engine_name):
    """The ClickHouse under test, with a database of its own (engine.database), dropped at the end."""
    engine = Engine(lab.clickhouse(engine_name), f"db{next(_numbers)}")
    # No chxad runs between two tests: what another test's nodes left held is nobody's.
    engine.clean_held()
    engine.create()
    yield engine
    engine.drop()


@pytest.fixture
def only_18(engine_name):
    if engine_name != "18.16":
        pytest.skip("18.16 only")


@pytest.fixture
def only_26(engine_name):
    if engine_name != "26.7":
        pytest.skip("26.7 only")


@pytest.fixture
def start_node(lab, folder):
    """start_node(engine, store_name, name="n1", **options): starts chxad; all are stopped at the end.

    Nodes with the same `group` share a store.
    """
    started = []
    number = next(_numbers)

    def start(engine, store_name, name="n1", group=0, **options):
        home = folder / f"chxad-{number}-{name}"
        if store_name == "sqlite":
            (folder / f"chxad-{number}-{group}").mkdir(exist_ok=True)
            store = f"sqlite:{folder}/chxad-{number}-{group}/chxa.db"
        else:
            store = f"zookeeper:{lab.zookeeper.address}/e2e-{os.getpid()}-{number}-{group}"
        server = servers.Chxad(home, name, store, getattr(engine, "server", engine), options)
        started.append(server)
        return server.start()

    yield start
    for server in reversed(started):
        status = server.stop()
        assert status == 0, f"{server.name} ended with {status} on SIGTERM:\n{server.log_tail(40)}"
        assert "ERROR: AddressSanitizer" not in server.log_tail(1000), server.log_tail(60)


@pytest.fixture
def start_pair(lab, start_node):
    """start_pair(engine_name, **options): n1 and n2 on one ZooKeeper, each with a ClickHouse of its own: (engines, nodes).

    n1's is of that version, n2's always 18.16; both have a clean held area and an empty database.
    """
    started = []

    def start(engine_name="18.16", **options):
        other = "r2" if engine_name == "18.16" else "r1"
        engines = [Engine(lab.clickhouse(engine_name), "pair1"), Engine(lab.clickhouse("18.16", other), "pair2")]
        for engine in engines:
            engine.clean_held()
            engine.create()
        nodes = [start_node(engine, "zookeeper", name, **options) for engine, name in zip(engines, ("n1", "n2"))]
        started.append((engines, nodes))
        return engines, nodes

    yield start
    for engines, nodes in started:
        for node in nodes:
            node.stop()
        for engine in engines:
            engine.clean_held()
            engine.drop()


@pytest.fixture
def node(engine, store_name, start_node):
    """chxad on the engine and store under test."""
    return start_node(engine, store_name)


@pytest.fixture
def lonely(folder, store_name, lab):
    """chxad whose ClickHouse is not there: alive, and not ready."""

    class Nothing:
        url = f"http://127.0.0.1:{servers.free_port()}"

    name = f"lonely-{next(_numbers)}"
    home = folder / f"chxad-{name}"
    store = f"sqlite:{home}/x.db" if store_name == "sqlite" else f"zookeeper:{lab.zookeeper.address}/{name}-{os.getpid()}"
    node = servers.Chxad(home, "n1", store, Nothing)
    node.address = f"127.0.0.1:{servers.free_port()}"
    node.spawn()
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                Client(node.url).request("GET", "/healthz").ok()
                break
            except OSError:
                assert time.monotonic() < deadline, node.log_tail(20)
                time.sleep(0.05)
        yield node
    finally:
        node.kill()


@pytest.fixture
def client(node):
    return Client(node.url)


@pytest.fixture
def xid(request):
    return f"e2e:{next(_numbers)}"


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows the end of chxad's log."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and call.when == "call":
        for name, value in item.funcargs.items():
            if isinstance(value, servers.Chxad):
                report.sections.append((f"log of chxad ({name})", value.log_tail(40)))
