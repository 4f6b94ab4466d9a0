"""Waiting samples -> steps -> candidate versions. The loop around a trainer, in the control process.

    consumes      samples that no step has yet, line by line
    produces      steps; with each that was taken, a candidate version, handed to whoever releases it
    waits for     `batch_size` samples of a line, or `max_wait_s` since its first one; the trainer; the release
    woken by      a credit with samples; the clock

A step is planned before it is taken: its number, seed and samples are on disk, and its samples belong to no other step.
Killed anywhere, the loop finds it planned, takes it again from the same parent, and gets the same weights. What it made
is written with its end in one transaction. Samples of versions too long ago are left out, with the reason.

Knows rows and orders. Whatever a trainer does, the worst that happens here is a delay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from openclaw_rl.errors import StoreError, TrainerLost, TrainError
from openclaw_rl.train.wire import StepOrder, StepReport
from openclaw_rl.types import Json, Sample, Step, Version, version_label

_log = logging.getLogger(__name__)

RETRY_S, MAX_RETRY_S = 2.0, 300.0


class Trainer(Protocol):
    """Carries out an order; `TrainerLost` if it died over it, `TrainError` if it cannot be done so."""

    async def step(self, order: StepOrder) -> StepReport: ...


class Waiting(Protocol):
    """Samples of one line that no step has yet."""

    @property
    def line(self) -> str: ...

    @property
    def num_samples(self) -> int: ...

    @property
    def since(self) -> float: ...


class Log(Protocol):
    """What this loop needs of the store."""

    @property
    def sampled(self) -> asyncio.Event: ...

    async def waiting(self) -> Sequence[Waiting]: ...

    async def waiting_samples(self, line: str | None, limit: int) -> list[Sample]: ...

    async def planned_steps(self) -> list[Step]: ...

    async def plan_step(self, step: Step) -> None: ...

    async def samples_of(self, step: Step) -> list[Sample]: ...

    async def finish_step(self, step: Step, version: Version | None) -> bool: ...

    async def next_step_number(self, line: str) -> int: ...

    async def live_version(self, line: str) -> Version | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What of the configuration this loop needs; `training` is that section, as the trainer gets it."""

    batch_size: int
    max_wait_s: float
    max_steps: int | None
    seed: int
    folder: Path
    """Where checkpoints go, a folder for each line."""
    training: Mapping[str, Json]


class TrainLoop:
    """Takes steps until it is cancelled, or `max_steps` are taken. `release` is awaited with every new candidate."""

    def __init__(
        self,
        log: Log,
        trainer: Trainer,
        settings: LoopSettings,
        *,
        release: Callable[[Version], Awaitable[None]],
        choose: Callable[[Sequence[Sample]], Sequence[Sample]],
        on_step: Callable[[Step], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._trainer = trainer
        self._settings = settings
        self._release = release
        self._choose = choose
        self._on_step = on_step
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        retry_s = RETRY_S
        while True:
            self._log.sampled.clear()
            try:
                wait_s = await self.work()
            except Exception as error:
                # The boundary of training: whatever is wrong with it, serving goes on.
                expected = isinstance(error, (StoreError, TrainerLost))
                _log.log(logging.WARNING if expected else logging.ERROR, "training waits %g s: %r", retry_s, error)
                wait_s, retry_s = retry_s, min(2 * retry_s, MAX_RETRY_S)
                await asyncio.sleep(wait_s)
                continue
            retry_s = RETRY_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._log.sampled.wait()

    async def work(self) -> float | None:
        """Takes all steps that are due; in how many seconds the next will be, None if nothing waits."""
        for step in await self._log.planned_steps():
            await self._take(step)
        while True:
            now, due_in = self._clock(), None
            for waiting in await self._log.waiting():
                left_s = waiting.since + self._settings.max_wait_s - now
                if waiting.num_samples >= self._settings.batch_size or left_s <= 0:
                    new = await self._plan(waiting.line)
                    if new is not None:
                        await self._take(new)
                        break
                else:
                    due_in = left_s if due_in is None else min(due_in, left_s)
            else:
                return due_in

    async def _plan(self, line: str) -> Step | None:
        """Fixes the next step of a line; None if there is none to take."""
        number = await self._log.next_step_number(line)
        if self._settings.max_steps is not None and number > self._settings.max_steps:
            return None
        samples = await self._log.waiting_samples(line, 4 * self._settings.batch_size)
        chosen = list(self._choose(samples))[: self._settings.batch_size]
        if not chosen:
            return None
        live = await self._log.live_version(line)
        step = Step(
            line=line,
            number=number,
            state="planned",
            planned_at=self._clock(),
            seed=self._settings.seed,
            parent=0 if live is None else live.number,
            sample_ids=tuple(sample.id for sample in chosen),
        )
        await self._log.plan_step(step)
        return step

    async def _take(self, step: Step) -> None:
        samples = await self._log.samples_of(step)
        parent = None if step.parent == 0 else str(self._checkpoint(step.line, step.parent))
        target = self._checkpoint(step.line, step.number)
        target.parent.mkdir(parents=True, exist_ok=True)
        order = StepOrder(
            line=step.line,
            number=step.number,
            parent=parent,
            parent_number=step.parent,
            target=str(target),
            seed=step.seed,
            settings=self._settings.training,
            samples=tuple(samples),
        )
        try:
            report = await self._trainer.step(order)
        except TrainerLost:
            raise
        except TrainError as error:
            report = StepReport(state="discarded", metrics={}, reason=str(error))
        ended = replace(
            step, state=report.state, finished_at=self._clock(), metrics=report.metrics, reason=report.reason
        )
        version = self._version(ended, report) if report.state == "done" else None
        if not await self._log.finish_step(ended, version):
            return
        self._on_step(ended)
        if version is not None:
            await self._release(version)
        else:
            _log.error("step %d of %s was discarded: %s", step.number, step.line, report.reason)

    def _version(self, step: Step, report: StepReport) -> Version:
        return Version(
            line=step.line,
            number=step.number,
            parent=step.parent,
            state="candidate",
            created_at=self._clock(),
            path=str(self._checkpoint(step.line, step.number) / "weights"),
            sha256=report.sha256,
        )

    def _checkpoint(self, line: str, number: int) -> Path:
        return self._settings.folder / version_label(line, number)
