"""One lease: its room, and the calls to it, one after another. It does not know how long it lives, nor who asks.

A call goes to its end whether or not its caller waits. Whatever error a room raises on purpose closes it: it is not
trusted again, and the next call hears why. A reset opens another one. When the lease ends, what runs is cancelled and
the room closed; every room is closed exactly once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TypeVar

from openclaw_rl.envs.leases.answers import KeyedAnswers
from openclaw_rl.errors import EnvBusy, EnvError, EnvGone, OpenClawError
from openclaw_rl.protocols import Room
from openclaw_rl.types import Grade, Json, Observation, Opening, Ran, TaskRef, ToolCall

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_MAX_WAITING = 16
"""Calls of one lease that may be under way: an agent makes one at a time."""

_SPARE_S = 60.0
"""What a room may take beyond the time limit of a command until it is given up."""

_CLOSE_S = 60.0


class Tenancy:
    """A room to be, the room itself, and what came of it. Made inside a running event loop.

    `make_room` gets the gateway's URL and the name of a harness.
    """

    def __init__(
        self,
        *,
        lease: str,
        request_id: str,
        task: TaskRef,
        make_room: Callable[[str, str], Awaitable[Room]],
        max_call_s: float,
    ) -> None:
        self.lease = lease
        self.request_id = request_id
        self.task = task
        self.expires_at = 0.0
        self.ended = ""
        """Why the lease is over; empty while it is not."""
        self._make_room = make_room
        self._max_call_s = max_call_s
        self._room: Room | None = None
        self._why_no_room = "it is not open"
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[object]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._openings = KeyedAnswers[Opening]()
        self._solutions = KeyedAnswers[None]()
        self._observations = KeyedAnswers[Observation]()
        self._commands = KeyedAnswers[Ran]()
        self._grades = KeyedAnswers[Grade]()

    @property
    def state(self) -> Mapping[str, Json]:
        """What a person sees of it."""
        return {
            "lease": self.lease,
            **self.task.to_json(),
            "calls": len(self._running),
            "room": "open" if self._room is not None else self._why_no_room,
        }

    async def reset(self, *, key: str, gateway: str, harness: str) -> Opening:
        """Closes the room, if there is one, and opens another."""
        return await self._call(self._openings, key, (gateway, harness), partial(self._open, gateway, harness))

    async def solve(self, *, key: str) -> None:
        await self._call(self._solutions, key, (), self._in_room(lambda room: room.solve()))

    async def step(self, call: ToolCall, *, key: str) -> Observation:
        asked = (call.id, call.name, call.arguments)
        return await self._call(self._observations, key, asked, self._in_room(lambda room: room.step(call)))

    async def run(self, command: str, *, key: str, timeout_s: float, env: Mapping[str, str]) -> Ran:
        asked = (command, timeout_s, *sorted(env.items()))
        work = self._in_room(lambda room: room.run(command, timeout_s=timeout_s, env=env), limit_s=timeout_s + _SPARE_S)
        return await self._call(self._commands, key, asked, work)

    async def evaluate(self) -> Grade:
        """The grade since the last reset that was asked for; that reset's turn comes first."""
        work = self._in_room(lambda room: room.evaluate())
        return await self._call(self._grades, str(self._openings.num_keys), (), work)

    async def end(self) -> None:
        """Cancels what runs and closes the room. `ended` says why, and is set before."""
        assert self.ended, "a lease ends for a reason"
        for call in self._running:
            call.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_S)
        self._leave(self.ended)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _call(
        self,
        answers: KeyedAnswers[_Answer],
        key: str,
        asked: tuple[object, ...],
        work: Callable[[], Coroutine[object, object, _Answer]],
    ) -> _Answer:
        """The answer of a call that runs once for its key. Its caller may leave; the call stays."""
        digest = hashlib.sha256(repr(asked).encode()).digest()
        call = answers.find(key, digest)
        if call is None:
            if len(self._running) >= _MAX_WAITING:
                raise EnvBusy(f"{_MAX_WAITING} calls of lease {self.lease} are under way")
            call = answers.start(key, digest, lambda: self._begin(work))
        await asyncio.wait((call,))
        if call.cancelled():
            if not self.ended:
                raise EnvError(f"the room of lease {self.lease} cancelled its own call")
            raise EnvGone(f"lease {self.lease} has ended: {self.ended}")
        return call.result()

    def _begin(self, work: Callable[[], Coroutine[object, object, _Answer]]) -> asyncio.Task[_Answer]:
        call = asyncio.create_task(self._take_turn(work))
        self._running.add(call)
        call.add_done_callback(self._done)
        return call

    def _done(self, call: asyncio.Task[_Answer]) -> None:
        """Nobody may be left to hear of a failure: a defect is logged here."""
        self._running.discard(call)
        error = None if call.cancelled() else call.exception()
        if error is not None and not isinstance(error, OpenClawError):
            _log.error("unexpected error in a room of %s", self.task.environment, exc_info=error)

    async def _take_turn(self, work: Callable[[], Coroutine[object, object, _Answer]]) -> _Answer:
        async with self._turn:
            return await work()

    def _in_room(
        self, work: Callable[[Room], Awaitable[_Answer]], *, limit_s: float | None = None
    ) -> Callable[[], Coroutine[object, object, _Answer]]:
        async def worked() -> _Answer:
            room = self._room
            if room is None:
                raise EnvError(f"lease {self.lease} has no room: {self._why_no_room}; a reset opens one")
            return await self._guarded(lambda: work(room), limit_s or self._max_call_s)

        return worked

    async def _open(self, gateway: str, harness: str) -> Opening:
        self._leave("it is being opened")
        await self._closed()

        async def opened() -> Opening:
            self._room = room = await self._make_room(gateway, harness)
            return await room.open()

        return await self._guarded(opened, self._max_call_s)

    async def _guarded(self, work: Callable[[], Awaitable[_Answer]], limit_s: float) -> _Answer:
        """Whatever fails takes the room along."""
        limit = asyncio.timeout(limit_s)
        try:
            try:
                async with limit:
                    return await work()
            except TimeoutError:
                if not limit.expired():
                    raise
                raise EnvError(f"the room did not answer within {limit_s:g} s") from None
        except OpenClawError as error:
            self._leave(str(error))
            await self._closed()
            raise

    def _leave(self, reason: str) -> None:
        """Lets go of the room; its closing is a task of its own, which nobody cancels."""
        self._why_no_room = reason
        room, self._room = self._room, None
        if room is not None:
            closing = asyncio.create_task(self._close(room))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _closed(self) -> None:
        if self._closing:
            await asyncio.wait(self._closing)

    async def _close(self, room: Room) -> None:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await room.close()
        except (TimeoutError, OpenClawError) as error:
            reason = str(error) or f"it took longer than {_CLOSE_S:g} s"
            _log.error("a room of %s was not closed: %s", self.task.environment, reason)
