"""Top-k OPD, token-level OPD and the reverse KL with a tail: loops, gradients, empty places and extreme numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from openclaw_rl.train.objective.distillation import (
    forward_kl,
    log_tail,
    reverse_kl_with_tail,
    subset_weights,
    token_loss,
    topk_loss,
)
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64, log_rows

GARBAGE = (math.nan, math.inf, -math.inf)


def rows(seed: int, *, num_tokens: int = 5, vocab_size: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Logits of new, old and teacher [R, V], and a subset of 4 members with some places empty, the first row's all."""
    generator = torch.Generator().manual_seed(seed)
    old_RV = torch.randn(num_tokens, vocab_size, generator=generator, dtype=F64) * 2
    new_RV = old_RV + torch.randn(num_tokens, vocab_size, generator=generator, dtype=F64) * 0.4
    teacher_RV = old_RV + torch.randn(num_tokens, vocab_size, generator=generator, dtype=F64)
    ids_RJ = torch.rand(num_tokens, vocab_size, generator=generator).argsort(-1)[:, :4]
    valid_RJ = torch.rand(num_tokens, 4, generator=generator) < 0.7
    valid_RJ[0] = False
    return new_RV, old_RV, teacher_RV, ids_RJ, valid_RJ


def members(ids_RJ: Tensor, valid_RJ: Tensor) -> list[set[int]]:
    return [set(row[valid].tolist()) for row, valid in zip(ids_RJ, valid_RJ, strict=True)]


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]))
def test_topk_is_the_formula(seed: int, gap_clip: float) -> None:
    new_RV, old_RV, teacher_RV, ids_RJ, valid_RJ = rows(seed)
    new, old, teacher = (x.log_softmax(-1).gather(-1, ids_RJ) for x in (new_RV, old_RV, teacher_RV))
    loss, found = topk_loss(new, old, teacher, valid_RJ, gap_clip=gap_clip, clip_low=0.2, clip_high=0.28)
    expected = [
        plain.topk_loss(*row, gap_clip, 0.2, 0.28)
        for row in zip(log_rows(new_RV), log_rows(old_RV), log_rows(teacher_RV), members(ids_RJ, valid_RJ), strict=True)
    ]
    for got, column in zip((loss, found["clipped"], found["gap"]), zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(got, torch.tensor(column, dtype=F64), check_dtype=False)
    assert found["size"].tolist() == valid_RJ.sum(-1).tolist()
    assert loss[0] == 0.0


def test_topk_at_a_ratio_of_one_has_the_gradient_of_the_truncated_reverse_kl() -> None:
    """−Σ w Δ ∇ℓ: per member the weight times the gap, whatever the clip of the ratio."""
    _, old_RV, teacher_RV, ids_RJ, valid_RJ = rows(1)
    old, teacher = (x.log_softmax(-1).gather(-1, ids_RJ) for x in (old_RV, teacher_RV))
    new = old.clone().requires_grad_()
    loss, _ = topk_loss(new, old, teacher, valid_RJ, gap_clip=0.5, clip_low=0.2, clip_high=0.28)
    loss.sum().backward()
    expected = -subset_weights(old, valid_RJ) * (teacher - old).clamp(-0.5, 0.5)
    torch.testing.assert_close(new.grad, expected)


def test_the_weights_are_those_of_the_old_policy_within_the_subset() -> None:
    old = torch.tensor([[0.5, 0.25, 0.125]], dtype=F64).log()
    weights = subset_weights(old, torch.tensor([[True, True, False]]))
    torch.testing.assert_close(weights, torch.tensor([[2 / 3, 1 / 3, 0.0]], dtype=F64))
    assert subset_weights(old, torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_stands_at_an_empty_place_does_not_matter(garbage: float) -> None:
    new_RV, old_RV, teacher_RV, ids_RJ, valid_RJ = rows(2)
    clean = [x.log_softmax(-1).gather(-1, ids_RJ) for x in (new_RV, old_RV, teacher_RV)]
    dirty = [x.masked_fill(~valid_RJ, garbage) for x in clean]
    results = []
    for new, old, teacher in (clean, dirty):
        leaf = new.clone().requires_grad_()
        topk, found = topk_loss(leaf, old, teacher, valid_RJ, gap_clip=1.0, clip_low=0.2, clip_high=0.28)
        tail = reverse_kl_with_tail(leaf, teacher, valid_RJ)
        (topk + tail).sum().backward()
        results.append((topk, tail, found["gap"], leaf.grad))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("seed", range(4))
def test_gradients(seed: int) -> None:
    new_RV, old_RV, teacher_RV, ids_RJ, valid_RJ = rows(seed)
    new, old, teacher = (x.log_softmax(-1).gather(-1, ids_RJ) for x in (new_RV, old_RV, teacher_RV))
    new.requires_grad_()

    def topk(x: Tensor) -> Tensor:
        return topk_loss(x, old, teacher, valid_RJ, gap_clip=1.0, clip_low=0.2, clip_high=0.28)[0]

    def token(x: Tensor) -> Tensor:
        return token_loss(x, old, teacher, gap_clip=1.0, clip_low=0.2, clip_high=0.28)[0]

    assert torch.autograd.gradcheck(topk, new)
    assert torch.autograd.gradcheck(token, new)
    assert torch.autograd.gradcheck(lambda x: reverse_kl_with_tail(x, teacher, valid_RJ), new)


def test_the_forward_kl_is_the_formula_and_its_gradient_is_that_of_the_kl() -> None:
    new_RV, _, teacher_RV, _, _ = rows(3)
    logits = new_RV.clone().requires_grad_()
    new, teacher = logits.log_softmax(-1), teacher_RV.log_softmax(-1)
    loss = forward_kl(new, teacher)
    torch.testing.assert_close(
        loss, torch.nn.functional.kl_div(new, teacher, log_target=True, reduction="none").sum(-1)
    )
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(grad, new_RV.softmax(-1) - teacher_RV.softmax(-1))


def test_the_forward_kl_raises_a_token_that_the_student_never_says() -> None:
    """The reason for it: the student's own top-k cannot name that token, so its loss leaves it where it is."""
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0, -9.0]], dtype=F64, requires_grad=True)
    teacher = torch.tensor([[0.0, 0.0, 0.0, 0.0, 6.0]], dtype=F64).log_softmax(-1)
    new = logits.log_softmax(-1)
    likely = teacher.topk(2).indices
    loss = forward_kl(new.gather(-1, likely), teacher.gather(-1, likely))
    (grad,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
    assert grad[0, 4] < -0.9
    own = new.detach().topk(2).indices
    one, two, three = (x.gather(-1, own) for x in (new, new.detach(), teacher))
    topk, _ = topk_loss(
        one, two, three, torch.ones_like(own, dtype=torch.bool), gap_clip=1.0, clip_low=0.2, clip_high=0.28
    )
    (grad,) = torch.autograd.grad(topk.sum(), logits)
    assert grad[0, 4].abs() < 1e-3


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]))
def test_token_level_is_the_formula(seed: int, gap_clip: float) -> None:
    new_RV, old_RV, teacher_RV, ids_RJ, _ = rows(seed)
    new, old, teacher = (x.log_softmax(-1).gather(-1, ids_RJ)[:, 0] for x in (new_RV, old_RV, teacher_RV))
    loss, found = token_loss(new, old, teacher, gap_clip=gap_clip, clip_low=0.2, clip_high=0.2)
    for i in range(len(new)):
        gap = teacher[i].item() - old[i].item()
        advantage = plain.clip(gap, -gap_clip, gap_clip) if gap_clip else gap
        expected, clipped = plain.surrogate(new[i].item() - old[i].item(), advantage, 0.2, 0.2)
        assert loss[i].item() == pytest.approx(expected)
        assert found["clipped"][i].item() == clipped
        assert found["gap"][i].item() == pytest.approx(abs(gap))


