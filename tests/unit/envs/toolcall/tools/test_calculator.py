"""The calculator: right where there is a value, a sentence where there is none, and never a long time."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.envs.toolcall.tools.calculator import CALCULATOR, calculate
from openclaw_rl.envs.toolcall.tools.toolbox import CallFault


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("7 / 2", "3.5"),
        ("6 / 3", "2"),
        ("7 // 2", "3"),
        ("-7 % 3", "2"),
        ("2 ** 10", "1024"),
        ("2 ^ 10", "1024"),
        ("2 ** -1", "0.5"),
        ("3 × 4 − 10 ÷ 5", "10"),
        (" 1_000 + 1", "1001"),
        ("0.1 + 0.2", "0.3"),
        ("lcm(4, 6) + gcd(12, 18)", "18"),
        ("sqrt(16) + abs(-2) + round(2.6)", "9"),
        ("factorial(5)", "120"),
        ("2 * pi", f"{2 * math.pi:.12g}"),
        ("2 ** 100", str(2**100)),
    ],
)
def test_it_calculates(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "not an arithmetic expression"),
        ("2 +", "not an arithmetic expression"),
        ("5 = 5", "not an arithmetic expression"),
        ("12 apples", "not an arithmetic expression"),
        ("1 / 0", "divides by zero"),
        ("5 % 0", "divides by zero"),
        ("9 ** 9 ** 9 ** 9", "too large"),
        ("2 ** 100000", "too large"),
        ("10.0 ** 400", "too large"),
        ("factorial(100000)", "whole number from 0 to 400"),
        ("factorial(2.5)", "whole number from 0 to 400"),
        ("(-8) ** 0.5", "not a real number"),
        ("sqrt(-1)", "no value"),
        ("gcd(2.5, 1)", "no value"),
        ("exp(10000)", "too large"),
        ("__import__('os').system('true')", "cannot be calculated"),
        ("().__class__", "cannot be calculated"),
        ("[x for x in (1, 2)]", "cannot be calculated"),
        ("True + 1", "cannot be calculated"),
        ("'a' * 10", "cannot be calculated"),
        ("1,234 + 5", "cannot be calculated"),
        ("round(number=2)", "cannot be calculated"),
        ("x", "cannot be calculated"),
        ("1j", "cannot be calculated"),
        ("1" * 301, "at most 300"),
        ("(" * 150 + "1" + ")" * 150, "at most 300"),
    ],
)
def test_what_has_no_value_is_said(expression: str, said: str) -> None:
    with pytest.raises(CallFault) as caught:
        calculate(expression)
    assert said in str(caught.value)


def test_deep_nesting_is_an_answer_too() -> None:
    assert calculate("-" * 290 + "1") == "1"


@given(st.text(alphabet="0123456789+-*/%(). ,^epiqrtsgcdlmfao", max_size=40))
def test_every_text_has_a_value_or_a_sentence(expression: str) -> None:
    with suppress(CallFault):
        assert float(calculate(expression)) == float(calculate(f"({expression})"))


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=8))
def test_whole_numbers_stay_exact(numbers: list[int]) -> None:
    assert calculate(" + ".join(f"({number})" for number in numbers)) == str(sum(numbers))
    assert calculate(" * ".join(f"({number})" for number in numbers)) == str(math.prod(numbers))


def test_it_is_a_tool() -> None:
    assert CALCULATOR.function({"expression": "1 + 1"}) == "2"
