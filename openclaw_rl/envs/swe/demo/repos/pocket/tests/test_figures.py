import pytest

from pocket.figures import clamp, median, percent, roman, size


@pytest.mark.parametrize(("value", "clamped"), [(-1, 0), (0, 0), (5, 5), (10, 10), (11, 10)])
def test_a_value_stays_in_its_range(value: float, clamped: float) -> None:
    assert clamp(value, 0, 10) == clamped


def test_a_range_of_one_value_is_a_range() -> None:
    assert clamp(3, 2, 2) == 2


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        clamp(1, 3, 2)


def test_a_share_in_percent() -> None:
    assert percent(3, 4) == "75%"


def test_a_share_with_digits() -> None:
    assert percent(1, 3, digits=1) == "33.3%"


def test_nothing_of_nothing_is_nothing() -> None:
    assert percent(0, 0) == "0%"


@pytest.mark.parametrize(
    ("number", "letters"), [(1, "I"), (4, "IV"), (9, "IX"), (14, "XIV"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX")]
)
def test_numbers_in_roman_numerals(number: int, letters: str) -> None:
    assert roman(number) == letters


@pytest.mark.parametrize("number", [0, -1, 4000])
def test_numbers_without_a_roman_numeral(number: int) -> None:
    with pytest.raises(ValueError, match="1 to 3999"):
        roman(number)


@pytest.mark.parametrize(("text", "num"), [("7", 7), ("10k", 10_000), ("1.5 MB", 1_500_000), (" 2g ", 2_000_000_000)])
def test_sizes_with_units(text: str, num: int) -> None:
    assert size(text) == num


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(ValueError, match="unknown unit 'x'"):
        size("3x")


def test_the_median_of_an_odd_number_of_values() -> None:
    assert median([5, 1, 3]) == 3


def test_the_median_of_an_even_number_of_values() -> None:
    assert median([4, 1, 3, 2]) == 2.5


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no median"):
        median([])
