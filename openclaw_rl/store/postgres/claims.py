"""What one process does at a time, and the others leave alone: a claim, renewed while it is held.

A claim has an owner, an end and a token, which goes up with every owner. Whoever is killed, or stopped for too long,
loses it at its end. What is written inside a claim is written only while it holds: its token is looked up in the same
transaction. So a process that wakes up after another one took over can write nothing of what it had begun.

Within one process a claim is held as often as it is asked for: its loops know of each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sqlalchemy import Connection, func, insert, or_, select, update

from openclaw_rl.errors import StoreError, StoreUnavailable
from openclaw_rl.store.sql import schema

log = logging.getLogger(__name__)

T = TypeVar("T")

CLAIM_S = 30.0

_claim = schema.claim.c


class Transacts(Protocol):
    def __call__(self, work: Callable[[Connection], T]) -> Awaitable[T]: ...


@dataclass(slots=True)
class _Held:
    token: int
    num_holders: int
    renewing: asyncio.Task[None]


Standing = Sequence[tuple[str, int]]
"""Claims, by name and token."""


class Claims:
    """The claims of one process."""

    def __init__(self, transact: Transacts, owner: str, *, ttl_s: float = CLAIM_S) -> None:
        self._transact = transact
        self._owner = owner
        self._ttl_s = ttl_s
        self._held: dict[str, _Held] = {}
        self._inside: ContextVar[Standing] = ContextVar("claims", default=())
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def claimed(self, name: str) -> AsyncIterator[bool]:
        """Whether it is ours until the end; if not, somebody else is at it."""
        held = await self._take(name)
        if held is None:
            yield False
            return
        before = self._inside.set((*self._inside.get(), (name, held.token)))
        try:
            yield True
        finally:
            self._inside.reset(before)
            await self._leave(name, held)

    @property
    def standing(self) -> Standing:
        """The claims that what runs here stands on."""
        return self._inside.get()

    def check(self, connection: Connection, standing: Standing) -> None:
        """`StoreUnavailable` if one of these claims is another process's by now."""
        for name, token in standing:
            query = select(_claim.name).where(_claim.name == name, _claim.token == token, _claim.owner == self._owner)
            if connection.scalar(query) is None:
                raise StoreUnavailable(f"another process has taken over {name}; nothing of this was stored")

    async def _take(self, name: str) -> _Held | None:
        async with self._lock:
            if (held := self._held.get(name)) is None:
                token = await self._transact(lambda connection: take(connection, name, self._owner, self._ttl_s))
                if token is None:
                    return None
                held = _Held(token, 0, asyncio.create_task(self._renew(name, token), name=f"claim {name}"))
                self._held[name] = held
            held.num_holders += 1
            return held

    async def _leave(self, name: str, held: _Held) -> None:
        held.num_holders -= 1
        if held.num_holders:
            return
        if self._held.get(name) is held:
            del self._held[name]
        held.renewing.cancel()
        with suppress(StoreError):  # it ends by itself
            await asyncio.shield(self._transact(lambda connection: leave(connection, name, held.token)))

    async def _renew(self, name: str, token: int) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            try:
                if not await self._transact(lambda connection: renew(connection, name, token, self._ttl_s)):
                    break
            except StoreError as error:
                log.warning("the claim %s was not renewed: %s", name, error)
        log.warning("another process has taken over %s", name)
        self._held.pop(name, None)


def take(connection: Connection, name: str, owner: str, ttl_s: float) -> int | None:
    """Its token; None while another owner has it."""
    now = _now(connection)
    row = connection.execute(select(_claim.token, _claim.until).where(_claim.name == name)).first()
    if row is None:
        connection.execute(insert(schema.claim).values(name=name, owner=owner, token=1, until=now + ttl_s))
        return 1
    taken = update(schema.claim).where(_claim.name == name, or_(_claim.until <= now, _claim.owner == owner))
    changes = {"owner": owner, "token": row.token + 1, "until": now + ttl_s}
    return row.token + 1 if connection.execute(taken.values(changes)).rowcount else None


def renew(connection: Connection, name: str, token: int, ttl_s: float) -> bool:
    """False if it was lost."""
    mine = (_claim.name == name, _claim.token == token)
    return bool(connection.execute(update(schema.claim).where(*mine).values(until=_now(connection) + ttl_s)).rowcount)


def leave(connection: Connection, name: str, token: int) -> None:
    """The next one need not wait for its end. The row stays, and with it the token."""
    connection.execute(update(schema.claim).where(_claim.name == name, _claim.token == token).values(until=0.0))


def _now(connection: Connection) -> float:
    """By the server's clock, which all share."""
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)
