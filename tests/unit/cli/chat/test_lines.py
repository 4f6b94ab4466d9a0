"""What a line of the chat asks for."""

from __future__ import annotations

import pytest

from openclaw_rl.cli.chat.lines import Line, Mistake, Order, Rate, Say, read_line


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("", None),
        ("  \n", None),
        ("hello\n", Say("hello")),
        ("  two\nlines ", Say("two\nlines")),
        ("/new", Order("new")),
        ("/private", Order("private")),
        ("/help", Order("help")),
        (" /quit ", Order("quit")),
        ("/good", Rate("good", "")),
        ("/good  to the point ", Rate("good", "to the point")),
        ("/bad too long\nmuch", Rate("bad", "too long\nmuch")),
        ("/etc/hosts is broken", Say("/etc/hosts is broken")),
        ("/ slash", Say("/ slash")),
        ("//new", Say("//new")),
    ],
)
def test_lines(line: str, meant: Line | None) -> None:
    assert read_line(line) == meant


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("/bad", "/bad TEXT"),
        ("/bad  ", "/bad TEXT"),
        ("/god", "/good"),
        ("/xyzzy", "/help"),
        ("/new topic", "/new"),
    ],
)
def test_mistakes_come_with_a_remedy(line: str, remedy: str) -> None:
    meant = read_line(line)
    assert isinstance(meant, Mistake)
    assert remedy in meant.remedy
