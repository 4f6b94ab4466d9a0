"""Candidates become live, or are rejected; and what was live before a restart becomes live again.

    publish     the engine loads the folder, checks its sha256, and answers nobody with it yet
    check       the quick check compares it with what answers now: seconds
    prove       engine and trainer measure the same change from one to the other; without a trainer it waits for that
    live        one row and one assignment: the next request of its line is answered by it, on probation
    confirm     the full check compares it with the last confirmed version, while it answers; it stays, or is rejected

Candidates that were made while no engine ran build on each other. The last of them holds what all have learned, so it
alone is tried; if it fails, the one before it is tried. A candidate whose change is below the noise does not answer,
and the next step builds on it. A version that no live version builds on gives its samples back to be learned again. So
does a rejected one; its samples are then in doubt, unless the engine was the reason and not what was learned.

A version on probation may be built on. In a burst only the last one gets the full check, since a candidate goes before
it; after `MAX_ON_PROBATION` of them the candidate waits. What fails gives its place to the version that answered before
it, which is checked next if it is on probation too; what stands on it goes with it.

Nothing here stops a request: running ones end on their version, and an engine that is away only delays a release. A
version that cannot be loaded or tried now is tried again, line by line, after pauses that double.

answering.py changes what answers, under a lock of its own. `_releasing` is held from a candidate's publication to its
end, and may wait for that lock, never the other way round. Rolling back
and undoing do not wait for a gate: a running examination is given up, and the rows say what is tried next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from openclaw_rl.backoff import Backoff
from openclaw_rl.errors import EngineError, EngineLost, EngineRefused, EngineUnavailable, StoreError, TrainError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import Engine, LearningStore, WeightsKeeper
from openclaw_rl.release.answering import Answering, is_candidate, live_version
from openclaw_rl.release.gate.prove import Proof, Verdict
from openclaw_rl.release.gate.report import GateReport
from openclaw_rl.release.keeping import tidy
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.release.shelf import Shelf
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Version,
    ancestry,
    candidate_chain,
    claim_of,
    confirmed_before,
)

_log = logging.getLogger(__name__)

RETRY = Backoff(first_s=1.0, longest_s=300.0)

MAX_ON_PROBATION = 4
"""Versions in a row that may answer before one of them gets its full check."""

_Examined = tuple[dict[str, Json], str, Verdict | None]
"""What was measured, why it may not answer, empty if it may, and what the proof says, if it came to that."""


class CandidateGate(Protocol):
    """Says what stands against a candidate; no parent is the base model."""

    async def quick(self, candidate: Version, parent: Version | None, confirmed: Version | None) -> GateReport:
        """What must not pass before it answers; `confirmed` is the last version that a full check let answer."""
        ...

    async def full(self, candidate: Version, confirmed: Version | None) -> GateReport: ...

    async def prepare(self, parent: Version | None) -> None:
        """Does what can be done before there is a candidate."""
        ...


class Prover(Protocol):
    """Proves that the engine serves what was trained; `TrainError` if nobody can say now."""

    async def prove(self, candidate: Version, parent: Version | None) -> Proof: ...


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
        probation: bool = True,
        on_change: Callable[[Version], None] = lambda _: None,
    ) -> None:
        """Without `probation` a version answers only after its full check."""
        self._log = log
        self._proving = proving
        self._keeper = keeper
        self._shelf = Shelf(engine)
        self._gate = gate
        self._live = live
        self._answering = Answering(log, live, self._shelf, on_change=on_change, stop_looking=self._stop_looking)
        self.roll_back, self.undo = self._answering.roll_back, self._answering.undo
        self._save_every = save_every
        self._probation = probation
        self._on_change = on_change
        self._loaded, self._settled = asyncio.Event(), asyncio.Event()
        self._releasing = asyncio.Lock()
        self._examining: tuple[str, asyncio.Task[_Examined]] | None = None
        """The line whose candidate is examined now."""
        self._confirming: tuple[str, asyncio.Task[GateReport]] | None = None
        """The line whose version on probation is checked now."""
        self._look_again = asyncio.Event()
        """Something may be on probation that was not."""
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
        while live:
            line = self._live.first_asked(live)
            live.remove(line)
            await self._settle_or_park(line, self._answering.load)
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

    async def unreadable(self, label: str, reason: str) -> None:
        """A version that answers cannot be brought back into the engine's memory: the one before it takes its place."""
        for version in await self._log.versions():
            if version.label == label and version.state == "live":
                await self._take_back(version, reason, gate=version.gate)

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
            await self._gate.prepare(live_version(await self._log.versions(line)))
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
        if not await self._answering.load(line):
            return False
        async with self._log.claimed(claim_of(line)) as is_ours:
            if not is_ours:
                return False  # another process is at it, or was killed over it
            async with self._releasing:
                if self._confirming is not None:
                    self._confirming[1].cancel()  # it begins again when this is over
                try:
                    return await self._release_line(line)
                finally:
                    self._look_again.set()

    async def _release_line(self, line: str) -> bool:
        if self._proving is None:
            return True
        while chain := candidate_chain(known := await self._log.versions(line)):
            live = live_version(known)
            if live is not None and _num_on_probation(known, live) >= MAX_ON_PROBATION:
                if not await self._confirmed(live):
                    return False
            elif not await self._try(chain[-1], live, confirmed_before(known, chain[-1].number), self._proving):
                return False
        await self._tidy(line)
        return True

    async def _tidy(self, line: str) -> None:
        for version in await self._log.retire_stranded(line, reason="another version answers"):
            self._on_change(version)
        for version in await self._log.versions(line):
            if version.state == "candidate":
                await self._answering.mark(version, "retired", reason="another version answers")
        await tidy(self._log, self._keeper, line, save_every=self._save_every)

    async def _try(self, version: Version, parent: Version | None, confirmed: Version | None, proving: Prover) -> bool:
        """Makes a candidate live, or rejects it; False if neither can be done now."""
        before = BASE_VERSION if parent is None else parent.label
        await self._shelf.drop_aside(version.line, keep=(before,))
        async with self._held(version, parent, confirmed):
            try:
                found = await self._examined(self._examine(version, parent, confirmed, proving), version)
            except (EngineLost, EngineUnavailable, TrainError) as error:
                # Kept as a candidate, if it is one still, and tried again.
                _log.error("version %s waits: %s", version.label, error)
                return not is_candidate(version, await self._log.versions(version.line))
            except EngineError as error:
                # It is refused, or computes nothing that could be answered with.
                await self._reject(version, str(error), gate=None, blameless=isinstance(error, EngineRefused))
                return True
            if found is None:
                return True
            gate, reason, verdict = found
            if verdict == "no effect":
                await self._answering.build_on(version, reason, gate=gate)
            elif reason:
                await self._reject(version, reason, gate=gate, blameless=verdict == "other weights")
            elif await self._answering.go_live(version, instead_of=before, gate={**gate, "live_at": time.time()}):
                _log.info("version %s is live", version.label)
                await self._shelf.step_aside(version.line, before, now=version.label)
            return True

    async def _reject(self, version: Version, reason: str, *, gate: Json, blameless: bool) -> None:
        if await self._answering.reject(version, reason, gate=gate, blameless=blameless) and blameless:
            self._refusals[version.line] = f"version {version.label} is rejected, and its samples wait: {reason}"

    async def _examined(self, examining: Coroutine[None, None, _Examined], version: Version) -> _Examined | None:
        """What gate and proof found; None if somebody decided meanwhile to compare it with another parent, or not at
        all."""
        task = asyncio.create_task(examining)
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

    def _stop_looking(self, line: str) -> None:
        for running in (self._examining, self._confirming):
            if running is not None and running[0] == line:
                running[1].cancel()

    async def _examine(
        self, version: Version, parent: Version | None, confirmed: Version | None, proving: Prover
    ) -> _Examined:
        await self._shelf.load(version)
        if confirmed is not None:
            await self._shelf.load(confirmed)
        crash_point("release.published")
        report = await self._gate.quick(version, parent, confirmed)
        if not report.reason and not self._probation:
            report = await self._gate.full(version, confirmed)
        _log.debug("version %s at the gate: %s", version.label, report.reason or "passed")
        crash_point("release.measured")
        if report.reason:
            return report.to_json(), report.reason, None
        proof = await proving.prove(version, parent)
        return {**report.to_json(), "proof": proof.to_json(), "reason": proof.reason}, proof.reason, proof.verdict

    async def confirm(self) -> None:
        """Gives versions that answer on probation their full check, one at a time, until cancelled."""
        await self.loaded_live()
        num_failures = 0
        while True:
            self._look_again.clear()
            try:
                async with self._releasing:  # a candidate goes first
                    versions = await self._on_probation()
                if versions and not self._releasing.locked():
                    num_failures = 0 if await self._confirm_first(versions) else num_failures + 1
            except StoreError as error:
                _log.warning("what is on probation is looked for again: %s", error)
                versions, num_failures = [], num_failures + 1
            if num_failures:
                await asyncio.sleep(RETRY.pause_s(num_failures))
            elif not versions:
                await self._look_again.wait()

    async def _confirm_first(self, versions: Sequence[Version]) -> bool:
        """Of these the first whose line no other process works on; False if none could be checked now."""
        for version in versions:
            async with self._log.claimed(claim_of(version.line)) as is_ours:
                if is_ours:
                    return await self._confirmed(version)
        return False

    async def confirm_now(self, line: str) -> None:
        """Gives the version of a line that answers on probation, if one does, its full check at once."""
        async with self._log.claimed(claim_of(line)) as is_ours, self._releasing:
            live = live_version(await self._log.versions(line))
            if is_ours and live is not None and live.on_probation:
                await self._confirmed(live)

    async def _on_probation(self) -> list[Version]:
        return [one for one in await self._log.versions() if one.state == "live" and one.on_probation]

    async def follow(self) -> None:
        """Answers with what other processes on the same store let answer, until cancelled.

        consumes      versions that another process made live, or took back
        produces      the same answer here
        woken by      that process
        """
        await self.loaded_live()
        if not self._log.is_shared:
            return
        woken, num_failures = self._log.woken("versions"), 0
        while True:
            woken.clear()
            is_done = False
            try:
                rows = {version.line for version in await self._log.versions() if version.state == "live"}
                is_done = all([await self._answering.follow(line) for line in sorted(rows | self._live.lines())])
            except (EngineError, StoreError) as error:
                _log.warning("what other processes released is looked for again: %s", error)
            self._look_again.set()
            num_failures = 0 if is_done else num_failures + 1
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY.pause_s(num_failures) if num_failures else None):
                    await woken.wait()

    async def _confirmed(self, version: Version) -> bool:
        """False if the check could not be done now, for reasons of its own."""
        task = asyncio.create_task(self._check_fully(version))
        self._confirming = (version.line, task)
        try:
            report = await task
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():
                task.cancel()
                raise
            return True
        except (EngineLost, EngineUnavailable) as error:
            _log.warning("the full check of %s is tried again later: %s", version.label, error)
            return False
        except EngineError as error:
            # It computes nothing that can be compared.
            await self._take_back(version, str(error), gate=version.gate)
            return True
        finally:
            self._confirming = None
        await self._conclude(version, report)
        return True

    async def _check_fully(self, version: Version) -> GateReport:
        """Compares a version that answers on probation with the last confirmed one."""
        confirmed = confirmed_before(await self._log.versions(version.line), version.number)
        async with self._held(version, confirmed):
            for one in (version, confirmed):
                if one is not None:
                    await self._shelf.load(one)
            report = await self._gate.full(version, confirmed)
        crash_point("release.measured")
        return report

    async def _conclude(self, version: Version, report: GateReport) -> None:
        """A version that answers on probation is confirmed, or taken back."""
        quick = version.gate if isinstance(version.gate, dict) else {}
        gate = {**report.to_json(), **{name: quick[name] for name in ("proof", "live_at") if name in quick}}
        if report.reason:
            await self._take_back(version, report.reason, gate=gate)
        else:
            await self._answering.confirm(version, gate=gate)

    async def _take_back(self, version: Version, reason: str, *, gate: Json) -> None:
        await self._answering.take_back(version, reason, gate=gate)
        await self._tidy(version.line)

    @asynccontextmanager
    async def loaded(self, line: str, number: int) -> AsyncIterator[str]:
        """The label of a version that the engine holds until the end, whatever answers meanwhile; 0 is the base model.

        For those who look at it. `NoSuchVersion` if there is none, or its files are gone.
        """
        if not number:
            yield BASE_VERSION
            return
        version = self._answering.with_files(await self._answering.numbered(line), number)
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
                    await self._answering.unload_unneeded(version)


def _num_on_probation(versions: Sequence[Version], live: Version) -> int:
    """How many versions, the live one among them, answered since the last that was confirmed."""
    known, confirmed = {one.number: one for one in versions}, confirmed_before(versions, live.number)
    since = ancestry(versions, live.number)
    if confirmed is not None:
        since = since[: since.index(confirmed.number)]
    return sum(known[number].on_probation for number in since) if live.on_probation else 0
