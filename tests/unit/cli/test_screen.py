"""Text that reaches a terminal cannot steer it, and numbers read well."""

from __future__ import annotations

import json
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_rl.cli.screen import ago, complain, one_line, print_json
from openclaw_rl.logs import printable
from openclaw_rl.views.words import size

ZWNJ, ZWJ = "\u200c", "\u200d"


@given(st.text())
def test_what_is_printable_holds_no_control_character(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if category(c) in ("Cc", "Cf") and c not in f"\n\t{ZWNJ}{ZWJ}"]
    assert printable(shown) == shown


def test_only_control_characters_are_taken_out() -> None:
    assert printable("\x1b[31mred\x1b]0;title\x07 \u009bé\n\t日本 👍\r") == "[31mred]0;title é\n\t日本 👍"


@pytest.mark.parametrize("hidden", [*"\u202a\u202d\u202e\u2066\u2068\u2069\u200f\u200b\ufeff\u00ad\U000e0041"])
def test_nothing_turns_the_reading_around_or_hides(hidden: str) -> None:
    assert printable(f"a{hidden}b") == "ab"


@pytest.mark.parametrize("text", ["👩\u200d👩\u200d👧 ❤\ufe0f", "می\u200cخواهم", "葛\U000e0100"])
def test_what_emoji_and_scripts_are_joined_with_stays(text: str) -> None:
    assert printable(text) == text


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_line_within_the_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


def test_one_line_says_when_it_cuts() -> None:
    assert one_line("one  two\nthree", 13) == "one two three"
    assert one_line("one  two\nthree", 12) == "one two thr…"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "now"), (0.9, "now"), (59, "59 s ago"), (60, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_times_are_told_in_their_largest_unit(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_sizes() -> None:
    assert (size(538_000_000), size(1_500_000_000)) == ("538 MB", "1.5 GB")


def test_json_for_a_program_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1, "é"]})
    assert capsys.readouterr().out == '{"a":[1,"é"]}\n'


def test_json_writes_out_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"\x9b1m": "\u202e\x7f\U000e0041 \u200d é\n"}
    print_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert not [c for c in shown if category(c) in ("Cc", "Cf") and c not in f"\n{ZWJ}"]


def test_errors_go_to_standard_error_uncut_and_uncoloured_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    complain("[bold]no\x1b[2J markup[/] " + "x" * 300)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error: [bold]no[2J markup[/] {'x' * 300}\n"
