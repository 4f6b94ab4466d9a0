import pytest

from pocket.spans import Span, first_fit, gaps, merged, overlap, total


@pytest.mark.parametrize(
    ("other", "shared"), [((0, 2), False), ((0, 3), True), ((3, 4), True), ((4, 9), True), ((5, 6), False)]
)
def test_spans_overlap_if_they_share_more_than_an_end(other: Span, shared: bool) -> None:
    assert overlap((2, 5), other) is shared


def test_spans_that_touch_are_one() -> None:
    assert merged([(3, 5), (1, 3)]) == [(1, 5)]


def test_a_span_inside_another_disappears() -> None:
    assert merged([(1, 9), (2, 3)]) == [(1, 9)]


def test_spans_apart_stay_apart_in_order() -> None:
    assert merged([(6, 7), (1, 2)]) == [(1, 2), (6, 7)]


def test_free_time_lies_between_spans() -> None:
    assert gaps([(2, 3), (5, 6)], (0, 8)) == [(0, 2), (3, 5), (6, 8)]


def test_a_full_day_has_no_free_time() -> None:
    assert gaps([(0, 5), (5, 8)], (0, 8)) == []


def test_free_time_ends_with_the_day() -> None:
    assert gaps([(9, 12)], (0, 8)) == [(0, 8)]


def test_what_lies_before_the_day_takes_no_time_of_it() -> None:
    assert gaps([(-5, -2)], (0, 8)) == [(0, 8)]


def test_the_first_gap_that_is_long_enough() -> None:
    assert first_fit([(1, 2), (4, 6)], (0, 9), 2) == (2, 4)


def test_no_gap_is_long_enough() -> None:
    assert first_fit([(1, 2), (4, 6)], (0, 7), 3) is None


def test_time_that_is_covered_twice_counts_once() -> None:
    assert total([(0, 4), (2, 6), (8, 9)]) == 7
