"""docs/judging.md is complete: every skip, every judge, every credit rule and every way to measure a reward."""

from __future__ import annotations

from typing import get_args

import pytest

from openclaw_rl.config import TrainingConfig
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.types import Skip, VerdictState
from tests.pages import DOCS, rows, section

PAGE = DOCS / "judging.md"


def first_cells(title: str) -> list[str]:
    return [row[0].strip("`") for row in rows(section(PAGE, title))]


def test_every_skip_has_one_row_with_its_meaning_and_there_is_no_other() -> None:
    assert sorted(first_cells("Skips")) == sorted(skip.value for skip in Skip)
    assert all(len(row) == 2 and row[1] for row in rows(section(PAGE, "Skips")))


def test_every_judge_has_one_row_and_there_is_no_other() -> None:
    assert sorted(first_cells("Judges")) == sorted(get_args(JudgeName))


def test_every_outcome_is_explained() -> None:
    assert set(get_args(VerdictState)) <= set(first_cells("Votes and verdicts"))


@pytest.mark.parametrize(("setting", "title"), [("method", "Credit"), ("advantage", "Advantages")])
def test_every_choice_of_a_setting_is_explained(setting: str, title: str) -> None:
    for choice in get_args(TrainingConfig.model_fields[setting].annotation):
        assert f"`{choice}`" in section(PAGE, title)
