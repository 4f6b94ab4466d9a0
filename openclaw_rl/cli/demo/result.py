"""What a demo came to -> the tables at its end, and JSON: real answers before and after, and every measure. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.demo.events import Point
from openclaw_rl.cli.demo.server import DemoServer
from openclaw_rl.cli.demo.view import points_table
from openclaw_rl.cli.learn.evaluating import ComparisonTable, comparison_json, forgetting_text
from openclaw_rl.evaluation.comparing import ComparedMeasure, compare_examinations
from openclaw_rl.evaluation.exam import Examination
from openclaw_rl.evaluation.sessions import SessionRecord
from openclaw_rl.evaluation.users import SimulatedUser
from openclaw_rl.logs import printable
from openclaw_rl.types import Json, Step, Version

_NUM_SHOWN = 5
_MAX_CHARS = 420


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All that was seen. `points` are in the order of what they learned from, the base model first."""

    user: SimulatedUser
    server: DemoServer
    records: tuple[SessionRecord, ...]
    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    versions: tuple[Version, ...]
    is_interrupted: bool
    seed: int

    @property
    def before(self) -> Point | None:
        return self.points[0] if self.points and self.points[0].number == 0 else None

    @property
    def after(self) -> Point | None:
        """The last version that was measured; None if nothing was learned."""
        return self.points[-1] if self.points and self.points[-1].number else None

    def pair(self) -> tuple[Examination, Examination] | None:
        """Before and after, on the questions that both were asked; with capability if both had the same items."""
        if self.before is None or self.after is None:
            return None
        before, after = self.before.examination, self.after.examination
        common = min(len(before.answers), len(after.answers))  # of two exams the smaller begins like the larger
        before, after = (replace(one, answers=one.answers[:common]) for one in (before, after))
        if self.before.num_items != self.after.num_items:  # interrupted between the two full ones
            before, after = replace(before, capability=None), replace(after, capability=None)
        return before, after

    def measures(self) -> tuple[ComparedMeasure, ...]:
        pair = self.pair()
        return () if pair is None else compare_examinations(self.user, *pair, seed=self.seed)


def print_result(result: DemoResult, console: Console, *, plot: Path | None) -> None:
    """For a person."""
    if result.is_interrupted:
        console.print("\nInterrupted; this is how far it came.", style="yellow")
    pair = result.pair()
    if result.points:
        console.print(Text("\nOn questions it never saw, by the lessons learned", "bold"))
        console.print(points_table(result.points, width=console.width))
    if pair is not None:
        console.print(Text(f"\nThe same questions, {pair[0].version} and {pair[1].version}", "bold"))
        console.print(answers_table(*pair))
        console.print(Text("\nBefore and after, with 95 % intervals", "bold"))
        measures = result.measures()
        console.print(ComparisonTable(measures, before=pair[0].version, after=pair[1].version))
        console.print(Text(f"\n{forgetting_text(measures)}"), soft_wrap=True)
    else:
        console.print("Nothing was learned: the base model still answers.", style="yellow")
    if result.records:
        console.print(Text(_contentment(result.records)), soft_wrap=True)
    if plot is not None:
        console.print(f"Plot: {plot}", markup=False, soft_wrap=True)
    if stays := _what_stays(result):
        console.print(Text(stays, "dim"), soft_wrap=True)


def answers_table(before: Examination, after: Examination) -> Table:
    """Real answers, the first few; long ones are cut."""
    table = Table(show_lines=True, header_style="bold", border_style="dim", expand=True)
    table.add_column("question", ratio=2)
    table.add_column(f"{before.version}, before", ratio=5)
    table.add_column(f"{after.version}, after", ratio=4)
    for was, now in list(zip(before.answers, after.answers, strict=True))[:_NUM_SHOWN]:
        table.add_row(
            Text(was.question.text),
            *(Text(f"{_cut(answer.text)} ") + Text(f"({answer.num_tokens} tokens)", "dim") for answer in (was, now)),
        )
    return table


def result_json(result: DemoResult, *, plot: Path | None) -> dict[str, Json]:
    """Everything that was said and measured."""
    pair = result.pair()
    measures = result.measures()
    return {
        "user": result.user.name,
        "preference": result.user.preference,
        "line": result.server.line,
        "data_dir": str(result.server.store.data_dir) if result.server.is_kept else None,
        "is_interrupted": result.is_interrupted,
        "sessions": [record.to_json() for record in result.records],
        "steps": [{"number": s.number, "state": s.state, "samples": len(s.sample_ids)} for s in result.steps],
        "versions": [
            {"version": v.label, "state": v.state, "gate": v.gate, "reason": v.reason} for v in result.versions
        ],
        "points": [point.to_json() for point in result.points],
        "comparison": None if pair is None else comparison_json(result.user, *pair, measures, plot=plot),
        "plot": None if plot is None else str(plot),
    }


def _cut(text: str) -> str:
    words = printable(text)
    return words if len(words) <= _MAX_CHARS else words[: _MAX_CHARS - 1] + "…"


def _contentment(records: Sequence[SessionRecord]) -> str:
    """How often the first answer pleased, early and late."""
    part = max(1, min(8, len(records) // 2))
    early, late = (sum(one.first_reply_ok for one in some) for some in (records[:part], records[-part:]))
    return f"The user was content with {early} of the first {part} answers and with {late} of the last {part}."


def _what_stays(result: DemoResult) -> str:
    server, line = result.server, shlex.quote(result.server.line)
    if not server.is_kept:
        return "Its directory is removed; --keep keeps it, and `openclaw-rl up` first lets the demo use your server."
    folder = shlex.quote(str(server.store.data_dir))
    remedy = f"   (remove it: rm -r {folder})" if server.is_made else ""
    if result.versions:
        return f"What it learned stays: openclaw-rl versions --user {line} --data-dir {folder}{remedy}"
    return f"Its directory stays: {folder}{remedy}" if server.is_made else ""
