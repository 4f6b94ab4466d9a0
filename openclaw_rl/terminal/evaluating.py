"""`openclaw-rl eval`: two versions of a user's line -> what became better or worse between them.

The running server examines both (evaluation/exam.py), behind everything that a person waits for; what their answers are
worth to a simulated user is found here. Changes nothing, and leaves no conversation behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from openclaw_rl.config import StoreConfig
from openclaw_rl.evaluation.comparing import Measure, compare_examinations
from openclaw_rl.evaluation.exam import Exam, Examination
from openclaw_rl.evaluation.measures import Interval
from openclaw_rl.evaluation.questions import KINDS
from openclaw_rl.evaluation.users import SimulatedUser, load_user
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.admin import follow_server
from openclaw_rl.terminal.plot import check_plot, plot_comparison
from openclaw_rl.terminal.screen import make_console, one_line, print_json
from openclaw_rl.types import Json, version_label

_VERDICT_STYLES = {"better": "green", "worse": "bold red", "unclear": "dim", "other": ""}


def run_eval(
    store: StoreConfig,
    *,
    line: str,
    number: int | None,
    compared_with: int,
    preference: str,
    num_questions: int,
    num_items: int | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measures and shows; `number` None is the version that answers."""
    user = load_user(preference, seed=seed)
    if plot is not None:
        check_plot(plot)
    if number is None:
        number = live_number(StoreReader.open(store.data_dir, store.url), line)
    exam = exam_for(user, num_questions=num_questions, num_items=num_items, seed=seed)
    before, after = asyncio.run(_examine_both(store, line, compared_with, number, exam, show=not as_json))
    measures = compare_examinations(user, before, after, seed=seed)
    names = (version_label(line, compared_with), version_label(line, number))
    if plot is not None:
        plot_comparison(measures, plot, before=names[0], after=names[1], title=f"{names[1]} beside {names[0]}")
    if as_json:
        print_json(comparison_json(user, before, after, measures, plot=plot))
        return
    console = make_console()
    console.print(comparison_table(measures, before=names[0], after=names[1]))
    console.print(Text(f"\n{forgetting_text(measures)}"), soft_wrap=True)
    if plot is not None:
        console.print(f"Plot: {plot}", markup=False, soft_wrap=True)


def exam_for(user: SimulatedUser, *, num_questions: int, num_items: int | None, seed: int) -> Exam:
    """Of the kinds of questions that the user asks."""
    kinds = getattr(user, "kinds", KINDS)
    return Exam(num_questions=num_questions, num_items=num_items, kinds=tuple(kinds), seed=seed)


def live_number(reader: StoreReader, line: str) -> int:
    """The version of a line that answers; 0 is the base model."""
    return next((version.number for version in reader.versions(line) if version.state == "live"), 0)


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
    return Examination.from_json(await follow_server(store, "/examine", order, on_progress=on_progress), exam)


async def _examine_both(
    store: StoreConfig, line: str, before: int, after: int, exam: Exam, *, show: bool
) -> tuple[Examination, Examination]:
    found: list[Examination] = []
    with _progress(show=show) as row:
        for number in (before, after):
            if number == before and found:
                found *= 2  # a version beside itself
            else:
                on_progress = row(version_label(line, number))
                found.append(await examine_version(store, line, number, exam, on_progress=on_progress))
    return found[0], found[1]


@contextmanager
def _progress(*, show: bool) -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    console = make_console("stderr")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not (show and console.is_terminal)) as progress:

        def row(name: str) -> Callable[[int, int], None]:
            task = progress.add_task(name, total=None)
            return lambda done, total: progress.update(task, completed=done, total=total or None)

        yield row


def comparison_table(measures: Sequence[Measure], *, before: str, after: str) -> Table:
    """One row for each measure; green is better and red worse than chance explains."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("measure", before, after, "change", "", "of", "meaning"):
        table.add_column(title, no_wrap=title != "meaning", justify="right" if title == "of" else "left")
    for measure in measures:
        style = _VERDICT_STYLES[measure.verdict]
        told = {"better": "better", "worse": "worse", "unclear": "may be chance", "other": ""}[measure.verdict]
        if measure.change.low == measure.change.high == 0.0:
            told = "the same"
        table.add_row(
            measure.name.replace("_", " "),
            interval_text(measure.before, measure),
            interval_text(measure.after, measure),
            Text(interval_text(measure.change, measure, signed=True), style),
            Text(told, style),
            str(measure.num),
            Text(one_line(measure.meaning, 80), "dim"),
        )
    return table


def interval_text(interval: Interval, measure: Measure, *, signed: bool = False) -> str:
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


def forgetting_text(measures: Sequence[Measure]) -> str:
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
    user: SimulatedUser, before: Examination, after: Examination, measures: Sequence[Measure], *, plot: Path | None
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
