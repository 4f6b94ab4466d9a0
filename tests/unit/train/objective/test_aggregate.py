"""Tokens become samples and samples a batch, in whatever parts it is computed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.train.objective.aggregate import BatchMean, sample_mean
from tests.unit.train.objective import plain
from tests.unit.train.objective.cases import F64

tokens = st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=6)


@given(st.lists(tokens, min_size=1, max_size=5))
def test_a_batch_is_the_mean_of_its_samples_means(batch: list[list[tuple[float, bool]]]) -> None:
    mean = BatchMean(num_samples=len(batch), num_tokens=0)
    total = sum(mean.share(*tensors(sample)).item() for sample in batch)
    expected = sum(plain.sample_mean(*zip(*sample, strict=True)) for sample in batch) / len(batch)
    assert total == pytest.approx(expected)


@given(st.lists(tokens, min_size=1, max_size=5))
def test_or_of_all_its_tokens(batch: list[list[tuple[float, bool]]]) -> None:
    flat = [token for sample in batch for token in sample]
    mean = BatchMean(num_samples=len(batch), num_tokens=sum(counts for _, counts in flat), per_token=True)
    total = sum(mean.share(*tensors(sample)).item() for sample in batch)
    assert total == pytest.approx(plain.sample_mean(*zip(*flat, strict=True)))


def test_a_sample_without_tokens_is_zero_and_stays_in_the_denominator() -> None:
    mean = BatchMean(num_samples=2, num_tokens=1)
    assert mean.share(torch.tensor([3.0, 9.0]), torch.tensor([True, False])).item() == 1.5
    assert mean.share(torch.tensor([3.0]), torch.tensor([False])).item() == 0.0


@pytest.mark.parametrize("garbage", [math.nan, math.inf])
def test_what_stands_at_a_masked_token_does_not_matter(garbage: float) -> None:
    values = torch.tensor([1.0, garbage, 3.0], requires_grad=True)
    mean = sample_mean(values, torch.tensor([True, False, True]))
    mean.backward()
    assert values.grad is not None
    assert (mean.item(), values.grad.tolist()) == (2.0, [0.5, 0.0, 0.5])


def tensors(sample: list[tuple[float, bool]]) -> tuple[torch.Tensor, torch.Tensor]:
    values, mask = zip(*sample, strict=True)
    return torch.tensor(values, dtype=F64), torch.tensor(mask)
