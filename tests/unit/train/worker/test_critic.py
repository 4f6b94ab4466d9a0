"""The critic in whole steps of the tiny model: it learns, resumes bit for bit, and never moves the policy itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from openclaw_rl.errors import TrainError
from openclaw_rl.train.worker.critic import Critic
from openclaw_rl.train.worker.trainer import TorchTrainer
from openclaw_rl.types import StepReport
from tests.factories.orders import order, sample
from tests.tiny import build_tiny_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


def new_trainer(model: Path) -> TorchTrainer:
    return TorchTrainer(model, device=CPU, dtype=torch.float32)


def one_step(tiny: Path, folder: Path, *samples: Any, **changes: Any) -> StepReport:
    """The first step of a line, by a trainer of its own."""
    folder.mkdir()
    return new_trainer(tiny).step(*order(folder, 1, *samples, **changes))


def kept(checkpoint: Path) -> dict[str, Tensor]:
    """The critic of a checkpoint and what the optimiser remembers about it, behind the policy's one tensor."""
    state = load_file(checkpoint / "trainer" / "optimiser.safetensors")
    of_critic = {name: tensor for name, tensor in state.items() if not name.startswith("0.")}
    return of_critic | load_file(checkpoint / "trainer" / "critic.safetensors")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_values_are_a_linear_head_without_gradient_for_what_they_read() -> None:
    rows = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
    assert torch.equal(Critic.new(4, device=CPU)(rows), torch.zeros(3))
    critic = Critic(torch.tensor([1.0, -2.0, 0.5, 0.0]), torch.tensor([0.25]))
    values = critic(rows)
    expected = [row[0] - 2 * row[1] + 0.5 * row[2] + 0.25 for row in rows.tolist()]
    assert values.dtype == torch.float32
    assert values.tolist() == pytest.approx(expected, abs=1e-6)
    values.sum().backward()
    assert rows.grad is None
    assert all(parameter.grad is not None for parameter in critic.parameters)


def test_a_critic_of_another_size_is_refused() -> None:
    with pytest.raises(TrainError, match="does not fit 5 hidden numbers"):
        Critic.of(Critic.new(4, device=CPU).tensors(), 5, device=CPU)


def test_a_damaged_critic_says_what_to_do(tiny: Path, tmp_path: Path) -> None:
    one_step(tiny, tmp_path / "on", critic=True)
    first = tmp_path / "on" / "v1"
    (first / "trainer" / "critic.safetensors").write_bytes(b"not a tensor")
    with pytest.raises(TrainError, match="critic.safetensors cannot be read .* roll back"):
        new_trainer(tiny).step(*order(tmp_path / "on", 2, parent=str(first), critic=True))


def test_without_it_there_is_no_trace_of_one(tiny: Path, tmp_path: Path) -> None:
    report = one_step(tiny, tmp_path / "off")
    assert not {"loss/value", "sample/value"} & set(report.metrics)
    assert files(tmp_path / "off" / "v1" / "trainer") == {"optimiser.safetensors", "state.json"}
    state = load_file(tmp_path / "off" / "v1" / "trainer" / "optimiser.safetensors")
    assert {name.partition(".")[0] for name in state} == {"0"}


@pytest.mark.parametrize("use_lora", [True, False])
def test_while_it_expects_nothing_the_policy_moves_as_without_it(tiny: Path, tmp_path: Path, use_lora: bool) -> None:
    """In its first step, with λ = 1, every advantage is the reward; its own gradient and clip are no policy's."""
    changes: dict[str, Any] = {"clip_grad_norm": 0.01, "gae_lambda": 1.0, "use_lora": use_lora}
    off = one_step(tiny, tmp_path / "off", **changes)
    on = one_step(tiny, tmp_path / "on", critic=True, value_coef=50.0, **changes)
    assert on.sha256 == off.sha256
    assert on.metrics["gradient/norm"] == off.metrics["gradient/norm"] > 0.01
    assert on.metrics["loss/value"] == pytest.approx(0.5)
    assert on.metrics["loss/total"] == pytest.approx(off.metrics["loss/total"] + 25.0)
    assert files(tmp_path / "on" / "v1" / "weights") == files(tmp_path / "off" / "v1" / "weights")


def test_a_smaller_lambda_tells_the_first_tokens_less(tiny: Path, tmp_path: Path) -> None:
    given = sample(1, num_hints=0, advantage=1.0, logprobs=None)
    size = len(given.response_ids)
    report = one_step(tiny, tmp_path / "on", given, critic=True, gae_lambda=0.5)
    assert report.metrics["loss/binary"] == pytest.approx(-sum(0.5**i for i in range(size)) / size)


@pytest.mark.parametrize(("ratio", "clips"), [(0.05, True), (50.0, False)])
def test_clipping_keeps_it_from_running_ahead(tiny: Path, tmp_path: Path, ratio: float, clips: bool) -> None:
    """In the second pass over a batch it has moved; one that moved too far learns no more from that sample."""
    changes: dict[str, Any] = {"critic": True, "num_epochs": 3, "learning_rate": 0.05, "clip_grad_norm": 1e9}
    free = one_step(tiny, tmp_path / "free", **changes)
    clipped = one_step(tiny, tmp_path / "clipped", value_clip=True, value_clip_ratio=ratio, **changes)
    assert "sample/clipped_value" not in free.metrics
    assert (clipped.metrics["sample/clipped_value"] > 0) == clips
    critics = [load_file(tmp_path / one / "v1" / "trainer" / "critic.safetensors") for one in ("free", "clipped")]
    assert torch.equal(critics[0]["weight"], critics[1]["weight"]) != clips


