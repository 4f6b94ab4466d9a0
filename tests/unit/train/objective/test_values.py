"""A critic's values measure an answer token by token, and are measured by what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.train.objective.hybrid import HybridLoss, hybrid_loss
from openclaw_rl.train.objective.rows import DenseRows, Rows
from openclaw_rl.train.objective.sample import SampleTensors, Target
from openclaw_rl.train.objective.settings import LossSettings
from openclaw_rl.train.objective.values import expectation
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64, CountingRows, Drawn, draw, settings

numbers = st.floats(-3, 3)
token = st.tuples(numbers, numbers, st.booleans())


def normal(seed: int, size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_advantages_and_returns_by_hand() -> None:
    """δ = 0.5 − 0.2, −0.1 − 0.5, 1 − (−0.1); the tokens between do not count, whatever stands there."""
    old = torch.tensor([9.0, 0.2, 0.5, torch.nan, -0.1, 9.0], dtype=F64)
    given_R = torch.tensor([7.0, 7.0, 7.0, 7.0, 1.0, 7.0], dtype=F64)
    mask = torch.tensor([False, True, True, False, True, False])
    found = expectation(old, given_R, mask, lam=0.5)
    assert found.advantages.tolist() == pytest.approx([0.0, 0.275, -0.05, 0.0, 1.1, 0.0])
    assert found.returns[mask].tolist() == pytest.approx([0.475, 0.45, 1.0])
    assert found.old is old


@given(st.lists(token, min_size=1, max_size=9), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_ragged_answers_are_the_formula(tokens: list[tuple[float, float, bool]], lam: float) -> None:
    values, rewards, mask = zip(*tokens, strict=True)
    old, given_R = torch.tensor(values, dtype=F64), torch.tensor(rewards, dtype=F64)
    found = expectation(old, given_R, torch.tensor(mask), lam=lam)
    reward = next((r for r, counts in zip(reversed(rewards), reversed(mask), strict=True) if counts), 0.0)
    expected = plain.token_gae(values, mask, reward, lam)
    assert found.advantages.tolist() == pytest.approx([expected.get(i, 0.0) for i in range(len(values))], abs=1e-12)
    torch.testing.assert_close(found.returns, old + found.advantages)
    if lam == 1:
        assert all(advantage == pytest.approx(reward - values[i], abs=1e-12) for i, advantage in expected.items())


@pytest.mark.parametrize("value_clip", [True, False])
@given(st.data())
def test_the_whole_loss_with_a_critic_is_the_formula(value_clip: bool, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 10**6), label="seed")
    size = data.draw(st.integers(1, 9), label="tokens")
    w_rl = data.draw(st.sampled_from([0.5, 1.0]), label="w_rl")
    drawn = draw(seed, num_tokens=size, num_hints=1, w_rl=w_rl, w_opd=data.draw(st.sampled_from([0.0, 1.0])))
    lam = data.draw(st.sampled_from([0.0, 0.9, 1.0]), label="lambda")
    old, new = normal(seed, size), normal(seed + 1, size)
    chosen = settings(critic=True, value_coef=0.3, value_clip=value_clip, gae_lambda=lam, importance_clip=2.0)
    mask = drawn.tensors.mask
    if not mask.any():
        assert not HybridLoss(chosen).needs_values(drawn.tensors)
        return
    last = int(mask.nonzero()[-1])
    advantages = plain.token_gae(old.tolist(), mask.tolist(), drawn.tensors.advantages[last].item(), lam)
    measured = torch.tensor([advantages.get(i, 0.0) for i in range(size)], dtype=F64)
    policy = replace(drawn, tensors=replace(drawn.tensors, advantages=measured)).expected(chosen)
    limit = 0.2 if value_clip else None
    critic = {
        i: plain.value_loss(new[i].item(), old[i].item(), a + old[i].item(), limit) for i, a in advantages.items()
    }
    loss_R, metrics = with_critic(drawn, chosen, old, new)
    assert loss_R[mask].tolist() == pytest.approx([policy[i] + 0.3 * critic[i] for i in advantages])
    assert metrics["loss_value"] == pytest.approx(sum(critic.values()) / len(critic))
    assert metrics["value"] == pytest.approx(new[mask].mean().item())
    assert ("clipped_value" in metrics) == value_clip


def with_critic(drawn: Drawn, chosen: LossSettings, old: Tensor, new: Tensor) -> tuple[Tensor, dict[str, float]]:
    loss = HybridLoss(chosen)
    teachers = [DenseRows(logits) for logits in drawn.teachers[: loss.num_teachers(drawn.tensors)]]
    target = loss.target(DenseRows(drawn.old), drawn.tensors, teachers=teachers, values=old)
    loss_R, metrics = loss(DenseRows(drawn.new), drawn.tensors, target, values=new)
    return loss_R, {name: value.item() for name, value in metrics.items()}


@pytest.mark.parametrize("value_clip", [True, False])
def test_values_learn_from_their_own_loss_alone(value_clip: bool) -> None:
    """The gradient of a value is that of value_loss; that of the logits is the policy's, whatever the values are."""
    drawn = draw(3, w_opd=0.0, mask=[True] * 7)
    loss = HybridLoss(settings(critic=True, value_clip=value_clip, gae_lambda=0.9))
    values = normal(0, 7).requires_grad_()
    target = loss.target(DenseRows(drawn.old), drawn.tensors, values=values)
    assert target.expected is not None
    assert not any(x.requires_grad for x in (target.expected.old, target.expected.advantages, target.expected.returns))
    moved = (values.detach() + normal(1, 7)).requires_grad_()

    def of_values(x: Tensor) -> Tensor:
        return loss(DenseRows(drawn.new), drawn.tensors, target, values=x)[0]

    assert torch.autograd.gradcheck(of_values, moved)
    logits = drawn.new.clone().requires_grad_()
    gradients = [
        torch.autograd.grad(loss(DenseRows(logits), drawn.tensors, target, values=x)[0].sum(), logits)[0]
        for x in (values, moved)
    ]
    assert torch.equal(*gradients)
    _, metrics = loss(DenseRows(drawn.new), drawn.tensors, target, values=moved)
    assert not any(value.requires_grad or value.ndim for value in metrics.values())


