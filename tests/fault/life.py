# SPDX-License-Identifier: Apache-2.0
"""chxad with faults, restarted whenever it is found dead, and the client's view of it; see server/base/fault.h."""
import collections
import concurrent.futures
import contextlib
import http.client
import itertools
import os
import signal
import time

import servers
from rest import Client

PLACES = ("before", "sent", "after")
EFFECTS = ("files", "clickhouse", "store")
PATIENCE_S = 60  # of the client that sends its request again

_numbers = itertools.count(1)


class Chxad(servers.Chxad):
    """chxad with a fault in its environment."""

    extra = {}

    def environment(self):
        return {**super().environment(), **self.extra}


def store_uri(store_name, lab, folder):
    if store_name == "sqlite":
        return f"sqlite:{folder}/chxa.db"
    return f"zookeeper:{lab.zookeeper.address}/fault-{os.getpid()}-{next(_numbers)}"


def abandon(client, xid):
    """Until the lock of the dead owner is gone."""
    for _ in range(300):
        answer = client.request("POST", client.path(xid, "abandon", reason="gone"))
        if answer.code != "OWNER_ALIVE":
            break
        time.sleep(0.1)
    return answer


class Life:
    """One chxad's life. Its faults come from a file, so that one process can be given many, one after the other.

    A fault in the environment (`fault`) is there from the start, and goes with the process that it kills.
    """

    def __init__(self, folder, store, engine, fault=None, node="n1", **options):
        folder = folder if node == "n1" else folder / node
        self.server = Chxad(folder, node, store, engine.server, {"session_timeout_ms": 1000, "commit_retry_ms": 50, **options})
        self.faults = self.server.folder / "faults"
        self.trace = self.server.folder / "trace"
        self.server.extra = {"CHXA_FAULT": fault or f"@{self.faults}", "CHXA_FAULT_TRACE": str(self.trace)}
        self.deaths = 0
        self.twice = False
        self.patient = True
        self.refused = False  # ClickHouse will refuse something: for that there is a client that tries again
        self.stops = False  # somebody stops and starts it: no answer does not mean that it died of a fault
        self.client = None
        self.arm("")
        self.start()

    # ---- faults ----

    def arm(self, faults):
        """From now on these; what happened before is forgotten."""
        fresh = self.faults.with_suffix(".new")
        fresh.write_text(faults)
        fresh.rename(self.faults)
        self.trace.write_text("")

    def _trace(self):
        return [line.rsplit(":", 1) for line in self.trace.read_text().split()]

    def visits(self):
        """How often each "operation.step:place" was visited since arm(), and how often a step started an effect."""
        return collections.Counter(f"{step}:{what}" for step, what in self._trace() if what in PLACES + EFFECTS)

    def fired(self):
        return "fired:" in self.trace.read_text()

    # ---- life and death ----

    def start(self):
        """Starts it; when it dies of its fault while starting, starts it again."""
        self.server.spawn()
        try:
            self.server.wait_up()
        except servers.ServerFailed:
            if self.server.process.poll() != -signal.SIGKILL:
                raise
            self.buried()
            return
        self.client = Client(self.server.url, timeout=30)

    def dead(self):
        """Waits for its death by its fault, and leaves it dead, the fault gone."""
        status = self.server.process.wait(30)
        assert status == -signal.SIGKILL, f"ended with {status}:\n{self.server.log_tail(40)}"
        self.deaths += 1
        self.server.extra["CHXA_FAULT"] = f"@{self.faults}"
        self.faults.write_text("")

    def buried(self):
        self.dead()
        self.start()

    def stop(self):
        if self.server.process.poll() == -signal.SIGKILL:
            self.buried()
        assert self.server.stop() == 0, self.server.log_tail(40)

    def restart(self):
        self.stop()
        self.start()

    # ---- the client ----

    def _again(self, error):
        return error["retryable"] or (self.refused and error["code"] == "CLICKHOUSE_REJECTED")

    def _send(self, do):
        """As often as it takes: what was sent before a death, or was answered "again", is sent again."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = self.client
            try:
                answer = do(client)
                again = answer.status == 202 or (answer.status >= 400 and self._again(answer.error))
            except (OSError, http.client.HTTPException) as trouble:
                answer, again = trouble, True
                if self.stops and time.monotonic() < deadline:
                    time.sleep(0.03)
                    continue
                if not self.twice or client is self.client:
                    self.server.process.wait(30)
                    return trouble
            # (a busy machine lost its session with ZooKeeper)
            patient = self.patient or (answer.status == 503 and answer.error["code"] == "NOT_READY")
            if not again or not patient or time.monotonic() > deadline:
                return answer
            time.sleep(0.03)

    @contextlib.contextmanager
    def impatient(self):
        """Takes "again" for an answer."""
        self.patient = False
        yield
        self.patient = True

    def call(self, do):
        """Sends a request until it has its answer; in two connections at once while `twice`."""
        for _ in range(4):
            if self.twice:
                with concurrent.futures.ThreadPoolExecutor(2) as pool:
                    answers = list(pool.map(lambda _: self._send(do), range(2)))
            else:
                answers = [self._send(do)]
            if not any(isinstance(answer, Exception) for answer in answers):
                assert len({answer.status // 100 for answer in answers}) == 1, answers
                return answers[0]
            self.buried()
        raise AssertionError(f"no answer: {answers}")