def test_its_gradient_is_clipped_apart(tiny: Path, tmp_path: Path) -> None:
    one_step(tiny, tmp_path / "on", critic=True, clip_grad_norm=0.01)
    now = kept(tmp_path / "on" / "v1")
    moved = torch.cat((now["1.exp_avg"], now["2.exp_avg"])).norm().item()
    assert moved == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_hints_alone_teach_it_nothing(tiny: Path, tmp_path: Path) -> None:
    hinted = [sample(i, w_rl=0.0, reward=0.0) for i in range(2)]
    off = one_step(tiny, tmp_path / "off", *hinted)
    on = one_step(tiny, tmp_path / "on", *hinted, critic=True)
    assert on.sha256 == off.sha256
    assert "loss/value" not in on.metrics
    assert {name: tensor.count_nonzero().item() for name, tensor in kept(tmp_path / "on" / "v1").items()} == {
        "weight": 0,
        "bias": 0,
    }


@pytest.mark.parametrize("changes", [{}, {"num_epochs": 2, "value_clip": True, "micro_batch_tokens": 1}])
def test_a_resumed_critic_is_the_same_bit_for_bit(tiny: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    changes = {"critic": True, **changes}
    trainer, first = new_trainer(tiny), str(tmp_path / "v1")
    trainer.step(*order(tmp_path, 1, **changes))
    straight = trainer.step(*order(tmp_path, 2, parent=first, **changes))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    resumed = new_trainer(tiny).step(*order(elsewhere, 2, parent=first, **changes))
    assert resumed.sha256 == straight.sha256
    one, other, before = kept(tmp_path / "v2"), kept(elsewhere / "v2"), kept(tmp_path / "v1")
    assert set(one) == set(other) == set(before) > {"weight", "bias", "1.exp_avg", "2.exp_avg_sq"}
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["weight"], before["weight"])


@pytest.mark.parametrize("restarted", [True, False])
def test_switched_on_later_it_starts_at_zero_and_switched_off_it_is_gone(
    tiny: Path, tmp_path: Path, restarted: bool
) -> None:
    trainer = new_trainer(tiny)

    def step(number: int, *, critic: bool) -> StepReport:
        parent = None if number == 1 else str(tmp_path / f"v{number - 1}")
        chosen = new_trainer(tiny) if restarted else trainer
        return chosen.step(*order(tmp_path, number, parent=parent, critic=critic))

    step(1, critic=False)
    assert step(2, critic=True).metrics["sample/value"] == 0.0
    assert kept(tmp_path / "v2")["1.step"].item() == 1.0
    assert step(3, critic=True).metrics["sample/value"] != 0.0
    step(4, critic=False)
    assert files(tmp_path / "v4" / "trainer") == {"optimiser.safetensors", "state.json"}
    state = load_file(tmp_path / "v4" / "trainer" / "optimiser.safetensors")
    assert {name.partition(".")[0] for name in state} == {"0"}
    assert state["0.step"].item() == 4.0
    assert step(5, critic=True).metrics["sample/value"] == 0.0
    assert kept(tmp_path / "v5")["1.step"].item() == 1.0


def test_it_has_no_weight_decay(tiny: Path, tmp_path: Path) -> None:
    """The second step of one and the same critic: decay would begin at weights that are not zero."""
    new_trainer(tiny).step(*order(tmp_path, 1, critic=True))
    critics, policies = [], set()
    for decay in (0.0, 0.9):
        folder = tmp_path / str(decay)
        folder.mkdir()
        report = new_trainer(tiny).step(
            *order(folder, 2, parent=str(tmp_path / "v1"), critic=True, weight_decay=decay, learning_rate=0.1)
        )
        critics.append(kept(folder / "v2"))
        policies.add(report.sha256)
    assert len(policies) == 2
    assert torch.equal(critics[0]["weight"], critics[1]["weight"])


def test_it_learns_a_constant_reward_and_then_leaves_the_policy_alone(tiny: Path, tmp_path: Path) -> None:
    """With a w_rl this small AdamW leaves the policy where it is: what shrinks its gradient is the critic alone."""
    given = [sample(i, num_hints=0, advantage=0.8, logprobs=None, w_rl=1e-12) for i in range(3)]
    trainer, reports = new_trainer(tiny), []
    changes: dict[str, Any] = {"critic": True, "num_epochs": 10, "gae_lambda": 1.0}
    for number in range(1, 8):
        parent = None if number == 1 else str(tmp_path / f"v{number - 1}")
        reports.append(trainer.step(*order(tmp_path, number, *given, parent=parent, **changes)).metrics)
    assert reports[-1]["sample/value"] == pytest.approx(0.8, abs=0.02)
    assert reports[-1]["loss/value"] < 0.01 * reports[0]["loss/value"]
    assert 0 < reports[-1]["gradient/norm"] < 0.1 * reports[0]["gradient/norm"]


def test_a_reward_of_zero_is_news_to_it(tiny: Path, tmp_path: Path) -> None:
    praised, neutral = (sample(1, num_hints=0, advantage=a, logprobs=None) for a in (1.0, 0.0))
    trainer, first = new_trainer(tiny), str(tmp_path / "v1")
    trainer.step(*order(tmp_path, 1, praised, critic=True))
    report = trainer.step(*order(tmp_path, 2, neutral, parent=first, critic=True))
    assert report.metrics["sample/value"] > 0
    assert report.metrics["gradient/norm"] > 0
    assert report.metrics["loss/binary"] > 0
