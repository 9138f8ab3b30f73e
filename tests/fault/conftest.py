# SPDX-License-Identifier: Apache-2.0
"""Fault tests use the end-to-end tests' servers; chxad here is the build with fault points."""
import importlib.util
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "e2e")]

_spec = importlib.util.spec_from_file_location("e2e_conftest", TESTS / "e2e" / "conftest.py")
_e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_e2e)

pytest_configure = _e2e.pytest_configure
folder = _e2e.folder
lab = _e2e.lab
engine_name = _e2e.engine_name
store_name = _e2e.store_name
engine = _e2e.engine
time_limit = _e2e.time_limit
