"""Candidates become live, or are rejected; and what was live before a restart becomes live again.

    publish     the engine loads the folder, checks its sha256, and answers nobody with it yet
    gate        it is compared with what answers now, on the same engine
    prove       engine and trainer tell the same change from one to the other; where nobody trains, it waits for that
    live        one row and one assignment: the next request of its line is answered by it

Candidates that were made while no engine ran stand one on the other. The last of them holds what all have learned, so
it alone is tried; if it fails, the one before it is.

Nothing here stops a request: running ones end on their version, and an engine that is away only delays a release. What
answered before stays loaded until the next candidate comes: a request that has chosen it finds it, and going back to it
takes no time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Protocol

from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable, OpenClawError, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import Engine
from openclaw_rl.release.gate import GateReport
from openclaw_rl.release.keeping import tidy
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.prove import Proof
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Lesson,
    Publication,
    Undone,
    Version,
    VersionState,
    candidate_chain,
    version_label,
)

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


class Versions(Protocol):
    """What is needed of the store."""

    async def versions(self, line: str | None = None) -> Sequence[Version]: ...

    async def set_version_state(
        self, line: str, number: int, state: VersionState, *, reason: str = "", gate: Json = None
    ) -> None: ...

    async def forget_files(self, line: str, numbers: Sequence[int]) -> None: ...

    async def undo(
        self, lesson: Lesson, *, reason: str, loaded: Collection[int] | None, unusable: Collection[int]
    ) -> Undone: ...


class Gate(Protocol):
    """Says what stands against a candidate; no parent is the base model."""

    async def measure(self, candidate: Version, parent: Version | None) -> GateReport: ...

    async def prepare(self, parent: Version | None) -> None:
        """Does what can be done before there is a candidate."""
        ...


class Proving(Protocol):
    """Proves that the engine serves what was trained; `TrainError` if nobody can say now."""

    async def prove(self, candidate: Version, parent: Version | None) -> Proof: ...


class NoSuchVersion(OpenClawError):
    """A version that cannot be made live."""


class Releaser:
    """Releases versions to one engine. Without `proving` what was live is served, and candidates wait."""

    def __init__(
        self,
        log: Versions,
        engine: Engine,
        gate: Gate,
        live: LiveVersions,
        *,
        proving: Proving | None,
        save_every: int,
        on_change: Callable[[Version], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._proving = proving
        self._engine = engine
        self._gate = gate
        self._live = live
        self._save_every = save_every
        self._on_change = on_change
        self._settled = asyncio.Event()
        self._deciding = asyncio.Lock()
        self._aside: dict[str, str] = {}
        """By line: the version that answered before, still loaded."""
        self._releasing = asyncio.Lock()
        self._looked_at: Counter[str] = Counter()
        self._left_loaded: set[str] = set()
        """Versions that go when nobody looks at them any more."""

    async def restore(self) -> None:
        """Loads what was live; then candidates that a crash left between their step and their gate."""
        known = await self._log.versions()
        for version in known:
            if version.state == "live":
                await self._put_live_again(version)
        self._live.restored()
        try:
            for line in dict.fromkeys(version.line for version in known if version.state == "candidate"):
                await self._release_line(line)
        except Exception:
            # A boundary: whatever is wrong with a candidate, serving goes on.
            _log.exception("what the last run left stays as it is until the next start")
        self._settled.set()

    async def settled(self) -> None:
        """Waits until what the last run left is released or rejected: before that nobody knows what to build on."""
        await self._settled.wait()

    async def prepare(self, line: str) -> None:
        """Measures what a candidate of the line will be compared with, in the time that its samples wait for others."""
        try:
            await self._gate.prepare(_live_version(await self._log.versions(line)))
        except Exception as error:
            # A boundary: the gate measures it itself, later, and says what is wrong.
            _log.info("what answers is not measured ahead: %r", error)

    async def release(self, version: Version) -> None:
        """Publishes a candidate, and makes it live if its gate finds nothing against it. One at a time."""
        async with self._releasing:
            await self._release_line(version.line)

    async def _release_line(self, line: str) -> None:
        if self._proving is None:
            return
        while chain := candidate_chain(known := await self._log.versions(line)):
            if not await self._try(chain[-1], _live_version(known), self._proving):
                return
        for version in await self._log.versions(line):
            if version.state == "candidate":
                await self._mark(version, "retired", reason="another version answers")
        await tidy(self._log, line, save_every=self._save_every)

    async def _try(self, version: Version, parent: Version | None, proving: Proving) -> bool:
        """Puts a candidate live, or rejects it; False if neither can be done now."""
        answering = BASE_VERSION if parent is None else parent.label
        if (aside := self._aside.pop(version.line, None)) not in (None, answering):
            await self._unload(aside)
        try:
            gate, reason = await self._examine(version, parent, proving)
        except (EngineLost, EngineUnavailable, TrainError) as error:
            # Kept as a candidate: the next start, or the next candidate, tries again.
            _log.error("version %s waits: %s", version.label, error)
            return False
        except EngineError as error:
            # It is refused, or computes nothing that could be answered with.
            await self._reject(version, str(error))
            await self._unload(version.label)
            return True
        if reason:
            await self._reject(version, reason, gate=gate)
        elif await self._go_live(version, instead_of=answering, gate={**gate, "live_at": time.time()}):
            _log.info("version %s is live", version.label)
            await self._step_aside(version.line, answering, now=version.label)
            return True
        await self._unload(version.label)
        return True

    async def _examine(self, version: Version, parent: Version | None, proving: Proving) -> tuple[dict[str, Json], str]:
        """What was measured, and why it may not answer; empty if it may."""
        await self._publish(version)
        crash_point("release.published")
        report = await self._gate.measure(version, parent)
        crash_point("release.measured")
        if report.reason:
            return report.to_json(), report.reason
        proof = await proving.prove(version, parent)
        return {**report.to_json(), "proof": proof.to_json(), "reason": proof.reason}, proof.reason

    async def _go_live(self, version: Version, *, instead_of: str, gate: Json) -> bool:
        """False if somebody went back to another version, or undid it, meanwhile: what a person wants is stronger."""
        async with self._deciding:
            known = await self._log.versions(version.line)
            is_candidate = any(one.number == version.number and one.state == "candidate" for one in known)
            if _answering(known) != instead_of or not is_candidate:
                return False
            await self._mark(version, "live", gate=gate)
            crash_point("release.marked")
            self._live.set(version.line, version.label)
            crash_point("release.live")
            return True

    async def _reject(self, version: Version, reason: str, *, gate: Json = None) -> None:
        _log.warning("version %s is rejected: %s", version.label, reason)
        await self._mark(version, "rejected", reason=reason, gate=gate)
        crash_point("release.marked")

    async def roll_back(self, line: str, number: int, *, reason: str = "", instead_of: int | None = None) -> str:
        """Makes an earlier version of a line live, 0 for the base model; the label that answers from now on.

        With `instead_of` only if that one answers still; `reason` is why it does not any more.
        """
        async with self._deciding:
            if instead_of is not None:
                now = _live_version(await self._log.versions(line))
                if now is None or now.number != instead_of:
                    return BASE_VERSION if now is None else now.label
            return await self._roll_back(line, number, reason or f"version {number} was put live")

    async def _roll_back(self, line: str, number: int, reason: str) -> str:
        known = {version.number: version for version in await self._log.versions(line)}
        now = next((version for version in known.values() if version.state == "live"), None)
        if number:
            self._with_files(known, number)
        if now is not None and now.number == number:
            return now.label
        if number:
            await self._put_live(known[number])
            # It is watched from now on: what it did before is known to whoever wants it back.
            await self._mark(known[number], "live", gate={**(known[number].gate or {}), "live_at": time.time()})
        else:
            self._live.set(line, None)
        label = version_label(line, number) if number else BASE_VERSION
        if now is not None:
            await self._mark(now, "rolled_back", reason=reason)
            await self._step_aside(line, now.label, now=label)
        return label

    async def undo(self, lesson: Lesson, *, reason: str) -> Undone:
        """Takes a lesson back: the last version before it answers from now on, and running answers end on theirs.

        A version whose files the engine refuses is as good as gone: then an earlier one answers.
        """
        async with self._deciding:
            known = {version.number: version for version in await self._log.versions(lesson.line)}
            loaded, unusable = {0, *(one.number for one in known.values() if one.state == "live")}, set[int]()
            while not (undone := await self._log.undo(lesson, reason=reason, loaded=loaded, unusable=unusable)).is_done:
                number = undone.plan.back_to
                try:
                    await self._publish(known[number])
                    loaded.add(number)
                except EngineRefused as error:
                    _log.error("version %s cannot be gone back to: %s", known[number].label, error)
                    unusable.add(number)
            plan = undone.plan
            if plan.back_to != plan.answering:
                self._live.set(lesson.line, version_label(lesson.line, plan.back_to) if plan.back_to else None)
                await self._unload(version_label(lesson.line, plan.answering))
            if plan.back_to and plan.back_to != plan.answering:
                back = known[plan.back_to]
                await self._mark(back, "live", gate={**(back.gate or {}), "live_at": time.time()})
            if self._aside.get(lesson.line) in {version_label(lesson.line, one) for one in plan.holding}:
                await self._unload(self._aside.pop(lesson.line))
            for number in plan.undone:
                self._on_change(replace(known[number], state="rolled_back", reason=reason))
            return undone

    @staticmethod
    def _with_files(known: Mapping[int, Version], number: int) -> Version:
        if number not in known:
            have = ", ".join(str(n) for n in (0, *known))
            raise NoSuchVersion(f"there is no version {number}; there are {have}")
        if not known[number].path:
            have = ", ".join(str(n) for n, one in known.items() if one.path)
            gone = f"the files of version {number} were not kept (training.save_every)"
            raise NoSuchVersion(f"{gone}; there are 0, {have}")
        return known[number]

    @asynccontextmanager
    async def loaded(self, line: str, number: int) -> AsyncIterator[str]:
        """The label of a version that the engine holds until the end, whatever answers meanwhile; 0 is the base model.

        For those who look at it. `NoSuchVersion` if there is none, or its files are gone.
        """
        if not number:
            yield BASE_VERSION
            return
        version = self._with_files({one.number: one for one in await self._log.versions(line)}, number)
        label = version.label
        self._looked_at[label] += 1
        if version.state != "live":
            self._left_loaded.add(label)
        try:
            await self._publish(version)
            yield label
        finally:
            self._looked_at[label] -= 1
            async with self._deciding:
                await self._retire_left(version)

    async def _retire_left(self, version: Version) -> None:
        """Who looks last retires what nobody needs any more."""
        if self._looked_at[version.label] or version.label not in self._left_loaded:
            return
        self._left_loaded.remove(version.label)
        now = {one.number: one.state for one in await self._log.versions(version.line)}
        is_needed = now.get(version.number) in ("live", "candidate") or version.label in self._aside.values()
        if not is_needed:
            with suppress(EngineError):  # one that could not be loaded need not be unloaded
                await self._engine.retire(version.label)

    async def _step_aside(self, line: str, label: str, *, now: str) -> None:
        """What answered until now stays loaded, in place of what did before it."""
        before = self._aside.pop(line, None)
        if before not in (None, label, now):
            await self._unload(before)
        if label != BASE_VERSION:
            self._aside[line] = label

    async def _unload(self, label: str) -> None:
        with suppress(EngineError):  # an engine that is away has unloaded it already
            await self._retire(label)

    async def _retire(self, label: str) -> None:
        """Now, or when nobody looks at it any more."""
        if self._looked_at[label]:
            self._left_loaded.add(label)
        else:
            await self._engine.retire(label)

    async def _mark(self, version: Version, state: VersionState, *, reason: str = "", gate: Json = None) -> None:
        await self._log.set_version_state(version.line, version.number, state, reason=reason, gate=gate)
        self._on_change(replace(version, state=state, reason=reason))

    async def _put_live_again(self, version: Version) -> None:
        """Serving never waits for a file that is gone or changed: then the base model answers, and the row says why."""
        while True:
            try:
                await self._put_live(version)
            except EngineRefused as error:
                _log.error("version %s cannot be served any more: %s", version.label, error)
                await self._mark(version, "rejected", reason=str(error))
            except EngineError as error:
                _log.warning("version %s waits for the engine: %s", version.label, error)
                await asyncio.sleep(_RETRY_S)
                continue
            return

    async def _put_live(self, version: Version) -> None:
        await self._publish(version)
        self._live.set(version.line, version.label)

    async def _publish(self, version: Version) -> None:
        await self._engine.publish(
            Publication(version=version.label, path=version.path, sha256=version.sha256, live=False)
        )


def _live_version(versions: Sequence[Version]) -> Version | None:
    """The version of a line that answers; None while it is the base model."""
    return next((version for version in versions if version.state == "live"), None)


def _answering(versions: Sequence[Version]) -> str:
    """Its label."""
    return BASE_VERSION if (live := _live_version(versions)) is None else live.label
