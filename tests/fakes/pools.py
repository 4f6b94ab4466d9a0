"""Members of a pool in this process, which die, hang and come back when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from openclaw_rl.engine.pool.pool import Pool
from openclaw_rl.engine.scripted import ScriptedEngine, ScriptedOptions
from openclaw_rl.engine.worker.hosts import SCRIPTED
from openclaw_rl.errors import EngineLost, EngineRefused, EngineUnavailable
from openclaw_rl.protocols import Engine
from openclaw_rl.types import (
    BASE_VERSION,
    Delta,
    EngineState,
    GenerateRequest,
    Publication,
    Scored,
    ScoreRequest,
)

LONG = 3600.0


class ToyMember:
    """A host of a scripted engine whose scores differ from version to version.

    `die` ends what runs and forgets all versions; `come_up` is another one. While `hangs`, it accepts and says nothing.
    """

    capabilities = SCRIPTED

    def __init__(self, folder: Path, options: ScriptedOptions | None = None, *, up: bool = True) -> None:
        self.engine: Engine = _ToyEngine(self)
        self.last_error: str | None = None
        self.num_restarts = 0
        self.asked: list[str] = []
        """The ids of requests that were begun here."""
        self.forgotten: list[frozenset[str]] = []
        self.refuses: dict[str, str] = {}
        """By version: why it cannot be loaded here."""
        self.loads_as: dict[str, str] = {}
        """By version: the checksum of what it loads instead."""
        self.serves_base: set[str] = set()
        """Versions that it says to have, and answers with the base."""
        self.is_full = False
        self.tokens_before_death: int | None = None
        self._folder, self._options = folder, options or ScriptedOptions()
        self._up, self._awake, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._awake.set()
        self.may_load = asyncio.Event()
        self.may_load.set()
        if up:
            self.come_up()

    @property
    def is_ready(self) -> bool:
        return self._up.is_set()

    def come_up(self, *, remembers: bool = False) -> None:
        """Another engine; one that `remembers` has loaded again what it had, as a supervisor sees to it."""
        if not remembers:
            self._inner = ScriptedEngine(self._folder, self._options)
        self.last_error = None
        self.state: EngineState | None = self._inner._state
        self._up.set()

    def hold_publications(self) -> Callable[[], None]:
        """Loading takes until what is returned is called."""
        self.may_load.clear()
        return self.may_load.set

    def forget_versions(self) -> None:
        """As if somebody had started the server again, unnoticed."""
        self._inner = ScriptedEngine(self._folder, self._options)

    def die(self) -> None:
        self._up.clear()
        self.last_error = "it ended with SIGKILL"
        self.num_restarts += 1

    def hang(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    async def wait_ready(self, timeout_s: float | None = None) -> EngineState:
        try:
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        except TimeoutError:
            raise EngineUnavailable("it is down") from None
        assert self.state is not None
        return self.state

    async def run(self) -> None:
        await self._over.wait()

    async def stop(self) -> None:
        self._over.set()

    @property
    def versions(self) -> set[str]:
        return set() if self.state is None else set(self.state.versions)

    def note(self) -> None:
        self.state = self._inner._state

    async def alive(self) -> ScriptedEngine:
        if self.is_ready:
            await self._awake.wait()
        if not self.is_ready:
            raise EngineLost("it died")
        return self._inner


class _ToyEngine:
    def __init__(self, host: ToyMember) -> None:
        self._host = host

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Delta, None]:
        self._host.asked.append(request.request_id)
        inner, num_tokens = await self._host.alive(), 0
        if self._host.is_full:
            raise EngineUnavailable("it is full", retry_after_s=1)
        async for delta in inner.generate(request):
            if self._host.tokens_before_death is not None and num_tokens >= self._host.tokens_before_death:
                self._host.die()
            if inner is not await self._host.alive():
                raise EngineLost("it died")
            num_tokens += len(delta.token_ids)
            yield delta

    async def score(self, request: ScoreRequest) -> tuple[Scored, ...]:
        self._host.asked.append(request.request_id)
        scored = await (await self._host.alive()).score(request)
        version = BASE_VERSION if request.version in self._host.serves_base else request.version or BASE_VERSION
        return tuple(
            Scored(logprobs=tuple(value - _bend(version, at) for at, value in enumerate(one.logprobs)))
            for one in scored
        )

    async def publish(self, publication: Publication) -> None:
        if (why := self._host.refuses.get(publication.version)) is not None:
            raise EngineRefused(why, code="version_unreadable")
        await self._host.may_load.wait()
        await (await self._host.alive()).publish(publication)
        self._host.note()
        if (sha256 := self._host.loads_as.get(publication.version)) is not None:
            assert self._host.state is not None
            self._host.state.checksums[publication.version] = sha256  # type: ignore[index]

    async def retire(self, version: str) -> None:
        await (await self._host.alive()).retire(version)
        self._host.note()

    async def forget_cache(self, salts: Collection[str]) -> None:
        await self._host.alive()
        self._host.forgotten.append(frozenset(salts))

    async def close(self) -> None: ...

    async def state(self) -> EngineState:
        return await self._host.wait_ready()


def _bend(version: str, at: int) -> float:
    """What a version changes at a token."""
    return 0.0 if version == BASE_VERSION else crc32(f"{version} {at}".encode()) % 1000 / 1000


@asynccontextmanager
async def pool_of(members: Sequence[ToyMember], **options: Any) -> AsyncIterator[Pool]:
    """A pool that runs, whose members that are up have been caught up."""
    pool = Pool({f"engine {i}": member for i, member in enumerate(members, 1)}, **options)
    running = asyncio.create_task(pool.run())
    try:
        await settled(pool)
        yield pool
    finally:
        await pool.stop()
        assert running.done()


async def settled(pool: Pool) -> None:
    """Returns when every member that is up answers, or has failed to."""
    for _ in range(500):
        await asyncio.sleep(0.001)
        if all(member.is_eligible or member.num_failures or not member.host.is_ready for member in pool.members):
            return
    raise AssertionError(f"the pool did not settle: {pool.health}")
