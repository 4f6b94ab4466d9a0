"""Waiting samples -> steps -> candidate versions. The loop around a trainer, in the control process.

    consumes      samples that no step has yet, line by line; how long they wait and their weights say whose turn it is
    produces      steps; with each that was taken, a candidate version, handed to whoever releases it
    waits for     `batch_size` samples of a line, `pause_s` in which its person says nothing, or `max_wait_s` since its
                  first one (where nobody waits for it: its last one); the trainer; the release
    woken by      a credit, a turn that nobody will judge; the clock

A step is planned (planning.py) before it is taken: its number, seed and samples are on disk, and its samples belong to
no other step. Killed anywhere, the loop finds the planned step, takes it again from the same parent, and gets the same
weights. The step's end and its version are written in one transaction. While whole batches of a line wait, steps follow
each other at once, and only the last of them is released: it holds what all have learned, and a gate takes longer than
a step.

Knows rows and orders, no words and no files. A trainer that fails delays its own line only: the line rests, longer each
time, and the flag `train.paused` says why. Nothing is lost. A step is discarded only if the trainer reports it harmful.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import OpenClawError, StoreError, TrainerLost, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import LearningStore, StepPractice, Trainer
from openclaw_rl.train.planning import Planner
from openclaw_rl.types import (
    TRAINING_PAUSED,
    Json,
    KeyTerms,
    Sample,
    Step,
    StepOrder,
    StepReport,
    Version,
    Waiting,
    WeightsRef,
    claim_of,
    head_number,
    line_kind,
    version_number,
)

_log = logging.getLogger(__name__)

RETRY = Backoff(first_s=2.0, longest_s=300.0)

MAX_CHAIN = 4
"""Steps of whole batches that are taken before the last of them is released."""

ELSEWHERE_S = 5.0
"""How soon a line that another process works on is looked at again; that it is done is told at once."""

MAX_LOST = 6
"""After so many trainers in a row died over one step, the step is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """What of the configuration this loop needs; `training` is that section, as the trainer gets it.

    `waits_from_newest`: `max_wait_s` counts from a line's last sample, not from its first. Where nobody waits for what
    is learned, batches are whole as long as samples come.
    """

    batch_size: int
    max_wait_s: float | None
    pause_s: float
    training: Mapping[str, Json]
    waits_from_newest: bool = False
    max_line_share: float = 1.0
    """The largest part of the trainer's time for one line whose user's keys name none."""
    anchors: tuple[tuple[int, ...], ...] = ()
    """Prompts, up to where an answer begins; each step takes the next ones in turn."""
    stop_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """How long nothing is tried again, and why."""

    until: float
    num_failures: int
    reason: str

    @classmethod
    def after(cls, error: Exception, before: _Rest | None, *, what: str) -> _Rest:
        """Twice as long as the one before it, up to a limit."""
        num_failures = 1 if before is None else before.num_failures + 1
        pause_s = RETRY.pause_s(num_failures)
        level = logging.WARNING if isinstance(error, OpenClawError) else logging.ERROR
        _log.log(level, "%s waits %g s: %r", what, pause_s, error)
        until = asyncio.get_running_loop().time() + pause_s
        return cls(until=until, num_failures=num_failures, reason=str(error) or repr(error))

    @property
    def left_s(self) -> float:
        return max(0.0, self.until - asyncio.get_running_loop().time())


