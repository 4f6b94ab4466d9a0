import pytest

from pocket.words import listed, plural, shorten, slug, wrap


def test_a_slug_is_lower_case_with_dashes() -> None:
    assert slug("Hello, World!") == "hello-world"


def test_a_slug_keeps_digits() -> None:
    assert slug("Top 10 of 2024") == "top-10-of-2024"


def test_a_slug_ends_with_a_whole_word() -> None:
    assert slug("one two three", limit=9) == "one-two"


def test_a_slug_may_be_as_long_as_its_limit() -> None:
    assert slug("one two", limit=7) == "one-two"


def test_a_slug_of_signs_is_empty() -> None:
    assert slug("?!") == ""


def test_lines_are_as_full_as_the_width_allows() -> None:
    assert wrap("a bb ccc dddd", 8) == ["a bb ccc", "dddd"]


def test_a_wide_word_has_a_line_of_its_own() -> None:
    assert wrap("a extraordinary b", 5) == ["a", "extraordinary", "b"]


def test_no_text_has_no_lines() -> None:
    assert wrap("  ", 5) == []


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        wrap("a", 0)


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_a_noun_agrees_with_its_number(count: int, text: str) -> None:
    assert plural(count, "file") == text


def test_a_noun_may_have_a_plural_of_its_own() -> None:
    assert plural(2, "child", "children") == "2 children"


@pytest.mark.parametrize(
    ("items", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_a_list_reads_as_a_sentence(items: list[str], text: str) -> None:
    assert listed(items) == text


def test_the_last_word_of_a_list_can_be_chosen() -> None:
    assert listed(["tea", "milk"], last="or") == "tea or milk"


def test_short_text_stays_as_it_is() -> None:
    assert shorten("tea", 3) == "tea"


def test_long_text_ends_with_a_mark() -> None:
    assert shorten("a long story", 9) == "a long..."
