"""Hints alone: a turn teaches where the reaction to it said what should have been different (on-policy distillation).

Whether the score failed, tied or said nothing does not matter: an accepted hint comes from valid votes of its own.
"""

from __future__ import annotations

from openclaw_rl.config import TrainingConfig
from openclaw_rl.types import SignalWeights, Skip, Verdict


class Opd:
    """`protocols.CreditRule` of `training.method: opd`."""

    name = "opd"

    def __init__(self, training: TrainingConfig) -> None:
        self._weight = training.opd_weight

    def weigh(self, verdict: Verdict) -> SignalWeights | Skip:
        if verdict.hints:
            return SignalWeights(reward=0.0, w_rl=0.0, w_opd=self._weight)
        return Skip.JUDGE_FAILED if verdict.outcome == "failed" else Skip.NO_HINT
