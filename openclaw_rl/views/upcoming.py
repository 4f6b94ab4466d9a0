"""What the next steps would learn from: the very batches that the planner would plan, and all samples that wait.

Nothing is written: the planner is given a log over rows that are only read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from openclaw_rl.config import TrainingConfig
from openclaw_rl.credit.practice import repeated_wishes
from openclaw_rl.credit.samples import within_caps
from openclaw_rl.judge.rules import form_words
from openclaw_rl.protocols import ReadStore
from openclaw_rl.types import Json, Sample, Skip, Step, Turn, Version, version_label
from openclaw_rl.views.health import Backlog, read_backlog
from openclaw_rl.views.lessons import sample_json

_BATCHES = 4
"""How far `rehearse` looks beyond the first batch, so that what caps leave for later can be seen."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSample:
    """A sample that waits, the turn that it comes from, and whether the next batch of its line would take it."""

    sample: Sample
    turn: Turn
    user: str
    is_next: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """`num_samples` of what waits, the oldest first, and what of all turns is not learned from."""

    waiting: tuple[WaitingSample, ...]
    skips: dict[Skip, int]
    backlog: Backlog
    batch_size: int

    def to_json(self) -> dict[str, Json]:
        rewards = Counter(each.sample.reward for each in self.waiting)
        return {
            "num_samples": len(self.waiting),
            "batch_size": self.batch_size,
            "next_batch": [each.sample.id for each in self.waiting if each.is_next],
            "rewards": {f"{reward:g}": count for reward, count in sorted(rewards.items())},
            "skips": {skip.value: count for skip, count in self.skips.items()},
            "learning": self.backlog.to_json(),
        }


class UnwrittenLog:
    """What a planner asks of the store, over rows that are only read: what would be skipped is noted."""

    def __init__(self, rows: ReadStore) -> None:
        self._rows = rows
        self.skipped: list[str] = []

    async def next_step_number(self, line: str) -> int:
        return self._rows.next_step_number(line)

    async def versions(self, line: str) -> Sequence[Version]:
        return self._rows.versions(line)

    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]:
        found = self._rows.waiting_samples(line, limit + len(self.skipped))
        return [sample for sample in found if sample.id not in self.skipped][:limit]

    async def skip_samples(self, ids: Sequence[str], why: Skip) -> None:
        self.skipped += ids

    async def doubted_samples(self, line: str) -> list[str]:
        return self._rows.doubted_samples(line)

    async def replayable_samples(self, line: str, *, number: int, max_age: int) -> list[str]:
        return self._rows.replayable_samples(line, number=number, max_age=max_age)


def next_steps(
    rows: ReadStore, plan: Callable[[UnwrittenLog, str], Coroutine[None, None, Step | None]], *, num_exercises: int
) -> list[NextStep]:
    """What is begun, and of every other line with samples the next one, as `plan` would plan it."""
    waiting = {each.line: each.num_samples for each in rows.waiting()}

    def view(step: Step, *, stale: tuple[str, ...] | None = None, num_later: int) -> NextStep:
        new, replayed = (tuple(rows.samples_named(ids)) for ids in (step.sample_ids, step.replayed_ids))
        return NextStep(
            step=step,
            new=new,
            replayed=replayed,
            num_exercises=num_exercises if repeated_wishes((*new, *replayed), form_words) else 0,
            is_planned=stale is None,
            stale=stale or (),
            num_later=num_later,
        )

    found = [view(step, num_later=waiting.get(step.line, 0)) for step in rows.planned_steps()]
    for line in waiting.keys() - {each.step.line for each in found}:
        log = UnwrittenLog(rows)
        if (step := asyncio.run(plan(log, line))) is not None:
            num_later = waiting[line] - len(step.sample_ids) - len(log.skipped)
            found.append(view(step, stale=tuple(log.skipped), num_later=num_later))
    return sorted(found, key=lambda each: (not each.is_planned, each.step.line))


def rehearse(rows: ReadStore, training: TrainingConfig, *, num_samples: int) -> Rehearsal:
    """What waits now, and which of it the next batch of each line would hold under the caps."""
    found = rows.waiting_samples(None, max(num_samples, _BATCHES * training.batch_size))
    users: dict[str, str] = {}
    for name in {sample.session for sample in found}:
        session = rows.session(name)
        users[name] = session.user if session else ""
    by_line: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in found:
        by_line[sample.line].append(sample)
    taken: set[str] = set()
    for line, samples in by_line.items():
        batch, _ = within_caps(
            samples,
            batch_size=training.for_line(line).batch_size,
            user_of=lambda sample: users[sample.session],
            max_user_share=training.max_user_share,
            max_session_share=training.max_session_share,
        )
        taken.update(sample.id for sample in batch)

    def view(sample: Sample) -> WaitingSample:
        turn = rows.turn(sample.session, sample.index)
        assert turn is not None, "a sample is read together with its turn"
        return WaitingSample(sample=sample, turn=turn, user=users[sample.session], is_next=sample.id in taken)

    return Rehearsal(
        waiting=tuple(map(view, found[:num_samples])),
        skips=rows.skips(),
        backlog=read_backlog(rows),
        batch_size=training.batch_size,
    )
