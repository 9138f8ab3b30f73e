# SPDX-License-Identifier: Apache-2.0
"""Everything goes wrong once: each step of every operation × before, sent, after × crash, error, lost, delay.

Each story below is run without a fault first: that tells which places of which steps it visits, how often, and which
of them start an effect. Held against the tables of steps in server/op, none may be missing. Then the story is told
again for each fault; chxad dies there and is started again, or does not get its effect, or not the answer, and the
client does what any client does: it sends the same request again. At the end every committed row must be there once,
every rolled-back row nowhere, nothing held, nothing detached, nothing unfinished; and one more restart changes nothing.

The whole matrix is marked big; CHXA_FAULT_ONLY takes a part of it, CHXA_FAULT_CELLS notes what ran. The ordinary run has one fault for each step of one pair (test_sample).
"""
import collections
import concurrent.futures
import http.client
import itertools
import operator
import os
import re
import shutil
import time

import pytest

import servers
from life import EFFECTS, Life, PLACES, abandon, store_uri
from servers import ROOT

KINDS = ("crash", "error", "lost", "delay")
DELAY_MS = 40
PARTS_OF_AN_ALTER = 4  # of three for a write: a second one needs another ALTER
CASES_PER_TABLE = 40
PROBLEMS_MAX = 8
VISITS_MAX = 200
# Steps without an effect of their own: they only decide, or wait for other operations.
WITHOUT_EFFECT = {
    "write.admit", "write.compare", "write.gather", "prepare.drain", "prepare.limits", "commit.target", "commit.discard", "commit.follow",
    "rollback.drain", "recover.resume", "sink_recover.end",
}
# Effects that are not announced (op_sent): a question, or work on a thread that can be killed at its end only.
WITHOUT_SENT = WITHOUT_EFFECT - {"sink_recover.end"} | {
    "write.target", "write.scratch", "prepare.check", "commit.quiet", "commit.check", "commit.look", "commit.verify", "commit.confirm",
    "recover.probe", "recover.disks", "recover.lock", "recover.pool", "recover.history", "recover.list", "recover.load", "recover.folders",
    "recover.judge", "recover.clean", "sink_recover.list", "sink_recover.owners", "sink_recover.read",
    "abandon.read", "fsck.list", "fsck.load", "fsck.tables", "fsck.look", "fsck.judge", "fsck.recheck",
}
# They ask ClickHouse about a table only while it is new, or was changed (ch/table_cache.h): not each time.
ASK_ONCE = {"write.target", "prepare.check", "commit.check"}
ONLY_REPLICATED = {"commit.confirm", "commit.settle"}
# What is converted (convert.*): in test_resolve.py.

_numbers = itertools.count(1)


def steps_in_code():
    """{"commit.attach", …} from the tables in server/op."""
    found = set()
    for path in sorted((ROOT / "server" / "op").glob("*.c")):
        text = path.read_text()
        for name, table in re.findall(r"struct op_step (\w+)_steps\[\] = \{(.*?)\n\};", text, re.S):
            found |= {f"{name}.{step}" for step in re.findall(r'\{"(\w+)",', table)}
    return found


def rows_of(first, n):
    return "".join(f"2024-0{1 + i % 3}-01,{first + i},x\n" for i in range(n)).encode()