def test_a_critic_that_knows_the_reward_leaves_nothing_to_learn() -> None:
    drawn = draw(0, w_opd=0.0)
    tensors = replace(drawn.tensors, advantages=torch.full_like(drawn.tensors.advantages, 0.7))
    loss = HybridLoss(settings(critic=True))
    right = torch.full_like(tensors.advantages, 0.7)
    target = loss.target(DenseRows(drawn.old), tensors, values=right)
    loss_R, _ = loss(DenseRows(drawn.new), tensors, target, values=right)
    assert loss_R.abs().max() < 1e-15


@pytest.mark.parametrize(
    ("change", "needs_values", "needs_student"),
    [
        ({}, True, True),
        ({"w_opd": 0.0, "has_advantage": False}, True, True),
        ({"w_rl": 0.0}, False, True),
        ({"w_rl": 0.0, "w_opd": 0.0}, False, False),
        ({"has_tokens": False}, False, False),
    ],
)
def test_who_takes_part(change: dict[str, Any], needs_values: bool, needs_student: bool) -> None:
    sample = replace(draw(0).tensors, **change)
    on, off = HybridLoss(settings(critic=True)), HybridLoss(settings())
    assert (on.needs_values(sample), on.needs_student(sample)) == (needs_values, needs_student)
    assert not off.needs_values(sample)


def test_values_that_are_missing_or_that_nobody_asked_for_are_refused() -> None:
    drawn = draw(0, w_opd=0.0)
    rows, values = DenseRows(drawn.old), normal(0, 7)
    on, off = HybridLoss(settings(critic=True)), HybridLoss(settings())
    with pytest.raises(ValueError, match="needs_values is True, got None"):
        on.target(rows, drawn.tensors)
    with pytest.raises(ValueError, match="needs_values is False"):
        off.target(rows, drawn.tensors, values=values)
    with pytest.raises(ValueError, match="needs_values is True, got None"):
        on(rows, drawn.tensors, on.target(rows, drawn.tensors, values=values))


def test_without_a_critic_nothing_more_is_asked_and_nothing_more_is_done() -> None:
    drawn = draw(0, w_opd=0.0)
    rows, loss = CountingRows(drawn.old), HybridLoss(settings())
    target = loss.target(rows, drawn.tensors)
    loss_R, metrics = loss(rows, drawn.tensors, target)
    assert target.expected is None
    assert rows.asked == ["logprob 1", "logprob 1"]
    direct_R, direct = hybrid_loss(rows, drawn.tensors, target, loss.settings)
    assert torch.equal(loss_R, direct_R)
    assert set(metrics) == set(direct)


def test_a_loss_of_your_own_reads_the_measured_advantages() -> None:
    seen: list[Tensor] = []

    def mine(rows: Rows, sample: SampleTensors, target: Target, chosen: LossSettings) -> Any:
        seen.append(sample.advantages)
        return torch.zeros_like(sample.advantages), {}

    drawn, values = draw(0, w_opd=0.0), normal(0, 7)
    loss = HybridLoss(settings(critic=True, value_coef=2.0), mine)
    target = loss.target(DenseRows(drawn.old), drawn.tensors, values=values)
    loss_R, _ = loss(DenseRows(drawn.new), drawn.tensors, target, values=values)
    assert target.expected is not None
    assert torch.equal(seen[0], target.expected.advantages)
    torch.testing.assert_close(loss_R, (values - target.expected.returns).square())
