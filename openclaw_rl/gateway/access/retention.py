"""Deletes sessions that ended long ago (`store.retention_days`), so that nothing of them can be read off the disk.

consumes      ended sessions that nobody has come back to
produces      free, overwritten pages
waits for     one transaction for each session: a turn that is written meanwhile waits for one of them at most
woken by      the clock, at the start and once a day
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from openclaw_rl.errors import EngineError, OpenClawError, StoreError
from openclaw_rl.gateway.answer.exchange import Gateway
from openclaw_rl.protocols import LearningStore

log = logging.getLogger("openclaw_rl.gateway")

DAY_S = 86_400.0
AGAIN_S = 600.0
"""After a failure of the disk, or while somebody reads what is to be erased."""
BATCH = 50


class Retention:
    """One loop beside serving. `erase` leaves nothing of what was deleted; False if it could not do so yet."""

    def __init__(
        self,
        gateway: Gateway,
        archive: LearningStore,
        erase: Callable[[], Awaitable[bool]],
        *,
        days: float,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gateway = gateway
        self._archive = archive
        self._erase = erase
        self._days = days
        self._clock = clock
        self._sleep = sleep
        self._has_traces = False

    async def run(self) -> None:
        """Sweeps until it is cancelled; a disk that fails only delays it."""
        while True:
            try:
                num_deleted = await self.sweep()
            except StoreError as error:
                log.warning("old sessions could not be deleted", extra={"reason": str(error)})
                await self._sleep(AGAIN_S)
                continue
            if num_deleted:
                log.info("old sessions deleted", extra={"num_sessions": num_deleted})
            await self._sleep(AGAIN_S if self._has_traces else DAY_S)

    async def sweep(self) -> int:
        """Ends what is overdue, deletes what is old, erases its traces; how many sessions were deleted."""
        await self._gateway.end_overdue()
        num_deleted = 0
        while found := await self._found():
            for session in found:
                num_deleted += await self._delete(session)
        if self._has_traces:
            self._has_traces = not await self._erase()
            if not self._has_traces:
                log.info("nothing of deleted sessions is on the disk any more")
        return num_deleted

    async def _found(self) -> list[str]:
        limit = self._clock() - self._days * DAY_S
        sessions = self._gateway.sessions
        return [s for s in await self._archive.sessions_older_than(limit, limit=BATCH) if not sessions.is_open(s)]

    async def _delete(self, session: str) -> bool:
        if self._gateway.sessions.is_open(session):  # its client came back, and is being answered
            return False
        self._has_traces = True
        known = await self._archive.get_session(session)
        with let_go(self._gateway, [session]):
            await self._archive.delete_session(session)
        try:
            await self._gateway.forget_cache([] if known is None else [known])
        except EngineError as error:  # its row is gone; the engine's cache ends with the engine, or when it is full
            log.warning("an old session may still be in the engine's cache", extra={"reason": str(error)})
        return True


async def expire_sessions(gateway: Gateway) -> None:
    """Consumes idle sessions; produces ended ones. Waits for the next expiry, woken by the clock."""
    while True:
        await asyncio.sleep(max(1.0, gateway.sessions.seconds_to_next_expiry()))
        await asyncio.wait((gateway.background.start(gateway.end_overdue()),))


class StillAnswering(OpenClawError):
    """A session cannot go: an answer of it is under way."""


@contextmanager
def let_go(gateway: Gateway, sessions: Sequence[str]) -> Iterator[None]:
    """Ends sessions that are to be deleted inside: meanwhile nobody takes them up again, and no ids of them are kept.

    `StillAnswering` if one of them is being answered; it ends with that answer.
    """
    for session in sessions:
        gateway.sessions.end(session)
    if running := [session for session in sessions if gateway.sessions.is_open(session)]:
        raise StillAnswering(f"{running[0]} is being answered just now and ends with that answer; try again then")
    gateway.leaving.update(sessions)
    try:
        yield
    finally:
        gateway.leaving.difference_update(sessions)
        for session in sessions:
            gateway.memory.forget(session)
