"""`openclaw-rl eval`: two versions of a user's line -> what became better or worse between them.

The running server examines both (evaluation/exam.py), behind everything that a person waits for; what their answers are
worth to a simulated user is found here. Changes nothing, and leaves no conversation behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from openclaw_rl.cli.admin import check_line_name, follow_server
from openclaw_rl.cli.learn.plot import plot_comparison, show_with_plot
from openclaw_rl.cli.screen import make_console, one_line, plain_table, print_json, progress
from openclaw_rl.config import StoreConfig
from openclaw_rl.errors import NotFound
from openclaw_rl.evaluation.comparing import ComparedMeasure, compare_examinations
from openclaw_rl.evaluation.exam import Exam, Examination
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.evaluation.questions import KINDS
from openclaw_rl.evaluation.users import SimulatedUser
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json, version_label
from openclaw_rl.views.rows import open_rows
from openclaw_rl.views.versions import live_number

_VERDICTS = {
    "better": ("better", "green"),
    "worse": ("worse", "bold red"),
    "unclear": ("may be chance", "dim"),
    "other": ("", ""),
}
"""Each in words, and its style."""

_LEAST_MEANING = 26
"""Columns in which a meaning still reads well, with the gap before it."""


def compare_versions(
    store: StoreConfig, line: str, numbers: tuple[int, int | None], exam: Exam, *, show: bool
) -> tuple[Examination, Examination]:
    """Two versions of a line, examined by the running server; None is the version that answers."""
    check_line_name(line)
    before, after = numbers
    if after is None:
        after = _answering(open_rows(store), line)
    return asyncio.run(_examine_both(store, line, before, after, exam, show=show))


def show_comparison(
    user: SimulatedUser, before: Examination, after: Examination, *, seed: int, plot: Path | None, as_json: bool
) -> None:
    """As a table or as JSON, and a plot; `PlotFailed` when all else was shown."""
    measures = compare_examinations(user, before, after, seed=seed)
    names = {"before": before.version, "after": after.version}

    def draw(path: Path) -> None:
        plot_comparison(measures, path, **names, title=f"{after.version} beside {before.version}")

    def show(drawn: Path | None) -> None:
        if as_json:
            print_json(comparison_json(user, before, after, measures, plot=drawn))
            return
        console = make_console()
        console.print(ComparisonTable(measures, **names))
        console.print(Text(f"\n{forgetting_text(measures)}"), soft_wrap=True)
        if drawn is not None:
            console.print(f"Plot: {drawn}", markup=False, soft_wrap=True)

    show_with_plot(plot, draw, show)


def exam_for(user: SimulatedUser, *, num_questions: int, num_items: int | None, seed: int) -> Exam:
    """Of the kinds of questions that the user asks."""
    kinds = getattr(user, "kinds", KINDS)
    return Exam(num_questions=num_questions, num_items=num_items, kinds=tuple(kinds), seed=seed)


def _answering(rows: ReadStore, line: str) -> int:
    """As `live_number`; `NotFound` where that is the base model: beside itself there is nothing to see."""
    if number := live_number(rows, line):
        return number
    lines = sorted({version.line for version in rows.versions() if version.state == "live"})
    if not lines:
        raise NotFound(f"no version of {line} answers: nothing was learned yet; --version 0 measures the base model")
    raise NotFound(
        f"no version of {line} answers; there are some of {', '.join(lines)}: name one of them with --user, or a "
        "version with --version N (`openclaw-rl versions` lists all, 0 is the base model)"
    )


async def examine_version(
    store: StoreConfig,
    line: str,
    number: int,
    exam: Exam,
    *,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Examination:
    """By the running server."""
    order = {"line": line, "number": number, "exam": exam.to_json()}

    def on_told(at: dict[str, int]) -> None:
        on_progress(at["done"], at["total"])

    return Examination.from_json(await follow_server(store, "/examine", order, on_told=on_told), exam)


async def _examine_both(
    store: StoreConfig, line: str, before: int, after: int, exam: Exam, *, show: bool
) -> tuple[Examination, Examination]:
    found: dict[int, Examination] = {}
    with progress(show=show) as bars:
        for number in {before: None, after: None}:  # a version beside itself is examined once
            row = bars.add_task(version_label(line, number), total=None)

            def on_progress(done: int, total: int, row: TaskID = row) -> None:
                bars.update(row, completed=done, total=total or None)

            found[number] = await examine_version(store, line, number, exam, on_progress=on_progress)
    return found[before], found[after]


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """One row for each measure; green is better and red worse than chance explains.

    Where it is narrow meanings are left out, then verdicts stand below changes: nothing is cut in 80 columns.
    """

    measures: Sequence[ComparedMeasure]
    before: str
    after: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        bare = self._wide(with_meaning=False)
        left = options.max_width - Measurement.get(console, options.update(max_width=1000), bare).maximum
        yield self._wide() if left >= _LEAST_MEANING else bare if left >= 0 else self._narrow()

    def _wide(self, *, with_meaning: bool = True) -> Table:
        table = plain_table()
        for title in ("measure", self.before, self.after, "change", ""):
            table.add_column(title, no_wrap=True)
        table.add_column("of", no_wrap=True, justify="right")
        if with_meaning:
            table.add_column("meaning")
        for measure in self.measures:
            meaning = (Text(one_line(measure.meaning, 80), "dim"),) if with_meaning else ()
            change, told = self._change(measure), self._told(measure)
            table.add_row(*self._values(measure), change, told, str(measure.num), *meaning)
        return table

    def _narrow(self) -> Table:
        """Columns as wide as what is in them; the names of versions wrap."""
        rows = []
        for measure in self.measures:
            below = Text("\n").join(part for part in (self._change(measure), self._told(measure)) if part)
            rows.append((*self._values(measure), below, str(measure.num)))
        table = plain_table()
        for index, title in enumerate(("measure", self.before, self.after, "change", "of")):
            lines = [line for row in rows for line in str(row[index]).splitlines()]
            justify: JustifyMethod = "right" if title == "of" else "left"
            table.add_column(title, width=max(map(cell_len, lines)), overflow="fold", justify=justify)
        for row in rows:
            table.add_row(*row)
        return table

    def _values(self, measure: ComparedMeasure) -> tuple[str, str, str]:
        name = measure.name.replace("_", " ")
        return name, interval_text(measure.before, measure), interval_text(measure.after, measure)

    def _change(self, measure: ComparedMeasure) -> Text:
        return Text(interval_text(measure.change, measure, signed=True), _VERDICTS[measure.verdict][1])

    def _told(self, measure: ComparedMeasure) -> Text:
        told, style = _VERDICTS[measure.verdict]
        is_same = self.before == self.after or measure.change.low == measure.change.high == 0.0
        return Text("the same" if is_same else told, style)


def interval_text(interval: Interval, measure: ComparedMeasure, *, signed: bool = False) -> str:
    """A value and its 95 % interval; shares in percent."""
    scale, digits = (100.0, 0) if measure.is_share else (1.0, 0)
    if signed and measure.is_share and abs(interval.value) < 0.1:
        digits = 1

    def number(value: float) -> str:
        if abs(value) == float("inf"):
            return "?"
        return f"{value * scale:{'+' if signed else ''}.{digits}f}".replace("-", "−")

    unit = " %" if measure.is_share and not signed else ""
    return f"{number(interval.value)}{unit} [{number(interval.low)} … {number(interval.high)}]"


def forgetting_text(measures: Sequence[ComparedMeasure]) -> str:
    """Whether something got lost, in one sentence."""
    worse = [measure for measure in measures if measure.verdict == "worse"]
    if worse:
        return "Worse than chance explains: " + ", ".join(measure.name.replace("_", " ") for measure in worse) + "."
    known = next((measure for measure in measures if measure.name == "capability"), None)
    if known is None:
        return "Nothing got worse beyond chance; capability was not measured."
    loss = max(0.0, -known.change.low)
    return f"Nothing got worse beyond chance; a loss of capability of more than {loss:.1%} is unlikely (95 %)."


def comparison_json(
    user: SimulatedUser,
    before: Examination,
    after: Examination,
    measures: Sequence[ComparedMeasure],
    *,
    plot: Path | None,
) -> dict[str, Json]:
    """Everything, every answer included."""
    return {
        "before": before.version,
        "after": after.version,
        "user": user.name,
        "preference": user.preference,
        "measures": {measure.name: measure.to_json() for measure in measures},
        "capability": None if after.capability is None else after.capability.to_json(),
        "answers": [
            {"question": was.question.text, "before": was.text, "after": now.text}
            for was, now in zip(before.answers, after.answers, strict=True)
        ],
        "plot": None if plot is None else str(plot),
    }
