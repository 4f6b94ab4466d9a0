"""What a step does with its batch as a whole: how tokens add up, and at which temperature everybody is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from openclaw_rl.train.passes.sequences import Sequenced, num_tokens
from openclaw_rl.train.tree.fold import Fold
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import Sample, StepReport, VersionSpan
from tests.factories.orders import order, sample
from tests.tiny import build_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def step(tiny: Path, folder: Path, *samples: Sample, **changes: Any) -> StepReport:
    folder.mkdir(exist_ok=True)
    return TorchTrainer(tiny, device=torch.device("cpu"), dtype=torch.float32).step(
        *order(folder, 1, *samples, **changes)
    )


@pytest.mark.parametrize("micro_batch_tokens", [4096, 1])
def test_answers_count_alike_or_tokens_do(tiny: Path, tmp_path: Path, micro_batch_tokens: int) -> None:
    """Before the first move every ratio is 1: a token's loss is −A. Five tokens of 1 and eight of −0.5."""
    given = [
        sample(4, num_hints=0, advantage=1.0, logprobs=None),
        sample(7, num_hints=0, advantage=-0.5, logprobs=None),
    ]
    assert [len(one.response_ids) for one in given] == [5, 8]
    changes = {"micro_batch_tokens": micro_batch_tokens}
    answers = step(tiny, tmp_path / "answers", *given, **changes)
    tokens = step(tiny, tmp_path / "tokens", *given, loss_per_token=True, **changes)
    assert answers.metrics["loss/total"] == pytest.approx((-1.0 + 0.5) / 2)
    assert tokens.metrics["loss/total"] == pytest.approx((-5.0 + 4.0) / 13)
    assert answers.sha256 != tokens.sha256


def test_one_temperature_for_student_teacher_and_base(tiny: Path, tmp_path: Path) -> None:
    """Answers sampled at 0.8 and read at 0.6 are, to the last bit, answers sampled at 0.6; not so when it is null."""

    def reports(temperature: float, **changes: Any) -> StepReport:
        given = [sample(i, temperature=temperature) for i in range(3)]
        return step(tiny, tmp_path, *given, kl_coef=0.1, **changes)

    own, fixed = reports(0.8), reports(0.8, logprob_temperature=0.6)
    same = reports(0.6)
    assert fixed.sha256 == same.sha256 != own.sha256
    for name in ("loss/opd", "sample/teacher_gap", "sample/kl", "sample/sampler_gap"):
        assert fixed.metrics[name] == same.metrics[name], name
        assert fixed.metrics[name] != own.metrics[name] or name == "sample/kl", name


def test_the_sampler_keeps_its_own_temperature(tiny: Path, tmp_path: Path) -> None:
    """Read at another temperature, an answer of this very policy looks as if another had drawn it."""

    def read(logprob: float, **changes: Any) -> StepReport:
        one: dict[str, Any] = {
            "response_ids": (77,),
            "loss_mask": (True,),
            "advantages": (1.0,),
            "logprobs": (logprob,),
        }
        given = sample(0, num_hints=0, version_spans=(VersionSpan("v0", 0, 1),), **one)
        return step(tiny, tmp_path, given, **changes)

    def logprob(**changes: Any) -> float:
        return -read(0.0, **changes).metrics["sample/sampler_gap"]

    own, other = logprob(), logprob(logprob_temperature=0.6)
    assert abs(own - other) > 0.01
    right = read(own)
    assert right.metrics["sample/sampler_gap"] == pytest.approx(0.0, abs=1e-6)
    assert right.metrics["sample/importance"] == pytest.approx(1.0)
    wrong = read(own, logprob_temperature=0.6)
    assert wrong.metrics["sample/sampler_gap"] == pytest.approx(abs(other - own), abs=1e-6)
    assert wrong.metrics["sample/importance"] == pytest.approx(min(math.exp(other - own), 2.0), abs=1e-5)


class Computed(TorchDispatchMode):
    """Counts the tokens that go into the network."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.num_tokens = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func) == "aten.embedding.default":
            self.num_tokens += args[1].numel()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("weights", "changes", "student", "num_hints", "base"),
    [
        ({}, {}, 1, 2, 0),
        ({"w_opd": 0.0}, {}, 1, 0, 0),
        ({"w_rl": 0.0}, {}, 1, 2, 0),
        ({"w_rl": 0.0}, {"hint_selection": "shortest"}, 1, 1, 0),
        ({"w_rl": 0.0, "w_opd": 0.0}, {}, 0, 0, 0),
        ({"w_opd": 0.0}, {"kl_coef": 0.1}, 1, 0, 1),
        ({}, {"num_epochs": 2}, 2, 2, 0),
    ],
    ids=["both", "scores", "hints", "one hint", "nothing", "held to the base", "twice"],
)
def test_no_token_that_nothing_asks_for(
    tiny: Path,
    tmp_path: Path,
    weights: dict[str, float],
    changes: dict[str, Any],
    student: int,
    num_hints: int,
    base: int,
) -> None:
    given = [sample(i, num_hints=2, **weights) for i in range(3)]
    with Computed() as counted:
        report = step(tiny, tmp_path, *given, **changes)
    assert report.state == "done"
    answers = [Sequenced(one.prompt_ids, one.response_ids) for one in given]
    hinted = [
        Sequenced(one.teacher_prompt(hint), one.response_ids) for one in given for hint in one.candidates[:num_hints]
    ]
    expected = (student + base) * num_tokens(Fold(), answers) + num_tokens(Fold(), hinted)
    assert counted.num_tokens == expected
