"""Which credit rule a method has, and what else of the configuration credit goes by.

A new rule is a new file and one line in `CREDIT_RULES`. Or the configuration says `training.method:
package.module:name`; the name is that of a class, made with the training settings, that fits `protocols.CreditRule`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from openclaw_rl.config import RolloutConfig, TrainingConfig
from openclaw_rl.credit.binary import Binary
from openclaw_rl.credit.combine import Combine
from openclaw_rl.credit.measures import MEASURES, Measure
from openclaw_rl.credit.opd import Opd
from openclaw_rl.errors import ConfigError
from openclaw_rl.plugins import load_named
from openclaw_rl.protocols import CreditRule

CREDIT_RULES: Mapping[str, Callable[[TrainingConfig], CreditRule]] = {
    "binary": Binary,
    "opd": Opd,
    "combine": Combine,
}


def make_rule(training: TrainingConfig) -> CreditRule:
    """The rule that `training.method` names, one of ours or the user's own."""
    if training.method in CREDIT_RULES:
        return CREDIT_RULES[training.method](training)
    _, made = load_named(training.method, "training.method")
    try:
        rule: CreditRule = made(training)
    except Exception as error:  # code of others may raise anything
        raise ConfigError(f"training.method {training.method!r} cannot be made: {error!r}") from error
    if not callable(getattr(rule, "weigh", None)):
        raise ConfigError(
            f"training.method {training.method!r} is no credit rule: it needs a `name` and weigh(verdict), as "
            "openclaw_rl/credit/binary.py has them"
        )
    return rule


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
            rule=make_rule(training),
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
