"""Rewards to advantages: five formulas, pure, in plain floats.

r  a reward        A  an advantage        V  a value, the reward that was to be expected
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from openclaw_rl.types import Baseline
from openclaw_rl.types.checks import require

EPSILON = 1e-6
"""Added to a standard deviation before something is divided by it."""


def raw(reward: float) -> float:
    """A = r, as the published recipe has it: whoever is mostly praised is mostly reinforced, whatever was said."""
    return reward


def against_baseline(reward: float, baseline: Baseline) -> float:
    """A = r − m, with the running mean m as it was *before* this reward moved it."""
    return reward - baseline.mean


def moved(baseline: Baseline, reward: float, *, decay: float) -> Baseline:
    """m ← m + w (r − m) with w = max(1 / (n + 1), decay), n ← n + 1.

    The plain mean of the first 1 / decay rewards, and from then on one that forgets: people change.
    """
    weight = max(1.0 / (baseline.count + 1), decay)
    return replace(baseline, mean=baseline.mean + weight * (reward - baseline.mean), count=baseline.count + 1)


def without(baseline: Baseline, reward: float, *, decay: float) -> Baseline:
    """The mean as it was before it counted this reward: m ← (m − w r) / (1 − w), n ← n − 1, w as in `moved`.

    Exact for the newest reward and near it for an older one; a mean of nothing is 0.
    """
    weight = max(1.0 / max(baseline.count, 1), decay)
    mean = 0.0 if weight >= 1.0 else (baseline.mean - weight * reward) / (1.0 - weight)
    return replace(baseline, mean=mean, count=max(baseline.count - 1, 0))


def group_normalised(rewards: Sequence[float]) -> list[float]:
    """A_i = (r_i − mean(r)) / (s + 1e-6), s² = Σ (r_i − mean(r))² / (n − 1), over answers to one and the same prompt.

    Equal rewards say nothing about which answer is better: all zeros. One alone has nobody to be compared with: A = r.
    """
    if len(rewards) == 1:
        return list(rewards)
    if len(set(rewards)) <= 1:
        return [0.0] * len(rewards)
    mean = fmean(rewards)
    deviation = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (deviation + EPSILON) for reward in rewards]


def session_gae(
    rewards: Sequence[float], values: Sequence[float] | None = None, *, gamma: float, lam: float
) -> list[float]:
    """A_t = δ_t + γ λ A_{t+1}, δ_t = r_t + γ V_{t+1} − V_t, over the turns of a session in order; nothing follows the
    last (arXiv 1506.02438). Without a critic every V is 0: A_t = Σ_k (γ λ)^k r_{t+k}.
    """
    values = [0.0] * len(rewards) if values is None else values
    require(len(values) == len(rewards), f"{len(rewards)} rewards came with {len(values)} values")
    advantages = [0.0] * len(rewards)
    next_value = next_advantage = 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * next_value - values[t]
        advantages[t] = next_advantage = delta + gamma * lam * next_advantage
        next_value = values[t]
    return advantages


def step_wise(worth: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """A_k = (R_k − mean) / (s + 1e-6), s² = Σ (R − mean)² / n, among the k-th steps of all attempts at one task.

    `worth[i][k]` is R_k = outcome + score of step k of attempt i; None takes no part. A step that no other attempt
    reached keeps R_k. None: all attempts were worth the same at step k, so it teaches nothing.
    """
    longest = max(map(len, worth), default=0)
    kth = [[row[k] for row in worth if k < len(row)] for k in range(longest)]
    scales = [_scale([value for value in values if value is not None]) for values in kth]
    return [[_scaled(value, scale) for value, scale in zip(row, scales, strict=False)] for row in worth]


def _scale(values: Sequence[float]) -> tuple[float, float] | None:
    """What is subtracted from each of these values, and what the difference is divided by."""
    if len(values) == 1:
        return 0.0, 1.0
    if len(set(values)) <= 1:
        return None
    mean = fmean(values)
    return mean, math.sqrt(fmean((value - mean) ** 2 for value in values)) + EPSILON


def _scaled(value: float | None, scale: tuple[float, float] | None) -> float | None:
    return None if value is None or scale is None else (value - scale[0]) / scale[1]
