"""What each method learns from a verdict, and why not."""

from __future__ import annotations

import pytest

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.registry import CREDIT_RULES
from openclaw_rl.types import Skip, Verdict, Weights
from tests.unit.credit.made import HINT, abstained, failed, scored


def weights(reward: float, w_rl: float, w_opd: float) -> Weights:
    return Weights(reward=reward, w_rl=w_rl, w_opd=w_opd)


RL_GOOD, RL_BAD, HINT_ONLY = weights(1.0, 2.0, 0.0), weights(-1.0, 2.0, 0.0), weights(0.0, 0.0, 0.5)

TABLE: list[tuple[Verdict, dict[str, Weights | Skip]]] = [
    (scored(1), {"combine": RL_GOOD, "binary": RL_GOOD, "opd": Skip.NO_HINT}),
    (scored(-1), {"combine": RL_BAD, "binary": RL_BAD, "opd": Skip.NO_HINT}),
    (scored(0), {"combine": Skip.NEUTRAL, "binary": Skip.NEUTRAL, "opd": Skip.NO_HINT}),
    (abstained(), {"combine": Skip.ABSTAINED, "binary": Skip.ABSTAINED, "opd": Skip.NO_HINT}),
    (failed(), {"combine": Skip.JUDGE_FAILED, "binary": Skip.JUDGE_FAILED, "opd": Skip.JUDGE_FAILED}),
    (scored(1, HINT), {"combine": weights(1.0, 2.0, 0.5), "binary": RL_GOOD, "opd": HINT_ONLY}),
    (scored(-1, HINT), {"combine": weights(-1.0, 2.0, 0.5), "binary": RL_BAD, "opd": HINT_ONLY}),
    (scored(0, HINT), {"combine": HINT_ONLY, "binary": Skip.NEUTRAL, "opd": HINT_ONLY}),
    (abstained(HINT), {"combine": HINT_ONLY, "binary": Skip.ABSTAINED, "opd": HINT_ONLY}),
    (failed(HINT), {"combine": HINT_ONLY, "binary": Skip.JUDGE_FAILED, "opd": HINT_ONLY}),
]


@pytest.mark.parametrize("method", ["combine", "binary", "opd"])
@pytest.mark.parametrize(("verdict", "expected"), TABLE, ids=lambda value: str(value)[:60])
def test_dispatch(verdict: Verdict, expected: dict[str, Weights | Skip], method: str) -> None:
    rule = CREDIT_RULES[method](TrainingConfig(binary_weight=2.0, opd_weight=0.5))
    assert rule.name == method
    assert rule.weigh(verdict) == expected[method]


@pytest.mark.parametrize(
    ("verdict", "without_scores", "without_hints"),
    [
        (scored(-1, HINT), weights(0.0, 0.0, 1.0), weights(-1.0, 1.0, 0.0)),
        (scored(-1), Skip.NO_HINT, weights(-1.0, 1.0, 0.0)),
        (scored(0, HINT), weights(0.0, 0.0, 1.0), Skip.NEUTRAL),
        (failed(), Skip.JUDGE_FAILED, Skip.JUDGE_FAILED),
    ],
)
def test_a_weight_of_zero_switches_its_signal_off(
    verdict: Verdict, without_scores: Weights | Skip, without_hints: Weights | Skip
) -> None:
    assert CREDIT_RULES["combine"](TrainingConfig(binary_weight=0.0)).weigh(verdict) == without_scores
    assert CREDIT_RULES["combine"](TrainingConfig(binary_weight=1.0, opd_weight=0.0)).weigh(verdict) == without_hints


def test_every_method_of_the_configuration_has_a_rule() -> None:
    method = TrainingConfig.model_fields["method"].annotation
    assert set(CREDIT_RULES) == set(method.__args__)  # type: ignore[union-attr]
