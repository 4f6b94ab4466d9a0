"""The published recipe on numbers computed by hand: raw ±1, no baseline, a frozen teacher that reads every sample.

Probabilities are powers of two, so that log-probs are whole multiples of ln 2:

    student  1/2  1/4  1/8  1/16 | 1/32 1/32      top 4 = tokens 0–3, weights within them 8/15 4/15 2/15 1/15
    teacher  1/4  1/2  1/8  1/64   1/64 3/32      gaps −ln 2, ln 2, 0, −2 ln 2 -> clipped to −1

    L_OPD = −(−8/15 ln 2 + 4/15 ln 2 + 0 − 1/15) = (4 ln 2 + 1) / 15
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from openclaw_rl.train.objective.aggregate import BatchMean
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import DenseRows
from openclaw_rl.train.objective.sample import SampleTensors, sample_tensors
from openclaw_rl.types import Candidate, Sample, VersionSpan
from tests.unit.train.objective.cases import F64, settings

LN2 = math.log(2)
STUDENT = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32)
TEACHER = (1 / 4, 1 / 2, 1 / 8, 1 / 64, 1 / 64, 3 / 32)
AGREEING = (3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 32, 1 / 32)  # the same top 4 as the student
OPD = (4 * LN2 + 1) / 15
TEMPERATURE = 0.6
UNHINTED = Candidate(hint="", num_shared=3, suffix_ids=())
HINTED = Candidate(hint="Answer more briefly.", num_shared=2, suffix_ids=(40, 41, 42))


def sample(reward: float, *candidates: Candidate, response: tuple[int, ...] = (0, 1)) -> Sample:
    return Sample(
        id="s-1.0",
        line="ann",
        kind="turn",
        session="s-1",
        index=0,
        prompt_index=0,
        created_at=0.0,
        prompt_ids=(1, 2, 3),
        response_ids=response,
        loss_mask=(True,) * len(response),
        advantages=(reward,) * len(response),
        logprobs=(-9.0,) * len(response),
        temperature=TEMPERATURE,
        on_policy=True,
        reward=reward,
        w_rl=1.0,
        w_opd=1.0,
        candidates=candidates,
        version_spans=(VersionSpan("v0", 0, len(response)),),
    )


def logits(probabilities: tuple[float, ...], size: int = 2) -> Tensor:
    """Which, divided by the temperature, give these probabilities."""
    return torch.tensor([probabilities] * size, dtype=F64).log() * TEMPERATURE


def rows(probabilities: tuple[float, ...], size: int = 2) -> DenseRows:
    return DenseRows(logits(probabilities, size), TEMPERATURE)


def tensors(made: Sample) -> SampleTensors:
    return sample_tensors(made, dtype=F64)


@pytest.mark.parametrize("reward", [1.0, 0.0, -1.0])
def test_a_hinted_sample_has_the_raw_reward_and_the_sum_over_the_subset(reward: float) -> None:
    made, loss = tensors(sample(reward, HINTED)), HybridLoss(settings())
    student = rows(STUDENT)
    loss_R, metrics = loss(student, made, loss.target(student, made, teachers=[rows(TEACHER)]))
    assert loss_R.tolist() == pytest.approx([-reward + OPD] * 2)
    assert metrics["loss_opd"].item() == pytest.approx(OPD)
    assert metrics["overlap"].item() == 3.0  # token 5 is the teacher's, token 3 is not
    assert metrics["teacher_gap"].item() == pytest.approx((8 + 4 + 2) / 15 * LN2)


def test_a_sample_without_a_hint_is_pulled_to_the_frozen_teacher() -> None:
    """Its only candidate is its own prompt: nothing while the policy is the base model, and more as it moves away."""
    made = sample(1.0, UNHINTED)
    assert made.teacher_prompt(UNHINTED) == made.prompt_ids
    loss = HybridLoss(settings())
    losses = []
    for student in (rows(TEACHER), rows(STUDENT)):
        target = loss.target(student, tensors(made), teachers=[rows(TEACHER)])
        losses.append(loss(student, tensors(made), target)[0].tolist())
    assert losses[0] == pytest.approx([-1.0, -1.0])
    assert losses[1] == pytest.approx([-1.0 + OPD] * 2)


def test_the_gradient_by_hand() -> None:
    """At ρ = 1: A·(p − e_y) + Σ w Δ · (p − e_v), over the temperature, for the mean of the response's two tokens."""
    made, loss = tensors(sample(-1.0, HINTED)), HybridLoss(settings())
    leaf = logits(STUDENT).requires_grad_()
    student = DenseRows(leaf, TEMPERATURE)
    loss_R, _ = loss(student, made, loss.target(student, made, teachers=[rows(TEACHER)]))
    BatchMean(num_samples=1, num_tokens=2).share(loss_R, made.mask).backward()
    weighted = [-8 / 15 * LN2, 4 / 15 * LN2, 0.0, -1 / 15, 0.0, 0.0]
    for i, token in enumerate((0, 1)):
        for v, probability in enumerate(STUDENT):
            rl = -1.0 * (probability - (v == token))
            opd = sum(weighted) * probability - weighted[v]
            assert leaf.grad is not None
            assert leaf.grad[i, v].item() == pytest.approx((rl + opd) / TEMPERATURE / 2)


