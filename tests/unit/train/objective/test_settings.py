"""The loss reads the settings tree's own names, and refuses values that mean nothing."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from openclaw_rl.config.learning import TrainingConfig
from openclaw_rl.train.objective.settings import LossSettings
from tests.unit.train.objective.cases import settings


def test_they_are_picked_from_the_section_training() -> None:
    required = {field.name for field in fields(LossSettings) if field.default is MISSING}
    assert required <= set(TrainingConfig.model_fields)
    values = TrainingConfig().model_dump()
    made = LossSettings.from_training(values)
    assert {name: getattr(made, name) for name in required} == {name: values[name] for name in required}


def test_options_are_off_unless_given() -> None:
    made = settings()
    assert (made.importance_clip, made.sequence_ratio, made.dual_clip, made.entropy_coef) == (None, False, None, 0.0)
    assert (made.critic, made.value_clip) == (False, False)


def test_the_upper_clip_is_the_lower_unless_given() -> None:
    assert (settings().clip_low, settings().clip_high) == (0.2, 0.28)
    assert settings(ppo_clip_ratio_high=None).clip_high == 0.2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ppo_clip_ratio": 1.5}, "ppo_clip_ratio must lie between 0 and 1, got 1.5"),
        ({"ppo_clip_ratio_high": 0.0}, "ppo_clip_ratio_high must be positive"),
        ({"top_k": 0}, "top_k must be positive"),
        ({"kl_coef": -0.1}, "kl_coef must not be negative"),
        ({"dual_clip": 1.0}, "dual_clip must exceed 1"),
        ({"importance_clip": 0.0}, "importance_clip must be positive"),
        ({"value_coef": 0.0}, "value_coef must be positive"),
        ({"value_clip_ratio": 0.0}, "value_clip_ratio must be positive"),
        ({"gae_lambda": 1.5}, "gae_lambda must lie between 0 and 1, got 1.5"),
    ],
)
def test_values_that_mean_nothing_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**change)
