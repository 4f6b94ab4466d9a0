"""Events of a demo -> what a person sees while it runs: a board that is redrawn, or plain lines where no terminal is.

`Board` is the state and knows no screen; `board_view` draws it into a given size, `event_line` says one event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.demo.events import (
    Changed,
    DemoAnswered,
    DemoAsked,
    DemoJudged,
    Doing,
    Event,
    Left,
    Measured,
    Point,
    Reacted,
    Stepped,
)
from openclaw_rl.cli.screen import one_line
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.types import Step, Version, version_label
from openclaw_rl.views.lessons import verdict_label

Tell = Callable[[Event], None]

_STATES = {"live": "bold green", "rejected": "bold red", "candidate": "yellow"}


@dataclass(slots=True)
class TurnRow:
    """One conversation, as far as it came."""

    number: int
    question: str
    version: str = ""
    answer: str = ""
    num_tokens: int | None = None
    reaction: str = ""
    is_content: bool | None = None
    verdict: str = ""
    hint: str = ""
    left: str = ""
    learned_in: str = ""


@dataclass(slots=True, kw_only=True)
class Board:
    """What is known so far."""

    title: str
    preference: str
    num_turns: int | None
    turns: dict[int, TurnRow] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    versions: dict[int, Version] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    doing: Doing = field(default_factory=lambda: Doing(text=""))

    def tell(self, event: Event) -> None:
        """Takes in what happened."""
        match event:
            case DemoAsked():
                self.turns[event.turn] = TurnRow(number=event.turn, question=event.question)
            case DemoAnswered():
                row = self.turns[event.turn]
                row.version, row.answer, row.num_tokens = event.version, event.text, event.num_tokens
            case Reacted():
                row = self.turns[event.turn]
                row.reaction, row.is_content = event.message, event.is_content
            case DemoJudged():
                row = self.turns[event.turn]
                row.verdict, row.hint = verdict_label(event.verdict), " | ".join(event.verdict.hints)
            case Left():
                self.turns[event.turn].left = event.reason
            case Stepped():
                self.steps[event.step.number] = event.step
                for turn in event.turns:
                    self.turns[turn].learned_in = version_label(event.step.line, event.step.number)
            case Changed():
                self.versions[event.version.number] = event.version
            case Measured():  # a fuller measurement takes the place of the one before
                others = [point for point in self.points if point.number != event.point.number]
                self.points = sorted([*others, event.point], key=lambda point: (point.num_lessons, point.number))
            case Doing():
                self.doing = event


def event_line(event: Event) -> Text | None:
    """One event on a line; None where it is not worth one."""
    match event:
        case DemoAsked():
            return Text.assemble(
                (f"turn {event.turn:<3}", "bold"), ("asks      ", "dim"), one_line(event.question, 100)
            )
        case DemoAnswered():
            length = "" if event.num_tokens is None else f"{event.num_tokens} tokens"
            version = event.version.partition(".")[0]
            told = (f"{version}, {length}: ", "dim")
            return Text.assemble(f"turn {event.turn:<3}", ("answer    ", "dim"), told, one_line(event.text, 110))
        case Reacted():
            style = "green" if event.is_content else "yellow"
            said = (one_line(event.message, 100), style)
            return Text.assemble(f"turn {event.turn:<3}", ("reaction  ", "dim"), said)
        case DemoJudged():
            hints = "".join(f"  hint: {one_line(hint, 80)}" for hint in event.verdict.hints)
            return Text.assemble(
                f"turn {event.turn:<3}", ("judged    ", "dim"), verdict_label(event.verdict), (hints, "cyan")
            )
        case Left():
            return Text.assemble(f"turn {event.turn:<3}", ("left out  ", "dim"), (event.reason, "yellow"))
        case Stepped():
            return Text.assemble((f"step {event.step.number:<3}", "bold"), step_text(event.step, event.turns))
        case Changed():
            return version_text(event.version)
        case Measured():
            return Text.assemble(("measured ", "bold"), point_text(event.point))
    return None


def step_text(step: Step, turns: tuple[int, ...] = ()) -> str:
    """What a step learns from, and what it came to."""
    samples = _lessons(len(step.sample_ids))
    if turns:
        samples += f" (turn{'' if len(turns) == 1 else 's'} {', '.join(map(str, turns))})"
    if step.state == "planned":
        return f"trains on {samples} …"
    if step.state == "discarded":
        return f"discarded: {step.reason}"
    loss, seconds = step.metrics.get("loss/total"), step.metrics.get("step/seconds")
    told = "" if loss is None else f", loss {loss:+.3f}"
    return f"learned from {samples}{told}" + ("" if seconds is None else f", {seconds:.1f} s")


def _lessons(count: int) -> str:
    return "1 lesson" if count == 1 else f"{count} lessons"


def version_text(version: Version) -> Text:
    """A version, its state, and what its gate found."""
    state = version.state.replace("_", " ")
    text = Text.assemble((f"{version.label} ", "bold"), (state, _STATES.get(version.state, "")))
    if found := gate_text(version):
        text.append(f"  gate: {found}", "dim")
    if version.reason:
        text.append(f"  {one_line(version.reason, 120)}", "red" if version.state == "rejected" else "dim")
    return text


def gate_text(version: Version) -> str:
    """The numbers of a gate's report, the few that a line has room for."""
    report = version.gate if isinstance(version.gate, dict) else {}
    numbers = [(name, value) for name, value in report.items() if isinstance(value, int | float)]
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in numbers[:4])


def point_text(point: Point) -> str:
    known = "" if point.capability is None else f", capability {share(point.capability)} of {point.num_items}"
    return (
        f"{point.label.partition('.')[0]} after {_lessons(point.num_lessons)}: preference {share(point.preference)}, "
        f"{point.tokens:.0f} tokens, on topic {point.on_topic:.0%}{known}"
    )


