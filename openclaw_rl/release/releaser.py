"""Candidates become live, or are rejected; and what was live before a restart becomes live again.

    publish     the engine loads the folder, checks its sha256, and answers nobody with it yet
    gate        it is compared with what answers now, on the same engine
    live        one row and one assignment: the next request of its line is answered by it

Candidates that were made while no engine ran stand one on the other. The last of them holds what all have learned, so
it alone is tried; if it fails, the one before it is.

Nothing here stops a request: running ones end on their version, and an engine that is away only delays a release.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from openclaw_rl.errors import EngineError, EngineRefused, OpenClawError
from openclaw_rl.faults import crash_point
from openclaw_rl.protocols import Engine
from openclaw_rl.release.gate import Gate
from openclaw_rl.release.keeping import tidy
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.types import (
    BASE_VERSION,
    Json,
    Publication,
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


class NoSuchVersion(OpenClawError):
    """A version that cannot be made live."""


class Releaser:
    """Releases versions to one engine."""

    def __init__(
        self,
        log: Versions,
        engine: Engine,
        gate: Gate,
        live: LiveVersions,
        *,
        save_every: int,
        on_change: Callable[[Version], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._engine = engine
        self._gate = gate
        self._live = live
        self._save_every = save_every
        self._on_change = on_change
        self._settled = asyncio.Event()
        self._deciding = asyncio.Lock()

    async def restore(self) -> None:
        """Loads what was live; then candidates that a crash left between their step and their gate."""
        known = await self._log.versions()
        for version in known:
            if version.state == "live":
                await self._put_live_again(version)
        self._live.restored()
        for line in dict.fromkeys(version.line for version in known if version.state == "candidate"):
            await self._release_line(line)
        self._settled.set()

    async def settled(self) -> None:
        """Waits until what the last run left is released or rejected: before that nobody knows what to build on."""
        await self._settled.wait()

    async def release(self, version: Version) -> None:
        """Publishes a candidate, and makes it live if its gate finds nothing against it."""
        await self._release_line(version.line)

    async def _release_line(self, line: str) -> None:
        while chain := candidate_chain(known := await self._log.versions(line)):
            if not await self._try(chain[-1], answering=_answering(known)):
                return
        for version in await self._log.versions(line):
            if version.state == "candidate":
                await self._mark(version, "retired", reason="another version answers")
        await tidy(self._log, line, save_every=self._save_every)

    async def _try(self, version: Version, *, answering: str) -> bool:
        """Puts a candidate live, or rejects it; False if neither can be done now."""
        try:
            await self._publish(version)
            crash_point("release.published")
            report = await self._gate.measure(version.label, answering)
            crash_point("release.measured")
        except EngineRefused as error:
            await self._reject(version, str(error))
            return True
        except EngineError as error:
            # Kept as a candidate: the next start, or the next candidate, tries again.
            _log.error("version %s waits: %s", version.label, error)
            return False
        if report.reason:
            await self._reject(version, report.reason, gate=report.to_json())
        elif await self._go_live(version, instead_of=answering, gate=report.to_json()):
            _log.info("version %s is live", version.label)
            if answering != BASE_VERSION:
                await self._engine.retire(answering)
            return True
        await self._engine.retire(version.label)
        return True

    async def _go_live(self, version: Version, *, instead_of: str, gate: Json) -> bool:
        """False if somebody went back to another version meanwhile: what a person wants is stronger."""
        async with self._deciding:
            if _answering(await self._log.versions(version.line)) != instead_of:
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

    async def roll_back(self, line: str, number: int) -> str:
        """Makes an earlier version of a line live, 0 for the base model; the label that answers from now on."""
        async with self._deciding:
            return await self._roll_back(line, number)

    async def _roll_back(self, line: str, number: int) -> str:
        known = {version.number: version for version in await self._log.versions(line)}
        now = next((version for version in known.values() if version.state == "live"), None)
        if number and number not in known:
            have = ", ".join(str(n) for n in (0, *known))
            raise NoSuchVersion(f"there is no version {number} to go back to; there are {have}")
        if number and not known[number].path:
            have = ", ".join(str(n) for n, one in known.items() if one.path)
            gone = f"the files of version {number} were not kept (training.save_every)"
            raise NoSuchVersion(f"{gone}; there are 0, {have}")
        if now is not None and now.number == number:
            return now.label
        if number:
            await self._put_live(known[number])
            await self._mark(known[number], "live")
        else:
            self._live.set(line, None)
        if now is not None:
            await self._mark(now, "rolled_back", reason=f"version {number} was put live")
            await self._engine.retire(now.label)
        return version_label(line, number) if number else BASE_VERSION

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


def _answering(versions: Sequence[Version]) -> str:
    """The label of the version of a line that answers."""
    return next((version.label for version in versions if version.state == "live"), BASE_VERSION)
