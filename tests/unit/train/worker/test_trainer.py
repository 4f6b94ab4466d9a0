"""The tiny model really learns: steps repeat bit for bit, resume from disk, and move what they should."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from openclaw_rl.errors import OpenClawError, TrainError
from openclaw_rl.model.folder import folder_sha256
from openclaw_rl.train.worker.checkpoint import WEIGHTS
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample
from tests.factories.orders import order, sample
from tests.factories.torch_trainers import logprobs, new_trainer
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def trainer(tiny: Path) -> TorchTrainer:
    return new_trainer(tiny)


def logprob(trainer: TorchTrainer, checkpoint: str | None, given: Sample) -> float:
    """Mean log-prob of the sample's response."""
    ids = torch.tensor(given.response_ids).unsqueeze(-1)
    return float(logprobs(trainer, checkpoint, given.prompt_ids, given).gather(-1, ids).mean())


def test_a_resumed_line_is_the_same_bit_for_bit(trainer: TorchTrainer, tiny: Path, tmp_path: Path) -> None:
    first = trainer.step(*order(tmp_path, 1))
    second = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    assert (first.state, second.state) == ("done", "done")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = new_trainer(tiny).step(*order(elsewhere, 2, parent=str(tmp_path / "v1")))
    assert again.sha256 == second.sha256 != first.sha256
    repeated = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))  # its folder is there: nobody knew of it
    assert repeated.sha256 == second.sha256


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("use_lora", [True, False])
def test_what_was_praised_becomes_likelier(tiny: Path, tmp_path: Path, advantage: float, use_lora: bool) -> None:
    trainer = new_trainer(tiny)
    given = sample(1, num_hints=0, advantage=advantage, logprobs=None)
    report = trainer.step(*order(tmp_path, 1, given, use_lora=use_lora, learning_rate=0.001))
    assert report.state == "done"
    before = logprob(trainer, None, given)
    if use_lora:
        after = logprob(trainer, str(tmp_path / "v1"), given)
    else:
        after = logprob(new_trainer(tmp_path / "v1" / WEIGHTS), None, given)
    assert (after - before) * advantage > 0.0005


def test_the_hinted_teacher_is_followed(trainer: TorchTrainer, tmp_path: Path) -> None:
    """With hints alone the student moves towards what the base model says behind the hinted prompt."""
    given = sample(3, num_hints=1, w_rl=0.0, reward=0.0)
    teacher = logprobs(trainer, None, given.teacher_prompt(given.candidates[0]), given)

    def divergence(checkpoint: str | None) -> float:
        student = logprobs(trainer, checkpoint, given.prompt_ids, given)
        return float((student.exp() * (student - teacher)).sum(-1).mean())

    parent = None
    for number in range(1, 13):
        trainer.step(*order(tmp_path, number, given, parent=parent, learning_rate=0.01))
        parent = str(tmp_path / f"v{number}")
    assert divergence(parent) < 0.8 * divergence(None)