def share(interval: Interval, *, bare: bool = False) -> str:
    """A share with its interval, in percent."""
    if bare or interval.high - interval.low > 2:
        return f"{interval.value:.0%}"
    return f"{interval.value:.0%} [{interval.low * 100:.0f} … {interval.high * 100:.0f}]"


def board_view(board: Board, *, width: int, height: int, elapsed_s: float) -> RenderableType:
    """Fits `height` lines; the newest turns and versions are shown."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    asked = max(board.turns, default=0)
    turns = f"turn {asked}" + (f" of {board.num_turns}" if board.num_turns else "")
    head = Text.assemble((board.title, "bold"), (f"  {turns}  {minutes}:{seconds:02d}", "dim"))
    wish = Text.assemble(("hidden preference: ", "dim"), one_line(board.preference, width - 24))
    room = max(7, height - 12)  # less the lines that are always there
    num_points = min(max(1, len(board.points)), max(2, room // 4))
    num_versions = min(max(1, len(board.versions)), max(1, room // 5))
    num_turns = max(1, (room - num_points - num_versions) // 3)
    panels = {
        "conversations": _turns(board, num_turns, width - 4),
        "what it became": _versions(board, num_versions),
        "on questions it never saw": _points(board, num_points, width - 4),
    }
    framed = (Panel(it, title=title, title_align="left", border_style="dim") for title, it in panels.items())
    return Group(head, wish, *framed, _doing(board.doing, width))


def _turns(board: Board, num: int, width: int) -> Text:
    """Three lines each: question, answer, and what was said to it and made of it."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for row in list(board.turns.values())[-num:]:
        if text:
            text.append("\n")
        text.append(f"{row.number:>3} ", "bold")
        text.append(one_line(row.question, width - 4))
        length = "…" if not row.answer else f"{row.version.partition('.')[0]} {row.num_tokens or '?'} tokens  "
        text.append(f"\n    {length}", "dim")
        text.append(one_line(row.answer, max(10, width - 4 - len(length))))
        text.append("\n    ")
        text.append_text(_reaction(row, width - 4))
    return text if text else Text("…", "dim")


def _reaction(row: TurnRow, width: int) -> Text:
    if not row.reaction:
        return Text("")
    text = Text(f"“{one_line(row.reaction, 70)}”", "green" if row.is_content else "yellow")
    if row.verdict:
        text.append(f"  judged {row.verdict}", "dim")
    if row.hint:
        text.append(f"  hint: {one_line(row.hint, 60)}", "cyan")
    if row.left:
        text.append(f"  not learned: {row.left}", "yellow")
    if row.learned_in:
        text.append(f"  → {row.learned_in.partition('.')[0]}", "bold")
    text.truncate(width, overflow="ellipsis")
    return text


def _versions(board: Board, num: int) -> Text:
    if not board.versions:
        training = [step for step in board.steps.values() if step.state == "planned"]
        return Text(step_text(training[-1]) if training else "nothing yet: the base model answers", "dim")
    text = Text(no_wrap=True, overflow="ellipsis")
    for number in sorted(board.versions)[-num:]:
        if text:
            text.append("\n")
        text.append_text(version_text(board.versions[number]))
        if number in board.steps:
            text.append(f"  {step_text(board.steps[number])}", "dim")
    planned = [step for step in board.steps.values() if step.state == "planned" and step.number not in board.versions]
    if planned:
        text.append(f"   step {planned[-1].number} {step_text(planned[-1])}", "yellow")
    return text


def _points(board: Board, num: int, width: int) -> RenderableType:
    if not board.points:
        return Text("being measured …", "dim")
    shown = board.points if len(board.points) <= num else [board.points[0], *board.points[-(num - 1) :]]
    return points_table(shown, width=width)


def points_table(points: Sequence[Point], *, width: int) -> Table:
    """A row for each version that was measured; a narrow screen shows no intervals."""
    room = 2 if width >= 100 else 1 if width >= 76 else 0
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, max(1, room), 0, 0))
    for title in ("", "lessons", "preference", "", "tokens", "on topic", "capability"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("lessons", "tokens", "on topic") else "left")
    for point in points:
        known = "" if point.capability is None else share(point.capability, bare=room == 0)
        table.add_row(
            Text(point.label.partition(".")[0], "bold"),
            str(point.num_lessons),
            _bar(point.preference.value, 20 if room == 2 else 10),
            share(point.preference, bare=room == 0),
            f"{point.tokens:.0f}",
            f"{point.on_topic:.0%}",
            f"{known} of {point.num_items}" if room == 2 and known else known,
        )
    return table


def _bar(value: float, length: int) -> Text:
    filled = round(max(0.0, min(1.0, value)) * length)
    return Text.assemble(("█" * filled, "green"), ("░" * (length - filled), "dim"))


def _doing(doing: Doing, width: int) -> Text:
    if not doing.text:
        return Text("Ctrl-C ends it here and keeps what was learned.", "dim")
    far = f"  {doing.done}/{doing.total}" if doing.total else ""
    return Text(one_line(f"{doing.text}{far}", width), "cyan")


@contextmanager
def showing(board: Board, console: Console, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """Redraws a board on a terminal; elsewhere every event is a line. Nothing is left on the screen at the end."""
    if not console.is_terminal:

        def tell_line(event: Event) -> None:
            board.tell(event)
            line = event_line(event)
            if line is not None:
                console.print(line, soft_wrap=True)

        yield tell_line
        return
    began = clock()

    def view() -> RenderableType:
        return board_view(board, width=console.width, height=console.height, elapsed_s=clock() - began)

    with Live(console=console, get_renderable=view, refresh_per_second=4, transient=True):
        yield board.tell
