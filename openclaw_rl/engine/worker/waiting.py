"""Requests that wait for an engine: so many, and so long, and then a refusal that says when to come again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from openclaw_rl.errors import EngineUnavailable


class WaitingRoom:
    """At most `max_waiting` wait in it, each `wait_s` if it does not say otherwise."""

    def __init__(self, *, wait_s: float, max_waiting: int) -> None:
        self._wait_s = wait_s
        self._max_waiting = max_waiting
        self._num_waiting = 0

    async def wait(
        self, come: Callable[[], Awaitable[object]], timeout_s: float | None, *, retry_after_s: int = 1
    ) -> None:
        """Returns when `come` does; `EngineUnavailable` if that takes too long, or too many wait already."""
        if self._num_waiting >= self._max_waiting:
            raise EngineUnavailable(f"{self._num_waiting} requests wait for the engine", retry_after_s=retry_after_s)
        timeout_s = self._wait_s if timeout_s is None else timeout_s
        self._num_waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await come()
        except TimeoutError:
            # Why is for the server's own people (`last_error`): it may name files of this machine.
            message = f"no engine came up within {timeout_s:g} s; /readyz and the server's log say why"
            raise EngineUnavailable(message, retry_after_s=retry_after_s) from None
        finally:
            self._num_waiting -= 1
