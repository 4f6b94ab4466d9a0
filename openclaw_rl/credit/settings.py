"""What of the configuration credit goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from openclaw_rl.config import RolloutConfig, TrainingConfig
from openclaw_rl.credit.measures import MEASURES, Measure
from openclaw_rl.credit.registry import CREDIT_RULES
from openclaw_rl.protocols import CreditRule


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditSettings:
    """`unhinted_weight` is the w_opd of samples that were scored without a hint, against a teacher that reads the very
    same prompt: 0, except in the published recipe, where it pulls towards the base model.
    """

    rule: CreditRule
    measure: Measure
    hint_placement: Literal["after_history", "last_user"]
    unhinted_weight: float
    truncated: Literal["hint", "score", "skip"]
    claims: Literal["skip", "learn"]
    rewrite_weight: float
    baseline_decay: float
    gamma: float
    lam: float
    min_turns: int

    @classmethod
    def of(cls, training: TrainingConfig, rollout: RolloutConfig) -> Self:
        measure = MEASURES[training.advantage]
        if measure.needs_end and not rollout.session_aware:
            measure = MEASURES["raw"]  # what is left of it where each turn stands alone
        return cls(
            rule=CREDIT_RULES[training.method](training),
            measure=measure,
            hint_placement=training.hint_placement,
            unhinted_weight=training.opd_weight if training.unhinted_opd and training.method == "combine" else 0.0,
            truncated=training.truncated,
            claims=training.claims,
            rewrite_weight=training.binary_weight if training.accepted_rewrites else 0.0,
            baseline_decay=training.baseline_decay,
            gamma=training.gae_gamma,
            lam=training.gae_lambda,
            min_turns=rollout.min_turns,
        )
