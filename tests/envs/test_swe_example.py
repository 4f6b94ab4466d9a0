"""`examples/swe_tasks.py`: a real package from its index becomes tasks that are found where they are said to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.boxes import sandbox_or_skip
from tests.pages import ROOT

pytestmark = [pytest.mark.envs, pytest.mark.timeout(900)]


def test_a_package_becomes_tasks(tmp_path: Path) -> None:
    sandbox_or_skip(tmp_path / "boxes")
    out = tmp_path / "tasks"
    command = [sys.executable, str(ROOT / "examples" / "swe_tasks.py"), str(out), "--num", "2", "--only", "parse"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *_, told, last = done.stdout.splitlines()
    if "left out" in told and "download" in told:
        pytest.skip(f"the package cannot be fetched here: {told}")
    assert re.search(r"parse [0-9.]+ \(train\): 2 tasks of [0-9]+ faults in [0-9]+ s; [0-9]+ tests;", told)
    assert last == f"2 tasks in {out}"
