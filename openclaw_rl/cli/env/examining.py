"""`openclaw-rl env eval`: two versions at the same held-out tasks, and what one does better."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw_rl.cli.admin import follow_server
from openclaw_rl.cli.env.running import a_server
from openclaw_rl.cli.env.showing import percent, show_attempt, show_step
from openclaw_rl.cli.screen import make_console, plain_table, print_json, progress
from openclaw_rl.config import LoadedConfig
from openclaw_rl.envs.orders import Attempted, ExamOrder, Tried
from openclaw_rl.evaluation.measures import Interval, paired_difference, share_interval
from openclaw_rl.types import Json, Split
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.versions import live_number
from openclaw_rl.wiring.envs import line_of_track, make_means


@dataclass(frozen=True, slots=True, kw_only=True)
class ExamPlan:
    """What was asked for; `version` None is the live one."""

    track: str
    source: str
    names: tuple[str, ...]
    version: int | None
    compare: int
    num_tasks: int
    attempts: int
    split: Split
    harness: str
    show_steps: bool


def examine_tasks(
    loaded: LoadedConfig, plan: ExamPlan, *, files: Sequence[Path], overrides: Sequence[str], as_json: bool
) -> int:
    """0 when both versions were compared; 130 after Ctrl-C."""
    try:
        compared = asyncio.run(_examine(loaded, plan, files=files, overrides=overrides))
    except KeyboardInterrupt:
        return 130
    if as_json:
        print_json(compared.to_json())
    else:
        compared.show()
    return 0


async def _examine(
    loaded: LoadedConfig, plan: ExamPlan, *, files: Sequence[Path], overrides: Sequence[str]
) -> Compared:
    console = make_console("stderr")
    server = a_server(loaded, files=files, overrides=overrides, is_demo=False, console=console)
    async with server as asked:
        store = asked.store
        number = plan.version
        if number is None:
            line = line_of_track(plan.track, make_means(loaded.config))
            number = await asyncio.to_thread(lambda: live_number(open_rows(store), line))
        order = ExamOrder(
            tried=Tried(environment=plan.track, source=plan.source, harness=plan.harness, names=plan.names),
            versions=tuple(dict.fromkeys((plan.compare, number))),
            num_tasks=plan.num_tasks,
            attempts=plan.attempts,
            split=plan.split,
            tell_steps=plan.show_steps,
        )
        with progress(show=True, beside=console) as bars:
            bar = bars.add_task("attempts", total=None)

            def hear(line: dict[str, Any]) -> None:
                match line:
                    case {"step": step}:
                        show_step(console, step)
                    case {"attempt": raw}:
                        bars.update(bar, advance=1)
                        show_attempt(console, Attempted.from_json(raw))

            found = await follow_server(store, "/try", order.to_json(), on_told=hear)
    rows = {label: [Attempted.from_json(raw) for raw in row] for label, row in found["versions"].items()}
    labels = list(rows)
    return Compared(before=labels[0], after=labels[-1], rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The attempts of two versions, or of one beside itself, at the same tasks."""

    before: str
    after: str
    rows: dict[str, list[Attempted]]

    def solved(self, label: str) -> Interval:
        row = self.rows[label]
        return share_interval(sum(one.grade.is_solved for one in row), len(row))

    @property
    def change(self) -> Interval:
        before, after = (
            [float(one.grade.is_solved) for one in self.rows[label]] for label in (self.before, self.after)
        )
        return paired_difference(before, after, 0, is_share=True)

    def to_json(self) -> dict[str, Json]:
        return {
            "before": self.before,
            "after": self.after,
            "solved": {label: self.solved(label).to_json() for label in self.rows},
            "change": self.change.to_json(),
            "attempts": {label: [one.to_json() for one in row] for label, row in self.rows.items()},
        }

    def show(self) -> None:
        console = make_console()
        table = plain_table("version", "solved", "of", "mean share", right=("of", "mean share"))
        for label, row in self.rows.items():
            share = sum(one.grade.share for one in row) / len(row)
            table.add_row(label, percent(self.solved(label)), str(len(row)), f"{share:.2f}")
        console.print(table)
        if self.before != self.after:
            console.print(f"{self.after} beside {self.before}: {percent(self.change, sign='+')}", markup=False)