def test_of_two_hints_the_one_that_agrees_more_teaches() -> None:
    """AGREEING shares 4 of 4 with the student, TEACHER 3; its gaps are ln 3/4, 0, ln 3/2, ln 2."""
    made, loss = tensors(sample(0.0, HINTED, HINTED)), HybridLoss(settings())
    student = rows(STUDENT)
    target = loss.target(student, made, teachers=[rows(TEACHER), rows(AGREEING)])
    loss_R, metrics = loss(student, made, target)
    expected = -(8 * math.log(3 / 4) + 2 * math.log(3 / 2) + LN2) / 15
    assert loss_R.tolist() == pytest.approx([expected] * 2)
    assert (metrics["hint"].item(), metrics["overlap"].item()) == (1.0, 4.0)


def test_a_second_epoch_is_clipped_at_80_and_128_percent() -> None:
    """Token 0 rose to 3/4 (ρ = 1.5), token 1 fell to 1/8 (ρ = 0.5); its gap is positive, so a fall is not clipped."""
    moved = (3 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 64)
    made, loss = tensors(sample(1.0, HINTED)), HybridLoss(settings())
    target = loss.target(rows(STUDENT), made, teachers=[rows(TEACHER)])
    loss_R, metrics = loss(rows(moved), made, target)
    opd = 8 / 15 * LN2 * 1.5 - 4 / 15 * LN2 * 0.5 + 1 / 15 * 0.8
    assert loss_R.tolist() == pytest.approx([-1.28 + opd, -0.5 + opd])
    assert metrics["clipped_rl"].item() == 0.5
    assert metrics["clipped_opd"].item() == 0.25


def test_a_batch_is_the_mean_of_its_samples_whatever_their_length() -> None:
    loss = HybridLoss(settings())
    batch = [sample(1.0, HINTED, response=(0,)), sample(-1.0, HINTED, response=(0, 1, 2, 3))]
    mean = BatchMean(num_samples=2, num_tokens=5)
    total = 0.0
    for made in map(tensors, batch):
        size = len(made.response_ids)
        target = loss.target(rows(STUDENT, size), made, teachers=[rows(TEACHER, size)])
        total += mean.share(loss(rows(STUDENT, size), made, target)[0], made.mask).item()
    assert total == pytest.approx(OPD)


def test_the_samplers_log_probs_weigh_nothing() -> None:
    """The published recipe corrects nothing; ours with a limit of 2 does: π_old / π_sampler is 2^-1 e^9 here."""
    made = tensors(sample(1.0, HINTED))
    losses = []
    for limit in (None, 2.0):
        loss = HybridLoss(settings(importance_clip=limit))
        target = loss.target(rows(STUDENT), made, teachers=[rows(TEACHER)])
        losses.append(loss(rows(STUDENT), made, target)[0].tolist())
    assert losses == [pytest.approx([-1.0 + OPD] * 2), pytest.approx([-2.0 + OPD] * 2)]
