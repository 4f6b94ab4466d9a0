"""docs/judging.md is complete: every skip, every judge, every credit rule and every way to measure a reward."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from openclaw_rl.config import TrainingConfig
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.types import Outcome, Skip

PAGE = (Path(__file__).parents[2] / "docs" / "judging.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", section(title), re.MULTILINE)


def test_every_skip_has_one_row_with_its_meaning_and_there_is_no_other() -> None:
    assert first_cells("Skips") == [skip.value for skip in Skip], "one row each, in the order of `types.Skip`"
    for meaning in re.findall(r"^\| `\w+` \| (.*) \|$", section("Skips"), re.MULTILINE):
        assert len(meaning) > 20


def test_every_judge_has_a_row() -> None:
    assert first_cells("Judges") == list(get_args(JudgeName))


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_every_outcome_is_explained(outcome: str) -> None:
    assert outcome in first_cells("Votes and verdicts")


@pytest.mark.parametrize(("setting", "title"), [("method", "Credit"), ("advantage", "Advantages")])
def test_every_choice_of_a_setting_is_explained(setting: str, title: str) -> None:
    for choice in get_args(TrainingConfig.model_fields[setting].annotation):
        assert f"`{choice}`" in section(title)
