"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from openclaw_rl.tracking.tensorboard import TensorBoardObserver
from openclaw_rl.types import Skip
from tests.factories.events import METRICS, credited, step


def curves(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    read = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, pytest.approx(event.value, rel=1e-6)) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_each_line_has_its_curves_under_the_very_names(tmp_path: Path) -> None:
    observer = TensorBoardObserver(tmp_path)
    observer.credited(*credited())
    observer.credited(*credited(Skip.NEUTRAL))
    observer.credited(*credited(Skip.NEUTRAL))
    observer.stepped(step(1))
    observer.stepped(step(2, state="discarded", metrics={}))
    assert curves(tmp_path / "local")["loss/total"] == [(1, 0.41)], "there at once, for those who look while it learns"
    observer.skipped("ann", ["s-9.0"], Skip.STALE)
    observer.stepped(step(3, metrics={"loss/total": 0.2}))
    observer.stepped(step(1, line="ann", metrics={"loss/opd": 0.7}))
    observer.stepped(step(1, line="..", metrics={"loss/opd": 0.8}))
    observer.close()
    local = curves(tmp_path / "local")
    assert local == {name: [(1, value)] for name, value in METRICS.items()} | {"loss/total": [(1, 0.41), (3, 0.2)]}
    assert curves(tmp_path / "ann") == {
        "loss/opd": [(1, 0.7)],
        "credit/sample": [(1, 1.0)],
        "credit/neutral": [(1, 2.0)],
        "skipped/stale": [(1, 1.0)],
    }
    assert curves(tmp_path / "_..")["loss/opd"] == [(1, 0.8)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_..", "ann", "local"]


def test_nothing_is_made_before_there_is_something_to_see(tmp_path: Path) -> None:
    TensorBoardObserver(tmp_path / "board").close()
    assert not (tmp_path / "board").exists()


def test_a_disk_that_takes_nothing_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("not a folder")
    with pytest.raises(OSError):
        TensorBoardObserver(tmp_path).stepped(step(1))
