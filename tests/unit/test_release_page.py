"""docs/release.md names every setting and every measure there is, with its default."""

from __future__ import annotations

import json
import re
from pathlib import Path

from openclaw_rl.config.learning import ReleaseConfig
from openclaw_rl.terminal.gate_text import _WORDS

PAGE = (Path(__file__).parents[2] / "docs" / "release.md").read_text(encoding="utf-8")


def test_the_table_of_settings_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `release\.(\w+)` \| `(.+?)` \| (.+) \|$", PAGE, re.MULTILINE)
    fields = ReleaseConfig.model_fields
    assert rows == [(name, json.dumps(field.default), field.description) for name, field in fields.items()]


def test_every_measure_is_explained() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert set(_WORDS) - {"tokens"} <= named
