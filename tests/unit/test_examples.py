"""The example runs as it stands and shows what it says it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def shown() -> str:
    """What `examples/minimal.py` prints."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "minimal.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_there_is_no_example_that_no_test_runs() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix} == {"minimal.py"}


def test_the_example_is_one_page() -> None:
    assert len((EXAMPLES / "minimal.py").read_text().splitlines()) <= 200


def test_two_requests_become_turns_of_one_session_and_the_second_extends_the_first(shown: str) -> None:
    turns = re.findall(r"^turn (\S+)\.(\d), \d+ prompt tokens, answered by (\S+)$", shown, re.MULTILINE)
    (first, second, later) = turns
    assert (first[0], first[1:], second[1:]) == (second[0], ("0", "v0"), ("1", "v0"))
    assert re.search(r"starts with all \d+ ids of turn \S+: True", shown)
    assert later[2] == "v1", "the new version answers"


def test_the_reaction_becomes_a_judgement_a_sample_a_step_and_a_version(shown: str) -> None:
    assert "'No, shorter please.'" in shown
    assert re.search(r"^rules on turn \S+\.0: score -1, hints \['.+'\]$", shown, re.MULTILINE)
    (sample,) = re.findall(r"^sample (\S+) of local: reward -1, 24 tokens$", shown, re.MULTILINE)
    assert "the teacher reads" in shown
    assert re.search(rf"^step 1 on \['{re.escape(sample)}'\]: loss/total ", shown, re.MULTILINE)
    assert re.search(r"^version v1, from v0: live$", shown, re.MULTILINE)
