"""docs/release.md explains every state of a version and every measure of the gate."""

from __future__ import annotations

from typing import get_args

from openclaw_rl.types import VersionState
from openclaw_rl.views.measures import MEASURE_WORDS
from tests.pages import DOCS, named, rows, section, text

PAGE = DOCS / "release.md"


def test_every_state_of_a_version_has_one_row() -> None:
    before_the_gate = text(PAGE).partition("\n## ")[0]
    assert sorted(row[0].strip("`") for row in rows(before_the_gate)) == sorted(get_args(VersionState))


def test_every_measure_of_the_gate_has_a_row_and_there_is_no_other() -> None:
    measures = [name for row in rows(section(PAGE, "Gate")) for name in named(row[0])]
    assert sorted(measures) == sorted(set(MEASURE_WORDS) - {"tokens"})
