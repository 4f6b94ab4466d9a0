"""The examples run as they stand and show what they say they show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def shown(model: Path) -> str:
    """What `examples/minimal.py` prints; the model's tokenizer is there before it starts."""
    assert model.is_dir()
    command = [sys.executable, "-W", "error", str(EXAMPLES / "minimal.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_there_is_no_example_that_no_test_runs() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix} == {"minimal.py"}


def test_both_requests_become_turns_of_one_session(shown: str) -> None:
    assert re.findall(r"^turn (\S+), sampled by version v0", shown, re.MULTILINE) == ["s-1.0", "s-1.1"]
    assert re.findall(r"^turn (\S+), parent (\S+), main, finished by stop", shown, re.MULTILINE) == [
        ("s-1.0", "None"),
        ("s-1.1", "0"),
    ]


def test_what_is_on_disk_is_what_was_delivered(shown: str) -> None:
    decoded = re.findall(r"^  decoded     '(.*)'$", shown, re.MULTILINE)
    delivered = re.findall(r"^  delivered   '(.*)'$", shown, re.MULTILINE)
    assert decoded == delivered
    assert [text.split()[0] for text in delivered] == ["Gravity", "Things"]


def test_the_second_prompt_extends_the_first_turn(shown: str) -> None:
    assert "ids of the first turn, id for id: True." in shown
    assert r"'\nuser\nShorter, please!\nassistant\n'" in shown


def test_the_second_request_is_the_next_state_of_the_first_turn(shown: str) -> None:
    assert "  user: Shorter, please!\nThe next state of s-1.1: None" in shown
