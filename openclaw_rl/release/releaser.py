"""Candidates become live, or are rejected; and what was live before a restart becomes live again.

    publish     the engine loads the folder, checks its sha256, and answers nobody with it yet
    gate        it is compared with its parent on the same engine
    live        one row and one assignment: the next request of its line is answered by it

Nothing here stops a request: running ones end on their version, and an engine that is away only delays a release.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from openclaw_rl.errors import EngineError, EngineRefused, OpenClawError
from openclaw_rl.protocols import Engine
from openclaw_rl.release.gate import Gate
from openclaw_rl.release.live import LiveVersions
from openclaw_rl.types import BASE_VERSION, Json, Publication, Version, VersionState, version_label

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


class Versions(Protocol):
    """What is needed of the store."""

    async def versions(self, line: str | None = None) -> Sequence[Version]: ...

    async def set_version_state(
        self, line: str, number: int, state: VersionState, *, reason: str = "", gate: Json = None
    ) -> None: ...


class NoSuchVersion(OpenClawError):
    """A version that cannot be made live."""


class Releaser:
    """Releases versions to one engine."""

    def __init__(self, log: Versions, engine: Engine, gate: Gate, live: LiveVersions) -> None:
        self._log = log
        self._engine = engine
        self._gate = gate
        self._live = live

    async def restore(self) -> None:
        """Loads what was live; then candidates that a crash left between their step and their gate."""
        known = await self._log.versions()
        for version in known:
            if version.state == "live":
                await self._put_live_again(version)
        self._live.restored()
        for version in known:
            if version.state == "candidate":
                await self.release(version)

    async def release(self, version: Version) -> None:
        """Publishes a candidate, and makes it live if its gate finds nothing against it."""
        parent = version_label(version.line, version.parent)
        try:
            await self._publish(version)
            report = await self._gate.measure(version.label, parent)
        except EngineError as error:
            # Kept as a candidate: the next start tries again.
            _log.error("version %s waits: %s", version.label, error)
            return
        state: VersionState = "rejected" if report.reason else "live"
        await self._log.set_version_state(
            version.line, version.number, state, reason=report.reason, gate=report.to_json()
        )
        if report.reason:
            _log.warning("version %s is rejected: %s", version.label, report.reason)
            await self._engine.retire(version.label)
            return
        self._live.set(version.line, version.label)
        _log.info("version %s is live", version.label)
        if version.parent:
            await self._engine.retire(parent)

    async def roll_back(self, line: str, number: int) -> str:
        """Makes an earlier version of a line live, 0 for the base model; the label that answers from now on."""
        known = {version.number: version for version in await self._log.versions(line)}
        now = next((version for version in known.values() if version.state == "live"), None)
        if number and number not in known:
            have = ", ".join(str(n) for n in (0, *known))
            raise NoSuchVersion(f"there is no version {number} to go back to; there are {have}")
        if now is not None and now.number == number:
            return now.label
        if number:
            await self._put_live(known[number])
            await self._log.set_version_state(line, number, "live")
        else:
            self._live.set(line, None)
        if now is not None:
            await self._log.set_version_state(line, now.number, "rolled_back", reason=f"version {number} was put live")
            await self._engine.retire(now.label)
        return version_label(line, number) if number else BASE_VERSION

    async def _put_live_again(self, version: Version) -> None:
        """Serving never waits for a file that is gone or changed: then the base model answers, and the row says why."""
        while True:
            try:
                await self._put_live(version)
            except EngineRefused as error:
                _log.error("version %s cannot be served any more: %s", version.label, error)
                await self._log.set_version_state(version.line, version.number, "rejected", reason=str(error))
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
