"""Examinations of two versions and a simulated user -> what became better or worse, with 95 % intervals. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from openclaw_rl.evaluation import detectors
from openclaw_rl.evaluation.capability import compare
from openclaw_rl.evaluation.exam import ExamAnswer, Examination, traits
from openclaw_rl.evaluation.measures import Interval, mean_interval, paired_difference, share_interval
from openclaw_rl.evaluation.users import SimulatedUser, score_of
from openclaw_rl.types import Json
from openclaw_rl.types.checks import require

Wish = Literal["more", "less", "none"]
"""Which way a measure gets better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMeasure:
    """One measure of two versions; `change` is paired. `is_share`: to be read in percent."""

    name: str
    meaning: str
    num: int
    before: Interval
    after: Interval
    change: Interval
    wish: Wish
    is_share: bool = True

    @property
    def verdict(self) -> Literal["better", "worse", "unclear", "other"]:
        """Unclear: chance alone would explain the change."""
        if 0.0 in self.change:
            return "unclear"
        if self.wish == "none":
            return "other"
        return "better" if (self.change.low > 0) == (self.wish == "more") else "worse"

    def to_json(self) -> Json:
        return {
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "change": self.change.to_json(),
            "num": self.num,
            "verdict": self.verdict,
        }


_TRAITS: tuple[tuple[str, str, Wish, bool], ...] = (
    ("tokens", "length of an answer", "none", False),
    ("on_topic", "about the question", "more", True),
    ("repetition", "three-grams said before", "less", True),
    ("refusals", "refuses", "less", True),
    ("questions_back", "only asks back", "less", True),
)


def preferences(user: SimulatedUser, answers: Sequence[ExamAnswer]) -> list[float]:
    """How well each answer meets the hidden preference."""
    return [score_of(user, answer.question, answer.text) for answer in answers]


def preference(user: SimulatedUser, examination: Examination, *, seed: int) -> Interval:
    """The mean over the answers, inside [0, 1]."""
    return _within_bounds(mean_interval(preferences(user, examination.answers), seed))


def mean_tokens(examination: Examination) -> float:
    return fmean(answer.num_tokens for answer in examination.answers)


def compare_examinations(
    user: SimulatedUser, before: Examination, after: Examination, *, seed: int = 0
) -> tuple[ComparedMeasure, ...]:
    """Both are of the same exam; capability only where both have it."""
    asked = [[answer.question for answer in one.answers] for one in (before, after)]
    require(asked[0] == asked[1], "examinations are compared question by question, so both must be of the same exam")
    scores = [preferences(user, one.answers) for one in (before, after)]
    measures = [_means("preference", user.preference, scores[0], scores[1], wish="more", seed=seed)]
    was, now = traits(before.answers), traits(after.answers)
    measures += [
        _means(name, meaning, was[name], now[name], wish=wish, is_share=is_share, seed=seed)
        for name, meaning, wish, is_share in _TRAITS
    ]
    sums = [[float(_is_right(a)) for a in one.answers if a.question.kind == "sum"] for one in (before, after)]
    if len(sums[0]) > 1:
        measures.append(_means("sums_right", "sums that come out right", *sums, wish="more", seed=seed))
    if before.capability is not None and after.capability is not None:
        measures.append(
            ComparedMeasure(
                name="capability",
                meaning="what it knew: right answer before three wrong ones",
                num=len(after.capability.items),
                before=before.capability.interval,
                after=after.capability.interval,
                change=compare(before.capability, after.capability).difference,
                wish="more",
            )
        )
    return tuple(measures)


def _is_right(answer: ExamAnswer) -> bool:
    assert answer.question.number is not None
    return detectors.is_correct(answer.text, answer.question.number)


def _means(
    name: str,
    meaning: str,
    before: Sequence[float],
    after: Sequence[float],
    *,
    wish: Wish,
    seed: int,
    is_share: bool = True,
) -> ComparedMeasure:
    def interval(values: Sequence[float]) -> Interval:
        if set(values) <= {0.0, 1.0} and is_share:
            return share_interval(round(sum(values)), len(values))
        found = mean_interval(values, seed)
        return _within_bounds(found) if is_share else found

    return ComparedMeasure(
        name=name,
        meaning=meaning,
        num=len(after),
        before=interval(before),
        after=interval(after),
        change=paired_difference(before, after, seed, is_share=is_share),
        wish=wish,
        is_share=is_share,
    )


def _within_bounds(interval: Interval) -> Interval:
    """Of a mean of numbers in [0, 1]."""
    return Interval(value=interval.value, low=max(0.0, interval.low), high=min(1.0, interval.high))
