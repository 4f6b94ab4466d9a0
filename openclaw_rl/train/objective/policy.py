"""Log-ratios and advantages become a loss per token: PPO's clipped surrogate and its companions.

PPO: https://arxiv.org/abs/1707.06347, dual clip: https://arxiv.org/abs/1912.09729, sequence ratio (GSPO):
https://arxiv.org/abs/2507.18071. Elementwise but for `sequence_log_ratio`, so R may also be any other shape.

Axes: R response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.aggregate import sample_mean

MAX_LOG_RATIO = 20.0
"""Beyond it a ratio is as good as infinite, and its exponential must stay finite."""


def clipped_surrogate(
    log_ratio_R: Tensor, advantages_R: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> tuple[Tensor, Tensor]:
    """max(−Aρ, −A·clip(ρ, 1 − low, 1 + high)), for A < 0 at most −A·dual_clip; and where the clipped one was larger."""
    ratio_R = log_ratio_R.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    free_R = -advantages_R * ratio_R
    clipped_R = -advantages_R * ratio_R.clamp(1 - clip_low, 1 + clip_high)
    loss_R = torch.maximum(free_R, clipped_R)
    if dual_clip is not None:
        loss_R = torch.where(advantages_R < 0, torch.minimum(loss_R, -advantages_R * dual_clip), loss_R)
    return loss_R, clipped_R > free_R


def sequence_log_ratio(new_R: Tensor, old_R: Tensor, mask_R: Tensor) -> Tensor:
    """GSPO: every token of a response has the ratio of the whole, (π_new / π_old)^(1 / length)."""
    return sample_mean(new_R - old_R, mask_R).expand_as(new_R)


def importance_weights(old_R: Tensor, sampled_R: Tensor | None, *, max_weight: float | None, on_policy: bool) -> Tensor:
    """min(π_old / π_sampler, max_weight), without gradient: how much a drawn token counts that others drew.

    1 where the sampler's log-probs are unknown or `max_weight` is None. Answers that were not drawn from the recorded
    distribution (greedy, truncated, penalised) never count more than 1: how much more they should is unknown.
    """
    if sampled_R is None or max_weight is None:
        return torch.ones_like(old_R)
    limit = max_weight if on_policy else min(max_weight, 1.0)
    log_weight_R = (old_R - sampled_R).detach()
    return log_weight_R.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=limit)