@given(st.integers(0, 10**6))
def test_reverse_kl_is_the_formula(seed: int) -> None:
    new_RV, _, teacher_RV, ids_RJ, valid_RJ = rows(seed)
    new, teacher = (x.log_softmax(-1).gather(-1, ids_RJ) for x in (new_RV, teacher_RV))
    loss = reverse_kl_with_tail(new, teacher, valid_RJ)
    expected = [
        plain.reverse_kl(*row)
        for row in zip(log_rows(new_RV), log_rows(teacher_RV), members(ids_RJ, valid_RJ), strict=True)
    ]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=F64))
    assert (loss > -1e-12).all(), "a divergence, and merging bins keeps it one"


def test_with_all_but_one_token_in_the_subset_the_tail_is_that_token() -> None:
    new, teacher = torch.tensor([[[0.5, 0.3, 0.2]], [[0.2, 0.3, 0.5]]], dtype=F64).log()
    loss = reverse_kl_with_tail(new[:, :2], teacher[:, :2], torch.ones(1, 2, dtype=torch.bool))
    torch.testing.assert_close(loss, (new.exp() * (new - teacher)).sum(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tail_without_mass_is_finite_and_so_is_its_gradient(dtype: torch.dtype) -> None:
    sure = torch.tensor([[0.0, -80.0], [-1e-9, -21.0], [-90.0, -95.0]], dtype=dtype, requires_grad=True)
    loss = reverse_kl_with_tail(sure, sure.detach().flip(-1), torch.ones(3, 2, dtype=torch.bool))
    loss.sum().backward()
    assert log_tail(sure)[0].item() == pytest.approx(math.log(1e-7), rel=0.02)
    assert loss.isfinite().all()
    assert sure.grad is not None
    assert sure.grad.isfinite().all()
