"""docs/algorithms.md is true: its table of presets is what the presets are, and its options exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from openclaw_rl.config import TrainingConfig
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.presets import preset_defaults
from tests.pages import DOCS, named, rows, section

PAGE = DOCS / "algorithms.md"
DEFAULTS: dict[str, Any] = TrainingConfig().model_dump()
REFERENCE = {
    key.removeprefix("training."): value for key, value in preset_defaults({"training.preset": "reference"}).items()
}
WITH_ADAPTER_ONLY = set(REFERENCE) - {
    key.removeprefix("training.")
    for key in preset_defaults({"training.preset": "reference", "training.use_lora": False})
}
ROWS = [[cell.strip("`") for cell in row] for row in rows(section(PAGE, "Presets"))]


def read(cell: str) -> Any:
    """A value as a settings file would have it; YAML alone takes 3e-4 for a text."""
    value = yaml.safe_load(cell)
    if isinstance(value, str) and re.fullmatch(r"[\d.]+e-?\d+", value):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


def test_every_key_that_a_preset_moves_has_one_row_and_there_is_no_other() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(REFERENCE)


@pytest.mark.parametrize(("key", "default", "reference", "why"), ROWS, ids=lambda cell: cell[:20])
def test_a_row_has_the_values_of_both_presets(key: str, default: str, reference: str, why: str) -> None:
    assert read(default) == DEFAULTS[key] != REFERENCE[key] == read(reference)
    assert why, "a difference has a reason"
    assert why.startswith("adapters only: ") == (key in WITH_ADAPTER_ONLY)


def test_what_is_called_equal_in_both_is() -> None:
    equal = re.findall(
        r"`(\w+): ([^`]+)`", section(PAGE, "Presets").partition("Equal in both:")[2].partition("\n\n")[0]
    )
    assert equal
    for key, value in equal:
        assert read(value) == DEFAULTS[key], key
        assert key not in REFERENCE


def test_every_option_is_a_setting() -> None:
    options = {name for row in rows(section(PAGE, "Options")) for name in named(row[0])}
    assert options
    assert not {f"training.{key}" for key in options} - set(LEAVES)
