"""Scores and hints: whichever of the two a reaction gave, and both where it gave both.

    hint accepted   score    learned from
    -------------   ------   -----------------------------------
    yes             ±1       both
    yes             0, none  the hint (reward 0, w_rl 0)
    no              ±1       the score (w_opd 0, no candidates)
    no              0, none  nothing: a skip with its reason

A weight of 0 in the configuration switches its signal off; a turn that had no other is skipped like one without it.
"""

from __future__ import annotations

from dataclasses import replace

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.binary import Binary
from openclaw_rl.credit.opd import Opd
from openclaw_rl.types import SignalWeights, Skip, Verdict


class Combine:
    """`protocols.CreditRule` of `training.method: combine`."""

    name = "combine"

    def __init__(self, training: TrainingConfig) -> None:
        self._binary = Binary(training)
        self._opd = Opd(training)
        self._scores_teach = training.binary_weight > 0.0
        self._hints_teach = training.opd_weight > 0.0

    def weigh(self, verdict: Verdict) -> SignalWeights | Skip:
        score, hint = self._binary.weigh(verdict), self._opd.weigh(verdict)
        if not self._scores_teach:
            return hint
        if not self._hints_teach or isinstance(hint, Skip):
            return score
        if isinstance(score, Skip):
            return hint
        return replace(score, w_opd=hint.w_opd)
