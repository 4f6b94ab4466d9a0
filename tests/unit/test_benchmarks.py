"""What benchmarks write out by hand stays what the product does."""

from __future__ import annotations

from benchmarks.trainer import SETTINGS
from openclaw_rl.config import TrainingConfig


def test_the_trainers_benchmark_has_the_defaults() -> None:
    defaults = TrainingConfig().model_dump(mode="json")
    # null: base without a path; epochs take the same time; the opponent distils the top k
    defaults |= {"teacher": "base", "num_epochs": 1, "distillation": "topk"}
    assert {name: defaults[name] for name in SETTINGS} == SETTINGS
