"""Intervals against published values, and how often they hold the truth."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from openclaw_rl.evaluation.measures import (
    Interval,
    mean_interval,
    paired_difference,
    paired_share_difference,
    share_interval,
)


@pytest.mark.parametrize(
    ("num_hits", "num", "low", "high"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_a_share_has_the_interval_that_is_printed_in_the_books(
    num_hits: int, num: int, low: float, high: float
) -> None:
    found = share_interval(num_hits, num)
    assert found.value == num_hits / num
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    mirrored = share_interval(num - num_hits, num)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high), abs=5e-5)


def test_a_few_values_are_judged_by_students_t() -> None:
    found = mean_interval([4.0, 6.0, 8.0], seed=0)
    assert (found.value, found.low, found.high) == pytest.approx((6.0, 6.0 - 4.968, 6.0 + 4.968), abs=1e-3)


def test_one_value_says_nothing_of_the_spread() -> None:
    found = mean_interval([3.0], seed=0)
    assert found == Interval(value=3.0, low=-math.inf, high=math.inf)
    assert found.to_json() == {"value": 3.0, "low": None, "high": None}


def test_many_values_get_nearly_the_interval_of_theory() -> None:
    values = np.random.default_rng(5).normal(10.0, 2.0, 400)
    half = 1.966 * values.std(ddof=1) / math.sqrt(400)
    found = mean_interval(values.tolist(), seed=1)
    assert found.value == pytest.approx(values.mean())
    assert (found.value - found.low, found.high - found.value) == pytest.approx((half, half), rel=0.08)


def test_the_seed_decides_and_nothing_else() -> None:
    values = [float(i * i % 17) for i in range(40)]
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_more_values_than_fit_into_one_draw_are_all_drawn() -> None:
    found = mean_interval([0.0, 1.0] * 300, seed=0)
    assert found.high - found.low == pytest.approx(2 * 1.966 * 0.5 / math.sqrt(600), rel=0.08)


def test_pairs_take_out_what_differs_between_cases() -> None:
    cases = np.random.default_rng(2).normal(0.0, 50.0, 60)
    after = cases + np.random.default_rng(3).normal(1.0, 0.5, 60)
    found = paired_difference(cases.tolist(), after.tolist(), seed=0, is_share=False)
    assert found.value == pytest.approx((after - cases).mean())
    assert 0.5 < found.low < found.high < 1.5
    backwards = paired_difference(after.tolist(), cases.tolist(), seed=0, is_share=False)
    assert backwards.value == pytest.approx(-found.value)


def test_the_change_of_shares_stays_within_bounds() -> None:
    found = paired_difference([1.0, 1.0, 0.0], [0.0, 1.0, 0.0], seed=0, is_share=True)
    assert (found.value, found.low, found.high) == pytest.approx((-1 / 3, -1.0, 1.0))
    inside = paired_difference([0.4, 0.5, 0.6], [0.5, 0.6, 0.8], seed=0, is_share=True)
    assert inside == mean_interval([0.5 - 0.4, 0.6 - 0.5, 0.8 - 0.6], seed=0)


def test_the_change_of_other_numbers_has_no_bounds() -> None:
    found = paired_difference([0.0, 1.0, 1.0], [1.0, 0.0, 1.0], seed=0, is_share=False)
    assert found.low < -1.0
    assert found.high > 1.0


@pytest.mark.parametrize("num", [1, 2])
def test_two_pairs_decide_nothing(num: int) -> None:
    assert paired_difference([0.0] * num, [1.0] * num, seed=0, is_share=True) == Interval(value=1.0, low=-1.0, high=1.0)
    lengths = paired_difference([10.0] * num, [12.0] * num, seed=0, is_share=False)
    assert lengths == Interval(value=2.0, low=-math.inf, high=math.inf)


def test_three_pairs_may_decide() -> None:
    assert paired_difference([0.0] * 3, [1.0] * 3, seed=0, is_share=True) == Interval(value=1.0, low=1.0, high=1.0)


def test_the_change_of_a_share_is_that_of_the_pairs_that_changed() -> None:
    found = paired_share_difference(num_lost=5, num_won=17, num=100)
    centre = 12 / 102
    half = 1.95996 * math.sqrt((23 / 102 - centre**2) / 102)
    assert found.value == pytest.approx(0.12)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half), abs=1e-5)


def test_no_change_is_not_a_proof_that_nothing_can_change() -> None:
    found = paired_share_difference(num_lost=0, num_won=0, num=600)
    assert found.value == 0.0
    assert found.high == pytest.approx(-found.low)
    assert 0.002 < found.high < 0.005


def test_the_change_of_a_share_stays_within_bounds() -> None:
    assert paired_share_difference(num_lost=0, num_won=2, num=2).high == 1.0
    assert paired_share_difference(num_lost=2, num_won=0, num=2).low == -1.0


def _coverage(draw: Callable[[np.random.Generator], Interval], truth: float, trials: int) -> float:
    random = np.random.default_rng(0)
    return sum(truth in draw(random) for _ in range(trials)) / trials


@pytest.mark.parametrize("num", [3, 12, 60])
def test_the_interval_of_a_mean_holds_the_truth_as_often_as_it_says(num: int) -> None:
    share = _coverage(lambda random: mean_interval(random.normal(1.0, 2.0, num).tolist(), seed=1), 1.0, 200)
    assert 0.90 <= share <= 0.99


def test_the_interval_of_a_share_holds_the_truth_as_often_as_it_says() -> None:
    share = _coverage(lambda random: share_interval(int(random.binomial(480, 0.65)), 480), 0.65, 4000)
    assert 0.94 <= share <= 0.96


def test_the_interval_of_a_change_holds_the_truth_as_often_as_it_says() -> None:
    def draw(random: np.random.Generator) -> Interval:
        lost, won, _ = random.multinomial(480, (0.05, 0.02, 0.93))
        return paired_share_difference(int(lost), int(won), 480)

    assert 0.94 <= _coverage(draw, -0.03, 4000) <= 0.965


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mean_interval([], seed=0),
        lambda: mean_interval([1.0, math.nan], seed=0),
        lambda: share_interval(1, 0),
        lambda: share_interval(3, 2),
        lambda: share_interval(-1, 2),
        lambda: paired_difference([1.0], [1.0, 2.0], seed=0, is_share=False),
        lambda: paired_share_difference(2, 2, 3),
        lambda: paired_share_difference(-1, 2, 3),
        lambda: Interval(value=0.0, low=1.0, high=0.0),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong: Callable[[], Interval]) -> None:
    with pytest.raises(ValueError, match="."):
        wrong()
