"""docs/algorithms.md is true: the keys it names exist, and its table of presets is what the presets are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from openclaw_rl.config import TrainingConfig
from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.presets import preset_defaults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
DEFAULTS: dict[str, Any] = TrainingConfig().model_dump()
REFERENCE = {
    key.removeprefix("training."): value for key, value in preset_defaults({"training.preset": "reference"}).items()
}
WITH_ADAPTER_ONLY = set(REFERENCE) - {
    key.removeprefix("training.")
    for key in preset_defaults({"training.preset": "reference", "training.use_lora": False})
}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def read(cell: str) -> Any:
    """A value as a settings file would have it; YAML alone takes 3e-4 for a text."""
    value = yaml.safe_load(cell)
    if isinstance(value, str) and re.fullmatch(r"[\d.]+e-?\d+", value):
        return float(value)
    return tuple(value) if isinstance(value, list) else value


ROWS = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \| (.+) \|$", section("Presets"), re.MULTILINE)


def test_every_key_that_a_preset_moves_has_one_row_and_there_is_no_other() -> None:
    assert sorted(key for key, *_ in ROWS) == sorted(REFERENCE)
    assert section("Presets").count("\n| ") == len(ROWS) + 1, "a row is `key`, `default`, `reference` and the reason"


@pytest.mark.parametrize(("key", "default", "reference", "why"), ROWS, ids=lambda cell: cell[:20])
def test_a_row_has_the_values_of_both_presets(key: str, default: str, reference: str, why: str) -> None:
    assert read(default) == DEFAULTS[key] != REFERENCE[key] == read(reference)
    assert why.startswith("adapters only: ") == (key in WITH_ADAPTER_ONLY)
    assert len(why) > 20


def test_what_is_called_equal_in_both_is() -> None:
    equal = re.findall(r"`(\w+): ([^`]+)`", section("Presets").partition("Equal in both:")[2].partition("\n\n")[0])
    assert len(equal) > 10
    for key, value in equal:
        assert read(value) == DEFAULTS[key], key
        assert key not in REFERENCE


def test_keys_that_are_named_exist() -> None:
    named = set(re.findall(r"training\.\w+", PAGE))
    options = re.findall(r"^\| (`\w+`.*?) \|", section("Options"), re.MULTILINE)
    named |= {f"training.{key}" for cell in options for key in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 15
    assert not named - set(LEAVES)


def test_files_that_are_named_exist() -> None:
    objective = ROOT / "openclaw_rl" / "train" / "objective"
    named = set(re.findall(r"[\w/]+\.py\b", PAGE)) - {"file.py"}
    assert {"values.py", "openclaw_rl/train/critic.py"} <= named
    assert not [name for name in named if not ((ROOT if "/" in name else objective) / name).exists()]
