"""Waiting samples -> steps -> candidate versions. The loop around a trainer, in the control process.

    consumes      samples that no step has yet, line by line; the store says whose turn it is
    produces      steps; with each that was taken, a candidate version, handed to whoever releases it
    waits for     `batch_size` samples of a line, or `max_wait_s` since its first one; the trainer; the release
    woken by      a credit with samples; the clock

A step is planned (planning.py) before it is taken: its number, seed and samples are on disk, and its samples belong to
no other step. Killed anywhere, the loop finds it planned, takes it again from the same parent, and gets the same
weights. What it made is written with its end in one transaction. While whole batches of a line wait, one step follows
the other, and only the last of some is released: it holds what all have learned, and its gate takes longer than they.

Knows rows and orders. Whatever a trainer does, the worst that happens here is a delay, and of its own line only: it
rests, longer each time, while the others go on. The flag `train.paused` then says why, and nothing is lost. Only what a
trainer reports as harmful is discarded.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

from openclaw_rl.errors import OpenClawError, StoreError, TrainerLost, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.model.durable import unfinished
from openclaw_rl.train import planning
from openclaw_rl.train.planning import Planner
from openclaw_rl.train.wire import StepOrder, StepReport
from openclaw_rl.types import (
    TRAINING_PAUSED,
    Exercise,
    Json,
    Sample,
    Step,
    Version,
    head_number,
    version_label,
    version_number,
)

_log = logging.getLogger(__name__)

RETRY_S, MAX_RETRY_S = 2.0, 300.0

MAX_CHAIN = 4
"""Steps of whole batches that are taken before the last of them is released."""

MAX_LOST = 6
"""So many trainers in a row that die over one step say that the step is at fault."""


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

    @property
    def num_doubted(self) -> int: ...


class Log(planning.Log, Protocol):
    """What this loop needs of the store."""

    @property
    def sampled(self) -> asyncio.Event: ...

    async def waiting(self) -> Sequence[Waiting]: ...

    async def planned_steps(self) -> list[Step]: ...

    async def plan_step(self, step: Step) -> None: ...

    async def samples_named(self, ids: Sequence[str]) -> list[Sample]: ...

    async def finish_step(self, step: Step, version: Version | None, *, blameless: bool = False) -> bool: ...

    async def set_flag(self, name: str, value: str | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What of the configuration this loop needs; `training` is that section, as the trainer gets it."""

    batch_size: int
    max_wait_s: float | None
    folder: Path
    """Where checkpoints go, a folder for each line."""
    training: Mapping[str, Json]
    anchors: tuple[tuple[int, ...], ...] = ()
    """Prompts, up to where an answer begins; each step takes the next ones in turn."""
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """How long nothing is tried again, and why."""

    until: float
    pause_s: float
    reason: str

    @classmethod
    def after(cls, error: Exception, before: _Rest | None, *, what: str) -> _Rest:
        """Twice as long as the one before it, up to a limit."""
        pause_s = RETRY_S if before is None else min(2 * before.pause_s, MAX_RETRY_S)
        level = logging.WARNING if isinstance(error, OpenClawError) else logging.ERROR
        _log.log(level, "%s waits %g s: %r", what, pause_s, error)
        return cls(until=asyncio.get_running_loop().time() + pause_s, pause_s=pause_s, reason=str(error) or repr(error))

    @property
    def left_s(self) -> float:
        return max(0.0, self.until - asyncio.get_running_loop().time())


