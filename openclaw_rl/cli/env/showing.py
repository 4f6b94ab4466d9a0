"""What a collection tells while it runs and at its end -> lines for a person. It asks no server."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from openclaw_rl.cli.screen import facts, one_line
from openclaw_rl.envs.harness.builtin import SUBMIT
from openclaw_rl.envs.orders import Attempted, CollectOrder
from openclaw_rl.evaluation.measures import Interval, share_interval
from openclaw_rl.types import Json

_PIPED_CHARS = 400
"""Of one step, where no terminal says how wide a line is."""
_SHORTEST_CHARS, _NAME_CHARS = 20, 40
_ENDINGS = {
    "finished": "",
    "environment": "",
    "max_turns": "no turns left",
    "timeout": "out of time",
    "context": "its context was full",
}
"""What is worth saying of who ended an attempt."""


class Collected:
    """What was told of a collection. `last_words`: the last answer in an attempt, where that is worth showing."""

    def __init__(
        self,
        console: Console,
        bars: Progress,
        order: CollectOrder,
        *,
        last_words: Callable[[Attempted], str] = lambda _: "",
    ) -> None:
        self._console = console
        self._last_words = last_words
        self._shown: set[tuple[str, int]] = set()
        """Attempts whose last words need not be told again."""
        self._bars = bars
        self._order = order
        self._bar = bars.add_task("attempts", total=order.num_groups * order.group_size)
        self._began = time.monotonic()
        self.made: list[Attempted] = []
        self.broken: dict[str, str] = {}
        self.counts: dict[str, int] = {}
        self.versions: list[str] = []

    def hear(self, line: dict[str, Any]) -> None:
        match line:
            case {"step": step}:
                show_step(self._console, step)
                if "turn" in step or step.get("call", {}).get("name") == SUBMIT:  # that shows the words already
                    self._shown.add((step["task"], step["attempt"]))
            case {"attempt": raw}:
                self.made.append(Attempted.from_json(raw))
                self._bars.update(self._bar, advance=1, description=self._summary())
                self._show_words(self.made[-1])
                show_attempt(self._console, self.made[-1])
            case {"broken": broken}:
                if broken["task"] not in self.broken:
                    self._console.print(f"{broken['task']}  broken: {broken['reason']}", style="red", markup=False)
                self.broken[broken["task"]] = broken["reason"]
            case {"begun": begun}:
                groups, size = begun["groups"], begun["group_size"]
                self._bars.update(self._bar, total=groups * size)
                tasks = "one task" if groups == 1 else f"{groups} tasks"
                attempts = "one attempt" if size == 1 else f"{size} attempts"
                text = (
                    f"{attempts} at {tasks}{' each' if groups > 1 else ''}" if groups else "nothing is left to attempt"
                )
                self._console.print(f"{text}\n", markup=False)

    def _show_words(self, made: Attempted) -> None:
        if (made.task, made.attempt) in self._shown:
            self._shown.remove((made.task, made.attempt))
        elif words := self._last_words(made).strip():
            _show(self._console, f"{made.task} #{made.attempt + 1}  said:", words, "cyan")

    @property
    def graded(self) -> list[Attempted]:
        return [one for one in self.made if one.grade.reward is not None]

    def _summary(self) -> str:
        minutes = max(time.monotonic() - self._began, 1e-9) / 60
        solved = sum(one.grade.is_solved for one in self.graded)
        failed = len(self.made) - len(self.graded)
        return f"{len(self.made) / minutes:.0f} attempts/min, {solved} solved" + f", {failed} failed" * (failed > 0)

    def to_json(self) -> dict[str, Json]:
        return {
            "run": self._order.run,
            "attempts": [one.to_json() for one in self.made],
            "broken": self.broken,
            "counts": self.counts,
            "versions": self.versions,
        }

    def show(self, *, goes_on: bool) -> None:
        """`goes_on`: the collection has a name under which more can be asked for."""
        graded = self.graded
        rows = []
        if graded:
            solved = sum(one.grade.is_solved for one in graded)
            reward = sum(one.grade.reward or 0.0 for one in graded) / len(graded)
            rows.append(("solved", f"{solved} of {len(graded)}: {percent(share_interval(solved, len(graded)))}"))
            rows.append(("mean reward", f"{reward:.2f}"))
        failures = Counter(one.grade.failure for one in self.made if one.grade.failure)
        for reason, times in failures.most_common():
            rows.append(("environment failed", f"{times} times: {one_line(reason, 300)}"))
        if self.broken:
            rows.append(("broken tasks, left out", ", ".join(self.broken)))
        if same := self.counts.get("same_outcome"):
            rows.append(("tasks that teach nothing", f"{same}: all attempts at one had the same reward"))
        if before := self.counts.get("groups_before"):
            rows.append(("tasks done before", str(before)))
        if goes_on or self.versions:
            rows.append(("versions it made", ", ".join(self.versions[-5:]) or "none yet"))
        if goes_on:
            rows.append(("name of the collection", self._order.run))
        self._console.print()
        self._console.print(facts(*rows))


def percent(interval: Interval, *, sign: str = "") -> str:
    """A share with its 95 % interval."""
    return f"{interval.value:{sign}.0%} (95 % interval {interval.low:{sign}.0%} … {interval.high:{sign}.0%})"


def show_step(console: Console, step: dict[str, Any]) -> None:
    """One step of an agent, as it happens: on one line."""
    who = f"{step['task']} #{step['attempt'] + 1}"
    match step:
        case {"begins": instruction}:
            _show(console, f"{who}  task:", instruction, "bold")
        case {"call": {"name": name, "arguments": arguments}}:
            _show(console, f"{who}  → {one_line(name, _NAME_CHARS)}", _plain(arguments), "cyan")
        case {"turn": {"number": number, "calls": [{"name": name, "arguments": arguments}, *_]}}:
            _show(console, f"{who}  turn {number} → {one_line(name, _NAME_CHARS)}", _plain(arguments), "cyan")
        case {"turn": {"number": number, "said": said}}:
            _show(console, f"{who}  turn {number} said:", said, "cyan")
        case {"seen": seen, "is_error": is_error}:
            _show(console, f"{who}  ←", seen, "red" if is_error else "dim")
        case {"ran": output, "exit_code": code}:
            ended = "stopped at its time limit" if code is None else f"exit {code}"
            _show(console, f"{who}  ran ({ended}):", output, "dim")


def show_attempt(console: Console, made: Attempted) -> None:
    """How an attempt ended."""
    who = f"{made.task} #{made.attempt + 1}"
    if made.grade.reward is None:
        _show(console, f"{who}  environment failed:", made.grade.failure, "red")
        return
    mark, style = ("✓", "green") if made.grade.is_solved else ("✗", "yellow")
    steps = f"{made.num_steps or 'no'} call" + "s" * (made.num_steps > 1)
    ending = _ENDINGS.get(made.ended, made.ended)
    _show(console, f"{who}  {mark} reward {made.grade.reward:.2f}  {steps}  {made.seconds:.1f} s ", ending, style)


def _show(console: Console, known: str, foreign: str, style: str) -> None:
    width = console.width if console.is_terminal else _PIPED_CHARS
    shown = one_line(foreign, max(width - cell_len(known) - 1, _SHORTEST_CHARS))
    console.print(Text(f"{known} {shown}".rstrip(), style=style), soft_wrap=True)


def _plain(arguments: str) -> str:
    """Arguments of a call; those of a tool that has one text alone are that text."""
    try:
        raw: Json = json.loads(arguments)
    except ValueError:
        return arguments
    values = list(raw.values()) if isinstance(raw, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else arguments
