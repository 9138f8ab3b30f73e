# SPDX-License-Identifier: Apache-2.0
"""The real clients, unchanged but for one header or URL parameter, inside transactions.

Each is installed by its own package manager into ${CHXA_CACHE:-${XDG_CACHE_HOME:-~/.cache}/chxa-tests}/clients. Where a
package manager is missing or its registry cannot be reached, the test is skipped and says so. The programs stand in
tests/clients; each connects, makes a table, inserts in two formats and compressed inside a transaction, reads (nothing),
commits, reads (all), rolls back, sends a bad row (its own typed error), and prints what it saw.
"""
import filecmp
import json
import os
import pathlib
import shutil
import subprocess

import pytest
from servers import ROOT

CLIENTS = ROOT / "tests" / "clients"
CACHE = pathlib.Path(
    os.environ.get("CHXA_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "chxa-tests"
)


@pytest.fixture
def store_name():
    return "sqlite"


def install(name, needs, *commands):
    """A folder with a copy of tests/clients/<name> in which the commands have run, once for each version of it."""
    missing = [program for program in needs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"no {' nor '.join(missing)} here")
    source, folder = CLIENTS / name, CACHE / "clients" / name
    done = folder / ".complete"
    if done.exists() and same_files(source, folder):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    for command in commands:
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
        if run.returncode != 0:
            text = (run.stdout + run.stderr)[-1500:]
            unreachable = ("ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED", "EAI_AGAIN", "NewConnectionError", "Temporary failure",
                           "Could not transfer", "Unknown host", "No matching distribution", "Could not resolve")
            if any(word in text for word in unreachable):
                pytest.skip(f"{command[0]} cannot reach its registry: {text[-300:]}")
            raise AssertionError(f"{command}: {text}")
    done.touch()
    return folder


def same_files(source, folder):
    names = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    return all((folder / name).is_file() and filecmp.cmp(source / name, folder / name, shallow=False) for name in names)


def run(command, folder, node, engine):
    done = subprocess.run(
        [*command, node.url, engine.database], cwd=folder, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout)


def check(seen, rows, engine):
    """What every client must have seen, whatever it calls its errors."""
    assert seen["before_commit"] == 0
    assert seen["after_commit"] == rows
    assert seen["after_rollback"] == rows
    assert seen["after_bad"] == rows + 1
    assert seen["outside"] == rows + 2
    assert engine.count(engine.table("t")) == rows + 2
    assert engine.held() == []


def test_curl(engine, node):
    seen = run([CLIENTS / "curl" / "client.sh"], None, node, engine)
    check(seen, 10_005, engine)
    assert seen["ping"] == "Ok." and seen["bad_row"] == "422 27" and seen["no_transaction"] == "404 649"
    assert seen["summary_rows"] == 1


def test_node(engine, node, only_26):
    folder = install("node", ["node", "npm"], ["npm", "install", "--no-audit", "--no-fund", "--silent"])
    seen = run(["node", "client.mjs"], folder, node, engine)
    check(seen, 10_006, engine)
    assert seen["ping"] is True and seen["state"] == "Committed" and seen["before_commit_packed"] == 0
    assert seen["summary_rows"] == "1" and seen["query_id"] is True
    assert seen["in_second"] == 10_006
    assert seen["bad_row"]["typed"] is True and seen["bad_row"]["type"].startswith("CANNOT_PARSE")
    assert seen["no_transaction"]["code"] == "649" and seen["no_transaction"]["type"] == "INVALID_TRANSACTION"


def test_python(engine, node, only_26):
    folder = install(
        "python",
        ["python3"],
        ["python3", "-m", "venv", "venv"],
        ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", "requirements.txt"],
    )
    seen = run(["venv/bin/python", "client.py"], folder, node, engine)
    check(seen, 10_008, engine)
    assert seen["ping"] is True and seen["state"] == "Committed" and seen["summary_rows"] == 1
    assert seen["bad_row"]["type"] == "DatabaseError" and "code: 27" in seen["bad_row"]["message"]
    assert seen["no_transaction"]["type"] == "DatabaseError" and "code: 649" in seen["no_transaction"]["message"]


@pytest.fixture
def java():
    return install("java", ["mvn", "java"], ["mvn", "-q", "-B", "compile", "dependency:copy-dependencies"])


def test_java_client_v2(engine, node, java, only_26):
    seen = run(["java", "-cp", "target/classes:target/dependency/*", "ClientV2"], java, node, engine)
    check(seen, 10_304, engine)
    assert seen["ping"] is True and seen["summary_rows"] == 1
    assert seen["bad_row"] == "ServerException 27" and seen["no_transaction"] == "ServerException 649"


def test_java_jdbc_v2(engine, node, java, only_26):
    seen = run(["java", "-cp", "target/classes:target/dependency/*", "JdbcV2"], java, node, engine)
    check(seen, 2011, engine)
    assert seen["ping"] is True
    assert seen["bad_row"] == "SQLException 6" and seen["no_transaction"] == "SQLException 649"