class World:
    """Two tables of one ClickHouse, what should be in them, and a chxad."""

    COLUMNS = "d Date, a UInt64, s String"

    def __init__(self, engine, home, make_store):
        self.engine = engine
        self.home = home
        self.make_store = make_store
        self.life = None
        self.make_tables()
        self.new_life()

    def new_life(self):
        home = self.home / f"chxad-{next(_numbers)}"
        home.mkdir()
        self.life = Life(home, self.make_store(home), self.engine, attach_parts_max=PARTS_OF_AN_ALTER)

    def end_life(self):
        """Whatever state it is in; what it left is not the next one's."""
        if self.life:
            self.life.server.kill()
        for root in self.engine.roots():
            for path in [*(root / "chxa").glob("t-*"), root / "chxa" / "lost"]:
                shutil.rmtree(path, ignore_errors=True)

    def log(self):
        """The lines that tell what went wrong."""
        lines = self.life.server.log_tail(400).splitlines()
        return "\n".join([line for line in lines if "level=info" not in line][-12:] + lines[-12:])

    def make_tables(self):
        run = next(_numbers)
        self.names = [f"a{run}", f"b{run}"]
        second = "MergeTree"
        if self.engine.is_old:
            second = f"ReplicatedMergeTree('/tables/{self.engine.database}/b{run}', '{{replica}}')"
        self.tables = [
            self.engine.make(self.names[0], self.COLUMNS, "ENGINE = MergeTree PARTITION BY toYYYYMM(d) ORDER BY a"),
            self.engine.make(self.names[1], self.COLUMNS, f"ENGINE = {second} PARTITION BY toYYYYMM(d) ORDER BY a"),
        ]
        self.expected = []

    def fresh_tables(self):
        for table in self.tables:
            self.engine.query(f"DROP TABLE {table}")
        self.make_tables()

    def begin(self, xid, **fields):
        self.life.call(lambda c: c.begin(xid, **fields)).ok((200, 201))

    def write(self, xid, tables=None, again=False, another=""):
        """20 rows into each table; returns the first row's number. another: a word for each write but the first."""
        first = next(_numbers) * 20
        for table in tables or self.tables:
            statement, write_id = f"INSERT INTO {table} FORMAT CSV", table.replace("`", "")
            for _ in range(2 if again else 1):
                self.life.call(lambda c: c.write(xid, statement, rows_of(first, 20), write_id=write_id + another)).ok()
        return first

    def end(self, xid, first, *verbs):
        for verb in verbs:
            self.life.call(lambda c: getattr(c, verb)(xid)).ok()
        if "commit" in verbs:
            self.expect(first)

    def expect(self, first, tables=None):
        """These 20 rows, in both tables."""
        self.expected.append((first, tuple(tables or self.tables)))

    def check(self):
        log = self.log()
        for name, table in zip(self.names, self.tables):
            numbers = [n for first, tables in self.expected if table in tables for n in range(first, first + 20)]
            want = [str(v) for v in (len(numbers), sum(numbers), len(numbers))]
            got = self.engine.value(f"SELECT count(), sum(a), uniqExact(a) FROM {table}").split()
            assert got == want, f"{table}: {got}, not {want}\n{log}"
            assert self.engine.detached(name) == [], log
            if self.engine.is_old and name == self.names[1]:
                self.check_replica(name)
        assert not self.engine.held(), f"held: {self.engine.held()}\n{log}"
        assert self.life.call(lambda c: c.list(unfinished=1)).ok()["transactions"] == [], log

    def check_replica(self, name):
        """Every part that this replica shows is known to ZooKeeper, so the others have it too."""
        path = f"/tables/{self.engine.database}/{name}/replicas/r1/parts"
        for _ in range(100):
            here = self.engine.query(f"SELECT name FROM system.parts WHERE active AND table = '{name}'").split()
            there = self.engine.query(f"SELECT name FROM system.zookeeper WHERE path = '{path}'").split()
            missing = set(here) - set(there)
            if not missing:
                return
            time.sleep(0.05)  # a merge between the two questions
        raise AssertionError(f"{name}: {missing} are not in ZooKeeper\n{self.log()}")


# ---- the stories; each arms the fault at its proper moment ----

def story_commit(world, fault):
    run = next(_numbers)
    world.life.arm(fault)
    for xid, verbs in ((f"two-phase:{run}", ("prepare", "commit")), (f"one-phase:{run}", ("commit",))):
        world.begin(xid)
        world.end(xid, world.write(xid, again=True), *verbs)
        world.tables.reverse()
        world.names.reverse()


def story_batches(world, fault):
    """Several ALTERs for each table, and the tables' parts have numbers in turn: no marker may have those of both."""
    xid, tables = f"batches:{next(_numbers)}", sorted(world.tables, reverse=True)
    world.life.arm(fault)
    world.begin(xid)
    firsts = [world.write(xid, tables, another=another) for another in ("", "2", "3")]
    world.end(xid, firsts[0], "prepare", "commit")
    for first in firsts[1:]:
        world.expect(first)


def story_rollback(world, fault):
    run = next(_numbers)
    world.life.arm(fault)
    for xid, verbs in ((f"rolled-back:{run}", ("rollback",)), (f"prepared:{run}", ("prepare", "rollback"))):
        world.begin(xid)
        world.end(xid, world.write(xid), *verbs)


