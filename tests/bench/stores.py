# SPDX-License-Identifier: Apache-2.0
"""What the store allows, and what chxad makes of it."""
from lab import load, run_json, servers
from rounds import Cell

CHANGES = 4  # of the store for a begin, a prepare and a commit


def empty(lab, engine, store, size):
    """Begin, prepare, commit without a row, 1, 16 and 64 at once, beside a quarter of the changes that the store makes."""
    node = lab.node(engine, store)
    load("empty", node.url, writers=64, transactions=1)
    for writers in (1, 16, 64):
        total = size.pick(smoke=64, short=2000, full=10_000) // (1 if writers > 1 else 4)

        def ours(writers=writers, each=max(1, total // writers)):
            return writers * each / load("empty", node.url, writers=writers, transactions=each)["seconds"]

        def theirs(writers=writers, changes=CHANGES * total):
            # It makes a folder of its own in ZooKeeper.
            place = f"zookeeper:{lab.zookeeper.address}" if store == "zookeeper" else lab.store(store, f"raw{next(lab.names)}")
            raw = run_json([servers.BUILD / "tests" / "raw_store", place, str(changes), str(writers)])
            return raw.get("grouped_per_s", raw["changes_per_s"]) / CHANGES

        yield Cell("empty", engine, store, f"{writers} at once", writers, ours, theirs, unit="transactions/s",
                   reach=0.8 if (store, writers) == ("zookeeper", 64) else None, processor=False)  # fmt: skip
