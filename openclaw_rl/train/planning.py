"""Waiting samples of a line -> the next step, or the reason why there is none. Decides; trains nothing.

    new         what waits longest, within the caps; answers of versions too long ago are skipped for good
    replayed    where these are fewer than a batch, samples of the last few steps fill it up, those with hints first
    anchors     fixed prompts to which the base model's answers are kept

A sample that was in a discarded step comes alone, without company: so it shows whether it was the reason. An attempt at
a task does not come again. What is drawn is drawn by a seed made of the step's own name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from openclaw_rl.config import TrainingConfig
from openclaw_rl.protocols import WaitingSamples
from openclaw_rl.types import Sample, Skip, Step, Version, head_number, line_kind, num_steps_since, version_number

_LOOK_AHEAD = 4
"""Batches of waiting samples that are looked at, so that caps can choose."""


class Planner:
    """Fixes what goes into a step. `choose` puts caps on users and sessions."""

    def __init__(
        self,
        log: WaitingSamples,
        settings: TrainingConfig,
        *,
        choose: Callable[[Sequence[Sample]], Sequence[Sample]],
        on_skip: Callable[[str, Sequence[str], Skip], None] = lambda *_: None,
    ) -> None:
        self._log = log
        self._settings = settings
        self._choose = choose
        self._on_skip = on_skip

    async def next_step(self, line: str, *, now: float) -> Step | None:
        """The next step of a line; None if there is none to take. Writes down only what will never be taken."""
        settings = self._settings.for_line(line)
        number = await self._log.next_step_number(line)
        if settings.max_steps is not None and number > settings.max_steps:
            return None
        at = head_number(await self._log.versions(line))
        doubted = await self._doubted(line)
        new = doubted[:1] or await self._new(line, at)
        if not new:
            return None
        replayed = [] if doubted else await self._replayed(line, number, at, room=settings.batch_size - len(new))
        return Step(
            line=line,
            number=number,
            state="planned",
            planned_at=now,
            seed=settings.seed,
            parent=at,
            sample_ids=tuple(new),
            replayed_ids=tuple(replayed),
            num_anchors=0 if doubted else settings.anchors,
        )

    async def _doubted(self, line: str) -> list[str]:
        """One by one they would take an environment's line hours: there they are skipped."""
        doubted = await self._log.doubted_samples(line)
        if not doubted or line_kind(line) != "environment":
            return doubted
        await self._log.skip_samples(doubted, Skip.DISCARDED)
        self._on_skip(line, doubted, Skip.DISCARDED)
        return []

    async def _new(self, line: str, at: int) -> list[str]:
        settings = self._settings.for_line(line)
        versions = await self._log.versions(line)
        while True:
            waiting = await self._log.waiting_samples(line, _LOOK_AHEAD * settings.batch_size)
            stale = [sample.id for sample in waiting if is_stale(sample, at, settings.max_staleness, versions)]
            if not stale:
                return [sample.id for sample in self._choose(waiting)][: settings.batch_size]
            await self._log.skip_samples(stale, Skip.STALE)
            self._on_skip(line, stale, Skip.STALE)

    async def _replayed(self, line: str, number: int, at: int, *, room: int) -> list[str]:
        max_age = self._settings.for_line(line).replay_max_age
        if room <= 0 or not max_age:
            return []
        known = await self._log.replayable_samples(line, number=at, max_age=max_age)
        drawn = random.Random(f"{self._settings.seed} {line} {number}")
        return drawn.sample(known, min(room, len(known)))


def is_stale(sample: Sample, at: int, max_staleness: int | None, versions: Sequence[Version] = ()) -> bool:
    """Whether an answer was sampled too many of the line's `versions` before `at`.

    An accepted rewrite or a demonstration is an example at any age; and what a step had in time is not late because the
    step was undone.
    """
    if max_staleness is None or sample.kind != "turn" or sample.is_returned:
        return False
    sampled_by = {version_number(span.version) for span in sample.version_spans}
    return max(num_steps_since(versions, at, one) for one in sampled_by) > max_staleness
