"""What a judge has to show before it is believed: its scores on check.jsonl, whose writers nobody learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.judge.heads.examples import Example
from openclaw_rl.judge.heads.model import Opinion
from openclaw_rl.types import Score

MIN_RIGHT, MAX_WRONG, MIN_MATTER = 0.4, 0.04, 0.6
"""Shares of complaints and praise that get their sign, of those that get the opposite one, and of claims found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sureness:
    """From which probability on heads are believed: in a score, in a correction (beside a bad score, or where no score
    is sure), and in a claim: in any words, and in those that state more than the form. A claim that is learned costs
    more than a lesson that is not."""

    score: float
    hint: float
    lone_hint: float
    matter: float
    stated: float
    yields: bool
    """Whether a bad score is nobody's where the rules read the next task."""


OF_HEADS = Sureness(score=0.7, hint=0.5, lone_hint=0.7, matter=0.3, stated=0.3, yields=False)
OF_GRAMS = Sureness(score=0.8, hint=0.5, lone_hint=0.7, matter=0.3, stated=0.06, yields=True)
"""Of heads on n-grams alone, which know less. Both measured by benchmarks/heads.py."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Shares; `matter` is None for judges that are not asked about it."""

    right: float
    wrong: float
    matter: float | None = None

    @property
    def is_enough(self) -> bool:
        knows_claims = self.matter is None or self.matter >= MIN_MATTER
        return self.right >= MIN_RIGHT and self.wrong <= MAX_WRONG and knows_claims

    def __str__(self) -> str:
        claims = "" if self.matter is None else f", {self.matter:.0%} of claims found"
        return f"{self.right:.0%} right, {self.wrong:.0%} wrong{claims}"


def check_opinions(examples: Sequence[Example], opinions: Sequence[Opinion], sure: Sureness = OF_HEADS) -> Passed:
    """How heads do where they are sure."""
    scores = [one.score if one.sureness >= sure.score else None for one in opinions]
    claims = [one.matter >= sure.matter for example, one in zip(examples, opinions, strict=True) if example.matter]
    return check_scores(examples, scores, matter=sum(claims) / max(1, len(claims)))


def check_scores(examples: Sequence[Example], scores: Sequence[Score | None], *, matter: float | None = None) -> Passed:
    """How any judge does; None is a judge that does not say."""
    told = [(example.score, score) for example, score in zip(examples, scores, strict=True) if example.score]
    right = sum(score == wanted for wanted, score in told)
    wrong = sum(score == -wanted for wanted, score in told)
    return Passed(right / max(1, len(told)), wrong / max(1, len(told)), matter)
