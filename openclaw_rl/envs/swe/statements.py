"""Tests that fail -> the problem in words: what they ask for and what they say. Where the fault is, is not told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from openclaw_rl.envs.swe.suite import Verdict

_NUM_TOLD = 3
_NUM_LINES = 8


def problem_of(repo: str, failing: Mapping[str, Verdict]) -> str:
    """A few of the failures in detail, each of another test."""
    functions: dict[str, str] = {}
    for test in failing:
        functions.setdefault(test.partition("[")[0], test)
    told = [f"{test}\n{_told(failing[test])}" for test in list(functions.values())[:_NUM_TOLD]]
    template = (files("openclaw_rl.envs.swe") / "statement.txt").read_text("utf-8")
    text = template.replace("{repo}", repo).replace("{num}", str(len(failing)))
    return text.replace("{failures}", "\n\n".join(told)).strip()


def _told(verdict: Verdict) -> str:
    """The statement of the test that failed, and what came of it. The code under test, further down, is not shown."""
    asked = re.search(r"^>\s+(.+)$", verdict.trace, re.MULTILINE)
    errors = re.findall(r"^E {0,3}(.*)$", verdict.trace, re.MULTILINE) or verdict.said.splitlines()
    lines = [*([asked[1]] if asked else []), *errors[:_NUM_LINES]]
    return "\n".join(f"    {line}".rstrip() for line in lines)
