# SPDX-License-Identifier: Apache-2.0
"""X/Open XA: a transaction manager (tests/lib/client/xa_tm.c) drives the switch against real servers.

The test is the transaction manager's head and its log; xa_tm is its hands, and may be killed.
"""
import subprocess
import time

import pytest
from rest import Client
from servers import BUILD

COLUMNS = "key UInt64"
DEFINITION = "ENGINE = MergeTree ORDER BY key"
# As main() of xa_tm makes ids: format id 4711, gtrid and bqual in hex.
FORMAT = 4711


def text_id(gtrid, bqual="b"):
    return f"xa{FORMAT}:{gtrid.encode().hex()}:{bqual.encode().hex()}"


class Tm:
    """One transaction manager process. tm("start", "g1", "b", "0") → "XA_OK"."""

    started = []

    def __init__(self, *command):
        self.process = subprocess.Popen(
            [*command, BUILD / "tests" / "xa_tm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        Tm.started.append(self)

    def send(self, *words, thread=0):
        self.process.stdin.write(f"{thread} {' '.join(str(word) for word in words)}\n")
        self.process.stdin.flush()

    def __call__(self, *words, thread=0):
        self.send(*words, thread=thread)
        answer = self.process.stdout.readline()
        assert answer.endswith("\n"), f"xa_tm ended with {self.process.wait()} at {words}"
        return answer.rstrip("\n")

    def ok(self, *words, thread=0):
        answer = self(*words, thread=thread)
        assert answer in ("XA_OK", "OK"), f"{words}: {answer}: {self('error', thread=thread)}"

    def recover(self, count, flags):
        n, *xids = self("recover", count, flags).split()
        assert int(n) == len(xids), n
        return xids

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Closes its input: it must end by itself, and well."""
        self.process.stdin.close()
        return self.process.wait(timeout=60)


@pytest.fixture(autouse=True)
def no_tm_left():
    yield
    for tm in Tm.started:
        tm.kill()
        tm.process.stdout.close()
    Tm.started.clear()


@pytest.fixture
def table(engine):
    return engine.make("t", COLUMNS, DEFINITION)


@pytest.fixture
def info(node):
    return f"url={node.url} write_mode=first deadline_ms=20000 nowait_ms=3000"


@pytest.fixture
def tm(info):
    tm = Tm()
    tm.ok("open", info)
    return tm


def work(tm, table, gtrid, first=0, n=3, thread=0):
    """A branch with rows, ended."""
    tm.ok("start", gtrid, "b", "0", thread=thread)
    tm.ok("write", table, first, n, thread=thread)
    tm.ok("end", gtrid, "b", "TMSUCCESS", thread=thread)


def test_two_phases(tm, table, engine, client):
    work(tm, table, "g")
    assert client.get(text_id("g")).ok()["state"] == "Initialized"
    assert tm("commit", "g", "b", "0") == "XAER_PROTO"
    tm.ok("prepare", "g", "b", "0")
    assert client.get(text_id("g")).ok()["state"] == "Prepared"
    assert tm("prepare", "g", "b", "0") == "XAER_PROTO"
    assert tm("commit", "g", "b", "TMONEPHASE") == "XAER_PROTO"
    assert engine.count(table) == 0
    tm.ok("commit", "g", "b", "0")
    assert engine.count(table) == 3
    # Repeated, for the first answer may have been lost.
    tm.ok("commit", "g", "b", "0")
    assert tm("start", "g", "b", "0") == "XAER_DUPID"
    assert tm("rollback", "g", "b", "0") == "XA_HEURCOM"
    assert engine.count(table) == 3
    tm.ok("close")
    assert tm.end() == 0


def test_branches_of_one_transaction_are_different_ones(tm, table, engine):
    for bqual, first in (("b1", 0), ("b2", 10)):
        tm.ok("start", "g", bqual, "0")
        tm.ok("write", table, first, 5)
        tm.ok("end", "g", bqual, "TMSUCCESS")
        tm.ok("prepare", "g", bqual, "0")
    tm.ok("commit", "g", "b1", "0")
    tm.ok("rollback", "g", "b2", "0")
    assert engine.value(f"SELECT groupArray(key) FROM (SELECT key FROM {table} ORDER BY key)") == "[0,1,2,3,4]"


def test_one_phase(tm, table, engine):
    work(tm, table, "g")
    tm.ok("commit", "g", "b", "TMONEPHASE")
    assert engine.count(table) == 3
    tm.ok("commit", "g", "b", "TMONEPHASE")
    assert engine.count(table) == 3


def test_gathered_branches(table, engine, node, info, client):
    """Many small writes of a branch; and one whose node was started anew in between, which the prepare refuses."""
    tm = Tm()
    tm.ok("open", f"{info} gather=yes")
    tm.ok("start", "g", "b", "0")
    for first in range(0, 20, 2):
        tm.ok("write", table, first, 2)
    tm.ok("end", "g", "b", "TMSUCCESS")
    tm.ok("prepare", "g", "b", "0")
    assert len(client.get(text_id("g")).ok()["writes"]) == 1
    tm.ok("commit", "g", "b", "0")
    assert engine.count(table) == 20
    work(tm, table, "h", 100)
    node.stop()
    node.start()
    assert tm("prepare", "h", "b", "0") == "XA_RBROLLBACK"
    assert client.get(text_id("h")).ok()["state"] == "Aborted"
    assert engine.count(table) == 20


def test_suspend_resume_join_migrate(tm, table, engine, info):
    tm.ok("start", "g", "b", "0")
    tm.ok("write", table, 0, 1)
    tm.ok("end", "g", "b", "TMSUSPEND")
    assert tm("write", table, 1, 1) == "XAER_PROTO"
    assert tm("prepare", "g", "b", "0") == "XAER_PROTO"
    # Another branch in between, in the same thread; and another thread joins the first.
    work(tm, table, "other", 100, 1)
    assert tm("start", "g", "b", "TMJOIN", thread=1) == "XAER_PROTO", "not open in that thread"
    tm.ok("open", info, thread=1)
    assert tm("start", "g", "b", "TMRESUME", thread=1) == "XAER_PROTO"
    tm.ok("start", "g", "b", "TMJOIN", thread=1)
    tm.ok("write", table, 10, 1, thread=1)
    tm.ok("start", "g", "b", "TMRESUME")
    tm.ok("write", table, 1, 1)
    tm.ok("end", "g", "b", "TMSUSPEND|TMMIGRATE")
    tm.ok("end", "g", "b", "TMSUCCESS", thread=1)
    tm.ok("start", "g", "b", "TMRESUME", thread=1)
    tm.ok("write", table, 11, 1, thread=1)
    assert tm("prepare", "g", "b", "0") == "XAER_PROTO", "thread 1 is associated"
    assert tm("rollback", "g", "b", "0") == "XAER_PROTO"
    tm.ok("end", "g", "b", "TMSUCCESS", thread=1)
    tm.ok("prepare", "g", "b", "0")
    tm.ok("commit", "g", "b", "0", thread=1)
    tm.ok("rollback", "other", "b", "0")
    assert engine.value(f"SELECT groupArray(key) FROM (SELECT key FROM {table} ORDER BY key)") == "[0,1,10,11]"
    tm.ok("close")
    tm.ok("close", thread=1)


def test_a_process_joins_and_another_commits(tm, table, engine, info):
    tm.ok("start", "g", "b", "0")
    tm.ok("write", table, 0, 2)
    second = Tm()
    second.ok("open", info)
    assert second("start", "g", "b", "0") == "XAER_DUPID"
    second.ok("start", "g", "b", "TMJOIN")
    second.ok("write", table, 10, 2)
    second.ok("end", "g", "b", "TMSUCCESS")
    tm.ok("end", "g", "b", "TMSUCCESS")
    tm.ok("prepare", "g", "b", "0")
    assert second("start", "g", "b", "TMJOIN") == "XAER_PROTO"
    second.ok("commit", "g", "b", "0")
    assert engine.count(table) == 4
    tm.ok("commit", "g", "b", "0")
    assert engine.count(table) == 4


def test_rollback_in_each_state(tm, table, engine, client, info):
    tm.ok("rollback", "unknown", "b", "0")
    work(tm, table, "idle")
    tm.ok("rollback", "idle", "b", "0")
    tm.ok("rollback", "idle", "b", "0")
    work(tm, table, "prepared")
    tm.ok("prepare", "prepared", "b", "0")
    tm.ok("rollback", "prepared", "b", "0")
    work(tm, table, "failed")
    assert tm("start", "failed", "b", "TMJOIN") == "XA_OK"
    assert tm("end", "failed", "b", "TMFAIL") == "XA_RBROLLBACK"
    assert tm("prepare", "failed", "b", "0") == "XAER_PROTO"
    tm.ok("rollback", "failed", "b", "0")
    # A thread that ends in the middle takes its branch along.
    tm.ok("open", info, thread=1)
    tm.ok("start", "left", "b", "0", thread=1)
    tm.ok("write", table, 0, 1, thread=1)
    assert tm("leave", thread=1) == "left"
    assert tm("prepare", "left", "b", "0") == "XAER_PROTO"
    tm.ok("rollback", "left", "b", "0")
    for gtrid in ("idle", "prepared", "failed", "left"):
        assert client.get(text_id(gtrid)).ok()["state"] == "Aborted"
    assert engine.count(table) == 0
    assert engine.held() == []


def test_codes_of_wrong_calls(tm, table):
    assert tm("prepare", "none", "b", "0") == "XAER_NOTA"
    assert tm("commit", "none", "b", "0") == "XAER_NOTA"
    assert tm("commit", "none", "b", "TMONEPHASE") == "XAER_NOTA"
    assert tm("forget", "none", "b", "0") == "XAER_NOTA"
    assert tm("end", "none", "b", "TMSUCCESS") == "XAER_NOTA"
    assert tm("start", "none", "b", "TMJOIN") == "XAER_NOTA"
    assert tm("start", "none", "b", "TMRESUME") == "XAER_NOTA"
    assert tm("start", "none", "b", "TMASYNC") == "XAER_ASYNC"
    assert tm("commit", "none", "b", "TMASYNC") == "XAER_ASYNC"
    assert tm("complete", "0") == "XAER_PROTO"
    assert tm("complete", "TMASYNC") == "XAER_INVAL"
    assert tm("recover", "1", "0") == "XAER_INVAL"
    work(tm, table, "g")
    assert tm("forget", "g", "b", "0") == "XAER_PROTO"
    tm.ok("prepare", "g", "b", "0")
    assert tm("forget", "g", "b", "0") == "XAER_PROTO"
    tm.ok("rollback", "g", "b", "0")
    assert tm("open", "colour=red", thread=2) == "XAER_INVAL"
    assert "unknown" in tm("error", thread=2)


def test_read_only(tm, table, engine, client):
    tm.ok("start", "g", "b", "0")
    tm.ok("end", "g", "b", "TMSUCCESS")
    assert tm("prepare", "g", "b", "0") == "XA_RDONLY"
    client.get(text_id("g")).fails("TXN_NOT_FOUND")
    assert tm("commit", "g", "b", "0") == "XAER_NOTA"


def test_a_write_that_fails(tm, table, engine):
    tm.ok("start", "g", "b", "0")
    assert tm("write", engine.table("missing"), 0, 1) == "TARGET_NOT_FOUND"
    tm.ok("write", table, 0, 1)
    tm.ok("end", "g", "b", "TMSUCCESS")
    tm.ok("prepare", "g", "b", "0")
    tm.ok("commit", "g", "b", "0")
    assert engine.count(table) == 1


def test_the_table_is_altered_before_prepare(tm, table, engine, client):
    work(tm, table, "g")
    engine.query(f"DROP TABLE {table}" + ("" if engine.is_old else " SYNC"))
    engine.make("t", "key String", "ENGINE = MergeTree ORDER BY key")
    assert tm("prepare", "g", "b", "0") == "XA_RBINTEGRITY"
    assert client.get(text_id("g")).ok()["state"] == "Aborted"


def test_a_branch_that_timed_out(engine, store_name, start_node, table):
    node = start_node(engine, store_name, idle_timeout_ms=1000)
    tm = Tm()
    tm.ok("open", f"url={node.url}")
    work(tm, table, "g")
    work(tm, table, "h")
    client = Client(node.url)
    for gtrid in ("g", "h"):
        # Asking counts as life, so wait without.
        for _ in range(20):
            answer = client.request("GET", "/v1/transactions?state=Aborted").ok()
            if text_id(gtrid) in [one["xid"] for one in answer["transactions"]]:
                break
            time.sleep(0.5)
    assert tm("prepare", "g", "b", "0") == "XA_RBTIMEOUT"
    assert tm("commit", "h", "b", "TMONEPHASE") == "XA_RBTIMEOUT"


def test_recovery_after_kill_9(tm, table, engine, info, client):
    """The TM dies between prepare and commit of many branches; its successor ends them by its log."""
    n = 60
    to_commit = set()
    for i in range(n):
        work(tm, table, f"g{i}", first=i * 10, n=2)
        tm.ok("prepare", f"g{i}", "b", "0")
        if i % 3:
            to_commit.add(f"g{i}:b")  # the decision, in the TM's log
    tm.ok("commit", "g1", "b", "0")
    # Not ours, or not in doubt: must not be listed.
    client.begin("load-42").ok(201)
    client.prepare("load-42").ok()
    client.begin("xa01:00:00").ok(201)
    client.prepare("xa01:00:00").ok()
    work(tm, table, "never-prepared", first=100000)
    tm.kill()

    successor = Tm()
    successor.ok("open", info)
    found, flags = [], "TMSTARTRSCAN"
    while True:
        page = successor.recover(7, flags)
        found += page
        flags = "0"
        if len(page) < 7:
            break
    assert successor.recover(7, "TMENDRSCAN") == []
    assert sorted(found) == sorted(f"g{i}:b" for i in range(n) if i != 1)
    # A branch that is left out of a page is not lost, and a scan can begin anew.
    assert len(successor.recover(100, "TMSTARTRSCAN|TMENDRSCAN")) == n - 1
    for xid in found:
        gtrid, bqual = xid.split(":")
        successor.ok("commit" if xid in to_commit else "rollback", gtrid, bqual, "0")
    assert successor.recover(100, "TMSTARTRSCAN|TMENDRSCAN") == []
    expected = sorted(key for i in range(n) if i % 3 for key in (i * 10, i * 10 + 1))
    assert engine.rows(f"SELECT key FROM {table} ORDER BY key") == [[str(key)] for key in expected]
    successor.ok("rollback", "never-prepared", "b", "0")
    client.rollback("load-42").ok()
    client.rollback("xa01:00:00").ok()
    assert engine.held() == []
    successor.ok("close")
    assert successor.end() == 0


def steps_of(table, gtrid, first):
    """A global transaction of two branches, as a TM goes through it; None is the decision, written to its log."""
    steps = []
    for bqual, key in (("b1", first), ("b2", first + 1)):
        steps += [("start", gtrid, bqual, "0"), ("write", table, key, 1), ("end", gtrid, bqual, "TMSUCCESS")]
    steps += [("prepare", gtrid, bqual, "0") for bqual in ("b1", "b2")]
    steps += [None]
    return steps + [("commit", gtrid, bqual, "0") for bqual in ("b1", "b2")]


@pytest.mark.parametrize("when", ["between", "within"])
def test_the_tm_is_killed_at_each_step(table, engine, info, client, when):
    """Both branches or none, as the log says; and nothing is left in doubt."""
    log, expected = set(), []
    for at in range(len(steps_of(table, "", 0)) + 1):
        gtrid = f"{when}{at}"
        tm = Tm()
        tm.ok("open", info)
        for i, step in enumerate(steps_of(table, gtrid, at * 10)):
            if i == at:
                if step and when == "within":
                    tm.send(*step)  # and never hears the answer
                break
            if step is None:
                log.add(gtrid)
            else:
                tm.ok(*step)
        tm.kill()
        if gtrid in log:
            expected += [at * 10, at * 10 + 1]
        successor = Tm()
        successor.ok("open", info)
        for _ in range(2):  # what the dead one had sent may still be on its way
            for xid in successor.recover(9, "TMSTARTRSCAN|TMENDRSCAN"):
                owner, bqual = xid.split(":")
                assert owner == gtrid
                successor.ok("commit" if gtrid in log else "rollback", gtrid, bqual, "0")
            if gtrid in log:
                for bqual in ("b1", "b2"):
                    successor.ok("commit", gtrid, bqual, "0")
            else:
                for bqual in ("b1", "b2"):
                    successor.ok("rollback", gtrid, bqual, "0")
        successor.ok("close")
        assert successor.end() == 0
        assert engine.rows(f"SELECT key FROM {table} ORDER BY key") == [[str(key)] for key in expected], gtrid
    assert len(log) == 3
    states = {one["state"] for one in client.request("GET", "/v1/transactions?limit=1000").ok()["transactions"]}
    # A begin or a prepare that arrived after the rollback of what was not there yet is left to its time-out.
    assert states <= {"Committed", "Aborted", "Initialized"}, states


def test_the_node_is_killed(node, tm, table, engine, info):
    """Trouble is XAER_RMFAIL, and the same call again succeeds once the node is back."""
    tm.ok("close")
    tm.ok("open", info.replace("deadline_ms=20000", "deadline_ms=1500"))
    work(tm, table, "g", 0)
    work(tm, table, "h", 10)
    work(tm, table, "i", 20)
    node.kill()
    assert tm("start", "j", "b", "0") == "XAER_RMFAIL"
    assert tm("error").split()[0] in ("UNREACHABLE", "LOST")
    assert tm("prepare", "g", "b", "0") == "XAER_RMFAIL"
    assert tm("commit", "h", "b", "TMONEPHASE") == "XAER_RMFAIL"
    assert tm("rollback", "i", "b", "0") == "XAER_RMFAIL"
    assert tm("recover", "9", "TMSTARTRSCAN") == "XAER_RMFAIL"
    node.start()
    tm.ok("prepare", "g", "b", "0")
    tm.ok("commit", "h", "b", "TMONEPHASE")
    tm.ok("rollback", "i", "b", "0")
    node.kill()
    assert tm("commit", "g", "b", "0") == "XAER_RMFAIL"
    assert tm("commit", "g", "b", "TMNOWAIT") == "XAER_RMFAIL"
    node.start()
    assert tm.recover(9, "TMSTARTRSCAN|TMENDRSCAN") == ["g:b"]
    tm.ok("commit", "g", "b", "TMNOWAIT")
    tm.ok("start", "j", "b", "0")
    tm.ok("end", "j", "b", "TMSUCCESS")
    tm.ok("rollback", "j", "b", "0")
    assert engine.rows(f"SELECT key FROM {table} ORDER BY key") == [[str(k)] for k in (0, 1, 2, 10, 11, 12)]


def test_a_blocked_commit(tm, table, engine, client):
    """The table is dropped behind a prepared branch: decided, not finished, never taken for rolled back."""
    work(tm, table, "g")
    tm.ok("prepare", "g", "b", "0")
    engine.query(f"RENAME TABLE {table} TO {engine.table('away')}")
    assert tm("commit", "g", "b", "TMNOWAIT") == "XA_RETRY"
    assert tm.recover(9, "TMSTARTRSCAN|TMENDRSCAN") == ["g:b"]
    assert tm("rollback", "g", "b", "0") == "XAER_RMFAIL"
    engine.query(f"RENAME TABLE {engine.table('away')} TO {table}")
    tm.ok("commit", "g", "b", "0")
    assert engine.count(table) == 3


def test_an_operator_rolled_it_back(tm, table, engine, client):
    work(tm, table, "g")
    tm.ok("prepare", "g", "b", "0")
    client.rollback(text_id("g")).ok()
    assert tm("commit", "g", "b", "0") == "XA_HEURRB"
    assert tm("commit", "g", "b", "0") == "XA_HEURRB"
    tm.ok("forget", "g", "b", "0")
    assert tm("forget", "g", "b", "0") == "XAER_NOTA"
    assert tm("commit", "g", "b", "0") == "XAER_NOTA"


def test_an_operator_committed_it(tm, table, engine, client):
    work(tm, table, "g")
    tm.ok("prepare", "g", "b", "0")
    client.commit(text_id("g")).ok()
    assert tm("rollback", "g", "b", "0") == "XA_HEURCOM"
    assert tm("rollback", "g", "b", "0") == "XA_HEURCOM"
    tm.ok("forget", "g", "b", "0")
    assert engine.count(table) == 3


def test_under_valgrind(engine, store_name, start_node, table, only_26):
    """No error, and nothing lost, from open to close: also of threads and branches that are left in the middle."""
    node = start_node(engine, store_name)
    command = ["valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible",
               "--error-exitcode=99"]
    tm = Tm(*command)
    info = f"url={node.url} deadline_ms=30000"
    tm.ok("open", info)
    tm.ok("open", info, thread=1)
    work(tm, table, "g")
    tm.ok("start", "g", "b", "TMJOIN", thread=1)
    tm.ok("end", "g", "b", "TMSUSPEND|TMMIGRATE", thread=1)
    tm.ok("end", "g", "b", "TMSUCCESS")
    tm.ok("prepare", "g", "b", "0")
    assert tm.recover(9, "TMSTARTRSCAN") == ["g:b"]
    tm.ok("commit", "g", "b", "0")
    tm.ok("start", "suspended", "b", "0")
    tm.ok("end", "suspended", "b", "TMSUSPEND")
    tm.ok("start", "active", "b", "0", thread=1)
    assert tm("leave", thread=1) == "left"
    assert tm("rollback", "none", "b", "0") == "XA_OK"
    assert tm("commit", "none", "b", "0") == "XAER_NOTA"
    tm.ok("close")
    assert tm.end() == 0


def resolve(client, gtrid):
    body = b'{"action": "discard", "reason": "the table was dropped on purpose"}'
    return client.request("POST", Client.path(text_id(gtrid), "resolve"), body).ok()


def blocked(tm, engine, gtrid, *tables):
    """A decided commit that cannot be finished: the last table is gone."""
    tm.ok("start", gtrid, "b", "0")
    for i, table in enumerate(tables):
        tm.ok("write", table, i * 10, 2)
    tm.ok("end", gtrid, "b", "TMSUCCESS")
    tm.ok("prepare", gtrid, "b", "0")
    engine.query(f"DROP TABLE {tables[-1]}" + ("" if engine.is_old else " SYNC"))
    assert tm("commit", gtrid, "b", "TMNOWAIT") == "XA_RETRY"


def test_an_operator_gave_rows_up(tm, table, engine, client, info):
    """Heuristic codes are kept until xa_forget, for every TM that asks, and a scan of all lists them."""
    blocked(tm, engine, "some", table, engine.make("t2", COLUMNS, DEFINITION))
    blocked(tm, engine, "all", engine.make("t3", COLUMNS, DEFINITION))
    work(tm, table, "rolled-back", 20)
    work(tm, table, "committed", 30)
    for gtrid in ("rolled-back", "committed"):
        tm.ok("prepare", gtrid, "b", "0")
    assert resolve(client, "some")["heuristic"] == "mixed"
    assert resolve(client, "all")["heuristic"] == "rolled_back"
    for gtrid, verb in (("rolled-back", "rollback"), ("committed", "commit")):
        client.request("POST", Client.path(text_id(gtrid), verb, reason="stuck")).ok()
    assert tm.recover(9, "TMSTARTRSCAN|TMENDRSCAN") == []
    tm.kill()
    tm = Tm()
    tm.ok("open", f"{info} scan=all")
    everything = ["all:b", "committed:b", "rolled-back:b", "some:b"]
    assert sorted(tm.recover(9, "TMSTARTRSCAN|TMENDRSCAN")) == everything
    ends = {
        "some": ("XA_HEURMIX", "XA_HEURMIX"),
        "all": ("XA_HEURRB", "XA_HEURRB"),
        "rolled-back": ("XA_HEURRB", "XA_OK"),
        "committed": ("XA_OK", "XA_HEURCOM"),
    }
    for gtrid, (commit, rollback) in ends.items():
        for _ in range(2):
            assert tm("commit", gtrid, "b", "0") == commit, gtrid
            assert tm("rollback", gtrid, "b", "0") == rollback, gtrid
        tm.ok("forget", gtrid, "b", "0")
        assert tm("commit", gtrid, "b", "0") == "XAER_NOTA"
        assert tm("forget", gtrid, "b", "0") == "XAER_NOTA"
    assert tm.recover(9, "TMSTARTRSCAN|TMENDRSCAN") == []
    keys = engine.rows(f"SELECT key FROM {table} ORDER BY key")
    assert keys == [[str(key)] for key in (0, 1, 30, 31, 32)]
    engine.clean_held()


@pytest.fixture
def pair(start_pair):
    """The first node's engine, both nodes, and a table at the first."""
    (engine, _), (one, two) = start_pair("26.7")
    return engine, one, two, engine.make("t", COLUMNS, DEFINITION)


def test_the_successor_asks_another_node(pair):
    """Recovery through whichever node answers; the owner does the work, once it is there."""
    engine, one, two, table = pair
    tm = Tm()
    tm.ok("open", f"url={one.url}")
    for i in range(4):
        work(tm, table, f"g{i}", i * 10, 1)
    for i in range(3):
        tm.ok("prepare", f"g{i}", "b", "0")
    tm.kill()
    successor = Tm()
    successor.ok("open", f"url={two.url} deadline_ms=3000")
    assert sorted(successor.recover(9, "TMSTARTRSCAN|TMENDRSCAN")) == ["g0:b", "g1:b", "g2:b"]
    successor.ok("commit", "g0", "b", "0")
    assert successor("commit", "g3", "b", "0") == "XAER_PROTO"
    assert successor("start", "g3", "b", "0") == "XAER_DUPID"
    successor.ok("start", "g3", "b", "TMJOIN")
    successor.ok("write", table, 31, 1)  # goes to the owner
    successor.ok("end", "g3", "b", "TMSUCCESS")
    successor.ok("commit", "g3", "b", "TMONEPHASE")
    one.kill()
    assert successor("commit", "g1", "b", "0") == "XAER_RMFAIL"
    assert successor("rollback", "g2", "b", "0") == "XAER_RMFAIL"
    assert sorted(successor.recover(9, "TMSTARTRSCAN|TMENDRSCAN")) == ["g1:b", "g2:b"]
    one.start()
    successor.ok("commit", "g1", "b", "0")
    successor.ok("rollback", "g2", "b", "0")
    assert engine.rows(f"SELECT key FROM {table} ORDER BY key") == [["0"], ["10"], ["30"], ["31"]]
