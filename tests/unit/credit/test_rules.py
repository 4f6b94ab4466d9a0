"""What each method learns from a verdict, and why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from openclaw_rl.config import TrainingConfig
from openclaw_rl.config.learning import METHODS
from openclaw_rl.credit.registry import CREDIT_RULES, make_rule
from openclaw_rl.errors import ConfigError
from openclaw_rl.types import SignalWeights, Skip, Verdict
from tests.factories.conversations import HINT, abstained, failed, scored


def weights(reward: float, w_rl: float, w_opd: float) -> SignalWeights:
    return SignalWeights(reward=reward, w_rl=w_rl, w_opd=w_opd)


RL_GOOD, RL_BAD, HINT_ONLY = weights(1.0, 2.0, 0.0), weights(-1.0, 2.0, 0.0), weights(0.0, 0.0, 0.5)

TABLE: list[tuple[Verdict, dict[str, SignalWeights | Skip]]] = [
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
def test_dispatch(verdict: Verdict, expected: dict[str, SignalWeights | Skip], method: str) -> None:
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
    verdict: Verdict, without_scores: SignalWeights | Skip, without_hints: SignalWeights | Skip
) -> None:
    assert CREDIT_RULES["combine"](TrainingConfig(binary_weight=0.0)).weigh(verdict) == without_scores
    assert CREDIT_RULES["combine"](TrainingConfig(binary_weight=1.0, opd_weight=0.0)).weigh(verdict) == without_hints


def test_every_method_of_the_configuration_has_a_rule() -> None:
    assert set(CREDIT_RULES) == set(METHODS)


def test_a_real_reward_is_learned_as_it_is() -> None:
    given = Verdict(outcome="scored", score=1, value=0.37)
    rule = CREDIT_RULES["binary"](TrainingConfig(binary_weight=2.0))
    assert rule.weigh(given) == weights(0.37, 2.0, 0.0)


OWN = """
from openclaw_rl.types import SignalWeights
class Doubled:
    name = "doubled"
    def __init__(self, training):
        self.weight = training.binary_weight
    def weigh(self, verdict):
        return SignalWeights(reward=2 * (verdict.reward or 0.0), w_rl=self.weight, w_opd=0.0)
class Empty:
    def __init__(self, training): ...
class Broken:
    pass
"""


def test_a_rule_of_ones_own_is_an_import_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    rule = make_rule(TrainingConfig(method=f"{file}:Doubled", binary_weight=0.5))
    assert (rule.name, rule.weigh(scored(-1))) == ("doubled", weights(-2.0, 0.5, 0.0))
    for name, reason in (("Empty", "is no credit rule"), ("Broken", "cannot be made"), ("Nothing", "has no 'Nothing'")):
        with pytest.raises(ConfigError, match=reason):
            make_rule(TrainingConfig(method=f"{file}:{name}"))


def test_a_method_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(ValidationError, match="expected combine, binary, opd, or package.module:name"):
        TrainingConfig(method="combin")