def story_gather(world, fault):
    """Small writes that are gathered; when some of them are lost the client rolls back, and writes them into a new transaction."""
    run, life = next(_numbers), world.life
    life.arm(fault)
    for verbs in (("prepare", "commit"), ("commit",), ("rollback",)):
        first = next(_numbers) * 20
        for attempt in range(4):
            xid = f"gather-{'-'.join(verbs)}:{run}:{attempt}"
            if gathers(world, xid, first, verbs):
                break
            life.call(lambda c: c.rollback(xid)).ok()
        else:
            raise AssertionError(f"{xid}: rows are lost each time")
        if "commit" in verbs:
            world.expect(first)


def gathers(world, xid, first, verbs):
    """These 20 rows in two writes for each table. False: some of them are lost, as we were told."""
    calls = [lambda c: c.begin(xid, gather=True)]
    for table in world.tables:
        for half in (first, first + 10):
            statement, write_id = f"INSERT INTO {table} FORMAT CSV", f"{table}{half}".replace("`", "")
            calls.append(operator.methodcaller("write", xid, statement, rows_of(half, 10), write_id))
    calls += [operator.methodcaller(verb, xid) for verb in verbs]
    for call in calls:
        answer = world.life.call(call)
        if answer.code == "ROLLBACK_ONLY":
            return False
        answer.ok((200, 201))
    return True


def story_sink(world, fault):
    """A writer that prepared two transactions, left one open, and comes back with a newer epoch."""
    run = next(_numbers)
    name, life = f"sink:{run}", world.life
    for number, (xid, verbs) in enumerate((("yes", ["prepare"]), ("no", ["prepare"]), ("open", []))):
        world.begin(f"{xid}:{run}", sink=name, epoch=1, meta={"number": number})
        first = world.write(f"{xid}:{run}")
        world.end(f"{xid}:{run}", first, *verbs)
        if xid == "yes":
            world.expect(first)
    life.arm(fault)
    for _ in range(20):
        answer = life.call(lambda c: c.recover(name, 2, [f"yes:{run}"])).ok()
        if answer["complete"]:
            break
    assert answer["complete"] is True and answer["epoch"] == 2, answer
    assert answer["checkpoint"]["xid"] == f"yes:{run}" and answer["checkpoint"]["meta"] == {"number": 0}, answer
    life.call(lambda c: c.begin(f"late:{run}", sink=name, epoch=1)).fails("FENCED")
    for xid, state in (("yes", "Committed"), ("no", "Aborted"), ("open", "Aborted")):
        assert life.call(lambda c: c.get(f"{xid}:{run}")).ok()["state"] == state


def dies(life, do):
    """Sends the request that kills chxad; leaves it dead."""
    with pytest.raises((OSError, http.client.HTTPException)):
        do(life.client)
    life.dead()


def story_recover(world, fault, death="commit.attach:after:2"):
    """chxad died within a commit, when all was attached, and within a rollback; one is prepared, one open, and there is
    nobody's rubbish."""
    run, life = next(_numbers), world.life
    half, prepared, opened, aborting = xids = [f"{name}:{run}" for name in ("half", "prepared", "open", "aborting")]
    first = {}
    for xid in xids:
        world.begin(xid)
        first[xid] = world.write(xid)
    for xid in (half, prepared):
        world.end(xid, first[xid], "prepare")
    life.arm(f"rollback.clear:before:delay=60000,{death}")
    deadline = time.monotonic() + 20
    while (answer := life.client.rollback(aborting, wait_ms=0)).status == 503 and time.monotonic() < deadline:
        time.sleep(0.05)  # a busy machine lost its session with ZooKeeper
    answer.ok(202)
    dies(life, lambda c: c.commit(half))
    (world.engine.roots()[0] / "chxa" / f"t-nobody:{run}" / "17").mkdir(parents=True)
    life.arm(fault)
    life.start()
    for xid in (half, prepared):
        world.end(xid, first[xid], "commit")
    for xid in (opened, aborting):
        world.end(xid, first[xid], "rollback")


def story_half(world, fault):
    """The same, but half of the parts stand in detached/."""
    story_recover(world, fault, "commit.move:after")


