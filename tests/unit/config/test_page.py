"""docs/configuration.md is what the settings say."""

from __future__ import annotations

from pathlib import Path

from openclaw_rl.config.keys import LEAVES
from openclaw_rl.config.page import page

FILE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text() == page(), "python -m openclaw_rl.config.page > docs/configuration.md"


def test_the_page_has_every_setting_with_its_variable_and_its_limit() -> None:
    text = page()
    assert all(f"\n| `{key}` | " in text for key in LEAVES)
    assert (
        "| `training.teacher_gpus` | `null` | GPUs of the teacher. Limited: this release judges and teaches on one"
        in text
    )
    assert "Also `--port`." in text
    assert "Also `NNODES`." in text
