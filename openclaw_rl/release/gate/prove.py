"""The change that a version makes, measured twice: by the trainer that made it and by the engine that is to serve it.

For each token of the parent's answers the change is log p(candidate) − log p(parent). If both changes correlate, the
engine serves what was trained. If there is no change, the version has no effect: nobody is told that something was
learned, and the next step builds on it. Pure; knows neither engine nor trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, sqrt
from typing import Literal

from openclaw_rl.types import Json
from openclaw_rl.types.checks import require

Verdict = Literal["proved", "no effect", "other weights", "not finite"]
"""`other weights`: the engine does not serve what was trained, which is no fault of what it learned from."""

Checksum = Literal["verified", "differs", "not reported by this engine"]
"""Whether the bytes that the engine loaded are those that were trained. Where an engine does not say, the correlation
alone proves a version."""

MIN_CHANGE = 1e-6
"""Nats, root mean square: below this float32 itself cannot tell two versions apart."""

MIN_OVER_NOISE = 1.25
"""A change that is so many times the noise leaves a correlation that other weights would not reach by chance."""

_STANDARD_ERRORS = 6.0
"""Rounding has heavy tails: in bfloat16 on an H200 three of some twenty right versions lay three to four of them below
what is expected."""

_BY_CHANCE = 4.0
"""Other weights reach no correlation of so many standard errors of none at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the engine, or the trainer, measured on the same tokens."""

    parent: tuple[float, ...]
    candidate: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.parent) == len(self.candidate) > 0, "parent and candidate are told about the same tokens")

    @property
    def change(self) -> tuple[float, ...]:
        return tuple(after - before for before, after in zip(self.parent, self.candidate, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`correlation` of both changes. In nats: `change`, how large it is, and `noise`, how far engine and trainer
    disagree about the same weights, the parent's. `reason` is empty if the version is proved.
    """

    verdict: Verdict = "proved"

    num_tokens: int
    correlation: float
    change: float
    noise: float
    checksum: Checksum = "verified"
    reason: str = ""

    def __post_init__(self) -> None:
        require(bool(self.reason) == (self.verdict != "proved"), "what is not proved has a reason")

    def to_json(self) -> Json:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def needed_correlation(min_correlation: float, *, change: float, noise: float, num_tokens: int) -> float:
    """What is left of `min_correlation` by rounding.

    Both changes carry as much of it as both disagree about the parent, so that two tellers of the same story correlate
    by 1 − (noise/change)²; in bfloat16 on an H200 eight steps had 0.65 to 0.92 where this says 0.68 to 0.92. Over so
    few tokens that is known to some standard errors only. In float32 nothing of all this is left.
    """
    possible = 1 - (noise / change) ** 2
    told = min_correlation * possible - _STANDARD_ERRORS * (1 - possible**2) / sqrt(num_tokens)
    return max(told, _BY_CHANCE / sqrt(num_tokens))


def prove(trainer: Told, engine: Told, *, min_correlation: float, min_tokens: int, name: str = "the engine") -> Proof:
    """Compares the changes that engine and trainer measured. `name` is what the reason calls the engine."""
    expected, served = trainer.change, engine.change
    require(len(expected) == len(served) >= min_tokens, f"{min_tokens} tokens are needed, got {len(served)}")
    change = _rms(expected)
    noise = _rms([a - b for a, b in zip(trainer.parent, engine.parent, strict=True)])
    correlation = _correlation(expected, served)
    verdict: Verdict
    if not all(map(isfinite, (change, noise, *served))):
        verdict, reason = "not finite", "its log-probs are not finite"
    elif change < max(MIN_CHANGE, MIN_OVER_NOISE * noise):
        verdict, reason = "no effect", f"no effect: it changes log-probs by {change:.1e} nats, and {noise:.1e} is noise"
    elif correlation < (
        needed := needed_correlation(min_correlation, change=change, noise=noise, num_tokens=len(served))
    ):
        verdict = "other weights"
        reason = (
            f"{name} does not serve what was trained: their changes correlate by {correlation:.3f}, and "
            f"{needed:.3g} is needed"
        )
    else:
        verdict, reason = "proved", ""
    return Proof(
        verdict=verdict, num_tokens=len(served), correlation=correlation, change=change, noise=noise, reason=reason
    )


def _rms(values: Sequence[float]) -> float:
    return sqrt(fsum(value * value for value in values) / len(values))


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Pearson's; 0 where one of them is constant."""
    mean_one, mean_other = fsum(one) / len(one), fsum(other) / len(other)
    a = [value - mean_one for value in one]
    b = [value - mean_other for value in other]
    scale = sqrt(fsum(x * x for x in a) * fsum(x * x for x in b))
    return fsum(x * y for x, y in zip(a, b, strict=True)) / scale if scale else 0.0
