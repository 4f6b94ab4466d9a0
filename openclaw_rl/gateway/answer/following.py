"""What other processes on the same store do, learned here: their turns, their deletions, their keys.

consumes      the store's news of other processes
produces      the same index of sessions, the same keys; memory and cache without what was forgotten
waits for     the store, for each request before it is placed: an answer that was acknowledged anywhere is known here
woken by      requests, and the other processes
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from openclaw_rl.errors import EngineError, StoreError
from openclaw_rl.gateway.access.auth import KeyRing
from openclaw_rl.gateway.answer.exchange import Gateway
from openclaw_rl.protocols import Wakeup
from openclaw_rl.types import ApiKey, News, SessionOutline

log = logging.getLogger("openclaw_rl.gateway")

AGAIN_S = 1.0


@runtime_checkable
class SharedStore(Protocol):
    """What a store that several processes write has beside `protocols.WholeStore`."""

    async def news(self) -> News: ...
    async def reserve(self, session: str, index: int, count: int) -> int: ...
    async def outline(self, session: str) -> SessionOutline | None: ...
    async def load_open(self) -> list[SessionOutline]: ...
    async def keys(self) -> list[ApiKey]: ...


class Following:
    """`gateway` and `keys` are there once the parts are made; nothing is placed before that."""

    def __init__(self, store: SharedStore, woken: Wakeup) -> None:
        self._store = store
        self._woken = woken
        self._one_at_a_time = asyncio.Lock()
        self._to_do = deque[News]()
        self._gateway: Gateway | None = None
        self._keys: KeyRing | None = None

    def teach(self, gateway: Gateway, keys: KeyRing) -> None:
        self._gateway, self._keys = gateway, keys

    async def catch_up(self) -> None:
        """Returns when all that others had committed by now is known here."""
        async with self._one_at_a_time:
            news = await self._store.news()
            self._to_do.append(news)  # until it is done: the store does not tell it twice
            gateway, keys = self._gateway, self._keys
            assert gateway is not None, "requests come after `teach`"
            assert keys is not None
            while self._to_do:
                await self._learn(self._to_do[0], gateway, keys)
                self._to_do.popleft()

    async def _learn(self, news: News, gateway: Gateway, keys: KeyRing) -> None:
        for name in news.gone:
            await _let_go(gateway, name)
        if news.missed:
            for outline in await self._store.load_open():
                gateway.sessions.learn(outline)
        for name in news.sessions:
            if (found := await self._store.outline(name)) is None:
                await _let_go(gateway, name)
            elif name not in gateway.leaving:
                gateway.sessions.learn(found)
        if news.sessions or news.missed:
            gateway.sessions.put_away()
        if news.keys or news.missed:
            await self._learn_keys(self._store.keys, keys)

    async def run(self) -> None:
        """Until cancelled: what was forgotten, or revoked, elsewhere is so here too, also while nobody asks."""
        while True:
            self._woken.clear()
            try:
                await self.catch_up()
            except StoreError as error:
                log.warning("what other processes did is asked for again", extra={"reason": str(error)})
                await asyncio.sleep(AGAIN_S)
            else:
                await self._woken.wait()

    @staticmethod
    async def _learn_keys(known: Callable[[], Awaitable[list[ApiKey]]], ring: KeyRing) -> None:
        for key in await known():
            if key.revoked_at is None:
                ring.add(key)
            else:
                ring.remove(key.id)


async def _let_go(gateway: Gateway, name: str) -> None:
    """A session that was deleted: an answer that is under way ends, and is not kept."""
    session = gateway.sessions.session_of(name)
    gateway.sessions.end(name)
    gateway.memory.forget(name)
    try:
        await gateway.forget_cache([] if session is None else [session])
    except EngineError as error:  # the engine's cache ends with the engine, or when the room is needed
        log.warning("a forgotten session may still be in the engine's cache", extra={"reason": str(error)})