def story_blocked(world, fault):
    """chxad died with parts in detached/, ClickHouse with them half attached, and the table is another one for a while."""
    run, life, engine = next(_numbers), world.life, world.engine
    xid, name, table = f"blocked:{run}", *min(zip(world.names, world.tables))
    world.begin(xid)
    first = world.write(xid, sorted(world.tables))
    world.end(xid, first, "prepare")
    life.arm("commit.move:after")
    dies(life, lambda c: c.commit(xid))
    for path in engine.paths(name):
        for number, part in enumerate(sorted((path / "detached").iterdir())):
            part.rename(part.with_name(("attaching_", "ignored_")[number % 2] + part.name))
    engine.query(f"RENAME TABLE {table} TO {engine.table(name + '_away')}")
    engine.make(name, "other String", "ENGINE = MergeTree ORDER BY other")
    life.arm(fault)
    life.start()
    with life.impatient():
        for _ in range(2):
            life.call(lambda c: c.commit(xid)).fails("BLOCKED")
    engine.query(f"DROP TABLE {table}" + ("" if engine.is_old else " SYNC"))
    engine.query(f"RENAME TABLE {engine.table(name + '_away')} TO {table}")
    world.end(xid, first, "commit")


def story_discard(world, fault):
    """Of two tables one is another one for good: an operator gives up what was for it, and the rest is committed."""
    run, life, engine = next(_numbers), world.life, world.engine
    (name, table), other = min_and_max(world)
    xid = f"given-up:{run}"
    world.begin(xid)
    first = world.write(xid, sorted(world.tables))
    world.end(xid, first, "prepare")
    engine.query(f"RENAME TABLE {table} TO {engine.table(name + '_away')}")
    engine.make(name, "other String", "ENGINE = MergeTree ORDER BY other")
    with life.impatient():
        life.call(lambda c: c.commit(xid)).fails("BLOCKED")
    life.arm(fault)
    body, target = b'{"action": "discard"}', world.life.client.path(xid, "resolve", reason="for good")
    for _ in range(4):  # a first death may be of the blocked retry that the restart began with
        life.call(lambda c: c.request("POST", target, body))
    answer = life.call(lambda c: c.commit(xid)).ok()
    assert (answer["heuristic"], answer["discarded_rows"]) == ("mixed", 20), answer
    engine.query(f"DROP TABLE {table}" + ("" if engine.is_old else " SYNC"))
    engine.query(f"RENAME TABLE {engine.table(name + '_away')} TO {table}")
    world.expect(first, [other])
    lost = [path for root in engine.roots() for path in (root / "chxa" / "lost").glob(f"t-{xid}*")]
    assert sum(part.name.isdigit() for path in lost for part in path.iterdir()) == 3, lost
    for path in lost:
        shutil.rmtree(path)
        path.parent.rmdir()


def min_and_max(world):
    """((the first table's name, the first table), the second table)."""
    return min(zip(world.names, world.tables)), max(world.tables)


def story_abandon(world, fault):
    """Another node prepared for a sink and is gone for good: the sink's writer is told where, an operator ends it here."""
    run, life = next(_numbers), world.life
    xid, name = f"lost:{run}", f"lost-sink:{run}"
    life.stop()
    other = Life(life.server.folder, life.server.store, world.engine, node="n2")
    other.client.begin(xid, sink=name, epoch=1).ok(201)
    other.client.prepare(xid).ok()
    other.server.kill()
    life.arm(fault)
    life.start()
    answer = life.call(lambda c: c.recover(name, 2, [])).ok()
    assert not answer["complete"] and answer["transactions"][0]["error"]["code"] == "NOT_OWNER", answer
    assert life.call(lambda c: abandon(c, xid)).ok()["state"] == "Aborted"


def story_fsck(world, fault):
    """Somebody took a held part away, and left a folder of his own; an operator asks what is wrong, and puts it right."""
    run, life = next(_numbers), world.life
    xid, area = f"checked:{run}", world.engine.roots()[0] / "chxa"
    world.begin(xid)
    first = world.write(xid)
    world.end(xid, first, "prepare")
    part = min(path for path in area.joinpath(f"t-{xid}").iterdir())
    taken, orphan = area.parent / f"taken-{run}", area / f"t-nobody:{run}"
    part.rename(taken)
    orphan.mkdir()
    life.arm(fault)
    answer = life.call(lambda c: c.request("GET", "/v1/fsck")).ok()
    # A chxad that died meanwhile has removed the folder when it was started again.
    kinds = {finding["kind"] for finding in answer["findings"]}
    if fault.startswith("fsck.tables:"):
        kinds -= {"not_looked_at"}  # it did not get the tables, and says so
    assert kinds == {"missing_part"} | ({"orphan_folder"} if orphan.is_dir() else set()), answer
    taken.rename(part)
    if orphan.is_dir():
        orphan.rmdir()
    world.end(xid, first, "commit")


