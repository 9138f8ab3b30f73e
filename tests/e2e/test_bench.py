# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, both sides of every comparison, on loads too small to mean anything; its page is what was measured."""
import json
import re
import shutil
import subprocess

import pytest

import servers

BENCH = servers.ROOT / "tests" / "bench" / "run"


@pytest.mark.big
@pytest.mark.memory
def test_every_comparison(tmp_path):
    done = subprocess.run([BENCH, "--smoke", "--no-build", "--out", tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    names = subprocess.run([BENCH, "--names"], check=True, capture_output=True, text=True).stdout.split()
    assert {cell["case"].split("-")[0] for cell in result["cells"]} == set(names)
    for cell in result["cells"]:
        # A figure without another side may be nothing: what a transaction takes when there are few, say.
        assert cell["theirs"] is None or min(cell["ours"] + cell["theirs"]) > 0, cell


def test_page_holds_what_was_measured(tmp_path):
    deploy = servers.ROOT / "deploy"
    page = tmp_path / "tuning.md"
    shutil.copy(deploy / "tuning.md", page)
    subprocess.run([BENCH, "--from", deploy / "plots" / "result.json", "--page", page], check=True, capture_output=True)
    assert page.read_text() == (deploy / "tuning.md").read_text()
    for plot in re.findall(r"\]\((plots/.*?)\)", page.read_text()):
        assert (deploy / plot).exists(), plot
