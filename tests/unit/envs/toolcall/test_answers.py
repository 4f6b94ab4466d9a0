"""Final texts against references: what counts as the answer, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.envs.toolcall.answers import Check, CheckName, is_number, stated

DAYS = ("Monday", "Friday")


@pytest.mark.parametrize(
    ("name", "text", "reference"),
    [
        ("number", "57", "57"),
        ("number", "The total is 1,250.", "1250"),
        ("number", "12 + 45 = 57", "57"),
        ("number", "It is −3", "-3"),
        ("number", "57.0", "57"),
        ("number", "about 39.3701 inches", "39.37"),
        ("number", "answer: 5 apples", "5"),
        ("number", "The answer is 5.", "5"),
        ("number", "So \\boxed{42} it is, after 7 steps", "42"),
        ("number", "1.5e3", "1500"),
        ("number", ".5", "0.5"),
        ("exact", "  X + 1. ", "x + 1"),
        ("exact", "Answer: 'yes'", "Yes"),
        ("exact", "First I thought no. Answer: no. Final answer: yes", "yes"),
        ("date", "That is 2024-03-09.", "2024-03-09"),
        ("choice", "Not Monday, but friday.", "Friday"),
        ("json", '{"b": [1, 2], "a": null}', '{"a": null, "b": [1, 2]}'),
    ],
)
def test_the_answer_is_found_in_what_is_said(name: CheckName, text: str, reference: str) -> None:
    assert Check(name=name, choices=DAYS).accepts(text, reference)


@pytest.mark.parametrize(
    ("name", "text", "reference"),
    [
        ("number", "", "57"),
        ("number", "fifty-seven", "57"),
        ("number", "57 or 58", "57"),
        ("number", "50.4", "50"),
        ("number", "39.38", "39.37"),
        ("number", "157", "57"),
        ("number", "1,2", "12"),
        ("number", "x57", "57"),
        ("exact", "", "x"),
        ("exact", "x + 10", "x + 1"),
        ("date", "2024-03-09 or 2024-03-10", "2024-03-09"),
        ("date", "March 9, 2024", "2024-03-09"),
        ("choice", "Friday, no: Monday", "Friday"),
        ("choice", "Fridays", "Friday"),
        ("choice", "", "Friday"),
        ("json", "{", "{}"),
        ("json", "[" * 100_000, "[]"),
    ],
)
def test_what_is_not_the_answer_is_not_taken(name: CheckName, text: str, reference: str) -> None:
    assert not Check(name=name, choices=DAYS).accepts(text, reference)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_a_number_is_only_itself(one: int, other: int) -> None:
    check = Check(name="number")
    assert check.accepts(f"{one:,}", str(one))
    assert check.accepts(f"I think {other}, no, {one}!", str(one))
    assert check.accepts(str(other), str(one)) == (one == other)


@given(st.text(max_size=200))
def test_no_text_breaks_a_check(text: str) -> None:
    for name in ("exact", "number", "date", "choice", "json"):
        Check(name=name, choices=DAYS).accepts(text, "1")


def test_what_is_a_number() -> None:
    assert all(map(is_number, ("5", "-5.25", "1,000", " 7 ")))
    assert not any(map(is_number, ("", "5 days", "2024-03-09", "x")))


def test_a_text_that_states_nothing_is_its_own_answer() -> None:
    assert stated("forty-two") == "forty-two"
