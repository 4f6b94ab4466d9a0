"""What a critic expected of an answer, and what came of it -> advantages token by token, and what it should have said.

Generalised advantage estimation (https://arxiv.org/abs/1506.02438) inside one answer: V_i is what the critic expects
when token i is about to be drawn; the answer's one reward arrives with its last token, and nothing is discounted on the
way. The critic's own loss is `value_loss` in penalties.py. Knows no head and no network.

Axes: R response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from openclaw_rl.train.objective.sample import Expected


def token_advantages(values: list[float], reward: float, *, lam: float) -> list[float]:
    """A_i = δ_i + λ A_{i+1}, δ_i = V_{i+1} − V_i, and δ = reward − V at the last token."""
    advantages = [0.0] * len(values)
    next_value, next_advantage = reward, 0.0
    for i in reversed(range(len(values))):
        advantages[i] = next_advantage = next_value - values[i] + lam * next_advantage
        next_value = values[i]
    return advantages


def expectation(old_R: Tensor, advantages_R: Tensor, mask_R: Tensor, *, lam: float) -> Expected:
    """Measures an answer by what was expected of it before the step.

    `advantages_R` is what credit gave; what stands at the last token that counts is the answer's reward. Tokens that do
    not count are no part of the answer: they have no advantage, and the critic is right about them. One walk over
    Python's floats for each answer and step: on tensors it would be an operation for every token.
    """
    old, given, mask = old_R.tolist(), advantages_R.tolist(), mask_R.tolist()
    counting = [i for i, counts in enumerate(mask) if counts]
    advantages, returns = [0.0] * len(old), list(old)
    found = token_advantages([old[i] for i in counting], given[counting[-1]] if counting else 0.0, lam=lam)
    for i, advantage in zip(counting, found, strict=True):
        advantages[i] = advantage
        returns[i] = advantage + old[i]
    return Expected(
        old=old_R,
        advantages=torch.tensor(advantages, dtype=old_R.dtype, device=old_R.device),
        returns=torch.tensor(returns, dtype=old_R.dtype, device=old_R.device),
    )
