"""Whose request begins next: weighted turns, and a bound on who goes before."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_rl.engine.worker.turns import Turns


class Line:
    """Requests that wait, and a clock that ticks once for each that begins."""

    def __init__(self, weights: dict[str, float] | None = None) -> None:
        self.turns = Turns()
        self.weights = weights or {}
        self.waiting: list[tuple[float, int, str]] = []
        self.num_come = 0

    def come(self, party: str, times: int = 1) -> None:
        for _ in range(times):
            self.num_come += 1
            stamp = self.turns.stamp(party, self.weights.get(party, 1.0))
            self.waiting.append((stamp, self.num_come, party))

    def begin(self) -> str:
        self.waiting.sort()
        stamp, _, party = self.waiting.pop(0)
        self.turns.begun(stamp)
        return party


def test_a_newcomer_begins_after_at_most_one_of_each_other() -> None:
    line = Line()
    for party in "abc":
        line.come(party, 50)
    assert [line.begin() for _ in range(6)] == [*"abcabc"]
    line.come("new")
    assert "new" in [line.begin() for _ in range(4)]


def test_who_was_silent_saves_nothing_up() -> None:
    line = Line()
    line.come("a", 100)
    for _ in range(90):
        line.begin()
    line.come("b", 10)
    assert Counter(line.begin() for _ in range(10)) == {"a": 5, "b": 5}


def test_a_party_of_three_times_the_weight_begins_three_times_as_many() -> None:
    line = Line({"a": 3.0})
    line.come("a", 60)
    line.come("b", 60)
    begun = Counter(line.begin() for _ in range(40))
    assert begun == {"a": 30, "b": 10}


def test_requests_without_a_party_stand_alone() -> None:
    line = Line()
    line.come("a", 5)
    line.come("", 3)
    assert [line.begin() for _ in range(4)].count("") == 3


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.tuples(st.sampled_from("abcd"), st.integers(1, 12)), st.none()), max_size=60),
    st.fixed_dictionaries({party: st.sampled_from([0.5, 1.0, 4.0]) for party in "abcd"}),
)
def test_nobody_waits_beyond_the_bound(events: list[tuple[str, int] | None], weights: dict[str, float]) -> None:
    """`None` is a tick of the clock: one request begins. Then somebody new comes."""
    line = Line(weights)
    for event in events:
        if event is not None:
            line.come(*event)
        elif line.waiting:
            line.begin()
    others = {party for *_, party in line.waiting}
    line.come("e")
    before: Counter[str] = Counter()
    while (party := line.begin()) != "e":
        before[party] += 1
    assert set(before) <= others
    assert all(count <= 1 for count in before.values()), before


@pytest.mark.parametrize("num_parties", [3, 3000])
def test_what_is_past_is_forgotten(num_parties: int) -> None:
    line = Line()
    for number in range(num_parties):
        line.come(f"p{number}")
        line.begin()
        line.come("always", 1)
        line.begin()
    assert len(line.turns._next) <= 1025
