# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, both sides of every comparison, on loads too small to mean anything."""
import json
import subprocess

import pytest

import servers


@pytest.mark.memory
def test_every_comparison(tmp_path):
    bench = servers.ROOT / "tests" / "bench"
    done = subprocess.run([bench / "run", "--smoke", "--no-build", "--out", tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    names = subprocess.run([bench / "run", "--names"], check=True, capture_output=True, text=True).stdout.split()
    assert {cell["case"].split("-")[0] for cell in result["cells"]} == set(names)
    for cell in result["cells"]:
        # A figure without another side may be nothing: what a transaction takes when there are few, say.
        assert cell["theirs"] is None or min(cell["ours"] + cell["theirs"]) > 0, cell
