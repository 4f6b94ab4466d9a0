"""Candidates become live, or are rejected; and what was live before a restart becomes live again.

    publish     the engine loads the folder, checks its sha256, and answers nobody with it yet
    gate        it is compared with what answers now, on the same engine
    prove       engine and trainer measure the same change from one to the other; without a trainer it waits for that
    live        one row and one assignment: the next request of its line is answered by it

Candidates that were made while no engine ran build on each other. The last of them holds what all have learned, so it
alone is tried; if it fails, the one before it is tried. A candidate whose change is below the noise does not answer,
and the next step builds on it. A version that no live version builds on gives its samples back to be learned again. So
does a rejected one; its samples are then in doubt, unless the engine was the reason and not what was learned.

Nothing here stops a request: running ones end on their version, and an engine that is away only delays a release. A
version that cannot be loaded or tried now is tried again, line by line, after pauses that double.

The rows say which version answers. A change of that holds the lock `_deciding` and reads the row first. `_releasing` is
held from a candidate's publication to its end, and may wait for `_deciding`, never the other way round. Rolling back
and undoing do not wait for a gate: a running examination is given up, and the rows say what is tried next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable, OpenClawError, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import Engine, LearningStore, WeightsKeeper
from openclaw_rl.release.gate.full import GateReport
from openclaw_rl.release.gate.prove import Proof, Verdict
from openclaw_rl.release.keeping import tidy
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.shelf import Shelf
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Lesson,
    Undone,
    Version,
    VersionState,
    ancestry,
    candidate_chain,
    version_label,
)

_log = logging.getLogger(__name__)

RETRY = Backoff(first_s=1.0, longest_s=300.0)

_Examined = tuple[dict[str, Json], str, Verdict | None]
"""What was measured, why it may not answer, empty if it may, and what the proof says, if it came to that."""


class CandidateGate(Protocol):
    """Says what stands against a candidate; no parent is the base model."""

    async def measure(self, candidate: Version, parent: Version | None) -> GateReport: ...

    async def prepare(self, parent: Version | None) -> None:
        """Does what can be done before there is a candidate."""
        ...


class Prover(Protocol):
    """Proves that the engine serves what was trained; `TrainError` if nobody can say now."""

    async def prove(self, candidate: Version, parent: Version | None) -> Proof: ...


class NoSuchVersion(OpenClawError):
    """A version that cannot be made live."""


class Releaser:
    """Releases versions to one engine. Without `proving` what was live is served, and candidates wait."""

    def __init__(
        self,
        log: LearningStore,
        engine: Engine,
        gate: CandidateGate,
        live: LiveVersions,
        *,
        proving: Prover | None,
        keeper: WeightsKeeper,
        save_every: int,
        on_change: Callable[[Version], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._proving = proving
        self._keeper = keeper
        self._shelf = Shelf(engine)
        self._gate = gate
        self._live = live
        self._save_every = save_every
        self._on_change = on_change
        self._loaded, self._settled = asyncio.Event(), asyncio.Event()
        self._deciding = asyncio.Lock()
        self._releasing = asyncio.Lock()
        self._examining: tuple[str, asyncio.Task[_Examined]] | None = None
        """The line whose candidate is examined now."""
        self._waiting: set[str] = set()
        """Lines with something that cannot be done now; `run` does it."""
        self._parked = asyncio.Queue[str]()
        self._refusals: dict[str, str] = {}
        """By line: what was rejected through no fault of its samples, until who trains is told."""

    async def run(self) -> None:
        """Restores what the last run left, and retries whatever has to wait, until cancelled."""
        async with asyncio.TaskGroup() as lines:
            await self.restore()
            while True:
                lines.create_task(self._try_again(await self._parked.get()))

    async def restore(self) -> None:
        """Loads what was live; then candidates that a crash left between their step and their gate."""
        known = await self._log.versions()
        live = [version.line for version in known if version.state == "live"]
        self._live.expect(live)
        for line in live:
            await self._settle_or_park(line, self._load)
        self._loaded.set()
        for line in dict.fromkeys(version.line for version in known if version.state == "candidate"):
            await self._settle_or_park(line, self._settle)
        self._settled.set()

    async def _settle_or_park(self, line: str, work: Callable[[str], Awaitable[bool]]) -> bool:
        try:
            is_done = await work(line)
        except Exception:
            # A boundary: whatever is wrong with a version, serving goes on.
            _log.exception("what waits of the line %s is tried again later", line)
            is_done = False
        if not is_done:
            self._park(line)
        return is_done

    def _park(self, line: str) -> None:
        if line not in self._waiting:
            self._waiting.add(line)
            self._parked.put_nowait(line)

    async def _try_again(self, line: str) -> None:
        for pause_s in RETRY:
            await asyncio.sleep(pause_s)
            if await self._settle_or_park(line, self._settle):
                break
        self._waiting.remove(line)

    async def loaded_live(self) -> None:
        """Waits until the versions that were live are loaded, or have failed to load; from then on a person may choose
        others."""
        await self._loaded.wait()

    async def settled(self) -> None:
        """Waits until the candidates of the last run were tried once: before that it is open which version the next
        step builds on."""
        await self._settled.wait()

    async def prepare(self, line: str) -> None:
        """Measures what a candidate of the line will be compared with, in the time that its samples wait for others."""
        try:
            await self._gate.prepare(_live_version(await self._log.versions(line)))
        except Exception as error:
            # A boundary: the gate measures it itself, later, and says what is wrong.
            _log.info("what answers is not measured ahead: %r", error)

    async def release(self, version: Version) -> None:
        """Publishes a candidate, and makes it live if its gate finds nothing against it. One at a time.

        What cannot be done now, or fails, is tried again later. `TrainError` if one is rejected although nothing is
        wrong with what it learned from: its samples wait, and who trains on them at once gets the same again.
        """
        is_done = False
        self._refusals.pop(version.line, None)
        try:
            is_done = await self._settle(version.line)
        finally:
            if not is_done:
                self._park(version.line)
        if (refusal := self._refusals.pop(version.line, None)) is not None:
            raise TrainError(refusal)

    async def _settle(self, line: str) -> bool:
        """Loads the live version where it is not, and tries the candidates built on it; False if that has to wait."""
        if not await self._load(line):
            return False
        async with self._releasing:
            return await self._release_line(line)

    async def _release_line(self, line: str) -> bool:
        if self._proving is None:
            return True
        while chain := candidate_chain(known := await self._log.versions(line)):
            if not await self._try(chain[-1], _live_version(known), self._proving):
                return False
        for version in await self._log.retire_stranded(line, reason="another version answers"):
            self._on_change(version)
        for version in await self._log.versions(line):
            if version.state == "candidate":
                await self._mark(version, "retired", reason="another version answers")
        await tidy(self._log, self._keeper, line, save_every=self._save_every)
        return True

    async def _try(self, version: Version, parent: Version | None, proving: Prover) -> bool:
        """Makes a candidate live, or rejects it; False if neither can be done now."""
        answering = BASE_VERSION if parent is None else parent.label
        await self._shelf.drop_aside(version.line, keep=(answering,))
        async with self._held(version, parent):
            try:
                found = await self._examined(version, parent, proving)
            except (EngineLost, EngineUnavailable, TrainError) as error:
                # Kept as a candidate, if it is one still, and tried again.
                _log.error("version %s waits: %s", version.label, error)
                return not _is_candidate(version, await self._log.versions(version.line))
            except EngineError as error:
                # It is refused, or computes nothing that could be answered with.
                await self._reject(version, str(error), blameless=isinstance(error, EngineRefused))
                return True
            if found is None:
                return True
            gate, reason, verdict = found
            if verdict == "no effect":
                await self._build_on(version, reason, gate=gate)
            elif reason:
                await self._reject(version, reason, gate=gate, blameless=verdict == "other weights")
            elif await self._go_live(version, instead_of=answering, gate={**gate, "live_at": time.time()}):
                _log.info("version %s is live", version.label)
                await self._shelf.step_aside(version.line, answering, now=version.label)
            return True

    async def _examined(self, version: Version, parent: Version | None, proving: Prover) -> _Examined | None:
        """What gate and proof found; None if somebody decided meanwhile to compare it with another parent, or not at
        all."""
        task = asyncio.create_task(self._examine(version, parent, proving))
        self._examining = (version.line, task)
        try:
            return await task
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():
                raise
            _log.info("version %s is not examined any more", version.label)
            return None
        finally:
            self._examining = None

    def _stop_examining(self, line: str) -> None:
        if self._examining is not None and self._examining[0] == line:
            self._examining[1].cancel()

    async def _examine(self, version: Version, parent: Version | None, proving: Prover) -> _Examined:
        await self._shelf.load(version)
        crash_point("release.published")
        report = await self._gate.measure(version, parent)
        _log.debug("version %s at the gate: %s", version.label, report.reason or "passed")
        crash_point("release.measured")
        if report.reason:
            return report.to_json(), report.reason, None
        proof = await proving.prove(version, parent)
        return {**report.to_json(), "proof": proof.to_json(), "reason": proof.reason}, proof.reason, proof.verdict

    async def _go_live(self, version: Version, *, instead_of: str, gate: Json) -> bool:
        """False if somebody rolled back or undid the version meanwhile: a person's decision wins."""
        async with self._deciding:
            known = await self._log.versions(version.line)
            if _answering(known) != instead_of or not _is_candidate(version, known):
                return False
            await self._mark(version, "live", gate=gate)
            crash_point("release.marked")
            self._live.set(version.line, version.label)
            crash_point("release.live")
            return True

    async def _build_on(self, version: Version, reason: str, *, gate: Json) -> None:
        """Keeps a candidate that changed too little to be proved. The next step builds on it, and both changes together
        may be enough."""
        async with self._deciding:
            known = await self._log.versions(version.line)
            if not _is_candidate(version, known):
                return  # undone meanwhile
            _log.info("version %s does not answer: %s", version.label, reason)
            for below in candidate_chain(known)[:-1]:
                await self._mark(below, "retired", reason=f"version {version.label} stands on it")
            await self._mark(version, "no_effect", reason=reason, gate=gate)
            crash_point("release.marked")

    async def _reject(self, version: Version, reason: str, *, gate: Json = None, blameless: bool = False) -> None:
        async with self._deciding:
            if not _is_candidate(version, await self._log.versions(version.line)):
                return  # undone, or put live by somebody, meanwhile
            _log.warning("version %s is rejected: %s", version.label, reason)
            await self._mark(version, "rejected", reason=reason, gate=gate, blameless=blameless)
            if blameless:
                self._refusals[version.line] = f"version {version.label} is rejected, and its samples wait: {reason}"
            crash_point("release.marked")

    async def roll_back(
        self, line: str, number: int, *, reason: str = "", instead_of: int | None = None, untried: bool = False
    ) -> str:
        """Makes an earlier version of a line live, 0 for the base model; the label that answers from now on.

        With `instead_of` only if that one answers still; `reason` is why it does not any more. `NoSuchVersion` if
        samples that made it were given back, or if it never answered, unless it is to be made live `untried`.
        """
        async with self._deciding:
            if instead_of is not None:
                now = _live_version(await self._log.versions(line))
                if now is None or now.number != instead_of:
                    return BASE_VERSION if now is None else now.label
            if number:
                await self._check_may_answer(line, number, untried=untried)
            return await self._roll_back(line, number, reason or f"version {number} was put live")

    async def _check_may_answer(self, line: str, number: int, *, untried: bool) -> None:
        known = await self._numbered(line)
        version = self._with_files(known, number)
        if not version.was_live and not untried:
            heard = ", ".join(map(str, (0, *(n for n, one in known.items() if one.weights and one.was_live))))
            why = f"{version.state}: {version.reason}" if version.reason else version.state
            raise NoSuchVersion(
                f"version {number} never answered ({why}): no gate let it. --untried puts it live all the same; what "
                f"answered before: {heard}"
            )
        if await self._log.was_taken_back(line, ancestry(list(known.values()), number)):
            raise NoSuchVersion(
                f"samples that made version {number} were given back ({version.reason}) and are learned from anew; "
                "`openclaw-rl versions` shows how far that is"
            )

    async def _roll_back(self, line: str, number: int, reason: str) -> str:
        known = await self._numbered(line)
        now = next((version for version in known.values() if version.state == "live"), None)
        if number:
            await self._shelf.load(self._with_files(known, number))
        if now is not None and now.number == number:
            self._live.set(line, now.label)
            return now.label
        self._stop_examining(line)
        if number:
            self._live.set(line, known[number].label)
            # It is watched from now on: what it did before is known to whoever wants it back.
            await self._mark(known[number], "live", gate={**(known[number].gate or {}), "live_at": time.time()})
        else:
            self._live.set(line, None)
        label = version_label(line, number) if number else BASE_VERSION
        if now is not None:
            await self._mark(now, "rolled_back", reason=reason)
            await self._shelf.step_aside(line, now.label, now=label)
        return label

    async def undo(self, lesson: Lesson, *, reason: str) -> Undone:
        """Takes a lesson back: the last version before it answers from now on, and running answers end on theirs.

        A version whose files the engine refuses is as good as gone: then an earlier one answers. What answered steps
        aside; where whole conversations are taken back it leaves the engine at once.
        """
        async with self._deciding:
            now = _live_version(await self._log.versions(lesson.line))
            loaded, unusable = {0} if now is None else {0, now.number}, set[int]()
            while not (undone := await self._log.undo(lesson, reason=reason, loaded=loaded, unusable=unusable)).is_done:
                back = (await self._numbered(lesson.line))[undone.plan.back_to]
                try:
                    await self._shelf.load(back)
                    loaded.add(back.number)
                except EngineRefused as error:
                    _log.error("version %s cannot be gone back to: %s", back.label, error)
                    unusable.add(back.number)
            if undone.plan.undone:
                self._stop_examining(lesson.line)
            # Only now: the train loop may have made a version of it a moment ago.
            known, plan = await self._numbered(lesson.line), undone.plan
            if plan.back_to != plan.answering:
                await self._answer_instead(lesson.line, plan.back_to, plan.answering)
            if plan.back_to and plan.back_to != plan.answering:
                back = known[plan.back_to]
                await self._mark(back, "live", gate={**(back.gate or {}), "live_at": time.time()})
            if lesson.turn is None:  # it is to be forgotten: nothing of it stays, not even for a request on its way
                await self._shelf.forget(lesson.line, [version_label(lesson.line, one) for one in plan.holding])
            for number in plan.undone:
                if number in known:  # and not another model's
                    self._on_change(replace(known[number], state="rolled_back", reason=reason))
            return undone

    async def _answer_instead(self, line: str, number: int, of: int) -> None:
        label = version_label(line, number) if number else BASE_VERSION
        self._live.set(line, label if number else None)
        await self._shelf.step_aside(line, version_label(line, of), now=label)

    async def _numbered(self, line: str) -> dict[int, Version]:
        return {version.number: version for version in await self._log.versions(line)}

    @staticmethod
    def _with_files(known: Mapping[int, Version], number: int) -> Version:
        if number not in known:
            have = ", ".join(str(n) for n in (0, *known))
            raise NoSuchVersion(f"the model that runs has no version {number}; there are {have}")
        if known[number].weights is None:
            have = ", ".join(str(n) for n, one in known.items() if one.weights)
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
        version = self._with_files(await self._numbered(line), number)
        async with self._held(version):
            await self._shelf.load(version)
            yield version.label

    @asynccontextmanager
    async def _held(self, *versions: Version | None) -> AsyncIterator[None]:
        """Keeps these versions loaded until the end; then those are unloaded that neither answer nor are kept to go
        back to."""
        held = [version for version in versions if version is not None]
        for version in held:
            self._shelf.look_at(version)
        try:
            yield
        finally:
            for version in held:
                if self._shelf.look_away(version):
                    await self._unload_unneeded(version)

    async def _unload_unneeded(self, version: Version) -> None:
        async with self._deciding:
            known = await self._log.versions(version.line)
            needed = {_answering(known), *(one.label for one in candidate_chain(known))}
            if version.label not in needed and not self._shelf.is_aside(version.label):
                await self._shelf.unload(version.label)

    async def _mark(
        self, version: Version, state: VersionState, *, reason: str = "", gate: Json = None, blameless: bool = False
    ) -> None:
        await self._log.set_version_state(
            version.line, version.number, state, reason=reason, gate=gate, blameless=blameless
        )
        self._on_change(replace(version, state=state, reason=reason))

    async def _load(self, line: str) -> bool:
        """What the last run left live answers again; False if it cannot be loaded now.

        Serving never waits for a file that is gone or changed: then the base model answers, and the row says why.
        """
        if not self._live.is_expected(line):
            return True
        version, refusal = _live_version(await self._log.versions(line)), ""
        try:
            if version is not None:
                await self._shelf.load(version)
        except EngineRefused as error:
            refusal = str(error)
        except EngineError as error:
            _log.warning("what answered %s waits for the engine: %s", line, error)
            return False
        async with self._deciding:
            answering = _answering(await self._log.versions(line))
            if version is not None and answering != version.label:  # somebody chose another one meanwhile
                if not self._shelf.is_aside(version.label):
                    await self._shelf.unload(version.label)
                return not self._live.is_expected(line)
            if version is not None and refusal:
                _log.error("version %s cannot be served any more: %s", version.label, refusal)
                await self._mark(version, "rejected", reason=refusal, blameless=True)
            self._live.set(line, None if refusal or answering == BASE_VERSION else answering)
        return True


def _live_version(versions: Sequence[Version]) -> Version | None:
    """The version of a line that answers; None while it is the base model."""
    return next((version for version in versions if version.state == "live"), None)


def _is_candidate(version: Version, versions: Sequence[Version]) -> bool:
    """Whether the row still says candidate."""
    return any(one.number == version.number and one.state == "candidate" for one in versions)


def _answering(versions: Sequence[Version]) -> str:
    """Its label."""
    return BASE_VERSION if (live := _live_version(versions)) is None else live.label