STORIES = {
    "commit": story_commit,
    "batches": story_batches,
    "rollback": story_rollback,
    "gather": story_gather,
    "sink": story_sink,
    "recover": story_recover,
    "half": story_half,
    "blocked": story_blocked,
    "discard": story_discard,
    "abandon": story_abandon,
    "fsck": story_fsck,
}
DIES = ("recover", "half", "blocked")  # once without any fault
# Heads of the names of the steps for which a story is told: these differ from the others in them.
ONLY = {"batches": "commit.", "gather": ("begin.", "write.", "prepare.", "rollback."), "half": ("commit.", "rollback."), "blocked": "commit.", "discard": "commit.", "abandon": ("abandon.", "sink_recover."), "fsck": "fsck."}


# ---- the matrix ----

# A part of it: what these words match from the start, say CHXA_FAULT_ONLY='commit\.|.*:sent:'.
ONLY_THESE = re.compile(os.environ.get("CHXA_FAULT_ONLY", ""))
# A line for each cell that ran, and how it ended, is added to this file.
CELLS = os.environ.get("CHXA_FAULT_CELLS")

def faults_of(visits, kind):
    """Every fault of that kind in what a story visited: at its first occurrence, and at its last."""
    effects = collections.Counter()
    for name, count in visits.items():
        step, what = name.rsplit(":", 1)
        effects[step] += count if what in EFFECTS else 0
    found = []
    for name, count in visits.items():
        step, what = name.rsplit(":", 1)
        if kind == "crash" and what in PLACES:
            found.append((f"{name}:crash", count))
        elif kind == "delay" and what in PLACES:
            found.append((f"{name}:delay={DELAY_MS}", effects[step] if what == "sent" else count))
        elif kind == "error" and what in EFFECTS:
            found.append((f"{step}:before:error", effects[step]))
        elif kind == "lost" and what in EFFECTS:
            found += [(f"{step}:{place}:lost", effects[step]) for place in ("before", "after")]
        if kind in ("error", "lost") and what in ("clickhouse", "store") and visits[f"{step}:sent"]:
            found.append((f"{step}:sent:{kind}", effects[step]))
    return [f"{fault}:{nth}" for fault, count in sorted(set(found)) if count and ONLY_THESE.match(fault) for nth in sorted({1, count})]


_visited = {}


@pytest.fixture
def world(engine, store_name, lab, folder):
    home = folder / f"world-{next(_numbers)}"
    home.mkdir()
    world = World(engine, home, lambda folder: store_uri(store_name, lab, folder))
    yield world
    world.end_life()


def visited_by(world, story, key):
    """What the story visits without a fault; told once for each pair."""
    if (story, key) not in _visited:
        told = []
        for _ in range(2):
            STORIES[story](world, "")
            told.append(world.life.visits())
            circles = {name: n for name, n in told[-1].items() if n > VISITS_MAX}
            assert not circles, f"a step that waits for something runs in circles: {circles}"
        # What happens each time, not what a busy machine brought once (a time-out, say); a table's first scratch table
        # is made in the first round only.
        visits = told[0] & told[1]
        visits.update({name: n for name, n in told[0].items() if name.startswith("write.scratch:") and name not in visits})
        heads = ONLY.get(story, "")
        visits = collections.Counter({name: n for name, n in visits.items() if name.startswith(heads)})
        _visited[story, key] = visits
        world.check()
    return _visited[story, key]


def tell(world, story, fault):
    """One case. True: the fault happened."""
    life, deaths = world.life, world.life.deaths
    life.twice = ":delay=" in fault
    life.refused = ":sent:error" in fault
    STORIES[story](world, fault)
    life.twice = life.refused = False
    fired = life.fired()
    at_most = fault.split(":")[0] in ASK_ONCE and re.search(":(error|lost):", fault)
    assert fired or at_most or not fault.endswith(":1"), f"{fault} was not visited"
    world.check()
    if life.deaths > deaths + (story in DIES):
        life.restart()
        world.check()
    return fired


def note(world, story, fault, how):
    if CELLS:
        store = world.life.server.store.split(":")[0]
        with open(CELLS, "a", encoding="utf-8") as file:
            print(time.strftime("%H:%M:%S"), world.engine.name, store, story, fault, how, file=file)


