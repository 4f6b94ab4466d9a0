"""What a trainer makes of the section `training`."""

from __future__ import annotations

from typing import Any

import pytest

from openclaw_rl.train.worker.settings import TrainSettings
from tests.factories.orders import settings


def read(**changes: Any) -> TrainSettings:
    return TrainSettings.from_training(settings(**changes))


@pytest.mark.parametrize(
    ("teacher", "path", "chosen"),
    [
        (None, None, "base"),
        (None, "/teacher", "path"),
        ("base", "/teacher", "base"),
        ("current", None, "current"),
        ("ema", None, "ema"),
        ("path", "/teacher", "path"),
    ],
)
def test_which_teacher(teacher: str | None, path: str | None, chosen: str) -> None:
    assert read(teacher=teacher, teacher_path=path).teacher == chosen


def test_a_teacher_elsewhere_needs_its_place_and_has_one() -> None:
    assert read(teacher=None, teacher_url="http://teacher").teacher == "path"
    with pytest.raises(ValueError, match="path needs teacher_path or teacher_url"):
        read(teacher="path")
    with pytest.raises(ValueError, match="two teachers"):
        read(teacher_path="/teacher", teacher_url="http://teacher")


def test_the_temperature_of_log_probs_is_the_answers_unless_given() -> None:
    assert read().temperature_of(0.8) == 0.8
    assert read(logprob_temperature=0.6).temperature_of(0.8) == 0.6


def test_the_learning_rate_rises_and_stays() -> None:
    made = read(learning_rate=0.1, warmup_steps=4)
    assert [made.learning_rate_at(step) for step in (1, 2, 4, 9)] == pytest.approx([0.025, 0.05, 0.1, 0.1])
    assert read(learning_rate=0.1).learning_rate_at(1) == 0.1
