"""Pauses double up to a limit, and never overflow."""

from __future__ import annotations

from itertools import islice

from openclaw_rl.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.5, longest_s=3.0)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert list(islice(backoff, 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_any_number_of_failures_has_a_pause() -> None:
    assert Backoff(first_s=0.5, longest_s=30.0).pause_s(0) == 0.5, "before the first failure it is that of the first"
    assert Backoff(first_s=0.5, longest_s=30.0).pause_s(100_000) == 30.0
    assert Backoff(first_s=2.0).pause_s(5) == 32.0, "without a limit it goes on doubling"
