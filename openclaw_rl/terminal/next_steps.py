"""The store -> the steps that would be taken next, by the very planner that plans them. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from openclaw_rl.assembly import make_planner
from openclaw_rl.config import Config
from openclaw_rl.credit.practice import repeated_wishes
from openclaw_rl.judge.wishes import form_words
from openclaw_rl.store import StoreReader
from openclaw_rl.terminal.lesson_text import sample_json, signed
from openclaw_rl.types import Json, Sample, Skip, Step, Version, version_label


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """A step and its samples. `stale` are those that planning it would skip for good; `is_planned`: it was begun."""

    step: Step
    new: tuple[Sample, ...]
    replayed: tuple[Sample, ...]
    num_exercises: int
    is_planned: bool
    stale: tuple[str, ...] = ()
    num_later: int = 0
    """Samples of the line that wait for a later step."""

    def to_json(self) -> dict[str, Json]:
        return {
            "user": self.step.line,
            "number": self.step.number,
            "parent": version_label(self.step.line, self.step.parent),
            "begun": self.is_planned,
            "samples": [sample_json(sample) for sample in self.new],
            "replayed": [sample_json(sample) for sample in self.replayed],
            "anchors": self.step.num_anchors,
            "exercises": self.num_exercises,
            "stale": list(self.stale),
            "later": self.num_later,
        }


class _Unwritten:
    """`train.planning.Log` over a store that is only read: what would be skipped is noted."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.skipped: list[str] = []

    async def next_step_number(self, line: str) -> int:
        return self._reader.next_step_number(line)

    async def versions(self, line: str) -> Sequence[Version]:
        return self._reader.versions(line)

    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]:
        found = self._reader.waiting_samples(line, limit + len(self.skipped))
        return [sample for sample in found if sample.id not in self.skipped][:limit]

    async def skip_samples(self, ids: Sequence[str], why: Skip) -> None:
        self.skipped += ids

    async def doubted_samples(self, line: str) -> list[str]:
        return self._reader.doubted_samples(line)

    async def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]:
        return self._reader.replayable_samples(line, number=number, max_age=max_age)


def next_steps(reader: StoreReader, config: Config, *, now: float) -> list[NextStep]:
    """What is begun, and of every other line with samples the next one."""
    waiting = {each.line: each.num_samples for each in reader.waiting()}
    most = config.training.exercises
    found = [_read(reader, step, most, num_later=waiting.get(step.line, 0)) for step in reader.planned_steps()]
    for line in waiting.keys() - {each.step.line for each in found}:
        log = _Unwritten(reader)
        step = asyncio.run(make_planner(config.training, log).next_step(line, now=now))
        if step is not None:
            num_later = waiting[line] - len(step.sample_ids) - len(log.skipped)
            found.append(_read(reader, step, most, stale=tuple(log.skipped), num_later=num_later))
    return sorted(found, key=lambda each: (not each.is_planned, each.step.line))


def next_steps_text(found: Sequence[NextStep], *, max_staleness: int | None) -> Group:
    """A table for each step."""
    parts: list[Table | Text] = []
    for each in found:
        step = each.step
        begun = ", begun before" if each.is_planned else ""
        parent = version_label(step.line, step.parent)
        parts.append(Text(f"Step {step.number} of {step.line}, from {parent}{begun}", "bold"))
        parts.append(_table(each))
        own = ((step.num_anchors, "anchor"), (each.num_exercises, "exercise"))
        notes = [f"{num} {name}{'' if num == 1 else 's'} besides" for num, name in own if num]
        if each.stale:
            limit = f"more than training.max_staleness={max_staleness} versions old"
            notes.append(f"{len(each.stale)} skipped as stale ({limit}): {', '.join(each.stale)}")
        if each.num_later:
            notes.append(f"{each.num_later} wait for a later step")
        parts.append(Text("; ".join(notes) + "\n" if notes else "", "dim"))
    return Group(*parts, Text("Nothing was trained or written.", "dim"))


def _read(
    reader: StoreReader, step: Step, most_exercises: int, *, stale: tuple[str, ...] | None = None, num_later: int = 0
) -> NextStep:
    new, replayed = (tuple(reader.samples_named(ids)) for ids in (step.sample_ids, step.replayed_ids))
    return NextStep(
        step=step,
        new=new,
        replayed=replayed,
        num_exercises=most_exercises if repeated_wishes((*new, *replayed), form_words) else 0,
        is_planned=stale is None,
        stale=stale or (),
        num_later=num_later,
    )


def _table(each: NextStep) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title, justify in (("sample", "left"), ("kind", "left"), ("reward", "right"), ("RL+OPD", "right")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for title in ("hints", "tokens"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("sampled by", ""):
        table.add_column(title, no_wrap=True)
    for samples, remark in ((each.new, ""), (each.replayed, "replayed")):
        for sample in samples:
            table.add_row(
                Text(sample.id),
                sample.kind,
                signed(sample.reward),
                f"{sample.w_rl:g}+{sample.w_opd:g}",
                str(len(sample.candidates)),
                f"{sum(sample.loss_mask)} of {len(sample.response_ids)}",
                Text(", ".join(dict.fromkeys(span.version for span in sample.version_spans))),
                Text(remark, "dim"),
            )
    return table