def tell_all(world, story, faults):
    fired, problems = 0, []
    for number, fault in enumerate(faults, 1):
        if fault.startswith("write.scratch:"):
            world.fresh_tables()  # no scratch table for these is there yet
        try:
            happened = tell(world, story, fault)
            fired += happened
            note(world, story, fault, "passed" if happened else "not visited")
        except (AssertionError, OSError, servers.ServerFailed) as problem:
            note(world, story, fault, f"failed: {str(problem).splitlines()[:1]}")
            problems.append(f"\n---- {story} with {fault}: {problem}")
            assert len(problems) < PROBLEMS_MAX, "".join(problems)
            world.end_life()
            world.fresh_tables()
            world.new_life()
        if number % CASES_PER_TABLE == 0:
            world.fresh_tables()
    world.life.restart()
    world.check()
    print(f"{story}: {len(faults)} faults, {fired} happened")
    assert not problems, "".join(problems)
    assert fired >= len(faults) * 8 // 10  # the last visit of some is not the last every time
    world.life.stop()


PAIRS = [("18.16", "zookeeper"), ("26.7", "sqlite")]
ALL_PAIRS = [(engine, store) for engine in ("18.16", "26.7") for store in ("sqlite", "zookeeper")]


@pytest.mark.parametrize("engine_name,store_name", PAIRS)
def test_every_step_of_the_tables_is_visited(world, engine_name, store_name):
    visits = collections.Counter()
    for story in STORIES:
        visits += visited_by(world, story, (engine_name, store_name))
    without_effect = WITHOUT_EFFECT | (set() if world.engine.is_old else ONLY_REPLICATED)
    for step in sorted(step for step in steps_in_code() if not step.startswith("convert.")):
        assert visits[f"{step}:before"], f"{step} is in no story"
        has_effect = any(visits[f"{step}:{effect}"] for effect in EFFECTS)
        assert has_effect or step in without_effect, f"{step} started no effect"
        assert visits[f"{step}:sent"] or step in WITHOUT_SENT | without_effect, f"{step} announced no effect"
    world.life.stop()


SAMPLE = {  # heads of the names of steps
    "commit": "",
    "batches": ("commit.check", "commit.look", "commit.mark", "commit.move", "commit.send", "commit.attach", "commit.verify"),
    "rollback": "",
    "gather": ("write.", "prepare."),
    "sink": "",
    "recover": "recover",
    "half": ("commit.quiet", "commit.look", "rollback.clear"),
    "blocked": ("commit.retreat", "commit.block", "commit.mend"),
    "discard": ("commit.resolve", "commit.discard"),
    "abandon": ("abandon.", "sink_recover.owners"),
    "fsck": "",
}


@pytest.mark.parametrize("engine_name,store_name", [("26.7", "sqlite")])
@pytest.mark.parametrize("story", STORIES)
def test_sample(world, engine_name, store_name, story):
    """Each step once, and each kind at every fourth of them."""
    visits = visited_by(world, story, (engine_name, store_name))
    faults = {}
    for number, kind in enumerate(KINDS):
        for fault in faults_of(visits, kind):
            faults.setdefault(fault.split(":")[0], []).append(fault)
    steps = sorted(step for step in faults if step.startswith(SAMPLE[story]))
    tell_all(world, story, [faults[step][len(faults[step]) * (number % 4) // 4] for number, step in enumerate(steps)])


@pytest.mark.big
@pytest.mark.parametrize("engine_name,store_name", ALL_PAIRS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", STORIES)
def test_matrix(world, engine_name, store_name, story, kind):
    tell_all(world, story, faults_of(visited_by(world, story, (engine_name, store_name)), kind))


def wait_until(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.big
@pytest.mark.parametrize("engine_name,store_name", PAIRS)
def test_told_to_stop_within_a_step(world, engine_name, store_name):
    """SIGTERM while a step is under way: it ends in order, whatever the step, and what was asked for is done in the end."""
    visits = visited_by(world, "commit", (engine_name, store_name)) + visited_by(world, "rollback", (engine_name, store_name))
    steps = sorted({name.split(":")[0] for name in visits} - {"write.compare", "prepare.drain", "prepare.limits"})
    cases = [(story_rollback if step.startswith("rollback.") else story_commit, step) for step in steps]
    cases += [(story_gather, step) for step in steps if step.startswith(("write.", "prepare."))]
    life = world.life
    life.stops = True
    for number, (story, step) in enumerate(cases):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            told = pool.submit(story, world, f"{step}:{('before', 'after')[number % 2]}:delay=300")
            wait_until(life.fired, f"{step} was not visited")
            assert life.server.stop() == 0, life.server.log_tail(40)
            life.arm("")
            life.start()
            told.result(60)
        world.check()
    life.stops = False
    life.stop()
