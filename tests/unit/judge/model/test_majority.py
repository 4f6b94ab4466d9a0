"""Majorities against a plain second implementation, and early stops against trying everything that may still come."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.judge.model.majority import decide, is_settled
from openclaw_rl.types import Score

scores = st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=6)
thresholds = st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 0.6, 2 / 3, 0.75, 0.9, 1.0])


def plain(votes: list[int], threshold: float) -> int | None:
    ranked = sorted(((votes.count(s), s) for s in (-1, 0, 1)), reverse=True)
    (most, winner), (second, _) = ranked[0], ranked[1]
    return winner if most > second and most / len(votes) >= threshold - 1e-9 else None


@pytest.mark.parametrize(
    ("votes", "threshold", "score", "reason"),
    [
        ([1, 1, -1], 0.5, 1, ""),
        ([-1, -1, 0], 0.5, -1, ""),
        ([0], 0.5, 0, ""),
        ([1, -1], 0.5, None, "the votes tie: 1 each for -1 and +1"),
        ([1, -1, 0], 0.5, None, "the votes tie: 1 each for -1 and 0 and +1"),
        ([1, 1, -1], 0.7, None, "no consensus: 2 of 3 votes agree, and at least 70% have to"),
        ([1, 1, -1, 0, 0], 0.5, None, "the votes tie: 2 each for 0 and +1"),
        ([1, 1, -1, 0], 0.6, None, "no consensus: 2 of 4 votes agree, and at least 60% have to"),
        ([1, 1, -1, 0], 0.5, 1, ""),
        ([1, 1, 1, -1, 0], 0.6, 1, ""),
        ([1] * 7 + [-1] * 3, 0.7, 1, ""),
    ],
)
def test_decisions(votes: list[Score], threshold: float, score: int | None, reason: str) -> None:
    decision = decide(votes, threshold)
    assert (decision.score, decision.reason) == (score, reason)


@given(scores, thresholds)
def test_a_decision_is_the_plain_one(votes: list[Score], threshold: float) -> None:
    decision = decide(votes, threshold)
    assert decision.score == plain([*votes], threshold)
    assert (decision.score is None) == bool(decision.reason)
    assert decision == decide(sorted(votes), threshold), "the order does not matter"


@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=4), st.integers(0, 3), thresholds)
def test_settled_is_what_nothing_can_change(votes: list[Score], num_out: int, threshold: float) -> None:
    """A vote that is out may turn out to be any score, or fail."""
    endings = product((-1, 0, 1, None), repeat=num_out)
    results = set()
    for ending in endings:
        known = [*votes, *(vote for vote in ending if vote is not None)]
        results.add(plain(known, threshold) if known else "failed")
    assert is_settled(votes, num_out, threshold) == (len(results) == 1)
