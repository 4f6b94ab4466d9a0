"""What a step reports: of the samples alone, whatever else is in the batch, and nothing that nobody explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.config import TrainingConfig
from openclaw_rl.tracking.meanings import MEANINGS
from openclaw_rl.train.loop import policy_age
from openclaw_rl.train.planning import Planner
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample, Skip, Version, VersionSpan
from tests.factories.orders import exercise, order, sample
from tests.factories.weights import folder_ref
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def test_anchors_have_a_loss_of_their_own_and_no_say_in_the_others(tiny: Path, tmp_path: Path) -> None:
    trainer = TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32)
    given, target = order(tmp_path, 1)
    without = trainer.step(given, target).metrics
    anchored = trainer.step(replace(given, anchors=((1, 5, 6), (1, 9)), stop_token_ids=(2,)), target).metrics
    assert set(anchored) - set(without) == {"loss/anchor"}
    assert anchored["loss/anchor"] == pytest.approx(0.0, abs=1e-6), "before its first step it is the base model"
    same = {name for name in without if name.startswith(("sample/", "reward/")) or name in ("loss/opd", "loss/binary")}
    assert len(same) > 6
    for name in same:
        assert anchored[name] == pytest.approx(without[name], rel=1e-5), name
    assert (without["step/samples"], anchored["step/samples"]) == (3, 5)


def test_every_metric_is_explained(tiny: Path, tmp_path: Path) -> None:
    trainer = TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32)
    everything: dict[str, Any] = {
        "critic": True,
        "value_clip": True,
        "kl_coef": 0.1,
        "entropy_coef": 0.1,
        "distillation": "topk",  # the one that has a clip
    }
    given, target = order(tmp_path, 1, **everything)
    given = replace(given, anchors=((1, 5, 6),), stop_token_ids=(2,), exercises=(exercise(),))
    reported = set(trainer.step(given, target).metrics)
    of_steps = {name for name in MEANINGS if not name.startswith("eval/")}
    assert reported == of_steps - {"policy/age"}, "that one is the loop's"


def test_the_age_of_a_batch_is_that_of_its_tokens() -> None:
    one = sample(1, version_spans=(VersionSpan("v2.ann", 0, 4), VersionSpan("v3.ann", 4, 6)))
    two = sample(2, version_spans=(VersionSpan("v0", 0, 6),))
    assert policy_age(3, [one]) == pytest.approx(3 - (2 * 4 + 3 * 2) / 6)
    assert policy_age(3, [one, two]) == pytest.approx(3 - (2 * 4 + 3 * 2) / 12)
    assert policy_age(1, [sample(1, version_spans=(VersionSpan("v3", 0, 6),))]) == -2.0


class Waiting:
    """A line at version 19 and what waits there, in memory."""

    def __init__(self, *samples: Sample) -> None:
        self.samples = list(samples)

    async def next_step_number(self, line: str) -> int:
        return 20

    async def versions(self, line: str) -> Sequence[Version]:
        one = Version(line=line, number=19, parent=18, state="live", created_at=0.0, weights=folder_ref("", ""))
        return [*(replace(one, number=n, parent=n - 1, state="retired") for n in range(1, 19)), one]

    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]:
        return self.samples[:limit]

    async def skip_samples(self, ids: Sequence[str], why: Skip) -> None:
        self.samples = [one for one in self.samples if one.id not in ids]

    async def doubted_samples(self, line: str) -> list[str]:
        return []

    async def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]:
        return []


async def test_samples_that_came_too_late_are_told_with_the_reason() -> None:
    fresh = sample(2, version_spans=(VersionSpan("v18", 0, 7),))
    log, told = Waiting(sample(1), fresh), list[object]()
    plan = TrainingConfig(batch_size=4, max_steps=None, max_staleness=16, replay_max_age=0, anchors=0, seed=0)
    planner = Planner(log, plan, choose=lambda samples: samples, on_skip=lambda *skipped: told.append(skipped))
    step = await planner.next_step("local", now=0.0)
    assert step is not None
    assert step.sample_ids == (fresh.id,)
    assert told == [("local", [sample(1).id], Skip.STALE)]
