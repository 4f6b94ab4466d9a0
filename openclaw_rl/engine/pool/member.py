"""One engine of a pool: its host, and what the pool knows of it beyond what the host says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from openclaw_rl.engine.pool.silence import Silence
from openclaw_rl.errors import EngineRefused
from openclaw_rl.protocols import Engine, EngineHost
from openclaw_rl.types import Delta, EngineHealth, GenerateRequest, Health, Publication

T = TypeVar("T")


class Member:
    """`may_leave` says whether its requests would find another engine."""

    def __init__(self, name: str, host: EngineHost, *, silent_s: float, may_leave: Callable[[Member], bool]) -> None:
        self.name = name
        self.host = host
        self.silence = Silence(silent_s, lambda: may_leave(self))
        self.num_running = 0
        self.is_caught_up = False
        """Whether it has all that was published, and has forgotten all that was to be."""
        self._life = -1
        """Its restarts when it was caught up."""
        self.num_failures = 0
        """In a row, of catching it up."""
        self.is_loading = False
        """Whether it loads a whole model now: others answer meanwhile, if there are any."""
        self.reason = ""
        """Why it could not be caught up, or was lost."""
        self.lacks: dict[str, str] = {}
        """Versions that it cannot answer with, and why; it answers with the others."""
        self.owed_salts: set[str] = set()
        """What it must forget before it gets requests."""
        self.owed_retirements: set[str] = set()
        self.attention = asyncio.Event()
        """It may not be caught up."""
        self.attention.set()

    @property
    def engine(self) -> Engine:
        return self.host.engine

    @property
    def is_eligible(self) -> bool:
        """Whether it may get requests at all. The next engine after a death is looked at first."""
        return self.is_caught_up and self.host.is_ready and self.host.num_restarts == self._life

    @property
    def is_welcome(self) -> bool:
        """Whether nothing speaks against giving it a request rather than another one."""
        return not (self.is_loading or self.silence.is_kept or (self.silence.is_doubtful and self.num_running))

    @property
    def health(self) -> EngineHealth:
        reason = "; ".join((self.reason, *self.lacks.values())).strip("; ")
        state: Health = "answers"
        if not self.host.is_ready:
            state = "down" if self.host.last_error else "starting"
            reason = self.host.last_error or ""
        elif not self.is_eligible:
            state = "catches up"
        elif self.silence.is_doubtful:
            state = "silent"
            reason = "it has work and says nothing; others do it"
        return EngineHealth(
            name=self.name,
            health=state,
            reason=reason,
            num_running=self.num_running,
            num_restarts=self.host.num_restarts,
        )

    def holds(self, version: str) -> bool:
        """Whether requests of this version find it here."""
        state = self.host.state
        return state is not None and version in state.versions and version not in self.lacks

    def caught_up(self, life: int) -> None:
        """It may get requests from now on, if it has not been started again since: `life` is its restarts then."""
        self.is_caught_up, self.reason, self.num_failures = True, "", 0
        self._life = life
        self.silence.heard()

    def lost(self, reason: str) -> None:
        """It died, or may have: it gets no request before it was looked at."""
        self.is_caught_up = False
        self.reason = reason
        self.lacks.clear()  # what the next one finds may be another machine's
        self.attention.set()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A request that runs here."""
        self.num_running += 1
        try:
            yield
        finally:
            self.num_running -= 1

    async def generate(self, request: GenerateRequest, *, patient: bool) -> AsyncGenerator[Delta, None]:
        """Its deltas; unless `patient`, `EngineSilent` when it says nothing and others could."""
        with self.working():
            async with aclosing(self.engine.generate(request)) as deltas:
                while True:
                    delta = await self._heard(anext(deltas, None), patient=patient)
                    if delta is None:
                        return
                    yield delta

    async def ask(self, answer: Callable[[Engine], Awaitable[T]], *, patient: bool) -> T:
        """A request with one answer, as `generate`."""
        with self.working():
            return await self._heard(answer(self.engine), patient=patient)

    async def _heard(self, coming: Awaitable[T], *, patient: bool) -> T:
        told = await (coming if patient else self.silence.listen(coming))
        self.silence.heard()
        return told

    async def load(self, publication: Publication) -> EngineRefused | None:
        """Loads a version that answers nobody yet. A refusal, or other bytes than were published, are its answer."""
        version = publication.version
        self.lacks.pop(version, None)
        self.owed_retirements.discard(version)
        try:
            await self.engine.publish(replace(publication, live=False))
        except EngineRefused as refusal:
            return refusal
        loaded = self.host.state.checksums.get(version, "") if self.host.state is not None else ""
        if not self.host.capabilities.reports_checksum or loaded == publication.sha256:
            return None
        await self.unload(version)
        return EngineRefused(
            f"{self.name} loaded {loaded[:16] or 'nothing'} for {version}, and {publication.sha256[:16]} was published",
            code="checksum_mismatch",
        )

    async def unload(self, version: str) -> None:
        with suppress(EngineRefused):  # it does not have it
            await self.engine.retire(version)

    async def retire_owed(self) -> None:
        """Unloads what was retired; `EngineError` leaves the rest for the next time."""
        for version in tuple(self.owed_retirements):
            if self.host.state is not None and version in self.host.state.versions:
                await self.unload(version)
            self.owed_retirements.discard(version)
            self.lacks.pop(version, None)

    async def forget(self, salts: Collection[str]) -> None:
        """Forgets what these salts left; `EngineError` if that is in doubt, and then it stays owed."""
        self.owed_salts |= set(salts)
        await self.engine.forget_cache(salts)
        self.owed_salts -= set(salts)