class TrainLoop:
    """Takes the steps that a planner plans, until it is cancelled.

    `release` is awaited with new candidates, the last of a chain; `practise` finds the exercises of a step;
    `on_waiting` is told the line of samples that wait for the clock.
    """

    def __init__(
        self,
        log: Log,
        trainer: Trainer,
        planner: Planner,
        settings: LoopSettings,
        *,
        release: Callable[[Version], Awaitable[None]],
        practise: Callable[[Step, Sequence[Sample]], tuple[Exercise, ...]] = lambda *_: (),
        on_step: Callable[[Step], None] = lambda _: None,
        on_waiting: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._trainer = trainer
        self._planner = planner
        self._settings = settings
        self._release = release
        self._practise = practise
        self._on_step = on_step
        self._on_waiting = on_waiting
        self._clock = clock
        self._lost: Counter[tuple[str, int]] = Counter()
        self._one_at_a_time = asyncio.Lock()
        self._rests: dict[str, _Rest] = {}
        """Lines that something went wrong with."""

    async def run(self) -> None:
        """Until cancelled."""
        told: str | None = ""  # what the last run may have left is no word of ours
        trouble: _Rest | None = None
        while True:
            self._log.sampled.clear()
            due_in: float | None = None
            try:
                async with self._one_at_a_time:
                    due_in, _ = await self._work(but=self._resting())
                trouble = None
            except Exception as error:
                # The boundary of training: whatever is wrong with it, serving goes on.
                trouble = _Rest.after(error, trouble, what="training")
            rests = list(self._rests.values()) if trouble is None else [trouble]
            reason = rests[0].reason if rests else None
            if reason != told:
                with suppress(StoreError):
                    await self._log.set_flag(TRAINING_PAUSED, reason)
                    told = reason
            waits_s = [rest.left_s for rest in rests] + ([] if due_in is None else [due_in])
            with suppress(TimeoutError):
                async with asyncio.timeout(min(waits_s, default=None)):
                    await self._log.sampled.wait()

    async def work(self, *, at_once: bool = False, max_steps: int | None = None) -> float | None:
        """Takes all steps that are due, or with `at_once` all there are; in how many seconds the next will be due.

        None if nothing waits for the clock, or `max_steps` were taken. Who calls while it works waits for its end. No
        line rests here; what goes wrong with one is raised after all others had their turn.
        """
        async with self._one_at_a_time:
            due_in, stuck = await self._work(at_once=at_once, max_steps=max_steps)
        self._log.sampled.set()  # whoever runs beside it looks again which lines rest
        for error in stuck.values():
            raise error
        return due_in

    def _resting(self) -> set[str]:
        return {line for line, rest in self._rests.items() if rest.left_s > 0}

    async def _work(
        self, *, at_once: bool = False, max_steps: int | None = None, but: Collection[str] = ()
    ) -> tuple[float | None, dict[str, Exception]]:
        """Steps of all lines `but` some; when the next is due, and what went wrong with which line. That one rests."""
        num_left = math.inf if max_steps is None else max_steps
        stuck: dict[str, Exception] = {}
        due_in: float | None = None
        for step in await self._log.planned_steps():
            if num_left > 0 and step.line not in but:
                num_left -= await self._try(step, stuck, most=num_left)
        while num_left > 0:
            new, due_in = await self._due(at_once=at_once, but={*but, *stuck})
            if new is None:
                break
            await self._plan(new)
            num_left -= await self._try(new, stuck, most=num_left)
        rested = {line: rest for line, rest in self._rests.items() if line in but}
        again = {line: _Rest.after(error, self._rests.get(line), what=line) for line, error in stuck.items()}
        self._rests = rested | again
        return due_in, stuck

    async def _plan(self, step: Step) -> None:
        await self._log.plan_step(step)
        crash_point("train.planned")

    async def _try(self, step: Step, stuck: dict[str, Exception], *, most: float) -> int:
        """Takes a step, and those that follow it at once; how many, at `most`. Whatever goes wrong keeps its line, and
        no other, from going on."""
        num_taken, made = 0, None
        try:
            try:
                while True:
                    num_taken += 1
                    made = await self._take(step) or made
                    following = await self._following(step) if num_taken < min(most, MAX_CHAIN) else None
                    if following is None:
                        break
                    step = following
                    await self._plan(step)
            finally:
                if made is not None:
                    await self._release(made)
        except Exception as error:
            # A boundary, between lines: what is wrong with one is no matter of the others.
            stuck[step.line] = error
        return num_taken

    async def _following(self, step: Step) -> Step | None:
        """The next step of a line if whole batches wait. What is tried alone, since it is in doubt, stays alone."""
        size = self._settings.batch_size
        if len(step.sample_ids) < max(size, 2):
            return None
        for waiting in await self._log.waiting():
            if waiting.line == step.line and waiting.num_samples >= size and not waiting.num_doubted:
                return await self._planner.next_step(step.line, now=self._clock())
        return None

    async def _due(self, *, at_once: bool, but: Collection[str]) -> tuple[Step | None, float | None]:
        """The first step that is due, of any line `but` some; or in how many seconds there will be one."""
        due_in: float | None = None
        for waiting in await self._log.waiting():
            left_s = 0.0 if at_once else self._seconds_left(waiting)
            if left_s is None or waiting.line in but:
                continue
            if left_s > 0:
                self._on_waiting(waiting.line)
                due_in = left_s if due_in is None else min(due_in, left_s)
            elif (new := await self._planner.next_step(waiting.line, now=self._clock())) is not None:
                return new, None
        return None, due_in

    def _seconds_left(self, waiting: Waiting) -> float | None:
        """Until a line's next step is due, 0 if it is; None if only more samples can bring it about."""
        if waiting.num_samples >= self._settings.batch_size or waiting.num_doubted:
            return 0.0
        if self._settings.max_wait_s is None:
            return None
        return max(0.0, waiting.since + self._settings.max_wait_s - self._clock())

    async def _take(self, step: Step) -> Version | None:
        """The candidate that came of it, or none."""
        report, overtaken = await self._report(step)
        ended = replace(
            step, state=report.state, finished_at=self._clock(), metrics=report.metrics, reason=report.reason
        )
        version = self._version(ended, report) if report.state == "done" else None
        if version is None:
            await asyncio.to_thread(_remove, self._checkpoint(step.line, step.number))
        if not await self._log.finish_step(ended, version, blameless=overtaken):
            if step.number not in {one.number for one in await self._log.versions(step.line)}:
                await asyncio.to_thread(_remove, self._checkpoint(step.line, step.number))  # undone while it was taken
            return None
        crash_point("train.finished")
        self._on_step(ended)
        if version is None:
            level = logging.INFO if overtaken else logging.ERROR
            _log.log(level, "step %d of %s was discarded: %s", step.number, step.line, report.reason)
        return version

    async def _report(self, step: Step) -> tuple[StepReport, bool]:
        """What came of a step; and whether it was overtaken by what happened since it was planned."""
        why = await self._overtaken(step)
        if not why:
            report = await self._ordered(step)
            crash_point("train.reported")
            why = await self._overtaken(step)
            if not why:
                return report, False
        return StepReport(state="discarded", metrics={}, reason=why), True

    async def _overtaken(self, step: Step) -> str:
        """Why a step must not be taken as it was planned; empty if nothing came between."""
        if (head := head_number(await self._log.versions(step.line))) != step.parent:
            return f"it starts from version {step.parent}, and version {head} took its place"
        if len(await self._log.samples_named(step.sample_ids)) < len(step.sample_ids):
            return "some of its samples were deleted, or opted out of"
        return ""

    async def _ordered(self, step: Step) -> StepReport:
        settings = self._settings
        samples = tuple(await self._log.samples_named((*step.sample_ids, *step.replayed_ids)))
        target = self._checkpoint(step.line, step.number)
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise TrainError(f"no folder for checkpoints ({error}); training.save_path names another") from error
        first = step.number * step.num_anchors
        chosen = [settings.anchors[at % len(settings.anchors)] for at in range(first, first + step.num_anchors)]
        order = StepOrder(
            line=step.line,
            number=step.number,
            parent=None if step.parent == 0 else await self._parent(step),
            parent_number=step.parent,
            target=str(target),
            seed=step.seed,
            settings=settings.training,
            samples=samples,
            anchors=tuple(chosen),
            stop_token_ids=settings.stop_token_ids,
            exercises=self._practise(step, samples),
        )
        name = (step.line, step.number)
        try:
            report = await self._trainer.step(order)
        except TrainerLost as lost:
            self._lost[name] += 1
            if self._lost[name] < MAX_LOST:
                raise
            report = StepReport(state="discarded", metrics={}, reason=f"{MAX_LOST} trainers died over it: {lost}")
        del self._lost[name]
        if report.state != "done":
            return report
        return replace(report, metrics={**report.metrics, "policy/age": policy_age(step.parent, samples)})

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

    async def _parent(self, step: Step) -> str:
        """Where its checkpoint is: `training.save_path` may have been another one when it was made."""
        paths = {version.number: version.path for version in await self._log.versions(step.line)}
        known = paths.get(step.parent)
        return str(Path(known).parent if known else self._checkpoint(step.line, step.parent))

    def _checkpoint(self, line: str, number: int) -> Path:
        return self._settings.folder / version_label(line, number)


def _remove(checkpoint: Path) -> None:
    """What a trainer that died may have left of it."""
    for folder in (checkpoint, unfinished(checkpoint)):
        shutil.rmtree(folder, ignore_errors=True)


def policy_age(parent: int, samples: Sequence[Sample]) -> float:
    """How many versions before `parent` the tokens were sampled, in the mean; below 0 if by one since rolled back."""
    spans = [span for sample in samples for span in sample.version_spans]
    return parent - fmean((version_number(span.version) for span in spans), (span.end - span.start for span in spans))
