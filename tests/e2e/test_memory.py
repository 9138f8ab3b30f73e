# SPDX-License-Identifier: Apache-2.0
"""A body is streamed through: resident memory stays flat whatever its size."""
import threading
import time

import pytest
from rest import Client


@pytest.fixture
def store_name(engine_name):
    """The store does not see what is looked at here: one for each engine is enough."""
    return {"18.16": "zookeeper", "26.7": "sqlite"}[engine_name]


MB = 1 << 20
# design.md, section 10.
LIMIT = 64 * MB
# Rows of 16 numbers: 128 bytes. Compressible, so that the disk is not what is measured.
COLUMNS = ", ".join(f"c{i} UInt64" for i in range(16))
DEFINITION = "ENGINE = MergeTree PARTITION BY tuple() ORDER BY tuple()"
ROW_BYTES = 128
ROW = b"".join(i.to_bytes(8, "little") for i in range(16))


def stream(total, block):
    """`total` bytes of RowBinary, a block of rows at a time."""
    sent = 0
    while sent < total:
        yield block
        sent += len(block)


def write_volume(engine, node, xid, total):
    """Writes the volume in one INSERT; returns chxad's highest resident memory."""
    client = Client(node.url, timeout=600)
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    block = ROW * (MB // ROW_BYTES)
    samples = [node.memory_bytes()]
    done = threading.Event()

    def sample():
        while not done.wait(0.05):
            samples.append(node.memory_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    started = time.monotonic()
    try:
        written = client.write(xid, f"INSERT INTO {table} FORMAT RowBinary", stream(total, block)).ok()
    finally:
        done.set()
        sampler.join()
    seconds = time.monotonic() - started
    assert written["rows"] == total // ROW_BYTES
    assert engine.count(table) == 0
    client.commit(xid).ok()
    assert engine.count(table) == total // ROW_BYTES
    print(f"\n{total / MB:.0f} MB in {seconds:.1f} s, chxad at most {max(samples) / MB:.1f} MB resident "
          f"(at start {samples[0] / MB:.1f})")  # fmt: skip
    return max(samples)


@pytest.mark.memory
def test_five_gigabytes(engine, node, xid):
    most = write_volume(engine, node, xid, 5 * 1024 * MB)
    assert most < LIMIT


@pytest.mark.memory
def test_many_writes_at_once(engine, node, xid):
    """Sixty-four fast clients and one slow ClickHouse: back-pressure, not memory."""
    client = Client(node.url)
    table = engine.make("t", COLUMNS, DEFINITION)
    client.begin(xid).ok((200, 201))
    block = ROW * (MB // 4 // ROW_BYTES)
    failures = []

    def writer():
        try:
            client.write(xid, f"INSERT INTO {table} FORMAT RowBinary", stream(4 * MB, block)).ok()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=writer) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    print(f"\n64 bodies at once: chxad at most {node.memory_peak_bytes() / MB:.1f} MB resident")
    assert node.memory_peak_bytes() < LIMIT
    client.commit(xid).ok()
    assert engine.count(table) == 64 * 4 * MB // ROW_BYTES
