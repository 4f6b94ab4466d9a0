"""Who asks a server now: people at once, the background a few at a time, and more of it while no person asks.

A server takes so many requests into a step and lets further ones wait, whoever asks: the background must leave
room for people who come. Knows no request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class Places:
    """Of a server that computes `max_active` requests at once."""

    def __init__(self, max_active: int) -> None:
        self._beside_people = max(1, max_active // 4)
        """Servers of others let a person go first in line, and never take a place from who has one: a gate that had all
        of them made a person wait for its answers."""
        self._alone = max(1, max_active // 2)
        self._num_people = 0
        self._num_background = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def of_person(self) -> Iterator[None]:
        self._num_people += 1
        try:
            yield
        finally:
            self._num_people -= 1
            self._let_in()

    @asynccontextmanager
    async def of_background(self) -> AsyncIterator[None]:
        """Waits until there is one, behind those who wait already."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._num_background -= 1
            else:
                self._waiting.remove(turn)
            self._let_in()

    def _let_in(self) -> None:
        """As many as there is room for."""
        most = self._beside_people if self._num_people else self._alone
        for turn in list(self._waiting):
            if self._num_background >= most:
                return
            if not turn.cancelled():  # one that was cancelled takes itself out
                self._waiting.remove(turn)
                self._num_background += 1
                turn.set_result(None)
