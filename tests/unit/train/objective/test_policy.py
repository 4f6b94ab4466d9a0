"""PPO's surrogate, the sequence ratio and importance weights, against loops and hand-computed numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.policy import clipped_surrogate, importance_weights, sequence_log_ratio
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64

CLIP = {"clip_low": 0.2, "clip_high": 0.28}

logprobs = st.floats(-60, 0)
pairs = st.lists(st.tuples(logprobs, logprobs, st.floats(-3, 3)), min_size=1, max_size=8)


@given(pairs, st.sampled_from([None, 1.5, 3.0]))
def test_the_loss_is_the_formula(tokens: list[tuple[float, float, float]], dual: float | None) -> None:
    new, old, advantages = torch.tensor(tokens, dtype=F64).unbind(-1)
    loss, clipped = clipped_surrogate(new - old, advantages, **CLIP, dual_clip=dual)
    expected = [plain.surrogate(n - o, a, 0.2, 0.28, dual) for n, o, a in tokens]
    torch.testing.assert_close(loss, torch.tensor([value for value, _ in expected], dtype=F64))
    assert clipped.tolist() == [was_clipped for _, was_clipped in expected]


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual", "loss", "is_clipped"),
    [
        (1.0, 1.0, None, -1.0, False),
        (1.5, 1.0, None, -1.28, True),
        (0.5, 1.0, None, -0.5, False),
        (1.5, -1.0, None, 1.5, False),
        (0.5, -1.0, None, 0.8, True),
        (5.0, -1.0, 3.0, 3.0, False),
        (5.0, 1.0, 3.0, -1.28, True),
        (5.0, 0.0, None, 0.0, False),
    ],
)
def test_by_hand(ratio: float, advantage: float, dual: float | None, loss: float, is_clipped: bool) -> None:
    log_ratio, advantages = torch.tensor([math.log(ratio)], dtype=F64), torch.tensor([advantage], dtype=F64)
    found, clipped = clipped_surrogate(log_ratio, advantages, **CLIP, dual_clip=dual)
    assert found.item() == pytest.approx(loss)
    assert clipped.item() == is_clipped


def test_a_ratio_stays_finite_and_its_gradient_too() -> None:
    new = torch.tensor([0.0, -500.0], requires_grad=True)
    loss, _ = clipped_surrogate(new - torch.tensor([-500.0, 0.0]), torch.tensor([-1.0, 1.0]), **CLIP)
    loss.sum().backward()
    assert loss[0].item() == pytest.approx(math.exp(20))
    assert new.grad is not None
    assert new.grad.tolist() == [0.0, 0.0]


def test_at_a_ratio_of_one_the_gradient_is_that_of_reinforce() -> None:
    new = torch.tensor([-1.0, -2.0, -3.0], dtype=F64, requires_grad=True)
    advantages = torch.tensor([1.0, -0.5, 0.0], dtype=F64)
    loss, _ = clipped_surrogate(new - new.detach(), advantages, **CLIP)
    loss.sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == [-1.0, 0.5, 0.0]


@pytest.mark.parametrize("dual", [None, 1.2])
def test_gradients(dual: float | None) -> None:
    generator = torch.Generator().manual_seed(3)
    new, old, advantages = torch.randn(3, 20, generator=generator, dtype=F64).mul(0.6)
    new.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: clipped_surrogate(x - old, advantages, **CLIP, dual_clip=dual)[0], new)


@given(pairs)
def test_a_sequence_has_one_ratio(tokens: list[tuple[float, float, float]]) -> None:
    new, old, _ = torch.tensor(tokens, dtype=F64).unbind(-1)
    mask = [i % 3 != 1 for i in range(len(tokens))]
    found = sequence_log_ratio(new, old, torch.tensor(mask))
    expected = plain.sample_mean([n - o for n, o, _ in tokens], mask)
    torch.testing.assert_close(found, torch.full_like(new, expected))


def test_the_gradient_of_a_sequence_ratio_is_spread_over_the_tokens_that_count() -> None:
    new = torch.tensor([-1.0, -2.0, -3.0], dtype=F64, requires_grad=True)
    mask = torch.tensor([True, False, True])
    log_ratio = sequence_log_ratio(new, new.detach(), mask)
    loss, _ = clipped_surrogate(log_ratio, torch.full((3,), 2.0, dtype=F64), clip_low=0.2, clip_high=0.28)
    (loss[mask].mean()).backward()
    assert new.grad is not None
    assert new.grad.tolist() == [-1.0, 0.0, -1.0]


@given(pairs, st.floats(0.1, 5), st.booleans())
def test_importance_weights_are_the_formula(
    tokens: list[tuple[float, float, float]], limit: float, on_policy: bool
) -> None:
    old, sampled, _ = torch.tensor(tokens, dtype=F64).unbind(-1)
    found = importance_weights(old, sampled, max_weight=limit, on_policy=on_policy)
    expected = [plain.importance(o, s, limit, on_policy) for o, s, _ in tokens]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=F64))


def test_importance_by_hand() -> None:
    old = torch.tensor([0.5, 0.5, 0.1], dtype=F64).log()
    sampled = torch.tensor([0.1, 0.5, 0.5], dtype=F64).log()

    def weights(limit: float | None, on_policy: bool, known: bool = True) -> list[float]:
        return importance_weights(old, sampled if known else None, max_weight=limit, on_policy=on_policy).tolist()

    assert weights(2.0, True) == pytest.approx([2.0, 1.0, 0.2])
    assert weights(2.0, False) == pytest.approx([1.0, 1.0, 0.2])
    assert weights(2.0, True, known=False) == weights(None, True) == weights(None, False) == [1.0, 1.0, 1.0]


def test_importance_weights_have_no_gradient() -> None:
    old = torch.zeros(2, requires_grad=True)
    assert not importance_weights(old, torch.zeros(2), max_weight=2.0, on_policy=True).requires_grad