class TrainLoop:
    """Takes the steps that a planner plans, until it is cancelled.

    `of_tasks` are the settings of environments' lines. `terms_of` a line: its weight among those that wait, and its
    share of the trainer's time. `release` is awaited with the last candidate of a chain.
    `practice` (credit's) prepares a step's exercises. `on_waiting` is told the line of samples that wait for the clock.
    """

    def __init__(
        self,
        log: LearningStore,
        trainer: Trainer,
        planner: Planner,
        settings: LoopSettings,
        *,
        of_tasks: LoopSettings | None = None,
        release: Callable[[Version], Awaitable[None]],
        practice: StepPractice | None = None,
        on_step: Callable[[Step], None] = lambda _: None,
        on_waiting: Callable[[str], None] = lambda _: None,
        terms_of: Callable[[str], KeyTerms] = lambda _: KeyTerms(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._trainer = trainer
        self._planner = planner
        self._settings = settings
        self._of_tasks = of_tasks or settings
        self._release = release
        self._practice = practice
        self._on_step = on_step
        self._on_waiting = on_waiting
        self._terms_of = terms_of
        self._clock = clock
        self._leaves_until: dict[str, float] = {}
        """Lines that had their share of the trainer's time, and until when."""
        self._lost: Counter[tuple[str, int]] = Counter()
        self._one_at_a_time = asyncio.Lock()
        self._rests: dict[str, _Rest] = {}
        """Lines that something went wrong with."""
        self._elsewhere: set[str] = set()
        """Lines that another process works on."""

    async def run(self) -> None:
        """Until cancelled."""
        told: str | None = ""  # what the last run may have left is no word of ours
        trouble: _Rest | None = None
        while True:
            self._log.woken("train").clear()
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
            waits_s += [ELSEWHERE_S] if self._elsewhere else []
            with suppress(TimeoutError):
                async with asyncio.timeout(min(waits_s, default=None)):
                    await self._log.woken("train").wait()

    async def work(self, *, at_once: bool = False, max_steps: int | None = None) -> float | None:
        """Takes all steps that are due, or with `at_once` all there are; in how many seconds the next will be due.

        None if nothing waits for the clock, or `max_steps` were taken. Who calls while it works waits for its end. No
        line rests here; what goes wrong with one is raised after all others had their turn.
        """
        async with self._one_at_a_time:
            due_in, stuck = await self._work(at_once=at_once, max_steps=max_steps)
        self._log.woken("train").set()  # whoever runs beside it looks again which lines rest
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
        self._elsewhere = set()
        stuck: dict[str, Exception] = {}
        due_in: float | None = None
        for step in await self._log.planned_steps():
            if num_left > 0 and step.line not in but:
                num_left -= await self._try(step, stuck, most=num_left)
        while num_left > 0:
            new, due_in = await self._due(at_once=at_once, but={*but, *stuck, *self._elsewhere})
            if new is None:
                break
            num_left -= await self._try(new, stuck, most=num_left, is_new=True)
        rested = {line: rest for line, rest in self._rests.items() if line in but}
        again = {line: _Rest.after(error, self._rests.get(line), what=line) for line, error in stuck.items()}
        self._rests = rested | again
        return due_in, stuck

    async def _plan(self, step: Step) -> None:
        await self._log.plan_step(step)
        crash_point("train.planned")

    async def _try(self, step: Step, stuck: dict[str, Exception], *, most: float, is_new: bool = False) -> int:
        """Takes a step, and those that follow it at once; how many, at `most`. Whatever goes wrong keeps its line, and
        no other, from going on. Not where another process works on the line."""
        async with self._log.claimed(claim_of(step.line)) as is_ours:
            if not is_ours:
                self._elsewhere.add(step.line)
                return 0
            if (now := await self._as_it_is(step, is_new=is_new)) is None:
                return 0
            if is_new:
                await self._plan(now)
            return await self._try_ours(now, stuck, most=most)

    async def _as_it_is(self, step: Step, *, is_new: bool) -> Step | None:
        """What another process left of it before the claim was ours."""
        if not self._log.is_shared:
            return step
        if is_new:
            return await self._planner.next_step(step.line, now=self._clock())
        still = ((one.line, one.number) for one in await self._log.planned_steps())
        return step if (step.line, step.number) in still else None

    async def _try_ours(self, step: Step, stuck: dict[str, Exception], *, most: float) -> int:
        num_taken, made, began_at = 0, None, self._clock()
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
        self._leave(step.line, self._clock() - began_at)
        return num_taken

    def _leave(self, line: str, took_s: float) -> None:
        """Whoever may have one part of the trainer's time leaves it alone for as long as makes it that part."""
        own = self._terms_of(line).training_share
        share = self._settings_of(line).max_line_share if own is None else own
        self._leaves_until = {other: until for other, until in self._leaves_until.items() if until > self._clock()}
        if share < 1.0:
            self._leaves_until[line] = self._clock() + took_s * (1.0 - share) / share

    async def _following(self, step: Step) -> Step | None:
        """The next step of a line if whole batches wait. What is tried alone, since it is in doubt, stays alone."""
        size = self._settings_of(step.line).batch_size
        if len(step.sample_ids) < max(size, 2):
            return None
        for waiting in await self._log.waiting():
            if waiting.line == step.line and waiting.num_samples >= size and not waiting.num_doubted:
                return await self._planner.next_step(step.line, now=self._clock())
        return None

    async def _due(self, *, at_once: bool, but: Collection[str]) -> tuple[Step | None, float | None]:
        """The first step that is due, of any line `but` some; or in how many seconds there will be one."""
        due_in: float | None = None
        for waiting in self._in_turn(await self._log.waiting()):
            left_s = 0.0 if at_once else self._seconds_left(waiting)
            if left_s is None or waiting.line in but:
                continue
            if left_s > 0:
                self._on_waiting(waiting.line)
                due_in = left_s if due_in is None else min(due_in, left_s)
            elif (new := await self._planner.next_step(waiting.line, now=self._clock())) is not None:
                return new, None
        return None, due_in

    def _in_turn(self, waiting: Sequence[Waiting]) -> list[Waiting]:
        now = self._clock()
        return sorted(waiting, key=lambda one: one.turn_by_weight(now, self._terms_of(one.line).weight or 1.0))

    def _settings_of(self, line: str) -> LoopSettings:
        return self._of_tasks if line_kind(line) == "environment" else self._settings

    def _seconds_left(self, waiting: Waiting) -> float | None:
        """Until a line's next step is due, 0 if it is; None if only more samples can bring it about."""
        settings = self._settings_of(waiting.line)
        leaves_s = max(0.0, self._leaves_until.get(waiting.line, 0.0) - self._clock())
        if waiting.num_samples >= settings.batch_size or waiting.num_doubted:
            return leaves_s
        if settings.max_wait_s is None:
            return None
        due_at = settings.max_wait_s + (waiting.newest if settings.waits_from_newest else waiting.since)
        if waiting.silent_since is not None:
            due_at = min(due_at, waiting.silent_since + settings.pause_s)
        return max(leaves_s, due_at - self._clock())

    async def _take(self, step: Step) -> Version | None:
        """The candidate that came of it, or none."""
        report, overtaken = await self._report(step)
        ended = replace(
            step, state=report.state, finished_at=self._clock(), metrics=report.metrics, reason=report.reason
        )
        version = self._version(ended, report) if report.state == "done" else None
        if version is None:
            await self._abandon(step)
        if not await self._log.finish_step(ended, version, blameless=overtaken):
            if step.number not in {one.number for one in await self._log.versions(step.line)}:
                await self._abandon(step)  # undone while it was taken
            return None
        crash_point("train.finished")
        self._on_step(ended)
        if version is None:
            level = logging.INFO if overtaken else logging.ERROR
            _log.log(level, "step %d of %s was discarded: %s", step.number, step.line, report.reason)
        return version

    async def _abandon(self, step: Step) -> None:
        """What is left of it costs space and no more."""
        try:
            await self._trainer.abandon(step.line, step.number)
        except TrainError as error:
            _log.warning("%s", error)

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
        settings = self._settings_of(step.line)
        samples = tuple(await self._log.samples_named((*step.sample_ids, *step.replayed_ids)))
        first = step.number * step.num_anchors
        chosen = [settings.anchors[at % len(settings.anchors)] for at in range(first, first + step.num_anchors)]
        order = StepOrder(
            line=step.line,
            number=step.number,
            parent=None if step.parent == 0 else await self._parent(step),
            parent_number=step.parent,
            seed=step.seed,
            settings=settings.training,
            samples=samples,
            anchors=tuple(chosen),
            stop_token_ids=settings.stop_token_ids,
            exercises=() if self._practice is None else self._practice.exercises(step, samples),
        )
        name = (step.line, step.number)
        _log.debug("step %d of %s: %d samples, %d anchors", step.number, step.line, len(samples), len(chosen))
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
        assert report.weights is not None, "a step that is done has made weights"
        return Version(
            line=step.line,
            number=step.number,
            parent=step.parent,
            state="candidate",
            created_at=self._clock(),
            weights=report.weights,
        )

    async def _parent(self, step: Step) -> WeightsRef:
        (found,) = (one for one in await self._log.versions(step.line) if one.number == step.parent)
        if found.weights is None:
            raise TrainError(f"the weights of {found.label} are gone; roll back to a version that has its own")
        return found.weights


def policy_age(parent: int, samples: Sequence[Sample]) -> float:
    """How many versions before `parent` the tokens were sampled, in the mean; below 0 if by one since rolled back."""
    spans = [span for sample in samples for span in sample.version_spans]
    return parent - fmean((version_number(span.version) for span in spans), (span.end - span.start for span in spans))
