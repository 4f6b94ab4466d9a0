"""`examples/swe_tasks.py`: a real package from its index becomes tasks that are found where they are said to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.envs.swe.rows import read_rows
from tests.fakes.boxes import sandbox_or_skip
from tests.pages import ROOT

pytestmark = [pytest.mark.envs, pytest.mark.timeout(900)]


def test_a_package_becomes_tasks(tmp_path: Path) -> None:
    sandbox_or_skip(tmp_path / "boxes")
    out = tmp_path / "tasks"
    command = [sys.executable, str(ROOT / "examples" / "swe_tasks.py"), str(out), "--num", "2", "--only", "parse"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *_, told, last = done.stdout.splitlines()
    if "left out" in told and "pip" in told:
        pytest.skip(f"nothing can be fetched here: {told}")
    assert re.search(r"parse [0-9.]+ \(train\): 2 tasks of [0-9]+ faults in [0-9]+ s; [0-9]+ tests;", told)
    assert last == f"2 tasks in {out}"
    (file,) = out.glob("*.jsonl")
    rows = read_rows(file)
    assert [row.split for row in rows] == ["train", "train"]
    assert all(row.fail_to_pass and row.pass_to_pass for row in rows)
