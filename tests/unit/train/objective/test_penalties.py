"""Divergence from the base model, entropy and the critic's loss."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.penalties import entropy, kl_to_base, value_loss
from openclaw_rl.train.objective.settings import KlType
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64, log_rows

KINDS: tuple[KlType, ...] = get_args(KlType)


@given(st.floats(-100, 0), st.floats(-100, 0), st.sampled_from(KINDS))
def test_the_divergence_is_the_formula(new: float, base: float, kind: KlType) -> None:
    found = kl_to_base(torch.tensor([new], dtype=F64), torch.tensor([base], dtype=F64), kind)
    assert found.item() == pytest.approx(plain.kl(new, base, kind), abs=1e-12)


@pytest.mark.parametrize(("kind", "value"), [("k1", -0.5), ("k2", 0.125), ("k3", math.exp(0.5) - 1.5)])
def test_the_divergence_by_hand(kind: KlType, value: float) -> None:
    assert kl_to_base(torch.tensor(-1.5), torch.tensor(-1.0), kind).item() == pytest.approx(value)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_the_divergence(kind: KlType) -> None:
    new = torch.tensor([-1.0, -2.5, -0.2, -30.0, -0.1], dtype=F64, requires_grad=True)
    base = torch.tensor([-2.0, -2.5, -0.7, -1.0, -30.0], dtype=F64)
    assert torch.autograd.gradcheck(lambda x: kl_to_base(x, base, kind), new)


def test_a_policy_far_below_the_base_has_no_nan_in_its_gradient() -> None:
    new = torch.tensor([-500.0], requires_grad=True)
    loss = kl_to_base(new, torch.tensor([0.0]), "k3")
    loss.backward()
    assert new.grad is not None
    assert (loss.item(), new.grad.item()) == (10.0, 0.0)


def test_entropy_is_the_formula() -> None:
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=F64)
    found = entropy(logits.log_softmax(-1))
    torch.testing.assert_close(found, torch.tensor([plain.entropy(row) for row in log_rows(logits)], dtype=F64))
    assert torch.autograd.gradcheck(lambda x: entropy(x.log_softmax(-1)), logits.requires_grad_())


def test_impossible_tokens_add_no_entropy() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    found = entropy(logits.log_softmax(-1))
    found.backward()
    assert found.item() == pytest.approx(math.log(2))
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


numbers = st.floats(-3, 3)


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6), st.sampled_from([None, 0.2]))
def test_the_critics_loss_is_the_formula(tokens: list[tuple[float, float, float]], limit: float | None) -> None:
    values, old, returns = torch.tensor(tokens, dtype=F64).unbind(-1)
    loss, clipped = value_loss(values, old, returns, clip=limit)
    torch.testing.assert_close(loss, torch.tensor([plain.value_loss(*t, limit) for t in tokens], dtype=F64))
    assert clipped.tolist() == (loss > (values - returns).square() / 2).tolist()


def test_the_critics_loss_by_hand() -> None:
    """A value that ran from 0 to 1, towards a return of 1, still pays for the 0.8 it may not move yet."""
    value = torch.tensor([1.0, 0.1], dtype=F64, requires_grad=True)
    loss, clipped = value_loss(value, torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64), clip=0.2)
    assert loss.tolist() == pytest.approx([0.32, 0.405])
    assert clipped.tolist() == [True, False]
    assert torch.autograd.gradcheck(
        lambda x: value_loss(x, torch.zeros(2, dtype=F64), torch.ones(2, dtype=F64), clip=0.2)[0], value
    )
