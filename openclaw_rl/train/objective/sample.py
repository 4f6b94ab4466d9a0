"""One sample as tensors, and what is fixed about it before the first gradient of a step.

Axes: R response tokens, J tokens of the subset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openclaw_rl.types import Sample
from openclaw_rl.types.checks import require


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampleTensors:
    """What the loss reads of a `Sample`; the fields mean what they mean there.

    Whether anything is to be learned from it is known here without looking into a tensor, so that asking costs a GPU
    nothing: `has_tokens`, whether any token counts, and `has_advantage`, whether one of these has an advantage.
    """

    response_ids: Tensor
    """[R]"""
    mask: Tensor
    """[R], True where a token counts."""
    advantages: Tensor
    """[R]"""
    sampled: Tensor | None
    """[R], log-probs of the sampler; None where it answered another prompt."""
    on_policy: bool
    w_rl: float
    w_opd: float
    num_candidates: int
    has_tokens: bool
    has_advantage: bool
    is_demonstration: bool = False
    """The teacher's own answer: what the student's likeliest tokens are there says nothing, so the teacher's teach."""

    @classmethod
    def of(
        cls,
        *,
        response_ids: Sequence[int],
        loss_mask: Sequence[bool],
        advantages: Sequence[float],
        logprobs: Sequence[float] | None,
        on_policy: bool,
        w_rl: float,
        w_opd: float,
        num_candidates: int,
        is_demonstration: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> SampleTensors:
        """From plain numbers, as they come over the wire."""
        require(w_opd == 0 or num_candidates > 0, "w_opd needs a candidate to distil from")
        return cls(
            response_ids=torch.tensor(response_ids, dtype=torch.long, device=device),
            mask=torch.tensor(loss_mask, dtype=torch.bool, device=device),
            advantages=torch.tensor(advantages, dtype=dtype, device=device),
            sampled=None if logprobs is None else torch.tensor(logprobs, dtype=dtype, device=device),
            on_policy=on_policy,
            w_rl=w_rl,
            w_opd=w_opd,
            num_candidates=num_candidates,
            is_demonstration=is_demonstration,
            has_tokens=any(loss_mask),
            has_advantage=any(counts and value != 0 for counts, value in zip(loss_mask, advantages, strict=True)),
        )


def sample_tensors(
    sample: Sample, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> SampleTensors:
    """A sample's tensors; its prompt and its candidates' prompts are the forward passes' business."""
    return SampleTensors.of(
        response_ids=sample.response_ids,
        loss_mask=sample.loss_mask,
        advantages=sample.advantages,
        logprobs=sample.logprobs,
        on_policy=sample.on_policy,
        w_rl=sample.w_rl,
        w_opd=sample.w_opd,
        num_candidates=len(sample.candidates),
        is_demonstration=sample.kind == "demonstration",
        dtype=dtype,
        device=device,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guidance:
    """What the teacher says about a subset of the vocabulary at every position, under the hint chosen there."""

    ids: Tensor
    """[R, J], the subset."""
    valid: Tensor
    """[R, J], False where a place of the subset is empty."""
    old: Tensor
    """[R, J], log-probs under the weights before the step."""
    teacher: Tensor
    """[R, J], log-probs of the teacher."""
    chosen: Tensor
    """[R], the chosen candidate."""
    overlap: Tensor
    """[R], how many of the likeliest tokens student and teacher share, under the chosen hint."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expected:
    """What a critic expected of an answer before the step, and how the answer is measured by it."""

    old: Tensor
    """[R], its values then."""
    advantages: Tensor
    """[R], in place of the sample's; 0 where a token does not count."""
    returns: Tensor
    """[R], what the values should have been."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """What a step holds fixed while it changes the weights; made once per sample, used in every epoch of the batch."""

    old: Tensor
    """[R], log-probs of the response under the weights before the step."""
    base: Tensor | None = None
    """[R], the same under the base model; None where nothing asks."""
    guidance: Guidance | None = None
    """None where no teacher is asked."""
    expected: Expected | None = None
    """None where no critic is."""
