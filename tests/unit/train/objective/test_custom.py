"""A loss of your own by import path: found, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.errors import ConfigError
from openclaw_rl.train.objective.custom import load_loss
from openclaw_rl.train.objective.hybrid import hybrid_loss


def test_a_module_or_a_file(tmp_path: Path) -> None:
    assert load_loss("openclaw_rl.train.objective.hybrid:hybrid_loss") is hybrid_loss
    file = tmp_path / "mine.py"
    file.write_text("def loss(rows, sample, target, settings):\n    return 'mine'\n")
    assert load_loss(f"{file}:loss").__name__ == "loss"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("just_a_name", "is not of the form package.module:name or file.py:name"),
        ("no.such.module:loss", "cannot be imported: ModuleNotFoundError"),
        ("/no/such/file.py:loss", "cannot be imported"),
        ("math:loss", "has no .loss."),
        ("math:pi", "is a float, not a function"),
        ("os.path:join", None),
        ("os.path:basename", r"must take \(rows, sample, target, settings\): too many positional"),
    ],
)
def test_what_is_wrong_is_said(path: str, message: str | None) -> None:
    if message is None:
        assert callable(load_loss(path))
        return
    with pytest.raises(ConfigError, match=message):
        load_loss(path)
