"""Scores alone: a turn that was judged good or bad teaches by its score; hints are not used."""

from __future__ import annotations

from openclaw_rl.config import TrainingConfig
from openclaw_rl.types import SignalWeights, Skip, Verdict


class Binary:
    """`protocols.CreditRule` of `training.method: binary`."""

    name = "binary"

    def __init__(self, training: TrainingConfig) -> None:
        self._weight = training.binary_weight

    def weigh(self, verdict: Verdict) -> SignalWeights | Skip:
        match verdict.outcome, verdict.reward:
            case "failed", _:
                return Skip.JUDGE_FAILED
            case "abstained", _:
                return Skip.ABSTAINED
            case _, None | 0.0:
                return Skip.NEUTRAL
            case _, reward:
                return SignalWeights(reward=reward, w_rl=self._weight, w_opd=0.0)
