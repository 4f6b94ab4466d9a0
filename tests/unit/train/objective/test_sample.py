"""A sample's tensors, and what is known of it without looking into them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from openclaw_rl.train.objective.sample import SampleTensors


def tensors(**changes: Any) -> SampleTensors:
    values: dict[str, Any] = {
        "response_ids": (5, 6),
        "loss_mask": (True, False),
        "advantages": (0.5, 1.0),
        "logprobs": (-0.1, -0.2),
        "on_policy": True,
        "w_rl": 1.0,
        "w_opd": 0.0,
        "num_candidates": 0,
    }
    return SampleTensors.of(**(values | changes))


def test_tensors_have_the_dtype_asked_for() -> None:
    made = tensors(dtype=torch.float64)
    assert [x.dtype for x in (made.response_ids, made.mask, made.advantages)] == [
        torch.int64,
        torch.bool,
        torch.float64,
    ]
    assert made.sampled is not None
    assert made.sampled.tolist() == [-0.1, -0.2]
    assert tensors(logprobs=None).sampled is None


@pytest.mark.parametrize(
    ("changes", "has_tokens", "has_advantage"),
    [
        ({}, True, True),
        ({"advantages": (0.0, 1.0)}, True, False),
        ({"loss_mask": (False, False)}, False, False),
    ],
)
def test_what_counts_is_known(changes: dict[str, Any], has_tokens: bool, has_advantage: bool) -> None:
    made = tensors(**changes)
    assert (made.has_tokens, made.has_advantage) == (has_tokens, has_advantage)


def test_distilling_needs_a_candidate() -> None:
    with pytest.raises(ValueError, match="w_opd needs a candidate"):
        tensors(w_opd=1.0)
