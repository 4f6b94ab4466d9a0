"""What the loss holds against a policy beside its rewards, and the loss of a critic.

Estimators of the divergence: http://joschu.net/blog/kl-approx.html. Value clipping: https://arxiv.org/abs/1707.06347.

Axes: R response tokens, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.settings import KlType

MAX_K3 = 10.0
_LOWEST_DIFFERENCE = -20.0
"""Below it k3 is clamped anyway; its exponential must stay finite, or the clamp's gradient would be 0 · inf."""


def kl_to_base(new_R: Tensor, base_R: Tensor, kind: KlType) -> Tensor:
    """The divergence from the base model, estimated on the tokens that were drawn; d = new − base.

    k1 = d has the right mean, but a gradient of mean zero: as a penalty it only adds noise and is here for comparison.
    k2 = d²/2 has the gradient of the divergence; k3 = e^−d − 1 + d, within ±10, is never negative and varies least.
    """
    difference_R = new_R - base_R
    match kind:
        case "k1":
            return difference_R
        case "k2":
            return difference_R.square() / 2
        case "k3":
            difference_R = difference_R.clamp(min=_LOWEST_DIFFERENCE)
            return (torch.expm1(-difference_R) + difference_R).clamp(-MAX_K3, MAX_K3)


def entropy(logprobs_RV: Tensor) -> Tensor:
    """−Σ p log p of whole rows, [R]; tokens of probability 0 add nothing. Needs [R, V]."""
    finite_RV = logprobs_RV.clamp(min=torch.finfo(logprobs_RV.dtype).min)
    return -(logprobs_RV.exp() * finite_RV).sum(-1)


def value_loss(values_R: Tensor, old_R: Tensor, returns_R: Tensor, *, clip: float | None) -> tuple[Tensor, Tensor]:
    """½ max((V − G)², (V_old + clip(V − V_old, ±clip) − G)²), and where clipping made it larger; None = no clipping."""
    free_R = (values_R - returns_R).square() / 2
    if clip is None:
        return free_R, torch.zeros_like(free_R, dtype=torch.bool)
    clipped_R = (old_R + (values_R - old_R).clamp(-clip, clip) - returns_R).square() / 2
    return torch.maximum(free_R, clipped_R), clipped_R > free_R
