# SPDX-License-Identifier: Apache-2.0
"""Ten thousand prepared transactions: chxad is killed, starts again, is ready within seconds, and every one of them
can still be committed. What one of them costs in memory."""
import http.client
import os
import threading
import time

import pytest

from rest import Client

TRANSACTIONS = 10_000
WITH_ROWS = 500
READY_SECONDS = 5
BYTES_EACH = 4096
CONNECTIONS = 32
SESSION_MS = 4000


class Crowd:
    """Sends many requests over kept connections, each to the status that it must have."""

    def __init__(self, url):
        self.client = Client(url)

    def _work(self, requests, lock, wrong):
        connection = self.client.connect()
        while not wrong:
            with lock:
                request = next(requests, None)
            if request is None:
                break
            method, target, body, status = request
            try:
                for _ in range(100):
                    connection.request(method, target, body)
                    answer = connection.getresponse()
                    text = answer.read()
                    if answer.status != 503:
                        break
                    time.sleep(0.1)  # retryable: a machine so busy that ZooKeeper's session was lost
            except (OSError, http.client.HTTPException) as error:
                wrong.append((target, repr(error)))
                break
            if answer.status != status:
                wrong.append((target, answer.status, text[:300]))
        connection.close()

    def send(self, requests):
        lock, wrong = threading.Lock(), []
        requests = iter(requests)
        threads = [threading.Thread(target=self._work, args=(requests, lock, wrong)) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong[:3]


def has_rows(number):
    return number % (TRANSACTIONS // WITH_ROWS) == 0


def xid(number):
    return f"job.{number % 7}:{number:05d}"


@pytest.mark.big
@pytest.mark.memory
@pytest.mark.parametrize("engine_name", ["26.7"])
def test_ten_thousand_prepared(engine, store_name, start_node, capsys):
    table = engine.make("t", "a UInt64", "ENGINE = MergeTree ORDER BY a")
    node = start_node(engine, store_name, session_timeout_ms=SESSION_MS)
    crowd, numbers, path = Crowd(node.url), range(TRANSACTIONS), Client.path
    statement = f"INSERT INTO {table} FORMAT CSV"
    before = node.memory_bytes()
    times = [time.monotonic()]
    crowd.send(("PUT", path(xid(i)), None, 201) for i in numbers)
    crowd.send(("POST", path(xid(i), "writes", query=statement, write_id="w"), b"%d\n" % i, 200)
               for i in numbers if has_rows(i))
    crowd.send(("POST", path(xid(i), "prepare"), None, 200) for i in numbers)
    times.append(time.monotonic())
    grown = (node.memory_bytes() - before) / TRANSACTIONS

    node.kill()
    if store_name == "zookeeper":
        time.sleep(SESSION_MS / 1000 + 1)  # a killed node's lock lives so long; that wait is not recovery's
    times.append(time.monotonic())
    node.spawn()
    node.wait_up()
    times.append(time.monotonic())
    assert Client(node.url).request("GET", "/readyz").status == 200
    fresh = (node.memory_bytes() - before) / TRANSACTIONS

    crowd = Crowd(node.url)
    crowd.send(("POST", path(xid(i), "commit"), None, 200) for i in numbers)
    times.append(time.monotonic())
    made, _, ready, committed = (after - at for at, after in zip(times, times[1:]))
    with capsys.disabled():
        print(f"\n{store_name}: {TRANSACTIONS} prepared in {made:.1f} s, ready again after {ready:.2f} s, committed in "
              f"{committed:.1f} s; memory of each {grown:.0f} bytes, after the start {fresh:.0f}")
    assert engine.count(table) == WITH_ROWS
    assert engine.value(f"SELECT sum(a) FROM {table}") == str(sum(i for i in numbers if has_rows(i)))
    assert Client(node.url).list(state="Prepared").ok()["transactions"] == []
    # On a machine that does other things besides, it may take as much longer as everything does.
    assert ready <= READY_SECONDS * max(1, os.getloadavg()[0] / os.cpu_count())
    assert max(grown, fresh) <= BYTES_EACH
