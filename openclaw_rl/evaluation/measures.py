"""Numbers -> their mean, share or difference, with the 95 % interval that says how much of it may be chance.

Deterministic: whatever resamples takes a seed. Knows nothing of what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np

from openclaw_rl.types import Json
from openclaw_rl.types.checks import require

_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)

_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t at 0.975 for 1 to 10 degrees of freedom; beyond that a series in 1 / degrees is exact to 0.001."""

_MIN_PAIRS = 3
_NUM_RESAMPLES = 4000
_CHUNK = 1 << 20  # numbers that are drawn at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate and the ends of its 95 % interval; these are infinite where nothing is known of the spread."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        require(self.low <= self.high, f"the interval ends at {self.high}, before its beginning {self.low}")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_json(self) -> Json:
        """Null stands for an end that is infinite: JSON has no word for it."""
        low, high = (end if math.isfinite(end) else None for end in (self.low, self.high))
        return {"value": self.value, "low": low, "high": high}


def mean_interval(values: Sequence[float], seed: int) -> Interval:
    """The mean. Of one value the spread is unknown; of a few (seeds of a run) Student's t; of many the bootstrap.

    Resampling three values says little that the three do not: its intervals held the truth in 73 of 100 cases. The
    bootstrap takes percentiles that are wider by what t is wider than the normal (Hesterberg 2015, section 3.2).
    """
    require(len(values) > 0, "values must not be empty")
    require(all(math.isfinite(value) for value in values), "values must be finite numbers")
    mean, num_free = fmean(values), len(values) - 1
    if num_free == 0:
        return Interval(value=mean, low=-math.inf, high=math.inf)
    if num_free <= len(_STUDENT):
        half = _STUDENT[num_free - 1] * stdev(values) / math.sqrt(len(values))
        return Interval(value=mean, low=mean - half, high=mean + half)
    outside = _NORMAL.cdf(-math.sqrt(len(values) / num_free) * _student(num_free))
    low, high = np.quantile(_resampled_means(values, seed), (outside, 1.0 - outside))
    return Interval(value=mean, low=float(low), high=float(high))


def paired_difference(before: Sequence[float], after: Sequence[float], seed: int, *, is_share: bool) -> Interval:
    """The mean of `after[i] - before[i]`: the same questions, users or seeds, measured twice.

    Fewer than three pairs decide nothing: two that agree by chance would have no spread. No change of a share,
    which lies in [0, 1], is beyond 1.
    """
    require(len(before) == len(after), f"pairs need both sides: {len(before)} before and {len(after)} after")
    found = mean_interval([now - was for was, now in zip(before, after, strict=True)], seed)
    low, high = (found.low, found.high) if len(after) >= _MIN_PAIRS else (-math.inf, math.inf)
    if is_share:
        low, high = max(-1.0, low), min(1.0, high)
    return Interval(value=found.value, low=low, high=high)


def share_interval(num_hits: int, num: int) -> Interval:
    """A share by Wilson's score interval: it has a width at 0 and at 1 too, and never leaves [0, 1]."""
    require(
        num > 0 and 0 <= num_hits <= num, f"a share needs 0 <= hits <= number and a number > 0, got {num_hits}/{num}"
    )
    share, weight = num_hits / num, _Z * _Z / num
    centre = (share + weight / 2) / (1 + weight)
    half = math.sqrt(share * (1 - share) * weight + weight * weight / 4) / (1 + weight)
    # At the ends the formula gives 0 and 1 up to rounding.
    low = 0.0 if num_hits == 0 else centre - half
    high = 1.0 if num_hits == num else centre + half
    return Interval(value=share, low=low, high=high)


def paired_share_difference(num_lost: int, num_won: int, num: int) -> Interval:
    """By how much a share changed when `num` cases were tried twice: `num_lost` became false and `num_won` true.

    Those that did not change say nothing of the direction, as in McNemar's test. The interval adds half a case to each
    of the four ways a pair can come out (Agresti and Min 2005), so it has a width even where nothing changed.
    """
    require(
        num > 0 and min(num_lost, num_won) >= 0 and num_lost + num_won <= num,
        f"changes must be counts of at most {num} cases, got {num_lost} lost and {num_won} won",
    )
    lost, won, cases = num_lost + 0.5, num_won + 0.5, num + 2.0
    centre = (won - lost) / cases
    half = _Z * math.sqrt((won + lost) / cases - centre * centre) / math.sqrt(cases)
    return Interval(value=(num_won - num_lost) / num, low=max(-1.0, centre - half), high=min(1.0, centre + half))


def _student(num_free: int) -> float:
    z = _Z
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / num_free + second / num_free**2


def _resampled_means(values: Sequence[float], seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    random = np.random.default_rng(seed)
    array = np.asarray(values, dtype=np.float64)
    rows = max(1, _CHUNK // len(array))
    sizes = [min(rows, _NUM_RESAMPLES - start) for start in range(0, _NUM_RESAMPLES, rows)]
    drawn = (random.integers(0, len(array), size=(size, len(array))) for size in sizes)
    return np.concatenate([array[indices].mean(axis=1) for indices in drawn])
