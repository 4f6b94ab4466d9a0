"""An everyday question in a step: the student answers it, and learns what the teacher makes of that with the wish."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from openclaw_rl.train.worker.own_samples import EXERCISE_TOKENS, own_sample
from openclaw_rl.train.worker.speaking import answers
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample, StepOrder, VersionSpan
from tests.factories.orders import exercise, order, sample
from tests.factories.torch_trainers import logprobs, new_trainer
from tests.tiny import build_tiny_model

STOP = (2,)
IDLE = sample(0, num_hints=0, w_rl=1e-6)
"""A step needs a lesson; this one teaches next to nothing."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def practised(folder: Path, number: int = 1) -> tuple[StepOrder, Path]:
    parent = str(folder / f"v{number - 1}") if number > 1 else None
    given, target = order(folder, number, IDLE, parent=parent, learning_rate=0.001)
    return replace(given, exercises=(exercise(),), stop_token_ids=STOP), target


def test_a_sample_of_its_own() -> None:
    made = own_sample("exercise", exercise(w_opd=0.5), (5, 6), name="exercise 0", line="ann", version="v3")
    assert (made.kind, made.prompt_ids, made.response_ids) == ("exercise", exercise().prompt_ids, (5, 6))
    assert (made.w_rl, made.w_opd, made.temperature, made.logprobs) == (0.0, 0.5, 0.8, None)
    assert made.version_spans == (VersionSpan("v3", 0, 2),)


def gap(trainer: TorchTrainer, checkpoint: str | None, given: Sample) -> float:
    """How far the student, without the wish, is from the base model with it, on an answer of the student."""
    student = logprobs(trainer, checkpoint, given.prompt_ids, given)
    teacher = logprobs(trainer, None, given.teacher_prompt(given.candidates[0]), given)
    return float((student.exp() * (student - teacher)).sum(-1).mean())


def test_what_is_practised_comes_nearer(tiny: Path, tmp_path: Path) -> None:
    trainer = new_trainer(tiny)
    one = exercise()
    (said,) = answers(
        trainer._base.reader,
        [one.prompt_ids],
        stop_token_ids=STOP,
        max_tokens=EXERCISE_TOKENS,
        temperatures=[one.temperature],
        seed=1 * 1009 + 1,
    )
    given = own_sample("exercise", one, said, name="x", line="local", version="v0")
    before = gap(trainer, None, given)
    for number in range(1, 5):
        report = trainer.step(*practised(tmp_path, number))
        assert (report.metrics["step/exercises"], report.metrics["step/samples"]) == (1, 2)
    assert gap(trainer, str(tmp_path / "v4"), given) < 0.93 * before


def test_the_student_of_the_moment_answers(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second step practises on what the first made of it; a trainer that starts anew says the same."""
    heard: list[tuple[int, ...]] = []

    def listen(*arguments: object, **options: object) -> list[tuple[int, ...]]:
        said = answers(*arguments, **options)  # type: ignore[arg-type]
        heard.extend(said)
        return said

    monkeypatch.setattr("openclaw_rl.train.worker.trainer.answers", listen)
    trainer = new_trainer(tiny)
    assert trainer.step(*practised(tmp_path)).state == "done"
    second = trainer.step(*practised(tmp_path, 2))
    anew = new_trainer(tiny).step(practised(tmp_path, 2)[0], tmp_path / "again")
    assert second.sha256 == anew.sha256
    assert heard[1] == heard[2]
    (by_base,) = answers(
        trainer._base.reader, [exercise().prompt_ids], stop_token_ids=STOP, max_tokens=EXERCISE_TOKENS,
        temperatures=[0.8], seed=1 * 1009 + 2,
    )  # fmt: skip
    assert heard[1] != by_base


def test_they_have_no_say_in_what_people_said(tiny: Path, tmp_path: Path) -> None:
    trainer = TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32)
    made, target = order(tmp_path, 1)
    given = replace(made, stop_token_ids=STOP)
    without = trainer.step(given, target).metrics
    beside = trainer.step(replace(given, exercises=(exercise(),)), target).metrics
    assert set(beside) - set(without) == {"loss/exercise"}
    for name in ("reward/mean", "reward/std", "loss/opd", "loss/binary", "sample/hint"):
        assert beside[name] == pytest.approx(without[name], rel=1e-5), name
