"""Log-probs of student and hinted teacher become a loss per token: four ways of moving the one towards the other.

Log-probs are those of the full vocabulary and are never renormalised within a subset: if they were, the student could
satisfy the loss by moving probability out of the subset. `old` and `teacher` have no gradient.

Axes: R response tokens, J tokens of the subset.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.policy import clipped_surrogate

NOWHERE = -1e4
"""The log-prob of an empty place: its probability is exactly 0 in every dtype, and its gradient is 0, not NaN."""
_NEARLY_ALL = -1e-7
"""The largest log of a subset's mass that leaves a tail with a logarithm."""


def topk_loss(
    new_RJ: Tensor,
    old_RJ: Tensor,
    teacher_RJ: Tensor,
    valid_RJ: Tensor,
    *,
    gap_clip: float,
    clip_low: float,
    clip_high: float,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Top-k OPD (docs/algorithms.md): each member's advantage is its gap to the teacher times its share of the subset.

    The sum over the subset, [R]; 0 where it is empty. With it, per token: the share of members that were `clipped`, the
    mean `gap` before its clip, the `size` of the subset.
    """
    gap_RJ = teacher_RJ - old_RJ
    weights_RJ = subset_weights(old_RJ, valid_RJ)
    advantages_RJ = (weights_RJ * clip_gap(gap_RJ, gap_clip)).masked_fill(~valid_RJ, 0.0).detach()
    log_ratio_RJ = (new_RJ - old_RJ).masked_fill(~valid_RJ, 0.0)
    loss_RJ, clipped_RJ = clipped_surrogate(log_ratio_RJ, advantages_RJ, clip_low=clip_low, clip_high=clip_high)
    size_R = valid_RJ.sum(-1)
    return loss_RJ.sum(-1), {
        "clipped": clipped_RJ.sum(-1) / size_R.clamp(min=1),
        "gap": (weights_RJ * gap_RJ.abs()).masked_fill(~valid_RJ, 0.0).sum(-1).detach(),
        "size": size_R,
    }


def subset_weights(old_RJ: Tensor, valid_RJ: Tensor) -> Tensor:
    """The old policy within the subset, adding up to 1; 0 at empty places, so all 0 in an empty subset."""
    weights_RJ = old_RJ.detach().masked_fill(~valid_RJ, NOWHERE).softmax(-1)
    return weights_RJ.masked_fill(~valid_RJ, 0.0)


def clip_gap(gap: Tensor, limit: float) -> Tensor:
    """Within ±limit; 0 = no limit."""
    return gap.clamp(-limit, limit) if limit > 0 else gap


def token_loss(
    new_R: Tensor, old_R: Tensor, teacher_R: Tensor, *, gap_clip: float, clip_low: float, clip_high: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Token-level OPD: the advantage of the token that was drawn is its gap to the teacher."""
    gap_R = (teacher_R - old_R).detach()
    loss_R, clipped_R = clipped_surrogate(
        new_R - old_R, clip_gap(gap_R, gap_clip), clip_low=clip_low, clip_high=clip_high
    )
    return loss_R, {"clipped": clipped_R.to(new_R.dtype), "gap": gap_R.abs()}


def reverse_kl_with_tail(new_RJ: Tensor, teacher_RJ: Tensor, valid_RJ: Tensor) -> Tensor:
    """KL(student ‖ teacher) over the subset's members and one bin for everything else, [R]; differentiated directly."""
    new_RJ = new_RJ.masked_fill(~valid_RJ, NOWHERE)
    teacher_RJ = teacher_RJ.masked_fill(~valid_RJ, NOWHERE)
    tail_R, teacher_tail_R = log_tail(new_RJ), log_tail(teacher_RJ)
    members_R = (new_RJ.exp() * (new_RJ - teacher_RJ)).sum(-1)
    return members_R + tail_R.exp() * (tail_R - teacher_tail_R)


def forward_kl(new_RJ: Tensor, teacher_RJ: Tensor) -> Tensor:
    """KL(teacher ‖ student) over the teacher's likeliest tokens, [R]: it also reaches what the student never says."""
    return (teacher_RJ.exp() * (teacher_RJ - new_RJ)).sum(-1)


def log_tail(logprobs_RJ: Tensor) -> Tensor:
    """log(1 − Σ p), [R]; finite also where the subset has all of the mass."""
    return torch.log(-torch.expm1(logprobs_RJ.logsumexp(-1).clamp(max=_NEARLY_ALL)))
