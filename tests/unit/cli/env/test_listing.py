"""The table of `env list`: families of levels on one line each, what is meant without a name, remedies."""

from __future__ import annotations

from pathlib import Path

import pytest

from openclaw_rl.cli.env.listing import _by_families, _state, list_environments
from openclaw_rl.config import Config
from openclaw_rl.types import TaskSource


def source(name: str, about: str = "", num_train: int = 5) -> TaskSource:
    return TaskSource(name=name, about=about, num_train=num_train, num_held_out=1)


def test_levels_that_differ_in_nothing_else_are_one_line() -> None:
    sources = [
        source("", "all"),
        source("sums-1", "Sums. Level 1 of 2."),
        source("sums-2", "Sums. Level 2 of 2."),
        source("dates-1", "Dates. Level 1 of 1."),
        source("half-1", "Half. Level 1 of 2."),
        source("half-2", "Half. Level 2 of 2.", num_train=7),
        source("mine-2026", "mine"),
    ]
    assert [(one.name, one.about) for one in _by_families(sources)] == [
        ("", "all"),
        ("sums-1 … 2", "Sums."),
        ("dates-1", "Dates. Level 1 of 1."),
        ("half-1", "Half. Level 1 of 2."),
        ("half-2", "Half. Level 2 of 2."),
        ("mine-2026", "mine"),
    ]
    assert list(_by_families(())) == []


def test_a_harness_is_ready_or_its_remedy_is_said() -> None:
    assert _state("") == "ready"
    assert _state("codex is not installed; run `x`") == "not ready: run `x`"
    assert _state("codex is not installed") == "not ready: codex is not installed"


def test_every_line_fits_and_the_default_is_marked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = Config.model_validate({"model": {"cache_dir": tmp_path}})
    list_environments(config, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["environment", "tasks", "train", "held", "out", "about"]
    assert any(line.startswith("terminal     commands *") for line in lines)
    assert "* without --tasks" in lines
    assert any(line.split() == ["builtin", "ready"] for line in lines)
    assert len(lines) < 40
    assert max(map(len, lines)) <= 200
