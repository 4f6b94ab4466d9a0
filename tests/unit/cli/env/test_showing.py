"""What a person sees of agents at work, and at the end."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from openclaw_rl.cli.env.showing import Collected, show_attempt, show_step
from openclaw_rl.cli.screen import progress
from openclaw_rl.envs.orders import Attempted, CollectOrder, Tried
from openclaw_rl.types import Grade

ORDER = CollectOrder(tried=Tried(environment="terminal"), run="monday", num_episodes=4, group_size=2)


def screen(*, is_terminal: bool = True, width: int = 60) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=width, color_system=None, highlight=False)


def text(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def attempted(grade: Grade, *, ended: str = "finished", num_steps: int = 1) -> Attempted:
    return Attempted(
        task="count",
        group="monday/count",
        attempt=1,
        version="",
        grade=grade,
        ended=ended,
        num_steps=num_steps,
        seconds=1.25,
    )


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ({"begins": "Count\nall  lines."}, "count #1  task: Count all lines."),
        ({"call": {"name": "shell", "arguments": '{"command": "ls -l"}'}}, "count #1  → shell ls -l"),
        (
            {"call": {"name": "view", "arguments": '{"path": "a", "start": 2}'}},
            'count #1  → view {"path": "a", "start": 2}',
        ),
        ({"call": {"name": "view", "arguments": "no [red]JSON"}}, "count #1  → view no [red]JSON"),
        ({"turn": {"number": 2, "said": "All\ndone.", "calls": []}}, "count #1  turn 2 said: All done."),
        (
            {"turn": {"number": 1, "said": "I look.", "calls": [{"name": "exec", "arguments": '{"command": "ls"}'}]}},
            "count #1  turn 1 → exec ls",
        ),
        ({"seen": "a\nb", "is_error": False}, "count #1  ← a b"),
        ({"ran": "out", "exit_code": 3}, "count #1  ran (exit 3): out"),
        ({"ran": "out", "exit_code": None}, "count #1  ran (stopped at its time limit): out"),
    ],
)
def test_a_step_is_one_line(step: dict[str, Any], line: str) -> None:
    console = screen()
    show_step(console, {"task": "count", "attempt": 0, **step})
    assert text(console) == f"{line}\n"


def test_a_line_is_as_long_as_the_terminal_is_wide() -> None:
    for console, length in ((screen(), 60), (screen(is_terminal=False), 400)):
        show_step(console, {"task": "count", "attempt": 0, "seen": "x" * 1000, "is_error": False})
        (line,) = text(console).splitlines()
        assert len(line) == length
        assert line.endswith("x…")


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (attempted(Grade(reward=1.0, share=1.0)), "count #2  ✓ reward 1.00  1 call  1.2 s"),
        (
            attempted(Grade(reward=-0.5, share=0.25), ended="max_turns", num_steps=3),
            "count #2  ✗ reward -0.50  3 calls  1.2 s  no turns left",
        ),
        (attempted(Grade(failure="the box\ndied")), "count #2  environment failed: the box died"),
    ],
)
def test_an_attempt_is_one_line(made: Attempted, line: str) -> None:
    console = screen()
    show_attempt(console, made)
    assert text(console) == f"{line}\n"


def test_what_an_agent_said_at_last_is_shown_unless_it_was_submitted() -> None:
    console = screen()
    with progress(show=False, beside=console) as bars:
        told = Collected(console, bars, ORDER, last_words=lambda _: "It is\ndone.")
        told.hear({"attempt": attempted(Grade(reward=-1.0), num_steps=0).to_json()})
        told.hear({"step": {"task": "count", "attempt": 1, "call": {"name": "submit", "arguments": "3"}}})
        told.hear({"attempt": attempted(Grade(reward=1.0, share=1.0)).to_json()})
        told.hear({"step": {"task": "count", "attempt": 1, "turn": {"number": 1, "said": "Yes.", "calls": []}}})
        told.hear({"attempt": attempted(Grade(reward=1.0, share=1.0)).to_json()})
    assert text(console).splitlines() == [
        "count #2  said: It is done.",
        "count #2  ✗ reward -1.00  no call  1.2 s",
        "count #2  → submit 3",
        "count #2  ✓ reward 1.00  1 call  1.2 s",
        "count #2  turn 1 said: Yes.",
        "count #2  ✓ reward 1.00  1 call  1.2 s",
    ]


def test_the_end_tells_figures_with_their_names() -> None:
    console = screen(width=100)
    with progress(show=False, beside=console) as bars:
        told = Collected(console, bars, ORDER)
        told.hear({"begun": {"groups": 2, "group_size": 2}})
        for grade in (
            Grade(reward=1.0, share=1.0),
            Grade(reward=-1.0),
            Grade(failure="no box"),
            Grade(failure="no box"),
        ):
            told.hear({"attempt": attempted(grade).to_json()})
        told.hear({"broken": {"task": "bad", "reason": "no tests"}})
        told.hear({"broken": {"task": "bad", "reason": "no tests"}})
        told.counts = {"same_outcome": 1}
    told.versions = ["env:terminal@1"]
    told.show(goes_on=True)
    lines = [line.rstrip() for line in text(console).splitlines()]
    assert lines[:2] == ["2 attempts at 2 tasks each", ""]
    assert lines.count("bad  broken: no tests") == 1
    assert lines[lines.index("bad  broken: no tests") + 1 :] == [
        "",
        "solved                     1 of 2: 50% (95 % interval 9% … 91%)",
        "mean reward                0.00",
        "environment failed         2 times: no box",
        "broken tasks, left out     bad",
        "tasks that teach nothing   1: all attempts at one had the same reward",
        "versions it made           env:terminal@1",
        "name of the collection     monday",
    ]
    assert told.to_json()["run"] == "monday"


def test_a_demo_has_no_name_to_go_on_with() -> None:
    console = screen(width=100)
    with progress(show=False, beside=console) as bars:
        Collected(console, bars, ORDER).show(goes_on=False)
    assert "monday" not in text(console)
    assert "solved" not in text(console)


def test_bars_and_lines_share_a_console() -> None:
    console = screen()
    with progress(show=True, beside=console) as bars:
        assert bars.console is console
        assert not bars.disable
    with progress(show=True, beside=screen(is_terminal=False)) as bars:
        assert bars.disable
