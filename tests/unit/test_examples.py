"""The examples run as they stand, and show and make what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "examples"
RUN_BY = {"minimal.py": "unit/test_examples.py", "swe_tasks.py": "envs/test_swe_example.py"}
"""`make test-envs` runs the second one, which fetches packages; here it is asked what it would do."""


@pytest.fixture(scope="module")
def shown() -> str:
    """What `examples/minimal.py` prints."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "minimal.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_there_is_no_example_that_no_test_runs() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(RUN_BY)
    for name, test in RUN_BY.items():
        assert f'/ "{name}")' in (TESTS / test).read_text(), f"{test} runs no {name}"


def test_the_recipe_for_swe_tasks_says_what_it_takes_and_refuses_what_it_has_not() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "swe_tasks.py")]
    told = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert {"--num", "--parallel", "--seed", "--only"} <= set(re.findall(r"--[a-z]+", told))
    refused = subprocess.run([*command, "out", "--only", "nosuch"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    known = re.search(r"invalid choice: 'nosuch' \(choose from (.+)\)", refused.stderr)
    assert known is not None
    assert len(known[1].split(", ")) >= 6


def test_no_package_of_the_recipe_is_both_trained_on_and_held_out() -> None:
    packages = runpy.run_path(str(EXAMPLES / "swe_tasks.py"))["PACKAGES"]
    splits = {package.name: package.split for package in packages}
    assert len(splits) == len(packages)
    assert set(splits.values()) == {"train", "held_out"}
    assert 10 * len(packages) >= 60, "with --num as it is"


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
