"""Places where a process may be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openclaw_rl.faults import CRASH_POINTS, crash_point

ROOT = Path(__file__).parents[2]


def _run(setting: str) -> subprocess.CompletedProcess[str]:
    script = (
        "from openclaw_rl.faults import crash_point\n"
        "for n in range(4):\n    crash_point('store.mid_batch')\n    print(n, flush=True)\n"
    )
    environment = {**os.environ, "OPENCLAW_RL_CRASH_AT": setting}
    return subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("setting", "lived", "code"),
    [
        ("", "0\n1\n2\n3\n", 0),
        ("store.before_commit", "0\n1\n2\n3\n", 0),
        ("store.mid_batch", "", -signal.SIGKILL),
        ("store.mid_batch:3", "0\n1\n", -signal.SIGKILL),
    ],
)
def test_it_kills_at_the_named_pass_only(setting: str, lived: str, code: int) -> None:
    done = _run(setting)
    assert (done.stdout, done.returncode) == (lived, code)


@pytest.mark.parametrize("setting", ["store.nowhere", "store.mid_batch:soon"])
def test_a_misspelt_place_fails_at_the_start(setting: str) -> None:
    done = _run(setting)
    assert "OPENCLAW_RL_CRASH_AT must be NAME or NAME:COUNT" in done.stderr


def test_every_place_is_registered() -> None:
    with pytest.raises(AssertionError, match="not registered"):
        crash_point("store.nowhere")


def test_every_registered_place_exists() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "openclaw_rl").rglob("*.py"))
    calls = " ".join(re.findall(r"crash_point\((\".*?)\)", sources))
    assert set(re.findall(r'"(.*?)"', calls)) == set(CRASH_POINTS)
