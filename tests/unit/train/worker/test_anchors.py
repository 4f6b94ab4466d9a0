"""Fixed prompts hold a student to the base model: free while it stands there, a pull back once it has moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.train.worker.own_samples import ANCHOR_TOKENS, anchor_sample, strength
from openclaw_rl.train.worker.speaking import answers
from openclaw_rl.train.worker.student import NetworkModel
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample, StepReport
from tests.factories.orders import order, sample
from tests.factories.torch_trainers import logprobs, new_trainer
from tests.tiny import build_tiny_model

PROMPT = (1, 40, 41, 42)
STOP = (2,)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def answer(trainer: TorchTrainer, stop: tuple[int, ...] = STOP) -> tuple[int, ...]:
    return answers(trainer._base.reader, [PROMPT], stop_token_ids=stop, max_tokens=ANCHOR_TOKENS)[0]


def anchor(trainer: TorchTrainer) -> Sample:
    return anchor_sample(PROMPT, answer(trainer), name="anchor 0", line="local", weight=1.0)


def test_the_base_models_likeliest_answer(tiny: Path) -> None:
    trainer = new_trainer(tiny)
    assert isinstance(trainer._base, NetworkModel)
    said = answer(trainer)
    assert len(said) == ANCHOR_TOKENS or said[-1] in STOP
    likeliest = logprobs(trainer, None, PROMPT, anchor(trainer)).argmax(-1)
    assert said == tuple(likeliest.tolist())
    assert answer(trainer, (said[1],))[-1] == said[1], "a stop token ends it"


def step(
    trainer: TorchTrainer, folder: Path, number: int, *samples: Sample, num_anchors: int, **changes: Any
) -> StepReport:
    parent = str(folder / f"v{number - 1}") if number > 1 else None
    given, target = order(folder, number, *samples, parent=parent, **changes)
    return trainer.step(replace(given, samples=samples, anchors=(PROMPT,) * num_anchors, stop_token_ids=STOP), target)


def distance(trainer: TorchTrainer, folder: Path, number: int) -> float:
    """How far the student is from the base model on the anchor's answer."""
    given = anchor(trainer)
    base = logprobs(trainer, None, PROMPT, given)
    student = logprobs(trainer, str(folder / f"v{number}"), PROMPT, given)
    return float((student.exp() * (student - base)).sum(-1).mean())


@pytest.mark.parametrize("teacher", ["base", "current", "ema"])
def test_an_anchor_pulls_back_whoever_teaches_else(tiny: Path, tmp_path: Path, teacher: str) -> None:
    """Two steps away from the base model; then four with the anchor and a sample of next to none."""
    trainer = new_trainer(tiny)
    away = anchor_sample(PROMPT, answer(trainer), name="x", line="local", weight=1.0)
    size = len(away.response_ids)
    away = replace(away, kind="turn", w_rl=1.0, w_opd=0.0, advantages=(-1.0,) * size, reward=-1.0, candidates=())
    idle = replace(away, id="idle", w_rl=1e-4, advantages=(1.0,) * size)
    changes: dict[str, Any] = {"teacher": teacher, "adam_betas": [0.0, 0.95]}  # no momentum that carries it on
    changes["anchor_weight"] = 1e4  # times the strength of the idle one
    for number in (1, 2):
        step(trainer, tmp_path, number, away, num_anchors=0, learning_rate=0.002, **changes)
    moved = distance(trainer, tmp_path, 2)
    assert moved > 0.1
    for number in (3, 4, 5, 6):
        step(trainer, tmp_path, number, idle, num_anchors=1, learning_rate=0.0005, **changes)
    assert distance(trainer, tmp_path, 6) < 0.8 * moved


def test_an_anchor_moves_nothing_while_the_student_is_the_base_model(tiny: Path, tmp_path: Path) -> None:
    trainer = new_trainer(tiny)
    idle = sample(0, num_hints=0, w_rl=0.0, advantage=0.0)
    report = step(trainer, tmp_path, 1, idle, num_anchors=1)
    assert report.state == "done"
    assert report.metrics["gradient/norm"] == pytest.approx(0.0, abs=1e-6)


def test_an_anchor_is_as_strong_as_its_share_of_the_lessons(tiny: Path, tmp_path: Path) -> None:
    hinted = sample(0, w_rl=0.2, w_opd=1.0, advantage=-1.0)
    thanks = sample(1, num_hints=0, w_rl=0.2, advantage=0.1)
    assert strength([hinted]) == pytest.approx(1.2)
    assert strength([thanks]) == pytest.approx(0.02)
    assert strength([hinted, thanks]) == pytest.approx(0.61)
    assert strength([replace(hinted, loss_mask=(False,) * len(hinted.loss_mask))]) == 0.0
    trainer = new_trainer(tiny)
    idle = replace(thanks, advantages=(0.0,) * len(thanks.advantages))
    step(trainer, tmp_path, 1, hinted, num_anchors=0, learning_rate=0.01)
    report = step(trainer, tmp_path, 2, idle, num_anchors=1, anchor_weight=100.0)
    assert report.metrics["gradient/norm"] == 0.0, "beside lessons that say nothing an anchor says nothing"
    report = step(trainer, tmp_path, 2, idle, hinted, num_anchors=1, anchor_weight=100.0)
    without = step(trainer, tmp_path, 2, idle, hinted, num_anchors=1, anchor_weight=0.0)
    assert report.metrics["gradient/norm"] > 2 * without.metrics["gradient/norm"]


def test_rewards_are_those_of_people(tiny: Path, tmp_path: Path) -> None:
    given = [sample(index, advantage=advantage) for index, advantage in ((0, 1.0), (1, -1.0), (2, 1.0))]
    report = step(new_trainer(tiny), tmp_path, 1, *given, num_anchors=2)
    assert report.metrics["reward/mean"] == pytest.approx(1 / 3)
    assert report.metrics["reward/std"] == pytest.approx((8 / 9) ** 0.5)


def test_a_line_with_anchors_and_repeated_samples_resumes_bit_for_bit(tiny: Path, tmp_path: Path) -> None:
    """The base model's answers are remembered between steps; a new process finds the same ones."""
    first = [sample(0), sample(1)]
    trainer = new_trainer(tiny)
    step(trainer, tmp_path, 1, *first, num_anchors=1, lora_dropout=0.1)
    going_on = step(trainer, tmp_path, 2, sample(2), *first, num_anchors=1, lora_dropout=0.1)
    torch.manual_seed(999)  # nobody's state but the order's own seed counts
    again = step(new_trainer(tiny), tmp_path, 2, sample(2), *first, num_anchors=1, lora_dropout=0.1)
    assert again.sha256 == going_on.sha256
