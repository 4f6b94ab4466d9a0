"""Valid votes -> what they come to, and whether votes that are still out can change it. Pure.

The score that most votes have wins, if no other has as many and if its share of the votes reaches the threshold.
Anything else is an abstention. Failed votes count nowhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_rl.types import Score

_SCORES: tuple[Score, ...] = (-1, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`score` None is an abstention, and `reason` says why."""

    score: Score | None
    reason: str = ""


def decide(scores: Sequence[Score], threshold: float) -> Decision:
    """What these votes, of which there is at least one, come to."""
    counts = Counter(scores)
    top = max(counts.values())
    leaders: list[Score] = [score for score in _SCORES if counts[score] == top]
    if len(leaders) > 1:
        names = " and ".join(f"{score:+d}" if score else "0" for score in leaders)
        return Decision(score=None, reason=f"the votes tie: {top} each for {names}")
    if top < threshold * len(scores) - 1e-9:  # 7 of 10 are 70%, whatever 0.7 * 10 is in binary
        reason = f"no consensus: {top} of {len(scores)} votes agree, and at least {threshold:.0%} have to"
        return Decision(score=None, reason=reason)
    return Decision(score=leaders[0])


def is_settled(scores: Sequence[Score], num_out: int, threshold: float) -> bool:
    """Whether the decision stays what it is, whatever the votes that are still out turn out to be."""
    if not scores:
        return num_out == 0
    decision = decide(scores, threshold)
    # The extremes: all that are out side with one score. If none of them changes anything, nothing between them does.
    return all(decide([*scores, *[score] * num_out], threshold).score == decision.score for score in _SCORES)
