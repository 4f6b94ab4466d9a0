"""A loss of your own by import path: it gets what it asks for by name, or is refused with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from openclaw_rl.config import load_config
from openclaw_rl.errors import ConfigError, TrainError
from openclaw_rl.train.losses import LOSS_NAMES, check_loss
from openclaw_rl.train.objective import custom
from openclaw_rl.train.objective.custom import load_loss
from openclaw_rl.train.objective.hybrid import HybridLoss, hybrid_loss
from openclaw_rl.train.objective.rows import DenseRows
from openclaw_rl.train.registry import new_trainer
from openclaw_rl.train.worker.trainer import TorchTrainer
from tests.factories import orders
from tests.tiny import build_tiny_model
from tests.unit.train.objective.cases import draw, settings

SEEDS = '''
import torch


def compute_opd_loss(student_logprobs, teacher_logprobs, advantage_mask, clip_ratio=0.2):
    """
    OPD loss: token-level advantage from teacher-student log-prob gap
    """
    # Compute log-probability ratio
    logratio = student_logprobs - teacher_logprobs
    ratio = torch.exp(logratio)

    # Apply clipping
    clipped_ratio = torch.clamp(ratio, 1 - clip_ratio, 1 + clip_ratio)

    # Compute advantages (negative gap = student should improve)
    advantages = teacher_logprobs - student_logprobs

    # Masked loss (only on relevant tokens)
    loss_unclipped = -advantages * ratio
    loss_clipped = -advantages * clipped_ratio
    loss = torch.max(loss_unclipped, loss_clipped)

    # Apply mask and return mean
    masked_loss = loss * advantage_mask
    return masked_loss.sum() / advantage_mask.sum()


def compute_hybrid_loss(
    student_logprobs, teacher_logprobs, scalar_rewards, opd_weight=0.5, binary_weight=0.5, clip_ratio=0.2
):
    """
    Hybrid loss combining Binary RL and OPD
    """
    # Binary RL component (GRPO)
    advantages_binary = compute_gae(scalar_rewards)
    logratio = student_logprobs - student_logprobs.detach()
    ratio = torch.exp(logratio)
    pg_loss1 = -advantages_binary * ratio
    pg_loss2 = -advantages_binary * torch.clamp(
        ratio, 1 - clip_ratio, 1 + clip_ratio
    )
    binary_loss = torch.max(pg_loss1, pg_loss2).mean()

    # OPD component (token-level)
    advantages_opd = teacher_logprobs - student_logprobs
    opd_loss = -advantages_opd.mean()

    # Combine with weights
    total_loss = (
        binary_weight * binary_loss +
        opd_weight * opd_loss
    )

    return total_loss, {
        "binary_loss": binary_loss.item(),
        "opd_loss": opd_loss.item(),
        "total_loss": total_loss.item()
    }


def compute_gae(rewards):
    return rewards.flip(0).cumsum(0).flip(0)
'''


@pytest.fixture
def seeds(tmp_path: Path) -> Path:
    (tmp_path / "custom_opd_loss.py").write_text(SEEDS)
    return tmp_path / "custom_opd_loss.py"


def test_a_module_or_a_file_and_any_names_for_the_four(tmp_path: Path) -> None:
    drawn = draw(1)
    expected, _ = drawn.loss(settings())
    file = tmp_path / "mine.py"
    file.write_text(
        "from openclaw_rl.train.objective.hybrid import hybrid_loss\n"
        "def loss(r, s, t, by):\n    return hybrid_loss(r, s, t, by)\n"
        "def whatever(*given):\n    return hybrid_loss(*given)\n"
        "def keyed(settings, rows, *, target, sample):\n    return hybrid_loss(rows, sample, target, settings)\n"
    )
    for path in (f"{hybrid_loss.__module__}:hybrid_loss", *(f"{file}:{one}" for one in ("loss", "whatever", "keyed"))):
        check_loss(path)
        function, needs_teacher = load_loss(path)
        assert not needs_teacher
        loss = HybridLoss(settings(), function)
        found, metrics = loss(DenseRows(drawn.new), drawn.tensors, drawn.target(loss))
        torch.testing.assert_close(found, expected)
        assert "loss_opd" in metrics


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("just_a_name", "is not of the form package.module:name or file.py:name"),
        ("no.such.module:loss", "cannot be imported: ModuleNotFoundError"),
        ("/no/such/file.py:loss", "cannot be imported"),
        ("math:loss", "has no .loss."),
        ("math:pi", "is a float, not a function"),
        ("os.path:basename", r"asks for p, which a loss does not get\. It may ask for student_logprobs, "),
    ],
)
def test_what_is_wrong_is_said(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_loss(path)


@pytest.mark.parametrize(
    "asked", ["student_logprobs, rewards", "student_logprobs, *, rewards", "a, b", "a, b, c, d, e"]
)
def test_an_unknown_name_is_refused_at_the_start_without_an_import(tmp_path: Path, asked: str) -> None:
    (tmp_path / "mine.py").write_text(f"raise SystemExit('imported')\ndef loss({asked}):\n    return 0\n")
    chosen = load_config(env={}, overrides=[f"training.custom_loss={tmp_path / 'mine.py'}:loss"]).config
    with pytest.raises(ConfigError, match=r"asks for .*scalar_rewards.*give other parameters a default"):
        new_trainer(chosen, tmp_path)
    ours = load_config(env={}, overrides=["training.custom_loss=openclaw_rl.train.objective.hybrid:hybrid_loss"]).config
    new_trainer(ours, tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such/file.py:loss", "cannot be read"),
        ("no_such_package:loss", "there is no module 'no_such_package'"),
        ("openclaw_rl.train.no_such_module:loss", "there is no module"),
        ("openclaw_rl.train.losses.deeper:loss", "there is no module"),
        ("just_a_name", "there is no module ''"),
        ("openclaw_rl.train.objective.hybrid:hybrid_lost", "has no 'hybrid_lost'"),
    ],
)
def test_what_is_not_there_is_refused_at_the_start(path: str, message: str, tmp_path: Path) -> None:
    chosen = load_config(env={}, overrides=[f"training.custom_loss={path}"]).config
    with pytest.raises(ConfigError, match=message):
        new_trainer(chosen, tmp_path)


def test_a_function_may_come_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from somewhere import loss, other as second\nthird = loss\n")
    for name in ("loss", "second", "third"):
        check_loss(f"{tmp_path / 'mine.py'}:{name}")
    check_loss("math:pi")


def test_a_module_is_found_where_python_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_a_test").mkdir()
    (tmp_path / "mine_of_a_test" / "losses.py").write_text("def loss(unheard_of):\n    return 0\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(ConfigError, match="unheard_of"):
        check_loss("mine_of_a_test.losses:loss")


def test_every_name_has_its_value() -> None:
    drawn = draw(3, mask=[True, True, False, True, False, False, False])
    loss = HybridLoss(settings(distillation="token", kl_coef=0.1))
    target, tensors = drawn.target(loss), drawn.tensors
    given = custom._Given(DenseRows(drawn.new), tensors, target, loss.settings)
    found = {name: getattr(given, name) for name in LOSS_NAMES}
    rows = torch.arange(7)
    torch.testing.assert_close(found["student_logprobs"], torch.log_softmax(drawn.new, -1)[rows, tensors.response_ids])
    assert found["old_logprobs"] is target.old
    assert found["sampled_logprobs"] is tensors.sampled
    assert target.guidance is not None
    hints = torch.log_softmax(drawn.teachers, -1)[int(target.guidance.chosen[0]), rows, tensors.response_ids]
    torch.testing.assert_close(found["teacher_logprobs"], hints)
    assert found["advantage_mask"].tolist() == [1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert found["scalar_rewards"].tolist() == [0, 0, 0, tensors.advantages[3].item(), 0, 0, 0]
    assert (found["clip_ratio"], found["clip_ratio_high"]) == (0.2, 0.28)
    assert (found["binary_weight"], found["opd_weight"]) == (tensors.w_rl, tensors.w_opd)


def test_without_a_hint_the_teacher_moves_nothing(seeds: Path) -> None:
    drawn = draw(4, w_opd=0.0)
    function, needs_teacher = load_loss(f"{seeds}:compute_opd_loss")
    assert needs_teacher
    loss = HybridLoss(settings(distillation="token"), function)
    logits = drawn.new.clone().requires_grad_()
    loss_R, _ = loss(DenseRows(logits), drawn.tensors, drawn.target(loss))
    loss_R.mean().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("name", ["compute_opd_loss", "compute_hybrid_loss"])
def test_the_losses_of_the_seeds_train_as_they_stand(seeds: Path, tmp_path: Path, name: str) -> None:
    trainer = TorchTrainer(build_tiny_model(tmp_path / "model"), device=torch.device("cpu"), dtype=torch.float32)
    sums = set()
    for at, path in enumerate((f"{seeds}:{name}", None)):
        folder = tmp_path / str(at)
        folder.mkdir()
        samples = [orders.sample(index, num_hints=index % 2 * 2) for index in range(3)]
        report = trainer.step(*orders.order(folder, 1, *samples, custom_loss=path))
        assert report.state == "done", report.reason
        assert report.metrics["gradient/norm"] > 0
        sums.add(report.sha256)
        if name == "compute_hybrid_loss" and path is not None:
            assert {"sample/binary_loss", "sample/opd_loss", "sample/total_loss"} <= set(report.metrics)
    assert len(sums) == 2, "it is another loss than ours"


def test_what_is_returned_must_be_a_loss(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loss(student_logprobs):\n    return 'no'\n")
    trainer = TorchTrainer(build_tiny_model(tmp_path / "model"), device=torch.device("cpu"), dtype=torch.float32)
    with pytest.raises((ConfigError, TrainError), match="return a tensor"):
        trainer.step(*orders.order(tmp_path, 1, custom_loss=f"{tmp_path / 'mine.py'}:loss"))
