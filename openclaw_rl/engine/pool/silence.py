"""What is awaited of one engine -> the answer, or `EngineSilent` when the engine as a whole says nothing.

An engine may take long over one request while it answers others, so a sign of life in any of them counts for all. One
timer for each engine that has work; a request costs none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from openclaw_rl.errors import EngineLost

T = TypeVar("T")


class EngineSilent(EngineLost):
    """The engine has work and has said nothing for so long that somebody else should do it."""


class Silence:
    """Of one engine. Requests are told only if `may_leave` says that there is somebody else."""

    def __init__(self, limit_s: float, may_leave: Callable[[], bool]) -> None:
        self._limit_s = limit_s
        self._may_leave = may_leave
        self._waiting: set[asyncio.Timeout] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._until: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it said nothing, and it is too early to try again."""
        return self._until is not None and asyncio.get_running_loop().time() < self._until

    @property
    def is_doubtful(self) -> bool:
        """Whether it said nothing and has not answered since: one request at a time may try."""
        return self._until is not None

    def heard(self) -> None:
        """The engine has said something, or is another one now."""
        self._heard_at = asyncio.get_running_loop().time()
        self._until = None

    async def listen(self, answer: Awaitable[T]) -> T:
        """The answer; `EngineSilent` if nothing of anybody comes."""
        patience = asyncio.timeout(None)
        try:
            async with patience:
                self._begin(patience)
                try:
                    told = await answer
                finally:
                    self._waiting.discard(patience)
        except TimeoutError as error:
            if not patience.expired():
                raise
            raise EngineSilent(f"the engine has said nothing for {self._limit_s:g} s") from error
        return told

    def _begin(self, patience: asyncio.Timeout) -> None:
        if not self._waiting:
            self._heard_at = asyncio.get_running_loop().time()
        self._waiting.add(patience)
        if self._timer is None:
            self._look_in(self._limit_s)

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        left_s = self._heard_at + self._limit_s - now
        if left_s > 0 or not self._may_leave():
            self._look_in(left_s if left_s > 0 else self._limit_s)
            return
        self._until = now + self._limit_s
        for patience in self._waiting:
            patience.reschedule(now)