@pytest.mark.parametrize(
    "changes",
    [
        {"teacher": "current"},
        {"teacher": "ema", "ema_decay": 0.5},
        {"gradient_accumulation_steps": 3},
        {"micro_batch_tokens": 1},
        {"use_gradient_checkpointing": True},
        {"num_epochs": 2},
        {"lora_dropout": 0.2},
        {"lora_target_modules": ["q_proj", "v_proj"]},
        {"kl_coef": 0.1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_option_takes_a_step_that_repeats(tiny: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    sums = set()
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        trainer = new_trainer(tiny)
        trainer.step(*order(folder, 1, **changes))
        sums.add(trainer.step(*order(folder, 2, parent=str(folder / "v1"), **changes)).sha256)
    assert len(sums) == 1


def test_parts_and_recomputing_change_nothing_but_memory(tiny: Path, tmp_path: Path) -> None:
    plain, parts, recomputed = (tmp_path / name for name in ("plain", "parts", "recomputed"))
    for folder, changes in (
        (plain, {}),
        (parts, {"micro_batch_tokens": 1}),
        (recomputed, {"use_gradient_checkpointing": True}),
    ):
        folder.mkdir()
        new_trainer(tiny).step(*order(folder, 1, **changes))
    trainer = new_trainer(tiny)
    expected = logprob(trainer, str(plain / "v1"), sample(10))
    for folder in (parts, recomputed):
        assert logprob(trainer, str(folder / "v1"), sample(10)) == pytest.approx(expected, abs=1e-5)


def test_a_step_without_a_number_is_discarded_and_leaves_nothing(trainer: TorchTrainer, tmp_path: Path) -> None:
    trainer.step(*order(tmp_path, 1))
    bad = sample(5, num_hints=0, advantages=(float("inf"),) + (1.0,) * 5)
    report = trainer.step(*order(tmp_path, 2, bad, parent=str(tmp_path / "v1")))
    assert report.state == "discarded"
    assert "loss" in report.reason
    assert not (tmp_path / "v2").exists()
    good = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert new_trainer(trainer._model).step(*order(fresh, 2, parent=str(tmp_path / "v1"))).sha256 == good.sha256


def test_missing_memory_makes_parts_smaller_and_then_says_what_helps(
    trainer: TorchTrainer, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short of memory at once, then with nothing kept, then in the middle, with a first part's gradient there."""
    plain, backward, num_calls = tmp_path / "plain", torch.Tensor.backward, 0
    plain.mkdir()
    short_at = {1, 2, 4}

    def scarce(self: Tensor, *rest: Any, **more: Any) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls in short_at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        backward(self, *rest, **more)  # type: ignore[no-untyped-call]

    given, target = order(tmp_path, 1, *(sample(index) for index in range(4)))
    monkeypatch.setattr(torch.Tensor, "backward", scarce)
    assert trainer.step(given, target).state == "done"
    assert num_calls > 4, "two parts, the second of which did not fit, and then more of them"
    parts = trainer._rooms._max_tokens
    assert parts is not None
    short_at = set()
    smaller = order(plain, 1, *given.samples, micro_batch_tokens=parts, use_gradient_checkpointing=True)
    expected = new_trainer(tiny).step(*smaller)
    assert folder_sha256(tmp_path / "v1" / WEIGHTS) == expected.sha256, "nothing of the failed attempts is left"
    short_at = set(range(10_000))
    report = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    assert report.state == "discarded"
    assert "max_candidates" in report.reason
    assert "use_gradient_checkpointing" not in report.reason, "nothing is kept already"


def test_weights_that_came_from_elsewhere_are_built_upon_with_a_fresh_optimiser(
    trainer: TorchTrainer, tiny: Path, tmp_path: Path
) -> None:
    trainer.step(*order(tmp_path, 1))
    second = trainer.step(*order(tmp_path, 2, parent=str(tmp_path / "v1")))
    shutil.rmtree(tmp_path / "v1" / "trainer")
    fresh = new_trainer(tiny).step(*order(tmp_path, 3, parent=str(tmp_path / "v1")))
    assert fresh.state == "done"
    assert fresh.sha256 != second.sha256, "what the optimiser knew is not there"
    shutil.rmtree(tmp_path / "v1" / "weights")
    with pytest.raises(OpenClawError):
        new_trainer(tiny).step(*order(tmp_path, 4, parent=str(tmp_path / "v1")))


def test_a_checkpoint_of_another_step_is_refused(trainer: TorchTrainer, tiny: Path, tmp_path: Path) -> None:
    trainer.step(*order(tmp_path, 1))
    given, target = order(tmp_path, 5, parent=str(tmp_path / "v1"))
    with pytest.raises(TrainError, match="step 4"):
        new_trainer(tiny).step(replace(given, parent_number=4), target)


@pytest.mark.parametrize(
    "name",
    [
        "weights/adapter_model.safetensors",
        "weights/adapter_config.json",
        "trainer/optimiser.safetensors",
        "trainer/average.safetensors",
        "trainer/critic.safetensors",
        "trainer/state.json",
    ],
)
def test_a_checkpoint_that_is_damaged_is_an_error_and_no_death(
    trainer: TorchTrainer, tiny: Path, tmp_path: Path, name: str
) -> None:
    """A trainer that died of it would have the step discarded, with samples that are not at fault."""
    changes: dict[str, Any] = {"teacher": "ema", "critic": True}
    trainer.step(*order(tmp_path, 1, **changes))
    damaged = tmp_path / "v1" / name
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])
    with pytest.raises(OpenClawError):
        new_trainer(tiny).step(*order(tmp_path, 2, parent=str(tmp_path / "v1"), **changes))
    assert [folder.name for folder in tmp_path.iterdir()] == ["v1"]


def test_the_adapter_says_what_dropout_it_was_trained_with(tiny: Path, tmp_path: Path) -> None:
    new_trainer(tiny).step(*order(tmp_path, 1, lora_dropout=0.1))
    written = json.loads((tmp_path / "v1" / WEIGHTS / "adapter_config.json").read_text())
    assert written["lora_dropout"] == 0.1
